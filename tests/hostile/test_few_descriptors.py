"""A broker that may open 120 files: clients get errors, others are served, and it starts again."""

import contextlib

import pytest
from compat.support import Wire
from durability.broker_process import BrokerProcess, free_port
from node.test_settings import create, metadata, produce
from waiting import soon

from barnabas import Broker
from barnabas.cext.memory.descriptors import log_files_open

pytestmark = pytest.mark.takes(seconds=5)

FILES_MAX = 120
STORAGE_ERROR = 56
SEGMENT_BYTES, SEGMENTS = 64 << 10, 5
TOPICS, PARTITIONS = 10, 10


def broker_with_few_files(folder):
    limited = ["prlimit", f"--nofile={FILES_MAX}:{FILES_MAX}"]
    return BrokerProcess(folder, free_port(), {"metrics.port": -1}, limited)


def is_served(broker):
    """By a new connection, as an administrator has it."""
    with Wire(broker.address) as wire:
        return produce(wire, "first", b"v").errorCode == 0


def test_more_partitions_than_fit(tmp_path):
    with broker_with_few_files(tmp_path) as broker:
        with Wire(broker.address) as wire:
            create(wire, "first")
            assert produce(wire, "first", b"v").errorCode == 0
            for number in range(TOPICS):
                create(wire, f"many-{number}", partitions=PARTITIONS)
            codes = {
                produce(wire, f"many-{number}", b"v", partition=index).errorCode
                for number in range(TOPICS)
                for index in range(PARTITIONS)
            }
            assert STORAGE_ERROR in codes  # it fired
            assert codes <= {0, STORAGE_ERROR}
        assert is_served(broker)
        broker.stop()
    with broker_with_few_files(tmp_path) as broker:
        assert any("Too many open files" in line for line in broker.lines)
        assert is_served(broker)


def test_strangers_hold_all_connections(tmp_path):
    with broker_with_few_files(tmp_path) as broker, Wire(broker.address) as wire:
        create(wire, "first", {"segment.bytes": SEGMENT_BYTES})
        with contextlib.ExitStack() as strangers:
            with pytest.raises((ConnectionError, TimeoutError)):
                for _ in range(FILES_MAX):
                    stranger = strangers.enter_context(Wire(broker.address))
                    metadata(stranger, "first")
            for _ in range(SEGMENTS):
                assert produce(wire, "first", bytes(SEGMENT_BYTES - 1000)).errorCode == 0
            assert len(list((tmp_path / "first-0").glob("*.log"))) == SEGMENTS
        soon(lambda: is_served_again(broker))


def is_served_again(broker):
    with contextlib.suppress(ConnectionError):
        return is_served(broker)
    return False


def test_each_log_file_is_counted_until_it_is_closed(tmp_path):
    before = log_files_open()
    with Broker({"log.dirs": str(tmp_path)}) as broker, Wire(broker.bootstrap_servers) as wire:
        create(wire, "first", {"segment.bytes": SEGMENT_BYTES})
        for _ in range(SEGMENTS):
            assert produce(wire, "first", bytes(SEGMENT_BYTES - 1000)).errorCode == 0
        assert log_files_open() - before >= SEGMENTS
    assert log_files_open() == before
