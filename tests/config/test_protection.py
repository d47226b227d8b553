"""Security fails closed: a security setting that is not supported stops the start."""

import pytest

from barnabas.config import BrokerConfig, ConfigError, DynamicConfig
from barnabas.config.protection import protection_asked
from barnabas.config.settings import BROKER_SETTINGS

ASKED = {
    "sasl.enabled.mechanisms": "EXTERNAL",
    "sasl.jaas.config": "x",
    "sasl.mechanism.inter.broker.protocol": "EXTERNAL",
    "sasl.server.callback.handler.class": "org.example.Check",
    "listener.name.internal.external.sasl.jaas.config": "x",
    "listener.name.internal.ssl.engine.factory.class": "org.example.Factory",
    "ssl.provider": "BCFIPS",
    "authorizer.class.name": "org.example.Authorizer",
    "principal.builder.class": "org.example.Builder",
    "client.quota.callback.class": "org.example.Quota",
    "listener.name.internal.scram.connections.max.reauth.ms": "1000",
}


@pytest.mark.parametrize("name", ASKED)
def test_refuses_to_start(name):
    with pytest.raises(ConfigError) as caught:
        BrokerConfig({name: ASKED[name]})
    (line,) = caught.value.problems
    assert line.startswith(name) and "not available in this build" in line
    assert ASKED[name] not in line.removeprefix(name) or len(ASKED[name]) < 2


def test_a_default_asks_for_nothing():
    values = {name: s.default for name, s in BROKER_SETTINGS.items() if s.default is not None}
    assert [n for n, v in values.items() if protection_asked(n, v)] == []


@pytest.mark.parametrize("name", [n for n in ASKED if BROKER_SETTINGS.get(n, None)])
def test_cannot_be_slipped_in_while_running(name):
    config = DynamicConfig(BrokerConfig({"broker.id": "1"}))
    with pytest.raises(ConfigError):
        config.alter(1, {name: ASKED[name]})
    assert config.texts(1) == {}


@pytest.mark.parametrize("name", ["ssl.keystore.location", "ssl.truststore.location"])
def test_stores_cannot_be_set_where_they_would_protect_nothing(name):
    config = DynamicConfig(BrokerConfig({"broker.id": "1"}))
    with pytest.raises(ConfigError, match="no listener uses TLS"):
        config.alter(1, {name: "/k"})
    assert config.texts(1) == {}


def test_every_problem_is_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        BrokerConfig({"super.users": "a", "ssl.provider": "BCFIPS", "num.partitions": "no"})
    assert len(caught.value.problems) == 3
