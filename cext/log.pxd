"""A partition's log: segments, append, read. The file format is Kafka's (see segment.pyx).

The names below come from local_log.pxd and log_transactions.pxd, where each is described: writers take one short mutex per
log, readers never lock. A Log* is used inside epoch_enter/epoch_leave only. What is here besides
is Python's owner of a log.
"""
from barnabas.cext.epoch cimport Epochs
from barnabas.cext.local_log cimport (
    Appended, LOG_TIME_COMPRESSED, Log, LogConfig, LogMarks, LogSlice, SegmentList, log_append,
    log_append_verified, log_end_offset, log_epoch_at, log_epoch_end, log_first_open_offset, log_flush,
    log_flushed_offset, log_flush_is_due, log_is_offline, log_offset_for_time,
    log_offset_of_max_time, log_read, log_start_offset,
)
from barnabas.cext.log_transactions cimport (
    log_aborted_txns, log_begin_verification, log_end_verification, log_first_unstable_offset,
    log_expect_transaction, log_high_watermark_moved, log_knows_transaction, log_renew_verification,
    log_transactions_restored,
)
from barnabas.cext.segment cimport Segment, SegmentCache, segment_release, segment_retain
from barnabas.cext.sys cimport System, SystemCalls

cdef class LogHandle:
    """Python's owner of one Log: open, append, read, flush, roll, truncate, delete segments, close."""
    cdef Log* log
    cdef SystemCalls system             # kept alive for the Log
    cdef Epochs epochs
    cdef SegmentCache cache
    cdef readonly object directory      # str
    cdef readonly bint holds_deleted    # .deleted files wait for unlink_deleted()
    cdef readonly object recovered      # facts of the opening: see LogHandle.open
