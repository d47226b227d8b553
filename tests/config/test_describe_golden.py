"""DescribeConfigs compared with a running Kafka 4.3.1 that had the same file and alterations."""

from pathlib import Path

from barnabas.config import BrokerConfig, DynamicConfig, TopicConfig
from barnabas.config.settings import BROKER_SETTINGS, UNLISTED, settings_of

HERE = Path(__file__).parent
FILE = """
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kcfg/b/data
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:19093
listeners=PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093
advertised.listeners=PLAINTEXT://127.0.0.1:19092
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
"""

# advertised.listeners, the protocol map and settings at their default are left out.
LISTENERS_ONLY = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:28093
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:28092,CONTROLLER://127.0.0.1:28093
log.dirs=/tmp/k13/data
"""

# Documented differences: where listeners are reachable, a class for JMX, and that a group's first
# member waits for others unless Kafka's own server.properties is used.
OURS = {
    "group.initial.rebalance.delay.ms",
    "queued.max.request.bytes",
    "log.dir",
    "metric.reporters",
}
# Settings without a public name in Kafka.
OWN = {
    "allow.cluster.of.one",
    "allow.unauthenticated.remote",
    "api.versions.of",
    "console.decoders",
    "console.host",
    "console.listener.name",
    "console.port",
    "console.ssl.location",
    "legacy07.message.magic",
    "log.durability",
    "log.scrub.bytes.per.second",
    "logging.format",
    "max.decompressed.bytes",
    "max.tls.handshakes",
    "metadata.store",
    "metrics.credentials.file",
    "metrics.dialect",
    "metrics.host",
    "metrics.max.partitions",
    "metrics.port",
    "metrics.ssl.location",
    "plugins",
    "request.receive.timeout.ms",
    "response.send.timeout.ms",
}


def golden(resource):
    found = {}
    for line in (HERE / "golden" / "kafka-4.3.1-describe.tsv").read_text().splitlines():
        if line.startswith(resource + "\t"):
            _, name, value, source, read_only, sensitive = line.split("\t")
            found[name] = (value, int(source), read_only == "True", sensitive == "True")
    return found


def broker(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text(FILE)
    config = DynamicConfig(BrokerConfig.load(path, environ={}))
    config.alter(None, {"log.retention.ms": "7000", "message.max.bytes": "1500000"})
    config.alter(None, {"min.insync.replicas": "1"})
    config.alter(1, {"log.retention.ms": "5000", "message.max.bytes": "2000000"})
    return config


def shown(entries):
    return {
        e.name: ("null" if e.value is None else e.value, e.source, e.read_only, e.is_sensitive)
        for e in entries
    }


def test_a_broker_answers_as_kafka_does(tmp_path):
    ours, kafka = shown(broker(tmp_path).describe(None, 1)), golden("BROKER")
    shared = [name for name in kafka if name in BROKER_SETTINGS and name not in OURS]
    assert len(shared) > 310
    assert {n: ours[n] for n in shared} == {n: kafka[n] for n in shared}


def test_every_source_of_a_file_with_only_listeners_is_kafkas(tmp_path):
    """F13: is `advertised.listeners` STATIC_BROKER_CONFIG when `listeners` gives the address? Kafka
    answers null and DEFAULT_CONFIG, without synonyms."""
    path = tmp_path / "server.properties"
    path.write_text(LISTENERS_ONLY)
    config = DynamicConfig(BrokerConfig.load(path, environ={}))
    config.alter(None, {"min.insync.replicas": "1"})  # Kafka sets it at formatting (ELR)
    entries = config.describe(None, 1)
    ours, kafka = shown(entries), golden("BROKER") | golden("LISTENERS_ONLY")
    shared = [name for name in kafka if name in BROKER_SETTINGS and name not in OURS]
    assert {n: ours[n] for n in shared} == {n: kafka[n] for n in shared}
    assert kafka["advertised.listeners"][:2] == ("null", 5)
    assert [e.synonyms for e in entries if e.name == "advertised.listeners"] == [[]]


def test_a_topic_answers_as_kafka_does(tmp_path):
    topic = TopicConfig({"retention.ms": "1000"}, broker(tmp_path))
    ours, kafka = shown(topic.describe()), golden("TOPIC")
    assert {n: ours.get(n) for n in kafka} == kafka
    assert ours.keys() == kafka.keys()


def test_unlisted_settings_are_described_when_given_or_asked_for():
    quiet = DynamicConfig(BrokerConfig({"node.id": "1"}))
    given = DynamicConfig(BrokerConfig({"node.id": "1", "zookeeper.connect": "h:1"}))
    assert "zookeeper.connect" not in shown(quiet.describe(None, 1))
    assert shown(quiet.describe(["zookeeper.connect"], 1)).keys() == {"zookeeper.connect"}
    assert shown(given.describe(None, 1))["zookeeper.connect"][:2] == ("h:1", 4)
    topic = TopicConfig({"message.format.version": "2.7"}, quiet)
    assert shown(topic.describe())["message.format.version"][:2] == ("2.7", 1)


def test_unlisted_settings_are_in_the_table_and_not_kafkas():
    kafka = {("broker", name) for name in golden("BROKER")}
    kafka |= {("topic", name) for name in golden("TOPIC")}
    assert kafka & UNLISTED == set()
    assert all(name in settings_of(scope) for scope, name in UNLISTED)
    assert {n for n in BROKER_SETTINGS if ("broker", n) not in kafka | UNLISTED} == OWN


def synonyms_of(name, topic=None, **given):
    broker = BrokerConfig({key.replace("_", "."): value for key, value in given.items()})
    entry = next(e for e in TopicConfig(topic or {}, broker).describe([name]))
    return [(synonym, source) for synonym, _, source in entry.synonyms]


def test_synonyms_are_those_that_kafka_shows():
    """As in 4.3.1: the default of a synonym is not shown when neither name is set."""
    assert synonyms_of("segment.ms") == []
    assert synonyms_of("flush.ms") == []
    assert synonyms_of("remote.storage.enable") == []
    assert synonyms_of("segment.ms", {"segment.ms": "9"}) == [("segment.ms", 1)]
    assert synonyms_of("retention.ms", log_retention_ms="-1") == [
        ("log.retention.ms", 4),
        ("log.retention.hours", 5),
    ]
    assert synonyms_of("message.timestamp.after.max.ms") == [
        ("log.message.timestamp.after.max.ms", 5)
    ]
    assert synonyms_of("cleanup.policy") == [("log.cleanup.policy", 5)]
