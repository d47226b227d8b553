"""Timers: their order, cancelling, and a clock that the test moves."""

import threading

from barnabas.cext.memory.sys import SystemCalls
from barnabas.coordinator.timers import COMPACT_FROM, Timers
from barnabas.server.clock import Clock

PATIENCE_S = 20


def clock_at_rest():
    return Clock(SystemCalls())


def test_timers_run_in_order_when_the_clock_reaches_them():
    clock, ran, last = clock_at_rest(), [], threading.Event()
    timers = Timers(clock)
    timers.after(300_000, lambda: (ran.append(300), last.set()))
    timers.after(100_000, lambda: ran.append(100))
    timers.after(200_000, lambda: ran.append(200))
    clock.move(99_000)
    assert ran == [] and timers.count == 3
    clock.move(201_000)
    assert last.wait(PATIENCE_S)
    assert ran == [100, 200, 300]
    timers.stop()


def test_a_cancelled_timer_does_not_run_and_costs_nothing_for_long():
    clock, ran, last = clock_at_rest(), [], threading.Event()
    timers = Timers(clock)
    for at in range(3 * COMPACT_FROM):
        timers.after(60_000 + at, lambda: ran.append("cancelled")).cancel()
    assert len(timers._heap) <= COMPACT_FROM + 1
    timers.after(90_000, last.set)
    assert timers.count == 1
    clock.move(90_000)
    assert last.wait(PATIENCE_S) and ran == []
    timers.stop()


def test_a_failing_timer_does_not_stop_the_others(caplog):
    ran = threading.Event()
    timers = Timers(clock_at_rest())
    timers.after(0, lambda: 1 / 0)
    timers.after(0, ran.set)
    assert ran.wait(PATIENCE_S)
    assert "ZeroDivisionError" in caplog.text
    timers.stop()


def test_real_time_passes_too():
    timers, ran = Timers(clock_at_rest()), threading.Event()
    timers.after(30, ran.set)
    assert ran.wait(PATIENCE_S)
    timers.stop()
    timers.after(0, ran.clear)
    assert ran.is_set()
