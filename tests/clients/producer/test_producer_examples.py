"""The examples of the old design document for producers: page views of a member in one partition,
batches by time or by size, a callback handler that adds tracing, a custom event handler."""

import threading
import time

import pytest
from waiting import soon

from barnabas import hookimpl
from barnabas.clients import KeyedMessage, Producer, ProducerData, QueueFull


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("generation", ["0.7", "0.8"])
def test_the_page_views_of_a_member_land_in_one_partition(session_broker, how, generation):
    topic = session_broker.create_topic(f"page-views-{how}-{generation}", 5)
    settings = {
        "metadata.broker.list": session_broker.bootstrap_servers,
        "serializer.class": "kafka.serializer.StringEncoder",
        "partitioner.class": "kafka.producer.DefaultPartitioner",
        "producer.type": how,
    }
    with Producer(settings) as producer:
        for page in range(10):
            for member in range(40):
                view = f"member-{member} saw page {page}"
                if generation == "0.7":
                    producer.send(ProducerData(topic, f"member-{member}", [view]))
                else:
                    producer.send(KeyedMessage(topic, view, key=f"member-{member}"))
    rows = session_broker.records(topic)
    assert len(rows) == 400
    places = {}
    for row in rows:
        places.setdefault(row.value.split()[0], []).append(row)
    assert len(places) == 40
    for member, views in places.items():
        assert len({row.partition for row in views}) == 1, member
        assert [int(row.value.split()[-1]) for row in views] == list(range(10))  # and in order
    assert len({row.partition for row in rows}) == 5
    keys = {row.key for row in rows}
    assert (keys == {None}) == (generation == "0.7")  # 0.7 stored no keys


class Batches:
    """An event handler that records its batches and their times."""

    def __init__(self):
        self.seen = []

    @hookimpl
    def handle_events(self, events, sender):
        self.seen.append((time.monotonic(), len(events)))
        sender.send(events)


