"""A log without the GIL: segments, append, read, flush; described in log.pyx.

Writers take one short mutex per log; readers never lock: they read published values and the
copy-on-write segment list inside an epoch (epoch.pxd). Functions that read or append return a Kafka
error code (0 none, 1 OFFSET_OUT_OF_RANGE, 2 CORRUPT_MESSAGE, 45 OUT_OF_ORDER_SEQUENCE_NUMBER, 47
INVALID_PRODUCER_EPOCH, 56 KAFKA_STORAGE_ERROR, ...).
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

from barnabas.cext.log.leader_epochs cimport LeaderEpochs
from barnabas.cext.log.producers cimport Marker, Producers
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
    int64_t flush_messages      # flush.messages: a flush is due at this number of unflushed records

cdef struct LogSlice:
    Segment* segment            # retained: the receiver calls segment_release
    int64_t position
    int64_t size_bytes

# What a lookup cannot find without waiting for the disk.
cdef enum:
    COLD_OFFSET = 0             # the batch of the offset `at`
    COLD_BATCH = 1              # the header of the batch at the position `at`
    COLD_ABORTED = 2            # the transactions that were aborted between the offsets `at` and `until`

cdef struct ColdPlace:
    Segment* segment            # retained: the receiver calls segment_release; NULL: nothing is cold
    int what
    int64_t at
    int64_t until

cdef struct Appended:
    int64_t first_offset
    int64_t last_offset
    int64_t log_start_offset
    bint duplicate              # the log has the batch already, at these offsets

cdef struct SegmentList:        # a change replaces the whole list
    int64_t count
    Segment* items[1]           # `count` segments, ascending; the last is the active one

cdef struct LogMarks:           # two offsets, each with its place in a segment
    int64_t end_offset
    int64_t end_base            # base offset of the segment
    int64_t end_position
    int64_t flushed_offset
    int64_t flushed_base
    int64_t flushed_position

# A producer's transaction that the coordinator must confirm, or has confirmed; see
# log_transactions.pyx.
cdef struct Verification:
    Verification* next
    int64_t producer_id
    int64_t number
    bint overtaken              # a marker was appended after the verification had begun
    bint answered               # the coordinator has confirmed it; the transaction's end removes it
    int16_t epoch               # the producer's epoch, when `answered`
    bint from_zero              # a producer that is not known here must begin with sequence 0

cdef struct Log:                # private to cext/log: other packages use the functions
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
    bint cut_is_due             # offline only because a failed write could not be cut off
    bint new_files              # the directory has new files since its last sync
    Producers producers
    LeaderEpochs leader_epochs
    int32_t led_epoch           # a leader of an earlier epoch may not append; -1: any may
    uint64_t random
    int64_t snapshot_offset     # of the newest producer snapshot
    int64_t first_open_offset   # atomic: of the earliest transaction without a marker, or -1
    # atomic: the same, also for transactions whose marker is not below the high watermark
    int64_t first_unstable_offset
    int64_t unsettled           # atomic: whether a marker waits for the high watermark
    Verification* verifications
    int64_t verification_number
    int32_t answered_count      # number of confirmed verifications
    int64_t appended_batches
    int64_t appended_bytes
    int64_t flushes
    int64_t failed_writes

# Returns whether at least flush.messages records wait for a flush.
cdef bint log_flush_is_due(Log* log) noexcept nogil
# Appends a batch as leader: assigns offsets, writes base offset and leader epoch into `batch` in
# place, checks and updates producer state, rolls when due, writes, indexes, and publishes the new
# end offset.
# The caller has validated the batch.
cdef int log_append(Log* log, uint8_t* batch, int64_t size_bytes, const BatchHeader* h,
                    int32_t leader_epoch, Appended* out) noexcept nogil
# Finds the bytes that a fetch at `offset` may read below `limit_offset`. Size 0 with error 0: there
# are none yet. With whole_first the slice contains the first batch whole, even beyond size_max. The
# slice may end inside a later batch. It is empty when offset == limit_offset; an offset above the
# log's end or below its start is OFFSET_OUT_OF_RANGE.
cdef int log_read(Log* log, int64_t offset, int64_t size_max, int64_t limit_offset,
                  bint whole_first, LogSlice* out) noexcept nogil
# The same without waiting for the disk. LOG_COLD: it would have to wait for the place that it returns.
# Another thread reads that place (cold_place_read); then the caller begins again.
cdef enum:
    LOG_COLD = -2
cdef int log_read_cached(Log* log, int64_t offset, int64_t size_max, int64_t limit_offset,
                         bint whole_first, LogSlice* out, ColdPlace* cold) noexcept nogil
# Flushes everything appended before the call to disk (fdatasync of dirty segments, and of the
# directory when it has new files). Returns 0 or KAFKA_STORAGE_ERROR: after a failed flush the log
# is offline until it is opened again.
cdef int log_flush(Log* log) noexcept nogil
cdef int64_t log_start_offset(Log* log) noexcept nogil
cdef int64_t log_end_offset(Log* log) noexcept nogil
cdef int64_t log_flushed_offset(Log* log) noexcept nogil
cdef bint log_is_offline(Log* log) noexcept nogil
# Finds the largest epoch <= `epoch` and its end offset (KIP-101): sets both to -1 when there is
# none.
cdef void log_epoch_end(Log* log, int32_t epoch, int32_t* found_epoch, int64_t* end_offset) noexcept nogil
# Returns the leader epoch of the record at `offset`, -1 when it is not known.
cdef int32_t log_epoch_at(Log* log, int64_t offset) noexcept nogil

# Tries again to cut off a failed write, when the log is offline only because that failed. Returns
# whether the log is usable. It does nothing after a failed flush, because the page cache may have
# lost records.
cdef bint log_cut_again(Log* log) noexcept nogil

# Returns the first offset of the earliest transaction without a marker, -1 when there is none.
cdef int64_t log_first_open_offset(Log* log) noexcept nogil
# Appends a batch as log_append does. A client's transactional batch must belong to a transaction
# that is open here, or to a verification (its number, log_transactions.pxd; 0: none) that no marker
# has overtaken; otherwise the result is INVALID_TXN_STATE. Other batches have, instead of a number:
cdef enum:
    TRUSTED = -1                # the batch is not from a client
    BUMPING_MARKER = -2         # a marker whose epoch is above that of its transaction
cdef int log_append_verified(Log* log, uint8_t* batch, int64_t size_bytes, const BatchHeader* h,
                             int32_t leader_epoch, int64_t verification, Appended* out) noexcept nogil

# Finds the first record below limit_offset with a timestamp at or after timestamp_ms; *offset is -1
# when there is none. The result is exact for uncompressed batches. LOG_TIME_COMPRESSED: the record
# is inside the compressed batch that begins at *offset (message formats 0 and 1: whose wrapper has
# *offset), *found_ms is that batch's largest timestamp, and the caller must search inside the batch.
# Any other result is 0 or a Kafka error code.
cdef enum:
    LOG_TIME_COMPRESSED = -1
cdef int log_offset_for_time(Log* log, int64_t timestamp_ms, int64_t limit_offset, int64_t* offset, int64_t* found_ms, int32_t* epoch) noexcept nogil
# The same for the first record with the largest timestamp in the log.
cdef int log_offset_of_max_time(Log* log, int64_t limit_offset, int64_t* offset, int64_t* found_ms, int32_t* epoch) noexcept nogil


# -- for other modules of cext/log. Except for log_new, log_free and log_marks, the caller holds the
# -- log's lock, or no other thread can see the log yet

cdef Log* log_new(System* system, EpochDomain* epochs, SegmentPool* pool, const char* directory, const LogConfig* config, uint64_t seed) noexcept nogil
cdef void log_free(Log* log) noexcept nogil
cdef void log_note_transactions(Log* log) noexcept nogil
cdef bint log_expects_transaction(const Log* log, int64_t producer_id, int16_t epoch) noexcept nogil
cdef LogMarks log_marks(Log* log) noexcept nogil
cdef Segment* log_new_active(Log* log, int64_t base_offset, int* status) noexcept nogil
cdef int log_roll(Log* log) noexcept nogil
# Returns whether a batch needs a new segment when the active one ends at `position`.
cdef bint log_roll_is_due(Log* log, const Segment* active, int64_t position, int64_t size_bytes, int64_t max_timestamp, int64_t last_offset) noexcept nogil
cdef Segment* log_ready_to_append(Log* log, int64_t size_bytes, int64_t max_timestamp, int64_t last_offset) noexcept nogil
cdef int log_write(Log* log, Segment* active, const uint8_t* batch, int64_t size_bytes) noexcept nogil
cdef void log_cut_back(Log* log, Segment* active, int64_t position) noexcept nogil
cdef int log_note_producer(Log* log, Segment* active, const BatchHeader* h, const Marker* marker, bint ends_txn, int64_t first_offset, int64_t last_offset) noexcept nogil
cdef int log_write_snapshot(Log* log, int64_t offset) noexcept nogil
cdef SegmentList* segment_list_of(int64_t count) noexcept nogil
cdef void log_replace_list(Log* log, SegmentList* made) noexcept nogil
cdef void log_publish(Log* log, const LogMarks* marks) noexcept nogil
cdef int64_t segment_list_floor(const SegmentList* segments, int64_t offset) noexcept nogil
