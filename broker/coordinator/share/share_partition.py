"""One partition in one share group: the acquired records, their members and delivery counts.

From `start` (all records below it are completed) to `end` (no record from there on was acquired
yet) each offset is in one of Kafka's states:

| state            | means                                               | goes to              |
|------------------|-----------------------------------------------------|----------------------|
| AVAILABLE (0)    | a member may acquire it (again)                     | ACQUIRED             |
| ACQUIRED (1)     | a member has it, until it acknowledges it or the    | any of the others    |
|                  | acquisition lock expires                            |                      |
| ACKNOWLEDGED (2) | accepted                                            |                      |
| ARCHIVING (3)    | given up; its dead letter is being written          | ARCHIVED             |
| ARCHIVED (4)     | given up                                            |                      |

Neighbouring offsets of one kind are one Run. A change of state begins with a call (`acknowledge`,
`release`, `expire`, `archived`) that returns a Change, whose batches must be made durable; `finish`
or `undo` follows. In between the offsets are pending: no other call may change them. Acquiring
(`acquire`) and extending a lock (renew) are not durable: after a crash such records are available.

Plain state without a lock, a clock or I/O. Limit: `acquire` bounds the acquired records, and so the
number of runs. Next: share_partitions.py, which owns it. Kafka: SharePartition."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.errors import InvalidRecordState, InvalidRequest

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = range(5)
OVER = (ACKNOWLEDGED, ARCHIVED)
NOT_PENDING = -1
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)  # kinds of acknowledgement
NOBODY = ""
THROTTLE_COUNT_MIN = 2


class StateBatch(NamedTuple):
    """The durable state of a range of offsets, both ends included."""

    first: int
    last: int
    state: int
    deliveries: int


class Acquired(NamedTuple):
    """A range of acquired records, and the delivery count of each of them."""

    first: int
    last: int
    deliveries: int


class Acknowledgement(NamedTuple):
    """Acknowledges a range with one kind for all of it, or one kind for each offset."""

    first: int
    last: int
    kinds: Sequence[int]


class Acquisition(NamedTuple):
    """The limits of one acquisition by a member."""

    member_id: str
    records_max: int
    batch_size: int  # records of one acquired range, where batches allow
    strict: bool  # True: at most records_max; False: whole batches
    locks_max: int  # the limit of records between start and end
    delivery_max: int
    deadline_ms: int


@dataclass(slots=True)
class Change:
    """Offsets that are pending. `letters`: the ranges that go to the dead letters, each with True
    when the member rejected it and False when it was delivered too often."""

    batches: list[StateBatch] = field(default_factory=list)
    letters: list[tuple[StateBatch, bool]] = field(default_factory=list)
    renewed: bool = False


class Run:
    """Neighbouring offsets of one state, delivery count and member."""

    __slots__ = ("count", "deadline_ms", "first", "last", "member_id", "pending", "state")

    def __init__(
        self,
        first: int,
        last: int,
        state: int,
        count: int,
        member_id: str = NOBODY,
        deadline_ms: int = 0,
        pending: int = NOT_PENDING,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        self.member_id = member_id
        self.deadline_ms = deadline_ms
        self.pending = pending

    def __repr__(self) -> str:
        return f"<{self.first}-{self.last} {self.state} x{self.count} {self.member_id}>"

    def is_like(self, other: Run) -> bool:
        """Returns whether two neighbouring runs can be merged."""
        return (
            self.state == other.state
            and self.pending == other.pending
            and self.count == other.count
            and self.member_id == other.member_id
            and self.deadline_ms == other.deadline_ms
        )

    @property
    def is_over(self) -> bool:
        """Returns whether the offsets are completed, durably."""
        return self.pending == NOT_PENDING and self.state in OVER

    @property
    def size(self) -> int:
        return self.last - self.first + 1


def _first_of(run: Run) -> int:
    return run.first


class SharePartition:
    """The state of one partition in one share group."""

    def __init__(self, start: int, batches: Iterable[StateBatch] = ()) -> None:
        """Loads the durable state. Offsets between its ranges were not acknowledged."""
        self.start = start
        self.end = start
        self.runs: list[Run] = []
        self._any_available = False
        for row in sorted(batches):
            if row.last < self.end:
                continue
            first = max(row.first, self.end)
            if first > self.end:
                self._append(Run(self.end, first - 1, AVAILABLE, 0))
            state = AVAILABLE if row.state == ACQUIRED else row.state
            self._append(Run(first, row.last, state, row.deliveries))
        self._advance()

    # -- the next offset to read ----------------------------------------------------------------

    @property
    def records_out(self) -> int:
        """Returns the number of offsets between start and end."""
        return self.end - self.start

    def complete_count(self) -> int:
        """Returns the number of completed offsets between start and end."""
        return sum(
            run.size
            for run in self.runs
            if (run.pending if run.pending != NOT_PENDING else run.state)
            in (ACKNOWLEDGED, ARCHIVED)
        )

    def next_offset(self) -> int:
        """Returns the first offset that may be acquired."""
        if self._any_available:
            for run in self.runs:
                if run.state == AVAILABLE and run.pending == NOT_PENDING:
                    return run.first
            self._any_available = False
        return self.end

    def can_acquire(self, locks_max: int) -> bool:
        """Returns whether a member may acquire records within the limit `locks_max`."""
        return self.records_out < locks_max or self.next_offset() < self.end

    def archiving(self) -> list[StateBatch]:
        """Returns the ranges whose dead letters must be written: after a load, those of before a
        crash."""
        return [
            StateBatch(run.first, run.last, run.state, run.count)
            for run in self.runs
            if run.state == ARCHIVING and run.pending == NOT_PENDING
        ]

    @property
    def is_archiving(self) -> bool:
        """Returns whether dead letters are being written, or will be when a change is durable."""
        return any(ARCHIVING in (run.state, run.pending) for run in self.runs)

    def next_deadline_ms(self) -> int | None:
        """Returns when the first acquisition lock expires, in ms; None without a lock."""
        return min(
            (run.deadline_ms for run in self.runs if run.state == ACQUIRED),
            default=None,
        )

    # -- acquiring ------------------------------------------------------------------------------

    def acquire(
        self,
        offset: int,
        batches: Sequence[tuple[int, int]],
        terms: Acquisition,
        left_out: Sequence[tuple[int, int]] = (),
    ) -> list[Acquired]:
        """Acquires records of the log's batches (first and last offset), which were read from
        `offset` on. Offsets in no batch no longer exist, and no member may receive those in
        `left_out`: both are archived. Returns the acquired ranges."""
        given: list[Acquired] = []
        at = max(offset, self.start)
        for first, last in batches:
            if last < at:
                continue
            if first > at:
                self._skip(at, first - 1)
            first = max(first, at)
            if any(low <= first and last <= high for low, high in left_out):
                self._skip(first, last)
            elif not self._acquire_batch(first, last, terms, given):
                break
            at = last + 1
        self._advance()
        return given

    def _acquire_batch(
        self, first: int, last: int, terms: Acquisition, given: list[Acquired]
    ) -> bool:
        """Acquires available records of a batch. Returns whether more records may be acquired."""
        for low, high, count in self._offered(first, last):
            left = terms.records_max - sum(row.last - row.first + 1 for row in given)
            if low >= self.end:
                left = min(left, terms.locks_max - self.records_out)
            few = self._throttle(count, terms)
            if left <= 0 or (few == 1 and given):
                return False
            taken = high
            if terms.strict or few:
                taken = min(high, low + min(left, few or left) - 1)
            self._take(low, taken, count + 1, terms)
            self._tell(low, taken, count + 1, terms.batch_size, given)
            if taken < high or few == 1:
                return False
        return True

    def _offered(self, first: int, last: int) -> list[tuple[int, int, int]]:
        """Returns the available parts of a batch: (first, last, deliveries so far)."""
        found = []
        if self.runs and first < self.end:
            for index in range(self._index_of(first), len(self.runs)):
                run = self.runs[index]
                if run.first > last:
                    break
                if run.state == AVAILABLE and run.pending == NOT_PENDING:
                    found.append((max(run.first, first), min(run.last, last), run.count))
        if last >= self.end:
            found.append((max(first, self.end), last, 0))
        return found

    def _throttle(self, count: int, terms: Acquisition) -> int:
        """Returns the number of records that may be delivered together with one; 0 is no limit. A
        record that failed often may make the others fail: it is delivered with fewer of them, and
        the last time alone."""
        begins = max(THROTTLE_COUNT_MIN, (terms.delivery_max + 1) // 2)
        if count < begins:
            return 0
        if count >= terms.delivery_max - 1:
            return 1
        return max(2, terms.records_max >> (count - begins + 1))

    def _take(self, first: int, last: int, count: int, terms: Acquisition) -> None:
        made = Run(first, last, ACQUIRED, count, terms.member_id, terms.deadline_ms)
        if first >= self.end:
            if first > self.end:
                self._append(Run(self.end, first - 1, ARCHIVED, 0))
            self._append(made)
            return
        low, high = self._cut(first, last)
        self.runs[low:high] = [made]
        self._join(low, low + 1)

    def _tell(
        self, first: int, last: int, count: int, batch_size: int, given: list[Acquired]
    ) -> None:
        """Joins a range to the last acquired one, until that has the size that the member wants."""
        if given:
            before = given[-1]
            size = before.last - before.first + 1
            if before.last + 1 == first and before.deliveries == count and size < batch_size:
                given[-1] = Acquired(before.first, last, count)
                return
        given.append(Acquired(first, last, count))

    def _skip(self, first: int, last: int) -> None:
        """Archives the available offsets of a range; no member ever acquired the others."""
        if first < self.end:
            low, high = self._cut(first, min(last, self.end - 1))
            for run in self.runs[low:high]:
                if run.state == AVAILABLE and run.pending == NOT_PENDING:
                    run.state = ARCHIVED
            self._join(low, high)
        if last >= self.end:
            self._append(Run(self.end, last, ARCHIVED, 0))

    # -- changes --------------------------------------------------------------------------------

    def acknowledge(
        self,
        member_id: str,
        rows: Iterable[Acknowledgement],
        *,
        now_ms: int,
        deadline_ms: int,
        delivery_max: int,
        dead_letters: bool = False,
    ) -> Change:
        """Acknowledges all of the ranges or none.

        `now_ms`, `deadline_ms`: the time now, and the deadline of renewed locks. `delivery_max`: a
        record that was delivered as often is given up. Raises InvalidRequest for records that are
        not acquired, and InvalidRecordState for those of another member."""
        asked = [part for row in rows for part in self._parts(row)]
        for first, last, _ in asked:
            self._check_owned(member_id, first, last)
        change = Change()
        for first, last, kind in asked:
            low, high = self._cut(first, last)
            for run in self.runs[low:high]:
                if kind == RENEW:
                    run.deadline_ms = deadline_ms
                    change.renewed = True
                else:
                    to = _state_after(kind, run.count, delivery_max, dead_letters)
                    self._pend(run, to, run.count, change, rejected=kind == REJECT)
            self._join(low, high)
        return change

    def _parts(self, row: Acknowledgement) -> list[tuple[int, int, int]]:
        """Returns (first, last, kind) of the parts at or after the start."""
        if len(row.kinds) == 1:
            parts = [(row.first, row.last, row.kinds[0])]
        else:
            parts = []
            for offset, kind in enumerate(row.kinds, row.first):
                if parts and parts[-1][2] == kind:
                    parts[-1] = (parts[-1][0], offset, kind)
                else:
                    parts.append((offset, offset, kind))
        return [
            (max(first, self.start), last, kind)
            for first, last, kind in parts
            if last >= self.start
        ]

    def _check_owned(self, member_id: str, first: int, last: int) -> None:
        if last >= self.end:
            which = "first" if first >= self.end else "last"
            raise InvalidRequest(
                f"Batch record not found. The {which} offset in request is past acquired records."
            )
        for index in range(self._index_of(first), len(self.runs)):
            run = self.runs[index]
            if run.first > last:
                break
            if run.state != ACQUIRED:
                raise InvalidRecordState(
                    "The batch cannot be acknowledged. The batch is not in the acquired state."
                )
            if run.member_id != member_id:
                raise InvalidRecordState("Member is not the owner of batch record")
            if run.pending != NOT_PENDING:
                raise InvalidRecordState(
                    "The record state is invalid. The acknowledgement of delivery could not be"
                    " completed."
                )

    def release(self, member_id: str, delivery_max: int, dead_letters: bool = False) -> Change:
        """Releases the acquired records of a member that has left."""
        change = Change()
        for run in self.runs:
            if self._is_out(run) and run.member_id == member_id:
                to = _state_after(RELEASE, run.count, delivery_max, dead_letters)
                self._pend(run, to, run.count, change)
        return change

    def expire(self, now_ms: int, delivery_max: int, dead_letters: bool = False) -> Change:
        """Releases the records whose acquisition locks have expired."""
        change = Change()
        for run in self.runs:
            if self._is_out(run) and run.deadline_ms <= now_ms:
                to = _state_after(RELEASE, run.count, delivery_max, dead_letters)
                self._pend(run, to, run.count, change)
        return change

    def archived(self, first: int, last: int) -> Change:
        """Archives a range whose dead letters were written or cannot be written."""
        change = Change()
        if last < self.start or not self.runs:
            return change
        low, high = self._cut(max(first, self.start), min(last, self.end - 1))
        for run in self.runs[low:high]:
            if run.state == ARCHIVING and run.pending == NOT_PENDING:
                self._pend(run, ARCHIVED, run.count, change)
        return change

    def _is_out(self, run: Run) -> bool:
        return run.state == ACQUIRED and run.pending == NOT_PENDING

    def _pend(
        self, run: Run, state: int, count: int, change: Change, rejected: bool = False
    ) -> None:
        run.pending = state
        row = StateBatch(run.first, run.last, state, count)
        change.batches.append(row)
        if state == ARCHIVING:
            change.letters.append((row, rejected))

    def finish(self, change: Change) -> None:
        """Applies a Change that is durable."""
        for row in change.batches:
            for run in self._pending(row):
                run.state, run.count, run.pending = row.state, row.deliveries, NOT_PENDING
                run.member_id, run.deadline_ms = NOBODY, 0
                self._any_available |= run.state == AVAILABLE
        self._join(0, len(self.runs))
        self._advance()

    def undo(self, change: Change) -> None:
        """Reverts a Change that could not be made durable, also for records whose locks have
        expired since."""
        for row in change.batches:
            for run in self._pending(row):
                run.pending = NOT_PENDING
        self._join(0, len(self.runs))

    def _pending(self, row: StateBatch) -> list[Run]:
        if row.last < self.start:
            return []
        low, high = self._cut(max(row.first, self.start), row.last)
        return [run for run in self.runs[low:high] if run.pending == row.state]

    def log_starts_at(self, offset: int) -> None:
        """Moves the start: the log has deleted the records below an offset."""
        if offset <= self.start:
            return
        if offset >= self.end:
            self.runs.clear()
            self.end = offset
        else:
            low, _ = self._cut(offset, self.end - 1)
            del self.runs[:low]
        self.start = offset
        self._advance()

    # -- the runs -------------------------------------------------------------------------------

    def _append(self, run: Run) -> None:
        """Adds a run at the end."""
        if self.runs and self.runs[-1].is_like(run):
            self.runs[-1].last = run.last
        else:
            self.runs.append(run)
        self.end = run.last + 1
        self._any_available |= run.state == AVAILABLE

    def _index_of(self, offset: int) -> int:
        return bisect_right(self.runs, offset, key=_first_of) - 1

    def _cut(self, first: int, last: int) -> tuple[int, int]:
        """Splits runs so that one begins at each bound. Returns the slice of the runs between."""
        low = self._cut_at(first)
        return low, self._cut_at(last + 1)

    def _cut_at(self, offset: int) -> int:
        """Returns the index of the run that begins at an offset; splits a run if necessary."""
        if offset >= self.end:
            return len(self.runs)
        index = self._index_of(offset)
        run = self.runs[index]
        if run.first == offset:
            return index
        rest = Run(
            offset, run.last, run.state, run.count, run.member_id, run.deadline_ms, run.pending
        )
        run.last = offset - 1
        self.runs.insert(index + 1, rest)
        return index + 1

    def _join(self, low: int, high: int) -> None:
        """Merges runs of one kind, from the neighbour before `low` to the one after `high`."""
        low, high = max(low - 1, 0), min(high + 1, len(self.runs))
        joined: list[Run] = []
        for run in self.runs[low:high]:
            if joined and joined[-1].is_like(run):
                joined[-1].last = run.last
            else:
                joined.append(run)
        self.runs[low:high] = joined

    def _advance(self) -> None:
        """Moves the start over completed offsets."""
        over = 0
        for run in self.runs:
            if not run.is_over:
                break
            self.start = run.last + 1
            over += 1
        del self.runs[:over]


def _state_after(kind: int, count: int, delivery_max: int, dead_letters: bool) -> int:
    if kind == ACCEPT:
        return ACKNOWLEDGED
    if kind == RELEASE and count < delivery_max:
        return AVAILABLE
    return ARCHIVED if kind == GAP or not dead_letters else ARCHIVING
