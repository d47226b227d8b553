"""The built-in plugins in a running broker."""

import json
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from durability.broker_process import BrokerProcess, free_port
from waiting import soon

from barnabas import Broker
from barnabas.cext.record.records import Record
from barnabas.errors import InvalidRecord, KafkaError
from barnabas.hooks import LogView, SegmentView
from barnabas.plugins.retention_consumed import RetentionConsumed
from barnabas.plugins.retention_records import RetentionRecords
from barnabas.testing.plugins import Sender

SCHEMA = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "integer"}},
}


def values(broker, topic):
    return [record.value for record in broker.records(topic)]


# -- retention ------------------------------------------------------------------------


def log_of(*ends, committed=None):
    bases = (0, *ends[:-1])
    views = tuple(
        SegmentView(base, end, 10, 0, end == ends[-1])
        for base, end in zip(bases, ends, strict=True)
    )
    return LogView("t", 0, views, ends[-1], -1, -1, committed or {})


@pytest.mark.parametrize(
    ("committed", "count"),
    [
        ({}, 0),
        ({"a": 30}, 0),
        ({"a": 30, "b": 9}, 0),
        ({"a": 30, "b": 10}, 1),
        ({"a": 25, "b": 20}, 2),
        ({"a": 30, "b": 30, "c": 0}, 3),
    ],
)
def test_consumed_waits_for_the_slowest_of_its_groups(committed, count):
    policy = RetentionConsumed({"groups": ("a", "b")})
    assert policy.deletable_segments(log_of(10, 20, 30, committed=committed)) == count


@pytest.mark.parametrize(("keep", "count"), [(1, 2), (10, 2), (11, 1), (20, 1), (21, 0), (99, 0)])
def test_the_last_records_are_kept(keep, count):
    assert RetentionRecords({"count": keep}).deletable_segments(log_of(10, 20, 30)) == count


def test_segments_go_when_the_groups_have_committed_behind_them():
    settings = {"plugins": "consumed", "plugin.consumed.groups": "a,b"}
    with Broker(settings) as broker, Sender(broker.bootstrap_servers) as sender:
        configs = {"retention.policy": "consumed", "segment.bytes": "300", "retention.ms": "1"}
        topic = broker.create_topic("t", configs=configs)
        for _ in range(5):
            sender.send(topic, [b"x" * 150])
        log = broker.node.loaded.logs.get(topic, 0).handle
        for group, offset, start in (("a", 4, 0), ("b", 2, 2), ("b", 4, 4), ("a", 5, 4)):
            consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
            consumer.close()
            broker.node.running.retention.run()
            assert log.start_offset == start


# -- validation, dead letters ---------------------------------------------------------------


@pytest.fixture
def schema(tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA))
    return str(path)


def test_json_schema_refuses_with_the_record_and_the_reason(schema):
    settings = {"plugins": "json-schema", "plugin.json-schema.file": schema}
    with Broker(settings) as broker, Sender(broker.bootstrap_servers) as sender:
        topic = broker.create_topic("t", configs={"produce.interceptors": "json-schema"})
        sender.send(topic, [b'{"id": 1}', Record(None, b"key")], codec="lz4")
        for value, words in [
            (b"{", "record 1: its value is not JSON"),
            (b'{"id": "x"}', r"record 1: its value\['id'\]: 'x' is not of type 'integer'"),
            (b"{}", "'id' is a required property"),
            (b"[" * 100_000, "record 1: its value is not JSON"),
        ]:
            with pytest.raises(InvalidRecord, match=words):
                sender.send(topic, [b'{"id": 1}', value])
        assert values(broker, topic) == [b'{"id": 1}', None]


def test_a_schema_that_is_none_stops_the_start(tmp_path):
    from barnabas.node import CannotStart

    (tmp_path / "bad.json").write_text('{"type": 5}')
    for file, words in ((tmp_path / "bad.json", "cannot create"), (tmp_path / "no", "No such")):
        settings = {"plugins": "json-schema", "plugin.json-schema.file": str(file)}
        with pytest.raises(CannotStart, match=words):
            Broker(settings).start()


