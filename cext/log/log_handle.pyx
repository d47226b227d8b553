"""Python's owner of a log: open with recovery, append, read, flush, roll, truncate, delete, close.

The log itself is in cext/log/log.pyx; cext/log/log_files.py decides what the opening does with the
files. Every method that uses the disk releases the GIL. A failure that has an error code of Kafka's
protocol is a LogError with that code; broker/errors.py has their names.

Opening: first the leftovers of a crash are removed. After an unclean stop every segment from the
recovery point on is recovered (cext/log/recover.pyx); after a clean one the log's end is found in
the last segment. Missing and damaged indexes are rebuilt in both cases. Producer state comes from
the newest whole snapshot and the batches after it.

Next on the data path: cext/log/log.pyx.
"""
cimport cython
import os
from collections import namedtuple

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from barnabas.cext.log.follower_append cimport (
    APPEND_BELOW_START, FollowerAppend, log_append_as_follower,
)
from barnabas.cext.log.leader_epochs cimport (
    EpochEntry, leader_epochs_assign, leader_epochs_cut_end, leader_epochs_cut_start,
    leader_epochs_latest,
)
from barnabas.cext.log.log_transactions cimport (
    log_begin_verification, log_end_verification, log_expect_transaction, log_transactions_restored,
)
from barnabas.cext.log.log cimport (
    Appended, BUMPING_MARKER as LOG_BUMPING_MARKER, LOG_TIME_COMPRESSED, Log, LogConfig, LogMarks,
    LogSlice, SegmentList, TRUSTED as LOG_TRUSTED, log_append, log_append_verified, log_cut_again, log_end_offset,
    log_epoch_end, log_first_open_offset, log_flush, log_flushed_offset, log_free, log_is_offline,
    log_new, log_new_active, log_offset_for_time, log_offset_of_max_time, log_publish, log_read,
    log_roll, log_start_offset, log_write_snapshot, segment_list_of,
)
from barnabas.cext.log.producers cimport (
    Producer, Producers, producers_expire, producers_free, producers_init, snapshot_read,
)
from barnabas.cext.log.recover cimport (
    SegmentFacts, segment_cut_tail, segment_indexes_agree, segment_measure, segment_recover, segment_reindex,
    segment_reindex_aborts,
)
from barnabas.cext.log.segment cimport (
    Segment, SegmentCache, segment_fd, segment_indexes_fit, segment_load_times, segment_new,
    segment_open_active, segment_open_indexes, segment_open_sealed, segment_own_log, segment_release,
    segment_seal,
)
from barnabas.cext.log.truncation cimport (
    log_advance_start, log_begin_truncation, log_cut_to, log_delete_before, log_end_truncation,
    log_replace_all, log_restore_producers,
)
from barnabas.cext.log.txn_index cimport txn_index_agrees
from barnabas.cext.memory.epoch cimport Epochs, epoch_enter, epoch_leave, epoch_wait
from barnabas.cext.memory.mutex cimport pthread_mutex_lock, pthread_mutex_unlock
from barnabas.cext.memory.sys cimport SystemCalls, read_whole
from barnabas.cext.record.batch_at cimport SEGMENT_CORRUPT
from barnabas.cext.record.records cimport BatchHeader, RECORDS_OK, batch_header

from barnabas.cext.log import cut_files, log_files

cdef enum:
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    STORAGE_ERROR = 56

TRUSTED = LOG_TRUSTED
BUMPING_MARKER = LOG_BUMPING_MARKER

LogSettings = namedtuple(
    "LogSettings",
    "segment_bytes segment_ms segment_jitter_ms index_interval_bytes segment_index_bytes "
    "producer_id_expiration_ms preallocate flush_messages",
    defaults=(1 << 30, 604_800_000, 0, 4096, 10_485_760, 86_400_000, False, 0x7FFFFFFFFFFFFFFF))
AppendResult = namedtuple("AppendResult", "first_offset last_offset log_start_offset duplicate")
FollowerAppendResult = namedtuple("FollowerAppendResult", "size_bytes batches end_offset")
SegmentInfo = namedtuple(
    "SegmentInfo", "base_offset size_bytes flushed_bytes largest_timestamp active")
ProducerState = namedtuple(
    "ProducerState",
    "producer_id epoch last_sequence last_timestamp coordinator_epoch txn_first_offset last_offset")
Recovered = namedtuple(
    "Recovered", "segments_walked batches records cut_bytes segments_dropped messages missing "
    "ends_early cuts")


