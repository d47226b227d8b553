"""A future log takes the place of the current log: same handle, other files (KIP-113)."""

import errno
import random
import struct
import threading

import pytest
from oracle.log_builder import NOW, Disk, batch

from barnabas.cext.log.future_log import replace_with_future
from barnabas.cext.log.log_handle import LogError, LogHandle
from barnabas.storage.future_logs import copy_step

WHOLE = 1 << 20
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")


def placed(offset, epoch, *values):
    """A batch as a leader stores it."""
    made = bytearray(batch(*values))
    struct.pack_into(">q", made, 0, offset)
    struct.pack_into(">i", made, 12, epoch)
    return bytes(made)


def files(directory):
    """The contents of the segments' files."""
    found = sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES)
    return {path.name: path.read_bytes() for path in found}


def moved_disk(tmp_path, **settings):
    """A disk with a log in `one`, and a future log in `two`."""
    for name in ("one/t-0", "two/t-0.x-future"):
        (tmp_path / name).mkdir(parents=True)
    disk = Disk(tmp_path / "one" / "t-0", **settings)
    disk.system.move_wall_clock(NOW - disk.system.wall_ms())
    current = disk.open()
    disk.directory = tmp_path / "two" / "t-0.x-future"
    return disk, current, disk.open(clean=True)


def replaced(tmp_path, current, future, bytes_max=WHOLE):
    return replace_with_future(current, future, tmp_path / "two" / "t-0", bytes_max)


def copied(current, future):
    while copy_step(current, future, 3_000):
        pass


def filled(current, count=200, seed=7):
    rng = random.Random(seed)
    for i in range(count):
        values = [rng.randbytes(rng.randrange(400)) for _ in range(rng.randrange(1, 4))]
        current.append(batch(*values, at=NOW + i), leader_epoch=i // 90)


def test_the_moved_log_has_the_files_of_the_other_directory(tmp_path):
    disk, current, future = moved_disk(tmp_path, segment_bytes=20_000, index_interval_bytes=200)
    filled(current)
    before = current.read(0, 1 << 30)
    copied(current, future)
    current.append(batch(b"newest"), leader_epoch=2)  # the rest is copied while appends wait
    end, epochs = current.end_offset, current.leader_epochs()
    assert replaced(tmp_path, current, future)
    assert not (tmp_path / "two" / "t-0.x-future").exists()
    assert current.directory == str(tmp_path / "two" / "t-0")
    assert future.directory == str(tmp_path / "one" / "t-0")
    assert (current.end_offset, current.flushed_offset, current.leader_epochs()) == (
        end,
        end,
        epochs,
    )
    assert len(current.segments()) > 3 and current.read(0, 1 << 30).startswith(before[:20_000])
    future.close(clean=False)
    old = files(tmp_path / "one" / "t-0")
    filled(current, seed=8)  # rolls: new segments are made in the new directory
    current.truncate_to(end)
    filled(current, 20, seed=9)
    assert files(tmp_path / "one" / "t-0") == old
    content = b"".join(current.read(info.base_offset, 1 << 20) for info in current.segments())
    expected = current.end_offset
    current.close()
    disk.directory = tmp_path / "two" / "t-0"
    again = disk.open(clean=True)
    assert again.end_offset == expected and not again.recovered.messages
    assert b"".join(again.read(i.base_offset, 1 << 20) for i in again.segments()) == content
    again.close()


def test_producers_and_verifications_stay(tmp_path):
    _, current, future = moved_disk(tmp_path)
    current.append(batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0))
    number = current.begin_verification(8)
    copied(current, future)
    assert replaced(tmp_path, current, future)
    again = current.append(batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0))
    assert again.duplicate and again.last_offset == 0
    fields = {"producer_id": 8, "producer_epoch": 0, "base_sequence": 0, "attributes": 0x10}
    assert current.append(batch(b"b", **fields), verification=number).first_offset == 1


def test_too_much_is_missing(tmp_path):
    _, current, future = moved_disk(tmp_path)
    filled(current)
    assert not replaced(tmp_path, current, future, bytes_max=100)
    assert future.directory.endswith("-future") and current.directory.endswith("one/t-0")
    copied(current, future)
    assert replaced(tmp_path, current, future, bytes_max=100)


@pytest.mark.parametrize("cut", ["the end", "all"])
def test_a_truncation_of_the_current_log_reaches_the_copy(tmp_path, cut):
    """Other records get the same offsets and, after a cut of unflushed records, the same epoch."""
    _, current, future = moved_disk(tmp_path, segment_bytes=20_000)
    filled(current)
    copied(current, future)
    if cut == "all":
        current.truncate_fully_and_start_at(50)
    else:
        current.truncate_to(150)
    current.append_as_follower(placed(current.end_offset, 9, *[b"other"] * 400))
    assert current.end_offset > future.end_offset
    assert not replaced(tmp_path, current, future)
    copied(current, future)
    assert replaced(tmp_path, current, future)
    assert b"other" in current.read(150)


