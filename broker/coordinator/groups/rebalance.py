"""Joining, syncing and leaving a classic group: the transitions of classic_group.py.

No function waits or reads a clock: timers, the journal's `store` and random ids are passed in, and
results go out through the callables of the requests. Everything runs under the coordinator's lock;
timers and `done` callbacks acquire it themselves.

Sessions: a heartbeat only moves a member's deadline. The group's one timer checks all deadlines at
the earliest known one, and is then set to the next one. So neither a member nor a heartbeat needs a
timer of its own. Next: coordinator.py above, ../journal.py below."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple, Protocol

from barnabas.coordinator.groups.classic_group import (
    COMPLETING,
    DEAD,
    EMPTY,
    NO_TIMERS,
    NOBODY,
    PREPARING,
    STABLE,
    AnswerJoin,
    AnswerSync,
    ClassicGroup,
    JoinResult,
    Member,
    Protocols,
    SyncResult,
    shared_bytes,
)
from barnabas.coordinator.groups.group_counts import GroupCounts
from barnabas.coordinator.timers import after_locked
from barnabas.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownServerError,
)

# The connection of a new member is muted while it waits for its answer, so the broker does not see
# that it closes: the member has this long from its join to its first heartbeat, whatever its
# session timeout is.
NEW_MEMBER_TIMEOUT_MS = 300_000


class Timers(Protocol):
    """The part of coordinator.timers that this module uses. Tests move the time of their own
    timers. A timer has `at_ms`."""

    def now_ms(self) -> int: ...
    def after(self, delay_ms: int, call: Callable[[], object]) -> Any: ...


class Store(Protocol):
    """Journals a group with these assignments; calls `done` under the coordinator's lock."""

    def __call__(
        self,
        group: ClassicGroup,
        assignments: Mapping[str, bytes],
        done: Callable[[KafkaError | None], object],
    ) -> None: ...


class Join(NamedTuple):
    """One JoinGroup request."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    id_required: bool  # the client understands MEMBER_ID_REQUIRED
    can_skip_assignment: bool  # it understands that a leader need not assign


class _Sessions:
    """The callback of a group's session timer. It is small because most groups have one."""

    __slots__ = ("_group", "_rebalances")

    def __init__(self, rebalances: Rebalances, group: ClassicGroup) -> None:
        self._rebalances = rebalances
        self._group = group

    def __call__(self) -> None:
        self._rebalances.sessions_due(self._group)


