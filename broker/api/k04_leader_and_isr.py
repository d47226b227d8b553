"""LeaderAndIsr (4), versions 0-7: the controller asks this node to lead or follow partitions.

This node answers after it has applied the states. The answer has KAFKA_STORAGE_ERROR for a
partition whose log cannot be used. A state that is older than the known one is ignored.

v1 isNew; v2 by topic, broker epoch; v3 reassignments, which are read from the tree; v4 flexible; v5
topic ids; v6 leader recovery; v7 KRaft migration.
"""

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import ReplicaContext
from barnabas.api.controller_requests import check_sender, partition_updates
from barnabas.errors import KafkaStorageError, UnknownTopicId
from barnabas.security.acl_codes import CLUSTER_ACTION
from barnabas.wire import Struct

KEY = 4
VERSIONS = (0, 7)
CONTEXT = ReplicaContext
ACCESS = of_cluster(CLUSTER_ACTION)
UNGROUPED_TO, BY_ID_FROM = 1, 5


def handle(request: Struct, call: Call[ReplicaContext]) -> Struct:
    check_sender(request, call)
    updates = list(partition_updates(request, UNGROUPED_TO, call.version))
    state = call.context.apply_updates(updates, True)
    errors = {}
    for row in updates:
        topic = state.topic(row.topic)
        if topic is not None and row.topic_id not in (None, topic.topic_id):
            errors[row.topic, row.index] = UnknownTopicId.code
        elif call.context.replicas.is_offline(row.topic, row.index):
            errors[row.topic, row.index] = KafkaStorageError.code
        else:
            errors[row.topic, row.index] = 0
    if call.version < BY_ID_FROM:
        row_of = call.struct("partitionErrors")
        rows = [
            row_of(topicName=name, partitionIndex=index, errorCode=code)
            for (name, index), code in errors.items()
        ]
        return call.answer()(errorCode=0, partitionErrors=rows)
    topic_of, row_of = call.struct("topics"), call.struct("topics.partitionErrors")
    topics = []
    for asked in request.topicStates:
        rows = [
            row_of(
                partitionIndex=row.partitionIndex,
                errorCode=errors[asked.topicName, row.partitionIndex],
            )
            for row in asked.partitionStates
        ]
        topics.append(topic_of(topicId=asked.topicId, partitionErrors=rows))
    return call.answer()(errorCode=0, topics=topics)


def refuse(_request: Struct, code: int, call: Call[ReplicaContext]) -> Struct:
    return call.answer()(errorCode=code)
