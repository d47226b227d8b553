"""Addresses of Kafka 0.7 while records are removed and brokers restart, and what is refused."""

import logging
import random
import threading
import time
from contextlib import suppress

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from durability.broker_process import BrokerProcess, free_port
from legacy07.conftest import broker07, connect
from long_form import pick
from node.test_settings import create, produce, wire_to
from oracle import kafka07
from oracle.kafka07 import EARLIEST, LATEST, Client07, Closed
from quotas.asking import set_quota
from security.ruled_broker import SETTINGS, Ruled

from barnabas.legacy07 import addresses, service
from barnabas.legacy07.addresses import PartitionAddresses
from barnabas.security.acl_codes import DESCRIBE, READ, TOPIC, WRITE
from barnabas.wire import request


def message_of(number: int) -> bytes:
    return b"%04d" % number * (1 + number % 5)


def fill(wire, count: int, first: int = 0) -> list[bytes]:
    for number in range(first, first + count):
        produce(wire, "t", message_of(number), codec=number % 5)
    return [message_of(number) for number in range(first, first + count)]


def addresses_of(values) -> list[int]:
    found = [0]
    for value in values:
        found.append(found[-1] + len(kafka07.message(value)))
    return found


def test_retention_and_restarts(tmp_path) -> None:
    """The first client asks before retention; the broker restarts, and nobody asks until the next
    round has removed records."""
    settings = {"log.retention.check.interval.ms": "1000", "file.delete.delay.ms": "0"}
    with broker07(tmp_path, settings) as broker:
        with wire_to(broker) as wire:
            create(wire, "t", {"segment.bytes": "500", "retention.bytes": "3000"})
            values = fill(wire, 20)
            with connect(broker) as client:
                assert client.consume("t", 0) == (values, addresses_of(values)[-1])
        for _ in range(3):
            with wire_to(broker) as wire:
                values += fill(wire, 20, len(values))
            broker.clock.advance(minutes=1)
            broker.restart()
        everything = addresses_of(values)
        with connect(broker) as client:
            earliest = client.offsets("t", EARLIEST)[1][0]
            assert earliest > everything[20] and earliest in everything
            assert client.offsets("t", LATEST) == (0, [everything[-1]])
            at = everything.index(earliest)
            assert client.consume("t", earliest, 300)[0] == values[at:]
            assert client.fetch("t", everything[at - 1]) == (1, b"")


def test_deleted_records(tmp_path) -> None:
    with broker07(tmp_path) as broker:
        with connect(broker) as client, wire_to(broker) as wire:
            create(wire, "t")
            values = fill(wire, 9)
            assert client.offsets("t", LATEST)[1] == [addresses_of(values)[-1]]
            values += fill(wire, 9, 9)
        for offset in (13, 18):
            with wire_to(broker) as wire:
                _delete(wire, offset)
            for _ in range(2):
                with connect(broker) as client:
                    assert client.offsets("t", EARLIEST) == (0, [addresses_of(values)[offset]])
                    assert client.consume("t", addresses_of(values)[offset])[0] == values[offset:]
                broker.restart()


def _delete(wire, offset: int) -> None:
    ask = request(21)
    row = ask.struct("topics.partitions")(partitionIndex=0, offset=offset)
    topics = [ask.struct("topics")(name="t", partitions=[row])]
    answer = wire.call(21, 2, ask.cls(topics=topics, timeoutMs=5000))
    assert answer.topics[0].partitions[0].errorCode == 0


def test_a_topic_that_is_created_again_has_new_addresses(tmp_path) -> None:
    with broker07(tmp_path) as broker, connect(broker) as client:
        client.produce("t", kafka07.messages([b"first"]))
        assert client.offsets("t", LATEST) == (0, [15])
        broker.delete_topic("t")
        broker.create_topic("t")
        client.produce("t", kafka07.messages([b"2"]))
        assert client.consume("t", 0) == ([b"2"], 11)


@pytest.mark.parametrize("is_unread", [False, True])
def test_a_move_to_another_log_directory_keeps_the_addresses(tmp_path, is_unread) -> None:
    directories = [str(tmp_path / name) for name in ("one", "two")]
    settings = {"log.dirs": ",".join(directories)}
    with broker07(tmp_path, settings) as broker, wire_to(broker) as wire:
        create(wire, "t", {"segment.bytes": "300"})
        values = fill(wire, 10)
        with connect(broker) as client:
            assert client.consume("t", 0)[0] == values
        logs = broker.node.loaded.logs
        now = str(logs.get("t", 0).directory.parent)
        target = next(path for path in directories if path != now)
        _delete(wire, 4)
        if is_unread:
            wire.close()
            broker.restart()  # the move finds only the file
            logs = broker.node.loaded.logs
        with wire_to(broker) as again:
            _alter(again, target)
        deadline = time.monotonic() + 10
        while str(logs.get("t", 0).directory.parent) != target:
            broker.node.serving.log_dir_moves().run()
            assert time.monotonic() < deadline
        for _ in range(2):
            with connect(broker) as client:
                assert client.offsets("t", EARLIEST) == (0, [addresses_of(values)[4]])
                assert client.consume("t", addresses_of(values)[4])[0] == values[4:]
            broker.restart()


