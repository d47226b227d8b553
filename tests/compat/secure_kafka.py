"""Apache Kafka with a TLS and SASL listener beside its plain one, and its users; and
a TLS listener that asks clients for a certificate."""

import subprocess
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from compat.support import KAFKA, QUICK_HEAP, rival
from durability.broker_process import free_port

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
REAUTHENTICATION_MS = "3000"  # of SCRAM-SHA-512; Kafka lets a client log in once in a second
USERS = {  # by mechanism
    "PLAIN": ("alice", "in wonderland"),
    "SCRAM-SHA-256": ("bob", "the-builder-256"),
    "SCRAM-SHA-512": ("bob", "the-builder-512"),
}


@dataclass(frozen=True)
class SecureKafka:
    """bootstrap_servers: of the plain listener, for checks by the test."""

    address: str
    bootstrap_servers: str
    trusted: str
    other: str  # a certificate that the broker does not use
    mutual: str  # the address of the listener that asks for a client certificate,
    own: str  # this certificate and its key, which the listener accepts,
    stranger: str  # and one that it refuses

    def settings(self, mechanism, *, password=None, trusted=None):
        """Settings of Kafka's Java client; another password or certificate is a wrong one."""
        user, known = USERS[mechanism]
        jaas = f'{PLAIN if mechanism == "PLAIN" else SCRAM} required username="{user}"'
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{jaas} password="{known if password is None else password}";',
            "ssl.truststore.location": trusted or self.trusted,
        }

    def options(self, mechanism, **more):
        """The same settings as options of Spark's formats."""
        found = {f"kafka.{k}": v for k, v in self.settings(mechanism, **more).items()}
        return found | {"kafka.bootstrap.servers": self.address}


def certificate(folder, name):
    """(certificate and key in one file for Kafka, certificate for clients)."""
    key, certificate, both = (folder / f"{name}.{kind}.pem" for kind in ("key", "ca", "both"))
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        + ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        + ["-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
    )
    both.write_text(key.read_text() + certificate.read_text())
    return both, certificate


@contextmanager
def secure_kafka(folder, version=KAFKA):
    """Skips if Kafka is not installed."""
    if reason := rival.missing(version):
        pytest.skip(reason)
    store, trusted = certificate(folder, "broker")
    stranger, other = certificate(folder, "other")
    own, known = certificate(folder, "client")
    made = rival.Rival(version, folder / "kafka", heap=QUICK_HEAP)
    secure, mutual = f"localhost:{free_port()}", f"localhost:{free_port()}"
    side = f"127.0.0.1:{made.side_port}"
    plain = f"PLAINTEXT://{made.address}"
    made.settings |= {
        "listeners": f"{plain},SECURE://{secure},MUTUAL://{mutual},CONTROLLER://{side}",
        "advertised.listeners": f"{plain},SECURE://{secure},MUTUAL://{mutual}",
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,MUTUAL:SSL"
        ),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.truststore.type": "PEM",
        "listener.name.mutual.ssl.truststore.location": str(known),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        # Kafka's own handler, which takes unsigned tokens.
        "listener.name.secure.oauthbearer.sasl.jaas.config": (
            f'{OAUTH} required unsecuredLoginStringClaim_sub="broker";'
        ),
        "listener.name.secure.scram-sha-512.connections.max.reauth.ms": REAUTHENTICATION_MS,
        "listener.name.secure.plain.sasl.jaas.config": (
            f'{PLAIN} required user_alice="{USERS["PLAIN"][1]}";'
        ),
        "listener.name.secure.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
        "listener.name.secure.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "2",
    }
    made.start()
    try:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):  # one user in a request
            user, password = USERS[mechanism]
            command = rival.tool(KAFKA, "configs", heap=QUICK_HEAP)
            words = ["--alter", "--add-config", f"{mechanism}=[password={password}]"]
            words += ["--entity-type", "users", "--entity-name", user]
            words += ["--bootstrap-server", made.address]
            subprocess.run([*command, *words], check=True, capture_output=True)
        yield SecureKafka(
            secure, made.address, str(trusted), str(other), mutual, str(own), str(stranger)
        )
    finally:
        made.stop()
