"""How a broker logs in at others: by the JAAS sections of its listener, as Apache Kafka does
(ChannelBuilders.clientChannelBuilder, JaasContext.loadServerContext). Kafka's own clients use the
section KafkaClient."""

import pytest
from tls.tls_broker import AUTHORITY, pem_settings, tls_broker

from barnabas.client.connection import Connection
from barnabas.client.failures import BadSetting, CannotConnect
from barnabas.server.inter_broker import security_between_brokers

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
BETWEEN = {"sasl.mechanism.inter.broker.protocol": "PLAIN"}
SECTION = '{name} {{ {PLAIN} required username="{user}" password="p" user_a="b"; }};\n'


@pytest.fixture
def user(tmp_path, monkeypatch):
    """Returns as whom a broker logs in, with these sections of the JAAS file."""

    def login(*sections, **given):
        path = tmp_path / "jaas.conf"
        path.write_text(
            "".join(SECTION.format(name=name, PLAIN=PLAIN, user=f"of {name}") for name in sections)
        )
        path.chmod(0o600)
        monkeypatch.setenv("KAFKA_OPTS", f"-Djava.security.auth.login.config={path}")
        return security_between_brokers("SAFE", "SASL_PLAINTEXT", BETWEEN | given).sasl.user

    return login


def test_the_section_of_the_listener_comes_before_that_of_all(user):
    assert user("KafkaClient", "KafkaServer") == "of KafkaServer"
    assert user("KafkaServer", "safe.KafkaServer", "KafkaClient") == "of safe.KafkaServer"


def test_the_section_of_clients_is_not_used(user):
    """A broker with this file started, and Kafka's do not."""
    said = r"no JAAS file \(KAFKA_OPTS\) has a section safe.KafkaServer or KafkaServer"
    with pytest.raises(BadSetting, match=said):
        user("KafkaClient")


def test_a_line_counts_with_the_listener_and_the_mechanism_in_front_only(user):
    """Kafka warns of the others and ignores them (JaasContext.loadServerContext)."""
    line = f'{PLAIN} required username="{{}}" password="p" user_a="b";'
    name, listener = "sasl.jaas.config", "listener.name.safe."
    values = {name: line.format("of all"), f"{listener}{name}": line.format("of no mechanism")}
    assert user("KafkaServer", **values) == "of KafkaServer"
    values[f"{listener}plain.{name}"] = line.format("of both")
    assert user("KafkaServer", **values) == "of both"


def test_the_name_of_a_broker_is_compared_with_its_certificate_unless_switched_off(tmp_path):
    name = "ssl.endpoint.identification.algorithm"
    settings = pem_settings(tmp_path, AUTHORITY.issue("CN=b", ("elsewhere.example",), kind="rsa"))
    with tls_broker(tmp_path, settings) as served:

        def connect(**given):
            values = {"ssl.truststore.certificates": AUTHORITY.pem, **given}
            security = security_between_brokers("SAFE", "SSL", values)
            Connection("localhost", served.port, client_id="2", security=security).close()

        connect(**{name: ""})
        for given in ({}, {name: "https"}):
            with pytest.raises(CannotConnect, match="elsewhere.example|[Hh]ostname mismatch"):
                connect(**given)
