"""A queue of the marked connections that have closed, for Python.

A PendingRequest marks its connection. The mark is a CloseMark, which is allocated at that time, so
that the close cannot fail. A connection has at most one CloseMark, so the queue contains at most
the marked connections that have closed and that Python has not taken yet. Network threads add to
the queue; Python takes from it (Reactor.next_closed).
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

cdef struct CloseMark:          # malloc'ed
    CloseMark* next
    uint64_t connection_id

cdef struct ClosedConnections:
    pthread_mutex_t lock
    pthread_cond_t ready
    CloseMark* first
    CloseMark* last
    bint stopped                # the broker stops: new entries are dropped

cdef inline void closed_init(ClosedConnections* queue) noexcept nogil:
    queue.first = queue.last = NULL
    queue.stopped = False
    pthread_mutex_init(&queue.lock, NULL)
    condition_init(&queue.ready)

cdef inline void closed_free(ClosedConnections* queue) noexcept nogil:
    """The caller ensures that no thread uses it any more."""
    cdef CloseMark* close_mark
    while queue.first != NULL:
        close_mark = queue.first
        queue.first = close_mark.next
        free(close_mark)
    pthread_cond_destroy(&queue.ready)
    pthread_mutex_destroy(&queue.lock)

cdef inline void closed_put(ClosedConnections* queue, CloseMark* close_mark) noexcept nogil:
    """Queues a closed connection and takes over its mark."""
    close_mark.next = NULL
    pthread_mutex_lock(&queue.lock)
    if queue.stopped:
        free(close_mark)
    else:
        if queue.last != NULL:
            queue.last.next = close_mark
        else:
            queue.first = close_mark
        queue.last = close_mark
        pthread_cond_signal(&queue.ready)
    pthread_mutex_unlock(&queue.lock)

cdef inline uint64_t closed_take(ClosedConnections* queue, int64_t timeout_ms) noexcept nogil:
    """Waits for a closed connection and returns its id; 0 after timeout_ms (-1: no timeout) or when
    the broker stops."""
    cdef uint64_t connection_id = 0
    cdef CloseMark* close_mark
    cdef int64_t until_ns = monotonic_now_ns() + timeout_ms * 1000000
    pthread_mutex_lock(&queue.lock)
    while queue.first == NULL and not queue.stopped:
        if timeout_ms < 0:
            pthread_cond_wait(&queue.ready, &queue.lock)
        elif not condition_wait_until(&queue.ready, &queue.lock, until_ns):
            break
    close_mark = queue.first
    if close_mark != NULL and not queue.stopped:
        queue.first = close_mark.next
        if queue.first == NULL:
            queue.last = NULL
        connection_id = close_mark.connection_id
        free(close_mark)
    pthread_mutex_unlock(&queue.lock)
    return connection_id

cdef inline void closed_end(ClosedConnections* queue) noexcept nogil:
    """Makes every present and later wait return 0."""
    pthread_mutex_lock(&queue.lock)
    queue.stopped = True
    pthread_cond_broadcast(&queue.ready)
    pthread_mutex_unlock(&queue.lock)
