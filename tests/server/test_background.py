"""Repeating tasks: they come again after a failure, at once when asked, and stop when told."""

import threading
import time

from barnabas.server.background import Background


def test_a_task_comes_again_also_after_a_failure():
    background, runs, enough = Background(), [], threading.Event()

    def task():
        runs.append(len(runs))
        if len(runs) == 3:
            enough.set()
        if len(runs) == 1:
            raise RuntimeError("the first time fails")

    background.add("task", task, lambda: 1)
    assert enough.wait(5)
    background.stop()
    count = len(runs)
    time.sleep(0.05)
    assert len(runs) == count


def test_a_task_with_a_long_period_can_be_called_and_stopped_at_once():
    background, done = Background(), threading.Event()
    run_now = background.add("task", done.set, lambda: 2.0**62)
    assert not done.wait(0.05)
    run_now()
    assert done.wait(5)
    began = time.monotonic()
    background.stop()
    assert time.monotonic() - began < 2
