"""Reads a range of a partition's records from its files, or by Fetch. Both ways yield Columns.

Both give equal rows, because cext/record/columns.pyx walks the same batches. The reader of files
finds aborted transactions in the `.txnindex` files, as the broker does; a Fetch response lists
them. Consumers may see all offsets of a range: plan.py has asked the broker.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from barnabas.cext.log.mapped_segment import MappedSegment
from barnabas.cext.record.columns import Columns, ColumnsBuilder
from barnabas.cext.record.records import CorruptRecords
from barnabas.client import EARLIEST, LATEST, Cluster, list_offsets
from barnabas.client.failures import raise_for
from barnabas.errors import OffsetOutOfRange
from barnabas.scan.failures import DamagedFiles, OutOfRange, ScanError, TopicRecreated
from barnabas.scan.log_directory import NO_TOPIC_ID, LogDirectory
from barnabas.wire import Struct, request
from barnabas.wire.columns import open_batch
from barnabas.wire.uuids import uuid_text

FETCH = 1
FETCH_WITH_ABORTED = 4  # the first version whose responses may hold batches of magic 2
FETCH_BYTES = 16 * 1024 * 1024
WAIT_MS = 500
EMPTY_ANSWERS_MAX = 20  # each takes half a second: records below the high watermark exist
ROWS_PER_BYTE = 1 / 64  # for the first allocation: unused rows cost only addresses


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start, end) of a partition."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"partition {self.partition} of topic {self.topic}"


@dataclass(frozen=True, slots=True)
class Limits:
    """A reader yields columns when they have `batch_bytes`. A batch may decompress to at most
    `body_bytes_max` bytes."""

    batch_bytes: int
    body_bytes_max: int

    def builder(self, wanted: Range) -> ColumnsBuilder:
        """Returns an empty builder that takes the records of a range, up to `batch_bytes`."""
        builder = ColumnsBuilder(partition=wanted.partition, body_bytes_max=self.body_bytes_max)
        builder.only(wanted.start, wanted.end, bytes_max=self.batch_bytes)
        return builder


def read_files(
    directory: LogDirectory, wanted: Range, *, committed: bool, limits: Limits, topic_id: bytes
) -> Iterator[Columns]:
    """Yields the records of a range from the files of its partition. `committed`: without the
    records of aborted transactions. `topic_id`: the id of the topic that the caller planned for.
    Raises DamagedFiles, OutOfRange, NoFilesHere, TopicRecreated, OSError (CutShort when a file was
    truncated)."""
    builder = limits.builder(wanted)
    if committed:
        builder.without_aborted(directory.aborted(wanted.start, wanted.end))
    segment = directory.open_for(wanted.start)
    covered = wanted.start
    while segment is not None:
        _check_directory(directory, topic_id)
        if segment.base_offset > wanted.start == covered and not len(builder):
            first = directory.segments()[0]
            if first > wanted.start:
                raise OutOfRange(wanted.topic, wanted.partition, wanted.start, first, wanted.end)
        if segment.base_offset >= wanted.end:
            covered = segment.base_offset
            break
        with closing(segment):
            yield from _read_segment(segment, builder, wanted, limits)
            covered = max(builder.next_offset, segment.base_offset)
            if builder.stop == "past":  # compaction may have removed the last records
                covered = wanted.end
            if covered >= wanted.end:
                break
            segment = directory.open_for(covered, after=segment)
    if covered < wanted.end:
        raise DamagedFiles(
            f"{directory.path} ends at offset {covered}: {wanted} has records up to {wanted.end}"
        )
    if len(builder):
        yield builder.finish()


def _read_segment(
    segment: MappedSegment, builder: ColumnsBuilder, wanted: Range, limits: Limits
) -> Iterator[Columns]:
    at = segment.position_of(max(wanted.start, builder.next_offset))
    values = min(limits.batch_bytes, segment.size_bytes - at)
    if not len(builder):
        builder.expect(int(values * ROWS_PER_BYTE), 0, values)
    try:
        while builder.stop != "past":
            before, at = at, segment.add_to(builder, at)
            if builder.stop == "full":
                yield builder.finish()
            elif builder.stop == "packed":
                batch = segment.batch_bytes(at)
                at += open_batch(builder, memoryview(batch), 0)
            elif at == before or at == segment.size_bytes:
                return  # the broker is still writing the batch at the end of the file
    except CorruptRecords as error:
        raise DamagedFiles(f"{segment.path}, {wanted}: {error}") from error


def read_wire(
    cluster: Cluster,
    wanted: Range,
    *,
    committed: bool,
    limits: Limits,
    topic_id: bytes | None = None,
    fetch_bytes: int = FETCH_BYTES,
) -> Iterator[Columns]:
    """Yields the records of a range by Fetch. `committed` and `topic_id` are those of `read_files`;
    `fetch_bytes` is the most that one response may have. Raises ScanError, ClientError,
    KafkaError."""
    builder = limits.builder(wanted)
    empty = 0
    while builder.next_offset < wanted.end and builder.stop != "past":
        row = _fetch(cluster, wanted, builder.next_offset, committed, fetch_bytes)
        before = builder.next_offset
        if committed:
            aborted = row.abortedTransactions or ()
            builder.without_aborted((t.producerId, t.firstOffset, None) for t in aborted)
        try:
            yield from _read_answer(memoryview(row.records or b""), builder)
        except CorruptRecords as error:
            raise ScanError(f"{wanted}, at offset {builder.next_offset}: {error}") from error
        empty = empty + 1 if builder.next_offset == before else 0
        if empty == EMPTY_ANSWERS_MAX:
            raise ScanError(f"{wanted}: no records come from offset {before} on")
    if topic_id is not None:
        check_topic_id(cluster, wanted.topic, topic_id)
    if len(builder):
        yield builder.finish()


def _read_answer(records: memoryview, builder: ColumnsBuilder) -> Iterator[Columns]:
    at = builder.add(records)
    while builder.stop in ("full", "packed"):
        if builder.stop == "full":
            yield builder.finish()
        else:
            at += open_batch(builder, records, at)
        at = builder.add(records, at)


def check_topic_id(cluster: Cluster, topic: str, topic_id: bytes) -> None:
    """Raises TopicRecreated when the topic was deleted and another one has this name now;
    KafkaError, ClientError. `topic_id`: 16 bytes."""
    cluster.forget(topic)
    if (now := cluster.topic(topic).topic_id) != topic_id:
        raise _recreated(topic, topic_id, now)


def _check_directory(directory: LogDirectory, topic_id: bytes) -> None:
    if (now := directory.topic_id()) not in (topic_id, NO_TOPIC_ID):
        raise _recreated(directory.topic, topic_id, now)


def _recreated(topic: str, before: bytes, now: bytes) -> TopicRecreated:
    return TopicRecreated(
        f"topic {topic} was deleted and created again during the scan: its id was"
        f" {uuid_text(before)} and is {uuid_text(now)}"
    )


def _out_of_range(cluster: Cluster, wanted: Range, asked: int) -> OutOfRange:
    """Returns the error of a fetch at `asked` with the existing offsets, which the error code
    lacks."""
    index = wanted.partition
    bounds = [
        list_offsets(cluster, wanted.topic, {index: end})[index].offset
        for end in (EARLIEST, LATEST)
    ]
    return OutOfRange(wanted.topic, index, asked, *bounds)


def _fetch(
    cluster: Cluster, wanted: Range, offset: int, committed: bool, fetch_bytes: int
) -> Struct:
    message = request(FETCH)
    row = message.struct("topics.partitions")(
        partition=wanted.partition, fetchOffset=offset, partitionMaxBytes=fetch_bytes
    )
    body = message.cls(
        replicaId=-1,
        maxWaitMs=WAIT_MS,
        minBytes=1,
        maxBytes=fetch_bytes,
        isolationLevel=int(committed),
        topics=[message.struct("topics")(topic=wanted.topic, partitions=[row])],
    )

    def step() -> Struct:
        leader = cluster.leader(wanted.topic, wanted.partition)
        answer = leader.call(FETCH, body, low=FETCH_WITH_ABORTED)
        raise_for(answer.errorCode, f"fetch of {wanted}")
        found: Struct = answer.responses[0].partitions[0]
        if found.errorCode == OffsetOutOfRange.code:
            raise _out_of_range(cluster, wanted, offset)
        raise_for(found.errorCode, str(wanted))
        return found

    return cluster.retrying(step, topic=wanted.topic)
