"""The sink's ledger: a compacted topic with the decision about each query's newest batch.

| record | bytes |
|---|---|
| key | UTF-8, stream/QUERY-ID or job/RANDOM |
| value | {"version":1,"batch":7,"state":"decided","run":"ID","transactions":[["NAME",5,0],...]} |

`decided`: these transactions must be committed; the driver does so unless it dies. `done`: they are
committed. `withdrawn`: all of them had timed out before, and the batch must be written again. A
batch write has no next batch: instead of writing `done` the driver deletes its key. NAME is the
transactional id without its prefix (`transaction_name`). A key's newest committed record is valid.

The driver writes each record in a transaction of the key's own transactional id. It claims that id
before it reads: from then on no earlier driver can decide. It reads past the last stable offset,
because open transactions of other queries would hide this query's records, and evaluates the
transaction markers itself. After a crash before the marker the next claim aborts the record:
nothing was decided.

Limits: a driver reads WINDOW_FIRST records from the end, then eight times as many, until it finds
the key. A decision is one record: about 30,000 transactions with a message.max.bytes of 1 MiB.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from barnabas.cext.record.records import Record
from barnabas.client import (
    EARLIEST,
    LATEST,
    Cluster,
    NewTopic,
    Producer,
    Reader,
    create_topics,
    describe_configs,
    list_offsets,
)
from barnabas.client.admin import TOPIC, Resource
from barnabas.client.partitioner import partition_of
from barnabas.client.transactional_id import Prepared, TransactionalId
from barnabas.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    ProducerFenced,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from barnabas.spark.failures import SinkError

VERSION = 1
DECIDED, DONE, WITHDRAWN = "decided", "done", "withdrawn"
STATES = (DECIDED, DONE, WITHDRAWN)
STREAM, JOB = "stream/", "job/"  # the prefixes of keys
PREFIX = "barnabas-sink"
WINDOW_FIRST = 256
MARKER_COMMIT = b"\x00\x00\x00\x01"  # key of a marker: version 0, type 1
TIMEOUT_MS = 60_000
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 * 1024 * 1024),
    "segment.ms": str(6 * 3600 * 1000),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A key's newest record."""

    batch: int
    state: str
    run: str
    transactions: tuple[Prepared, ...] = ()

    def covers(self, batch: int) -> bool:
        """Returns whether the batch is written already."""
        return batch < self.batch or (batch == self.batch and self.state != WITHDRAWN)

    def as_(self, state: str) -> "Entry":
        """Returns the entry in another state, without its transactions."""
        return replace(self, state=state, transactions=())


def transaction_name(key: str, rest: str = "") -> str:
    """Returns a transactional id of the key. The ids of the tasks of one query have the same
    prefix."""
    return f"{PREFIX}/{key}/{rest}"


