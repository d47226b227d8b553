"""Interceptors in a running broker with real clients: what is appended, and what consumers see."""

import gzip
import socket
import threading
import time

import pytest
from compat.support import Wire
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka import KafkaError as ClientError
from installed_plugins import install
from kafka import KafkaConsumer, KafkaProducer
from oracle.old_produce import message, wrapper
from oracle.old_requests import fetch_old, produce_old

from barnabas import Broker
from barnabas.cext.record.records import Record
from barnabas.controller.config_changes import Change
from barnabas.errors import InvalidConfig, InvalidRecord
from barnabas.hooks import hookimpl
from barnabas.hooks.views import Reject, Replace
from barnabas.testing.plugins import Sender
from barnabas.wire import request
from barnabas.wire.batches import decode_batches, encode_batch
from barnabas.wire.headers import encode_request

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def _after(record):
    word = record.value or b""
    if word.startswith(b"refuse"):
        raise Refused
    if word == b"raise":
        raise ValueError("broken on purpose")
    if word == b"hang":
        time.sleep(30)
    if word == b"rubbish":
        return 5
    if word.startswith(b"drop"):
        return None
    if word.startswith(b"upper"):
        return Record(word.upper(), record.key, timestamp=record.timestamp, headers=record.headers)
    return record


class Refused(Exception):
    pass


class Judge:
    """The value decides the result: refuse, drop, upper, raise, hang, rubbish."""

    def __init__(self):
        self.seen = []

    @hookimpl
    def intercept_produce(self, batch):
        self.seen.append((batch.topic, batch.partition, batch.count))
        try:
            found = [_after(record) for record in batch.records]
        except Refused:
            return Reject("this batch is refused, ünd why")
        return None if found == batch.records else Replace(found)


class Mask:
    @hookimpl
    def intercept_fetch(self, batch):
        if any(record.value == b"raise" for record in batch.records):
            raise ValueError("broken on purpose")
        return Replace(
            [
                None
                if record.value.startswith(b"secret")
                else Record(
                    record.value.replace(b"1234", b"****"),
                    record.key,
                    timestamp=record.timestamp,
                    headers=record.headers,
                )
                for record in batch.records
            ]
        )


@pytest.fixture
def broker():
    with Broker() as running:
        running.judge = Judge()
        running.node.plugins.registry.register(running.judge, "judge")
        running.node.plugins.registry.register(Mask(), "mask")
        yield running


@pytest.fixture
def judged(broker):
    return broker.create_topic("judged", configs={"produce.interceptors": "judge"})


def values(broker, topic):
    return [record.value for record in broker.records(topic)]


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_kept_changed_and_left_out_whatever_the_codec(broker, judged, produce, codec):
    assert produce(judged, [b"a", b"upper b", b"drop c", b"d"], codec=codec) == 0
    assert produce(judged, [b"e"], codec=codec) == 4
    found = broker.records(judged)
    assert [(row.offset, row.value) for row in found] == [
        (0, b"a"), (1, b"UPPER B"), (3, b"d"), (4, b"e"),
    ]  # fmt: skip
    assert broker.judge.seen == [(judged, 0, 4), (judged, 0, 1)]


def test_the_topics_codec_holds_for_what_a_plugin_made(broker, produce):
    settings = {"produce.interceptors": "judge", "compression.type": "zstd"}
    topic = broker.create_topic("recoded", configs=settings)
    produce(topic, [b"upper " + b"x" * 500, b"b"], codec="gzip")
    produce(topic, [b"plain " + b"x" * 500])
    assert values(broker, topic) == [b"UPPER " + b"X" * 500, b"b", b"plain " + b"x" * 500]
    size = (broker.directory / f"{topic}-0" / f"{0:020}.log").stat().st_size
    assert size < 400


def test_a_refusal_reaches_the_clients_in_words(broker, judged, produce):
    with pytest.raises(InvalidRecord, match="this batch is refused, ünd why"):
        produce(judged, [b"a", b"refuse b"])
    told = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(judged, b"refuse", on_delivery=lambda error, _: told.append(error))
    producer.flush(20)
    assert told[0].code() == ClientError.INVALID_RECORD
    other = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    with pytest.raises(Exception, match="(?i)record"):
        other.send(judged, b"refuse").get(20)
    other.close()
    assert values(broker, judged) == []


@pytest.mark.parametrize("idempotent", [True, False])
def test_an_idempotent_producer_goes_on_after_records_were_left_out(broker, judged, idempotent):
    told = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": idempotent,
            "linger.ms": 0,
        }
    )
    for word in (b"a", b"drop b", b"upper c", b"drop d", b"e"):
        producer.produce(judged, word, on_delivery=lambda error, row: told.append(row.offset()))
        assert producer.flush(20) == 0
    assert told == [0, 1, 2, 3, 4]
    assert [(row.offset, row.value) for row in broker.records(judged)] == [
        (0, b"a"), (2, b"UPPER C"), (4, b"e"),
    ]  # fmt: skip


