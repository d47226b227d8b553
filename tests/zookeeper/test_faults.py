"""Sessions expire, or ZooKeeper is paused, killed or missing: the broker continues to serve."""

import os
import signal
import subprocess
import sys
import threading

import pytest
from cluster.disks import disks
from cluster.disks import missing as no_disk
from compat.support import Wire
from confluent_kafka import Producer
from kafka.admin import KafkaAdminClient, NewTopic
from waiting import pause, soon
from zookeeper_server import ZooKeeperServer

from barnabas import Broker
from barnabas.errors import RequestTimedOut
from barnabas.metadata.tree import EventType, SessionState, WatchEvent
from barnabas.node import CannotStart
from barnabas.wire import request

pytestmark = pytest.mark.takes(seconds=25)

CHROOT = "/kafka"
PAUSE_S = 0.02  # of a writer; without it one core writes and reads records for the whole test


class Writer:
    """Produces one record after another, each acknowledged, until it is stopped."""

    def __init__(self, broker, topic):
        self._producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
        self._topic = topic
        self.acknowledged = []
        self.refused = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        number = 0
        while not self._stop.is_set():
            value = b"%d" % number
            number += 1
            self._producer.produce(
                self._topic,
                value,
                on_delivery=lambda error, message, value=value: (
                    self.refused if error else self.acknowledged
                ).append(value),
            )
            self._producer.flush(30)
            self._stop.wait(PAUSE_S)

    def wait_for_more(self, count=20):
        before = len(self.acknowledged)
        soon(lambda: len(self.acknowledged) >= before + count, "nothing more is acknowledged")

    def stop(self):
        self._stop.set()
        self._thread.join()
        return self.acknowledged


@pytest.fixture
def served(own_server, brokers, request):
    session_ms = getattr(request, "param", "6000")
    broker = brokers.start(
        own_server.connect(CHROOT), log_retention_ms="-1", zookeeper_session_timeout_ms=session_ms
    )
    broker.create_topic("t")
    writer = Writer(broker, "t")
    yield broker, writer
    writer.stop()


def all_kept(broker, writer):
    written = writer.stop()
    assert not writer.refused
    # After a new session the controller elects the node again.
    table = broker.node.loaded.table
    soon(lambda: table.partition("t", 0).leader_id == 1, "it does not lead again")
    assert [row.value for row in broker.records("t")] == written


def test_an_expired_session(own_server, served, zk):
    broker, writer = served
    tree = broker.node.opened.tree
    state = broker.node.cluster
    client = zk(own_server)
    for round_number in range(2, 5):
        session_id = tree.session_id
        writer.wait_for_more()
        own_server.expire(session_id)
        assert client.exists(f"{CHROOT}/brokers/ids/1") is None, "the fault did not fire"
        soon(lambda old=session_id: tree.session_id != old)
        owner = soon(lambda: client.exists(f"{CHROOT}/brokers/ids/1")).ephemeralOwner
        assert owner == tree.session_id
        soon(lambda n=round_number: state().controller_epoch == n and state().controller_id == 1)
        assert list(state().brokers) == [1]
        broker.create_topic(f"after-{round_number}")
        writer.wait_for_more()
    # The watches work again: a write of another client is seen.
    client.create(f"{CHROOT}/admin/delete_topics/after-2")
    soon(lambda: "after-2" not in broker.topics)
    all_kept(broker, writer)


def test_metadata_always_names_the_broker(own_server, served):
    """A client that asks while the session is renewed never gets Metadata without brokers, also
    if the old connection still reported the end of the registration."""
    broker, writer = served
    writer.wait_for_more(200)  # until nothing else happens
    seen = []
    broker.node.loaded.replicas.on_applied.append(lambda state: seen.append(list(state.brokers)))
    tree = broker.node.opened.tree
    before = tree.session_id
    gone = WatchEvent(EventType.DELETED, "/brokers/ids/1")
    refresh = broker.node.serving.controller._reader.refresh_brokers

    def late(_event):
        soon(lambda: tree.session_id != before)
        refresh()

    tree._calls.put(tree._call, (late, gone, before))
    own_server.expire(before)
    soon(lambda: tree.session_id != before and tree.state is SessionState.CONNECTED)
    soon(lambda: broker.node.cluster().controller_epoch == 2)
    assert seen and all(row == [1] for row in seen)
    all_kept(broker, writer)


def test_a_paused_server(own_server, served):
    broker, writer = served
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=60_000)
    asked = threading.Thread(target=admin.create_topics, args=([NewTopic("asked", 1, 1)],))
    with own_server.paused():
        asked.start()
        soon(lambda: broker.node.opened.tree.state is SessionState.SUSPENDED, "it was not noticed")
        writer.wait_for_more()
    soon(lambda: broker.node.opened.tree.state is SessionState.CONNECTED)
    asked.join(60)
    soon(lambda: "asked" in broker.topics)
    admin.close()
    broker.create_topic("after")
    all_kept(broker, writer)


@pytest.mark.parametrize("served", ["120000"], indirect=True)
def test_a_killed_server(own_server, served):
    broker, writer = served
    session_id = broker.node.opened.tree.session_id
    own_server.kill()
    soon(lambda: broker.node.opened.tree.state is SessionState.SUSPENDED)
    writer.wait_for_more()
    own_server.start()
    # A starting server may accept a connection and never answer: that takes a third of the session
    # timeout.
    soon(lambda: broker.node.opened.tree.state is SessionState.CONNECTED, patience_s=100)
    assert broker.node.opened.tree.session_id == session_id
    broker.create_topic("after")
    broker.restart()
    assert broker.topics == ["after", "t"]
    all_kept(broker, writer)


