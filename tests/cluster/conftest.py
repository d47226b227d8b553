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


def pytest_ignore_collect(collection_path):
    """Leaves out of the short form what only the long form has."""
    from long_form import LONG  # after the option --long was read

    return True if collection_path.name == "test_rolling_replacement.py" and not LONG else None
