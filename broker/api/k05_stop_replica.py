"""StopReplica (5), versions 0-4: the controller asks this node to stop replicas.

A stopped replica does not fetch until the next LeaderAndIsr. This node deletes a replica only when
the metadata tree confirms it: the topic is marked for deletion, or the assignment no longer has
this node.

v1 by topic, broker epoch; v2 flexible; v3 a leader epoch and a choice for each partition; v4 KRaft
migration.
"""

from collections.abc import Iterator

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import ReplicaContext
from barnabas.api.controller_requests import check_sender
from barnabas.security.acl_codes import CLUSTER_ACTION
from barnabas.wire import Struct

KEY = 5
VERSIONS = (0, 4)
CONTEXT = ReplicaContext
ACCESS = of_cluster(CLUSTER_ACTION)


def handle(request: Struct, call: Call[ReplicaContext]) -> Struct:
    check_sender(request, call)
    asked = list(_asked(request, call.version))
    deleted = {topic for topic, _index, is_deleted in asked if is_deleted}
    if deleted:
        call.context.refresh_topics(deleted)
    call.context.replicas.stop_following([(topic, index) for topic, index, _ in asked])
    row_of = call.struct("partitionErrors")
    rows = [row_of(topicName=topic, partitionIndex=index) for topic, index, _ in asked]
    return call.answer()(errorCode=0, partitionErrors=rows)


def _asked(request: Struct, version: int) -> Iterator[tuple[str, int, bool]]:
    """Yields topic, partition, and whether the replica must be deleted."""
    if version == 0:
        for row in request.ungroupedPartitions:
            yield row.topicName, row.partitionIndex, request.deletePartitions
    elif version < 3:
        for topic in request.topics:
            for index in topic.partitionIndexes:
                yield topic.name, index, request.deletePartitions
    else:
        for topic in request.topicStates:
            for row in topic.partitionStates:
                yield topic.topicName, row.partitionIndex, row.deletePartition


def refuse(_request: Struct, code: int, call: Call[ReplicaContext]) -> Struct:
    return call.answer()(errorCode=code)
