"""Damage in the log: one line for each find, and a limited number of lines."""

import logging

from oracle.log_builder import Disk, batch

from barnabas.cext.log.damage import corrupt_ranges, take_damage
from barnabas.cext.log.scrub import scrub_segment
from barnabas.storage.damage_log import LINES_MAX, write_damage


class Logs:
    def __init__(self, disk: Disk) -> None:
        self._cache = disk.cache

    def take_damage(self):
        return take_damage(self._cache)


def damaged(tmp_path, count: int) -> tuple[Disk, object]:
    """A sealed segment of `count` batches with a flipped bit in each."""
    disk = Disk(tmp_path, segment_bytes=1_000_000)
    log = disk.open()
    for _ in range(count):
        log.append(batch(b"x" * 100))
    log.flush()
    log.roll()
    path = disk.file(0, ".log")
    content = bytearray(path.read_bytes())
    size = len(content) // count
    for number in range(count):
        content[number * size + 80] ^= 1
    path.write_bytes(content)
    return disk, log


def test_lines_have_a_limit_and_the_rest_is_counted(tmp_path, caplog):
    disk, log = damaged(tmp_path, LINES_MAX + 7)
    assert scrub_segment(log, 0, 0, 1 << 20)[1]
    with caplog.at_level(logging.ERROR, "barnabas.logs"):
        assert write_damage(Logs(disk)) == LINES_MAX + 7
        assert len(caplog.messages) == LINES_MAX + 1
        assert caplog.messages[-1] == "7 more damaged ranges of bytes were found"
        caplog.clear()
        assert write_damage(Logs(disk)) == 0 and not caplog.messages
    assert corrupt_ranges(disk.cache) == LINES_MAX + 7


def test_untaken_finds_are_counted_and_not_kept(tmp_path):
    disk, log = damaged(tmp_path, 100)
    scrub_segment(log, 0, 0, 1 << 20)
    assert corrupt_ranges(disk.cache) == 100
    assert len(take_damage(disk.cache)) == 64
    assert take_damage(disk.cache) == []


def test_a_second_look_finds_nothing_new(tmp_path):
    disk, log = damaged(tmp_path, 3)
    for _ in range(2):
        scrub_segment(log, 0, 0, 1 << 20)
    assert corrupt_ranges(disk.cache) == len(take_damage(disk.cache)) == 3


def test_the_active_segment_is_not_scrubbed(tmp_path):
    disk = Disk(tmp_path)
    log = disk.open()
    log.append(batch(b"x"))
    assert scrub_segment(log, 0, 0, 1 << 20) == (0, True)
