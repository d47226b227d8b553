"""SCRAM credentials in ZooKeeper: several brokers with one tree, and the form that Kafka writes."""

import json
import socket

from compat.support import Wire
from security.login_broker import PASSWORD, SETTINGS, Conversation, scram_login
from security.users import alter, upsertion
from waiting import soon

FORM = ["salt", "stored_key", "server_key", "iterations"]


def log_in(broker, user, password):
    """The error code of the last step."""
    port = next(row.port for row in broker.node.listeners if row.name == "SAFE")
    with Conversation(socket.create_connection(("127.0.0.1", port), timeout=10)) as c:
        return scram_login(c, "SCRAM-SHA-256", user, password)[1][0]


def plain_of(broker):
    port = next(row.port for row in broker.node.listeners if row.name == "PLAINTEXT")
    return Wire(f"127.0.0.1:{port}")


def test_a_credential_set_at_one_broker_counts_at_another(brokers, zookeeper_server, zk):
    chroot = zookeeper_server.new_chroot()
    connect = zookeeper_server.connect(chroot)
    one, two = (brokers.start(connect, node_id, **SETTINGS) for node_id in (1, 2))
    with plain_of(one) as wire:
        assert alter(wire, upsertions=[upsertion("a b", PASSWORD)]) == {"a b": (0, None)}
        assert log_in(one, "a b", PASSWORD) == 0
        soon(lambda: log_in(two, "a b", PASSWORD) == 0)
        assert log_in(two, "a b", "bad") == 58
        data, _ = zk(zookeeper_server).get(f"{chroot}/config/users/a%20b")
        found = json.loads(data)
        assert found["version"] == 1
        fields = [part.partition("=")[0] for part in found["config"]["SCRAM-SHA-256"].split(",")]
        assert fields == FORM
        assert alter(wire, deletions=[("a b", 1)]) == {"a b": (0, None)}
    soon(lambda: log_in(two, "a b", PASSWORD) == 58)


def test_other_settings_of_a_user_stay(brokers, zookeeper_server, zk):
    chroot = zookeeper_server.new_chroot()
    client = zk(zookeeper_server)
    quota = {"version": 1, "config": {"producer_byte_rate": "1024"}}
    client.create(f"{chroot}/config/users/bob", json.dumps(quota).encode(), makepath=True)
    broker = brokers.start(zookeeper_server.connect(chroot), **SETTINGS)
    with plain_of(broker) as wire:
        assert alter(wire, upsertions=[upsertion("bob", PASSWORD)]) == {"bob": (0, None)}
        assert log_in(broker, "bob", PASSWORD) == 0
        assert alter(wire, deletions=[("bob", 1)]) == {"bob": (0, None)}
    data, _ = client.get(f"{chroot}/config/users/bob")
    assert json.loads(data) == quota
