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
    meaning = "the broker failed unexpectedly"


class OffsetOutOfRange(KafkaError):
    code = 1
    meaning = "the requested offset is below the log start offset or above the log end offset"


class CorruptMessage(RetriableError):
    code = 2
    meaning = "the batch has a wrong CRC or size, or a record without a key in a compacted topic"


class UnknownTopicOrPartition(RetriableError):
    code = 3
    meaning = "the topic or partition does not exist, or this broker has no replica of it"


class InvalidFetchSize(KafkaError):
    code = 4
    meaning = "the fetch size is not valid"


class LeaderNotAvailable(RetriableError):
    code = 5
    meaning = "the partition has no leader at present; the election may still run"


class NotLeaderOrFollower(RetriableError):
    code = 6
    meaning = "this broker does not lead the partition, or has no replica of it"


class RequestTimedOut(RetriableError):
    code = 7
    meaning = "the request did not finish within its timeout"


class BrokerNotAvailable(KafkaError):
    code = 8
    meaning = "the broker is down"


class ReplicaNotAvailable(RetriableError):
    code = 9
    meaning = "this broker has no replica of the partition"


class MessageTooLarge(KafkaError):
    code = 10
    meaning = "the batch is larger than max.message.bytes (message.max.bytes of the broker)"


class StaleControllerEpoch(KafkaError):
    code = 11
    meaning = "the controller epoch in the request is older than the current one"


class OffsetMetadataTooLarge(KafkaError):
    code = 12
    meaning = "the metadata of a commit is longer than offset.metadata.max.bytes"


class NetworkException(RetriableError):
    code = 13
    meaning = "the connection was lost before the response arrived"


class CoordinatorLoadInProgress(RetriableError):
    code = 14
    meaning = "the coordinator is still loading its partition of the internal topic"


class CoordinatorNotAvailable(RetriableError):
    code = 15
    meaning = "the coordinator is not available, or its internal topic does not exist yet"


class NotCoordinator(RetriableError):
    code = 16
    meaning = "another broker is the coordinator of this group or transactional id"


class InvalidTopicException(KafkaError):
    code = 17
    meaning = "the topic name is not valid, or clients may not write to this internal topic"


class RecordListTooLarge(KafkaError):
    code = 18
    meaning = "the batch is larger than a segment"


class NotEnoughReplicas(RetriableError):
    code = 19
    meaning = "fewer replicas are in sync than min.insync.replicas; nothing was written"


class NotEnoughReplicasAfterAppend(RetriableError):
    code = 20
    meaning = "the records were written, but fewer replicas than min.insync.replicas were in sync"


class InvalidRequiredAcks(KafkaError):
    code = 21
    meaning = "acks must be -1, 0 or 1"


class IllegalGeneration(KafkaError):
    code = 22
    meaning = "the generation or member epoch is not the current one of the group"


class InconsistentGroupProtocol(KafkaError):
    code = 23
    meaning = "the protocol type or the protocols of the member do not match those of the group"


class InvalidGroupId(KafkaError):
    code = 24
    meaning = "the group id is empty or not valid"


class UnknownMemberId(KafkaError):
    code = 25
    meaning = "the group has no member with this id"


class InvalidSessionTimeout(KafkaError):
    code = 26
    meaning = "the session timeout is outside the limits group.min/max.session.timeout.ms"


class RebalanceInProgress(KafkaError):
    code = 27
    meaning = "the group is rebalancing; the member must join again"


class InvalidCommitOffsetSize(KafkaError):
    code = 28
    meaning = "the commit is too large"


class TopicAuthorizationFailed(KafkaError):
    code = 29
    meaning = "the principal has no permission for this operation on the topic"


class GroupAuthorizationFailed(KafkaError):
    code = 30
    meaning = "the principal has no permission for this operation on the group"


class ClusterAuthorizationFailed(KafkaError):
    code = 31
    meaning = "the principal has no permission for this operation on the cluster"


class InvalidTimestamp(KafkaError):
    code = 32
    meaning = "the timestamp of a record is too far from the time of the broker"


