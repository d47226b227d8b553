"""Bad input to a running broker: the class of its answer, and that nobody else is harmed.

After each: the broker answers on a new connection and on one opened before, and has grown by no
more than GROWTH_MAX. The table was first taken from Apache Kafka 4.3.1 over raw sockets.
"""

import contextlib
import gzip
import os
import select
import socket
import struct
import time

import pytest
from compat.support import Wire
from durability.broker_process import BrokerProcess, free_port
from node.test_settings import create, metadata, produce

from barnabas.cext.crc import crc32c
from barnabas.cext.records import Record, encode_batch
from barnabas.wire import request
from barnabas.wire.headers import encode_request

GROWTH_MAX = 8 << 20
# A bomb is inflated up to max.decompressed.bytes (64 MiB), then refused; a codec's window on top.
BOMB_GROWTH_MAX = (64 + 16) << 20
CLOSED_S = 5.0
RECEIVE_S = 1.0
SETTINGS = {"request.receive.timeout.ms": 1000, "response.send.timeout.ms": 2000}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("data"), free_port(), SETTINGS) as made:
        with Wire(made.address) as wire:
            create(wire, "t")
            for _ in range(200):  # what a broker allocates once is not growth
                assert produce(wire, "t", b"warm" * 1000).errorCode == 0
        yield made


def resident_bytes(broker: BrokerProcess) -> int:
    with open(f"/proc/{broker.process.pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(autouse=True)
def neighbour(broker, request):
    """Another connection, opened before; it is served as ever afterwards."""
    with Wire(broker.address) as wire:
        assert metadata(wire, "t").topics[0].errorCode == 0
        before = resident_bytes(broker)
        yield wire
        growth_max = BOMB_GROWTH_MAX if "bomb" in request.node.name else GROWTH_MAX
        assert metadata(wire, "t").topics[0].errorCode == 0
        assert broker.process.poll() is None
        assert resident_bytes(broker) - before <= growth_max
        with Wire(broker.address) as new:
            assert produce(new, "t", b"still here").errorCode == 0


def connect(broker) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), timeout=CLOSED_S)


def is_closed(connection: socket.socket, within_s: float = CLOSED_S) -> bool:
    """Whether the broker closes, and says nothing before."""
    connection.settimeout(within_s)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def head(key: int, version: int, flexible: bool = False) -> bytes:
    plain = struct.pack(">hhih", key, version, 7, 1) + b"x"
    return plain + b"\0" if flexible else plain


CLOSING = {
    "negative size": struct.pack(">i", -5),
    "size of 2 GiB": struct.pack(">i", 0x7FFFFFFF),
    "size of 101 MiB": struct.pack(">i", 101 << 20),
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls hello": bytes.fromhex("1603010200010001fc0303") + bytes(505),
    "unknown api": framed(head(9999, 0)),
    "metadata v999": framed(head(3, 999)),
    "empty frame": framed(b""),
    "short header": framed(b"\0\3\0"),
    "client id longer than the frame": framed(struct.pack(">hhih", 3, 1, 7, 32767)),
    "array of 2^31-1": framed(head(3, 1) + struct.pack(">i", 0x7FFFFFFF)),
    "array of -2": framed(head(3, 1) + struct.pack(">i", -2)),
    "compact array of 2^31-1": framed(head(3, 9, True) + b"\xff\xff\xff\xff\x07"),
    "2^28 tagged fields": framed(head(3, 9)[:-1] + b"x" + b"\x80\x80\x80\x80\x01"),
    "endless varint": framed(head(3, 9, True) + b"\xff" * 64),
    "produce: topics of 2^31-1": framed(
        head(0, 8) + struct.pack(">hhii", -1, -1, 1000, 0x7FFFFFFF)
    ),
    "fetch: topics of 2^31-1": framed(
        head(1, 11) + struct.pack(">iiiibiii", -1, 0, 1, 1 << 20, 0, 0, -1, 0x7FFFFFFF)
    ),
}


@pytest.mark.parametrize("sent", CLOSING.values(), ids=CLOSING.keys())
def test_closes_without_an_answer(broker, sent):
    with connect(broker) as connection:
        connection.sendall(sent)
        assert is_closed(connection)


def test_announced_frame_that_never_comes_costs_nothing_and_ends(broker):
    with connect(broker) as connection:
        connection.sendall(struct.pack(">i", 99 << 20) + bytes(64))
        assert not is_closed(connection, within_s=0.3)
        assert is_closed(connection, within_s=RECEIVE_S * 4)


