"""Keystores and truststores in every format, also those that Java's keytool made."""

import shutil
import ssl
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_der_private_key,
    pkcs12,
)
from tls.authority import Authority
from tls.test_listener import asked
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
from barnabas.client import BadSetting, Cluster, NewTopic, create_topics
from barnabas.client.security_settings import parse_security
from barnabas.config import ConfigError
from barnabas.config.listeners import Listener
from barnabas.config.tls import TlsSettings
from barnabas.stages.configured import CannotStart
from barnabas.tls.jks import BadJks, read_jks
from barnabas.tls.stores import read_identity, read_trusted

VECTORS = Path(__file__).parent / "vectors"
JAVA_CERTIFICATE = ssl.PEM_cert_to_DER_cert((VECTORS / "broker.crt").read_text())


def settings_of(**given):
    texts = {"ssl." + name.replace("_", "."): str(value) for name, value in given.items()}
    return TlsSettings(texts, Listener("SAFE", "127.0.0.1", 0, "SSL"))


def java_keystore(kind, **more):
    given = {"keystore_location": VECTORS / f"keystore.{kind}", "keystore_password": "storepass"}
    return settings_of(**(given | more))


def test_a_jks_keystore_of_keytool():
    identity = read_identity(java_keystore("jks", key_password="keypass"))
    assert identity.chain == (JAVA_CERTIFICATE,)
    # The same key as in the PKCS#12 store that keytool made of it.
    keys = [identity.key, read_identity(java_keystore("p12")).key]
    one, other = (load_der_private_key(key, None).private_numbers() for key in keys)
    assert one == other


@pytest.mark.parametrize("kind", ["jks", "p12"])
@pytest.mark.parametrize("named", ["JKS", "PKCS12"])
def test_stores_of_keytool_are_served(tmp_path, kind, named):
    """Java reads both formats, whichever of the two type names is set, and so does our broker."""
    settings = {
        "ssl.keystore.location": str(VECTORS / f"keystore.{kind}"),
        "ssl.keystore.type": named,
        "ssl.keystore.password": "storepass",
    }
    if kind == "jks":
        settings["ssl.key.password"] = "keypass"
    with tls_broker(tmp_path, settings) as served:
        context = ssl.create_default_context(cafile=str(VECTORS / "broker.crt"))
        with asked(served.port, context) as client:
            assert client.getpeercert(True) == JAVA_CERTIFICATE


@pytest.mark.parametrize("kind", ["jks", "p12"])
def test_truststores_of_keytool(kind):
    location = VECTORS / f"truststore.{kind}"
    found = settings_of(truststore_location=location, truststore_password="trustpass")
    assert read_trusted(found) == (JAVA_CERTIFICATE,)
    wrong = settings_of(truststore_location=location, truststore_password="guess")
    with pytest.raises(ConfigError, match=f"truststore.{kind}: "):
        read_trusted(wrong)


@pytest.mark.parametrize(
    ("kind", "more", "why"),
    [
        ("jks", {"key_password": "guess"}, "the password of the key is wrong"),
        ("jks", {"keystore_password": "guess"}, "the password is wrong, or the store is damaged"),
        ("p12", {"keystore_password": "guess"}, "keystore.p12: "),
    ],
)
def test_wrong_passwords_are_one_error(kind, more, why):
    with pytest.raises(ConfigError, match=why) as caught:
        read_identity(java_keystore(kind, **more))
    assert "guess" not in str(caught.value)


def test_a_store_without_a_key_is_no_keystore():
    for kind in ("jks", "p12"):
        given = {"keystore_location": VECTORS / f"truststore.{kind}"}
        with pytest.raises(ConfigError, match="there is no private key"):
            read_identity(java_keystore(kind, keystore_password="trustpass", **given))


def test_a_jks_store_cut_at_every_byte_or_with_a_wrong_byte_is_refused():
    """Hostile input: the same error at every place. Without a password only the parser checks."""
    whole = (VECTORS / "keystore.jks").read_bytes()
    for size in range(len(whole)):
        with pytest.raises(BadJks):
            read_jks(whole[:size], "storepass")
    for at in range(len(whole)):
        wrong = bytearray(whole)
        wrong[at] ^= 0xFF
        with pytest.raises(BadJks):
            read_jks(bytes(wrong), "storepass")
        try:
            read_jks(bytes(wrong), None)
        except BadJks:
            pass


