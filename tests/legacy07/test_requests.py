"""Requests of Kafka 0.7 at a running broker, byte by byte, beside clients of today."""

import struct
import time

import pytest
from confluent_kafka import Consumer, Producer
from legacy07.conftest import broker07, connect, port_of
from node.test_settings import create, produce, wire_to
from oracle import kafka07
from oracle.kafka07 import EARLIEST, GZIP, LATEST, SNAPPY, Client07, Closed

from barnabas.config import ConfigError


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with broker07(tmp_path_factory.mktemp("kafka07"), {"num.partitions": "2"}) as started:
        yield started


@pytest.fixture
def client(broker):
    with connect(broker) as connected:
        yield connected


def test_a_consumer_adds_up_the_bytes_that_it_reads(client) -> None:
    client.produce("sums", kafka07.messages([b"a", b"", b"xyz"]))
    assert client.offsets("sums", LATEST) == (0, [34])
    assert client.offsets("sums", EARLIEST) == (0, [0])
    assert client.consume("sums", 0) == ([b"a", b"", b"xyz"], 34)
    assert client.consume("sums", 11) == ([b"", b"xyz"], 34)
    assert client.fetch("sums", 34) == (0, b"")


def test_addresses_without_a_message_are_out_of_range(client) -> None:
    client.produce("range", kafka07.messages([b"abc"]))
    assert client.offsets("range", LATEST) == (0, [13])
    for address in (-1, 1, 12, 14, 2**62, -(2**63)):
        assert client.fetch("range", address) == (1, b"")


def test_a_fetch_size_limits_the_answer(client) -> None:
    client.produce("limited", kafka07.messages([b"0123456789"] * 5))
    for size_max, whole in ((20, 1), (39, 1), (40, 2), (59, 2), (100, 5), (2**31 - 1, 5)):
        assert client.fetch("limited", 0, size_max) == (
            0,
            kafka07.messages([b"0123456789"] * whole),
        )
    assert client.fetch("limited", 20, 19) == (0, kafka07.message(b"0123456789")[:19])
    assert client.fetch("limited", 20, 0) == (0, b"")
    assert client.fetch("limited", 0, -1) == (4, b"")


def test_wrappers_are_unpacked_and_keep_their_codec_in_the_log(broker, client) -> None:
    both = kafka07.wrapped([b"1", b"2"], GZIP) + kafka07.message(b"3")
    client.produce("wrapped", both + kafka07.wrapped([b"4"], SNAPPY))
    client.produce("wrapped", kafka07.wrapped([b"5", b"6"], SNAPPY))
    client.produce("wrapped", kafka07.wrapped([], GZIP))
    client.produce("wrapped", b"")
    assert client.consume("wrapped", 0)[0] == [b"1", b"2", b"3", b"4", b"5", b"6"]
    with wire_to(broker) as wire:
        from node.test_settings import batches

        assert [batch.codec for batch in batches(wire, "wrapped")] == [GZIP, SNAPPY]


def test_several_requests_in_one(client) -> None:
    def one(payload):
        return kafka07.messages([payload])

    client.produce_many([("m1", 0, one(b"a")), ("m2", 1, one(b"b")), ("m1", 0, one(b"c"))])
    client.produce_many([])
    found = client.fetch_many(
        [("m1", 0, 0, 99), ("m2", 1, 0, 99), ("m2", 7, 0, 99), ("m1", 0, 5, 99), ("none", 0, 0, 99)]
    )
    assert found == [(0, one(b"a") + one(b"c")), (0, one(b"b")), (3, b""), (1, b""), (0, b"")]
    assert client.fetch_many([]) == []


def test_partition_minus_1_is_chosen_by_the_broker(client) -> None:
    client.produce("chosen", kafka07.messages([b"first"]))
    for number in range(40):
        client.produce("chosen", kafka07.messages([b"%d" % number]), partition=-1)
    ends = [client.offsets("chosen", LATEST, partition=at)[1][0] for at in (0, 1)]
    assert min(ends) > 15 and sum(ends) == 15 + 10 * 11 + 30 * 12


def test_unknown_topics_are_empty(client) -> None:
    assert client.fetch("absent", 0) == (0, b"")
    assert client.offsets("absent", LATEST) == (0, [0])
    assert client.offsets("absent", EARLIEST) == (0, [0])
    assert client.offsets("absent", 1_000) == (0, [])
    client.produce("present", kafka07.messages([b"v"]))
    assert client.fetch("present", 0, partition=2) == (3, b"")
    assert client.offsets("present", LATEST, partition=2) == (3, [])