class LogError(Exception):
    """An operation of a log failed; `code` is Kafka's error code for the answer."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


cdef LogConfig _config(object settings) except *:
    cdef LogConfig config
    config.segment_bytes = settings.segment_bytes
    config.segment_ms = settings.segment_ms
    config.segment_jitter_ms = settings.segment_jitter_ms
    config.index_interval_bytes = settings.index_interval_bytes
    config.segment_index_bytes = settings.segment_index_bytes
    config.producer_id_expiration_ms = settings.producer_id_expiration_ms
    config.preallocate = settings.preallocate
    config.flush_messages = settings.flush_messages
    if not 14 <= config.segment_bytes <= 0x7FFFFFFF:
        raise ValueError(f"segment_bytes is {config.segment_bytes}; it must be 14 to {0x7FFFFFFF}")
    if config.segment_index_bytes < 24:
        raise ValueError(
            f"segment_index_bytes is {config.segment_index_bytes}; it must be at least 24")
    return config


cdef object _os_error(int status, str what):
    return OSError(-status, f"{what}: {os.strerror(-status)}")


cdef Log* _open_log(LogHandle handle) except NULL:
    if handle.log == NULL:
        raise LogError(STORAGE_ERROR, f"the log {handle.directory} is closed")
    return handle.log


# ---------------------------------------------------------------------------- opening, step by step

cdef int _push_segment(Log* log, Segment* segment) except -1:
    """Adds a segment at the end of the list. No other thread may see the log yet."""
    cdef SegmentList* grown = segment_list_of(log.segments.count + 1)
    if grown == NULL:
        raise MemoryError
    memcpy(grown.items, log.segments.items, log.segments.count * sizeof(Segment*))
    grown.items[log.segments.count] = segment
    free(log.segments)
    log.segments = grown
    return 0


cdef Segment* _existing(Log* log, int64_t base_offset, bint reindex) except NULL:
    """Opens a segment on disk as an active one; with `reindex` its indexes are opened empty. A
    segment that is too small for an index entry gets its indexes at the next append, because a
    broker has thousands of small partitions. Raises OSError, MemoryError."""
    cdef Segment* segment = segment_new(log.pool, log.directory, base_offset)
    cdef int64_t needs_none_bytes
    cdef int status
    if segment == NULL:
        raise MemoryError
    with nogil:
        status = segment_open_active(segment, log.system, False, 0)
        needs_none_bytes = 0 if reindex else log.config.index_interval_bytes
        if status == 0 and segment.size_bytes > needs_none_bytes:
            status = segment_open_indexes(
                segment, log.system, log.config.segment_index_bytes, reindex)
    if status < 0:
        segment_release(segment)
        raise _os_error(status, f"cannot open segment {base_offset}")
    return segment


cdef Segment* _with_true_indexes(Log* log, int64_t base_offset, dict whole) except NULL:
    """Opens a segment as _existing does. When an index does not agree with the .log, it opens the
    indexes empty and sets `whole[base_offset]` to False."""
    cdef Segment* segment = _existing(log, base_offset, not whole[base_offset])
    cdef int agree
    if not whole[base_offset]:
        return segment
    with nogil:
        agree = segment_indexes_agree(segment, log.system)
    if agree == 1:
        return segment
    segment_release(segment)
    if agree < 0:
        raise _os_error(agree, f"cannot check the indexes of segment {base_offset}")
    whole[base_offset] = False
    return _existing(log, base_offset, True)


cdef int64_t _measured_end(Log* log, Segment* segment) except -2:
    """Returns the end offset of a sealed segment, or -1 when its last bytes are not a batch. Raises
    OSError."""
    cdef int64_t end_offset, valid_bytes
    cdef int status
    with nogil:
        status = segment_measure(segment, log.system, &end_offset, &valid_bytes)
    if status < 0:
        raise _os_error(status, f"cannot read segment {segment.base_offset}")
    return end_offset if valid_bytes == segment.size_bytes else -1


cdef bint _opens_sealed(Log* log, int64_t base_offset, int64_t* end_offset) except -1:
    """Adds a sealed segment whose indexes are as a clean roll or close leaves them, and sets
    `end_offset`. Returns False, and adds nothing, for other indexes. Raises OSError,
    MemoryError."""
    cdef Segment* segment = segment_new(log.pool, log.directory, base_offset)
    cdef int status
    cdef bint fit = False
    if segment == NULL:
        raise MemoryError
    with nogil:
        status = segment_open_sealed(segment, log.system)
        if status == 0 and segment_indexes_fit(segment):
            status = segment_indexes_agree(segment, log.system)
            fit = status == 1
        if fit:
            status = segment_load_times(segment, log.system, segment.size_bytes)
    if status < 0 or not fit:
        segment_release(segment)
        if status < 0 and status != SEGMENT_CORRUPT:
            raise _os_error(status, f"cannot open segment {base_offset}")
        return False
    _push_segment(log, segment)
    end_offset[0] = _measured_end(log, segment)
    return True


cdef int64_t _load_sealed(Log* log, int64_t base_offset, dict whole) except -2:
    """Adds a segment that needs no recovery. Returns its end offset, or -1 when its last bytes are
    not a batch. It repairs indexes that a crash left at full size, and rebuilds those that are not
    `whole`. Raises OSError, MemoryError."""
    cdef int64_t end_offset = -1
    if whole[base_offset] and _opens_sealed(log, base_offset, &end_offset):
        return end_offset
    cdef Segment* segment = _with_true_indexes(log, base_offset, whole)
    cdef bint rebuild = not whole[base_offset]
    cdef int status = 0
    _push_segment(log, segment)
    with nogil:
        if rebuild:
            status = segment_reindex(segment, log.system, log.config.index_interval_bytes)
        if status == 0:
            status = segment_load_times(segment, log.system, segment.size_bytes)
    if status == 0:
        end_offset = _measured_end(log, segment)
    with nogil:
        segment.flushed_bytes = segment.size_bytes
        segment_seal(segment, log.system)
    if status < 0:
        raise _os_error(status, f"cannot read segment {base_offset}")
    return end_offset


cdef int _note_missing(Log* log, list missing, int64_t first, int64_t end) except -1:
    """Adds to `missing` that no segment has the offsets [first, end), without those below the log's
    start, which were deleted on purpose."""
    first = max(first, log.start_offset)
    if first < end:
        missing.append((first, end))
    return 0


def _is_whole_snapshot(bytes content) -> bool:
    cdef Producers probe
    producers_init(&probe)
    cdef int status = snapshot_read(&probe, <const uint8_t*>PyBytes_AS_STRING(content), len(content), 0, 1)
    producers_free(&probe)
    return status == 0


cdef int _rebuild_producers(
    LogHandle handle, int64_t offset, bint keeps_above=False, int64_t high_watermark=INT64_MAX,
) except -1:
    """Restores the producer state as of `offset` from a snapshot and the batches after it. A
    snapshot has only the transactions that were open there, so one above the high watermark would
    hide those whose marker is not below it. No other thread may see the log yet. keeps_above: keeps
    snapshots above `offset`. Raises OSError."""
    cdef Log* log = handle.log
    cdef bytes content  # owns the bytes that `snapshot` points into
    cdef int64_t at
    cdef int status
    at, content = log_files.newest_snapshot(
        handle.directory, offset, _is_whole_snapshot, keeps_above, high_watermark)
    cdef const uint8_t* snapshot = <const uint8_t*>PyBytes_AS_STRING(content)
    cdef int64_t snapshot_bytes = len(content)
    with nogil:
        status = log_restore_producers(log, at, snapshot, snapshot_bytes, offset)
    if status < 0:
        raise _os_error(status, f"{handle.directory}: cannot restore the producer state")
    return 0


cdef list _mend_aborts(LogHandle handle):
    """Rebuilds those transaction indexes of the segments opened so far that do not agree with the
    .log. Returns a message for each. Raises OSError."""
    cdef Log* log = handle.log
    cdef Segment* segment
    cdef int64_t i
    cdef int status
    mended = []
    for i in range(log.segments.count):
        segment = log.segments.items[i]
        with nogil:
            status = txn_index_agrees(segment, log.system)
        if status == 0:
            mended.append(f"segment {segment.base_offset}: transaction index rebuilt")
            _rebuild_producers(handle, segment.base_offset, True)
            with nogil:
                status = segment_reindex_aborts(segment, log.system, &log.producers)
        if status < 0:
            raise _os_error(
                status, f"cannot check the transaction index of segment {segment.base_offset}")
    return mended


cdef int _own_active(LogHandle handle) except -1:
    """Makes the .log of the last segment a file that no other directory names, because appends
    write to it. Raises OSError."""
    cdef Segment* segment = handle.log.segments.items[handle.log.segments.count - 1]
    cdef int status
    with nogil:
        status = segment_own_log(segment, handle.log.system, segment.size_bytes)
    if status < 0:
        raise _os_error(status, f"cannot copy segment {segment.base_offset}, which is linked")
    return 0


cdef int _cut_tail(LogHandle handle, Segment* segment, const SegmentFacts* facts, list cuts) except -1:
    """Copies the bytes behind the sound part of a segment to a .cut file and cuts them off. Raises
    OSError."""
    cdef int64_t base = segment.base_offset
    cdef int64_t valid_bytes = facts.valid_bytes
    cdef int status
    removed = cut_files.remove_oldest(handle.directory)
    handle.recovered.messages.extend(
        f"{name} was deleted to limit the number of .cut files" for name in removed)
    cuts.append(
        cut_files.set_aside_tail(handle.directory, base, valid_bytes, facts.end_offset))
    with nogil:
        status = segment_cut_tail(segment, handle.log.system, valid_bytes)
    if status < 0:
        raise _os_error(status, f"cannot cut segment {base}")
    return 0


cdef object _recover_segments(
    LogHandle handle, list bases, list missing, int64_t high_watermark, int64_t unflushed_from,
):
    """Recovers segments in order, and renames those behind a cut to .cut files. A gap at or above
    `unflushed_from` cuts the log as well: a power cut may leave a new segment without the last
    batches of the segment before, and a log must not have a record without those before it. Adds
    other gaps to `missing`. Returns (a Recovered, the log's end offset, the offset behind the gap
    that cut the log or -1). Raises OSError."""
    cdef Log* log = handle.log
    cdef Segment* segment
    cdef SegmentFacts facts
    cdef int64_t end_offset = bases[0], batches = 0, records = 0, cut_bytes = 0
    cdef int64_t snapshot_at
    cdef int status
    cdef int64_t gap_end = -1
    walked, dropped, messages, cuts = 0, 0, handle.recovered.messages, handle.recovered.cuts
    _rebuild_producers(handle, bases[0], False, high_watermark)
    for i, base in enumerate(bases):
        if i and not cut_bytes and base > end_offset >= unflushed_from:
            gap_end = base
        if i and (cut_bytes or base < end_offset or gap_end >= 0):
            for behind in reversed(bases[i:]):
                cuts.append(cut_files.set_aside_segment(handle.directory, behind, end_offset))
            log_files.drop(handle.directory, bases[i:])
            dropped = len(bases) - i
            messages.append(
                f"{dropped} segments from {base} on are cut off: they are behind "
                + ("the damage" if gap_end < 0 else "lost records that were not flushed"))
            break
        if i:
            _note_missing(log, missing, end_offset, base)
            segment = log.segments.items[log.segments.count - 1]
            snapshot_at = base
            with nogil:
                segment_seal(segment, log.system)
                status = log_write_snapshot(log, snapshot_at)
            if status < 0:
                raise _os_error(status, f"cannot write the producer snapshot {base}")
        segment = _existing(log, base, True)
        _push_segment(log, segment)
        with nogil:
            status = segment_recover(
                segment, log.system, &log.producers, &log.leader_epochs,
                log.config.index_interval_bytes, &facts)
        if status < 0:
            raise _os_error(status, f"cannot recover segment {base}")
        walked += 1
        batches += facts.batches
        records += facts.records
        cut_bytes += facts.cut_bytes
        end_offset = facts.end_offset
        if facts.cut_bytes:
            messages.append(
                f"segment {base}: {facts.cut_bytes} bytes at offset {end_offset} are not a batch")
            _cut_tail(handle, segment, &facts, cuts)
    _own_active(handle)
    log_transactions_restored(log)
    facts_of_all = Recovered(
        walked, batches, records, cut_bytes, dropped, messages, missing, False, cuts)
    return facts_of_all, end_offset, gap_end


cdef object _open_end(LogHandle handle, int64_t base_offset, dict whole):
    """Opens the last segment of a log that was closed cleanly. Returns the log's end offset, or
    None when the segment's last bytes are not a batch. Raises OSError."""
    cdef Log* log = handle.log
    cdef Segment* segment = _with_true_indexes(log, base_offset, whole)
    cdef bint rebuild = not whole[base_offset]
    cdef int64_t end_offset = 0, valid_bytes = 0
    cdef int status = 0
    with nogil:
        if rebuild:
            status = segment_reindex(segment, log.system, log.config.index_interval_bytes)
        if status == 0:
            status = segment_measure(segment, log.system, &end_offset, &valid_bytes)
        if status == 0 and valid_bytes == segment.size_bytes:
            status = segment_load_times(segment, log.system, segment.size_bytes)
    if status < 0 or valid_bytes != segment.size_bytes:
        segment_release(segment)
        if status < 0:
            raise _os_error(status, f"cannot read segment {base_offset}")
        return None
    segment.flushed_bytes = segment.size_bytes
    _push_segment(log, segment)
    _own_active(handle)
    return end_offset


