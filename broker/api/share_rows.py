"""The common parts of ShareFetch and ShareAcknowledge: they read acknowledgements and answer with
leaders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from barnabas.api.call import Call
from barnabas.api.contexts import ShareContext
from barnabas.errors import (
    FencedLeaderEpoch,
    InvalidRequest,
    KafkaError,
    NotLeaderOrFollower,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.security.acl_codes import READ, TOPIC
from barnabas.wire import Struct
from barnabas.wire.uuids import uuid_text

if TYPE_CHECKING:
    from barnabas.coordinator.share.sessions import Place
    from barnabas.coordinator.share.share_partition import Acknowledgement

RENEW_FROM = 2
RENEW = 4
LEADER_MOVED = (NotLeaderOrFollower, FencedLeaderEpoch)


class Acknowledged:
    """The acknowledgements of a request: `rows` has the valid ones, `errors` the errors of the
    others, both by partition."""

    def __init__(self, request: Struct, version: int) -> None:
        self.rows: dict[Place, Sequence[Acknowledgement]] = {}
        self.errors: dict[Place, KafkaError] = {}
        renews = version >= RENEW_FROM and request.isRenewAck
        kinds_max = RENEW if renews else RENEW - 1
        for topic in request.topics:
            for partition in topic.partitions:
                if not partition.acknowledgementBatches:
                    continue
                place = topic.topicId, partition.partitionIndex
                try:
                    self.rows[place] = _rows(partition.acknowledgementBatches, kinds_max)
                except InvalidRequest as error:
                    self.errors[place] = error

    def __bool__(self) -> bool:
        return bool(self.rows or self.errors)

    def deny(self, call: Call[ShareContext]) -> None:
        """Refuses the acknowledgements of topics that the client may not read."""
        for place in list(self.rows):
            topic = call.context.cluster().topic_by_id(uuid_text(place[0]))
            if topic is not None and not call.may(READ, TOPIC, topic.name):
                del self.rows[place]
                self.errors[place] = TopicAuthorizationFailed()

    def refused(
        self, outcomes: Mapping[Place, KafkaError | None]
    ) -> dict[Place, KafkaError | None]:
        """Returns the outcomes of all partitions: `outcomes` and the errors of the invalid
        acknowledgements."""
        return {**outcomes, **self.errors}


def _rows(batches: Iterable[Struct], kinds_max: int) -> list[Acknowledgement]:
    from barnabas.coordinator.share.share_partition import Acknowledgement

    found = []
    end = -1
    for row in batches:
        kinds = row.acknowledgeTypes
        count = row.lastOffset - row.firstOffset + 1
        if row.firstOffset < 0 or count < 1 or row.firstOffset <= end:
            raise InvalidAcknowledgement("the acknowledgement batches are not in order")
        if not kinds or len(kinds) not in (1, count):
            raise InvalidAcknowledgement("give one acknowledge type, or one for each offset")
        if not all(0 <= kind <= kinds_max for kind in kinds):
            raise InvalidAcknowledgement("unknown acknowledge type")
        end = row.lastOffset
        found.append(Acknowledgement(row.firstOffset, row.lastOffset, kinds))
    return found


def unknown_members(request: Struct) -> str:
    """Returns the error in the group id and member id of a request; "" when both are given."""
    if not request.groupId:
        return "a share group has a name"
    return "" if request.memberId else "a member has an id"


class Leaders:
    """Collects the present leaders of partitions that this broker does not lead."""

    def __init__(self, call: Call[ShareContext]) -> None:
        self._call = call
        self._nodes: set[int] = set()

    def of(self, place: Place, error: KafkaError | None) -> Struct:
        leader = self._call.struct("responses.partitions.currentLeader")()
        if not isinstance(error, LEADER_MOVED):
            return leader
        topic = self._call.context.cluster().topic_by_id(uuid_text(place[0]))
        found = topic.partitions.get(place[1]) if topic is not None else None
        if found is not None and found.state is not None:
            leader.leaderId, leader.leaderEpoch = found.state.leader, found.state.leader_epoch
            self._nodes.add(leader.leaderId)
        return leader

    def endpoints(self) -> list[Struct]:
        brokers = self._call.context.cluster().brokers
        row = self._call.struct("nodeEndpoints")
        return [
            row(nodeId=node, host=endpoint.host, port=endpoint.port, rack=broker.registration.rack)
            for node in sorted(self._nodes)
            if (broker := brokers.get(node)) is not None
            for endpoint in broker.registration.endpoints
            if endpoint.listener_name == self._call.listener
        ]


def by_topic(rows: Iterable[tuple[bytes, Struct]], call: Call[ShareContext]) -> list[Struct]:
    """Returns rows of topics from the rows of partitions, and keeps their order."""
    topics: dict[bytes, list[Struct]] = {}
    for topic_id, row in rows:
        topics.setdefault(topic_id, []).append(row)
    row_of = call.struct("responses")
    return [row_of(topicId=topic_id, partitions=rows) for topic_id, rows in topics.items()]


def code_and_message_as_kafka(error: KafkaError | None) -> tuple[int, str | None]:
    """Returns error code and message. Like Kafka, gives no message for errors of the request."""
    if error is None:
        return 0, None
    return error.code, None if isinstance(error, WITHOUT_MESSAGE) else error.message


def code_and_message(error: KafkaError | None) -> tuple[int, str | None]:
    """Returns error code and message; 0 and None without an error."""
    return (0, None) if error is None else (error.code, error.message)


class InvalidAcknowledgement(InvalidRequest):
    """Acknowledgements that are invalid in every state of the partition."""


WITHOUT_MESSAGE = (InvalidAcknowledgement, UnknownTopicId, UnknownTopicOrPartition)
