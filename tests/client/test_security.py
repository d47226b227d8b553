"""TLS and SASL against Apache Kafka's own listeners."""

import socket
import subprocess
import time
from pathlib import Path

import pytest
from compat.secure_kafka import OAUTH, PLAIN, REAUTHENTICATION_MS, USERS, secure_kafka
from security.json_tokens import unsigned

from barnabas.client import (
    BadSetting,
    CannotConnect,
    Cluster,
    Connection,
    NewTopic,
    NoTls,
    Producer,
    Reader,
    create_topics,
)
from barnabas.client.security import Sasl, Security, Tls
from barnabas.client.security_settings import parse_security
from barnabas.errors import SaslAuthenticationFailed, UnsupportedSaslMechanism
from barnabas.spark.options import BadOption, parse_options, parse_servers

pytestmark = [pytest.mark.java, pytest.mark.takes(seconds=22)]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    with secure_kafka(tmp_path_factory.mktemp("secure")) as found:
        yield found


def security(trusted, mechanism, user, password):
    return Security(tls=Tls(trusted=trusted), sasl=Sasl(mechanism, user, password))


@pytest.mark.parametrize("mechanism", USERS)
def test_records_go_and_come_through_tls_and_sasl(kafka, mechanism):
    user, password = USERS[mechanism]
    options = kafka.options(mechanism)
    servers = parse_servers(options)
    assert servers.security == security(kafka.trusted, mechanism, user, password)
    assert servers.security == parse_security(kafka.settings(mechanism))
    assert password not in repr(servers)
    topic = f"t-{mechanism}"
    with servers.cluster() as cluster:
        create_topics(cluster, [NewTopic(topic, partition_count=1)])
        with Producer(cluster, topic) as producer:
            producer.send(b"hello")
        found = [row.value for _, row in Reader(cluster, topic, offsets={0: 0}, to_end=True)]
        assert found == [b"hello"]
    assert parse_options(options | {"subscribe": topic}).servers == servers


def test_what_is_wrong_is_said(kafka):
    def attempt(how, address=kafka.address, timeout_s=120):
        # A long timeout: a permanent error is not tried again.
        with Cluster(address, security=how, timeout_s=timeout_s, patient=True) as cluster:
            cluster.retrying(lambda: cluster.refresh([]))
            return cluster.brokers

    trusted, began = kafka.trusted, time.monotonic()
    with pytest.raises(SaslAuthenticationFailed, match="user alice at localhost"):
        attempt(security(trusted, "PLAIN", "alice", "wrong"))
    with pytest.raises(SaslAuthenticationFailed, match="user bob at localhost"):
        attempt(security(trusted, "SCRAM-SHA-512", "bob", "wrong"))
    with pytest.raises(
        NoTls, match=r"^cannot open a TLS connection to localhost: .*CERTIFICATE_VERIFY_FAILED"
    ):
        attempt(security(None, "PLAIN", "alice", "in wonderland"))
    with pytest.raises(
        NoTls, match=r"^cannot open a TLS connection to localhost: .*CERTIFICATE_VERIFY_FAILED"
    ):
        attempt(security(kafka.other, "PLAIN", "alice", "in wonderland"))
    with pytest.raises(NoTls, match="cannot read the truststore /none.pem: .*No such file"):
        attempt(security("/none.pem", "PLAIN", "alice", "in wonderland"))
    other = Security(tls=Tls(trusted=trusted), sasl=Sasl("GSSAPI", "alice", "x"))
    with pytest.raises(UnsupportedSaslMechanism, match="it knows PLAIN"):
        attempt(other)
    number = kafka.address.replace("localhost", "127.0.0.1")
    with pytest.raises(
        NoTls, match="cannot open a TLS connection to 127.0.0.1: .*IP address mismatch"
    ):
        attempt(security(trusted, "PLAIN", "a", "b"), number)
    assert time.monotonic() - began < 60
    began = time.monotonic()
    with pytest.raises(CannotConnect):  # a server that may come is waited for
        attempt(security(trusted, "PLAIN", "a", "b"), "localhost:1", timeout_s=4)
    assert time.monotonic() - began > 2
    unchecked = Security(Tls(trusted, check_host=False), Sasl("PLAIN", "alice", "in wonderland"))
    assert attempt(unchecked, number)


def test_kafka_takes_a_token(kafka, tmp_path):
    file = tmp_path / "token"
    settings = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": kafka.trusted,
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{OAUTH} required;",
        "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
    }
    with Cluster(kafka.address, security=parse_security(settings), timeout_s=4) as cluster:
        for token, is_good in ((unsigned(), True), (unsigned(exp=int(time.time()) - 9), False)):
            file.write_text(f"{token}\n")
            cluster.close()
            if is_good:
                create_topics(cluster, [NewTopic("t-oauth", partition_count=1)])
                continue
            with pytest.raises(SaslAuthenticationFailed, match="the user of file:") as said:
                cluster.refresh([])
            assert token not in str(said.value)


