"""Checks the invariants of a simulated cluster, after every step and at the end.

- A record that was once below a high watermark stays at its offset, on every broker.
- A partition has at most one leader in each leader epoch.
- The high watermark of a replica does not decrease while its broker runs.
- At the end, when all faults are over: every acknowledged record is at its offset, and the files of
  all replicas are equal by offset, bytes and leader epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cext.record.records import decode_records, parse_header

if TYPE_CHECKING:
    from simulation.broker import SimBroker
    from simulation.world import World

Place = tuple[str, int]
BATCH_HEADER_BYTES = 61
READ_BYTES = 1 << 20


class Violation(AssertionError):
    """Reports that an invariant does not hold."""


def records_of(data: bytes) -> list[tuple[int, int, bytes]]:
    """Yields offset, leader epoch and value of each record of whole batches."""
    found, at = [], 0
    while at + BATCH_HEADER_BYTES <= len(data):
        header = parse_header(data[at:])
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        if at + size > len(data):
            break
        body = data[at + BATCH_HEADER_BYTES : at + size]
        rows = decode_records(body, count=header.record_count, base_offset=header.base_offset)
        found += [(row.offset, header.leader_epoch, bytes(row.value or b"")) for row in rows]
        at += size
    return found


class Judge:
    """Checks the cluster with access to all of its memory."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._leaders: dict[tuple[Place, int], int] = {}
        self._committed: dict[Place, dict[int, bytes]] = {}
        self._seen_to: dict[tuple[Place, int, int], int] = {}  # by partition, broker, life
        self.acknowledged: dict[Place, dict[int, bytes]] = {}

    def acknowledge(self, place: Place, offset: int, value: bytes) -> None:
        known = self.acknowledged.setdefault(place, {})
        if known.setdefault(offset, value) != value:
            raise Violation(f"{place}: offset {offset} was acknowledged for {known[offset]!r} and"
                            f" {value!r}")  # fmt: skip

    def look(self) -> None:
        """Checks all running brokers after a step."""
        for broker in self._world.brokers.values():
            if broker.is_running:
                for place in self._world.places:
                    self._look_at(broker, place)

    def _look_at(self, broker: SimBroker, place: Place) -> None:
        handle = broker.table.partition(*place)
        if handle is None or handle.log is None:
            return
        if handle.leader_id == broker.node_id:
            key = (place, handle.leader_epoch)
            if self._leaders.setdefault(key, broker.node_id) != broker.node_id:
                raise Violation(
                    f"{place}: brokers {self._leaders[key]} and {broker.node_id} lead in epoch"
                    f" {handle.leader_epoch}"
                )
        at, high_watermark = (place, broker.node_id, broker.life), handle.high_watermark
        before = self._seen_to.get(at, 0)
        if high_watermark < before:
            raise Violation(f"{place} of broker {broker.node_id}: the high watermark went back"
                            f" from {before} to {high_watermark}")  # fmt: skip
        if high_watermark == before:
            return
        self._seen_to[at] = high_watermark
        committed = self._committed.setdefault(place, {})
        begin = max(before, handle.log.start_offset)
        while begin < high_watermark:
            data = handle.log.read(begin, READ_BYTES, limit_offset=high_watermark)
            rows = [row for row in records_of(data) if begin <= row[0] < high_watermark]
            if not rows:
                raise Violation(f"{place} of broker {broker.node_id}: nothing at {begin} below its"
                                f" high watermark {high_watermark}")  # fmt: skip
            for offset, _epoch, value in rows:
                if committed.setdefault(offset, value) != value:
                    raise Violation(
                        f"{place} of broker {broker.node_id}: at offset {offset} is {value!r}, and"
                        f" {committed[offset]!r} was committed there"
                    )
            begin = rows[-1][0] + 1

    def check_end(self) -> None:
        """Checks the end state, when all brokers run and all replicas are in sync."""
        for place in self._world.places:
            logs = {}
            for broker in self._world.brokers.values():
                handle = broker.table.partition(*place)
                if handle is not None and handle.log is not None:
                    log = handle.log
                    begin, rows = log.start_offset, []
                    while begin < log.end_offset:
                        found = records_of(log.read(begin, READ_BYTES))
                        rows += found
                        begin = found[-1][0] + 1
                    logs[broker.node_id] = rows
            first_id, first = next(iter(logs.items()))
            for node_id, rows in logs.items():
                if rows != first:
                    raise Violation(f"{place}: brokers {first_id} and {node_id} have different"
                                    f" records: {difference(first, rows)}")  # fmt: skip
            there = {offset: value for offset, _epoch, value in first}
            for offset, value in self.acknowledged.get(place, {}).items():
                if there.get(offset) != value:
                    raise Violation(f"{place}: {value!r} was acknowledged at offset {offset}, where"
                                    f" {there.get(offset)!r} is")  # fmt: skip


def difference(first: list, second: list) -> str:
    for one, other in zip(first, second, strict=False):
        if one != other:
            return f"{one} and {other}"
    return f"{len(first)} and {len(second)} records"
