"""The change that a request makes to one member of a consumer group. A refusal reverts it.

Several members may change at once and be assigned together; their changes are reverted in the
reverse order. Plain state. Next: consumer_heartbeats.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from barnabas.coordinator.groups.consumer_group import ConsumerGroup
from barnabas.coordinator.groups.consumer_member import ConsumerMember
from barnabas.coordinator.groups.target_assignment import NOTHING, Assignment


class Change:
    """The change of one member: a new member, a new version of it, or its replacement by
    another."""

    __slots__ = (
        "_inherited",
        "before",
        "bumps",
        "known",
        "member",
        "owned",
        "replaced",
        "resubscribed",
    )

    def __init__(
        self,
        member: ConsumerMember,
        before: ConsumerMember,
        replaced: ConsumerMember | None,
        *,
        owned: Mapping[bytes, Collection[int]] | None,
        bumps: bool,
        resubscribed: bool,
    ) -> None:
        self.member = member
        self.before = before  # the member before the request, or an empty one
        self.replaced = replaced
        self.owned = owned  # partitions that the member reports; None: no report
        self.bumps = bumps  # whether the group epoch increases
        self.resubscribed = resubscribed
        self.known: ConsumerMember | None = None  # the group's member of this id before
        self._inherited: Assignment = NOTHING

    def enter(self, group: ConsumerGroup) -> None:
        """Makes the change in the group: the new member inherits the target of a replaced one."""
        member_id, replaced = self.member.member_id, self.replaced
        self.known = group.members.get(member_id)
        if replaced is not None:
            self._inherited = group.target_of(replaced.member_id)
            group.remove(replaced.member_id)
            group.target[member_id] = self._inherited
        group.put(self.member)

    def take_back(self, group: ConsumerGroup) -> None:
        """Reverts the change in the group."""
        if self.known is not None:
            group.put(self.known)
        else:
            group.remove(self.member.member_id)
        if self.replaced is not None:
            group.put(self.replaced)
            group.target[self.replaced.member_id] = self._inherited
