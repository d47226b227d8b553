"""A broker's clock follows the machine's, can be moved, and then wakes the threads that wait with
it."""

import threading
import time

import pytest

from barnabas.cext.memory.sys import SystemCalls
from barnabas.server.clock import Clock


def test_it_goes_with_the_machine_until_it_is_moved():
    clock = Clock(SystemCalls())
    assert abs(clock.wall_ms() - time.time() * 1000) < 1000
    assert abs(clock.monotonic_ns() - time.monotonic_ns()) < 1e9
    clock.move(10_000)
    assert abs(clock.wall_ms() - time.time() * 1000 - 10_000) < 1000
    assert abs(clock.monotonic_ns() - time.monotonic_ns() - 10_000 * 1e6) < 1e9
    clock.move_wall(-20_000)
    assert abs(clock.wall_ms() - time.time() * 1000 + 10_000) < 1000
    assert abs(clock.monotonic_ns() - time.monotonic_ns() - 10_000 * 1e6) < 1e9
    with pytest.raises(ValueError, match="cannot go back"):
        clock.move(-1)


def test_two_clocks_know_nothing_of_each_other():
    one, other = Clock(SystemCalls()), Clock(SystemCalls())
    one.move(3_600_000)
    assert one.wall_ms() - other.wall_ms() > 3_500_000


def test_an_alarm_ends_by_time_by_ringing_and_by_a_moved_clock():
    clock = Clock(SystemCalls())
    alarm = clock.alarm()
    assert not alarm.wait_until(clock.monotonic_ns() + 1_000_000)
    alarm.ring()
    assert alarm.wait_until(clock.monotonic_ns() + 60_000_000_000)
    assert not alarm.wait_until(clock.monotonic_ns())  # one ring ends one wait
    ended = []
    hour_ns = 3_600_000_000_000
    waiter = threading.Thread(
        target=lambda: ended.append(alarm.wait_until(clock.monotonic_ns() + hour_ns))
    )
    waiter.start()
    clock.move(1000)
    time.sleep(0.05)
    assert waiter.is_alive()
    clock.move(3_600_000)
    waiter.join(10)
    assert ended == [False]


def test_callbacks_run_when_the_clock_moves():
    clock, told = Clock(SystemCalls()), []
    clock.on_move.append(lambda: told.append(clock.wall_ms()))
    clock.move(5)
    clock.move_wall(-5)
    assert len(told) == 2