def test_a_producer_that_leaves_at_once_has_produced(broker) -> None:
    for number in range(20):
        with connect(broker) as leaving:
            leaving.produce("left", kafka07.messages([b"%02d" % number]))
    deadline = time.monotonic() + 10
    with connect(broker) as client:
        while len(client.consume("left", 0)[0]) < 20:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_topic_that_is_being_created_is_empty(broker, client) -> None:
    with connect(broker) as reader:
        for number in range(40):
            client.produce(f"made-{number}", kafka07.messages([b"v"]))
            for _ in range(5):
                error, _ = reader.fetch(f"made-{number}", 0)
                assert error == 0


def test_one_topic_for_0_7_and_today(broker, client) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": "zstd"})
    client.produce("mixed", kafka07.messages([b"old"]))
    for key, value in ((b"k", b"new"), (None, b""), (b"k", None)):
        producer.produce("mixed", value, key, partition=0, headers={"h": b"1"})
    producer.flush(10)
    client.produce("mixed", kafka07.messages([b"old again"]))
    assert client.consume("mixed", 0)[0] == [b"old", b"new", b"", b"", b"old again"]
    values = [record.value for record in broker.records("mixed", 0)]
    assert values == [b"old", b"new", b"", None, b"old again"]


def test_transactions_are_visible_when_they_are_committed(broker, client) -> None:
    def transaction(value, end):
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": value}
        )
        producer.init_transactions(10)
        producer.begin_transaction()
        producer.produce("txns", value, partition=0)
        producer.flush(10)
        return getattr(producer, end)

    client.produce("txns", kafka07.messages([b"before"]))
    abort, commit = (
        transaction("aborted", "abort_transaction"),
        transaction("kept", "commit_transaction"),
    )
    client.produce("txns", kafka07.messages([b"after"]))
    assert client.consume("txns", 0) == ([b"before"], 16)
    assert client.fetch("txns", 17) == (1, b"")
    abort(10)
    commit(10)
    deadline = time.monotonic() + 10
    while client.consume("txns", 0)[0] != [b"before", b"kept", b"after"]:
        assert time.monotonic() < deadline
    assert client.offsets("txns", LATEST) == (0, [45])
    assert client.consume("txns", 16) == ([b"kept", b"after"], 45)


def test_addresses_of_segments_by_time(tmp_path) -> None:
    with broker07(tmp_path) as broker, wire_to(broker) as wire:
        create(wire, "t", {"segment.bytes": "200"})
        for number in range(4):
            produce(wire, "t", b"%d" % number * 90, timestamp=1000 * (number + 1))
        with connect(broker) as client:
            assert client.offsets("t", LATEST, 10) == (0, [400, 300, 200, 100, 0])
            assert client.offsets("t", LATEST, 2) == (0, [400, 300])
            assert client.offsets("t", LATEST, 0) == (0, [])
            assert client.offsets("t", EARLIEST, 10) == (0, [0])
            assert client.offsets("t", 2500, 10) == (0, [100, 0])
            assert client.offsets("t", 3000, 1) == (0, [200])
            assert client.offsets("t", 500, 10) == (0, [])