class Rebalances:
    """The transitions of all classic groups of a coordinator."""

    def __init__(
        self,
        *,
        lock: AbstractContextManager[Any],
        timers: Timers,
        wall_ms: Callable[[], int],
        new_id: Callable[[], str],
        store: Store,
        initial_delay_ms: int,
        members_max: int,
        counts: GroupCounts,
    ) -> None:
        self._lock = lock
        self._timers = timers
        self._after = partial(after_locked, timers, lock)
        self._wall_ms = wall_ms
        self._new_id = new_id
        self._store = store
        self._initial_delay_ms = initial_delay_ms
        self._members_max = members_max
        self._counts = counts

    # -- JoinGroup ------------------------------------------------------------------------------

    def join(self, group: ClassicGroup, asked: Join, answer: AnswerJoin) -> None:
        """Handles JoinGroup. Calls `answer` once: at once, or when the group's next generation
        begins."""
        if not self._has_capacity(group, asked.member_id):
            if asked.member_id:
                self._remove_quietly(group, asked.member_id)
            answer(JoinResult(GroupMaxSizeReached()))
        elif group.state == DEAD:
            answer(JoinResult(CoordinatorNotAvailable(), asked.member_id))
        elif not group.supports(asked.protocol_type, asked.protocols):
            answer(JoinResult(InconsistentGroupProtocol(), asked.member_id))
        elif not asked.member_id:
            self._join_new(group, asked, answer)
        else:
            self._join_known(group, asked, answer)
        self._complete_if_all_joined(group)

    def _has_capacity(self, group: ClassicGroup, member_id: str) -> bool:
        if group.state in (EMPTY, DEAD):
            return True
        member = group.members.get(member_id)
        if group.state == PREPARING:
            if member is not None and member.join is not None:
                return True
            return group.joined_count < self._members_max
        return member is not None or len(group.members) < self._members_max

    def _remove_quietly(self, group: ClassicGroup, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is not None:
            self._take_out(group, member)

    def _join_new(self, group: ClassicGroup, asked: Join, answer: AnswerJoin) -> None:
        new_id = f"{asked.instance_id or asked.client_id}-{self._new_id()}"
        if asked.instance_id is not None:
            if asked.instance_id in group.instances:
                self._replace_static(group, new_id, asked, answer)
            else:
                self._add(group, new_id, asked, answer)
        elif asked.id_required:
            self._set_pending(group, new_id, asked.session_timeout_ms)
            answer(JoinResult(MemberIdRequired(), new_id))
        else:
            self._add(group, new_id, asked, answer)

    def _set_pending(self, group: ClassicGroup, member_id: str, session_timeout_ms: int) -> None:
        timer = self._after(session_timeout_ms, lambda: self._expire_pending(group, member_id))
        group.awaits_join(member_id, timer)

    def _expire_pending(self, group: ClassicGroup, member_id: str) -> None:
        if group.pending.pop(member_id, None) is not None:
            self._complete_without(group)

    def _join_known(self, group: ClassicGroup, asked: Join, answer: AnswerJoin) -> None:
        if asked.member_id in group.pending:
            if asked.instance_id is not None:
                answer(JoinResult(UnknownServerError(), asked.member_id))
                return
            group.pending.pop(asked.member_id).cancel()
            self._add(group, asked.member_id, asked, answer)
            return
        try:
            member = group.check_member(asked.member_id, asked.instance_id)
        except KafkaError as error:
            answer(JoinResult(error, asked.member_id))
            return
        same = member.protocols == tuple(asked.protocols)
        if group.state == COMPLETING and same:
            # It did not get the answer to its join: send the answer again, without a new rebalance.
            answer(self._current(group, member))
        elif group.state == STABLE and same and group.leader != member.member_id:
            answer(self._current(group, member))
        elif group.state in (PREPARING, COMPLETING, STABLE):
            self._join_again(group, member, asked, answer)
        else:
            answer(JoinResult(UnknownMemberId(), asked.member_id))

    def _current(self, group: ClassicGroup, member: Member) -> JoinResult:
        """Returns the generation as the answer to a member describes it."""
        leader = group.leader or ""
        return JoinResult(  # positional arguments are faster
            None,
            member.member_id,
            group.generation,
            group.protocol_type,
            group.protocol_name,
            leader,
            group.views() if leader == member.member_id else (),
        )

    def _add(self, group: ClassicGroup, member_id: str, asked: Join, answer: AnswerJoin) -> None:
        """Adds a member that waits for its answer. `join` checks at its end whether all members
        have joined."""
        member = Member(
            member_id,
            asked.instance_id,
            asked.client_id,
            asked.client_host,
            asked.rebalance_timeout_ms,
            asked.session_timeout_ms,
            asked.protocols,
        )
        if not group.members:
            group.protocol_type = asked.protocol_type
        if group.state == PREPARING and group.previous_state == EMPTY:
            group.new_member_added = True
        group.add(member)
        member.is_new = True
        group.set_join(member, answer)
        self._extend_session(group, member, NEW_MEMBER_TIMEOUT_MS)
        if group.can_rebalance:
            self._prepare(group)

    def _join_again(
        self, group: ClassicGroup, member: Member, asked: Join, answer: AnswerJoin
    ) -> None:
        self._update(group, member, asked)
        self._await_join(group, member, answer)
        self._extend_session(group, member)
        if group.can_rebalance:
            self._prepare(group)

    def _update(self, group: ClassicGroup, member: Member, asked: Join) -> None:
        group.set_protocols(member, asked.protocols)
        member.session_timeout_ms = asked.session_timeout_ms
        member.rebalance_timeout_ms = asked.rebalance_timeout_ms
        member.client_id, member.client_host = asked.client_id, asked.client_host

    def _await_join(self, group: ClassicGroup, member: Member, answer: AnswerJoin) -> None:
        """Ends a waiting JoinGroup that the member sent again: its client has most likely gone. The
        error must not be UNKNOWN_MEMBER_ID, because the member is known."""
        before = group.set_join(member, answer)
        if before is not None:
            before(JoinResult(RebalanceInProgress(), member.member_id))

    def _replace_static(
        self, group: ClassicGroup, new_id: str, asked: Join, answer: AnswerJoin
    ) -> None:
        """Gives a static member that joins again without its member id a new id in the same
        place."""
        assert asked.instance_id is not None
        old_leader = group.leader
        old_id = group.instances[asked.instance_id]
        member = group.replace_static(asked.instance_id, new_id)
        join = group.set_join(member, None)
        sync, member.sync = member.sync, None
        before = (member.protocols, member.session_timeout_ms, member.rebalance_timeout_ms)
        self._update(group, member, asked)
        self._extend_session(group, member)
        if join is not None:
            join(JoinResult(FencedInstanceId(), old_id))
        if sync is not None:
            sync(SyncResult(FencedInstanceId()))
        if group.state == STABLE and group.select_protocol() == group.protocol_name:
            self._replace_in_stable(group, member, asked, answer, old_id, old_leader, before)
            return
        group.set_join(member, answer)
        if group.can_rebalance:
            self._prepare(group)

    def _replace_in_stable(
        self,
        group: ClassicGroup,
        member: Member,
        asked: Join,
        answer: AnswerJoin,
        old_id: str,
        old_leader: str | None,
        before: tuple[Any, int, int],
    ) -> None:
        """Continues the generation with the new id, without a rebalance, when that is durable."""
        new_id = member.member_id
        leads = group.leader == new_id
        skip = asked.can_skip_assignment
        result = JoinResult(
            member_id=new_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            # A client that cannot skip must not take itself for the leader: it would assign.
            leader=(group.leader if skip else old_leader) or "",
            members=group.views() if leads and skip else (),
            skip_assignment=leads and skip,
        )

        def done(error: KafkaError | None) -> None:
            if error is not None:
                if group.members.get(new_id) is member and asked.instance_id is not None:
                    group.replace_static(asked.instance_id, old_id)
                    group.set_protocols(member, before[0])
                    member.session_timeout_ms, member.rebalance_timeout_ms = before[1:]
                answer(JoinResult(UnknownMemberId(), new_id))
            else:
                answer(result)

        self._store(group, {m.member_id: m.assignment for m in group.members.values()}, done)

    # -- the rebalance --------------------------------------------------------------------------

    def rebalance(self, group: ClassicGroup) -> None:
        """Starts a rebalance for an external reason."""
        if group.can_rebalance:
            self._prepare(group)
        else:
            self._complete_if_all_joined(group)

    def _prepare(self, group: ClassicGroup) -> None:
        """Starts a rebalance: all members must join again."""
        self._cancel(group, "sync_timer")
        group.pending_sync = NOBODY
        if group.state == COMPLETING:
            self._refuse_syncs(group, RebalanceInProgress())
        was_empty = group.state == EMPTY
        group.move_to(PREPARING, self._wall_ms())
        if not was_empty:
            self._complete_if_all_joined(group)
            if group.state == PREPARING:
                self._set_join_timer(group, group.rebalance_timeout_ms)
            return
        delay_ms = self._initial_delay_ms
        left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        if delay_ms == 0:
            self._complete(group)
        else:
            group.join_timer = self._after(delay_ms, lambda: self._initial_join(group, left_ms))

    def _initial_join(self, group: ClassicGroup, left_ms: int) -> None:
        """Ends the delay of a first rebalance, or extends it while members join."""
        group.join_timer = None
        if group.state != PREPARING:
            return
        if group.new_member_added and left_ms > 0:
            group.new_member_added = False
            delay_ms = min(self._initial_delay_ms, left_ms)
            after_ms = max(left_ms - delay_ms, 0)
            group.join_timer = self._after(delay_ms, lambda: self._initial_join(group, after_ms))
        else:
            self._complete(group)

    def _set_join_timer(self, group: ClassicGroup, delay_ms: int) -> None:
        self._cancel(group, "join_timer")
        group.join_timer = self._after(delay_ms, lambda: self._join_timed_out(group))

    def _join_timed_out(self, group: ClassicGroup) -> None:
        group.join_timer = None
        if group.state == PREPARING:
            self._complete(group)

    def _complete_if_all_joined(self, group: ClassicGroup) -> None:
        """Ends the join phase when all members have joined. The first one of an empty group lasts
        until its delay is over."""
        if group.previous_state != EMPTY:
            self._complete_without(group)

    def _complete_without(self, group: ClassicGroup) -> None:
        """Ends the join phase, also a first one, when the member whose session just expired was the
        last one that had not joined (Kafka: removeMemberAndUpdateClassicGroup)."""
        if group.state == PREPARING and group.all_joined:
            self._complete(group)

    def _complete(self, group: ClassicGroup) -> None:
        """Ends the join phase, and removes dynamic members that did not join."""
        self._cancel(group, "join_timer")
        group.new_member_added = False
        for member in group.not_yet_joined():
            if member.instance_id is None:
                group.remove(member.member_id)
        if group.members and not group.elect_joined_leader():
            # Only static members remain, and none has joined: the join phase lasts another
            # rebalance timeout.
            self._set_join_timer(group, group.rebalance_timeout_ms)
            return
        group.begin_generation(self._wall_ms())
        if not group.members:
            self._cancel(group, "session_timer")
            self._store(group, {}, lambda _error: None)
            return
        joined = group.end_joins()
        self._extend_sessions(group)
        timeout_ms, generation = group.rebalance_timeout_ms, group.generation
        group.sync_timer = self._after(timeout_ms, lambda: self._sync_timed_out(group, generation))
        for member, answer in joined:  # answers go out when the group is ready for the next request
            answer(self._current(group, member))

    # -- SyncGroup ------------------------------------------------------------------------------

    def sync(
        self,
        group: ClassicGroup,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol: tuple[str | None, str | None],
        assignments: Iterable[tuple[str, bytes]],
        answer: AnswerSync,
    ) -> None:
        """Handles SyncGroup. Calls `answer` once: at once, or when the leader's assignment is
        durable."""
        try:
            member = self._check_generation(group, member_id, instance_id, generation)
            self._check_protocol(group, protocol)
            if group.state == EMPTY:
                raise UnknownMemberId()
            if group.state == PREPARING:
                raise RebalanceInProgress()
        except KafkaError as error:
            answer(SyncResult(error))
            return
        group.has_synced(member_id)
        if group.state == STABLE:
            answer(self._assigned(group, member))
            self._extend_session(group, member)
            return
        before, member.sync = member.sync, answer
        if before is not None:
            before(SyncResult(RebalanceInProgress()))
        if group.leader == member_id:
            self._assign(group, dict(assignments))

    def _assign(self, group: ClassicGroup, given: dict[str, bytes]) -> None:
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        generation = group.generation

        def done(error: KafkaError | None) -> None:
            if group.state != COMPLETING or group.generation != generation:
                return
            if error is not None:
                self._refuse_syncs(group, error)
                self._prepare(group)
                return
            for member in group.members.values():
                member.assignment = shared_bytes(assignments.get(member.member_id, b""))
            group.move_to(STABLE, self._wall_ms())
            self._counts.rebalances += 1
            self._answer_syncs(group)
            if not group.pending_sync:
                self._cancel(group, "sync_timer")

        self._store(group, assignments, done)

    def _answer_syncs(self, group: ClassicGroup) -> None:
        for member in list(group.members.values()):
            answer, member.sync = member.sync, None
            if answer is not None:
                self._extend_session(group, member)
                answer(self._assigned(group, member))

    def _assigned(self, group: ClassicGroup, member: Member) -> SyncResult:
        return SyncResult(None, group.protocol_type, group.protocol_name, member.assignment)

    def _refuse_syncs(self, group: ClassicGroup, error: KafkaError) -> None:
        """Drops the assignments of a failed generation."""
        for member in list(group.members.values()):
            member.assignment = b""
            answer, member.sync = member.sync, None
            if answer is not None:
                self._extend_session(group, member)
                answer(SyncResult(error))

    def _sync_timed_out(self, group: ClassicGroup, generation: int) -> None:
        """Removes members that joined and did not sync in time; the others rebalance again."""
        group.sync_timer = None
        late = list(group.pending_sync)
        if group.generation != generation or group.state not in (COMPLETING, STABLE) or not late:
            return
        for member_id in late:
            group.remove(member_id)
        self._prepare(group)

    # -- Heartbeat, LeaveGroup ------------------------------------------------------------------

    def heartbeat(
        self, group: ClassicGroup, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """Handles Heartbeat and raises its error."""
        member = self._check_generation(group, member_id, instance_id, generation)
        if group.state == EMPTY:
            raise UnknownMemberId()
        self._extend_session(group, member)
        if group.state == PREPARING:
            raise RebalanceInProgress()

    def leave(
        self, group: ClassicGroup, leaving: Iterable[tuple[str, str | None]]
    ) -> list[tuple[str, str | None, KafkaError | None]]:
        """Handles LeaveGroup for (member id, instance id) pairs and returns the result for each
        pair."""
        outcomes: list[tuple[str, str | None, KafkaError | None]] = []
        any_left = False
        for member_id, instance_id in leaving:
            error: KafkaError | None = None
            found_id = member_id
            if not member_id and instance_id is not None:
                found_id = group.instances.get(instance_id, "")
            if found_id in group.pending:
                group.pending.pop(found_id).cancel()
                # The others rebalance although it was not a member yet, as in Kafka.
                any_left = True
            else:
                try:
                    member = group.check_member(found_id, instance_id)
                    self._take_out(group, member)
                    any_left = True
                except KafkaError as refused:
                    error = refused
            outcomes.append((member_id, instance_id, error))
        if any_left:
            self._after_leaving(group)
        return outcomes

    def _take_out(self, group: ClassicGroup, member: Member) -> None:
        join = group.set_join(member, None)
        group.remove(member.member_id)
        if not group.members:
            self._cancel(group, "session_timer")
        sync, member.sync = member.sync, None
        if join is not None:
            join(JoinResult(UnknownMemberId()))
        if sync is not None:
            sync(SyncResult(UnknownMemberId()))

    def _after_leaving(self, group: ClassicGroup) -> None:
        if group.state in (STABLE, COMPLETING):
            self._prepare(group)
        elif group.state == PREPARING:
            self._complete_if_all_joined(group)

    # -- sessions -------------------------------------------------------------------------------

    def resume(self, group: ClassicGroup) -> None:
        """Starts the sessions of a group's members after it was read from the log."""
        for member in group.members.values():
            self._extend_session(group, member)

    def forget(self, group: ClassicGroup, error: KafkaError) -> None:
        """Stops the group's timers and fails its pending requests: it was deleted or moved."""
        self._cancel(group, "join_timer")
        self._cancel(group, "sync_timer")
        self._cancel(group, "session_timer")
        for timer in group.pending.values():
            timer.cancel()
        group.pending = NO_TIMERS
        for member in group.members.values():
            join = group.set_join(member, None)
            sync, member.sync = member.sync, None
            if join is not None:
                join(JoinResult(error, member.member_id))
            if sync is not None:
                sync(SyncResult(error))
        group.table = None
        group.state = DEAD

    def _extend_session(
        self, group: ClassicGroup, member: Member, timeout_ms: int | None = None
    ) -> None:
        session_ms = member.session_timeout_ms
        now_ms = self._timers.now_ms()
        member.deadline_ms = now_ms + (session_ms if timeout_ms is None else timeout_ms)
        # At most one session timeout from now: the next heartbeat most likely sets this deadline.
        after_ms = session_ms if timeout_ms is None else min(session_ms, timeout_ms)
        self._look_at_sessions_by(group, member.deadline_ms, after_ms)

    def _extend_sessions(self, group: ClassicGroup) -> None:
        """Restarts the session of every member."""
        now_ms = self._timers.now_ms()
        soonest_ms = min(member.session_timeout_ms for member in group.members.values())
        for member in group.members.values():
            member.deadline_ms = now_ms + member.session_timeout_ms
        self._look_at_sessions_by(group, now_ms + soonest_ms, soonest_ms)

    def _look_at_sessions_by(self, group: ClassicGroup, at_ms: int, delay_ms: int) -> None:
        """Sets the group's timer to `delay_ms` from now unless it runs by `at_ms` anyway."""
        timer = group.session_timer
        if timer is None or timer.at_ms > at_ms:
            self._cancel(group, "session_timer")
            group.session_timer = self._timers.after(delay_ms, _Sessions(self, group))

    def sessions_due(self, group: ClassicGroup) -> None:
        """Called when the group's timer has run."""
        with self._lock:
            self._look_at_sessions(group)

    def _look_at_sessions(self, group: ClassicGroup) -> None:
        """Removes members whose deadline has passed, and sets the timer again."""
        group.session_timer = None
        now_ms = self._timers.now_ms()
        next_ms: int | None = None
        for member in list(group.members.values()):
            if group.members.get(member.member_id) is not member:
                continue
            group.listen(member)
            if member.deadline_ms > now_ms:
                next_ms = min(next_ms or member.deadline_ms, member.deadline_ms)
            elif member.is_new or (member.join is None and member.sync is None):
                self._take_out(group, member)
                if group.state == PREPARING:
                    self._complete_without(group)
                else:
                    self._after_leaving(group)
            # A member that waits for a rebalance cannot send heartbeats; its session starts again
            # with the answer.
        if next_ms is not None:
            self._look_at_sessions_by(group, next_ms, next_ms - now_ms)

    # -- checks and timers ----------------------------------------------------------------------

    def _check_generation(
        self, group: ClassicGroup, member_id: str, instance_id: str | None, generation: int
    ) -> Member:
        if group.state == DEAD:
            raise CoordinatorNotAvailable()
        member = group.check_member(member_id, instance_id)
        if generation != group.generation:
            raise IllegalGeneration()
        return member

    def _check_protocol(self, group: ClassicGroup, asked: tuple[str | None, str | None]) -> None:
        for given, current in zip(asked, (group.protocol_type, group.protocol_name), strict=True):
            if given is not None and current is not None and given != current:
                raise InconsistentGroupProtocol()

    def _cancel(self, group: ClassicGroup, name: str) -> None:
        timer = getattr(group, name)
        if timer is not None:
            timer.cancel()
            setattr(group, name, None)
