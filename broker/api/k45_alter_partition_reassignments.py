"""AlterPartitionReassignments (45), versions 0-1: moves partitions to other brokers.

The answer comes when the reassignments are begun; ListPartitionReassignments shows which are still
under way. Null replicas cancel one. Only the controller reassigns.

v1 allowReplicationFactorChange.
"""

from collections.abc import Mapping

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import ControllerContext
from barnabas.errors import (
    InvalidReplicationFactor,
    KafkaError,
    NoReassignmentInProgress,
)
from barnabas.metadata.cluster_state import ClusterState
from barnabas.security.acl_codes import ALTER
from barnabas.wire import Struct

KEY = 45
VERSIONS = (0, 1)
CONTEXT = ControllerContext
ACCESS = of_cluster(ALTER)


def handle(request: Struct, call: Call[ControllerContext]) -> Struct:
    check = call.context.controller_role.required()
    wanted: dict[tuple[str, int], list[int] | None] = {
        (topic.name, row.partitionIndex): row.replicas
        for topic in request.topics
        for row in topic.partitions
    }
    refused: dict[tuple[str, int], KafkaError | None] = {}
    if call.version >= 1 and not request.allowReplicationFactorChange:
        refused = _of_other_size(call.context.cluster(), wanted)
    outcomes = refused | call.context.reassignments().begin(
        check, {place: row for place, row in wanted.items() if place not in refused}
    )
    topic_of, row_of = call.struct("responses"), call.struct("responses.partitions")
    topics = []
    for topic in request.topics:
        rows = []
        for asked in topic.partitions:
            row = row_of(partitionIndex=asked.partitionIndex, errorMessage=None)
            error = outcomes[topic.name, asked.partitionIndex]
            if error is not None:
                row.errorCode = error.code
                # Kafka sends no message with this one.
                quiet = isinstance(error, NoReassignmentInProgress)
                row.errorMessage = None if quiet else error.message
            rows.append(row)
        topics.append(topic_of(name=topic.name, partitions=rows))
    answer = call.answer()(errorMessage=None if topics else "", responses=topics)
    if call.version >= 1:
        answer.allowReplicationFactorChange = request.allowReplicationFactorChange
    return answer


def _of_other_size(
    state: ClusterState, wanted: Mapping[tuple[str, int], list[int] | None]
) -> dict[tuple[str, int], KafkaError | None]:
    """Returns the error of each partition that would get another number of replicas."""
    refused: dict[tuple[str, int], KafkaError | None] = {}
    for (name, index), replicas in wanted.items():
        topic = state.topic(name)
        partition = None if topic is None else topic.partitions.get(index)
        if topic is None or partition is None or replicas is None:
            continue
        origin = set(partition.replicas) - set(topic.assignment.adding_replicas.get(index, ()))
        if len(replicas) != len(origin):
            refused[name, index] = InvalidReplicationFactor(
                f"The replication factor is changed from {len(origin)} to {len(replicas)}"
            )
    return refused


def refuse(request: Struct, code: int, call: Call[ControllerContext]) -> Struct:
    return call.answer()(errorCode=code, errorMessage=None)
