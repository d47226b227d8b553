"""A partition's log without the GIL: append, read, flush, roll. Files are Kafka's.

    TOPIC-PARTITION/  segments (cext/log/segment.pyx), OFFSET.snapshot (cext/log/producers.pyx)

Writers hold `lock`. Readers hold no lock: inside an epoch they read the published marks (the log's
end and its flushed point, each an offset with its position) under a version that is odd while the
marks change, and the segment list, which a change replaces whole and retires through the epoch. A
segment that is removed from the list loses the log's reference in the same way. A truncation makes
`truncations` odd while it lasts; a reader that meets one begins again.

Invariants: offsets only grow, from one batch to the next; start <= flushed <= end (after
DeleteRecords, start may exceed flushed). A batch lies whole in one segment. After a failed write
the file is cut back to its previous end; when that fails, too, the log is offline until a later try
succeeds. After a failed fdatasync the log is offline until it is opened again: the kernel may have
dropped the pages, and a later fdatasync would not report it. A crash leaves at most a torn tail,
which recovery (cext/log/recover.pyx) cuts off.

Next on the data path: cext/log/segment.pyx.
"""
from libc.errno cimport EAGAIN
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, strdup

from barnabas.cext.codec.buffer cimport Buffer, buffer_free, buffer_init
from barnabas.cext.codec.endian cimport be64_load
from barnabas.cext.log.damage cimport damage_note
from barnabas.cext.log.failed_calls cimport (
    FAILED_CUT, FAILED_FLUSH, FAILED_OPEN, FAILED_WRITE, failed_call_note,
)
from barnabas.cext.log.leader_epochs cimport (
    leader_epochs_assign, leader_epochs_at, leader_epochs_end_of, leader_epochs_free,
    leader_epochs_init,
)
from barnabas.cext.log.offline cimport mark_offline, mark_online
from barnabas.cext.log.open_txns cimport (
    OpenTxns, open_txns_first_open, open_txns_first_unstable, open_txns_unsettled,
)
from barnabas.cext.log.producers cimport (
    AbortedTxn, Marker, Producer, ProducerBatch, batch_marker, producer_aborts, producer_check,
    producer_check_marker, producer_duplicate, producer_in_transaction, producer_note,
    producer_note_marker, producers_add, producers_find, producers_free, producers_init,
    snapshot_write,
)
from barnabas.cext.log.recover cimport segment_find_time
from barnabas.cext.log.segment cimport (
    pool_release, pool_retain, segment_entries_left, segment_fd, segment_find, segment_new,
    segment_note_batch, segment_open_active, segment_open_indexes, segment_release,
    segment_reserve_entries, segment_retain, segment_seal,
)
from barnabas.cext.log.txn_index cimport txn_index_append, txn_index_sync
from barnabas.cext.memory.atomics cimport (
    atomic_fence_acquire, atomic_fence_release, atomic_load_i32, atomic_load_i64,
    atomic_load_pointer, atomic_peek_i64, atomic_poke_i64, atomic_store_i64, atomic_store_pointer,
)
from barnabas.cext.memory.epoch cimport epoch_retire
from barnabas.cext.memory.mutex cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
    sched_yield,
)
from barnabas.cext.memory.sys cimport System, write_whole
from barnabas.cext.record.batch_at cimport BatchAt, SEGMENT_CORRUPT
from barnabas.cext.record.records cimport (
    ATTR_CONTROL, ATTR_TRANSACTIONAL, AT_MAX_TIMESTAMP, BatchHeader, batch_size, batch_stamp,
)

cdef extern from "<fcntl.h>" nogil:
    int O_RDWR, O_CREAT, O_EXCL

cdef extern from "<errno.h>" nogil:
    int EEXIST, ENOMEM

cdef enum:                      # Kafka error codes
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    NOT_LEADER_OR_FOLLOWER = 6
    RECORD_LIST_TOO_LARGE = 18
    STORAGE_ERROR = 56
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_TXN_STATE = 48
    INVALID_RECORD = 87

cdef enum:
    PATH_BYTES_MAX = 4096


# ----------------------------------------------------------------------------- creation and freeing

