"""AlterShareGroupOffsets (91), version 0: sets the start offsets of an empty share group.

The group loses its acknowledgements in these partitions. The answer is sent when the change is
durable.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.api.access import Access, RequestPermission
from barnabas.api.call import Call
from barnabas.api.contexts import ShareContext
from barnabas.api.later import Later
from barnabas.api.share_rows import code_and_message
from barnabas.errors import KafkaError, TopicAuthorizationFailed
from barnabas.security.acl_codes import GROUP, READ, TOPIC
from barnabas.wire import Struct
from barnabas.wire.uuids import uuid_bytes

KEY = 91
VERSIONS = (0, 0)
CONTEXT = ShareContext
ACCESS = Access(
    (RequestPermission(READ, GROUP, "groupId"),), elsewhere="handle: READ of each topic"
)
NO_ID = bytes(16)


def handle(request: Struct, call: Call[ShareContext]) -> Struct | Later:
    share = call.context.share()
    share.check_enabled()
    share.ensure_state_topic()
    later = Later()
    names = {topic.topicName for topic in request.topics}
    denied = {name for name in names if not call.may(READ, TOPIC, name)}
    refused = {
        (topic.topicName, row.partitionIndex): TopicAuthorizationFailed()
        for topic in request.topics
        for row in topic.partitions
        if topic.topicName in denied
    }

    def done(outcomes: Mapping[tuple[str, int], KafkaError | None]) -> None:
        later.settle(_answer(request, {**outcomes, **refused}, call))

    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:  # several rows may name the same topic
        if topic.topicName in denied:
            continue
        offsets = wanted.setdefault(topic.topicName, {})
        offsets |= {row.partitionIndex: row.startOffset for row in topic.partitions}
    if denied and not wanted:
        return _answer(request, refused, call)
    try:
        share.offsets.alter(request.groupId, wanted, done)
    except KafkaError as error:
        return call.answer()(errorCode=error.code, errorMessage=error.message)
    return later


def _answer(
    request: Struct, outcomes: Mapping[tuple[str, int], KafkaError | None], call: Call[ShareContext]
) -> Struct:
    topic_of, row_of = call.struct("responses"), call.struct("responses.partitions")
    cluster = call.context.cluster()
    topics = []
    for asked in request.topics:
        found = cluster.topic(asked.topicName)
        rows = []
        hidden = False
        for row in asked.partitions:
            error = outcomes[asked.topicName, row.partitionIndex]
            hidden |= isinstance(error, TopicAuthorizationFailed)
            code, message = code_and_message(error)
            rows.append(
                row_of(partitionIndex=row.partitionIndex, errorCode=code, errorMessage=message)
            )
        known = not hidden and found is not None and found.topic_id is not None
        topic_id = uuid_bytes(found.topic_id) if known else NO_ID  # type: ignore[union-attr]
        topics.append(topic_of(topicName=asked.topicName, topicId=topic_id, partitions=rows))
    return call.answer()(responses=topics)


def refuse(request: Struct, code: int, call: Call[ShareContext]) -> Struct:
    return call.answer()(errorCode=code)
