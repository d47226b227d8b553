"""Tests brokers that log in to each other with a token of an identity provider (OAUTHBEARER)."""

import base64

import pytest
from cluster.acknowledged import leaders_and_isrs
from cluster.three_brokers import Cluster
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from security.json_tokens import MODULE, OAUTH, KeyServer, oauth_settings, signed
from waiting import soon

from barnabas.client.failures import BadSetting
from barnabas.config import BrokerConfig, ConfigError
from barnabas.server.inter_broker import security_between_brokers

TOPIC = "replicated"
URL = "sasl.oauthbearer.token.endpoint.url"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


def between(folder, changed):
    """Returns the settings of a broker whose listener SAFE, for the other brokers, accepts
    tokens."""
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,SAFE://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SAFE:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SAFE",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        **oauth_settings(folder, **{"sasl.enabled.mechanisms": "OAUTHBEARER"}),
        OAUTH + "sasl.login.callback.handler.class": HANDLER,
        **changed,
    }


def token_file(folder, user):
    path = folder / user
    path.write_text(signed(sub=user))
    path.chmod(0o600)
    return path.as_uri()


@pytest.mark.takes(seconds=15)
def test_followers_log_in_by_token_and_have_the_rights_of_its_user(own_zookeeper, tmp_path):
    """As in Kafka, a setting with the prefix of listener and mechanism overrides the others."""
    changed = {
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        OAUTH + URL: token_file(tmp_path, "broker"),
        URL: token_file(tmp_path, "stranger"),  # who has no right of a broker
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:broker;User:ANONYMOUS",
    }
    connect, settings = own_zookeeper.connect("/c"), between(tmp_path, changed)
    with Cluster(tmp_path, connect, count=2, **settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 2, 2)])[TOPIC].result(30)

        def isrs():
            found = leaders_and_isrs(cluster.bootstrap_servers, TOPIC)
            return [isr for _leader, isr in found.values()] == [[1, 2]] * 2

        soon(isrs, "the ISR has not both")
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        errors = []
        for partition in (0, 1):
            producer.produce(
                TOPIC, b"a record", partition=partition, callback=lambda e, _: errors.append(e)
            )
        assert producer.flush(30) == 0 and errors == [None, None]
        for broker in cluster.brokers.values():
            soon(lambda b=broker: [line for line in b.lines if "'User:broker'" in line])
            assert not [line for line in broker.lines if "stranger" in line]


def test_client_credentials(tmp_path):
    provider = KeyServer()
    with provider.running(tmp_path):
        client_id = "sasl.oauthbearer.client.credentials.client.id"
        secret = "sasl.oauthbearer.client.credentials.client.secret"
        trusted = f'ssl.truststore.location="{tmp_path / "ca.pem"}" ssl.truststore.type="PEM"'
        changed = {
            OAUTH + "sasl.jaas.config": f"{MODULE} required {trusted};",
            "sasl.oauthbearer.token.endpoint.url": provider.url,
            client_id: "another",
            OAUTH + client_id: "broker",
            "listener.name.safe." + secret: "sesame",
            "sasl.oauthbearer.scope": "cluster",
        }
        values = between(tmp_path, changed)
        BrokerConfig(values)
        provider.answer = (200, {}, b'{"access_token":"%s"}' % signed(sub="broker").encode())
        sasl = security_between_brokers("SAFE", "SASL_PLAINTEXT", values).sasl
        sent = []
        sasl.authenticate(lambda token: sent.append(token) or b"", "127.0.0.1")
        [(headers, form)] = provider.posted
    assert b"auth=Bearer ey" in sent[0]
    assert headers["Authorization"] == f"Basic {base64.b64encode(b'broker:sesame').decode()}"
    assert form == "grant_type=client_credentials&scope=cluster"
    assert "sesame" not in repr(sasl)


@pytest.mark.parametrize(
    ("changed", "said"),
    [({}, URL), ({URL: "http://localhost/token"}, URL), ({URL: "https://localhost/t"}, "clientId")],
)
def test_a_broker_that_could_get_no_token_does_not_start(tmp_path, changed, said):
    with pytest.raises(BadSetting, match=said):
        security_between_brokers("SAFE", "SASL_PLAINTEXT", between(tmp_path, changed))


def test_a_class_of_others_refuses_the_start(tmp_path):
    name = "sasl.login.callback.handler.class"
    with pytest.raises(ConfigError, match=name):
        BrokerConfig(between(tmp_path, {OAUTH + name: "org.example.Own"}))
