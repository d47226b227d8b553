"""The old producer with a broker: which messages arrive, and how errors are reported."""

import threading
import time

import pytest

from barnabas.cext.record.records import Record
from barnabas.clients import (
    FailedToSend,
    InvalidConfig,
    KeyedMessage,
    MessageSizeTooLarge,
    Producer,
    ProducerClosed,
    ProducerData,
)
from barnabas.errors import InvalidRecord


def producer_of(broker, **settings):
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"metadata.broker.list": broker.bootstrap_servers} | given)


def values(broker, topic):
    return [row.value for row in broker.records(topic)]


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("acks", ["0", "1", "-1"])
@pytest.mark.parametrize("codec", ["none", "1", "snappy", "lz4", "zstd"])
def test_what_is_sent_arrives_in_order(session_broker, topic, how, acks, codec):
    with producer_of(
        session_broker, producer_type=how, request_required_acks=acks, compression_codec=codec
    ) as producer:
        producer.send(ProducerData(topic, [b"%d" % i for i in range(1000)]))
        for i in range(1000, 1100):
            producer.send(ProducerData(topic, b"%d" % i))
    session_broker.assert_records(topic, [b"%d" % i for i in range(1100)])
    assert producer.metrics["acknowledged"] == 1100
    with pytest.warns(DeprecationWarning, match="Producer.metrics"):
        assert producer.figures == producer.metrics  # the name in 0.1.0


def test_all_fields_of_a_message(session_broker):
    topic = session_broker.create_topic("fields", 3)
    with producer_of(session_broker, serializer_class="string") as producer:
        producer.send(
            KeyedMessage(topic, "v", "k", headers=(("h", b"1"), ("n", None)), timestamp_ms=12345)
        )
        producer.send(KeyedMessage(topic, None, "gone", partition=2))
        producer.send(KeyedMessage(topic, "elsewhere", "stored", part_key="chooses", partition=0))
    rows = {row.value: row for row in session_broker.records(topic)}
    assert (rows[b"v"].key, rows[b"v"].timestamp) == (b"k", 12345)
    assert tuple(rows[b"v"].headers) == (("h", b"1"), ("n", None))
    assert (rows[None].key, rows[None].partition) == (b"gone", 2)
    assert (rows[b"elsewhere"].key, rows[b"elsewhere"].partition) == (b"stored", 0)
    assert time.time() * 1000 - rows[None].timestamp < 60_000


def test_the_partition_key_chooses_in_the_keys_place(session_broker):
    topic = session_broker.create_topic("part-keys", 7)
    with producer_of(session_broker, serializer_class="string") as producer:
        producer.send([KeyedMessage(topic, "v", f"k{i}", part_key=17) for i in range(20)])
        producer.send(KeyedMessage(topic, "v", key="17"))
    assert {row.partition for row in session_broker.records(topic)[:20]} == {17 % 7}


def test_two_encoders(session_broker, topic):
    with producer_of(
        session_broker, serializer_class="json", key_serializer_class="string"
    ) as producer:
        producer.send(ProducerData(topic, "stored: there is an encoder of keys", {"a": [1, "ü"]}))
    (row,) = session_broker.records(topic)
    assert row.key == b"stored: there is an encoder of keys"
    assert row.value == '{"a":[1,"ü"]}'.encode()


def test_a_static_list_of_0_7_sends_to_partitions_at_random(session_broker):
    topic = session_broker.create_topic("random", 4)
    settings = {
        "broker.list": f"0:{session_broker.bootstrap_servers}",
        "serializer.class": "string",
    }
    with Producer(settings) as producer:
        for _ in range(80):
            producer.send(ProducerData(topic, "one key", ["v"]))
    assert {row.partition for row in session_broker.records(topic)} == {0, 1, 2, 3}


