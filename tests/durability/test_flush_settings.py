"""flush.messages and flush.ms: records reach the disk without a request for a flush."""

import time

from node.test_settings import broker_with, create, produce, wire_to
from waiting import soon

OS = {"log.durability": "os"}


def flushed(broker, topic="t") -> int:
    return broker.node.loaded.logs.get(topic, 0).handle.flushed_offset


def reaches(broker, offset, topic="t") -> bool:
    soon(lambda: flushed(broker, topic) >= offset, "it is not flushed")
    return flushed(broker, topic) == offset


def stays(broker, offset, for_s=0.3) -> bool:
    time.sleep(for_s)
    return flushed(broker) == offset


def test_flush_messages_of_a_topic(tmp_path):
    with broker_with(tmp_path, OS) as b, wire_to(b) as wire:
        create(wire, "t", {"flush.messages": 5})
        for _ in range(4):
            produce(wire, "t", b"v")
        assert stays(b, 0)
        produce(wire, "t", b"v")
        assert reaches(b, 5)


def test_flush_messages_makes_acks_1_records_durable_under_fsync(tmp_path):
    with broker_with(tmp_path) as b, wire_to(b) as wire:
        create(wire, "t", {"flush.messages": 2})
        produce(wire, "t", b"v", acks=1)
        assert stays(b, 0)
        produce(wire, "t", b"v", acks=1)
        assert reaches(b, 2)


def test_log_flush_interval_messages_of_the_broker(tmp_path):
    with broker_with(tmp_path, OS | {"log.flush.interval.messages": 3}) as b, wire_to(b) as wire:
        create(wire, "t")
        produce(wire, "t", b"1", b"2")
        assert stays(b, 0)
        produce(wire, "t", b"3")
        assert reaches(b, 3)


def test_flush_ms_of_a_topic(tmp_path):
    settings = OS | {"log.flush.scheduler.interval.ms": 20}
    with broker_with(tmp_path, settings) as b, wire_to(b) as wire:
        create(wire, "t", {"flush.ms": 600_000})
        create(wire, "soon", {"flush.ms": 50})
        produce(wire, "t", b"v")
        produce(wire, "soon", b"v")
        assert reaches(b, 1, topic="soon")
        assert flushed(b) == 0


def test_log_flush_interval_ms_of_the_broker(tmp_path):
    settings = {"log.flush.interval.ms": 50, "log.flush.scheduler.interval.ms": 20}
    with broker_with(tmp_path, settings) as b, wire_to(b) as wire:
        create(wire, "t")
        produce(wire, "t", b"v", acks=1)
        assert reaches(b, 1)


def test_log_flush_scheduler_interval_ms(tmp_path):
    settings = OS | {"log.flush.interval.ms": 0, "log.flush.scheduler.interval.ms": 600_000}
    with broker_with(tmp_path, settings) as b, wire_to(b) as wire:
        create(wire, "t")
        produce(wire, "t", b"v")
        b.clock.advance(minutes=9)
        assert flushed(b) == 0, "nobody looks yet"
    settings["log.flush.scheduler.interval.ms"] = 20
    with broker_with(tmp_path, settings) as b, wire_to(b) as wire:
        produce(wire, "t", b"v")
        assert reaches(b, 2)
