"""The settings of a streams group, and what its code needs from the node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from barnabas.config import DynamicConfig
from barnabas.config.group_config import GroupConfig
from barnabas.config.settings import BROKER_SETTINGS
from barnabas.coordinator.groups.topic_views import LastViews, TopicViews
from barnabas.metadata.cluster_state import ClusterState
from barnabas.metadata.znodes import sanitized

STANDBYS, RACK_TAGS = "num.standby.replicas", "rack.aware.assignment.tags"


class StreamsSettings(NamedTuple):
    """The present settings of one group."""

    session_ms: int
    heartbeat_ms: int
    assignment_ms: int  # the shortest time between two target assignments
    initial_delay_ms: int  # the first assignment of an empty group waits for more members
    standby_count: int  # replicas of each stateful task
    rack_tags: tuple[str, ...]
    offset_interval_ms: int  # how often members report the offsets of their tasks
    recovery_lag: int  # a member within it has caught up with a task

    @classmethod
    def of(cls, overrides: Mapping[str, str], broker: DynamicConfig) -> StreamsSettings:
        """Reads the settings of a group. `overrides`: the group's own settings."""
        config = GroupConfig(overrides, broker)
        return cls(
            session_ms=_bounded(config, broker, "session.timeout.ms"),
            heartbeat_ms=_bounded(config, broker, "heartbeat.interval.ms"),
            assignment_ms=_bounded(config, broker, "assignment.interval.ms"),
            initial_delay_ms=config.integer("streams.initial.rebalance.delay.ms"),
            standby_count=_bounded(config, broker, STANDBYS, "standby.replicas"),
            rack_tags=config.names(f"streams.{RACK_TAGS}"),
            offset_interval_ms=config.integer("streams.task.offset.interval.ms"),
            recovery_lag=config.integer("streams.acceptable.recovery.lag"),
        )

    @property
    def assignment_configs(self) -> dict[str, str]:
        """Returns the settings that assignments depend on, as the group's record has them."""
        found = {STANDBYS: str(self.standby_count)}
        if self.rack_tags:
            found[RACK_TAGS] = ",".join(self.rack_tags)
        return found


def _bounded(config: GroupConfig, broker: DynamicConfig, name: str, bound: str = "") -> int:
    """Returns a setting. The group's own value is limited by the broker's bounds, which may have
    changed after it was set. `bound`: their name, if it differs."""
    value = config.integer(f"streams.{name}")
    if f"streams.{name}" not in config.overrides:
        return value
    least, most = (f"group.streams.{limit}.{bound or name}" for limit in ("min", "max"))
    if least in BROKER_SETTINGS:
        value = max(value, broker.integer(least))
    return min(value, broker.integer(most)) if most in BROKER_SETTINGS else value


class StreamsDependencies(Protocol):
    """The functions of the node that streams groups use."""

    def topics(self) -> TopicViews: ...
    def settings(self, group_id: str) -> StreamsSettings: ...
    def members_max(self) -> int: ...


class NodeStreamsDependencies:
    """The dependencies of one node's streams groups."""

    def __init__(self, dynamic: DynamicConfig, cluster: Callable[[], ClusterState]) -> None:
        self._dynamic = dynamic
        self._cluster = cluster
        self.topics = LastViews(cluster)

    def settings(self, group_id: str) -> StreamsSettings:
        """Returns the settings of a group: its own override the broker's."""
        overrides = self._cluster().config("groups", sanitized(group_id))
        return StreamsSettings.of(overrides, self._dynamic)

    def members_max(self) -> int:
        return self._dynamic.integer("group.streams.max.size")