def test_compressed_topics_alone_are_compressed(session_broker):
    from barnabas.client import Cluster
    from barnabas.client.reader import FETCH, Reader
    from barnabas.wire.batches import decode_batches

    names = [session_broker.create_topic(name) for name in ("pressed", "plain")]
    with producer_of(
        session_broker, compression_codec="gzip", compressed_topics="pressed,other"
    ) as producer:
        for name in names:
            producer.send(ProducerData(name, b"v" * 1000))
    codecs = {}
    with Cluster(session_broker.bootstrap_servers) as cluster:
        for name in names:
            body = Reader(cluster, name, {0: 0})._request([0], 100)
            answer = cluster.leader(name, 0).call(FETCH, body, low=4)
            row = answer.responses[0].partitions[0]
            codecs[name] = [batch.codec for batch in decode_batches(row.records, size_max=1 << 20)]
    assert codecs == {"pressed": [1], "plain": [0]}


def test_a_topic_that_is_not_there_is_made(broker):
    with producer_of(broker, producer_type="async") as producer:
        producer.send(ProducerData("new-topic", b"v"))
    broker.assert_records("new-topic", [b"v"])


@pytest.mark.broker({"auto.create.topics.enable": False})
def test_a_topic_that_is_not_there_and_not_made(broker, caplog):
    broker.create_topic("there")
    with producer_of(broker, request_timeout_ms=300) as producer:
        with pytest.raises(FailedToSend, match="UNKNOWN_TOPIC|no topic|not host") as raised:
            producer.send(ProducerData("nowhere", [b"1", b"2"]))
        assert raised.value.count == 2
        producer.send(ProducerData("there", b"goes on"))
    with producer_of(broker, request_timeout_ms=300, producer_type="async") as producer:
        producer.send([ProducerData("nowhere", b"v"), ProducerData("there", b"and on")])
    assert producer.metrics["dropped"] >= 1 and "nowhere" in caplog.text


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize(
    "error", ["NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS"]
)
def test_what_may_go_away_is_tried_again_in_order(broker, how, error):
    topic = broker.create_topic("again")
    with producer_of(
        broker, producer_type=how, retry_backoff_ms=10, batch_num_messages=5
    ) as producer:
        broker.fail("Produce", error, times=3)
        for i in range(100):
            producer.send(ProducerData(topic, b"%d" % i))
    broker.assert_records(topic, [b"%d" % i for i in range(100)])
    assert producer.metrics["retried"] >= 1 and producer.metrics["dropped"] == 0


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_broken_connection_loses_and_doubles_nothing(broker, how, after):
    topic = broker.create_topic("broken", 3)
    with producer_of(
        broker,
        producer_type=how,
        retry_backoff_ms=10,
        batch_num_messages=20,
        message_send_max_retries=20,
    ) as producer:
        for turn in range(4):
            broker.drop("Produce", after=after, times=2)
            for i in range(100):
                producer.send(KeyedMessage(topic, b"%d-%d" % (turn, i), partition=i % 3))
    found = values(broker, topic)
    assert sorted(found) == sorted(b"%d-%d" % (t, i) for t in range(4) for i in range(100))
    assert producer.metrics["retried"] >= 1


def test_retries_have_an_end(broker, caplog):
    topic = broker.create_topic("end")
    with producer_of(broker, message_send_max_retries=2, retry_backoff_ms=1) as producer:
        fault = broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=None)
        with pytest.raises(FailedToSend, match="1 of 1 messages") as raised:
            producer.send(ProducerData(topic, b"lost"))
        assert fault.fired == 3 and raised.value.count == 1
        fault.clear()
        producer.send(ProducerData(topic, b"kept"))
    broker.assert_records(topic, [b"kept"])
    assert producer.metrics["dropped"] == 1


