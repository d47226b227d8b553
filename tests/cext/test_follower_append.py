"""A follower's log has the bytes of its leader's: offsets, epochs, segments, producers, aborts."""

import errno
import random
import struct
from pathlib import Path

import pytest
from oracle.disk import parse_log, parse_transactions
from oracle.log_builder import NOW, Disk, batch

from barnabas.cext.log.log_handle import LogError, LogHandle
from barnabas.cext.record.records import Record, encode_batch, parse_header

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
CORRUPT, OUT_OF_RANGE, STORAGE_ERROR = 2, 1, 56


def placed(offset: int, epoch: int, *values: bytes, **fields) -> bytes:
    """A batch as a leader stores it."""
    made = bytearray(batch(*values, **fields))
    struct.pack_into(">q", made, 0, offset)
    struct.pack_into(">i", made, 12, epoch)
    return bytes(made)


def marker(pid: int, epoch: int, commit: bool) -> bytes:
    record = Record(struct.pack(">hi", 0, 7), struct.pack(">hh", 0, int(commit)), timestamp=NOW)
    return encode_batch([record], attributes=0x30, producer_id=pid, producer_epoch=epoch)


def files(directory: Path) -> dict[str, bytes]:
    """What a log left in its segments' files."""
    return {
        path.name: path.read_bytes()
        for path in sorted(directory.iterdir())
        if path.suffix in SUFFIXES
    }


def pair(tmp_path: Path, **settings) -> tuple[Disk, Disk]:
    made = []
    for name in ("leader", "follower"):
        (tmp_path / name).mkdir()
        disk = Disk(tmp_path / name, **settings)
        disk.system.move_wall_clock(NOW - disk.system.wall_ms())
        made.append(disk)
    return made[0], made[1]


def follow(leader: LogHandle, follower: LogHandle, size_max: int) -> int:
    """Copies what the follower lacks, as fetches of `size_max` bytes do. Returns their number."""
    fetches = 0
    while follower.end_offset < leader.end_offset:
        appended = follower.append_as_follower(leader.read(follower.end_offset, size_max))
        assert appended.batches and appended.end_offset == follower.end_offset
        fetches += 1
    return fetches


