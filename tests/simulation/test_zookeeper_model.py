"""Tests the model of ZooKeeper with the conformance suite of stores, and against the real
server."""

import contextlib
import itertools
import random
import re
import threading

import pytest
from long_form import pick
from simulation.zookeeper_model import Server, Session
from zookeeper_server import ZooKeeperServer, missing

pytest.register_assert_rewrite("metadata.conformance")

from metadata.conformance import TreeConformance  # noqa: E402

from barnabas.config.zookeeper import ZooKeeperSettings  # noqa: E402
from barnabas.metadata.tree import (  # noqa: E402
    CheckVersion,
    CreateNode,
    DeleteNode,
    MetadataError,
    MultiFailed,
    SessionState,
    SetData,
)
from barnabas.metadata.zookeeper import ZooKeeperTree  # noqa: E402

SEQUENCES = pick(short=60, long=10_000)
STEPS, SETTLE_S = 30, 20


class Pumped:
    """A store for the suite: runs one call of the model at a time, and calls watches on a
    thread."""

    def __init__(self):
        now_ms = itertools.count(1_700_000_000_000)
        self._server = Server(lambda: next(now_ms))
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self.tree = None
        self.open()
        self._thread = threading.Thread(target=self._pump, daemon=True)
        self._thread.start()

    def open(self):
        if self.tree is not None:
            self.tree.close()
        self.tree = Session(self._server)
        for name in ("get", "exists", "children", "subtree", "multi", "close"):
            setattr(self.tree, name, self._locked(getattr(self.tree, name)))
        return self.tree

    def _locked(self, call):
        def locked(*args, **named):
            with self._lock:
                return call(*args, **named)

        return locked

    def _pump(self):
        while not self._stop.wait(0.0005):
            while self.tree.waits:
                with contextlib.suppress(Exception):  # as Calls, which logs it
                    self.tree.deliver()

    def close(self):
        self._stop.set()
        self._thread.join()
        self.tree.close()


class TestModel(TreeConformance):
    @pytest.fixture
    def store(self):
        made = Pumped()
        yield made
        made.close()

    @pytest.fixture
    def store_maker(self):
        made = []

        def make():
            made.append(Pumped())
            return made[-1]

        yield make
        for store in made:
            store.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    reason = missing()
    if reason:
        pytest.skip(reason)
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


class Told:
    """Records the events that the watches of one session get."""

    def __init__(self):
        self.events = []

    def watch(self, name):
        return lambda event: self.events.append((event.path, event.type, name))

    def ordered(self):
        """Returns the events, with the watches of one event in the order of their names."""
        groups = itertools.groupby(self.events, key=lambda event: event[:2])
        return [event for _key, group in groups for event in sorted(group, key=lambda e: e[2])]


PATHS = ["/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/z"]


def operation(source):
    path, version = source.choice(PATHS), source.choice([-1, -1, 0, 1, 2])
    return source.choice(
        [
            CreateNode(path, b"%d" % source.randrange(100)),
            CreateNode(path, b"", ephemeral=True),
            CreateNode(path + "-", b"", sequence=True),
            SetData(path, b"%d" % source.randrange(100), version),
            DeleteNode(path, version),
            CheckVersion(path, version),
        ]
    )


def attempt(call):
    """Returns the result of a call, or the name of its error and the index of the failed
    operation."""
    try:
        return call()
    except MultiFailed as failed:
        return failed.index, type(failed.error).__name__
    except MetadataError as error:
        return type(error).__name__


def unnumbered(path):
    """Hides sequence numbers: ZooKeeper counts all children that a node ever had, the model only
    sequential ones."""
    return re.sub(r"-\d{10}$", "-N", path)


def without_times(results):
    """Keeps versions and paths; commit numbers and times differ."""
    if not isinstance(results, list):
        return results
    return [row.version if hasattr(row, "version") else row and unnumbered(row) for row in results]


def seen(tree):
    owners = {tree.session_id: "own", 0: ""}
    return sorted(
        (
            unnumbered(row.path),
            row.data,
            row.stat.version,
            owners.get(row.stat.ephemeral_owner, "other"),
        )
        for row in tree.subtree("/")
        if not row.path.startswith("/zookeeper")
    )


def settled(trees, told):
    """Waits until all watches of earlier commits have been called."""
    for tree, row in zip(trees, told, strict=True):
        done = threading.Event()
        tree.exists("/settled", lambda _event, done=done: done.set())
        tree.create("/settled")
        if isinstance(tree, Session):
            while tree.waits:
                tree.deliver()
        assert done.wait(SETTLE_S), row.events
        tree.delete("/settled")


@pytest.mark.parametrize("part", range(4))
def test_random_operations_of_two_sessions_beside_zookeeper(server, part):
    """Covers multis, the order of watches, ephemerals, and the expiry of a session."""
    settings = ZooKeeperSettings(
        hosts=server.address, chroot=server.new_chroot(), session_timeout_ms=20_000
    )
    now_ms = itertools.count(1_700_000_000_000)
    for seed in range(part, SEQUENCES, 4):
        source = random.Random(seed)
        model = Server(lambda: next(now_ms))
        pairs = [(Session(model), ZooKeeperTree(settings)) for _ in range(2)]
        told = [(Told(), Told()) for _ in pairs]
        try:
            for step in range(STEPS):
                at = source.randrange(2)
                if source.random() < 0.3:
                    kind, path = source.choice(["exists", "children"]), source.choice(PATHS)
                    found = [
                        attempt(lambda t=t, w=w: getattr(t, kind)(path, w.watch(step)))  # noqa: B023
                        for t, w in zip(pairs[at], told[at], strict=True)
                    ]
                    assert (found[0] is None) == (found[1] is None), seed
                    if isinstance(found[0], list):
                        ours, theirs = (sorted(map(unnumbered, names)) for names in found)
                        assert ours == theirs, seed
                    continue
                multi = [operation(source) for _ in range(source.choice([1, 1, 2, 3]))]
                ours, theirs = (attempt(lambda t=t: t.multi(multi)) for t in pairs[at])  # noqa: B023
                assert without_times(ours) == without_times(theirs), (seed, multi)
            for at in (0, 1):
                settled(pairs[at], told[at])
                assert told[at][0].ordered() == told[at][1].ordered(), seed
            ours, theirs = pairs[0]
            model.expire(ours.session_id)
            server.expire(theirs.session_id)
            other, real = pairs[1]
            for _ in range(2000):
                if seen(other) == seen(real):
                    break
                threading.Event().wait(0.005)
            assert seen(other) == seen(real), seed
            ours.disconnect()
            ours.reconnect()
            assert ours.state is SessionState.CONNECTED
        finally:
            for node in ("/a", "/b"):
                _remove(pairs[1][1], node)
            for pair in pairs:
                for tree in pair:
                    tree.close()


def _remove(tree, path):
    below = [row.path for row in tree.subtree("/") if row.path.startswith(path)]
    for each in sorted(below, key=len, reverse=True):
        attempt(lambda each=each: tree.delete(each))
