"""Settings with a visible effect: each test sets one and checks its effect."""

import random
import socket
import time
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from compat.support import Wire
from waiting import soon

from barnabas import Broker
from barnabas.cext.record.records import Record
from barnabas.config import ConfigError
from barnabas.wire import request
from barnabas.wire.batches import decode_batches, encode_batch


@contextmanager
def broker_with(tmp_path, settings=()):
    given = {name: str(value) for name, value in dict(settings).items()}
    base = {"log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}
    with Broker(base | given) as broker:
        yield broker


@contextmanager
def wire_to(broker):
    with closing(Wire(broker.bootstrap_servers)) as wire:
        yield wire


def metadata(wire, *names, version=9):
    ask = request(3)
    topics = [ask.struct("topics")(name=name) for name in names]
    return wire.call(3, version, ask.cls(topics=topics))


def metadata_when_created(wire, name):
    """Repeats the request until the topic, which the first one creates, exists."""
    deadline = time.monotonic() + 10
    while (answer := metadata(wire, name)).topics[0].errorCode == 3:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return answer


def create(wire, name, configs=(), partitions=1):
    ask = request(19)
    topic = ask.struct("topics")(name=name, numPartitions=partitions, replicationFactor=1)
    row = ask.struct("topics.configs")
    topic.configs = [row(name=key, value=str(value)) for key, value in dict(configs).items()]
    code = wire.call(19, 5, ask.cls(topics=[topic], timeoutMs=5000)).topics[0].errorCode
    assert code == 0, code


def produce(wire, topic, *values, partition=0, codec=0, timestamp=None, key=None, acks=-1):
    """The partition's response to one batch."""
    now = int(time.time() * 1000) if timestamp is None else timestamp
    records = [Record(value, key, timestamp=now) for value in values]
    ask = request(0)
    data = ask.struct("topicData")(name=topic)
    data.partitionData = [
        ask.struct("topicData.partitionData")(
            index=partition, records=encode_batch(records, codec=codec)
        )
    ]
    answer = wire.call(0, 8, ask.cls(acks=acks, timeoutMs=5000, topicData=[data]))
    return answer.responses[0].partitionResponses[0]


def fetch(wire, topic, offset=0, size_max=1 << 20, max_bytes=1 << 26, session=(0, -1), wait_ms=500):
    ask = request(1)
    row = ask.struct("topics.partitions")(
        partition=0, fetchOffset=offset, partitionMaxBytes=size_max
    )
    topics = [ask.struct("topics")(topic=topic, partitions=[row])]
    body = ask.cls(
        maxWaitMs=wait_ms,
        minBytes=1,
        maxBytes=max_bytes,
        topics=topics,
        sessionId=session[0],
        sessionEpoch=session[1],
    )
    return wire.call(1, 11, body)


def batches(wire, topic, **how):
    [row] = fetch(wire, topic, **how).responses[0].partitions
    return list(decode_batches(bytes(row.records), size_max=1 << 26, partial_tail=True))


def files(broker, topic, suffix=".log"):
    [directory] = broker.node.config.log_dirs
    return sorted((Path(directory) / f"{topic}-0").glob(f"*{suffix}"))


def test_auto_create_topics_enable(tmp_path):
    with broker_with(tmp_path, {"auto.create.topics.enable": "false"}) as b, wire_to(b) as wire:
        assert metadata(wire, "t").topics[0].errorCode == 3
        time.sleep(0.1)
        assert metadata(wire).topics == [] and metadata(wire, "t").topics[0].errorCode == 3
    with broker_with(tmp_path / "2") as b, wire_to(b) as wire:
        assert metadata_when_created(wire, "t").topics[0].errorCode == 0


def test_num_partitions(tmp_path):
    with broker_with(tmp_path, {"num.partitions": 3}) as b, wire_to(b) as wire:
        assert len(metadata_when_created(wire, "t").topics[0].partitions) == 3, "num.partitions"


def test_node_id_and_rack(tmp_path):
    with broker_with(tmp_path, {"node.id": 7, "broker.rack": "r1"}) as b, wire_to(b) as wire:
        [row] = metadata(wire).brokers
        assert (row.nodeId, row.rack) == (7, "r1"), ("node.id", "broker.rack")
    with broker_with(tmp_path / "2", {"broker.id": 8}) as b, wire_to(b) as wire:
        assert metadata(wire).brokers[0].nodeId == 8, "broker.id"


def test_an_embedded_store_has_node_1(tmp_path):
    with broker_with(tmp_path) as b:
        assert b.node.node_id == 1


def test_an_id_that_an_earlier_version_generated_is_kept(tmp_path):
    """v0.1.0 gave 1001 to a node without settings; meta.properties keeps it."""
    with broker_with(tmp_path, {"reserved.broker.max.id": 1000}) as b:
        assert b.node.node_id == 1001
    with broker_with(tmp_path) as b:
        assert b.node.node_id == 1001


def test_generated_node_id_is_kept(tmp_path):
    with broker_with(tmp_path, {"reserved.broker.max.id": 50}) as b:
        assert b.node.node_id == 51, "reserved.broker.max.id"
    with broker_with(tmp_path) as b:
        assert b.node.node_id == 51
    with pytest.raises(Exception, match="set node.id"):
        broker_with(tmp_path / "2", {"broker.id.generation.enable": "false"}).__enter__()


def test_advertised_listeners(tmp_path):
    with broker_with(
        tmp_path,
        {"advertised.listeners": "PLAINTEXT://broker.example:9999", "listeners": "PLAINTEXT://:0"},
    ) as b:
        with wire_to(b) as wire:
            [row] = metadata(wire).brokers
    assert (row.host, row.port) == ("broker.example", 9999), "advertised.listeners"


def test_old_names_of_listeners(tmp_path):
    settings = {"advertised.host.name": "broker.example", "advertised.port": "9999"}
    with broker_with(tmp_path, settings) as b, wire_to(b) as wire:
        [row] = metadata(wire).brokers
    assert (row.host, row.port) == ("broker.example", 9999), "advertised.host.name"
    data = {"log.dirs": str(tmp_path / "old")}
    with Broker(data | {"host.name": "127.0.0.2", "port": "0"}) as b, wire_to(b) as wire:
        assert metadata(wire).brokers[0].host == "127.0.0.2"
        assert b.bootstrap_servers.startswith("127.0.0.2:"), "host.name"


def test_several_listeners_each_name_their_own_port(tmp_path):
    with broker_with(
        tmp_path,
        {
            "listeners": "PLAINTEXT://127.0.0.1:0,SECOND://127.0.0.1:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT",
        },
    ) as b:
        assert {row.name for row in b.node.listeners} == {"PLAINTEXT", "SECOND"}
        for listener in b.node.listeners:
            with closing(Wire(f"127.0.0.1:{listener.port}")) as wire:
                assert metadata(wire).brokers[0].port == listener.port, "listeners"


def test_remote_listener_needs_leave(tmp_path):
    with pytest.raises(ConfigError, match="allow.unauthenticated.remote"):
        Broker({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://0.0.0.0:0"})


def test_log_dirs_take_turns(tmp_path):
    dirs = [str(tmp_path / name) for name in "abc"]
    with broker_with(tmp_path, {"log.dirs": ",".join(dirs)}) as b, wire_to(b) as wire:
        create(wire, "t", partitions=6)
        held = [len(list((tmp_path / name).glob("t-*"))) for name in "abc"]
    assert held == [2, 2, 2], "log.dirs"


def test_max_message_bytes(tmp_path):
    with broker_with(tmp_path, {"message.max.bytes": 2000}) as b, wire_to(b) as wire:
        create(wire, "plain")
        create(wire, "large", {"max.message.bytes": 5000})
        assert produce(wire, "plain", bytes(3000)).errorCode == 10, "message.max.bytes"
        assert produce(wire, "large", bytes(3000)).errorCode == 0, "max.message.bytes"
        assert produce(wire, "large", bytes(6000)).errorCode == 10


def test_compression_type(tmp_path):
    with broker_with(tmp_path, {"compression.type": "lz4"}) as b, wire_to(b) as wire:
        create(wire, "broker")
        create(wire, "topic", {"compression.type": "zstd"})
        create(wire, "plain", {"compression.type": "uncompressed"})
        for topic, codec in (("broker", 3), ("topic", 4), ("plain", 0)):
            assert produce(wire, topic, b"value" * 100, codec=1).errorCode == 0
            [batch] = batches(wire, topic)
            assert batch.codec == codec, "compression.type"
            assert [record.value for record in batch.records] == [b"value" * 100]


@pytest.mark.parametrize(
    ("level", "low", "high"),
    [
        ("compression.gzip.level", 1, 9),
        ("compression.lz4.level", 9, 17),
        ("compression.zstd.level", 1, 19),
    ],
)
def test_compression_levels(tmp_path, level, low, high):
    """The default of lz4, 9, is its fast form; each other level is one of high compression."""
    chance = random.Random(7)
    value = " ".join(chance.choices([f"word{n}" for n in range(3000)], k=8000)).encode()
    codec = level.split(".")[1]
    with broker_with(tmp_path, {"compression.type": codec, level: str(high)}) as b, wire_to(b) as w:
        create(w, "high")
        create(w, "low", {level: str(low)})
        sizes = {}
        for topic in ("high", "low"):
            assert produce(w, topic, value, codec=2).errorCode == 0
            [batch] = batches(w, topic)
            assert [record.value for record in batch.records] == [value]
            folder = Path(b.node.loaded.logs.get(topic, 0).handle.directory)
            sizes[topic] = (folder / f"{0:020}.log").stat().st_size
        assert sizes["high"] < 0.95 * sizes["low"]


def test_message_timestamp_type(tmp_path):
    with (
        broker_with(tmp_path, {"log.message.timestamp.type": "LogAppendTime"}) as b,
        wire_to(b) as wire,
    ):
        create(wire, "append")
        create(wire, "create", {"message.timestamp.type": "CreateTime"})
        before = int(time.time() * 1000)
        row = produce(wire, "append", b"v", timestamp=1000)
        assert row.logAppendTimeMs >= before, "log.message.timestamp.type"
        assert produce(wire, "create", b"v", timestamp=1000).logAppendTimeMs == -1
        [batch] = batches(wire, "append")
        assert batch.records[0].timestamp == row.logAppendTimeMs
        [batch] = batches(wire, "create")
        assert batch.records[0].timestamp == 1000, "message.timestamp.type"


def test_message_timestamp_bounds(tmp_path):
    with broker_with(tmp_path) as b, wire_to(b) as wire:
        create(wire, "t", {"message.timestamp.before.max.ms": 60_000})
        now = int(time.time() * 1000)
        assert produce(wire, "t", b"v", timestamp=now - 120_000).errorCode == 32
        assert produce(wire, "t", b"v", timestamp=now + 7_200_000).errorCode == 32
        assert produce(wire, "t", b"v", timestamp=now).errorCode == 0


def test_cleanup_policy_compact_needs_keys(tmp_path):
    with broker_with(tmp_path) as b, wire_to(b) as wire:
        create(wire, "t", {"cleanup.policy": "compact"})
        assert produce(wire, "t", b"v").errorCode == 87, "cleanup.policy"
        assert produce(wire, "t", b"v", key=b"k").errorCode == 0


def test_segment_bytes_and_indexes(tmp_path):
    with broker_with(tmp_path, {"log.segment.bytes": 4000}) as b, wire_to(b) as wire:
        create(wire, "broker")
        create(wire, "topic", {"segment.bytes": 2000, "segment.index.bytes": 4096})
        create(wire, "dense", {"segment.bytes": 1 << 20, "index.interval.bytes": 0})
        for _ in range(9):
            for topic in ("broker", "topic", "dense"):
                assert produce(wire, topic, bytes(900)).errorCode == 0
        assert len(files(b, "broker")) == 3, "log.segment.bytes"
        assert len(files(b, "topic")) == 5, "segment.bytes"
        assert files(b, "topic", ".index")[-1].stat().st_size == 4096, "segment.index.bytes"
        used = files(b, "dense", ".index")[0].read_bytes().rstrip(b"\0")
        assert len(used) > 50, "index.interval.bytes"


def test_segment_ms(tmp_path):
    with broker_with(tmp_path) as b, wire_to(b) as wire:
        create(wire, "t", {"segment.ms": 1000})
        now = int(time.time() * 1000)
        for timestamp in (now - 5000, now - 4900, now - 1000):
            assert produce(wire, "t", b"v", timestamp=timestamp).errorCode == 0
        assert len(files(b, "t")) == 2, "segment.ms"


def test_fetch_max_bytes(tmp_path):
    with broker_with(tmp_path, {"fetch.max.bytes": 1024}) as b, wire_to(b) as wire:
        create(wire, "t")
        for _ in range(5):
            produce(wire, "t", bytes(600))
        [row] = fetch(wire, "t").responses[0].partitions
        assert len(row.records) == 1024, "fetch.max.bytes"


def test_session_cache_slots(tmp_path):
    settings = {"max.incremental.fetch.session.cache.slots": 1}
    with broker_with(tmp_path, settings) as b, wire_to(b) as wire, wire_to(b) as other:
        create(wire, "t")
        produce(wire, "t", b"v")
        first = fetch(wire, "t", session=(0, 0)).sessionId
        second = fetch(other, "t", session=(0, 0)).sessionId
        assert first != 0 and second == 0, "max.incremental.fetch.session.cache.slots"


def test_socket_request_max_bytes(tmp_path):
    with broker_with(tmp_path, {"socket.request.max.bytes": 5000}) as b, wire_to(b) as wire:
        create(wire, "t")
        assert produce(wire, "t", bytes(3000)).errorCode == 0
        with pytest.raises(ConnectionError):
            produce(wire, "t", bytes(6000))


API_VERSIONS = bytes.fromhex("0000000a0012000000000001ffff")


def refused(broker):
    """Whether a new connection is closed without an answer."""
    host, port = broker.bootstrap_servers.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        try:
            connection.sendall(API_VERSIONS)
            return connection.recv(1) == b""
        except ConnectionError:
            return True


def test_connection_limits(tmp_path):
    settings = {"max.connections.per.ip": 2}
    with broker_with(tmp_path, settings) as b, wire_to(b) as one, wire_to(b) as two:
        assert metadata(one).brokers and metadata(two).brokers
        assert refused(b)
        one.close()
        soon(lambda: not refused(b))


def closed_after(connection, seconds):
    connection.settimeout(seconds)
    began = time.monotonic()
    try:
        assert connection.recv(1) == b""
    except TimeoutError:
        return None
    return time.monotonic() - began


def test_idle_and_half_sent_connections_are_closed(tmp_path):
    settings = {"connections.max.idle.ms": 700, "request.receive.timeout.ms": 300}
    with broker_with(tmp_path, settings) as b:
        host, port = b.bootstrap_servers.rsplit(":", 1)
        with socket.create_connection((host, int(port))) as idle:
            assert 0.5 < closed_after(idle, 5) < 4, "connections.max.idle.ms"
        with socket.create_connection((host, int(port))) as half:
            half.sendall(b"\0\0\1\0half")
            assert 0.2 < closed_after(half, 5) < 0.65, "request.receive.timeout.ms"


def test_durability_decides_who_moves_the_high_watermark(tmp_path):
    for durability, flushes in (("fsync", True), ("os", False)):
        with (
            broker_with(tmp_path / durability, {"log.durability": durability}) as b,
            wire_to(b) as wire,
        ):
            create(wire, "t")
            assert produce(wire, "t", b"v", acks=-1).errorCode == 0
            opened = b.node.loaded.logs.get("t", 0)
            assert (opened.handle.flushed_offset == 1) == flushes, "log.durability"
            assert batches(wire, "t")[0].records[0].value == b"v"


def test_records_of_acks_1_become_visible_without_another_writer(tmp_path):
    with broker_with(tmp_path) as b, wire_to(b) as wire:
        create(wire, "t")
        assert produce(wire, "t", b"v", acks=1).errorCode == 0
        assert batches(wire, "t")[0].records[0].value == b"v"
