"""The time of one broker, in the hands of its test.

Time goes with the machine's, and forward at once by what the test says: retention, idle
connections, sessions and every other wait of this broker see the same move. Clients do not: their
clocks are their own.
"""

from barnabas.server.background import Background
from barnabas.server.clock import Clock

SETTLE_S = 30.0


class BrokerClock:
    """A broker's clock as its test sees it."""

    def __init__(self, clock: Clock, background: Background) -> None:
        self._clock = clock
        self._background = background

    def wall_ms(self) -> int:
        """The time of day by which records are stamped and expire, in ms since 1970."""
        return self._clock.wall_ms()

    def advance(
        self,
        *,
        ms: float = 0,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
    ) -> None:
        """Lets that much time pass. When it returns, repeating work that has become due (retention,
        checkpoints, expiry) has run once; connections that idled too long close in a moment."""
        total_ms = ms + 1000 * (seconds + 60 * (minutes + 60 * (hours + 24 * days)))
        self._clock.move(round(total_ms))
        if not self._background.settle(SETTLE_S):
            raise TimeoutError(f"the broker's repeating work did not end within {SETTLE_S} s")

    def set_wall(self, *, ms: int) -> None:
        """Sets the time of day alone, back when `ms` is negative: the step of a wrong clock."""
        self._clock.move_wall(ms)
