"""After a lost response the tree is read: a multi is done once, and its outcome is right or
reported as unknown."""

import pytest
from zookeeper.lossy_proxy import LOSE_ANSWER, LOSE_REQUEST, LossyProxy

from barnabas.config.zookeeper import ZooKeeperSettings
from barnabas.metadata.tree import (
    BadVersion,
    CheckVersion,
    CreateNode,
    DeleteNode,
    MultiFailed,
    NodeExists,
    OutcomeUnknown,
    SetData,
)
from barnabas.metadata.zookeeper import ZooKeeperTree

LOST = pytest.mark.parametrize("what", [LOSE_ANSWER, LOSE_REQUEST])


@pytest.fixture
def proxy(zookeeper_server):
    made = LossyProxy(zookeeper_server.port)
    yield made
    made.close()


@pytest.fixture
def trees(zookeeper_server, proxy):
    """A tree that is connected through the proxy, and one of another writer with the same
    chroot."""
    chroot = zookeeper_server.new_chroot()
    made = [
        ZooKeeperTree(ZooKeeperSettings(hosts, chroot, session_timeout_ms=20_000))
        for hosts in (proxy.address, zookeeper_server.address)
    ]
    yield made
    for tree in made:
        tree.close()


@LOST
def test_what_was_changed_is_changed_once(trees, proxy, what):
    tree, other = trees
    tree.create("/counter", b"0")
    tree.create("/notes")
    for number in range(1, 9):
        proxy.lose(what)
        stat, note = tree.multi(
            [
                SetData("/counter", b"%d" % number, number - 1),
                CreateNode("/notes/note_", b"%d" % number, sequence=True),
            ]
        )
        assert proxy.lost == number, "the fault did not fire"
        assert stat.version == number and other.get(note)[0] == b"%d" % number
    assert other.get("/counter")[0] == b"8" and other.get("/counter")[1].version == 8
    assert len(other.children("/notes")) == 8


@LOST
def test_creation_and_deletion(trees, proxy, what):
    tree, other = trees
    proxy.lose(what)
    assert tree.multi([CreateNode("/a", b"x"), CreateNode("/a/b")]) == ["/a", "/a/b"]
    proxy.lose(what)
    assert tree.create("/mine", ephemeral=True) == "/mine"
    assert other.exists("/mine").ephemeral_owner == tree.session_id
    proxy.lose(what)
    tree.multi([CheckVersion("/a", 0), DeleteNode("/a/b"), DeleteNode("/a", 0)])
    assert other.exists("/a") is None
    assert proxy.lost == 3


@LOST
def test_what_is_refused_is_refused(trees, proxy, what):
    tree, _other = trees
    tree.create("/a", b"0")
    proxy.lose(what)
    with pytest.raises(NodeExists):
        tree.create("/a", b"1")
    proxy.lose(what)
    with pytest.raises(BadVersion):
        tree.set("/a", b"1", 7)
    proxy.lose(what)
    with pytest.raises(MultiFailed) as failed:
        tree.multi([CreateNode("/b"), CreateNode("/a")])
    assert failed.value.index == 1 and tree.exists("/b") is None
    assert proxy.lost == 3


def test_another_writer_in_between(trees, proxy):
    """After another writer's immediate change, our own cannot be recognized."""
    tree, other = trees
    tree.create("/a", b"0")
    looked_for = tree._found

    def late(operations):
        other.set("/a", b"theirs")
        return looked_for(operations)

    tree._found = late
    proxy.lose(LOSE_ANSWER)
    with pytest.raises(OutcomeUnknown):
        tree.set("/a", b"ours", 0)
    assert proxy.lost == 1 and other.get("/a")[0] == b"theirs"


def test_a_lone_sequential_node(trees, proxy):
    """No other operation of the multi shows whether it was done: the node exists at most once."""
    tree, other = trees
    tree.create("/n")
    proxy.lose(LOSE_REQUEST)
    assert tree.create("/n/s_", sequence=True) == "/n/" + other.children("/n")[0]
    proxy.lose(LOSE_ANSWER)
    with pytest.raises(OutcomeUnknown):
        tree.create("/n/s_", sequence=True)
    assert len(other.children("/n")) == 2