@pytest.mark.parametrize(
    "body",
    [
        kafka07.frame(0, kafka07.produce_body("t", 0, kafka07.message(b"x", crc=1))),
        kafka07.frame(0, kafka07.produce_body("t", 0, kafka07.message(b"x", magic=2))),
        kafka07.frame(0, kafka07.produce_body("t", 9, kafka07.message(b"x"))),
        kafka07.frame(0, kafka07.produce_body("a/b", 0, kafka07.message(b"x"))),
        kafka07.frame(0, kafka07.produce_body("", 0, kafka07.message(b"x"))),
        kafka07.frame(0, kafka07.place("t", 0) + struct.pack(">i", -1)),
        kafka07.frame(0, kafka07.place("t", 0) + struct.pack(">i", 2**31 - 1)),
        kafka07.frame(
            0, kafka07.produce_body("t", 0, kafka07.message(kafka07.wrapped([b"x"]), codec=1))
        ),
        kafka07.frame(1, struct.pack(">h", -1)),
        kafka07.frame(1, struct.pack(">h", 500) + b"t"),
        kafka07.frame(1, struct.pack(">h2si", 2, b"\xff\xff", 0) + bytes(12)),
        kafka07.frame(2, struct.pack(">h", -1)),
        kafka07.frame(2, struct.pack(">h", 32767)),
        kafka07.frame(5, kafka07.place("t", 0)),
        kafka07.frame(-1, b""),
        kafka07.frame(18, struct.pack(">hih", 0, 1, -1)),  # ApiVersions of today
        struct.pack(">i", 0),
        struct.pack(">i", 1) + b"x",
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_a_request_that_is_refused_closes_the_connection(broker, client, body) -> None:
    client.socket.sendall(body)
    client.socket.sendall(b"")
    with pytest.raises(Closed):
        client.answer()
    with connect(broker) as another:
        assert another.offsets("absent", LATEST) == (0, [0])


def test_a_bomb_is_refused(tmp_path) -> None:
    with broker07(tmp_path, {"max.decompressed.bytes": "100000"}) as broker:
        with connect(broker) as client:
            client.produce("t", kafka07.wrapped([bytes(90000)]))
            assert client.offsets("t", LATEST) == (0, [90010])
            for codec in (GZIP, SNAPPY):
                with connect(broker) as hostile:
                    hostile.produce("t", kafka07.wrapped([bytes(99999)], codec))
                    with pytest.raises(Closed):
                        hostile.answer()
            assert client.offsets("t", LATEST) == (0, [90010])


def test_every_part_of_a_request_may_arrive_alone(client) -> None:
    for byte in kafka07.frame(0, kafka07.produce_body("slow", 0, kafka07.messages([b"v"]))):
        client.socket.sendall(bytes([byte]))
    for byte in kafka07.frame(1, kafka07.fetch_body("slow", 0, 0, 100)):
        client.socket.sendall(bytes([byte]))
    assert client.answer() == (0, kafka07.message(b"v"))


def test_requests_may_follow_without_waiting(client) -> None:
    sent = b""
    for number in range(50):
        sent += kafka07.frame(
            0, kafka07.produce_body("quick", 0, kafka07.messages([b"%02d" % number]))
        )
        sent += kafka07.frame(1, kafka07.fetch_body("quick", 0, 12 * number, 100))
    client.socket.sendall(sent)
    for number in range(50):
        assert client.answer() == (0, kafka07.message(b"%02d" % number))


# --------------------------------------------------------------------------- settings


def test_the_limits_of_connections_and_frames_apply(tmp_path) -> None:
    limits = {
        "socket.request.max.bytes": "1000",
        "listener.name.legacy07.max.connections": "2",
        "connections.max.idle.ms": "2000",
    }
    with broker07(tmp_path, limits) as broker:
        port = port_of(broker)
        with Client07(port) as client, Client07(port) as second:
            client.produce("t", kafka07.messages([bytes(900)]))
            assert client.offsets("t", LATEST)[1] == [910]
            client.produce("t", kafka07.messages([bytes(1000)]))
            with pytest.raises(Closed):
                client.answer()
            assert second.offsets("t", LATEST)[1] == [910]
            with Client07(port) as third, Client07(port) as fourth:
                fourth.socket.settimeout(0.3)
                fourth.send(4, kafka07.place("t", 0) + struct.pack(">qi", -1, 1))
                with pytest.raises(TimeoutError):
                    fourth.answer()
                assert third.offsets("t", LATEST)[1] == [910]
                broker.clock.advance(ms=2500)
                with pytest.raises(Closed):
                    second.answer()


def test_metadata_does_not_show_the_listener(broker) -> None:
    assert [row.name for row in broker.node.listeners] == ["PLAINTEXT"]
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    ports = {row.port for row in consumer.list_topics(timeout=10).brokers.values()}
    consumer.close()
    assert port_of(broker) not in ports


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LEGACY07:SSL"}, "neither TLS"),
        (
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LEGACY07:SASL_PLAINTEXT"},
            "nor logins",
        ),
        ({"advertised.listeners": "LEGACY07://127.0.0.1:9"}, "cannot be advertised"),
        ({"listeners": "LEGACY07://127.0.0.1:0"}, "no listener for clients"),
        ({"inter.broker.listener.name": "LEGACY07"}, "could not connect"),
        ({"listeners": "PLAINTEXT://:0,LEGACY07://0.0.0.0:0"}, "other hosts"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path, settings, reason) -> None:
    with pytest.raises(ConfigError, match=reason):
        with broker07(tmp_path, settings):
            pass


@pytest.mark.parametrize("release", ["3.9", "4.4"])
def test_clients_of_0_7_are_served_with_every_list_of_versions(tmp_path, release) -> None:
    with broker07(tmp_path, {"api.versions.of": release}) as broker, connect(broker) as client:
        client.produce("t", kafka07.messages([b"1"]) + kafka07.wrapped([b"2"]))
        assert client.consume("t", 0)[0] == [b"1", b"2"]


def test_legacy07_message_magic(tmp_path) -> None:
    for magic, setting in (("1", {}), ("0", {"legacy07.message.magic": "0"})):
        with broker07(tmp_path, setting) as broker, connect(broker) as client:
            client.produce(f"t{magic}", kafka07.messages([b"v"]))
            expected = kafka07.message(b"v", magic=int(magic))
            assert client.fetch(f"t{magic}", 0) == (0, expected)
            assert client.fetch("t1", 0)[1] in (b"", kafka07.message(b"v"))  # it keeps its magic
