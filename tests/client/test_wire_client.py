"""The client against a broker, and against servers that misbehave."""

import random
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas import Broker
from barnabas.cext.record.records import Record
from barnabas.client import (
    EARLIEST,
    LATEST,
    AnswerTooLarge,
    BadAddress,
    CannotConnect,
    Cluster,
    Connection,
    ConnectionLost,
    NewTopic,
    NotSpokenByBroker,
    Producer,
    ProtocolViolation,
    Reader,
    create_topics,
    list_offsets,
)
from barnabas.client.cluster import parse_addresses
from barnabas.client.delivery import size_of
from barnabas.client.offsets import COMMITTED
from barnabas.client.partitioner import murmur2
from barnabas.errors import (
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailable,
    MessageTooLarge,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from barnabas.wire import request, response
from barnabas.wire.batches import encode_batch
from barnabas.wire.headers import encode_response


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {
        "log.dirs": str(tmp_path_factory.mktemp("client") / "data"),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "auto.create.topics.enable": "false",
    }
    with Broker(settings) as running:
        yield running


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap_servers, timeout_s=10) as made:
        yield made


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"t{random.randrange(10**12)}"
    create_topics(cluster, [NewTopic(name, partition_count=2)])
    return name


def values(cluster: Cluster, topic: str, partition: int = 0, **options: int) -> list[bytes | None]:
    reader = Reader(cluster, topic, {partition: 0}, to_end=True, **options)
    return [record.value for _, record in reader]


# ---------------------------------------------------------------------------- with a true broker


def test_records_come_back_with_all_they_had(cluster: Cluster, topic: str):
    with Producer(cluster, topic, codec="lz4") as producer:
        producer.send(b"v", b"k", headers=[("h", b"1"), ("n", None)], timestamp=5, partition=1)
        producer.send(None, b"gone", partition=1)
    assert producer.last_offsets == {1: 1}
    (_, first), (_, second) = Reader(cluster, topic, {1: 0}, to_end=True)
    assert (first.key, first.value, first.timestamp) == (b"k", b"v", 5)
    assert list(first.headers) == [("h", b"1"), ("n", None)]
    assert (second.key, second.value, second.offset) == (b"gone", None, 1)


def test_another_thread_interrupts_a_wait_for_an_answer(broker: Broker, topic: str):
    host, _, port = broker.bootstrap_servers.rpartition(":")
    connection = Connection(host, int(port), answer_timeout_s=60, receive_buffer_bytes=65536)
    fault = broker.delay("ListOffsets", ms=30_000, topic=topic)
    raised: list[Exception] = []

    def wait() -> None:
        message = request(2)
        row = message.struct("topics.partitions")(partitionIndex=0, timestamp=LATEST)
        body = message.cls(topics=[message.struct("topics")(name=topic, partitions=[row])])
        try:
            connection.call(2, body, low=1)
        except ConnectionLost as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    fault.wait()
    connection.interrupt()
    waiting.join(20)
    assert len(raised) == 1 and not connection.is_open
    fault.clear()


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_many_batches_keep_their_order(cluster: Cluster, topic: str, acks: str):
    sent = [b"%d" % i for i in range(3000)]
    with Producer(cluster, topic, acks=acks, batch_bytes=4096) as producer:
        for value in sent:
            producer.send(value, partition=0)
    if acks == "0":  # answered in order on the same connection, so that all are stored then
        list_offsets(cluster, topic, {0: LATEST})
    assert values(cluster, topic) == sent


def test_small_fetches_give_the_same_records(cluster: Cluster, topic: str):
    sent = [b"x" * i for i in range(300)]
    with Producer(cluster, topic, batch_bytes=2000) as producer:
        for value in sent:
            producer.send(value, partition=0)
    assert values(cluster, topic, fetch_bytes=1, partition_bytes=1) == sent
    middle = Reader(cluster, topic, {0: 137}, to_end=True)
    assert [record.offset for _, record in middle] == list(range(137, 300))
    assert middle.offsets == {0: 300}


def test_a_batch_that_is_too_large_is_sent_in_halves(cluster: Cluster):
    name = f"small{random.randrange(10**12)}"
    create_topics(cluster, [NewTopic(name, configs={"max.message.bytes": "1000"})])
    sent = [b"y" * 300 for _ in range(20)]
    with Producer(cluster, name) as producer:
        for value in sent:
            producer.send(value)
    assert values(cluster, name) == sent and producer.record_count == 20
    with pytest.raises(MessageTooLarge):
        with Producer(cluster, name) as producer:
            producer.send(b"y" * 2000)


