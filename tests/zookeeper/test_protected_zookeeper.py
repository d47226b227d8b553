"""ZooKeeper over TLS and by SASL DIGEST-MD5, with Kafka's settings: the real server of each."""

import re
import socket
from types import SimpleNamespace

import pytest
from kazoo.security import ACL, Id, Permissions
from tls.authority import Authority
from zookeeper_server import ZooKeeperServer, free_port, missing

from barnabas import Broker
from barnabas.config import BrokerConfig, ConfigError
from barnabas.node import CannotStart

pytestmark = [
    pytest.mark.java,
    pytest.mark.takes(seconds=30),
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
]
NETTY = tuple(
    f"netty-{name}"
    for name in (
        "buffer",
        "codec",
        "codec-base",
        "common",
        "handler",
        "resolver",
        "transport",
        "transport-classes-epoll",
        "transport-native-unix-common",
    )
)
AUTHORITY, OTHERS = Authority("CN=zookeepers"), Authority("CN=others")
USER, PASSWORD = "kafka", "many-secrets"
READ = ACL(Permissions.READ, Id("world", "anyone"))
LOGIN_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
QUICK = {"zookeeper.connection.timeout.ms": "2500"}


def pem(path, text):
    path.write_text(text)
    path.chmod(0o600)
    return path


def tls_server(folder, client_auth):
    """(server, host:port of TLS). The server trusts clients of AUTHORITY."""
    folder.mkdir()
    port = free_port()
    own = AUTHORITY.issue("CN=server", ("localhost",))
    lines = (
        f"secureClientPort={port}",
        "secureClientPortAddress=127.0.0.1",
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
        f"ssl.keyStore.location={pem(folder / 'own.pem', own.key_pem() + own.certificate_pem)}",
        f"ssl.trustStore.location={pem(folder / 'ca.pem', AUTHORITY.pem)}",
        "ssl.enabledProtocols=TLSv1.2,TLSv1.3",
        f"ssl.clientAuth={client_auth}",
        "authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider",
    )
    return ZooKeeperServer(folder, lines=lines, more_jars=NETTY), f"localhost:{port}"


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    server, address = tls_server(folder / "server", "none")
    with server:
        yield SimpleNamespace(
            server=server, address=address, ca=str(pem(folder / "ca.pem", AUTHORITY.pem))
        )


@pytest.fixture(scope="module")
def mutual(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mtls")
    server, address = tls_server(folder / "server", "need")
    with server:
        yield SimpleNamespace(
            server=server, address=address, ca=str(pem(folder / "ca.pem", AUTHORITY.pem))
        )


@pytest.fixture(scope="module")
def sasl(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sasl")
    jaas = folder / "server.jaas"
    jaas.write_text(f'Server {{ {LOGIN_MODULE} required user_{USER}="{PASSWORD}"; }};')
    lines = ("authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",)
    flags = (f"-Djava.security.auth.login.config={jaas}",)
    with ZooKeeperServer(folder / "server", lines=lines, flags=flags, more_jars=NETTY) as server:
        yield server


def trusting(server):
    return {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": server.ca,
        "zookeeper.ssl.truststore.type": "PEM",
    }


def refused(brokers, connect, settings):
    with pytest.raises(CannotStart) as caught:
        Broker(brokers.settings(connect, **settings, **QUICK)).start()
    assert "\n" not in str(caught.value) and PASSWORD not in str(caught.value)
    return str(caught.value)


def test_a_broker_over_tls(brokers, encrypted):
    """zookeeper.ssl.truststore.location alone says whom to trust."""
    broker = brokers.start(f"{encrypted.address}/over-tls", **trusting(encrypted))
    for number in range(20):
        broker.create_topic(f"t{number}")
    broker.restart()
    assert len(broker.topics) == 20
    socket.create_connection(encrypted.address.split(":"), 5).close()  # as a scan of ports does
    broker.create_topic("more")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"zookeeper.ssl.truststore.location": "OTHERS"}, "certificate verify failed"),
        ({"zookeeper.ssl.client.enable": "false"}, "would not be encrypted"),
        ({"zookeeper.ssl.truststore.location": "/none.pem"}, "cannot be read"),
    ],
)
def test_whom_to_trust(brokers, encrypted, tmp_path, wrong, said):
    others = str(pem(tmp_path / "others.pem", OTHERS.pem))
    wrong = {name: others if text == "OTHERS" else text for name, text in wrong.items()}
    settings = trusting(encrypted) | wrong
    with pytest.raises((CannotStart, ConfigError), match=said):
        Broker(brokers.settings(f"{encrypted.address}/x", **settings, **QUICK)).start()


