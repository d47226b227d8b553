"""SSL listeners of a broker: their keys and certificates, and settings that stop the start."""

import socket
import ssl
import struct

import pytest
from tls.tls_broker import (
    AUTHORITY,
    CLIENTS,
    OWN,
    PAIR,
    client_context,
    pem_settings,
    tls_broker,
    trust_settings,
)

from barnabas import Broker
from barnabas.config import BrokerConfig, ConfigError
from barnabas.stages.configured import CannotStart

API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)


def asked(port: int, context: ssl.SSLContext, **named) -> ssl.SSLSocket:
    """Opens a connection and gets a response to ApiVersions on it."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=10)
    client = context.wrap_socket(plain, server_hostname="localhost", **named)
    client.sendall(API_VERSIONS)
    (size,) = struct.unpack(">i", _exactly(client, 4))
    assert struct.unpack(">i", _exactly(client, size)[:4]) == (7,)
    return client


def _exactly(client: ssl.SSLSocket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = client.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def test_a_pem_file(tmp_path):
    with tls_broker(tmp_path) as served, asked(served.port, client_context()) as client:
        assert client.getpeercert(True) == OWN.certificate_der


def test_inline_pem_and_a_key_with_a_password(tmp_path):
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": OWN.key_pem("sesame"),
        "ssl.keystore.certificate.chain": OWN.chain_pem,
        "ssl.key.password": "sesame",
    }
    with tls_broker(tmp_path, settings) as served:
        asked(served.port, client_context()).close()
    with pytest.raises(CannotStart, match="ssl.key.password"):
        Broker(PAIR | settings | {"ssl.key.password": "wrong"}).start()


def test_a_listener_overrides_the_settings_of_all(tmp_path):
    other = AUTHORITY.issue("CN=other")
    (tmp_path / "other").mkdir()
    own = pem_settings(tmp_path / "other", other, "listener.name.safe.")
    with tls_broker(tmp_path, pem_settings(tmp_path) | own) as served:
        with asked(served.port, client_context()) as client:
            assert client.getpeercert(True) == other.certificate_der


def test_ssl_client_auth_required(tmp_path):
    settings = pem_settings(tmp_path) | trust_settings(tmp_path)
    settings["ssl.client.auth"] = "required"
    with tls_broker(tmp_path, settings) as served:
        asked(served.port, client_context(CLIENTS.issue("CN=alice", ()), tmp_path)).close()
        for refused in (None, AUTHORITY.issue("CN=alice", ()), CLIENTS.issue(days=(-9, -2))):
            with pytest.raises((OSError, EOFError)):
                asked(served.port, client_context(refused, tmp_path))


def test_ssl_client_auth_requested(tmp_path):
    settings = pem_settings(tmp_path) | trust_settings(tmp_path)
    settings["listener.name.safe.ssl.client.auth"] = "requested"
    with tls_broker(tmp_path, settings) as served:
        asked(served.port, client_context(CLIENTS.issue("CN=alice", ()), tmp_path)).close()
        asked(served.port, client_context()).close()
        with pytest.raises((OSError, EOFError)):
            asked(served.port, client_context(AUTHORITY.issue("CN=a", ()), tmp_path))


def test_ssl_enabled_protocols(tmp_path):
    settings = pem_settings(tmp_path) | {"ssl.enabled.protocols": "TLSv1.2"}
    with tls_broker(tmp_path, settings) as served:
        with asked(served.port, client_context()) as client:
            assert client.version() == "TLSv1.2"


def test_ssl_cipher_suites(tmp_path):
    """With Java's names. A list with only a TLS 1.2 suite excludes TLS 1.3."""
    suite = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
    settings = pem_settings(tmp_path) | {"ssl.cipher.suites": suite}
    with tls_broker(tmp_path, settings) as served:
        with asked(served.port, client_context()) as client:
            assert client.cipher()[:2] == ("ECDHE-RSA-AES128-GCM-SHA256", "TLSv1.2")
    settings["ssl.cipher.suites"] = f"{suite},TLS_CHACHA20_POLY1305_SHA256"
    with tls_broker(tmp_path, settings) as served:
        with asked(served.port, client_context()) as client:
            assert client.cipher()[:2] == ("TLS_CHACHA20_POLY1305_SHA256", "TLSv1.3")


def test_a_tls_listener_needs_no_plain_one(tmp_path):
    settings = pem_settings(tmp_path) | {
        "listeners": "SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
    }
    with Broker(settings) as broker:
        [row] = broker.node.listeners
        asked(row.port, client_context()).close()


