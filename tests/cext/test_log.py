"""Append, read, roll, truncate, delete; the files on disk equal those of the plain-Python
oracle."""

import errno
import random
import struct
from itertools import pairwise

import pytest
from oracle.disk import index_of, parse_log, parse_snapshot, parse_transactions
from oracle.log_builder import NOW, Disk, batch
from oracle.records import crc32c

from barnabas.cext.log import log_files
from barnabas.cext.log.log_handle import LogError
from barnabas.cext.record.records import Record, encode_batch, parse_header


def fill(log, count, *, size=60, start=0):
    for i in range(start, start + count):
        log.append(batch(bytes([i % 251]) * size, at=NOW + i))


def test_batches_come_back_with_offset_and_epoch_stamped(tmp_path):
    log = Disk(tmp_path).open()
    assert log.append(batch(b"a", b"b"), leader_epoch=3)[:2] == (0, 1)
    assert log.append(batch(b"c"), leader_epoch=4)[:2] == (2, 2)
    header = parse_header(log.read(2))
    assert (header.base_offset, header.leader_epoch) == (2, 4)
    assert log.leader_epochs() == [(3, 0), (4, 2)]
    assert log.epoch_end(3) == (3, 2)
    assert log.epoch_end(4) == (4, 3)
    assert log.epoch_end(9) == (-1, -1)


@pytest.mark.parametrize("sealed", [True, False])
def test_files_equal_the_oracle(tmp_path, sealed):
    disk = Disk(tmp_path, segment_bytes=20_000, index_interval_bytes=700)
    log = disk.open()
    rng = random.Random(5)
    for _ in range(300):
        log.append(batch(rng.randbytes(rng.randrange(1, 900)), at=NOW + rng.randrange(5000)))
    bases = [info.base_offset for info in log.segments()]
    assert len(bases) > 5
    log.close(clean=sealed)
    for base in bases if sealed else bases[:-1]:
        batches = parse_log(disk.file(base, ".log").read_bytes())
        offsets, times = index_of(batches, base, 700)
        assert disk.file(base, ".index").read_bytes() == offsets
        assert disk.file(base, ".timeindex").read_bytes() == times
    if not sealed:
        assert disk.file(bases[-1], ".index").stat().st_size == 4096
        assert disk.file(bases[-1], ".timeindex").stat().st_size == 4092


def test_every_offset_is_found_and_limits_hold(tmp_path):
    disk = Disk(tmp_path, segment_bytes=6_000, index_interval_bytes=400)
    log = disk.open()
    for i in range(150):
        log.append(batch(b"x" * 50, b"y" * 30, at=NOW + i))
    for offset in range(300):
        assert parse_header(log.read(offset, 1)).base_offset == offset // 2 * 2
    for limit in range(0, 300, 14):
        offset = 0
        while content := log.read(offset, 10_000, limit_offset=limit):
            for base, last, *_ in parse_log(content):
                assert base == offset and last < limit
                offset = last + 1
        assert offset == limit
    assert log.read(300) == b""
    for outside in (-1, 301):
        with pytest.raises(LogError) as error:
            log.read(outside)
        assert error.value.code == 1


def test_a_single_record_above_the_limit_is_not_read(tmp_path):
    """A reader of committed records would see the last one before its commit."""
    log = Disk(tmp_path).open()
    fill(log, 3)
    assert [base for base, *_ in parse_log(log.read(0, limit_offset=2))] == [0, 1]


def test_an_index_entry_with_the_position_of_a_later_batch_misleads_no_reader(tmp_path):
    disk = Disk(tmp_path, index_interval_bytes=1)
    log = disk.open()
    fill(log, 50)
    path = disk.file(0, ".index")
    entries = [e for e in struct.iter_unpack(">ii", path.read_bytes()) if e[1]]
    assert len(entries) == 49
    late = [(offset, later) for (offset, _), (_, later) in pairwise(entries)]
    with path.open("r+b") as file:
        file.write(b"".join(struct.pack(">ii", *entry) for entry in late))
    for offset in range(50):
        assert parse_header(log.read(offset, 1)).base_offset == offset


