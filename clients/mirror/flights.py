"""What was read and is on its way to the target, and up to where everything has arrived."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

Position = tuple[str, int]  # topic, partition


class Flight:
    """Messages that were read together. `positions`: the offset behind the last of each partition;
    `left`: what the target has not acknowledged so far of what was made of them."""

    __slots__ = ("left", "positions")

    def __init__(self, positions: Mapping[Position, int], left: int) -> None:
        self.positions, self.left = positions, left


class Flights:
    """In the order of reading: an offset is safe when its flight and all before it have arrived."""

    def __init__(self) -> None:
        self._under_way: deque[Flight] = deque()
        self._safe: dict[Position, int] = {}

    def add(self, flight: Flight) -> None:
        self._under_way.append(flight)

    def clear(self) -> None:
        """The partitions are somebody else's now."""
        self._under_way.clear()
        self._safe.clear()

    @property
    def is_empty(self) -> bool:
        """Whether all that was read has arrived."""
        self._land()
        return not self._under_way

    def take_safe(self) -> dict[Position, int]:
        """Offsets to be committed, each handed out once; `put_back` when that failed."""
        self._land()
        found, self._safe = self._safe, {}
        return found

    def put_back(self, positions: Mapping[Position, int]) -> None:
        self._safe = {**positions, **self._safe}

    def _land(self) -> None:
        while self._under_way and not self._under_way[0].left:
            self._safe.update(self._under_way.popleft().positions)
