"""Appends batches of a leader's log to a follower's log, with their offsets, epochs and timestamps.

The leader has checked producers and assigned offsets, so a follower checks only for damage on the
way from the leader's disk: sizes, CRC, and that offsets grow. Between two batches offsets may be
missing, where the leader's log was compacted. The bytes are written to the file unchanged. Producer
state, the transaction index and leader epochs follow the batches, as they do in recovery
(cext/log/recover.pyx). Segments roll by the leader's rules for single batches, so that equal
settings give equal files.

A received range is checked first, without the log's lock. Under the lock, all batches of one
segment are one write. A failure while a batch is noted cuts the file back to the batches before it.
Readers see the new end when the batches of a segment are noted. A crash leaves a torn tail at most,
as an append of the leader does.

Source: Kafka's UnifiedLog.appendAsFollower. Next on the data path: cext/log/log.pyx.
"""
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memset

from barnabas.cext.log.failed_calls cimport FAILED_OPEN, FAILED_WRITE, failed_call_note
from barnabas.cext.log.leader_epochs cimport leader_epochs_at, leader_epochs_follow
from barnabas.cext.log.log cimport (
    LogMarks, log_cut_back, log_end_offset, log_note_producer, log_publish, log_ready_to_append,
    log_roll_is_due, log_write,
)
from barnabas.cext.log.producers cimport Marker, batch_marker
from barnabas.cext.log.recover cimport batch_is_sound
from barnabas.cext.log.segment cimport (
    Segment, segment_entries_left, segment_note_batch, segment_reserve_entries,
)
from barnabas.cext.memory.atomics cimport atomic_store_i64
from barnabas.cext.memory.mutex cimport pthread_mutex_lock, pthread_mutex_unlock
from barnabas.cext.record.batch_at cimport BatchAt, batch_header_at
from barnabas.cext.record.records cimport (
    ATTR_CONTROL, AT_BATCH_LENGTH, BatchHeader, LOG_OVERHEAD, RECORDS_OK, batch_header,
)
from barnabas.cext.codec.endian cimport be32_load

cdef enum:                      # Kafka error codes
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    STORAGE_ERROR = 56


cdef inline bint _is_whole(const uint8_t* at, int64_t left) noexcept nogil:
    """Returns whether `left` bytes contain the whole batch that begins at `at`. A batch with a
    wrong length counts as whole; the check finds it corrupt."""
    cdef int64_t length
    if left < LOG_OVERHEAD:
        return False
    length = <int32_t>be32_load(at + AT_BATCH_LENGTH)
    return length < 0 or LOG_OVERHEAD + length <= left


cdef int _check(
    const uint8_t* records, int64_t size_bytes, int32_t epoch_max, BatchAt* first,
    int64_t* whole_bytes
) noexcept nogil:
    """Checks the batches of a range, and finds the size of the whole ones up to `epoch_max`.
    Returns 0 or CORRUPT_MESSAGE."""
    cdef BatchAt at
    cdef BatchHeader h
    cdef int64_t position = 0, next_offset = 0
    whole_bytes[0] = 0
    while _is_whole(records + position, size_bytes - position):
        if batch_header_at(
            records + position, size_bytes - position, size_bytes - position, &at
        ) != 1 or at.base_offset < next_offset or not batch_is_sound(records + position, &at, &h):
            return CORRUPT_MESSAGE
        if at.leader_epoch > epoch_max:
            break
        if position == 0:
            first[0] = at
        position += at.size_bytes
        next_offset = at.last_offset + 1
    whole_bytes[0] = position
    return 0


cdef int64_t _run_bytes(
    Log* log, const Segment* active, const uint8_t* records, int64_t size_bytes
) noexcept nogil:
    """Returns the size of the batches that go to the active segment in one write: all before the
    next roll. The first batch of a segment goes alone, because the segment's age counts from it."""
    cdef BatchAt at
    cdef int64_t run = 0, count = 0, entries_left = segment_entries_left(active)
    while run < size_bytes:
        batch_header_at(records + run, size_bytes - run, size_bytes - run, &at)
        if run and (
            active.size_bytes == 0 or count >= entries_left or log_roll_is_due(
                log, active, active.size_bytes + run, at.size_bytes, at.max_timestamp,
                at.last_offset)
        ):
            break
        run += at.size_bytes
        count += 1
    return run


