"""Two brokers that get the same requests about transactions, and their results: one has
log.durability=os, and its network threads write the markers; the other has fsync, where steps wait
for a flush and Python writes the markers."""

import threading
import time
from collections import defaultdict
from contextlib import contextmanager

from compat.support import create_topic
from transactions.dialogue import SETTINGS, Talk
from waiting import soon

from barnabas import Broker
from barnabas.cext.coordinator.transaction_handler import TransactionHandler
from barnabas.cext.coordinator.transactional_ids import TransactionalIds
from barnabas.coordinator.journal import id_hash
from barnabas.coordinator.transactions.transaction import PREPARED, State
from barnabas.coordinator.transactions.transaction_records import (
    read_transaction,
    value_version,
)
from barnabas.metadata.znodes import uuid_bytes
from barnabas.wire import request
from barnabas.wire.batches import decode_batches
from barnabas.wire.headers import encode_request
from barnabas.wire.internal import TRANSACTION_STATE, record_type

PRODUCE, ADD, ADD_OFFSETS, END, TXN_COMMIT = 0, 24, 25, 26, 28
TOPICS = ("a", "b", "ab")
PATIENCE_S = 20


@contextmanager
def started(place, durability, more=None):
    settings = {"log.dirs": str(place), "log.durability": durability, **SETTINGS, **(more or {})}
    settings["transaction.abort.timed.out.transaction.cleanup.interval.ms"] = "100000"
    with Broker(settings) as broker:
        for name in TOPICS:
            create_topic(broker.bootstrap_servers, name, 40)
        yield broker


def native_of(broker) -> TransactionHandler:
    return broker.node.bound.native.coordinators.transactions


def ids_of(broker) -> TransactionalIds:
    return broker.node.serving.coordinators.transactions.ids


def known(broker, name):
    """The current state of a transactional id."""
    return broker.node.serving.coordinators.transactions.find(name)


def replace(broker, name, **fields):
    """Changes the state of an id in memory only."""
    found = known(broker, name)
    epoch = broker.node.serving.coordinators.transactions.journal.leader_epoch(found.partition)
    ids_of(broker).put(name, found.partition, epoch, found.now._replace(**fields))


class Writer(Talk):
    """A transactional producer that keeps responses as bytes."""

    def __init__(self, broker, name, *, init=True):
        super().__init__(broker.bootstrap_servers, name, again=True)
        self.txn, self.group = name, f"{name}-group"
        self.broker = broker
        self.coordinator(self.group, 0)
        self.coordinator(self.txn)
        if init:
            assert self.init()[0] == 0
        self.producer = self._has()

    def _has(self):
        row = known(self.broker, self.txn)
        return (row.now.producer_id, row.now.producer_epoch) if row is not None else (-1, -1)

    def add_frame(self, rows, version, producer=None):
        ask = request(ADD)
        topics = [
            ask.struct("v3AndBelowTopics")(name=name, partitions=list(indexes))
            for name, indexes in rows
        ]
        producer_id, epoch = producer or self.producer
        return encode_request(
            ADD,
            version,
            7,
            "twin",
            ask.cls(
                v3AndBelowTransactionalId=self.txn,
                v3AndBelowProducerId=producer_id,
                v3AndBelowProducerEpoch=epoch,
                v3AndBelowTopics=topics,
            ),
        )

    def offsets_frame(self, version, group=None, producer=None):
        producer_id, epoch = producer or self.producer
        return encode_request(
            ADD_OFFSETS,
            version,
            7,
            "twin",
            request(ADD_OFFSETS).cls(
                transactionalId=self.txn,
                producerId=producer_id,
                producerEpoch=epoch,
                groupId=group or self.group,
            ),
        )

    def end_frame(self, committed, version=3):
        producer_id, epoch = self.producer
        return encode_request(
            END,
            version,
            7,
            "twin",
            request(END).cls(
                transactionalId=self.txn,
                producerId=producer_id,
                producerEpoch=epoch,
                committed=committed,
            ),
        )

    def write(self, rows, version, state):
        """The response to a Produce of {index: batch}, without the topic's id."""
        ask = request(PRODUCE)
        data_of = ask.struct("topicData.partitionData")
        data = [data_of(index=index, records=records) for index, records in rows.items()]
        named = self._named(version >= 13, state)
        topic = ask.struct("topicData")(partitionData=data, **named)
        body = ask.cls(transactionalId=self.txn, acks=-1, timeoutMs=9000, topicData=[topic])
        answer = self.ask(encode_request(PRODUCE, version, 7, "twin", body))
        return answer.replace(named.get("topicId", b"-"), b"-")

    def put(self, offset, version, state):
        """The answer to a TxnOffsetCommit of partition 0, without the topic's id."""
        ask = request(TXN_COMMIT)
        row = ask.struct("topics.partitions")(
            partitionIndex=0, committedOffset=offset, committedMetadata="m"
        )
        named = self._named(version >= 6, state)
        topic = ask.struct("topics")(partitions=[row], **named)
        body = ask.cls(
            transactionalId=self.txn,
            groupId=self.group,
            producerId=self.producer[0],
            producerEpoch=self.producer[1],
            topics=[topic],
        )
        answer = self.ask(encode_request(TXN_COMMIT, version, 7, "twin", body))
        return answer.replace(named.get("topicId", b"-"), b"-")

    def _named(self, by_id, state):
        if not by_id:
            return {"name": self.topic}
        return {"topicId": uuid_bytes(state.topics[self.topic].topic_id)}

    def ask(self, frame):
        return self.wire.call_raw(frame)

    def settle(self):
        """Waits until the markers are written."""
        deadline = time.monotonic() + PATIENCE_S
        while (row := known(self.broker, self.txn)) and (
            row.is_pending or row.now.state in PREPARED
        ):
            assert time.monotonic() < deadline, "its end is never complete"
            time.sleep(0.002)


