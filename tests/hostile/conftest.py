"""Each file has its own broker, and a normal client that hostile clients must not disturb."""

import pytest
from compat.support import Wire
from durability.broker_process import BrokerProcess, free_port
from hostile.raw import Growth
from node.test_settings import create, metadata, produce

GROWTH_MAX = 8 << 20
SETTINGS = {"request.receive.timeout.ms": 1000, "response.send.timeout.ms": 2000}


@pytest.fixture(scope="module")
def broker(tmp_path_factory, request):
    settings = SETTINGS | getattr(request.module, "MORE_SETTINGS", {})
    with BrokerProcess(tmp_path_factory.mktemp("data"), free_port(), settings) as made:
        with Wire(made.address) as wire:
            create(wire, "t")
            for _ in range(200):  # memory that a broker allocates once is not growth
                assert produce(wire, "t", b"warm" * 1000).errorCode == 0
        yield made


@pytest.fixture(autouse=True)
def neighbour(broker, request):
    """Opens another connection before the test; the broker must serve it normally afterwards. The
    broker's memory may grow by at most the file's GROWTH_MAX meanwhile, at its peak."""
    growth_max = getattr(request.module, "GROWTH_MAX", GROWTH_MAX)
    with Wire(broker.address) as wire:
        assert metadata(wire, "t").topics[0].errorCode == 0
        growth = Growth(broker)
        yield wire
        assert metadata(wire, "t").topics[0].errorCode == 0
        assert broker.process.poll() is None
        assert growth.peak_bytes() <= growth_max
        with Wire(broker.address) as new:
            assert produce(new, "t", b"still here").errorCode == 0
