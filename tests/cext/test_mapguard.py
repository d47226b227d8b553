"""An index file is cut short while a thread reads it: the thread reads zeros, without a SIGBUS. Any
other SIGBUS has its former effect."""

import os
import signal
import subprocess
import sys

import pytest
from oracle.log_builder import NOW, Disk, batch

COUNT = 200

OURS = """
import faulthandler, mmap, os, signal, sys, tempfile
{before}
from barnabas.cext.log.segment import SegmentCache
cache = SegmentCache()
with tempfile.TemporaryFile() as file:
    file.truncate(8192)
    view = mmap.mmap(file.fileno(), 8192)
    file.truncate(0)
    {fault}
print("went on")
"""


def filled(tmp_path):
    disk = Disk(tmp_path, segment_bytes=100_000, index_interval_bytes=100)
    log = disk.open()
    for number in range(COUNT):
        log.append(batch(b"x" * 80, at=NOW + number))
    return disk, log


@pytest.mark.parametrize("sealed", [False, True], ids=["active", "sealed"])
def test_an_index_cut_short_misleads_no_reader(tmp_path, sealed):
    disk, log = filled(tmp_path)
    if sealed:
        log.roll()
    lost = disk.cache.lost_index_pages
    for suffix in (".index", ".timeindex"):
        os.truncate(disk.file(0, suffix), 0)
    for offset in range(COUNT):
        assert int.from_bytes(log.read(offset, 1)[:8], "big") == offset
        assert log.offset_for_time(NOW + offset)[0] == offset
    assert disk.cache.lost_index_pages == lost + 2
    for number in range(COUNT, COUNT + 50):
        assert log.append(batch(b"x" * 80, at=NOW + number)).first_offset == number
    log.close()
    log = disk.open(clean=True)
    for offset in range(COUNT + 50):
        assert int.from_bytes(log.read(offset, 1)[:8], "big") == offset
        assert log.offset_for_time(NOW + offset)[0] == offset


def run(before: str, fault: str) -> subprocess.CompletedProcess:
    code = OURS.format(before=before, fault=fault)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


SENT = "os.kill(os.getpid(), signal.SIGBUS)"


@pytest.mark.parametrize("fault", ["view[0]", SENT], ids=["touched", "sent"])
def test_a_bus_error_elsewhere_still_ends_the_process(fault):
    done = run("", fault)
    assert done.returncode == -signal.SIGBUS
    assert "went on" not in done.stdout


def test_a_bus_error_elsewhere_goes_to_the_former_handler():
    done = run("faulthandler.enable()", "view[0]")
    assert done.returncode == -signal.SIGBUS
    assert "Fatal Python error: Bus error" in done.stderr
