"""ElectLeaders (43), versions 0-2: makes the preferred replica, or any live replica, the leader.

Null means all partitions; the answer then leaves out partitions that need no election, as in Kafka.
Only the controller elects.

v0 preferred elections only; v1 the kind of election, an error for all; v2 flexible.
"""

from collections.abc import Sequence

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import ControllerContext
from barnabas.errors import (
    ElectionNotNeeded,
    InvalidRequest,
    KafkaError,
    error_of,
)
from barnabas.security.acl_codes import ALTER
from barnabas.wire import Struct

KEY = 43
VERSIONS = (0, 2)
CONTEXT = ControllerContext
ACCESS = of_cluster(ALTER)
PREFERRED, UNCLEAN = 0, 1


def handle(request: Struct, call: Call[ControllerContext]) -> Struct:
    kind = request.electionType if call.version >= 1 else PREFERRED
    if kind not in (PREFERRED, UNCLEAN):
        return _refused(request, InvalidRequest(f"Unknown election type {kind}"), call)
    check = call.context.controller_role.required()
    topics = call.context.cluster().topics
    asked = request.topicPartitions
    if asked is None:
        rows = [(name, list(topic.partitions)) for name, topic in topics.items()]
    else:
        rows = [(row.topic, row.partitions) for row in asked]
    elections = call.context.elections()
    elect = elections.prefer if kind == PREFERRED else elections.elect_any
    outcomes = elect(check, [(name, index) for name, indexes in rows for index in indexes])
    found = []
    for name, indexes in rows:
        wanted = [(index, outcomes[name, index]) for index in indexes]
        if asked is None:
            wanted = [row for row in wanted if not isinstance(row[1], ElectionNotNeeded)]
        found.append((name, wanted))
    return _answer(found, call)


def refuse(request: Struct, code: int, call: Call[ControllerContext]) -> Struct:
    return _refused(request, error_of(code)(), call)


def _refused(request: Struct, error: KafkaError, call: Call[ControllerContext]) -> Struct:
    rows = [
        (row.topic, [(index, error) for index in row.partitions])
        for row in request.topicPartitions or ()
    ]
    answer = _answer(rows, call)
    if call.version >= 1:
        answer.errorCode = error.code
    return answer


def _answer(
    found: Sequence[tuple[str, Sequence[tuple[int, KafkaError | None]]]],
    call: Call[ControllerContext],
) -> Struct:
    topic_of = call.struct("replicaElectionResults")
    row_of = call.struct("replicaElectionResults.partitionResult")
    return call.answer()(
        replicaElectionResults=[
            topic_of(
                topic=name,
                partitionResult=[_row(row_of, index, error) for index, error in rows],
            )
            for name, rows in found
        ]
    )


def _row(row_of: type[Struct], index: int, error: KafkaError | None) -> Struct:
    if error is None:
        return row_of(partitionId=index, errorCode=0, errorMessage=None)
    return row_of(partitionId=index, errorCode=error.code, errorMessage=error.message)
