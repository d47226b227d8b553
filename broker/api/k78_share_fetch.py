"""ShareFetch (78), versions 1-2: a member of a share group acknowledges and acquires records.

A session (KIP-932) holds the partitions. The broker makes acknowledgements durable first; then the
request waits for available records, at most maxWaitMs, without a thread. The answer has whole
batches; acquiredRecords names the records that the member has acquired, for
acquisitionLockTimeoutMs. Epoch -1 ends the session and releases the records that were not
acknowledged; so does the end of the connection.

v1 records and batch size; v2 a strict number of records (KIP-1206), and renewals of acquisition
locks (KIP-1222) in separate requests. v0 was never stable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from barnabas.api.access import Access, RequestPermission
from barnabas.api.call import Call
from barnabas.api.contexts import ShareContext
from barnabas.api.later import Later
from barnabas.api.share_rows import (
    RENEW_FROM,
    Acknowledged,
    Leaders,
    by_topic,
    code_and_message_as_kafka,
    unknown_members,
)
from barnabas.errors import (
    InvalidRequest,
    KafkaError,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.security.acl_codes import GROUP, READ, TOPIC
from barnabas.wire import Struct
from barnabas.wire.uuids import uuid_text

if TYPE_CHECKING:
    from barnabas.coordinator.share.service import ShareService
    from barnabas.coordinator.share.sessions import Asked, Place
    from barnabas.coordinator.share.share_partitions import FetchedRecords

KEY = 78
VERSIONS = (1, 2)
CONTEXT = ShareContext
ACCESS = Access(
    (RequestPermission(READ, GROUP, "groupId"),), elsewhere="_Fetch: READ of each topic"
)
STRICT = 1  # a value of shareAcquireMode
NOT_FOR_RENEWALS = ("maxBytes", "minBytes", "maxRecords", "maxWaitMs")


def handle(request: Struct, call: Call[ShareContext]) -> Struct | Later:
    share = call.context.share()
    share.check_enabled()
    wrong = unknown_members(request) or _wrong_renewal(request, call)
    if wrong:
        return _refused(InvalidRequest(wrong), call)
    acknowledged = Acknowledged(request, call.version)
    try:
        asked = _session(request, acknowledged, share, call)
    except KafkaError as error:
        return _refused(error, call)
    if asked.is_first:
        share.watch(call.pending)
    if call.authorizer is not None:
        acknowledged.deny(call)
    fetch = _Fetch(request, call, share, asked, acknowledged)
    share.partitions.acknowledge(
        request.groupId, request.memberId, acknowledged.rows, fetch.acknowledged
    )
    return fetch.later


def _wrong_renewal(request: Struct, call: Call[ShareContext]) -> str:
    if call.version < RENEW_FROM or not request.isRenewAck:
        return ""
    wrong = [name for name in NOT_FOR_RENEWALS if getattr(request, name) != 0]
    return f"{', '.join(wrong)} must be 0 if isRenewAck is true." if wrong else ""


def _session(
    request: Struct, acknowledged: Acknowledged, share: ShareService, call: Call[ShareContext]
) -> Asked:
    wanted = [
        (topic.topicId, row.partitionIndex) for topic in request.topics for row in topic.partitions
    ]
    forgotten = [
        (topic.topicId, index)
        for topic in request.forgottenTopicsData
        for index in topic.partitions
    ]
    return share.sessions.fetch(
        request.groupId,
        request.memberId,
        request.shareSessionEpoch,
        wanted,
        forgotten,
        bool(acknowledged),
        call.connection_id,
    )


class _Fetch:
    """One request and its steps: the acknowledgements, the fetch, the answer."""

    def __init__(
        self,
        request: Struct,
        call: Call[ShareContext],
        share: ShareService,
        asked: Asked,
        acknowledged: Acknowledged,
    ) -> None:
        self.later = Later()
        self._request = request
        self._call = call
        self._share = share
        self._asked = asked
        self._acknowledged = acknowledged
        self._outcomes: Mapping[Place, KafkaError | None] = {}
        self._unknown: dict[Place, KafkaError] = {}

    def acknowledged(self, outcomes: Mapping[Place, KafkaError | None]) -> None:
        request = self._request
        self._outcomes = self._acknowledged.refused(outcomes)
        if self._asked.is_last:
            self._share.release_session(request.groupId, request.memberId)
        renews = self._call.version >= RENEW_FROM and request.isRenewAck
        if self._asked.is_last or renews or request.maxRecords <= 0:
            self.fetched(())
            return
        from barnabas.coordinator.share.share_partitions import ShareFetch

        asked = ShareFetch(
            request.groupId,
            request.memberId,
            self._asked.session,
            self._known(),
            0 if any(self._outcomes.values()) else request.maxWaitMs,
            request.minBytes,
            request.maxBytes,
            request.maxRecords,
            request.batchSize,
            self._call.version >= RENEW_FROM and request.shareAcquireMode == STRICT,
        )
        self._share.partitions.fetch(asked, self.fetched)

    def _known(self) -> list[Place]:
        """Returns the session's partitions that exist; the others get an error in the answer."""
        found = []
        cluster = self._call.context.cluster()
        for place in self._asked.places:
            topic = cluster.topic_by_id(uuid_text(place[0]))
            if topic is None or topic.deleting:
                self._unknown[place] = UnknownTopicId()
            elif not self._call.may(READ, TOPIC, topic.name):
                self._unknown[place] = TopicAuthorizationFailed()
            elif place[1] not in topic.partitions:
                self._unknown[place] = UnknownTopicOrPartition()
            else:
                found.append(place)
        return found

    def fetched(self, partitions: Sequence[FetchedRecords]) -> None:
        call = self._call
        by_place = {row.place: row for row in partitions}
        leaders = Leaders(call)
        row_of = call.struct("responses.partitions")
        range_of = call.struct("responses.partitions.acquiredRecords")
        rows = []
        for place in dict.fromkeys([*by_place, *self._unknown, *self._outcomes]):
            found = by_place.get(place)
            error = found.error if found is not None else self._unknown.get(place)
            kept = self._outcomes.get(place)
            code, message = code_and_message_as_kafka(error)
            kept_code, kept_message = code_and_message_as_kafka(kept)
            row = row_of(
                partitionIndex=place[1],
                errorCode=code,
                errorMessage=message,
                acknowledgeErrorCode=kept_code,
                acknowledgeErrorMessage=kept_message,
                currentLeader=leaders.of(place, error or kept),
                records=found.records if found is not None else b"",
                acquiredRecords=[
                    range_of(
                        firstOffset=given.first,
                        lastOffset=given.last,
                        deliveryCount=given.deliveries,
                    )
                    for given in (found.acquired if found is not None else ())
                ],
            )
            rows.append((place[0], row))
        settings = self._share.settings(self._request.groupId)
        self.later.settle(
            call.answer()(
                acquisitionLockTimeoutMs=settings.lock_ms,
                responses=by_topic(rows, call),
                nodeEndpoints=leaders.endpoints(),
            )
        )


def _refused(error: KafkaError, call: Call[ShareContext]) -> Struct:
    return call.answer()(errorCode=error.code)


def refuse(request: Struct, code: int, call: Call[ShareContext]) -> Struct:
    return call.answer()(errorCode=code)