def test_the_name_of_the_server(brokers, encrypted):
    """Its certificate is for localhost, and not for the address."""
    connect = encrypted.address.replace("localhost", "127.0.0.1")
    settings = trusting(encrypted)
    assert "address mismatch" in refused(brokers, f"{connect}/x", settings)
    settings["zookeeper.ssl.endpoint.identification.algorithm"] = ""
    brokers.start(f"{connect}/name", **settings)


def test_versions_of_tls(brokers, encrypted, monkeypatch):
    """zookeeper.ssl.protocol is TLSv1.2 by default, as in Kafka."""
    from barnabas import zookeeper_client

    seen = []
    whole = zookeeper_client.TlsHandler.create_connection

    def connected(self, *args, **more):
        made = whole(self, *args, **more)
        seen.append(made.version())
        return made

    monkeypatch.setattr(zookeeper_client.TlsHandler, "create_connection", connected)
    for more, version in (
        ({}, "TLSv1.2"),
        ({"zookeeper.ssl.protocol": "TLSv1.3"}, "TLSv1.3"),
        ({"zookeeper.ssl.enabled.protocols": "TLSv1.2,TLSv1.3"}, "TLSv1.3"),
    ):
        broker = brokers.start(f"{encrypted.address}/versions", **trusting(encrypted), **more)
        broker.stop()
        assert set(seen) == {version}
        seen.clear()


@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
def test_a_server_that_asks_for_a_certificate(brokers, mutual, zk, tmp_path, kind):
    """The subject of the certificate is the owner of the nodes, without zookeeper.auth."""
    issued = AUTHORITY.issue("CN=broker")
    store = tmp_path / f"own.{kind.lower()}"
    if kind == "PEM":
        pem(store, issued.key_pem("sesame") + issued.certificate_pem)
    else:
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

        store.write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"own", issued.key, issued.certificate, None, BestAvailableEncryption(b"sesame")
            )
        )
    connect = f"{mutual.address}/mutual-{kind}"
    settings = trusting(mutual) | {
        "zookeeper.ssl.keystore.location": str(store),
        "zookeeper.ssl.keystore.password": "sesame",
        "zookeeper.ssl.keystore.type": kind,
        "zookeeper.set.acl": "true",
    }
    broker = brokers.start(connect, **settings)
    broker.create_topic("t")
    owner = ACL(Permissions.ALL, Id("x509", "CN=broker"))
    client = zk(mutual.server, auth="super:secret")
    found = client.get_acls(f"/mutual-{kind}/brokers/topics/t")[0]
    assert set(found) == {owner, READ}
    broker.stop()
    del settings["zookeeper.set.acl"]
    without = {name: text for name, text in settings.items() if ".keystore." not in name}
    assert "ZooKeeper" in refused(brokers, connect, without)
    wrong = settings | {"zookeeper.ssl.keystore.password": "guess"}
    assert "zookeeper.ssl.keystore.location" in refused(brokers, connect, wrong)


def test_a_truststore_with_a_password(brokers, encrypted, tmp_path):
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

    store = tmp_path / "trust.p12"
    rows = [pkcs12.PKCS12Certificate(AUTHORITY.own.certificate, b"ca")]
    store.write_bytes(pkcs12.serialize_java_truststore(rows, BestAvailableEncryption(b"open")))
    settings = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(store),
        "zookeeper.ssl.truststore.password": "open",
    }
    brokers.start(f"{encrypted.address}/p12", **settings).stop()
    wrong = settings | {"zookeeper.ssl.truststore.password": "guess"}
    assert "zookeeper.ssl.truststore.location" in refused(brokers, f"{encrypted.address}/p", wrong)


