"""Tests for every store of the metadata tree. A test file subclasses TreeConformance and defines
the fixture `store`, which has `open()` (a new session; former ones are closed) and `tree`.
"""

import threading

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from barnabas.metadata.tree import (
    DATA_BYTES_MAX,
    BadVersion,
    CheckVersion,
    CreateNode,
    DeleteNode,
    EventType,
    InvalidPath,
    MetadataError,
    MultiFailed,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionLost,
    SessionState,
    SetData,
    TooLarge,
    WatchEvent,
    parent_of,
)

WAIT_SECONDS = 10


class Told:
    """A watch that records its events and their threads."""

    def __init__(self):
        self.events = []
        self.threads = set()
        self._changed = threading.Condition()

    def __call__(self, event):
        with self._changed:
            self.events.append(event)
            self.threads.add(threading.get_ident())
            self._changed.notify_all()

    def wait(self, count):
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.events) >= count, WAIT_SECONDS)
            return self.events


def settle(tree):
    """Waits until the events of all earlier commits have arrived."""
    last = Told()
    tree.exists("/settle", last)
    tree.create("/settle")
    last.wait(1)
    tree.delete("/settle")


class TreeConformance:
    def test_data_and_versions(self, store):
        tree = store.tree
        assert tree.create("/a", b"one") == "/a"
        data, stat = tree.get("/a")
        assert (data, stat.version, stat.ephemeral_owner) == (b"one", 0, 0)
        assert tree.set("/a", b"two").version == 1
        assert tree.set("/a", b"three", version=1).version == 2
        with pytest.raises(BadVersion):
            tree.set("/a", b"four", version=1)
        with pytest.raises(BadVersion):
            tree.delete("/a", version=1)
        data, later = tree.get("/a")
        assert (data, later.version) == (b"three", 2)
        assert later.czxid == stat.czxid < later.mzxid
        assert later.ctime_ms == stat.ctime_ms <= later.mtime_ms
        assert tree.exists("/a") == later
        tree.delete("/a", version=2)
        assert tree.exists("/a") is None

    def test_what_is_not_there(self, store):
        tree = store.tree
        for call in (tree.get, tree.children, tree.delete, lambda p: tree.set(p, b"")):
            with pytest.raises(NoNode):
                call("/absent")
        with pytest.raises(NoNode):
            tree.create("/absent/child")
        assert tree.subtree("/absent") == []
        tree.create("/a")
        [data, missing, again] = tree.get_all(["/a", "/absent", "/a"])
        assert data == again == tree.subtree("/a")[0] and missing is None
        with pytest.raises(NodeExists):
            tree.create("/a")

    def test_children_and_deletion(self, store):
        tree = store.tree
        tree.ensure_path("/a/b/c")
        tree.ensure_path("/a/b/c")
        tree.create("/a/d")
        assert sorted(tree.children("/a")) == ["b", "d"]
        assert tree.children("/a/b/c") == []
        with pytest.raises(NotEmpty):
            tree.delete("/a/b")
        paths = [node.path for node in tree.subtree("/a")]
        assert sorted(paths) == ["/a", "/a/b", "/a/b/c", "/a/d"]
        assert all(parent_of(p) in paths[:i] for i, p in enumerate(paths) if p != "/a")
        tree.delete("/a/b/c")
        tree.delete("/a/b")
        assert tree.children("/a") == ["d"]

    def test_several_paths_are_made_in_one_commit(self, store):
        tree = store.tree
        tree.create("/a", b"kept")
        tree.ensure_paths(["/a/b/c", "/a/b", "/a/d", "/e", "/a/b/c"])
        commits = {tree.exists(path).czxid for path in ("/a/b", "/a/b/c", "/a/d", "/e")}
        assert len(commits) == 1
        tree.ensure_paths(["/a/b/c", "/e"])
        assert tree.get("/a")[0] == b"kept" and tree.get("/a/b/c")[0] == b""

    def test_a_node_made_again_has_another_czxid(self, store):
        tree = store.tree
        tree.create("/a")
        first = tree.exists("/a").czxid
        tree.delete("/a")
        tree = store.open()
        tree.create("/a")
        assert tree.exists("/a").czxid > first

    def test_ephemerals_go_with_their_session(self, store):
        tree = store.tree
        tree.create("/ids")
        tree.create("/ids/1", b"here", ephemeral=True)
        assert tree.exists("/ids/1").ephemeral_owner == tree.session_id != 0
        with pytest.raises(NoChildrenForEphemerals):
            tree.create("/ids/1/child")
        former = tree.session_id
        tree = store.open()
        assert tree.session_id != former
        assert tree.children("/ids") == []

    def test_a_closed_session_refuses(self, store):
        tree = store.tree
        tree.create("/a")
        told = Told()
        tree.add_listener(told)
        tree.exists("/a", watch := Told())
        tree.close()
        tree.close()
        assert told.wait(1)[-1] is SessionState.LOST is tree.state
        assert watch.events == []
        for call in (tree.get, tree.exists, tree.children, tree.subtree, tree.create, tree.delete):
            with pytest.raises(SessionLost):
                call("/a")

    def test_sequences_grow_and_have_ten_digits(self, store):
        tree = store.tree
        tree.create("/n")
        made = [tree.create("/n/change_", sequence=True) for _ in range(12)]
        assert made == sorted(set(made))
        assert all(p.startswith("/n/change_") and p[10:].isdigit() for p in made)
        assert {len(p) for p in made} == {len("/n/change_") + 10}
        tree.delete(made[-1])
        tree = store.open()
        assert tree.create("/n/change_", sequence=True) > made[-1]
        pair = tree.multi([CreateNode("/n/x", sequence=True), CreateNode("/n/x", sequence=True)])
        assert pair[0] < pair[1]
        mine = tree.create("/n/mine_", b"x", ephemeral=True, sequence=True)
        assert tree.exists(mine).ephemeral_owner == tree.session_id

    def test_data_watches_fire_once(self, store):
        tree, told, absent = store.tree, Told(), Told()
        tree.create("/a", b"0")
        tree.get("/a", told)
        tree.exists("/a", told)  # the same watch on the same node fires once
        with pytest.raises(NoNode):
            tree.get("/b", absent)
        tree.set("/a", b"1")
        tree.set("/a", b"2")
        tree.create("/b")
        settle(tree)
        assert told.events == [WatchEvent(EventType.CHANGED, "/a")]
        assert absent.events == []

    def test_watch_on_creation_and_deletion(self, store):
        tree, told = store.tree, Told()
        assert tree.exists("/a", told) is None
        tree.create("/a")
        told.wait(1)
        tree.get("/a", told)
        tree.children("/a", told)
        tree.delete("/a")
        settle(tree)
        assert told.events == [
            WatchEvent(EventType.CREATED, "/a"),
            WatchEvent(EventType.DELETED, "/a"),
        ]

    def test_watch_on_children(self, store):
        tree, told = store.tree, Told()
        tree.create("/p")
        tree.create("/p/a")
        for change in (
            lambda: tree.create("/p/b"),
            lambda: tree.delete("/p/b"),
        ):
            tree.children("/p", told)
            tree.set("/p", b"data")  # does not fire a watch on children
            tree.set("/p/a", b"data")
            change()
        tree.create("/p/c")
        settle(tree)
        assert told.events == [WatchEvent(EventType.CHILDREN, "/p")] * 2

    def test_watches_fire_in_order_from_one_other_thread(self, store):
        tree, told = store.tree, Told()
        paths = [f"/n{i:03d}" for i in range(200)]
        for path in reversed(paths):
            tree.exists(path, told)
        for path in paths[:100]:
            tree.create(path)
        tree.multi([CreateNode(path) for path in paths[100:]])
        assert [event.path for event in told.wait(200)] == paths
        assert len(told.threads) == 1
        assert threading.get_ident() not in told.threads

    def test_watches_fire_after_the_commit_and_may_use_the_tree(self, store):
        tree, seen, done = store.tree, [], threading.Event()

        def watch(event):
            seen.append(tree.get("/a")[0])
            tree.create("/from_watch")
            done.set()

        tree.exists("/a", watch)
        tree.create("/a", b"committed")
        assert done.wait(WAIT_SECONDS)
        assert seen == [b"committed"]
        assert tree.exists("/from_watch")

    def test_a_failing_watch_hurts_no_other(self, store):
        tree, told = store.tree, Told()

        def bad(event):
            raise RuntimeError("planted")

        tree.exists("/a", bad)
        tree.exists("/a", told)
        tree.create("/a")
        told.wait(1)

    def test_multi_gives_a_result_for_each_operation(self, store):
        tree = store.tree
        results = tree.multi(
            [
                CreateNode("/a", b"1"),
                CreateNode("/a/b"),
                SetData("/a", b"2", version=0),
                CheckVersion("/a", version=1),
                DeleteNode("/a/b"),
            ]
        )
        assert results[:2] == ["/a", "/a/b"]
        assert results[2].version == 1 and results[3:] == [None, None]
        assert tree.get("/a")[0] == b"2" and tree.children("/a") == []
        assert tree.multi([]) == []

    @pytest.mark.parametrize(
        ("bad", "error"),
        [
            (CreateNode("/here"), NodeExists),
            (CreateNode("/no/parent"), NoNode),
            (SetData("/here", b"", version=9), BadVersion),
            (CheckVersion("/here", version=9), BadVersion),
            (DeleteNode("/full"), NotEmpty),
            (DeleteNode("/new/gone"), NoNode),
        ],
    )
    def test_multi_does_nothing_when_one_is_refused(self, store, bad, error):
        tree, told = store.tree, Told()
        tree.create("/here", b"old")
        tree.ensure_path("/full/child")
        for path in ("/new", "/here", "/full"):
            tree.exists(path, told)
        before = sorted(tree.subtree("/"))
        operations = [
            CreateNode("/new"),
            SetData("/here", b"new"),
            CreateNode("/full/s", sequence=True),
            bad,
            CreateNode("/after"),
        ]
        with pytest.raises(MultiFailed) as failed:
            tree.multi(operations)
        assert failed.value.index == 3 and isinstance(failed.value.error, error)
        assert [type(r) for r in failed.value.results] == [type(None)] * 3 + [error, type(None)]
        assert sorted(tree.subtree("/")) == before
        settle(tree)
        assert told.events == []
        assert sorted(store.open().subtree("/")) == before

    def test_delete_and_make_again_in_one_multi(self, store):
        tree = store.tree
        tree.ensure_path("/a/b")
        again = [DeleteNode("/a/b"), DeleteNode("/a"), CreateNode("/a"), CreateNode("/a/c")]
        tree.multi(again)
        assert tree.children("/a") == ["c"]
        with pytest.raises(MultiFailed):
            tree.multi([CreateNode("/a/d"), DeleteNode("/a/c"), DeleteNode("/a")])
        assert sorted(n.path for n in store.open().subtree("/a")) == ["/a", "/a/c"]

    def test_paths_of_other_scripts(self, store):
        tree = store.tree
        for name in ("größe", "消费者", "αβγ", "a b", "%3Cdefault%3E", "<default>", "a:b,c"):
            tree.create(f"/{name}", name.encode())
            assert tree.get(f"/{name}")[0] == name.encode()
            assert name in tree.children("/")
        tree = store.open()
        assert tree.get("/消费者")[0] == "消费者".encode()

    @pytest.mark.parametrize(
        "path",
        ["", "a", "a/b", "/a/", "//", "/a//b", "/.", "/a/..", "/a/./b", "/a\0", "/a\n", "/\x7f"]
        + ["/\ud800", "/\uffff", "/\ue000"],
    )
    def test_paths_that_are_refused(self, store, path):
        tree = store.tree
        for call in (tree.create, tree.get, tree.exists, tree.children, tree.delete):
            with pytest.raises(InvalidPath):
                call(path)

    def test_data_limit(self, store):
        tree = store.tree
        largest = bytes(range(256)) * (DATA_BYTES_MAX // 256)
        largest += bytes(DATA_BYTES_MAX - len(largest))
        tree.create("/large", largest)
        tree.set("/large", largest)
        with pytest.raises(TooLarge):
            tree.set("/large", largest + b"x")
        with pytest.raises(TooLarge):
            tree.create("/larger", largest + b"x")
        with pytest.raises(TooLarge):
            tree.create("/" + "p" * tree.limits.path_bytes_max)
        with pytest.raises(TooLarge):
            tree.multi([CheckVersion("/")] * (tree.limits.multi_operations_max + 1))
        assert store.open().get("/large")[0] == largest

    def test_empty_data_is_empty_bytes(self, store):
        store.tree.create("/empty")
        assert store.tree.get("/empty")[0] == b""
        with pytest.raises(TypeError):
            store.tree.create("/text", "text")

    def test_concurrent_writers_lose_no_update(self, store):
        tree = store.tree
        tree.create("/counter", b"0")
        tree.create("/made")
        wrong = []

        def work():
            try:
                for _ in range(25):
                    while True:
                        data, stat = tree.get("/counter")
                        try:
                            tree.set("/counter", b"%d" % (int(data) + 1), stat.version)
                            break
                        except BadVersion:
                            pass
                    tree.create("/made/n", sequence=True)
            except BaseException as error:
                wrong.append(error)
                raise

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert tree.get("/counter")[0] == b"100"
        assert len(set(tree.children("/made"))) == 100

    def test_agrees_with_a_dict(self, store_maker):
        run_state_machine_as_test(
            lambda: TreeMachine(store_maker()),
            settings=settings(max_examples=20, stateful_step_count=30, deadline=None),
        )


NAMES = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/a/x/z", "/b/x"])
VERSIONS = st.sampled_from([-1, -1, 0, 1, 2])
DATA = st.binary(max_size=4)
OPERATIONS = st.one_of(
    st.builds(CreateNode, NAMES, DATA, ephemeral=st.booleans()),
    st.builds(SetData, NAMES, DATA, VERSIONS),
    st.builds(DeleteNode, NAMES, VERSIONS),
    st.builds(CheckVersion, NAMES, VERSIONS),
)


class TreeMachine(RuleBasedStateMachine):
    """The tree beside a dict of path -> (data, version, ephemeral)."""

    def __init__(self, store):
        super().__init__()
        self.store = store
        self.model = {"/": (b"", 0, False)}

    def teardown(self):
        self.store.tree.close()

    def expected(self, model, operation):
        """Carries out the operation on the model. Returns its error or None."""
        path = operation.path
        if isinstance(operation, CreateNode):
            parent = model.get(parent_of(path))
            if parent is None:
                return NoNode
            if parent[2]:
                return NoChildrenForEphemerals
            if path in model:
                return NodeExists
            model[path] = (operation.data, 0, operation.ephemeral)
            return None
        if path not in model:
            return NoNode
        data, version, ephemeral = model[path]
        if operation.version not in (-1, version):
            return BadVersion
        if isinstance(operation, SetData):
            model[path] = (operation.data, version + 1, ephemeral)
        elif isinstance(operation, DeleteNode):
            if any(parent_of(p) == path for p in model):
                return NotEmpty
            del model[path]
        return None

    @rule(operations=st.lists(OPERATIONS, min_size=1, max_size=5))
    def multi(self, operations):
        model = dict(self.model)
        for index, operation in enumerate(operations):
            error = self.expected(model, operation)
            if error is not None:
                with pytest.raises(MultiFailed) as failed:
                    self.store.tree.multi(operations)
                assert (failed.value.index, type(failed.value.error)) == (index, error)
                return
        self.store.tree.multi(operations)
        self.model = model

    @rule(operation=OPERATIONS)
    def one(self, operation):
        error = self.expected(self.model, operation)
        tree = self.store.tree
        try:
            if isinstance(operation, CreateNode):
                tree.create(operation.path, operation.data, operation.ephemeral)
            elif isinstance(operation, SetData):
                tree.set(operation.path, operation.data, operation.version)
            elif isinstance(operation, DeleteNode):
                tree.delete(operation.path, operation.version)
            else:
                tree.multi([operation])
        except MultiFailed as failed:
            assert type(failed.error) is error
        except MetadataError as refused:
            assert type(refused) is error
        else:
            assert error is None

    @rule()
    def new_session(self):
        self.store.open()
        self.model = {p: value for p, value in self.model.items() if not value[2]}

    @invariant()
    def same(self):
        tree = self.store.tree
        found = {
            n.path: (n.data, n.stat.version, n.stat.ephemeral_owner != 0) for n in tree.subtree("/")
        }
        assert found == self.model
        for path in self.model:
            below = {p for p in self.model if p != "/" and parent_of(p) == path}
            assert {p.rpartition("/")[2] for p in below} == set(tree.children(path))