def test_apiversions_of_the_future_is_told_what_there_is(broker):
    with connect(broker) as connection:
        connection.sendall(framed(head(18, 999, True) + b"\2x\2y\0"))
        (size,) = struct.unpack(">i", connection.recv(4))
        answer = connection.recv(size)
        assert struct.unpack_from(">ih", answer) == (7, 35)
        connection.sendall(framed(head(18, 0)))
        assert len(connection.recv(4)) == 4, "the connection is kept"


@pytest.mark.parametrize("name", ["../../etc/x", "a\0b", "a" * 250, ".", "..", "a b", ""])
def test_topic_names_that_are_none(broker, neighbour, name):
    assert metadata(neighbour, name).topics[0].errorCode == 17
    ask = request(19)
    topic = ask.struct("topics")(name=name, numPartitions=1, replicationFactor=1)
    body = ask.cls(topics=[topic], timeoutMs=1000)
    assert neighbour.call(19, 5, body).topics[0].errorCode == 17


def test_topic_name_that_is_not_utf8(broker):
    with connect(broker) as connection:
        connection.sendall(framed(head(3, 1) + struct.pack(">ih", 1, 2) + b"\xff\xfe"))
        connection.settimeout(CLOSED_S)
        with contextlib.suppress(ConnectionResetError):
            answer = connection.recv(4096)
            assert answer == b"" or struct.pack(">h", 17) in answer


def seal(batch: bytearray) -> None:
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))


def changed(at: int, form: str, value: int, sealed: bool = True) -> bytes:
    """A batch of three records with one field of its header changed."""
    batch = bytearray(encode_batch([Record(b"v%d" % i, timestamp=1) for i in range(3)]))
    struct.pack_into(form, batch, at, value)
    if sealed:
        seal(batch)
    return bytes(batch)


def with_record_length(length: int) -> bytes:
    batch = bytearray(encode_batch([Record(b"value", timestamp=1)]))
    batch[61] = length << 1
    seal(batch)
    return bytes(batch)


def compressed(codec: int, body: bytes, count: int = 1) -> bytes:
    """A batch whose header is right and whose body is `body`."""
    plain = bytearray(encode_batch([Record(b"v", timestamp=1)])[:61] + body)
    struct.pack_into(">i", plain, 8, len(plain) - 12)
    struct.pack_into(">h", plain, 21, codec)
    struct.pack_into(">i", plain, 57, count)
    seal(plain)
    return bytes(plain)


CORRUPT, TOO_LARGE, UNSUPPORTED, INVALID = 2, 10, 76, 87
# Compressed rubbish under a true CRC is INVALID_RECORD: the producer made it so, and a client would
# send what it takes for damage on the way again and again.
BAD_BATCHES = {
    "wrong crc": (changed(30, ">B", 0x55, sealed=False), {CORRUPT}),
    "length -5": (changed(8, ">i", -5, sealed=False), {CORRUPT}),
    "length 2^31-1": (changed(8, ">i", 0x7FFFFFFF, sealed=False), {CORRUPT}),
    "magic 99": (changed(16, ">B", 99, sealed=False), {CORRUPT, 43}),
    "codec 7": (changed(21, ">h", 7), {UNSUPPORTED}),
    "gzip rubbish": (compressed(1, b"rubbish" * 9), {CORRUPT}),
    "snappy rubbish": (compressed(2, b"\xff" * 60), {CORRUPT}),
    "lz4 rubbish": (compressed(3, b"rubbish" * 9), {CORRUPT}),
    "zstd rubbish": (compressed(4, b"rubbish" * 9), {CORRUPT}),
    "record count 2^31-1": (changed(57, ">i", 0x7FFFFFFF), {INVALID}),
    "record count -1": (changed(57, ">i", -1), {INVALID, CORRUPT}),
    "last offset delta lies": (changed(23, ">i", 77), {INVALID}),
    "record length lies": (with_record_length(60), {INVALID, CORRUPT}),
    "control batch": (changed(21, ">h", 0x20), {INVALID, 53}),
    "transaction without an id": (changed(21, ">h", 0x10), {INVALID, 48, 53}),
}


def produce_body(records: bytes, acks: int = -1, topic: str = "t"):
    ask = request(0)
    data = ask.struct("topicData")(name=topic)
    data.partitionData = [ask.struct("topicData.partitionData")(index=0, records=records)]
    return ask.cls(acks=acks, timeoutMs=5000, topicData=[data])


def error_of(wire, records: bytes, acks: int = -1) -> int:
    answer = wire.call(0, 8, produce_body(records, acks))
    return answer.responses[0].partitionResponses[0].errorCode


@pytest.mark.parametrize(("batch", "codes"), BAD_BATCHES.values(), ids=BAD_BATCHES.keys())
def test_bad_batch_is_refused(neighbour, batch, codes):
    assert error_of(neighbour, batch) in codes


def test_acks_7(neighbour):
    assert error_of(neighbour, changed(30, ">B", 0), acks=7) == 21