def test_a_change_while_there_is_no_server(own_server, brokers):
    """It is answered in time, with a retriable error."""
    broker = brokers.start(
        own_server.connect(CHROOT),
        zookeeper_session_timeout_ms="1000",
        zookeeper_connection_timeout_ms="30000",
        num_io_threads="2",
    )
    own_server.kill()
    soon(lambda: broker.node.opened.tree.state is SessionState.SUSPENDED)
    row = request(19).struct("topics")(name="t", numPartitions=1, replicationFactor=1)
    with Wire(broker.bootstrap_servers) as wire:
        (answered,) = wire.call(19, 5, request(19).cls(topics=[row], timeoutMs=1000)).topics
    assert answered.errorCode == RequestTimedOut.code
    broker.stop()  # which does not wait


def test_a_start_without_zookeeper(tmp_path):
    """zookeeper.connection.timeout.ms: the start fails with one line within that time."""
    settings = {
        "log.dirs": tmp_path / "d",
        "metadata.store": "zookeeper",
        "zookeeper.connect": "127.0.0.1:1",
        "zookeeper.connection.timeout.ms": "300",
    }
    with pytest.raises(CannotStart, match=r"127\.0\.0\.1:1 did not answer within 300 ms"):
        Broker(settings).start()


def test_a_start_while_zookeeper_is_paused(own_server, tmp_path):
    arguments = [
        f"log.dirs={tmp_path / 'd'}",
        "metadata.store=zookeeper",
        f"zookeeper.connect={own_server.address}",
        "zookeeper.connection.timeout.ms=500",
        "listeners=PLAINTEXT://127.0.0.1:0",
        "metrics.port=-1",
    ]
    with own_server.paused():
        done = subprocess.run(
            start_command(arguments), capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert "did not answer within 500 ms (zookeeper.connection.timeout.ms)" in lines[-1]
    assert "Traceback" not in done.stderr


def start_command(settings):
    command = [sys.executable, "-m", "barnabas", "start"]
    return command + [part for text in settings for part in ("--set", text)]


def test_a_killed_broker_starts_again_at_once(own_server, brokers, tmp_path):
    """Its registration survives it by zookeeper.session.timeout.ms, and the broker takes it
    over."""
    settings = brokers.settings(own_server.connect(CHROOT))
    settings |= {"listeners": "PLAINTEXT://127.0.0.1:0", "metrics.port": "-1"}
    settings["zookeeper.session.timeout.ms"] = "120000"
    command = start_command([f"{name}={value}" for name, value in settings.items()])
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if "ready:" in line:
                break
        os.kill(process.pid, signal.SIGKILL)
    assert [len(paths) for paths in own_server.sessions().values()] == [2], "not left behind"
    broker = brokers.start(own_server.connect(CHROOT))
    state = broker.node.cluster()
    assert list(state.brokers) == [1] and state.controller_id == 1
    owners = {owner for owner, paths in own_server.sessions().items() if paths}
    assert owners == {broker.node.opened.tree.session_id}


def test_a_broker_starts_again_at_once_after_a_power_cut(own_server, brokers, tmp_path, zk):
    """The power is cut as soon as the broker is registered. The number of its session is on disk
    by then."""
    if reason := no_disk():
        pytest.skip(reason)
    client, path = zk(own_server), f"{CHROOT}/brokers/ids/1"
    with disks(tmp_path, [1], megabytes=64) as mounted:
        settings = brokers.settings(own_server.connect(CHROOT))
        settings |= {"listeners": "PLAINTEXT://127.0.0.1:0", "metrics.port": "-1"}
        settings["zookeeper.session.timeout.ms"] = "120000"
        command = start_command([f"{name}={value}" for name, value in settings.items()])
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            soon(lambda: client.exists(path))
            pause(process.pid)
            mounted[1].cut_power()
            process.kill()
        mounted[1].mount_again()
        left = client.exists(path).ephemeralOwner
        with Broker(settings) as broker:
            assert client.exists(path).ephemeralOwner == broker.node.opened.tree.session_id != left


def test_a_second_broker_of_the_same_id(own_server, brokers, tmp_path):
    first = brokers.start(own_server.connect(CHROOT))
    second = brokers.settings(own_server.connect(CHROOT)) | {"log.dirs": str(tmp_path / "other")}
    with pytest.raises(CannotStart, match="another node 1 is running in this cluster") as refused:
        Broker(second).start()
    assert first.bootstrap_servers in str(refused.value)
    first.create_topic("still-serves")


@pytest.mark.java
def test_the_registration_goes_when_the_session_ends(tmp_path, brokers, zk):
    """zookeeper.session.timeout.ms"""
    with ZooKeeperServer(tmp_path / "zookeeper", tick_ms=100) as server:
        settings = brokers.settings(server.connect(CHROOT)) | {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "zookeeper.session.timeout.ms": "1000",
            "zookeeper.connection.timeout.ms": "60000",
            "metrics.port": "-1",
        }
        command = start_command([f"{name}={value}" for name, value in settings.items()])
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert any("ready:" in line for line in process.stderr)
            client = zk(server)
            # A pause of more than a second ends the session, and the next one follows.
            soon(lambda: client.get_children(f"{CHROOT}/brokers/ids") == ["1"])
            os.kill(process.pid, signal.SIGKILL)
        soon(lambda: client.get_children(f"{CHROOT}/brokers/ids") == [])
