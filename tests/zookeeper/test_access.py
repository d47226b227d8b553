"""zookeeper.auth and zookeeper.set.acl: no other user changes what this node creates, and a node
that has no access reports it and does not start."""

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.security import ACL, Id, Permissions, make_digest_acl, make_digest_acl_credential

from barnabas import Broker
from barnabas.node import CannotStart

ME = "me:secret:with:colons"
OWNER = ACL(Permissions.ALL, Id("digest", make_digest_acl_credential("me", "secret:with:colons")))
ALL = ACL(Permissions.ALL, Id("world", "anyone"))
READ = ACL(Permissions.READ, Id("world", "anyone"))
PROTECTED = {"zookeeper_auth": f"digest:{ME}", "zookeeper_set_acl": "true"}


@pytest.fixture
def chroot(zookeeper_server):
    return zookeeper_server.new_chroot()


@pytest.fixture
def connect(zookeeper_server, chroot):
    return zookeeper_server.connect(chroot)


def lists_below(client, path, found=None):
    """Path -> its access control list."""
    found = {} if found is None else found
    found[path] = set(client.get_acls(path)[0])
    for name in client.get_children(path):
        lists_below(client, f"{path}/{name}", found)
    return found


def test_set_acl(brokers, connect, chroot, zk, zookeeper_server):
    settings = {"zookeeper.auth": f"digest:{ME}", "zookeeper.set.acl": "true"}
    broker = brokers.start(connect, **settings)
    broker.create_topic("t")
    found = lists_below(zk(zookeeper_server, auth="super:secret"), chroot)
    assert {f"{chroot}/controller", f"{chroot}/brokers/topics/t/partitions/0/state"} <= set(found)
    sensitive = (f"{chroot}/config/users", f"{chroot}/config/brokers")
    for path, acl in found.items():
        if path == f"{chroot}/consumers":
            assert acl == {ALL}  # old consumers write there
        elif path.startswith(sensitive):
            assert acl == {OWNER}
        else:
            assert acl == {OWNER, READ}, path
    stranger = zk(zookeeper_server)
    assert b"brokerid" in stranger.get(f"{chroot}/controller")[0]
    for refused in (
        lambda: stranger.set(f"{chroot}/brokers/topics/t", b"{}"),
        lambda: stranger.delete(f"{chroot}/brokers/ids/1"),
        lambda: stranger.create(f"{chroot}/admin/delete_topics/t"),
        lambda: stranger.get(f"{chroot}/config/users"),
    ):
        with pytest.raises(NoAuthError):
            refused()
    broker.restart()
    assert broker.topics == ["t"]
    zk(zookeeper_server, auth=ME).create(f"{chroot}/admin/delete_topics/t")


def test_auth(brokers, connect, chroot, zk, zookeeper_server):
    """Without zookeeper.set.acl the node can read protected znodes, and protects none."""
    closed = make_digest_acl("me", "secret:with:colons", all=True)
    zk(zookeeper_server).create(chroot, acl=[closed])
    broker = brokers.start(connect, **{"zookeeper.auth": f"digest:{ME}"})
    broker.create_topic("t")
    client = zk(zookeeper_server, auth="super:secret")
    found = lists_below(client, chroot)
    assert found.pop(chroot) == {OWNER} and set(map(frozenset, found.values())) == {
        frozenset([ALL])
    }


@pytest.mark.parametrize(
    "settings",
    [{}, {"zookeeper.auth": "digest:me:wrong"}, {"zookeeper.auth": "digest:you:secret"}],
    ids=["nobody", "wrong-password", "wrong-user"],
)
def test_a_refused_user_does_not_start(brokers, connect, tmp_path, settings):
    first = brokers.start(connect, **PROTECTED)
    first.create_topic("t")
    first.stop()
    given = brokers.settings(connect, **settings) | {"log.dirs": str(tmp_path / "other")}
    with pytest.raises(CannotStart, match="ZooKeeper's ACL denies this broker") as refused:
        Broker(given).start()
    assert "wrong" not in str(refused.value)


def test_the_password_is_shown_nowhere(brokers, connect, caplog):
    caplog.set_level("DEBUG")
    broker = brokers.start(connect, **PROTECTED)
    broker.create_topic("t")
    rows = broker.node.dynamic.describe(["zookeeper.auth"], 1)
    assert [row.value for row in rows] == [None]
    assert "secret" not in caplog.text
