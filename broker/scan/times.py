"""Finds the first record at or after a time in a partition's files.

Timestamps of records need not ascend. An entry of a segment's time index says that every record
with a larger timestamp comes after the entry's offset. So the search begins at the last entry that
is earlier than the time, goes on segment by segment, and ends at the first record that is not
earlier.
"""

from contextlib import closing
from dataclasses import replace

from barnabas.cext.log.mapped_segment import MappedSegment
from barnabas.cext.record.columns import Columns
from barnabas.scan.log_directory import LogDirectory
from barnabas.scan.readers import Limits, Range
from barnabas.wire.columns import open_batch

PIECE_BYTES = 256 * 1024  # how much the search decodes before it compares timestamps


def offset_at(place: LogDirectory, wanted: Range, ms: int, limits: Limits) -> int:
    """Returns the offset of the first record of the range with a timestamp of at least `ms`; -1
    when all are earlier. Raises CorruptRecords, NoFilesHere, OSError."""
    offset = wanted.start
    if offset >= wanted.end:
        return -1
    segment = place.open_for(offset)
    while segment is not None and segment.base_offset < wanted.end:
        with closing(segment):
            found, offset = _in_segment(segment, replace(wanted, start=offset), ms, limits)
            if found is not None:
                return found
            following = place.open_for(max(offset, segment.base_offset), after=segment)
        segment = following
    return -1


def _in_segment(
    segment: MappedSegment, wanted: Range, ms: int, limits: Limits
) -> tuple[int | None, int]:
    """Returns (the record's offset or None, the offset to go on from)."""
    builder = replace(limits, batch_bytes=PIECE_BYTES).builder(wanted)
    at = max(segment.position_of(wanted.start), segment.position_before(ms))
    while True:
        before, at = at, segment.add_to(builder, at)
        stop = builder.stop
        if stop == "packed":
            batch = segment.batch_bytes(at)
            at += open_batch(builder, memoryview(batch), 0)
        columns: Columns = builder.finish()
        if (found := columns.first_at(ms)) is not None:
            return found, builder.next_offset
        if stop == "past" or (stop in ("end", "cut off") and at in (before, segment.size_bytes)):
            return None, builder.next_offset
