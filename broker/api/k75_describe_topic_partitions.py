"""DescribeTopicPartitions (75), version 0: topics in pages, with any number of partitions.

Topics are sorted by name, partitions by number. An answer has at most
`max.request.partition.size.limit` partitions, or fewer if the client sets a lower limit; the next
request begins at nextCursor. No topics means all. The answer lists an unknown topic if the request
named it and the cursor is not past it.
"""

from collections.abc import Iterator

from barnabas.api.access import Access
from barnabas.api.call import Call
from barnabas.api.contexts import MetadataContext
from barnabas.controller.topic_names import INTERNAL, check_topic_name
from barnabas.errors import (
    InvalidRequest,
    InvalidTopicException,
    LeaderNotAvailable,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from barnabas.metadata.cluster_state import ClusterState, Topic
from barnabas.metadata.znodes import uuid_bytes
from barnabas.security.acl_codes import DESCRIBE, TOPIC
from barnabas.wire import Struct

KEY = 75
VERSIONS = (0, 0)
CONTEXT = MetadataContext
ACCESS = Access(elsewhere="handle: DESCRIBE of each topic")
NO_ID = bytes(16)


def handle(request: Struct, call: Call[MetadataContext]) -> Struct:
    state = call.context.cluster()
    cursor = request.cursor
    if cursor is not None and cursor.partitionIndex < 0:
        raise InvalidRequest("the partition of the cursor must be 0 or greater")
    if request.responsePartitionLimit < 1:
        raise InvalidRequest("ResponsePartitionLimit must be 1 or greater")
    asked = {topic.name for topic in request.topics}
    names = sorted(asked or call.permitted(state.topics, DESCRIBE, TOPIC, str))
    if cursor is not None:
        names = [name for name in names if name >= cursor.topicName]
    room = min(
        request.responsePartitionLimit,
        call.context.config.integer("max.request.partition.size.limit"),
    )
    rows = []
    following = None
    for name in names:
        if asked and not call.may(DESCRIBE, TOPIC, name):
            rows.append(_refused(name, TopicAuthorizationFailed.code, call))
            continue
        topic = state.topic(name)
        if topic is None or topic.deleting:
            if asked:
                rows.append(_missing(name, call))
            continue
        first = cursor.partitionIndex if cursor is not None and name == cursor.topicName else 0
        indexes = [index for index in topic.partitions if index >= first]
        if indexes and room == 0:
            following = call.struct("nextCursor")(topicName=name, partitionIndex=indexes[0])
            break
        rows.append(_topic(topic, indexes[:room], state, call))
        if len(indexes) > room:
            following = call.struct("nextCursor")(topicName=name, partitionIndex=indexes[room])
            break
        room -= len(indexes)
    return call.answer()(topics=rows, nextCursor=following)


def refuse(request: Struct, code: int, call: Call[MetadataContext]) -> Struct:
    return call.answer()(topics=[_refused(topic.name, code, call) for topic in request.topics])


def _refused(name: str, code: int, call: Call[MetadataContext]) -> Struct:
    return call.struct("topics")(name=name, errorCode=code)


def _missing(name: str, call: Call[MetadataContext]) -> Struct:
    code = UnknownTopicOrPartition.code
    try:
        check_topic_name(name)
    except InvalidTopicException as error:
        code = error.code
    return call.struct("topics")(
        errorCode=code,
        name=name,
        isInternal=name in INTERNAL,
        topicAuthorizedOperations=call.authorized_operations(TOPIC, name),
    )


def _topic(
    topic: Topic, indexes: list[int], state: ClusterState, call: Call[MetadataContext]
) -> Struct:
    return call.struct("topics")(
        name=topic.name,
        topicId=uuid_bytes(topic.topic_id) if topic.topic_id else NO_ID,
        isInternal=topic.name in INTERNAL,
        partitions=list(_partitions(topic, indexes, state, call)),
        topicAuthorizedOperations=call.authorized_operations(TOPIC, topic.name),
    )


def _partitions(
    topic: Topic, indexes: list[int], state: ClusterState, call: Call[MetadataContext]
) -> Iterator[Struct]:
    row = call.struct("topics.partitions")
    for index in indexes:
        partition = topic.partitions[index]
        known = partition.state
        leader = known.leader if known is not None and known.leader in state.brokers else -1
        own = leader == call.context.node_id
        if own and not call.context.replicas.is_served(topic.name, index):
            leader = -1
        yield row(
            errorCode=0 if leader >= 0 else LeaderNotAvailable.code,
            partitionIndex=index,
            leaderId=leader,
            leaderEpoch=known.leader_epoch if known is not None else -1,
            replicaNodes=list(partition.replicas),
            isrNodes=list(known.isr) if known is not None else [],
            eligibleLeaderReplicas=[],
            lastKnownElr=[],
            offlineReplicas=[each for each in partition.replicas if each not in state.brokers],
        )
