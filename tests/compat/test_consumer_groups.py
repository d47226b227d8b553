"""Consumer groups (KIP-848) with real clients: Java 4.x and librdkafka, alone and with classic
ones."""

import time
import uuid

import pytest
from compat.java_4x.members import JavaMembers
from compat.java_4x.members import cannot_run as no_java
from compat.support import Broker, Wire, cannot_run, create_topic
from compat.test_groups import PARTITIONS, PATIENCE_S, Confluent, fill, read, share

from barnabas.wire import request

pytestmark = pytest.mark.takes(seconds=28)

# Twenty times as often as by default: for tests only.
QUICK = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "250",
    "group.consumer.assignment.interval.ms": "100",
}


@pytest.fixture(scope="module")
def broker(request, tmp_path_factory):
    """A broker of this module."""
    kind = request.config.getoption("--broker")
    reason = cannot_run(kind)
    if reason:
        pytest.skip(reason)
    running = Broker(kind, tmp_path_factory.mktemp("broker"), settings=QUICK)
    yield running
    running.stop()


@pytest.fixture
def group():
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def java(broker):
    reason = no_java()
    if reason:
        pytest.skip(reason)
    members = JavaMembers(broker.address)
    yield members
    members.end()


class ConfluentConsumer(Confluent):
    """librdkafka with the consumer protocol; `events` has the arguments of its callbacks."""

    def __init__(self, address, group, topic, assignor=None, instance=None):
        from confluent_kafka import Consumer

        settings = {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "group.protocol": "consumer",
            "topic.metadata.refresh.interval.ms": 1000,
        }
        if assignor:
            settings["group.remote.assignor"] = assignor
        if instance:
            settings["group.instance.id"] = instance
        self.consumer = Consumer(settings)
        self.events = []
        self.consumer.subscribe(
            [topic],
            on_assign=lambda _, rows: self._told("assigned", rows),
            on_revoke=lambda _, rows: self._told("revoked", rows),
            on_lost=lambda _, rows: self._told("lost", rows),
        )

    def _told(self, what, rows):
        self.events.append((what, sorted(row.partition for row in rows)))


def described(address, group):
    with Wire(address) as wire:
        (row,) = wire.call(69, 1, request(69).cls(groupIds=[group])).groups
    return row


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_librdkafka_shares_commits_and_comes_back(broker: Broker, topic, group, assignor):
    name = topic(PARTITIONS)
    made = [ConfluentConsumer(broker.address, group, name, assignor) for _ in range(3)]
    share(made)
    assert set(read(made, fill(broker, name)).values()) == {1}
    for consumer in made:
        consumer.commit()
    told = described(broker.address, group)
    assert (told.groupState, told.assignorName, len(told.members)) == ("Stable", assignor, 3)
    made[0].close()
    share(made[1:])
    more = fill(broker, name, first=5)
    assert set(read(made[1:], more).values()) == {1}  # no committed record
    for consumer in made[1:]:
        consumer.commit()
        consumer.close()
        assert "lost" not in {what for what, _ in consumer.events}
    assert described(broker.address, group).groupState == "Empty"


@pytest.mark.java
def test_java_shares_and_one_leaves(java, broker: Broker, topic, group):
    name = topic(PARTITIONS)
    made = [java.open(group, name, group_protocol="consumer") for _ in range(3)]
    share(made)
    assert set(read(made, fill(broker, name)).values()) == {1}
    for consumer in made:
        consumer.commit()
    made[0].close()
    share(made[1:])
    assert set(read(made[1:], fill(broker, name, first=5)).values()) == {1}
    assert all(one.epoch > 0 for one in made[1:])
    told = [event.split()[0] for one in made for event in one.events]
    assert "assigned" in told and "revoked" in told and "lost" not in told
    for consumer in made[1:]:
        consumer.close()


@pytest.mark.java
def test_java_follows_a_pattern_and_new_partitions(java, broker: Broker, group):
    """An RE2 pattern, which the coordinator resolves."""
    prefix = f"pattern-{uuid.uuid4().hex[:8]}"
    create_topic(broker.address, f"{prefix}-a", 2)
    create_topic(broker.address, f"other-{prefix}", 2)
    consumer = java.open(group, pattern=f"{prefix}-[a-z]", group_protocol="consumer")

    def owns(wanted):
        deadline = time.monotonic() + PATIENCE_S
        while consumer.partitions != wanted and time.monotonic() < deadline:
            consumer.poll()
        assert consumer.partitions == wanted

    owns({f"{prefix}-a-0", f"{prefix}-a-1"})
    create_topic(broker.address, f"{prefix}-b")
    with Wire(broker.address) as wire:
        ask = request(37)
        row = ask.struct("topics")(name=f"{prefix}-a", count=3, assignments=None)
        told = wire.call(37, 2, ask.cls(topics=[row], timeoutMs=10_000))
        assert told.results[0].errorCode == 0
    owns({f"{prefix}-a-0", f"{prefix}-a-1", f"{prefix}-a-2", f"{prefix}-b-0"})
    consumer.close()
    with pytest.raises(RuntimeError, match="(?i)regular"):
        broken = java.open(group, pattern="a(", group_protocol="consumer")
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            broken.poll()


@pytest.mark.java
@pytest.mark.parametrize("strategy", ["Range", "CooperativeSticky"])
def test_classic_consumers_are_replaced_by_new_ones_live_and_back(
    java, broker: Broker, topic, group, strategy
):
    """No committed record is read twice, and none is left out."""
    name = topic(PARTITIONS)
    assignor = f"org.apache.kafka.clients.consumer.{strategy}Assignor"
    old = {"partition_assignment_strategy": assignor, "heartbeat_interval_ms": "500"}
    first = [java.open(group, name, **old) for _ in range(2)]
    share(first)
    read(first, fill(broker, name))
    for one in first:
        one.commit()
    new = java.open(group, name, group_protocol="consumer")
    share([*first, new])
    # An eager member that joins again drops what it has read and not committed: so not in the
    # middle.
    deadline = time.monotonic() + PATIENCE_S
    while (told := described(broker.address, group)).groupState != "Stable":
        assert time.monotonic() < deadline, told
        for one in (*first, new):
            one.poll()
    assert sorted(member.memberType for member in told.members) == [0, 0, 1]
    assert set(read([*first, new], fill(broker, name, first=5)).values()) == {1}
    for one in (*first, new):
        one.commit()
    for one in first:
        one.close()
    share([new])
    read([new], fill(broker, name, first=10))
    new.commit()
    again = java.open(group, name, **old)
    share([new, again])
    new.close()
    share([again])
    assert described(broker.address, group).errorCode == 69  # a classic group again
    assert set(read([again], fill(broker, name, first=15)).values()) == {1}
    again.close()


def test_librdkafka_takes_a_classic_group_over(broker: Broker, topic, group):
    name = topic(PARTITIONS)
    old = Confluent(broker.address, group, name)
    share([old])
    new = ConfluentConsumer(broker.address, group, name)
    share([old, new])
    assert set(read([old, new], fill(broker, name)).values()) == {1}
    old.close()
    share([new])
    new.close()
