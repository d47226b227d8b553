"""Access rules in the metadata tree of both stores, in the form of Kafka's ZooKeeper authorizer."""

import itertools
import json
import threading

import pytest

from barnabas.config.zookeeper import ZooKeeperSettings
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.memory import MemoryStore
from barnabas.metadata.tree import InvalidPath, StoreUnavailable
from barnabas.metadata.zookeeper import ZooKeeperTree
from barnabas.security import acl_nodes
from barnabas.security.access_rules import AccessControlEntry, ResourcePattern
from barnabas.security.acl_codes import (
    ALL,
    ALLOW,
    DENY,
    GROUP,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
)
from barnabas.security.acl_store import ATTEMPTS_MAX, COMMIT_PATTERNS_MAX, UNREADABLE, AclStore

READS = AccessControlEntry("User:alice", "*", READ, ALLOW)
WRITES = AccessControlEntry("User:bob", "10.0.0.1", WRITE, DENY)
T = ResourcePattern(TOPIC, "t", LITERAL)
LOGS = ResourcePattern(TRANSACTIONAL_ID, "log-", PREFIXED)
PATH_OF_T = "/kafka-acl/Topic/t"
WAIT_S = 20


class Trees:
    """Opens trees on one store, as brokers of a cluster do, and closes them."""

    def __init__(self, directory, server):
        self._opened = []
        self._clock_ms = itertools.count(1_700_000_000_000).__next__
        self._directory, self._memory = directory, MemoryStore()
        self._settings = server and ZooKeeperSettings(
            hosts=server.address, chroot=server.new_chroot(), session_timeout_ms=20_000
        )

    def open(self):
        if self._settings:
            tree = ZooKeeperTree(self._settings)
        else:
            self.close()  # the embedded store has one session
            tree = EmbeddedTree(self._directory, clock_ms=self._clock_ms, store=self._memory)
        self._opened.append(tree)
        return tree

    def close(self):
        while self._opened:
            self._opened.pop().close()


@pytest.fixture(params=["embedded", pytest.param("zookeeper", marks=pytest.mark.java)])
def trees(request, tmp_path):
    is_shared = request.param == "zookeeper"
    made = Trees(tmp_path, request.getfixturevalue("zookeeper_server") if is_shared else None)
    yield made
    made.close()


def test_rules_are_written_and_read_again(trees):
    tree = trees.open()
    seen = []
    store = AclStore(tree, seen.append)
    assert store.change({T: [READS, WRITES], LOGS: [READS]}, {}) == {T: None, LOGS: None}
    assert store.rules.entries_of(T) == {READS, WRITES} and seen[-1] is store.rules
    assert json.loads(tree.get(PATH_OF_T)[0]) == {
        "version": 1,
        "acls": [
            {
                "principal": "User:alice",
                "permissionType": "Allow",
                "operation": "Read",
                "host": "*",
            },
            {
                "principal": "User:bob",
                "permissionType": "Deny",
                "operation": "Write",
                "host": "10.0.0.1",
            },
        ],
    }
    assert tree.exists("/kafka-acl-extended/prefixed/TransactionalId/log-")
    count = len(seen)
    store.change({T: [READS]}, {})  # it is there already
    assert len(seen) == count

    assert store.change({}, {T: [READS, WRITES], LOGS: [WRITES]}) == {T: None, LOGS: None}
    assert tree.exists(PATH_OF_T) is None
    again = AclStore(trees.open())
    assert list(again.rules) == list(store.rules) and len(again.rules) == 1


def test_rules_that_cannot_be_read_deny_their_resource(trees):
    tree = trees.open()
    store = AclStore(tree)
    store.change({T: [READS]}, {})
    for data in (b"{", b'{"version":2,"acls":[]}', b'{"version":1,"acls":[{"principal":"x"}]}'):
        tree.set(PATH_OF_T, data)
        store.load()
        assert store.rules.entries_of(T) == UNREADABLE
        (error,) = store.change({T: [WRITES]}, {}).values()
        assert error is not None and tree.get(PATH_OF_T)[0] == data  # nobody's rules are lost
    tree.ensure_path("/kafka-acl/Planet/mars")
    store.load()
    assert len(store.rules) == 1


