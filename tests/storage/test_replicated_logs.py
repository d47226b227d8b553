"""A replicated log that lost its end keeps its shorter end: its leader has the rest."""

import struct
from pathlib import Path

import pytest
from oracle.log_builder import batch

from barnabas.cext.memory.epoch import Epochs
from barnabas.cext.memory.sys import SystemCalls
from barnabas.config import BrokerConfig, DynamicConfig, TopicConfig
from barnabas.storage import checkpoints as files
from barnabas.storage.checkpoint_writer import CheckpointWriter
from barnabas.storage.log_dirs import LogDir
from barnabas.storage.log_manager import LogManager, WantedLog

TOPIC_ID = bytes(15) + b"\x07"
REACHED = 40  # by the checkpoint of high watermarks


def opened(folder: Path, is_replicated: bool, has_directory: bool):
    config = DynamicConfig(BrokerConfig({"log.dirs": str(folder)}), 1)
    topic_config = TopicConfig({}, config)
    files.write_offsets(folder / files.HIGH_WATERMARK, {("t", 0): REACHED})
    if has_directory:
        (folder / "t-0").mkdir()
        files.write_topic_id(folder / "t-0", TOPIC_ID)
    directory = LogDir(folder)
    directory.open()
    logs = LogManager([directory], config, SystemCalls(), Epochs())
    try:
        logs.load({("t", 0): WantedLog(TOPIC_ID, topic_config, is_replicated)})
        return logs.get_or_create("t", 0, TOPIC_ID, topic_config, is_replicated).handle.end_offset
    finally:
        logs.close()
        directory.close(clean=True)


@pytest.mark.parametrize("has_directory", [True, False])
@pytest.mark.parametrize(("is_replicated", "end_offset"), [(True, 0), (False, REACHED)])
def test_the_end_of_a_log_that_lost_its_records(tmp_path, is_replicated, end_offset, has_directory):
    """A single replica may not use offsets twice that its clients have seen."""
    assert opened(tmp_path, is_replicated, has_directory) == end_offset


@pytest.mark.parametrize("is_replicated", [True, False])
def test_a_replica_that_lost_its_end_says_so(tmp_path, caplog, is_replicated):
    opened(tmp_path, is_replicated, has_directory=True)
    said = f"t-0: ends at offset 0, and its checkpoints say {REACHED}"
    assert (said in caplog.text) == is_replicated


def test_a_follower_that_stops_cleanly_keeps_the_leader_epochs_of_its_records(tmp_path):
    """Without them it tells its leader of no epoch, or of an earlier one, and the leader does not
    see where both logs differ (KIP-101)."""
    config = DynamicConfig(BrokerConfig({"log.dirs": str(tmp_path)}), 1)
    topic_config, epochs = TopicConfig({}, config), [(3, 0), (5, 1)]

    def logs_of(directory):
        directory.open()
        logs = LogManager([directory], config, SystemCalls(), Epochs())
        logs.load({("t", 0): WantedLog(TOPIC_ID, topic_config, is_replicated=True)})
        return logs, logs.get_or_create("t", 0, TOPIC_ID, topic_config, True).handle

    directory = LogDir(tmp_path)
    logs, handle = logs_of(directory)
    logs.save()
    for epoch, offset in epochs:
        copied = bytearray(batch(b"v"))
        struct.pack_into(">q", copied, 0, offset)
        struct.pack_into(">i", copied, 12, epoch)
        handle.append_as_follower(bytes(copied))
    assert handle.leader_epochs() == epochs
    assert CheckpointWriter(logs, lambda _topic, _partition: 0).write_all_and_close()
    directory.close(clean=True)
    logs, handle = logs_of(LogDir(tmp_path))
    assert handle.leader_epochs() == epochs
    logs.close()
