"""Settings files of Kafka's distributions: a node starts with the keys and values of each
release."""

from pathlib import Path

import pytest

from barnabas.config import BrokerConfig, ConfigError

ROOT = Path(__file__).resolve().parents[2]
STOCK = Path(__file__).parent / "stock"


def load(name):
    return BrokerConfig.load(STOCK / name, environ={})


def test_zookeeper_style():
    config = load("kafka-3.9.2-zookeeper.properties")
    assert config.warnings == []
    (notice,) = config.notices
    assert "zookeeper.connect is not used" in notice and "embedded store" in notice
    assert config.node_id == 0 and config.metadata_store == "embedded"
    assert [str(x) for x in config.listeners] == ["PLAINTEXT://127.0.0.1:9092"]
    assert config["group.initial.rebalance.delay.ms"] == 0


@pytest.mark.parametrize("name", ["kafka-3.9.2-kraft.properties", "kafka-4.3.1.properties"])
def test_kraft_style(name):
    config = load(name)
    assert config.warnings == []
    assert any("embedded store" in line and "KRaft" in line for line in config.notices)
    assert any("CONTROLLER://127.0.0.1:9093" in line for line in config.notices)
    assert config.node_id == 1
    assert [str(x) for x in config.listeners] == ["PLAINTEXT://127.0.0.1:9092"]
    assert [str(x) for x in config.advertised_listeners] == ["PLAINTEXT://localhost:9092"]
    assert config.inter_broker_listener_name == "PLAINTEXT"
    assert config.log_dirs == ("/tmp/kraft-combined-logs",)


def test_container_environment():
    environ = {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://0.0.0.0:9093",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_HEAP_OPTS": "-Xmx1G",
        "KAFKA_PORT": "tcp://10.0.0.1:9092",
    }
    with pytest.raises(ConfigError, match="allow.unauthenticated.remote=true"):
        BrokerConfig.load(environ=environ)
    environ["BARNABAS_ALLOW_UNAUTHENTICATED_REMOTE"] = "true"
    config = BrokerConfig.load(environ=environ)
    assert [str(x) for x in config.listeners] == ["PLAINTEXT://0.0.0.0:9092"]
    assert [str(x) for x in config.advertised_listeners] == ["PLAINTEXT://kafka:9092"]
    assert len(config.warnings) == 1 and "every client that can reach" in config.warnings[0]


def test_our_own_file_loads_without_a_word_and_states_defaults():
    config = BrokerConfig.load(ROOT / "etc" / "server.properties", environ={})
    assert config.warnings == [] and config.notices == []
    defaults = BrokerConfig.load(environ={})
    stated = {name: config[name] for name in config.values if name not in ("node.id", "broker.id")}
    assert len(stated) > 10
    assert stated == {name: defaults[name] for name in stated}
