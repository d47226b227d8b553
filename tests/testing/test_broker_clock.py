"""A clock that the test moves: retention, idle connections, and timestamps."""

import socket
import time

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from testing.processes import address, answers
from waiting import soon

from barnabas import Broker


def produce(broker, topic, *values):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(20) == 0


def test_retention_deletes_when_its_time_has_come():
    with Broker() as broker:
        broker.create_topic("week")
        broker.create_topic("hour", configs={"retention.ms": 3_600_000})
        for topic in ("week", "hour"):
            produce(broker, topic, b"old")
        broker.clock.advance(minutes=59)
        assert len(broker.records("hour")) == 1
        broker.clock.advance(minutes=6)
        assert broker.records("hour") == []
        assert len(broker.records("week")) == 1
        produce(broker, "hour", b"new")  # by its producer's clock it is already an hour old
        assert [row.offset for row in broker.records("hour")] == [1]
        broker.clock.advance(days=8)
        assert broker.records("week") == []


def test_files_of_deleted_segments_go_after_their_delay():
    with Broker({"log.retention.ms": 60_000, "log.segment.delete.delay.ms": 600_000}) as broker:
        broker.create_topic("t")
        produce(broker, "t", b"v")
        folder = broker.directory / "t-0"
        broker.clock.advance(minutes=6)
        assert list(folder.glob("*.deleted"))
        broker.clock.advance(minutes=12)
        assert not list(folder.glob("*.deleted"))


def test_a_deleted_topics_directory_goes_after_its_delay():
    with Broker({"log.segment.delete.delay.ms": 600_000}) as broker:
        broker.create_topic("t")
        broker.delete_topic("t")
        assert list(broker.directory.glob("t-0.*-delete"))
        broker.clock.advance(minutes=5)
        assert list(broker.directory.glob("t-0.*-delete"))
        broker.clock.advance(minutes=6)
        assert not list(broker.directory.glob("t-0.*-delete"))


def test_a_connection_that_idles_too_long_is_closed():
    with Broker({"connections.max.idle.ms": 600_000}) as broker:
        with socket.create_connection(address(broker), timeout=10) as connection:
            soon(lambda: broker.node.reactor.counters()["connection_count"] == 1)
            broker.clock.advance(minutes=9)
            time.sleep(0.05)
            assert broker.node.reactor.counters()["connection_count"] == 1
            # More than the remaining time: a thread that got the connection late counts from then.
            broker.clock.advance(minutes=11)
            assert connection.recv(1) == b""
        assert answers(address(broker))


def test_a_fetch_that_waits_is_answered_when_its_wait_is_over():
    with Broker() as broker:
        broker.create_topic("t")
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "fetch.wait.max.ms": 250_000,
                "socket.timeout.ms": 290_000,
            }
        )
        consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
        consumer.poll(0)
        counters = broker.node.reactor.counters
        soon(lambda: consumer.poll(0.01) or counters()["parked"] == 1)
        requests = counters()["requests"]
        broker.clock.advance(seconds=251)
        soon(lambda: counters()["requests"] > requests)  # answered, and it fetches again
        consumer.close()


def test_records_without_a_clients_time_bear_the_brokers():
    with Broker({"log.message.timestamp.type": "LogAppendTime"}) as broker:
        broker.create_topic("t")
        produce(broker, "t", b"now")
        broker.clock.advance(days=1)
        produce(broker, "t", b"tomorrow")
        broker.clock.set_wall(ms=-3 * 86_400_000)
        produce(broker, "t", b"before")
        times = [row.timestamp for row in broker.records("t")]
        day_ms = 86_400_000
        assert abs(times[1] - times[0] - day_ms) < 60_000
        assert abs(times[2] - times[0] + 2 * day_ms) < 60_000


def test_time_does_not_go_back_but_the_time_of_day_may():
    with Broker() as broker:
        before_ms = broker.clock.wall_ms()
        with pytest.raises(ValueError, match="cannot go back"):
            broker.clock.advance(seconds=-1)
        broker.clock.set_wall(ms=-60_000)
        assert broker.clock.wall_ms() < before_ms
        broker.clock.advance(days=400)
        produce(broker, broker.create_topic("t"), b"v")
        assert len(broker.records("t")) == 1


def test_a_member_whose_session_is_over_joins_anew():
    with Broker() as broker:
        broker.create_topic("t")
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "session.timeout.ms": 45_000,
                "heartbeat.interval.ms": 200,
            }
        )
        assigned = []
        consumer.subscribe(["t"], on_assign=lambda _, places: assigned.append(places))
        soon(lambda: consumer.poll(0.05) or len(assigned) == 1)
        broker.clock.advance(seconds=40)
        end = time.monotonic() + 1
        while time.monotonic() < end:  # its heartbeats keep its session
            consumer.poll(0.05)
        assert len(assigned) == 1
        broker.clock.advance(seconds=46)
        soon(lambda: consumer.poll(0.05) or len(assigned) == 2)
        consumer.close()
