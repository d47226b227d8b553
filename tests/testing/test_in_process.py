"""A broker inside the test process: it works, leaves nothing behind, and does not change the
process."""

import gc
import os
import signal
import socket
import threading
import time

import pytest
from confluent_kafka import Consumer, Producer
from testing.processes import (
    address,
    answers,
    held,
    left_since,
    run_python,
    scratch_directories,
    threads,
)
from waiting import soon

from barnabas import Broker
from barnabas.config import ConfigError
from barnabas.node import CannotStart
from barnabas.testing.broker import BrokerNotRunning

pytestmark = pytest.mark.alone(
    reason="compares the scratch directories of the whole machine before and after a broker"
)


def produce(broker, topic, *values, partition=0):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(20) == 0


def test_a_broker_on_a_free_port_keeps_its_data_in_memory():
    with Broker() as broker:
        assert answers(address(broker))
        assert str(broker.directory).startswith("/dev/shm/barnabas-")
        broker.create_topic("t", 2)
        produce(broker, "t", b"one", partition=1)
        (record,) = broker.records("t")
        assert (record.value, record.partition, record.offset) == (b"one", 1, 0)
        assert not (broker.directory / "metadata").exists()
        assert broker.topics == ["t"]


def test_nothing_is_left_behind():
    with Broker():  # so that Python has opened what it opens once
        pass
    before = held()
    for _ in range(5):
        with Broker() as broker:
            broker.create_topic("t")
            produce(broker, "t", *[b"v" * 1000] * 100)
            where = address(broker)
            assert threads() - before
            assert scratch_directories() - before == {str(broker.directory)}
        # librdkafka's threads and their pipes end later.
        assert not scratch_directories() - before
        soon(lambda: not left_since(before))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(where, timeout=5)


def test_a_hundred_starts():
    with Broker():
        pass
    before = held()
    ports = set()
    for _ in range(100):
        with Broker() as broker:
            assert answers(address(broker))
            ports.add(broker.bootstrap_servers)
    soon(lambda: not left_since(before))
    assert len(ports) > 1


def test_several_brokers_know_nothing_of_each_other():
    with Broker() as one, Broker() as other, Broker({"num.partitions": 5}) as third:
        assert len({one.bootstrap_servers, other.bootstrap_servers, third.bootstrap_servers}) == 3
        assert len({b.node.cluster_id for b in (one, other, third)}) == 3
        for broker, value in ((one, b"1"), (other, b"2")):
            broker.create_topic("t")
            produce(broker, "t", value)
        one.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=None)
        one.clock.advance(hours=5)
        produce(other, "t", b"not failed")
        third.create_topic("t", -1)
        produce(third, "t", b"3", partition=4)
        assert [row.value for row in one.records("t")] == [b"1"]
        assert [row.value for row in other.records("t")] == [b"2", b"not failed"]
        assert [row.partition for row in third.records("t")] == [4]
        assert one.clock.wall_ms() - other.clock.wall_ms() > 4 * 3_600_000
        other.stop()
        assert answers(address(one)) and answers(address(third))


def test_settings_may_be_python_values(tmp_path):
    with Broker({"auto.create.topics.enable": False, "num.partitions": 3}) as broker:
        config = broker.node.config
        assert config.integer("num.partitions") == 3
        assert not config.boolean("auto.create.topics.enable")
    before = scratch_directories()
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        Broker({"num.partitions": "three"})
    assert not scratch_directories() - before


