"""Threads that read ranges of files into the page cache before a network thread sends them."""
from libc.stdint cimport int32_t, int64_t, uint64_t

from barnabas.cext.log.log cimport ColdPlace, LogSlice
from barnabas.cext.log.segment cimport Segment
from barnabas.cext.memory.condition cimport pthread_cond_t
from barnabas.cext.memory.mutex cimport pthread_mutex_t
from barnabas.cext.partition.partitions cimport Table

cdef struct ColdWait:           # a waiting request; `holders` counts references
    int32_t holders
    int32_t ranges_left         # 0: all ranges are read
    int32_t thread_index
    uint64_t connection_id

cdef struct ColdJob:
    ColdJob* next
    ColdWait* wait
    Segment* segment            # retained
    int64_t position
    int64_t size_bytes
    bint verify                 # also check its CRCs (crc_check.pyx)
    ColdPlace place             # its segment is not NULL: a lookup, in place of a range

cdef struct ColdDirectory:      # the ranges of one log directory
    ColdDirectory* next
    uint64_t id                 # a hash of its path
    ColdJob* head
    ColdJob* tail
    int32_t depth
    int32_t reading             # threads that read one of its ranges

cdef struct ColdReads:
    Table* table                # its system calls read the files, its waker wakes connections
    pthread_mutex_t lock
    pthread_cond_t work
    ColdDirectory* directories
    int32_t depth_max           # of one directory
    int32_t reading_max         # of one directory
    int32_t threads             # running threads; without one the queue accepts no range
    bint closed
    int64_t ranges_read         # counters, under the lock
    int64_t bytes_read
    int64_t refused             # the queue was full

cdef ColdReads* cold_reads_new(Table* table, int32_t depth_max) noexcept nogil
# Frees the pool; its threads must have ended.
cdef void cold_reads_free(ColdReads* c) noexcept nogil
# Returns whether a part of the slice is not in the page cache.
cdef bint slice_is_cold(Table* table, const LogSlice* slice) noexcept nogil
cdef ColdWait* cold_wait_new(int32_t thread_index, uint64_t connection_id) noexcept nogil
cdef void cold_wait_release(ColdWait* wait) noexcept nogil
cdef bint cold_wait_is_over(ColdWait* wait) noexcept nogil
# Queues a range. Returns False when the queue of its log directory is full: the caller then sends the range without
# waiting. When the last range of `wait` was read, or the threads stop, a thread wakes its
# connection.
cdef bint cold_ask(ColdReads* c, ColdWait* wait, const LogSlice* slice) noexcept nogil
# The same for what a lookup did not find in memory. It takes over the reference to the segment, also
# when it returns False.
cdef bint cold_ask_place(ColdReads* c, ColdWait* wait, const ColdPlace* place) noexcept nogil
# Returns whether threads read ranges: a queue that is full will accept others later.
cdef bint cold_has_threads(ColdReads* c) noexcept nogil
# Ends the queueing: the creator of a wait counts as one range until it has queued all of them.
# Returns whether all ranges are read.
cdef bint cold_asked_all(ColdWait* wait) noexcept nogil
# Registers a thread that is about to call cold_run; the pool accepts ranges from then on.
cdef void cold_expect_thread(ColdReads* c) noexcept nogil
# How many threads may read from one log directory at a time.
cdef void cold_limit_reading(ColdReads* c, int32_t reading_max) noexcept nogil
cdef void cold_run(ColdReads* c) noexcept nogil                 # runs a thread until cold_close
cdef void cold_close(ColdReads* c) noexcept nogil
