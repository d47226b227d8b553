"""OffsetForLeaderEpoch (23), versions 0-4: the end offset of a leader epoch.

The answer has the largest epoch of the log at or below the requested one, and the first offset
after its records; for the newest epoch this is the log's end. It has -1 and -1 when the log has no
such epoch. A consumer or replica that has records of that epoch from this offset on has records
that the leader lost.

v1 the epoch in the answer; v2 throttle time, the client's own epoch (FENCED_LEADER_EPOCH,
UNKNOWN_LEADER_EPOCH); v3 replica id; v4 flexible.
"""

from barnabas.api.access import Access
from barnabas.api.by_partition import by_topic
from barnabas.api.call import Call
from barnabas.api.contexts import PartitionContext
from barnabas.api.k02_list_offsets import check_leader_epoch, log_of
from barnabas.cext.log.log_handle import LogError
from barnabas.errors import KafkaError, TopicAuthorizationFailed
from barnabas.security.acl_codes import CLUSTER_ACTION, DESCRIBE, TOPIC
from barnabas.wire import Struct

KEY = 23
VERSIONS = (0, 4)
CONTEXT = PartitionContext
ACCESS = Access(elsewhere="handle: CLUSTER_ACTION, or DESCRIBE of each topic")


def handle(request: Struct, call: Call[PartitionContext]) -> Struct:
    def rows(topic: Struct) -> list[Struct]:
        if not call.may(CLUSTER_ACTION, quiet=True) and not call.may(DESCRIBE, TOPIC, topic.topic):
            return _refused(topic, TopicAuthorizationFailed.code, call)
        return [_row(topic.topic, row, call) for row in topic.partitions]

    return by_topic(request, call, rows, ("topic",))


def refuse(request: Struct, code: int, call: Call[PartitionContext]) -> Struct:
    return by_topic(request, call, lambda topic: _refused(topic, code, call), ("topic",))


def _refused(topic: Struct, code: int, call: Call[PartitionContext]) -> list[Struct]:
    row_of = call.struct("topics.partitions")
    return [row_of(partition=row.partition, errorCode=code) for row in topic.partitions]


def _row(topic: str, row: Struct, call: Call[PartitionContext]) -> Struct:
    answer = call.struct("topics.partitions")(partition=row.partition)
    try:
        partition = call.context.replicas.partition(topic, row.partition)
        check_leader_epoch(row.currentLeaderEpoch, partition)
        epoch, answer.endOffset = log_of(partition).epoch_end(row.leaderEpoch)
        if call.version >= 1:
            answer.leaderEpoch = epoch
    except (KafkaError, LogError) as error:
        answer.errorCode = error.code
    return answer
