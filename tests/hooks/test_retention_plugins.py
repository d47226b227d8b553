"""Retention: the two built-in policies, and a registry that deletes nothing when one fails."""

import pytest

from barnabas.hooks import LogView, SegmentView, hookimpl
from barnabas.hooks.registry import Registry
from barnabas.plugins.retention_size import RetentionSize
from barnabas.plugins.retention_time import RetentionTime

DAY = 86_400_000


def log_of(*segments, retention_ms=-1, retention_bytes=-1):
    """Segments as (size, largest timestamp), oldest first; the last is active."""
    views, base = [], 0
    for number, (size, timestamp) in enumerate(segments, 1):
        views.append(SegmentView(base, base + 10, size, timestamp, number == len(segments)))
        base += 10
    return LogView("t", 0, tuple(views), base, retention_ms, retention_bytes)


def builtin():
    registry = Registry()
    registry.register(RetentionTime(), "retention_time")
    registry.register(RetentionSize(), "retention_size")
    return registry


@pytest.mark.parametrize(
    ("log", "count"),
    [
        (log_of((5, 0), (5, 9 * DAY), retention_ms=DAY), 1),
        (log_of((5, 0), (5, 0), retention_ms=DAY), 2),
        (log_of((5, 0), (0, 0), retention_ms=DAY), 1),
        (log_of((5, 9 * DAY), (5, 0), (5, 0), retention_ms=DAY), 0),
        (log_of((5, 9 * DAY), (5, 9 * DAY), retention_ms=DAY), 0),
        (log_of((5, 0), (5, 0)), 0),
        (log_of((5, 0), (5, 0), (5, 0), retention_bytes=10), 1),
        (log_of((5, 0), (5, 0), (5, 0), retention_bytes=11), 0),
        (log_of((9, 0), (5, 0), (5, 0), retention_bytes=11), 0),
        (log_of((5, 0), (5, 0), retention_bytes=0), 2),
        (log_of((5, 0), (0, 0), retention_bytes=0), 1),
        (log_of((5, 0), (5, 9 * DAY), (5, 9 * DAY), retention_ms=DAY, retention_bytes=5), 2),
    ],
)
def test_deletable_segments(log, count):
    assert builtin().deletable_segments(log, now_ms=9 * DAY + 1) == count


@pytest.mark.parametrize("answer", [-1, 4, None, True, "2", RuntimeError("no")])
def test_a_failing_policy_deletes_nothing_and_is_counted(answer):
    class Failing:
        @hookimpl
        def deletable_segments(self, log):
            if isinstance(answer, Exception):
                raise answer
            return answer

    registry = Registry()
    registry.register(Failing(), "failing")
    log = log_of((5, 0), (5, 0), (5, 0))
    assert registry.deletable_segments(log, 0) == 0
    assert registry.failures["failing"] == 1
    registry.register(RetentionSize(), "retention_size")
    assert registry.deletable_segments(log._replace(retention_bytes=10), 0) == 1


def test_an_implementation_of_no_hook_is_refused():
    class Wrong:
        @hookimpl
        def deletable_segment(self, log):
            return 0

    with pytest.raises(ValueError, match="wrong"):
        Registry().register(Wrong(), "wrong")