def encode_entry(key: str, entry: Entry) -> bytes:
    """Returns the value of the key's ledger record."""
    start = len(transaction_name(key))
    rows = [[one.name[start:], one.producer_id, one.producer_epoch] for one in entry.transactions]
    fields = {
        "version": VERSION,
        "batch": entry.batch,
        "state": entry.state,
        "run": entry.run,
        "transactions": rows,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_entry(key: str, value: bytes) -> Entry:
    """Decodes the value of a ledger record. Raises SinkError for a value that no driver wrote."""
    try:
        found = json.loads(value)
        if found["version"] != VERSION:
            raise SinkError(f"the ledger's record of {key} has version {found['version']}")
        if found["state"] not in STATES:
            raise ValueError(f"no state {found['state']!r}")
        transactions = tuple(
            Prepared(transaction_name(key, str(name)), int(producer_id), int(epoch))
            for name, producer_id, epoch in found["transactions"]
        )
        return Entry(int(found["batch"]), found["state"], str(found["run"]), transactions)
    except (ValueError, TypeError, KeyError) as error:
        raise SinkError(f"cannot read the ledger's record of {key}: {error}") from None


def open_ledger(cluster: Cluster, topic: str) -> None:
    """Creates a missing ledger topic. Raises SinkError when the topic is not compacted."""
    (known,) = cluster.refresh([topic])
    if known.errorCode == UnknownTopicOrPartition.code:
        try:
            create_topics(cluster, [NewTopic(topic, partition_count=1, configs=CONFIGS)])
        except TopicAlreadyExists:
            pass  # by another query, just now
        return
    rows = describe_configs(cluster, Resource(TOPIC, topic))
    policy = next((str(row.value) for row in rows if row.name == "cleanup.policy"), "")
    if policy.replace(" ", "") != "compact":
        raise SinkError(
            f"the ledger topic {topic} has cleanup.policy={policy}, which would lose decisions:"
            " set it to compact, or name another topic by the option ledgerTopic"
        )


def latest(cluster: Cluster, topic: str, key: str) -> Entry | None:
    """Returns the key's newest committed record; None when there is none. Raises SinkError, and
    errors of client and brokers."""
    name = key.encode()
    index = partition_of(name, len(cluster.topic(topic).partitions))
    start = list_offsets(cluster, topic, {index: EARLIEST})[index].offset
    end = list_offsets(cluster, topic, {index: LATEST})[index].offset
    size = WINDOW_FIRST
    while True:
        begin = max(start, end - size)
        found = _newest(Reader(cluster, topic, {index: begin}, to_end=True), name)
        if found is not None:
            return None if found.value is None else decode_entry(key, found.value)
        if begin == start:
            return None
        size *= 8


def _newest(reader: Reader, name: bytes) -> Record | None:
    waiting: dict[int, Record] = {}  # by producer id, until its marker follows
    found = None
    for _, batch in reader.batches():
        if batch.control:
            record = waiting.pop(batch.producer_id, None)
            if record is not None and batch.records[0].key == MARKER_COMMIT:
                found = record
            continue
        for record in batch.records:
            if record.key == name and batch.transactional:
                waiting[batch.producer_id] = record
    return found


def decided_before(cluster: Cluster, topic: str, kind: str, when_ms: int) -> list[str]:
    """Returns the keys that begin with `kind` and whose newest record is a decision from before
    `when_ms`, in ms since 1970."""
    newest: dict[str, Record] = {}
    for index in cluster.topic(topic).partitions:
        start = list_offsets(cluster, topic, {index: EARLIEST})[index].offset
        waiting: dict[int, list[Record]] = {}
        for _, batch in Reader(cluster, topic, {index: start}, to_end=True).batches():
            if batch.control:
                records = waiting.pop(batch.producer_id, [])
                if batch.records[0].key == MARKER_COMMIT:
                    newest |= {record.key.decode(): record for record in records if record.key}
            elif batch.transactional:
                waiting.setdefault(batch.producer_id, []).extend(batch.records)
    return [
        key
        for key, record in newest.items()
        if key.startswith(kind)
        and record.value is not None
        and record.timestamp < when_ms
        and decode_entry(key, record.value).state == DECIDED
    ]


class LedgerHolder:
    """A driver that has claimed a key. Its records are valid only until another driver claims the
    key.

    Use it in a `with` statement."""

    def __init__(self, cluster: Cluster, topic: str, key: str) -> None:
        """Claims the key and reads its newest record. Raises SinkError, and errors of client and
        brokers."""
        self.key = key
        self._held = TransactionalId(cluster, transaction_name(key), timeout_ms=TIMEOUT_MS)
        self._held.claim()
        self.newest = latest(cluster, topic, key)
        self._producer = Producer(cluster, topic, transaction=self._held)
        self._index = partition_of(key.encode(), self._producer.partition_count)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._producer.close()

    def write(
        self, entry: Entry | None, *, before_end: Callable[[], object] = lambda: None
    ) -> None:
        """Writes an entry; returns when it is committed. None deletes the key. `before_end`: called
        before the commit. Raises SinkError when another driver has claimed the key."""
        try:
            value = None if entry is None else encode_entry(self.key, entry)
            self._producer.send(value, self.key.encode(), partition=self._index)
            self._producer.flush()
            before_end()
            self._held.end(commit=True)
        except (ProducerFenced, InvalidProducerEpoch, InvalidTxnState) as error:
            raise SinkError(
                f"another driver also writes {self.key} and has taken over; it continues this"
                " driver's batch"
            ) from error
        self.newest = entry