@pytest.mark.parametrize("size_max", [1, 3_000, 1 << 20])
def test_segments_equal_the_leaders(tmp_path, size_max):
    """Rolls by size, by time and by a full index; epochs; torn ends of fetches."""
    source, target = pair(
        tmp_path,
        segment_bytes=20_000,
        index_interval_bytes=200,
        segment_ms=3_000,
        segment_index_bytes=480,
    )
    leader, follower = source.open(), target.open()
    rng = random.Random(7)
    at = NOW
    for i in range(400):
        at += rng.choice([0, 1, 40, 900]) if i % 50 else 5_000
        values = [rng.randbytes(rng.randrange(400)) for _ in range(rng.randrange(1, 4))]
        leader.append(batch(*values, at=at), leader_epoch=i // 90)
    assert len(leader.segments()) > 12
    assert follow(leader, follower, size_max) >= (400 if size_max == 1 else 1)
    assert follower.leader_epochs() == leader.leader_epochs()
    assert [s.base_offset for s in follower.segments()] == [
        s.base_offset for s in leader.segments()
    ]
    leader.close()
    follower.close()
    assert files(target.directory) == files(source.directory)


def test_producers_and_aborts_equal_the_leaders(tmp_path):
    source, target = pair(tmp_path, segment_bytes=2_500, index_interval_bytes=300)
    leader, follower = source.open(), target.open()
    rng = random.Random(3)
    sequences: dict[int, int] = dict.fromkeys(range(1, 6), 0)
    begun: set[int] = set()
    for _ in range(300):
        pid = rng.choice(list(sequences))
        if pid in begun and rng.random() < 0.4:
            leader.append(marker(pid, 0, commit=rng.random() < 0.4))
            begun.discard(pid)
        else:
            fields = {"producer_id": pid, "producer_epoch": 0, "base_sequence": sequences[pid]}
            leader.append(batch(b"v", attributes=0x10, **fields))
            sequences[pid] += 1
            begun.add(pid)
    assert begun and follow(leader, follower, 700) > 5
    assert sorted(follower.producers()) == sorted(leader.producers())
    assert follower.first_open_offset == leader.first_open_offset >= 0
    leader.close()
    follower.close()
    found = files(target.directory)
    assert found == files(source.directory)
    aborts = [parse_transactions(data) for name, data in found.items() if "txnindex" in name]
    assert sum(map(len, aborts)) > 20


def test_sequences_are_not_checked(tmp_path):
    """The leader took the batch, and may have forgotten the producer before it."""
    log = Disk(tmp_path).open()
    for offset, epoch, sequence in ((0, 3, 5), (1, 3, 90), (2, 2, 4)):
        fields = {"producer_id": 9, "producer_epoch": epoch, "base_sequence": sequence}
        log.append_as_follower(placed(offset, 0, b"v", **fields))
    (state,) = log.producers()
    assert (state.producer_id, state.epoch, state.last_sequence, state.last_offset) == (9, 2, 4, 2)


def test_offsets_that_compaction_removed_stay_missing(tmp_path):
    disk = Disk(tmp_path, segment_bytes=400)
    log = disk.open()
    kept = [placed(offset, 2, b"x" * 100) for offset in (4, 9, 10, 1000)]
    for data in kept:
        log.append_as_follower(data)
    assert log.end_offset == 1001
    assert [s.base_offset for s in log.segments()] == [0, 10]
    assert log.leader_epochs() == [(2, 4)]
    assert log.read(5)[: len(kept[1])] == kept[1]
    log.close()
    assert b"".join(disk.file(base, ".log").read_bytes() for base in (0, 10)) == b"".join(kept)
    again = disk.open(leader_epochs=[(2, 4)])
    assert (again.end_offset, again.recovered.missing) == (1001, [])


@pytest.mark.parametrize("clean", [True, False])
def test_a_gap_wider_than_a_segment_begins_a_segment_at_the_batch(tmp_path, clean):
    disk = Disk(tmp_path)
    log = disk.open()
    far = 3 * 2**31
    log.append_as_follower(placed(0, 0, b"a") + placed(far, 0, b"b"))
    assert [s.base_offset for s in log.segments()] == [0, far]
    log.close(clean=clean)
    again = disk.open()
    assert again.end_offset == far + 1
    assert parse_header(again.read(1)).base_offset == far


def test_a_batch_that_is_cut_off_is_left_out(tmp_path):
    log = Disk(tmp_path).open()
    data = placed(0, 0, b"a") + placed(1, 0, b"b") + placed(2, 0, b"c")
    for end in range(len(data)):
        whole = end // (len(data) // 3)
        appended = log.append_as_follower(data[:end])
        assert (appended.batches, log.end_offset) == (whole, whole)
        log.truncate_to(0)


def test_a_repeated_batch_is_refused(tmp_path):
    log = Disk(tmp_path).open()
    data = placed(0, 0, b"a", b"b") + placed(2, 0, b"c")
    log.append_as_follower(data)
    for again in (data, placed(1, 0, b"x"), placed(2, 0, b"c")):
        with pytest.raises(LogError) as error:
            log.append_as_follower(again)
        assert error.value.code == OUT_OF_RANGE
    assert log.end_offset == 3
    assert log.read(0) == data


def test_damage_anywhere_refuses_the_whole_range(tmp_path):
    """Every bit of a batch but those of the base offset, length and epoch, which the CRC does not
    cover, is checked; of those, a wrong length is found, too."""
    log = Disk(tmp_path).open()
    first, second = placed(0, 0, b"a"), placed(1, 0, b"bc")
    for at in range(16, len(second)):
        wrong = bytearray(second)
        wrong[at] ^= 1
        with pytest.raises(LogError) as error:
            log.append_as_follower(first + wrong)
        assert error.value.code == CORRUPT
    for length in (-1, 0, 48, 2**31 - 1 - 12):
        wrong = bytearray(second)
        struct.pack_into(">i", wrong, 8, length)
        if length > len(second):
            continue
        with pytest.raises(LogError):
            log.append_as_follower(first + wrong)
    with pytest.raises(LogError):  # offsets that do not ascend
        log.append_as_follower(first + placed(0, 0, b"again"))
    assert log.end_offset == 0
    assert log.segments()[0].size_bytes == 0


def test_batches_of_a_later_epoch_wait(tmp_path):
    """A leader of a later epoch sent them: this follower does not know yet where it diverged."""
    log = Disk(tmp_path).open()
    data = placed(0, 4, b"a") + placed(1, 5, b"b")
    assert log.append_as_follower(data, epoch_max=4).batches == 1
    assert log.append_as_follower(placed(1, 5, b"b"), epoch_max=4).batches == 0
    assert log.append_as_follower(placed(1, 5, b"b"), epoch_max=5).batches == 1


def test_an_epoch_without_records_gives_way_to_an_earlier_one(tmp_path):
    """This broker was elected, and wrote nothing before the next leader came."""
    log = Disk(tmp_path).open()
    log.append(batch(b"a"), leader_epoch=1)
    log.assign_epoch(4)
    log.append_as_follower(placed(1, 2, b"b") + placed(2, 6, b"c"))
    assert log.leader_epochs() == [(1, 0), (2, 1), (6, 2)]


def test_a_failed_write_leaves_nothing(tmp_path):
    disk = Disk(tmp_path)
    log = disk.open()
    log.append_as_follower(placed(0, 0, b"a"))
    disk.system.fault("pwritev", "error", errno=errno.ENOSPC)
    with pytest.raises(LogError) as error:
        log.append_as_follower(placed(1, 0, b"b") + placed(2, 0, b"c"))
    assert (error.value.code, log.end_offset, log.offline) == (STORAGE_ERROR, 1, False)
    log.append_as_follower(placed(1, 0, b"b") + placed(2, 0, b"c"))
    log.close()
    assert [row[0] for row in parse_log(disk.file(0, ".log").read_bytes())] == [0, 1, 2]


def test_a_range_is_one_write_for_each_segment(tmp_path):
    disk = Disk(tmp_path)
    log = disk.open()
    log.append_as_follower(placed(0, 0, b"a"))
    data = b"".join(placed(offset, 0, b"x" * 50) for offset in range(1, 101))
    disk.system.count_calls()
    before = disk.system.calls("pwritev")
    assert log.append_as_follower(data).batches == 100
    assert disk.system.calls("pwritev") == before + 1


def test_a_range_rolls_where_single_batches_would(tmp_path):
    """By age, which counts from a segment's first batch, and by a full index."""
    for name, expected, settings in (
        ("age", [0, 2, 4], {"segment_ms": 3_000}),
        ("index", [0, 5, 10], {"segment_index_bytes": 60, "index_interval_bytes": 1}),
    ):
        (tmp_path / name).mkdir()
        log = Disk(tmp_path / name, **settings).open()
        step_ms = 2_000 if name == "age" else 1
        count = 5 if name == "age" else 15
        log.append_as_follower(
            b"".join(placed(offset, 0, b"v", at=NOW + offset * step_ms) for offset in range(count))
        )
        assert [s.base_offset for s in log.segments()] == expected
