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
