"""Every error code of the protocol as a named exception.

Packages raise these errors; barnabas.api puts the code into the response. cext uses only the codes.
A retriable error may be temporary: clients retry the request, usually with new metadata.
"""

MESSAGE_LETTERS_MAX = 2000  # at 4 bytes a letter below the 32,767 bytes of a string
NONE = 0  # the code of success; no exception carries it


class _NameOnTheWire:
    """Kafka's name of the error: UNKNOWN_TOPIC_OR_PARTITION for UnknownTopicOrPartition. Each
    access computes it, because a start needs none of the more than a hundred names."""

    def __get__(self, error: object, cls: type) -> str:
        capitals = [f"_{c}" if c.isupper() else c.upper() for c in cls.__name__]
        return "".join(capitals).removeprefix("_")


class KafkaError(Exception):
    """Base class of all errors with a code of the protocol. `str` returns the message, by default
    the meaning of the code."""

    code: int
    meaning: str
    retriable: bool = False
    name = _NameOnTheWire()  # as Kafka writes it

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or self.meaning)

    @property
    def message(self) -> str:
        """Returns the error message for a response. It is cut after MESSAGE_LETTERS_MAX letters,
        because it may quote a long name of the request."""
        text = str(self.args[0])
        if len(text) <= MESSAGE_LETTERS_MAX:
            return text
        return text[:MESSAGE_LETTERS_MAX] + "..."


class RetriableError(KafkaError):
    """Base class of the temporary errors, after which a client may retry."""

    retriable = True


class UnknownServerError(KafkaError):
    code = -1
    meaning = "unexpected failure inside the broker"


class OffsetOutOfRange(KafkaError):
    code = 1
    meaning = "asked offset is below the log start or beyond the log end"


class CorruptMessage(RetriableError):
    code = 2
    meaning = "bad CRC or size, null key on a compacted topic, or otherwise damaged"


class UnknownTopicOrPartition(RetriableError):
    code = 3
    meaning = "topic or partition not hosted here (or not existing)"


class InvalidFetchSize(KafkaError):
    code = 4
    meaning = "fetch size not acceptable"


class LeaderNotAvailable(RetriableError):
    code = 5
    meaning = "no leader for now, election going on"


class NotLeaderOrFollower(RetriableError):
    code = 6
    meaning = "this broker is not the leader (or not a replica, for follower reads)"


class RequestTimedOut(RetriableError):
    code = 7
    meaning = "not finished within the request's timeout"


class BrokerNotAvailable(KafkaError):
    code = 8
    meaning = "broker is down (old tooling; not for clients)"


class ReplicaNotAvailable(RetriableError):
    code = 9
    meaning = "no replica of the partition here"


class MessageTooLarge(KafkaError):
    code = 10
    meaning = "batch above max.message.bytes / message.max.bytes"


class StaleControllerEpoch(KafkaError):
    code = 11
    meaning = "sender's controller epoch is older than a newer controller's"


class OffsetMetadataTooLarge(KafkaError):
    code = 12
    meaning = "commit metadata string longer than offset.metadata.max.bytes"


class NetworkException(RetriableError):
    code = 13
    meaning = "connection lost before the answer (made by clients, never sent)"


class CoordinatorLoadInProgress(RetriableError):
    code = 14
    meaning = "coordinator still loads its partition of the internal topic"


class CoordinatorNotAvailable(RetriableError):
    code = 15
    meaning = "coordinator not available (internal topic missing, not up)"


class NotCoordinator(RetriableError):
    code = 16
    meaning = "another broker coordinates this group or transactional id"


class InvalidTopicException(KafkaError):
    code = 17
    meaning = "topic name not legal or internal topic not writable"


class RecordListTooLarge(KafkaError):
    code = 18
    meaning = "record list larger than a segment"


class NotEnoughReplicas(RetriableError):
    code = 19
    meaning = "fewer in-sync replicas than min.insync.replicas, nothing written"


class NotEnoughReplicasAfterAppend(RetriableError):
    code = 20
    meaning = "written, then the in-sync set shrank below the minimum"


class InvalidRequiredAcks(KafkaError):
    code = 21
    meaning = "acks is not -1, 0 or 1"


class IllegalGeneration(KafkaError):
    code = 22
    meaning = "generation (or member epoch) is not the group's current one"


class InconsistentGroupProtocol(KafkaError):
    code = 23
    meaning = "no common protocol with the group's members, or wrong protocol type"


