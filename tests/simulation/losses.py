"""What a power cut may take from the logs of a broker with log.durability=os, as with the defaults
of Apache Kafka: of each log the end, as far as it was not flushed.

Checked when the broker has started again: a log has everything that it said was flushed before the
last step, and nothing is missing in the middle of it (compaction leaves gaps below what was
flushed). What is left is as it was; the clients and the judge forget the rest, and go on. The rest
begins with the first record that is another one than before: that of a failed append may be there,
whose cut is gone like what was written over it. Offsets may be given again. What an answer has
promised counts when the log had the answer's record: so a client notes where the log of its
coordinator ended (`end_of`).

A transaction is unsure (transaction_judge.py) when it was not complete in all its logs, or one of
them, or the coordinator's, has lost a record of it. All others stay as they were, in all logs.

A kill takes nothing: `check` is not called behind one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.judge import content
from simulation.log_rows import Row, Violation, batches_in, number_of
from simulation.transactions import partition_of

from barnabas.cext.record.records import parse_header
from barnabas.wire.internal import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

if TYPE_CHECKING:
    from simulation.judge import Log, Place
    from simulation.one_node import OneNodeWorld

    from barnabas.cext.log.log_handle import LogHandle


class Losses:
    """The losses of a world. `compacted`: its topics with compaction."""

    def __init__(self, world: OneNodeWorld, compacted: str) -> None:
        self._world = world
        self._compacted = {compacted, CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE}
        self._flushed: dict[Log, int] = {}
        self._starts: dict[Log, int] = {}
        self._before: dict[Log, int] = {}
        # Where the coordinator's log ended, behind the end of each transaction.
        self._decided: dict[int, int] = {}

    def look(self) -> None:
        """Notes, behind a step, what the broker says was flushed."""
        world = self._world
        self._before.clear()
        for place, row in world.partitions().items():
            handle = world.node.table.partition(*place)
            if handle is not None and handle.log is not None:
                self._flushed[row.log] = handle.log.flushed_offset
                self._starts[row.log] = handle.log.start_offset
        for number in world.judge.transactions.ends.keys() - self._decided.keys():
            name = world.transactions.name_of[number]
            self._decided[number] = world.end_of(TRANSACTION_STATE, partition_of(name))

    def before(self) -> None:
        """Notes where the logs end in memory, before the broker is killed: perhaps several times
        until it has started."""
        world = self._world
        for place, row in world.partitions().items():
            handle = world.node.table.partition(*place)
            if handle is not None and handle.log is not None:
                end = max(self._before.get(row.log, 0), handle.log.end_offset)
                self._before[row.log] = end

    def check(self) -> None:
        """Checks which records are left, and lets everyone forget the others."""
        world = self._world
        ends: dict[Log, int] = {}
        by_place: dict[Place, int] = {}
        for place, row in world.partitions().items():
            log = world.node.replicas.log(*place)
            ends[row.log] = by_place[place] = self._end_of(place, row.log, log)
        world.judge.take_back(ends, self._unsure(ends, by_place))
        self._decided = {
            number: end
            for number, end in self._decided.items()
            if number in world.judge.transactions.ends
        }
        world.producers.take_back(ends)
        world.reader.take_back(
            {
                row.log: min(ends[row.log], world.node.table.partition(*place).last_stable_offset)
                for place, row in world.partitions().items()
            }
        )
        offsets, states = (
            [end for (topic, _), end in sorted(by_place.items()) if topic == name]
            for name in (CONSUMER_OFFSETS, SHARE_GROUP_STATE)
        )
        world.committers.take_back(offsets)
        for group in world.groups:
            group.take_back(offsets)
        assert world.sharers is not None
        world.sharers.take_back(ends, states)
        for row in (world.keyed, world.retained):
            row.take_back(by_place[row.topic, 0])

    def _end_of(self, place: Place, log: Log, handle: LogHandle) -> int:
        """Returns where the rest of a log ends. Raises Violation."""
        flushed, end = self._flushed.get(log, 0), handle.end_offset
        gaps = list(handle.recovered.missing)
        if handle.recovered.ends_early and gaps:  # without: all was below the log's start
            end = gaps.pop()[0]
        if place[0] in self._compacted:
            end = min([first for first, _ in gaps if first >= flushed] + [end])
        elif gaps:
            raise Violation(f"{place}: offsets {gaps} are missing in the middle")
        data = content(handle)
        end = min([end, *_filled(data, flushed), *self._world.judge.others(log, data, flushed)])
        if handle.start_offset > max(flushed, self._starts.get(log, 0)):
            end = flushed  # nothing is left: the log begins behind what it had
        if end < flushed:
            raise Violation(f"{place}: ends at {end}, and was flushed up to {flushed}")
        lost = len([row for row in self._world.judge.acknowledged.get(log, ()) if row >= end])
        self._world.counts["acknowledged and lost"] += lost
        return end

    def _unsure(self, ends: dict[Log, int], by_place: dict[Place, int]) -> set[int]:
        """Returns the transactions of which a record, a marker, or a record of the coordinator may
        be gone."""
        world, judge = self._world, self._world.judge
        known, unsure = judge.transactions, set()
        lossy = {log for log, end in ends.items() if end < self._before.get(log, end)}
        for number, name in world.transactions.name_of.items():  # its records may be seen later
            state = TRANSACTION_STATE, partition_of(name)
            end = by_place[state]
            if number in known.ends:
                is_kept = self._decided.get(number, end + 1) <= end
            else:
                is_kept = world.partitions()[state].log not in lossy
            if not is_kept or known.open_in(number) & lossy:
                unsure.add(number)
        for log, rows in judge.rows.items():
            unsure |= _lost_in(rows, ends.get(log, 0))
        return unsure


def _filled(data: bytes, offset: int) -> list[int]:
    """Returns the first offsets of batches without records at and above an offset. A start writes
    one over the offsets that it gives no more, before the power is cut again."""
    rows = [parse_header(data[at : at + size]) for at, size in batches_in(data)]
    return [
        row.base_offset
        for row in rows
        if row.base_offset >= offset and not row.record_count and not row.control
    ]


def _lost_in(rows: list[Row], end: int) -> set[int]:
    """Returns the transactions of a log with a record or a marker at or above an offset."""
    found: set[int] = set()
    open_now: dict[int, set[int]] = {}  # by producer
    for row in rows:
        if row.is_transactional and row.commits is None:
            open_now.setdefault(row.producer_id, set()).add(number_of(row.value))
        if row.offset >= end:
            found |= open_now.get(row.producer_id, set())
        if row.commits is not None:
            open_now.pop(row.producer_id, None)
    return found
