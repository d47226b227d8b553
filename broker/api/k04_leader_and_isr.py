"""LeaderAndIsr (4), versions 0-7: the controller asks this node to lead or follow partitions.

The answer comes when the node does. A partition whose log cannot be used is answered with
KAFKA_STORAGE_ERROR. A state that is older than the known one is ignored, as it was overtaken.

v1 isNew; v2 by topic, broker epoch; v3 reassignments, which are read from the tree; v4 flexible; v5
topic ids; v6 leader recovery; v7 KRaft migration.
"""

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import ReplicaContext
from barnabas.api.told_states import check_sender, told_states
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
    told = list(told_states(request, UNGROUPED_TO, call.version))
    state = call.context.take(told, True)
    errors = {}
    for row in told:
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
