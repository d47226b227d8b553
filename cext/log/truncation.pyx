"""Removes records from a log: truncation at the end, deletion at the start, or all of them.

A truncation makes `truncations` odd while it holds both locks. So readers begin again, and a flush
that ran meanwhile does not report removed records as flushed. Files are renamed to .deleted, the
last segment first: after a crash in between, the log is longer than requested, and complete.
Deletion at the start moves the start offset first.

Next on the data path: cext/log/segment.pyx.
"""
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from barnabas.cext.log.leader_epochs cimport leader_epochs_cut_end, leader_epochs_cut_start
from barnabas.cext.log.log cimport (
    Log, LogMarks, SegmentList, log_new_active, log_publish, log_replace_list, segment_list_floor,
    segment_list_of,
)
from barnabas.cext.log.log_transactions cimport log_transactions_restored
from barnabas.cext.log.offline cimport mark_offline
from barnabas.cext.log.producers cimport producers_clear, producers_expire, snapshot_read
from barnabas.cext.log.recover cimport segment_replay
from barnabas.cext.log.segment cimport (
    Segment, segment_cut, segment_find, segment_new, segment_open_active, segment_open_indexes,
    segment_release, segment_release_retired, segment_retain,
)
from barnabas.cext.log.segment_names cimport segment_rename_deleted
from barnabas.cext.log.txn_index cimport txn_index_cut
from barnabas.cext.memory.atomics cimport atomic_add_i64, atomic_store_i64
from barnabas.cext.memory.epoch cimport epoch_retire
from barnabas.cext.memory.mutex cimport pthread_mutex_lock, pthread_mutex_unlock
from barnabas.cext.record.batch_at cimport BatchAt


cdef int log_restore_producers(
    Log* log, int64_t snapshot_offset, const uint8_t* snapshot, int64_t snapshot_bytes,
    int64_t offset
) noexcept nogil:
    """Restores the producer state as of `offset` from a snapshot and the batches after it. Returns
    0, -errno or SEGMENT_CORRUPT."""
    cdef int64_t now_ms = log.system.wall_ms(log.system)
    cdef int64_t begin = snapshot_offset, i     # below the log's start, too, if batches are there
    cdef Segment* segment
    cdef int status = 0
    producers_clear(&log.producers)
    log.snapshot_offset = snapshot_offset
    if snapshot_bytes:
        snapshot_read(&log.producers, snapshot, snapshot_bytes, now_ms,
                      log.config.producer_id_expiration_ms)
    for i in range(max(segment_list_floor(log.segments, begin), <int64_t>0), log.segments.count):
        segment = log.segments.items[i]
        if begin >= offset or segment.base_offset >= offset or status < 0:
            break
        segment_retain(segment)
        status = segment_replay(
            segment, log.system, &log.producers, begin, offset, segment.size_bytes)
        segment_release(segment)
    producers_expire(&log.producers, now_ms, log.config.producer_id_expiration_ms)
    log_transactions_restored(log)
    return status


cdef int _rename_from(Log* log, int64_t first) noexcept nogil:
    """Renames the files of the segments from index `first` on to .deleted, the last segment first,
    so that a crash in between leaves no gap."""
    cdef int64_t i = log.segments.count - 1
    cdef int status = 0
    while i >= first and status == 0:
        status = segment_rename_deleted(log.segments.items[i], log.system, True)
        i -= 1
    return status


cdef int log_replace_all(Log* log, SegmentList* empty, int64_t offset) noexcept nogil:
    """Replaces all segments by an empty one. The caller is between log_begin_truncation and
    log_end_truncation."""
    cdef LogMarks marks
    cdef int64_t i
    cdef Segment* made
    cdef int status = _rename_from(log, 0)
    if status < 0:
        return status
    made = log_new_active(log, offset, &status)
    if made == NULL:
        return status
    empty.items[0] = made
    for i in range(log.segments.count):
        epoch_retire(log.epochs, log.segments.items[i], segment_release_retired)
    log_replace_list(log, empty)
    producers_clear(&log.producers)
    log.snapshot_offset = 0
    log_transactions_restored(log)
    leader_epochs_cut_end(&log.leader_epochs, offset)
    leader_epochs_cut_start(&log.leader_epochs, offset)
    atomic_store_i64(&log.start_offset, offset)
    marks.end_offset = marks.end_base = offset
    marks.flushed_offset = marks.flushed_base = offset
    marks.end_position = marks.flushed_position = 0
    log_publish(log, &marks)
    return 0


cdef void log_begin_truncation(Log* log) noexcept nogil:
    pthread_mutex_lock(&log.flushing)
    pthread_mutex_lock(&log.lock)
    atomic_add_i64(&log.truncations, 1)


cdef void log_end_truncation(Log* log, int status) noexcept nogil:
    if status < 0:
        log.cut_is_due = False
        mark_offline(&log.offline)
    atomic_add_i64(&log.truncations, 1)
    pthread_mutex_unlock(&log.lock)
    pthread_mutex_unlock(&log.flushing)


