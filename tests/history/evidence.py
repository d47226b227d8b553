"""What a history proves, by value, by offset and by process. Next: checker.py."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator

from history.model import Operation, Outcome, Send

NEVER = 1 << 80


class Evidence:
    """`places`: the offsets of a value, as acknowledged and as read. `seen`: what was read."""

    def __init__(self, operations: list[Operation]) -> None:
        self.operations = sorted(operations, key=lambda one: one.began)
        self.sent: dict[int, tuple[Operation, Send]] = {}
        self.places: dict[int, set[tuple[str, int]]] = defaultdict(set)
        self.at: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        self.readers: dict[int, list[Operation]] = defaultdict(list)
        self.scans: dict[str, list[Operation]] = defaultdict(list)  # by process
        self.scanned: set[str] = set()
        # By group and partition, in the order of their begin.
        self.commits: dict[tuple[str, str], list[Operation]] = defaultdict(list)
        self._certain: dict[int, int] = {}
        seen: dict[str, set[int]] = defaultdict(set)
        for one in self.operations:
            for partition in one.commits:
                self.commits[one.group, partition].append(one)
            for send in one.sends:
                if send.value in self.sent:
                    raise ValueError(f"not a history: {send.value} is sent twice")
                self.sent[send.value] = one, send
                if send.offset is not None:
                    self._put(send.partition, send.offset, send.value)
            for read in one.reads:
                self._put(read.partition, read.offset, read.value)
                self.readers[read.value].append(one)
                seen[read.partition].add(read.offset)
            if one.scan:
                self.scans[one.process].append(one)
                self.scanned.update(one.scanned)
        self.seen = {partition: sorted(offsets) for partition, offsets in seen.items()}

    def _put(self, partition: str, offset: int, value: int) -> None:
        self.places[value].add((partition, offset))
        self.at[partition][offset].add(value)

    def end(self, partition: str) -> int:
        """The highest offset that a reader read."""
        offsets = self.seen.get(partition)
        return offsets[-1] if offsets else -1

    def seen_between(self, partition: str, after: int, before: int) -> list[int]:
        offsets = self.seen.get(partition, [])
        return offsets[bisect_right(offsets, after) : bisect_left(offsets, before)]

    def place(self, send: Send) -> int | None:
        """The offset of a value in its partition, where it has only one."""
        offsets = {offset for where, offset in self.places[send.value] if where == send.partition}
        return offsets.pop() if len(offsets) == 1 else None

    def is_due(self, send: Send) -> bool:
        """Whether a reader read past the place of a value: if it was not seen, it is absent."""
        known = send.offset is not None and send.offset < self.end(send.partition)
        return known or send.partition in self.scanned

    def outcome(self, one: Operation, send: Send | None = None) -> Outcome:
        """The known outcome; for a transaction without a response, the one that its records
        show."""
        told = one.outcome if send is None else send.outcome or one.outcome
        if told != Outcome.UNKNOWN or not one.transactional or not one.sends:
            return told
        if any(other.value in self.readers for other in one.sends):
            return Outcome.OK
        return Outcome.FAIL if all(map(self.is_due, one.sends)) else told

    def certain_from(self, one: Operation) -> int:
        """The time from which an operation is known to have taken place."""
        if one.outcome == Outcome.OK and one.ended is not None:
            return one.ended
        if id(one) not in self._certain:
            reads = (reader for send in one.sends for reader in self.readers.get(send.value, ()))
            known = (read.ended for read in reads if read.ended is not None)
            self._certain[id(one)] = min(known, default=NEVER)
        return self._certain[id(one)]

    def sends(self) -> Iterator[tuple[Operation, Send]]:
        yield from self.sent.values()

    def streams(self) -> dict[tuple[str, str], list[tuple[Operation, Send]]]:
        """What each process sent to each partition, in its order."""
        found = defaultdict(list)
        for one in self.operations:
            for send in one.sends:
                found[one.process, send.partition].append((one, send))
        return found
