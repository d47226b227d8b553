"""Committed offsets of groups, and pending offsets of open transactions. Plain state.

Committed offsets are stored by group, topic and partition. Offsets of a transaction are kept
separately, by group and producer id, until its marker is written. Then they are committed, unless a
later commit in the log has replaced them, as in Kafka. Expiry follows Kafka (KIP-211): the offsets
of a group with members do not expire while the group subscribes to their topic. The offsets of an
empty group expire `offsets.retention.minutes` after it became empty, and those of a group that
never had members after their commit.

Commits that network threads accepted (cext/coordinator/offset_commit.pyx), those of transactions
included, and the transactions that they ended are merged in before anything is read or changed
here: every caller sees all commits that were answered. Next: coordinator.py."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from barnabas.coordinator.groups.classic_group import EMPTY, STABLE
from barnabas.coordinator.groups.group_counts import GroupCounts
from barnabas.coordinator.groups.group_records import NEVER, Committed

if TYPE_CHECKING:
    from barnabas.coordinator.groups.consumer_group import Group

COMMIT_MARKER = 1  # type of a control record; 0 aborts

TopicPartition = tuple[str, int]
Rows = dict[str, dict[int, Committed]]  # topic: partition: offset


class UnmergedCommits(Protocol):
    """The part of cext.coordinator.offset_commit that this module uses: durable commits that are
    not merged in yet."""

    @property
    def waiting(self) -> int: ...
    def take(self) -> Iterable[tuple[str, str, int, int, int, str, int, int, int]]: ...


class Pending:
    """A pending offset of a transaction. `order`: its position in the log. `is_passed`: a later
    commit in the log has replaced it."""

    __slots__ = ("committed", "is_passed", "order")

    def __init__(self, order: int, committed: Committed) -> None:
        self.order = order
        self.committed = committed
        self.is_passed = False


class Offsets:
    """The offsets of all groups of one coordinator. Callers put them in the order of the log."""

    def __init__(
        self,
        unmerged: UnmergedCommits,
        known: Callable[[], Container[str]],
        by_partition: Mapping[int, Container[str]] = MappingProxyType({}),
        counts: GroupCounts | None = None,
    ) -> None:
        """`known` returns the existing groups, with those that a commit has created. Commits from
        `unmerged` for other groups are dropped: their groups were deleted. `by_partition`: the
        groups of each partition of the log."""
        self._groups: dict[str, Rows] = {}
        self._pending: dict[str, dict[int, dict[TopicPartition, Pending]]] = {}
        self._pending_groups: dict[int, set[str]] = {}  # by producer id
        self._order = 0
        self._unmerged = unmerged
        self._known = known
        self._by_partition = by_partition
        self._counts = GroupCounts() if counts is None else counts

    def catch_up(self) -> None:
        """Merges in the durable commits of network threads."""
        unmerged = self._unmerged
        if not unmerged.waiting:
            return
        rows = unmerged.take()
        known = self._known()  # read after `rows`, which may have created groups
        for group_id, topic, partition, offset, epoch, metadata, ms, expire_ms, producer_id in rows:
            if not topic:  # a marker
                self._end(partition, producer_id, offset == COMMIT_MARKER)
                continue
            if group_id not in known:
                continue
            row = Committed(offset, epoch, metadata, ms, expire_ms)
            self._counts.commits += 1
            if producer_id < 0:
                self._put(group_id, topic, partition, row)
            else:
                self._put_pending(producer_id, group_id, topic, partition, row)

    def of(self, group_id: str) -> Rows:
        """Returns the committed offsets of a group. The caller must not change them."""
        self.catch_up()
        return self._groups.get(group_id, {})

    def get(self, group_id: str, topic: str, partition: int) -> Committed | None:
        """Returns the committed offset of a partition, or None."""
        self.catch_up()
        rows = self._groups.get(group_id)
        if rows is None:
            return None
        partitions = rows.get(topic)
        return partitions.get(partition) if partitions is not None else None

    def of_partition(self, topic: str, partition: int) -> dict[str, int]:
        """Returns the committed offset of each group for one partition."""
        self.catch_up()
        rows = ((group, found.get(topic, {})) for group, found in self._groups.items())
        return {group: row[partition].offset for group, row in rows if partition in row}

    def count(self) -> int:
        """Returns the number of committed offsets of all groups."""
        self.catch_up()
        return sum(len(row) for rows in self._groups.values() for row in rows.values())

    def put(self, group_id: str, topic: str, partition: int, committed: Committed) -> None:
        """Sets the committed offset of a partition."""
        self.catch_up()
        self._put(group_id, topic, partition, committed)

    def _put(self, group_id: str, topic: str, partition: int, committed: Committed) -> None:
        self._groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = committed
        if group_id in self._pending:
            self._pass(group_id, (topic, partition), self._order)

    def forget(self, group_id: str, topic: str, partition: int) -> None:
        """Deletes the committed offset of a partition, if there is one."""
        self.catch_up()
        rows = self._groups.get(group_id, {})
        partitions = rows.get(topic, {})
        if partitions.pop(partition, None) is not None and not partitions:
            del rows[topic]
            if not rows:
                del self._groups[group_id]

    def forget_all(self, group_id: str, keys: Iterable[TopicPartition]) -> None:
        """Deletes the committed offsets of these partitions."""
        for topic, partition in keys:
            self.forget(group_id, topic, partition)

    def forget_group(self, group_id: str) -> None:
        """Deletes a group's offsets, pending ones included."""
        self.catch_up()
        self._groups.pop(group_id, None)
        for producer_id in self._pending.pop(group_id, ()):
            self._has_ended(producer_id, group_id)

    # -- transactions ---------------------------------------------------------------------------

    def put_pending(
        self, producer_id: int, group_id: str, topic: str, partition: int, committed: Committed
    ) -> None:
        """Sets an offset that counts when the producer's transaction commits."""
        self.catch_up()
        self._put_pending(producer_id, group_id, topic, partition, committed)

    def _put_pending(
        self, producer_id: int, group_id: str, topic: str, partition: int, committed: Committed
    ) -> None:
        self._order += 1
        rows = self._pending.setdefault(group_id, {}).setdefault(producer_id, {})
        rows[topic, partition] = Pending(self._order, committed)
        self._pending_groups.setdefault(producer_id, set()).add(group_id)

    def end_transaction(self, partition: int, producer_id: int, committed: bool) -> None:
        """Applies a marker in a partition of the log: the producer's pending offsets in the groups
        of that partition are committed or dropped."""
        self.catch_up()
        self._end(partition, producer_id, committed)

    def _end(self, partition: int, producer_id: int, committed: bool) -> None:
        mine = self._by_partition.get(partition, ())
        for group_id in [
            name for name in self._pending_groups.get(producer_id, ()) if name in mine
        ]:
            producers = self._pending.get(group_id, {})
            rows = producers.pop(producer_id, {})
            if not producers:
                self._pending.pop(group_id, None)
            self._has_ended(producer_id, group_id)
            for at, row in rows.items():
                if committed and not row.is_passed:
                    topic, partition = at
                    partitions = self._groups.setdefault(group_id, {}).setdefault(topic, {})
                    partitions[partition] = row.committed
                    self._pass(group_id, at, row.order)

    def _pass(self, group_id: str, at: TopicPartition, order: int) -> None:
        """Marks pending offsets of a partition up to this position in the log as replaced by a
        later commit."""
        for rows in self._pending.get(group_id, {}).values():
            row = rows.get(at)
            if row is not None and row.order <= order:
                row.is_passed = True

    def _has_ended(self, producer_id: int, group_id: str) -> None:
        groups = self._pending_groups.get(producer_id, set())
        groups.discard(group_id)
        if not groups:
            self._pending_groups.pop(producer_id, None)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Returns whether an open transaction has a pending offset for this partition."""
        self.catch_up()
        return self._is_pending(group_id, topic, partition)

    def _is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        producers = self._pending.get(group_id)
        return producers is not None and any(
            (topic, partition) in rows for rows in producers.values()
        )

    def has_pending(self, group_id: str) -> bool:
        """Returns whether an open transaction has pending offsets in the group."""
        self.catch_up()
        return group_id in self._pending

    # -- expiry ---------------------------------------------------------------------------------

    def expired(
        self, group_id: str, group: Group | None, now_ms: int, retention_ms: int
    ) -> Iterator[TopicPartition]:
        """Yields the partitions whose offset has expired, for one group. Times are wall-clock
        ms."""
        for topic, partitions in self.of(group_id).items():
            since_ms = _counts_from(group, topic)
            if since_ms is None:
                continue
            for partition, row in partitions.items():
                if self._is_pending(group_id, topic, partition):
                    continue
                if row.expire_ms != NEVER:
                    over = now_ms >= row.expire_ms
                else:
                    over = now_ms - (since_ms if since_ms >= 0 else row.commit_ms) >= retention_ms
                if over:
                    yield topic, partition


COMMIT_TIME = -1


def _counts_from(group: Group | None, topic: str) -> int | None:
    """Returns the time in ms from which an offset's age counts, or COMMIT_TIME; None when the
    offset does not expire."""
    if group is None or group.protocol_type is None:
        return COMMIT_TIME
    if group.group_type != "classic":
        return None if group.is_subscribed_to(topic) else COMMIT_TIME
    if group.state == EMPTY:
        return COMMIT_TIME if group.empty_since_ms is None else group.empty_since_ms
    if group.protocol_type == "consumer" and group.state == STABLE:
        return None if group.is_subscribed_to(topic) else COMMIT_TIME
    return None
