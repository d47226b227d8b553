"""Dialogues about transactions: simple sequences of requests, for any broker.

Each case is a function that sends requests and records the responses. The same cases were sent to
Apache Kafka 4.3.1; `python tests/transactions/dialogue.py` records its responses.
Producer ids are recorded as "id 1", "id 2", in the order of their first use.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))

from compat.support import Broker, Wire, create_topic  # noqa: E402
from transactions import late_cases, offset_cases  # noqa: E402

from barnabas.cext.record.records import Record  # noqa: E402
from barnabas.wire import request  # noqa: E402
from barnabas.wire.batches import decode_batches, encode_batch  # noqa: E402

RECORDED = HERE / "dialogue-kafka-4.3.1.json"
SETTINGS = {
    "transaction.state.log.num.partitions": "4",
    "offsets.topic.num.partitions": "4",
    "transaction.max.timeout.ms": "600000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
}
CONCURRENT, LOADING, NOT_COORDINATOR, NOT_AVAILABLE = 51, 14, 16, 15
UNSTABLE = 88
TRANSIENT = (CONCURRENT, LOADING, NOT_COORDINATOR, NOT_AVAILABLE)
WAIT_S = 20


class Talk:
    """One case: a connection, its own names, and the recorded responses."""

    def __init__(self, address: str, name: str, *, again: bool = False) -> None:
        """again: the broker was restarted, so that the topic exists."""
        self.address = address
        self.wire = Wire(address)
        self.topic = f"{name}-topic"
        self.txn = f"{name}-txn"
        self.group = f"{name}-group"
        self.noted: list[Any] = []
        self._ids: dict[int, str] = {}
        if not again:
            create_topic(address, self.topic, 2)
        self.coordinator(self.txn)

    def note(self, what: str, *answer: Any) -> None:
        self.noted.append([what, *answer])

    def call(self, key: int, version: int, **fields: Any) -> Any:
        return self.wire.call(key, version, request(key).cls(**fields))

    def id_name(self, producer_id: int) -> Any:
        if producer_id < 0:
            return producer_id
        return self._ids.setdefault(producer_id, f"id {len(self._ids) + 1}")

    # -- requests -------------------------------------------------------------------------------

    def coordinator(self, name: str, kind: int = 1) -> int:
        """Waits until the coordinator is available."""
        deadline = time.monotonic() + WAIT_S
        while True:
            row = self.call(10, 4, coordinatorKeys=[name], keyType=kind).coordinators[0]
            if row.errorCode not in TRANSIENT or time.monotonic() > deadline:
                return int(row.errorCode)
            time.sleep(0.05)

    def init(
        self, version: int = 4, name: str | None = None, timeout_ms: int = 60_000,
        expected: tuple[int, int] = (-1, -1), settle: bool = True,
    ) -> tuple[int, int, int]:  # fmt: skip
        """(error, producer id, epoch). settle: repeats the request while the error is retriable."""
        deadline = time.monotonic() + WAIT_S
        while True:
            fields = dict(
                transactionalId=self.txn if name is None else name, transactionTimeoutMs=timeout_ms
            )
            if version >= 3:
                fields |= dict(producerId=expected[0], producerEpoch=expected[1])
            told = self.call(22, version, **fields)
            again = told.errorCode in TRANSIENT and settle and time.monotonic() < deadline
            if not again:
                return told.errorCode, told.producerId, told.producerEpoch
            time.sleep(0.05)

    def add(
        self, producer: tuple[int, int], *partitions: int, version: int = 3,
        topic: str | None = None, settle: bool = True, name: str | None = None,
    ) -> list[int]:  # fmt: skip
        ask = request(24)
        topics = [
            ask.struct("v3AndBelowTopics")(name=topic or self.topic, partitions=list(partitions))
        ]
        deadline = time.monotonic() + WAIT_S
        while True:
            told = self.call(
                24, version, v3AndBelowTransactionalId=name or self.txn,
                v3AndBelowProducerId=producer[0], v3AndBelowProducerEpoch=producer[1],
                v3AndBelowTopics=topics,
            )  # fmt: skip
            codes = [
                row.partitionErrorCode
                for one in told.resultsByTopicV3AndBelow
                for row in sorted(one.resultsByPartition, key=lambda row: row.partitionIndex)
            ]
            if not (settle and set(codes) & set(TRANSIENT) and time.monotonic() < deadline):
                return codes
            time.sleep(0.05)

    def add_several(
        self, version: int, *rows: tuple[str, tuple[int, int], bool, str, list[int]]
    ) -> Any:
        ask = request(24)
        transactions = [
            ask.struct("transactions")(
                transactionalId=name, producerId=producer[0], producerEpoch=producer[1],
                verifyOnly=verify,
                topics=[ask.struct("transactions.topics")(name=topic, partitions=partitions)],
            )
            for name, producer, verify, topic, partitions in rows
        ]  # fmt: skip
        told = self.call(24, version, transactions=transactions)
        return told.errorCode, [
            sorted(
                (row.partitionIndex, row.partitionErrorCode)
                for one in found.topicResults
                for row in one.resultsByPartition
            )
            for found in sorted(told.resultsByTransaction, key=lambda row: row.transactionalId)
        ]

    def batch(self, producer: tuple[int, int], sequence: int, count: int = 1, **more: Any) -> bytes:
        values = more.pop("values", None) or [b"%d" % (sequence + i) for i in range(count)]
        now_ms = int(time.time() * 1000)
        return encode_batch(
            [Record(value, timestamp=now_ms) for value in values],
            producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence,
            **{"transactional": True, **more},
        )  # fmt: skip

    def produce(
        self, producer: tuple[int, int], sequence: int, count: int = 1, *, version: int = 9,
        partition: int = 0, name: str | None = "", batches: dict[int, bytes] | None = None,
        settle: bool = True, **more: Any,
    ) -> Any:  # fmt: skip
        """(error, base offset) of the partition, or of each of the batches."""
        ask = request(0)
        data_of = ask.struct("topicData.partitionData")
        rows = batches or {partition: self.batch(producer, sequence, count, **more)}
        data = [data_of(index=index, records=records) for index, records in rows.items()]
        deadline = time.monotonic() + WAIT_S
        while True:
            told = self.call(
                0, version, transactionalId=self.txn if name == "" else name, acks=-1,
                timeoutMs=9000,
                topicData=[ask.struct("topicData")(name=self.topic, partitionData=data)],
            )  # fmt: skip
            found = [
                (row.errorCode, row.baseOffset)
                for topic in told.responses
                for row in topic.partitionResponses
            ]
            # 19: the previous transaction is not complete yet
            waits = {code for code, _ in found} & {19, *TRANSIENT}
            if not (waits and settle and time.monotonic() < deadline):
                return found if batches else found[0]
            time.sleep(0.05)

    def end(
        self, producer: tuple[int, int], commit: bool, version: int = 3, *,
        name: str | None = None, settle: bool = True,
    ) -> Any:  # fmt: skip
        """The error; from version 5 on (error, producer id, epoch)."""
        deadline = time.monotonic() + WAIT_S
        while True:
            told = self.call(
                26, version, transactionalId=name or self.txn, producerId=producer[0],
                producerEpoch=producer[1], committed=commit,
            )  # fmt: skip
            again = told.errorCode == CONCURRENT and settle and time.monotonic() < deadline
            if not again:
                break
            time.sleep(0.05)
        if version < 5:
            return told.errorCode
        return told.errorCode, told.producerId, told.producerEpoch

    def state(self, name: str | None = None) -> str:
        """The state of the transaction, once it is not a Prepare state."""
        deadline = time.monotonic() + WAIT_S
        while True:
            row = self.describe(name)
            waits = row.transactionState.startswith("Prepare")
            if not waits or time.monotonic() > deadline:
                return str(row.transactionState)
            time.sleep(0.02)

    def describe(self, name: str | None = None) -> Any:
        told = self.call(65, 0, transactionalIds=[self.txn if name is None else name])
        return told.transactionStates[0]

    def fetch(self, version: int = 11, isolation: int = 1, offset: int = 0, index: int = 0) -> Any:
        ask = request(1)
        row = ask.struct("topics.partitions")(
            partition=index, fetchOffset=offset, partitionMaxBytes=1 << 20
        )
        topics = [ask.struct("topics")(topic=self.topic, partitions=[row])]
        fields = dict(
            maxWaitMs=0, minBytes=0, maxBytes=1 << 20, isolationLevel=isolation, topics=topics
        )
        if version >= 7:
            fields |= dict(sessionId=0, sessionEpoch=-1)
        told = self.call(1, version, **fields).responses[0].partitions[0]
        batches = decode_batches(bytes(told.records), size_max=1 << 20, partial_tail=True)
        aborted = told.abortedTransactions
        return {
            "error": told.errorCode,
            "high watermark": told.highWatermark,
            "last stable offset": told.lastStableOffset,
            "aborted": None if aborted is None else sorted(
                [self.id_name(row.producerId), row.firstOffset] for row in aborted
            ),
            "batches": [
                [b.base_offset, b.last_offset, b.transactional, b.control,
                 self.id_name(b.producer_id)]
                for b in batches
            ],
        }  # fmt: skip

    def list_offsets(self, isolation: int, index: int = 0) -> int:
        ask = request(2)
        row = ask.struct("topics.partitions")(partitionIndex=index, timestamp=-1)
        topics = [ask.struct("topics")(name=self.topic, partitions=[row])]
        told = self.call(2, 5, replicaId=-1, isolationLevel=isolation, topics=topics)
        return int(told.topics[0].partitions[0].offset)

    def producers(self, index: int = 0) -> list:
        ask = request(61)
        topics = [ask.struct("topics")(name=self.topic, partitionIndexes=[index])]
        row = self.call(61, 0, topics=topics).topics[0].partitions[0]
        return sorted(
            [
                self.id_name(one.producerId),
                one.producerEpoch,
                one.lastSequence,
                one.coordinatorEpoch,
                one.currentTxnStartOffset,
            ]
            for one in row.activeProducers
        )

    def add_offsets(self, producer: tuple[int, int], version: int = 3) -> int:
        told = self.call(
            25, version, transactionalId=self.txn, producerId=producer[0],
            producerEpoch=producer[1], groupId=self.group,
        )  # fmt: skip
        return int(told.errorCode)

    def commit_offsets(
        self, producer: tuple[int, int], offset: int, version: int = 3, topic: str = "", **more: Any
    ) -> list[int]:
        ask = request(28)
        row = ask.struct("topics.partitions")(
            partitionIndex=0, committedOffset=offset, committedMetadata="m"
        )
        topics = [ask.struct("topics")(name=topic or self.topic, partitions=[row])]
        told = self.call(
            28, version, transactionalId=self.txn, groupId=self.group, producerId=producer[0],
            producerEpoch=producer[1], topics=topics, **more,
        )  # fmt: skip
        return [row.errorCode for one in told.topics for row in one.partitions]

    def commit_plainly(self, offset: int) -> list[int]:
        """OffsetCommit without a member id."""
        ask = request(8)
        row = ask.struct("topics.partitions")(partitionIndex=0, committedOffset=offset)
        told = self.call(
            8, 7, groupId=self.group, generationIdOrMemberEpoch=-1,
            topics=[ask.struct("topics")(name=self.topic, partitions=[row])],
        )  # fmt: skip
        return [row.errorCode for one in told.topics for row in one.partitions]

    def delete_offset(self) -> int:
        ask = request(47)
        partitions = [ask.struct("topics.partitions")(partitionIndex=0)]
        topics = [ask.struct("topics")(name=self.topic, partitions=partitions)]
        told = self.call(47, 0, groupId=self.group, topics=topics)
        return int(told.errorCode or told.topics[0].partitions[0].errorCode)

    def settled(self) -> Any:
        """The committed offsets, once no pending transaction can change them."""
        deadline = time.monotonic() + WAIT_S
        while True:
            error, rows = self.committed()
            if all(code != UNSTABLE for code, _ in rows) or time.monotonic() > deadline:
                return error, rows
            time.sleep(0.05)

    def committed(self, stable: bool = True) -> Any:
        ask = request(9)
        group = ask.struct("groups")(
            groupId=self.group,
            topics=[ask.struct("groups.topics")(name=self.topic, partitionIndexes=[0])],
        )
        found = self.call(9, 8, groups=[group], requireStable=stable).groups[0]
        rows = [row for one in found.topics for row in one.partitions]
        return found.errorCode, [(row.errorCode, row.committedOffset) for row in rows]

    def markers(
        self, producer: tuple[int, int], commit: bool, *partitions: int, topic: str = "",
        coordinator_epoch: int = 0,
    ) -> list[int]:  # fmt: skip
        ask = request(27)
        topics = [
            ask.struct("markers.topics")(
                name=topic or self.topic, partitionIndexes=list(partitions)
            )
        ]
        marker = ask.struct("markers")(
            producerId=producer[0], producerEpoch=producer[1], transactionResult=commit,
            topics=topics, coordinatorEpoch=coordinator_epoch,
        )  # fmt: skip
        told = self.call(27, 1, markers=[marker])
        return [
            row.errorCode
            for one in told.markers
            for topic in one.topics
            for row in topic.partitions
        ]

    def begun(self, *partitions: int, version: int = 4) -> tuple[int, int]:
        """A producer with a transaction in partitions."""
        error, producer_id, epoch = self.init(version)
        assert error == 0, error
        self.id_name(producer_id)
        if partitions:
            assert set(self.add((producer_id, epoch), *partitions)) == {0}
        return producer_id, epoch


# ------------------------------------------------------------------------------------------- cases


def a_transaction_is_committed(t: Talk) -> None:
    error, producer_id, epoch = t.init()
    t.note("init", error, epoch)
    producer = producer_id, epoch
    t.id_name(producer_id)
    t.note("state", t.state())
    t.note("add", t.add(producer, 0, 1))
    t.note("add again", t.add(producer, 1))
    t.note("produce", t.produce(producer, 0, 3))
    t.note("produce 1", t.produce(producer, 0, 1, partition=1))
    t.note("open", t.fetch(), t.fetch(isolation=0), t.list_offsets(0), t.list_offsets(1))
    t.note("producers", t.producers())
    row = t.describe()
    partitions = [[one.topic == t.topic, sorted(one.partitions)] for one in row.topics]
    t.note("described", row.errorCode, row.transactionState, row.transactionTimeoutMs,
           row.producerEpoch, partitions)  # fmt: skip
    t.note("end", t.end(producer, True))
    t.note("state", t.state())
    t.note("committed", t.fetch(), t.list_offsets(1), t.producers())
    t.note("end again", t.end(producer, True))
    t.note("abort after commit", t.end(producer, False))


def a_transaction_is_aborted(t: Talk) -> None:
    producer = t.begun(0)
    t.note("produce", t.produce(producer, 0, 2), t.produce(producer, 2, 2))
    t.note("end", t.end(producer, False))
    t.note("state", t.state())
    for version in (4, 5, 7, 11, 12):
        t.note(f"fetch {version}", t.fetch(version))
    t.note("fetch all", t.fetch(isolation=0))
    t.note("from the second batch", t.fetch(offset=2))
    t.note("from the marker", t.fetch(offset=4))
    t.note("from the end", t.fetch(offset=5))
    t.note("end again", t.end(producer, False))
    t.note("commit after abort", t.end(producer, True))
    t.note("next", t.add(producer, 0), t.produce(producer, 4))
    t.note("open", t.fetch())
    t.note("commit", t.end(producer, True), t.state(), t.fetch())


def the_earliest_open_transaction_holds_readers_back(t: Talk) -> None:
    producers = []
    for name in ("a", "b", "c"):
        error, producer_id, epoch = t.init(name=f"{t.txn}-{name}")
        t.note("init", error, t.id_name(producer_id), epoch)
        producers.append((f"{t.txn}-{name}", (producer_id, epoch)))
    for name, producer in producers:
        t.note("add", t.add(producer, 0, name=name))
        t.note("produce", t.produce(producer, 0, 2, name=name))
    for at in (1, 0, 2):
        name, producer = producers[at]
        t.note("end", t.end(producer, at != 1, name=name), t.state(name))
        t.note("seen", t.fetch(), t.list_offsets(1))


def produce_needs_a_transaction(t: Talk) -> None:
    producer = t.begun()
    for version in (3, 9, 11):
        t.note(f"produce {version}", t.produce(producer, 0, version=version))
    t.note("add", t.add(producer, 0))
    t.note("other partition", t.produce(producer, 0, partition=1))
    t.note("produce", t.produce(producer, 0))
    t.note("end", t.end(producer, True), t.state())
    t.note("after the end", t.produce(producer, 1))
    t.note("unknown id", t.produce(producer, 1, name=f"{t.txn}-nobody"))
    t.note("no id", t.produce(producer, 1, name=None))
    t.note("plain in between", t.produce(producer, 1, transactional=False))


def a_plain_batch_inside_a_transaction(t: Talk) -> None:
    producer = t.begun(0)
    t.note("produce", t.produce(producer, 0))
    t.note("plain", t.produce(producer, 1, transactional=False))
    t.note("produce", t.produce(producer, 1))
    t.note("end", t.end(producer, True))


def two_producers_in_one_request(t: Talk) -> None:
    producer = t.begun(0, 1)
    other = producer[0], producer[1] + 1
    rows = {0: t.batch(producer, 0), 1: t.batch(other, 0)}
    t.note("produce", t.produce(producer, 0, batches=rows))


def a_control_batch_from_a_client(t: Talk) -> None:
    producer = t.begun(0)
    t.note("produce", t.produce(producer, 0, control=True))


def a_zombie_is_fenced(t: Talk) -> None:
    old = t.begun(0)
    t.note("produce", t.produce(old, 0))
    t.note("end", t.end(old, True), t.state())
    error, producer_id, epoch = t.init()
    t.note("init", error, t.id_name(producer_id), epoch)
    new = producer_id, epoch
    for version in (0, 1, 2, 3):
        t.note(f"add {version}", t.add(old, 0, version=version))
        t.note(f"end {version}", t.end(old, True, version=version))
        t.note(f"offsets {version}", t.add_offsets(old, version=version))
    t.note("end 5", t.end(old, True, version=5))
    t.note("produce", t.produce(old, 1))
    t.note("new", t.add(new, 0), t.produce(new, 0))
    t.note("old produce", t.produce(old, 1))
    t.note("end", t.end(new, True), t.state())
    t.note(
        "a higher epoch", t.add((producer_id, epoch + 5), 0), t.end((producer_id, epoch + 5), True)
    )


def a_new_producer_aborts_what_is_open(t: Talk) -> None:
    old = t.begun(0)
    t.note("produce", t.produce(old, 0))
    error, _, epoch = t.init(settle=False)
    t.note("init", error, epoch)
    t.note("state", t.state())
    row = t.describe()
    t.note("described", row.producerEpoch)
    t.note("seen", t.fetch(), t.producers())
    error, producer_id, epoch = t.init()
    t.note("init", error, t.id_name(producer_id), epoch)
    t.note("old", t.end(old, True), t.add(old, 0), t.produce(old, 1))


def an_id_that_cannot_be_had(t: Talk) -> None:
    t.note("empty", t.init(name=""))
    for timeout_ms in (0, -1, 600_001):
        t.note(f"timeout {timeout_ms}", t.init(timeout_ms=timeout_ms))
    t.note("epoch without id", t.init(expected=(-1, 3)))
    t.note("id without epoch", t.init(expected=(3, -1)))
    for version in (0, 1, 2, 3, 4, 5):
        error, producer_id, epoch = t.init(version)
        t.note(f"init {version}", error, t.id_name(producer_id), epoch)
    t.note("as somebody else", t.init(expected=(producer_id + 7777, 1)))
    t.note(
        "with an old epoch", t.init(3, expected=(producer_id, 1)), t.init(expected=(producer_id, 1))
    )
    error, producer_id, epoch = t.init(expected=(producer_id, epoch))
    t.note("come back", error, t.id_name(producer_id), epoch)
    error, producer_id, epoch = t.init(expected=(producer_id, epoch - 1))
    t.note("the answer was lost", error, t.id_name(producer_id), epoch)


def sequences(t: Talk) -> None:
    producer = t.begun(0)
    t.note("first", t.produce(producer, 0, 3))
    t.note("repeat", t.produce(producer, 0, 3))
    t.note("gap", t.produce(producer, 5))
    t.note("next", t.produce(producer, 3))
    t.note("end", t.end(producer, True), t.state())
    t.note("next transaction", t.add(producer, 0))
    t.note("repeat of the last one", t.produce(producer, 3))
    t.note("next", t.produce(producer, 4))
    t.note("end", t.end(producer, True), t.state())


def a_producer_that_begins_late_in_its_sequences(t: Talk) -> None:
    producer = t.begun(0)
    t.note("first", t.produce(producer, 2**31 - 2, 3, values=[b"a", b"b", b"c"]))
    t.note("wrapped", t.produce(producer, 1))
    t.note("end", t.end(producer, True), t.state())


def producer_ids_that_the_broker_never_gave(t: Talk) -> None:
    """Idempotent batches of producers with invented ids, or whose state has expired."""

    def plain(producer: tuple[int, int], sequence: int, version: int, **more: Any) -> Any:
        return t.produce(
            producer, sequence, version=version, name=None, transactional=False, **more
        )  # fmt: skip

    for version, partition in ((9, 0), (12, 1)):
        first, second = (10**15 + 999 + version, 0), (10**15 + 1999 + version, 3)
        rows = dict(version=version, partition=partition)
        t.note(f"sequence 5 {version}", plain(first, 5, **rows), t.producers(partition))
        t.note(f"the next {version}", plain(first, 6, **rows))
        t.note(f"the same {version}", plain(first, 6, **rows))
        t.note(f"a gap {version}", plain(first, 9, **rows))
        t.note(f"the next epoch {version}", plain((first[0], 1), 7, **rows))
        t.note(f"the next epoch from 0 {version}", plain((first[0], 1), 0, **rows))
        t.note(f"sequence 5, epoch 3 {version}", plain(second, 5, **rows))
        t.note(f"an older epoch {version}", plain((second[0], 2), 6, **rows))
        t.note(f"transactional {version}", t.produce((10**15 + 2999, 0), 5, **rows))


def ends_that_are_refused(t: Talk) -> None:
    t.note("nobody", t.end((1, 0), True, name=f"{t.txn}-nobody"))
    t.note("nobody 5", t.end((1, 0), True, version=5, name=f"{t.txn}-nobody"))
    producer = t.begun()
    other = producer[0] + 7777, producer[1]
    t.note("other producer", t.end(other, True), t.end(other, True, version=5))
    t.note("nothing begun", t.end(producer, True), t.end(producer, False))
    t.note("nothing begun 5", t.end(producer, True, version=5))
    t.note("add", t.add(producer, 0))
    t.note("other producer", t.end(other, True), t.add(other, 0), t.add_offsets(other))


def the_second_version(t: Talk) -> None:
    producer = t.begun(version=5)

    def end(commit: bool) -> tuple[int, int]:
        error, producer_id, epoch = t.end(now, commit, version=5)
        t.note(f"end {commit}", error, t.id_name(producer_id), epoch)
        return producer_id, epoch

    now = producer
    t.note("produce", t.produce(now, 0, 2, version=12))
    t.note("state", t.state())
    t.note("partitions", [one.partitions for one in t.describe().topics])
    after = end(True)
    t.note("state", t.state())
    t.note("the same end again", end(True) == after)
    t.note("the other end", t.end(now, False, version=5))
    t.note("seen", t.fetch(), t.producers())
    t.note("old epoch", t.produce(now, 2, version=12))
    t.note("sequence of the old epoch", t.produce(after, 2, version=12))
    now = after
    t.note("next", t.produce(now, 0, 2, version=12))
    after = end(False)
    t.note("state", t.state())
    t.note("seen", t.fetch(), t.producers())
    now = after
    t.note("commit of nothing", t.end(now, True, version=5))
    after = end(False)
    t.note("state", t.state())
    now = after
    t.note("old end", t.end(producer, True, version=5))
    t.note("old end of the first version", t.end(producer, True))
    t.note("a new sequence at an end", t.produce(now, 3, version=12))


def the_second_version_without_data(t: Talk) -> None:
    producer = t.begun(version=5)
    error, producer_id, epoch = t.end(producer, False, version=5)
    t.note("abort of nothing", error, t.id_name(producer_id), epoch)
    t.note("state", t.state())
    t.note("late sequence", t.produce((producer_id, epoch), 3, version=12))
    t.note("produce", t.produce((producer_id, epoch), 0, version=12))


def partitions_that_do_not_exist(t: Talk) -> None:
    producer = t.begun()
    t.note("unknown partition", t.add(producer, 0, 9))
    t.note("unknown topic", t.add(producer, 0, topic="no-such-topic"))
    t.note("state", t.state())
    t.note("nobody", t.add(producer, 0, name=f"{t.txn}-nobody"))


def several_transactions_in_one_request(t: Talk) -> None:
    producer = t.begun(0)
    error, producer_id, epoch = t.init(name=f"{t.txn}-b")
    other = producer_id, epoch
    a, b = t.txn, f"{t.txn}-b"
    for version in (4, 5):
        told = t.add_several(
            version, (a, producer, True, t.topic, [0, 1]), (b, other, False, t.topic, [1])
        )
        t.note(f"both {version}", told)
        t.note(f"unknown {version}", t.add_several(version, (a, producer, True, t.topic, [0, 9])))
        t.note(
            f"zombie {version}",
            t.add_several(version, (a, (producer[0], 9), False, t.topic, [0])),
            t.add_several(version, (a, (producer[0], 9), True, t.topic, [0])),
        )
        t.note(
            f"nobody {version}",
            t.add_several(version, ("nobody", producer, True, t.topic, [0])),
            t.add_several(version, ("nobody", producer, False, t.topic, [0])),
        )
    t.note("states", t.state(a), t.state(b))


def markers_by_hand(t: Talk) -> None:
    old = t.begun()
    producer = t.begun(0)
    t.note("produce", t.produce(producer, 0))
    t.note("old epoch", t.markers(old, False, 0))
    t.note(
        "unknown",
        t.markers(producer, False, 9),
        t.markers(producer, False, 0, topic="no-such-topic"),
    )
    t.note("abort", t.markers(producer, False, 0, 1))
    t.note("seen", t.fetch(), t.producers())
    t.note("nobody's", t.markers((producer[0] + 7777, 0), True, 0))
    t.note("an older coordinator", t.markers(producer, False, 0, coordinator_epoch=-1))
    t.note("seen", t.fetch(), t.state())


def asking_about_transactions(t: Talk) -> None:
    t.note("nobody", t.describe(f"{t.txn}-nobody").errorCode)
    t.note("empty", t.describe("").errorCode)
    producer = t.begun(0)

    def listed(version: int = 1, **filters: Any) -> Any:
        told = t.call(66, version, **filters)
        mine = [row for row in told.transactionStates if row.transactionalId.startswith(t.txn)]
        return told.errorCode, told.unknownStateFilters, [row.transactionState for row in mine]

    t.note("all", listed(0), listed(1))
    t.note("ongoing", listed(stateFilters=["Ongoing"]), listed(stateFilters=["Empty"]))
    t.note("unknown state", listed(stateFilters=["Nothing"]))
    t.note("unknown and known", listed(stateFilters=["Nothing", "Ongoing"]))
    t.note("lower case", listed(stateFilters=["ongoing"]))
    t.note("producer", listed(producerIdFilters=[producer[0]]), listed(producerIdFilters=[1 << 40]))
    t.note("long", listed(durationFilter=1 << 40), listed(durationFilter=0))
    t.note("idle and long", t.end(producer, True), t.state(), listed(durationFilter=0))
    for pattern in (".*", f"{t.txn}", f"{t.txn[:-1]}[m-p]", "nothing", "", "(", "a{2,1}"):
        t.note(f"pattern {pattern.replace(t.txn[:-1], 'TX')}",
               listed(2, transactionalIdPattern=pattern))  # fmt: skip


def a_transaction_takes_too_long(t: Talk) -> None:
    error, producer_id, epoch = t.init(timeout_ms=300)
    producer = producer_id, epoch
    t.id_name(producer_id)
    t.note("add", t.add(producer, 0), t.produce(producer, 0))
    deadline = time.monotonic() + WAIT_S
    while t.state() == "Ongoing" and time.monotonic() < deadline:
        time.sleep(0.05)
    t.note("state", t.state(), t.describe().producerEpoch)
    t.note("seen", t.fetch())
    t.note("too late", t.end(producer, True), t.produce(producer, 1), t.add(producer, 0))


CASES: dict[str, Callable[[Talk], None]] = {
    case.__name__.replace("_", "-"): case
    for case in (
        a_transaction_is_committed, a_transaction_is_aborted,
        the_earliest_open_transaction_holds_readers_back, produce_needs_a_transaction,
        a_plain_batch_inside_a_transaction, two_producers_in_one_request,
        a_control_batch_from_a_client, a_zombie_is_fenced, a_new_producer_aborts_what_is_open,
        an_id_that_cannot_be_had, sequences, a_producer_that_begins_late_in_its_sequences,
        producer_ids_that_the_broker_never_gave, ends_that_are_refused, the_second_version,
        the_second_version_without_data,
        partitions_that_do_not_exist, several_transactions_in_one_request,
        *offset_cases.CASES, *late_cases.CASES, markers_by_hand, asking_about_transactions,
        a_transaction_takes_too_long,
    )
}  # fmt: skip


def conversation(address: str, name: str) -> list[Any]:
    """The responses of a broker in one case, as JSON."""
    talk = Talk(address, name)
    try:
        CASES[name](talk)
    except ConnectionError:
        talk.note("the broker hangs up")
    finally:
        talk.wire.close()
    found: list[Any] = json.loads(json.dumps(talk.noted))
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        kafka = Broker("kafka:4.3.1", Path(folder), SETTINGS)
        try:
            told = {name: conversation(kafka.address, name) for name in CASES}
        finally:
            kafka.stop()
    lines = [
        f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]"
        for name, rows in told.items()
    ]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