def asynchronous(broker, **settings):
    return Producer(
        {
            "metadata.broker.list": broker.bootstrap_servers,
            "producer.type": "async",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def test_batches_go_by_size_when_that_is_first(session_broker, topic):
    handler = Batches()
    with asynchronous(
        session_broker, batch_size=10, queue_time=600_000, event_handler=handler
    ) as producer:
        producer.send(ProducerData(topic, [b"%d" % i for i in range(35)]))
        soon(lambda: len(handler.seen) == 3)
        assert [count for _, count in handler.seen] == [10, 10, 10]
        session_broker.assert_records(topic, [b"%d" % i for i in range(30)])
        assert producer.metrics["queued"] == 5  # neither limit is reached for these
    assert [count for _, count in handler.seen] == [10, 10, 10, 5]


def test_a_batch_may_be_larger_than_the_queue(session_broker, topic):
    handler = Batches()
    with asynchronous(
        session_broker, batch_size=50, queue_size=7, queue_time=600_000, event_handler=handler
    ) as producer:
        producer.send(ProducerData(topic, [b"%d" % i for i in range(100)]))
        soon(lambda: len(handler.seen) == 2)
    assert [count for _, count in handler.seen] == [50, 50]
    session_broker.assert_records(topic, [b"%d" % i for i in range(100)])


def test_batches_go_by_time_when_that_is_first(session_broker, topic):
    handler = Batches()
    with asynchronous(
        session_broker, batch_size=1_000_000, queue_time=400, queue_size=2_000_000,
        event_handler=handler,
    ) as producer:  # fmt: skip
        began = time.monotonic()
        producer.send(ProducerData(topic, [b"%d" % i for i in range(5)]))
        soon(lambda: handler.seen)
        producer.send(ProducerData(topic, b"next"))
        soon(lambda: len(handler.seen) == 2)
    (first, count), (second, next_count) = handler.seen
    assert (count, next_count) == (5, 1)
    # Not before the limit; how much later depends on the machine.
    assert first - began > 0.3 and second - first > 0.39
    session_broker.assert_records(topic, [*(b"%d" % i for i in range(5)), b"next"])


class Tracing:
    """A callback handler that follows events from `send` to the broker."""

    def __init__(self):
        self.said = []
        self.lock = threading.Lock()

    def say(self, *words):
        with self.lock:
            self.said.append(words)

    @hookimpl
    def producer_started(self, settings):
        self.say("init", settings["producer.type"])

    @hookimpl
    def before_enqueue(self, events):
        self.say("before enqueue", len(events))
        trace = (("trace-id", b"t-%d" % len(self.said)),)
        return [event._replace(headers=event.headers + trace) for event in events]

    @hookimpl
    def after_enqueue(self, events, added):
        self.say("after enqueue", len(events), added)

    @hookimpl
    def after_dequeuing(self, events):
        self.say("after dequeuing", len(events))
        return events

    @hookimpl
    def before_sending(self, events):
        self.say("before sending", len(events))
        return events

    @hookimpl
    def last_batch_before_close(self):
        self.say("last batch")
        return [KeyedMessage(self.topic, b"good bye")]

    @hookimpl
    def producer_closed(self):
        self.say("close")


def test_a_callback_handler_adds_tracing(session_broker, topic):
    tracing = Tracing()
    tracing.topic = topic
    producer = asynchronous(
        session_broker, batch_size=2, queue_time=600_000, callback_handler=tracing
    )
    producer.send(ProducerData(topic, b"a"))
    producer.send(ProducerData(topic, b"b"))
    soon(lambda: ("before sending", 2) in tracing.said)
    producer.close()
    rows = session_broker.records(topic)
    assert [row.value for row in rows] == [b"a", b"b", b"good bye"]
    assert all(row.headers[0][0] == "trace-id" for row in rows[:2])
    assert rows[0].headers != rows[1].headers
    order = [words[0] for words in tracing.said]
    assert order[0] == "init" and order[-1] == "close"
    expected = ["before enqueue", "after enqueue"] * 2
    assert [word for word in order if "enqueue" in word] == expected
    for first, then in (
        ("before enqueue", "after dequeuing"),
        ("after dequeuing", "before sending"),
        ("before sending", "last batch"),
    ):
        assert order.index(first) < order.index(then)


def test_a_callback_handler_leaves_out_keeps_back_and_adds(session_broker, topic):
    class Chooses:
        def __init__(self):
            self.kept = []

        @hookimpl
        def before_enqueue(self, events):
            return [event for event in events if event.message != b"secret"]

        @hookimpl
        def after_dequeuing(self, events):
            self.kept += [event for event in events if event.message == b"later"]
            return [event for event in events if event.message != b"later"]

        @hookimpl
        def before_sending(self, events):
            return [*events, KeyedMessage(topic, b"end of batch")]

        @hookimpl
        def last_batch_before_close(self):
            return self.kept

    with asynchronous(
        session_broker, batch_size=3, queue_time=600_000, callback_handler=Chooses()
    ) as producer:
        producer.send([ProducerData(topic, word) for word in (b"a", b"later", b"secret", b"b")])
        producer.send(ProducerData(topic, b"c"))
        soon(lambda: producer.metrics["acknowledged"] == 4)
    session_broker.assert_records(
        topic, [b"a", b"b", b"c", b"end of batch", b"later", b"end of batch"]
    )


def test_a_callback_handler_that_raises_costs_no_event(session_broker, topic, caplog):
    class Broken:
        @hookimpl
        def after_dequeuing(self, events):
            raise RuntimeError("broken")

        @hookimpl
        def before_sending(self, events):
            return ["rubbish"]

        @hookimpl
        def last_batch_before_close(self):
            raise RuntimeError("broken too")

        @hookimpl
        def producer_closed(self):
            raise RuntimeError("to the end")

    with asynchronous(session_broker, callback_handler=Broken()) as producer:
        producer.send(ProducerData(topic, [b"a", b"b"]))
    session_broker.assert_records(topic, [b"a", b"b"])
    assert "the callback handler failed in after_dequeuing" in caplog.text


def test_a_full_queue_is_reported_to_the_callback_and_to_the_sender(session_broker, topic):
    class Holds:
        def __init__(self):
            self.go = threading.Event()
            self.told = []

        @hookimpl
        def handle_events(self, events, sender):
            assert self.go.wait(30)
            sender.send(events)

        @hookimpl
        def after_enqueue(self, events, added):
            self.told.append((len(events), added))

    holds = Holds()
    producer = asynchronous(
        session_broker,
        batch_size=1,
        queue_size=2,
        **{"queue_enqueueTimeout_ms": 0},
        event_handler=holds,
        callback_handler=holds,
    )
    producer.send(ProducerData(topic, b"with the handler"))
    soon(lambda: producer.metrics["queued"] == 0)
    producer.send(ProducerData(topic, [b"1", b"2"]))
    with pytest.raises(QueueFull, match="2 events were not queued"):
        producer.send(ProducerData(topic, [b"3", b"4"]))
    assert holds.told[-1] == (2, False) and producer.metrics["dropped"] == 2
    holds.go.set()
    producer.close()
    session_broker.assert_records(topic, [b"with the handler", b"1", b"2"])


def test_a_full_queue_waits_for_capacity_by_default(session_broker, topic):
    with asynchronous(session_broker, batch_size=5, queue_size=5, queue_time=1) as producer:
        for i in range(500):
            producer.send(ProducerData(topic, b"%d" % i))
    session_broker.assert_records(topic, [b"%d" % i for i in range(500)])


def test_an_event_handler_sends_elsewhere_too(session_broker, topic):
    copies = session_broker.create_topic(f"{topic}-copies", 1)

    class Copies:
        @hookimpl
        def handle_events(self, events, sender):
            sender.send([event._replace(topic=copies) for event in events])
            sender.send(events)

    for how in ("sync", "async"):
        with Producer(
            {
                "metadata.broker.list": session_broker.bootstrap_servers,
                "producer.type": how,
                "event.handler": Copies(),
            }
        ) as producer:
            producer.send(ProducerData(topic, [b"1", b"2"]))
    for name in (topic, copies):
        session_broker.assert_records(name, [b"1", b"2", b"1", b"2"])
