"""What is new in a state of the cluster for brokers that have acknowledged an earlier one.

Most brokers of a cluster have acknowledged the same state. What is new for them is computed once,
and each UpdateMetadata request, whose partitions are the same for all brokers, is encoded once: the
work and the memory of the controller grow with the partitions, not with brokers times partitions.
The requests of two brokers differ in the broker epoch only.

A `StateDifference` holds the topics that exist before and after with the same id, and new ones.
Topics that are deleted, marked for deletion or created again under their name are in `irregular`:
there each broker needs requests of its own (broker_requests.py). No function does I/O.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from barnabas.metadata.cluster_state import ClusterState, Partition, Topic
from barnabas.metadata.znodes import PartitionState
from barnabas.wire import Struct, request

UPDATE_METADATA = 6
PARTITIONS_MAX = 10_000  # in one request
DIFFERENCES_MAX = 4  # kept at a time: brokers that are slower have an earlier state
EPOCH_BYTES = 8

Place = tuple[str, int]


class PartitionRow(NamedTuple):
    """A partition in a request."""

    topic: Topic
    number: int
    partition: Partition
    state: PartitionState

    @property
    def place(self) -> Place:
        return self.topic.name, self.number


class StateDifference:
    """What is new in `state` for a broker that has acknowledged all topics of `base`."""

    def __init__(self, base: Mapping[str, Topic], state: ClusterState) -> None:
        self.base, self.state = base, state
        self.changed: list[Topic] = []
        self.irregular: list[Topic] = []
        self.newer: list[PartitionRow] = []  # for UpdateMetadata
        self.hosted: dict[int, list[PartitionRow]] = {}  # for LeaderAndIsr, by broker
        self.stopped: dict[int, list[Place]] = {}  # replicas that moved away, by broker
        self._encoded: dict[tuple[int, int], bytes] = {}
        self._lock = threading.Lock()
        self.gone: list[str] = []
        if base is not state.topics:
            self._compare()
        self.parts = [
            self.newer[at : at + PARTITIONS_MAX] for at in range(0, len(self.newer), PARTITIONS_MAX)
        ]
        self.newer_names = {row.topic.name for row in self.newer}
        self._begun: dict[int, Mapping[str, Topic]] = {}

    def _compare(self) -> None:
        base, topics = self.base, self.state.topics
        self.gone = [name for name in base if name not in topics]
        for topic in topics.values():
            before = base.get(topic.name)
            if before is topic:
                continue
            self.changed.append(topic)
            if _is_regular(before, topic):
                self._add(None if before is None else before.partitions, topic)
            else:
                self.irregular.append(topic)

    def _add(self, before: Mapping[int, Partition] | None, topic: Topic) -> None:
        for index, partition in topic.partitions.items():
            known = None if before is None else before.get(index)
            state = partition.state
            if known is partition or state is None:
                continue
            row = PartitionRow(topic, index, partition, state)
            if known is None or known.state is None:
                self.newer.append(row)
                self._host(row, partition.replicas)
                continue
            if partition.state_version > known.state_version:
                self.newer.append(row)
            is_same_epoch = known.state.leader_epoch == state.leader_epoch
            if not is_same_epoch or known.replicas != partition.replicas:
                self._host(row, partition.replicas)
            for broker_id in known.replicas:
                if broker_id not in partition.replicas:
                    self.stopped.setdefault(broker_id, []).append(row.place)

    def _host(self, row: PartitionRow, replicas: tuple[int, ...]) -> None:
        for broker_id in replicas:
            self.hosted.setdefault(broker_id, []).append(row)

    def after(self, count: int) -> Mapping[str, Topic]:
        """Returns the topics of `base` with those that the first parts have as a whole: what a
        broker knows that was interrupted after `count` parts. Such brokers share it too."""
        with self._lock:
            found = self._begun.get(count)
            if found is None:
                topics = {row.topic.name: row.topic for part in self.parts[:count] for row in part}
                for row in self.divided(count):
                    topics.pop(row.topic.name, None)
                found = self._begun[count] = MappingProxyType({**self.base, **topics})
            return found

    def divided(self, count: int) -> list[PartitionRow]:
        """Returns the rows in the first parts of a topic that the next part goes on with."""
        if not 0 < count < len(self.parts):
            return []
        topic = self.parts[count][0].topic
        return [row for part in self.parts[:count] for row in part[::-1] if row.topic is topic]

    def update_metadata(
        self, part: int, version: int, broker_epoch: int, made: Callable[[], Struct]
    ) -> bytes:
        """Returns the UpdateMetadata request with the partitions of one part, for one broker.
        `part`: -1 is a request without partitions; `made`: makes it for any broker epoch, and is
        called once for a part and version."""
        with self._lock:  # another broker needs the same bytes, and waits for them
            encoded = self._encoded.get((part, version))
            if encoded is None:
                encoded = request(UPDATE_METADATA).encode(made(), version)
                self._encoded[part, version] = encoded
        at = broker_epoch_at(version)
        if at < 0:
            return encoded
        copied = bytearray(encoded)
        copied[at : at + EPOCH_BYTES] = broker_epoch.to_bytes(EPOCH_BYTES, "big", signed=True)
        return bytes(copied)


def _is_regular(before: Topic | None, topic: Topic) -> bool:
    """Returns whether no partition of a topic is deleted, or has an older state than before."""
    if topic.deleting:
        return False
    if before is None:
        return True
    if before.deleting or before.topic_id != topic.topic_id:
        return False
    return all(
        known is (now := topic.partitions.get(index))
        or known.state is None
        or (now is not None and now.state is not None and now.state_version >= known.state_version)
        for index, known in before.partitions.items()
    )


@cache
def broker_epoch_at(version: int) -> int:
    """Returns where the broker epoch is in UpdateMetadata: only fields of fixed size come before
    it. -1: the version has none."""
    message: Any = request(UPDATE_METADATA)
    no, yes = (message.encode(message.cls(brokerEpoch=epoch), version) for epoch in (0, -1))
    return next((at for at, pair in enumerate(zip(no, yes, strict=True)) if len({*pair}) > 1), -1)


class StateDifferences:
    """The differences that the channels need, each computed once. Any thread may use it."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, int], StateDifference] = OrderedDict()
        self._lock = threading.Lock()

    def between(self, base: Mapping[str, Topic], state: ClusterState) -> StateDifference:
        """Returns what is new in `state` for a broker that has acknowledged `base`."""
        key = id(base), id(state)  # of objects that the difference holds
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                found = self._kept[key] = StateDifference(base, state)
                while len(self._kept) > DIFFERENCES_MAX:
                    self._kept.popitem(last=False)
            else:
                self._kept.move_to_end(key)
            return found

    def clear(self) -> None:
        """Forgets all, because this node is no longer the controller."""
        with self._lock:
            self._kept.clear()
