"""Segments that another process owns: searches agree with a walk, and a file that is cut short
inside the map gives CutShort and no rows, never SIGBUS (which would end the process)."""

import os

import pytest
from oracle.log_builder import NOW, Disk, batch

from barnabas.cext.log.mapped_segment import CutShort, MappedSegment
from barnabas.cext.record.columns import ColumnsBuilder
from barnabas.wire.batches import decode_batches

COUNT = 300


@pytest.fixture
def filled(tmp_path):
    disk = Disk(tmp_path, segment_bytes=1 << 20, index_interval_bytes=200)
    log = disk.open()
    for number in range(COUNT):
        log.append(batch(b"%d" % number + b"x" * 80, at=NOW + number * 10))
    yield disk
    log.close()


def opened(disk):
    return MappedSegment(str(disk.file(0, ".log")), 0)


def positions(disk):
    data = disk.file(0, ".log").read_bytes()
    return {b.base_offset: b.start for b in decode_batches(data, size_max=1 << 20)}


def offsets_from(segment, at):
    builder = ColumnsBuilder()
    builder.only(0, 1 << 40)
    segment.add_to(builder, at)
    return memoryview(builder.finish().buffers()["offsets"]).cast("q").tolist()


def test_an_offset_is_sought_by_the_index(filled):
    starts = positions(filled)
    segment = opened(filled)
    for offset in range(COUNT):
        at = segment.position_of(offset)
        assert at in starts.values() and at <= starts[offset]
        assert starts[offset] - at < 1000
    assert segment.position_of(10**9) in starts.values()


def test_a_time_is_sought_by_the_index(filled):
    starts = positions(filled)
    segment = opened(filled)
    for number in range(COUNT):
        at = segment.position_before(NOW + number * 10)
        assert at in starts.values() and at <= starts[number]
        assert starts[number] - at < 1500


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["gone", "empty", "short", "noise", "false"])
def test_a_wrong_index_misleads_no_reader(filled, suffix, damage):
    path = filled.file(0, suffix)
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        changed = {
            "empty": b"",
            "short": data[:13],
            "noise": bytes(i * 89 % 256 for i in range(len(data))),
            # Every entry has a later offset or a larger position than its batch.
            "false": b"".join(
                data[i : i + 7] + bytes([data[i + 7] ^ 0x55]) for i in range(0, len(data) - 7, 8)
            ),
        }[damage]
        path.write_bytes(changed)
    segment = opened(filled)
    for number in range(0, COUNT, 7):
        if suffix == ".index":
            assert number in offsets_from(segment, segment.position_of(number))
        else:
            assert number in offsets_from(segment, segment.position_before(NOW + number * 10))


def test_a_file_cut_short_below_the_map_gives_no_rows(filled):
    segment = opened(filled)
    whole = offsets_from(segment, 0)
    builder = ColumnsBuilder()
    builder.only(0, 1 << 40)
    at = positions(filled)[100]
    segment.add_to(builder, positions(filled)[290])
    assert len(builder) == 10
    os.truncate(filled.file(0, ".log"), 4096)
    for act in (
        lambda: segment.add_to(builder, at),
        lambda: segment.copy(at, 5000),
    ):
        fresh = opened(filled)
        assert fresh.size_bytes == 4096
        try:
            act()
        except CutShort as error:
            assert "became shorter" in str(error)
        else:
            raise AssertionError("nobody noticed")
    assert len(builder) == 10
    assert len(whole) == COUNT


def test_what_was_cut_short_once_is_never_read_again(filled):
    """The map has zeros there from then on, which would look like a value of zeros."""
    segment = opened(filled)
    os.truncate(filled.file(0, ".log"), 0)
    builder = ColumnsBuilder()
    builder.only(0, 1 << 40)
    for _ in range(2):
        with pytest.raises(CutShort):
            segment.add_to(builder, 0)
    with pytest.raises(CutShort):
        segment.copy(0, 9)
    with pytest.raises(CutShort):
        segment.batch_bytes(0)
    assert len(builder) == 0
    assert segment.position_of(200) == 0
    assert segment.position_before(NOW + 100) == 0


def test_a_torn_tail_is_where_it_ends(filled):
    size = filled.file(0, ".log").stat().st_size
    data = filled.file(0, ".log").read_bytes()
    starts = positions(filled)
    for cut in (1, 30, 70):
        filled.file(1, ".log").write_bytes(data[: size - cut])
        segment = MappedSegment(str(filled.file(1, ".log")), 1)
        builder = ColumnsBuilder()
        builder.only(0, 1 << 40)
        assert segment.add_to(builder, 0) == starts[COUNT - 1]
        assert builder.stop == "cut off"
        assert len(builder) == COUNT - 1


def all_offsets(segment, bytes_max):
    """Reads as a scan does: columns are returned when they are full."""
    builder = ColumnsBuilder()
    builder.only(0, 1 << 40, bytes_max=bytes_max)
    found, at = [], 0
    while True:
        before, at = at, segment.add_to(builder, at)
        if builder.stop == "full":
            found += memoryview(builder.finish().buffers()["offsets"]).cast("q").tolist()
        elif at in (before, segment.size_bytes):
            found += memoryview(builder.finish().buffers()["offsets"]).cast("q").tolist()
            return found, at


@pytest.mark.parametrize("bytes_max", [1, 5000, 300_000, 1 << 40])
def test_batches_of_any_size_are_read_whole(tmp_path, bytes_max):
    """Pieces end inside batches, and some batches are larger than a piece."""
    disk = Disk(tmp_path, segment_bytes=1 << 26)
    log = disk.open()
    sizes = [10, 70_000, 300_000, 5, 900_000, 1 << 18, (1 << 18) - 200, 60_000, 60_000, 3] * 2
    for size in sizes:
        log.append(batch(os.urandom(size)))
    log.close()
    path = disk.file(0, ".log")
    assert all_offsets(MappedSegment(str(path), 0), bytes_max) == (
        list(range(len(sizes))),
        path.stat().st_size,
    )
    for cut in (3, 5, 100_000):  # the last batch, or the one that is larger than a piece
        segment = MappedSegment(str(path), 0)
        os.truncate(path, path.stat().st_size - cut)
        torn = MappedSegment(str(path), 0)
        found, at = all_offsets(torn, bytes_max)
        assert found == list(range(len(found)))
        assert at < torn.size_bytes
        with pytest.raises(CutShort):
            all_offsets(segment, bytes_max)


def test_an_empty_segment(tmp_path):
    path = tmp_path / f"{5:020d}.log"
    path.write_bytes(b"")
    segment = MappedSegment(str(path), 5)
    builder = ColumnsBuilder()
    assert segment.add_to(builder, 0) == 0
    assert builder.stop == "end"
    assert segment.position_of(9) == segment.position_before(9) == 0
    with pytest.raises(ValueError):
        segment.add_to(builder, 1)