cdef int _note(Log* log, Segment* active, const uint8_t* batch, const BatchAt* at) noexcept nogil:
    """Updates the log's state for a batch that was written at the end of the active segment.
    Returns 0, or -errno; then nothing has changed."""
    cdef BatchHeader h
    cdef Marker marker
    cdef bint ends_txn
    cdef int status = segment_reserve_entries(active, log.system)
    if status < 0:
        failed_call_note(log.pool, active.stem, FAILED_OPEN, status)
        return status
    if at.magic == 2 and batch_header(batch, at.size_bytes, &h) == RECORDS_OK:
        if h.producer_id >= 0:
            ends_txn = h.attributes & ATTR_CONTROL and (
                batch_marker(batch, at.size_bytes, &marker) == 1)
            if ends_txn or not h.attributes & ATTR_CONTROL:
                status = log_note_producer(
                    log, active, &h, &marker, ends_txn, at.base_offset, at.last_offset)
            if status < 0:
                failed_call_note(log.pool, active.stem, FAILED_WRITE, status)
                return status
        leader_epochs_follow(&log.leader_epochs, at.leader_epoch, at.base_offset)
    segment_note_batch(active, active.size_bytes, at.size_bytes, at.last_offset, at.max_timestamp,
                       log.config.index_interval_bytes)
    atomic_store_i64(&active.size_bytes, active.size_bytes + at.size_bytes)
    log.appended_batches += 1
    log.appended_bytes += at.size_bytes
    return 0


cdef int _append_run(
    Log* log, const uint8_t* records, int64_t size_bytes, FollowerAppend* out
) noexcept nogil:
    """Appends the first batches of checked ones: those of one segment. Returns 0 or
    KAFKA_STORAGE_ERROR."""
    cdef LogMarks marks = log.marks
    cdef Segment* active
    cdef BatchAt at
    cdef int64_t run, done = 0
    cdef int status = 0
    batch_header_at(records, size_bytes, size_bytes, &at)
    if at.last_offset - marks.end_offset > INT32_MAX:
        # A segment that begins at the log's end cannot contain this offset: it begins at the batch.
        marks.end_offset = at.base_offset
        log_publish(log, &marks)
    active = log_ready_to_append(log, at.size_bytes, at.max_timestamp, at.last_offset)
    if active == NULL:
        log.failed_writes += 1
        return STORAGE_ERROR
    run = _run_bytes(log, active, records, size_bytes)
    if log_write(log, active, records, run) < 0:
        return STORAGE_ERROR
    marks = log.marks
    while done < run and status == 0:
        batch_header_at(records + done, run - done, run - done, &at)
        status = _note(log, active, records + done, &at)
        if status == 0:
            done += at.size_bytes
            out.batches += 1
            marks.end_offset = at.last_offset + 1
    if status < 0:
        log_cut_back(log, active, active.size_bytes)
    out.size_bytes += done
    out.end_offset = marks.end_offset
    marks.end_position = active.size_bytes
    log_publish(log, &marks)
    return STORAGE_ERROR if status < 0 else 0


cdef int log_append_as_follower(
    Log* log, const uint8_t* records, int64_t size_bytes, int32_t epoch_max, FollowerAppend* out
) noexcept nogil:
    cdef BatchAt first
    cdef int64_t whole_bytes
    cdef int status = _check(records, size_bytes, epoch_max, &first, &whole_bytes)
    memset(out, 0, sizeof(FollowerAppend))
    if status != 0:
        return status
    pthread_mutex_lock(&log.lock)
    out.end_offset = log.marks.end_offset
    if log.offline or log.closed:
        status = STORAGE_ERROR
    elif whole_bytes and first.base_offset < out.end_offset:
        status = OFFSET_OUT_OF_RANGE
        if log.start_offset == out.end_offset <= first.last_offset:
            status = APPEND_BELOW_START
    while out.size_bytes < whole_bytes and status == 0:
        status = _append_run(log, records + out.size_bytes, whole_bytes - out.size_bytes, out)
    pthread_mutex_unlock(&log.lock)
    return status


cdef int32_t log_last_epoch(Log* log) noexcept nogil:
    return leader_epochs_at(&log.leader_epochs, log_end_offset(log) - 1)