def test_a_pkcs12_store(tmp_path):
    """With a chain of three certificates; clients have only the root."""
    above = Authority("CN=root")
    between = Authority("CN=between", above)
    issued = between.issue()
    store = pkcs12.serialize_key_and_certificates(
        b"broker",
        issued.key,
        issued.certificate,
        [above.own.certificate, between.own.certificate],
        BestAvailableEncryption(b"sesame"),
    )
    (tmp_path / "broker.p12").write_bytes(store)
    trusted = pkcs12.serialize_java_truststore(
        [pkcs12.PKCS12Certificate(CLIENTS.own.certificate, b"clients")],
        BestAvailableEncryption(b"open"),
    )
    (tmp_path / "clients.p12").write_bytes(trusted)
    settings = {
        "ssl.keystore.location": str(tmp_path / "broker.p12"),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": "sesame",
        "ssl.truststore.location": str(tmp_path / "clients.p12"),
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.password": "open",
        "ssl.client.auth": "required",
    }
    with tls_broker(tmp_path, settings) as served:
        context = above.client_context(CLIENTS.issue("CN=alice", ()), tmp_path)
        asked(served.port, context).close()
    for name in ("ssl.keystore.password", "ssl.truststore.password"):
        with pytest.raises(CannotStart, match=r"\.p12: "):
            Broker(PAIR | settings | {name: "wrong"}).start()


def test_inline_certificates_to_trust(tmp_path):
    settings = pem_settings(tmp_path) | {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": Authority("CN=another").pem + CLIENTS.pem,
        "ssl.client.auth": "required",
    }
    with tls_broker(tmp_path, settings) as served:
        asked(served.port, client_context(CLIENTS.issue("CN=alice", ()), tmp_path)).close()
        with pytest.raises((OSError, EOFError)):
            asked(served.port, client_context(AUTHORITY.issue("CN=a", ()), tmp_path))


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    with pytest.raises(ConfigError, match=r"pip install 'barnabas\[tls\]'"):
        read_identity(java_keystore("p12"))


def test_trusted_certificates_in_a_file(tmp_path):
    settings = pem_settings(tmp_path, OWN) | trust_settings(tmp_path)
    settings["ssl.client.auth"] = "required"
    shutil.copy(tmp_path / "clients.pem", tmp_path / "copy.pem")
    (tmp_path / "clients.pem").write_text("no certificate")
    with pytest.raises(CannotStart, match="clients.pem: there is no certificate"):
        Broker(PAIR | settings).start()


@pytest.mark.parametrize("kind", ["jks", "p12"])
def test_a_client_reads_stores_and_shows_its_certificate(tmp_path, kind):
    """With and without the type, the name of the file ending as Java's stores do."""
    clients = tmp_path / "clients.pem"
    clients.write_text((VECTORS / "broker.crt").read_text())
    settings = {
        "ssl.keystore.location": str(VECTORS / "keystore.p12"),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": "storepass",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(clients),
        "ssl.client.auth": "required",
    }
    given = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(VECTORS / f"truststore.{kind}"),
        "ssl.truststore.password": "trustpass",
        "ssl.keystore.location": str(VECTORS / f"keystore.{kind}"),
        "ssl.keystore.password": "storepass",
    }
    if kind == "jks":
        given["ssl.key.password"] = "keypass"
    with tls_broker(tmp_path, settings) as served:
        for more in ({}, {"ssl.keystore.type": "JKS", "ssl.truststore.type": "PKCS12"}):
            security = parse_security(given | more)
            with Cluster(served.safe, security=security) as cluster:
                create_topics(cluster, [NewTopic(f"t{len(more)}", 1, 1)])
                assert f"t{len(more)}" in cluster.topics()
            assert "PRIVATE KEY" not in repr(security)
        for wrong in ({"ssl.keystore.password": "guess"}, {"ssl.truststore.password": "guess"}):
            with pytest.raises(BadSetting, match=f"store.{kind}: ") as raised:
                parse_security(given | wrong)
            assert "guess" not in str(raised.value)