BOMB_BYTES = 128 << 20


def bomb(codec: int) -> bytes:
    """128 MiB of zeros as one record, in less than max.message.bytes where the codec can."""
    if codec == 1:
        return gzip.compress(bytes(BOMB_BYTES), 6)
    if codec == 2:
        import snappy

        return snappy.compress(bytes(BOMB_BYTES))
    if codec == 3:
        import lz4.frame

        return lz4.frame.compress(bytes(BOMB_BYTES), block_linked=False)
    import zstandard

    return zstandard.compress(bytes(BOMB_BYTES), 3)


@pytest.mark.parametrize("codec", [1, 2, 3, 4], ids=["gzip", "snappy", "lz4", "zstd"])
def test_decompression_bomb_is_refused(broker, neighbour, codec):
    configs = {"max.message.bytes": 16 << 20}
    ask = request(19)
    topic = ask.struct("topics")(name="bombs", numPartitions=1, replicationFactor=1)
    row = ask.struct("topics.configs")
    topic.configs = [row(name=key, value=str(value)) for key, value in configs.items()]
    code = neighbour.call(19, 5, ask.cls(topics=[topic], timeoutMs=5000)).topics[0].errorCode
    assert code in (0, 36)
    batch = compressed(codec, bomb(codec))
    answer = neighbour.call(0, 8, produce_body(batch, topic="bombs"))
    assert answer.responses[0].partitionResponses[0].errorCode == TOO_LARGE


def test_half_sent_frames_and_a_client_that_never_reads_do_not_hold_up_others(broker, neighbour):
    with contextlib.ExitStack() as stack:
        half = [stack.enter_context(connect(broker)) for _ in range(200)]
        for connection in half:
            connection.sendall(struct.pack(">i", 1000) + bytes(10))
        deaf = stack.enter_context(connect(broker))
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.setblocking(False)
        ask = encode_request(3, 1, 1, "deaf", request(3).cls(topics=None))
        began = time.monotonic()
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while time.monotonic() - began < 1.0:
                deaf.send(ask * 100)
        took = []
        for _ in range(50):
            began = time.monotonic()
            assert metadata(neighbour, "t").topics[0].errorCode == 0
            took.append(time.monotonic() - began)
        assert sorted(took)[45] < 0.2
        give_up = time.monotonic() + RECEIVE_S * 6
        open_ones = set(half)
        while open_ones and time.monotonic() < give_up:
            for connection in select.select(list(open_ones), [], [], 0.5)[0]:
                assert is_closed(connection)
                open_ones.discard(connection)
        assert not open_ones


def valid_requests() -> dict[str, bytes]:
    fetching = request(1)
    partition = fetching.struct("topics.partitions")(partition=0, partitionMaxBytes=1000)
    wanted = fetching.struct("topics")(topic="t", partitions=[partition])
    naming = request(3)
    listing = request(2)
    at = listing.struct("topics.partitions")(partitionIndex=0, timestamp=-1)
    batch = encode_batch([Record(b"v", timestamp=1)])
    return {
        "produce 8": encode_request(0, 8, 5, "cut", produce_body(batch)),
        "fetch 11": encode_request(
            1, 11, 5, "cut", fetching.cls(maxBytes=1000, sessionEpoch=-1, topics=[wanted])
        ),
        "list offsets 5": encode_request(
            2,
            5,
            5,
            "cut",
            listing.cls(replicaId=-1, topics=[listing.struct("topics")(name="t", partitions=[at])]),
        ),
        "metadata 9": encode_request(
            3, 9, 5, "cut", naming.cls(topics=[naming.struct("topics")(name="t")])
        ),
        "api versions 3": encode_request(
            18,
            3,
            5,
            "cut",
            request(18).cls(clientSoftwareName="cut", clientSoftwareVersion="1"),
        ),
    }


@pytest.mark.parametrize("name", list(valid_requests()))
def test_request_cut_at_every_byte_closes_or_is_answered(broker, name):
    """The frame's size is made right again, so that what is missing is inside the request."""
    whole = valid_requests()[name]
    for length in range(len(whole) - 4):
        with connect(broker) as connection:
            connection.sendall(framed(whole[4 : 4 + length]))
            connection.settimeout(CLOSED_S)
            with contextlib.suppress(ConnectionResetError):
                got = connection.recv(8)
                assert got == b"" or got[4:8] == struct.pack(">i", 5), (length, got)


@pytest.mark.parametrize("name", list(valid_requests()))
def test_request_in_pieces_of_one_byte_is_answered(broker, name):
    whole = valid_requests()[name]
    with connect(broker) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(whole)):
            connection.sendall(whole[at : at + 1])
        assert connection.recv(8)[4:8] == struct.pack(">i", 5)