def test_a_refused_batch_stops_no_later_batch(broker):
    from barnabas import hookimpl
    from barnabas.hooks import Reject

    class NoBad:
        @hookimpl
        def intercept_produce(self, batch):
            if any(record.value.startswith(b"bad") for record in batch.records):
                return Reject("it is bad")
            return None

    broker.node.plugins.registry.register(NoBad(), "no-bad")
    topic = broker.create_topic("judged", configs={"produce.interceptors": "no-bad"})
    with producer_of(broker) as producer:
        with pytest.raises(FailedToSend, match="it is bad") as raised:
            producer.send(ProducerData(topic, b"bad"))
        assert isinstance(raised.value.__cause__, InvalidRecord)
        producer.send(ProducerData(topic, b"good"))
    words = [b"bad" if i % 7 == 0 else b"%d" % i for i in range(60)]
    with producer_of(broker, producer_type="async", batch_num_messages=1) as producer:
        for word in words:
            producer.send(ProducerData(topic, word))
            while producer.metrics["queued"]:
                time.sleep(0.0005)
    found = values(broker, topic)
    assert b"bad" not in found
    assert found[1:] == sorted(set(found[1:]), key=found[1:].index)  # each once, in order
    # A batch is refused as a whole: good records that share a batch with a bad one are refused,
    # too.
    assert producer.metrics["acknowledged"] == len(found) - 1
    assert producer.metrics["acknowledged"] + producer.metrics["dropped"] == len(words)


@pytest.mark.topic(configs={"max.message.bytes": 2000})
def test_a_batch_that_is_too_large_goes_in_parts(session_broker, topic):
    sent = [bytes([65 + i % 26]) * 300 for i in range(50)]
    with producer_of(session_broker) as producer:
        producer.send(ProducerData(topic, sent))
        with pytest.raises(FailedToSend, match="(?i)large"):
            producer.send(ProducerData(topic, b"x" * 3000))
        producer.send(ProducerData(topic, b"last"))
    session_broker.assert_records(topic, [*sent, b"last"])


def test_a_message_beyond_its_own_limit_is_never_sent(session_broker, topic):
    with producer_of(session_broker, max_message_size=100) as producer:
        with pytest.raises(MessageSizeTooLarge, match="101 bytes"):
            producer.send(ProducerData(topic, [b"a", b"x" * 101]))
        producer.send(ProducerData(topic, b"x" * 100))
    session_broker.assert_records(topic, [b"x" * 100])


def test_what_cannot_be_encoded_is_reported_or_left_out_alone(session_broker, topic, caplog):
    with producer_of(session_broker) as producer:
        with pytest.raises(TypeError, match="serializer.class"):
            producer.send(ProducerData(topic, [b"a", "text"]))
    with producer_of(session_broker, producer_type="async") as producer:
        producer.send(ProducerData(topic, [b"a", "text", b"b", 5, b"c"]))
    session_broker.assert_records(topic, [b"a", b"b", b"c"])
    assert producer.metrics["dropped"] == 2 and "1 messages" in caplog.text


@pytest.mark.parametrize("how", ["sync", "async"])
def test_many_threads_send(session_broker, how):
    topic = session_broker.create_topic(f"threads-{how}", 4)
    with producer_of(session_broker, producer_type=how, queue_time=5) as producer:

        def work(name):
            for i in range(100):
                producer.send(KeyedMessage(topic, b"%d-%d" % (name, i), partition=name % 4))

        threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    rows = session_broker.records(topic)
    assert len(rows) == 800
    for name in range(8):
        own = [row.value for row in rows if row.value.startswith(b"%d-" % name)]
        assert own == [b"%d-%d" % (name, i) for i in range(100)]


def test_after_the_close(session_broker, topic):
    for how in ("sync", "async"):
        producer = producer_of(session_broker, producer_type=how)
        producer.close()
        producer.close()
        with pytest.raises(ProducerClosed):
            producer.send(ProducerData(topic, b"v"))


def test_a_broker_that_comes_back(tmp_path):
    from barnabas import Broker

    with Broker({"log.dirs": str(tmp_path)}) as broker:
        topic = broker.create_topic("back")
        with producer_of(broker, producer_type="async", queue_time=1) as producer:
            for i in range(300):
                producer.send(ProducerData(topic, b"%d" % i))
                if i in (100, 200):
                    broker.restart()
        broker.assert_records(topic, [b"%d" % i for i in range(300)])


