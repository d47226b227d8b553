"""The cost of thousands of partitions: syncs, descriptors and maps; and files that a power cut
tears."""

import os
from pathlib import Path

from node.test_settings import broker_with, create, produce, wire_to
from oracle.log_builder import Disk, batch

COUNT = 60


def open_files(directory: Path) -> list[str]:
    paths = []
    for entry in os.scandir("/proc/self/fd"):
        try:
            paths.append(os.readlink(entry.path))
        except FileNotFoundError:
            continue  # the descriptor of this listing
    return [path for path in paths if path.startswith(str(directory))]


def mapped_files(directory: Path) -> list[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line.split(None, 5)[-1] for line in lines if str(directory) in line]


def test_a_topic_of_many_partitions_is_synced_at_once(tmp_path, monkeypatch):
    synced = []
    fsync, fdatasync = os.fsync, os.fdatasync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(fd), fsync(fd)))
    monkeypatch.setattr(os, "fdatasync", lambda fd: (synced.append(fd), fdatasync(fd)))
    with broker_with(tmp_path) as b, wire_to(b) as wire:
        b.node.system.count_calls()
        synced.clear()
        create(wire, "t", {}, partitions=COUNT)
        assert len(synced) < 10
        assert b.node.system.calls("fsync_directory") == 0
        for index in (0, COUNT - 1):
            assert produce(wire, "t", b"v", partition=index).baseOffset == 0
            directory = b.node.loaded.logs.get("t", index).directory
            assert (directory / "partition.metadata").read_text().startswith("version: 0\n")
            assert (directory / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
        assert b.node.system.calls("fsync_directory") == 2, (
            "the first record's flush syncs its names"
        )


def test_a_clean_stop_of_empty_logs_syncs_none_of_them(tmp_path):
    with broker_with(tmp_path) as b, wire_to(b) as wire:
        create(wire, "t", {}, partitions=COUNT)
        b.node.system.count_calls()
        b.node.stop()
        assert b.node.system.calls("fsync_directory") == 0


def test_small_logs_open_no_index(tmp_path):
    with broker_with(tmp_path) as b, wire_to(b) as wire:
        create(wire, "t", {}, partitions=4)
        for index in range(3):
            assert produce(wire, "t", b"v", partition=index).errorCode == 0
    with broker_with(tmp_path) as b, wire_to(b) as wire:
        data = tmp_path
        assert [path for path in mapped_files(data) if "index" in path] == []
        assert sorted(Path(p).suffix for p in open_files(data) if "/t-" in p) == [".log"] * 4
        assert produce(wire, "t", b"v").baseOffset == 1
        assert {Path(path).suffix for path in mapped_files(data) if "/t-0/" in path} == {
            ".index",
            ".timeindex",
        }


def test_sealed_segments_are_opened_for_reading_and_let_go(tmp_path):
    disk = Disk(tmp_path, segment_bytes=1_000)
    log = disk.open()
    for number in range(100):
        log.append(batch(b"x" * 80, at=1_700_000_000_000 + number))
    log.flush()
    before = log.segments()
    log.close()
    files = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    log = disk.open(clean=True)
    assert len(before) > 10 and log.segments()[:-1] == before[:-1]
    assert len([path for path in open_files(tmp_path) if path.endswith(".log")]) <= 4 + 1
    assert disk.cache.open_segments <= 4
    sealed = {f"{info.base_offset:020d}" for info in before[:-1]}
    after = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert {n: t for n, t in after.items() if n[:20] in sealed} == {
        n: t for n, t in files.items() if n[:20] in sealed
    }, "nothing is written to them"


def test_an_index_that_kept_its_full_size_is_cut_at_the_next_start(tmp_path):
    disk = Disk(tmp_path, segment_bytes=2_000, index_interval_bytes=100)
    log = disk.open()
    for _ in range(60):
        log.append(batch(b"x" * 80))
    log.close()
    path = disk.file(0, ".index")
    whole = path.read_bytes()
    path.write_bytes(whole + bytes(4096))
    log = disk.open(clean=True)
    assert path.read_bytes() == whole
    assert log.recovered.messages == []


def test_a_torn_topic_id_of_a_new_partition_is_written_again(tmp_path):
    with broker_with(tmp_path) as b, wire_to(b) as wire:
        create(wire, "t")
        directory = b.node.loaded.logs.get("t", 0).directory
    for torn in (b"", b"version: 0\ntop"):
        path = directory / "partition.metadata"
        whole = path.read_bytes()
        path.write_bytes(torn)
        with broker_with(tmp_path) as b, wire_to(b) as wire:
            assert path.read_bytes() == whole
            assert produce(wire, "t", b"v").errorCode == 0
