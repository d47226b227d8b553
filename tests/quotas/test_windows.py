"""The settings of the windows that rates are taken over."""

import pytest
from compat.support import Wire, create_topic
from quotas.asking import set_quota
from quotas.test_enforcement import CLIENT, produce
from quotas.test_mutations import EXCEEDED, create

from barnabas import Broker


@pytest.mark.parametrize(("number", "waits_ms"), [("11", 0), ("6", 5000)])
def test_the_number_of_windows(tmp_path, number, waits_ms):
    """10,000 bytes at once: 1,000 a second in ten windows, and 2,000 in five."""
    with Broker({"log.dirs": str(tmp_path), "quota.window.num": number}) as broker:
        assert waits_of(broker) == pytest.approx(waits_ms, abs=300)


@pytest.mark.parametrize(("seconds", "waits_ms"), [("1", 9000), ("2", 8000)])
def test_the_size_of_windows(tmp_path, seconds, waits_ms):
    """Two windows of one second hold 1,000 bytes, two of two seconds 2,000."""
    settings = {"quota.window.num": "2", "quota.window.size.seconds": seconds}
    with Broker({"log.dirs": str(tmp_path), **settings}) as broker:
        assert waits_of(broker) == pytest.approx(waits_ms, abs=300)


def waits_of(broker):
    create_topic(broker.bootstrap_servers, "t")
    with Wire(broker.bootstrap_servers) as wire:
        set_quota(wire, CLIENT, producer_byte_rate=1000)
        return produce(wire, 9850)


@pytest.mark.parametrize(
    ("number", "seconds", "partitions"), [("11", "1", 11), ("2", "1", 2), ("2", "3", 6)]
)
def test_windows_of_mutations(tmp_path, number, seconds, partitions):
    settings = {
        "controller.quota.window.num": number,
        "controller.quota.window.size.seconds": seconds,
    }
    with Broker({"log.dirs": str(tmp_path), **settings}) as broker:
        with Wire(broker.bootstrap_servers) as wire:
            set_quota(wire, CLIENT, controller_mutation_rate=1)
            assert create(wire, 7, ("a", partitions), ("b", 2)) == ([0, 0], 0)
            codes, throttle_ms = create(wire, 7, ("c", 1))
            assert codes == [EXCEEDED] and 1000 < throttle_ms <= 2000
