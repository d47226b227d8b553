"""Wakes a waiting request, from any thread. The reactor creates wakers; waiters keep them."""
from libc.stdint cimport int32_t, uint64_t

cdef struct Waker:
    void* context
    # Callable from any thread, any number of times, also for a connection that is closed: the
    # connection's own thread calls resume() soon afterwards.
    void (*wake)(void* context, int32_t thread_index, uint64_t connection_id) noexcept nogil
