"""Changes the protocol of a live group: classic to consumer, and back.

The first member of the consumer protocol that joins a classic group turns it into a consumer group,
in which the others continue with the classic protocol (classic_members.py) and their assignments.
When the last member of the consumer protocol leaves, or a static member joins again with the
classic protocol, the rest becomes a classic group again, which rebalances. A group without members
takes the protocol of its next member. `group.consumer.migration.policy` allows each direction. A
change is one batch in the log: the tombstones of the old form and the records of the new one."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from barnabas.coordinator.groups import consumer_records as records
from barnabas.coordinator.groups.classic_group import EMPTY, STABLE, ClassicGroup, Member
from barnabas.coordinator.groups.consumer_group import ConsumerGroup
from barnabas.coordinator.groups.consumer_member import ClassicPart, ConsumerMember, with_epoch
from barnabas.coordinator.groups.consumer_protocol import (
    MalformedSubscription,
    assignment_bytes,
    assignment_of,
    subscription_of,
)
from barnabas.coordinator.groups.group_records import Entry, group_entry
from barnabas.coordinator.groups.group_writes import Done
from barnabas.errors import GroupIdNotFound

if TYPE_CHECKING:
    from barnabas.coordinator.groups.consumer_access import ConsumerGroups

log = logging.getLogger("barnabas.groups")

UPGRADES = ("upgrade", "bidirectional")
DOWNGRADES = ("downgrade", "bidirectional")


class Migration:
    """Migrates groups between the two protocols."""

    def __init__(self, heartbeats: ConsumerGroups) -> None:
        self._heartbeats = heartbeats
        self._coordinator = heartbeats.coordinator
        self._settings = heartbeats.settings

    # -- to the consumer protocol ---------------------------------------------------------------

    def upgraded(self, classic: ClassicGroup) -> tuple[ConsumerGroup, list[Entry]]:
        """Returns the consumer group, which is not registered yet, and its records. Raises
        GroupIdNotFound when the migration is impossible or not allowed."""
        group = ConsumerGroup(classic.group_id)
        if classic.state == EMPTY:
            return group, records.beginning(group)
        refusal = self._no_upgrade(classic)
        if refusal is not None:
            log.info("group %s remains a classic group: %s", classic.group_id, refusal)
            raise GroupIdNotFound(f"Group {classic.group_id} is not a consumer group.")
        try:
            for member in classic.members.values():
                self._take_over(group, classic, member)
        except MalformedSubscription as error:
            raise GroupIdNotFound(
                f"Group {classic.group_id} cannot become a consumer group: {error}."
            ) from error
        group.epoch = group.target_epoch = classic.generation
        log.info("group %s becomes a consumer group", classic.group_id)
        return group, records.whole_group(group)

    def _no_upgrade(self, classic: ClassicGroup) -> str | None:
        if self._settings.migration not in UPGRADES:
            return "group.consumer.migration.policy does not allow it"
        if classic.protocol_type != "consumer":
            return "its members do not use the consumer protocol"
        if len(classic.members) > self._settings.members_max:
            return "it has more members than a consumer group may have"
        return None

    def _take_over(self, group: ConsumerGroup, classic: ClassicGroup, member: Member) -> None:
        # A new member may not support the protocol of the last generation.
        names = [name for name, _ in member.protocols]
        name = classic.protocol_name if classic.protocol_name in names else names[0]
        subscription = subscription_of(member.metadata(name))
        views = self._heartbeats.dependencies.topics()
        assigned: dict[bytes, Collection[int]] = {}
        for topic, partitions in assignment_of(member.assignment).items():
            view = views.named(topic)
            # Assignments of clients are not checked: of two owners, the first keeps a partition.
            if view is not None:
                assigned[view.topic_id] = [
                    p for p in sorted(partitions) if group.owner(view.topic_id, p) is None
                ]
        owned = with_epoch(assigned, classic.generation)
        group.put(
            ConsumerMember(
                member.member_id,
                instance_id=member.instance_id,
                rack_id=subscription.rack_id,
                client_id=member.client_id,
                client_host=member.client_host,
                topics=subscription.topics,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                classic=ClassicPart(member.session_timeout_ms, tuple(member.protocols)),
                epoch=classic.generation,
                previous_epoch=classic.generation,
                assigned=owned,
            )
        )
        group.target[member.member_id] = {t: frozenset(rows) for t, rows in owned.items()}

    # -- to the classic protocol ----------------------------------------------------------------

    def downgrades_without(self, group: ConsumerGroup, leaving: Collection[str]) -> bool:
        """Returns whether the group becomes a classic one when these members have left."""
        staying = [m for m in group.members if m not in leaving]
        all_leave_the_new = any(
            group.members[m].classic is None for m in leaving if m in group.members
        )
        return (
            bool(staying)
            and all_leave_the_new
            and group.classic_count == len(staying)
            and all(group.members[m].classic is not None for m in staying)
            and self._may_downgrade(group, len(staying))
        )

    def downgrades_by(self, group: ConsumerGroup, replaced: ConsumerMember) -> bool:
        """Returns whether the group becomes a classic one when this static member joins with the
        classic protocol."""
        return group.is_classic_but_for(replaced.member_id) and self._may_downgrade(
            group, len(group.members)
        )

    def _may_downgrade(self, group: ConsumerGroup, count: int) -> bool:
        refusal = None
        if self._settings.migration not in DOWNGRADES:
            refusal = "group.consumer.migration.policy does not allow it"
        elif count > self._coordinator.settings.members_max:
            refusal = "it has more members than a classic group may have"
        if refusal is not None:
            log.info("group %s remains a consumer group: %s", group.group_id, refusal)
        return refusal is None

    def downgrade(
        self,
        group: ConsumerGroup,
        leaving: Collection[str],
        done: Done | None,
        rebalance: bool = True,
    ) -> ClassicGroup:
        """Makes a classic group without the leaving members. Calls `done` when that is durable."""
        entries = records.group_tombstones(group)
        for member_id in list(leaving):
            group.remove(member_id)
        classic = self._classic(group)
        assignments = {m.member_id: m.assignment for m in classic.members.values()}
        entries.append(group_entry(classic, assignments))
        log.info("group %s becomes a classic group", group.group_id)
        self._coordinator.replace_by_classic(group, classic)
        flight = ConsumerGroup(group.group_id)  # the writes of a deleted group
        flight.dead = True
        self._heartbeats.writes.write(flight, entries, done)
        if rebalance:
            self._coordinator.rebalance(classic)
        return classic

    def _classic(self, group: ConsumerGroup) -> ClassicGroup:
        wall_ms = self._coordinator.wall_ms()
        classic = ClassicGroup(group.group_id)
        classic.protocol_type = "consumer"
        classic.generation = group.epoch
        for member in group.members.values():
            assert member.classic is not None, "who stays is of the classic protocol"
            protocols = member.classic.protocols
            version = subscription_of(protocols[0][1]).version
            row = Member(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms,
                protocols,
                assignment_bytes(self.names_of(member.assigned), version),
            )
            classic.add(row)
        classic.protocol_name = classic.select_protocol()
        classic.state = classic.previous_state = STABLE
        classic.empty_since_ms = wall_ms
        classic.restore_subscriptions()
        return classic

    def names_of(self, assigned: Mapping[bytes, Collection[int]]) -> dict[str, Collection[int]]:
        """Returns the assignment by topic name, as the classic protocol has it."""
        views = self._heartbeats.dependencies.topics()
        found = {}
        for topic_id, partitions in assigned.items():
            view = views.with_id(topic_id)
            if view is not None:
                found[view.name] = partitions
        return found
