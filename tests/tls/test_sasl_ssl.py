"""SASL_SSL: a login over TLS; a setting of the listener alone asks for certificates, too."""

import pytest
from compat.support import create_topic
from security.login_broker import MECHANISMS, PASSWORD, PLAIN_MODULE, SCRAM_MODULE
from tls.test_listener import asked
from tls.tls_broker import (
    AUTHORITY,
    CLIENTS,
    client_context,
    pem_settings,
    tls_broker,
    trust_settings,
)

from barnabas import Broker
from barnabas.config import BrokerConfig

SAFE = "listener.name.safe."
SASL = {
    "listener.security.protocol.map": "SAFE:SASL_SSL,PLAINTEXT:PLAINTEXT",
    "sasl.enabled.mechanisms": MECHANISMS,
    SAFE + "plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="{PASSWORD}";',
    SAFE + "scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    SAFE + "scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    "connection.failed.authentication.delay.ms": "0",
}


def confluent(served, folder, password=PASSWORD):
    (folder / "ca.pem").write_text(AUTHORITY.pem)
    return {
        "bootstrap.servers": served.safe,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(folder / "ca.pem"),
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": password,
    }


def test_a_login_over_tls(tmp_path):
    from confluent_kafka import Consumer, KafkaException, Producer

    with tls_broker(tmp_path, pem_settings(tmp_path) | SASL) as served:
        create_topic(served.plain, "t")
        good = confluent(served, tmp_path)
        producer, errors = Producer(good), []
        values = [bytes([i]) * 200_000 for i in range(10)]
        for value in values:
            producer.produce("t", value, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(20) == 0 and errors == [None] * 10
        consumer = Consumer(good | {"group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        seen = []
        while len(seen) < 10:
            message = consumer.poll(10)
            assert message is not None
            seen.append(message.value())
        consumer.close()
        assert seen == values
        with pytest.raises(KafkaException):
            Producer(confluent(served, tmp_path, "bad")).list_topics(timeout=2)


def test_kafka_python_logs_in_over_tls(tmp_path):
    from kafka import KafkaProducer

    with tls_broker(tmp_path, pem_settings(tmp_path) | SASL) as served:
        create_topic(served.plain, "t")
        confluent(served, tmp_path)
        producer = KafkaProducer(
            bootstrap_servers=served.safe,
            security_protocol="SASL_SSL",
            ssl_cafile=str(tmp_path / "ca.pem"),
            sasl_mechanism="PLAIN",
            sasl_plain_username="alice",
            sasl_plain_password=PASSWORD,
        )
        assert producer.send("t", b"kafka-python").get(20).topic == "t"
        producer.close()


def test_nothing_is_answered_before_the_login(tmp_path):
    """ApiVersions is; Metadata closes the connection."""
    with tls_broker(tmp_path, pem_settings(tmp_path) | SASL) as served:
        with asked(served.port, client_context()) as client:
            client.sendall(b"\0\0\0\x0e\0\x03\0\x01\0\0\0\x08\xff\xff\0\0\0\0")
            assert client.recv(1) == b""


def test_the_clients_certificate_is_asked_for_by_a_setting_of_the_listener_alone(tmp_path):
    """KIP-684: ssl.client.auth without a listener's name is not meant for SASL_SSL."""
    settings = pem_settings(tmp_path) | trust_settings(tmp_path) | SASL
    with tls_broker(tmp_path, settings | {"ssl.client.auth": "required"}) as served:
        asked(served.port, client_context()).close()
    with tls_broker(tmp_path, settings | {SAFE + "ssl.client.auth": "required"}) as served:
        asked(served.port, client_context(CLIENTS.issue("CN=alice", ()), tmp_path)).close()
        with pytest.raises((OSError, EOFError)):
            asked(served.port, client_context())


def test_other_hosts_may_log_in(tmp_path):
    """A SASL_SSL listener needs no allow.unauthenticated.remote, and no warning of clear text."""
    settings = (
        pem_settings(tmp_path)
        | SASL
        | {
            "listeners": "SAFE://0.0.0.0:0,PLAINTEXT://127.0.0.1:0",
            "advertised.listeners": "SAFE://localhost:0,PLAINTEXT://127.0.0.1:0",
        }
    )
    assert BrokerConfig(settings).warnings == []
    with Broker(settings) as broker:
        ports = {row.name: row.port for row in broker.node.listeners}
        asked(ports["SAFE"], client_context()).close()