class UnsupportedSaslMechanism(KafkaError):
    code = 33
    meaning = "the SASL mechanism is not enabled on this listener"


class IllegalSaslState(KafkaError):
    code = 34
    meaning = "the request is not allowed in the current state of the SASL authentication"


class UnsupportedVersion(KafkaError):
    code = 35
    meaning = "the broker does not support this version of the request"


class TopicAlreadyExists(KafkaError):
    code = 36
    meaning = "the topic already exists"


class InvalidPartitions(KafkaError):
    code = 37
    meaning = "the number of partitions is below 1, or not above the current number"


class InvalidReplicationFactor(KafkaError):
    code = 38
    meaning = "the replication factor is below 1, or above the number of live brokers"


class InvalidReplicaAssignment(KafkaError):
    code = 39
    meaning = "the replica assignment is not valid"


class InvalidConfig(KafkaError):
    code = 40
    meaning = "the name or value of a configuration is not valid"


class NotController(RetriableError):
    code = 41
    meaning = "this broker is not the controller"


class InvalidRequest(KafkaError):
    code = 42
    meaning = "the request is malformed or contradicts itself"


class UnsupportedForMessageFormat(KafkaError):
    code = 43
    meaning = "the message format of the log is too old for this request"


class PolicyViolation(KafkaError):
    code = 44
    meaning = "a policy refused the request"


class OutOfOrderSequenceNumber(KafkaError):
    code = 45
    meaning = "the sequence number does not follow that of the last batch of the producer"


class DuplicateSequenceNumber(KafkaError):
    code = 46
    meaning = "the batch was written before (duplicate sequence number)"


class InvalidProducerEpoch(KafkaError):
    code = 47
    meaning = "the producer epoch is older than the current one"


class InvalidTxnState(KafkaError):
    code = 48
    meaning = "the current state of the transaction does not allow this request"


class InvalidProducerIdMapping(KafkaError):
    code = 49
    meaning = "the producer id does not belong to the transactional id"


class InvalidTransactionTimeout(KafkaError):
    code = 50
    meaning = "the transaction timeout is longer than transaction.max.timeout.ms"


class ConcurrentTransactions(RetriableError):
    code = 51
    meaning = "an earlier request of the transactional id has not finished"


class TransactionCoordinatorFenced(KafkaError):
    code = 52
    meaning = "the marker was sent by a transaction coordinator with an outdated epoch"


class TransactionalIdAuthorizationFailed(KafkaError):
    code = 53
    meaning = "the principal has no permission for this operation on the transactional id"


class SecurityDisabled(KafkaError):
    code = 54
    meaning = "the broker has no authorizer (authorizer.class.name), so it has no ACLs"


class OperationNotAttempted(KafkaError):
    code = 55
    meaning = "the operation was not attempted, because another operation of the request failed"


class KafkaStorageError(RetriableError):
    code = 56
    meaning = "reading or writing the log directory of the partition failed"


class LogDirNotFound(KafkaError):
    code = 57
    meaning = "the broker has no such log directory"


class SaslAuthenticationFailed(KafkaError):
    code = 58
    meaning = "SASL authentication failed"


class UnknownProducerId(KafkaError):
    code = 59
    meaning = "the broker has no state of this producer id"


class ReassignmentInProgress(KafkaError):
    code = 60
    meaning = "the partition is already being reassigned"


class DelegationTokenAuthDisabled(KafkaError):
    code = 61
    meaning = "delegation tokens are disabled"


class DelegationTokenNotFound(KafkaError):
    code = 62
    meaning = "the delegation token does not exist"


class DelegationTokenOwnerMismatch(KafkaError):
    code = 63
    meaning = "the principal is neither the owner nor a renewer of the delegation token"


class DelegationTokenRequestNotAllowed(KafkaError):
    code = 64
    meaning = "tokens cannot be requested without a login, or after a login with a token"


class DelegationTokenAuthorizationFailed(KafkaError):
    code = 65
    meaning = "the principal has no permission for this operation on the delegation token"


class DelegationTokenExpired(KafkaError):
    code = 66
    meaning = "the delegation token has expired"


