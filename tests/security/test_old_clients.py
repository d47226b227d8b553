"""The old producer and consumers over TLS with a login, by the settings of current clients."""

import pytest
from compat.support import create_topic
from security.login_broker import login_broker
from security.test_security_command import init, properties, started

from barnabas.cli import main
from barnabas.cli.security import CLIENT
from barnabas.client.security_settings import parse_security
from barnabas.clients.broker_nodes import address_of
from barnabas.clients.consumer.config import consumer_config
from barnabas.clients.consumer.connector import ConsumerConnector
from barnabas.clients.consumer.requests import FetchRequest
from barnabas.clients.consumer.simple_consumer import SimpleConsumer
from barnabas.clients.failures import InvalidConfig
from barnabas.clients.producer.config import ProducerConfig
from barnabas.clients.producer.producer import Producer, ProducerData
from barnabas.config.tls import is_built_in

pytestmark = pytest.mark.skipif(not is_built_in(), reason="this build has no TLS")


@pytest.fixture(scope="module")
def protected(tmp_path_factory):
    """The address of a protected broker with the topic `t`, and the administrator's settings."""
    folder = tmp_path_factory.mktemp("protected")
    assert init(folder) == 0
    file = folder / "security" / CLIENT
    with started(folder) as broker:
        at = ("-b", broker.bootstrap_servers, "--command-config", str(file))
        assert main(["topics", "create", "t", "--partitions", "1", *at]) == 0
        yield broker.bootstrap_servers, properties(file)


def test_the_old_clients_write_and_read(protected):
    written_and_read(*protected)


def test_the_old_clients_log_in_by_token(tmp_path):
    pytest.importorskip("jwt")
    from security.json_tokens import MODULE, oauth_settings, signed

    token = tmp_path / "token"
    token.write_text(signed())
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{MODULE} required;",
        "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
    }
    with login_broker(tmp_path, **oauth_settings(tmp_path)) as login:
        create_topic(login.plain, "t")
        written_and_read(login.safe, given)
        token.write_text(signed("other"))
        with pytest.raises(Exception, match="OAUTHBEARER|invalid|token|Authentication"):
            written_and_read(login.safe, given)


def written_and_read(address, given):
    with Producer({"metadata.broker.list": address, **given}) as producer:
        producer.send(ProducerData("t", [b"one", b"two"]))
    settings = {"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "smallest"}
    connector = ConsumerConnector(settings | {"consumer.timeout.ms": 10_000} | given)
    try:
        (stream,) = connector.create_message_streams({"t": 1})["t"]
        messages = iter(stream)
        assert [next(messages).message for _ in range(2)] == [b"one", b"two"]
    finally:
        connector.shutdown()
    host, _, port = address.rpartition(":")
    with SimpleConsumer(host, int(port), security=parse_security(given)) as simple:
        found = simple.fetch(FetchRequest("t", 0, 0, 1000))
        assert [row.message.payload for row in found] == [b"one", b"two"]


def test_without_the_settings_they_are_refused(protected):
    address, given = protected
    wrong = given | {"sasl.jaas.config": given["sasl.jaas.config"].replace("admin", "nobody")}
    for settings in ({}, wrong):
        with pytest.raises(Exception, match="lost|cannot|fail|Authentication|invalid"):
            with Producer(
                {
                    "metadata.broker.list": address,
                    "message.send.max.retries": 0,
                    "request.timeout.ms": 1000,
                    **settings,
                }
            ) as producer:
                producer.send(ProducerData("t", b"x"))


def test_plugins_of_a_producer_see_no_password(protected):
    _, given = protected
    made = ProducerConfig({"metadata.broker.list": "h:1", "plugin.x.y": "1", **given})
    assert made.security is not None
    assert made.given == {"metadata.broker.list": "h:1", "plugin.x.y": "1"}
    assert "password" not in repr(made.security)


def test_settings_that_protect_nothing_or_are_wrong_are_refused():
    wrong = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    with pytest.raises(InvalidConfig, match=r"sasl\.jaas\.config"):
        ProducerConfig({"metadata.broker.list": "h:1", **wrong})
    with pytest.raises(InvalidConfig, match=r"sasl\.jaas\.config"):
        consumer_config({"bootstrap.servers": "h:1", "group.id": "g", **wrong})


NODE = b"""{"host":"plain","port":9092,"endpoints":["PLAINTEXT://plain:9092",
"SAFE://safe:9093","LOGIN://login:9094"],"listener_security_protocol_map":{"SAFE":"SSL",
"LOGIN":"SASL_SSL","PLAINTEXT":"PLAINTEXT"},"version":5}"""
LOGIN = 'x required username="a" password="b";'


@pytest.mark.parametrize(
    ("protocol", "address"),
    [
        ("PLAINTEXT", "plain:9092"),
        ("SSL", "safe:9093"),
        ("SASL_SSL", "login:9094"),
        ("SASL_PLAINTEXT", None),
    ],
)
def test_a_registration_in_zookeeper_gives_the_listener_of_the_protocol(protocol, address):
    """Never one with less protection than the settings ask for."""
    settings = {"security.protocol": protocol, "sasl.mechanism": "PLAIN", "sasl.jaas.config": LOGIN}
    security = parse_security(settings)
    assert address_of(NODE, security) == address
    if protocol != "PLAINTEXT":
        assert address_of(b"host-1:10.0.0.1:9092", security) is None
