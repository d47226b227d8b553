"""The example distributions of tests/plugins: installed from wheels, in a broker in another
process, driven by real clients."""

import os
import subprocess
import sys
import time
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from durability.broker_process import BrokerProcess, free_port
from kafka import KafkaConsumer, KafkaProducer

from barnabas.clients import KeyedMessage
from barnabas.clients import Producer as OldProducer

PROJECTS = Path(__file__).resolve().parents[1] / "plugins"
NAMES = {"keep-newest", "no-secrets", "card-mask", "member-views"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A directory with the plugins, or None if tests/run has installed them."""
    if {row.name for row in entry_points(group="barnabas.plugins")} >= NAMES:
        return None
    wheels = tmp_path_factory.mktemp("wheels")
    build = [str(PROJECTS / "build"), sys.executable, str(wheels)]
    subprocess.run(build, check=True, capture_output=True)
    found = sorted(wheels.glob("*.whl"))
    assert len(found) == len(NAMES)
    installed = tmp_path_factory.mktemp("site")
    for wheel in found:  # as pip installs a wheel of plain modules
        zipfile.ZipFile(wheel).extractall(installed)
    return installed


@pytest.fixture(scope="module")
def broker(site, tmp_path_factory):
    settings = {
        "plugins": "keep-newest,no-secrets,card-mask",
        "plugin.keep-newest.segments": "2",
        "plugin.no-secrets.words": "password,token",
        "plugin.card-mask.isolation": "process",
        "log.retention.check.interval.ms": "200",
        "log.initial.task.delay.ms": "100",
    }
    with pytest.MonkeyPatch.context() as patch:
        if site is not None:
            patch.setenv(
                "PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
            )
        running = BrokerProcess(tmp_path_factory.mktemp("data"), free_port(), settings)
        yield running
        running.stop()


def create(broker, name, **configs):
    asked = NewTopic(name, 1, 1, config={key.replace("_", "."): v for key, v in configs.items()})
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([asked])[name].result(20)
    return name


def test_the_start_prints_what_runs(broker):
    said = [line for line in broker.lines if " plugin " in line and "1.0.0 from" in line]
    assert len(said) == 3
    assert any("no-secrets" in line and "intercept_produce" in line for line in said)
    assert any("card-mask" in line and "in its own process" in line for line in said)


def test_the_deletion_policy(broker):
    topic = create(broker, "kept", retention_policy="keep-newest", segment_bytes="300")
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
    for i in range(10):
        producer.produce(topic, b"%d" % i + b"x" * 180)
        assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "g"})
    end = time.monotonic() + 20
    while time.monotonic() < end:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
        if low == 8:
            break
        time.sleep(0.05)
    consumer.close()
    assert (low, high) == (8, 10)


def test_the_produce_interceptor(broker):
    topic = create(broker, "clean", produce_interceptors="no-secrets")
    told = []
    producer = Producer({"bootstrap.servers": broker.address, "compression.type": "zstd"})
    for value in (b"hello", b"my password is"):
        producer.produce(topic, value, on_delivery=lambda error, _: told.append(error))
        producer.flush(20)
    assert told[0] is None and told[1].code() == KafkaError.INVALID_RECORD
    other = KafkaProducer(bootstrap_servers=broker.address)
    assert other.send(topic, b"hello").get(20).offset == 1
    with pytest.raises(Exception, match="(?i)record"):
        other.send(topic, b"a token").get(20)
    other.close()


def test_the_fetch_interceptor(broker):
    topic = create(broker, "cards", fetch_interceptors="card-mask")
    producer = Producer({"bootstrap.servers": broker.address})
    sent = [b"paid by 4111 1111 1111 1111", b"plain", b"4111-1111-1111-1111!", b"1234"]
    for value in sent:
        producer.produce(topic, value, key=b"k")
    assert producer.flush(20) == 0
    expected = [b"paid by ****", b"plain", b"****!", b"1234"]
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "g"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    rows = [row for row in consumer.consume(4, timeout=20) if row.error() is None]
    consumer.close()
    assert [row.value() for row in rows] == expected
    reader = KafkaConsumer(
        topic,
        bootstrap_servers=broker.address,
        auto_offset_reset="earliest",
        consumer_timeout_ms=5000,
    )
    assert [next(reader).value for _ in sent] == expected
    reader.close()


def test_the_partitioner_with_an_encoder(broker, site, monkeypatch):
    if site is not None:
        monkeypatch.syspath_prepend(str(site))
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic("views", 4, 1)])["views"].result(20)
    settings = {
        "metadata.broker.list": broker.address,
        "producer.type": "async",
        "serializer.class": "member-views",
        "partitioner.class": "member-views",
        "plugin.member-views.large.members": "17",
    }
    views = [(member, f"/page/{i}") for i in range(5) for member in (1, 2, 3, 4, 17)]
    with OldProducer(settings) as old:
        old.send([KeyedMessage("views", view, key=view[0]) for view in views])
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "g"})
    consumer.assign([TopicPartition("views", index, 0) for index in range(4)])
    found = {}
    while sum(map(len, found.values())) < len(views):
        for row in consumer.consume(len(views), timeout=20):
            assert row.error() is None
            found.setdefault((int(row.key()), row.partition()), []).append(row.value())
    consumer.close()
    assert set(found) == {(1, 1), (2, 2), (3, 0), (4, 1), (17, 3)}
    for (member, _), rows in found.items():
        assert rows == [f"{member}\t/page/{i}".encode() for i in range(5)]
    environ = dict(os.environ)
    if site is not None:
        environ["PYTHONPATH"] = str(site)
    command = [sys.executable, "-m", "barnabas", "consume", "views", "--end", "--partitions", "3"]
    words = ["--decoder", "member-views", "--json", "-b", broker.address]
    ran = subprocess.run([*command, *words], env=environ, capture_output=True, text=True)
    assert '"value":[17,"/page/0"]' in ran.stdout, ran.stderr


def test_the_command_lists_and_describes_them(site):
    environ = dict(os.environ)
    if site is not None:
        environ["PYTHONPATH"] = str(site)
    command = [sys.executable, "-m", "barnabas", "plugins"]
    said = subprocess.run([*command, "list"], env=environ, capture_output=True, text=True).stdout
    for line in ("no-secrets", "barnabas-no-secrets", "Refuses values that contain a secret."):
        assert line in said
    ran = subprocess.run(
        [*command, "describe", "no-secrets"], env=environ, capture_output=True, text=True
    )
    assert "plugin.no-secrets.words" in ran.stdout and "intercept_produce" in ran.stdout