def test_first_batch_is_whole_only_when_asked(tmp_path):
    log = Disk(tmp_path).open()
    log.append(batch(b"x" * 500))
    assert len(log.read(0, 10)) > 500
    assert len(log.read(0, 10, whole_first=False)) == 10
    assert log.read(0, 0, whole_first=False) == b""


def test_segments_roll_by_record_time_and_offset_range(tmp_path):
    log = Disk(tmp_path, segment_ms=1000).open()
    for at in (0, 1000, 1001, 1500, 2002):
        log.append(batch(b"x", at=NOW + at))
    assert [info.base_offset for info in log.segments()] == [0, 2, 4]


def test_a_full_index_rolls(tmp_path):
    log = Disk(tmp_path, segment_index_bytes=60, index_interval_bytes=1).open()
    fill(log, 40)
    assert len(log.segments()) == 40 // 5


def test_a_batch_larger_than_a_segment_is_refused(tmp_path):
    log = Disk(tmp_path, segment_bytes=500).open()
    with pytest.raises(LogError) as error:
        log.append(batch(b"x" * 500))
    assert error.value.code == 18
    assert log.append(batch(b"x")).first_offset == 0


def test_flushed_offset_follows_the_flush(tmp_path):
    disk = Disk(tmp_path, segment_bytes=1_000)
    log = disk.open()
    disk.system.count_calls()
    fill(log, 30)
    assert (log.flushed_offset, log.end_offset) == (0, 30)
    log.flush()
    assert log.flushed_offset == 30
    assert disk.system.calls("fdatasync") == len(log.segments())
    assert disk.system.calls("fsync_directory") == 1
    log.flush()
    assert disk.system.calls("fdatasync") == len(log.segments())
    assert all(info.flushed_bytes == info.size_bytes for info in log.segments())
    assert len(log.read(0, limit_offset=log.flushed_offset)) > 0


def test_open_segments_stay_within_the_limit(tmp_path):
    disk = Disk(tmp_path, segment_bytes=1_000)
    log = disk.open()
    fill(log, 200)
    log.flush()
    for offset in range(200):
        log.read(offset)
    assert len(log.segments()) > 20
    assert disk.cache.open_segments <= 4


def test_a_truncation_reads_its_segment_while_all_others_wait_for_a_flush(tmp_path):
    """Before, the pool of open files closed the one that the truncation had just opened."""
    disk = Disk(tmp_path)
    log = disk.open()
    log.append(batch(b"first"))
    log.flush()
    for _ in range(6):  # more than the pool holds open
        log.roll()
        log.append(batch(b"not flushed"))
    log.truncate_to(0)
    assert log.end_offset == 0


@pytest.mark.parametrize("offset", [0, 1, 17, 30, 59, 60])
def test_truncation_keeps_what_is_below(tmp_path, offset):
    disk = Disk(tmp_path, segment_bytes=1_500, index_interval_bytes=200)
    log = disk.open()
    fill(log, 60)
    log.flush()
    kept = log.read(0, limit_offset=offset) if offset else b""
    log.truncate_to(offset)
    assert (log.end_offset, log.flushed_offset) == (offset, offset)
    assert (log.read(0) if offset else b"") == kept
    fill(log, 30, start=offset)
    assert log.end_offset == offset + 30
    for at in range(offset + 30):
        assert parse_header(log.read(at, 1)).base_offset == at
    log.close()
    log = disk.open(clean=True)
    assert log.end_offset == offset + 30


def test_truncate_fully_begins_anew(tmp_path):
    disk = Disk(tmp_path, segment_bytes=1_500)
    log = disk.open()
    fill(log, 60)
    log.truncate_fully_and_start_at(500)
    assert (log.start_offset, log.end_offset) == (500, 500)
    assert {n for n in disk.names() if not n.endswith(".deleted")} == {f"{500:020d}.log"}
    assert log.append(batch(b"x")).first_offset == 500