cdef Log* log_new(
    System* system, EpochDomain* epochs, SegmentPool* pool, const char* directory,
    const LogConfig* config, uint64_t seed
) noexcept nogil:
    """Makes a log without segments. Returns NULL without memory."""
    cdef Log* log = <Log*>calloc(1, sizeof(Log))
    if log == NULL:
        return NULL
    log.directory = strdup(directory)
    log.segments = segment_list_of(0)
    if log.directory == NULL or log.segments == NULL:
        free(log.directory)
        free(log.segments)
        free(log)
        return NULL
    pthread_mutex_init(&log.lock, NULL)
    pthread_mutex_init(&log.flushing, NULL)
    log.system = system
    log.epochs = epochs
    log.pool = pool
    pool_retain(pool)
    log.config = config[0]
    log.random = seed | 1
    log.first_open_offset = log.first_unstable_offset = -1
    producers_init(&log.producers)
    leader_epochs_init(&log.leader_epochs)
    log.led_epoch = -1
    return log


cdef void log_free(Log* log) noexcept nogil:
    """Frees a log that no thread can see any more; slices in flight keep their segments."""
    cdef Verification* verification = log.verifications
    cdef Verification* following
    cdef int64_t i
    for i in range(log.segments.count):
        segment_release(log.segments.items[i])
    while verification != NULL:
        following = verification.next
        free(verification)
        verification = following
    free(log.segments)
    producers_free(&log.producers)
    leader_epochs_free(&log.leader_epochs)
    pool_release(log.pool)
    pthread_mutex_destroy(&log.lock)
    pthread_mutex_destroy(&log.flushing)
    free(log.directory)
    free(log)


# ---------------------------------------------------------------------- values that readers may
# read

cdef void log_publish(Log* log, const LogMarks* marks) noexcept nogil:
    """Publishes the log's end and its flushed point. The caller holds the log's lock."""
    cdef int64_t version = atomic_peek_i64(&log.marks_version)
    atomic_poke_i64(&log.marks_version, version + 1)
    atomic_fence_release()
    atomic_poke_i64(&log.marks.end_offset, marks.end_offset)
    atomic_poke_i64(&log.marks.end_base, marks.end_base)
    atomic_poke_i64(&log.marks.end_position, marks.end_position)
    atomic_poke_i64(&log.marks.flushed_offset, marks.flushed_offset)
    atomic_poke_i64(&log.marks.flushed_base, marks.flushed_base)
    atomic_poke_i64(&log.marks.flushed_position, marks.flushed_position)
    atomic_store_i64(&log.marks_version, version + 2)


cdef LogMarks log_marks(Log* log) noexcept nogil:
    cdef LogMarks marks
    cdef int64_t version
    while True:
        version = atomic_load_i64(&log.marks_version)
        marks.end_offset = atomic_peek_i64(&log.marks.end_offset)
        marks.end_base = atomic_peek_i64(&log.marks.end_base)
        marks.end_position = atomic_peek_i64(&log.marks.end_position)
        marks.flushed_offset = atomic_peek_i64(&log.marks.flushed_offset)
        marks.flushed_base = atomic_peek_i64(&log.marks.flushed_base)
        marks.flushed_position = atomic_peek_i64(&log.marks.flushed_position)
        atomic_fence_acquire()
        if not version & 1 and atomic_peek_i64(&log.marks_version) == version:
            return marks
        sched_yield()


cdef inline SegmentList* _segments(Log* log) noexcept nogil:
    return <SegmentList*>atomic_load_pointer(<void**>&log.segments)


cdef inline Segment* _active(Log* log) noexcept nogil:
    return log.segments.items[log.segments.count - 1]


cdef SegmentList* segment_list_of(int64_t count) noexcept nogil:
    cdef SegmentList* made = <SegmentList*>malloc(
        sizeof(SegmentList) + max(count, 1) * sizeof(Segment*))
    if made != NULL:
        made.count = count
    return made


cdef void log_replace_list(Log* log, SegmentList* made) noexcept nogil:
    """Replaces the segment list. The caller holds the log's lock, and retains and releases the
    segments."""
    cdef void* old = log.segments
    atomic_store_pointer(<void**>&log.segments, made)
    epoch_retire(log.epochs, old, free)


cdef int64_t segment_list_floor(const SegmentList* segments, int64_t offset) noexcept nogil:
    """Returns the index of the last segment that begins at or below `offset`, -1 when there is
    none."""
    cdef int64_t low = 0, high = segments.count, middle
    while low < high:
        middle = (low + high) >> 1
        if segments.items[middle].base_offset <= offset:
            low = middle + 1
        else:
            high = middle
    return low - 1


cdef int64_t log_start_offset(Log* log) noexcept nogil:
    return atomic_load_i64(&log.start_offset)


