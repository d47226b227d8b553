"""StreamsGroupDescribe (89), versions 0-1: epochs, topology, members and tasks of streams groups.

A missing group, or one of another protocol, gets GROUP_ID_NOT_FOUND with a message. v1 the
assignor, and whether a description of the topology is stored: it never is, as in Kafka without a
plugin for it (k93_streams_group_topology_description_update.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from barnabas.api.access import of_rows
from barnabas.api.call import Call
from barnabas.api.contexts import StreamsContext
from barnabas.api.k88_streams_group_heartbeat import check_enabled
from barnabas.errors import InvalidGroupId, KafkaError, TopicAuthorizationFailed
from barnabas.security.acl_codes import DESCRIBE, GROUP, TOPIC
from barnabas.wire import Struct

if TYPE_CHECKING:
    from barnabas.coordinator.streams.streams_heartbeats import GroupDescription
    from barnabas.coordinator.streams.streams_member import StreamsMember
    from barnabas.coordinator.streams.topology import InternalTopic, Subtopology

KEY = 89
VERSIONS = (0, 1)
CONTEXT = StreamsContext
ACCESS = of_rows(DESCRIBE, GROUP, "groupIds", "groups")
HIDDEN = "The described group uses topics that the client is not authorized to describe."
ASSIGNOR = "sticky"
ASSIGNOR_FROM = 1
NOT_STORED = 1  # of topologyDescriptionStatus; 0: not asked for


def handle(request: Struct, call: Call[StreamsContext]) -> Struct:
    check_enabled(call)
    return call.answer()(groups=[_group(group_id, request, call) for group_id in request.groupIds])


def _group(group_id: str, request: Struct, call: Call[StreamsContext]) -> Struct:
    row = call.struct("groups")
    if not group_id:
        return row(errorCode=InvalidGroupId.code)
    try:
        found = call.context.streams().describe(group_id)
    except KafkaError as error:
        return row(groupId=group_id, errorCode=error.code, errorMessage=error.message)
    topics = () if found.topology is None else found.topology.all_topics()
    if not all([call.may(DESCRIBE, TOPIC, name) for name in topics]):
        return row(groupId=group_id, errorCode=TopicAuthorizationFailed.code, errorMessage=HIDDEN)
    members = zip(found.members, found.targets, found.offsets, strict=True)
    answer = row(
        groupId=group_id,
        groupState=found.state,
        groupEpoch=found.epoch,
        assignmentEpoch=found.target_epoch,
        topology=_topology(found, call),
        members=[_member(*one, call) for one in members],
    )
    if call.version >= ASSIGNOR_FROM:
        answer.assignorName = ASSIGNOR
        if request.includeTopologyDescription:
            answer.topologyDescriptionStatus = NOT_STORED
    if request.includeAuthorizedOperations:
        answer.authorizedOperations = call.authorized_operations(GROUP, group_id)
    return answer


# -- topology -------------------------------------------------------------------------------------


def _topology(found: GroupDescription, call: Call[StreamsContext]) -> Struct | None:
    if found.topology is None:
        return None
    configured = found.configured
    if configured is not None and configured.is_ready:
        rows = [
            _subtopology(row.subtopology, row.repartition_sources, row.changelogs, call)
            for row in configured.subtopologies.values()
        ]
    else:
        rows = [
            _subtopology(row, row.repartition_sources, row.changelogs, call)
            for row in found.topology.subtopologies.values()
        ]
    return call.struct("groups.topology")(epoch=found.topology.epoch, subtopologies=rows)


def _subtopology(
    row: Subtopology,
    repartition_sources: Iterable[InternalTopic],
    changelogs: Iterable[InternalTopic],
    call: Call[StreamsContext],
) -> Struct:
    path = "groups.topology.subtopologies"

    def topics(field: str, rows: Iterable[InternalTopic]) -> list[Struct]:
        topic_of = call.struct(f"{path}.{field}")
        config_of = call.struct(f"{path}.{field}.topicConfigs")
        return [
            topic_of(
                name=topic.name,
                partitions=topic.partition_count,
                replicationFactor=topic.replication_factor,
                topicConfigs=[config_of(key=k, value=v) for k, v in topic.configs],
            )
            for topic in sorted(rows)
        ]

    return call.struct(path)(
        subtopologyId=row.subtopology_id,
        sourceTopics=sorted(row.sources),
        repartitionSinkTopics=sorted(row.repartition_sinks),
        stateChangelogTopics=topics("stateChangelogTopics", changelogs),
        repartitionSourceTopics=topics("repartitionSourceTopics", repartition_sources),
    )


# -- members --------------------------------------------------------------------------------------


def _member(
    member: StreamsMember,
    target: tuple[Mapping[str, Collection[int]], ...],
    offsets: tuple[Mapping[tuple[str, int], int], ...],
    call: Call[StreamsContext],
) -> Struct:
    path = "groups.members"
    tag_of, endpoint = call.struct(f"{path}.clientTags"), member.endpoint
    names = ("taskOffsets", "taskEndOffsets")
    return call.struct(path)(
        memberId=member.member_id,
        memberEpoch=member.epoch,
        instanceId=member.instance_id,
        rackId=member.rack_id,
        clientId=member.client_id,
        clientHost=member.client_host,
        topologyEpoch=member.topology_epoch,
        processId=member.process_id,
        userEndpoint=None
        if endpoint is None
        else call.struct(f"{path}.userEndpoint")(host=endpoint.host, port=endpoint.port),
        clientTags=[tag_of(key=key, value=value) for key, value in member.tags],
        assignment=_tasks("assignment", member.assigned, call),
        targetAssignment=_tasks("targetAssignment", target, call),
        **{name: _offsets(name, rows, call) for name, rows in zip(names, offsets, strict=True)},
    )


def _tasks(
    field: str, tasks: tuple[Mapping[str, Collection[int]], ...], call: Call[StreamsContext]
) -> Struct:
    """Returns the active, standby and warm-up tasks of an assignment."""
    path = f"groups.members.{field}"
    rows = {}
    for role, found in zip(("activeTasks", "standbyTasks", "warmupTasks"), tasks, strict=True):
        row_of = call.struct(f"{path}.{role}")
        rows[role] = [
            row_of(subtopologyId=name, partitions=sorted(partitions))
            for name, partitions in found.items()
        ]
    return call.struct(path)(**rows)


def _offsets(
    field: str, rows: Mapping[tuple[str, int], int], call: Call[StreamsContext]
) -> list[Struct]:
    row_of = call.struct(f"groups.members.{field}")
    return [
        row_of(subtopologyId=name, partition=partition, offset=offset)
        for (name, partition), offset in sorted(rows.items())
    ]


def refuse(request: Struct, code: int, call: Call[StreamsContext]) -> Struct:
    row = call.struct("groups")
    return call.answer()(groups=[row(groupId=name, errorCode=code) for name in request.groupIds])