@pytest.mark.parametrize("anew", [False, True], ids=["truncate_to", "truncate_fully"])
def test_what_a_truncation_took_out_waits_to_be_unlinked(tmp_path, anew):
    disk = Disk(tmp_path, segment_bytes=1_500)
    log = disk.open()
    fill(log, 60)
    bases = [info.base_offset for info in log.segments()]
    assert not log.holds_deleted
    if anew:
        log.truncate_fully_and_start_at(500)
    else:
        log.truncate_to(bases[1])
    expected = bases if anew else bases[2:]
    assert {n for n in disk.names() if n.endswith(".log.deleted")} == {
        f"{base:020d}.log.deleted" for base in expected
    }
    assert log.holds_deleted
    assert log.unlink_deleted() == 3 * len(expected)
    assert not log.holds_deleted
    assert not [name for name in disk.names() if name.endswith(".deleted")]
    # A second file with the same name replaces the first.
    end = log.end_offset
    fill(log, 30, start=end)
    log.truncate_to(end)
    fill(log, 30, start=end)
    log.truncate_to(end)
    assert log.end_offset == end and log.holds_deleted


def test_deletion_takes_whole_segments_and_readers_keep_theirs(tmp_path):
    disk = Disk(tmp_path, segment_bytes=1_500)
    log = disk.open()
    fill(log, 60)
    bases = [info.base_offset for info in log.segments()]
    assert log.delete_segments_before(bases[3] + 1) == bases[:3]
    assert log.start_offset == bases[3]
    assert {n for n in disk.names() if n.endswith(".log.deleted")} == {
        f"{base:020d}.log.deleted" for base in bases[:3]
    }
    with pytest.raises(LogError) as error:
        log.read(bases[3] - 1)
    assert error.value.code == 1
    assert log.unlink_deleted() == 9
    assert log.delete_segments_before(1000) == bases[3:-1]
    assert len(log.segments()) == 1


def test_a_segment_that_cannot_be_renamed_stays_until_the_next_time(tmp_path):
    """Else its records, which were deleted, came back with the next start: the checkpoint forgets a
    log's start that the first segment shows. Found by tests/simulation/test_one_node.py, seed
    1399132714."""
    disk = Disk(tmp_path, segment_bytes=1_500)
    log = disk.open()
    fill(log, 60)
    bases = [info.base_offset for info in log.segments()]
    name = f"{bases[1]:020d}.log"
    for _ in range(2):
        rule = disk.system.fault("rename", "error", errno=errno.EIO, path_contains=name)
        with pytest.raises(LogError, match="cannot delete segments"):
            log.delete_segments_before(bases[3])
        assert disk.system.fired(rule) == 1
        assert log.start_offset == bases[3]
        assert [info.base_offset for info in log.segments()] == bases[1:]
        assert log.holds_deleted
        assert {n for n in disk.names() if n.endswith(".log.deleted")} == {
            f"{bases[0]:020d}.log.deleted"
        }
    with pytest.raises(LogError, match="offset"):
        log.read(bases[3] - 1)
    disk.system.clear_faults()
    assert log.delete_segments_before(bases[3]) == bases[1:3]
    assert [info.base_offset for info in log.segments()] == bases[3:]


def test_start_advances_but_never_past_the_end(tmp_path):
    log = Disk(tmp_path).open()
    fill(log, 10)
    assert [log.advance_log_start(at) for at in (4, 2, 99)] == [4, 4, 10]
    assert log.leader_epochs() == [(0, 10)]


def test_search_by_time_is_exact(tmp_path):
    disk = Disk(tmp_path, segment_bytes=3_000, index_interval_bytes=300)
    log = disk.open()
    rng, times = random.Random(9), []
    for _ in range(80):
        stamps = [NOW + rng.randrange(1000) for _ in range(3)]
        log.append(encode_batch([Record(b"x" * 40, timestamp=at) for at in stamps]))
        times += stamps
    for wanted in range(NOW - 1, NOW + 1001, 7):
        # The first record, in log order, of the first batch that has one: as brokers answer.
        found = next((i for i, at in enumerate(times) if at >= wanted), None)
        answer = log.offset_for_time(wanted)
        assert answer == (None if found is None else (found, times[found], 0, False))
    latest = times.index(max(times))
    assert log.offset_for_time(0, largest=True)[:2] == (latest, max(times))
    assert log.offset_for_time(max(times), limit_offset=latest) is None


