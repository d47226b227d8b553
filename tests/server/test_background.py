"""Repeating tasks run again after a failure, run at once on request, and stop on request."""

import threading
import time

from barnabas.cext.memory.sys import SystemCalls
from barnabas.server.background import Background
from barnabas.server.clock import Clock


def test_a_task_comes_again_also_after_a_failure():
    background, runs, enough = Background(Clock(SystemCalls())), [], threading.Event()

    def task():
        runs.append(len(runs))
        if len(runs) == 3:
            enough.set()
        if len(runs) == 1:
            raise RuntimeError("the first time fails")

    background.add("task", task, lambda: 1)
    assert enough.wait(60)
    background.stop()
    count = len(runs)
    time.sleep(0.05)
    assert len(runs) == count


def test_a_task_with_a_long_period_can_be_called_and_stopped_at_once():
    background, done = Background(Clock(SystemCalls())), threading.Event()
    run_now = background.add("task", done.set, lambda: 2.0**62)
    assert not done.wait(0.05)
    run_now()
    assert done.wait(60)
    began = time.monotonic()
    background.stop()
    assert time.monotonic() - began < 60


def test_what_becomes_due_by_a_moved_clock_comes_at_once():
    clock = Clock(SystemCalls())
    background, hourly, daily = Background(clock), [], []
    background.add("hourly", lambda: hourly.append(clock.wall_ms()), lambda: 3_600_000)
    background.add("daily", lambda: daily.append(1), lambda: 86_400_000)
    assert background.settle(0)
    before_ms = clock.wall_ms()
    clock.move(3_600_001)
    assert background.settle(10)
    assert len(hourly) == 1 and hourly[0] >= before_ms + 3_600_000 and not daily
    clock.move(86_400_000)
    assert background.settle(10)
    assert len(hourly) == 2 and len(daily) == 1
    background.stop()


def test_settle_says_when_a_task_does_not_end():
    clock, go_on = Clock(SystemCalls()), threading.Event()
    background = Background(clock)
    background.add("stuck", go_on.wait, lambda: 60_000)
    clock.move(60_001)
    assert not background.settle(0.05)
    go_on.set()
    assert background.settle(10)
    background.stop()