def test_a_program_that_forgets_to_close(session_broker, topic):
    import subprocess
    import sys

    source = f"""
from barnabas.clients import Producer, ProducerData
producer = Producer({{"metadata.broker.list": "{session_broker.bootstrap_servers}",
                     "producer.type": "async", "queue.time": "600000"}})
producer.send(ProducerData("{topic}", b"not lost"))
"""
    subprocess.run([sys.executable, "-c", source], check=True, timeout=60)
    session_broker.assert_records(topic, [b"not lost"])


def test_no_peer():
    settings = {"metadata.broker.list": "127.0.0.1:1", "request.timeout.ms": 200}
    with Producer(settings) as producer:
        with pytest.raises(FailedToSend, match="cannot connect"):
            producer.send(ProducerData("t", b"v"))
    with Producer(settings | {"producer.type": "async", "queue.time": 1}) as producer:
        producer.send(ProducerData("t", b"v"))
    assert producer.metrics["dropped"] == 1


def test_things_that_are_no_messages(session_broker, topic):
    with producer_of(session_broker) as producer:
        for wrong in (b"bytes", "text", 5, [b"x"], Record(b"v")):
            with pytest.raises(TypeError):
                producer.send(wrong)
        producer.send([])
        producer.send(ProducerData(topic, []))
    session_broker.assert_records(topic, [])


# -- settings -----------------------------------------------------------------------------------

PLACE = {"metadata.broker.list": "127.0.0.1:9092"}


@pytest.mark.parametrize(
    ("names", "attribute", "value"),
    [
        (("queue.time", "queue.buffering.max.ms"), "queue_ms", 7),
        (("queue.size", "queue.buffering.max.messages"), "queue_events_max", 7),
        (("batch.size", "batch.num.messages"), "batch_events", 7),
        (("queue.enqueueTimeout.ms", "queue.enqueue.timeout.ms"), "enqueue_timeout_ms", 7),
        (("num.retries", "message.send.max.retries"), "retries_max", 7),
        (("buffer.size", "send.buffer.bytes"), "send_buffer_bytes", 7),
        (("clientid", "client.id"), "client_id", "7"),
    ],
)
def test_names_of_both_generations(names, attribute, value):
    from barnabas.clients.producer.config import ProducerConfig

    for name in names:
        assert getattr(ProducerConfig(PLACE | {name: str(value)}), attribute) == value
        assert getattr(ProducerConfig(PLACE | {name: value}), attribute) == value
    both = dict.fromkeys(names, "7")
    assert getattr(ProducerConfig(PLACE | both), attribute) == value
    with pytest.raises(InvalidConfig, match="are names of one setting"):
        ProducerConfig(PLACE | both | {names[0]: "8"})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "none is set"),
        (PLACE | {"zk.connect": "127.0.0.1:2181"}, "both are set"),
        ({"broker.list": "0:host:port"}, "broker.list: .* HOST:PORT"),
        ({"broker.list": "h:1", "partitioner.class": "murmur2"}, "no effect with broker.list"),
        (PLACE | {"producer.type": "fast"}, "must be sync or async"),
        (PLACE | {"queue.size": "many"}, "must be a whole number"),
        (PLACE | {"batch.size": 0}, "must be from 1"),
        (PLACE | {"compression.codec": "9"}, "compression.codec: '9'"),
        (PLACE | {"request.required.acks": "2"}, "must be 0, 1, -1 or all"),
    ],
)
def test_settings_that_cannot_be_used(settings, words):
    with pytest.raises(InvalidConfig, match=words):
        Producer(settings)


def test_an_unknown_setting_is_logged(caplog):
    with Producer(PLACE | {"reconnect.interval": "1", "queue.tiem": "5", "plugin.x.y": "z"}):
        pass
    assert "queue.tiem" in caplog.text
    assert "reconnect.interval" not in caplog.text and "plugin.x.y" not in caplog.text
