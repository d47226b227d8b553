"""The clock of one broker, which its test can move.

The clock follows the machine's clock, and `advance` moves it forward at once: retention, idle
connections, sessions and every other wait of this broker see the same step. Clients have their own
clocks and do not see it.
"""

from barnabas.server.background import Background
from barnabas.server.clock import Clock

SETTLE_S = 30.0


class BrokerClock:
    """The clock of a broker, for the broker's test."""

    def __init__(self, clock: Clock, background: Background) -> None:
        self._clock = clock
        self._background = background

    def wall_ms(self) -> int:
        """Returns the time of day, in ms since 1970, by which records get timestamps and expire."""
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
        """Moves the clock forward. Before it returns, repeating work that became due (retention,
        checkpoints, expiry) has run once; connections that are idle for too long close shortly
        after. Raises TimeoutError when that work does not end."""
        total_ms = ms + 1000 * (seconds + 60 * (minutes + 60 * (hours + 24 * days)))
        self._clock.move(round(total_ms))
        if not self._background.settle(SETTLE_S):
            raise TimeoutError(f"the broker's repeating work did not end within {SETTLE_S} s")

    def set_wall(self, *, ms: int) -> None:
        """Moves only the time of day by `ms`, backwards when it is negative, as a wrong clock does.
        Timeouts do not change."""
        self._clock.move_wall(ms)
