"""ListOffsets (2), versions 0-11: the offset at a time, at the start, at the end.

    timestamp >= 0  the first record at or after it      -4  earliest local: the start (8+)
    -1  latest: the end that consumers see               -5  latest tiered: none here (9+)
    -2  earliest: the log's start                        -6  earliest pending upload: none (11+)
    -3  the first record with the largest time (7+)

v0 returns up to maxNumOffsets segment starts, newest first, for a time; v1 one offset and its time;
v2 isolation level, throttle time; v4 leader epochs (and FENCED / UNKNOWN_LEADER_EPOCH); v6
flexible; v10 a timeout for tiered reads. With `log.durability=fsync`, -1 waits until the records of
a partition without followers are on disk, so that a producer with acks=1 finds its own records. For
followers it does not wait: it answers the high watermark, or OFFSET_NOT_AVAILABLE (before v5
LEADER_NOT_AVAILABLE) while a new leader does not know it yet, as Kafka does (KIP-207).

There is no native handler: clients send this request rarely (docs/decisions/one-implementation.md).
"""

from collections import Counter
from collections.abc import Iterator

from barnabas.api.access import of_rows
from barnabas.api.by_partition import by_topic
from barnabas.api.call import Call
from barnabas.api.contexts import PartitionContext
from barnabas.cext.log.log_handle import LogError, LogHandle
from barnabas.cext.partition.partitions import PartitionHandle
from barnabas.cext.record.records import CorruptRecords
from barnabas.errors import (
    FencedLeaderEpoch,
    InvalidRequest,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailable,
    OffsetNotAvailable,
    RequestTimedOut,
    UnknownLeaderEpoch,
    UnsupportedVersion,
    error_of,
)
from barnabas.security.acl_codes import DESCRIBE, TOPIC
from barnabas.wire import Struct
from barnabas.wire.batches import decode_batches

KEY = 2
VERSIONS = (0, 11)
CONTEXT = PartitionContext
ACCESS = of_rows(DESCRIBE, TOPIC, "topics", "topics", "name")

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = range(-1, -7, -1)
FIRST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, PENDING_UPLOAD: 11}
NOTHING = (-1, -1, -1)
ISOLATION_FROM = 2
COMMIT_WAIT_MS = 10_000

Found = tuple[int, int, int]  # offset, timestamp, leader epoch


def handle(request: Struct, call: Call[PartitionContext]) -> Struct:
    asked = Counter(
        (topic.name, row.partitionIndex) for topic in request.topics for row in topic.partitions
    )

    def rows(topic: Struct) -> list[Struct]:
        return [_row(topic.name, row, asked, request, call) for row in topic.partitions]

    return by_topic(request, call, rows)


def refuse(request: Struct, code: int, call: Call[PartitionContext]) -> Struct:
    row_of = call.struct("topics.partitions")

    def rows(topic: Struct) -> list[Struct]:
        return [
            row_of(partitionIndex=row.partitionIndex, errorCode=code) for row in topic.partitions
        ]

    return by_topic(request, call, rows)


def _row(
    topic: str, row: Struct, asked: Counter, request: Struct, call: Call[PartitionContext]
) -> Struct:
    row_of = call.struct("topics.partitions")
    try:
        if call.version > 0 and asked[topic, row.partitionIndex] > 1:
            raise InvalidRequest("the request names the partition more than once")
        partition = call.context.replicas.partition(topic, row.partitionIndex)
        check_leader_epoch(row.currentLeaderEpoch, partition)
        if call.version == 0:
            offsets = list(_old_style(partition, row.timestamp, row.maxNumOffsets))
            return row_of(partitionIndex=row.partitionIndex, oldStyleOffsets=offsets)
        offset, timestamp, epoch = _found(partition, row.timestamp, request, call)
    except KafkaError as error:
        return row_of(partitionIndex=row.partitionIndex, errorCode=error.code)
    except LogError as error:
        return row_of(partitionIndex=row.partitionIndex, errorCode=error.code)
    return row_of(
        partitionIndex=row.partitionIndex,
        offset=offset,
        timestamp=timestamp,
        leaderEpoch=epoch if call.version >= 4 else -1,
    )


