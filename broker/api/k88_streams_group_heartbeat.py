"""StreamsGroupHeartbeat (88), versions 0-1: a member joins a streams group, stays in it, gets its
tasks, or leaves.

The answer is sent when the change is durable. A member joins with epoch 0 and its topology, and
leaves with -1; a static member that will come back leaves with -2. A field that is null (or -1) has
not changed. Internal topics that the topology needs are created after the answer, if the client may
create them; the status says which are missing. The answer is UNSUPPORTED_VERSION while
streams.version is 0 or group.coordinator.rebalance.protocols lacks `streams`.

v1 offsets of tasks: how often members report them, and the lag that counts as caught up; the status
of missing client tags.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from barnabas.api.access import Access, RequestPermission
from barnabas.api.call import Call
from barnabas.api.contexts import StreamsContext
from barnabas.api.later import Later
from barnabas.controller.topic_names import check_topic_name
from barnabas.controller.topics import DEFAULT, NewTopic
from barnabas.errors import (
    InvalidRequest,
    InvalidTopicException,
    KafkaError,
    StreamsInvalidTopology,
    TopicAuthorizationFailed,
    UnsupportedVersion,
    error_of,
)
from barnabas.security.acl_codes import CREATE, DESCRIBE, GROUP, READ, TOPIC
from barnabas.wire import Struct
from barnabas.wire.internal import TOPICS

if TYPE_CHECKING:
    from barnabas.coordinator.streams.endpoints import EndpointPartitions
    from barnabas.coordinator.streams.streams_heartbeats import Heartbeat, HeartbeatResult
    from barnabas.coordinator.streams.tasks import Task, TaskSets
    from barnabas.coordinator.streams.topic_configuration import Status
    from barnabas.coordinator.streams.topology import InternalTopic

KEY = 88
VERSIONS = (0, 1)
CONTEXT = StreamsContext
ACCESS = Access(
    (RequestPermission(READ, GROUP, "groupId"),),
    elsewhere="handle: DESCRIBE of each topic of the topology, CREATE of internal topics",
)
PROTOCOLS = "group.coordinator.rebalance.protocols"
OFFSETS_FROM = 1


def handle(request: Struct, call: Call[StreamsContext]) -> Later:
    check_enabled(call)
    later = Later()
    try:
        asked = _heartbeat(request, call)
    except (InvalidRequest, StreamsInvalidTopology) as error:
        later.settle(_refusal(error, call))
        return later

    def answer(result: HeartbeatResult) -> None:
        if result.error is not None:
            later.settle(_refusal(result.error, call))
        else:
            later.settle(_answer(result, call))

    call.context.streams().heartbeat(request.groupId, asked, answer)
    return later


def check_enabled(call: Call[StreamsContext]) -> None:
    """Raises UnsupportedVersion when this broker does not enable the streams protocol."""
    offered = call.context.config.names(PROTOCOLS)
    if "streams" not in offered or call.context.features.level("streams.version") < 1:
        raise UnsupportedVersion()


# -- the request ----------------------------------------------------------------------------------


def _heartbeat(request: Struct, call: Call[StreamsContext]) -> Heartbeat:
    from barnabas.coordinator.streams.streams_heartbeats import Heartbeat
    from barnabas.coordinator.streams.streams_member import Endpoint
    from barnabas.coordinator.streams.topology import checked_topology

    topology = None
    if request.topology is not None:
        _check_topics(_topics(request.topology), call)
        topology = checked_topology(request.topology)
    endpoint, tags = request.userEndpoint, request.clientTags
    return Heartbeat(
        member_id=request.memberId,
        member_epoch=request.memberEpoch,
        endpoint_epoch=request.endpointInformationEpoch,
        instance_id=request.instanceId,
        rack_id=request.rackId,
        rebalance_timeout_ms=request.rebalanceTimeoutMs,
        topology=topology,
        owned=_owned(request),
        process_id=request.processId,
        endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        tags=None if tags is None else tuple(sorted({row.key: row.value for row in tags}.items())),
        offsets=_offsets(request.taskOffsets),
        end_offsets=_offsets(request.taskEndOffsets),
        shuts_down=request.shutdownApplication,
        client_id=call.client_id or "",
        client_host=f"/{call.peer[0]}",
        version=call.version,
    )


def _topics(topology: Struct) -> list[str]:
    names: dict[str, None] = {}
    for row in topology.subtopologies:
        internal = (*row.repartitionSourceTopics, *row.stateChangelogTopics)
        names |= dict.fromkeys(row.sourceTopics) | dict.fromkeys(row.repartitionSinkTopics)
        names |= dict.fromkeys(topic.name for topic in internal)
    return list(names)


def _check_topics(names: Collection[str], call: Call[StreamsContext]) -> None:
    """Raises StreamsInvalidTopology for topics that an application may not use, and
    TopicAuthorizationFailed."""
    forbidden = [name for name in names if name in TOPICS]
    if forbidden:
        raise StreamsInvalidTopology(
            f"Use of Kafka internal topics {','.join(forbidden)} in a Kafka Streams topology is"
            " prohibited."
        )
    invalid = [name for name in names if not _is_topic_name(name)]
    if invalid:
        raise StreamsInvalidTopology(f"Topic names {','.join(invalid)} are not valid topic names.")
    if not all([call.may(DESCRIBE, TOPIC, name) for name in names]):
        raise TopicAuthorizationFailed()


def _is_topic_name(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidTopicException:
        return False
    return True


def _owned(request: Struct) -> TaskSets | None:
    from barnabas.coordinator.streams.tasks import TaskSets, of_rows

    found = (request.activeTasks, request.standbyTasks, request.warmupTasks)
    given = [rows for rows in found if rows is not None]
    if not given:
        return None
    if len(given) < len(found):
        raise InvalidRequest("If one task-type is non-null, all must be non-null.")
    return TaskSets(*map(of_rows, given))


def _offsets(rows: Iterable[Struct] | None) -> dict[Task, int] | None:
    if rows is None:
        return None
    found: dict[Task, int] = {}
    for row in rows:
        task = row.subtopologyId, row.partition
        if task in found:
            raise InvalidRequest(
                "Task offsets contain a duplicate entry for subtopology"
                f" {row.subtopologyId} and partition {row.partition}."
            )
        found[task] = row.offset
    return found


# -- the answer -----------------------------------------------------------------------------------


def _answer(result: HeartbeatResult, call: Call[StreamsContext]) -> Struct:
    answer = call.answer()(
        memberId=result.member_id,
        memberEpoch=result.member_epoch,
        endpointInformationEpoch=result.endpoint_epoch,
    )
    if result.settings is not None:
        answer.heartbeatIntervalMs = result.settings.heartbeat_ms
        if call.version >= OFFSETS_FROM:
            answer.taskOffsetIntervalMs = result.settings.offset_interval_ms
            answer.acceptableRecoveryLag = result.settings.recovery_lag
    statuses = _with_missing_topics(result, call) if result.missing else result.statuses
    status_of = call.struct("status")
    answer.status = [status_of(statusCode=row.code, statusDetail=row.detail) for row in statuses]
    if result.assigned is not None:
        answer.activeTasks = _tasks("activeTasks", result.assigned.active, call)
        answer.standbyTasks = _tasks("standbyTasks", result.assigned.standby, call)
        answer.warmupTasks = _tasks("warmupTasks", result.assigned.warmup, call)
    if result.endpoints is not None:
        answer.partitionsByUserEndpoint = [_endpoint(row, call) for row in result.endpoints]
    return answer


def _tasks(
    field: str, tasks: Mapping[str, Collection[int]], call: Call[StreamsContext]
) -> list[Struct]:
    row_of = call.struct(field)
    return [row_of(subtopologyId=name, partitions=sorted(found)) for name, found in tasks.items()]


def _endpoint(row: EndpointPartitions, call: Call[StreamsContext]) -> Struct:
    def topics(field: str, partitions: Mapping[str, Collection[int]]) -> list[Struct]:
        row_of = call.struct(f"partitionsByUserEndpoint.{field}")
        return [row_of(topic=name, partitions=list(found)) for name, found in partitions.items()]

    return call.struct("partitionsByUserEndpoint")(
        userEndpoint=call.struct("partitionsByUserEndpoint.userEndpoint")(
            host=row.endpoint.host, port=row.endpoint.port
        ),
        activePartitions=topics("activePartitions", row.active),
        standbyPartitions=topics("standbyPartitions", row.standby),
    )


def _with_missing_topics(result: HeartbeatResult, call: Call[StreamsContext]) -> list[Status]:
    """Has the missing internal topics created, and returns the statuses with what prevents it."""
    from barnabas.coordinator.streams.topic_configuration import (
        MISSING_INTERNAL_TOPICS,
        summary,
    )

    names = list(result.missing)
    refused = [] if call.may(CREATE, quiet=True) else _not_permitted(names, call)
    if refused:
        reason = f"; Unauthorized to CREATE on topics {', '.join(refused)}."
    else:
        assert result.settings is not None
        failed = call.context.auto_creation.ask_for(
            [_new_topic(topic) for topic in result.missing.values()],
            call.context.charge_later(call.pending),
            2 * result.settings.heartbeat_ms,
        )
        shown = summary([f"{name} ({why})" for name, why in failed.items()])
        reason = f"; Creation failed: {shown}." if failed else ""
    return [
        row._replace(detail=row.detail + reason) if row.code == MISSING_INTERNAL_TOPICS else row
        for row in result.statuses
    ]


def _not_permitted(names: Iterable[str], call: Call[StreamsContext]) -> list[str]:
    return [name for name in names if not call.may(CREATE, TOPIC, name)]


def _new_topic(topic: InternalTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        partition_count=topic.partition_count,
        replication_factor=topic.replication_factor or DEFAULT,
        configs=dict(topic.configs),
    )


def _refusal(error: KafkaError, call: Call[StreamsContext]) -> Struct:
    return call.answer()(errorCode=error.code, errorMessage=error.message)


def refuse(request: Struct, code: int, call: Call[StreamsContext]) -> Struct:
    return _refusal(error_of(code)(), call)