@pytest.mark.parametrize("client", ["confluent", "kafka-python"])
def test_consumers_pass_over_places_that_are_empty(broker, judged, produce, client):
    for words in ([b"drop"], [b"a", b"drop"], [b"drop", b"drop"], [b"b"]):
        produce(judged, words)
    assert consumed(broker, judged, 2, client) == [(1, b"a"), (5, b"b")]


def consumed(broker, topic, count, client="confluent", group="g"):
    if client == "kafka-python":
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap_servers,
            auto_offset_reset="earliest",
            consumer_timeout_ms=8000,
            group_id=None,
        )
        found = []
        for row in consumer:
            found.append((row.offset, row.value))
            if len(found) == count:
                break
        consumer.close()
        return found
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    end = time.monotonic() + 10
    while len(found) < count and time.monotonic() < end:
        row = consumer.poll(0.2)
        if row is not None:
            if row.error():
                raise KafkaException(row.error())
            found.append((row.offset(), row.value()))
    consumer.close()
    return found


@pytest.mark.parametrize("client", ["confluent", "kafka-python"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_fetch_interceptor_hides_and_masks_and_the_log_stays(broker, produce, client, codec):
    topic = broker.create_topic("masked", configs={"fetch.interceptors": "mask"})
    words = [b"card 1234", b"secret", b"plain", b"secret too"]
    for word in words:
        produce(topic, [word, b"with 1234"], codec=codec)
    expected = [
        (0, b"card ****"), (1, b"with ****"), (3, b"with ****"), (4, b"plain"),
        (5, b"with ****"), (7, b"with ****"),
    ]  # fmt: skip
    assert consumed(broker, topic, 6, client) == expected
    assert values(broker, topic) == [x for word in words for x in (word, b"with 1234")]


def test_a_fetch_waits_for_records_that_come_later_and_sees_them_masked(broker, produce):
    topic = broker.create_topic("later", configs={"fetch.interceptors": "mask"})
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(0.3) is None
    produce(topic, [b"card 1234"])
    row = consumer.poll(10)
    assert row.value() == b"card ****"
    consumer.close()


def test_a_fetch_interceptor_that_fails_closed_shows_nothing_and_open_shows_all(broker, produce):
    topic = broker.create_topic("broken", configs={"fetch.interceptors": "mask"})
    produce(topic, [b"raise"])
    plugin = broker.node.plugins.registry.plugin("mask")
    plugin.common["failures.max"] = 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    row = consumer.poll(3)
    assert row is None or row.error() is not None
    plugin.common["on.failure"] = "open"
    end = time.monotonic() + 10
    while time.monotonic() < end:
        row = consumer.poll(0.2)
        if row is not None and row.error() is None:
            break
    assert row.value() == b"raise"
    consumer.close()


def test_interceptors_come_and_go_with_the_topics_setting(broker, produce, topic):
    def alter(value):
        broker.node.serving.administration.configs.change_topic(
            topic, [Change("produce.interceptors", 0, value)]
        )

    produce(topic, [b"upper a"])
    alter("judge")
    produce(topic, [b"upper b"])
    alter("")
    produce(topic, [b"upper c"])
    assert values(broker, topic) == [b"upper a", b"UPPER B", b"upper c"]
    assert len(broker.judge.seen) == 1


def test_a_topic_without_interceptors_makes_no_job(broker, judged, produce, topic):
    produce(topic, [b"a"])
    done = broker.node.bound.native.produce.decodes.counters()["done"]
    produce(topic, [b"b"] * 10)
    assert broker.node.bound.native.produce.decodes.counters()["done"] == done
    produce(judged, [b"b"])
    assert broker.node.bound.native.produce.decodes.counters()["done"] == done + 1


class SlowOnce:
    """The first call takes longer than the budget of the test; the others do not."""

    def __init__(self):
        self.calls = 0

    @hookimpl
    def intercept_produce(self, batch):
        self.calls += 1
        if self.calls == 1:
            time.sleep(0.5)


def test_a_batch_that_was_not_judged_in_time_is_sent_again(broker, produce):
    """F37: a call over its budget was a final INVALID_RECORD, and the producer lost the batch."""
    slow = SlowOnce()
    broker.node.plugins.registry.register(slow, "slow-once").common["budget.ms"] = 200
    topic = broker.create_topic("late", configs={"produce.interceptors": "slow-once"})
    produce(topic, [b"kept"])
    assert slow.calls >= 2 and values(broker, topic) == [b"kept"]


def test_a_client_without_retries_sees_request_timed_out(broker):
    """F37: confluent-kafka without retries reports a retriable code."""
    slow = SlowOnce()
    broker.node.plugins.registry.register(slow, "slow-once").common["budget.ms"] = 50
    topic = broker.create_topic("late", configs={"produce.interceptors": "slow-once"})
    settings = {"bootstrap.servers": broker.bootstrap_servers, "retries": 0}
    producer = Producer(settings)
    errors = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert [error.code() for error in errors] == [ClientError.REQUEST_TIMED_OUT]


@pytest.mark.parametrize("word", [b"raise", b"rubbish"])
def test_a_broken_interceptor_leaves_the_broker_serving_and_the_data_whole(
    broker, judged, produce, topic, word
):
    plugin = broker.node.plugins.registry.plugin("judge")
    plugin.common |= {"budget.ms": 50}
    produce(judged, [b"before"])
    with pytest.raises(InvalidRecord, match="judge failed for the batch"):
        produce(judged, [b"fine", word])
    produce(topic, [b"other topics go on"], codec="gzip")
    produce(judged, [b"after"])
    assert values(broker, judged) == [b"before", b"after"]
    plugin.common["on.failure"] = "open"
    produce(judged, [word])
    assert values(broker, judged) == [b"before", b"after", word]
    assert plugin.failures["intercept_produce"] == 2


def test_an_interceptor_in_a_process_of_its_own_that_exits(tmp_path, monkeypatch, request):
    source = """
        import os
        from barnabas import hookimpl

        class Exits:
            @hookimpl
            def intercept_produce(self, batch):
                if batch.records[0].value == b"exit":
                    os._exit(1)
    """
    install(tmp_path / "site", monkeypatch, "test-exits", source, exits="Exits")
    settings = {"plugins": "exits", "plugin.exits.isolation": "process"}
    with Broker(settings | {"plugin.exits.budget.ms": "10000"}) as broker:
        topic = broker.create_topic("t", configs={"produce.interceptors": "exits"})
        with Sender(broker.bootstrap_servers) as sender:
            sender.send(topic, [b"before"])
            with pytest.raises(InvalidRecord):
                sender.send(topic, [b"exit"])
            sender.send(topic, [b"after"])
        assert values(broker, topic) == [b"before", b"after"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"produce.interceptors": "nobody"}, "the plugin 'nobody' does not run"),
        ({"fetch.interceptors": "judge"}, "judge does not implement intercept_fetch"),
        ({"retention.policy": "mask"}, "mask does not implement deletable_segments"),
    ],
)
def test_a_topic_that_names_what_does_not_run_is_refused(broker, settings, words):
    with pytest.raises(InvalidConfig, match=words):
        broker.create_topic("refused", configs=settings)


