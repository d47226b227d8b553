"""Which partitions the members with an endpoint serve, for interactive queries of an application.

A member with application.server has an endpoint. Members get the list when the group's endpoint
epoch differs from the one they know. Next: streams_heartbeats.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from barnabas.coordinator.streams.streams_group import StreamsGroup
from barnabas.coordinator.streams.streams_member import Endpoint

Partitions = Mapping[str, Collection[int]]  # by topic


class EndpointPartitions(NamedTuple):
    """The input partitions of one member's tasks."""

    endpoint: Endpoint
    active: Partitions
    standby: Partitions


def partitions_by_endpoint(group: StreamsGroup) -> list[EndpointPartitions]:
    """Returns a row for each member with an endpoint."""
    return [
        EndpointPartitions(
            member.endpoint,
            _partitions(group, member.assigned.active),
            _partitions(group, member.assigned.standby),
        )
        for member in group.members.values()
        if member.endpoint is not None
    ]


def _partitions(group: StreamsGroup, tasks: Mapping[str, Collection[int]]) -> Partitions:
    found: dict[str, Collection[int]] = {}
    if group.topology is None or group.views is None:
        return found
    for subtopology_id, partitions in tasks.items():
        subtopology = group.topology.subtopologies.get(subtopology_id)
        for name in () if subtopology is None else subtopology.inputs:
            view = group.views.named(name)
            if view is not None:  # it was deleted
                found[name] = sorted(p for p in partitions if p < view.partition_count)
    return found
