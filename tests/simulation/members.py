"""The members of a consumer group (KIP-848) of a simulated broker.

They join, heartbeat, get partitions of a topic and give them back, and leave. A member says in each
heartbeat what it owns. Checked: a member whose last heartbeat was answered is known with its epoch,
also after a power cut; its epoch does not go back; a partition has one owner at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from simulation.committers import partition_of
from simulation.log_rows import Violation
from simulation.parking import Awaited

from barnabas.errors import FencedMemberEpoch, NotCoordinator, UnknownMemberId
from barnabas.wire import Struct, request, response
from barnabas.wire.headers import decode_response_header, encode_request
from barnabas.wire.internal import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from simulation.base_world import BaseWorld
    from simulation.node import SimNode

MEMBERS = 3
REBALANCE_MS = 600_000
CONNECTION = SimpleNamespace(connection_id=0, client_id="member", peer=("node", 1))
LEAVES = 0.1  # the probability at each turn
FORGOTTEN = (FencedMemberEpoch.code, UnknownMemberId.code)

Place = tuple[bytes, int]  # topic id, partition


@dataclass(slots=True, eq=False)
class Member:
    """`is_sure`: its last heartbeat was answered. `poll` returns the answer to a heartbeat."""

    name: str
    epoch: int = 0
    owned: set[Place] = field(default_factory=set)
    is_sure: bool = False
    end: int = 0  # of the group's log, when its last heartbeat was answered
    asked: tuple[int, Callable[[], bytes | None]] | None = None  # with this epoch


class Members:
    """The consumer group of a world with one broker, which reads `topic`."""

    group, key, version = "members", 68, 1  # of its heartbeats

    def __init__(self, world: BaseWorld, topic: str) -> None:
        self._world, self._topic = world, topic
        self._members = [Member(f"member-{at}") for at in range(MEMBERS)]

    def send(self, may_leave: bool) -> None:
        """Lets one member send its next heartbeat."""
        world = self._world
        member = world.choice(self._members)
        if member.asked is not None:
            return
        epoch = member.epoch
        if epoch > 0 and may_leave and world.happens(LEAVES):
            epoch = -1
            member.owned = set()
        member.is_sure = member.is_sure and epoch >= 0
        for broker in world.alive():
            if broker.takes_now(self.key):
                self._ask(broker, member, epoch)

    def _ask(self, broker: SimNode, member: Member, epoch: int) -> None:
        member.asked = epoch, lambda: None
        waiting = self._world.handled(broker, self._frame(member, epoch), CONNECTION)
        if isinstance(waiting, Awaited):
            member.asked = epoch, lambda: waiting.answer
        else:
            member.asked = None if waiting is None else (epoch, lambda: waiting)

    def _frame(self, member: Member, epoch: int) -> bytes:
        message = request(self.key)
        body = message.cls(
            groupId=self.group,
            memberId=member.name,
            memberEpoch=epoch,
            **self._fields(member, epoch),
        )
        return encode_request(self.key, self.version, 1, "client", body, framed=False)

    def _fields(self, member: Member, epoch: int) -> dict[str, Any]:
        """Returns what a heartbeat says of subscription and partitions."""
        row_of = request(self.key).struct("topicPartitions")
        owned: dict[bytes, list[int]] = {}
        for topic_id, index in sorted(member.owned):
            owned.setdefault(topic_id, []).append(index)
        rows = [row_of(topicId=topic_id, partitions=rows) for topic_id, rows in owned.items()]
        return {
            "rebalanceTimeoutMs": REBALANCE_MS if epoch >= 0 else -1,
            "subscribedTopicNames": [self._topic] if epoch >= 0 else None,
            "topicPartitions": rows if epoch >= 0 else None,
        }

    def _assigned(self, answer: Struct) -> set[Place] | None:
        """Returns what a member gets; None: nothing has changed."""
        if answer.assignment is None:
            return None
        return {
            (bytes(row.topicId), index)
            for row in answer.assignment.topicPartitions
            for index in row.partitions
        }

    def lost(self, _broker: SimNode) -> None:
        """Drops what waits at a broker that is killed."""
        for member in self._members:
            if member.asked is not None:
                member.asked, member.is_sure = None, False

    def take_back(self, ends: Sequence[int]) -> None:
        """Lets the members join anew that a power cut may have taken from the group. `ends`: of
        the partitions of __consumer_offsets."""
        if any(row.end > ends[partition_of(self.group)] for row in self._members):
            for member in self._members:
                member.epoch, member.owned, member.is_sure, member.end = 0, set(), False, 0

    def poll(self) -> None:
        for broker in self._world.alive():
            for member in self._members:
                answer = None if member.asked is None else member.asked[1]()
                if answer is not None and not self._world.loses_answer(self.key, broker):
                    assert member.asked is not None
                    epoch, _ = member.asked
                    member.asked = None
                    self._answered(member, epoch, answer)

    def _answered(self, member: Member, epoch: int, frame: bytes) -> None:
        _, begin = decode_response_header(frame, self.key, self.version)
        answer = response(self.key).decode(frame, self.version, begin)
        world, code = self._world, answer.errorCode
        if code:
            world.counts[f"heartbeat error {code} in {self.group}"] += 1
            # The log has refused the change, which the broker's memory may have.
            member.is_sure = member.is_sure and code != NotCoordinator.code
            if code in FORGOTTEN:
                if member.is_sure and epoch > 0:
                    raise Violation(
                        f"group {self.group}: {member.name} has heartbeat with epoch {epoch},"
                        f" which was acknowledged, and got error {code}"
                    )
                member.epoch, member.owned, member.is_sure = 0, set(), False
        elif epoch < 0:
            world.counts["members left"] += 1
            member.epoch, member.owned, member.is_sure = 0, set(), False
        else:
            self._joined(member, epoch, answer)

    def _joined(self, member: Member, epoch: int, answer: Struct) -> None:
        self._world.counts[f"heartbeats of {self.group}"] += 1
        if answer.memberEpoch < epoch:
            raise Violation(f"group {self.group}: {member.name} goes back from epoch {epoch} to"
                            f" {answer.memberEpoch}")  # fmt: skip
        member.epoch, member.is_sure = answer.memberEpoch, True
        member.end = self._world.end_of(CONSUMER_OFFSETS, partition_of(self.group))
        assigned = self._assigned(answer)
        if assigned is None:
            return
        for other in self._members:
            if other is not member and (both := other.owned & assigned):
                raise Violation(f"group {self.group}: {member.name} and {other.name} own the"
                                f" partition {min(both)[1]}")  # fmt: skip
        self._world.counts[f"assignments of {self.group}"] += 1
        member.owned = assigned
