"""The conformance suite of the tree, on each store."""

import itertools

import pytest

pytest.register_assert_rewrite("metadata.conformance")

from metadata.conformance import TreeConformance  # noqa: E402

from barnabas.config.zookeeper import ZooKeeperSettings  # noqa: E402
from barnabas.metadata.embedded import EmbeddedTree  # noqa: E402
from barnabas.metadata.memory import MemoryStore  # noqa: E402
from barnabas.metadata.zookeeper import ZooKeeperTree  # noqa: E402

pytestmark = pytest.mark.takes(seconds=20)


class EmbeddedStore:
    def __init__(self, directory):
        self._directory = directory
        self._now_ms = itertools.count(1_700_000_000_000)
        self.tree = None
        self.open()

    def open(self):
        if self.tree is not None:
            self.tree.close()
        self.tree = EmbeddedTree(self._directory, clock_ms=lambda: next(self._now_ms))
        return self.tree


class InMemory(EmbeddedStore):
    def __init__(self, directory):
        self._memory = MemoryStore()
        super().__init__(directory)

    def open(self):
        if self.tree is not None:
            self.tree.close()
        clock_ms = lambda: next(self._now_ms)  # noqa: E731
        self.tree = EmbeddedTree(self._directory, clock_ms=clock_ms, store=self._memory)
        return self.tree


class InZooKeeper:
    """Each store is a chroot of the session's server."""

    def __init__(self, server):
        self._settings = ZooKeeperSettings(
            hosts=server.address, chroot=server.new_chroot(), session_timeout_ms=20_000
        )
        self.tree = None
        self.open()

    def open(self):
        if self.tree is not None:
            self.tree.close()
        self.tree = ZooKeeperTree(self._settings)
        return self.tree


STORES = {"embedded": EmbeddedStore, "memory": InMemory}


@pytest.fixture(params=[*STORES, pytest.param("zookeeper", marks=pytest.mark.java)])
def store_maker(request, tmp_path):
    if request.param == "zookeeper":
        server = request.getfixturevalue("zookeeper_server")
        return lambda: InZooKeeper(server)
    number = itertools.count()
    return lambda: STORES[request.param](tmp_path / str(next(number)))


@pytest.fixture
def store(store_maker):
    made = store_maker()
    yield made
    made.tree.close()


class TestTree(TreeConformance):
    pass
