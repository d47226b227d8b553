"""Transactions in one log: the last stable offset, aborted ones for readers, verification of
writers.

Readers of committed records see records below the earliest transaction that is open, or whose
marker the high watermark has not passed yet. Writers publish that offset under the log's lock;
readers read it without the lock. A thread that reads the high watermark first and this offset
second never sees too far, because a transaction is noted here before its batch can be below the
high watermark.

A transactional batch of a client is appended when its producer has a transaction open in this log.
For the first batch of a transaction the coordinator must confirm that the partition belongs to it.
Before its answer arrives, a marker may end that transaction. Therefore a request begins a
verification before it asks the coordinator, and the append checks it: a marker in between overtakes
the verification, so that no batch is appended that no marker will follow. A coordinator on this
node confirms in advance, when it adds the partition to a transaction; that confirmation ends with
the marker. The log keeps verifications in a list, 48 bytes each: one for each waiting request, and
EXPECTED_MAX confirmed ones.

Next on the data path: cext/log/txn_index.pyx.
"""
from libc.errno cimport EAGAIN
from libc.stdint cimport int16_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from barnabas.cext.log.log cimport (
    COLD_ABORTED, COLD_BATCH, COLD_OFFSET, ColdPlace, LOG_COLD, SegmentList, Verification,
    log_expects_transaction, log_note_transactions, segment_list_floor,
)
from barnabas.cext.log.open_txns cimport open_txns_settle
from barnabas.cext.log.producers cimport producer_in_transaction, producers_find
from barnabas.cext.log.segment cimport (
    Segment, segment_find, segment_offset_above, segment_release, segment_retain,
)
from barnabas.cext.log.txn_index cimport aborted_txns_free, txn_index_collect
from barnabas.cext.memory.atomics cimport atomic_load_i64, atomic_load_pointer
from barnabas.cext.memory.mutex cimport pthread_mutex_lock, pthread_mutex_unlock
from barnabas.cext.memory.sys cimport System
from barnabas.cext.record.batch_at cimport BatchAt

cdef enum:                      # Kafka error codes
    STORAGE_ERROR = 56
cdef enum:
    EXPECTED_MAX = 256          # the first append of each transaction searches this list


cdef int64_t log_first_unstable_offset(Log* log) noexcept nogil:
    return atomic_load_i64(&log.first_unstable_offset)


cdef void log_high_watermark_moved(Log* log, int64_t high_watermark) noexcept nogil:
    if not atomic_load_i64(&log.unsettled):
        return
    pthread_mutex_lock(&log.lock)
    if open_txns_settle(&log.producers.open, high_watermark):
        log_note_transactions(log)
    pthread_mutex_unlock(&log.lock)


cdef void log_transactions_restored(Log* log) noexcept nogil:
    log_note_transactions(log)


cdef int _collect(
    System* system, const SegmentList* segments, int64_t offset, int64_t limit_offset,
    AbortedTxns* found, ColdPlace* cold
) noexcept nogil:
    cdef Segment* segment
    cdef int64_t i = max(segment_list_floor(segments, offset), <int64_t>0)
    cdef int status
    while i < segments.count:
        segment = segments.items[i]
        segment_retain(segment)
        status = txn_index_collect(segment, system, offset, limit_offset, found)
        if status == -EAGAIN and cold != NULL:
            return _is_cold(cold, segment, COLD_ABORTED, offset, limit_offset)
        segment_release(segment)
        if status != 0:
            return 0 if status == 1 else STORAGE_ERROR
        i += 1
    return 0


cdef bint _has_aborts(const SegmentList* segments, int64_t offset) noexcept nogil:
    """Returns whether a segment may contain a marker that aborts a transaction at or above `offset`."""
    cdef int64_t i = max(segment_list_floor(segments, offset), <int64_t>0)
    cdef Segment* segment
    while i < segments.count:
        segment = segments.items[i]
        if atomic_load_i64(&segment.aborted_count) < 0 or (
                atomic_load_i64(&segment.aborted_last_offset) >= offset):
            return True
        i += 1
    return False


