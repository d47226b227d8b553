"""A replica moves between two log directories (KIP-113); a kill at any step leaves one log."""

import os
import shutil
import signal
import struct
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from oracle.log_builder import batch

from barnabas.cext.memory.epoch import Epochs
from barnabas.cext.memory.sys import SystemCalls
from barnabas.config import BrokerConfig, DynamicConfig, TopicConfig
from barnabas.storage import checkpoints as files
from barnabas.storage.checkpoint_writer import CheckpointWriter
from barnabas.storage.future_logs import copy_step
from barnabas.storage.log_dirs import LogDir
from barnabas.storage.log_manager import MOVED_TO, LogManager, WantedLog

TOPIC_ID = bytes(15) + b"\x07"
RECORDS = 30
SCRIPT = """
import sys
from test_future_logs import move
move(sys.argv[1], sys.argv[2], int(sys.argv[3]))
"""
WHOLE = 1 << 20


class Node:
    def __init__(self, folder, is_replicated=False, wanted=True):
        names = [str(folder / name) for name in ("a", "b")]
        config = DynamicConfig(BrokerConfig({"log.dirs": ",".join(names)}), 1)
        self.config = TopicConfig({}, config)
        self.directories = [LogDir(Path(name)) for name in names]
        for row in self.directories:
            row.open()
        self.system = SystemCalls()
        self.logs = LogManager(self.directories, config, self.system, Epochs())
        self.is_replicated = is_replicated
        want = WantedLog(TOPIC_ID, self.config, is_replicated)
        self.logs.load({("t", 0): want} if wanted else {})
        for row in self.directories:
            row.begin()

    @property
    def log(self):
        return self.logs.get_or_create("t", 0, TOPIC_ID, self.config, self.is_replicated)

    def write(self, count=RECORDS):
        handle = self.log.handle
        for number in range(count):
            handle.append(batch(b"%d" % (handle.end_offset + number) * 100))
        self.logs.save()

    def follow(self, *epochs):
        """Appends a leader's batch of each epoch."""
        for epoch in epochs:
            copied = bytearray(batch(b"v"))
            struct.pack_into(">q", copied, 0, self.log.handle.end_offset)
            struct.pack_into(">i", copied, 12, epoch)
            self.log.handle.append_as_follower(bytes(copied))
        self.logs.save()

    def start(self):
        return self.logs.add_future("t", 0, self.directories[1].path, self.config)

    def copy(self, size_max=WHOLE):
        future = self.logs.future("t", 0)
        return copy_step(self.log.handle, future.handle, size_max)

    def replace(self):
        return self.logs.replace_with_future("t", 0, WHOLE)

    def stop(self, clean=True):
        CheckpointWriter(self.logs, lambda topic, partition: 0).write_all_and_close()
        self.release(clean)

    def release(self, clean=False):
        """Gives up the directories; without `stop` it leaves what a kill leaves."""
        for row in self.directories:
            row.close(clean=clean)


@contextmanager
def node_on(folder, clean=True, **given):
    node = Node(folder, **given)
    try:
        yield node
    finally:
        node.stop(clean=clean)


def names(folder):
    """What the two log directories have of the partition, without the random parts."""
    found = [path for name in ("a", "b") for path in (folder / name).glob("t-0*")]
    return sorted(f"{path.parent.name}/{path.name[:3]}{path.name[36:]}" for path in found)


def test_a_log_moves_and_its_checkpoints_with_it(tmp_path):
    with node_on(tmp_path) as node:
        node.write()
        handle = node.log.handle
        node.start()
        assert names(tmp_path) == ["a/t-0", "b/t-0-future"]
        node.copy()
        assert node.replace()
        assert node.log.handle is handle and node.log.directory == tmp_path / "b" / "t-0"
        assert names(tmp_path) == ["a/t-0-delete", "b/t-0"]
        node.write(2)
        assert node.logs.futures() == []
    assert files.read_offsets(tmp_path / "b" / files.RECOVERY_POINT) == {("t", 0): RECORDS + 2}
    assert files.read_offsets(tmp_path / "a" / files.RECOVERY_POINT) == {}
    with node_on(tmp_path) as node:
        assert (node.log.handle.end_offset, names(tmp_path)) == (RECORDS + 2, ["b/t-0"])


@pytest.mark.parametrize("clean", [True, False])
def test_a_copy_goes_on_after_a_restart(tmp_path, clean):
    with node_on(tmp_path, clean=clean) as node:
        node.write()
        node.start()
        node.copy(size_max=300)
        copied = node.logs.future("t", 0).handle.end_offset
        assert 0 < copied < RECORDS
    with node_on(tmp_path) as node:
        assert node.logs.future("t", 0).handle.end_offset == copied
        node.copy()
        assert node.replace()
        assert names(tmp_path) == ["a/t-0-delete", "b/t-0"]
        assert node.log.handle.end_offset == RECORDS


def test_a_copy_does_not_keep_what_the_log_lost_in_a_power_cut(tmp_path):
    with node_on(tmp_path, clean=False) as node:
        node.write()
        node.start()
        node.copy()
    log = tmp_path / "a" / "t-0" / f"{0:020d}.log"
    size = log.stat().st_size
    with log.open("r+b") as file:
        file.truncate(size - 10)
    for name in (files.RECOVERY_POINT, files.HIGH_WATERMARK):
        files.write_offsets(tmp_path / "a" / name, {})
    with node_on(tmp_path) as node:
        assert node.log.handle.end_offset == RECORDS - 1
        assert node.logs.future("t", 0).handle.end_offset == RECORDS - 1


