import os
import random

import pytest
from zookeeper_server import ZooKeeperServer, missing


@pytest.fixture
def own_zookeeper(tmp_path):
    reason = missing()
    if reason:
        pytest.skip(reason)
    with ZooKeeperServer(tmp_path / "zookeeper") as running:
        yield running


@pytest.fixture(scope="module")
def shared_zookeeper(tmp_path_factory):
    reason = missing()
    if reason:
        pytest.skip(reason)
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture
def seed():
    """A new seed, or the one that BARNABAS_HISTORY_SEED repeats."""
    return int(os.environ.get("BARNABAS_HISTORY_SEED", 0)) or random.SystemRandom().getrandbits(32)