cdef int _begin(LogHandle handle, int64_t offset) except -1:
    """Makes the first segment of an empty log that begins at `offset`. Raises OSError."""
    cdef Log* log = handle.log
    cdef int status
    cdef Segment* segment
    with nogil:
        segment = log_new_active(log, offset, &status)
    if segment == NULL:
        raise _os_error(status, f"cannot create segment {offset}")
    _push_segment(log, segment)
    return 0


cdef int _set_marks(Log* log, int64_t end_offset, int64_t flushed_offset, int64_t flushed_base) except -1:
    cdef LogMarks marks
    cdef Segment* active = log.segments.items[log.segments.count - 1]
    marks.end_offset = end_offset
    marks.end_base = active.base_offset
    marks.end_position = active.size_bytes
    marks.flushed_offset = flushed_offset
    marks.flushed_base = flushed_base
    marks.flushed_position = (
        active.size_bytes if flushed_base == marks.end_base and flushed_offset >= end_offset else 0)
    log_publish(log, &marks)
    return 0


cdef int _go_on_at(LogHandle handle, int64_t offset) except -1:
    """Continues a log that ends below `offset` at `offset`. An empty batch, such as compaction
    leaves, covers the offsets in between, so that a reader reaches the log's end. The batch has its
    own segment with the name of a lost one, so that a restored copy of that file replaces it.
    Raises OSError, LogError."""
    cdef Log* log = handle.log
    cdef LogMarks marks = log.marks
    cdef int64_t first = max(marks.end_offset, offset - INT32_MAX)
    cdef int status
    if marks.end_offset <= log.segments.items[0].base_offset:    # the log is empty
        _restart_at(handle, offset)
        return 0
    marks.end_offset = first
    log_publish(log, &marks)
    with nogil:
        status = log_roll(log)
    if status < 0:
        raise _os_error(status, f"cannot create segment {first}")
    handle.append(cut_files.empty_batch(offset - first - 1),
                  leader_epoch=leader_epochs_latest(&log.leader_epochs))
    return 0