def test_a_login_at_kafka_is_made_anew_before_it_ends(kafka, monkeypatch):
    """Records are written for longer than a login lasts, over the same connections."""
    logins, opened = [], []
    log_in, create_connection = Connection.log_in, socket.create_connection
    monkeypatch.setattr(Connection, "log_in", lambda c: (logins.append(c), log_in(c))[1])
    monkeypatch.setattr(
        "barnabas.client.connection.socket.create_connection",
        lambda *a, **more: (opened.append(a), create_connection(*a, **more))[1],
    )
    security = parse_security(kafka.settings("SCRAM-SHA-512"))
    end_s = time.monotonic() + 1.5 * int(REAUTHENTICATION_MS) / 1000
    with Cluster(kafka.address, security=security, timeout_s=4) as cluster:
        create_topics(cluster, [NewTopic("t-anew", partition_count=1)])
        with Producer(cluster, "t-anew") as producer:
            count = 0
            while time.monotonic() < end_s:
                producer.send(b"%d" % count)
                producer.flush()
                count += 1
                cluster.refresh([])
        found = [row.value for _, row in Reader(cluster, "t-anew", offsets={0: 0}, to_end=True)]
    assert found == [b"%d" % i for i in range(count)]
    assert len(logins) > len(opened) > 1


def test_a_broker_that_asks_for_the_clients_certificate(kafka):
    base = {"security.protocol": "SSL", "ssl.truststore.location": kafka.trusted}
    text = Path(kafka.own).read_text()
    at = text.index("-----BEGIN CERTIFICATE")
    pem = {"ssl.keystore.certificate.chain": text[at:], "ssl.keystore.key": text[:at]}

    def attempt(more):
        with Cluster(kafka.mutual, security=parse_security(base | more), timeout_s=4) as cluster:
            cluster.refresh([])
            return [row.port for row in cluster.brokers.values()]

    for known in ({"ssl.keystore.location": kafka.own}, pem):
        assert attempt(known) == [int(kafka.mutual.rpartition(":")[2])]
    for unknown in ({}, {"ssl.keystore.location": kafka.stranger}):
        with pytest.raises(
            NoTls, match=r"^cannot open a TLS connection to localhost:\d+: .*certificate: .*alert"
        ):
            attempt(unknown)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"security.protocol": "TLS"}, "security.protocol is one of PLAINTEXT, SSL, SASL_"),
        ({"ssl.truststore.type": "BCFKS"}, "ssl.truststore.type is one of PEM, PKCS12, JKS: 'BC"),
        ({"ssl.keystore.location": "/k.p12"}, "ssl.keystore.location=/k.p12: cannot be read"),
        ({"sasl.mechanism": "DIGEST-MD5"}, "sasl.mechanism is one of PLAIN, .*, not DIGEST-MD5"),
        (
            {"sasl.jaas.config": f'{PLAIN} required password="in wonderland";'},
            "sasl.jaas.config needs username",
        ),
    ],
)
def test_settings_that_are_not_served_are_named_without_what_is_secret(wrong, words):
    jaas = f'{PLAIN} required username="alice" password="in wonderland";'
    base = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    assert parse_security(base) == security(None, "PLAIN", "alice", "in wonderland")
    with pytest.raises(BadSetting, match=f"^{words}") as plain:
        parse_security(base | wrong)
    options = {f"kafka.{name}": value for name, value in (base | wrong).items()}
    with pytest.raises(BadOption, match=rf"^kafka\.{words}") as prefixed:
        parse_servers(options | {"kafka.bootstrap.servers": "h:1"})
    assert "wonderland" not in f"{plain.value} {prefixed.value}"


def test_a_clients_own_key_is_had_with_its_password_or_not_at_all(tmp_path):
    """And OpenSSL does not ask for it on a terminal."""
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-passout", "pass:sesame", "-days", "2"]
        + ["-subj", "/CN=c", "-keyout", str(key), "-out", str(chain)],
        check=True,
        capture_output=True,
    )
    for own in ((str(chain), str(key)), (chain.read_text(), key.read_text())):
        assert Tls(None, *own, "sesame").context()
        for password in (None, "treacle"):
            with pytest.raises(NoTls, match="cannot read the keystore ") as raised:
                Tls(None, *own, password).context()
            assert "treacle" not in str(raised.value) and "PRIVATE KEY" not in str(raised.value)
