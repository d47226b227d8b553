"""Segments for cext.log.log_handle and for whoever sends slices of them; described in segment.pyx.

A Segment pointer found in a log's list is good inside the epoch in which it was found; retained,
it is good until it is released. All functions give -errno (or a SEGMENT_ status) on failure.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from barnabas.cext.log.index cimport OffsetEntry, TimeEntry
from barnabas.cext.memory.mutex cimport pthread_mutex_t
from barnabas.cext.memory.sys cimport System
from barnabas.cext.record.batch_at cimport BatchAt, SEGMENT_CORRUPT

cdef enum:
    INDEX_PAGE_BYTES = 4096
    WALK_BYTES = 8192           # headers are walked through windows of this size

cdef struct IndexFile:
    int fd                      # kept by an active segment only, -1 else
    uint8_t* map
    int64_t map_bytes
    int64_t entries             # published with release after the entry's bytes
    int64_t reserved_bytes      # disk space behind the map is there up to here
    bint mapped                 # the file was looked for (it may be missing or empty: map is NULL)

cdef struct SegmentPool         # shared by the logs of one broker

cdef struct Segment:
    int64_t references          # the log's own is one of them
    int64_t base_offset
    SegmentPool* pool
    char* stem                  # path of the files without suffix
    int32_t cut_off             # truncated away: its name may be another segment's by now
    int32_t active              # keeps its descriptor and its indexes are written
    int32_t pinned              # stays open until it is freed: its names are another's soon
    int fd                      # of the .log; -1: not open. Use segment_fd()
    int64_t size_bytes          # of the .log, published
    int64_t flushed_bytes       # of it known to be on disk
    int64_t foreign_bytes       # of the .log below here another process wrote: see crc_check.pyx
    int64_t verified_bytes      # of those, checked from the first byte to here; published
    int64_t corrupt_from        # where the bad bytes found begin, -1: none; published
    int64_t corrupt_to          # and end, under the pool's lock
    int32_t verify_failed       # the last look could not read the file
    IndexFile offsets
    IndexFile times
    int64_t aborted_count       # entries of the .txnindex, -1: not looked at so far; published
    int64_t aborted_last_offset # of the marker of the last of them, -1: none
    int64_t aborted_synced      # of them on disk
    int64_t max_timestamp       # largest so far, -1: none
    int64_t max_timestamp_offset
    int64_t first_timestamp     # largest of the first batch, -1: none; rolling by time counts from it
    int64_t unindexed_bytes     # since the last index entry
    int64_t created_ms
    int64_t jitter_ms
    bint pooled
    Segment* older
    Segment* newer

cdef enum:
    FINDS_MAX = 64              # damage found and not told yet; more is counted only

cdef struct Find:               # bytes of a segment that hold no valid batch: see damage.pyx
    char* stem
    int64_t base_offset
    int64_t first
    int64_t end

cdef enum:
    FAILURES_MAX = 64           # failed calls that Python did not take; more are counted only

cdef struct FailedCall:         # see failed_calls.pyx
    char* stem
    int what
    int status                  # -errno
    int64_t count

cdef struct SegmentPool:
    FailedCall failures[FAILURES_MAX]
    int64_t failure_count
    int64_t failures_total      # since the broker started
    pthread_mutex_t lock        # of the list and of opening and closing sealed segments
    Find finds[FINDS_MAX]
    int64_t find_count
    int64_t corrupt_ranges      # found since the broker started
    int64_t references
    int64_t open_count
    int64_t open_max
    Segment* oldest
    Segment* newest

cdef class SegmentCache:
    """One broker's limit of open sealed segments (open_segments_max), shared by its logs."""
    cdef SegmentPool* pool

cdef void pool_retain(SegmentPool* pool) noexcept nogil
cdef void pool_release(SegmentPool* pool) noexcept nogil

cdef Segment* segment_new(SegmentPool* pool, const char* directory, int64_t base_offset) noexcept nogil
cdef void segment_retain(Segment* segment) noexcept nogil
cdef void segment_release(Segment* segment) noexcept nogil
cdef void segment_release_retired(void* segment) noexcept nogil      # an epoch_free
# The descriptor of the .log, opened when needed; good while the caller's reference lasts.
cdef int segment_fd(Segment* segment, System* system) noexcept nogil
# A descriptor of a sealed segment's .log of the caller's own, who closes it.
cdef int segment_open_log(Segment* segment, System* system) noexcept nogil

# A segment on disk that is written to no more: its size and its indexes, mapped for reading. Its files
# stay open only as long as the pool likes.
cdef int segment_open_sealed(Segment* segment, System* system) noexcept nogil
# Whether both indexes of a sealed segment hold nothing behind their sound entries.
cdef bint segment_indexes_fit(const Segment* segment) noexcept nogil
# Opens one of its files for reading, also after it was renamed for deletion.
cdef int segment_open_file(Segment* segment, System* system, const char* suffix, const char* deleted) noexcept nogil

# Opens all of a sealed segment for as long as it lives; the caller holds a reference.
cdef int segment_pin(Segment* segment, System* system) noexcept nogil

# The active segment. `create`: a new, empty file; else the size is read from it.
cdef int segment_open_active(Segment* segment, System* system, bint create, int64_t preallocated_bytes) noexcept nogil
cdef int segment_open_indexes(Segment* segment, System* system, int64_t index_bytes, bint empty) noexcept nogil
cdef bint segment_indexes_full(const Segment* segment) noexcept nogil
# Disk space for one more entry in each index, so that storing it cannot fail (a store into a map
# over a hole ends the process when the disk is full). Call it before the batch is written.
cdef int segment_reserve_entries(Segment* segment, System* system) noexcept nogil
# Notes a batch that was written at `position`: timestamps and, when due, index entries.
cdef void segment_note_batch(Segment* segment, int64_t position, int64_t size_bytes, int64_t last_offset, int64_t max_timestamp, int64_t index_interval_bytes) noexcept nogil
# The last time entry, indexes cut to what is used. After it the segment is a sealed one.
cdef int segment_seal(Segment* segment, System* system) noexcept nogil
# Drops index entries of batches that begin at size_bytes or later; the .log is cut there.
cdef int segment_cut(Segment* segment, System* system, int64_t size_bytes, int64_t end_offset) noexcept nogil

# The last entry of each index, where it is asked for; the caller knows that there is one.
cdef void segment_last_entries(const Segment* segment, OffsetEntry* place, TimeEntry* moment) noexcept nogil
# 1 and the first batch whose last offset is at or above `offset`, below `end` bytes; 0: there is none.
cdef int segment_find(Segment* segment, System* system, int64_t offset, int64_t end, BatchAt* found) noexcept nogil
# An offset above every batch that begins before `position`, by the index; `otherwise` without one.
cdef int64_t segment_offset_above(Segment* segment, System* system, int64_t position, int64_t otherwise) noexcept nogil
# 1 and the batch at `position`, 0 at `end`.
cdef int segment_batch_at(Segment* segment, System* system, int64_t position, int64_t end, BatchAt* found) noexcept nogil
# Where a search for `timestamp` may begin: batches before it are all earlier.
cdef int64_t segment_time_floor(Segment* segment, System* system, int64_t timestamp, int64_t end) noexcept nogil
# Largest timestamp and the last offset of its batch, from the time index and the tail behind it.
cdef int segment_load_times(Segment* segment, System* system, int64_t end) noexcept nogil
