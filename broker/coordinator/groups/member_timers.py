"""The timeouts of members that send heartbeats, for groups of every kind but the classic one.

A member has a session, which each heartbeat restarts, and a rebalance timeout while it must revoke
what it owns. A heartbeat only moves the deadline of the session: its timer runs at the earlier
deadline and is then set to the later one. The timers of a group's members are in `watches`; they
are not in the log, and start again when a group was read from it. Callers hold the coordinator's
lock. Next: coordinator/timers.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from barnabas.coordinator.groups.group_writes import After
from barnabas.coordinator.groups.member_position import LEAVE_STATIC, UNREVOKED, Positioned
from barnabas.coordinator.timers import cancel

SESSION, REBALANCE = "session", "rebalance"  # the two timeouts


class Watch:
    """The timers of one member."""

    __slots__ = ("deadline_ms", "join", "rebalance", "revoking", "session", "sync")

    def __init__(self) -> None:
        self.deadline_ms = 0  # of its session, on the monotonic clock
        self.session: Any = None
        self.rebalance: Any = None
        self.revoking: object = None  # what it must revoke before `rebalance` runs
        self.join: Any = None  # the timer of a classic member that must join again
        self.sync: Any = None  # the timer of a classic member that must sync


class WatchedGroup(Protocol):
    """The fields of a group that this module uses."""

    dead: bool
    watches: dict[str, Watch]  # by member id

    @property
    def members(self) -> Any: ...  # by member id


G = TypeVar("G", bound=WatchedGroup)


class MemberTimers(Generic[G]):
    """The timers of the members of all groups of one kind."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        after: After,
        expire: Callable[[G, Any, str], object],
    ) -> None:
        """`expire` is called with a member and the timeout that it has exceeded, SESSION or
        REBALANCE. It removes the member."""
        self._now_ms = now_ms
        self._after = after
        self._expire = expire

    def of(self, group: G, member_id: str) -> Watch:
        """Returns the timers of a member, which this creates at the first call."""
        found = group.watches.get(member_id)
        if found is None:
            found = group.watches[member_id] = Watch()
        return found

    def extend_session(self, group: G, member_id: str, session_ms: int) -> None:
        """Restarts a member's session. A timer that runs early checks the deadline and runs
        again."""
        watch = self.of(group, member_id)
        deadline_ms = self._now_ms() + session_ms
        earlier, watch.deadline_ms = deadline_ms < watch.deadline_ms, deadline_ms
        if watch.session is None or earlier:
            cancel(watch.session)
            watch.session = self._after(session_ms, lambda: self._session_due(group, member_id))

    def _session_due(self, group: G, member_id: str) -> None:
        watch, member = group.watches.get(member_id), group.members.get(member_id)
        if watch is None or member is None or group.dead:
            return
        left_ms = watch.deadline_ms - self._now_ms()
        if left_ms > 0:
            watch.session = self._after(left_ms, lambda: self._session_due(group, member_id))
            return
        watch.session = None
        self._expire(group, member, SESSION)

    def watch_rebalance(self, group: G, member: Positioned) -> None:
        """Starts the rebalance timeout of a member that must revoke what it owns, unless it runs
        for the same revocation. Cancels it for any other member."""
        watch = self.of(group, member.member_id)
        waits = member.state == UNREVOKED and member.epoch != LEAVE_STATIC
        if waits and watch.rebalance is not None and watch.revoking is member.revoking:
            return
        cancel(watch.rebalance)
        watch.rebalance = watch.revoking = None
        if waits:
            member_id, epoch = member.member_id, member.epoch
            watch.revoking = member.revoking
            watch.rebalance = self._after(
                member.rebalance_timeout_ms, lambda: self._rebalance_due(group, member_id, epoch)
            )

    def _rebalance_due(self, group: G, member_id: str, epoch: int) -> None:
        member = group.members.get(member_id)
        if group.dead or member is None or (member.epoch, member.state) != (epoch, UNREVOKED):
            return
        self._expire(group, member, REBALANCE)

    def forget(self, group: G, member_id: str) -> None:
        """Cancels the timers of a member that was removed."""
        watch = group.watches.pop(member_id, None)
        if watch is not None:
            cancel(watch.session, watch.rebalance, watch.join, watch.sync)

    def forget_all(self, group: G) -> None:
        """Cancels the timers of all members."""
        for member_id in list(group.watches):
            self.forget(group, member_id)
