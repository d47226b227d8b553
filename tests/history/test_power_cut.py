"""Workload H, while the power of the broker is cut.

The data is on an ext4 file system of its own (tests/cluster/disks.py). The broker is stopped
(SIGSTOP), so that it cannot flush; then the file system loses what was not flushed; then the broker
is killed. After the next start the checker compares what was acknowledged with what is read.
"""

import random
import sqlite3
import time
from contextlib import closing

import pytest
from cluster.disks import Disk
from cluster.disks import missing as no_disk
from confluent_kafka import Consumer, TopicPartition
from durability.broker_process import BrokerProcess, free_port
from history.model import Outcome, Send, now
from history.test_workload_h import (
    ALL,
    KINDS,
    done,
    seed,
    verdict_of,
    wait_until_all_go_on,
)
from history.workload import BROKER_SETTINGS, Workload, create_topics, name_of
from long_form import pick
from waiting import pause, soon

__all__ = ["seed"]  # a fixture
pytestmark = [
    pytest.mark.takes(seconds=30),
    pytest.mark.skipif(no_disk() is not None, reason=no_disk() or ""),
]

CUTS = pick(short=1, long=20)
MEGABYTES = 512
MORE_S = 3.0
ACKNOWLEDGED_MIN = 100


@pytest.fixture
def disk(tmp_path):
    made = Disk(tmp_path / "data", MEGABYTES)
    yield made
    made.unmount()


def cut(broker: BrokerProcess, disk: Disk) -> None:
    """Proves that the power was cut: a file that was written just before it is gone. Beside a cut,
    Linux may say that an fdatasync succeeded whose bytes are lost."""
    pause(broker.process.pid)
    disk.cut_power()
    broker.kill()
    assert broker.process.returncode == -9
    disk.mount_again()


def started(disk: Disk, port: int, durability: str) -> BrokerProcess:
    return BrokerProcess(disk.folder, port, BROKER_SETTINGS | {"log.durability": durability})


def acknowledged(workload: Workload) -> list[Send]:
    return [
        send
        for one in workload.history.operations()
        if one.outcome == Outcome.OK
        for send in one.sends
        if send.offset is not None
    ]


def assert_sound(disk: Disk) -> None:
    """Asks SQLite whether the metadata store is whole."""
    with closing(sqlite3.connect(disk.folder / "metadata" / "metadata.db")) as metadata:
        assert metadata.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("number", range(CUTS))
def test_a_power_cut_loses_nothing_with_fsync(tmp_path, disk, seed, number):
    broker = started(disk, free_port(), "fsync")
    create_topics(broker.address)
    workload = Workload(broker.address, seed)
    try:
        wait_until_all_go_on(workload, 0)
        time.sleep(random.Random(f"{seed}:cut").uniform(0, MORE_S))
        at = now()
        cut(broker, disk)
        assert_sound(disk)
        broker = started(disk, broker.port, "fsync")
        wait_until_all_go_on(workload, at)
        workload.stop()
        verdict = verdict_of(workload, tmp_path)
    finally:
        workload.stopping.set()
        broker.kill()
    assert verdict.valid is True, f"seed {seed}\n{verdict}"
    operations = workload.history.operations()
    for kind in KINDS:
        assert done(operations, kind, 0, at) > 0, f"seed {seed}: no {kind} before the cut"
        assert done(operations, kind, at, now()) > 0, f"seed {seed}: no {kind} after the cut"


def test_a_power_cut_loses_records_with_os(disk, seed):
    """As with Kafka's defaults, what the kernel had not written is gone (docs/operations.md)."""
    broker = started(disk, free_port(), "os")
    create_topics(broker.address)
    disk.flush()
    workload = Workload(broker.address, seed)
    try:
        wait_until_all_go_on(workload, 0)
        soon(lambda: len(acknowledged(workload)) > ACKNOWLEDGED_MIN, "hardly anything was done")
        workload.stop()
        cut(broker, disk)
        assert_sound(disk)
        broker = started(disk, broker.port, "os")
        consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "ends"})
        kept = {
            name_of(topic, at): range(
                *consumer.get_watermark_offsets(TopicPartition(topic, at), 10)
            )
            for topic, at in ALL
        }
        consumer.close()
    finally:
        workload.stopping.set()
        broker.kill()
    sent = acknowledged(workload)
    lost = [send for send in sent if send.offset not in kept[send.partition]]
    print(f"seed {seed}: {len(lost)} of {len(sent)} acknowledged records are lost")
    assert len(sent) > ACKNOWLEDGED_MIN and lost