def test_a_topic_whose_interceptor_is_gone_takes_nothing_and_shows_nothing(tmp_path, monkeypatch):
    source = """
        from barnabas import hookimpl

        class Both:
            @hookimpl
            def intercept_produce(self, batch):
                pass

            @hookimpl
            def intercept_fetch(self, batch):
                pass
    """
    install(tmp_path / "site", monkeypatch, "test-both", source, both="Both")
    data = {"log.dirs": str(tmp_path / "data")}
    names = {"produce.interceptors": "both", "fetch.interceptors": "both"}
    with Broker(data | {"plugins": "both"}) as broker, Sender(broker.bootstrap_servers) as sender:
        topic = broker.create_topic("t", configs=names)
        sender.send(topic, [b"a"])
        assert consumed(broker, topic, 1) == [(0, b"a")]
    with Broker(data) as broker, Sender(broker.bootstrap_servers) as sender:
        with pytest.raises(InvalidRecord, match="both does not run on this broker"):
            sender.send(topic, [b"b"])
        assert values(broker, topic) == [b"a"]
    with Broker(data | {"plugins": "both"}) as broker, Sender(broker.bootstrap_servers) as sender:
        sender.send(topic, [b"b"])
        assert consumed(broker, topic, 2) == [(0, b"a"), (1, b"b")]


def test_a_refusal_of_a_large_batch_and_long_words_is_cut(broker, produce):
    class Long:
        @hookimpl
        def intercept_produce(self, batch):
            return Reject("ü" * 5000)

    broker.node.plugins.registry.register(Long(), "long")
    topic = broker.create_topic("long", configs={"produce.interceptors": "long"})
    with pytest.raises(InvalidRecord) as caught:
        produce(topic, [gzip.compress(b"x") * 1000], codec="lz4")
    assert "ü" * 1000 in str(caught.value) and "ü" * 1001 not in str(caught.value)


# -- transactions, and clients that go ------------------------------------------------------------