cdef int64_t log_end_offset(Log* log) noexcept nogil:
    return atomic_load_i64(&log.marks.end_offset)


cdef int64_t log_flushed_offset(Log* log) noexcept nogil:
    return atomic_load_i64(&log.marks.flushed_offset)


cdef bint log_flush_is_due(Log* log) noexcept nogil:
    return log_end_offset(log) - log_flushed_offset(log) >= atomic_load_i64(&log.config.flush_messages)


cdef bint log_is_offline(Log* log) noexcept nogil:
    return atomic_load_i32(&log.offline) != 0


cdef int64_t log_first_open_offset(Log* log) noexcept nogil:
    return atomic_load_i64(&log.first_open_offset)


cdef void log_note_transactions(Log* log) noexcept nogil:
    """Publishes the offsets that bound the last stable offset. The caller holds the log's lock."""
    cdef const OpenTxns* open_txns = &log.producers.open
    atomic_store_i64(&log.first_open_offset, open_txns_first_open(open_txns))
    atomic_store_i64(&log.first_unstable_offset, open_txns_first_unstable(open_txns))
    atomic_store_i64(&log.unsettled, open_txns_unsettled(open_txns))


cdef void log_epoch_end(Log* log, int32_t epoch, int32_t* found_epoch, int64_t* end_offset) noexcept nogil:
    leader_epochs_end_of(&log.leader_epochs, epoch, log_end_offset(log), found_epoch, end_offset)

cdef int32_t log_epoch_at(Log* log, int64_t offset) noexcept nogil:
    return leader_epochs_at(&log.leader_epochs, offset)


# ----------------------------------------------------------------------------------------- rolling

cdef int64_t _next_jitter_ms(Log* log) noexcept nogil:
    """Returns a random time from 0 to below segment.jitter.ms (at most segment.ms), so that logs
    with the same load do not all roll at once."""
    cdef int64_t bound = min(log.config.segment_jitter_ms, log.config.segment_ms)
    if bound <= 0:
        return 0
    log.random ^= log.random << 13
    log.random ^= log.random >> 7
    log.random ^= log.random << 17
    return <int64_t>(log.random % <uint64_t>bound)


cdef bint log_roll_is_due(
    Log* log, const Segment* active, int64_t position, int64_t size_bytes, int64_t max_timestamp,
    int64_t last_offset
) noexcept nogil:
    cdef int64_t waited_ms
    if position > log.config.segment_bytes - size_bytes:
        return True
    if segment_entries_left(active) <= 0 or last_offset - active.base_offset > INT32_MAX:
        return True
    if position == 0:
        return False
    if active.first_timestamp >= 0:
        waited_ms = max_timestamp - active.first_timestamp
    else:
        waited_ms = log.system.wall_ms(log.system) - active.created_ms
    return waited_ms > log.config.segment_ms - active.jitter_ms


cdef int log_write_snapshot(Log* log, int64_t offset) noexcept nogil:
    """Writes a producer snapshot at `offset`, unless a newer one exists. It is not synced, because
    its CRC shows a snapshot that a crash has torn, and an older one with the batches behind it gives
    the same state. LogHandle.delete_segments_before syncs the one that replaces deleted batches.
    Returns 0 or -errno."""
    cdef char path[PATH_BYTES_MAX]
    cdef Buffer bytes
    cdef int fd, status
    if offset <= log.snapshot_offset:
        return 0
    buffer_init(&bytes)
    snapshot_write(&log.producers, &bytes)
    if bytes.failed:
        buffer_free(&bytes)
        return -ENOMEM
    snprintf(path, PATH_BYTES_MAX, "%s/%020lld.snapshot", log.directory, <long long>offset)
    fd = log.system.open(log.system, path, O_RDWR | O_CREAT | O_EXCL, 0o644)
    if fd == -EEXIST:       # another directory may have the file too: it is not written to
        log.system.unlink(log.system, path)
        fd = log.system.open(log.system, path, O_RDWR | O_CREAT | O_EXCL, 0o644)
    status = fd
    if fd >= 0:
        status = write_whole(log.system, fd, bytes.data, bytes.size, 0)
        log.system.close(log.system, fd)
        if status == 0:
            log.snapshot_offset = offset
            log.new_files = True
    buffer_free(&bytes)
    return status


