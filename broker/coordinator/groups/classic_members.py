"""Members of the classic protocol in a consumer group; they are answered from the group's state.

Such a member sends JoinGroup and SyncGroup, and does not wait for others. JoinGroup acts as a
heartbeat with a subscription: its owned partitions show which ones the member has revoked, and the
answer has the epoch as the generation. SyncGroup returns the assignment at that epoch. Heartbeat
answers REBALANCE_IN_PROGRESS when joining again would change something. No member leads: the
group's assignor assigns.

A member must join again within its rebalance timeout, and then send SyncGroup within the same time.
Next: consumer_heartbeats.py, which has the steps; migration.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from barnabas.coordinator.groups.classic_group import AnswerJoin, AnswerSync, JoinResult, SyncResult
from barnabas.coordinator.groups.consumer_change import Change
from barnabas.coordinator.groups.consumer_group import ConsumerGroup
from barnabas.coordinator.groups.consumer_member import ClassicPart, ConsumerMember
from barnabas.coordinator.groups.consumer_protocol import (
    MalformedSubscription,
    Subscription,
    assignment_bytes,
    subscription_of,
)
from barnabas.coordinator.groups.group_records import Entry
from barnabas.coordinator.groups.group_writes import answering
from barnabas.coordinator.groups.member_position import UNRELEASED, UNREVOKED, in_place_of
from barnabas.coordinator.groups.membership import checked_member
from barnabas.coordinator.groups.rebalance import Join
from barnabas.coordinator.timers import cancel
from barnabas.errors import (
    FencedInstanceId,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)

if TYPE_CHECKING:
    from barnabas.coordinator.groups.consumer_heartbeats import ConsumerHeartbeats

PROTOCOL_TYPE = "consumer"
Left = list[tuple[str, str | None, KafkaError | None]]


class ClassicMembers:
    """The classic members of all consumer groups of a coordinator. Callers hold its lock."""

    def __init__(self, heartbeats: ConsumerHeartbeats) -> None:
        self._heartbeats = heartbeats
        self._coordinator = heartbeats.coordinator

    # -- JoinGroup ------------------------------------------------------------------------------

    def join(self, group: ConsumerGroup, asked: Join, answer: AnswerJoin) -> None:
        """Handles JoinGroup and calls `answer` once. Raises errors that need no wait."""
        heartbeats = self._heartbeats
        member_id = asked.member_id or self._coordinator.new_id()
        heartbeats.check_capacity(group, member_id)
        if not group.supports(asked.protocol_type, [name for name, _ in asked.protocols]):
            raise InconsistentGroupProtocol()
        if not asked.member_id and asked.instance_id is None and asked.id_required:
            answer(JoinResult(MemberIdRequired(), member_id))
            return
        try:
            subscription = subscription_of(asked.protocols[0][1])
        except MalformedSubscription as error:
            raise InconsistentGroupProtocol(str(error)) from error
        before, replaced = self._member_of(group, member_id, asked)
        member = before._replace(
            instance_id=asked.instance_id or before.instance_id,
            rack_id=subscription.rack_id or before.rack_id,
            client_id=asked.client_id,
            client_host=asked.client_host,
            topics=subscription.topics,
            regex=None,
            rebalance_timeout_ms=asked.rebalance_timeout_ms,
            classic=ClassicPart(asked.session_timeout_ms, tuple(asked.protocols)),
        )
        resubscribed = member.topics != before.topics or member.regex != before.regex
        downgrades = replaced is not None and heartbeats.migration.downgrades_by(group, replaced)
        entries: list[Entry] = []
        change = Change(
            member,
            before,
            replaced,
            owned=self._owned(subscription),
            bumps=resubscribed,
            resubscribed=resubscribed,
        )
        change.enter(group)
        (after,) = heartbeats.advance(group, entries, [change])
        result = JoinResult(
            member_id=member_id,
            generation=after.epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=asked.protocols[0][0],
        )
        if downgrades:
            self._joined_at_last(group, after, result, resubscribed, answer)
            return
        self._watch_joined(group, member_id, asked)
        done = answering(answer, result, lambda error: JoinResult(error, member_id))
        heartbeats.writes.write(group, entries, done)

    def _joined_at_last(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        result: JoinResult,
        resubscribed: bool,
        answer: AnswerJoin,
    ) -> None:
        """Turns the group into a classic one: its last member of the consumer protocol has joined
        with the classic protocol."""
        joined = result._replace(generation=group.epoch)
        done = answering(answer, joined, lambda error: JoinResult(error, member.member_id))
        # A member that is not at the group's epoch has partitions to revoke or to receive.
        rebalance = resubscribed or any(m.epoch != group.epoch for m in group.members.values())
        self._heartbeats.migration.downgrade(group, (), done, rebalance)

    def _member_of(
        self, group: ConsumerGroup, member_id: str, asked: Join
    ) -> tuple[ConsumerMember, ConsumerMember | None]:
        """Returns the known member or a new one, and the member that it replaces."""
        holder = None if asked.instance_id is None else group.instances.get(asked.instance_id)
        if asked.instance_id is None:
            return group.members.get(member_id, ConsumerMember(member_id)), None
        if asked.member_id:
            if holder is None:
                raise UnknownMemberId()
            if holder != asked.member_id:
                raise FencedInstanceId()
            return group.members[holder], None
        if holder is None:
            return ConsumerMember(member_id), None
        old = group.members[holder]
        return in_place_of(old, member_id), old

    def _owned(self, subscription: Subscription) -> dict[bytes, Collection[int]]:
        views = self._heartbeats.dependencies.topics()
        found: dict[bytes, Collection[int]] = {}
        for topic, partitions in subscription.owned.items():
            view = views.named(topic)
            if view is not None:
                found[view.topic_id] = partitions
        return found

    def _watch_joined(self, group: ConsumerGroup, member_id: str, asked: Join) -> None:
        heartbeats = self._heartbeats
        watch = heartbeats.timers.of(group, member_id)
        cancel(watch.join)
        watch.join = None
        heartbeats.timers.extend_session(group, member_id, asked.session_timeout_ms)
        cancel(watch.sync)
        watch.sync = heartbeats.after(
            asked.rebalance_timeout_ms, lambda: self._too_late(group, member_id)
        )

    def _watch_join(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Starts the rebalance timeout of a member that was asked to join again."""
        watch = self._heartbeats.timers.of(group, member.member_id)
        if watch.join is None:
            watch.join = self._heartbeats.after(
                member.rebalance_timeout_ms, lambda: self._too_late(group, member.member_id)
            )

    def _too_late(self, group: ConsumerGroup, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is not None and not group.dead:
            self._heartbeats.fence(group, [member])

    # -- SyncGroup, Heartbeat, LeaveGroup -------------------------------------------------------

    def _speaking(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[ConsumerMember, ClassicPart]:
        member = checked_member(group, member_id, instance_id)
        if member.classic is None:
            raise UnknownMemberId(f"Member {member_id} does not use the classic protocol.")
        if generation != member.epoch:
            raise IllegalGeneration()
        return member, member.classic

    def sync(
        self,
        group: ConsumerGroup,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol: tuple[str | None, str | None],
        answer: AnswerSync,
    ) -> None:
        """Handles SyncGroup and calls `answer` once. Raises errors that need no wait."""
        member, classic = self._speaking(group, member_id, instance_id, generation)
        name, metadata = classic.protocols[0]
        for given, current in zip(protocol, (PROTOCOL_TYPE, name), strict=True):
            if given is not None and given != current:
                raise InconsistentGroupProtocol()
        if group.epoch > member.epoch and member.state != UNREVOKED:
            self._watch_join(group, member)
            raise RebalanceInProgress()
        names = self._heartbeats.migration.names_of(member.assigned)
        assignment = assignment_bytes(names, subscription_of(metadata).version)

        def done(error: KafkaError | None) -> None:
            if error is not None:
                answer(SyncResult(error))
                return
            watch = self._heartbeats.timers.of(group, member_id)
            cancel(watch.sync)
            watch.sync = None
            answer(SyncResult(None, PROTOCOL_TYPE, name, assignment))

        self._heartbeats.timers.extend_session(group, member_id, classic.session_timeout_ms)
        self._heartbeats.writes.write(group, (), done)

    def heartbeat(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """Handles Heartbeat and raises its error. REBALANCE_IN_PROGRESS: joining again would change
        the assignment."""
        member, classic = self._speaking(group, member_id, instance_id, generation)
        self._heartbeats.timers.extend_session(group, member_id, classic.session_timeout_ms)
        if (
            member.epoch < group.epoch
            or member.state == UNREVOKED
            or (member.state == UNRELEASED and not group.waits_for_release(member))
        ):
            self._watch_join(group, member)
            raise RebalanceInProgress()

    def leave(self, group: ConsumerGroup, leaving: Iterable[tuple[str, str | None]]) -> Left:
        """Handles LeaveGroup for (member id, instance id) pairs and returns the result for each
        pair."""
        outcomes: Left = []
        gone: dict[str, ConsumerMember] = {}
        for member_id, instance_id in leaving:
            try:
                found_id = member_id
                if not member_id and instance_id is not None:
                    found_id = group.instances.get(instance_id, "")
                member = checked_member(group, found_id, instance_id)
                if member.classic is None:
                    raise UnknownMemberId()
                if found_id in gone:
                    raise UnknownMemberId()
                gone[found_id] = member
                outcomes.append((member_id or found_id, instance_id, None))
            except KafkaError as error:
                outcomes.append((member_id, instance_id, error))
        if gone:
            self._heartbeats.fence(group, list(gone.values()))
        return outcomes
