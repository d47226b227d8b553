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


class Pair:
    """A session of the model, and one of the server."""

    def __init__(self, model, settings):
        self.trees = Session(model), ZooKeeperTree(settings)
        self.told = Told(), Told()

    def close(self):
        for tree in self.trees:
            tree.close()


def run_sequence(source, pairs, name):
    """Runs random operations and watches of both sessions on the model and on the server."""
    for pair in pairs:
        pair.told = Told(), Told()
    for step in range(STEPS):
        pair = source.choice(pairs)
        if source.random() < 0.3:
            kind, path = source.choice(["exists", "children"]), source.choice(PATHS)
            found = [
                attempt(lambda t=t, w=w: getattr(t, kind)(path, w.watch(step)))  # noqa: B023
                for t, w in zip(pair.trees, pair.told, strict=True)
            ]
            assert (found[0] is None) == (found[1] is None), name
            if isinstance(found[0], list):
                ours, theirs = (sorted(map(unnumbered, names)) for names in found)
                assert ours == theirs, name
            continue
        multi = [operation(source) for _ in range(source.choice([1, 1, 2, 3]))]
        ours, theirs = (attempt(lambda t=t: t.multi(multi)) for t in pair.trees)  # noqa: B023
        assert without_times(ours) == without_times(theirs), (name, multi)
    for pair in pairs:
        settled(pair.trees, pair.told)
        assert pair.told[0].ordered() == pair.told[1].ordered(), name


def expire(server, model, pair, other, name):
    """Lets the session of a pair expire, and compares what the other one sees."""
    ours, theirs = pair.trees
    model.expire(ours.session_id)
    server.expire(theirs.session_id)
    for _ in range(2000):
        if seen(other.trees[0]) == seen(other.trees[1]):
            break
        threading.Event().wait(0.005)
    assert seen(other.trees[0]) == seen(other.trees[1]), name
    ours.disconnect()
    ours.reconnect()
    assert ours.state is SessionState.CONNECTED
    pair.close()


@pytest.mark.parametrize("part", range(4))
def test_random_operations_of_two_sessions_beside_zookeeper(server, part):
    """Covers multis, the order of watches, ephemerals, and, at the end of one sequence of four, the
    expiry of a session. The other sequences go on with the same sessions and the watches that were
    left."""
    settings = ZooKeeperSettings(
        hosts=server.address, chroot=server.new_chroot(), session_timeout_ms=20_000
    )
    now_ms = itertools.count(1_700_000_000_000)
    model = Server(lambda: next(now_ms))
    pairs = [Pair(model, settings) for _ in range(2)]
    try:
        for number, seed in enumerate(range(part, SEQUENCES, 4)):
            run_sequence(random.Random(seed), pairs, seed)
            assert seen(pairs[1].trees[0]) == seen(pairs[1].trees[1]), seed
            if number % 4 == 3:
                expire(server, model, pairs[0], pairs[1], seed)
                pairs[0] = Pair(model, settings)
            for tree in pairs[1].trees:
                for node in ("/a", "/b"):
                    _remove(tree, node)
    finally:
        for pair in pairs:
            pair.close()


def _remove(tree, path):
    below = [row.path for row in tree.subtree("/") if row.path.startswith(path)]
    for each in sorted(below, key=len, reverse=True):
        attempt(lambda each=each: tree.delete(each))