cdef Segment* log_new_active(Log* log, int64_t base_offset, int* status) noexcept nogil:
    cdef Segment* made = segment_new(log.pool, log.directory, base_offset)
    if made == NULL:
        status[0] = -ENOMEM
        return NULL
    status[0] = segment_open_active(
        made, log.system, True, log.config.segment_bytes if log.config.preallocate else 0)
    if status[0] < 0:
        segment_release(made)
        return NULL
    made.jitter_ms = _next_jitter_ms(log)
    log.new_files = True
    return made


cdef int log_roll(Log* log) noexcept nogil:
    """Begins a new segment at the log's end; does nothing when the active segment is empty. The
    caller holds the log's lock. Returns 0 or -errno."""
    cdef LogMarks marks = log.marks
    cdef Segment* active = _active(log)
    cdef Segment* made
    cdef SegmentList* segments
    cdef int status
    if active.base_offset == marks.end_offset:
        return 0
    status = log_write_snapshot(log, marks.end_offset)
    if status < 0:
        return status
    segments = segment_list_of(log.segments.count + 1)
    if segments == NULL:
        return -ENOMEM
    made = log_new_active(log, marks.end_offset, &status)
    if made == NULL:
        free(segments)
        return status
    memcpy(segments.items, log.segments.items, log.segments.count * sizeof(Segment*))
    segments.items[segments.count - 1] = made
    # An index file that could not be cut stays longer than its entries, as after a crash.
    segment_seal(active, log.system)
    log_replace_list(log, segments)
    marks.end_base = made.base_offset
    marks.end_position = 0
    log_publish(log, &marks)
    return 0


# --------------------------------------------------------------------------------------- appending

cdef int _check_producer(
    Log* log, const uint8_t* batch, int64_t size_bytes, const BatchHeader* h, Marker* marker,
    int64_t verification, bint* ends_txn, const ProducerBatch** duplicate
) noexcept nogil:
    cdef Producer* entry
    cdef int kind, status
    if h.producer_id < 0:
        return 0
    entry = producers_find(&log.producers, h.producer_id)
    if h.attributes & ATTR_CONTROL:
        kind = batch_marker(batch, size_bytes, marker)
        if kind < 0:
            return INVALID_RECORD
        ends_txn[0] = kind == 1
        if kind != 1:
            return 0
        return producer_check_marker(entry, h, marker, verification == BUMPING_MARKER)
    duplicate[0] = producer_duplicate(entry, h)
    if duplicate[0] != NULL:
        return 0
    status = producer_check(entry, h)
    if status == 0 and verification >= 0 and h.attributes & ATTR_TRANSACTIONAL and (
            not producer_in_transaction(entry, h)):
        return _check_verification(log, entry, h, verification)
    return status


cdef bint log_expects_transaction(const Log* log, int64_t producer_id, int16_t epoch) noexcept nogil:
    cdef const Verification* at = log.verifications if log.answered_count else NULL
    while at != NULL and not (
            at.answered and at.producer_id == producer_id and at.epoch == epoch):
        at = at.next
    return at != NULL


cdef int _check_verification(
    Log* log, const Producer* entry, const BatchHeader* h, int64_t number
) noexcept nogil:
    cdef const Verification* at = log.verifications
    if log_expects_transaction(log, h.producer_id, h.producer_epoch):
        return 0
    while at != NULL and at.number != number:
        at = at.next
    if at == NULL or at.producer_id != h.producer_id or at.overtaken:
        return INVALID_TXN_STATE
    if at.from_zero and h.base_sequence > 0 and (entry == NULL or entry.epoch < 0):
        return OUT_OF_ORDER_SEQUENCE_NUMBER
    return 0


cdef void _overtake(Log* log, int64_t producer_id) noexcept nogil:
    """Marks the producer's pending verifications as overtaken by a marker, because the
    coordinator's answers to them may be about the transaction that has ended; removes the confirmed
    ones."""
    cdef Verification** at = &log.verifications
    cdef Verification* found
    while at[0] != NULL:
        found = at[0]
        if found.producer_id == producer_id and found.answered:
            at[0] = found.next
            log.answered_count -= 1
            free(found)
            continue
        if found.producer_id == producer_id:
            found.overtaken = True
        at = &found.next