cdef Segment* _reopened(Log* log, Segment* segment, int* status) noexcept nogil:
    """Opens a sealed segment as an active one. It makes a new object, because readers may hold the
    old one. Returns NULL and sets `status` on failure."""
    cdef Segment* made = segment_new(log.pool, log.directory, segment.base_offset)
    if made == NULL:
        status[0] = -12
        return NULL
    status[0] = segment_open_active(made, log.system, False, 0)
    if status[0] == 0:
        status[0] = segment_open_indexes(made, log.system, log.config.segment_index_bytes, False)
    if status[0] < 0:
        segment_release(made)
        return NULL
    made.flushed_bytes = segment.flushed_bytes
    made.jitter_ms = segment.jitter_ms
    return made


cdef int log_cut_to(Log* log, int64_t offset) noexcept nogil:
    """Truncates the log to `offset`. The caller is between log_begin_truncation and
    log_end_truncation."""
    cdef int64_t kept = segment_list_floor(log.segments, offset) + 1
    cdef int renamed = _rename_from(log, kept)
    cdef Segment* last = log.segments.items[kept - 1]
    cdef Segment* active = last
    cdef SegmentList* made
    cdef LogMarks marks = log.marks
    cdef BatchAt found
    cdef int64_t position, i
    cdef int status
    segment_retain(last)  # or a reader of other segments may close its file meanwhile
    status = segment_find(last, log.system, offset, last.size_bytes, &found)
    segment_release(last)
    if status < 0 or renamed < 0:
        return min(status, renamed)
    position = found.position if status == 1 else last.size_bytes
    made = segment_list_of(kept)
    if made == NULL:
        return -12
    if not last.active:
        active = _reopened(log, last, &status)
        if active == NULL:
            free(made)
            return status
    elif active.offsets.map == NULL:
        status = segment_open_indexes(active, log.system, log.config.segment_index_bytes, True)
    if status >= 0:
        status = segment_cut(active, log.system, position, offset)
    if status >= 0:
        # No flush does it later: the bytes that are left may be flushed already. A power cut could
        # bring the removed ones back, torn, below a segment that was made since.
        status = log.system.fdatasync(log.system, active.fd)
    if status >= 0:
        status = txn_index_cut(active, log.system, offset)
    if status < 0:
        free(made)
        if active != last:
            segment_release(active)
        return status
    memcpy(made.items, log.segments.items, kept * sizeof(Segment*))
    made.items[kept - 1] = active
    for i in range(kept if active == last else kept - 1, log.segments.count):
        epoch_retire(log.epochs, log.segments.items[i], segment_release_retired)
    log_replace_list(log, made)
    marks.end_offset = offset
    marks.end_base = active.base_offset
    marks.end_position = position
    if marks.flushed_offset >= offset:
        marks.flushed_offset = offset
        marks.flushed_base = active.base_offset
        marks.flushed_position = position
    log_publish(log, &marks)
    leader_epochs_cut_end(&log.leader_epochs, offset)
    atomic_store_i64(&log.start_offset, min(log.start_offset, offset))
    return 0


cdef int64_t log_advance_start(Log* log, int64_t offset) noexcept nogil:
    cdef int64_t start_offset
    pthread_mutex_lock(&log.lock)
    start_offset = max(log.start_offset, min(offset, log.marks.end_offset))
    if start_offset > log.start_offset:
        atomic_store_i64(&log.start_offset, start_offset)
        leader_epochs_cut_start(&log.leader_epochs, start_offset)
    pthread_mutex_unlock(&log.lock)
    return start_offset


cdef int64_t log_delete_before(Log* log, int64_t offset) noexcept nogil:
    """Removes the segments below `offset`, never the active one. Returns their number, or -errno
    when a rename failed. A segment that could not be renamed stays in the list, and so do those
    behind it: with the log's start above its first segment, the start is in a checkpoint."""
    cdef SegmentList* made
    cdef int64_t below = 0, dropped = 0
    cdef int status = 0
    while below + 1 < log.segments.count and (
        log.segments.items[below + 1].base_offset <= offset
    ):
        below += 1
    if below == 0:
        return 0
    # The start moves first: a reader below it gets OFFSET_OUT_OF_RANGE, whichever list it saw.
    atomic_store_i64(&log.start_offset,
                     max(log.start_offset, log.segments.items[below].base_offset))
    leader_epochs_cut_start(&log.leader_epochs, log.start_offset)
    while dropped < below and status == 0:
        status = segment_rename_deleted(log.segments.items[dropped], log.system, False)
        dropped += status == 0
    if dropped == 0:
        return status
    made = segment_list_of(log.segments.count - dropped)
    if made == NULL:
        return -12
    memcpy(made.items, log.segments.items + dropped, made.count * sizeof(Segment*))
    for i in range(dropped):
        epoch_retire(log.epochs, log.segments.items[i], segment_release_retired)
    log_replace_list(log, made)
    return dropped if status == 0 else status