def test_transactions_through_interceptors_of_both_kinds(broker):
    names = {"produce.interceptors": "judge", "fetch.interceptors": "mask"}
    topic = broker.create_topic("txn", configs=names)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x"})
    producer.init_transactions(20)
    for commits, words in ((True, [b"a 1234", b"drop"]), (False, [b"b"]), (True, [b"upper c"])):
        producer.begin_transaction()
        for word in words:
            producer.produce(topic, word)
        producer.flush(20)
        if commits:
            producer.commit_transaction(20)
        else:
            producer.abort_transaction(20)
    assert consumed(broker, topic, 2) == [(0, b"a ****"), (5, b"UPPER C")]


@pytest.mark.parametrize("codec", [0, 1])
def test_old_clients_through_interceptors_of_both_kinds(broker, codec):
    """A message set is a batch when plugins see it; what they make is converted for old fetches."""
    names = {"produce.interceptors": "judge", "fetch.interceptors": "mask"}
    topic = broker.create_topic(f"old-{codec}", configs=names)

    def sent(*words):
        messages = b"".join(message(1, word, None, offset=i) for i, word in enumerate(words))
        return wrapper(1, codec, messages, offset=len(words) - 1) if codec else messages

    with Wire(broker.bootstrap_servers) as wire:
        assert produce_old(wire, topic, 2, sent(b"a 1234", b"drop", b"upper c")).errorCode == 0
        assert produce_old(wire, topic, 2, sent(b"refuse x")).errorCode == InvalidRecord.code
        records = fetch_old(wire, topic, 2).records
    found = [r for b in decode_batches(records, size_max=1 << 20) for r in b.records]
    assert [(r.offset, r.value) for r in found] == [(0, b"a ****"), (2, b"UPPER C")]
    assert consumed(broker, topic, 2) == [(0, b"a ****"), (2, b"UPPER C")]


class Slow:
    """Each hook takes a given time."""

    def __init__(self, event):
        self.begun, self.go_on = threading.Event(), event

    @hookimpl
    def intercept_produce(self, batch):
        self.begun.set()
        self.go_on.wait(20)

    @hookimpl
    def intercept_fetch(self, batch):
        self.begun.set()
        self.go_on.wait(20)
        return Replace(batch.records)


@pytest.mark.parametrize("kind", ["produce", "fetch"])
def test_a_client_that_goes_while_a_plugin_looks_is_forgotten(broker, produce, kind):
    slow = Slow(threading.Event())
    broker.node.plugins.registry.register(slow, "slow").common["budget.ms"] = 15_000
    topic = broker.create_topic("slow")
    produce(topic, [b"x" * 1000])
    settings = {f"{kind}.interceptors": "slow"}
    changes = [Change(name, 0, value) for name, value in settings.items()]
    broker.node.serving.administration.configs.change_topic(topic, changes)
    frames = [asked(broker, topic, kind) for _ in range(20)]
    connections = []
    for frame in frames:
        connection = socket.create_connection(broker_address(broker))
        connection.sendall(frame)
        connections.append(connection)
    assert slow.begun.wait(10)
    for connection in connections:
        connection.close()
    time.sleep(0.2)
    slow.go_on.set()
    queue = (
        broker.node.bound.native.produce.decodes
        if kind == "produce"
        else broker.node.bound.native.fetch.rewrites
    )
    end = time.monotonic() + 20
    while time.monotonic() < end and (queue.counters()["depth"] or queue.counters()["done"] < 2):
        time.sleep(0.01)
    assert queue.counters()["depth"] == 0
    produce(topic, [b"after"])
    assert values(broker, topic)[0] == b"x" * 1000 and values(broker, topic)[-1] == b"after"


def broker_address(broker):
    host, port = broker.bootstrap_servers.split(":")
    return host, int(port)


def asked(broker, topic, kind):
    """The frame of one request, with its size."""
    if kind == "produce":
        message = request(0)
        rows = [message.struct("topicData.partitionData")(index=0, records=encode_batch([b"y"]))]
        data = [message.struct("topicData")(name=topic, partitionData=rows)]
        return encode_request(0, 9, 1, "c", message.cls(acks=1, timeoutMs=20_000, topicData=data))
    message = request(1)
    rows = [
        message.struct("topics.partitions")(
            partition=0, fetchOffset=0, partitionMaxBytes=1 << 20, currentLeaderEpoch=-1
        )
    ]
    topics = [message.struct("topics")(topic=topic, partitions=rows)]
    body = message.cls(
        replicaId=-1, maxWaitMs=500, minBytes=1, maxBytes=1 << 20, sessionEpoch=-1, topics=topics
    )
    return encode_request(1, 11, 1, "c", body)