def test_bad_records_go_to_the_dead_letters_and_the_others_on(schema):
    settings = {"plugins": "dead-letter", "plugin.dead-letter.schema": schema}
    with Broker(settings) as broker:
        topic = broker.create_topic("orders", configs={"produce.interceptors": "dead-letter"})
        told = []
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True}
        )
        for value in (b'{"id": 1}', b"bad", b'{"id": 2}', b"worse"):
            producer.produce(
                topic,
                value,
                key=b"k",
                headers=[("h", b"1")],
                on_delivery=lambda error, row: told.append((error, row.offset())),
            )
        assert producer.flush(20) == 0
        assert told == [(None, 0), (None, 1), (None, 2), (None, 3)]
        found = [(row.offset, row.value) for row in broker.records(topic)]
        assert found == [(0, b'{"id": 1}'), (2, b'{"id": 2}')]
        dead = broker.records("orders.dead")
        assert [(row.key, row.value) for row in dead] == [(b"k", b"bad"), (b"k", b"worse")]
        headers = dict(dead[0].headers)
        assert headers["h"] == b"1" and headers["dead-letter.topic"] == b"orders"
        assert headers["dead-letter.reason"] == b"its value is not JSON"


def test_dead_letters_that_cannot_be_written_cost_no_record(schema):
    settings = {"plugins": "dead-letter", "plugin.dead-letter.schema": schema}
    with Broker(settings) as broker, Sender(broker.bootstrap_servers) as sender:
        topic = broker.create_topic("orders", configs={"produce.interceptors": "dead-letter"})
        broker.create_topic("orders.dead")
        broker.node.loaded.logs.get("orders.dead", 0).handle.close()
        with pytest.raises(KafkaError):
            sender.send(topic, [b'{"id": 1}', b"bad"])
        assert values(broker, topic) == []
        sender.send(topic, [b'{"id": 1}'])
        assert values(broker, topic) == [b'{"id": 1}']


# -- audit --------------------------------------------------------------------------------------


def test_audit_counts_add_up_to_what_was_sent():
    settings = {"plugins": "audit", "plugin.audit.period.ms": "20"}
    with Broker(settings) as broker, Sender(broker.bootstrap_servers) as sender:
        topics = [
            broker.create_topic(name, configs={"produce.interceptors": "audit"})
            for name in ("one", "two")
        ]
        for minute in (5, 6):
            for topic in topics:
                rows = [
                    Record(b"12345", b"k", timestamp=minute * 60_000 + i)
                    for i in range(10 * minute)
                ]
                sender.send(topic, rows, codec="gzip")

        def counts():
            found = {}
            try:
                records = broker.records("audit")
            except KafkaError:  # the topic is being created
                return found
            for record in records:
                row = json.loads(record.value)
                key = row["topic"], row["from_ms"] // 60_000
                before = found.get(key, (0, 0))
                found[key] = before[0] + row["records"], before[1] + row["bytes"]
            return found

        expected = {
            (topic, minute): (10 * minute, 60 * minute) for topic in topics for minute in (5, 6)
        }
        soon(lambda: counts() == expected)


# -- delayed delivery -----------------------------------------------------------------------------


def delayed(value, **header):
    name, ms = next(iter(header.items()))
    return Record(value, b"k", headers=[(name.replace("_", "-"), str(ms).encode()), ("h", b"1")])


