"""Metadata (3), versions 0-13: brokers, topics, partitions; and the creation of missing topics.

The answer for a missing topic is UNKNOWN_TOPIC_OR_PARTITION; the broker creates it after that if
auto.create.topics.enable is true, as Kafka does, and clients retry.

v0 an empty list of topics means all; v1 null means all, racks, controller, internal flag; v2
cluster id; v3 throttle time; v4 allowAutoTopicCreation (before it: as if true); v5 offline
replicas; v7 leader epoch; v8 authorized operations; v9 flexible; v10 topic ids in the answer; v12
asking by topic id; v13 an error for the whole answer.
"""

from collections.abc import Iterable

from barnabas.api.access import Access
from barnabas.api.call import Call
from barnabas.api.contexts import MetadataContext
from barnabas.controller.topic_names import INTERNAL, check_topic_name
from barnabas.errors import (
    InvalidTopicException,
    LeaderNotAvailable,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.metadata.cluster_state import ClusterState, Topic
from barnabas.metadata.znodes import uuid_bytes
from barnabas.security.acl_codes import CLUSTER, CREATE, DESCRIBE, TOPIC
from barnabas.wire import Struct
from barnabas.wire.uuids import uuid_text

KEY = 3
VERSIONS = (0, 13)
CONTEXT = MetadataContext
ACCESS = Access(elsewhere="handle: DESCRIBE of each topic, and CREATE of one that it makes")
NO_ID = bytes(16)


def handle(request: Struct, call: Call[MetadataContext]) -> Struct:
    state = call.context.cluster()
    wanted = request.topics
    if wanted is None or (call.version == 0 and not wanted):
        seen = call.permitted(state.topics.values(), DESCRIBE, TOPIC, lambda topic: topic.name)
        topics = [_topic(topic, call) for topic in seen]
    else:
        topics = list(_asked(request, state, call))
    if call.version >= 8 and request.includeTopicAuthorizedOperations:
        for row in topics:
            if row.errorCode in (0, LeaderNotAvailable.code):
                row.topicAuthorizedOperations = call.authorized_operations(TOPIC, row.name)
    state = call.context.cluster()
    answer = call.answer()(
        brokers=_brokers(state, call),
        clusterId=call.context.cluster_id,
        controllerId=-1 if state.controller_id is None else state.controller_id,
        topics=topics,
    )
    if call.version >= 8 and request.includeClusterAuthorizedOperations:
        may_ask = call.may(DESCRIBE)
        answer.clusterAuthorizedOperations = call.authorized_operations(CLUSTER) if may_ask else 0
    return answer


def cacheable_codes(answer: Struct) -> int:
    """Returns the count of error codes in `answer`, or 0 if the cache must not keep it.

    A response depends on the cluster state, the offline logs and the listener, not on the client.
    An error is not cached, because the next request may create the missing topic."""
    codes = [answer.errorCode]
    for topic in answer.topics:
        codes.append(topic.errorCode)
        codes += [partition.errorCode for partition in topic.partitions]
    return 0 if any(codes) else len(codes)


def refuse(request: Struct, code: int, call: Call[MetadataContext]) -> Struct:
    row = call.struct("topics")
    topics = [
        row(errorCode=code, name=topic.name, topicId=topic.topicId)
        for topic in request.topics or ()
    ]
    return call.answer()(
        topics=topics, clusterId=call.context.cluster_id, controllerId=-1, errorCode=code
    )


def _asked(request: Struct, state: ClusterState, call: Call[MetadataContext]) -> Iterable[Struct]:
    """Yields one row for each requested topic; it finds a topic by id if the request has one."""
    seen = set()
    for asked in request.topics:
        if asked.topicId != NO_ID:
            found = state.topic_by_id(uuid_text(asked.topicId))
            if found is None:
                yield _missing(None, asked.topicId, UnknownTopicId.code, call)
            elif not call.may(DESCRIBE, TOPIC, found.name):
                yield _missing(None, asked.topicId, TopicAuthorizationFailed.code, call)
            else:
                yield _topic(found, call)
            continue
        name = asked.name
        if name is None or name in seen:
            continue
        seen.add(name)
        if not call.may(DESCRIBE, TOPIC, name):
            yield _missing(name, NO_ID, TopicAuthorizationFailed.code, call)
            continue
        found = state.topic(name)
        if found is None:
            # Versions before 4 have no allowAutoTopicCreation: they always allow it.
            allowed = call.version < 4 or request.allowAutoTopicCreation
            yield _absent(name, allowed, call)
        else:
            yield _topic(found, call)


def _absent(name: str, may_create: bool, call: Call[MetadataContext]) -> Struct:
    try:
        check_topic_name(name)
    except InvalidTopicException as error:
        return _missing(name, NO_ID, error.code, call)
    if may_create and call.context.dynamic.boolean("auto.create.topics.enable"):
        may_create = call.may_by_cluster(CREATE, TOPIC, name) or call.may(CREATE, TOPIC, name)
        if not may_create:
            return _missing(name, NO_ID, TopicAuthorizationFailed.code, call)
        call.context.auto_creation.ask(name, call.context.charge_later(call.pending))
    return _missing(name, NO_ID, UnknownTopicOrPartition.code, call)


def _missing(name: str | None, topic_id: bytes, code: int, call: Call[MetadataContext]) -> Struct:
    # Before version 12 a name cannot be null.
    shown = name if name is not None or call.version >= 12 else ""
    return call.struct("topics")(
        errorCode=code,
        name=shown,
        topicId=topic_id,
        isInternal=name in INTERNAL,
    )


def _topic(topic: Topic, call: Call[MetadataContext]) -> Struct:
    name, topic_id = topic.name, topic.topic_id
    return call.struct("topics")(
        name=name,
        topicId=uuid_bytes(topic_id) if topic_id else NO_ID,
        isInternal=name in INTERNAL,
        partitions=_partitions(topic, call),
    )


def _partitions(topic: Topic, call: Call[MetadataContext]) -> list[Struct]:
    # The loop runs for each partition, so that the values common to all are looked up before it.
    row, context, name = call.struct("topics.partitions"), call.context, topic.name
    alive, node_id = context.cluster().brokers, context.node_id
    is_served = context.replicas.is_served
    rows = []
    for index, partition in topic.partitions.items():
        state, replicas = partition.state, partition.replicas
        leader = state.leader if state is not None and state.leader in alive else -1
        if leader == node_id and not is_served(name, index):
            leader = -1
        rows.append(
            row(
                errorCode=0 if leader >= 0 else LeaderNotAvailable.code,
                partitionIndex=index,
                leaderId=leader,
                leaderEpoch=state.leader_epoch if state is not None else -1,
                replicaNodes=replicas,
                isrNodes=state.isr if state is not None else [],
                offlineReplicas=[broker for broker in replicas if broker not in alive],
            )
        )
    return rows


def _brokers(state: ClusterState, call: Call[MetadataContext]) -> list[Struct]:
    row = call.struct("brokers")
    rows = []
    for broker in state.brokers.values():
        registration = broker.registration
        for endpoint in registration.endpoints:
            if endpoint.listener_name == call.listener:
                rows.append(
                    row(
                        nodeId=broker.broker_id,
                        host=endpoint.host,
                        port=endpoint.port,
                        rack=registration.rack,
                    )
                )
    return rows