def test_a_name_that_no_node_can_have_is_refused_alone(trees):
    store = AclStore(trees.open())
    odd = [ResourcePattern(GROUP, name, LITERAL) for name in ("a/b", "..", "x\0")]
    outcomes = store.change(dict.fromkeys([*odd, T], [READS]), {})
    assert outcomes.pop(T) is None and store.rules.entries_of(T) == {READS}
    assert all(isinstance(error, InvalidPath) for error in outcomes.values())
    assert set(outcomes) == set(odd) and len(store.rules) == 1


def test_more_rules_than_one_commit_takes(trees):
    store = AclStore(trees.open())
    many = {
        ResourcePattern(TOPIC, f"t{n}", LITERAL): [READS] for n in range(COMMIT_PATTERNS_MAX + 100)
    }
    assert set(store.change(many, {}).values()) == {None}
    assert len(store.rules) == len(many)


@pytest.mark.java
def test_a_change_of_one_broker_reaches_the_others_in_one_step(trees_of_zookeeper):
    here, there = trees_of_zookeeper.open(), trees_of_zookeeper.open()
    states, arrived = [], threading.Event()

    def changed(rules):
        states.append(rules)
        if states[-1].entries_of(T):
            arrived.set()

    follower = AclStore(there, changed)
    writer = AclStore(here)
    writer.change({LOGS: [READS]}, {})
    writer.change({T: [READS, WRITES]}, {})
    assert arrived.wait(WAIT_S) and follower.rules.entries_of(T) == {READS, WRITES}
    assert all(rules.entries_of(T) in (frozenset(), {READS, WRITES}) for rules in states)
    assert follower.rules.entries_of(LOGS) == {READS}

    # Notes as Kafka's brokers write them, and the old spelling of types.
    arrived.clear()
    here.set(PATH_OF_T, acl_nodes.encode([READS]))
    here.create("/kafka-acl-changes/acl_changes_", b"Topic:t", sequence=True)
    assert arrived.wait(WAIT_S) and follower.rules.entries_of(T) == {READS}
    # A note that cannot be read: everything is read again.
    arrived.clear()
    here.set(PATH_OF_T, acl_nodes.encode([WRITES]))
    here.create("/kafka-acl-extended-changes/acl_changes_", b"?", sequence=True)
    assert arrived.wait(WAIT_S) and follower.rules.entries_of(T) == {WRITES}


@pytest.fixture
def trees_of_zookeeper(tmp_path, zookeeper_server):
    made = Trees(tmp_path, zookeeper_server)
    yield made
    made.close()


class Outrun:
    """A tree in which another broker changes T before each commit of this one."""

    def __init__(self, tree, changes):
        self._tree, self._changes = tree, changes

    def __getattr__(self, name):
        return getattr(self._tree, name)

    def multi(self, operations):
        if self._changes:
            entry = READS._replace(host=f"10.0.0.{self._changes}", operation=ALL)
            self._changes -= 1
            now = acl_nodes.decode(self._tree.get(PATH_OF_T)[0])
            self._tree.set(PATH_OF_T, acl_nodes.encode(now | {entry}))
        return self._tree.multi(operations)


def test_of_two_writers_none_is_lost(trees):
    tree = trees.open()
    AclStore(tree).change({T: [READS]}, {})
    store = AclStore(Outrun(tree, 2))
    assert store.change({T: [WRITES]}, {}) == {T: None}
    assert len(store.rules.entries_of(T)) == 4
    busy = AclStore(Outrun(tree, ATTEMPTS_MAX))
    (error,) = busy.change({T: [READS._replace(operation=WRITE)]}, {}).values()
    assert isinstance(error, StoreUnavailable)
