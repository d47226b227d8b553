"""The metadata of topics that groups use: id, partition count and racks, and one hash of them.

Each cluster state gets new views; their values are computed at the first use. The hash is stored
with a group's epoch, so that the epoch increases when a subscribed topic is created, deleted,
extended or moved to other racks, also while no coordinator was running. Kafka computes its hash
differently: a group that moves between the two brokers is assigned once more. Next:
target_assignment.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from barnabas.metadata.cluster_state import ClusterState, Topic
from barnabas.wire.uuids import uuid_bytes, uuid_text

HASH_BYTES = 8
NO_TOPICS_HASH = 0


class TopicView(NamedTuple):
    """The metadata of one topic."""

    topic_id: bytes
    name: str
    partition_count: int
    racks: tuple[frozenset[str], ...] = ()  # of each partition's replicas; may be empty


class TopicViews:
    """The topics of one state of the cluster. Compare with `is` to see whether they may differ."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._racks = {
            node_id: broker.registration.rack
            for node_id, broker in state.brokers.items()
            if broker.registration.rack
        }
        self._views: dict[str, TopicView | None] = {}
        self._hashes: dict[str, bytes] = {}

    def is_of(self, state: ClusterState) -> bool:
        """Returns whether another state has the same topics and racks."""
        return state.topics is self._state.topics and state.brokers is self._state.brokers

    def names(self) -> Collection[str]:
        return self._state.topics.keys()

    def named(self, name: str) -> TopicView | None:
        """Returns the view of a topic, or None when it does not exist or is being deleted."""
        if name not in self._views:
            topic = self._state.topic(name)
            self._views[name] = None if topic is None else self._view(topic)
        return self._views[name]

    def with_id(self, topic_id: bytes) -> TopicView | None:
        """Returns the view of a topic; None when it does not exist or is being deleted."""
        topic = self._state.topic_by_id(uuid_text(topic_id))
        return None if topic is None else self.named(topic.name)

    def _view(self, topic: Topic) -> TopicView | None:
        if topic.deleting or topic.topic_id is None:
            return None
        racks: tuple[frozenset[str], ...] = ()
        if self._racks:
            racks = tuple(
                frozenset(self._racks[node] for node in partition.replicas if node in self._racks)
                for partition in topic.partitions.values()
            )
        return TopicView(uuid_bytes(topic.topic_id), topic.name, len(topic.partitions), racks)

    def ids_of(self, names: Iterable[str]) -> frozenset[bytes]:
        """Returns the ids of the existing topics among these names."""
        views = (self.named(name) for name in names)
        return frozenset(view.topic_id for view in views if view is not None)

    def hash_of(self, names: Iterable[str]) -> int:
        """Returns the hash of the metadata of these topics, as an int64."""
        from hashlib import blake2b  # imported here: a start without groups does not need it

        total = blake2b(digest_size=HASH_BYTES)
        any_there = False
        for name in sorted(names):
            if name not in self._hashes:
                view = self.named(name)
                text = b"" if view is None else repr((view[:3], *map(sorted, view.racks))).encode()
                self._hashes[name] = text and blake2b(text, digest_size=HASH_BYTES).digest()
            found = self._hashes[name]
            any_there = any_there or bool(found)
            total.update(found)
        if not any_there:
            return NO_TOPICS_HASH
        return int.from_bytes(total.digest(), "big", signed=True)


class LastViews:
    """The topics of the last cluster state. A state with the same topics has the same views."""

    def __init__(self, cluster: Callable[[], ClusterState]) -> None:
        self._cluster = cluster
        self._views: TopicViews | None = None

    def __call__(self) -> TopicViews:
        state, views = self._cluster(), self._views
        if views is None or not views.is_of(state):
            views = self._views = TopicViews(state)
        return views
