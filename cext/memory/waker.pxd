"""How any thread wakes a request that waits: the reactor hands one out, waiters keep it."""
from libc.stdint cimport int32_t, uint64_t

cdef struct Waker:
    void* context
    # Callable from any thread, any number of times, also for a connection that is closed: the
    # connection's own thread calls resume() soon afterwards.
    void (*wake)(void* context, int32_t thread_index, uint64_t connection_id) noexcept nogil