cdef int _load(
    LogHandle handle, int64_t recovery_point, bint clean, int64_t end_offset_min,
    int64_t high_watermark, int64_t unflushed_from,
) except -1:
    cdef Log* log = handle.log
    cdef int64_t end_offset, start_offset = log.start_offset
    missing = []
    bases = log_files.tidy(handle.directory)
    handle.recovered = Recovered(0, 0, 0, 0, 0, [], missing, False, [])
    if not bases:
        log_files.drop_snapshots(handle.directory)
        _note_missing(log, missing, start_offset, end_offset_min)
        handle.recovered = handle.recovered._replace(ends_early=start_offset < end_offset_min)
        log.start_offset = start_offset = max(start_offset, end_offset_min)
        _begin(handle, start_offset)
        _set_marks(log, start_offset, start_offset, start_offset)
        return 0
    log.start_offset = max(start_offset, bases[0])
    unclean = log_files.recovered_segments(bases, recovery_point, clean)
    sealed = bases[:len(bases) - max(len(unclean), 1)]
    whole = {b: log_files.indexes_are_whole(handle.directory, b) for b in bases}
    end_offset = -1
    for i, base in enumerate(sealed):
        end_offset = _load_sealed(log, base, whole)
        if end_offset >= 0:
            _note_missing(log, missing, end_offset, bases[i + 1])
    end = None if unclean else _open_end(handle, bases[len(bases) - 1], whole)
    mended = _mend_aborts(handle)
    rebuilt = [f"segment {b}: indexes rebuilt" for b in bases if not whole[b] and b not in unclean]
    if end is None:
        unclean = unclean or bases[len(bases) - 1:]
        handle.recovered, end, gap_end = _recover_segments(
            handle, unclean, missing, high_watermark, unflushed_from)
        end_offset_min = max(end_offset_min, gap_end)   # records had the offsets in the gap
        _set_marks(log, end, min(unclean[0], end), unclean[0])
    else:
        _set_marks(log, end, end, bases[len(bases) - 1])
        _rebuild_producers(handle, end, False, high_watermark)
    end_offset = end
    handle.recovered.messages.extend(rebuilt + mended)
    leader_epochs_cut_end(&log.leader_epochs, end_offset)
    leader_epochs_cut_start(&log.leader_epochs, log.start_offset)
    if end_offset < log.start_offset:
        handle.recovered.messages.append(
            f"the log ends at {end_offset}, below its start offset {log.start_offset}: it begins "
            "again there, without records")
        _restart_at(handle, log.start_offset)
    for cut in handle.recovered.cuts:
        end_offset_min = max(end_offset_min, cut.end_offset)    # records in it have these offsets
    if end_offset < end_offset_min:
        _note_missing(log, missing, end_offset, end_offset_min)
        handle.recovered = handle.recovered._replace(ends_early=True)
        _go_on_at(handle, end_offset_min)
    return 0


