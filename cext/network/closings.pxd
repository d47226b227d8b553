"""A queue of the marked connections that have closed, for Python.

A PendingRequest marks its connection. The mark is a Farewell, which is allocated at that time, so
that the close cannot fail. A connection has at most one Farewell, so the queue contains at most the
marked connections that have closed and that Python has not taken yet. Network threads add to the
queue; Python takes from it (Reactor.next_closed).
"""
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free

from barnabas.cext.memory.condition cimport (
    condition_init, condition_wait_until, monotonic_now_ns, pthread_cond_broadcast,
    pthread_cond_destroy, pthread_cond_signal, pthread_cond_t, pthread_cond_wait,
)
from barnabas.cext.memory.mutex cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t,
    pthread_mutex_unlock,
)

cdef struct Farewell:           # malloc'ed
    Farewell* next
    uint64_t connection_id

cdef struct Closings:
    pthread_mutex_t lock
    pthread_cond_t ready
    Farewell* first
    Farewell* last
    bint over                   # the broker stops: new entries are dropped

cdef inline void closings_init(Closings* closings) noexcept nogil:
    closings.first = closings.last = NULL
    closings.over = False
    pthread_mutex_init(&closings.lock, NULL)
    condition_init(&closings.ready)

cdef inline void closings_free(Closings* closings) noexcept nogil:
    """The caller ensures that no thread uses it any more."""
    cdef Farewell* farewell
    while closings.first != NULL:
        farewell = closings.first
        closings.first = farewell.next
        free(farewell)
    pthread_cond_destroy(&closings.ready)
    pthread_mutex_destroy(&closings.lock)

cdef inline void closings_put(Closings* closings, Farewell* farewell) noexcept nogil:
    """Queues a closed connection; takes over its farewell."""
    farewell.next = NULL
    pthread_mutex_lock(&closings.lock)
    if closings.over:
        free(farewell)
    else:
        if closings.last != NULL:
            closings.last.next = farewell
        else:
            closings.first = farewell
        closings.last = farewell
        pthread_cond_signal(&closings.ready)
    pthread_mutex_unlock(&closings.lock)

cdef inline uint64_t closings_take(Closings* closings, int64_t timeout_ms) noexcept nogil:
    """Waits for a closed connection and returns its id; 0 after timeout_ms (-1: no timeout) or when
    the broker stops."""
    cdef uint64_t connection_id = 0
    cdef Farewell* farewell
    cdef int64_t until_ns = monotonic_now_ns() + timeout_ms * 1000000
    pthread_mutex_lock(&closings.lock)
    while closings.first == NULL and not closings.over:
        if timeout_ms < 0:
            pthread_cond_wait(&closings.ready, &closings.lock)
        elif not condition_wait_until(&closings.ready, &closings.lock, until_ns):
            break
    farewell = closings.first
    if farewell != NULL and not closings.over:
        closings.first = farewell.next
        if closings.first == NULL:
            closings.last = NULL
        connection_id = farewell.connection_id
        free(farewell)
    pthread_mutex_unlock(&closings.lock)
    return connection_id

cdef inline void closings_end(Closings* closings) noexcept nogil:
    """Makes every present and later wait return 0."""
    pthread_mutex_lock(&closings.lock)
    closings.over = True
    pthread_cond_broadcast(&closings.ready)
    pthread_mutex_unlock(&closings.lock)
