"""A log without the GIL: segments, append, read, flush. Cimport these names from cext.log.log_handle.

Writers take one short mutex per log; readers never lock: they read published values and the
copy-on-write segment list inside an epoch (epoch.pxd). All functions return a Kafka error code
(0 none, 1 OFFSET_OUT_OF_RANGE, 2 CORRUPT_MESSAGE, 45 OUT_OF_ORDER_SEQUENCE_NUMBER,
47 INVALID_PRODUCER_EPOCH, 56 KAFKA_STORAGE_ERROR, 59 UNKNOWN_PRODUCER_ID, ...).
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

from barnabas.cext.log.leader_epochs cimport LeaderEpochs
from barnabas.cext.log.producers cimport Producers
from barnabas.cext.log.segment cimport Segment, SegmentPool
from barnabas.cext.memory.epoch cimport EpochDomain
from barnabas.cext.memory.mutex cimport pthread_mutex_t
from barnabas.cext.memory.sys cimport System
from barnabas.cext.record.records cimport BatchHeader

cdef struct LogConfig:
    int64_t segment_bytes
    int64_t segment_ms
    int64_t segment_jitter_ms
    int64_t index_interval_bytes
    int64_t segment_index_bytes
    int64_t producer_id_expiration_ms
    bint preallocate
    int64_t flush_messages      # records that may wait for a flush without being asked for

cdef struct LogSlice:
    Segment* segment            # retained for the taker, who calls segment_release
    int64_t position
    int64_t size_bytes

cdef struct Appended:
    int64_t first_offset
    int64_t last_offset
    int64_t log_start_offset
    bint duplicate              # an idempotent batch that is already in the log; offsets are the original's

cdef struct SegmentList:        # replaced whole, never changed
    int64_t count
    Segment* items[1]           # as many as count, ascending; the last is the active one

cdef struct LogMarks:           # two offsets, each with its place in a segment
    int64_t end_offset
    int64_t end_base            # base offset of the segment
    int64_t end_position
    int64_t flushed_offset
    int64_t flushed_base
    int64_t flushed_position

cdef struct Verification:       # a producer whose transaction is being asked for; see log_transactions.pyx
    Verification* next
    int64_t producer_id
    int64_t number
    bint overtaken              # a marker came meanwhile
    bint answered               # it belongs to its transaction, whose end drops this
    int16_t epoch               # of the producer, where it is answered
    bint from_zero              # a producer that is not known here begins with sequence 0

cdef struct Log:                # private to log.pyx and log_handle.pyx: use the functions
    pthread_mutex_t lock        # appends and all other changes
    pthread_mutex_t flushing    # one flush at a time; taken before `lock`
    System* system
    EpochDomain* epochs
    SegmentPool* pool
    char* directory
    LogConfig config
    SegmentList* segments       # atomic
    int64_t marks_version       # odd while marks are written
    LogMarks marks
    int64_t start_offset        # atomic
    int64_t truncations         # odd while a truncation is under way
    int32_t offline             # atomic
    int32_t closed
    bint cut_is_due             # offline only because a failed write could not be cut off again
    bint new_files              # the directory was not synced since a file was made in it
    Producers producers
    LeaderEpochs leader_epochs
    uint64_t random
    int64_t snapshot_offset     # of the newest producer snapshot
    int64_t first_open_offset   # atomic: of the earliest transaction without a marker, -1
    int64_t first_unstable_offset   # atomic: or whose marker is above the high watermark, -1
    int64_t unsettled           # atomic: whether a marker waits for the high watermark
    Verification* verifications
    int64_t verification_number
    int32_t answered_count      # of the verifications
    int64_t appended_batches
    int64_t appended_bytes
    int64_t flushes
    int64_t failed_writes

# As leader: assigns offsets, stamps base offset and leader epoch into `batch` in place, checks and
# updates producer state, rolls when due, writes, indexes, publishes. The batch was validated before.
# Whether more records wait for a flush than flush.messages allows.
cdef bint log_flush_is_due(Log* log) noexcept nogil
cdef int log_append(Log* log, uint8_t* batch, int64_t size_bytes, const BatchHeader* h,
                    int32_t leader_epoch, Appended* out) noexcept nogil
# Finds what a fetch at `offset` may read below `limit_offset`. size 0 with error 0: nothing there yet.
# The first batch is given whole even beyond size_max when whole_first. The slice may end inside a
# later batch. offset == limit is empty; offset > log end or < log start is OFFSET_OUT_OF_RANGE.
cdef int log_read(Log* log, int64_t offset, int64_t size_max, int64_t limit_offset,
                  bint whole_first, LogSlice* out) noexcept nogil
# Everything appended before the call is on disk after it (fdatasync of dirty segments; new files' directory too).
# 0 or KAFKA_STORAGE_ERROR: after a failed fdatasync the log is offline for good until it is opened again.
cdef int log_flush(Log* log) noexcept nogil
cdef int64_t log_start_offset(Log* log) noexcept nogil
cdef int64_t log_end_offset(Log* log) noexcept nogil
cdef int64_t log_flushed_offset(Log* log) noexcept nogil
cdef bint log_is_offline(Log* log) noexcept nogil
# The end offset of the largest epoch <= `epoch` (KIP-101): found_epoch -1 and end_offset -1 when none.
cdef void log_epoch_end(Log* log, int32_t epoch, int32_t* found_epoch, int64_t* end_offset) noexcept nogil
cdef int32_t log_epoch_at(Log* log, int64_t offset) noexcept nogil      # -1: not known

# Cuts a failed write off once more when that is all that keeps the log offline: whether it is usable
# again. Never after a failed flush: what is in memory may not be on disk then.
cdef bint log_cut_again(Log* log) noexcept nogil

# The first offset of the earliest transaction without a marker, -1 when there is none.
cdef int64_t log_first_open_offset(Log* log) noexcept nogil
# The same for a client's batch: a transactional one must belong to a transaction that is open here,
# or to a verification (log_transactions.pxd; 0: none) that no marker has overtaken: else
# INVALID_TXN_STATE. Instead of a verification stands:
cdef enum:
    TRUSTED = -1                # no client's batch
    BUMPING_MARKER = -2         # a marker of an epoch of its own, above its transaction's
cdef int log_append_verified(Log* log, uint8_t* batch, int64_t size_bytes, const BatchHeader* h,
                             int32_t leader_epoch, int64_t verification, Appended* out) noexcept nogil

# The first record at or after a time, below limit_offset; exact for plain batches. *offset -1: none.
# LOG_TIME_COMPRESSED: the record is inside the compressed batch that begins at *offset (of a message
# set v0/v1: whose wrapper has *offset); *found_ms is that batch's largest timestamp, and the caller
# looks inside. Else a Kafka error code.
cdef enum:
    LOG_TIME_COMPRESSED = -1
cdef int log_offset_for_time(Log* log, int64_t timestamp_ms, int64_t limit_offset, int64_t* offset, int64_t* found_ms, int32_t* epoch) noexcept nogil
# The same for the first record with the largest timestamp of the log.
cdef int log_offset_of_max_time(Log* log, int64_t limit_offset, int64_t* offset, int64_t* found_ms, int32_t* epoch) noexcept nogil


# -- for log_handle.pyx, under the log's lock but for the first two ---------------------------------------

cdef Log* log_new(System* system, EpochDomain* epochs, SegmentPool* pool, const char* directory, const LogConfig* config, uint64_t seed) noexcept nogil
cdef void log_free(Log* log) noexcept nogil
cdef void log_note_transactions(Log* log) noexcept nogil
cdef bint log_expects_transaction(const Log* log, int64_t producer_id, int16_t epoch) noexcept nogil
cdef LogMarks log_marks(Log* log) noexcept nogil
cdef Segment* log_new_active(Log* log, int64_t base_offset, int* status) noexcept nogil
cdef int log_roll(Log* log) noexcept nogil
cdef int log_write_snapshot(Log* log, int64_t offset) noexcept nogil
cdef SegmentList* segment_list_of(int64_t count) noexcept nogil
cdef void log_replace_list(Log* log, SegmentList* made) noexcept nogil
cdef void log_publish(Log* log, const LogMarks* marks) noexcept nogil
cdef int64_t segment_list_floor(const SegmentList* segments, int64_t offset) noexcept nogil