KEYSTORE = {"ssl.keystore.location": "/nowhere/broker.jks"}


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "a TLS listener needs a certificate"),
        (KEYSTORE | {"ssl.keystore.type": "BKS"}, "ssl.keystore.type .*unknown format"),
        (KEYSTORE | {"ssl.keystore.key": "x"}, "ssl.keystore.location .*inline key.* Remove one"),
        (
            {"ssl.keystore.key": "x"},
            "ssl.keystore.certificate.chain .* is not set, but ssl.keystore.key is",
        ),
        (
            KEYSTORE | {"ssl.client.auth": "required"},
            "needs a truststore with the certificates of the authorities",
        ),
        (KEYSTORE | {"ssl.client.auth": "perhaps"}, "ssl.client.auth=perhaps"),
        (KEYSTORE | {"listener.name.safe.ssl.client.auth": "perhaps"}, "ssl.client.auth=perhaps"),
        (KEYSTORE | {"listener.name.sfae.ssl.client.auth": "required"}, "no SSL or SASL_SSL"),
        (
            KEYSTORE | {"ssl.enabled.protocols": "TLSv1.1"},
            "TLSv1.1: this broker does not support it",
        ),
        (KEYSTORE | {"ssl.protocol": "SSLv3"}, "ssl.protocol"),
        (KEYSTORE | {"ssl.engine.factory.class": "org.Example"}, "ssl.engine.factory.class"),
        (KEYSTORE | {"ssl.provider": "BCFIPS"}, "ssl.provider"),
        (
            KEYSTORE | {"ssl.keystore.type": "PEM", "ssl.keystore.password": "x"},
            "ssl.keystore.password .*a PEM keystore has no password",
        ),
        (
            KEYSTORE | {"ssl.truststore.certificates": "x", "ssl.truststore.type": "JKS"},
            "inline certificates need the type PEM",
        ),
    ],
)
def test_what_refuses_the_configuration(settings, why):
    with pytest.raises(ConfigError, match=why):
        BrokerConfig(PAIR | settings)


def test_a_keystore_without_a_tls_listener_is_refused():
    with pytest.raises(ConfigError, match="no listener uses TLS"):
        BrokerConfig(KEYSTORE)


def test_another_address_needs_certificates_of_clients(tmp_path):
    settings = PAIR | pem_settings(tmp_path) | {"listeners": "SAFE://0.0.0.0:0"}
    settings |= {"inter.broker.listener.name": "SAFE", "advertised.listeners": "SAFE://localhost:0"}
    with pytest.raises(ConfigError, match="ssl.client.auth=required"):
        BrokerConfig(settings)
    settings |= trust_settings(tmp_path) | {"ssl.client.auth": "required"}
    BrokerConfig(settings)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (KEYSTORE, "/nowhere/broker.jks: cannot be read"),
        ({"ssl.cipher.suites": "TLS_RSA_WITH_RC4_128_MD5"}, "TLS_RSA_WITH_RC4_128_MD5 is not"),
        ({"ssl.cipher.suites": "ECDHE-RSA-AES128-GCM-SHA256"}, "is not among the cipher suites"),
        (
            {"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256", "ssl.enabled.protocols": "TLSv1.2"},
            "has no suite of TLSv1.2",
        ),
    ],
)
def test_what_refuses_the_start(tmp_path, settings, why):
    with pytest.raises(CannotStart, match=why):
        Broker(PAIR | pem_settings(tmp_path) | settings).start()


@pytest.mark.parametrize("text", ["", "rubbish", OWN.certificate_pem, OWN.key_pem()])
def test_a_damaged_pem_file_refuses_the_start(tmp_path, text):
    settings = PAIR | pem_settings(tmp_path)
    (tmp_path / "broker.pem").write_text(text)
    with pytest.raises(CannotStart, match="in PEM format"):
        Broker(settings).start()


def test_a_key_of_another_certificate_refuses_the_start(tmp_path):
    settings = PAIR | pem_settings(tmp_path)
    text = AUTHORITY.issue(kind="rsa").key_pem() + OWN.chain_pem
    (tmp_path / "broker.pem").write_text(text)
    with pytest.raises(CannotStart, match="key values mismatch"):
        Broker(settings).start()


def test_max_tls_handshakes(tmp_path):
    """A broker with at most 3 concurrent handshakes closes the oldest for a fourth."""
    settings = pem_settings(tmp_path) | {"max.tls.handshakes": "3"}
    with tls_broker(tmp_path, settings) as served:
        slow = [socket.create_connection(("127.0.0.1", served.port), timeout=10) for _ in range(4)]
        for connection in slow:
            connection.sendall(b"\x16\x03\x01\x02\x00\x01")
        assert slow[0].recv(1) == b""
        asked(served.port, client_context()).close()
        for connection in slow:
            connection.close()
