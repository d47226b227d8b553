"""Settings of a cluster that one broker and a registration show: a warning about racks, and how
long a broker that does not answer is waited for."""

import logging
import socket
import time

import pytest
from tls.tls_broker import pem_settings

from barnabas.client.failures import ClientError
from barnabas.metadata import znodes
from barnabas.metadata.znodes import BrokerRegistration, Endpoint

pytestmark = [pytest.mark.java, pytest.mark.takes(seconds=15)]

SOON_S = 20
SILENT = 9
HANDSHAKE = b"\x16"  # the first byte of a TLS record with a ClientHello


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("a", None, "broker.rack is not set, and brokers 1 have a rack."),
        (None, "b", "broker.rack=b, and brokers 1 have no rack."),
        ("a", "b", None),
        (None, None, None),
    ],
)
def test_racks_on_some_brokers_only(brokers, zookeeper_server, caplog, first, second, said):
    connect = zookeeper_server.connect(zookeeper_server.new_chroot())
    for node_id, rack in ((1, first), (2, second)):
        given = {} if rack is None else {"broker.rack": rack}
        with caplog.at_level(logging.WARNING):
            brokers.start(connect, node_id=node_id, **given)
        lines = [row.message for row in caplog.records if "Brokers of Apache Kafka" in row.message]
        assert len(lines) == (node_id == 2 and said is not None)
    if said is not None:
        assert lines[0].startswith(said)


@pytest.fixture
def silent(brokers, zookeeper_server):
    """Starts a broker, and registers another, which accepts connections and answers nothing."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(SOON_S)

    def start(listener="PLAINTEXT", **given):
        connect = zookeeper_server.connect(zookeeper_server.new_chroot())
        broker = brokers.start(connect, **given)
        elsewhere = ("127.0.0.1", 9)  # nothing listens there
        rows = (("CLIENTS", elsewhere), (listener, listening.getsockname()))
        endpoints = tuple(Endpoint(name, *address, "PLAINTEXT") for name, address in rows)
        tree = broker.node.loaded.before.tree
        data = BrokerRegistration(endpoints, 0).encode()
        tree.create(znodes.broker_path(SILENT), data, ephemeral=True)
        return broker, listening

    yield start
    listening.close()


def test_how_long_the_controller_waits_for_a_broker(silent):
    """controller.socket.timeout.ms; 30 s by default, as request.timeout.ms."""
    _, listening = silent(**{"controller.socket.timeout.ms": "300"})
    peer, _ = listening.accept()
    began = time.monotonic()
    peer.settimeout(SOON_S)
    while peer.recv(1000):
        pass
    assert 0.2 < time.monotonic() - began < SOON_S
    peer.close()


def test_brokers_connect_by_the_listener_between_brokers(silent):
    given = {
        "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
    }
    _, listening = silent(listener="BROKERS", **given)
    peer, _ = listening.accept()
    peer.close()


def test_brokers_connect_by_the_protocol_between_brokers(silent, tmp_path):
    given = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        **pem_settings(tmp_path),
    }
    _, listening = silent(listener="SSL", **given)
    peer, _ = listening.accept()
    peer.settimeout(SOON_S)
    assert peer.recv(1) == HANDSHAKE
    peer.close()


def test_how_long_other_requests_to_a_broker_wait(silent):
    """request.timeout.ms, for markers of transactions, verifications and a controlled shutdown."""
    broker, _ = silent(**{"request.timeout.ms": "300"})
    connect = broker.node.serving.controlled_shutdown._inter_broker.connect
    deadline = time.monotonic() + SOON_S
    while SILENT not in broker.node.cluster().brokers:
        assert time.monotonic() < deadline
    began = time.monotonic()
    with pytest.raises(ClientError):
        connect(SILENT, "test")
    assert 0.2 < time.monotonic() - began < SOON_S
