"""`barnabas doctor`: one line with the remedy for each reason why a client cannot use a broker."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli.conftest import Ran, run_command
from durability.broker_process import free_port
from security.login_broker import PASSWORD, PLAIN_MODULE, login_broker

from barnabas import Broker
from barnabas.cli.doctor import _one_line
from barnabas.client import diagnosis as doctor
from barnabas.client.cluster import Broker as Advertised
from barnabas.config.tls import is_built_in

needs_tls = pytest.mark.skipif(not is_built_in(), reason="this build has no TLS")


def problem(got: Ran) -> str:
    """The one finding."""
    assert got.status == 1 and got.err == "", got.text + got.err
    [line] = [line for line in got.text.splitlines() if line.startswith("problem: ")]
    return line


@contextmanager
def server(answer: bytes | None) -> Iterator[str]:
    """A server that answers every connection with these bytes and closes it; None: it keeps it open
    and says nothing."""
    kept = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                kept.append(connection)
                if answer is not None and connection.recv(1000):
                    connection.sendall(answer)
                    connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
    for connection in kept:
        connection.close()


def test_a_broker_that_clients_can_use(address: str):
    """Ours and Kafka."""
    got = run_command("doctor", address)
    assert got.status == 0 and got.err == "", got.text + got.err
    lines = got.text.splitlines()
    assert all(line.startswith("ok: ") for line in lines)
    assert any(f"{address} speaks Kafka's protocol (Produce " in line for line in lines)
    assert any(line.endswith(f"is advertised as {address}") for line in lines)
    found = json.loads(run_command("doctor", address, "--json").text)
    assert found["address"] == address and found["findings"] == [] and len(found["facts"]) == 4


def test_nothing_listens():
    line = problem(run_command("doctor", f"127.0.0.1:{free_port()}"))
    assert "is not reached: nothing listens there. Start the broker" in line


def test_a_name_without_an_address():
    line = problem(run_command("doctor", "kafka.invalid:9092"))
    assert line.startswith("problem: kafka.invalid has no address: ")
    assert "Correct the name" in line


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP, not Kafka's protocol. Give the port"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "it sends b'SSH-2.0-OpenSSH_9.2"),
        (b"\0\0\0\x08\0\0\0\x63none", "does not speak Kafka's protocol"),
        (b"", "closes connections without an answer"),
        (None, "accepts connections and does not answer within 0.5 s"),
    ],
)
def test_another_server(answer: bytes | None, said: str):
    with server(answer) as address:
        line = problem(run_command("doctor", address, "--timeout", "0.5"))
    assert line.startswith(f"problem: {address} ") and said in line


@contextmanager
def advertising(tmp_path: Path, address: str) -> Iterator[str]:
    port = free_port()
    settings = {
        "log.dirs": str(tmp_path / "data"),
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "advertised.listeners": f"PLAINTEXT://{address}",
    }
    with Broker(settings):
        yield f"127.0.0.1:{port}"


def test_the_port_is_reached_but_not_the_advertised_address(tmp_path):
    closed = f"127.0.0.1:{free_port()}"
    with advertising(tmp_path, closed) as address:
        got = run_command("doctor", address)
    assert f"ok: {address} speaks Kafka's protocol" in got.text
    line = problem(got)
    assert line.startswith(
        f"problem: {address} answers, and tells clients to connect to broker 1 at {closed}; there:"
        f" {closed} is not reached: nothing listens there. Set advertised.listeners of broker 1"
    )


def test_the_advertised_name_has_no_address(tmp_path):
    with advertising(tmp_path, "kafka.invalid:9092") as address:
        line = problem(run_command("doctor", address))
    assert "broker 1 at kafka.invalid:9092; there: kafka.invalid has no address" in line
    assert "Set advertised.listeners of broker 1" in line


def test_another_server_at_the_advertised_address(tmp_path):
    with server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as other:
        with advertising(tmp_path, other) as address:
            line = problem(run_command("doctor", address))
    assert f"broker 1 at {other}; there: {other} speaks HTTP" in line


def test_a_loopback_address_for_clients_of_other_hosts():
    found = doctor.Diagnosis()
    doctor._examine_advertised(
        found, Advertised(1, "127.0.0.1", 9092), ("kafka1.example.com", 9092), None, 1.0
    )
    [one] = found.findings
    assert one.problem.endswith("at 127.0.0.1:9092, which is every client's own host")
    assert one.remedy.startswith("Set advertised.listeners of broker 1")


def client_file(tmp_path: Path, **settings: str) -> str:
    file = tmp_path / "client.properties"
    rows = [f"{name.replace('_', '.')}={value}\n" for name, value in settings.items()]
    file.write_text("".join(rows))
    return str(file)


def plain_login(tmp_path: Path, password: str = PASSWORD, mechanism: str = "PLAIN") -> str:
    return client_file(
        tmp_path,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_jaas_config=f'{PLAIN_MODULE} required username="alice" password="{password}";',
    )


def test_a_listener_with_logins(tmp_path):
    with login_broker(tmp_path, **{"sasl.enabled.mechanisms": "PLAIN"}) as broker:
        line = problem(run_command("doctor", broker.safe))
        assert f"{broker.safe} expects a login (SASL) by PLAIN. Give a file" in line
        assert "security.protocol=SASL_PLAINTEXT, sasl.mechanism and sasl.jaas.config" in line
        got = run_command("doctor", broker.safe, "--command-config", plain_login(tmp_path))
        assert got.status == 0 and "takes the settings and the login of user alice" in got.text
        wrong = plain_login(tmp_path, "a wrong word")
        got = run_command("doctor", broker.safe, "--command-config", wrong)
        assert f"{broker.safe} refuses the login" in problem(got)
        assert "a wrong word" not in got.text
        got = run_command("doctor", broker.plain, "--command-config", plain_login(tmp_path))
        assert "expects no login, and the settings have one by PLAIN" in problem(got)
        scram = client_file(
            tmp_path,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_jaas_config="org.apache.kafka.common.security.scram.ScramLoginModule required"
            ' username="alice" password="x";',
        )
        line = problem(run_command("doctor", broker.safe, "--command-config", scram))
        assert "takes logins by PLAIN, and the settings have SCRAM-SHA-256" in line


@needs_tls
def test_a_listener_with_tls(tmp_path):
    from tls.tls_broker import AUTHORITY, tls_broker

    authority = tmp_path / "ca.pem"
    authority.write_text(AUTHORITY.pem)
    with tls_broker(tmp_path) as broker:
        line = problem(run_command("doctor", broker.safe))
        assert f"{broker.safe} expects TLS, and this client speaks plain text. Give" in line
        assert "security.protocol=SSL" in line
        trusting = client_file(
            tmp_path, security_protocol="SSL", ssl_truststore_location=str(authority)
        )
        got = run_command("doctor", broker.safe, "--command-config", trusting)
        assert got.status == 0, got.text
        line = problem(run_command("doctor", broker.plain, "--command-config", trusting))
        assert "speaks plain text, and the settings ask for TLS" in line
        without = client_file(tmp_path, security_protocol="SSL")
        line = problem(run_command("doctor", broker.safe, "--command-config", without))
        assert "certificate verify failed" in line and "Set ssl.truststore.location" in line


@needs_tls
def test_a_listener_that_asks_for_a_certificate(tmp_path):
    from tls.tls_broker import pem_settings, tls_broker, trust_settings

    asking = {"ssl.client.auth": "required"}
    with tls_broker(tmp_path, pem_settings(tmp_path) | trust_settings(tmp_path) | asking) as broker:
        got = run_command("doctor", broker.safe)
    assert got.status == 1
    assert "asks for a client's certificate. Give a file" in got.text
    assert "ssl.keystore.location" in got.text


def test_a_name_from_a_server_cannot_change_the_terminal():
    assert _one_line("problem: \x1b[2Ja\nb\u202e.") == "problem: ?[2Ja?b?."


def test_wrong_arguments_are_one_line(tmp_path):
    for words, said in (
        (("a:b",), "HOST:PORT"),
        (("a:1,b:2",), "give one address"),
        (("a:1", "--command-config", str(tmp_path / "nothing")), "cannot read"),
    ):
        got = run_command("doctor", *words)
        assert got.status == 1 and said in got.err and len(got.err.splitlines()) == 1