def _alter(wire, target: str) -> None:
    ask = request(34)
    topic = ask.struct("dirs.topics")(name="t", partitions=[0])
    answer = wire.call(34, 2, ask.cls(dirs=[ask.struct("dirs")(path=target, topics=[topic])]))
    assert answer.results[0].partitions[0].errorCode == 0


def test_addresses_after_kill_9(tmp_path) -> None:
    """The broker is killed at a random time while a client of 0.7 writes and reads; every address
    that the client has seen stands for the same message afterwards."""
    main, legacy = free_port(), free_port()
    where = f"PLAINTEXT://127.0.0.1:{main},LEGACY07://127.0.0.1:{legacy}"
    arguments = tmp_path / "data", main, {"listeners": where, "log.durability": "os"}
    rng = random.Random(7)
    seen: dict[int, bytes] = {}
    address = sent = 0
    for _ in range(pick(short=2, long=20)):
        broker = BrokerProcess(*arguments)
        killer = threading.Timer(rng.uniform(0.1, 0.8), broker.kill)
        with Client07(legacy) as client:
            check(client, seen)
            killer.start()
            with suppress(Closed, ConnectionError):
                while True:
                    numbers = range(sent, sent + rng.randrange(1, 90))
                    values = [b"%d" % number + bytes(400) for number in numbers]
                    sent += len(values)
                    client.produce("t", kafka07.messages(values))
                    for value in client.consume("t", address)[0]:
                        seen[address] = value
                        address += len(kafka07.message(value))
        killer.join()
    broker = BrokerProcess(*arguments)
    with Client07(legacy) as client:
        assert len(check(client, seen)) >= len(seen) > 100
    broker.stop()


def check(client: Client07, seen: dict[int, bytes]) -> dict[int, bytes]:
    """Reads everything, and compares it with the messages that were seen at their addresses."""
    assert client.offsets("t", EARLIEST) == (0, [0])
    values, _ = client.consume("t", 0)
    found = dict(zip(addresses_of(values), values, strict=False))
    assert {at: found.get(at) for at in seen} == seen
    return found


def test_a_partition_that_is_busy_delays_no_other(tmp_path, monkeypatch) -> None:
    made = []

    def noted(*given, **named):
        made.append(PartitionAddresses(*given, **named))
        return made[-1]

    monkeypatch.setattr(service, "PartitionAddresses", noted)
    with broker07(tmp_path) as broker, connect(broker) as client, connect(broker) as second:
        for topic in ("t", "u"):
            client.produce(topic, kafka07.messages([b"v"]))
            assert client.offsets(topic, LATEST) == (0, [11])
        (found,) = [row for row in made if row.directory.name == "t-0"]
        with found.lock:
            client.send(1, kafka07.fetch_body("t", 0, 0, 100))
            began = time.monotonic()
            assert second.fetch("u", 0) == (0, kafka07.message(b"v"))
            assert time.monotonic() - began < service.BUSY_S
            assert client.answer() == (0, b"")
            assert client.offsets("t", LATEST) == (-1, [])
        assert client.fetch("t", 0) == (0, kafka07.message(b"v"))


def test_topics_that_cannot_be_created_delay_no_other_client(tmp_path) -> None:
    with broker07(tmp_path, {"default.replication.factor": "3"}) as broker:
        with wire_to(broker) as wire:
            create(wire, "t")
        with connect(broker) as client, connect(broker) as one, connect(broker) as two:
            client.produce("t", kafka07.messages([b"v"]))
            assert client.offsets("t", LATEST) == (0, [11])
            for each in (one, two, connect(broker)):
                each.produce("absent", kafka07.messages([b"v"]))
            time.sleep(0.1)
            began = time.monotonic()
            assert client.fetch("t", 0) == (0, kafka07.message(b"v"))
            assert time.monotonic() - began < 20  # they wait for 30 s