cdef int log_write(Log* log, Segment* active, const uint8_t* batch, int64_t size_bytes) noexcept nogil:
    """Writes a batch at the end of the active segment. Returns 0, or -errno; then it has cut the
    file back to its previous end, or marked the log offline when that failed."""
    cdef int64_t position = active.size_bytes
    cdef int status = write_whole(log.system, active.fd, batch, size_bytes, position)
    if status < 0:
        failed_call_note(log.pool, active.stem, FAILED_WRITE, status)
        log_cut_back(log, active, position)
    return status


cdef void log_cut_back(Log* log, Segment* active, int64_t position) noexcept nogil:
    cdef int status = log.system.ftruncate(log.system, active.fd, position)
    log.failed_writes += 1
    if status < 0:
        failed_call_note(log.pool, active.stem, FAILED_CUT, status)
        log.cut_is_due = not log.offline
        mark_offline(&log.offline)


cdef bint log_cut_again(Log* log) noexcept nogil:
    cdef Segment* active
    pthread_mutex_lock(&log.lock)
    if log.cut_is_due and not log.closed:
        active = _active(log)
        if log.system.ftruncate(log.system, active.fd, active.size_bytes) == 0:
            log.cut_is_due = False
            mark_online(&log.offline)
    pthread_mutex_unlock(&log.lock)
    return not log_is_offline(log)


cdef int log_note_producer(
    Log* log, Segment* active, const BatchHeader* h, const Marker* marker, bint ends_txn,
    int64_t first_offset, int64_t last_offset
) noexcept nogil:
    """Updates the producer's state; before an abort it writes the transaction index entry. Returns
    0, or -errno; then the state has not changed."""
    cdef AbortedTxn aborted
    cdef Producer* entry = producers_add(&log.producers, h.producer_id)
    cdef bint was_open
    cdef int status
    if entry == NULL:
        return -ENOMEM
    was_open = entry.txn_first_offset >= 0
    if not ends_txn:
        if not producer_note(&log.producers, entry, h, first_offset, last_offset):
            return -ENOMEM
    else:
        if producer_aborts(&log.producers, entry, marker, last_offset, &aborted):
            status = txn_index_append(active, log.system, &aborted)
            if status < 0:
                return status
            log.new_files = True
        producer_note_marker(&log.producers, entry, h, marker, last_offset)
        _overtake(log, h.producer_id)
    if was_open != (entry.txn_first_offset >= 0):
        log_note_transactions(log)
    return 0


cdef Segment* log_ready_to_append(
    Log* log, int64_t size_bytes, int64_t max_timestamp, int64_t last_offset
) noexcept nogil:
    """Returns the active segment, after a roll if one is due, with open indexes that have space for
    one more entry; NULL after a failure."""
    cdef Segment* active = _active(log)
    cdef int status = 0
    if log_roll_is_due(
        log, active, active.size_bytes, size_bytes, max_timestamp, last_offset
    ):
        status = log_roll(log)
        active = _active(log)
    if status == 0 and (active.offsets.map == NULL or active.times.map == NULL):
        status = segment_open_indexes(
            active, log.system, log.config.segment_index_bytes, active.size_bytes == 0)
        log.new_files = True
    if status == 0:
        status = segment_reserve_entries(active, log.system)
    if status < 0:
        failed_call_note(log.pool, active.stem, FAILED_OPEN, status)
        return NULL
    return active


cdef int _append(
    Log* log, uint8_t* batch, int64_t size_bytes, const BatchHeader* h, int32_t leader_epoch,
    int64_t verification, Appended* out
) noexcept nogil:
    cdef const ProducerBatch* duplicate = NULL
    cdef Marker marker
    cdef bint ends_txn = False
    cdef LogMarks marks = log.marks
    cdef int64_t max_timestamp = <int64_t>be64_load(batch + AT_MAX_TIMESTAMP)
    cdef int64_t last_offset = marks.end_offset + h.last_offset_delta
    cdef Segment* active
    cdef int status
    if log.offline or log.closed:
        return STORAGE_ERROR
    if leader_epoch < log.led_epoch:
        return NOT_LEADER_OR_FOLLOWER
    status = _check_producer(
        log, batch, size_bytes, h, &marker, verification, &ends_txn, &duplicate)
    if status != 0:
        return status
    out.log_start_offset = log.start_offset
    if duplicate != NULL:
        out.first_offset = duplicate.last_offset - duplicate.offset_delta
        out.last_offset = duplicate.last_offset
        out.duplicate = True
        return 0
    active = log_ready_to_append(log, size_bytes, max_timestamp, last_offset)
    if active == NULL:
        log.failed_writes += 1
        return STORAGE_ERROR
    marks = log.marks
    batch_stamp(batch, marks.end_offset, leader_epoch)
    if log_write(log, active, batch, size_bytes) < 0:
        return STORAGE_ERROR
    if h.producer_id >= 0 and (ends_txn or not h.attributes & ATTR_CONTROL):
        status = log_note_producer(log, active, h, &marker, ends_txn, marks.end_offset, last_offset)
        if status < 0:
            failed_call_note(log.pool, active.stem, FAILED_WRITE, status)
            log_cut_back(log, active, active.size_bytes)
            return STORAGE_ERROR
    leader_epochs_assign(&log.leader_epochs, leader_epoch, marks.end_offset)
    segment_note_batch(active, active.size_bytes, size_bytes, last_offset, max_timestamp,
                       log.config.index_interval_bytes)
    atomic_store_i64(&active.size_bytes, active.size_bytes + size_bytes)
    log.appended_batches += 1
    log.appended_bytes += size_bytes
    out.first_offset = marks.end_offset
    out.last_offset = last_offset
    out.duplicate = False
    marks.end_offset = last_offset + 1
    marks.end_position = active.size_bytes
    log_publish(log, &marks)
    return 0