def side_by_side(produce, over, is_enough):
    """Runs produce(number) in six threads until `over` is set: after a while, when is_enough()."""
    threads = [threading.Thread(target=produce, args=(at,), daemon=True) for at in range(6)]
    for one in threads:
        one.start()
    over.wait(3)
    try:
        soon(is_enough, "hardly anything was done")
    finally:
        over.set()
    for one in threads:
        one.join(PATIENCE_S)


def transaction_value(transaction, version_level):
    """The value of a record by Kafka's schema. `version_level`: of transaction.version."""
    kind = record_type(TRANSACTION_STATE, "TransactionLog")
    version = value_version(version_level)
    value = kind.value.cls(
        producerId=transaction.producer_id,
        producerEpoch=transaction.producer_epoch,
        transactionTimeoutMs=transaction.timeout_ms,
        transactionStatus=int(transaction.state),
        transactionPartitions=(
            None if transaction.state == State.EMPTY else _rows(transaction.partitions)
        ),
        transactionLastUpdateTimestampMs=transaction.update_ms,
        transactionStartTimestampMs=transaction.start_ms,
    )
    if version > 0:
        value.previousProducerId = transaction.previous_producer_id
        value.nextProducerId = transaction.next_producer_id
        value.clientTransactionVersion = transaction.client_version
    return kind.encode_value(value, version)


def _rows(partitions):
    row_of = record_type(TRANSACTION_STATE, "TransactionLog").value.struct("transactionPartitions")
    by_topic = defaultdict(list)
    for topic, index in sorted(partitions):
        by_topic[topic].append(index)
    return [row_of(topic=topic, partitionIds=found) for topic, found in by_topic.items()]


def records_of(broker, name):
    """The records of an id in the log, without times; checks that each value follows the schema."""
    journal = broker.node.serving.coordinators.transactions.journal
    log = broker.node.loaded.replicas.log(TRANSACTION_STATE, id_hash(name) % 4)
    assert journal.partition_of(name) == id_hash(name) % 4
    found = []
    for batch in decode_batches(log.read(0, 1 << 24), size_max=1 << 24):
        for record in batch.records:
            of, row = read_transaction(record)
            if of == name:
                assert record.value == transaction_value(row, 2)
                begun = row.start_ms - row.update_ms if row.start_ms >= 0 else None
                assert begun is None or -60_000 < begun <= 0
                found.append(
                    (batch.codec, batch.producer_id, row._replace(start_ms=0, update_ms=0))
                )
    return found


def log_of(broker, topic, index):
    """The batches of a partition, without times."""
    log = broker.node.loaded.replicas.log(topic, index)
    return [
        (
            (batch.base_offset, batch.last_offset, batch.magic, batch.codec, batch.leader_epoch),
            (batch.producer_id, batch.producer_epoch, batch.base_sequence),
            (batch.transactional, batch.control, batch.timestamp_type),
            [(row.key, row.value, row.headers) for row in batch.records] if batch.control else [],
        )
        for batch in decode_batches(log.read(0, 1 << 24), size_max=1 << 24)
    ]
