"""DeleteRecords (21), versions 0-2: moves the log start offset up; deletes the records before it.

Offset -1 is the high watermark. The checkpoint file has the new start before the answer is sent, so
that the records do not come back after a restart; the next run of retention deletes whole segments.
An offset below the start changes nothing; the answer has the present start. A topic with
cleanup.policy=compact alone gets POLICY_VIOLATION.

v1 nothing on the wire; v2 flexible.
"""

from collections import Counter

from barnabas.api.access import of_rows
from barnabas.api.by_partition import by_topic
from barnabas.api.call import Call
from barnabas.api.contexts import PartitionContext
from barnabas.api.k02_list_offsets import log_of, visible_end
from barnabas.cext.log.log_handle import LogError
from barnabas.errors import (
    InvalidRequest,
    KafkaError,
    KafkaStorageError,
    OffsetOutOfRange,
    PolicyViolation,
)
from barnabas.security.acl_codes import DELETE, TOPIC
from barnabas.wire import Struct

KEY = 21
VERSIONS = (0, 2)
CONTEXT = PartitionContext
ACCESS = of_rows(DELETE, TOPIC, "topics", "topics", "name")
HIGH_WATERMARK = -1
UNKNOWN = -1


def handle(request: Struct, call: Call[PartitionContext]) -> Struct:
    asked = Counter(
        (topic.name, row.partitionIndex) for topic in request.topics for row in topic.partitions
    )

    def rows(topic: Struct) -> list[Struct]:
        return [_row(topic.name, row, asked, call) for row in topic.partitions]

    answer = by_topic(request, call, rows)
    moved = [
        (topic.name, row)
        for topic in answer.topics
        for row in topic.partitions
        if not row.errorCode
    ]
    failed = call.context.checkpoints.unwritten_log_starts() if moved else ()
    for topic, row in moved if failed else ():
        opened = call.context.logs.get(topic, row.partitionIndex)
        if opened is not None and opened.directory.parent in failed:
            row.lowWatermark, row.errorCode = UNKNOWN, KafkaStorageError.code
    return answer


def refuse(request: Struct, code: int, call: Call[PartitionContext]) -> Struct:
    row_of = call.struct("topics.partitions")

    def rows(topic: Struct) -> list[Struct]:
        return [
            row_of(partitionIndex=row.partitionIndex, lowWatermark=UNKNOWN, errorCode=code)
            for row in topic.partitions
        ]

    return by_topic(request, call, rows)


def _row(topic: str, row: Struct, asked: Counter, call: Call[PartitionContext]) -> Struct:
    answer = call.struct("topics.partitions")(partitionIndex=row.partitionIndex)
    try:
        if asked[topic, row.partitionIndex] > 1:
            raise InvalidRequest("the request names the partition more than once")
        answer.lowWatermark = _deleted(topic, row.partitionIndex, row.offset, call)
    except (KafkaError, LogError) as error:
        answer.lowWatermark, answer.errorCode = UNKNOWN, error.code
    return answer


def _deleted(topic: str, index: int, offset: int, call: Call[PartitionContext]) -> int:
    """Moves the log start offset to `offset`, and returns the resulting start. Raises KafkaError
    and LogError."""
    partition = call.context.replicas.partition(topic, index)
    if "delete" not in (policy := _policy(topic, call)) and "compact" in policy:
        raise PolicyViolation()
    if offset < HIGH_WATERMARK:
        raise OffsetOutOfRange()
    end = int(partition.high_watermark)
    if offset > end:
        end = visible_end(partition)  # without followers, waits until they are on disk
    if offset > end:
        raise OffsetOutOfRange()
    start = end if offset == HIGH_WATERMARK else offset
    call.context.logs.start_moves(topic, index, start)
    return int(log_of(partition).advance_log_start(start))


def _policy(topic: str, call: Call[PartitionContext]) -> tuple[str, ...]:
    overrides = call.context.cluster().config("topics", topic)
    return call.context.config_of_topic(overrides).names("cleanup.policy")