class InvalidGroupId(KafkaError):
    code = 24
    meaning = "group id empty or not legal"


class UnknownMemberId(KafkaError):
    code = 25
    meaning = "member id not in the group"


class InvalidSessionTimeout(KafkaError):
    code = 26
    meaning = "session timeout outside the broker's group.min/max.session.timeout.ms"


class RebalanceInProgress(KafkaError):
    code = 27
    meaning = "group rebalances, member has to join again"


class InvalidCommitOffsetSize(KafkaError):
    code = 28
    meaning = "committed data too large for the broker"


class TopicAuthorizationFailed(KafkaError):
    code = 29
    meaning = "no permission on the topic"


class GroupAuthorizationFailed(KafkaError):
    code = 30
    meaning = "no permission on the group"


class ClusterAuthorizationFailed(KafkaError):
    code = 31
    meaning = "no permission on the cluster"


class InvalidTimestamp(KafkaError):
    code = 32
    meaning = "record timestamp outside the allowed distance from now"


class UnsupportedSaslMechanism(KafkaError):
    code = 33
    meaning = "SASL mechanism not enabled"


class IllegalSaslState(KafkaError):
    code = 34
    meaning = "SASL request out of order"


class UnsupportedVersion(KafkaError):
    code = 35
    meaning = "API version not supported (for ApiVersions the answer itself is a v0 body)"


class TopicAlreadyExists(KafkaError):
    code = 36
    meaning = "topic exists already"


class InvalidPartitions(KafkaError):
    code = 37
    meaning = "partition count below 1, or not above the present one"


class InvalidReplicationFactor(KafkaError):
    code = 38
    meaning = "replication factor below 1 or above the brokers alive"


class InvalidReplicaAssignment(KafkaError):
    code = 39
    meaning = "replica assignment not consistent"


class InvalidConfig(KafkaError):
    code = 40
    meaning = "configuration name or value not legal"


class NotController(RetriableError):
    code = 41
    meaning = "this broker is not the controller"


class InvalidRequest(KafkaError):
    code = 42
    meaning = "request malformed or contradictory"


class UnsupportedForMessageFormat(KafkaError):
    code = 43
    meaning = "log's message format too old for what is asked"


class PolicyViolation(KafkaError):
    code = 44
    meaning = "a policy plugin refuses"


class OutOfOrderSequenceNumber(KafkaError):
    code = 45
    meaning = "sequence number skips ahead of the last one stored"


class DuplicateSequenceNumber(KafkaError):
    code = 46
    meaning = "batch was stored before (duplicate)"


class InvalidProducerEpoch(KafkaError):
    code = 47
    meaning = "producer epoch too old"


class InvalidTxnState(KafkaError):
    code = 48
    meaning = "not allowed in the transaction's present state"


class InvalidProducerIdMapping(KafkaError):
    code = 49
    meaning = "producer id does not belong to the transactional id"


class InvalidTransactionTimeout(KafkaError):
    code = 50
    meaning = "timeout above transaction.max.timeout.ms"


class ConcurrentTransactions(RetriableError):
    code = 51
    meaning = "another step of the same transaction is still running"


class TransactionCoordinatorFenced(KafkaError):
    code = 52
    meaning = "an older transaction coordinator sent the marker"


class TransactionalIdAuthorizationFailed(KafkaError):
    code = 53
    meaning = "no permission on the transactional id"


class SecurityDisabled(KafkaError):
    code = 54
    meaning = "security features (ACLs) are off"


class OperationNotAttempted(KafkaError):
    code = 55
    meaning = "not tried, because another part of the batch failed"


class KafkaStorageError(RetriableError):
    code = 56
    meaning = "disk failed under the log"


class LogDirNotFound(KafkaError):
    code = 57
    meaning = "named log dir is not one of the broker's"


class SaslAuthenticationFailed(KafkaError):
    code = 58
    meaning = "authentication refused"


class UnknownProducerId(KafkaError):
    code = 59
    meaning = "broker no longer remembers this producer id"


class ReassignmentInProgress(KafkaError):
    code = 60
    meaning = "partition reassignment running already"


class DelegationTokenAuthDisabled(KafkaError):
    code = 61
    meaning = "delegation tokens are off"


class DelegationTokenNotFound(KafkaError):
    code = 62
    meaning = "delegation token not known"


