"""Transactions in one log: how far readers of committed records see, and who may write."""
from libc.stdint cimport int16_t, int64_t

from barnabas.cext.log.log cimport Log, LogSlice
from barnabas.cext.log.txn_index cimport AbortedTxns
from barnabas.cext.record.records cimport BatchHeader

# The offset at which readers of committed records stop, -1: none. Read the high watermark first,
# then this. It counts transactions whose marker the high watermark has not passed.
cdef int64_t log_first_unstable_offset(Log* log) noexcept nogil
# Called when the high watermark has moved: transactions with a marker below it no longer count.
cdef void log_high_watermark_moved(Log* log, int64_t high_watermark) noexcept nogil
# After producer state was rebuilt: every marker found counts.
cdef void log_transactions_restored(Log* log) noexcept nogil
# Aborted transactions that reach into a slice read from `offset` on below limit_offset. 0 or
# KAFKA_STORAGE_ERROR; `found` is the caller's to free either way.
cdef int log_aborted_txns(Log* log, int64_t offset, int64_t limit_offset, const LogSlice* slice, AbortedTxns* found) noexcept nogil

# Whether a batch goes on with a transaction that is open here, or begins one that is expected.
cdef bint log_knows_transaction(Log* log, const BatchHeader* h) noexcept nogil
# Notes that the producer's transaction has begun and this partition belongs to it: until a marker
# comes its batches need no verification. The caller keeps the transaction from ending meanwhile.
# False: there are EXPECTED_MAX of them, or no memory; then its first batch is verified.
cdef bint log_expect_transaction(Log* log, int64_t producer_id, int16_t epoch) noexcept nogil
# A number for log_append_verified; begin it before the request to the coordinator; 0: no memory.
# from_zero: a producer that this log does not know must begin with sequence 0.
cdef int64_t log_begin_verification(Log* log, int64_t producer_id, bint from_zero) noexcept nogil
# Whether a marker of its producer has come since; the verification counts as begun now. The caller
# must send its request to the coordinator again.
cdef bint log_renew_verification(Log* log, int64_t number) noexcept nogil
cdef void log_end_verification(Log* log, int64_t number) noexcept nogil
