"""StopReplica (5), versions 0-4: the controller asks this node to stop replicas.

A stopped replica does not fetch until the next LeaderAndIsr. A request with an older leader epoch
than that of the partition gets FENCED_LEADER_EPOCH and changes nothing: the replica may have been
assigned again since. This node deletes a replica only when
the metadata tree confirms it: the topic is marked for deletion, or the assignment no longer has
this node.

v1 by topic, broker epoch; v2 flexible; v3 a leader epoch and a choice for each partition; v4 KRaft
migration.
"""

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import ReplicaContext
from barnabas.api.controller_requests import check_sender
from barnabas.errors import FencedLeaderEpoch
from barnabas.security.acl_codes import CLUSTER_ACTION
from barnabas.wire import Struct

KEY = 5
VERSIONS = (0, 4)
CONTEXT = ReplicaContext
ACCESS = of_cluster(CLUSTER_ACTION)


def handle(request: Struct, call: Call[ReplicaContext]) -> Struct:
    check_sender(request, call)
    asked = list(_asked(request, call.version))
    deleted = {row.topic for row in asked if row.is_deleted}
    if deleted:
        call.context.refresh_topics(deleted)
    fenced = call.context.replicas.stop_following(
        {(row.topic, row.partition): row.leader_epoch for row in asked}
    )
    row_of = call.struct("partitionErrors")
    rows = [
        row_of(
            topicName=row.topic,
            partitionIndex=row.partition,
            errorCode=FencedLeaderEpoch.code if (row.topic, row.partition) in fenced else 0,
        )
        for row in asked
    ]
    return call.answer()(errorCode=0, partitionErrors=rows)


class _Asked(NamedTuple):
    topic: str
    partition: int
    is_deleted: bool
    leader_epoch: int  # -1: not told, -2: the topic is deleted


def _asked(request: Struct, version: int) -> Iterator[_Asked]:
    if version == 0:
        for row in request.ungroupedPartitions:
            yield _Asked(row.topicName, row.partitionIndex, request.deletePartitions, -1)
    elif version < 3:
        for topic in request.topics:
            for index in topic.partitionIndexes:
                yield _Asked(topic.name, index, request.deletePartitions, -1)
    else:
        for topic in request.topicStates:
            for row in topic.partitionStates:
                yield _Asked(
                    topic.topicName, row.partitionIndex, row.deletePartition, row.leaderEpoch
                )


def refuse(_request: Struct, code: int, call: Call[ReplicaContext]) -> Struct:
    return call.answer()(errorCode=code)
