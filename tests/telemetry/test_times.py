"""Histograms of cext, compared with plain Python; and the last minutes of cumulative counters."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cext.memory.histogram import BUCKETS, Times, bucket_bounds_ns, bucket_of
from barnabas.telemetry.recent import (
    NS_PER_MS,
    NS_PER_S,
    SHARES,
    Recent,
    RecentRate,
    RecentTimes,
    quantiles_ms,
)

LONGEST_NS = 1 << 42


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_time_lies_in_its_bucket(time_ns):
    low, high = bucket_bounds_ns(bucket_of(time_ns))
    if 0 <= time_ns < LONGEST_NS:
        assert low <= time_ns < high
        assert high - low <= max(1024, low / 16)
    else:
        assert bucket_of(time_ns) == (0 if time_ns < 0 else BUCKETS - 1)


def test_buckets_join_without_a_gap():
    bounds = [bucket_bounds_ns(bucket) for bucket in range(BUCKETS)]
    assert bounds[0][0] == 0 and bounds[-1][1] == LONGEST_NS
    assert all(a[1] == b[0] for a, b in zip(bounds, bounds[1:], strict=False))


@given(st.lists(st.integers(1024, 10**12), min_size=1, max_size=300))
def test_quantiles_are_near_the_true_ones(times):
    kept = Times()
    for time_ns in times:
        kept.add(time_ns)
    sum_ns, buckets = kept.read()
    assert sum_ns == sum(times) and sum(buckets.values()) == len(times)
    ordered = sorted(times)
    for share, found_ms in zip(SHARES, quantiles_ms(buckets), strict=True):
        true_ms = ordered[max(0, math.ceil(share * len(ordered)) - 1)] / NS_PER_MS
        assert found_ms == pytest.approx(true_ms, rel=1 / 15, abs=0.0011)


def test_nothing_has_no_quantile():
    assert all(math.isnan(found) for found in quantiles_ms({}))


def test_recent_forgets_what_is_old():
    recent = Recent(60 * NS_PER_S, 0, 0)
    seen = [recent.before(s * NS_PER_S, s) for s in range(0, 300, 3)]
    assert seen[5] == (0, 0)
    then_ns, value = seen[-1]
    assert 60 <= 297 - then_ns // NS_PER_S <= 67
    assert value == then_ns // NS_PER_S


def test_quantiles_are_those_of_the_last_minutes():
    times = RecentTimes(0)
    slow, fast = bucket_of(50 * NS_PER_MS), bucket_of(NS_PER_MS)
    assert times.summary(NS_PER_S, 0, {slow: 10}).quantiles[0] == pytest.approx(50, rel=0.05)
    for minute in range(1, 12):
        buckets = {slow: 10, fast: minute}
        last = times.summary(minute * 60 * NS_PER_S, 0, buckets)
    assert last.quantiles[-1] == pytest.approx(1, rel=0.07)
    assert last.observations == 10 + 11


def test_a_rate_follows_what_happens_now():
    rate = RecentRate(0)
    for second in range(0, 120, 5):
        rate.per_ns(second * NS_PER_S, 0)
    found = [rate.per_ns((120 + s) * NS_PER_S, s * NS_PER_S) for s in range(0, 120, 5)]
    assert found[0] == 0
    assert found[-1] == pytest.approx(1.0)
