"""A task's part of the sink: writes rows in a transaction of its own, and hands it over open.

A transactional id belongs to the process that created it. No other process ever claims it, so none
can fence a transaction that a driver may have decided. A process uses an id again, in a later
batch, when the ledger says that the batch of its last transaction is over. Limit: a process
remembers IDS_MAX ids. A Spark process lives while its executor is busy at least once a minute.
"""

import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.client import ClientError, Cluster, Producer
from barnabas.client.transactional_id import TransactionalId
from barnabas.errors import KafkaError, MessageTooLarge
from barnabas.spark.failures import BadRows, SinkError
from barnabas.spark.sink_commit import Written, too_long
from barnabas.spark.sink_encoding import Encoding
from barnabas.spark.sink_ledger import DONE, Entry, latest, transaction_name
from barnabas.spark.sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow

IDS_MAX = 64


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """The batch of a task. `key`, `run`: those of the ledger. `planned_ms`: the driver's clock, in
    ms since 1970."""

    key: str
    run: str
    batch: int
    planned_ms: int
    is_stream: bool


@dataclass(slots=True)
class _Id:
    """A transactional id of this process, and the batch of its last transaction."""

    name: str
    key: str
    batch: int
    is_free: bool = False

    def may_be_used(self, place: TaskPlace, newest: Entry | None) -> bool:
        if not self.name.startswith(transaction_name(place.key, f"{place.run}/")):
            return False
        if self.is_free or newest is None:
            return self.is_free
        return newest.batch > self.batch or (newest.batch == self.batch and newest.state == DONE)


class IdPool:
    """The transactional ids of one process. A forked child begins with none."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._ids: list[_Id] = []

    def take(self, place: TaskPlace, newest: Entry | None) -> _Id:
        """Returns an id that the batch may use, or a new one. `newest`: the key's newest ledger
        entry."""
        if self._pid != os.getpid():
            self._pid, self._ids = os.getpid(), []
        for one in self._ids:
            if one.may_be_used(place, newest):
                one.batch, one.is_free = place.batch, False
                return one
        name = transaction_name(place.key, f"{place.run}/{uuid.uuid4().hex[:16]}")
        self._ids = [*self._ids[-(IDS_MAX - 1) :], _Id(name, place.key, place.batch)]
        return self._ids[-1]


_pool = IdPool()  # of this worker process, which Spark uses for one task after another


def write_task(
    options: SinkOptions, place: TaskPlace, batches: Iterator["pyarrow.RecordBatch"]
) -> Written:
    """Writes all rows of a task in one open transaction, and returns the message for the driver.
    Raises BadRows, SinkError, and errors of client and brokers, after it has aborted the
    transaction."""
    found = Written(place.key, place.run, place.batch, place.planned_ms, None)
    began = time.monotonic()
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return found
    with options.cluster() as cluster:
        newest = latest(cluster, options.ledger, place.key) if place.is_stream else None
        if newest is not None and newest.covers(place.batch):
            for _ in batches:  # Spark requires that a task reads its rows
                pass
            return Written(place.key, place.run, place.batch, place.planned_ms, None, 0, True)
        one = _pool.take(place, newest)
        held = TransactionalId(cluster, one.name, timeout_ms=options.transaction_timeout_ms)
        held.claim()
        rows = _Rows(options, cluster, held)
        try:
            rows.write(first)
            for batch in batches:
                _check_time(options, began)
                rows.write(batch)
            rows.flush()
            _check_time(options, began)
        except BaseException:
            one.is_free = _abort(held)
            raise
        finally:
            rows.close()
        return Written(
            place.key, place.run, place.batch, place.planned_ms, held.prepared, rows.count
        )


def _abort(held: TransactionalId) -> bool:
    """Aborts the transaction. Returns whether the process may use the id again at once."""
    try:
        held.end(commit=False)
    except (KafkaError, ClientError):
        return False
    return True


def _check_time(options: SinkOptions, began: float) -> None:
    took_ms = round(1000 * (time.monotonic() - began))
    if took_ms >= options.batch_limit_ms:
        raise SinkError(too_long(options, took_ms))


def _by_topic(topics: list[str | None]) -> dict[str, list[int]]:
    """Returns the row numbers of each topic. Raises BadRows."""
    found: dict[str, list[int]] = {}
    for at, topic in enumerate(topics):
        if topic is None:
            raise BadRows("a row's topic is null: fill the column, or set the option topic")
        found.setdefault(topic, []).append(at)
    return found


class _Rows:
    """Writes Arrow batches into topics. Columns: key, value, headers, topic, partition."""

    def __init__(self, options: SinkOptions, cluster: Cluster, held: TransactionalId) -> None:
        self.options, self.cluster, self.held = options, cluster, held
        self.count = 0
        self._encoding = Encoding(options)
        self._producers: dict[str, Producer] = {}

    def write(self, batch: "pyarrow.RecordBatch") -> None:
        columns = {name.lower(): batch.column(i) for i, name in enumerate(batch.schema.names)}
        nothing: list[Any] = [None] * batch.num_rows
        encoding = self._encoding
        keys = encoding.objects(columns["key"], "key") if "key" in columns else nothing
        values = encoding.objects(columns["value"], "value")
        headers = columns["headers"].to_pylist() if "headers" in columns else nothing
        places = columns["partition"].to_pylist() if "partition" in columns else nothing
        table = keys, values, headers, places
        if self.options.topic is not None:
            self._write(self.options.topic, *table)
        else:
            for topic, rows in _by_topic(columns["topic"].to_pylist()).items():
                self._write(topic, *([column[at] for at in rows] for column in table))
        self.count += batch.num_rows

    def _write(
        self, topic: str, given: list[Any], values: list[Any], headers: list[Any], places: list[Any]
    ) -> None:
        producer = self._producers.get(topic) or self._producer(topic)
        keys = self._encoding.keys(topic, given)
        placed = self._encoding.places(self.cluster, topic, given, keys, places)
        encoded = self._encoding.values(topic, values)
        try:
            for key, value, names, place in zip(keys, encoded, headers, placed, strict=True):
                fields = [(one["key"], one["value"]) for one in names] if names else ()
                producer.send(value, key, headers=fields, partition=place)
        except MessageTooLarge as error:
            raise self._too_large(topic, error) from error

    def close(self) -> None:
        """Closes the producers and the plugins."""
        for producer in self._producers.values():
            producer.close()
        self._encoding.close()

    def flush(self) -> None:
        for topic, producer in self._producers.items():
            try:
                producer.flush()
            except MessageTooLarge as error:
                raise self._too_large(topic, error) from error

    def _producer(self, topic: str) -> Producer:
        self._producers[topic] = Producer(
            self.cluster,
            topic,
            codec=self.options.codec,
            batch_bytes=self.options.batch_bytes,
            transaction=self.held,
        )
        return self._producers[topic]

    def _too_large(self, topic: str, error: MessageTooLarge) -> SinkError:
        return SinkError(
            f"a record is larger than topic {topic} takes (its max.message.bytes): {error}"
        )
