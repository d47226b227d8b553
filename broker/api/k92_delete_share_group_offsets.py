"""DeleteShareGroupOffsets (92), version 0: deletes the offsets of topics in an empty share group.

The group then starts with these topics as a new group does. The answer is sent when the deletion is
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
from barnabas.security.acl_codes import DELETE, GROUP, READ, TOPIC
from barnabas.wire import Struct

KEY = 92
VERSIONS = (0, 0)
CONTEXT = ShareContext
NO_ID = bytes(16)
ACCESS = Access(
    (RequestPermission(DELETE, GROUP, "groupId"),), elsewhere="handle: READ of each topic"
)


def handle(request: Struct, call: Call[ShareContext]) -> Struct | Later:
    share = call.context.share()
    share.check_enabled()
    later = Later()
    row_of = call.struct("responses")

    def done(outcomes: Mapping[str, tuple[bytes, KafkaError | None]]) -> None:
        rows = []
        for name, (topic_id, error) in {**outcomes, **refused}.items():
            code, message = code_and_message(error)
            rows.append(
                row_of(topicName=name, topicId=topic_id, errorCode=code, errorMessage=message)
            )
        later.settle(call.answer()(responses=rows))

    names = list(dict.fromkeys(topic.topicName for topic in request.topics))
    denied = [name for name in names if not call.may(READ, TOPIC, name)]
    refused = {name: (NO_ID, TopicAuthorizationFailed()) for name in denied}
    names = [name for name in names if name not in refused]
    try:
        share.offsets.delete(request.groupId, names, done)
    except KafkaError as error:
        return call.answer()(errorCode=error.code, errorMessage=error.message)
    return later


def refuse(request: Struct, code: int, call: Call[ShareContext]) -> Struct:
    return call.answer()(errorCode=code)
