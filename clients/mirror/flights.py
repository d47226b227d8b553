"""Messages in flight from source to target, and the offsets that the source may commit."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

Position = tuple[str, int]  # topic, partition


class Flight:
    """Messages that the source read together. `positions`: the offset after the last message of
    each partition; `left`: the number of their records that the target has not acknowledged."""

    __slots__ = ("left", "positions")

    def __init__(self, positions: Mapping[Position, int], left: int) -> None:
        self.positions, self.left = positions, left


class Flights:
    """All flights in the order of reading. An offset may be committed when the target has its
    flight and all flights before it."""

    def __init__(self) -> None:
        self._under_way: deque[Flight] = deque()
        self._safe: dict[Position, int] = {}

    def add(self, flight: Flight) -> None:
        self._under_way.append(flight)

    def clear(self) -> None:
        """Drops partitions that now belong to another member."""
        self._under_way.clear()
        self._safe.clear()

    @property
    def is_empty(self) -> bool:
        """Returns whether the target has every message that was read."""
        self._land()
        return not self._under_way

    def take_safe(self) -> dict[Position, int]:
        """Returns the offsets to commit, each once. After a failed commit `put_back` adds them
        again."""
        self._land()
        found, self._safe = self._safe, {}
        return found

    def put_back(self, positions: Mapping[Position, int]) -> None:
        self._safe = {**positions, **self._safe}

    def _land(self) -> None:
        while self._under_way and not self._under_way[0].left:
            self._safe.update(self._under_way.popleft().positions)
