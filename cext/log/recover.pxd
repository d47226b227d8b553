"""Reads a segment batch by batch: recovery, rebuilt indexes and producer state, search by time."""
from libc.stdint cimport int64_t, uint8_t

from barnabas.cext.log.leader_epochs cimport LeaderEpochs
from barnabas.cext.log.producers cimport Producers
from barnabas.cext.log.segment cimport Segment
from barnabas.cext.memory.sys cimport System
from barnabas.cext.record.batch_at cimport BatchAt
from barnabas.cext.record.records cimport BatchHeader

cdef struct BatchReader:        # reads whole batches of a file; its buffer grows to the largest
    System* system
    int fd
    int64_t end                 # bytes from here on are not read
    uint8_t* buffer
    int64_t capacity
    int64_t read_bytes          # bytes of one read, unless a batch is larger
    int64_t buffer_at           # position in the file of the buffer's first byte
    int64_t filled              # bytes in the buffer

cdef struct SegmentFacts:       # the result of one segment's recovery
    int64_t batches
    int64_t records             # number of offsets: includes those that compaction removed
    int64_t valid_bytes
    int64_t cut_bytes
    int64_t end_offset

cdef void reader_init(BatchReader* r, System* system, int fd, int64_t end) noexcept nogil
cdef void reader_free(BatchReader* r) noexcept nogil
# Reads the whole batch at `position`: 1, and the bytes are valid until the next call; 0 at the end;
# SEGMENT_CORRUPT; -errno.
cdef int reader_next(BatchReader* r, int64_t position, BatchAt* at, const uint8_t** bytes) noexcept nogil

# Returns whether the header and the CRC of a whole batch or message are right. Copies a batch's
# header to `h`.
cdef bint batch_is_sound(const uint8_t* bytes, const BatchAt* at, BatchHeader* h) noexcept nogil

# As reader_next(), and SEGMENT_CORRUPT also for a batch that recovery does not keep: header or CRC are
# wrong, it begins below `offset_min`, or its last offset does not fit a segment that begins at
# `base_offset`.
cdef int recoverable_next(
    BatchReader* r, int64_t position, int64_t offset_min, int64_t base_offset, BatchAt* at,
    const uint8_t** bytes, BatchHeader* h) noexcept nogil

# Checks every batch of an active segment, whose indexes are open and empty, and rebuilds indexes,
# producer state, leader epochs and the transaction index from the batches before the first bad
# byte.
# Returns 0 or -errno.
cdef int segment_recover(
    Segment* segment, System* system, Producers* producers, LeaderEpochs* epochs,
    int64_t index_interval_bytes, SegmentFacts* facts) noexcept nogil
# Cuts the .log of an active segment to the valid_bytes that segment_recover() found. Returns 0 or
# -errno.
cdef int segment_cut_tail(Segment* segment, System* system, int64_t valid_bytes) noexcept nogil
# Rebuilds the indexes of an active segment (opened empty) from the headers of its batches. It cuts
# nothing: the indexes end at the first batch without a valid header. Returns 0 or -errno.
cdef int segment_reindex(Segment* segment, System* system, int64_t index_interval_bytes) noexcept nogil
# Returns 1 when the last entry of each index agrees with the batch that it names, 0 when not, or
# -errno.
cdef int segment_indexes_agree(Segment* segment, System* system) noexcept nogil
# Finds the end offset and the end position of the batches with valid headers. Returns 0 or -errno.
cdef int segment_measure(Segment* segment, System* system, int64_t* end_offset, int64_t* valid_bytes) noexcept nogil
# Updates producer state from the batches in [from_offset, to_offset). Returns 0, -errno or
# SEGMENT_CORRUPT.
cdef int segment_replay(
    Segment* segment, System* system, Producers* producers, int64_t from_offset, int64_t to_offset,
    int64_t end) noexcept nogil
# Writes the transaction index again. `producers` is the state before the segment, and becomes the
# state after it. Returns 0, -errno or SEGMENT_CORRUPT.
cdef int segment_reindex_aborts(Segment* segment, System* system, Producers* producers) noexcept nogil
# Finds the first record with a timestamp at or after `timestamp` in the bytes [0, end). Returns 1,
# 0 when there is none, 2 when it is inside a compressed batch, SEGMENT_CORRUPT or -errno.
cdef int segment_find_time(
    Segment* segment, System* system, int64_t timestamp, int64_t end,
    int64_t* offset, int64_t* found_ms) noexcept nogil
