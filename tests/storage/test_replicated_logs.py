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


class Follower:
    """The log of a follower. `segment_bytes`: a segment has two batches."""

    def __init__(self, path):
        config = DynamicConfig(BrokerConfig({"log.dirs": str(path)}), 1)
        topic_config = TopicConfig({"segment.bytes": str(2 * len(batch(b"v")))}, config)
        self.directory = LogDir(path)
        self.directory.open()
        self.logs = LogManager([self.directory], config, SystemCalls(), Epochs())
        self.logs.load({("t", 0): WantedLog(TOPIC_ID, topic_config, is_replicated=True)})
        opened = self.logs.get_or_create("t", 0, TOPIC_ID, topic_config, True)
        self.handle, self.path = opened.handle, opened.directory
        self.logs.save()
        self.directory.begin()
        self.checkpoints = CheckpointWriter(self.logs, lambda _topic, _partition: 0)

    def follow(self, *epochs):
        """Appends a leader's batch of each epoch."""
        for epoch in epochs:
            copied = bytearray(batch(b"v"))
            struct.pack_into(">q", copied, 0, self.handle.end_offset)
            struct.pack_into(">i", copied, 12, epoch)
            self.handle.append_as_follower(bytes(copied))

    def stop(self):
        assert self.checkpoints.write_all_and_close()
        self.directory.close(clean=True)

    def kill(self):
        """Leaves what a kill leaves."""
        self.directory.close(clean=False)


def test_a_follower_that_stops_cleanly_keeps_the_leader_epochs_of_its_records(tmp_path):
    """Without them it tells its leader of no epoch, or of an earlier one, and the leader does not
    see where both logs differ (KIP-101)."""
    follower = Follower(tmp_path)
    follower.follow(3, 5)
    assert follower.handle.leader_epochs() == [(3, 0), (5, 1)]
    follower.stop()
    follower = Follower(tmp_path)
    assert follower.handle.leader_epochs() == [(3, 0), (5, 1)]
    follower.stop()


def test_a_killed_follower_keeps_the_leader_epochs_below_its_recovery_point(tmp_path):
    """Recovery does not read the segments there."""
    follower = Follower(tmp_path)
    follower.follow(3, 5, 6, 6, 6)
    follower.handle.flush()
    assert len(follower.handle.segments()) == 3
    assert follower.checkpoints.write_recovery_points()
    follower.follow(7)
    follower.kill()
    follower = Follower(tmp_path)
    assert follower.handle.recovered.segments_walked == 1
    assert follower.handle.leader_epochs() == [(3, 0), (5, 1), (6, 2), (7, 5)]
    follower.stop()


def test_epochs_that_cannot_be_written_hold_the_recovery_point_of_their_directory(tmp_path):
    follower = Follower(tmp_path)
    follower.follow(3)
    follower.handle.flush()
    temporary = follower.path / f"{files.LEADER_EPOCHS}.tmp"
    temporary.mkdir()  # no file can be written there
    assert not follower.checkpoints.write_recovery_points()
    assert files.read_offsets(tmp_path / files.RECOVERY_POINT) == {}
    temporary.rmdir()
    assert follower.checkpoints.write_recovery_points()
    assert files.read_offsets(tmp_path / files.RECOVERY_POINT) == {("t", 0): 1}
    assert files.read_leader_epochs(follower.path) == [(3, 0)]
    follower.stop()


def test_recovery_points_do_not_write_an_epoch_that_has_begun_and_is_not_saved(tmp_path):
    """`save` writes it; both use the same temporary file."""
    follower = Follower(tmp_path)
    follower.logs.begin_epoch("t", 0, 4)
    assert follower.checkpoints.write_recovery_points()
    assert files.read_leader_epochs(follower.path) == []
    follower.logs.save()
    assert files.read_leader_epochs(follower.path) == [(4, 0)]
    follower.stop()
