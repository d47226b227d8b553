"""TLS and SASL against Apache Kafka's own listeners."""

import socket
import subprocess

import pytest
from compat.support import KAFKA, rival

from barnabas.client import CannotConnect, Cluster, NewTopic, Producer, Reader, create_topics
from barnabas.client.security import Sasl, Security, Tls
from barnabas.errors import SaslAuthenticationFailed, UnsupportedSaslMechanism
from barnabas.spark.options import parse_options, parse_servers

pytestmark = pytest.mark.java

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def certificate(folder):
    """(certificate and key in one file for Kafka, certificate for clients)."""
    key, certificate, both = (folder / name for name in ("key.pem", "ca.pem", "both.pem"))
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        + ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        + ["-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
    )
    both.write_text(key.read_text() + certificate.read_text())
    return both, certificate


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    """Kafka with the listener SECURE: TLS and SASL, users alice (PLAIN) and bob (SCRAM)."""
    if reason := rival.missing(KAFKA):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("secure")
    store, trusted = certificate(folder)
    made = rival.Rival(KAFKA, folder / "kafka")
    secure, side = f"localhost:{free_port()}", f"127.0.0.1:{made.side_port}"
    plain = f"PLAINTEXT://{made.address}"
    made.settings |= {
        "listeners": f"{plain},SECURE://{secure},CONTROLLER://{side}",
        "advertised.listeners": f"{plain},SECURE://{secure}",
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL"
        ),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.secure.plain.sasl.jaas.config": (
            f'{PLAIN} required user_alice="in wonderland";'
        ),
        "listener.name.secure.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
        "listener.name.secure.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
    }
    made.start()
    try:
        for kind in ("256", "512"):
            change = f"SCRAM-SHA-{kind}=[password=the-builder-{kind}]"
            command = rival.tool(KAFKA, "configs", heap=("-Xmx128m",))
            words = ["--alter", "--add-config", change, "--entity-type", "users"]
            words += ["--entity-name", "bob", "--bootstrap-server", made.address]
            subprocess.run([*command, *words], check=True, capture_output=True)
        yield secure, str(trusted)
    finally:
        made.stop()


def security(trusted, mechanism, user, password):
    return Security(tls=Tls(trusted=trusted), sasl=Sasl(mechanism, user, password))


def test_records_go_and_come_through_tls_and_sasl(kafka):
    address, trusted = kafka
    for number, (mechanism, user, password) in enumerate(
        [
            ("PLAIN", "alice", "in wonderland"),
            ("SCRAM-SHA-256", "bob", "the-builder-256"),
            ("SCRAM-SHA-512", "bob", "the-builder-512"),
        ]
    ):
        jaas = f'{PLAIN if mechanism == "PLAIN" else SCRAM} required username="{user}"'
        options = {
            "kafka.bootstrap.servers": address,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": mechanism,
            "kafka.sasl.jaas.config": f'{jaas} password="{password}";',
            "kafka.ssl.truststore.location": trusted,
        }
        servers = parse_servers(options)
        assert servers.security == security(trusted, mechanism, user, password)
        assert password not in repr(servers)
        topic = f"t{number}"
        with servers.cluster() as cluster:
            create_topics(cluster, [NewTopic(topic, partition_count=1)])
            with Producer(cluster, topic) as producer:
                producer.send(b"hello")
            found = [row.value for _, row in Reader(cluster, topic, offsets={0: 0}, to_end=True)]
            assert found == [b"hello"]
        assert parse_options(options | {"subscribe": topic}).servers == servers


def test_what_is_wrong_is_said(kafka):
    address, trusted = kafka

    def attempt(how):
        with Cluster(address, security=how, connect_timeout_s=10) as cluster:
            cluster.refresh([])

    with pytest.raises(SaslAuthenticationFailed, match="user alice at localhost"):
        attempt(security(trusted, "PLAIN", "alice", "wrong"))
    with pytest.raises(SaslAuthenticationFailed, match="user bob at localhost"):
        attempt(security(trusted, "SCRAM-SHA-512", "bob", "wrong"))
    with pytest.raises(CannotConnect, match="no TLS with localhost: .*CERTIFICATE_VERIFY_FAILED"):
        attempt(security(None, "PLAIN", "alice", "in wonderland"))
    other = Security(tls=Tls(trusted=trusted), sasl=Sasl("OAUTHBEARER", "alice", "x"))
    with pytest.raises(UnsupportedSaslMechanism, match="it knows PLAIN"):
        attempt(other)
    number = address.replace("localhost", "127.0.0.1")
    with pytest.raises(CannotConnect, match="no TLS with 127.0.0.1: .*IP address mismatch"):
        with Cluster(number, security=security(trusted, "PLAIN", "a", "b")) as cluster:
            cluster.refresh([])
    unchecked = Tls(trusted=trusted, check_host=False)
    with Cluster(
        number, security=Security(tls=unchecked, sasl=Sasl("PLAIN", "alice", "in wonderland"))
    ) as cluster:
        cluster.refresh([])
        assert cluster.brokers
