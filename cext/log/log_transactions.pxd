"""Transactions in one log: the last stable offset, and the check of transactional batches."""
from libc.stdint cimport int16_t, int64_t

from barnabas.cext.log.log cimport ColdPlace, Log, LogSlice
from barnabas.cext.log.txn_index cimport AbortedTxns
from barnabas.cext.memory.sys cimport System
from barnabas.cext.record.records cimport BatchHeader

# Returns the first offset of the earliest transaction that is open or whose marker the high
# watermark has not passed: readers of committed records stop there; -1: none. Read the high
# watermark first, then this.
cdef int64_t log_first_unstable_offset(Log* log) noexcept nogil
# Called when the high watermark has moved: transactions whose marker is below it no longer hold
# back the last stable offset.
cdef void log_high_watermark_moved(Log* log, int64_t high_watermark) noexcept nogil
# Called after producer state was rebuilt: the next call of log_high_watermark_moved says which of the
# markers that were found have been passed.
cdef void log_transactions_restored(Log* log) noexcept nogil
# Finds the aborted transactions that reach into a slice that was read from `offset` on, below
# limit_offset. Returns 0 or KAFKA_STORAGE_ERROR; the caller frees `found` in both cases. With `cold`
# it does not wait for the disk, and may return LOG_COLD, as log_read_cached.
cdef int log_aborted_txns(Log* log, int64_t offset, int64_t limit_offset, const LogSlice* slice, AbortedTxns* found, ColdPlace* cold) noexcept nogil
# Reads what a lookup did not find in memory, so that it is there afterwards, as far as the page cache
# keeps it. Whatever fails here fails again in the lookup.
cdef void cold_place_read(const ColdPlace* cold, System* system) noexcept nogil

# Returns whether a batch continues a transaction that is open here, or begins one that the
# coordinator has confirmed.
cdef bint log_knows_transaction(Log* log, const BatchHeader* h) noexcept nogil
# Notes that the producer's transaction has begun and this partition belongs to it: until a marker
# is appended, its batches need no verification. The caller ensures that the transaction does not
# end during the call. Returns False when there are EXPECTED_MAX such notes or no memory; then the
# first batch is verified.
cdef bint log_expect_transaction(Log* log, int64_t producer_id, int16_t epoch) noexcept nogil
# Begins a verification and returns its number for log_append_verified; 0 without memory. Begin it
# before the request to the coordinator. from_zero: a producer that this log does not know must
# begin with sequence 0.
cdef int64_t log_begin_verification(Log* log, int64_t producer_id, bint from_zero) noexcept nogil
# Returns whether a marker of its producer has come since; the verification then counts as begun
# now, and the caller must send its request to the coordinator again.
cdef bint log_renew_verification(Log* log, int64_t number) noexcept nogil
cdef void log_end_verification(Log* log, int64_t number) noexcept nogil
