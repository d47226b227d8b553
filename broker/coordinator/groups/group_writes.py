"""Writes of all groups but classic ones, and the requests that are answered when they are durable.

A group changes in memory first and is then written, so that the next request continues from the new
state without waiting for the disk. A request is answered only when the log has the state that its
answer states, even when the request changed nothing. When a write fails, its requests are answered
with the error, and the group is `behind`: the next write is the whole group, at once, and answers
that depend on the failed write wait for it. So the log always contains every state that was
answered. When the whole group cannot be written either, it is written again after RETRY_MS, until
the log has it: memory and log become equal also without a further request to the group. (Kafka's
CoordinatorRuntime does the opposite: it reverts memory to the last written offset, and its timers
repeat a failed write.) Next: coordinator/journal.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from barnabas.coordinator.groups.group_records import Entry
from barnabas.errors import KafkaError

PART_BYTES_MAX = 128 << 10  # limit of one append; a larger change takes several
RETRY_MS = 500  # as in Kafka's CoordinatorTimerImpl

Done = Callable[[KafkaError | None], object]
Append = Callable[[int, Sequence[Entry], Done], None]
After = Callable[[int, Callable[[], object]], Any]  # (delay in ms, call under the lock) -> timer


class _Flight:
    """One change that is being written."""

    __slots__ = ("error", "parts_left", "callbacks", "whole")

    def __init__(self, whole: bool, parts_left: int) -> None:
        self.whole = whole
        self.parts_left = parts_left
        self.error: KafkaError | None = None
        self.callbacks: list[Done] = []


class WriteState:
    """How far the log is behind one group, and what waits for the journal. It is not in the log."""

    __slots__ = (
        "behind",
        "catches_up_later",
        "deletions",
        "fresh",
        "held",
        "in_flight",
        "removed_members",
        "removed_regexes",
    )

    def __init__(self) -> None:
        self.in_flight: list[_Flight] = []
        self.fresh = True  # the log may hold records of an earlier group under its name
        self.behind = False  # a write failed: the log lacks changes
        self.catches_up_later: Any = None  # the timer of the next write of the whole group
        self.deletions = 0  # tombstones of the group that wait for the journal
        self.held: list[Done] = []  # callbacks that wait until the log has caught up
        self.removed_members: set[str] = set()  # those that the log may still have
        self.removed_regexes: set[str] = set()  # in a consumer group


class WrittenGroup(Protocol):
    """The fields of a group that its writes use."""

    group_id: str
    dead: bool  # the group was deleted or replaced under its name
    writes: WriteState


G = TypeVar("G", bound=WrittenGroup)
R = TypeVar("R")


class GroupWrites(Generic[G]):
    """Writes groups of one type to the journal. Callers hold the coordinator's lock.

    `whole` returns all records of a group, with tombstones of what the log may still hold."""

    def __init__(
        self,
        append: Append,
        partition_of: Callable[[str], int],
        after: After,
        whole: Callable[[G], list[Entry]],
    ) -> None:
        self._append = append
        self._partition_of = partition_of
        self._after = after
        self._whole = whole

    def write(self, group: G, entries: Sequence[Entry], done: Done | None) -> None:
        """Writes entries. Calls `done` when these, and all entries before them, are durable or have
        failed; without entries when the group's present state is durable."""
        state = group.writes
        whole = state.behind
        if not entries and not whole:
            if done is None:
                return
            if state.in_flight:
                state.in_flight[-1].callbacks.append(done)
            else:
                done(None)
            return
        parts = list(_parts(self._whole(group) if whole else entries))
        flight = _Flight(whole, len(parts))
        if done is not None:
            flight.callbacks.append(done)
        state.in_flight.append(flight)
        partition = self._partition_of(group.group_id)

        def part_done(error: KafkaError | None) -> None:
            flight.parts_left -= 1
            flight.error = flight.error or error
            if flight.parts_left == 0:
                self._finished(group, flight)

        for part in parts:
            self._append(partition, part, part_done)

    def _finished(self, group: G, flight: _Flight) -> None:
        state = group.writes
        state.in_flight.remove(flight)
        if flight.error is not None:
            state.behind = True
            _call(flight.callbacks, flight.error)
            if flight.whole:
                held, state.held = state.held, []
                _call(held, flight.error)
                self._catch_up_later(group)
            elif not group.dead:
                self._catch_up(group)
        elif state.behind and not flight.whole and not group.dead:
            state.held += flight.callbacks  # it depends on a write that failed
            self._catch_up(group)
        else:
            state.fresh = False
            if flight.whole:
                state.behind = False
                held, state.held = state.held, []
                _call(held, None)
            if not state.in_flight and not state.behind:
                state.removed_members.clear()
                state.removed_regexes.clear()
            _call(flight.callbacks, None)

    def _catch_up(self, group: G) -> None:
        if not any(flight.whole for flight in group.writes.in_flight):
            self.write(group, (), None)

    def _catch_up_later(self, group: G) -> None:
        """Starts the timer of the next write of the whole group, one timer for each group. A write
        that another request causes may come first."""
        state = group.writes

        def due() -> None:
            state.catches_up_later = None
            if not state.behind or group.dead:
                return
            if state.deletions:  # records behind the tombstones would restore the group
                self._catch_up_later(group)
            else:
                self._catch_up(group)

        if state.catches_up_later is None and not group.dead:
            state.catches_up_later = self._after(RETRY_MS, due)


def _call(waiting: list[Done], error: KafkaError | None) -> None:
    for done in waiting:
        done(error)


def _parts(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    first, size_bytes = 0, 0
    for at, (key, value) in enumerate(entries):
        row_bytes = len(key) + len(value or b"")
        if at > first and size_bytes + row_bytes > PART_BYTES_MAX:
            yield entries[first:at]
            first, size_bytes = at, 0
        size_bytes += row_bytes
    yield entries[first:]


def answering(answer: Callable[[R], object], result: R, refused: Callable[[KafkaError], R]) -> Done:
    """Returns the callback of a write that answers a request: with `result` when the write is
    durable, with `refused(error)` when it has failed."""

    def done(error: KafkaError | None) -> None:
        answer(result if error is None else refused(error))

    return done
