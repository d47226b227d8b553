"""ElectLeaders (43), versions 0-2: makes the preferred replica, or any replica, the leader.

A partition has one replica until brokers replicate. While that replica's broker is alive, it is the
leader, and the answer is ELECTION_NOT_NEEDED. While it is not, no replica is eligible: the answer
is PREFERRED_LEADER_NOT_AVAILABLE, or ELIGIBLE_LEADERS_NOT_AVAILABLE for an unclean election. Null
means all partitions; the answer then leaves out partitions that need no election, as in Kafka.

v0 preferred elections only; v1 the kind of election, an error for all; v2 flexible.
"""

from collections.abc import Sequence

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import MetadataContext
from barnabas.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidRequest,
    KafkaError,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
    error_of,
)
from barnabas.metadata.cluster_state import ClusterState
from barnabas.security.acl_codes import ALTER
from barnabas.wire import Struct

KEY = 43
VERSIONS = (0, 2)
CONTEXT = MetadataContext
ACCESS = of_cluster(ALTER)
PREFERRED, UNCLEAN = 0, 1


def handle(request: Struct, call: Call[MetadataContext]) -> Struct:
    kind = request.electionType if call.version >= 1 else PREFERRED
    if kind not in (PREFERRED, UNCLEAN):
        return _refused(request, InvalidRequest(f"Unknown election type {kind}"), call)
    state = call.context.cluster()
    if request.topicPartitions is not None:
        return _answer(
            [
                (
                    row.topic,
                    [(index, _outcome(state, row.topic, index, kind)) for index in row.partitions],
                )
                for row in request.topicPartitions
            ],
            call,
        )
    found = []
    for name, topic in state.topics.items():
        outcomes = [(index, _outcome(state, name, index, kind)) for index in topic.partitions]
        wanting = [row for row in outcomes if not isinstance(row[1], ElectionNotNeeded)]
        found.append((name, wanting))
    return _answer(found, call)


def refuse(request: Struct, code: int, call: Call[MetadataContext]) -> Struct:
    return _refused(request, error_of(code)(), call)


def _refused(request: Struct, error: KafkaError, call: Call[MetadataContext]) -> Struct:
    rows = [
        (row.topic, [(index, error) for index in row.partitions])
        for row in request.topicPartitions or ()
    ]
    answer = _answer(rows, call)
    if call.version >= 1:
        answer.errorCode = error.code
    return answer


def _outcome(state: ClusterState, topic: str, index: int, kind: int) -> KafkaError:
    partition = state.partition(topic, index)
    if partition is None:
        return UnknownTopicOrPartition()
    leader = partition.state.leader if partition.state is not None else -1
    wanted = leader if kind == UNCLEAN else next(iter(partition.replicas), -1)
    if leader == wanted and leader in state.brokers:
        return ElectionNotNeeded()
    return EligibleLeadersNotAvailable() if kind == UNCLEAN else PreferredLeaderNotAvailable()


def _answer(
    found: Sequence[tuple[str, Sequence[tuple[int, KafkaError]]]], call: Call[MetadataContext]
) -> Struct:
    topic_of = call.struct("replicaElectionResults")
    row_of = call.struct("replicaElectionResults.partitionResult")
    return call.answer()(
        replicaElectionResults=[
            topic_of(
                topic=name,
                partitionResult=[
                    row_of(partitionId=index, errorCode=error.code, errorMessage=error.message)
                    for index, error in rows
                ],
            )
            for name, rows in found
        ]
    )