# ------------------------------------------------------------------------ truncation and deletion

cdef int _restart_at(LogHandle handle, int64_t offset) except -1:
    """Removes all records; afterwards the log begins and ends at `offset`. Raises LogError,
    MemoryError."""
    cdef Log* log = handle.log
    cdef SegmentList* empty = segment_list_of(1)
    cdef int status
    if empty == NULL:
        raise MemoryError
    log_files.drop_snapshots(handle.directory)
    with nogil:
        log_begin_truncation(log)
        status = log_replace_all(log, empty, offset)
        log_end_truncation(log, status)
        if status < 0:
            free(empty)
    handle.holds_deleted = True
    if status < 0:
        raise LogError(STORAGE_ERROR, str(_os_error(
            status, f"cannot restart {handle.directory} at offset {offset}")))
    return 0


cdef int _truncate(LogHandle handle, int64_t offset, int64_t high_watermark) except -1:
    cdef Log* log = handle.log
    cdef bytes content  # owns the bytes that `snapshot` points into
    cdef int64_t at
    cdef int status
    # Snapshots above the new end are deleted first: if a crash left them, recovery would use them.
    at, content = log_files.newest_snapshot(
        handle.directory, offset, _is_whole_snapshot, False, high_watermark)
    cdef const uint8_t* snapshot = <const uint8_t*>PyBytes_AS_STRING(content)
    cdef int64_t snapshot_bytes = len(content)
    with nogil:
        log_begin_truncation(log)
        status = log_cut_to(log, offset)
        if status == 0:
            status = log_restore_producers(log, at, snapshot, snapshot_bytes, offset)
        log_end_truncation(log, status)
    handle.holds_deleted = True
    if status < 0:
        raise LogError(STORAGE_ERROR, str(_os_error(
            status, f"cannot truncate {handle.directory} to {offset}")))
    return 0


# ---------------------------------------------------------------------------------------- reading

cdef bytes _slice_bytes(Log* log, LogSlice* slice):
    """Returns the bytes of a slice and releases it. Raises LogError."""
    cdef bytes content = PyBytes_FromStringAndSize(NULL, slice.size_bytes)
    cdef char* into = PyBytes_AS_STRING(content)
    cdef int64_t got
    cdef int fd
    with nogil:
        fd = segment_fd(slice.segment, log.system)
        got = fd
        if fd >= 0:
            got = read_whole(log.system, fd, into, slice.size_bytes, slice.position)
        segment_release(slice.segment)
    if got < 0:
        raise LogError(STORAGE_ERROR, str(_os_error(<int>got, "cannot read a segment")))
    return content[:got]


