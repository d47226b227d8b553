"""Fault rules hit the calls that they name, and count the hits; a moved clock moves for its table
only."""

import threading
import time

import pytest
from oracle.log_builder import Disk

from barnabas.cext.memory.sys import SystemCalls


def test_clocks_move_for_one_table_only():
    moved, other = SystemCalls(), SystemCalls()
    moved.move_wall_clock(3_600_000)
    moved.move_wall_clock(-600_000)
    moved.move_monotonic(5_000)
    now_ms, now_ns = time.time() * 1000, time.monotonic_ns()
    assert abs(other.wall_ms() - now_ms) < 1000
    assert abs(other.monotonic_ns() - now_ns) < 1_000_000_000
    assert abs(moved.wall_ms() - now_ms - 3_000_000) < 1000
    assert abs(moved.monotonic_ns() - now_ns - 5_000_000_000) < 1_000_000_000


@pytest.mark.parametrize(
    ("call", "action", "options"),
    [
        ("write", "error", {"errno": 5}),
        ("pread", "explode", {}),
        ("pread", "error", {}),
        ("pread", "short", {"errno": 5}),
        ("fdatasync", "short", {}),
        ("pread", "delay", {}),
        ("pread", "hold", {"delay_ms": 5}),
        ("pread", "error", {"errno": 5, "nth": 0}),
        ("pread", "error", {"errno": 5, "path_contains": "x" * 256}),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(call, action, options):
    with pytest.raises(ValueError):
        SystemCalls().fault(call, action, **options)


def test_rules_are_limited():
    system = SystemCalls()
    for _ in range(64):
        system.fault("pread", "error", errno=5)
    with pytest.raises(ValueError, match="64 rules"):
        system.fault("pread", "error", errno=5)
    system.clear_faults()
    assert system.fault("pread", "error", errno=5) == 0
    with pytest.raises(ValueError):
        system.fired(1)


@pytest.mark.parametrize("how", ["release", "clear_faults"])
def test_a_held_call_is_made_after_its_release(tmp_path, how):
    disk = Disk(tmp_path)
    rule = disk.system.fault("open", "hold")
    opened = []
    thread = threading.Thread(target=lambda: opened.append(disk.open()))
    thread.start()
    while not disk.system.fired(rule):
        time.sleep(0.001)
    assert disk.system.fault("pread", "hold") == rule + 1  # other calls meet the rules meanwhile
    assert not opened and not disk.names()
    if how == "release":
        disk.system.release(rule)
    else:
        disk.system.clear_faults()
    thread.join(10)
    assert opened and disk.names()
    opened[0].close()
    with pytest.raises(ValueError, match="no rule 7"):
        disk.system.release(7)
