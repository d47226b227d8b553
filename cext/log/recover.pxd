"""Reading a segment batch by batch: recovery, and the rebuilding of producer state."""
from libc.stdint cimport int64_t, uint8_t

from barnabas.cext.log.leader_epochs cimport LeaderEpochs
from barnabas.cext.log.producers cimport Producers
from barnabas.cext.log.segment cimport Segment
from barnabas.cext.memory.sys cimport System
from barnabas.cext.record.batch_at cimport BatchAt
from barnabas.cext.record.records cimport BatchHeader

cdef struct BatchReader:        # whole batches of one file, through a buffer that grows to the largest
    System* system
    int fd
    int64_t end                 # nothing from here on is read
    uint8_t* buffer
    int64_t capacity
    int64_t read_bytes          # how much at a time, unless a batch is larger
    int64_t buffer_at           # what of the file the buffer holds
    int64_t filled

cdef struct SegmentFacts:       # of one segment's recovery
    int64_t batches
    int64_t records             # counted by offsets: compaction's gaps are counted too
    int64_t valid_bytes
    int64_t cut_bytes
    int64_t end_offset

cdef void reader_init(BatchReader* r, System* system, int fd, int64_t end) noexcept nogil
cdef void reader_free(BatchReader* r) noexcept nogil
# 1 and the whole batch at `position`, good until the next call; 0 at the end; SEGMENT_CORRUPT; -errno.
cdef int reader_next(BatchReader* r, int64_t position, BatchAt* at, const uint8_t** bytes) noexcept nogil

# Whether frame and CRC of a whole batch or message are true; the header of a batch goes to `h`.
cdef bint batch_is_sound(const uint8_t* bytes, const BatchAt* at, BatchHeader* h) noexcept nogil

# Checks every batch of an active segment (its indexes open), rebuilds indexes, producer state,
# leader epochs and the transaction index, and finds the first bad byte. 0 or -errno.
cdef int segment_recover(
    Segment* segment, System* system, Producers* producers, LeaderEpochs* epochs,
    int64_t index_interval_bytes, SegmentFacts* facts) noexcept nogil
# Cuts the .log of an active segment, which segment_recover() has walked, behind its sound bytes.
cdef int segment_cut_tail(Segment* segment, System* system, int64_t valid_bytes) noexcept nogil
# Rebuilds the indexes of an active segment (opened empty) from the headers of its batches. Nothing is
# cut or dropped: where the walk cannot go on the indexes end.
cdef int segment_reindex(Segment* segment, System* system, int64_t index_interval_bytes) noexcept nogil
# 1 when the last entry of each index tells the truth of the batch it names; 0, -errno.
cdef int segment_indexes_agree(Segment* segment, System* system) noexcept nogil
# The end offset of what can be walked, and where it ends. 0 or -errno.
cdef int segment_measure(Segment* segment, System* system, int64_t* end_offset, int64_t* valid_bytes) noexcept nogil
# Producer state from the batches of [from_offset, to_offset). 0, -errno or SEGMENT_CORRUPT.
cdef int segment_replay(
    Segment* segment, System* system, Producers* producers, int64_t from_offset, int64_t to_offset,
    int64_t end) noexcept nogil
# Makes the transaction index anew. `producers` is their state before the segment, and moves to that
# after it. 0, -errno or SEGMENT_CORRUPT.
cdef int segment_reindex_aborts(Segment* segment, System* system, Producers* producers) noexcept nogil
# The first record at or after a time in [0, end): 1, 0 none, 2 inside a compressed batch, -errno.
cdef int segment_find_time(
    Segment* segment, System* system, int64_t timestamp, int64_t end,
    int64_t* offset, int64_t* found_ms) noexcept nogil