def test_idempotent_producer(tmp_path):
    log = Disk(tmp_path).open()

    def send(sequence, count=2, epoch=0, pid=9, **more):
        return log.append(
            batch(
                *[b"v"] * count,
                producer_id=pid,
                producer_epoch=epoch,
                base_sequence=sequence,
                **more,
            )
        )

    def refused(*args, **named):
        with pytest.raises(LogError) as error:
            send(*args, **named)
        return error.value.code

    first = [send(2 * i) for i in range(6)]
    assert [r.first_offset for r in first] == [0, 2, 4, 6, 8, 10]
    assert send(2)[:2] == (2, 3) and send(2).duplicate
    assert refused(0) == 45  # no longer known: only the last five batches are kept
    assert refused(14) == 45
    assert refused(2, count=1) == 45
    assert refused(3, epoch=1) == 45
    assert send(0, epoch=1).first_offset == 12
    assert refused(12, epoch=0) == 47
    assert send(77, pid=10).first_offset == 14  # an unknown producer may begin anywhere
    assert log.end_offset == 16


def test_a_batch_of_another_epoch_is_no_duplicate(tmp_path):
    log = Disk(tmp_path).open()

    def send(epoch):
        return log.append(batch(b"a", producer_id=1, producer_epoch=epoch, base_sequence=0))

    assert [send(epoch).first_offset for epoch in (0, 1)] == [0, 1]
    assert send(1).duplicate
    with pytest.raises(LogError) as error:
        send(0)
    assert error.value.code == 47
    assert log.end_offset == 2


def test_each_leader_epoch_is_noted_once_and_found_again_by_recovery(tmp_path):
    disk = Disk(tmp_path)
    log = disk.open()
    for epoch in (3, 3, 3, 4, 4, 5):
        log.append(batch(b"a"), leader_epoch=epoch)
    noted = [(3, 0), (4, 3), (5, 5)]
    assert log.leader_epochs() == noted
    log.close(clean=False)
    (tmp_path / "leader-epoch-checkpoint").unlink(missing_ok=True)
    assert disk.open().leader_epochs() == noted


def test_sequences_wrap(tmp_path):
    log = Disk(tmp_path).open()
    top = 2**31 - 1
    kw = {"producer_id": 1, "producer_epoch": 0}
    assert log.append(batch(b"a", b"b", b"c", base_sequence=top - 1, **kw)).first_offset == 0
    assert log.append(batch(b"a", b"b", b"c", base_sequence=top - 1, **kw)).duplicate
    assert log.append(batch(b"d", base_sequence=1, **kw)).first_offset == 3
    log.append(batch(b"e", base_sequence=2**31 - 1, producer_id=2, producer_epoch=0))
    assert log.append(batch(b"f", base_sequence=0, producer_id=2, producer_epoch=0))[0] == 5


def marker(*, pid, commit, coordinator_epoch=0, epoch=0):
    record = Record(
        struct.pack(">hi", 0, coordinator_epoch), struct.pack(">hh", 0, int(commit)), timestamp=NOW
    )
    return encode_batch([record], attributes=0x30, producer_id=pid, producer_epoch=epoch)


def test_transactions_are_tracked_and_aborts_indexed(tmp_path):
    disk = Disk(tmp_path)
    log = disk.open()

    def data(pid, sequence):
        return batch(
            b"t", attributes=0x10, producer_id=pid, producer_epoch=0, base_sequence=sequence
        )

    log.append(data(5, 0))
    log.append(data(6, 0))
    assert log.first_open_offset == 0
    with pytest.raises(LogError) as error:
        log.append(batch(b"n", producer_id=5, producer_epoch=0, base_sequence=1))
    assert error.value.code == 48
    log.append(marker(pid=5, commit=False, coordinator_epoch=2))
    assert log.first_open_offset == 1
    log.append(data(5, 1))
    log.append(marker(pid=6, commit=True))
    log.append(marker(pid=5, commit=False, coordinator_epoch=2))
    assert log.first_open_offset == -1
    aborted = [(5, 0, 2, 1), (5, 3, 5, 6)]
    assert parse_transactions(disk.file(0, ".txnindex").read_bytes()) == aborted
    with pytest.raises(LogError) as error:
        log.append(marker(pid=5, commit=True, coordinator_epoch=1))
    assert error.value.code == 52
    log.close(clean=False)
    disk.file(0, ".txnindex").unlink()
    disk.system.move_wall_clock(NOW - disk.system.wall_ms())
    log = disk.open()
    assert parse_transactions(disk.file(0, ".txnindex").read_bytes()) == aborted
    log.close()
    assert parse_snapshot(disk.file(6, ".snapshot").read_bytes()) == {
        5: (0, 1, 3, 0, NOW, 2, -1),
        6: (0, 0, 1, 0, NOW, 0, -1),
    }


