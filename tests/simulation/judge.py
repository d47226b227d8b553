"""Checks the invariants of a simulated cluster, after every step and at the end.

- A record that was once below a high watermark stays at its offset, on every broker.
- Below the high watermark, the records of a producer in a partition are those that it has sent
  there, each once and in order: no duplicate, no gap, and no record in the log of another topic.
- A partition has at most one leader in each leader epoch.
- The high watermark of a replica does not decrease while its broker hosts it.
- A topic is deleted only while it is marked for deletion.
- The coordinator of a group, as soon as it answers, has the last offset that was acknowledged, or a
  later one.
- The last stable offset of a replica does not decrease either, and simulation/transaction_judge.py
  checks the transactions.
- At the end, when all faults are over: every acknowledged record is at its offset; each partition
  has the replicas of its last reassignment, and no other broker has its files; the files of all
  replicas are equal by offset, bytes and leader epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from simulation.committers import partition_of
from simulation.log_rows import Row, Violation, next_offset, records_of
from simulation.transaction_judge import TransactionJudge

from barnabas.storage import partition_dirs
from barnabas.wire.internal import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from simulation.base_world import BaseWorld
    from simulation.node import SimNode

    from barnabas.cext.log.log_handle import LogHandle

Place = tuple[str, int]  # topic, partition
Log = tuple[bytes, int]  # topic id, partition
READ_BYTES = 1 << 20


class Judge:
    """Checks the cluster with access to all of its memory."""

    def __init__(self, world: BaseWorld) -> None:
        self._world = world
        self._leaders: dict[tuple[Log, int], int] = {}
        self._committed: dict[Log, dict[int, bytes]] = {}
        self._seen_to: dict[tuple[Log, int, int, int], int] = {}  # by broker, life, generation
        self._stable_to: dict[tuple[Log, int, int, int], int] = {}
        self.internal: set[Log] = set()  # no producer sends to these
        self._sent: dict[bytes, Log] = {}
        self._next: dict[tuple[Log, bytes], int] = {}  # sequence number by producer
        self.rows: dict[Log, list[Row]] = {}  # committed, in logs to which clients send
        self.lossy: set[Log] = set()  # a power cut has taken records of them
        self.transactions = TransactionJudge()
        self._reported: str | None = None
        self.acknowledged: dict[Log, dict[int, bytes]] = {}

    def report(self, text: str) -> None:
        """Ends the run with a violation at the end of the step."""
        self._reported = self._reported or text

    def send(self, log: Log, values: list[bytes]) -> None:
        """Notes new records that a producer sends to a log. A value is PRODUCER:SEQUENCE."""
        self._sent.update(dict.fromkeys(values, log))

    def acknowledge(self, log: Log, offset: int, value: bytes) -> None:
        known = self.acknowledged.setdefault(log, {})
        if known.setdefault(offset, value) != value:
            raise Violation(f"{log}: offset {offset} was acknowledged for {known[offset]!r} and"
                            f" {value!r}")  # fmt: skip

    def look(self, brokers: Collection[SimNode]) -> None:
        """Checks the brokers that have done something in a step: others do not change."""
        if self._reported is not None:
            raise Violation(self._reported)
        places = self._world.partitions()
        for broker in self._world.brokers.values():
            if broker in brokers and broker.is_running:
                for place in places:
                    self._look_at(broker, place)
        self._look_at_groups(brokers)

    def _look_at_groups(self, brokers: Collection[SimNode]) -> None:
        committers = self._world.committers
        for group in committers.groups:
            row = self._world.partitions().get((CONSUMER_OFFSETS, partition_of(group.name)))
            if row is None or row.state is None or row.state.leader not in self._world.brokers:
                continue
            broker = self._world.brokers[row.state.leader]
            if broker not in brokers or not broker.is_running:
                continue
            if not self._world.leads(broker, row.log):
                continue
            found, least = broker.committed(group.name), committers.acknowledged(group)
            if found is not None and found < least:
                raise Violation(f"group {group.name}: broker {broker.node_id} has the offset"
                                f" {found}, and {least} was acknowledged")  # fmt: skip

    def _look_at(self, broker: SimNode, place: Place) -> None:
        handle = broker.table.partition(*place)
        if handle is None or handle.log is None:
            return
        log = handle.topic_id, handle.index
        if place[0] not in self._world.TOPICS:
            self.internal.add(log)
        if handle.leader_id == broker.node_id:
            key = (log, handle.leader_epoch)
            if self._leaders.setdefault(key, broker.node_id) != broker.node_id:
                raise Violation(
                    f"{place}: brokers {self._leaders[key]} and {broker.node_id} lead in epoch"
                    f" {handle.leader_epoch}"
                )
        at = log, broker.node_id, broker.life, handle.generation
        before, high_watermark = self._seen_to.get(at, 0), handle.high_watermark
        if high_watermark < before:
            raise Violation(f"{place} of broker {broker.node_id}: the high watermark went back"
                            f" from {before} to {high_watermark}")  # fmt: skip
        stable = handle.last_stable_offset
        if stable < self._stable_to.get(at, 0):
            raise Violation(f"{place} of broker {broker.node_id}: the last stable offset went back"
                            f" from {self._stable_to[at]} to {stable}")  # fmt: skip
        self._stable_to[at] = stable
        if high_watermark > before:
            self._seen_to[at] = high_watermark
            self._read(
                f"{place} of broker {broker.node_id}", log, handle.log, before, high_watermark
            )

    def _read(self, name: str, log: Log, handle: LogHandle, begin: int, end: int) -> None:
        """Checks the records of a log that are below its high watermark since this step."""
        committed = self._committed.setdefault(log, {})
        begin = max(begin, handle.start_offset)
        while begin < end:
            data = handle.read(begin, READ_BYTES, limit_offset=end)
            rows = [row for row in records_of(data) if begin <= row.offset < end]
            behind = min(next_offset(data, begin), end)
            if behind == begin and self._world.may_have_gaps:
                return
            if behind == begin:
                raise Violation(f"{name}: nothing at {begin} below its high watermark {end}")
            for row in rows:
                if row.offset not in committed:
                    committed[row.offset] = row.value
                    if log not in self.internal:
                        self.rows.setdefault(log, []).append(row)
                        self._commit(name, log, row)
                elif committed[row.offset] != row.value:
                    raise Violation(f"{name}: at offset {row.offset} is {row.value!r}, and"
                                    f" {committed[row.offset]!r} was committed there")  # fmt: skip
            begin = behind

    def _commit(self, name: str, log: Log, row: Row) -> None:
        """Checks a record that no broker had below its high watermark before."""
        if row.commits is not None:
            return self.transactions.marker(name, log, row)
        if self._sent.get(row.value) != log:
            raise Violation(f"{name}: {row.value!r} at offset {row.offset} was not sent there")
        if row.is_transactional:
            return self.transactions.record(name, log, row)
        producer, _, sequence = row.value.partition(b":")
        first = int(sequence) if log in self.lossy else 0  # a log takes any of an unknown producer
        expected = self._next.get((log, producer), first)
        if int(sequence) != expected:
            kind = "a duplicate" if int(sequence) < expected else "a gap"
            raise Violation(f"{name}: {kind}: {row.value!r} at offset {row.offset} in place of"
                            f" sequence number {expected}")  # fmt: skip
        self._next[log, producer] = expected + 1

    def others(self, log: Log, data: bytes, offset: int) -> list[int]:
        """Returns the offsets, at and above `offset`, of records that are not those which were
        committed there."""
        known = self._committed.get(log, {})
        return [
            row.offset
            for row in records_of(data)
            if row.offset >= offset and known.get(row.offset, row.value) != row.value
        ]

    def take_back(self, ends: Mapping[Log, int], unsure: set[int]) -> None:
        """Forgets the records at and above an offset of each log, which a power cut has taken.
        `unsure`: the transactions whose logs may differ now."""
        for log, end in ends.items():
            for rows in (self._committed.get(log, {}), self.acknowledged.get(log, {})):
                for offset in [row for row in rows if row >= end]:
                    del rows[offset]
            if log in self.rows:
                left = [row for row in self.rows[log] if row.offset < end]
                if len(left) < len(self.rows[log]):
                    self.lossy.add(log)
                    self.rows[log] = left
        self.transactions = self.transactions.after_loss(unsure)
        self._next = {}
        for log, rows in self.rows.items():
            for row in rows:
                self._commit("after a power cut", log, row)

    # -- the end

    def check_end(self, stable: Mapping[Log, int] = MappingProxyType({})) -> None:
        """Checks the end state, when all brokers run and all replicas are in sync. `stable`: the
        last stable offsets of logs that have open transactions for good."""
        partitions = self._world.partitions()
        for place, row in partitions.items():
            allowed = self._world.administrator.allowed(row.log)
            if row.replicas not in allowed:
                raise Violation(f"{place} has the replicas {row.replicas}, not {allowed}")
            self._check_equal(place, row.log, row.replicas)
        self.transactions.check_end(self._world.reader.read, stable)
        self.check_files()

    def check_files(self) -> None:
        """Checks that each broker has the files of its partitions, and no others: deleted topics do
        not come back."""
        partitions = self._world.partitions()
        for broker in self._world.brokers.values():
            found = {
                (named.topic, named.partition)
                for folder in broker.folders
                for path in folder.iterdir()
                if path.is_dir() and (named := partition_dirs.parse(path.name)) is not None
                and named.mark is None
            }  # fmt: skip
            wanted = {place for place, row in partitions.items() if broker.node_id in row.replicas}
            if {row for row in found ^ wanted if not self._world.may_be_offline(row)}:
                raise Violation(f"broker {broker.node_id} has files of {sorted(found)}, not of"
                                f" {sorted(wanted)}")  # fmt: skip

    def _check_equal(self, place: Place, log: Log, replicas: tuple[int, ...]) -> None:
        logs = {}
        for node_id in replicas:
            handle = self._world.brokers[node_id].table.partition(*place)
            assert handle is not None and handle.log is not None
            logs[node_id] = content(handle.log)
        first = logs[replicas[0]]
        for node_id, data in logs.items():
            if data != first:
                raise Violation(f"{place}: brokers {replicas[0]} and {node_id} have different"
                                f" records: {difference(first, data)}")  # fmt: skip
        self._check_acknowledged(place, log, first)

    def check_acknowledged(self) -> None:
        """Checks that the logs of a single broker have all acknowledged records."""
        for place, row in self._world.partitions().items():
            if row.log in self.acknowledged and not self._world.may_be_offline(place):
                (broker,) = self._world.brokers.values()
                handle = broker.table.partition(*place)
                assert handle is not None and handle.log is not None
                self._check_acknowledged(place, row.log, content(handle.log))

    def _check_acknowledged(self, place: Place, log: Log, data: bytes) -> None:
        there = {row.offset: row.value for row in records_of(data)}
        for offset, value in self.acknowledged.get(log, {}).items():
            if there.get(offset) != value:
                raise Violation(f"{place}: {value!r} was acknowledged at offset {offset}, where"
                                f" {there.get(offset)!r} is")  # fmt: skip


def content(log: LogHandle) -> bytes:
    """Returns all batches of a log."""
    found, begin = b"", log.start_offset
    while begin < log.end_offset:
        data = log.read(begin, READ_BYTES)
        found += data
        begin = next_offset(data, log.end_offset)  # at the end, offsets may have no record
    return found


def difference(first: bytes, second: bytes) -> str:
    ours, theirs = records_of(first), records_of(second)
    for one, other in zip(ours, theirs, strict=False):
        if one != other:
            return f"{one} and {other}"
    return f"{len(ours)} and {len(theirs)} records"