cdef int log_aborted_txns(
    Log* log, int64_t offset, int64_t limit_offset, const LogSlice* slice, AbortedTxns* found,
    ColdPlace* cold
) noexcept nogil:
    cdef System* system = log.system if cold == NULL else log.system.cached_only
    cdef const SegmentList* segments = <const SegmentList*>atomic_load_pointer(
        <void**>&log.segments)
    cdef int64_t i = segment_list_floor(segments, slice.segment.base_offset) + 1
    cdef int64_t above = limit_offset, found_above
    if not _has_aborts(segments, offset):
        return 0
    if 0 < i < segments.count:
        above = min(above, segments.items[i].base_offset)
    found_above = segment_offset_above(
        slice.segment, system, slice.position + slice.size_bytes, above)
    if found_above == -EAGAIN and cold != NULL:
        segment_retain(slice.segment)
        return _is_cold(cold, slice.segment, COLD_BATCH, slice.position + slice.size_bytes, 0)
    return _collect(system, segments, offset, min(above, found_above), found, cold)


cdef inline int _is_cold(
    ColdPlace* cold, Segment* segment, int what, int64_t at, int64_t until
) noexcept nogil:
    """Takes over a reference to the segment."""
    cold.segment, cold.what, cold.at, cold.until = segment, what, at, until
    return LOG_COLD


cdef void cold_place_read(const ColdPlace* cold, System* system) noexcept nogil:
    cdef BatchAt found
    cdef AbortedTxns aborted
    if cold.what == COLD_OFFSET:
        segment_find(
            cold.segment, system, cold.at, atomic_load_i64(&cold.segment.size_bytes), &found)
    elif cold.what == COLD_BATCH:
        segment_offset_above(cold.segment, system, cold.at, 0)
    else:
        memset(&aborted, 0, sizeof(AbortedTxns))
        txn_index_collect(cold.segment, system, cold.at, cold.until, &aborted)
        aborted_txns_free(&aborted)


# ------------------------------------------------------------------------------------ verification

cdef bint log_knows_transaction(Log* log, const BatchHeader* h) noexcept nogil:
    cdef bint found
    pthread_mutex_lock(&log.lock)
    found = producer_in_transaction(producers_find(&log.producers, h.producer_id), h) or (
        log_expects_transaction(log, h.producer_id, h.producer_epoch))
    pthread_mutex_unlock(&log.lock)
    return found


cdef bint log_expect_transaction(Log* log, int64_t producer_id, int16_t epoch) noexcept nogil:
    cdef Verification* made = <Verification*>calloc(1, sizeof(Verification))
    cdef bint expected
    if made == NULL:
        return False
    made.producer_id, made.epoch, made.answered = producer_id, epoch, True
    pthread_mutex_lock(&log.lock)
    expected = log_expects_transaction(log, producer_id, epoch)
    if not expected and log.answered_count < EXPECTED_MAX:
        log.answered_count += 1
        log.verification_number += 1
        made.number = log.verification_number       # no other verification has it, and 0 means none
        made.next = log.verifications
        log.verifications = made
        made = NULL
        expected = True
    pthread_mutex_unlock(&log.lock)
    free(made)
    return expected


cdef int64_t log_begin_verification(Log* log, int64_t producer_id, bint from_zero) noexcept nogil:
    cdef Verification* made = <Verification*>calloc(1, sizeof(Verification))
    if made == NULL:
        return 0
    made.producer_id = producer_id
    made.from_zero = from_zero
    pthread_mutex_lock(&log.lock)
    log.verification_number += 1
    made.number = log.verification_number
    made.next = log.verifications
    log.verifications = made
    pthread_mutex_unlock(&log.lock)
    return made.number


cdef bint log_renew_verification(Log* log, int64_t number) noexcept nogil:
    cdef Verification* at
    cdef bint overtaken
    pthread_mutex_lock(&log.lock)
    at = log.verifications
    while at != NULL and at.number != number:
        at = at.next
    overtaken = at != NULL and at.overtaken
    if overtaken:
        at.overtaken = False
    pthread_mutex_unlock(&log.lock)
    return overtaken


cdef void log_end_verification(Log* log, int64_t number) noexcept nogil:
    cdef Verification** at
    cdef Verification* found
    pthread_mutex_lock(&log.lock)
    at = &log.verifications
    while at[0] != NULL and at[0].number != number:
        at = &at[0].next
    found = at[0]
    if found != NULL:
        at[0] = found.next
    pthread_mutex_unlock(&log.lock)
    free(found)
