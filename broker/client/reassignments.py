"""Elections of leaders and moves of partitions: ElectLeaders, AlterPartitionReassignments,
ListPartitionReassignments. The controller answers the first two, any broker the third.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.failures import raise_for
from barnabas.errors import ElectionNotNeeded, KafkaError, NoReassignmentInProgress
from barnabas.wire import Struct, request

ELECT_LEADERS, ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = 43, 45, 46
PREFERRED, UNCLEAN = 0, 1

Place = tuple[str, int]  # topic, partition


class Move(NamedTuple):
    """A reassignment in progress: all replicas, and those that are added and removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """Returns the replicas after the end of the reassignment."""
        return tuple(row for row in self.replicas if row not in self.removing)


def elect_leaders(
    cluster: Cluster, kind: int, wanted: Iterable[Place]
) -> dict[Place, KafkaError | None]:
    """Elects leaders of the wanted partitions (KIP-460; Kafka 2.2 and later). `kind`: PREFERRED or
    UNCLEAN. Returns the error of each partition, None for an elected one, without the partitions
    that need no election. Raises NotSpokenByBroker and other ClientErrors."""
    by_topic = _by_topic((place, None) for place in wanted)
    message = request(ELECT_LEADERS)
    rows = [message.struct("topicPartitions")(topic=n, partitions=list(p)) for n, p in by_topic]

    def step() -> dict[Place, KafkaError | None]:
        controller = cluster.controller()
        fields = {"electionType": kind} if controller.version_of(ELECT_LEADERS) >= 1 else {}
        body = message.cls(
            topicPartitions=rows, timeoutMs=round(1000 * cluster.timeout_s), **fields
        )
        answer = controller.call(ELECT_LEADERS, body, low=1 if kind == UNCLEAN else 0)
        raise_for(getattr(answer, "errorCode", 0), "election of leaders")
        found = {
            (topic.topic, row.partitionId): refusal(
                row.errorCode, topic.topic, row.partitionId, row.errorMessage
            )
            for topic in answer.replicaElectionResults
            for row in topic.partitionResult
        }
        return {place: e for place, e in found.items() if not isinstance(e, ElectionNotNeeded)}

    return cluster.retrying(step)


def alter_reassignments(
    cluster: Cluster, wanted: Mapping[Place, Sequence[int] | None]
) -> dict[Place, KafkaError | None]:
    """Begins to move partitions to the given replicas; None cancels a move (Kafka 2.4 and later).
    Returns the error of each partition, None if the move was begun or cancelled. Cancelling a move
    that has ended is no error."""
    message = request(ALTER_REASSIGNMENTS)
    row_of = message.struct("topics.partitions")
    topics = [
        message.struct("topics")(
            name=name,
            partitions=[
                row_of(partitionIndex=index, replicas=None if row is None else list(row))
                for index, row in rows.items()
            ],
        )
        for name, rows in _by_topic(wanted.items())
    ]

    def step() -> dict[Place, KafkaError | None]:
        body = message.cls(topics=topics, timeoutMs=round(1000 * cluster.timeout_s))
        answer = cluster.controller().call(ALTER_REASSIGNMENTS, body)
        raise_for(answer.errorCode, "reassignment", answer.errorMessage)
        found = {}
        for topic in answer.responses:
            for row in topic.partitions:
                error = refusal(row.errorCode, topic.name, row.partitionIndex, row.errorMessage)
                is_done = isinstance(error, NoReassignmentInProgress)
                found[topic.name, row.partitionIndex] = None if is_done else error
        return found

    return cluster.retrying(step)


def list_reassignments(cluster: Cluster) -> dict[Place, Move]:
    """Returns all reassignments in progress, by topic and partition (KIP-455; Kafka 2.4 and later).
    Raises ClusterAuthorizationFailed, NotSpokenByBroker and other ClientErrors."""
    body = request(LIST_REASSIGNMENTS).cls(topics=None, timeoutMs=round(1000 * cluster.timeout_s))

    def step() -> Struct:
        answer = cluster.controller().call(LIST_REASSIGNMENTS, body)
        raise_for(answer.errorCode, "reassignments", answer.errorMessage)
        return answer

    return {
        (topic.name, row.partitionIndex): Move(
            tuple(row.replicas), tuple(row.addingReplicas), tuple(row.removingReplicas)
        )
        for topic in cluster.retrying(step).topics
        for row in topic.partitions
    }


def refusal(code: int, topic: str, index: int, message: str | None) -> KafkaError | None:
    """Returns the error of one partition that a row of an answer reports; None for success.
    `message`: the broker's text; None: the client's usual text."""
    try:
        raise_for(code, f"topic {topic}" if message is None else f"{topic}-{index}", message)
    except KafkaError as error:
        return error
    return None


def _by_topic(
    wanted: Iterable[tuple[Place, Sequence[int] | None]],
) -> list[tuple[str, dict[int, Sequence[int] | None]]]:
    found: dict[str, dict[int, Sequence[int] | None]] = {}
    for (name, index), row in wanted:
        found.setdefault(name, {})[index] = row
    return list(found.items())
