"""The members of a share group of a simulated cluster.

Each member fetches from one partition (ShareFetch 2, from the leader that some broker names) and
acknowledges what it has acquired, with its next fetch or with ShareAcknowledge: it accepts most
records, releases some, and rejects a few. A member dies at times, and its connection closes; so it
does when an answer is lost, when it is refused, and when its leader dies or stands still. The next
one has another id.

The state of the group is in __share_group_state, whose partitions move like others. Checked: a
record whose acceptance or rejection was confirmed is not delivered again by a leader; at the end,
each acknowledged record of the topic has been delivered.

A former leader that has not heard of its successor yet may deliver a record which the successor's
members have acknowledged, as in Kafka: acquisitions are not written. It cannot confirm the
acknowledgement, because the share coordinator fences it. So only a delivery by the leader that the
tree has is checked.

The delivery count of a record is checked, too: behind a release that was confirmed it is larger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from simulation.log_rows import Violation
from simulation.parking import Awaited

from barnabas.coordinator.journal import id_hash
from barnabas.coordinator.share.share_state import ShareKey
from barnabas.metadata.znodes import uuid_bytes
from barnabas.wire import Struct, request, response
from barnabas.wire.headers import decode_response_header, encode_request
from barnabas.wire.internal import SHARE_GROUP_STATE

if TYPE_CHECKING:
    from simulation.base_world import BaseWorld
    from simulation.judge import Log
    from simulation.node import SimNode

GROUP, MEMBERS, PARTITIONS = "sharers", 4, 2  # of __share_group_state
FETCH, ACKNOWLEDGE, VERSION = 78, 79, 2
RECORDS_MAX, BYTES_MAX = 40, 1 << 20
ACCEPT, RELEASE, REJECT = 1, 2, 3
KINDS = (ACCEPT,) * 8 + (RELEASE, REJECT)
DIES, GIVES_UP = (
    0.03,
    0.1,
)  # the probabilities at each turn; the latter while its leader stands still
GIVES_UP_NS = 20 * 10**9


@dataclass(slots=True, eq=False)
class Asked:
    """A request that waits for the acknowledgements in it (`kinds`, by offset)."""

    key: int
    until_ns: int
    kinds: dict[int, int]
    poll: Callable[[], bytes | None]


@dataclass(slots=True, eq=False)
class Member:
    """A member with a session at one leader, in one of its lives."""

    number: int
    log: Log
    leader: SimNode
    life: int
    epoch: int = 0
    held: list[int] = field(default_factory=list)  # acquired and not acknowledged
    counts: dict[int, int] = field(default_factory=dict)  # delivery counts, by offset
    asked: Asked | None = None

    @property
    def connection(self) -> Any:
        return SimpleNamespace(
            connection_id=self.number, listener="PLAINTEXT", report_close=lambda: None
        )


class Sharers:
    """The share group of a world, which reads the partitions of `topic`."""

    def __init__(self, world: BaseWorld, topic: str) -> None:
        self._world, self._topic = world, topic
        self._members: list[Member | None] = [None] * MEMBERS
        self._count = 0
        self._has_begun = False
        # Accepted or rejected, and confirmed; the end of the state's log at that time.
        self._settled: dict[Log, dict[int, int]] = {}
        self._lost: dict[Log, set[int]] = {}  # offsets that were delivered before a power cut
        self._delivered: dict[Log, set[int]] = {}
        # The delivery count that was confirmed; the end of the state's log at that time.
        self._released: dict[Log, dict[int, tuple[int, int]]] = {}

    def begin(self, broker: SimNode) -> None:
        """Lets the group begin at the first records, as when an administrator sets its offsets."""
        answers: list[object] = []
        logs = self._logs()
        for topic_id, index in logs:
            key = ShareKey(GROUP, topic_id, index)
            broker.share.persister.initialize(key, 1, 0, answers.append)
        self._world.until(lambda: len(answers) == len(logs), "the share group does not begin")
        assert not any(answers), answers
        self._has_begun = True

    @property
    def has_all(self) -> bool:
        """Whether each acknowledged record has been delivered."""
        known = self._world.judge.acknowledged
        return all(
            known.get(log, {}).keys()
            <= self._delivered.get(log, set()) | self._lost.get(log, set())
            for log in self._logs()
        )

    def described(self) -> str:
        known = self._world.judge.acknowledged
        left = {
            log[1]: sorted(known.get(log, {}).keys() - self._delivered.get(log, set()))[:5]
            for log in self._logs()
        }
        return f"not delivered to the share group: {left}"

    def take_back(self, ends: Mapping[Log, int], state_ends: Sequence[int]) -> None:
        """Forgets what a power cut has taken: records at and above an offset of each log, and
        acknowledgements that were above an offset of __share_group_state."""
        for log in self._logs():
            end, state_end = ends[log], state_ends[self._partition_of(log)]
            lost = {at for at in self._delivered.get(log, ()) if at >= end}
            self._delivered.setdefault(log, set()).difference_update(lost)
            self._lost.setdefault(log, set()).update(lost)
            settled, released = self._settled.get(log, {}), self._released.get(log, {})
            self._settled[log] = {
                at: said for at, said in settled.items() if at < end and said <= state_end
            }
            self._released[log] = {
                at: row for at, row in released.items() if at < end and row[1] <= state_end
            }

    def _partition_of(self, log: Log) -> int:
        return id_hash(ShareKey(GROUP, *log).text()) % PARTITIONS

    def _logs(self) -> list[Log]:
        return [
            row.log for (name, _), row in self._world.partitions().items() if name == self._topic
        ]

    # -- turns

    def send(self, may_die: bool) -> None:
        """Lets one member send its next request."""
        if not self._has_begun:
            return
        at = self._world.below(MEMBERS)
        member = self._members[at]
        if member is None:
            self._members[at] = self._new(at)
        elif member.asked is None:
            self._act(at, member, may_die)

    def _new(self, at: int) -> Member | None:
        world, logs = self._world, self._logs()
        log = logs[at % len(logs)]
        view = world.choice(world.alive()).reader.state
        for topic in view.topics.values():
            if topic.topic_id is None or uuid_bytes(topic.topic_id) != log[0]:
                continue
            state = topic.partitions[log[1]].state
            leader = None if state is None else world.brokers.get(state.leader)
            if leader in world.alive():
                self._count += 1
                return Member(self._count, log, leader, leader.life)
        return None

    def _act(self, at: int, member: Member, may_die: bool) -> None:
        world, leader = self._world, member.leader
        if not leader.is_running or leader.life != member.life:
            self._end(at, member)
        elif leader.is_paused:
            if world.happens(GIVES_UP):
                self._end(at, member)
        elif may_die and world.happens(DIES):
            self._end(at, member)
        elif leader.takes_now(FETCH):
            kinds: dict[int, int] = {}
            if member.held and world.happens(0.7):
                kinds = {offset: world.choice(KINDS) for offset in member.held}
            key = ACKNOWLEDGE if kinds and world.happens(0.4) else FETCH
            self._ask(at, member, key, kinds)

    def _ask(self, at: int, member: Member, key: int, kinds: dict[int, int]) -> None:
        world, leader = self._world, member.leader
        if world.loses(key, leader, None):
            return self._end(at, member)
        waiting = world.handled(leader, self._frame(member, key, kinds), member.connection)
        if not isinstance(waiting, Awaited):
            return self._end(at, member)
        member.epoch += 1
        member.held = [offset for offset in member.held if offset not in kinds]
        member.asked = Asked(key, world.now_ns + GIVES_UP_NS, kinds, lambda: waiting.answer)

    def _frame(self, member: Member, key: int, kinds: dict[int, int]) -> bytes:
        message = request(key)
        batch_of = message.struct("topics.partitions.acknowledgementBatches")
        batches = [
            batch_of(firstOffset=offset, lastOffset=offset, acknowledgeTypes=[kind])
            for offset, kind in sorted(kinds.items())
        ]
        part = message.struct("topics.partitions")(
            partitionIndex=member.log[1], acknowledgementBatches=batches
        )
        topic = message.struct("topics")(topicId=member.log[0], partitions=[part])
        limits = {}
        if key == FETCH:
            limits = {"maxBytes": BYTES_MAX, "maxRecords": RECORDS_MAX, "batchSize": RECORDS_MAX}
        body = message.cls(
            groupId=GROUP,
            memberId=f"member-{member.number}",
            shareSessionEpoch=member.epoch,
            topics=[topic],
            **limits,
        )
        return encode_request(key, VERSION, 1, "client", body, framed=False)

    def _end(self, at: int, member: Member) -> None:
        """Ends a member; its broker learns that the connection is closed, if it lives."""
        self._members[at] = None
        self._world.counts["members of a share group ended"] += 1
        leader = member.leader
        if leader.is_running and leader.life == member.life and not leader.is_paused:
            closed = leader.share._closed_connections
            for call in closed._callbacks.pop(member.number, ()):
                call(member.number)

    def lost(self, broker: SimNode) -> None:
        """Ends the members of a broker that is killed."""
        for at, member in enumerate(self._members):
            if member is not None and member.leader is broker:
                self._members[at] = None

    # -- answers

    def poll(self) -> None:
        for at, member in enumerate(self._members):
            if member is None or member.asked is None or member.leader.is_paused:
                continue
            asked, answer = member.asked, member.asked.poll()
            if answer is not None or self._world.now_ns > asked.until_ns:
                member.asked = None
                if answer is None or self._world.loses_answer(asked.key, member.leader):
                    self._end(at, member)
                else:
                    self._answered(at, member, asked, answer)

    def _answered(self, at: int, member: Member, asked: Asked, frame: bytes) -> None:
        _, begin = decode_response_header(frame, asked.key, VERSION)
        answer = response(asked.key).decode(frame, VERSION, begin)
        rows = [row for topic in answer.responses for row in topic.partitions]
        codes = [answer.errorCode]
        for row in rows:
            code = row.acknowledgeErrorCode if asked.key == FETCH else row.errorCode
            codes += [row.errorCode, code]
            if not code and not answer.errorCode:
                self._confirmed(member, asked.kinds)
            if asked.key == FETCH:
                self._received(member, row)
        for code in filter(None, codes):
            self._world.counts[f"share error {code}"] += 1
        if any(codes):
            self._end(at, member)

    def _confirmed(self, member: Member, kinds: dict[int, int]) -> None:
        settled = {offset for offset, kind in kinds.items() if kind != RELEASE}
        self._world.counts["shared records settled"] += len(settled)
        end = self._world.end_of(SHARE_GROUP_STATE, self._partition_of(member.log))
        self._settled.setdefault(member.log, {}).update(dict.fromkeys(settled, end))
        released = self._released.setdefault(member.log, {})
        for offset in kinds.keys() - settled:
            released[offset] = max(released.get(offset, (0, 0)), (member.counts[offset], end))

    def _received(self, member: Member, row: Struct) -> None:
        log, leader = member.log, member.leader
        offsets = {
            offset
            for given in row.acquiredRecords
            for offset in range(given.firstOffset, given.lastOffset + 1)
        }
        again = offsets & self._settled.get(log, {}).keys()
        if again and self._world.leads(leader, log):
            raise Violation(
                f"partition {log[1]}: broker {leader.node_id} has delivered offset {min(again)}"
                " again, whose acknowledgement was confirmed"
            )
        counts = {
            offset: given.deliveryCount
            for given in row.acquiredRecords
            for offset in range(given.firstOffset, given.lastOffset + 1)
        }
        released = self._released.get(log, {})
        low = [offset for offset in offsets if counts[offset] <= released.get(offset, (0, 0))[0]]
        if low and self._world.leads(leader, log):
            raise Violation(
                f"partition {log[1]}: broker {leader.node_id} has delivered offset {min(low)} with"
                f" the delivery count {counts[min(low)]}, and {released[min(low)][0]} was confirmed"
            )
        member.counts |= counts
        known = self._delivered.setdefault(log, set())
        self._world.counts["shared records delivered"] += len(offsets)
        self._world.counts["shared records delivered again"] += len(offsets & known)
        known |= offsets
        member.held += sorted(offsets)
