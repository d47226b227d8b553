"""The native windows of quotas beside their slow twin, and Kafka's formula by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import rate

from barnabas.cext.network.quota_sensors import Sensor

STEPS = st.lists(
    st.tuples(st.booleans(), st.integers(0, 100_000), st.integers(0, 3000)), max_size=60
)


@given(STEPS, st.integers(1, 12), st.integers(1, 2000), st.integers(1, 50_000))
def test_the_native_windows_are_kafkas(steps, samples, window_ms, limit):
    native = Sensor(samples=samples, window_ms=window_ms)
    native.limit = limit
    twin = rate.Sensor(samples, window_ms, limit)
    now_ms = 1_000_000
    for is_within, amount, later_ms in steps:
        now_ms += later_ms
        name = "use_within" if is_within else "use"
        assert getattr(native, name)(amount, now_ms) == getattr(twin, name)(amount, now_ms)
        assert native.rate(now_ms) == pytest.approx(twin.measured(now_ms)[0])


def test_a_client_waits_until_its_rate_is_the_limit():
    """10 windows of 1 s before the present one: 20,000 bytes at once are 2,000 a second."""
    sensor = Sensor(samples=11, window_ms=1000)
    sensor.limit = 1000
    assert sensor.use(10_000, 5000) == 0
    assert sensor.use(10_000, 5000) == 10_000
    assert sensor.rate(15_000) == pytest.approx(2000)  # still in the windows
    assert sensor.rate(16_000) == 0


def test_a_use_that_does_not_fit_is_not_counted():
    sensor = Sensor(samples=11, window_ms=1000)
    sensor.limit = 1000
    assert sensor.use_within(20_000, 5000) == 10_000
    assert sensor.rate(5000) == 0


def test_a_wait_has_a_limit():
    sensor = Sensor(samples=11, window_ms=1000, wait_ms_max=1000)
    sensor.limit = 1
    assert sensor.use(10_000, 5000) == 1000
    sensor = Sensor(samples=11, window_ms=1000)
    sensor.limit = 1e-9
    assert sensor.use(1e18, 5000) == 2**31 - 1


def test_without_a_limit_no_client_waits():
    sensor = Sensor(samples=11, window_ms=1000)
    assert sensor.limit is None
    assert sensor.use(1e18, 5000) == 0
    assert sensor.rate(5000) == pytest.approx(1e17)


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_what_is_no_quota_is_refused(limit):
    with pytest.raises(ValueError):
        Sensor(samples=11, window_ms=1000).limit = limit
