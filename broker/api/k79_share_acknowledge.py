"""ShareAcknowledge (79), versions 1-2: a member of a share group acknowledges acquired records.

The answer is sent when the acknowledgements are durable. The request belongs to the member's share
session: it has the session's next epoch, or -1 to end it, which releases the records that were not
acknowledged. v2 renewals of acquisition locks (KIP-1222). v0 was never stable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.api.access import Access, RequestPermission
from barnabas.api.call import Call
from barnabas.api.contexts import ShareContext
from barnabas.api.later import Later
from barnabas.api.share_rows import (
    Acknowledged,
    Leaders,
    by_topic,
    code_and_message_as_kafka,
    unknown_members,
)
from barnabas.errors import InvalidRequest, KafkaError, UnknownTopicId, UnknownTopicOrPartition
from barnabas.security.acl_codes import GROUP, READ
from barnabas.wire import Struct
from barnabas.wire.uuids import uuid_text

if TYPE_CHECKING:
    from barnabas.coordinator.share.sessions import Place

KEY = 79
VERSIONS = (1, 2)
CONTEXT = ShareContext
ACCESS = Access(
    (RequestPermission(READ, GROUP, "groupId"),), elsewhere="handle: READ of each topic"
)


def handle(request: Struct, call: Call[ShareContext]) -> Struct | Later:
    share = call.context.share()
    share.check_enabled()
    wrong = unknown_members(request)
    if wrong:
        return _refused(InvalidRequest(wrong), call)
    acknowledged = Acknowledged(request, call.version)
    if call.authorizer is not None:
        acknowledged.deny(call)
    try:
        is_last = share.sessions.acknowledge(
            request.groupId, request.memberId, request.shareSessionEpoch
        )
    except KafkaError as error:
        return _refused(error, call)
    unknown = _unknown(acknowledged, call)
    later = Later()

    def done(outcomes: Mapping[Place, KafkaError | None]) -> None:
        if is_last:
            share.release_session(request.groupId, request.memberId)
        rows = {**acknowledged.refused(outcomes), **unknown}
        lock_ms = share.settings(request.groupId).lock_ms
        later.settle(_answer(rows, lock_ms, call))

    wanted = {place: rows for place, rows in acknowledged.rows.items() if place not in unknown}
    share.partitions.acknowledge(request.groupId, request.memberId, wanted, done)
    return later


def _unknown(acknowledged: Acknowledged, call: Call[ShareContext]) -> dict[Place, KafkaError]:
    cluster = call.context.cluster()
    found: dict[Place, KafkaError] = {}
    for place in [*acknowledged.rows, *acknowledged.errors]:
        topic = cluster.topic_by_id(uuid_text(place[0]))
        if topic is None or topic.deleting:
            found[place] = UnknownTopicId()
        elif place[1] not in topic.partitions:
            found[place] = UnknownTopicOrPartition()
    return found


def _answer(
    rows: Mapping[Place, KafkaError | None], lock_ms: int, call: Call[ShareContext]
) -> Struct:
    leaders = Leaders(call)
    row_of = call.struct("responses.partitions")
    listed = []
    for place, error in rows.items():
        code, message = code_and_message_as_kafka(error)
        row = row_of(
            partitionIndex=place[1],
            errorCode=code,
            errorMessage=message,
            currentLeader=leaders.of(place, error),
        )
        listed.append((place[0], row))
    return call.answer()(
        acquisitionLockTimeoutMs=lock_ms,
        responses=by_topic(listed, call),
        nodeEndpoints=leaders.endpoints(),
    )


def _refused(error: KafkaError, call: Call[ShareContext]) -> Struct:
    return call.answer()(errorCode=error.code)


def refuse(request: Struct, code: int, call: Call[ShareContext]) -> Struct:
    return call.answer()(errorCode=code)
