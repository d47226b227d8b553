"""The scrub: reads old segments again to find damage before a consumer does
(log.scrub.bytes.per.second).

A round reads every sealed segment once, oldest first in each log, and begins ROUND_MS after the
previous round began; damage_log.py logs the damage that it finds. A turn reads at most as many
bytes as the rate allows since the last turn, in pieces of PIECE_BYTES, and ends between two pieces
when the broker stops. cext/log/scrub.pyx reads the pieces. Each start of the broker begins a round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from barnabas.cext.log.log_handle import LogError
from barnabas.cext.log.scrub import scrub_segment
from barnabas.storage.log_manager import LogManager

FIRST_MS = 60_000  # a start is busy enough
ROUND_MS = 24 * 3_600_000
TURN_MS = 1000
IDLE_MS = 60_000
PIECE_BYTES = 1 << 20


class Scrub:
    """The scrub of one node."""

    def __init__(
        self,
        logs: LogManager,
        bytes_per_second: Callable[[], int],
        monotonic_ns: Callable[[], int],
        stopping: Callable[[], bool],
    ) -> None:
        self._logs = logs
        self._bytes_per_second = bytes_per_second
        self._monotonic_ns = monotonic_ns
        self._stopping = stopping
        self._round_ms: int | None = None  # when the last round began
        self._left: deque[tuple[str, int, int]] = deque()  # topic, partition, base offset
        self._position = 0  # in the first of them
        self.bytes_read = 0
        self.rounds = 0

    def period_ms(self) -> int:
        return TURN_MS if self._left else IDLE_MS

    def run(self) -> int:
        """Runs one turn; returns the number of checked bytes."""
        allowed = self._bytes_per_second() * TURN_MS // 1000
        if allowed <= 0:
            self._left.clear()
            return 0
        if not self._left:
            self._begin_round()
        begun = self.bytes_read
        while self._left and self.bytes_read - begun < allowed and not self._stopping():
            self._read(min(PIECE_BYTES, allowed - (self.bytes_read - begun)))
        return self.bytes_read - begun

    def _begin_round(self) -> None:
        now_ms = self._monotonic_ns() // 1_000_000
        if self._round_ms is not None and now_ms - self._round_ms < ROUND_MS:
            return
        self._round_ms = now_ms
        self._position = 0
        for row in self._logs.logs():
            try:
                bases = [info.base_offset for info in row.handle.segments()[:-1]]
            except LogError:
                continue  # its topic has been deleted
            self._left.extend((row.topic, row.partition, base) for base in bases)
        self.rounds += bool(self._left)

    def _read(self, bytes_max: int) -> None:
        topic, partition, base_offset = self._left[0]
        row = self._logs.get(topic, partition)
        before, through = self._position, True
        if row is not None:
            self._position, through = scrub_segment(row.handle, base_offset, before, bytes_max)
            self.bytes_read += self._position - before
        if through:
            self._left.popleft()
            self._position = 0