def test_what_waits_in_many_partitions_has_one_limit(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("barnabas.client.producer.PENDING_BYTES_MAX", 1000)
    with Producer(cluster, topic) as producer:
        for i in range(100):
            producer.send(b"z" * 100, partition=i % 2)
            assert producer._delivery.pending_bytes <= 1000
        assert 80 < producer.record_count < 100


def test_keys_stay_in_their_partition(cluster: Cluster, topic: str):
    with Producer(cluster, topic) as producer:
        for i in range(200):
            producer.send(b"v", b"key %d" % (i % 20))
    reader = Reader(cluster, topic, {0: 0, 1: 0}, to_end=True)
    places: dict[bytes, set[int]] = {}
    for partition, record in reader:
        places.setdefault(record.key or b"", set()).add(partition)
    assert len(places) == 20 and {len(found) for found in places.values()} == {1}
    assert set.union(*places.values()) == {0, 1}


def test_murmur2_is_kafkas():
    """The values of Kafka's own test, which has them as signed 32-bit numbers."""
    assert [murmur2(text) for text in (b"21", b"foobar", b"a-little-bit-long-string")] == [
        (-973932308) & 0xFFFFFFFF,
        (-790332482) & 0xFFFFFFFF,
        (-985981536) & 0xFFFFFFFF,
    ]


def test_a_batch_sent_again_after_a_lost_answer_is_stored_once(
    broker: Broker, cluster: Cluster, topic: str
):
    """The broker stores the batch and closes the connection in place of the answer."""
    with Producer(cluster, topic) as producer:
        producer.send(b"before", partition=0)
        producer.flush()
        line = next(iter(producer._delivery._lines.values()))
        producer.send(b"once", partition=0)
        producer._delivery._send_all()
        deadline_s = time.monotonic() + 20
        while end_offset(cluster, topic) < 2:  # stored; its answer is not read
            assert time.monotonic() < deadline_s
        producer._delivery._lost(line, ConnectionLost("cut by the test"))
        producer.send(b"then", partition=0)
        producer.flush()
        assert producer._delivery.retried == 1
    assert values(cluster, topic) == [b"before", b"once", b"then"]


def end_offset(cluster: Cluster, topic: str) -> int:
    return list_offsets(cluster, topic, {0: LATEST})[0].offset


def test_an_error_is_raised_when_nothing_is_on_its_way(cluster: Cluster):
    """One partition refuses its batch; what went to the other one is acknowledged."""
    name = f"small{random.randrange(10**12)}"
    create_topics(cluster, [NewTopic(name, 2, configs={"max.message.bytes": "1000"})])
    with Producer(cluster, name, batch_bytes=1200) as producer:
        # Not with `send`, which raises the error when the response comes quickly.
        large = Record(b"y" * 2000, timestamp=1)
        producer._delivery.add(name, 0, (large,), size_of(large), None)
        for _ in range(20):
            producer._delivery.add(name, 1, (Record(b"z", timestamp=1),), 1, None)
        with pytest.raises(MessageTooLarge, match=f"partition 0 of topic {name}"):
            producer.flush()
        assert producer.record_count == 20 and producer._delivery.is_idle
        producer.send(b"fits", partition=0)
    assert values(cluster, name) == [b"fits"]


def test_a_broker_that_comes_back_is_found_again(tmp_path: Path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {"log.dirs": str(tmp_path), "listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    with Cluster(f"127.0.0.1:{port}", timeout_s=20) as cluster:
        with Broker(settings):
            create_topics(cluster, [NewTopic("t", 1)])
            producer = Producer(cluster, "t")
            producer.send(b"before")
            producer.flush()
        again = Broker(settings)
        starter = threading.Timer(0.5, again.start)
        starter.start()
        try:
            producer.send(b"after")
            producer.flush()
            assert values(cluster, "t") == [b"before", b"after"]
        finally:
            producer.close()
            starter.join()
            again.stop()


def test_offsets_by_time(cluster: Cluster, topic: str):
    with Producer(cluster, topic) as producer:
        for at in (1000, 2000, 3000):
            producer.send(b"v", timestamp=at, partition=0)

    def offset_of(time: int) -> int:
        return list_offsets(cluster, topic, {0: time})[0].offset

    assert [offset_of(time) for time in (EARLIEST, LATEST, 0, 1001, 3000, 3001)] == [
        0, 3, 0, 1, 2, -1,
    ]  # fmt: skip


def test_named_errors(cluster: Cluster, topic: str):
    with pytest.raises(TopicAlreadyExists, match=topic):
        create_topics(cluster, [NewTopic(topic)])
    with pytest.raises(UnknownTopicOrPartition, match="no topic absent"):
        cluster.topic("absent")
    with pytest.raises(UnknownTopicOrPartition, match="no partition 5, it has partitions 0 to 1"):
        with Producer(cluster, topic) as producer:
            producer.send(b"v", partition=5)
    with pytest.raises(NotSpokenByBroker):
        cluster.any_connection().version_of(3, low=99)
    with pytest.raises(ValueError, match="codec"):
        Producer(cluster, topic, codec="rar")


# -------------------------------------------------------------------- with servers that misbehave


def serve(answer: Callable[[socket.socket], None]) -> tuple[str, int]:
    """Accepts one connection and calls `answer` with it, on a thread of its own."""
    server = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        connection, _ = server.accept()
        server.close()
        with connection:
            answer(connection)

    threading.Thread(target=run, daemon=True).start()
    return server.getsockname()


def frame_of(connection: socket.socket) -> bytes:
    size = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
    return connection.recv(size, socket.MSG_WAITALL)


def api_versions(version: int, error: int, keys: list[tuple[int, int, int]]) -> bytes:
    message = response(18)
    row = message.struct("apiKeys")
    rows = [row(apiKey=key, minVersion=low, maxVersion=high) for key, low, high in keys]
    return encode_response(18, version, 0, message.cls(errorCode=error, apiKeys=rows))


def with_correlation(frame: bytes, request: bytes) -> bytes:
    return frame[:4] + request[4:8] + frame[8:]


def test_an_old_broker_is_asked_in_version_0():
    """Kafka up to 2.3 answers ApiVersions 3 with error 35 in the form of version 0."""
    asked = []

    def answer(connection: socket.socket) -> None:
        for error, keys in ((35, [(18, 0, 2)]), (0, [(18, 0, 2), (3, 0, 5)])):
            request = frame_of(connection)
            asked.append(int.from_bytes(request[2:4], "big"))
            connection.sendall(with_correlation(api_versions(0, error, keys), request))

    connection = Connection(*serve(answer))
    assert asked == [3, 0]
    assert connection.version_of(3) == 5
    with pytest.raises(NotSpokenByBroker, match="does not serve Produce"):
        connection.version_of(0)
    connection.close()


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"", ConnectionLost),
        (b"\0\0\0\x20abc", ConnectionLost),
        (struct.pack(">i", 2**31 - 1), AnswerTooLarge),
        (struct.pack(">i", -5), ProtocolViolation),
        (struct.pack(">ii", 6, 77) + b"\0\0", ProtocolViolation),
        (struct.pack(">ii", 4 + 7, 1) + b"\0\0\xff\xff\xff\xff\xff", ProtocolViolation),
        (struct.pack(">iihi", 4 + 6, 1, 0, 2**31 - 1), ProtocolViolation),
    ],
    ids=["nothing", "torn", "huge", "negative", "of another", "malformed", "huge count"],
)
def test_answers_that_are_none(sent: bytes, error: type[Exception]):
    def answer(connection: socket.socket) -> None:
        frame_of(connection)
        connection.sendall(sent)

    with pytest.raises(error):
        Connection(*serve(answer), answer_timeout_s=5)


