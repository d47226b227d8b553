"""Segments for cext/log and for modules that send slices of them; described in segment.pyx.

A Segment pointer from a log's list is valid inside the epoch in which it was read; after
segment_retain it is valid until segment_release. Functions return -errno (or a SEGMENT_ status) on
failure.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from barnabas.cext.log.index cimport OffsetEntry, TimeEntry
from barnabas.cext.memory.mutex cimport pthread_mutex_t
from barnabas.cext.memory.sys cimport System
from barnabas.cext.record.batch_at cimport BatchAt, SEGMENT_CORRUPT

cdef enum:
    INDEX_PAGE_BYTES = 4096
    WALK_BYTES = 8192           # batch headers are read in windows of this size

cdef struct IndexFile:
    int fd                      # open only in an active segment, otherwise -1
    uint8_t* map
    int64_t map_bytes
    int64_t entries             # published with release after the entry's bytes
    int64_t reserved_bytes      # disk space of the file is reserved up to here
    bint mapped                 # the file was opened (map is NULL when it is missing or empty)

cdef struct SegmentPool         # shared by the logs of one broker

cdef struct Segment:
    int64_t references          # includes the one of the log
    int64_t base_offset
    SegmentPool* pool
    char* stem                  # path of the files without suffix
    int32_t cut_off             # removed by a truncation: a new segment may have its name
    int32_t active              # the log appends to it; its files stay open
    int32_t pinned              # stays open until it is freed: a new segment gets its name
    int fd                      # of the .log; -1: not open. Use segment_fd()
    int64_t size_bytes          # of the .log, published
    int64_t flushed_bytes       # bytes of the .log that are on disk
    int64_t foreign_bytes       # another process wrote the .log below here: see crc_check.pyx
    int64_t verified_bytes      # those bytes are checked below here; published
    int64_t corrupt_from        # begin of the bad bytes found so far, -1: none; published
    int64_t corrupt_to          # end of the bad bytes; under the pool's lock
    int32_t verify_failed       # the last check could not read the file
    IndexFile offsets
    IndexFile times
    int64_t aborted_count       # entries of the .txnindex, -1: not read yet; published
    int64_t aborted_last_offset # of the last entry's marker, -1: none
    int64_t aborted_synced      # entries that are on disk
    int64_t max_timestamp       # largest so far, -1: none
    int64_t max_timestamp_offset
    int64_t first_timestamp     # largest of the first batch, -1: none; segment.ms counts from it
    int64_t unindexed_bytes     # bytes since the last index entry
    int64_t created_ms
    int64_t jitter_ms
    bint pooled
    Segment* older
    Segment* newer

cdef enum:
    FINDS_MAX = 64              # finds that Python did not take; more are counted only

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
    pthread_mutex_t lock        # guards the list, and opening and closing sealed segments
    Find finds[FINDS_MAX]
    int64_t find_count
    int64_t corrupt_ranges      # found since the broker started
    int64_t references
    int64_t open_count
    int64_t open_max
    Segment* oldest
    Segment* newest

cdef class SegmentCache:
    """The open sealed segments of one broker, at most `open_segments_max`, shared by its logs.
    Raises ValueError for a limit below 1, and MemoryError."""
    cdef SegmentPool* pool

cdef void pool_retain(SegmentPool* pool) noexcept nogil
cdef void pool_release(SegmentPool* pool) noexcept nogil

cdef Segment* segment_new(SegmentPool* pool, const char* directory, int64_t base_offset) noexcept nogil
cdef void segment_retain(Segment* segment) noexcept nogil
cdef void segment_release(Segment* segment) noexcept nogil
cdef void segment_release_retired(void* segment) noexcept nogil      # an epoch_free
# Returns the descriptor of the .log, which it opens when needed; it is valid while the caller holds
# its reference.
cdef int segment_fd(Segment* segment, System* system) noexcept nogil
# Opens a new descriptor of a sealed segment's .log; the caller closes it.
cdef int segment_open_log(Segment* segment, System* system) noexcept nogil

# Opens a segment on disk that the log no longer appends to: reads its size and maps its indexes for
# reading. The pool may close its files later.
cdef int segment_open_sealed(Segment* segment, System* system) noexcept nogil
# Returns whether both indexes of a sealed segment end with their last sound entry.
cdef bint segment_indexes_fit(const Segment* segment) noexcept nogil
# Opens one of a segment's files for reading, also when it was renamed for deletion. `suffix` and
# `deleted`: the two endings of the name.
cdef int segment_open_file(Segment* segment, System* system, const char* suffix, const char* deleted) noexcept nogil

# Opens all files of a sealed segment until it is freed; the caller holds a reference.
cdef int segment_pin(Segment* segment, System* system) noexcept nogil

# Makes the open .log a file that no other directory names, with its first `size_bytes` bytes. Call it
# before bytes of the file change. Returns 0 or -errno.
cdef int segment_own_log(Segment* segment, System* system, int64_t size_bytes) noexcept nogil

# Opens the .log of an active segment. `create`: makes an empty file; otherwise it reads the file's
# size.
cdef int segment_open_active(Segment* segment, System* system, bint create, int64_t preallocated_bytes) noexcept nogil
cdef int segment_open_indexes(Segment* segment, System* system, int64_t index_bytes, bint empty) noexcept nogil
# Returns how many entries both indexes still take; no limit when they are not open.
cdef int64_t segment_entries_left(const Segment* segment) noexcept nogil
# Reserves disk space for one more entry in each index, so that storing the entry cannot fail (a
# store into a map over a hole ends the process when the disk is full). Call it before the batch is
# written.
cdef int segment_reserve_entries(Segment* segment, System* system) noexcept nogil
# Updates timestamps for a batch that was written at `position`, and adds index entries when due.
cdef void segment_note_batch(Segment* segment, int64_t position, int64_t size_bytes, int64_t last_offset, int64_t max_timestamp, int64_t index_interval_bytes) noexcept nogil
# Adds the last time entry and cuts the indexes to their entries. Afterwards the segment is sealed,
# also when the result is an error.
cdef int segment_seal(Segment* segment, System* system) noexcept nogil
# Cuts the .log to size_bytes and removes index entries that name later bytes or offsets at or above
# end_offset.
cdef int segment_cut(Segment* segment, System* system, int64_t size_bytes, int64_t end_offset) noexcept nogil

# Reads the last entry of the offset index, the time index or both (NULL: not that one); each must
# have one.
cdef void segment_last_entries(const Segment* segment, OffsetEntry* place, TimeEntry* moment) noexcept nogil
# Finds the first batch below position `end` whose last offset is at or above `offset`: 1; 0 when
# there is none.
cdef int segment_find(Segment* segment, System* system, int64_t offset, int64_t end, BatchAt* found) noexcept nogil
# Returns, from the offset index, an offset at or above the last offsets of all batches that begin
# before `position`; `otherwise` when no entry helps; -EAGAIN if `system` does not wait for the disk.
cdef int64_t segment_offset_above(Segment* segment, System* system, int64_t position, int64_t otherwise) noexcept nogil
# Reads the header of the batch at `position`: 1; 0 at `end`.
cdef int segment_batch_at(Segment* segment, System* system, int64_t position, int64_t end, BatchAt* found) noexcept nogil
# Returns the position where a search for `timestamp` may begin: all batches before it are earlier.
cdef int64_t segment_time_floor(Segment* segment, System* system, int64_t timestamp, int64_t end) noexcept nogil
# Finds the segment's largest timestamp and the last offset of its batch, from the time index and
# the batches behind its last entry.
cdef int segment_load_times(Segment* segment, System* system, int64_t end) noexcept nogil