def test_a_copy_of_a_replicated_log_goes_on_at_the_high_watermark(tmp_path):
    """Records above it may have been truncated and written again just before the stop."""
    with node_on(tmp_path) as node:
        node.write()
        node.start()
        node.copy()
    files.write_offsets(tmp_path / "a" / files.HIGH_WATERMARK, {("t", 0): 20})
    with node_on(tmp_path, is_replicated=True) as node:
        assert node.log.handle.end_offset == RECORDS
        assert node.logs.future("t", 0).handle.end_offset == 20


def test_a_copy_does_not_keep_what_was_truncated_while_another_release_ran(tmp_path):
    """A release that makes no copies leaves the future log as it is; the copy goes on after the
    next upgrade."""
    with node_on(tmp_path, is_replicated=True) as node:
        node.follow(3, 5, 5)
        node.start()
        node.copy()
    [copy] = (tmp_path / "b").glob("t-0.*-future")
    aside = copy.rename(tmp_path / "aside")
    with node_on(tmp_path, is_replicated=True) as node:
        node.log.handle.truncate_to(1)
        node.follow(7, 7, 7)
    aside.rename(copy)
    files.write_offsets(tmp_path / "a" / files.HIGH_WATERMARK, {("t", 0): 4})
    with node_on(tmp_path, is_replicated=True) as node:
        assert node.logs.future("t", 0).handle.end_offset == 1
        node.copy()
        assert node.logs.future("t", 0).handle.leader_epochs() == [(3, 0), (7, 1)]


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_moved_replica_keeps_the_leader_epochs_of_its_records(tmp_path, is_killed):
    """Epochs from before the move and after it; a later broker truncates by them (KIP-101)."""
    node = Node(tmp_path, is_replicated=True)
    node.follow(3, 5)
    node.start()
    node.copy()
    assert node.replace()
    node.follow(7)
    known = [(3, 0), (5, 1), (7, 2)]
    assert node.log.handle.leader_epochs() == known
    if is_killed:
        node.release()
    else:
        node.stop()
    with node_on(tmp_path, is_replicated=True) as node:
        assert node.log.directory.parent.name == "b"
        assert node.log.handle.leader_epochs() == known


def test_the_end_of_a_move(tmp_path):
    with node_on(tmp_path) as node:
        node.write()
        node.start()
        node.copy()
        node.logs.remove_future("t", 0)
        node.logs.remove_future("t", 0)
        assert names(tmp_path) == ["a/t-0", "b/t-0-delete"]
        node.write(1)


def test_a_deleted_topic_takes_its_copy_with_it(tmp_path):
    with node_on(tmp_path) as node:
        node.write()
        node.start()
        node.copy()
        node.logs.delete("t")
        assert (node.logs.futures(), names(tmp_path)) == ([], ["a/t-0-delete", "b/t-0-delete"])


def test_a_copy_of_a_topic_that_the_metadata_does_not_know_is_put_aside(tmp_path):
    with node_on(tmp_path) as node:
        node.write()
        node.start()
    with node_on(tmp_path, wanted=False):
        assert names(tmp_path) == ["a/t-0-stray", "b/t-0-stray"]


def test_a_partition_is_made_in_the_directory_that_was_asked_for(tmp_path):
    with node_on(tmp_path) as node:
        node.logs.prefer_directory("t", 0, tmp_path / "b")
        assert node.log.directory == tmp_path / "b" / "t-0"
        node.logs.delete("t")
        assert node.log.directory == tmp_path / "a" / "t-0"


def test_two_logs_of_a_partition_without_a_move_stop_the_start(tmp_path):
    with node_on(tmp_path) as node:
        node.write()
    shutil.copytree(tmp_path / "a" / "t-0", tmp_path / "b" / "t-0")
    (tmp_path / "a" / "t-0" / MOVED_TO).write_text(str(tmp_path / "c" / "t-0"))
    with pytest.raises(OSError, match="in two log directories"):
        Node(tmp_path)


def move(folder, call, nth):
    """Moves a log, and is killed at the nth call."""
    node = Node(Path(folder))
    node.write()
    node.start()
    node.copy()
    if call == "rename of the old directory":
        Path.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    else:
        node.system.fault(call, "kill", nth=nth)
    node.replace()


@pytest.mark.parametrize(
    ("call", "nth", "left"),
    [
        ("fdatasync", 1, ["a/t-0", "b/t-0-future"]),  # the rest of the copy
        ("rename", 1, ["a/t-0", "b/t-0-future"]),
        ("fsync_directory", 1, ["a/t-0", "b/t-0-future"]),  # the copy's new files
        ("fsync_directory", 2, ["a/t-0", "b/t-0"]),  # its new name
        ("rename of the old directory", 1, ["a/t-0", "b/t-0"]),
    ],
)
def test_a_kill_at_each_step_leaves_one_log(tmp_path, call, nth, left):
    words = [sys.executable, "-c", SCRIPT, str(tmp_path), call, str(nth)]
    here = Path(__file__).resolve().parent
    path = f"{here}{os.pathsep}{here.parent}"
    ended = subprocess.run(words, env=os.environ | {"PYTHONPATH": path}, timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert names(tmp_path) == left
    with node_on(tmp_path) as node:
        assert node.log.handle.end_offset == RECORDS
        moved = left[1] == "b/t-0"
        assert node.log.directory.parent.name == ("b" if moved else "a")
        assert len(node.logs.futures()) == (not moved)
        if not moved:
            node.copy()
            assert node.replace()
        node.write(1)
    with node_on(tmp_path) as node:
        assert names(tmp_path) == ["b/t-0"]
        assert node.log.handle.end_offset == RECORDS + 1