def test_silence_is_given_up_in_time():
    done = threading.Event()
    address = serve(lambda _connection: done.wait(20) and None)
    with pytest.raises(ConnectionLost, match=r"within 0\.2 s"):
        Connection(*address, answer_timeout_s=0.2)
    done.set()


def test_an_answer_that_trickles_does_not_extend_the_time():
    def answer(connection: socket.socket) -> None:
        frame_of(connection)
        connection.sendall(struct.pack(">i", 1000))
        try:
            while True:
                connection.sendall(b"x")
                threading.Event().wait(0.05)
        except OSError:
            pass

    with pytest.raises(ConnectionLost, match="within"):
        Connection(*serve(answer), answer_timeout_s=0.5)


def test_steps_are_repeated_only_while_it_may_help(cluster: Cluster):
    tried = []

    def passing() -> int:
        tried.append(1)
        if len(tried) < 3:
            raise LeaderNotAvailable
        return len(tried)

    assert cluster.retrying(passing) == 3

    def lasting() -> int:
        tried.append(1)
        raise TopicAlreadyExists

    tried.clear()
    with pytest.raises(KafkaError):
        cluster.retrying(lasting)
    assert len(tried) == 1
    with pytest.raises(LeaderNotAvailable):
        cluster.retrying(lambda: (_ for _ in ()).throw(LeaderNotAvailable()), timeout_s=0.2)