def test_a_key_that_others_may_read(brokers, mutual, tmp_path):
    issued = AUTHORITY.issue("CN=broker")
    store = pem(tmp_path / "own.pem", issued.key_pem() + issued.certificate_pem)
    store.chmod(0o644)
    settings = trusting(mutual) | {"zookeeper.ssl.keystore.location": str(store)}
    assert "chmod 600" in refused(brokers, f"{mutual.address}/x", settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("zookeeper.ssl.cipher.suites", "TLS_AES_128_GCM_SHA256"),
        ("zookeeper.ssl.crl.enable", "true"),
        ("zookeeper.ssl.ocsp.enable", "true"),
        ("zookeeper.ssl.enabled.protocols", "TLSv1.1"),
        ("zookeeper.ssl.protocol", "SSL"),
        ("zookeeper.ssl.truststore.location", None),
        ("zookeeper.ssl.truststore.type", "BKS"),
        ("zookeeper.ssl.endpoint.identification.algorithm", "LDAPS"),
    ],
)
def test_what_cannot_be_had_refuses_the_start(name, value):
    given = {"metadata.store": "zookeeper", "zookeeper.connect": "h:1"}
    given |= trusting(SimpleNamespace(ca="/ca.pem")) | {name: value}
    with pytest.raises(ConfigError, match=re.escape(name.rpartition(".")[0])):
        BrokerConfig({key: text for key, text in given.items() if text is not None})


def test_tls_to_zookeeper_without_zookeeper_refuses_the_start():
    with pytest.raises(ConfigError, match="metadata.store=embedded keeps none there"):
        BrokerConfig({"zookeeper.ssl.client.enable": "true"})


def owned_by(zk, server, path):
    """The access list of a node."""
    return set(zk(server, auth="super:secret").get_acls(path)[0])


SASL_OWNER = ACL(Permissions.ALL, Id("sasl", USER))


def test_a_login_by_sasl(brokers, sasl, zk, caplog):
    pytest.importorskip("puresasl")
    caplog.set_level("DEBUG")
    settings = {"zookeeper.auth": f"sasl:{USER}:{PASSWORD}", "zookeeper.set.acl": "true"}
    broker = brokers.start(sasl.connect("/by-sasl"), **settings)
    broker.create_topic("t")
    assert owned_by(zk, sasl, "/by-sasl/brokers/topics/t") == {SASL_OWNER, READ}
    broker.restart()
    assert broker.topics == ["t"]
    assert PASSWORD not in caplog.text
    broker.stop()
    wrong = {"zookeeper.auth": f"sasl:{USER}:wrong", "zookeeper.set.acl": "true"}
    assert "refused the login of this broker" in refused(brokers, sasl.connect("/by-sasl"), wrong)
    assert "ACL denies this broker" in refused(brokers, sasl.connect("/by-sasl"), {})


def test_the_section_client_of_a_jaas_file(brokers, sasl, zk, tmp_path, monkeypatch):
    """As Kafka takes the user of ZooKeeper."""
    pytest.importorskip("puresasl")
    file = pem(
        tmp_path / "broker.jaas",
        f'Client {{ {LOGIN_MODULE} required username="{USER}" password="{PASSWORD}"; }};',
    )
    monkeypatch.setenv("KAFKA_OPTS", f"-Djava.security.auth.login.config={file}")
    broker = brokers.start(sasl.connect("/by-jaas"), **{"zookeeper.set.acl": "true"})
    broker.create_topic("t")
    assert owned_by(zk, sasl, "/by-jaas/brokers/topics/t") == {SASL_OWNER, READ}
    broker.stop()
    file.chmod(0o644)
    assert "chmod 600" in refused(brokers, sasl.connect("/by-jaas"), {})
    pem(file, "Client { com.sun.security.auth.module.Krb5LoginModule required; };")
    assert "Kerberos to ZooKeeper is not available" in refused(brokers, sasl.connect("/k"), {})
    monkeypatch.setenv(
        "KAFKA_OPTS",
        f"-Djava.security.auth.login.config={file} -Dzookeeper.sasl.client=false",
    )
    acl = {"zookeeper.set.acl": "true"}
    assert "znodes would have no owner" in refused(brokers, sasl.connect("/k"), acl)
