"""The offsets of share groups for administrators: describe, reset, delete.

A reset creates the state of a partition again under a higher state epoch, which fences each broker
that loaded the old state. Next: share_groups.py, persister.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from barnabas.coordinator.share.partition_ends import PartitionEnds
from barnabas.coordinator.share.persister import Persister
from barnabas.coordinator.share.share_group import StateTopic
from barnabas.coordinator.share.share_groups import ShareGroups
from barnabas.coordinator.share.share_partitions import SharePartitions
from barnabas.coordinator.share.share_state import (
    UNINITIALIZED_OFFSET,
    ShareKey,
    StoredShare,
    together,
)
from barnabas.errors import (
    KafkaError,
    UnknownTopicOrPartition,
)

UNKNOWN_LAG = -1

Done = Callable[[KafkaError | None], object]


class OffsetRow(NamedTuple):
    """The start offset and the lag of a group in one partition."""

    partition: int
    start: int = UNINITIALIZED_OFFSET
    leader_epoch: int = 0
    lag: int = UNKNOWN_LAG
    error: KafkaError | None = None


class TopicRow(NamedTuple):
    """The positions of a group in the partitions of one topic."""

    name: str
    topic_id: bytes
    rows: list[OffsetRow]


class ShareOffsets:
    """The offsets of the share groups of one node."""

    def __init__(
        self,
        groups: ShareGroups,
        persister: Persister,
        partitions: SharePartitions,
        ends: PartitionEnds,
    ) -> None:
        self._groups = groups
        self._persister = persister
        self._partitions = partitions
        self._ends = ends

    def describe(
        self,
        group_id: str,
        wanted: Mapping[str, Sequence[int]] | None,
        done: Callable[[list[TopicRow]], object],
    ) -> None:
        """Calls `done` with the positions in all partitions with a state, or in the requested ones;
        none for an absent group. Raises the error of the whole group."""
        with self._groups.lock:
            group = self._groups.group_or_none(group_id)
            topics: list[tuple[bytes | None, str, Sequence[int]]]
            if wanted is None:
                topics = [
                    (topic_id, topic.name, sorted(topic.partitions))
                    for topic_id, topic in (group.states.items() if group is not None else ())
                ]
            else:
                views = self._groups.topics()
                known = {name: views.named(name) for name in wanted}
                topics = [
                    (view.topic_id if (view := known[name]) else None, name, indexes)
                    for name, indexes in wanted.items()
                ]
        found = [
            TopicRow(name, topic_id or bytes(16), [OffsetRow(index) for index in indexes])
            for topic_id, name, indexes in topics
        ]
        keys = [
            (topic, at, ShareKey(group_id, topic.topic_id, row.partition))
            for topic in found
            if topic.topic_id != bytes(16)
            for at, row in enumerate(topic.rows)
        ]
        all_done = together(len(keys), lambda _first: done(found))
        for topic, at, key in keys:
            self._describe(key, topic, at, all_done)

    def _describe(self, key: ShareKey, topic: TopicRow, at: int, part_done: Done) -> None:
        def ended(row: OffsetRow) -> None:
            topic.rows[at] = row
            part_done(None)

        def found(error: KafkaError | None, kept: StoredShare | None) -> None:
            if error is not None:
                ended(OffsetRow(key.partition, error=error))
            elif kept is None or kept.start == UNINITIALIZED_OFFSET:
                ended(OffsetRow(key.partition))
            elif kept.complete_count < 0:
                ended(OffsetRow(key.partition, kept.start, kept.leader_epoch))
            else:
                self._ends.find(topic.name, key.partition, partial(with_lag, kept))

        def with_lag(kept: StoredShare, error: KafkaError | None, end: int) -> None:
            lag = max(end - kept.start - kept.complete_count, 0)
            if error is not None:
                ended(OffsetRow(key.partition, error=error))
            else:
                ended(OffsetRow(key.partition, kept.start, kept.leader_epoch, lag))

        try:
            self._persister.summary(key, found)
        except KafkaError as error:
            found(error, None)

    def alter(
        self,
        group_id: str,
        wanted: Mapping[str, Mapping[int, int]],
        done: Callable[[Mapping[tuple[str, int], KafkaError | None]], object],
    ) -> None:
        """Sets start offsets, by topic and partition, and calls `done` with the result for each
        partition. Raises the error of the whole group."""
        outcomes: dict[tuple[str, int], KafkaError | None] = {}
        keys: dict[ShareKey, tuple[tuple[str, int], int]] = {}
        with self._groups.lock:
            group = self._groups.empty_group(group_id, create=True)
            views = self._groups.topics()
            for name, offsets in wanted.items():
                view = views.named(name)
                for index, start in offsets.items():
                    if view is None or not 0 <= index < view.partition_count:
                        outcomes[name, index] = UnknownTopicOrPartition()
                        continue
                    keys[ShareKey(group_id, view.topic_id, index)] = (name, index), start
                    topic = group.states.setdefault(view.topic_id, StateTopic(name))
                    topic.partitions.add(index)
            if not keys:
                done(outcomes)
                return

            def begun(error: KafkaError | None) -> None:
                part_done = together(len(keys), lambda _first: finished())
                for key, (place, start) in keys.items():
                    outcomes[place] = error
                    if error is not None:
                        part_done(None)
                        continue
                    self._initialize(key, group.epoch, start, _noting(outcomes, place, part_done))

            def finished() -> None:
                self._partitions.drop(keys)
                done(outcomes)

            self._groups.states_changed(group, begun)

    def _initialize(self, key: ShareKey, epoch: int, start: int, done: Done) -> None:
        try:
            self._persister.initialize(key, epoch, start, done)
        except KafkaError as error:
            done(error)

    def delete(
        self,
        group_id: str,
        names: Sequence[str],
        done: Callable[[Mapping[str, tuple[bytes, KafkaError | None]]], object],
    ) -> None:
        """Deletes the state of topics and calls `done` with topic id and result of each topic.
        Raises the error of the whole group."""
        outcomes: dict[str, tuple[bytes, KafkaError | None]] = {}
        keys: list[ShareKey] = []
        with self._groups.lock:
            group = self._groups.empty_group(group_id)
            views = self._groups.topics()
            for name in names:
                view = views.named(name)
                topic = group.states.get(view.topic_id) if view is not None else None
                if view is None or topic is None:
                    error = UnknownTopicOrPartition(
                        None if view is None else "There is no offset information to delete."
                    )
                    outcomes[name] = bytes(16), error
                    continue
                outcomes[name] = view.topic_id, None
                keys += [ShareKey(group_id, view.topic_id, row) for row in topic.partitions]
                del group.states[view.topic_id]

            def finished(error: KafkaError | None) -> None:
                self._partitions.drop(keys)
                done({name: (row[0], row[1] or error) for name, row in outcomes.items()})

            def forgotten(error: KafkaError | None) -> None:
                if error is not None:
                    finished(error)
                    return
                with self._groups.lock:
                    self._groups.states_changed(group, finished)

            if keys:
                self._persister.delete(keys, forgotten)
            else:
                done(outcomes)


def _noting(
    outcomes: dict[tuple[str, int], KafkaError | None], place: tuple[str, int], done: Done
) -> Done:
    def noted(error: KafkaError | None) -> None:
        outcomes[place] = error
        done(None)

    return noted
