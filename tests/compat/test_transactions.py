"""Transactions of every client that supports them: each writes, and each reads what all others
wrote, as does kcat, which only reads.

Java 4.x uses the second version of the protocol (KIP-890), the others the first.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from compat.matrix import JAVA_VERSIONS, NODE_CLIENTS, cannot_run_client, client_class
from compat.support import CALL_TIMEOUT_S, Broker, Wire, create_topic

import barnabas
from barnabas.wire import request

pytestmark = pytest.mark.takes(seconds=16)

WRITERS = (
    "java_44", "java_27", "confluent_kafka", "kafka_python", "aiokafka", *NODE_CLIENTS
)  # fmt: skip
# Without platformatic, which has a separate test.
READERS = (*WRITERS[:-1], "kcat")
MARKS = {name: [pytest.mark.java] for name in JAVA_VERSIONS}
# The values of each transaction, and whether it commits.
ROUNDS = [
    (["a1", "a2"], True),
    (["b1"], False),
    (["c1"], True),
    (["d1", "d2"], False),
    (["e"], True),
]
TURNS = 4
COMMITTED = [value for values, commit in ROUNDS if commit for value in values]
Transact = Callable[..., None]


class Confluent:
    """librdkafka."""

    def __init__(self, address: str, transactional_id: str) -> None:
        self.producer = confluent_kafka.Producer(
            {"bootstrap.servers": address, "transactional.id": transactional_id}
        )
        self.producer.init_transactions(CALL_TIMEOUT_S)

    def transact(
        self, topic: str, values: list[str], *, commit: bool, group: str | None, offset: int
    ) -> None:
        self.producer.begin_transaction()
        for value in values:
            self.producer.produce(topic, value.encode(), partition=0)
        assert self.producer.flush(CALL_TIMEOUT_S) == 0
        if group is not None:
            consumer = confluent_kafka.Consumer(
                {"bootstrap.servers": self.producer_address, "group.id": group}
            )
            at = confluent_kafka.TopicPartition(topic, 0, offset)
            metadata = consumer.consumer_group_metadata()
            self.producer.send_offsets_to_transaction([at], metadata, CALL_TIMEOUT_S)
            consumer.close()
        if commit:
            self.producer.commit_transaction(CALL_TIMEOUT_S)
        else:
            self.producer.abort_transaction(CALL_TIMEOUT_S)

    producer_address = ""

    @staticmethod
    def committed(address: str, topic: str) -> list[str]:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found: list[str] = []
        deadline = time.monotonic() + CALL_TIMEOUT_S
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error():
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                break
            if message is not None:
                found.append(message.value().decode())
        consumer.close()
        return found


def kafka_python_writes(address: str, topic: str, transactional_id: str, group: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=address, transactional_id=transactional_id)
    producer.init_transactions()
    for at, (values, commit) in enumerate(ROUNDS):
        producer.begin_transaction()
        for value in values:
            producer.send(topic, value.encode(), partition=0).get(CALL_TIMEOUT_S)
        offsets = {kafka.TopicPartition(topic, 0): kafka.OffsetAndMetadata(at, "", -1)}
        producer.send_offsets_to_transaction(offsets, kafka.ConsumerGroupMetadata(group))
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()


def kafka_python_reads(address: str, topic: str) -> list[str]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=address, isolation_level="read_committed", enable_auto_commit=False
    )
    at = kafka.TopicPartition(topic, 0)
    consumer.assign([at])
    consumer.seek_to_beginning(at)
    end = consumer.end_offsets([at])[at]
    found: list[str] = []
    deadline = time.monotonic() + CALL_TIMEOUT_S
    while consumer.position(at) < end and time.monotonic() < deadline:
        told = consumer.poll(timeout_ms=200)
        found += [record.value.decode() for record in told.get(at, [])]
    consumer.close()
    return found


async def aiokafka_writes(address: str, topic: str, transactional_id: str, group: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id=transactional_id)
    await producer.start()
    try:
        for at, (values, commit) in enumerate(ROUNDS):
            await producer.begin_transaction()
            for value in values:
                await producer.send_and_wait(topic, value.encode(), partition=0)
            await producer.send_offsets_to_transaction({AioPartition(topic, 0): at}, group)
            await (producer.commit_transaction() if commit else producer.abort_transaction())
    finally:
        await producer.stop()


async def aiokafka_reads(address: str, topic: str) -> list[str]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=address, isolation_level="read_committed", enable_auto_commit=False
    )
    await consumer.start()
    try:
        at = AioPartition(topic, 0)
        consumer.assign([at])
        await consumer.seek_to_beginning(at)
        found: list[str] = []
        deadline = time.monotonic() + CALL_TIMEOUT_S
        while len(found) < len(COMMITTED) and time.monotonic() < deadline:
            told = await consumer.getmany(at, timeout_ms=500)
            found += [record.value.decode() for record in told.get(at, [])]
        return found + [
            record.value.decode() for record in (await consumer.getmany(timeout_ms=300)).get(at, [])
        ]
    finally:
        await consumer.stop()


@pytest.fixture(scope="module")
def written(broker: Broker, client: Callable[[str], Any]) -> Iterator[Callable[[str], str]]:
    """The topic into which a client wrote its transactions, on first use."""
    done: dict[str, str] = {}

    def get(writer: str) -> str:
        if writer in done:
            return done[writer]
        transact: Transact
        if writer in (*JAVA_VERSIONS, *NODE_CLIENTS):
            driven = client(writer)  # skips when it cannot run here

            def transact(*arguments: Any, **more: Any) -> None:
                driven.transact(*arguments, transactional_id=transactional_id, **more)

        topic = done[writer] = f"transactions-of-{writer.replace('_', '-')}"
        group, transactional_id = f"{topic}-group", f"{topic}-id"
        create_topic(broker.address, topic)
        if writer == "kafka_python":
            kafka_python_writes(broker.address, topic, transactional_id, group)
            return topic
        if writer == "aiokafka":
            asyncio.run(aiokafka_writes(broker.address, topic, transactional_id, group))
            return topic
        if writer == "confluent_kafka":
            Confluent.producer_address = broker.address
            transact = Confluent(broker.address, transactional_id).transact
        for at, (values, commit) in enumerate(ROUNDS):
            transact(topic, values, commit=commit, group=group, offset=at)
        return topic

    yield get


def committed(reader: str, address: str, topic: str, client: Callable[[str], Any]) -> list[str]:
    if reader == "aiokafka":
        return asyncio.run(aiokafka_reads(address, topic))
    if reader == "kafka_python":
        return kafka_python_reads(address, topic)
    if reader == "confluent_kafka":
        return Confluent.committed(address, topic)
    reading, found = client(reader), []
    if reader == "kcat":
        only = ("-X", "isolation.level=read_committed")
        said = reading.run("-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", *only)
        found = said.decode().split("\n")[:-1]
    elif reader in NODE_CLIENTS:
        found = reading.committed(topic, len(COMMITTED))
    else:
        found = reading.committed(topic)[0]
    return found


def named(names: tuple[str, ...]) -> list[Any]:
    return [pytest.param(name, marks=MARKS.get(name, ())) for name in names]


@pytest.mark.parametrize("reader", named(READERS))
@pytest.mark.parametrize("writer", named(WRITERS))
def test_aborted_records_are_seen_by_no_consumer(
    broker: Broker, written: Callable[[str], str], client: Callable[[str], Any],
    writer: str, reader: str,
) -> None:  # fmt: skip
    assert committed(reader, broker.address, written(writer), client) == COMMITTED


def test_an_abort_is_not_seen_by_platformatic(
    broker: Broker, client: Callable[[str], Any], topic: Callable[..., str]
) -> None:
    """From a response it keeps only the last aborted transaction of each producer, and returns the
    records of the others (release 1.35.0, its filter of fetch responses): so this test has one."""
    reader, at = client("platformatic"), topic()
    Confluent.producer_address = broker.address
    writer = Confluent(broker.address, f"{at}-id")
    for values, commit in ROUNDS[:3]:
        writer.transact(at, values, commit=commit, group=None, offset=0)
    assert reader.committed(at, 3) == ["a1", "a2", "c1"]


@pytest.mark.parametrize("writer", named(WRITERS))
def test_offsets_count_when_their_transaction_commits(
    broker: Broker, written: Callable[[str], str], writer: str
) -> None:
    """The last round commits."""
    topic = written(writer)
    assert stable_offset(broker.address, f"{topic}-group", topic) == (0, len(ROUNDS) - 1)


def stable_offset(address: str, group: str, topic: str) -> tuple[int, int]:
    """Error and offset of partition 0, once no pending transaction can change it."""
    ask = request(9)
    topics = [ask.struct("groups.topics")(name=topic, partitionIndexes=[0])]
    asked = ask.cls(groups=[ask.struct("groups")(groupId=group, topics=topics)], requireStable=True)
    deadline = time.monotonic() + CALL_TIMEOUT_S
    with Wire(address) as wire:
        while True:
            row = wire.call(9, 8, asked).groups[0].topics[0].partitions[0]
            if row.errorCode != 88 or time.monotonic() > deadline:  # its marker is not written yet
                return row.errorCode, row.committedOffset
            time.sleep(0.05)


@pytest.mark.parametrize("writer", named(("java_44", "confluent_kafka")))
def test_transactions_that_network_threads_carry_out(tmp_path: Path, writer: str) -> None:
    """With log.durability=os, native code carries out most transactions of the second version and
    of the first: every client reads the same as before."""
    reason = cannot_run_client(writer)
    if reason:
        pytest.skip(reason)
    settings = {"log.dirs": str(tmp_path), "log.durability": "os"}
    with barnabas.Broker(settings) as broker, contextlib.ExitStack() as closed:
        address = broker.bootstrap_servers
        native = broker.node.bound.native.coordinators.transactions
        create_topic(address, "t")
        transact: Transact
        if writer == "confluent_kafka":
            Confluent.producer_address = address
            transact = Confluent(address, "id").transact
        else:
            driven = closed.enter_context(contextlib.closing(client_class(writer)(address)))
            transact = partial(driven.transact, transactional_id="id")
        for turn in range(TURNS):
            for at, (values, commit) in enumerate(ROUNDS):
                transact("t", values, commit=commit, group="g", offset=turn * len(ROUNDS) + at)
        assert Confluent.committed(address, "t") == COMMITTED * TURNS
        assert stable_offset(address, "g", "t") == (0, TURNS * len(ROUNDS) - 1)
        assert native.served > TURNS * len(ROUNDS) - 3
        spoken = broker.node.serving.coordinators.transactions.find("id").now.client_version
        assert spoken == (2 if writer == "java_44" else 0)