def test_deleted_records_are_deleted_in_the_copy(tmp_path):
    _, current, future = moved_disk(tmp_path, segment_bytes=20_000)
    filled(current)
    copied(current, future)
    start = current.segments()[2].base_offset + 1
    current.advance_log_start(start)
    current.delete_segments_before(start)
    copied(current, future)
    assert future.start_offset == start
    assert future.segments()[0].base_offset == current.segments()[0].base_offset
    current.advance_log_start(current.end_offset)
    copied(current, future)
    assert replaced(tmp_path, current, future)
    assert current.start_offset == current.end_offset


def test_a_copy_begins_at_a_start_inside_a_batch(tmp_path):
    (tmp_path / "one" / "t-0").mkdir(parents=True)
    (tmp_path / "two" / "t-0.x-future").mkdir(parents=True)
    disk = Disk(tmp_path / "one" / "t-0")
    current = disk.open()
    current.append(batch(b"a", b"b", b"c"))
    current.advance_log_start(1)
    disk.directory = tmp_path / "two" / "t-0.x-future"
    future = disk.open(clean=True, log_start_offset=current.segments()[0].base_offset)
    copied(current, future)
    assert (future.start_offset, future.end_offset) == (1, 3)


def test_all_records_of_a_log_were_deleted_before_they_were_copied(tmp_path):
    _, current, future = moved_disk(tmp_path)
    filled(current, 10)
    current.advance_log_start(current.end_offset)
    copied(current, future)
    assert future.end_offset == current.end_offset
    assert replaced(tmp_path, current, future)


def test_a_rename_that_fails_changes_nothing(tmp_path):
    disk, current, future = moved_disk(tmp_path)
    filled(current, 10)
    copied(current, future)
    disk.system.fault("rename", "error", errno=errno.EACCES)
    with pytest.raises(LogError, match="cannot replace"):
        replaced(tmp_path, current, future)
    assert current.directory.endswith("one/t-0") and future.directory.endswith("-future")
    current.append(batch(b"goes on"), leader_epoch=2)
    copied(current, future)
    assert replaced(tmp_path, current, future)


def test_a_name_that_cannot_be_brought_to_disk_takes_the_log_offline(tmp_path):
    disk, current, future = moved_disk(tmp_path)
    filled(current, 10)
    copied(current, future)
    future.flush()
    disk.system.fault("fsync_directory", "error", errno=errno.EIO)
    assert replaced(tmp_path, current, future)
    assert current.offline
    with pytest.raises(LogError):
        current.append(batch(b"x"), leader_epoch=2)


def test_readers_and_a_writer_go_on_while_logs_move_to_and_fro(tmp_path):
    """Each reader reads every record once, in order; every append is in the log."""
    disk, current, future = moved_disk(tmp_path, segment_bytes=4_000, index_interval_bytes=200)
    ends, errors, stop, done = [0, 0], [], threading.Event(), threading.Event()

    def write():
        while not stop.is_set():
            current.append(batch(b"%08d" % current.end_offset * 20))

    def read(which):
        try:
            while not done.is_set() or ends[which] < current.end_offset:
                data = current.read(ends[which], 10_000)
                at = 0
                while len(data) - at > 12:
                    size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
                    if len(data) - at < size:
                        break
                    assert int.from_bytes(data[at : at + 8], "big") == ends[which]
                    assert b"%08d" % ends[which] in data[at : at + size]
                    ends[which] += 1
                    at += size
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write)]
    threads += [threading.Thread(target=read, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    handle: LogHandle = future
    for turn in range(20):
        old, new = ("one", "two") if turn % 2 == 0 else ("two", "one")
        while copy_step(current, handle, 100_000) > 50_000:
            pass
        while not replace_with_future(current, handle, tmp_path / new / "t-0", 1 << 20):
            copy_step(current, handle, 100_000)
        handle.close(clean=False)
        aside = tmp_path / old / f"t-0.{turn}-delete"
        (tmp_path / old / "t-0").rename(aside)
        disk.directory = tmp_path / old / f"t-0.{turn}-future"
        disk.directory.mkdir()
        handle = disk.open(clean=True)
    stop.set()
    threads[0].join()
    done.set()  # nothing is written any more
    for thread in threads[1:]:
        thread.join()
    assert not errors
    assert ends[0] == ends[1] == current.end_offset > 100
