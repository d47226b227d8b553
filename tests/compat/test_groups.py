"""Consumer groups with real clients: sharing, rebalancing, committing, joining again."""

import asyncio
import threading
import time
import uuid
from collections import Counter

import pytest
from compat.java_4x.client import Java44Member
from compat.java_27.client import Java27Member
from compat.kcat.group import KcatMember
from compat.matrix import JAVA_VERSIONS, cannot_run_client
from compat.node.client import KafkaJsMember, PlatformaticMember
from compat.support import Broker, Wire, produce_batch

from barnabas.wire import request

pytestmark = pytest.mark.takes(seconds=23)

PARTITIONS = 4
PATIENCE_S = 40


@pytest.fixture
def group():
    return f"group-{uuid.uuid4().hex[:8]}"


class Confluent:
    def __init__(self, address, group, topic, instance=None, strategy="range"):
        from confluent_kafka import Consumer

        settings = {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 300,
            "partition.assignment.strategy": strategy,
        }
        if instance:
            settings["group.instance.id"] = instance
        self.consumer = Consumer(settings)
        self.consumer.subscribe([topic])

    def poll(self):
        """Values that arrive within a short time."""
        message = self.consumer.poll(0.1)
        if message is None:
            return []
        assert message.error() is None, message.error()
        return [message.value()]

    def owned(self):
        return {row.partition for row in self.consumer.assignment()}

    def commit(self):
        self.consumer.commit(asynchronous=False)

    def close(self):
        self.consumer.close()


class KafkaPython:
    def __init__(self, address, group, topic):
        from kafka import KafkaConsumer

        self.consumer = KafkaConsumer(
            topic,
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6000,
            heartbeat_interval_ms=300,
        )
        # A leader that joins before it has metadata assigns nothing and does not try again.
        assert self.consumer.partitions_for_topic(topic)

    def poll(self):
        found = self.consumer.poll(timeout_ms=100)
        return [record.value for records in found.values() for record in records]

    def owned(self):
        return {row.partition for row in self.consumer.assignment()}

    def commit(self):
        self.consumer.commit()

    def close(self):
        self.consumer.close()


class Aio:
    """aiokafka's consumer on a loop of its own."""

    def __init__(self, address, group, topic):
        from aiokafka import AIOKafkaConsumer

        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

        async def start():
            consumer = AIOKafkaConsumer(
                topic,
                bootstrap_servers=address,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=6000,
                heartbeat_interval_ms=300,
            )
            await consumer.start()
            return consumer

        self.consumer = self.wait(start())

    def wait(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)

    def poll(self):
        found = self.wait(self.consumer.getmany(timeout_ms=100))
        return [record.value for records in found.values() for record in records]

    def owned(self):
        return {row.partition for row in self.consumer.assignment()}

    def commit(self):
        self.wait(self.consumer.commit())

    def close(self):
        self.wait(self.consumer.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(PATIENCE_S)
        self.loop.close()


def fill(broker, topic, first=0):
    for partition in range(PARTITIONS):
        values = [b"%d-%d" % (partition, at) for at in range(first, first + 5)]
        produce_batch(broker.address, topic, values, partition=partition)
    return {b"%d-%d" % (p, at) for p in range(PARTITIONS) for at in range(first, first + 5)}


def read(consumers, wanted):
    """Reads all wanted values, in any order. Returns how often each was read."""
    seen = Counter()
    deadline = time.monotonic() + PATIENCE_S
    while set(seen) < wanted and time.monotonic() < deadline:
        for consumer in consumers:
            seen.update(consumer.poll())
    assert set(seen) == wanted
    return seen


def share(consumers):
    """Polls until every partition has one owner and every consumer one or more."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for consumer in consumers:
            consumer.poll()
        owned = [consumer.owned() for consumer in consumers]
        if all(owned) and sorted(p for one in owned for p in one) == list(range(PARTITIONS)):
            return
    raise AssertionError(f"partitions are owned so: {[c.owned() for c in consumers]}")


MEMBERS = {
    "confluent_kafka": Confluent,
    "kafka_python": KafkaPython,
    "aiokafka": Aio,
    "kcat": KcatMember,
    "java_27": Java27Member,
    "java_44": Java44Member,
    "kafkajs": KafkaJsMember,
    "platformatic": PlatformaticMember,
}


@pytest.mark.parametrize(
    "client",
    [pytest.param(name, marks=[pytest.mark.java] * (name in JAVA_VERSIONS)) for name in MEMBERS],
)
def test_a_group_shares_commits_and_comes_back(client, broker: Broker, topic, group):
    reason = cannot_run_client(client)
    if reason:
        pytest.skip(reason)
    kind, name = MEMBERS[client], topic(PARTITIONS)
    wanted = fill(broker, name)
    first = kind(broker.address, group, name)
    assert set(read([first], wanted).values()) == {1}
    first.commit()
    second = kind(broker.address, group, name)
    share([first, second])
    more = fill(broker, name, first=5)
    read([first, second], more)
    first.commit()
    second.commit()
    first.close()
    second.close()
    again = kind(broker.address, group, name)
    last = fill(broker, name, first=10)
    assert set(read([again], last).values()) == {1}  # no committed record
    again.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_three_consumers_join_at_once(broker: Broker, topic, group, strategy):
    name = topic(PARTITIONS)
    made = [Confluent(broker.address, group, name, strategy=strategy) for _ in range(3)]
    share(made)
    assert set(read(made, fill(broker, name)).values()) == {1}
    for consumer in made:
        consumer.close()


def test_static_members_come_back_into_their_place(broker: Broker, topic, group):
    name = topic(PARTITIONS)
    made = [Confluent(broker.address, group, name, instance=f"i{at}") for at in range(3)]
    share(made)
    before = made[1].owned()
    made[1].close()  # a static member does not leave
    made[1] = Confluent(broker.address, group, name, instance="i1")
    share(made)
    assert made[1].owned() == before
    for consumer in made:
        consumer.close()


def test_a_member_that_falls_silent_is_replaced(broker: Broker, topic, group):
    """Its session ends, and the other consumer gets its partitions."""
    name = topic(PARTITIONS)
    consumer = Confluent(broker.address, group, name)
    share([consumer])
    joined = threading.Thread(target=join_and_fall_silent, args=(broker.address, group, name))
    joined.start()
    deadline = time.monotonic() + PATIENCE_S
    while len(consumer.owned()) != PARTITIONS // 2 and time.monotonic() < deadline:
        consumer.poll()
    joined.join(PATIENCE_S)
    assert len(consumer.owned()) == PARTITIONS // 2
    while len(consumer.owned()) != PARTITIONS and time.monotonic() < deadline:
        consumer.poll()
    assert consumer.owned() == set(range(PARTITIONS))
    consumer.close()


def join_and_fall_silent(address, group, topic):
    subscription = b"\0\0\0\0\0\1" + len(topic).to_bytes(2, "big") + topic.encode() + bytes(4)
    join, sync = request(11), request(14)
    protocol = join.struct("protocols")(name="range", metadata=subscription)
    with Wire(address) as wire:
        told = wire.call(
            11,
            3,
            join.cls(
                groupId=group,
                sessionTimeoutMs=6000,
                rebalanceTimeoutMs=20_000,
                protocolType="consumer",
                protocols=[protocol],
            ),
        )
        assert told.errorCode == 0
        asked = sync.cls(groupId=group, memberId=told.memberId, generationId=told.generationId)
        assert wire.call(14, 2, asked).errorCode == 0
