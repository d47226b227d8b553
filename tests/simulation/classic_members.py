"""The members of a classic consumer group of a simulated broker: JoinGroup, SyncGroup, Heartbeat
and LeaveGroup. The leader gives each member an assignment of its own.

Checked: a member that got an assignment is known with its generation, also after a power cut, as
long as no rebalance can have ended without it; all members of a generation get what one leader
gave; a generation that was answered is not given again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING

from simulation.committers import partition_of
from simulation.log_rows import Violation
from simulation.parking import Awaited

from barnabas.errors import (
    FencedInstanceId,
    IllegalGeneration,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from barnabas.wire import Struct, request, response
from barnabas.wire.headers import decode_response_header, encode_request
from barnabas.wire.internal import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from simulation.base_world import BaseWorld
    from simulation.node import SimNode

GROUP, INSTANCES = "classic", ("static", None)  # one static member, one dynamic
JOIN, HEARTBEAT, LEAVE, SYNC = 11, 12, 13, 14
VERSIONS = {JOIN: 9, HEARTBEAT: 4, LEAVE: 5, SYNC: 5}
SESSION_MS, REBALANCE_MS = 45_000, 3_000
SURE_NS = REBALANCE_MS * 500_000  # a rebalance that a member has not heard of lasts longer
CONNECTION = SimpleNamespace(connection_id=0, client_id="member", peer=("node", 1))
UNKNOWN = (UnknownMemberId.code, IllegalGeneration.code, FencedInstanceId.code)
TYPE, PROTOCOL = "consumer", "range"
LEAVES = 0.05  # the probability at each turn


@dataclass(slots=True, eq=False)
class Member:
    """`instance` of a static member. `next`: the key of its next request. `assignments`: those that
    it gives as a leader, by member id. `poll` returns the answer to the request under way."""

    instance: str | None
    member_id: str = ""
    generation: int = -1
    next: int = JOIN
    assignments: dict[str, bytes] = field(default_factory=dict)
    sure_until_ns: int = 0
    end: int = 0  # of the group's log, when it got its assignment
    asked: tuple[int, Callable[[], bytes | None]] | None = None


class ClassicMembers:
    """The classic group of a world with one broker."""

    def __init__(self, world: BaseWorld) -> None:
        self._world = world
        self._members = [Member(instance) for instance in INSTANCES]
        self._plans = 0
        # The number of the leader's plan, and the end of the group's log, by generation.
        self._served: dict[int, tuple[bytes, int]] = {}

    def take_back(self, ends: Sequence[int]) -> None:
        """Forgets what a power cut may have taken. `ends`: of the partitions of
        __consumer_offsets."""
        end = ends[partition_of(GROUP)]
        self._served = {at: row for at, row in self._served.items() if row[1] <= end}
        for member in self._members:
            if member.end > end:
                member.sure_until_ns = member.end = 0

    def send(self, may_leave: bool) -> None:
        """Lets one member send its next request."""
        world = self._world
        member = world.choice(self._members)
        if member.asked is not None:
            return
        key = member.next
        if key == HEARTBEAT and may_leave and world.happens(LEAVES):
            key = LEAVE
        if key != HEARTBEAT:
            member.sure_until_ns = 0
        for broker in world.alive():
            if broker.takes_now(key):
                self._ask(broker, member, key)

    def _ask(self, broker: SimNode, member: Member, key: int) -> None:
        member.asked = key, lambda: None
        frame = encode_request(
            key, VERSIONS[key], 1, "client", self._body(member, key), framed=False
        )
        waiting = self._world.handled(broker, frame, CONNECTION)
        if isinstance(waiting, Awaited):
            member.asked = key, lambda: waiting.answer
        else:
            member.asked = None if waiting is None else (key, lambda: waiting)

    def _body(self, member: Member, key: int) -> Struct:
        message = request(key)
        if key == JOIN:
            protocol = message.struct("protocols")(name=PROTOCOL, metadata=b"metadata")
            return message.cls(
                groupId=GROUP, sessionTimeoutMs=SESSION_MS, rebalanceTimeoutMs=REBALANCE_MS,
                memberId=member.member_id, groupInstanceId=member.instance, protocolType=TYPE,
                protocols=[protocol],
            )  # fmt: skip
        if key == LEAVE:
            row = message.struct("members")(
                memberId=member.member_id, groupInstanceId=member.instance
            )
            return message.cls(groupId=GROUP, members=[row])
        given = {"groupId": GROUP, "generationId": member.generation, "memberId": member.member_id}
        given["groupInstanceId"] = member.instance
        if key == SYNC:
            row_of = message.struct("assignments")
            rows = [
                row_of(memberId=name, assignment=data) for name, data in member.assignments.items()
            ]
            given |= {"protocolType": TYPE, "protocolName": PROTOCOL, "assignments": rows}
        return message.cls(**given)

    def lost(self, _broker: SimNode) -> None:
        """Drops what waits at a broker that is killed."""
        for member in self._members:
            if member.asked is not None:
                if member.asked[0] != HEARTBEAT:
                    member.next = JOIN
                if member.generation < 0:
                    member.member_id = ""  # a broker that starts again does not know it
                member.asked = None

    def poll(self) -> None:
        for broker in self._world.alive():
            for member in self._members:
                answer = None if member.asked is None else member.asked[1]()
                if answer is not None and not self._world.loses_answer(HEARTBEAT, broker):
                    assert member.asked is not None
                    key, _ = member.asked
                    member.asked = None
                    self._answered(member, key, answer)

    def _answered(self, member: Member, key: int, frame: bytes) -> None:
        _, begin = decode_response_header(frame, key, VERSIONS[key])
        answer = response(key).decode(frame, VERSIONS[key], begin)
        if key == LEAVE:
            member.member_id, member.generation, member.next = "", -1, JOIN
        elif answer.errorCode:
            self._refused(member, key, answer)
        elif key == JOIN:
            self._joined(member, answer)
        elif key == SYNC:
            self._assigned(member, bytes(answer.assignment))
        else:
            member.sure_until_ns = self._world.now_ns + SURE_NS

    def _refused(self, member: Member, key: int, answer: Struct) -> None:
        code = answer.errorCode
        self._world.counts[f"error {code} of {key} in a classic group"] += 1
        is_sure = member.sure_until_ns >= self._world.now_ns
        if is_sure and code in UNKNOWN:
            raise Violation(f"group {GROUP}: {member.member_id} of generation {member.generation}"
                            f" has its assignment, and got error {code}")  # fmt: skip
        if code == MemberIdRequired.code:
            member.member_id = answer.memberId
        elif code in (UnknownMemberId.code, FencedInstanceId.code):
            member.member_id = ""
        if code in (*UNKNOWN, RebalanceInProgress.code):
            member.next, member.sure_until_ns = JOIN, 0

    def _joined(self, member: Member, answer: Struct) -> None:
        if answer.generationId < max(self._served, default=0):
            raise Violation(f"group {GROUP}: generation {answer.generationId} begins, and"
                            f" {max(self._served)} was answered")  # fmt: skip
        member.member_id, member.generation = answer.memberId, answer.generationId
        member.assignments = {}
        if answer.leader == answer.memberId and not answer.skipAssignment:
            self._plans += 1
            member.assignments = {
                row.memberId: b"%d:%s"
                % (self._plans, (row.groupInstanceId or row.memberId).encode())
                for row in answer.members
            }
        member.next = SYNC

    def _assigned(self, member: Member, assignment: bytes) -> None:
        plan, _, name = assignment.partition(b":")
        if name != (member.instance or member.member_id).encode():
            raise Violation(f"group {GROUP}: {member.member_id} got the assignment {assignment!r}")
        end = self._world.end_of(CONSUMER_OFFSETS, partition_of(GROUP))
        known, _ = self._served.setdefault(member.generation, (plan, end))
        if known != plan:
            raise Violation(f"group {GROUP}: generation {member.generation} has the plans {known!r}"
                            f" and {plan!r}")  # fmt: skip
        self._world.counts["assignments of a classic group"] += 1
        member.next, member.end = HEARTBEAT, end
        member.sure_until_ns = self._world.now_ns + SURE_NS
