"""Tests of the tests' ZooKeeper: it keeps data, and its faults happen."""

import socket
import threading

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.security import make_digest_acl

WAIT_SECONDS = 30


@pytest.fixture
def server(own_server):
    return own_server


@pytest.fixture
def connected():
    made = []

    def connect(server, timeout_s=10.0):
        client = KazooClient(server.address, timeout=timeout_s)
        made.append(client)
        client.start(WAIT_SECONDS)
        return client

    yield connect
    for client in made:
        client.stop()
        client.close()


def test_an_expired_session_loses_its_ephemerals_and_is_reported(server, connected):
    owner, other = connected(server), connected(server)
    lost = threading.Event()
    owner.add_listener(lambda state: lost.set() if state == KazooState.LOST else None)
    owner.create("/mine", ephemeral=True)
    session_id = owner.client_id[0]
    assert server.sessions() == {session_id: ["/mine"]}
    server.expire(session_id)
    assert other.exists("/mine") is None
    assert lost.wait(WAIT_SECONDS)
    with pytest.raises(AssertionError, match="no such session"):
        server.expire(session_id)


def test_a_killed_server_keeps_data_and_sessions(server, connected):
    owner = connected(server, timeout_s=120.0)
    owner.create("/kept", b"data")
    owner.create("/mine", ephemeral=True)
    session_id = owner.client_id[0]
    server.kill()
    # A starting server may accept a handshake and never answer it; the client would wait for the
    # session timeout. So the client connects when the server answers.
    with socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))
        owner.set_hosts(f"127.0.0.1:{refusing.getsockname()[1]}")
        server.start()
        owner.set_hosts(server.address)
    assert owner.retry(owner.get, "/kept")[0] == b"data"
    assert owner.client_id[0] == session_id and owner.exists("/mine")


def test_a_paused_server_answers_when_it_goes_on(server, connected):
    client = connected(server, timeout_s=60.0)
    with server.paused():
        asked = client.create_async("/made")
        with pytest.raises(client.handler.timeout_exception):
            asked.get(timeout=0.3)
    assert asked.get(timeout=WAIT_SECONDS) == "/made"


def test_the_super_user_sees_what_is_closed_to_others(server, connected):
    owner, other = connected(server), connected(server)
    owner.add_auth("digest", "me:mine")
    owner.create("/closed", b"x", acl=[make_digest_acl("me", "mine", all=True)])
    with pytest.raises(NoAuthError):
        other.get("/closed")
    other.add_auth("digest", "super:secret")
    assert other.get("/closed")[0] == b"x"


def test_servers_that_share_a_machine_do_not_meet(server, zookeeper_server, connected):
    chroot = zookeeper_server.new_chroot()
    assert chroot != zookeeper_server.new_chroot()
    with pytest.raises(NoNodeError):
        connected(zookeeper_server).get(chroot)
    assert server.port != zookeeper_server.port