cdef int log_append_verified(
    Log* log, uint8_t* batch, int64_t size_bytes, const BatchHeader* h, int32_t leader_epoch,
    int64_t verification, Appended* out
) noexcept nogil:
    cdef int status
    if h.magic != 2 or size_bytes != batch_size(h) or h.last_offset_delta < 0:
        return CORRUPT_MESSAGE
    if size_bytes > log.config.segment_bytes:
        return RECORD_LIST_TOO_LARGE
    pthread_mutex_lock(&log.lock)
    status = _append(log, batch, size_bytes, h, leader_epoch, verification, out)
    pthread_mutex_unlock(&log.lock)
    return status


cdef int log_append(
    Log* log, uint8_t* batch, int64_t size_bytes, const BatchHeader* h, int32_t leader_epoch,
    Appended* out
) noexcept nogil:
    return log_append_verified(log, batch, size_bytes, h, leader_epoch, TRUSTED, out)


# ----------------------------------------------------------------------------------------- reading

cdef int _read_segment(
    Log* log, System* system, const SegmentList* segments, int64_t i, int64_t offset,
    int64_t size_max, int64_t limit_offset, bint whole_first, const LogMarks* marks, LogSlice* out,
    int64_t* searched
) noexcept nogil:
    """Finds the slice in one segment. Returns 1; 0 when the segment has no batch below the limit; 2
    when the caller must try the next segment; -errno or SEGMENT_CORRUPT. `searched`: the offset that
    it searched for last."""
    cdef Segment* segment = segments.items[i]
    cdef BatchAt first, past
    cdef int64_t end = atomic_load_i64(&segment.size_bytes)
    cdef int64_t limit
    cdef bint limit_inside = i + 1 == segments.count or (
        segments.items[i + 1].base_offset > limit_offset)
    cdef int status
    if segment.base_offset == marks.end_base:
        end = marks.end_position
    searched[0] = offset
    status = segment_find(segment, system, offset, end, &first)
    if status < 0:
        out.position = first.position
        return status
    if status == 0 or first.base_offset >= limit_offset:
        return 0 if limit_inside or status == 1 else 2
    limit = end
    if limit_inside and limit_offset < marks.end_offset:
        if limit_offset == marks.flushed_offset and segment.base_offset == marks.flushed_base:
            limit = marks.flushed_position
        else:
            searched[0] = limit_offset
            status = segment_find(segment, system, limit_offset, end, &past)
            if status < 0:
                out.position = past.position
                return status
            limit = past.position if status == 1 else end
    if first.position >= limit:
        return 0
    out.position = first.position
    out.size_bytes = min(limit - first.position, max(size_max, <int64_t>0))
    if whole_first and out.size_bytes < first.size_bytes:
        out.size_bytes = first.size_bytes
    if out.size_bytes == 0:
        return 0
    out.segment = segment
    return 1


