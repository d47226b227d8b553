"""After space is freed on a full disk, its offline partitions come back without a restart within 10
s. After a failed flush, a partition waits for a restart."""

import errno
import logging

import pytest
from api.admin_calls import admin_on
from durability import recording
from durability.recording import SimulatedDisk
from oracle.log_builder import Disk, batch

STORAGE_ERROR = 56


def faults(a, *calls, error=errno.ENOSPC):
    """The ids of the rules that make calls on the files of topic t fail."""
    system = a.broker.node.system
    return [
        system.fault(call, "error", errno=error, count=1 << 30, path_contains=path)
        for call, path in calls
    ]


def produce_after(a, seconds):
    """The error of a batch that is sent so many seconds later, by the broker's clock."""
    a.broker.clock.advance(seconds=seconds)
    return a.produce("t")


def test_a_partition_returns_whose_failed_write_could_not_be_cut_off(tmp_path, caplog):
    with caplog.at_level(logging.WARNING), admin_on(tmp_path) as a:
        a.create("t")
        assert a.produce("t", count=3) == 0
        rules = faults(a, ("pwritev", None), ("ftruncate", None))
        system = a.broker.node.system
        assert a.produce("t", size=100_000) == STORAGE_ERROR
        assert all(system.fired(rule) for rule in rules)
        assert a.broker.node.loaded.replicas.is_offline("t", 0)
        assert produce_after(a, 10) == STORAGE_ERROR  # an attempt before that fails
        system.clear_faults()
        assert produce_after(a, 10) == 0
        assert a.offset("t", -1) == 4
        assert "t-0 is online again" in caplog.text
    with admin_on(tmp_path) as a:
        assert a.offset("t", -1) == 4


def test_a_topic_made_on_a_full_disk_comes_into_service(tmp_path, caplog):
    with caplog.at_level(logging.WARNING), admin_on(tmp_path) as a:
        (rule,) = faults(a, ("open", "t-0/"))
        a.create("t")
        assert a.produce("t") == STORAGE_ERROR
        assert a.broker.node.system.fired(rule)
        a.broker.node.system.clear_faults()
        assert produce_after(a, 10) == 0
        assert a.offset("t", -1) == 1
    offline = [row for row in caplog.records if "t-0 is offline" in row.getMessage()]
    assert len(offline) == 1 and "No space left" in offline[0].getMessage()


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_failed_flush_waits_for_a_restart(tmp_path, error):
    with admin_on(tmp_path) as a:
        a.create("t")
        (rule,) = faults(a, ("fdatasync", None), error=error)
        assert a.produce("t") == STORAGE_ERROR
        assert a.broker.node.system.fired(rule)
        a.broker.node.system.clear_faults()
        assert [produce_after(a, 10) for _ in range(3)] == [STORAGE_ERROR] * 3
    with admin_on(tmp_path) as a:
        assert a.produce("t") == 0


@pytest.mark.skipif(recording.missing() is not None, reason=recording.missing() or "")
def test_what_a_failed_flush_has_lost_leaves_memory(tmp_path):
    """The kernel takes it for clean: a restarted broker would read it, and its next flush would
    succeed without writing it."""
    folder = tmp_path / "disk"
    disk = SimulatedDisk(folder)
    for call in recording.record(tmp_path, folder, "durability.failing_flush"):
        disk.apply(call)
        if call == ("mark", "", "", b"flushed", 0, 0):
            flushed = bytes(disk.at(f"{folder}/t-0/{0:020d}.log").now)
    assert call == ("mark", "", "", b"failed", 0, 0) and disk.lost_flushes == 1
    assert flushed and disk.at(f"{folder}/t-0/{0:020d}.log").now == flushed


def test_recovery_flushes_the_end_of_a_segment_that_it_cuts(tmp_path):
    """The next segment begins there: after a power cut recovery would not read this one again,
    and would find the damage only when it needs the records before it."""
    disk = Disk(tmp_path)
    log = disk.open(clean=True)
    log.append(bytearray(batch(b"kept")))
    log.close(clean=False)
    with open(disk.file(0, ".log"), "ab") as file:
        file.write(b"torn")
    rule = disk.system.fault("fdatasync", "error", errno=errno.EIO, path_contains=".log")
    with pytest.raises(OSError, match="cannot cut segment"):
        disk.open()
    assert disk.system.fired(rule)
    disk.system.clear_faults()
    assert disk.open().end_offset == 1