def test_a_delayed_record_is_appended_when_it_is_due_and_looks_as_it_was_sent():
    with Broker({"plugins": "delay"}) as broker, Sender(broker.bootstrap_servers) as sender:
        topic = broker.create_topic("t", configs={"produce.interceptors": "delay"})
        now_ms = broker.node.system.wall_ms()
        rows = [
            b"at once",
            delayed(b"in an hour", deliver_after=3_600_000),
            delayed(b"past", deliver_at=1),
            delayed(b"in half an hour", deliver_at=now_ms + 1_800_000),
        ]
        assert sender.send(topic, rows) == 0
        assert values(broker, topic) == [b"at once", b"past"]
        broker.clock.advance(minutes=31)
        soon(lambda: len(values(broker, topic)) == 3)
        broker.clock.advance(minutes=31)
        soon(lambda: len(values(broker, topic)) == 4)
        found = broker.records(topic)
        assert [row.value for row in found[2:]] == [b"in half an hour", b"in an hour"]
        assert [row.offset for row in found] == [0, 2, 4, 5]
        assert [(row.key, tuple(row.headers)) for row in found[2:]] == [(b"k", (("h", b"1"),))] * 2
        soon(lambda: broker.node.loaded.logs.get("__delayed", 0).handle.start_offset >= 2)


def test_delayed_records_and_ones_without_a_number_of_ms(produce, broker):
    broker.node.plugins.registry  # noqa: B018 - a built-in is made when a topic names it
    topic = broker.create_topic("t", configs={"produce.interceptors": "delay"})
    for text in (b"soon", b"-1", b"", b"9" * 16):
        with pytest.raises(InvalidRecord, match="deliver-after"):
            produce(topic, [Record(b"x", headers=[("deliver-after", text)])])
    assert values(broker, topic) == []


def test_more_than_may_wait_is_refused():
    settings = {"plugins": "delay", "plugin.delay.pending.max": "3"}
    with Broker(settings) as broker, Sender(broker.bootstrap_servers) as sender:
        topic = broker.create_topic("t", configs={"produce.interceptors": "delay"})
        sender.send(topic, [delayed(b"x", deliver_after=60_000)] * 3)
        with pytest.raises(InvalidRecord, match="3 delayed records are waiting"):
            sender.send(topic, [delayed(b"x", deliver_after=60_000)])


@pytest.mark.parametrize("plugins", ["delay", ""])
def test_delayed_records_survive_a_restart_and_are_delivered_once(tmp_path, plugins):
    settings = {"plugins": plugins, "plugin.delay.after.ms": "600000"}
    settings["log.dirs"] = str(tmp_path / "data")
    with Broker(settings) as broker:
        topic = broker.create_topic("t", configs={"produce.interceptors": "delay"})
        with Sender(broker.bootstrap_servers) as sender:
            sender.send(topic, [b"%d" % i for i in range(50)])
        assert values(broker, topic) == []
        broker.restart()
        assert values(broker, topic) == []
        broker.clock.advance(minutes=11)
        soon(lambda: len(values(broker, topic)) == 50)
        broker.restart()
        broker.clock.advance(minutes=11)
        time.sleep(0.1)
        assert sorted(values(broker, topic)) == sorted(b"%d" % i for i in range(50))


def test_delayed_records_survive_kill_9(tmp_path):
    settings = {"plugins": "delay"}
    first = BrokerProcess(tmp_path / "data", free_port(), settings)
    sent = set()
    try:
        with Sender(first.address) as sender:
            from barnabas.client.admin import NewTopic, create_topics

            asked = NewTopic("t", 1, 1, {"produce.interceptors": "delay"})
            create_topics(sender._cluster, [asked])
            for i in range(40):
                value = b"%d" % i
                sender.send("t", [delayed(value, deliver_after=1500 if i % 2 else 1)])
                sent.add(value)
    finally:
        first.kill()
    second = BrokerProcess(tmp_path / "data", free_port(), settings)
    try:
        assert any("plugin delay" in line and "__delayed" not in line for line in second.lines)
        consumer = Consumer({"bootstrap.servers": second.address, "group.id": "g"})
        consumer.assign([TopicPartition("t", 0, 0)])
        found = []
        end = time.monotonic() + 20
        while set(found) != sent and time.monotonic() < end:
            row = consumer.poll(0.1)
            if row is not None and row.error() is None:
                found.append(row.value())
        consumer.close()
        assert set(found) == sent
    finally:
        second.stop()