class DelegationTokenOwnerMismatch(KafkaError):
    code = 63
    meaning = "not the token's owner or renewer"


class DelegationTokenRequestNotAllowed(KafkaError):
    code = 64
    meaning = "token requests not allowed on this channel"


class DelegationTokenAuthorizationFailed(KafkaError):
    code = 65
    meaning = "no permission on the token"


class DelegationTokenExpired(KafkaError):
    code = 66
    meaning = "token expired"


class InvalidPrincipalType(KafkaError):
    code = 67
    meaning = "principal type not supported"


class NonEmptyGroup(KafkaError):
    code = 68
    meaning = "group still has members"


class GroupIdNotFound(KafkaError):
    code = 69
    meaning = "group id not known"


class FetchSessionIdNotFound(RetriableError):
    code = 70
    meaning = "fetch session not known, start a new one"


class InvalidFetchSessionEpoch(RetriableError):
    code = 71
    meaning = "fetch session epoch out of step"


class ListenerNotFound(RetriableError):
    code = 72
    meaning = "leader has no listener of the name the client used"


class TopicDeletionDisabled(KafkaError):
    code = 73
    meaning = "delete.topic.enable is off"


class FencedLeaderEpoch(RetriableError):
    code = 74
    meaning = "leader epoch in the request older than the broker's"


class UnknownLeaderEpoch(RetriableError):
    code = 75
    meaning = "leader epoch in the request newer than the broker's"


class UnsupportedCompressionType(KafkaError):
    code = 76
    meaning = "compression type not readable at this version (zstd below Produce 7/Fetch 10)"


class StaleBrokerEpoch(KafkaError):
    code = 77
    meaning = "broker epoch changed (restarted since)"


class OffsetNotAvailable(RetriableError):
    code = 78
    meaning = "new leader not sure of its high watermark yet"


class MemberIdRequired(KafkaError):
    code = 79
    meaning = "join again with the member id handed out"


class PreferredLeaderNotAvailable(RetriableError):
    code = 80
    meaning = "preferred leader not available"


class GroupMaxSizeReached(KafkaError):
    code = 81
    meaning = "group.max.size reached"


class FencedInstanceId(KafkaError):
    code = 82
    meaning = "another member took over the group.instance.id"


class EligibleLeadersNotAvailable(RetriableError):
    code = 83
    meaning = "no eligible leader available"


class ElectionNotNeeded(RetriableError):
    code = 84
    meaning = "leader is the wanted one already"


class NoReassignmentInProgress(KafkaError):
    code = 85
    meaning = "no reassignment running"


class GroupSubscribedToTopic(KafkaError):
    code = 86
    meaning = "offsets of a topic the group still reads cannot be deleted"


class InvalidRecord(KafkaError):
    code = 87
    meaning = "a record failed validation"


class UnstableOffsetCommit(RetriableError):
    code = 88
    meaning = "offsets have an open transaction (require stable)"


class ThrottlingQuotaExceeded(RetriableError):
    code = 89
    meaning = "quota exceeded, wait throttle time"


class ProducerFenced(KafkaError):
    code = 90
    meaning = "newer producer with the same transactional id"


class ResourceNotFound(KafkaError):
    code = 91
    meaning = "named resource does not exist"


class DuplicateResource(KafkaError):
    code = 92
    meaning = "resource named twice"


class UnacceptableCredential(KafkaError):
    code = 93
    meaning = "credential not acceptable (iterations, size)"


class InconsistentVoterSet(KafkaError):
    code = 94
    meaning = "voter set does not fit (KRaft)"


class InvalidUpdateVersion(KafkaError):
    code = 95
    meaning = "feature level not legal"


class FeatureUpdateFailed(KafkaError):
    code = 96
    meaning = "feature update failed"


class PrincipalDeserializationFailure(KafkaError):
    code = 97
    meaning = "forwarded principal not readable"


class SnapshotNotFound(KafkaError):
    code = 98
    meaning = "snapshot not found"


class PositionOutOfRange(KafkaError):
    code = 99
    meaning = "position outside the snapshot"


class UnknownTopicId(RetriableError):
    code = 100
    meaning = "topic id not known here"


class DuplicateBrokerRegistration(KafkaError):
    code = 101
    meaning = "broker id in use"


class BrokerIdNotRegistered(KafkaError):
    code = 102
    meaning = "broker id not registered"


class InconsistentTopicId(RetriableError):
    code = 103
    meaning = "log has another topic id"


