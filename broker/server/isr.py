"""The in-sync replicas (ISR) of the partitions that this node leads: shrinking and expanding.

A follower that was not caught up for replica.lag.time.max.ms is removed from the ISR. A follower
that has fetched up to the high watermark, and to the start of the leader's epoch, is added. The
leader writes the change into the partition's state in the metadata tree, with the version that it
knows. When the controller has written the state since, the leader writes nothing and applies the
new state. A write that adds a member checks the version of the topic's assignment too: a leader may
learn of the epoch at the end of a move before it reads the new replicas, and a former replica would
stay in the ISR.

With log.durability=os, acknowledged records may be in the memory of the ISR only. Before the ISR
becomes smaller than min.insync.replicas, or this node alone, the leader therefore flushes the log:
after a power cut the last replica has everything that was acknowledged (KIP-966). When the
controller makes the ISR as small, because brokers have died, the leader flushes as soon as it
learns of it.

A leader whose log can be read and not written (a full disk) gives the partition up: it leaves the
ISR and writes a state without a leader, and the controller elects another member of the ISR. A
Kafka controller would elect nobody, so a leader beside Kafka brokers stays. Logs that are offline
are reported to the controller instead (log_dir_reports.py).

While a follower is being added, the high watermark already includes it: the controller may elect it
from the moment at which the tree has the new ISR (KIP-497).

Source: Kafka's Partition.maybeShrinkIsr and maybeExpandIsr.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from barnabas.cext.log.log_handle import LogError
from barnabas.cext.partition.partitions import PartitionTable
from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import ClusterState, ClusterStateReader
from barnabas.metadata.state_changes import shares_with_notes
from barnabas.metadata.tree import MetadataError, MetadataTree, MultiFailed, SetData

log = logging.getLogger("barnabas.replicas")


NO_LEADER = -1

Place = tuple[str, int]  # topic, partition


class Change(NamedTuple):
    """A wanted state of a partition, and the version of the state that it replaces."""

    topic: str
    number: int
    after: znodes.PartitionState
    before: znodes.PartitionState
    version: int
    assignment_version: int

    @property
    def place(self) -> Place:
        return self.topic, self.number

    @property
    def is_growth(self) -> bool:
        return not set(self.after.isr) <= set(self.before.isr)

    @property
    def operation(self) -> SetData:
        path = znodes.partition_state_path(self.topic, self.number)
        return SetData(path, self.after.encode(), self.version)


class IsrChanges:
    """Shrinks and grows the ISRs of the partitions that this node leads."""

    def __init__(
        self,
        table: PartitionTable,
        tree: MetadataTree,
        reader: ClusterStateReader,
        node_id: int,
        isr_size_min: Callable[[str], int] | None = None,
    ) -> None:
        """`isr_size_min`: min.insync.replicas of a topic; None with log.durability=fsync, where
        every acknowledged record is on the disks of the ISR anyway."""
        self._table = table
        self._tree = tree
        self._reader = reader
        self._node_id = node_id
        self._isr_size_min = isr_size_min
        self._seen = ClusterState()  # whose small ISRs are flushed

    def shrink(self) -> None:
        """Removes the followers that were not caught up for replica.lag.time.max.ms from the
        ISR."""
        late = sorted(self._table.lagging())
        state = self._reader.state
        changes = []
        for topic, index, leaving in late:
            change = self._change(state, topic, index, remove=leaving)
            if change is not None and self._is_flushed(topic, index, change.after.isr):
                log.info(
                    "%s-%d: removing brokers %s from the ISR %s: they were not caught up for"
                    " replica.lag.time.max.ms",
                    topic,
                    index,
                    leaving,
                    change.before.isr,
                )
                changes.append(change)
        self._write(changes)

    def grow(self) -> None:
        """Adds the followers that have caught up to the ISR."""
        state = self._reader.state
        changes = []
        for topic, index, coming in sorted(self._table.caught_up()):
            alive = [broker_id for broker_id in coming if broker_id in state.brokers]
            change = self._change(state, topic, index, add=alive)
            if change is not None:
                changes.append(change)
        self._write(
            [
                row
                for row in changes
                if self._table.set_isr(*row.place, row.after.isr, is_pending=True)
            ]
        )

    def flush_small(self) -> None:
        """Flushes the logs that this node leads in the newest state with a small ISR."""
        before, state = self._seen, self._reader.state
        for name, topic in state.topics.items():
            if before.topics.get(name) is topic:
                continue
            for index, partition in topic.partitions.items():
                now = partition.state
                if now is not None and now.leader == self._node_id and len(partition.replicas) > 1:
                    self._is_flushed(name, index, now.isr)
        self._seen = state

    def _is_flushed(self, topic: str, index: int, isr: tuple[int, ...]) -> bool:
        """Flushes the log of a partition if `isr` is small; returns whether nothing failed. After a
        failed flush the log is offline."""
        if self._isr_size_min is None or len(isr) >= max(self._isr_size_min(topic), 2):
            return True
        partition = self._table.partition(topic, index)
        own = None if partition is None else partition.log
        if own is None:
            return False
        try:
            end = own.end_offset
            if own.flushed_offset < end:
                own.flush()
                log.info("%s-%d: flushed up to offset %d for the ISR %s", topic, index, end, isr)
        except LogError as error:
            log.error("%s-%d: cannot be flushed for the ISR %s: %s", topic, index, isr, error)
            return False
        return True

    def resign(self, places: Iterable[Place]) -> None:
        """Gives up partitions that this node leads and cannot write, where the log is not offline
        and another member of the ISR is alive."""
        state = self._reader.state
        if not all(broker.registration.features for broker in state.brokers.values()):
            return  # a Kafka broker, which may be the controller, registers none
        changes = []
        for topic, index in places:
            own = self._table.partition(topic, index)
            if own is None or own.offline:
                continue
            away = state.brokers.keys() - {self._node_id}
            change = self._change(state, topic, index, remove=[self._node_id])
            if change is None or away.isdisjoint(change.after.isr):
                continue
            before = change.before
            log.warning(
                "%s-%d: this broker cannot write the log and gives the partition up to one of %s",
                topic,
                index,
                change.after.isr,
            )
            after = replace(change.after, leader=NO_LEADER, leader_epoch=before.leader_epoch + 1)
            changes.append(change._replace(after=after))
        self._write(changes)

    def _change(
        self,
        state: ClusterState,
        topic: str,
        index: int,
        remove: Iterable[int] = (),
        add: Iterable[int] = (),
    ) -> Change | None:
        partition = state.partition(topic, index)
        if partition is None or partition.state is None:
            return None
        before = partition.state
        if before.leader != self._node_id:
            return None
        kept = [row for row in before.isr if row not in remove]
        isr = (*kept, *(row for row in add if row not in kept and row in partition.replicas))
        if isr == before.isr:
            return None
        return Change(
            topic,
            index,
            replace(before, isr=isr),
            before,
            partition.state_version,
            state.topics[topic].assignment_version,
        )

    def _write(self, changes: list[Change]) -> None:
        """Writes the changes, in one multi where they fit. If another writer has changed one of the
        states, each is written separately. When a state cannot be written, its previous ISR is set
        again."""
        if not changes:
            return
        try:
            self._write_together(changes)
        except MultiFailed:
            for change in changes:
                try:
                    self._write_together([change])
                except MetadataError as error:
                    log.info("%s-%d: cannot change the ISR: %s", change.topic, change.number, error)
        except MetadataError as error:
            log.warning("cannot change the ISR of %d partitions: %s", len(changes), error)
        finally:
            self._reader.refresh_partitions(change.place for change in changes)
            self._settle(changes)

    def _write_together(self, changes: list[Change]) -> None:
        operations = [row.operation for row in changes]
        assignments = {row.topic: row.assignment_version for row in changes if row.is_growth}
        for part in shares_with_notes(operations, self._tree, assignments=assignments):
            self._tree.multi(part)

    def _settle(self, changes: list[Change]) -> None:
        """Sets the ISR of the tree for partitions whose change was not written."""
        state = self._reader.state
        for change in changes:
            partition = state.partition(change.topic, change.number)
            now = None if partition is None else partition.state
            if now is not None and now.leader == self._node_id and now.isr == change.before.isr:
                self._table.set_isr(*change.place, now.isr, is_pending=False)
