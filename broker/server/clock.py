"""The clocks of one broker: the wall clock for timestamps, the monotonic clock for waiting.

Both come from the broker's system-call table, so that cext and Python agree on the time, also when
a test moves it. Python code waits with an Alarm, which sees a moved clock at once; the waits of
threading would continue by the machine's clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from weakref import WeakSet

from barnabas.cext.memory.sys import SystemCalls


class Clock:
    """The clocks of one broker. The functions in `on_move` run after each move, on the thread that
    moved the clock."""

    def __init__(self, system: SystemCalls) -> None:
        self._system = system
        self._lock = threading.Lock()
        self._alarms: WeakSet[Alarm] = WeakSet()
        self.on_move: list[Callable[[], object]] = []

    def wall_ms(self) -> int:
        return self._system.wall_ms()

    def monotonic_ns(self) -> int:
        return self._system.monotonic_ns()

    def alarm(self) -> Alarm:
        made = Alarm(self)
        with self._lock:
            self._alarms.add(made)
        return made

    def move(self, ms: int) -> None:
        """Moves both clocks forward by `ms` milliseconds, and wakes the waits that are due. Raises
        ValueError for a negative `ms`."""
        if ms < 0:
            raise ValueError(
                "the monotonic clock cannot go back; use move_wall to set the wall clock back"
            )
        self._system.move_wall_clock(ms)
        self._system.move_monotonic(ms)
        self._tell()

    def move_wall(self, ms: int) -> None:
        """Moves only the wall clock by `ms` milliseconds, forward or back, as an administrator
        does."""
        self._system.move_wall_clock(ms)
        self._tell()

    def _tell(self) -> None:
        with self._lock:
            alarms = list(self._alarms)
        for alarm in alarms:
            alarm.look_again()
        for callback in self.on_move:
            callback()


class Alarm:
    """Wakes its one waiter at a ring, or when the broker's clock reaches a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        self._rung = False

    def ring(self) -> None:
        """Ends the present wait, or the next one, at once."""
        with self._changed:
            self._rung = True
            self._changed.notify_all()

    def look_again(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def wait_until(self, due_ns: float) -> bool:
        """Waits for a ring or for the monotonic time `due_ns`. Returns True after a ring, False
        when the time has come."""
        with self._changed:
            while not self._rung:
                left_s = (due_ns - self._clock.monotonic_ns()) / 1e9
                if left_s <= 0:
                    return False
                self._changed.wait(min(left_s, threading.TIMEOUT_MAX))
            self._rung = False
            return True
