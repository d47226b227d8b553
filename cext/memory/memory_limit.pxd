"""A limit for memory that many requests share, such as that of converted answers.

A request claims bytes. While the limit has no place for them, the claim waits; waiting claims are
granted in the order in which they came, as others are released. The thread that releases one wakes
the requests whose claims it has granted. While nothing is held, a claim above the limit is granted,
so that every request can go on.

Memory that turns out larger than it was claimed is added with memory_add, even beyond the limit: then
no claim is granted until enough is given back.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t

from barnabas.cext.memory.mutex cimport pthread_mutex_t

ctypedef void (*WakeRequest)(void* context, int32_t thread_index, uint64_t connection_id) noexcept nogil

cdef struct MemoryLimit:
    pthread_mutex_t lock
    int64_t bytes_max
    int64_t held_bytes          # granted or added
    int64_t added_bytes         # of those, by memory_add
    MemoryClaim* first          # the waiting claims
    MemoryClaim* last
    int64_t waiting_count
    int64_t waits               # claims that had to wait, since the start
    WakeRequest wake
    void* wake_context

cdef struct MemoryClaim:
    MemoryLimit* limit
    MemoryClaim* next
    int64_t size_bytes
    bint granted
    int32_t thread_index        # of the request to wake
    uint64_t connection_id

cdef void memory_limit_init(MemoryLimit* limit, int64_t bytes_max, WakeRequest wake, void* wake_context) noexcept nogil
cdef void memory_limit_free(MemoryLimit* limit) noexcept nogil
cdef void memory_limit_set(MemoryLimit* limit, int64_t bytes_max) noexcept nogil
# Returns what a new claim may have at most: a quarter of what is free, and at least `bytes_min`.
cdef int64_t memory_share(MemoryLimit* limit, int64_t bytes_min) noexcept nogil
# Returns a claim, granted or waiting; NULL when memory ran out.
cdef MemoryClaim* memory_claim(MemoryLimit* limit, int64_t size_bytes, int32_t thread_index, uint64_t connection_id) noexcept nogil
cdef bint memory_is_granted(MemoryClaim* claim) noexcept nogil
# Changes the size of a granted claim, without a wait.
cdef void memory_resize(MemoryClaim* claim, int64_t size_bytes) noexcept nogil
# Gives the claim back, granted or not; ignores NULL.
cdef void memory_release(MemoryClaim* claim) noexcept nogil
# Adds bytes that nothing has claimed; a negative number gives them back.
cdef void memory_add(MemoryLimit* limit, int64_t size_bytes) noexcept nogil
# Returns whether added bytes exceed the limit, so that no work with an unknown result should begin.
cdef bint memory_is_overdrawn(MemoryLimit* limit) noexcept nogil
