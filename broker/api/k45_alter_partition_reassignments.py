"""AlterPartitionReassignments (45), versions 0-1: moves partitions to other brokers.

Brokers do not replicate yet, so that no partition can move: a request for the present replicas gets
success, a request for other brokers INVALID_REPLICA_ASSIGNMENT. Null replicas cancel a
reassignment; there is none (NO_REASSIGNMENT_IN_PROGRESS).

v1 allowReplicationFactorChange.
"""

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import MetadataContext
from barnabas.errors import (
    InvalidReplicaAssignment,
    KafkaError,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from barnabas.metadata.cluster_state import ClusterState
from barnabas.security.acl_codes import ALTER
from barnabas.wire import Struct

KEY = 45
VERSIONS = (0, 1)
CONTEXT = MetadataContext
ACCESS = of_cluster(ALTER)


def handle(request: Struct, call: Call[MetadataContext]) -> Struct:
    state = call.context.cluster()
    topic_of, row_of = call.struct("responses"), call.struct("responses.partitions")
    topics = []
    for topic in request.topics:
        rows = []
        for asked in topic.partitions:
            row = row_of(partitionIndex=asked.partitionIndex, errorMessage=None)
            try:
                _check(state, topic.name, asked.partitionIndex, asked.replicas)
            except NoReassignmentInProgress as error:
                row.errorCode = error.code  # Kafka sends no message with it
            except KafkaError as error:
                row.errorCode, row.errorMessage = error.code, error.message
            rows.append(row)
        topics.append(topic_of(name=topic.name, partitions=rows))
    answer = call.answer()(errorMessage=None if topics else "", responses=topics)
    if call.version >= 1:
        answer.allowReplicationFactorChange = request.allowReplicationFactorChange
    return answer


def refuse(request: Struct, code: int, call: Call[MetadataContext]) -> Struct:
    return call.answer()(errorCode=code, errorMessage=None)


def _check(state: ClusterState, topic: str, index: int, replicas: list[int] | None) -> None:
    """Checks the requested replicas of a partition. Raises the KafkaError for the answer unless
    they are the present ones."""
    if state.topic(topic) is None:
        raise UnknownTopicOrPartition(f"Unable to find a topic named {topic}.")
    partition = state.partition(topic, index)
    if partition is None:
        raise UnknownTopicOrPartition(f"Unable to find partition {topic}:{index}.")
    if replicas is None:
        raise NoReassignmentInProgress()
    if not replicas:
        raise InvalidReplicaAssignment("The replica list is empty.")
    for broker in replicas:
        if replicas.count(broker) > 1:
            raise InvalidReplicaAssignment(f"The replica list names broker {broker} twice.")
        if broker not in state.brokers:
            raise InvalidReplicaAssignment(f"The replica list names unknown broker {broker}.")
    if set(replicas) != set(partition.replicas):
        raise InvalidReplicaAssignment(
            f"{topic}-{index} stays on {list(partition.replicas)}: this broker does not replicate"
            " partitions yet and cannot move them."
        )