def test_producers_expire_but_not_open_transactions(tmp_path):
    disk = Disk(tmp_path)
    disk.system.move_wall_clock(NOW - disk.system.wall_ms())
    log = disk.open()
    for pid, attributes in ((1, 0), (2, 0x10)):
        log.append(
            batch(b"x", attributes=attributes, producer_id=pid, producer_epoch=0, base_sequence=0)
        )
    assert log.expire_producers() == 0
    disk.system.move_wall_clock(86_400_000)
    assert log.expire_producers() == 1
    assert log.counters()["producers"] == 1


def test_a_producer_snapshot_of_another_size_than_its_count_is_not_used(tmp_path):
    """Its CRC is right: a producer that it lacks could send a batch twice."""
    disk = Disk(tmp_path)
    disk.system.move_wall_clock(NOW - disk.system.wall_ms())
    log = disk.open()
    for pid in (1, 2):
        log.append(batch(b"x", producer_id=pid, producer_epoch=0, base_sequence=0))
    log.close()
    path = disk.file(2, ".snapshot")
    rest = (1).to_bytes(4, "big") + path.read_bytes()[10:]
    path.write_bytes(path.read_bytes()[:2] + crc32c(rest).to_bytes(4, "big") + rest)
    assert disk.open(clean=True).counters()["producers"] == 2


def test_producers_are_restored_from_batches_below_the_logs_start(tmp_path):
    """The records were deleted; a producer that the log does not know could send a batch twice.
    Found by tests/simulation/test_one_node.py, seed 776813729."""
    disk = Disk(tmp_path)
    disk.system.move_wall_clock(NOW - disk.system.wall_ms())
    log = disk.open()
    for sequence in range(2):
        log.append(batch(b"x", producer_id=1, producer_epoch=0, base_sequence=sequence))
    log.advance_log_start(2)
    log.close(clean=False)
    log = disk.open(log_start_offset=2)
    assert log.start_offset == 2 and log.counters()["producers"] == 1
    again = batch(b"x", producer_id=1, producer_epoch=0, base_sequence=1)
    assert log.append(again)[:2] == (1, 1) and log.end_offset == 2


def test_the_producer_snapshot_is_on_disk_before_segments_are_deleted(tmp_path, monkeypatch):
    """After a power cut nothing else would have the producers of the deleted batches: they got
    OUT_OF_ORDER_SEQUENCE_NUMBER. Found by tests/simulation/test_one_node.py, seed 1349976724."""
    disk = Disk(tmp_path, segment_bytes=1_500)
    log = disk.open()
    fill(log, 60)
    bases = [info.base_offset for info in log.segments()]
    real, flushed = log_files.sync_snapshot, []

    def sync_snapshot(directory, offset):
        flushed.append((offset, len(log.segments())))
        real(directory, offset)

    monkeypatch.setattr(log_files, "sync_snapshot", sync_snapshot)
    assert log.delete_segments_before(bases[2] + 1) == bases[:2]
    assert log.delete_segments_before(bases[2]) == []
    assert flushed == [(bases[2], len(bases))] and disk.file(bases[2], ".snapshot").exists()


