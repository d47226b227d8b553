"""Passwords and inline keys that are altered while the broker runs: how they are stored."""

import shutil
from pathlib import Path

import pytest
from compat.support import Wire, rival
from controller.vectors.record_passwords import PASSWORDS, ask
from tls.test_listener import asked
from tls.test_reload import alter, certificate_of
from tls.tls_broker import AUTHORITY, OWN, PAIR, Served, client_context, pem_settings, tls_broker

from barnabas import Broker
from barnabas.config import BrokerConfig
from barnabas.controller.stored_passwords import StoredPasswords
from barnabas.security.password_encoder import (
    CBC,
    GCM,
    KEY_FACTORIES,
    BadPassword,
    EncoderSettings,
    decode,
    encode,
)
from barnabas.stages.configured import CannotStart
from barnabas.wire import request

VECTORS = Path(__file__).with_name("vectors")
ROWS = [row.split("\t") for row in (VECTORS / "passwords.tsv").read_text().splitlines()]
KAFKA = "3.9.2"  # the last line that has the encoder
SECRET = {"password.encoder.secret": "sesame"}
PREFIX = "listener.name.safe."
RENEWED = AUTHORITY.issue("CN=broker,O=Example", kind="rsa")
INLINE = {
    "ssl.keystore.type": "PEM",
    "ssl.keystore.key": OWN.key_pem("old key password"),
    "ssl.keystore.certificate.chain": OWN.chain_pem,
    "ssl.key.password": "old key password",
}
CHANGES = {
    PREFIX + "ssl.keystore.key": RENEWED.key_pem("new key password"),
    PREFIX + "ssl.keystore.certificate.chain": RENEWED.chain_pem,
    PREFIX + "ssl.key.password": "new key password",
}


def test_kafkas_texts_are_read():
    for *_, password, text in ROWS:
        assert decode("sesame", text) == password
    assert len(ROWS) == 30


@pytest.mark.java
def test_kafka_reads_ours():
    if reason := rival.missing(KAFKA):
        pytest.skip(reason)
    all_settings = [
        EncoderSettings(factory, cipher, bits, 1024)
        for factory in KEY_FACTORIES
        for cipher, bits in ((CBC, 128), (GCM, 256))
    ]
    passwords = [password for _ in all_settings for password in PASSWORDS]
    texts = [encode("sesame", password, row) for row in all_settings for password in PASSWORDS]
    assert ask(rival.libs(KAFKA), "sesame", [f"decode {text}" for text in texts]) == passwords
    assert set(ask(rival.libs(KAFKA), "other", [f"decode {texts[0]}"])) == {"! ConfigException"}


@pytest.mark.parametrize("text", [ROWS[0][-1], ROWS[-1][-1]])
def test_a_damaged_text_and_another_secret_are_one_error(text):
    with pytest.raises(BadPassword):
        decode("Sesame", text)
    for part in text.split(","):
        with pytest.raises(BadPassword):
            decode("sesame", text.replace(part, part[: part.index(":") + 1]))
    for end in range(0, len(text), 7):
        with pytest.raises(BadPassword):
            decode("sesame", text[:end])


def test_a_text_cannot_ask_for_hours_of_work():
    text = ROWS[0][-1].replace("iterations:4096", "iterations:2000000000")
    with pytest.raises(BadPassword, match="does not support"):
        decode("sesame", text)


def stored(settings: dict[str, str]) -> str:
    """How a broker with these settings stores a password."""
    config = BrokerConfig({"broker.id": "1"} | SECRET | settings)
    encoded = StoredPasswords(config).encoded({"ssl.key.password": "x", "log.cleaner.threads": "2"})
    assert encoded["log.cleaner.threads"] == "2"
    assert decode("sesame", encoded["ssl.key.password"]) == "x"
    return encoded["ssl.key.password"]


def test_password_encoder_keyfactory_algorithm():
    assert "keyFactoryAlgorithm:PBKDF2WithHmacSHA512," in stored({})
    text = stored({"password.encoder.keyfactory.algorithm": "PBKDF2WithHmacSHA1"})
    assert "keyFactoryAlgorithm:PBKDF2WithHmacSHA1," in text


def test_password_encoder_cipher_algorithm():
    assert "cipherAlgorithm:AES/CBC/PKCS5Padding," in stored({})
    text = stored({"password.encoder.cipher.algorithm": "AES/GCM/NoPadding"})
    assert "cipherAlgorithm:AES/GCM/NoPadding," in text and "authenticationTagLength:128" in text


def test_password_encoder_key_length():
    assert "keyLength:256," in stored({"password.encoder.key.length": "256"})


def test_password_encoder_iterations():
    assert "iterations:1024," in stored({"password.encoder.iterations": "1024"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("password.encoder.keyfactory.algorithm", "PBKDF2WithMD5"),
        ("password.encoder.cipher.algorithm", "DES/CBC/PKCS5Padding"),
        ("password.encoder.key.length", "64"),
        ("password.encoder.iterations", "2000000000"),
    ],
)
def test_an_unknown_algorithm_refuses_the_start(name, value):
    with pytest.raises(CannotStart, match=f"{name}={value}: not available"):
        Broker(SECRET | {name: value}).start()


