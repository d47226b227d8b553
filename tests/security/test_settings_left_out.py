"""Security fails closed: a configuration that protects starts; without any one of its protective
settings the broker does not start, or refuses access. One table, a row for each setting."""

import importlib.util

import pytest
from compat.support import Wire
from security.json_tokens import oauth_settings
from security.login_broker import PASSWORD, PLAIN_MODULE, SCRAM_MODULE
from security.login_broker import SETTINGS as LOGINS
from tls.tls_broker import AUTHORITY, CLIENTS, pem_settings, trust_settings

from barnabas import Broker
from barnabas.client import Cluster
from barnabas.client.failures import ClientError
from barnabas.client.security import Sasl, Security, Tls
from barnabas.config import BrokerConfig, ConfigError
from barnabas.config.tls import is_built_in
from barnabas.errors import KafkaError
from barnabas.node import CannotStart
from barnabas.wire import request

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
JAAS = "listener.name.safe.plain.sasl.jaas.config"


def private(path, text):
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


def mutual_tls(folder):
    return {
        "listeners": "SAFE://0.0.0.0:0",
        "advertised.listeners": "SAFE://localhost:0",
        "listener.security.protocol.map": "SAFE:SSL",
        "inter.broker.listener.name": "SAFE",
        "ssl.client.auth": "required",
        **pem_settings(folder),
        **trust_settings(folder),
    }


def logins(_folder):
    return {
        "listeners": "SAFE://0.0.0.0:0",
        "advertised.listeners": "SAFE://127.0.0.1:0",
        "listener.security.protocol.map": "SAFE:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SAFE",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        JAAS: f'{PLAIN_MODULE} required user_alice="{PASSWORD}";',
        "listener.name.safe.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "listener.name.safe.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    }


def tokens(folder):
    given = LOGINS | oauth_settings(folder)
    return {name: text for name, text in given.items() if text is not None}


def rules(folder):
    return logins(folder) | {"authorizer.class.name": AUTHORIZER, "super.users": "User:alice"}


def metrics_page(folder):
    issued = CLIENTS.issue("CN=page")
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "metrics.port": "0",
        "metrics.host": "0.0.0.0",
        "metrics.ssl.location": private(
            folder / "page.pem", issued.key_pem() + issued.certificate_pem
        ),
        "metrics.credentials.file": private(folder / "readers", "token secret\n"),
    }


def zookeeper(folder):
    return {
        "metadata.store": "zookeeper",
        "zookeeper.connect": "localhost:1",
        "zookeeper.auth": "digest:me:secret",
        "zookeeper.set.acl": "true",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": private(folder / "ca.pem", CLIENTS.pem),
    }


def open_to_others(_folder):
    return {
        "listeners": "PLAINTEXT://0.0.0.0:0",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:0",
        "allow.unauthenticated.remote": "true",
    }


# Without the setting the broker does not start.
NO_START = [
    *((mutual_tls, name) for name in (
        "listener.security.protocol.map",
        "inter.broker.listener.name",
        "ssl.client.auth",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.truststore.location",
        "ssl.truststore.type",
    )),
    *((logins, name) for name in (
        "listener.security.protocol.map",
        "inter.broker.listener.name",
        "sasl.enabled.mechanisms",
        JAAS,
        "listener.name.safe.scram-sha-256.sasl.jaas.config",
        "listener.name.safe.scram-sha-512.sasl.jaas.config",
    )),
    *((tokens, name) for name in (
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.expected.audience",
        "listener.name.safe.oauthbearer.sasl.jaas.config",
        "listener.name.safe.oauthbearer.sasl.server.callback.handler.class",
    )),
    (rules, "authorizer.class.name"),
    (metrics_page, "metrics.ssl.location"),
    (metrics_page, "metrics.credentials.file"),
    (zookeeper, "zookeeper.auth"),
    (zookeeper, "zookeeper.ssl.client.enable"),
    (zookeeper, "zookeeper.ssl.truststore.location"),
    (open_to_others, "allow.unauthenticated.remote"),
]  # fmt: skip
NEEDS_TLS = (mutual_tls, metrics_page, zookeeper)


def attempt(base, folder, settings):
    """Starts the broker; of ZooKeeper, which is not there, the settings are checked alone."""
    if base is zookeeper:
        BrokerConfig(settings)
        return
    with Broker(settings | {"log.dirs": str(folder / "data")}):
        pass


def made(base, folder):
    if base in NEEDS_TLS and not is_built_in():
        pytest.skip("this build has no TLS")
    if base is tokens and importlib.util.find_spec("jwt") is None:
        pytest.skip("no package PyJWT")
    return base(folder)


@pytest.mark.parametrize("base", dict.fromkeys(base for base, _ in NO_START))
def test_the_whole_configuration_starts(tmp_path, monkeypatch, base):
    monkeypatch.delenv("KAFKA_OPTS", raising=False)
    attempt(base, tmp_path, made(base, tmp_path))