def test_a_start_that_fails_leaves_nothing():
    with Broker():
        pass
    before = held()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broker = Broker({"listeners": f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"})
        with pytest.raises(CannotStart, match="cannot listen"):
            broker.start()
        with pytest.raises(BrokerNotRunning):
            broker.start()
    soon(lambda: not left_since(before))


def test_a_restart_keeps_data_port_and_clock():
    with Broker() as broker:
        broker.create_topic("t")
        produce(broker, "t", b"before")
        where, directory = address(broker), broker.directory
        broker.clock.advance(days=1)
        broker.restart()
        assert (address(broker), broker.directory) == (where, directory)
        assert broker.clock.wall_ms() - time.time() * 1000 > 86_000_000
        produce(broker, "t", b"after")
        broker.assert_records("t", ["before", "after"])


@pytest.mark.parametrize("durable", [True, False])
def test_a_directory_that_was_given_is_kept(tmp_path, durable):
    for value in (b"one", b"two"):
        with Broker({"log.dirs": tmp_path}, durable=durable) as broker:
            assert broker.directory == tmp_path
            if value == b"one":
                broker.create_topic("t")
            produce(broker, "t", value)
    with Broker({"log.dirs": tmp_path}) as broker:
        broker.assert_records("t", ["one", "two"])
    assert (tmp_path / "metadata" / "metadata.db").exists()


def synced_files(broker):
    """fdatasync calls of a broker while a record is produced with acks=all."""
    broker.create_topic("t")
    broker.node.system.count_calls()
    produce(broker, "t", b"v")
    return broker.node.system.calls("fdatasync")


def test_durable_reaches_the_disk_and_the_default_does_not(tmp_path):
    with Broker(durable=True) as broker:
        assert not str(broker.directory).startswith("/dev/shm/")
        assert (broker.directory / "metadata" / "metadata.db").exists()
        assert synced_files(broker) >= 1
        directory = broker.directory
    assert not directory.exists()
    with Broker() as broker:
        assert synced_files(broker) == 0
    with Broker({"log.dirs": tmp_path}) as broker:
        assert synced_files(broker) >= 1


def test_a_forgotten_broker_is_collected_and_leaves_nothing():
    with Broker():
        pass
    before = held()
    broker = Broker().start()
    broker.fail("Fetch", "UNKNOWN_SERVER_ERROR")
    where = address(broker)
    assert answers(where)
    del broker
    gc.collect()
    soon(lambda: not left_since(before))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(where, timeout=5)


LEFT_RUNNING = """
import sys
from barnabas import Broker
broker = Broker().start()
broker.create_topic("t")
print(broker.directory)
if sys.argv[1] == "raise":
    raise SystemExit(0)
"""


@pytest.mark.parametrize("how", ["end", "raise"])
def test_a_process_that_ends_removes_what_its_broker_kept(how):
    directory = run_python(LEFT_RUNNING, how).strip()
    assert directory.startswith("/dev/shm/barnabas-")
    assert not os.path.exists(directory)


def test_what_a_killed_process_left_goes_with_the_next_start():
    code = LEFT_RUNNING + "\nimport os, signal, sys\nsys.stdout.flush()\nos.kill(os.getpid(), 9)"
    with pytest.raises(AssertionError):
        run_python(code, "kill")
    left = scratch_directories()
    abandoned = [path for path in left if os.path.exists(f"{path}/t-0")]
    assert abandoned
    with Broker() as living:
        for path in (*abandoned, str(living.directory)):
            os.utime(path, (0, 0))  # older than the age at which a directory may be removed
        with Broker():
            assert not any(os.path.exists(path) for path in abandoned)
            assert living.directory.exists()
            living.create_topic("t")


def test_the_process_is_not_changed():
    code = """
import signal, sys, threading, time
signals = {n: signal.getsignal(n) for n in signal.valid_signals()}
interval = sys.getswitchinterval()
from barnabas import Broker
with Broker() as broker:
    assert sys.getswitchinterval() == interval, sys.getswitchinterval()
    assert {n: signal.getsignal(n) for n in signal.valid_signals()} == signals
    for name in ("sqlite3", "pluggy", "kazoo", "numpy", "ssl", "asyncio", "lz4", "zstandard"):
        assert name not in sys.modules, name
print("ok")
"""
    assert run_python(code).strip() == "ok"


def test_a_broker_says_why_it_cannot_be_used():
    broker = Broker()
    with pytest.raises(BrokerNotRunning, match="has not started"):
        broker.bootstrap_servers  # noqa: B018
    broker.start()
    with pytest.raises(BrokerNotRunning, match="starts once"):
        broker.start()
    broker.stop()
    broker.stop()
    with pytest.raises(BrokerNotRunning, match="has stopped"):
        broker.records("t")


def test_stop_from_another_thread_and_during_traffic():
    before = scratch_directories()
    broker = Broker().start()
    broker.create_topic("t")
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "log_level": 0}
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    stopped = threading.Thread(target=broker.stop)
    for number in range(500):
        producer.produce("t", b"v")
        producer.poll(0)
        if number == 250:
            stopped.start()
    stopped.join(20)
    assert not stopped.is_alive()
    producer.purge()
    producer.flush(5)
    consumer.close()
    assert not scratch_directories() - before


def test_signals_are_the_tests_own():
    got = []
    former = signal.signal(signal.SIGTERM, lambda *_: got.append("test"))
    try:
        with Broker():
            os.kill(os.getpid(), signal.SIGTERM)
            soon(lambda: got == ["test"])
    finally:
        signal.signal(signal.SIGTERM, former)
