"""Damage to the transaction indexes of a log that was closed cleanly is found at the next start,
logged, and repaired from the batches, so that no reader of committed records sees an aborted
one."""

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from oracle.disk import parse_transactions
from oracle.log_builder import NOW, Disk, batch

from barnabas.cext.record.records import Record, encode_batch

ENTRY_BYTES = 34
PRODUCERS = range(1, 5)
STEPS = 400


def marker(pid: int, commit: bool) -> bytes:
    record = Record(struct.pack(">hi", 0, 0), struct.pack(">hh", 0, int(commit)), timestamp=NOW)
    return encode_batch([record], attributes=0x30, producer_id=pid, producer_epoch=0)


def written(directory: Path) -> tuple[Disk, dict[str, bytes]]:
    """A cleanly closed log with aborts in most of its segments; what its indexes hold."""
    disk = Disk(directory, segment_bytes=2500, index_interval_bytes=300)
    disk.system.move_wall_clock(NOW - disk.system.wall_ms())
    log = disk.open()
    chance = random.Random(3)
    sequences = dict.fromkeys(PRODUCERS, 0)
    open_since: dict[int, bool] = {}
    for _ in range(STEPS):
        pid = chance.choice(PRODUCERS)
        if pid in open_since and chance.random() < 0.4:
            log.append(marker(pid, commit=chance.random() < 0.3))
            del open_since[pid]
            continue
        fields = {"producer_id": pid, "producer_epoch": 0, "base_sequence": sequences[pid]}
        log.append(batch(b"v", attributes=0x10, **fields))
        sequences[pid] += 1
        open_since[pid] = True
    log.close(clean=True)
    return disk, indexes(directory)


def indexes(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.txnindex"))}


def snapshots(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.snapshot"))


def altered(content: bytes, field: int, change: Callable[[int], int]) -> bytes:
    """The index with another number in one field of its middle entry."""
    at = len(content) // ENTRY_BYTES // 2 * ENTRY_BYTES
    entry = list(struct.unpack_from(">hqqqq", content, at))
    entry[field] = change(entry[field])
    return content[:at] + struct.pack(">hqqqq", *entry) + content[at + ENTRY_BYTES :]


DAMAGE = {
    "torn": lambda content, other: content[:-5],
    "too long": lambda content, other: content + bytes(ENTRY_BYTES),
    "its end twice": lambda content, other: content + content[-ENTRY_BYTES:],
    "zeroed": lambda content, other: bytes(len(content)),
    "noise": lambda content, other: random.Random(1).randbytes(len(content)),
    "of another segment": lambda content, other: other,
    "another version": lambda content, other: altered(content, 0, lambda n: n + 1),
    "a bit of the producer": lambda content, other: altered(content, 1, lambda n: n ^ 1 << 40),
    "the next producer": lambda content, other: altered(content, 1, lambda n: n % 4 + 1),
    "a bit of the first offset": lambda content, other: altered(content, 2, lambda n: n ^ 1 << 50),
    "a bit of the last offset": lambda content, other: altered(content, 3, lambda n: n ^ 1 << 20),
    "the offset after": lambda content, other: altered(content, 3, lambda n: n + 1),
    "a late stable offset": lambda content, other: altered(content, 4, lambda n: n + 1000),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
@pytest.mark.parametrize("at", [0, 1, -1], ids=["first", "second", "last"])
def test_a_damaged_transaction_index_of_a_clean_log_is_made_anew(tmp_path, damage, at):
    disk, whole = written(tmp_path)
    assert len(whole) > 4 and all(parse_transactions(content) for content in whole.values())
    kept = snapshots(tmp_path)
    name = list(whole)[at]
    other = whole[list(whole)[2]]
    changed = damage(whole[name], other)
    assert changed != whole[name]
    (tmp_path / name).write_bytes(changed)
    log = disk.open(clean=True)
    assert indexes(tmp_path) == whole
    assert log.recovered.messages == [f"segment {int(name[:20])}: transaction index rebuilt"]
    log.close(clean=True)
    assert snapshots(tmp_path) == kept


def test_every_index_damaged_at_once(tmp_path):
    disk, whole = written(tmp_path)
    before = disk.open(clean=True)
    producers = before.producers()
    before.close(clean=True)
    for name, content in whole.items():
        (tmp_path / name).write_bytes(content[1:])
    log = disk.open(clean=True)
    assert indexes(tmp_path) == whole
    assert len(log.recovered.messages) == len(whole)
    assert log.producers() == producers


def test_sealed_segments_below_the_recovery_point_are_looked_through_after_a_crash_too(tmp_path):
    disk, whole = written(tmp_path)
    first = next(iter(whole))
    (tmp_path / first).write_bytes(whole[first][:-1])
    log = disk.open(clean=False, recovery_point=10**9)
    assert indexes(tmp_path) == whole
    assert f"segment {int(first[:20])}: transaction index rebuilt" in log.recovered.messages


def test_whole_entries_that_are_lost_come_back_when_everything_is_walked(tmp_path):
    """A clean log does not show that they are missing (docs/decisions/transaction-index.md): to
    repair it, start without the mark of a clean stop and without recovery points."""
    disk, whole = written(tmp_path)
    first, second = list(whole)[:2]
    (tmp_path / first).unlink()
    (tmp_path / second).write_bytes(whole[second][:-ENTRY_BYTES])
    log = disk.open(clean=True)
    assert log.recovered.messages == [] and first not in indexes(tmp_path)
    log.close(clean=True)
    log = disk.open(clean=False, recovery_point=0)
    assert indexes(tmp_path) == whole
    log.close(clean=True)


def test_an_index_without_damage_is_left_alone(tmp_path):
    disk, whole = written(tmp_path)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.txnindex")}
    for _ in range(2):
        log = disk.open(clean=True)
        assert log.recovered.messages == []
        log.close(clean=True)
    assert {path: path.stat().st_mtime_ns for path in times} == times and indexes(tmp_path) == whole


@pytest.mark.parametrize("call", ["fdatasync", "rename", "open", "pwritev"])
def test_an_index_that_cannot_be_written_anew_stays_and_is_tried_again(tmp_path, call):
    """The log does not open, so that no aborted record is shown, and no half-written file is
    left."""
    disk, whole = written(tmp_path)
    name = list(whole)[1]
    (tmp_path / name).write_bytes(whole[name][:-1])
    rule = disk.system.fault(call, "error", errno=5, path_contains=".txnindex.cleaned")
    with pytest.raises(OSError):
        disk.open(clean=True)
    assert disk.system.fired(rule) == 1
    disk.system.clear_faults()
    log = disk.open(clean=True)
    assert indexes(tmp_path) == whole
    log.close(clean=True)
