"""A producer that records acknowledgements, a reader of all records, and a comparison of the
replicas' files."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Collection, Mapping
from types import MappingProxyType

from cluster.three_brokers import BrokerProcess
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from waiting import soon

from barnabas.wire.batches import decode_batches

BATCH_BYTES_MAX = 1 << 24


class Sender:
    """Produces numbers to all partitions of a topic in turn, with acks=all and idempotence, until
    `stop`."""

    def __init__(
        self,
        servers: str,
        topic: str,
        partition_count: int = 1,
        more: Mapping[str, object] = MappingProxyType({}),
        padding_bytes: int = 0,
    ):
        """`more`: further settings of the producer; `padding_bytes`: bytes that each record has
        beside its number."""
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 1,
                "log_level": 0,  # brokers that are away
                "topic.metadata.refresh.interval.ms": 1000,
                **more,
            }
        )
        self._more, self._padding = more, b" " * padding_bytes
        self._topic, self._partition_count = topic, partition_count
        self.acknowledged: dict[tuple[int, int], bytes] = {}  # by partition and offset
        self.unplaced: set[bytes] = set()  # acknowledged as a repetition, without their offset
        self.refused: list[tuple[bytes, object]] = []
        self.lost: set[tuple[int, int]] = set()  # places that were acknowledged for two records
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for number in itertools.count():
            if self._stop.is_set():
                return
            self._producer.produce(
                self._topic,
                b"%d" % number + self._padding,
                partition=number % self._partition_count,
                on_delivery=self._delivered,
            )
            self._producer.poll(0.002)

    def _delivered(self, error, message) -> None:
        if error is not None:
            self.refused.append((message.value(), error))
        elif message.offset() is None:
            self.unplaced.add(message.value())
        else:
            place = message.partition(), message.offset()
            if place in self.acknowledged:
                self.lost.add(place)
            self.acknowledged[place] = message.value()

    def wait_for_more(self, count: int = 200) -> None:
        """Waits until each partition has this many more acknowledged records."""
        before = list(self.acknowledged)

        def more() -> bool:
            new = list(self.acknowledged)[len(before) :]
            counts = [0] * self._partition_count
            for partition, _offset in new:
                counts[partition] += 1
            return min(counts) >= count // self._partition_count

        soon(more, "nothing more is acknowledged")

    def stop(self) -> None:
        """Stops the thread and waits until all records are acknowledged. Fails when one was
        refused, or when two records have the same offset."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        assert self.refused == []
        assert not self.lost, f"{len(self.lost)} offsets were given twice: {min(self.lost)}"

    def check(self, servers: str) -> None:
        """Reads all partitions: each acknowledged record must be at its offset, exactly once."""
        count = len(self.acknowledged) + len(self.unplaced)
        found = read_all(servers, self._topic, count, more=self._more)
        assert {place: found[place] for place in self.acknowledged} == self.acknowledged
        values = list(found.values())
        assert self.unplaced <= set(values)
        assert len(set(values)) == len(values), "a record is there twice"

    def check_files(self, brokers: Collection[BrokerProcess]) -> int:
        """Reads the files of all replicas, which get no more records. They must be equal (see
        `equal_replicas`), and have each acknowledged record at its offset, exactly once. Returns
        the number of batches."""
        batches = equal_replicas(brokers, self._topic, self._partition_count)
        for broker in brokers:
            found = find_acknowledged(broker, self._topic, self._partition_count, self.acknowledged)
            values = Counter(found.values())
            assert self.unplaced <= values.keys()
            assert max(values.values()) == 1, "a record is there twice"
        return batches


