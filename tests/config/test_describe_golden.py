"""DescribeConfigs beside the answers of a live Kafka 4.3.1 with the same file and alterations."""

from pathlib import Path

from barnabas.config import BrokerConfig, DynamicConfig, TopicConfig
from barnabas.config.settings import BROKER_SETTINGS

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

# Stated differences: Kafka lets listeners and their map change live, and names a class for JMX.
OURS = {
    "listeners",
    "listener.security.protocol.map",
    "queued.max.request.bytes",
    "metric.reporters",
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


def test_a_topic_answers_as_kafka_does(tmp_path):
    topic = TopicConfig({"retention.ms": "1000"}, broker(tmp_path))
    ours, kafka = shown(topic.describe()), golden("TOPIC")
    assert {n: ours.get(n) for n in kafka} == kafka
    more = {n for n in ours if n not in kafka}
    assert more == {  # of 2.x and of 4.4
        "errors.deadletterqueue.group.enable",
        "max.decompressed.message.bytes",
        "message.downconversion.enable",
        "message.format.version",
        "message.timestamp.difference.max.ms",
        "remote.copy.lag.bytes",
        "remote.copy.lag.ms",
    }