def alter_all(served, changes):
    """The code and the text of one IncrementalAlterConfigs with several settings."""
    row = request(44)
    configs = [
        row.struct("resources.configs")(name=name, configOperation=int(value is None), value=value)
        for name, value in changes.items()
    ]
    broker_id = str(served.broker.node.node_id)
    resource = row.struct("resources")(resourceType=4, resourceName=broker_id, configs=configs)
    with Wire(served.plain) as wire:
        answer = wire.call(44, 1, row.cls(resources=[resource], validateOnly=False))
    return answer.responses[0].errorCode, answer.responses[0].errorMessage


def described(served):
    """name -> (value, sensitive) of DescribeConfigs for this broker."""
    row = request(32)
    broker_id = str(served.broker.node.node_id)
    resource = row.struct("resources")(
        resourceType=4, resourceName=broker_id, configurationKeys=None
    )
    with Wire(served.plain) as wire:
        asking = row.cls(resources=[resource], includeSynonyms=True, includeDocumentation=False)
        answer = wire.call(32, 4, asking)
    return {found.name: (found.value, found.isSensitive) for found in answer.results[0].configs}


def test_password_encoder_secret(tmp_path, caplog):
    """An inline key and its password are altered, served, stored encrypted, and there again after
    a restart; nobody is shown them. Without password.encoder.secret they are refused."""
    caplog.set_level(0)
    own = INLINE | {"log.dirs": str(tmp_path / "data"), "node.id": "1"}
    with tls_broker(tmp_path, own) as served:
        for name, value in CHANGES.items():
            code, text = alter(served, name, value)
            assert code == 42 and "password.encoder.secret" in text
            assert value not in text
    with tls_broker(tmp_path, own | SECRET) as served:
        assert alter_all(served, CHANGES) == (0, None)
        assert certificate_of(served) == RENEWED.certificate_der
        shown = described(served)
        assert {name: shown[name] for name in CHANGES} == dict.fromkeys(CHANGES, (None, True))
    with tls_broker(tmp_path, own | SECRET) as served:
        assert certificate_of(served) == RENEWED.certificate_der
    everything = b"".join(
        path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()
    )
    assert b"listener.name.safe.ssl.key.password" in everything
    assert b"new key password" not in everything and b"PRIVATE KEY" not in everything
    assert "new key password" not in caplog.text and "PRIVATE KEY" not in caplog.text


def test_password_encoder_old_secret(tmp_path, caplog):
    """What the former secret opens is encrypted by the new one at the start. With neither, a TLS
    listener must not open with the keys of the file; without listeners the settings can go."""
    own = INLINE | {"log.dirs": str(tmp_path / "data"), "node.id": "1"}
    with tls_broker(tmp_path, own | SECRET) as served:
        assert alter_all(served, CHANGES) == (0, None)
    other = {"password.encoder.secret": "open"}
    with pytest.raises(CannotStart, match="stored with another password.encoder.secret"):
        Broker(PAIR | own | other).start()
    shutil.copytree(tmp_path / "data", tmp_path / "kept")
    with tls_broker(tmp_path, own | other | {"password.encoder.old.secret": "sesame"}) as served:
        assert certificate_of(served) == RENEWED.certificate_der
    with tls_broker(tmp_path, own | other) as served:
        assert certificate_of(served) == RENEWED.certificate_der
    plain = {"log.dirs": str(tmp_path / "kept"), "node.id": "1"}
    caplog.clear()
    with Broker(plain | other | {"listeners": "PLAINTEXT://127.0.0.1:0"}) as broker:
        assert caplog.text.count("cannot be decrypted") == 3
        gone = Served(broker, "", f"127.0.0.1:{broker.node.listeners[0].port}")
        assert alter_all(gone, dict.fromkeys(CHANGES)) == (0, None)
    with tls_broker(tmp_path, INLINE | other | plain) as served:
        assert certificate_of(served) == OWN.certificate_der


def test_a_secret_of_another_broker_is_not_taken(tmp_path):
    with tls_broker(tmp_path, pem_settings(tmp_path) | SECRET | {"node.id": "1"}) as served:
        row = request(44)
        config = row.struct("resources.configs")(
            name=PREFIX + "ssl.key.password", configOperation=0, value="x"
        )
        resource = row.struct("resources")(resourceType=4, resourceName="2", configs=[config])
        with Wire(served.plain) as wire:
            answer = wire.call(44, 1, row.cls(resources=[resource], validateOnly=False))
        assert answer.responses[0].errorCode != 0
        asked(served.port, client_context()).close()


def test_two_texts_of_one_password_differ():
    assert encode("sesame", "x", EncoderSettings()) != encode("sesame", "x", EncoderSettings())
