"""A limit for memory that many requests share; see memory_limit.pxd."""
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from barnabas.cext.memory.mutex cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)


cdef void memory_limit_init(
    MemoryLimit* limit, int64_t bytes_max, WakeRequest wake, void* wake_context
) noexcept nogil:
    memset(limit, 0, sizeof(MemoryLimit))
    pthread_mutex_init(&limit.lock, NULL)
    limit.bytes_max = bytes_max
    limit.wake, limit.wake_context = wake, wake_context


cdef void memory_limit_free(MemoryLimit* limit) noexcept nogil:
    pthread_mutex_destroy(&limit.lock)


cdef inline bint _fits(const MemoryLimit* limit, int64_t size_bytes) noexcept nogil:
    return limit.held_bytes <= 0 or size_bytes <= limit.bytes_max - limit.held_bytes


cdef void _grant(MemoryLimit* limit, MemoryClaim* claim) noexcept nogil:
    claim.granted = True
    limit.held_bytes += claim.size_bytes


cdef void _grant_waiting(MemoryLimit* limit) noexcept nogil:
    """The caller holds the lock, so that no claim is freed before its request is woken."""
    cdef MemoryClaim* claim = limit.first
    while claim != NULL and _fits(limit, claim.size_bytes):
        limit.first = claim.next
        if limit.first == NULL:
            limit.last = NULL
        limit.waiting_count -= 1
        _grant(limit, claim)
        limit.wake(limit.wake_context, claim.thread_index, claim.connection_id)
        claim = limit.first


cdef void memory_limit_set(MemoryLimit* limit, int64_t bytes_max) noexcept nogil:
    pthread_mutex_lock(&limit.lock)
    limit.bytes_max = bytes_max
    _grant_waiting(limit)
    pthread_mutex_unlock(&limit.lock)


cdef int64_t memory_share(MemoryLimit* limit, int64_t bytes_min) noexcept nogil:
    cdef int64_t share
    pthread_mutex_lock(&limit.lock)
    share = (limit.bytes_max - limit.held_bytes) >> 2
    pthread_mutex_unlock(&limit.lock)
    return max(share, bytes_min)


cdef MemoryClaim* memory_claim(
    MemoryLimit* limit, int64_t size_bytes, int32_t thread_index, uint64_t connection_id
) noexcept nogil:
    cdef MemoryClaim* claim = <MemoryClaim*>calloc(1, sizeof(MemoryClaim))
    if claim == NULL:
        return NULL
    claim.limit, claim.size_bytes = limit, size_bytes
    claim.thread_index, claim.connection_id = thread_index, connection_id
    pthread_mutex_lock(&limit.lock)
    if limit.first == NULL and _fits(limit, size_bytes):
        _grant(limit, claim)
    else:
        if limit.last == NULL:
            limit.first = claim
        else:
            limit.last.next = claim
        limit.last = claim
        limit.waiting_count += 1
        limit.waits += 1
    pthread_mutex_unlock(&limit.lock)
    return claim


cdef bint memory_is_granted(MemoryClaim* claim) noexcept nogil:
    cdef bint granted
    pthread_mutex_lock(&claim.limit.lock)
    granted = claim.granted
    pthread_mutex_unlock(&claim.limit.lock)
    return granted


cdef void memory_resize(MemoryClaim* claim, int64_t size_bytes) noexcept nogil:
    cdef MemoryLimit* limit = claim.limit
    pthread_mutex_lock(&limit.lock)
    limit.held_bytes += size_bytes - claim.size_bytes
    claim.size_bytes = size_bytes
    _grant_waiting(limit)
    pthread_mutex_unlock(&limit.lock)


cdef void _forget(MemoryLimit* limit, MemoryClaim* claim) noexcept nogil:
    """Takes a claim out of those that wait."""
    cdef MemoryClaim* before = NULL
    cdef MemoryClaim* at = limit.first
    while at != claim:
        before = at
        at = at.next
    if before == NULL:
        limit.first = claim.next
    else:
        before.next = claim.next
    if limit.last == claim:
        limit.last = before
    limit.waiting_count -= 1


cdef void memory_release(MemoryClaim* claim) noexcept nogil:
    cdef MemoryLimit* limit
    if claim == NULL:
        return
    limit = claim.limit
    pthread_mutex_lock(&limit.lock)
    if claim.granted:
        limit.held_bytes -= claim.size_bytes
    else:
        _forget(limit, claim)
    _grant_waiting(limit)
    pthread_mutex_unlock(&limit.lock)
    free(claim)


cdef void memory_add(MemoryLimit* limit, int64_t size_bytes) noexcept nogil:
    pthread_mutex_lock(&limit.lock)
    limit.held_bytes += size_bytes
    limit.added_bytes += size_bytes
    _grant_waiting(limit)
    pthread_mutex_unlock(&limit.lock)


cdef bint memory_is_overdrawn(MemoryLimit* limit) noexcept nogil:
    cdef bint overdrawn
    pthread_mutex_lock(&limit.lock)
    overdrawn = limit.added_bytes > 0 and limit.held_bytes > limit.bytes_max
    pthread_mutex_unlock(&limit.lock)
    return overdrawn
