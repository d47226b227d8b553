"""Replaces segments of a log by the output that compaction made from them.

    1. The old segments are pinned: files that readers use stay open, whatever names they get.
    2. Under the log's lock: .cleaned becomes .swap, the .log last; from here on the log has the new
       segment after a crash. The old files become .deleted, .swap loses its ending, and the segment
       list changes.
    3. Readers that hold an old segment finish with it. The .deleted files are removed after
       file.delete.delay.ms.

Appends wait during the second step, for a few renames. When retention or a truncation has changed
the segments since compaction read them, nothing is replaced.

Next on the data path: cext/log/segment.pyx.
"""
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from barnabas.cext.log.log cimport (
    Log, SegmentList, log_replace_list, segment_list_floor, segment_list_of,
)
from barnabas.cext.log.log_handle cimport LogHandle
from barnabas.cext.log.offline cimport mark_offline
from barnabas.cext.log.segment cimport (
    Segment, segment_new, segment_pin, segment_release, segment_release_retired, segment_retain,
)
from barnabas.cext.log.segment_names cimport segment_rename_all
from barnabas.cext.memory.epoch cimport epoch_enter, epoch_leave, epoch_retire
from barnabas.cext.memory.mutex cimport pthread_mutex_lock, pthread_mutex_unlock

from barnabas.cext.log import log_files
from barnabas.cext.log.cleaner.compact import Cleaning
from barnabas.cext.log.log_handle import LogError

cdef enum:
    STORAGE_ERROR = 56


cdef int64_t _find_run(Log* log, const int64_t* bases, int64_t count) noexcept nogil:
    """Returns the index in the segment list where the sealed segments with these base offsets
    begin, one after another; -1 when they are not there."""
    cdef SegmentList* segments = log.segments
    cdef int64_t first = segment_list_floor(segments, bases[0])
    cdef int64_t i
    if first < 0 or first + count >= segments.count:      # the active segment is the last and stays
        return -1
    for i in range(count):
        if segments.items[first + i].base_offset != bases[i]:
            return -1
    return first


cdef int64_t _pin_run(Log* log, const int64_t* bases, int64_t count, Segment** olds) noexcept nogil:
    """Retains and pins the segments and returns 1. Returns 0 when they are not in the list, or
    -errno; then no segment is retained."""
    cdef int slot = epoch_enter(log.epochs)
    cdef int64_t first, i
    cdef int status = 0
    pthread_mutex_lock(&log.lock)
    first = _find_run(log, bases, count)
    if first >= 0:
        for i in range(count):
            olds[i] = log.segments.items[first + i]
            segment_retain(olds[i])
    pthread_mutex_unlock(&log.lock)
    epoch_leave(log.epochs, slot)
    if first < 0:
        return 0
    for i in range(count):
        status = segment_pin(olds[i], log.system)
        if status < 0:
            break
    if status >= 0:
        return 1
    for i in range(count):
        segment_release(olds[i])
    return status


cdef int64_t _replace(
    Log* log, const int64_t* bases, int64_t count, Segment** olds, Segment* made
) noexcept nogil:
    """Renames the files and replaces the segments in the list. The caller holds the log's lock.
    Returns 1; 0 when the list has other segments now; or -errno."""
    cdef int64_t first = _find_run(log, bases, count)
    cdef SegmentList* segments
    cdef int64_t i
    cdef int status
    for i in range(count):
        if first < 0 or log.segments.items[first + i] != olds[i]:
            return 0
    segments = segment_list_of(log.segments.count - count + 1)
    if segments == NULL:
        return -12
    status = segment_rename_all(made.stem, log.system, ".cleaned", ".swap")
    i = count
    while i > 0 and status == 0:
        i -= 1
        status = segment_rename_all(olds[i].stem, log.system, "", ".deleted")
    if status == 0:
        status = segment_rename_all(made.stem, log.system, ".swap", "")
    if status < 0:
        mark_offline(&log.offline)   # names and list differ: the next opening repairs it
        free(segments)
        return status
    memcpy(segments.items, log.segments.items, first * sizeof(Segment*))
    segments.items[first] = made
    memcpy(segments.items + first + 1, log.segments.items + first + count,
           (log.segments.count - first - count) * sizeof(Segment*))
    log_replace_list(log, segments)
    for i in range(count):
        epoch_retire(log.epochs, olds[i], segment_release_retired)
    return 1


cdef int64_t _swap_in(
    Log* log, const int64_t* bases, int64_t count, Segment** olds, Segment* made
) noexcept nogil:
    """Replaces the segments unless the log is offline or closed, and releases the old ones, which
    the caller has retained. Returns as _replace does."""
    cdef int64_t outcome, i
    pthread_mutex_lock(&log.lock)
    outcome = -5 if log.offline or log.closed else _replace(log, bases, count, olds, made)
    pthread_mutex_unlock(&log.lock)
    if outcome == 1 and log.system.fsync_directory(log.system, log.directory) < 0:
        log.cut_is_due = False
        mark_offline(&log.offline)
    for i in range(count):
        segment_release(olds[i])
    return outcome


def replace_segments(LogHandle handle not None, bases not None, cleaned not None) -> bool:
    """Replaces the sealed segments with the base offsets `bases` by the output of a finished
    Cleaning, whose stem names the first of these offsets.

    Returns False when the segments are no longer in the log; the output is removed then. Otherwise
    their files wait for unlink_deleted(), and the producer snapshots of those that were merged into
    the first one are deleted. Raises LogError (KAFKA_STORAGE_ERROR), OSError, MemoryError, and
    TypeError when `cleaned` is no Cleaning. Kafka: UnifiedLog.replaceSegments."""
    cdef Log* log = handle.log
    cdef int64_t count = len(bases), i
    cdef int64_t outcome
    cdef Segment* made
    cdef int64_t* wanted
    cdef Segment** olds
    if log == NULL:
        raise LogError(STORAGE_ERROR, f"{handle.directory} is closed")
    if not isinstance(cleaned, Cleaning):
        raise TypeError(f"cleaned must be a Cleaning, not {type(cleaned).__name__}")
    wanted = <int64_t*>malloc(count * sizeof(int64_t))
    olds = <Segment**>malloc(count * sizeof(Segment*))
    made = segment_new(log.pool, log.directory, bases[0])
    try:
        if wanted == NULL or olds == NULL or made == NULL:
            raise MemoryError
        for i in range(count):
            wanted[i] = bases[i]
        made.size_bytes = made.flushed_bytes = cleaned.size_bytes
        made.max_timestamp = cleaned.max_timestamp
        made.max_timestamp_offset = cleaned.max_timestamp_offset
        with nogil:
            outcome = _pin_run(log, wanted, count, olds)
            if outcome == 1:
                outcome = _swap_in(log, wanted, count, olds, made)
        if outcome != 1:
            segment_release(made)
        made = NULL
    finally:
        free(wanted)
        free(olds)
        if made != NULL:
            segment_release(made)
    if outcome < 0:
        raise LogError(
            STORAGE_ERROR, f"{handle.directory}: cannot replace segments: errno {-outcome}")
    if outcome == 0:
        log_files.unlink_unfinished(handle.directory)
        return False
    handle.holds_deleted = True
    log_files.unlink_snapshots(handle.directory, bases[1:])
    return True
