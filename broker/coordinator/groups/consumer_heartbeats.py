"""Heartbeats of the consumer protocol (KIP-848): joining, assignment, revocation, leaving.

Every change of a group is the result of a heartbeat. A heartbeat may add a member or change a
subscription: then the group epoch increases, and the same heartbeat computes a new target
assignment. With each heartbeat a member makes a step towards its target (consumer_member.py); the
response has its current partitions and is sent when they are durable (group_writes.py). A heartbeat
that is refused changes nothing.

A group gets a new assignment once in its assignment interval: a member that joins soon after
another waits for the next assignment, and has the current epoch without partitions until then.
Joins are gathered while another thread handles them, and those of a group share one assignment.

Timers: a session timeout for each member, and a rebalance timeout while it must revoke partitions.
A member that exceeds either is fenced: it leaves the group and its partitions become free. The next
heartbeat of the group takes account of topics that were created, deleted or extended. The code runs
under the coordinator's lock and uses no I/O and no clock of its own. Next: consumer_regexes.py,
classic_members.py, migration.py."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from barnabas.coordinator.groups import consumer_records as records
from barnabas.coordinator.groups.consumer_change import Change
from barnabas.coordinator.groups.consumer_group import ConsumerGroup
from barnabas.coordinator.groups.consumer_member import (
    NOTHING,
    ConsumerMember,
    Owned,
    reconciled,
)
from barnabas.coordinator.groups.consumer_regexes import Regexes
from barnabas.coordinator.groups.group_records import Entry
from barnabas.coordinator.groups.group_writes import Done, GroupWrites, answering
from barnabas.coordinator.groups.member_position import (
    JOIN,
    LEAVE,
    LEAVE_STATIC,
    description,
    holds_all,
    in_place_of,
    position,
)
from barnabas.coordinator.groups.member_records import beginning, take_target
from barnabas.coordinator.groups.member_timers import REBALANCE, SESSION, MemberTimers
from barnabas.coordinator.groups.membership import checked_member, is_fenced
from barnabas.coordinator.groups.migration import Migration
from barnabas.coordinator.groups.target_assignment import Assignment, new_target, wait_ms
from barnabas.coordinator.timers import after_locked, cancel
from barnabas.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidRequest,
    KafkaError,
    UnknownServerError,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)

if TYPE_CHECKING:
    from barnabas.coordinator.groups.consumer_access import GroupAccess, GroupDependencies

log = logging.getLogger("barnabas.groups")

OWN_ID_FROM = 1  # the first version in which members choose their ids
FIRST_EPOCH = 1  # of a group, before its first member's subscription raises it
EXPIRED = {
    SESSION: "group %s: removed member %s: no heartbeat within its session timeout"
    " (group.consumer.session.timeout.ms)",
    REBALANCE: "group %s: member %s did not revoke its partitions within its rebalance timeout",
}


class Heartbeat(NamedTuple):
    """One ConsumerGroupHeartbeat request. A field is None when the request lacks it."""

    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Mapping[bytes, Collection[int]] | None = None
    client_id: str = ""
    client_host: str = ""
    version: int = 1
    may_see: Callable[[str], bool] | None = None  # topics that its client may describe; None: all

    @property
    def is_full_request(self) -> bool:
        """Returns whether the member joins or sends all fields. The response then has all its
        partitions."""
        return self.member_epoch == JOIN or (
            self.rebalance_timeout_ms != -1
            and (self.topics is not None or self.regex is not None)
            and self.owned is not None
        )


class HeartbeatResult(NamedTuple):
    """The result of a heartbeat."""

    error: KafkaError | None = None
    member_id: str | None = None
    member_epoch: int = 0
    interval_ms: int = 0
    assigned: Owned | None = None  # None: unchanged


AnswerHeartbeat = Callable[[HeartbeatResult], object]
Asked = tuple[Heartbeat, AnswerHeartbeat]


class ConsumerHeartbeats:
    """All groups of the consumer protocol of one coordinator."""

    def __init__(self, coordinator: GroupAccess, dependencies: GroupDependencies) -> None:
        self.coordinator = coordinator
        self.dependencies = dependencies
        self.settings = dependencies.settings
        self.after = partial(after_locked, coordinator.timers, coordinator.lock)
        self.timers: MemberTimers[ConsumerGroup] = MemberTimers(
            coordinator.timers.now_ms, self.after, self._expire
        )
        partition_of = coordinator.journal.partition_of
        self.writes = GroupWrites(coordinator.append, partition_of, self.after, records.whole_group)
        self.regexes = Regexes(self, dependencies.run)
        self.migration = Migration(self)
        # One for each connection.
        self._joining: deque[tuple[str, Heartbeat, AnswerHeartbeat]] = deque()
        self._gathers = False  # a call that handles them is scheduled

    # -- the request ----------------------------------------------------------------------------

    def heartbeat(self, group_id: str, asked: Heartbeat, answer: AnswerHeartbeat) -> None:
        """Handles ConsumerGroupHeartbeat. Calls `answer` once: with an error at once, or when the
        state in the response is durable."""
        try:
            self._check(group_id, asked)
        except KafkaError as error:
            answer(HeartbeatResult(error))
            return
        if asked.member_epoch == JOIN:
            self._joining.append((group_id, asked, answer))
            if not self._gathers:
                self._gathers = True
                self.dependencies.gather(self._join_together, self._joining.__len__)
            return
        with self.coordinator.lock:
            if asked.member_epoch in (LEAVE, LEAVE_STATIC):
                self._leave(group_id, asked, answer)
            else:
                self._beat(group_id, [(asked, answer)])

    def _join_together(self) -> None:
        """Handles all queued joins. Those of one group share one assignment."""
        # From now on each join schedules a call, even if this call handles it.
        self._gathers = False
        arrived: dict[str, list[Asked]] = {}
        while self._joining:
            group_id, asked, answer = self._joining.popleft()
            arrived.setdefault(group_id, []).append((asked, answer))
        for group_id, rows in arrived.items():
            try:
                with self.coordinator.lock:
                    self._beat(group_id, rows)
            except Exception as error:  # other groups are not affected
                log.exception("group %s: %d members cannot join", group_id, len(rows))
                for row in rows:
                    with suppress(RuntimeError):  # it was answered before the error
                        _refuse([row], UnknownServerError(str(error)))

    def _check(self, group_id: str, asked: Heartbeat) -> None:
        """Checks the request alone, without the state of the group. Raises InvalidRequest or
        UnsupportedAssignor."""
        named = (
            ("group id", group_id),
            ("instance id", asked.instance_id),
            ("rack", asked.rack_id),
        )
        for what, text in named:
            if text is not None and not text.strip():
                raise InvalidRequest(f"An empty {what}.")
        epoch = asked.member_epoch
        if (asked.version >= OWN_ID_FROM or epoch != JOIN) and not asked.member_id.strip():
            raise InvalidRequest("An empty member id.")
        if epoch == JOIN:
            if asked.rebalance_timeout_ms == -1:
                raise InvalidRequest(
                    "The first heartbeat of a member must have a rebalance timeout."
                )
            if asked.owned is None or asked.owned:
                raise InvalidRequest("A member that joins must not own partitions.")
            if asked.topics is None and asked.regex is None:
                raise InvalidRequest(
                    "The first heartbeat of a member must have topics or a regular expression."
                )
        elif epoch == LEAVE_STATIC:
            if asked.instance_id is None:
                raise InvalidRequest("A member without an instance id cannot leave for a while.")
        elif epoch < LEAVE:
            raise InvalidRequest(f"There is no member epoch {epoch}.")
        if asked.assignor is not None and asked.assignor not in self.settings.assignors:
            raise UnsupportedAssignor(
                f"The assignor {asked.assignor[:100]} is not supported. Supported assignors:"
                f" {', '.join(self.settings.assignors)}."
            )

    def group(self, group_id: str) -> ConsumerGroup:
        """Returns the group. Raises GroupIdNotFound, also for a group of the classic protocol."""
        found = self.coordinator.group(group_id)
        if found.group_type != "consumer":
            raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        return found

    # -- a heartbeat ----------------------------------------------------------------------------

    def _beat(self, group_id: str, rows: Sequence[Asked]) -> None:
        """Handles heartbeats of one group: one of a known member, or several joins."""
        try:
            partition = self.coordinator.check(group_id)
            group, entries = self._group_for(group_id, rows[0][0].member_epoch == JOIN)
        except KafkaError as error:
            _refuse(rows, error)
            return
        entered: list[tuple[Asked, Change]] = []
        for row in rows:
            try:
                entered.append((row, self._entered(group, row[0])))
            except KafkaError as error:
                _refuse([row], error)
        if not entered:
            return
        try:
            members = self.advance(group, entries, [change for _, change in entered])
        except KafkaError as error:
            if len(entered) == 1:
                _refuse([entered[0][0]], error)
            else:  # one of them fails: each alone, so the others succeed
                for row, _ in entered:
                    self._beat(group_id, [row])
            return
        self.coordinator.adopt(group, partition)
        timeouts = self.dependencies.timeouts(group_id)
        results: list[tuple[AnswerHeartbeat, HeartbeatResult]] = []
        for ((asked, answer), change), after in zip(entered, members, strict=True):
            self.timers.extend_session(group, after.member_id, timeouts.session_ms)
            self.timers.watch_rebalance(group, after)
            tells = asked.is_full_request or after.assigned != change.before.assigned
            assigned = after.assigned if tells else None
            result = HeartbeatResult(
                None, after.member_id, after.epoch, timeouts.heartbeat_ms, assigned
            )
            results.append((answer, result))

        def done(error: KafkaError | None) -> None:
            for answer, result in results:
                answer(result if error is None else HeartbeatResult(error))

        self.writes.write(group, entries, done)
        self.regexes.resolve(group, entered[-1][0][0].may_see)

    def _entered(self, group: ConsumerGroup, asked: Heartbeat) -> Change:
        """Changes the member in the group as the request asks. Raises the error of a refused
        request, and then changes nothing."""
        member_id = asked.member_id or self.coordinator.new_id()
        self.check_capacity(group, member_id)
        before = self._member_for(group, member_id, asked)
        replaced = None
        if before is None:
            before, replaced = self._new_member(group, member_id, asked.instance_id)
        member = before._replace(
            instance_id=asked.instance_id if asked.instance_id is not None else before.instance_id,
            rack_id=asked.rack_id if asked.rack_id is not None else before.rack_id,
            client_id=asked.client_id,
            client_host=asked.client_host,
            topics=before.topics if asked.topics is None else tuple(sorted(set(asked.topics))),
            regex=before.regex if asked.regex is None else asked.regex,
            rebalance_timeout_ms=(
                before.rebalance_timeout_ms
                if asked.rebalance_timeout_ms == -1
                else asked.rebalance_timeout_ms
            ),
            assignor=before.assignor if asked.assignor is None else asked.assignor,
            classic=None,
        )
        resubscribed = member.topics != before.topics or member.regex != before.regex
        regex_is_known = self.regexes.check(group, before, member)
        change = Change(
            member,
            before,
            replaced,
            owned=asked.owned,
            bumps=member.topics != before.topics or regex_is_known,
            resubscribed=resubscribed,
        )
        change.enter(group)
        return change

    def _group_for(self, group_id: str, create: bool) -> tuple[ConsumerGroup, list[Entry]]:
        """Returns the group, which may be new and not yet registered, and the entries to write."""
        found = self.coordinator.groups.get(group_id)
        if found is not None and found.group_type == "consumer":
            return found, []
        if not create:
            if found is None:
                raise GroupIdNotFound(f"Group {group_id} not found.")
            raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        if found is None:
            if self.coordinator.is_other(group_id):
                raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
            new = ConsumerGroup(group_id)
            return new, beginning(new)
        if found.group_type == "streams":
            raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        return self.migration.upgraded(found)

    def check_capacity(self, group: ConsumerGroup, member_id: str) -> None:
        """Raises GroupMaxSizeReached when the group is full and the member is new."""
        if len(group.members) >= self.settings.members_max and member_id not in group.members:
            raise GroupMaxSizeReached(
                f"The group has the {self.settings.members_max} members that it may have."
            )

    def _member_for(
        self, group: ConsumerGroup, member_id: str, asked: Heartbeat
    ) -> ConsumerMember | None:
        """Returns the member that sent the request; None for a new one, or one that replaces a
        static member. A known member that joins again has abandoned its partitions; the response
        lists all of them."""
        if asked.member_epoch == JOIN:
            if asked.instance_id is not None and asked.instance_id in group.instances:
                return None
            return group.members.get(member_id)
        found = checked_member(group, member_id, asked.instance_id)
        self._check_epoch(found, asked)
        return found

    def _check_epoch(self, member: ConsumerMember, asked: Heartbeat) -> None:
        """Checks the epoch of a request. A member that may have lost a response owns only
        partitions of its assignment."""
        epoch = asked.member_epoch

        def owns_no_other() -> bool:
            return asked.owned is not None and holds_all(asked.owned, member.assigned)

        if is_fenced(member, epoch, owns_no_other):
            raise FencedMemberEpoch(
                f"The member has epoch {epoch} and is known with {member.epoch}. It must abandon"
                " all its partitions and join again."
            )

    def _new_member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> tuple[ConsumerMember, ConsumerMember | None]:
        """Returns the new member, and the static member that it replaces."""
        holder = group.instances.get(instance_id) if instance_id is not None else None
        if holder is None:
            return ConsumerMember(member_id), None
        old = group.members[holder]
        if old.classic is None and old.epoch != LEAVE_STATIC:
            raise UnreleasedInstanceId(
                f"The instance id {instance_id} is owned by member {holder}, which has not left."
            )
        return in_place_of(old, member_id), old

    # -- what any request may cause -------------------------------------------------------------

    def advance(
        self, group: ConsumerGroup, entries: list[Entry], changes: Sequence[Change]
    ) -> list[ConsumerMember]:
        """Completes changes that were made in the group: computes its epoch and, once for all of
        them, an outdated target, and makes each member's step. Adds the records to `entries`. When
        it raises, the group is as it was before the changes."""
        try:
            epoch, metadata_hash = self.next_epoch(group, sum(one.bumps for one in changes))
            target = self._next_target(group, epoch)
            members = []
            for one in changes:
                after = reconciled(
                    one.member,
                    group.target_epoch if target is None else epoch,
                    (group.target if target is None else target).get(one.member.member_id, {}),
                    group.owner,
                    one.owned,
                    group.subscribed_ids(one.member, self.dependencies.topics()),
                    one.resubscribed,
                )
                group.put(after)
                members.append(after)
        except KafkaError:
            for one in reversed(changes):
                one.take_back(group)
            raise
        if (epoch, metadata_hash) != (group.epoch, group.metadata_hash):
            self._begin_epoch(group, epoch, metadata_hash)
            entries.append(records.group_entry(group))
        for one in changes:
            self._describe(group, one, entries)
        if target is not None:
            entries += self._take_target(group, target, epoch)
        for one, after in zip(changes, members, strict=True):
            if one.known is None or position(one.known) != position(after):
                entries.append(records.current_entry(group.group_id, after))
        return members

    def _describe(self, group: ConsumerGroup, change: Change, entries: list[Entry]) -> None:
        """Adds the records of a new or changed member, and of the member that it replaces."""
        group_id, member, replaced = group.group_id, change.member, change.replaced
        if replaced is not None:
            self.timers.forget(group, replaced.member_id)
            group.writes.removed_members.add(replaced.member_id)
            entries += records.member_tombstones(group_id, replaced.member_id)
        if change.known is None or description(change.known) != description(member):
            entries.append(records.member_entry(group_id, member))
        self.regexes.forget_left(group, change.before, entries)
        if replaced is not None:
            row = group.target_of(member.member_id)
            entries.append(records.target_entry(group_id, member.member_id, row))

    def next_epoch(self, group: ConsumerGroup, bumps: int) -> tuple[int, int]:
        """Returns the group epoch after a number of changes, and the hash of its topics. A changed
        hash also increases the epoch."""
        views = self.dependencies.topics()
        epoch = max(group.epoch, FIRST_EPOCH)
        if not bumps and group.views is views:
            return epoch, group.metadata_hash
        metadata_hash = views.hash_of(group.topic_names())
        group.views = views
        if not bumps and metadata_hash != group.metadata_hash:
            bumps = 1
        return epoch + bumps, metadata_hash

    def _begin_epoch(self, group: ConsumerGroup, epoch: int, metadata_hash: int) -> None:
        self.coordinator.counts.consumer_epochs += epoch - max(group.epoch, FIRST_EPOCH)
        group.epoch, group.metadata_hash = epoch, metadata_hash

    def _next_target(self, group: ConsumerGroup, epoch: int) -> dict[str, Assignment] | None:
        """Returns the new target. None: the present one is up to date, or must stay until the
        assignment interval is over."""
        if epoch <= group.target_epoch:
            return None
        if group.target_epoch > 0:
            interval_ms = self.dependencies.timeouts(group.group_id).assignment_ms
            left_ms = wait_ms(group.assigned_ms, interval_ms, self.coordinator.wall_ms())
            if left_ms > 0:
                self._assign_later(group, left_ms)
                return None
        return self._new_target(group)

    def _assign_later(self, group: ConsumerGroup, delay_ms: int) -> None:
        """Delays the next assignment by `delay_ms`: members that join in this time share it."""
        if group.assigns_later is None:
            group.assigns_later = self.after(delay_ms, lambda: self._assign_due(group))

    def _assign_due(self, group: ConsumerGroup) -> None:
        group.assigns_later = None
        if group.dead or group.epoch <= group.target_epoch or not group.members:
            return
        try:
            target = self._new_target(group)
        except UnknownServerError:
            return  # it was logged; the next heartbeat tries again and answers
        entries = self._take_target(group, target, group.epoch)
        self.writes.write(group, entries, None)

    def _take_target(
        self, group: ConsumerGroup, target: dict[str, Assignment], epoch: int
    ) -> list[Entry]:
        return take_target(records.KIND, group, target, epoch, self.coordinator.wall_ms())

    def _new_target(self, group: ConsumerGroup) -> dict[str, Assignment]:
        views = self.dependencies.topics()
        return new_target(
            group.group_id,
            group.subscribers(views),
            views,
            group.target,
            group.assignor(self.settings.assignors[0]),
            self.dependencies.assign,
        )

    # -- leaving --------------------------------------------------------------------------------

    def _leave(self, group_id: str, asked: Heartbeat, answer: AnswerHeartbeat) -> None:
        try:
            self.coordinator.check(group_id)
            group = self.group(group_id)
            member = checked_member(group, asked.member_id, asked.instance_id)
        except KafkaError as error:
            answer(HeartbeatResult(error))
            return
        result = HeartbeatResult(None, member.member_id, asked.member_epoch)
        done = answering(answer, result, HeartbeatResult)
        if asked.member_epoch == LEAVE_STATIC:
            # Its place and its partitions are kept until its session ends.
            away = member._replace(epoch=LEAVE_STATIC, revoking=NOTHING)
            group.put(away)
            self.timers.watch_rebalance(group, away)
            self.writes.write(group, [records.current_entry(group_id, away)], done)
        else:
            self.fence(group, [member], done)

    def fence(
        self, group: ConsumerGroup, members: Collection[ConsumerMember], done: Done | None = None
    ) -> None:
        """Removes members; their partitions become free. Calls `done` when that is durable."""
        leaving = {member.member_id for member in members}
        if self.migration.downgrades_without(group, leaving):
            for member_id in leaving:
                self.timers.forget(group, member_id)
            self.migration.downgrade(group, leaving, done)
            return
        entries: list[Entry] = []
        for member in members:
            group.remove(member.member_id)
            self.timers.forget(group, member.member_id)
            group.writes.removed_members.add(member.member_id)
            self.regexes.forget_left(group, member, entries)
            entries += records.member_tombstones(group.group_id, member.member_id)
        self._begin_epoch(group, *self.next_epoch(group, 1))
        self.writes.write(group, [records.group_entry(group), *entries], done)

    def _expire(self, group: ConsumerGroup, member: ConsumerMember, timeout: str) -> None:
        """Removes a member that has exceeded a timeout."""
        log.info(EXPIRED[timeout], group.group_id, member.member_id)
        self.fence(group, [member])

    # -- the journal's calls --------------------------------------------------------------------

    def resume(self, group: ConsumerGroup) -> None:
        """Starts the sessions of a group's members after it was read from the log."""
        group.settle_owners()
        session_ms = self.dependencies.timeouts(group.group_id).session_ms
        for member in group.members.values():
            classic = member.classic
            own_ms = session_ms if classic is None else classic.session_timeout_ms
            self.timers.extend_session(group, member.member_id, own_ms)
            if classic is None:
                self.timers.watch_rebalance(group, member)

    def forget(self, group: ConsumerGroup) -> None:
        """Drops a group that was deleted or moved. The journal answers its waiting requests."""
        group.table = None
        group.dead = True
        cancel(group.assigns_later, group.writes.catches_up_later)
        group.assigns_later = group.writes.catches_up_later = None
        self.timers.forget_all(group)


def _refuse(rows: Sequence[Asked], error: KafkaError) -> None:
    for _, answer in rows:
        answer(HeartbeatResult(error))
