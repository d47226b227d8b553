"""Segments are swapped, deleted and added while a reader that does not own the directory reads."""

import os

import pytest
from oracle.log_builder import NOW, batch

from barnabas.cext.record.columns import ColumnsBuilder
from barnabas.scan.failures import NoFilesHere
from barnabas.scan.log_directory import ABORTED_ENTRY, LogDirectory


def put(place, base_offset, *offsets):
    """Writes a segment with one record at each of these offsets, and renames it as brokers do."""
    data = b"".join(batch(b"v%d" % offset, at=NOW, base_offset=offset) for offset in offsets)
    file = place.path / f"{base_offset:020d}.log"
    making = file.with_suffix(".cleaned")
    making.write_bytes(data)
    os.rename(making, file)


def take_away(place, base_offset):
    (place.path / f"{base_offset:020d}.log").unlink()


def abort(place, base_offset, producer_id, first, last):
    entry = ABORTED_ENTRY.pack(0, producer_id, first, last, last + 1)
    (place.path / f"{base_offset:020d}.txnindex").write_bytes(entry)


@pytest.fixture
def place(tmp_path):
    place = LogDirectory(tmp_path, "t", 0)
    put(place, 0, 0, 1, 2)
    put(place, 450, 450, 451)
    put(place, 900, 900, 901)
    put(place, 1400, 1400)
    return place


def offsets_behind(segment, offset):
    builder = ColumnsBuilder()
    builder.only(offset, 1 << 40)
    segment.add_to(builder, segment.position_of(offset))
    return memoryview(builder.finish().buffers()["offsets"]).cast("q").tolist()


def test_segments_are_opened_one_after_another(place):
    read, segment = [], place.open_for(1)
    while segment is not None:
        read.append(segment.base_offset)
        segment = place.open_for(segment.base_offset + 2, after=segment)
    assert read == [0, 450, 900, 1400]


def test_a_merged_segment_may_begin_before_the_one_that_was_read(place):
    """450 was read to its end; then 0, 450 and 900 became one segment, which holds the rest."""
    read = place.open_for(450)
    for base in (0, 450, 900):
        take_away(place, base)
    put(place, 0, 0, 450, 900, 901)
    merged = place.open_for(452, after=read)
    assert (merged.base_offset, offsets_behind(merged, 452)) == (0, [900, 901])
    assert place.open_for(902, after=merged).base_offset == 1400


def test_a_merged_segment_in_the_place_of_the_one_that_was_read(place):
    read = place.open_for(0)
    take_away(place, 450)
    put(place, 0, 2, 450, 451)
    merged = place.open_for(3, after=read)
    assert (merged.base_offset, offsets_behind(merged, 3)) == (0, [450, 451])


def test_what_was_read_is_gone_and_nothing_is_behind(place):
    last = place.open_for(1400)
    take_away(place, 1400)
    before = place.open_for(1401, after=last)
    assert before.base_offset == 900 and place.open_for(1401, after=before) is None


def test_a_look_at_several_files_is_of_one_state(place):
    abort(place, 900, 7, 900, 901)
    looks = []

    def swap_below(bases):
        looks.append(bases)
        if len(looks) == 1:
            put(place, 450, 450, 900)
            take_away(place, 900)
        return sum(len((place.path / f"{base:020d}.log").read_bytes()) for base in bases)

    assert place.of_one_state(swap_below) > 0
    assert looks == [[0, 450, 900, 1400], [0, 450, 1400]]


def test_the_same_names_may_be_other_files(place):
    looks = []

    def swap_below(bases):
        looks.append(bases)
        if len(looks) == 1:
            put(place, 450, 451)

    place.of_one_state(swap_below)
    assert len(looks) == 2


def test_aborted_transactions_are_of_the_segments_as_they_are(place, monkeypatch):
    """The index of 900 is read after its segment has become part of 450."""
    abort(place, 900, 7, 900, 901)
    of_segment = LogDirectory._aborted_of

    def late(self, base_offset):
        if base_offset == 900:
            (place.path / f"{900:020d}.txnindex").rename(place.path / f"{450:020d}.txnindex")
            put(place, 450, 450, 900, 901)
            take_away(place, 900)
        return of_segment(self, base_offset)

    monkeypatch.setattr(LogDirectory, "_aborted_of", late)
    assert place.aborted(0, 2000) == [(7, 900, 901)]


def test_an_added_segment_is_no_matter(place):
    looks = []

    def rolled(bases):
        looks.append(bases)
        put(place, 1500, 1500)

    place.of_one_state(rolled)
    assert len(looks) == 1


def test_what_is_missing_otherwise_is_said(place):
    def look(bases):
        return (place.path / "nothing").read_bytes()

    with pytest.raises(FileNotFoundError):
        place.of_one_state(look)


def test_a_state_that_never_stays(place):
    def look(bases):
        put(place, 450, 450)

    with pytest.raises(NoFilesHere, match="segments are deleted faster"):
        place.of_one_state(look)