@pytest.mark.parametrize(
    ("base", "name"), NO_START, ids=[f"{base.__name__}-{name}" for base, name in NO_START]
)
def test_without_the_setting_the_broker_does_not_start(tmp_path, monkeypatch, base, name):
    monkeypatch.delenv("KAFKA_OPTS", raising=False)
    settings = made(base, tmp_path)
    del settings[name]
    with pytest.raises((ConfigError, CannotStart)) as caught:
        attempt(base, tmp_path, settings)
    assert PASSWORD not in str(caught.value) and "secret" not in str(caught.value)


# ------------------------------------------------------------------ it starts, and refuses access


def topics_seen(broker, security):
    """What a client may do with a new topic: True when it can create one."""
    port = next(row.port for row in broker.node.listeners if row.name == "SAFE")
    message = request(19)
    topic = message.struct("topics")(name="t", numPartitions=1, replicationFactor=1)
    with Cluster(f"localhost:{port}", security=security, timeout_s=5) as cluster:
        answer = cluster.any_connection().call(19, message.cls(topics=[topic], timeoutMs=5000))
    return [row.errorCode for row in answer.topics]


PLAIN = Security(sasl=Sasl("PLAIN", "alice", PASSWORD))
OK, TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED = 0, 29, 31
DENIED = ([TOPIC_AUTHORIZATION_FAILED], [CLUSTER_AUTHORIZATION_FAILED])


def test_without_super_users_no_one_may_do_anything(tmp_path):
    settings = rules(tmp_path) | {"log.dirs": str(tmp_path / "data")}
    with Broker(settings) as broker:
        assert topics_seen(broker, PLAIN) == [OK]
    del settings["super.users"]
    with Broker(settings | {"log.dirs": str(tmp_path / "other")}) as broker:
        assert topics_seen(broker, PLAIN) in DENIED


def test_without_allow_everyone_no_one_may_do_what_no_rule_is_for(tmp_path):
    name = "allow.everyone.if.no.acl.found"
    settings = rules(tmp_path) | {"super.users": "User:root", name: "true"}
    with Broker(settings | {"log.dirs": str(tmp_path / "data")}) as broker:
        assert topics_seen(broker, PLAIN) == [OK]
    del settings[name]
    with Broker(settings | {"log.dirs": str(tmp_path / "other")}) as broker:
        assert topics_seen(broker, PLAIN) in DENIED


@pytest.mark.skipif(not is_built_in(), reason="this build has no TLS")
def test_without_mapping_rules_the_short_name_is_no_ones(tmp_path):
    name = "ssl.principal.mapping.rules"
    settings = mutual_tls(tmp_path) | {
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:admin",
        name: "RULE:^CN=([^,]+).*$/$1/",
    }
    issued = CLIENTS.issue("O=Example,CN=admin")
    tls = Tls(
        trusted=private(tmp_path / "ca.pem", AUTHORITY.pem),
        own_chain=private(tmp_path / "admin.pem", issued.key_pem() + issued.certificate_pem),
    )
    with Broker(settings | {"log.dirs": str(tmp_path / "data")}) as broker:
        assert topics_seen(broker, Security(tls=tls)) == [OK]
    del settings[name]
    with Broker(settings | {"log.dirs": str(tmp_path / "other")}) as broker:
        assert topics_seen(broker, Security(tls=tls)) in DENIED


def test_without_a_credential_in_the_store_a_scram_user_does_not_log_in(tmp_path):
    settings = logins(tmp_path) | {"log.dirs": str(tmp_path / "data")}
    with Broker(settings) as broker, pytest.raises((ClientError, KafkaError)):
        topics_seen(broker, Security(sasl=Sasl("SCRAM-SHA-512", "alice", PASSWORD)))


def test_without_a_secret_key_there_are_no_delegation_tokens(tmp_path):
    name = "delegation.token.secret.key"
    settings = LOGINS | {"log.dirs": str(tmp_path / "data"), name: "of the cluster"}
    codes = []
    for given in (settings, {key: text for key, text in settings.items() if key != name}):
        with Broker(given) as broker:
            port = next(row.port for row in broker.node.listeners if row.name == "SAFE")
            with Cluster(f"127.0.0.1:{port}", security=PLAIN) as cluster:
                body = request(38).cls(renewers=[], maxLifetimeMs=-1)
                codes.append(cluster.any_connection().call(38, body).errorCode)
    assert codes == [0, 61]  # DELEGATION_TOKEN_AUTH_DISABLED


def test_without_a_secret_no_password_is_stored(tmp_path):
    settings = LOGINS | {"log.dirs": str(tmp_path / "data"), "node.id": "1"}
    with Broker(settings) as broker:
        port = next(row.port for row in broker.node.listeners if row.name == "PLAINTEXT")
        ask = request(44)
        config = ask.struct("resources.configs")(
            name="listener.name.safe.ssl.keystore.password", configOperation=0, value=PASSWORD
        )
        row = ask.struct("resources")(resourceType=4, resourceName="1", configs=[config])
        with Wire(f"127.0.0.1:{port}") as wire:
            answer = wire.call(44, 1, ask.cls(resources=[row])).responses[0]
        assert answer.errorCode == 42 and PASSWORD not in repr(answer)
