"""Group commit: a queue of logs with waiting requests, and the threads that fsync them.

Each log directory has one CommitQueue. An item is in the queue at most once. An item that is
requested while it is being flushed is flushed once more, so that a flush that began after an append
covers each request made after it. So many appends to one log share one fdatasync.
"""
from libc.stdint cimport int32_t, int64_t

from barnabas.cext.log.log cimport Log
from barnabas.cext.memory.condition cimport pthread_cond_t
from barnabas.cext.memory.epoch cimport EpochDomain, Epochs
from barnabas.cext.memory.histogram cimport Histogram
from barnabas.cext.memory.mutex cimport pthread_mutex_t

cdef enum:  # states of an item
    COMMIT_IDLE = 0
    COMMIT_QUEUED = 1
    COMMIT_WORKING = 2
    COMMIT_AGAIN = 3        # being flushed, and requested again meanwhile

cdef struct CommitItem:     # a part of its owner, which calls commit_forget before it is freed
    CommitItem* next
    Log* log
    void* owner             # for done()
    # The flush thread calls it after each flush, inside an epoch; error: 0 or KAFKA_STORAGE_ERROR.
    void (*done)(CommitItem* item, int error) noexcept nogil
    int state

cdef struct CommitQueue:
    EpochDomain* epochs
    pthread_mutex_t lock
    pthread_cond_t work     # an item was queued, or the queue was closed
    pthread_cond_t idle     # an item became idle while a thread waits in commit_forget
    CommitItem* head
    CommitItem* tail
    int32_t depth
    int32_t forgetting      # threads in commit_forget
    int32_t idle_count      # threads that wait for work
    int32_t started_count   # threads started so far
    bint closed
    bint held               # no flush begins
    int64_t asked           # counters, under the lock
    int64_t flushes
    int64_t failures
    int64_t flush_ns
    Histogram times         # of flushes

cdef void commit_item_init(CommitItem* item, Log* log, void* owner, void (*done)(CommitItem*, int) noexcept nogil) noexcept nogil
# Requests a flush of the item's log. It waits only for the queue's lock, which is held for short
# times.
# After close it does nothing.
cdef void commit_ask(CommitQueue* queue, CommitItem* item) noexcept nogil
# Takes the item out of the queue and waits for a flush of it that is running. Do not call it inside
# an epoch, because the flush runs inside one, too.
cdef void commit_forget(CommitQueue* queue, CommitItem* item) noexcept nogil

cdef class GroupCommit:
    """The commit queue of one log directory and its flush threads."""
    cdef CommitQueue* queue
    cdef list threads
    cdef readonly int thread_count
    cdef readonly str name
    cdef Epochs epochs
    cdef int named_count
    cdef int start_one(self) except -1
