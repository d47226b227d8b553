"""DeleteTopics (20), versions 0-6: deletes topics and all their records.

When the answer arrives, no request finds the topic, its directories are renamed to `-delete` (the
broker deletes them after `log.segment.delete.delay.ms`), and clients may create a topic of the same
name. After a crash the topic still exists, or the next start finishes the deletion.

v1 throttle time; v3 TOPIC_DELETION_DISABLED (before it: INVALID_REQUEST); v4 flexible; v5 messages,
and THROTTLING_QUOTA_EXCEEDED, where older versions carry out and throttle; v6 by topic id.
"""

from collections import Counter
from typing import NamedTuple

from barnabas.api.access import Access
from barnabas.api.call import Call
from barnabas.api.contexts import TopicContext
from barnabas.errors import (
    InvalidRequest,
    KafkaError,
    ThrottlingQuotaExceeded,
    TopicDeletionDisabled,
    UnknownTopicId,
)
from barnabas.metadata.znodes import uuid_bytes
from barnabas.security.acl_codes import DELETE, DESCRIBE, TOPIC
from barnabas.wire import Struct
from barnabas.wire.uuids import uuid_text

KEY = 20
VERSIONS = (0, 6)
CONTEXT = TopicContext
ACCESS = Access(elsewhere="_name_of: DELETE of the cluster, or DESCRIBE and DELETE of each topic")
STRICT_FROM = 5  # over the quota of mutations, nothing is deleted
NO_ID = bytes(16)


class _Asked(NamedTuple):
    name: str | None
    topic_id: bytes


def handle(request: Struct, call: Call[TopicContext]) -> Struct:
    call.context.controller_role.required()
    if not call.context.dynamic.boolean("delete.topic.enable"):
        raise TopicDeletionDisabled() if call.version >= 3 else InvalidRequest()
    asked = _asked(request, call)
    found: dict[_Asked, str | KafkaError] = {}
    for row, count in Counter(asked).items():
        try:
            found[row] = _name_of(row, count, call)
        except KafkaError as error:
            found[row] = error
    names = Counter(name for name in found.values() if isinstance(name, str))
    twice = {name for name, count in names.items() if count > 1}  # once by name, once by id
    state = call.context.cluster()  # before the deletion: it has the ids of the topics
    refused = _charge([name for name in names if name not in twice], call)
    missing = call.context.deletion.delete([n for n in names if n not in twice | refused.keys()])
    rows = []
    for row, name in found.items():
        if isinstance(name, KafkaError):
            rows.append(_row(row.name, row.topic_id, name, call))
        elif name in twice:
            rows.append(_row(row.name, row.topic_id, InvalidRequest("named twice"), call))
        elif name in missing or name in refused:
            refusal = missing.get(name) or refused[name]
            rows.append(_row(row.name, row.topic_id, refusal, call))
        else:
            topic = state.topic(name)
            known = topic.topic_id if topic is not None else None
            topic_id = uuid_bytes(known) if known is not None else row.topic_id
            rows.append(_row(name, topic_id, None, call))
    return call.answer()(responses=rows)


def _charge(names: list[str], call: Call[TopicContext]) -> dict[str, KafkaError]:
    """Counts the partitions of the topics against the quota of mutations; returns an error for each
    topic that exceeds it."""
    refused: dict[str, KafkaError] = {}
    for name in names:
        topic = call.context.cluster().topic(name)
        try:
            if topic is not None:
                is_strict = call.version >= STRICT_FROM
                call.context.charge(call.pending, is_strict, len(topic.partitions))
        except ThrottlingQuotaExceeded as error:
            refused[name] = error
    return refused


def refuse(request: Struct, code: int, call: Call[TopicContext]) -> Struct:
    row = call.struct("responses")
    return call.answer()(
        responses=[
            row(name=asked.name, topicId=asked.topic_id, errorCode=code)
            for asked in _asked(request, call)
        ]
    )


def _asked(request: Struct, call: Call[TopicContext]) -> list[_Asked]:
    if call.version >= 6:
        return [_Asked(topic.name, topic.topicId) for topic in request.topics]
    return [_Asked(name, NO_ID) for name in request.topicNames]


def _name_of(asked: _Asked, count: int, call: Call[TopicContext]) -> str:
    if count > 1:
        raise InvalidRequest("the request names the topic more than once")
    if asked.topic_id == NO_ID:
        if asked.name is None:
            raise InvalidRequest("the request gives neither a name nor an id of the topic")
        if not call.may_by_cluster(DELETE, TOPIC, asked.name):
            call.require(DESCRIBE, TOPIC, asked.name)
            if call.context.cluster().topic(asked.name) is not None:
                call.require(DELETE, TOPIC, asked.name)
        return asked.name
    if asked.name is not None:
        raise InvalidRequest("the request gives a name and an id of the topic; give one of them")
    topic = call.context.cluster().topic_by_id(uuid_text(asked.topic_id))
    if topic is None:
        raise UnknownTopicId()
    if not call.may_by_cluster(DELETE, TOPIC, topic.name):
        call.require(DELETE, TOPIC, topic.name)
    return topic.name


def _row(
    name: str | None, topic_id: bytes, error: KafkaError | None, call: Call[TopicContext]
) -> Struct:
    row = call.struct("responses")(name=name, topicId=topic_id)
    if error is not None:
        row.errorCode, row.errorMessage = error.code, error.message
    return row