cdef int _read(
    Log* log, System* system, int64_t offset, int64_t size_max, int64_t limit_offset,
    bint whole_first, LogSlice* out, ColdPlace* cold
) noexcept nogil:
    """Finds the slice, as log_read. Returns a Kafka error code; -1 when the segment list changed
    meanwhile and the caller must begin again; LOG_COLD only if `system` never waits."""
    cdef int64_t searched
    cdef LogMarks marks = log_marks(log)
    cdef SegmentList* segments = _segments(log)
    cdef int64_t i
    cdef int status
    if offset < log_start_offset(log) or offset > marks.end_offset:
        return OFFSET_OUT_OF_RANGE
    limit_offset = min(limit_offset, marks.end_offset)
    if offset >= limit_offset:
        return 0
    i = max(segment_list_floor(segments, offset), <int64_t>0)
    while i < segments.count:
        segment_retain(segments.items[i])
        status = _read_segment(
            log, system, segments, i, offset, size_max, limit_offset, whole_first, &marks, out,
            &searched)
        if status < 0 and (
            atomic_load_i64(&log.truncations) & 1 or _segments(log) != segments
        ):
            segment_release(segments.items[i])
            return -1
        if status == -EAGAIN and cold != NULL:
            out.position = 0
            cold.segment = segments.items[i]
            cold.what = COLD_OFFSET
            cold.at = searched
            return LOG_COLD
        if status == SEGMENT_CORRUPT:
            damage_note(segments.items[i], out.position, segments.items[i].size_bytes)
            out.position = 0
        if status != 1:
            segment_release(segments.items[i])
        if status < 0:
            return CORRUPT_MESSAGE if status == SEGMENT_CORRUPT else STORAGE_ERROR
        if status != 2:
            return 0
        i += 1
    return 0


cdef inline int _read_untruncated(
    Log* log, System* system, int64_t offset, int64_t size_max, int64_t limit_offset,
    bint whole_first, LogSlice* out, ColdPlace* cold
) noexcept nogil:
    cdef int64_t truncations
    cdef int status
    while True:
        out.segment = NULL
        out.position = out.size_bytes = 0
        truncations = atomic_load_i64(&log.truncations)
        if not truncations & 1:
            status = _read(
                log, system, offset, size_max, limit_offset, whole_first, out, cold)
            if status != -1 and atomic_load_i64(&log.truncations) == truncations:
                return status
            if out.segment != NULL:
                segment_release(out.segment)
            if status == LOG_COLD:
                segment_release(cold.segment)
        sched_yield()


cdef int log_read(
    Log* log, int64_t offset, int64_t size_max, int64_t limit_offset, bint whole_first,
    LogSlice* out
) noexcept nogil:
    return _read_untruncated(
        log, log.system, offset, size_max, limit_offset, whole_first, out, NULL)


cdef int log_read_cached(
    Log* log, int64_t offset, int64_t size_max, int64_t limit_offset, bint whole_first,
    LogSlice* out, ColdPlace* cold
) noexcept nogil:
    return _read_untruncated(
        log, log.system.cached_only, offset, size_max, limit_offset, whole_first, out, cold)


cdef int _time_in(
    Log* log, const SegmentList* segments, int64_t i, int64_t timestamp_ms, int64_t limit_offset,
    int64_t* offset, int64_t* found_ms, int32_t* epoch
) noexcept nogil:
    """Searches one segment. Returns 1 when the record was found or lies above the limit (*offset is
    -1), 2 when it is inside a compressed batch, 0 when it is not in this segment, -errno or
    SEGMENT_CORRUPT."""
    cdef Segment* segment = segments.items[i]
    cdef LogMarks marks = log_marks(log)
    cdef int64_t end = atomic_load_i64(&segment.size_bytes)
    cdef int status
    if segment.base_offset == marks.end_base:
        end = marks.end_position
    segment_retain(segment)
    status = segment_find_time(segment, log.system, timestamp_ms, end, offset, found_ms)
    segment_release(segment)
    if status > 0:
        if offset[0] >= limit_offset:
            offset[0] = found_ms[0] = -1
            return 1
        epoch[0] = log_epoch_at(log, offset[0])
    return status


cdef int log_offset_for_time(
    Log* log, int64_t timestamp_ms, int64_t limit_offset, int64_t* offset, int64_t* found_ms,
    int32_t* epoch
) noexcept nogil:
    cdef SegmentList* segments = _segments(log)
    cdef int64_t i
    cdef int status
    epoch[0] = -1
    for i in range(segments.count):
        if atomic_load_i64(&segments.items[i].max_timestamp) < timestamp_ms:
            continue
        status = _time_in(log, segments, i, timestamp_ms, limit_offset, offset, found_ms, epoch)
        if status < 0:
            return CORRUPT_MESSAGE if status == SEGMENT_CORRUPT else STORAGE_ERROR
        if status > 0:
            return LOG_TIME_COMPRESSED if status == 2 and offset[0] >= 0 else 0
    offset[0] = found_ms[0] = -1
    return 0


