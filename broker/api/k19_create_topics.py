"""CreateTopics (19), versions 0-7: creates topics with partitions, replicas and configuration.

When the answer arrives, clients can produce to the topic. A topic that the request names twice gets
INVALID_REQUEST. With validateOnly the answer describes the topic, and the broker creates nothing.

v0 only error codes; v1 validateOnly, messages; v5 flexible, the configuration in the answer; v6
THROTTLING_QUOTA_EXCEEDED, where older versions carry out and throttle; v7 topic ids.
"""

from collections import Counter
from functools import partial

from barnabas.api.access import Access
from barnabas.api.call import Call
from barnabas.api.contexts import TopicContext
from barnabas.api.store_errors import ANSWERED, kafka_error_of
from barnabas.controller.topics import DEFAULT, NewTopic
from barnabas.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidRequest,
    TopicAuthorizationFailed,
)
from barnabas.metadata.znodes import TopicAssignment, uuid_bytes
from barnabas.security.acl_codes import CREATE, DESCRIBE_CONFIGS, TOPIC
from barnabas.wire import Struct

KEY = 19
VERSIONS = (0, 7)
CONTEXT = TopicContext
ACCESS = Access(elsewhere="handle: CREATE of the cluster, or of each topic")
STRICT_FROM = 6  # over the quota of mutations, nothing is created


def handle(request: Struct, call: Call[TopicContext]) -> Struct:
    call.context.controller_role.required()
    asked = Counter(topic.name for topic in request.topics)
    rows = []
    once = {topic.name: topic for topic in request.topics}
    # A topic that the request names twice has two rows in the answers of versions 0 and 1, and one
    # row from version 2 on.
    for topic in request.topics if call.version < 2 else once.values():
        name = topic.name
        try:
            if asked[name] > 1:
                raise InvalidRequest("the request names the topic more than once")
            if not call.may_by_cluster(CREATE, TOPIC, name):
                call.require(CREATE, TOPIC, name)
            rows.append(_create(topic, bool(call.version >= 1 and request.validateOnly), call))
        except ANSWERED as failure:
            error = kafka_error_of(failure, call)
            rows.append(_refused(name, error.code, error.message, call))
    return call.answer()(topics=rows)


def refuse(request: Struct, code: int, call: Call[TopicContext]) -> Struct:
    return call.answer()(
        topics=[_refused(topic.name, code, None, call) for topic in request.topics]
    )


def _refused(name: str, code: int, message: str | None, call: Call[TopicContext]) -> Struct:
    return call.struct("topics")(name=name, errorCode=code, errorMessage=message)


def _create(topic: Struct, validate_only: bool, call: Call[TopicContext]) -> Struct:
    asked = _new_topic(topic, call)
    charge = partial(call.context.charge, call.pending, call.version >= STRICT_FROM)
    made = call.context.topics.create(asked, validate_only, charge=charge)
    assignment = made if isinstance(made, TopicAssignment) else made.assignment
    row = call.struct("topics")(name=topic.name, errorMessage=None)
    if call.version >= 5 and not call.may(DESCRIBE_CONFIGS, TOPIC, topic.name, quiet=True):
        row.topicConfigErrorCode = TopicAuthorizationFailed.code
    elif call.version >= 5:
        replicas = assignment.partitions
        row.numPartitions = len(replicas)
        row.replicationFactor = len(replicas[0])
        row.configs = _configs(asked, call)
    if call.version >= 7 and assignment.topic_id is not None:
        row.topicId = uuid_bytes(assignment.topic_id)
    return row


def _new_topic(topic: Struct, call: Call[TopicContext]) -> NewTopic:
    partitions, factor = topic.numPartitions, topic.replicationFactor
    if not topic.assignments:
        # Kafka's clients send -1 from version 4 on only; its brokers accept it in every version.
        if partitions < 1 and partitions != DEFAULT:
            raise InvalidPartitions("the number of partitions must be 1 or greater")
        if factor < 1 and factor != DEFAULT:
            raise InvalidReplicationFactor("the replication factor must be 1 or greater")
    assignments = {row.partitionIndex: tuple(row.brokerIds) for row in topic.assignments}
    if len(assignments) != len(topic.assignments):
        raise InvalidRequest("the assignments name a partition more than once")
    configs: dict[str, str | None] = {}
    for row in topic.configs:
        if row.name in configs:
            raise InvalidConfig(f"{row.name} is set more than once")
        configs[row.name] = row.value
    return NewTopic(topic.name, partitions, factor, assignments or None, configs)


def _configs(topic: NewTopic, call: Call[TopicContext]) -> list[Struct]:
    """Returns the topic's configuration for the answers of version 5 and later."""
    row_of = call.struct("topics.configs")
    overrides = {name: value for name, value in (topic.configs or {}).items() if value is not None}
    return [
        row_of(
            name=entry.name,
            value=entry.value,
            readOnly=entry.read_only,
            configSource=entry.source,
            isSensitive=entry.is_sensitive,
        )
        for entry in call.context.config_of_topic(overrides).describe()
    ]