class InvalidPrincipalType(KafkaError):
    code = 67
    meaning = "the principal type is not supported"


class NonEmptyGroup(KafkaError):
    code = 68
    meaning = "the group still has members"


class GroupIdNotFound(KafkaError):
    code = 69
    meaning = "the group does not exist"


class FetchSessionIdNotFound(RetriableError):
    code = 70
    meaning = "the broker does not know the fetch session; the client must begin a new one"


class InvalidFetchSessionEpoch(RetriableError):
    code = 71
    meaning = "the epoch of the fetch session is not the expected one"


class ListenerNotFound(RetriableError):
    code = 72
    meaning = "the leader has no listener with the name that the client used"


class TopicDeletionDisabled(KafkaError):
    code = 73
    meaning = "topics cannot be deleted, because delete.topic.enable is false"


class FencedLeaderEpoch(RetriableError):
    code = 74
    meaning = "the leader epoch in the request is older than that of the broker"


class UnknownLeaderEpoch(RetriableError):
    code = 75
    meaning = "the leader epoch in the request is newer than that of the broker"


class UnsupportedCompressionType(KafkaError):
    code = 76
    meaning = "this version of the request does not support the compression type"


class StaleBrokerEpoch(KafkaError):
    code = 77
    meaning = "the broker epoch is not the current one, because the broker has registered again"


class OffsetNotAvailable(RetriableError):
    code = 78
    meaning = "the new leader does not know its high watermark yet"


class MemberIdRequired(KafkaError):
    code = 79
    meaning = "the member must join again with the member id of the response"


class PreferredLeaderNotAvailable(RetriableError):
    code = 80
    meaning = "the preferred leader is not available"


class GroupMaxSizeReached(KafkaError):
    code = 81
    meaning = "the group has group.max.size members already"


class FencedInstanceId(KafkaError):
    code = 82
    meaning = "another member has taken over the group.instance.id"


class EligibleLeadersNotAvailable(RetriableError):
    code = 83
    meaning = "no replica that may become the leader is available"


class ElectionNotNeeded(RetriableError):
    code = 84
    meaning = "the partition already has this leader"


class NoReassignmentInProgress(KafkaError):
    code = 85
    meaning = "the partition is not being reassigned"


class GroupSubscribedToTopic(KafkaError):
    code = 86
    meaning = "the group is subscribed to the topic, so its offsets cannot be deleted"


class InvalidRecord(KafkaError):
    code = 87
    meaning = "a record is not valid"


class UnstableOffsetCommit(RetriableError):
    code = 88
    meaning = "offsets of an open transaction are not stable yet"


class ThrottlingQuotaExceeded(RetriableError):
    code = 89
    meaning = "the client exceeded its quota; it must wait for the throttle time"


class ProducerFenced(KafkaError):
    code = 90
    meaning = "a newer producer uses the same transactional id"


class ResourceNotFound(KafkaError):
    code = 91
    meaning = "the resource does not exist"


class DuplicateResource(KafkaError):
    code = 92
    meaning = "the request names a resource more than once"


class UnacceptableCredential(KafkaError):
    code = 93
    meaning = "the name, the iterations or the size of the credential are outside the limits"


class InconsistentVoterSet(KafkaError):
    code = 94
    meaning = "the set of voters in the request is not that of the broker (KRaft)"


class InvalidUpdateVersion(KafkaError):
    code = 95
    meaning = "the feature level is not valid"


class FeatureUpdateFailed(KafkaError):
    code = 96
    meaning = "the features could not be changed"


class PrincipalDeserializationFailure(KafkaError):
    code = 97
    meaning = "the principal of a forwarded request cannot be read"


class SnapshotNotFound(KafkaError):
    code = 98
    meaning = "the snapshot does not exist"


class PositionOutOfRange(KafkaError):
    code = 99
    meaning = "the position is outside the snapshot"


class UnknownTopicId(RetriableError):
    code = 100
    meaning = "this broker does not know the topic id"


class DuplicateBrokerRegistration(KafkaError):
    code = 101
    meaning = "another broker is registered with this id"


