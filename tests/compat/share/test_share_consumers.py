"""Kafka's own KafkaShareConsumer with the broker: every kind of acknowledgement, locks that run
out, archived records, two members, transactions, and a broker that is killed in between."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compat.java.driver import missing
from compat.java.share_driver import Member, Row, ShareClients
from compat.support import KAFKA, Broker, Wire, cannot_run, create_topic, produce_batch, rival
from confluent_kafka import Producer
from long_form import pick

from barnabas.wire import request
from barnabas.wire.batches import decode_batches

pytestmark = [pytest.mark.java, pytest.mark.takes(seconds=25)]

VERSION = "4.4.0"
GROUP_RESOURCE = 32
LOCK_MS = 1_500
SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": str(LOCK_MS),
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
    "share.coordinator.state.topic.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
}
LETTERS_TOPIC = "dlq.orders"
EXPLICIT = {"share_acknowledgement_mode": "explicit"}


@pytest.fixture(scope="module")
def share_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    kind = request.config.getoption("--broker")
    reason = cannot_run(kind)
    if reason:
        pytest.skip(reason)
    running = Broker(kind, tmp_path_factory.mktemp("share-broker"), SETTINGS)
    yield running
    running.stop()


@pytest.fixture(scope="module", params=pick(short=[VERSION], long=[VERSION, KAFKA]))
def clients(
    request: pytest.FixtureRequest, share_broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ShareClients]:
    reason = missing(request.param)
    if reason:
        pytest.skip(reason)
    made = ShareClients(request.param, share_broker.address, tmp_path_factory.mktemp("share"))
    yield made
    made.close()


Fresh = Callable[..., tuple[str, str]]


@pytest.fixture
def fresh(share_broker: Broker, request: pytest.FixtureRequest) -> Fresh:
    """A new topic and a new group, which reads from the earliest record."""

    def make(partitions: int = 1, **settings: str) -> tuple[str, str]:
        name = "".join(c if c.isalnum() else "-" for c in request.node.name)
        create_topic(share_broker.address, name, partitions)
        configure_group(share_broker.address, f"g-{name}", **settings)
        return name, f"g-{name}"

    return make


def configure_group(address: str, group: str, **settings: str) -> None:
    alter = request(44)
    row, resource = alter.struct("resources.configs"), alter.struct("resources")
    wanted = {"share.auto.offset.reset": "earliest"} | {
        name.replace("_", "."): value for name, value in settings.items()
    }
    configs = [row(name=name, configOperation=0, value=value) for name, value in wanted.items()]
    asked = resource(resourceType=GROUP_RESOURCE, resourceName=group, configs=configs)
    with Wire(address) as wire:
        (told,) = wire.call(44, 1, alter.cls(resources=[asked])).responses
    assert told.errorCode == 0, told.errorMessage


def values(rows: list[Row]) -> list[str]:
    return [row[3] for row in rows]


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def drained(member: Member) -> list[Row]:
    """Polls until no record comes for a while. Returns the records."""
    found: list[Row] = []
    quiet = 0
    while quiet < 6:
        more = member.poll()
        quiet = 0 if more else quiet + 1
        found += more
    return found


def test_the_next_poll_accepts_the_records_before(
    clients: ShareClients, share_broker: Broker, fresh: Fresh
) -> None:
    topic, group = fresh()
    produce_batch(share_broker.address, topic, numbers(10))
    member = clients.open("implicit", group, [topic])
    rows = member.poll_until(10)
    assert values(rows) == [str(n) for n in range(10)] and {row[4] for row in rows} == {1}
    assert member.commit() in ({f"{topic}-0": "none"}, {})
    member.close()
    again = clients.open("implicit-again", group, [topic])
    produce_batch(share_broker.address, topic, numbers(2, 10))
    assert values(again.poll_until(2)) == ["10", "11"]
    again.close()


def test_each_kind_of_acknowledgement(
    clients: ShareClients, share_broker: Broker, fresh: Fresh
) -> None:
    topic, group = fresh()
    produce_batch(share_broker.address, topic, numbers(6))
    member = clients.open("kinds", group, [topic], **EXPLICIT)
    rows = member.poll_until(6)
    kinds = ("ACCEPT", "RELEASE", "REJECT", "ACCEPT", "RELEASE", "ACCEPT")
    for row, kind in zip(rows, kinds, strict=True):
        member.acknowledge(row, kind)
    assert member.commit() == {f"{topic}-0": "none"}
    again = member.poll_until(2)
    assert [(row[3], row[4]) for row in again] == [("1", 2), ("4", 2)]
    for row in again:
        member.acknowledge(row, "ACCEPT")
    assert member.commit() == {f"{topic}-0": "none"}
    member.close()


def test_a_lock_runs_out_and_a_renewed_one_does_not(
    clients: ShareClients, share_broker: Broker, fresh: Fresh
) -> None:
    topic, group = fresh()
    produce_batch(share_broker.address, topic, numbers(2))
    one = EXPLICIT | {"max_poll_records": "1", "share_acquire_mode": "record_limit"}
    silent, renewing, other = (
        clients.open(f"{name}-{topic}", group, [topic], **one)
        for name in ("silent", "renewing", "other")
    )
    assert values(silent.poll_until(1)) == ["0"]
    mine = renewing.poll_until(1)
    assert values(mine) == ["1"]
    found: list[Row] = []
    kept: dict[str, str] = {}
    for _ in range(12):  # longer than a lock
        renewing.acknowledge(mine[0], "RENEW")
        assert renewing.commit() == {f"{topic}-0": "none"}
        assert values(renewing.poll()) == ["1"]  # the member still has it
        found += other.poll()
        if found and not kept:
            other.acknowledge(found[0], "ACCEPT")
            kept = other.commit()
            assert kept == {f"{topic}-0": "none"}
    assert [(row[3], row[4]) for row in found] == [("0", 2)]
    renewing.acknowledge(mine[0], "ACCEPT")
    assert renewing.commit() == {f"{topic}-0": "none"}
    for member in (silent, renewing, other):
        member.close()


def test_two_members_share_a_partition(
    clients: ShareClients, share_broker: Broker, fresh: Fresh
) -> None:
    topic, group = fresh()
    for first in range(0, 400, 20):
        produce_batch(share_broker.address, topic, numbers(20, first))
    limits = {"max_poll_records": "20"}
    members = [clients.open(f"pair-{n}", group, [topic], **limits) for n in (1, 2)]
    taken: dict[str, list[Row]] = {member.name: [] for member in members}
    for _ in range(60):
        for member in members:
            taken[member.name] += member.poll(100)
        if sum(map(len, taken.values())) >= 400:
            break
    for member in members:
        member.commit()
        member.close()
    rows = [row for found in taken.values() for row in found]
    assert all(taken.values()), "one member had nothing to do"
    assert sorted(int(value) for value in values(rows)) == list(range(400))


def test_a_strict_number_of_records(
    clients: ShareClients, share_broker: Broker, fresh: Fresh
) -> None:
    topic, group = fresh()
    produce_batch(share_broker.address, topic, numbers(25))
    limits = {"max_poll_records": "10", "share_acquire_mode": "record_limit"}
    member = clients.open("strict", group, [topic], **limits)
    polls = [len(found) for _ in range(20) if (found := member.poll())]
    assert polls == [10, 10, 5]
    member.close()


def test_records_that_fail_too_often_go_to_the_dead_letters(
    clients: ShareClients, share_broker: Broker, fresh: Fresh
) -> None:
    letters = LETTERS_TOPIC + clients.process.args[-1].rsplit(":")[-1] + str(clients.process.pid)
    create_topic(share_broker.address, letters, 1, {"errors.deadletterqueue.group.enable": "true"})
    topic, group = fresh(
        share_delivery_count_limit="2",
        errors_deadletterqueue_topic_name=letters,
        errors_deadletterqueue_copy_record_enable="true",
    )
    produce_batch(share_broker.address, topic, numbers(3))
    member = clients.open("failing", group, [topic], **EXPLICIT)
    deliveries: list[tuple[str, int]] = []
    for _ in range(30):
        for row in member.poll():
            deliveries.append((row[3], row[4]))
            kind = {"0": "ACCEPT", "1": "REJECT", "2": "RELEASE"}[row[3]]
            member.acknowledge(row, kind)
        member.commit()
        if len(deliveries) >= 4:
            break
    assert sorted(deliveries) == [("0", 1), ("1", 1), ("2", 1), ("2", 2)]
    assert drained(member) == []
    member.close()
    found = letters_in(share_broker.address, letters)
    assert [(value, head["__dlq.errors.offset"]) for value, head in found] == [
        (b"1", b"1"),
        (b"2", b"2"),
    ]
    assert found[0][1] | {"__dlq.errors.delivery.count": b"1"} == {
        "__dlq.errors.topic": topic.encode(),
        "__dlq.errors.partition": b"0",
        "__dlq.errors.offset": b"1",
        "__dlq.errors.group": group.encode(),
        "__dlq.errors.delivery.count": b"1",
        "__dlq.errors.message": b"Offset rejected by client.",
    }


def letters_in(address: str, topic: str) -> list[tuple[bytes | None, dict[str, bytes]]]:
    fetch = request(1)
    partition = fetch.struct("topics.partitions")(
        partition=0, fetchOffset=0, partitionMaxBytes=1 << 20, currentLeaderEpoch=-1
    )
    asked = fetch.cls(
        replicaId=-1,
        maxWaitMs=0,
        minBytes=0,
        maxBytes=1 << 20,
        sessionEpoch=-1,
        topics=[fetch.struct("topics")(topic=topic, partitions=[partition])],
    )
    with Wire(address) as wire:
        (told,) = wire.call(1, 11, asked).responses[0].partitions
    return [
        (record.value, dict(record.headers))
        for batch in decode_batches(told.records, size_max=1 << 20, partial_tail=True)
        for record in batch.records
    ]


def test_readers_of_committed_records_see_no_aborted_ones(
    clients: ShareClients, share_broker: Broker, fresh: Fresh
) -> None:
    topic, group = fresh(share_isolation_level="read_committed")
    producer = Producer(
        {"bootstrap.servers": share_broker.address, "transactional.id": group, "linger.ms": 0}
    )
    producer.init_transactions()
    for number, commits in enumerate((True, False, True, False, True)):
        producer.begin_transaction()
        for part in range(3):
            producer.produce(topic, f"{number}.{part}".encode())
        if commits:
            producer.commit_transaction()
        else:
            producer.flush()
            producer.abort_transaction()
    member = clients.open("committed", group, [topic])
    rows = member.poll_until(9)
    assert values(rows) == [f"{n}.{p}" for n in (0, 2, 4) for p in range(3)]
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush()
    assert member.poll(600) == []
    producer.commit_transaction()
    assert values(member.poll_until(1)) == ["open"]
    member.close()


def test_what_was_acknowledged_stays_so_when_the_broker_is_killed(tmp_path: Path) -> None:
    reason = missing(VERSION)
    if reason:
        pytest.skip(reason)
    (port,) = rival.free_ports(1)
    settings = SETTINGS | {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    broker = Broker("barnabas", tmp_path / "broker", settings)
    clients = ShareClients(VERSION, broker.address, tmp_path)
    try:
        create_topic(broker.address, "killed", 1)
        configure_group(broker.address, "g")
        for first in range(0, 60, 10):
            produce_batch(broker.address, "killed", numbers(10, first))
        member = clients.open("before", "g", ["killed"], **EXPLICIT, max_poll_records="10")
        rows = member.poll_until(10)
        accepted = {row[3] for row in rows[::2]}
        for row in rows:
            member.acknowledge(row, "ACCEPT" if row[3] in accepted else "RELEASE")
        assert member.commit() == {"killed-0": "none"}
        member.poll_until(1)  # acquired, not acknowledged
        assert broker._process is not None
        os.kill(broker.pid, signal.SIGKILL)
        broker._process.wait()
        broker = Broker("barnabas", tmp_path / "broker", settings)
        found: set[str] = set()
        other = clients.open("after", "g", ["killed"])
        for _ in range(60):
            found |= set(values(other.poll()))
            if len(found) >= 60 - len(accepted):
                break
        assert not found & accepted
        assert found | accepted == {str(n) for n in range(60)}
        other.close()
    finally:
        clients.close()
        broker.stop()