class InconsistentClusterId(KafkaError):
    code = 104
    meaning = "cluster id differs"


class TransactionalIdNotFound(KafkaError):
    code = 105
    meaning = "transactional id not known"


class FetchSessionTopicIdError(RetriableError):
    code = 106
    meaning = "fetch session mixes topic names and ids"


class IneligibleReplica(KafkaError):
    code = 107
    meaning = "replica not eligible for the in-sync set"


class NewLeaderElected(KafkaError):
    code = 108
    meaning = "partition changed, but leadership moved meanwhile"


class OffsetMovedToTieredStorage(KafkaError):
    code = 109
    meaning = "offset lies in remote storage only"


class FencedMemberEpoch(KafkaError):
    code = 110
    meaning = "member epoch fenced, drop partitions and join anew"


class UnreleasedInstanceId(KafkaError):
    code = 111
    meaning = "group.instance.id still held by another member"


class UnsupportedAssignor(KafkaError):
    code = 112
    meaning = "server-side assignor not known"


class StaleMemberEpoch(KafkaError):
    code = 113
    meaning = "member epoch stale, retry after next heartbeat"


class MismatchedEndpointType(KafkaError):
    code = 114
    meaning = "request sent to the wrong kind of endpoint"


class UnsupportedEndpointType(KafkaError):
    code = 115
    meaning = "endpoint kind not supported"


class UnknownControllerId(KafkaError):
    code = 116
    meaning = "controller id not known"


class UnknownSubscriptionId(KafkaError):
    code = 117
    meaning = "telemetry subscription id not known or old"


class TelemetryTooLarge(KafkaError):
    code = 118
    meaning = "telemetry push too large"


class InvalidRegistration(KafkaError):
    code = 119
    meaning = "broker registration refused"


class TransactionAbortable(KafkaError):
    code = 120
    meaning = "transaction must be aborted, the id stays usable"


class InvalidRecordState(KafkaError):
    code = 121
    meaning = "share acknowledgement does not fit the record's state"


class ShareSessionNotFound(RetriableError):
    code = 122
    meaning = "share session not known"


class InvalidShareSessionEpoch(RetriableError):
    code = 123
    meaning = "share session epoch out of step"


class FencedStateEpoch(KafkaError):
    code = 124
    meaning = "share state epoch fenced"


class InvalidVoterKey(KafkaError):
    code = 125
    meaning = "voter key does not match"


class DuplicateVoter(KafkaError):
    code = 126
    meaning = "voter is in the set already"


class VoterNotFound(KafkaError):
    code = 127
    meaning = "voter not in the set"


class InvalidRegularExpression(KafkaError):
    code = 128
    meaning = "topic regular expression not valid"


class RebootstrapRequired(KafkaError):
    code = 129
    meaning = "client metadata too old, bootstrap again"


class StreamsInvalidTopology(KafkaError):
    code = 130
    meaning = "streams topology not valid"


class StreamsInvalidTopologyEpoch(KafkaError):
    code = 131
    meaning = "streams topology epoch not valid"


class StreamsTopologyFenced(KafkaError):
    code = 132
    meaning = "streams topology epoch outdated"


class ShareSessionLimitReached(RetriableError):
    code = 133
    meaning = "too many share sessions"


class GroupDeletionFailed(KafkaError):
    code = 134
    meaning = "group deletion failed, see the group's message"


class StreamsTopologyDescriptionUpdateFailed(KafkaError):
    code = 135
    meaning = "topology description not taken, see message"


class ControllerIdNotRegistered(KafkaError):
    code = 136
    meaning = "controller id not registered"


ERRORS: dict[int, type[KafkaError]] = {
    cls.code: cls
    for base in (KafkaError, RetriableError)
    for cls in base.__subclasses__()
    if cls is not RetriableError
}


def error_of(code: int) -> type[KafkaError]:
    """Returns the class of a code; UnknownServerError for an unknown code, as clients do.

    Raises ValueError for 0, which is not an error."""
    if code == NONE:
        raise ValueError("0 is success, not an error")
    return ERRORS.get(code, UnknownServerError)


def name_of(code: int) -> str:
    """Returns Kafka's name of a code: NONE, OFFSET_OUT_OF_RANGE, ...; UNKNOWN_CODE_n for others."""
    if code == NONE:
        return "NONE"
    return ERRORS[code].name if code in ERRORS else f"UNKNOWN_CODE_{code}"