class BrokerIdNotRegistered(KafkaError):
    code = 102
    meaning = "no broker is registered with this id"


class InconsistentTopicId(RetriableError):
    code = 103
    meaning = "the log belongs to a topic with another id"


class InconsistentClusterId(KafkaError):
    code = 104
    meaning = "the cluster id in the request is not that of the broker"


class TransactionalIdNotFound(KafkaError):
    code = 105
    meaning = "the transactional id does not exist"


class FetchSessionTopicIdError(RetriableError):
    code = 106
    meaning = "the fetch session uses topic names and topic ids together"


class IneligibleReplica(KafkaError):
    code = 107
    meaning = "the replica may not be added to the ISR"


class NewLeaderElected(KafkaError):
    code = 108
    meaning = "the partition was changed, and a new leader has been elected"


class OffsetMovedToTieredStorage(KafkaError):
    code = 109
    meaning = "the records at this offset are in remote storage only"


class FencedMemberEpoch(KafkaError):
    code = 110
    meaning = "the member epoch is fenced; the member must give up its partitions and join again"


class UnreleasedInstanceId(KafkaError):
    code = 111
    meaning = "another member still owns the group.instance.id"


class UnsupportedAssignor(KafkaError):
    code = 112
    meaning = "the broker has no such assignor"


class StaleMemberEpoch(KafkaError):
    code = 113
    meaning = "the member epoch is outdated; the member must retry after its next heartbeat"


class MismatchedEndpointType(KafkaError):
    code = 114
    meaning = "the request was sent to an endpoint of another type (broker or controller)"


class UnsupportedEndpointType(KafkaError):
    code = 115
    meaning = "the endpoint type is not supported"


class UnknownControllerId(KafkaError):
    code = 116
    meaning = "the controller id is not known"


class UnknownSubscriptionId(KafkaError):
    code = 117
    meaning = "the telemetry subscription id is not known or outdated"


class TelemetryTooLarge(KafkaError):
    code = 118
    meaning = "the telemetry data is too large"


class InvalidRegistration(KafkaError):
    code = 119
    meaning = "the registration of the broker is not valid"


class TransactionAbortable(KafkaError):
    code = 120
    meaning = "the transaction must be aborted; the producer can then continue"


class InvalidRecordState(KafkaError):
    code = 121
    meaning = "the state of the record does not allow this acknowledgement"


class ShareSessionNotFound(RetriableError):
    code = 122
    meaning = "the broker does not know the share session"


class InvalidShareSessionEpoch(RetriableError):
    code = 123
    meaning = "the epoch of the share session is not the expected one"


class FencedStateEpoch(KafkaError):
    code = 124
    meaning = "the state epoch of the share group is outdated"


class InvalidVoterKey(KafkaError):
    code = 125
    meaning = "the voter key is not that of the voter"


class DuplicateVoter(KafkaError):
    code = 126
    meaning = "the voter is already in the set of voters"


class VoterNotFound(KafkaError):
    code = 127
    meaning = "the voter is not in the set of voters"


class InvalidRegularExpression(KafkaError):
    code = 128
    meaning = "the regular expression for topics is not valid"


class RebootstrapRequired(KafkaError):
    code = 129
    meaning = "the metadata of the client is too old; the client must bootstrap again"


class StreamsInvalidTopology(KafkaError):
    code = 130
    meaning = "the topology of the Streams application is not valid"


class StreamsInvalidTopologyEpoch(KafkaError):
    code = 131
    meaning = "the topology epoch of the Streams application is not valid"


class StreamsTopologyFenced(KafkaError):
    code = 132
    meaning = "the topology epoch of the Streams application is outdated"


class ShareSessionLimitReached(RetriableError):
    code = 133
    meaning = "the broker has the most share sessions that it allows"


class GroupDeletionFailed(KafkaError):
    code = 134
    meaning = "the group could not be deleted; the message of the group says why"


class StreamsTopologyDescriptionUpdateFailed(KafkaError):
    code = 135
    meaning = "the topology description was not stored; the message says why"


class ControllerIdNotRegistered(KafkaError):
    code = 136
    meaning = "no controller is registered with this id"


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
