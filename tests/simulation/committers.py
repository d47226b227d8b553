"""The consumers of a simulated cluster, which commit offsets of their groups.

Each group has one consumer, which commits 1, 2, 3, ...: it repeats an offset until it is
acknowledged, and then commits the next one. It asks the broker that some broker names as the
group's coordinator. When no answer comes, it asks again, perhaps another broker; the first request
stays where it is: a paused broker answers it when it runs again, before it learns anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.cext.network.detached_request import DetachedRequest
from barnabas.coordinator.journal import id_hash
from barnabas.wire import request, response
from barnabas.wire.headers import decode_response_header, encode_request
from barnabas.wire.internal import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from simulation.base_world import BaseWorld
    from simulation.node import SimNode

GROUPS, PARTITIONS = ("alpha", "beta", "gamma"), 2  # of __consumer_offsets
OFFSET_COMMIT, VERSION = 8, 8
WAITING_MAX = 3
GIVES_UP = 0.05  # the probability that a consumer waits no longer, at each turn


def partition_of(group: str) -> int:
    return id_hash(group) % PARTITIONS


@dataclass(slots=True, eq=False)
class Commit:
    """A request that is on its way to a broker, or waits there (`call`)."""

    broker: SimNode
    offset: int
    frame: bytes
    call: DetachedRequest | None = None


@dataclass(slots=True)
class Group:
    """`offset`: the one that is not acknowledged yet."""

    name: str
    offset: int = 1
    commits: list[Commit] = field(default_factory=list)
    # Each acknowledged offset, and where the group's log ended when it was.
    acknowledged: list[tuple[int, int]] = field(default_factory=list)


class Committers:
    """The consumers of a world. They commit offsets of partition 0 of `topic`."""

    def __init__(self, world: BaseWorld, topic: str) -> None:
        self._world, self._topic = world, topic
        self.groups = [Group(name) for name in GROUPS]

    def acknowledged(self, group: Group) -> int:
        """Returns the last offset that was acknowledged; 0: none."""
        return max((row[0] for row in group.acknowledged[-1:]), default=0)

    def take_back(self, ends: Sequence[int]) -> None:
        """Forgets the offsets that a power cut may have taken. `ends`: of the partitions of
        __consumer_offsets."""
        for group in self.groups:
            end = ends[partition_of(group.name)]
            group.acknowledged = [row for row in group.acknowledged if row[1] <= end]

    def send(self) -> None:
        """Sends the commit of one group."""
        world = self._world
        group = world.choice(self.groups)
        if group.commits and not (
            len(group.commits) < WAITING_MAX and world.happens(GIVES_UP)
        ):  # fmt: skip
            return
        view = world.choice(world.alive()).reader.state
        known = view.partition(CONSUMER_OFFSETS, partition_of(group.name))
        if known is None or known.state is None or known.state.leader not in world.brokers:
            return
        broker = world.brokers[known.state.leader]
        if broker.is_running and not world.loses(OFFSET_COMMIT, broker, None):
            frame = self._frame(group)
            group.commits.append(Commit(broker, group.offset, frame))

    def _frame(self, group: Group) -> bytes:
        message = request(OFFSET_COMMIT)
        part = message.struct("topics.partitions")(partitionIndex=0, committedOffset=group.offset)
        topic = message.struct("topics")(name=self._topic, partitions=[part])
        body = message.cls(groupId=group.name, topics=[topic])
        return encode_request(OFFSET_COMMIT, VERSION, 1, "client", body)

    def poll(self) -> None:
        """Lets the brokers handle requests that have arrived, and takes the answers."""
        for group in self.groups:
            for commit in list(group.commits):
                self._poll(group, commit)

    def lost(self, broker: SimNode) -> None:
        """Drops what waits at a broker that is killed."""
        for group in self.groups:
            group.commits = [row for row in group.commits if row.broker is not broker]

    def _poll(self, group: Group, commit: Commit) -> None:
        broker = commit.broker
        if not broker.is_paused and (commit.call is None or broker in self._world.touched):
            answer = self._answer(broker, commit)
            if answer is None:
                return
            group.commits.remove(commit)
            if not self._world.loses_answer(OFFSET_COMMIT, broker):
                self._answered(group, commit, answer)

    def _answer(self, broker: SimNode, commit: Commit) -> bytes | None:
        now_ns = broker.system.monotonic_ns()
        self._world.touched.add(broker)
        if commit.call is None:
            commit.call = DetachedRequest(
                broker.native.commits, commit.frame, flexible=True, received_ns=now_ns
            )
        else:
            commit.call.resume(expired=now_ns >= commit.call.deadline_ns)
        if commit.call.is_for_python:  # as api/k08_offset_commit.py
            broker.groups.take_commits()
            commit.call = None
            return None
        return commit.call.answer

    def _answered(self, group: Group, commit: Commit, frame: bytes) -> None:
        _, at = decode_response_header(frame[4:], OFFSET_COMMIT, VERSION)
        found = response(OFFSET_COMMIT).decode(frame[4:], VERSION, at)
        code = found.topics[0].partitions[0].errorCode
        if code == 0:
            self._world.counts["commits"] += 1
            if commit.offset >= group.offset:
                end = self._world.end_of(CONSUMER_OFFSETS, partition_of(group.name))
                group.acknowledged.append((commit.offset, end))
                group.offset = commit.offset + 1
        else:
            self._world.counts[f"commit error {code}"] += 1