def check_leader_epoch(epoch: int, partition: PartitionHandle) -> None:
    """Compares the leader epoch that a client knows, -1 for none, with the partition's. Raises
    FencedLeaderEpoch when it is older, UnknownLeaderEpoch when it is newer."""
    if 0 <= epoch < partition.leader_epoch:
        raise FencedLeaderEpoch()
    if epoch > partition.leader_epoch:
        raise UnknownLeaderEpoch()


def log_of(partition: PartitionHandle) -> LogHandle:
    if partition.log is None:
        raise KafkaStorageError()
    return partition.log


def visible_end(partition: PartitionHandle, committed_only: bool = False) -> int:
    """Returns the high watermark, or the last stable offset with `committed_only`. Without
    followers, waits until all records that were appended before this request are on disk. Raises
    RequestTimedOut when this takes longer than COMMIT_WAIT_MS, and KafkaStorageError."""
    log = log_of(partition)
    waits = not partition.is_replicated and partition.high_watermark < log.end_offset
    if waits and not partition.commit(COMMIT_WAIT_MS):
        raise RequestTimedOut()
    return int(partition.last_stable_offset if committed_only else partition.high_watermark)


def _found(
    partition: PartitionHandle, time: int, request: Struct, call: Call[PartitionContext]
) -> Found:
    log = log_of(partition)
    if call.version < FIRST_VERSION.get(time, 1) or time < PENDING_UPLOAD:
        raise UnsupportedVersion()
    if time in (EARLIEST, EARLIEST_LOCAL):
        start = int(log.start_offset)
        return start, -1, _epoch_at(log, start)
    if time in (LATEST_TIERED, PENDING_UPLOAD):
        return NOTHING
    end = visible_end(partition, call.version >= ISOLATION_FROM and request.isolationLevel == 1)
    if time == LATEST:
        _check_end_is_known(partition, call)
        return end, -1, partition.leader_epoch
    hit = log.offset_for_time(max(time, 0), limit_offset=end, largest=time == MAX_TIMESTAMP)
    if hit is None:
        _check_end_is_known(partition, call)
        return NOTHING
    offset, timestamp, epoch, compressed = hit
    if compressed:
        wanted = timestamp if time == MAX_TIMESTAMP else time
        offset, timestamp = _inside(log, offset, wanted, call)
    return offset, timestamp, epoch


def _check_end_is_known(partition: PartitionHandle, call: Call[PartitionContext]) -> None:
    """Raises when the high watermark of a new leader is below the start of its leader epoch: the
    leader before it may have told clients of a later end."""
    known = log_of(partition).leader_epochs()
    if known and known[-1][0] == partition.leader_epoch > 0:
        if partition.is_replicated and partition.high_watermark < known[-1][1]:
            raise OffsetNotAvailable() if call.version >= 5 else LeaderNotAvailable()


def _inside(
    log: LogHandle, offset: int, time: int, call: Call[PartitionContext]
) -> tuple[int, int]:
    """Returns offset and timestamp of the first record at or after `time` in the compressed batch
    at `offset`; -1 and -1 if there is none. Raises the KafkaError CORRUPT_MESSAGE."""
    size_max = call.context.config.integer("max.decompressed.bytes")
    try:
        for batch in decode_batches(log.read(offset, 1), size_max=size_max, partial_tail=True):
            for record in batch.records:
                if record.timestamp >= time:
                    return record.offset, record.timestamp
            break
    except CorruptRecords as error:
        raise error_of(2)(str(error)) from error
    return -1, -1


def _epoch_at(log: LogHandle, offset: int) -> int:
    """Returns the leader epoch of the record at `offset`; -1 when the log has no such entry."""
    known = [epoch for epoch, start in log.leader_epochs() if start <= offset]
    return known[-1] if known else -1


def _old_style(partition: PartitionHandle, time: int, count_max: int) -> Iterator[int]:
    """Version 0: yields the start offsets of the segments at or before a time, newest first; for
    LATEST the log's end comes first."""
    log = log_of(partition)
    segments = log.segments()
    end = visible_end(partition)
    starts = [max(segment.base_offset, log.start_offset) for segment in segments]
    if time == EARLIEST:
        candidates = [starts[0]]
    elif time == LATEST:
        candidates = [end, *reversed(starts)]
    else:
        older = [
            start
            for start, segment in zip(starts, segments, strict=True)
            if segment.largest_timestamp <= time
        ]
        candidates = list(reversed(older))
    last = None
    for offset in candidates[: max(count_max, 0)]:
        if offset != last:
            yield offset
        last = offset
