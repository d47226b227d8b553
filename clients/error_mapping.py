"""kafka.common.ErrorMapping: the old names of error codes and of their exceptions.

The exceptions are the classes of barnabas.errors under the names of Kafka 0.8, so that code with
`except OffsetOutOfRangeException` needs no change.
"""

from typing import ClassVar

from barnabas import errors
from barnabas.errors import KafkaError, error_of

UnknownException = errors.UnknownServerError
OffsetOutOfRangeException = errors.OffsetOutOfRange
InvalidMessageException = errors.CorruptMessage
UnknownTopicOrPartitionException = errors.UnknownTopicOrPartition
InvalidMessageSizeException = errors.InvalidFetchSize
LeaderNotAvailableException = errors.LeaderNotAvailable
NotLeaderForPartitionException = errors.NotLeaderOrFollower
RequestTimedOutException = errors.RequestTimedOut
BrokerNotAvailableException = errors.BrokerNotAvailable
ReplicaNotAvailableException = errors.ReplicaNotAvailable
MessageSizeTooLargeException = errors.MessageTooLarge
ControllerMovedException = errors.StaleControllerEpoch
OffsetMetadataTooLargeException = errors.OffsetMetadataTooLarge
OffsetsLoadInProgressException = errors.CoordinatorLoadInProgress
ConsumerCoordinatorNotAvailableException = errors.CoordinatorNotAvailable
NotCoordinatorForConsumerException = errors.NotCoordinator
InvalidTopicException = errors.InvalidTopicException
MessageSetSizeTooLargeException = errors.RecordListTooLarge
NotEnoughReplicasException = errors.NotEnoughReplicas
NotEnoughReplicasAfterAppendException = errors.NotEnoughReplicasAfterAppend


class ErrorMapping:
    """Codes under their old names, and the mappings from a code to an exception and back."""

    UNKNOWN: ClassVar[int] = -1
    NO_ERROR: ClassVar[int] = 0
    OFFSET_OUT_OF_RANGE: ClassVar[int] = 1
    INVALID_MESSAGE: ClassVar[int] = 2
    UNKNOWN_TOPIC_OR_PARTITION: ClassVar[int] = 3
    INVALID_FETCH_SIZE: ClassVar[int] = 4
    LEADER_NOT_AVAILABLE: ClassVar[int] = 5
    NOT_LEADER_FOR_PARTITION: ClassVar[int] = 6
    REQUEST_TIMED_OUT: ClassVar[int] = 7
    BROKER_NOT_AVAILABLE: ClassVar[int] = 8
    REPLICA_NOT_AVAILABLE: ClassVar[int] = 9
    MESSAGE_SIZE_TOO_LARGE: ClassVar[int] = 10
    STALE_CONTROLLER_EPOCH: ClassVar[int] = 11
    OFFSET_METADATA_TOO_LARGE: ClassVar[int] = 12
    STALE_LEADER_EPOCH: ClassVar[int] = 13  # now NETWORK_EXCEPTION; no broker ever sent it
    OFFSETS_LOAD_IN_PROGRESS: ClassVar[int] = 14
    CONSUMER_COORDINATOR_NOT_AVAILABLE: ClassVar[int] = 15
    NOT_COORDINATOR_FOR_CONSUMER: ClassVar[int] = 16
    INVALID_TOPIC: ClassVar[int] = 17
    MESSAGE_SET_SIZE_TOO_LARGE: ClassVar[int] = 18
    NOT_ENOUGH_REPLICAS: ClassVar[int] = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND: ClassVar[int] = 20

    @staticmethod
    def exception_for(code: int) -> type[KafkaError]:
        """Returns the exception class of a code other than NO_ERROR, also for codes newer than 0.8;
        UnknownException for an unknown code."""
        return error_of(code)

    @staticmethod
    def code_for(exception: type[BaseException] | BaseException) -> int:
        """Returns the code of an exception or its class; UNKNOWN when it has none."""
        return int(getattr(exception, "code", ErrorMapping.UNKNOWN))

    @staticmethod
    def maybe_throw_exception(code: int) -> None:
        """Raises the exception of a code; does nothing for NO_ERROR."""
        if code != ErrorMapping.NO_ERROR:
            raise error_of(code)