def test_many_producers_survive_snapshot_and_expiry(tmp_path):
    disk = Disk(tmp_path)
    disk.system.move_wall_clock(NOW - disk.system.wall_ms())
    log = disk.open()
    pids = random.Random(3).sample(range(2**40), 700)
    minute_ms = 60_000  # the clock goes on while the test runs: far more than it takes
    for pid in pids:
        log.append(
            batch(
                b"x",
                at=NOW + pid % 3 * minute_ms,
                producer_id=pid,
                producer_epoch=1,
                base_sequence=pid % 99,
            )
        )
    log.close()
    assert set(parse_snapshot(disk.file(700, ".snapshot").read_bytes())) == set(pids)
    log = disk.open(clean=True)
    for pid in pids:
        again = batch(
            b"x",
            at=NOW + pid % 3 * minute_ms,
            producer_id=pid,
            producer_epoch=1,
            base_sequence=pid % 99,
        )
        assert log.append(again).duplicate
    one_and_a_half = NOW + 86_400_000 + 3 * minute_ms // 2
    disk.system.move_wall_clock(one_and_a_half - disk.system.wall_ms())
    gone = log.expire_producers()
    assert gone == sum(pid % 3 < 2 for pid in pids)
    left = [pid for pid in pids if pid % 3 == 2]
    for pid in left:
        with pytest.raises(LogError):
            log.append(batch(b"x", producer_id=pid, producer_epoch=0, base_sequence=0))


@pytest.mark.parametrize("call", ["pwritev", "open", "ftruncate"])
def test_a_refused_write_leaves_the_log_as_it_was(tmp_path, call):
    disk = Disk(tmp_path, segment_bytes=1_000, index_interval_bytes=200)
    log = disk.open()
    fill(log, 5)
    refusals = 0
    for i in range(60):
        rule = disk.system.fault(call, "error", errno=errno.ENOSPC)
        try:
            log.append(batch(b"z" * 60, at=NOW + i))
        except LogError as error:
            assert error.code == 56
            refusals += 1
            assert disk.system.fired(rule) == 1
        disk.system.clear_faults()
        assert not log.offline
        assert parse_header(log.read(log.end_offset - 1)).base_offset == log.end_offset - 1
    assert log.end_offset == 65 - refusals
    assert refusals > 0 or call == "ftruncate"
    log.close()
    for base in [int(n[:20]) for n in disk.names() if n.endswith(".log")]:
        parse_log(disk.file(base, ".log").read_bytes())


def test_a_truncation_to_what_was_flushed_is_flushed(tmp_path):
    """Otherwise a power cut could bring the removed bytes back, torn, below a later segment: the
    log did not open again. Found by tests/durability/test_simulated_log.py, seeds 1007 and 1010
    with 80 steps."""
    disk = Disk(tmp_path)
    log = disk.open()
    log.append(batch(b"kept"))
    log.flush()
    log.append(batch(b"removed"))
    disk.system.count_calls()
    before = disk.system.calls("fdatasync")
    log.truncate_to(1)
    assert disk.system.calls("fdatasync") == before + 1
    log.append(batch(b"other"))
    disk.system.fault("fdatasync", "error", errno=errno.EIO, path_contains=".log")
    with pytest.raises(LogError):
        log.truncate_to(1)
    assert log.offline
    log.close(clean=False)


def test_a_short_write_is_completed(tmp_path):
    disk = Disk(tmp_path)
    log = disk.open()
    log.append(batch(b"a"))
    rule = disk.system.fault("pwritev", "short", count=5, path_contains=".log")
    log.append(batch(b"x" * 1000))
    assert disk.system.fired(rule) == 5
    log.append(batch(b"c"))
    log.close()
    assert len(parse_log(disk.file(0, ".log").read_bytes())) == 3


def test_a_write_that_cannot_be_undone_takes_the_log_offline(tmp_path):
    disk = Disk(tmp_path)
    log = disk.open()
    log.append(batch(b"a"))
    disk.system.fault("pwritev", "error", errno=errno.EIO)
    disk.system.fault("ftruncate", "error", errno=errno.EIO)
    for _ in range(2):
        with pytest.raises(LogError) as error:
            log.append(batch(b"b"))
        assert error.value.code == 56
    assert log.offline
    assert parse_header(log.read(0)).base_offset == 0


def test_a_failed_flush_takes_the_log_offline_for_good(tmp_path):
    disk = Disk(tmp_path)
    log = disk.open()
    log.append(batch(b"a"))
    rule = disk.system.fault("fdatasync", "error", errno=errno.EIO)
    for _ in range(3):
        with pytest.raises(LogError) as error:
            log.flush()
        assert error.value.code == 56
    assert disk.system.fired(rule) == 1 and log.offline and log.flushed_offset == 0
    with pytest.raises(LogError):
        log.append(batch(b"b"))
    log.close(clean=False)
    assert not disk.open().offline