# The garbage collector must not clear the objects that the Log points into: __dealloc__ uses them.
@cython.no_gc_clear
cdef class LogHandle:
    @classmethod
    def open(cls, directory, *, SystemCalls system not None, Epochs epochs not None,
             SegmentCache cache not None, settings=LogSettings(), int64_t recovery_point=0,
             int64_t log_start_offset=0, int64_t end_offset_min=0, bint clean=False,
             int64_t high_watermark=INT64_MAX, int64_t unflushed_from=INT64_MAX,
             leader_epochs=(), uint64_t seed=1):
        """Opens the log in an existing directory and returns its handle.

        `clean`: the log was closed cleanly and needs no recovery; otherwise every segment from
        `recovery_point` on is recovered. `log_start_offset`: records below it were deleted.
        `end_offset_min`: records had offsets below it; a log that ends earlier continues there.
        `high_watermark`: as far as it is known, of a log whose records need other replicas; a
        transaction whose marker is not below it counts as open until the high watermark moves.
        `unflushed_from`: what is at and above this offset may not have been flushed; where a
        segment lacks its end there, the segments behind it are cut off.
        `leader_epochs`: (epoch, start offset) pairs of the checkpoint. `seed`: for
        segment.jitter.ms.

        The handle's `recovered` describes the result; `recovered.missing` lists the offset ranges
        [first, end) that no segment has; when `recovered.ends_early`, the last of them is at the
        log's end. Raises OSError, LogError, and ValueError for wrong settings or a path above 3000
        bytes. Kafka: LogLoader."""
        cdef LogHandle handle = LogHandle.__new__(LogHandle)
        cdef LogConfig config = _config(settings)
        cdef bytes path = os.fsencode(directory)
        cdef int status
        if len(path) > 3000:
            raise ValueError(
                f"the path has {len(path)} bytes; the limit is 3000: use a shorter log directory")
        handle.directory = os.fsdecode(path)
        handle.system, handle.epochs, handle.cache = system, epochs, cache
        handle.truncated_to = INT64_MAX
        handle.log = log_new(
            &system.table, epochs.domain, cache.pool, PyBytes_AS_STRING(path), &config, seed)
        if handle.log == NULL:
            raise MemoryError
        handle.log.start_offset = log_start_offset
        for epoch, start in leader_epochs:
            leader_epochs_assign(&handle.log.leader_epochs, epoch, start)
        _load(
            handle, recovery_point, clean, end_offset_min, high_watermark, unflushed_from)
        with nogil:
            status = log_flush(handle.log)  # the changes of recovery
        if status != 0:
            raise LogError(status, f"cannot flush {handle.directory}")
        return handle

    def __dealloc__(self):
        if self.log != NULL:
            epoch_wait(self.log.epochs)
            log_free(self.log)
            self.log = NULL

    def close(self, *, bint clean=True) -> None:
        """Closes the log, and returns when no thread is inside it any more.

        `clean`: flushes it, writes a producer snapshot at its end, and cuts the indexes to their
        entries. Raises LogError when that fails; the log is closed nevertheless."""
        cdef Log* log = _open_log(self)
        cdef int status = 0
        with nogil:
            if clean:
                status = log_flush(log)
            pthread_mutex_lock(&log.lock)
            log.closed = 1
            if clean and status == 0:
                if log_write_snapshot(log, log.marks.end_offset) < 0:
                    status = STORAGE_ERROR
                if segment_seal(log.segments.items[log.segments.count - 1], log.system) < 0:
                    status = STORAGE_ERROR
            pthread_mutex_unlock(&log.lock)
            self.log = NULL
            epoch_wait(log.epochs)
            log_free(log)
        if status != 0:
            raise LogError(
                status, f"{self.directory} was not closed cleanly: the next opening recovers it")

    # -- records ----------------------------------------------------------------------------------

    def append(self, batch not None, *, int32_t leader_epoch=0, int64_t verification=LOG_TRUSTED):
        """Appends one batch v2 and returns an AppendResult.

        `batch`: a writable buffer, into which the base offset and `leader_epoch` are written; bytes
        are copied first. `verification`: a number of begin_verification, for records of a client's
        transaction; or BUMPING_MARKER, for a marker whose epoch is above its transaction's; or
        TRUSTED. Raises LogError with the error code for the producer."""
        cdef Log* log = _open_log(self)
        cdef Py_buffer view
        cdef BatchHeader header
        cdef Appended appended
        cdef int status
        PyObject_GetBuffer(bytearray(batch) if isinstance(batch, bytes) else batch, &view,
                           PyBUF_WRITABLE)
        try:
            with nogil:
                status = batch_header(<const uint8_t*>view.buf, view.len, &header)
                if status != RECORDS_OK:
                    status = CORRUPT_MESSAGE
                else:
                    status = log_append_verified(
                        log, <uint8_t*>view.buf, view.len, &header, leader_epoch, verification,
                        &appended)
        finally:
            PyBuffer_Release(&view)
        if status != 0:
            raise LogError(status, f"cannot append to {self.directory}: error code {status}")
        return AppendResult(appended.first_offset, appended.last_offset,
                            appended.log_start_offset, bool(appended.duplicate))

    def append_as_follower(self, records not None, *, int32_t epoch_max=INT32_MAX):
        """Appends the whole batches at the beginning of `records`, with their offsets, epochs and
        timestamps, and returns a FollowerAppendResult. It stops before a batch whose epoch is above
        `epoch_max`.

        Raises LogError: CORRUPT_MESSAGE for bytes that are no sound batches with ascending offsets,
        OFFSET_OUT_OF_RANGE for a first batch that begins below the log's end. Kafka:
        UnifiedLog.appendAsFollower."""
        cdef Log* log = _open_log(self)
        cdef FollowerAppend appended
        cdef Py_buffer view
        cdef int status
        PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
        with nogil:
            status = log_append_as_follower(
                log, <const uint8_t*>view.buf, view.len, epoch_max, &appended)
        PyBuffer_Release(&view)
        if status == APPEND_BELOW_START:
            status = OFFSET_OUT_OF_RANGE
        if status != 0:
            raise LogError(status, f"cannot append to {self.directory}: error code {status}")
        return FollowerAppendResult(appended.size_bytes, appended.batches, appended.end_offset)

    def begin_verification(self, int64_t producer_id) -> int:
        """Begins a verification and returns its number for append(). Call it before the request to
        the coordinator, which confirms that this partition belongs to the producer's transaction; a
        marker that comes before the append overtakes the verification. Raises MemoryError."""
        cdef int64_t number = log_begin_verification(_open_log(self), producer_id, False)
        if number == 0:
            raise MemoryError
        return number

    def expect_transaction(self, int64_t producer_id, int16_t epoch) -> None:
        """Marks the partition as part of the producer's ongoing transaction, as the transaction
        coordinator does: until its marker comes, its batches need no verification."""
        log_expect_transaction(_open_log(self), producer_id, epoch)

    def end_verification(self, int64_t number) -> None:
        """Ends a verification; does nothing for an unknown number."""
        log_end_verification(_open_log(self), number)

    def read(self, int64_t offset, int64_t size_max=1048576, *, limit_offset=None,
             bint whole_first=True) -> bytes:
        """Returns the bytes of the batches from the one that contains `offset` on, below
        `limit_offset` (None: the log's end); the last batch may be incomplete.

        `size_max`: bytes; with `whole_first` the first batch is returned whole even when it is
        larger. Raises LogError: OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR."""
        cdef Log* log = _open_log(self)
        cdef LogSlice slice
        cdef int64_t limit = 0x7FFFFFFFFFFFFFFF if limit_offset is None else limit_offset
        cdef int status, slot
        with nogil:
            slot = epoch_enter(log.epochs)
            status = log_read(log, offset, size_max, limit, whole_first, &slice)
            epoch_leave(log.epochs, slot)
        if status != 0:
            raise LogError(
                status, f"cannot read {self.directory} at offset {offset}: error code {status}")
        return _slice_bytes(log, &slice) if slice.segment != NULL else b""

    def offset_for_time(self, int64_t timestamp_ms, *, limit_offset=None, bint largest=False):
        """Finds the first record at or after `timestamp_ms`, or with `largest` the first record
        with the largest timestamp, below `limit_offset` (None: the log's end).

        Returns (offset, timestamp in ms, leader epoch, compressed), or None without such a record.
        compressed: the record is inside the batch at that offset, whose largest timestamp is
        returned. Raises LogError."""
        cdef Log* log = _open_log(self)
        cdef int64_t limit = 0x7FFFFFFFFFFFFFFF if limit_offset is None else limit_offset
        cdef int64_t offset, found_ms
        cdef int32_t epoch
        cdef int status, slot
        with nogil:
            slot = epoch_enter(log.epochs)
            if largest:
                status = log_offset_of_max_time(log, limit, &offset, &found_ms, &epoch)
            else:
                status = log_offset_for_time(log, timestamp_ms, limit, &offset, &found_ms, &epoch)
            epoch_leave(log.epochs, slot)
        if status > 0:
            raise LogError(
                status, f"cannot search {self.directory} by timestamp: error code {status}")
        return None if offset < 0 else (offset, found_ms, epoch, status == LOG_TIME_COMPRESSED)

    # -- changes ----------------------------------------------------------------------------------

    def flush(self) -> None:
        """Flushes all records to disk. Raises LogError; the log is offline then until it is opened
        again."""
        cdef Log* log = _open_log(self)
        cdef int status
        with nogil:
            status = log_flush(log)
        if status != 0:
            raise LogError(status, f"cannot flush {self.directory}: error code {status}")

    def cut_again(self) -> bool:
        """Tries again to cut off a failed write, when the log is offline only because that failed.
        Returns whether the log is usable."""
        cdef Log* log = _open_log(self)
        cdef bint usable
        with nogil:
            usable = log_cut_again(log)
        return usable

    def roll(self) -> int:
        """Begins a new segment unless the active one is empty. Returns the active segment's base
        offset. Raises LogError."""
        cdef Log* log = _open_log(self)
        cdef int64_t base_offset
        cdef int status
        with nogil:
            pthread_mutex_lock(&log.lock)
            status = -5 if log.offline else log_roll(log)
            base_offset = log.marks.end_base
            pthread_mutex_unlock(&log.lock)
        if status < 0:
            raise LogError(STORAGE_ERROR, str(_os_error(status, f"cannot roll {self.directory}")))
        return base_offset

    def truncate_to(self, int64_t offset, int64_t high_watermark=INT64_MAX) -> None:
        """Truncates the log to `offset` if it is longer; a batch that contains `offset` is removed
        whole. With an `offset` below the first segment the log is empty afterwards and begins
        there. `high_watermark`: as of `open`. Files of whole segments are renamed to .deleted;
        unlink_deleted() deletes them. Raises LogError. Kafka: UnifiedLog.truncateTo."""
        cdef Log* log = _open_log(self)
        # Noted twice: a future log may be copied, or may replace this one, before the lock is taken.
        self.truncated_to = min(self.truncated_to, offset)
        if offset < log.segments.items[0].base_offset:
            _restart_at(self, offset)
        elif offset < log_end_offset(log):
            _truncate(self, offset, high_watermark)
        self.truncated_to = min(self.truncated_to, offset)

    def truncate_fully_and_start_at(self, int64_t offset) -> None:
        """Removes all records; afterwards the log begins and ends at `offset`. Raises LogError.
        Kafka: UnifiedLog.truncateFullyAndStartAt."""
        _open_log(self)
        self.truncated_to = min(self.truncated_to, offset)
        _restart_at(self, offset)
        self.truncated_to = min(self.truncated_to, offset)

    def take_truncation(self) -> int:
        """Returns the lowest offset to which the log was truncated since the last call, for its
        future log; 2**63 - 1: it was not truncated."""
        cdef int64_t offset = self.truncated_to
        self.truncated_to = INT64_MAX
        return offset

    def advance_log_start(self, int64_t offset) -> int:
        """Moves the log's start offset up to `offset`, at most to the log's end, and never down.
        Returns the start offset."""
        cdef Log* log = _open_log(self)
        cdef int64_t start_offset
        with nogil:
            start_offset = log_advance_start(log, offset)
        return start_offset

    def delete_segments_before(self, int64_t offset) -> list[int]:
        """Removes the segments that are wholly below `offset`, never the active one, and renames
        their files to .deleted; unlink_deleted() deletes them. Returns their base offsets. Raises
        LogError, and OSError when it cannot flush the producer snapshot that replaces them."""
        cdef Log* log = _open_log(self)
        cdef int64_t dropped
        before = [info.base_offset for info in self.segments()]
        first = max([base for base in before if base <= offset], default=before[0])
        if first > before[0]:
            log_files.sync_snapshot(self.directory, first)
        with nogil:
            pthread_mutex_lock(&log.lock)
            dropped = log_delete_before(log, offset)
            pthread_mutex_unlock(&log.lock)
        self.holds_deleted = self.holds_deleted or dropped != 0     # an error: perhaps some
        if dropped < 0:
            raise LogError(STORAGE_ERROR, str(_os_error(
                <int>dropped, f"cannot delete segments of {self.directory}")))
        log_files.drop_snapshots(self.directory, below=log_start_offset(log))
        return before[:dropped]

    def unlink_deleted(self, names=None) -> int:
        """Deletes .deleted files of the directory and returns their number. `names`: these; None:
        all. Raises OSError."""
        self.holds_deleted, are_left = False, True
        try:
            there = log_files.deleted_names(self.directory)
            over = there if names is None else [name for name in there if name in names]
            log_files.unlink_deleted(self.directory, over)
            are_left = len(over) < len(there)
        finally:
            self.holds_deleted = self.holds_deleted or are_left
        return len(over)

    def assign_epoch(self, int32_t epoch) -> None:
        """Notes that records from the log's end on have the leader epoch `epoch`, unless it is not
        above the latest one. From then on the log refuses appends as leader of an earlier epoch
        (NOT_LEADER_OR_FOLLOWER). Call it when the broker becomes leader, or remains leader with a
        later epoch."""
        cdef Log* log = _open_log(self)
        with nogil:
            pthread_mutex_lock(&log.lock)
            leader_epochs_assign(&log.leader_epochs, epoch, log.marks.end_offset)
            log.led_epoch = max(log.led_epoch, epoch)
            pthread_mutex_unlock(&log.lock)

    def set_config(self, settings) -> None:
        """Replaces the log's LogSettings. Raises ValueError for wrong ones, LogError when the log
        is closed."""
        cdef Log* log = _open_log(self)
        cdef LogConfig config = _config(settings)
        with nogil:
            pthread_mutex_lock(&log.lock)
            log.config = config
            pthread_mutex_unlock(&log.lock)

    def expire_producers(self) -> int:
        """Removes producers without a batch for producer_id_expiration_ms and without an open
        transaction. Returns their number."""
        cdef Log* log = _open_log(self)
        cdef int64_t gone
        with nogil:
            pthread_mutex_lock(&log.lock)
            gone = producers_expire(&log.producers, log.system.wall_ms(log.system),
                                    log.config.producer_id_expiration_ms)
            pthread_mutex_unlock(&log.lock)
        return gone

    # -- state ------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int: return log_start_offset(_open_log(self))
    @property
    def end_offset(self) -> int: return log_end_offset(_open_log(self))
    @property
    def flushed_offset(self) -> int: return log_flushed_offset(_open_log(self))
    @property
    def first_open_offset(self) -> int: return log_first_open_offset(_open_log(self))
    @property
    def offline(self) -> bool: return log_is_offline(_open_log(self))

    def segments(self) -> list:
        """Returns a SegmentInfo of each segment, the active one last."""
        cdef Log* log = _open_log(self)
        cdef SegmentList* segments
        cdef Segment* s
        cdef int64_t i
        cdef int slot = epoch_enter(log.epochs)
        segments = log.segments
        found = []
        for i in range(segments.count):
            s = segments.items[i]
            found.append(SegmentInfo(
                s.base_offset, s.size_bytes, s.flushed_bytes, s.max_timestamp, bool(s.active)))
        epoch_leave(log.epochs, slot)
        return found

    def leader_epochs(self) -> list[tuple[int, int]]:
        """Returns (epoch, start offset) of each leader epoch, ascending, as in the checkpoint
        file."""
        cdef Log* log = _open_log(self)
        cdef int64_t i
        cdef EpochEntry* copy
        cdef int64_t count
        with nogil:
            pthread_mutex_lock(&log.leader_epochs.lock)
            count = log.leader_epochs.count
            copy = <EpochEntry*>malloc((count + 1) * sizeof(EpochEntry))
            if copy != NULL and count:
                memcpy(copy, log.leader_epochs.entries, count * sizeof(EpochEntry))
            pthread_mutex_unlock(&log.leader_epochs.lock)
        if copy == NULL:
            raise MemoryError
        found = [(copy[i].epoch, copy[i].start_offset) for i in range(count)]
        free(copy)
        return found

    def epoch_end(self, int32_t epoch) -> tuple[int, int]:
        """Returns (epoch, end offset) for an answer to OffsetForLeaderEpoch (KIP-101); (-1, -1):
        not known."""
        cdef int32_t found_epoch
        cdef int64_t end_offset
        log_epoch_end(_open_log(self), epoch, &found_epoch, &end_offset)
        return found_epoch, end_offset

    def producers(self) -> list:
        """Returns a ProducerState of each producer in the log's state; last_sequence and
        last_offset are those of its last batch of data, -1 when none is known."""
        cdef Log* log = _open_log(self)
        cdef Producer* copy
        cdef Producer* p
        cdef int64_t i, count
        cdef int32_t sequence
        cdef int64_t last_offset
        with nogil:
            pthread_mutex_lock(&log.lock)
            count = log.producers.count
            copy = <Producer*>malloc((count + 1) * sizeof(Producer))
            if copy != NULL and count:
                memcpy(copy, log.producers.entries, count * sizeof(Producer))
            pthread_mutex_unlock(&log.lock)
        if copy == NULL:
            raise MemoryError
        try:
            found = []
            for i in range(count):
                p = &copy[i]
                sequence, last_offset = -1, -1
                if p.batch_count:
                    sequence = p.batches[p.batch_count - 1].last_sequence
                    last_offset = p.batches[p.batch_count - 1].last_offset
                found.append(ProducerState(
                    p.producer_id, p.epoch, sequence, p.last_timestamp, p.coordinator_epoch,
                    p.txn_first_offset, last_offset))
            return found
        finally:
            free(copy)

    def counters(self) -> dict[str, int]:
        """Returns the log's counters since it was opened, and the number of its producers."""
        cdef Log* log = _open_log(self)
        return {"appended_batches": log.appended_batches, "appended_bytes": log.appended_bytes,
                "flushes": log.flushes, "failed_writes": log.failed_writes,
                "producers": log.producers.count, "leader_epoch_changes": log.leader_epochs.changes}

    def time_appends(self, batch not None, int64_t count, *, int32_t leader_epoch=0) -> int:
        """Appends the same batch `count` times without Python code in between, and returns the
        nanoseconds. bench/ measures the hot path with it. Raises LogError."""
        cdef Log* log = _open_log(self)
        cdef bytearray owned = bytearray(batch)
        cdef Py_buffer view
        cdef BatchHeader header
        cdef Appended appended
        cdef int64_t begun_ns, ended_ns, i
        cdef int status = 0
        PyObject_GetBuffer(owned, &view, PyBUF_WRITABLE)
        with nogil:
            begun_ns = log.system.monotonic_ns(log.system)
            for i in range(count):
                if batch_header(<const uint8_t*>view.buf, view.len, &header) != RECORDS_OK:
                    status = CORRUPT_MESSAGE
                else:
                    status = log_append(
                        log, <uint8_t*>view.buf, view.len, &header, leader_epoch, &appended)
                if status != 0:
                    break
            ended_ns = log.system.monotonic_ns(log.system)
        PyBuffer_Release(&view)
        if status != 0:
            raise LogError(status, f"cannot append to {self.directory}: error code {status}")
        return ended_ns - begun_ns
