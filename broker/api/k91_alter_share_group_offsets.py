"""AlterShareGroupOffsets (91), version 0: sets the start offsets of an empty share group.

The group loses its acknowledgements in these partitions. The answer is sent when the change is
durable.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.api.call import Call
from barnabas.api.contexts import ShareContext
from barnabas.api.later import Later
from barnabas.api.share_rows import code_and_message
from barnabas.errors import KafkaError
from barnabas.wire import Struct
from barnabas.wire.uuids import uuid_bytes

KEY = 91
VERSIONS = (0, 0)
CONTEXT = ShareContext
NO_ID = bytes(16)


def handle(request: Struct, call: Call[ShareContext]) -> Struct | Later:
    share = call.context.share()
    share.check_enabled()
    share.ensure_state_topic()
    later = Later()

    def done(outcomes: Mapping[tuple[str, int], KafkaError | None]) -> None:
        later.settle(_answer(request, outcomes, call))

    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:  # several rows may name the same topic
        offsets = wanted.setdefault(topic.topicName, {})
        offsets |= {row.partitionIndex: row.startOffset for row in topic.partitions}
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
        for row in asked.partitions:
            code, message = code_and_message(outcomes[asked.topicName, row.partitionIndex])
            rows.append(
                row_of(partitionIndex=row.partitionIndex, errorCode=code, errorMessage=message)
            )
        known = found is not None and found.topic_id is not None
        topic_id = uuid_bytes(found.topic_id) if known else NO_ID  # type: ignore[union-attr]
        topics.append(topic_of(topicName=asked.topicName, topicId=topic_id, partitions=rows))
    return call.answer()(responses=topics)


def refuse(request: Struct, code: int, call: Call[ShareContext]) -> Struct:
    return call.answer()(errorCode=code)
