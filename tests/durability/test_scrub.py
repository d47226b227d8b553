"""The scrub: old segments are read again; damage is logged, counted and never served."""

import ctypes
import logging
import mmap
import os
from pathlib import Path

import pytest
from durability.test_recovery import read_from
from node.test_settings import broker_with, create, fetch, files, produce, wire_to
from waiting import soon

from barnabas.storage.scrub import ROUND_MS

RATE = "log.scrub.bytes.per.second"
VALUE = b"x" * 700
PAGE = mmap.PAGESIZE


def filled(wire, count=10, name="t"):
    """A topic with one batch in each segment."""
    create(wire, name, {"segment.bytes": 1024})
    for _ in range(count):
        assert produce(wire, name, VALUE).errorCode == 0


def flip(path: Path, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def scrubbed(broker) -> int:
    """The bytes that a whole round reads, without the waits between its steps."""
    total = 0
    while found := broker.node.running.scrub.run():
        total += found
    return total


def test_log_scrub_bytes_per_second(tmp_path):
    with broker_with(tmp_path, {"log.scrub.bytes.per.second": 2000}) as b, wire_to(b) as wire:
        filled(wire)
        size = files(b, "t")[0].stat().st_size
        turns = []
        while found := b.node.running.scrub.run():
            turns.append(found)
        assert all(2000 <= turn < 2000 + size for turn in turns[:-1]), turns
        assert sum(turns) == 9 * size, "every sealed segment, and not the active one"
    with broker_with(tmp_path / "off", {RATE: 0}) as b, wire_to(b) as wire:
        filled(wire)
        assert b.node.running.scrub.run() == 0


def test_damage_in_bytes_of_our_own_is_reported_counted_and_not_served(tmp_path, caplog):
    with broker_with(tmp_path) as b, wire_to(b) as wire:
        filled(wire)
        path = files(b, "t")[3]
        size = path.stat().st_size
        flip(path, 200)
        [row] = fetch(wire, "t", offset=3).responses[0].partitions
        assert row.errorCode == 0, "nobody knows yet"
        with caplog.at_level(logging.ERROR, "barnabas.logs"):
            scrubbed(b)
            soon(lambda: caplog.messages, "the damage is not logged")
        assert b.node.loaded.logs.corrupt_ranges == 1
        [line] = caplog.messages
        assert line.startswith(f"t-0: bytes 0 to {size} of {path} hold no valid batch")
        assert read_from(wire, 3)[0] == 2
        for offset in (2, 4):
            assert read_from(wire, offset)[1][offset] == VALUE
        b.node.system.move_monotonic(ROUND_MS)
        assert scrubbed(b) > 0
        assert b.node.loaded.logs.corrupt_ranges == 1, "the same damage counts once"


def test_frames_that_are_lost_reach_to_the_end_of_the_segment(tmp_path):
    with broker_with(tmp_path) as b, wire_to(b) as wire:
        create(wire, "t", {"segment.bytes": 4096})
        for _ in range(8):
            assert produce(wire, "t", VALUE).errorCode == 0
        size = files(b, "t")[0].stat().st_size
        one = size // 5
        flip(files(b, "t")[0], 2 * one + 8)
        scrubbed(b)
        [found] = b.node.loaded.logs.take_damage()
        assert (found.base_offset, found.first, found.end) == (0, 2 * one, size)
        assert b.node.loaded.logs.take_damage() == []


def test_a_round_comes_once_a_day(tmp_path):
    with broker_with(tmp_path) as b, wire_to(b) as wire:
        filled(wire)
        whole = scrubbed(b)
        assert whole > 0 and b.node.running.scrub.run() == 0
        b.node.system.move_monotonic(ROUND_MS - 60_000)
        assert b.node.running.scrub.run() == 0
        b.node.system.move_monotonic(120_000)
        assert scrubbed(b) == whole


def test_the_scrub_goes_no_further_once_the_broker_stops(tmp_path):
    with broker_with(tmp_path) as b, wire_to(b) as wire:
        filled(wire)
        b.node.running.scrub._stopping = lambda: b.node.running.scrub.bytes_read > 0
        size = files(b, "t")[0].stat().st_size
        assert b.node.running.scrub.run() == size


def test_a_topic_deleted_during_a_round_is_passed_over(tmp_path):
    with broker_with(tmp_path, {RATE: 1000}) as b, wire_to(b) as wire:
        filled(wire, name="a")
        filled(wire, name="b")
        assert b.node.running.scrub.run() > 0
        b.node.loaded.logs.delete("a")
        assert scrubbed(b) >= 9 * VALUE.__len__()
        assert b.node.loaded.logs.corrupt_ranges == 0


def resident_pages(path: Path) -> int:
    size = path.stat().st_size
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), size) as view:
        address = ctypes.addressof(ctypes.c_char.from_buffer(view))
        pages = (ctypes.c_ubyte * (-(-size // PAGE)))()
        assert libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), pages) == 0
        return sum(page & 1 for page in pages)


def make_cold(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def test_the_page_cache_is_left_as_it_was(tmp_path):
    with broker_with(tmp_path) as b, wire_to(b) as wire:
        create(wire, "t", {"segment.bytes": 300_000})
        for _ in range(4):
            assert produce(wire, "t", b"x" * 200_000).errorCode == 0
        cold, warm, _ = files(b, "t")[:3]
        make_cold(cold)
        if resident_pages(cold):
            pytest.skip("this file system keeps its pages")
        pages = resident_pages(warm)
        assert pages == -(-warm.stat().st_size // PAGE)
        assert scrubbed(b) > 600_000
        assert resident_pages(cold) == 0
        assert resident_pages(warm) == pages