def test_first_contact_is_not_repeated():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(CannotConnect, match="refused"):
        Cluster(f"127.0.0.1:{port}").topics()


@pytest.mark.parametrize("host", ["no..host", "n\u00f6..host", "x" * 64])
def test_a_name_that_cannot_be_one_is_said_in_one_line(host: str):
    with pytest.raises(CannotConnect, match=f"^cannot connect to {re.escape(host)}:9092: .+"):
        Connection(host, 9092)


def test_any_of_several_bootstrap_servers_will_do(broker: Broker):
    with Cluster(f"127.0.0.1:1, {broker.bootstrap_servers}") as cluster:
        cluster.refresh([])
        assert cluster.brokers


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a:1", [("a", 1)]),
        ("a", [("a", 9092)]),
        ("a:1,b:2", [("a", 1), ("b", 2)]),
        ("[::1]:5", [("::1", 5)]),
        ("PLAINTEXT://h:3", [("h", 3)]),
        ("", None),
        ("a:x", None),
        ("a:70000", None),
        ("http://a:1/", None),
    ],
)
def test_addresses(text: str, found: list[tuple[str, int]] | None):
    if found is None:
        with pytest.raises(BadAddress):
            parse_addresses(text)
    else:
        assert parse_addresses(text) == found


# ------------------------------------------------------------------------------- transactions


def control_record(kind: int) -> Record:
    """A transaction's marker: the key is version and kind, the value version and epoch."""
    return Record(struct.pack(">hi", 0, 0), struct.pack(">hh", 0, kind))


def test_committed_reading_leaves_out_aborted_transactions(cluster: Cluster, topic: str):
    """The test makes the response: its markers and its list of aborted transactions decide."""
    reader = Reader(cluster, topic, {0: 0}, isolation=COMMITTED)
    abort, commit = [control_record(0)], [control_record(1)]
    one = {"producer_id": 1, "producer_epoch": 0, "transactional": True}
    two = {"producer_id": 2, "producer_epoch": 0, "transactional": True}
    data = (
        encode_batch([b"a0"], base_offset=0, base_sequence=0, **one)
        + encode_batch([b"b1"], base_offset=1, base_sequence=0, **two)
        + encode_batch(abort, base_offset=2, control=True, **one)
        + encode_batch([b"a3"], base_offset=3, base_sequence=1, **one)
        + encode_batch(commit, base_offset=4, control=True, **one)
        + encode_batch(commit, base_offset=5, control=True, **two)
        + encode_batch([b"plain6"], base_offset=6)
    )
    message = response(1)
    aborted = message.struct("responses.partitions.abortedTransactions")
    row = message.struct("responses.partitions")(
        records=data, abortedTransactions=[aborted(producerId=1, firstOffset=0)]
    )
    assert [r.value for _, r in reader._records(0, row)] == [b"b1", b"a3", b"plain6"]
    assert reader.offsets == {0: 7}
    row.abortedTransactions = None
    every = Reader(cluster, topic, {0: 0})
    assert [r.value for _, r in every._records(0, row)] == [b"a0", b"b1", b"a3", b"plain6"]


def test_one_batch_that_times_out_ends_the_others_too(tmp_path: Path):
    """On a full disk each of many batches waited for its own timeout: minutes with `--timeout
    2`."""
    with Broker({"log.dirs": str(tmp_path)}) as broker:
        with Cluster(broker.bootstrap_servers, timeout_s=2) as cluster:
            create_topics(cluster, [NewTopic("full", 1)])
            began_s = time.monotonic()
            fault = broker.fill_disk()
            with pytest.raises(KafkaStorageError):
                with Producer(cluster, "full", batch_bytes=1000) as producer:
                    for _ in range(50):
                        producer.send(b"x" * 900)
            assert fault.fired and time.monotonic() - began_s < 15