cdef int log_offset_of_max_time(
    Log* log, int64_t limit_offset, int64_t* offset, int64_t* found_ms, int32_t* epoch
) noexcept nogil:
    cdef SegmentList* segments = _segments(log)
    cdef int64_t largest = -1, i
    for i in range(segments.count):
        largest = max(largest, atomic_load_i64(&segments.items[i].max_timestamp))
    if largest < 0:
        epoch[0] = -1
        offset[0] = found_ms[0] = -1
        return 0
    return log_offset_for_time(log, largest, limit_offset, offset, found_ms, epoch)


# ---------------------------------------------------------------------------------------- flushing

cdef int _sync_dirty(Log* log, SegmentList* dirty) noexcept nogil:
    cdef Segment* segment
    cdef int64_t i, size_bytes
    cdef int fd, status
    for i in range(dirty.count):
        segment = dirty.items[i]
        status = txn_index_sync(segment, log.system)
        if status < 0:
            failed_call_note(log.pool, segment.stem, FAILED_FLUSH, status)
            return status
        size_bytes = atomic_load_i64(&segment.size_bytes)
        if atomic_load_i64(&segment.flushed_bytes) >= size_bytes:
            continue
        fd = segment_fd(segment, log.system)
        status = fd if fd < 0 else log.system.fdatasync(log.system, fd)
        if status < 0:
            failed_call_note(log.pool, segment.stem, FAILED_FLUSH, status)
            return status
        atomic_store_i64(&segment.flushed_bytes, size_bytes)
    return 0


cdef inline bint _is_unwritten(Log* log) noexcept nogil:
    """Returns whether the log never had a record: its files need no sync, because the next opening
    makes lost files again."""
    return (log.segments.count == 1 and log.marks.end_offset == 0 and log.start_offset == 0
            and log.truncations == 0)


cdef int _flush(Log* log) noexcept nogil:
    """Flushes the log. The caller holds `flushing`. It holds the log's lock only to read what must
    be flushed and to publish the result. Returns 0 or KAFKA_STORAGE_ERROR."""
    cdef LogMarks target
    cdef LogMarks marks
    cdef SegmentList* dirty
    cdef int64_t first, i, truncations
    cdef bint new_files
    cdef int status = 0
    pthread_mutex_lock(&log.lock)
    target = log.marks
    truncations = log.truncations
    new_files = log.new_files
    if log.offline or log.closed:
        pthread_mutex_unlock(&log.lock)
        return STORAGE_ERROR
    if target.flushed_offset >= target.end_offset and (not new_files or _is_unwritten(log)):
        pthread_mutex_unlock(&log.lock)
        return 0
    first = max(segment_list_floor(log.segments, target.flushed_base), <int64_t>0)
    dirty = segment_list_of(log.segments.count - first)
    if dirty == NULL:
        pthread_mutex_unlock(&log.lock)
        return STORAGE_ERROR
    for i in range(dirty.count):
        dirty.items[i] = log.segments.items[first + i]
        segment_retain(dirty.items[i])
    log.new_files = False
    pthread_mutex_unlock(&log.lock)
    status = _sync_dirty(log, dirty)
    if status == 0 and new_files:
        status = log.system.fsync_directory(log.system, log.directory)
        if status < 0:
            failed_call_note(log.pool, dirty.items[dirty.count - 1].stem, FAILED_FLUSH, status)
    for i in range(dirty.count):
        segment_release(dirty.items[i])
    free(dirty)
    pthread_mutex_lock(&log.lock)
    if status < 0:
        log.cut_is_due = False      # cutting off a write would not make the log usable now
        mark_offline(&log.offline)
    elif log.truncations == truncations:
        marks = log.marks
        marks.flushed_offset = target.end_offset
        marks.flushed_base = target.end_base
        marks.flushed_position = target.end_position
        log.flushes += 1
        log_publish(log, &marks)
    pthread_mutex_unlock(&log.lock)
    return STORAGE_ERROR if status < 0 else 0


cdef int log_flush(Log* log) noexcept nogil:
    cdef int status
    pthread_mutex_lock(&log.flushing)
    status = _flush(log)
    pthread_mutex_unlock(&log.flushing)
    return status
