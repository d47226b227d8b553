"""Copies a log into its future log, in another log directory of the same broker (KIP-113).

    TOPIC-PARTITION.HEX32-future   the future log, until it replaces the current log

The copy has the batches of the current log unchanged, with offsets, leader epochs and timestamps,
up to the log's end. It follows the current log's start, so that retention and DeleteRecords reach
it, and its truncations. A copy that a stop interrupted goes on; records that the current log may
have lost since are cut off first (log_manager.py).

Kafka: ReplicaAlterLogDirsThread. Next: cext/log/future_log.pyx, which replaces the current log.
"""

from barnabas.cext.log.log_handle import LogError, LogHandle
from barnabas.errors import OffsetOutOfRange


def copy_step(current: LogHandle, future: LogHandle, size_max: int) -> int:
    """Brings the future log nearer to the current log: truncates it, moves its start, or copies
    about `size_max` bytes of batches. Returns the number of copied bytes; 0 when the future log
    has all records, or was only truncated. Raises LogError, OSError."""
    offset = current.take_truncation()
    if offset < future.end_offset:
        future.truncate_to(offset)
    start, end = current.start_offset, current.end_offset
    if future.end_offset < start == end:
        future.truncate_fully_and_start_at(end)  # all records of the current log were deleted
    copied = 0
    if future.end_offset < end:
        copied = _copy(current, future, max(future.end_offset, start), size_max)
    if future.start_offset < start:
        future.advance_log_start(start)
        future.delete_segments_before(future.start_offset)
    if future.holds_deleted:
        future.unlink_deleted()  # the future log has no readers
    return copied


def _copy(current: LogHandle, future: LogHandle, offset: int, size_max: int) -> int:
    try:
        records = current.read(offset, size_max)
    except LogError as error:
        if error.code != OffsetOutOfRange.code:
            raise
        return 0  # the log's start or end has just moved beyond the offset: see the next step
    return int(future.append_as_follower(records).size_bytes)