def test_a_stop_does_not_wait_for_an_index(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(service, "EXTEND_S", 60)
    monkeypatch.setattr(addresses, "messages_size", lambda *_a, **_k: time.sleep(0.2) or 11)
    with broker07(tmp_path) as broker, connect(broker) as client, wire_to(broker) as wire:
        create(wire, "t")
        for _ in range(300):
            produce(wire, "t", b"v", acks=1)
        client.send(1, kafka07.fetch_body("t", 0, 0, 100))
        with connect(broker) as second:
            second.send(1, kafka07.fetch_body("t", 0, 0, 100))
            time.sleep(0.2)
            began = time.monotonic()
            broker.stop()
            assert time.monotonic() - began < 20  # the whole index takes 60 s


# ------------------------------------------------------------------------------ what is refused


def test_compacted_topics_are_refused(tmp_path, caplog) -> None:
    with broker07(tmp_path) as broker, connect(broker) as client, wire_to(broker) as wire:
        create(wire, "t", {"cleanup.policy": "compact"})
        for _ in range(2):
            produce(wire, "t", b"v", key=b"k")
        with caplog.at_level(logging.WARNING, "barnabas.legacy07"):
            for _ in range(3):
                assert client.fetch("t", 0) == (-1, b"")
                assert client.offsets("t", LATEST) == (-1, [])
        assert [row.getMessage() for row in caplog.records] == [
            "t-0 cannot be read with the protocol of Kafka 0.7: it is compacted (cleanup.policy),"
            " and addresses would have holes"
        ]


def test_a_topic_that_was_compacted_is_refused(tmp_path, caplog) -> None:
    settings = {"log.cleaner.backoff.ms": "20", "log.cleaner.min.cleanable.ratio": "0.01"}
    with broker07(tmp_path, settings) as broker, connect(broker) as client, wire_to(broker) as wire:
        create(wire, "t", {"segment.bytes": "200"})
        for _ in range(6):
            produce(wire, "t", bytes(50), key=b"k")
        assert len(client.consume("t", 0)[0]) == 6
        _set(broker, "cleanup.policy", "compact")
        handle = broker.node.loaded.logs.get("t", 0).handle
        deadline = time.monotonic() + 20
        while any(handle.segments()[at].size_bytes for at in range(2)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        _set(broker, "cleanup.policy", "delete")
        with caplog.at_level(logging.WARNING, "barnabas.legacy07"):
            assert client.fetch("t", 0) == (-1, b"")
        assert "removed by compaction" in caplog.text


def _set(broker, name: str, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=[entry])
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(10)


def test_topics_with_fetch_interceptors_are_refused(tmp_path, caplog) -> None:
    """They may hide parts of records from consumers."""
    with broker07(tmp_path) as broker, connect(broker) as client:
        client.produce("t", kafka07.messages([b"4111 1111 1111 1111"]))
        assert client.offsets("t", LATEST) == (0, [29])
        service = broker.node.loaded.replicas
        config = service.topic_config

        class Masked:
            def __init__(self, name):
                self._config = config(name)

            def names(self, name):
                return ("mask",) if name == "fetch.interceptors" else self._config.names(name)

        service.topic_config = Masked
        try:
            with caplog.at_level(logging.WARNING, "barnabas.legacy07"):
                assert client.fetch("t", 0) == (-1, b"")
        finally:
            service.topic_config = config
        assert "fetch.interceptors" in caplog.text


def test_access_rules_apply_to_anonymous_clients(tmp_path) -> None:
    with broker07(tmp_path, SETTINGS) as broker:
        ruled = Ruled(broker)
        broker.create_topic("t")

        def can_produce() -> bool:
            with connect(broker) as client:
                client.produce("t", kafka07.messages([b"v"]))
                try:
                    client.offsets("other", LATEST)
                except Closed:
                    return False
                return True

        with connect(broker) as client:
            assert not can_produce()
            assert client.fetch("t", 0) == (-1, b"")
            assert client.offsets("t", LATEST) == (-1, [])
            with ruled.rights([(WRITE, TOPIC, "t")]):
                assert can_produce()
                assert client.fetch("t", 0) == (-1, b"")
            with ruled.rights([(READ, TOPIC, "t")]):
                assert client.fetch("t", 0) == (0, kafka07.message(b"v"))
            with ruled.rights([(DESCRIBE, TOPIC, "t")]):
                assert client.offsets("t", LATEST) == (0, [11])


@pytest.mark.parametrize(
    ("quota", "limit"),
    [("producer_byte_rate", 1000.0), ("consumer_byte_rate", 1000.0), ("request_percentage", 1e-6)],
)
def test_a_client_over_its_quota_is_muted(tmp_path, quota, limit) -> None:
    with broker07(tmp_path) as broker, wire_to(broker) as wire:
        broker.create_topic("t")
        produce(wire, "t", bytes(50_000))
        set_quota(wire, {"user": "ANONYMOUS"}, **{quota: limit})
        with connect(broker) as client:
            if quota == "producer_byte_rate":
                client.produce("t", kafka07.messages([bytes(50_000)]))
            else:
                assert client.fetch("t", 0) == (0, kafka07.message(bytes(50_000)))
            client.send(4, kafka07.place("t", 0) + b"\xff" * 8 + (1).to_bytes(4, "big"))
            client.socket.settimeout(0.3)
            with pytest.raises(TimeoutError):
                client.answer()
            broker.clock.advance(seconds=60)
            client.socket.settimeout(10)
            assert client.answer()[0] == 0


def test_topics_are_not_created_when_the_broker_may_not(tmp_path) -> None:
    with broker07(tmp_path, {"auto.create.topics.enable": "false"}) as broker:
        with connect(broker) as client:
            began = time.monotonic()
            client.produce("t", kafka07.messages([b"v"]))
            with pytest.raises(Closed):
                client.answer()
            assert time.monotonic() - began < 20  # the whole index takes 60 s
        assert broker.topics == []
