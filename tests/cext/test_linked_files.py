"""A file of a log that another directory names too is copied before a byte of it changes: whatever
one of two logs with the same files does, the other keeps its bytes."""

import os
import random
import struct
from pathlib import Path

import pytest
from oracle.log_builder import NOW, Disk, batch

from barnabas.cext.record.records import Record, encode_batch, parse_header
from barnabas.storage.address_index import AddressIndex
from barnabas.storage.partition_dirs import ADDRESSES

SETTINGS = {"segment_bytes": 1500, "index_interval_bytes": 200}
RECORDS = 60


def fill(log, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        log.append(batch(b"%60d" % number, at=NOW + number), leader_epoch=1)


def link_all(source: Path, target: Path) -> None:
    target.mkdir()
    for path in source.iterdir():
        os.link(path, target / path.name)


def content_of(directory: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in directory.iterdir()}


@pytest.fixture
def linked(tmp_path: Path) -> tuple[Disk, Path]:
    """A log that was closed cleanly, and a directory with links to all its files."""
    (tmp_path / "own").mkdir()
    disk = Disk(tmp_path / "own", **SETTINGS)
    log = disk.open()
    fill(log, RECORDS)
    log.close()
    link_all(disk.directory, tmp_path / "other")
    assert len(list((tmp_path / "other").glob("*.log"))) > 4
    return disk, tmp_path / "other"


def appended(disk: Disk) -> None:
    log = disk.open(clean=True)
    fill(log, 5, RECORDS)
    log.close()


def recovered(disk: Disk) -> None:
    disk.open(clean=False).close(clean=False)


def closed_at_the_same_offset(disk: Disk) -> None:
    """The producer snapshot has the same name."""
    log = disk.open(clean=False)
    log.close()


def truncated_inside_a_sealed_segment(disk: Disk) -> None:
    log = disk.open(clean=True)
    log.truncate_to(log.segments()[2].base_offset + 2)
    fill(log, 5, log.end_offset)
    log.close()


def truncated_to_a_segment(disk: Disk) -> None:
    log = disk.open(clean=True)
    log.truncate_to(log.segments()[2].base_offset)
    fill(log, 30, log.end_offset)
    log.close()


def begun_again(disk: Disk) -> None:
    log = disk.open(clean=True)
    log.truncate_fully_and_start_at(3)
    fill(log, 5, 3)
    log.close()


def deleted_at_the_start(disk: Disk) -> None:
    log = disk.open(clean=True)
    log.delete_segments_before(log.segments()[2].base_offset)
    log.unlink_deleted()
    log.close()


def with_a_rebuilt_index(disk: Disk) -> None:
    for path in sorted(disk.directory.glob("*.index"))[:2]:
        path.unlink()
    disk.open(clean=True).close()


ACTS = [
    appended,
    recovered,
    closed_at_the_same_offset,
    truncated_inside_a_sealed_segment,
    truncated_to_a_segment,
    begun_again,
    deleted_at_the_start,
    with_a_rebuilt_index,
]


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_the_other_directory_keeps_its_bytes(linked, act):
    disk, other = linked
    before = content_of(other)
    act(disk)
    assert content_of(other) == before
    assert not [name for name in disk.names() if name.endswith(".own")]


@pytest.mark.parametrize("which", [0, 2, -1])
def test_recovery_cuts_damage_off_a_copy(tmp_path, which):
    (tmp_path / "own").mkdir()
    disk = Disk(tmp_path / "own", **SETTINGS)
    log = disk.open()
    fill(log, RECORDS)
    log.close()
    path = sorted(disk.directory.glob("*.log"))[which]
    with path.open("ab") as file:
        file.write(b"\1" * 200)
    link_all(disk.directory, tmp_path / "other")
    before = content_of(tmp_path / "other")
    log = disk.open(clean=False)
    assert log.recovered.cut_bytes == 200
    fill(log, 5, log.end_offset)
    log.close()
    assert content_of(tmp_path / "other") == before


def test_a_transaction_index_is_cut_and_grows_in_a_copy(tmp_path):
    (tmp_path / "own").mkdir()
    disk = Disk(tmp_path / "own")
    log = disk.open()
    for number in range(4):
        transaction(log, number)
    middle = log.end_offset - 3
    log.close()
    link_all(disk.directory, tmp_path / "other")
    before = content_of(tmp_path / "other")
    assert f"{0:020d}.txnindex" in before
    log = disk.open(clean=True)
    log.truncate_to(middle)
    transaction(log, 9)
    log.close()
    assert content_of(tmp_path / "other") == before


def transaction(log, producer_id: int) -> None:
    """Two records of a producer, aborted."""
    fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
    log.append(batch(b"a", b"b", attributes=0x10, **fields))
    record = Record(struct.pack(">hi", 0, 0), struct.pack(">hh", 0, 0), timestamp=NOW)
    log.append(encode_batch([record], attributes=0x30, producer_id=producer_id, producer_epoch=0))


def test_a_copy_keeps_time_and_content_and_readers_go_on(linked):
    disk, other = linked
    last = max(disk.directory.glob("*.log"))
    modified = last.stat().st_mtime_ns
    log = disk.open(clean=True)
    assert last.stat().st_nlink == 1 and last.stat().st_mtime_ns == modified
    assert last.read_bytes() == (other / last.name).read_bytes()
    assert parse_header(log.read(RECORDS - 1)).base_offset == RECORDS - 1
    log.close()


def test_a_sealed_file_is_not_copied_when_nothing_changes_it(linked):
    disk, other = linked
    first = min(disk.directory.glob("*.log"))
    recovered(disk)
    assert first.stat().st_ino == (other / first.name).stat().st_ino


def test_a_copy_that_a_crash_left_is_removed(linked):
    disk, _ = linked
    disk.file(0, ".log.own").write_bytes(b"x")
    disk.open(clean=True).close()
    assert not disk.file(0, ".log.own").exists()


def test_the_log_does_not_open_when_the_copy_fails(linked):
    disk, other = linked
    before = content_of(other)
    disk.system.fault("open", "error", errno=28, path_contains=".log.own")
    with pytest.raises(OSError, match="which is linked"):
        disk.open(clean=True)
    disk.system.clear_faults()
    assert content_of(other) == before
    appended(disk)
    assert content_of(other) == before


def test_the_addresses_of_old_clients_grow_in_a_copy(tmp_path):
    (tmp_path / "own").mkdir()
    index = AddressIndex.create(tmp_path / "own" / ADDRESSES, 0, 0, -1)
    link_all(tmp_path / "own", tmp_path / "other")
    before = content_of(tmp_path / "other")
    index.add(10, 500, 0)
    assert content_of(tmp_path / "other") == before
    found = AddressIndex.open(tmp_path / "own" / ADDRESSES)
    assert found is not None and list(found.offsets) == [0, 10]


def test_random_work_on_both_sides(tmp_path):
    """Each side links its files to a new directory now and then, which stays as it was."""
    rng = random.Random(20)
    (tmp_path / "own").mkdir()
    disk = Disk(tmp_path / "own", **SETTINGS)
    kept: dict[Path, dict[str, tuple[int, bytes]]] = {}
    log = disk.open()
    for number in range(60):
        match rng.randrange(6):
            case 0 | 1:
                fill(log, rng.randrange(1, 20), log.end_offset)
            case 2:
                log.truncate_to(rng.randrange(log.start_offset, log.end_offset + 1))
            case 3:
                log.delete_segments_before(rng.randrange(log.start_offset, log.end_offset + 1))
                log.unlink_deleted()
            case 4:
                log.roll()
            case 5:
                clean = rng.random() < 0.5
                log.close(clean=clean)
                other = tmp_path / f"other-{number}"
                link_all(disk.directory, other)
                kept[other] = content_of(other)
                log = disk.open(clean=clean, log_start_offset=0)
    log.close()
    assert len(kept) > 5
    for other, before in kept.items():
        assert content_of(other) == before, other
