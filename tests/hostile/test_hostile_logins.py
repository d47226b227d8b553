"""Handshakes and logins that are slow, cut, huge, repeated, random or wrong (attacks.py).

While they come, the requests of a client that works take at most twice as long as without them
(beside_others.py), the broker's memory stays bounded (conftest.py), every good login is served, and
the log has a line of each.
"""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat.support import Wire
from durability.broker_process import BrokerProcess, free_port
from hostile.beside_others import compare
from hostile.conftest import SETTINGS
from hostile.raw import error_of
from hostile.test_slow_peers import BATCH
from node.test_settings import create, produce
from security.login_broker import PASSWORD, PLAIN_MODULE, SCRAM_MODULE, Conversation
from tls.tls_broker import AUTHORITY, client_context

pytestmark = pytest.mark.alone(reason="the attacks take CPU from others, and p99s are compared")

PACE = 40  # attacks a second; on two cores, more compete with the client for the processor
LOGINS = 10  # good ones, in each round
GROWTH_MAX = 16 << 20  # 100 connections with half a message, and tokens of 512 KiB
SAFE = "listener.name.safe."


@pytest.fixture(scope="module")
def ports():
    return free_port(), free_port()


@pytest.fixture(scope="module")
def broker(tmp_path_factory, ports):
    folder, port = tmp_path_factory.mktemp("data"), free_port()
    own = AUTHORITY.issue().write(folder / "broker.pem")
    settings = SETTINGS | {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},SAFE://127.0.0.1:{ports[0]}"
        f",TLS://127.0.0.1:{ports[1]}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SAFE:SASL_PLAINTEXT,TLS:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": own,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        SAFE + "plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="{PASSWORD}";',
        SAFE + "scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        SAFE + "scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    }
    with BrokerProcess(folder / "logs", port, settings) as made:
        with Wire(made.address) as wire:
            create(wire, "t")
            for _ in range(200):
                assert produce(wire, "t", b"warm" * 1000).errorCode == 0
        yield made


@contextlib.contextmanager
def attacked(ports) -> Iterator[None]:
    command = [sys.executable, str(Path(__file__).with_name("attacks.py")), *map(str, ports)]
    with subprocess.Popen(
        [*command, str(PACE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as attacks:
        assert attacks.stdout is not None and attacks.stdout.readline() == "begun\n"
        yield
        assert attacks.poll() is None
        made, _ = attacks.communicate("", timeout=30)
    assert int(made) > 0


def log_in(ports) -> None:
    with Conversation(socket.create_connection(("127.0.0.1", ports[0]), timeout=10)) as c:
        assert c.handshake("PLAIN") == 0
        assert c.token(f"\0alice\0{PASSWORD}".encode())[0] == 0
        assert c.is_served()
    plain = socket.create_connection(("127.0.0.1", ports[1]), timeout=10)
    with Conversation(client_context().wrap_socket(plain, server_hostname="localhost")) as c:
        assert c.is_served()


def test_others_p99_stays_within_twice(broker, neighbour, ports):
    def call() -> None:
        assert error_of(neighbour, BATCH, acks=1) == 0

    @contextlib.contextmanager
    def attacks_and_logins() -> Iterator[None]:
        with attacked(ports):
            for _ in range(LOGINS):
                log_in(ports)
            yield

    rounds = compare(call, attacks_and_logins)
    good = sum("logged in as 'User:alice'" in line for line in broker.lines)
    assert good == LOGINS * rounds