def read_all(
    servers: str,
    topic: str,
    count: int,
    group: str = "reader",
    more: Mapping[str, object] = MappingProxyType({}),
):
    """Reads all partitions from their beginning to their end, and further until it has `count`
    records. Returns values by partition and offset. `more`: settings of the consumer."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            **more,
        }
    )
    consumer.subscribe([topic])
    found: dict[tuple[int, int], bytes] = {}
    at_end: set[int] = set()
    while len(found) < count or len(at_end) < max(len(consumer.assignment()), 1):
        message = consumer.poll(30)
        assert message is not None, f"{len(found)} of {count} records were read"
        if message.error() is None:
            found[message.partition(), message.offset()] = message.value()
        elif message.error().code() == KafkaError._PARTITION_EOF:
            at_end.add(message.partition())
    consumer.close()
    return found


class Groups:
    """Groups whose coordinators are on all brokers. In each step a group reads the offset that it
    has committed, and commits a larger one."""

    def __init__(self, topic: str, count: int = 6):
        self._place = TopicPartition(topic, 0)
        self._names = [f"group-{number}" for number in range(count)]
        self._committed = 0

    def step(self, servers: str) -> None:
        expected, self._committed = self._committed, self._committed + 1
        for name in self._names:
            consumer = Consumer({"bootstrap.servers": servers, "group.id": name})
            if expected:
                [found] = consumer.committed([self._place], timeout=30)
                assert found.offset == expected, f"{name}: {found}"
            place = TopicPartition(self._place.topic, 0, self._committed)
            soon(lambda of=consumer, at=place: _commits(of, at), f"{name} cannot commit")
            consumer.close()


class Transactions:
    """Transactional ids whose coordinators are on all brokers. Each step commits the transactions
    of the step before, and begins new ones."""

    def __init__(self, servers: str, topic: str, count: int = 4):
        self._topic = topic
        self._producers = [
            Producer(
                {
                    "bootstrap.servers": servers,
                    "transactional.id": f"transaction-{number}",
                    "topic.metadata.refresh.interval.ms": 1000,
                    "log_level": 0,
                }
            )
            for number in range(count)
        ]
        self.committed: set[bytes] = set()
        self._open: set[bytes] = set()
        for producer in self._producers:
            producer.init_transactions(60)
        self._begin(0)

    def _begin(self, step: int) -> None:
        for number, producer in enumerate(self._producers):
            value = b"%d in step %d" % (number, step)
            self._open.add(value)
            producer.begin_transaction()
            producer.produce(self._topic, value)
            assert producer.flush(60) == 0

    def step(self, step: int) -> None:
        self.end()
        self._begin(step)

    def end(self) -> None:
        for producer in self._producers:
            soon(
                lambda of=producer: commits_transaction(of),
                "a transaction cannot be committed",
                patience_s=90,
            )
        self.committed |= self._open
        self._open.clear()

    def check(self, servers: str) -> None:
        """Checks that readers of committed records get every committed value exactly once, and no
        other."""
        found = list(read_all(servers, self._topic, len(self.committed), "committed").values())
        assert sorted(found) == sorted(self.committed)


def commits_transaction(producer: Producer) -> bool:
    """Tries to commit; returns False when the client has to try again."""
    try:
        producer.commit_transaction(30)
    except KafkaException as error:
        assert error.args[0].retriable(), error
        return False
    return True


def _commits(consumer: Consumer, place: TopicPartition) -> bool:
    try:
        consumer.commit(offsets=[place], asynchronous=False)
    except KafkaException as error:
        assert error.args[0].retriable() or "COORD" in error.args[0].name(), error
        return False
    return True


def leaders_and_isrs(
    servers: str, topic: str, more: Mapping[str, object] = MappingProxyType({})
) -> dict[int, tuple[int, list[int]]]:
    """Returns the leader and the ISR of each partition; an empty result while the broker does not
    know the topic. `more`: settings of the client."""
    try:
        found = AdminClient({"bootstrap.servers": servers, **more}).list_topics(topic, timeout=10)
        partitions = found.topics[topic].partitions
    except (KafkaException, KeyError):
        return {}
    return {index: (row.leader, sorted(row.isrs)) for index, row in partitions.items()}


def find_acknowledged(
    broker: BrokerProcess,
    topic: str,
    partition_count: int,
    acknowledged: Mapping[tuple[int, int], bytes],
) -> dict[tuple[int, int], bytes]:
    """Returns the values in the files of a stopped broker by partition and offset. Fails when an
    acknowledged record is not at its offset."""
    found = {
        (index, record.offset): record.value
        for index in range(partition_count)
        for _offset, _epoch, batch in broker.batches(topic, index)
        for decoded in decode_batches(batch, size_max=BATCH_BYTES_MAX)
        for record in decoded.records
    }
    lost = {place for place, value in acknowledged.items() if found.get(place) != value}
    assert not lost, f"broker {broker.node_id} lacks {len(lost)} of them: {min(lost)}"
    return found


def equal_replicas(brokers, topic: str, partition_count: int) -> int:
    """Compares the files of all replicas, which get no more records: they must have the same
    batches at the same offsets with the same leader epochs. Returns the number of batches."""
    batches = 0
    for index in range(partition_count):
        replicas = [list(broker.batches(topic, index)) for broker in brokers]
        assert all(replica == replicas[0] for replica in replicas), f"{topic}-{index} differs"
        batches += len(replicas[0])
    return batches
