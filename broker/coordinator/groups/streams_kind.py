"""What this package uses of streams groups, which coordinator/streams implements.

A streams group commits offsets, so it is one of the coordinator's groups, like classic and consumer
groups; its code is loaded with the first one. Next: coordinator.py.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

from barnabas.cext.coordinator.group_table import GroupTable
from barnabas.coordinator.groups.group_records import Entry
from barnabas.coordinator.groups.group_writes import WrittenGroup
from barnabas.coordinator.groups.member_records import MemberRecord


class StreamsGroup(WrittenGroup, Protocol):
    """One streams group."""

    group_type: Literal["streams"]
    protocol_type: str
    empty_since_ms: int | None
    members: dict[str, Any]  # by member id; a member has an `epoch`
    table: GroupTable | None

    @property
    def state(self) -> str: ...
    def is_subscribed_to(self, topic: str) -> bool: ...
    def expose(self, table: GroupTable, partition: int) -> None: ...


class StreamsGroups(Protocol):
    """All streams groups of one coordinator. The caller holds its lock."""

    def resume(self, group: Any) -> None:
        """Starts the timers of a group that was read from the log, or registered."""

    def forget(self, group: Any) -> None:
        """Cancels the timers of a group that was deleted, replaced or moved."""

    def tombstones(self, group: Any) -> list[Entry]: ...
    def loaded_group(self, group_id: str) -> StreamsGroup:
        """Returns a new group, for records of the log."""

    def replay(self, group: Any, record: MemberRecord) -> None: ...
