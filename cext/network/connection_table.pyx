"""A network thread's connections: a hash map by id and a heap of deadlines, with one entry for each
connection; and the list of those that wait for request memory, the longest waiting first.

Only the owning thread uses it. Next on the data path: cext/network/connection.pyx.
"""
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free

from barnabas.cext.memory.array cimport array_room
from barnabas.cext.memory.atomics cimport atomic_add_i64


cdef inline int64_t _home(NetThread* t, uint64_t connection_id) noexcept nogil:
    return <int64_t>((connection_id * <uint64_t>0x9E3779B97F4A7C15) >> 20) & (t.by_id_capacity - 1)


cdef Connection* table_find(NetThread* t, uint64_t connection_id) noexcept nogil:
    cdef int64_t i
    if t.by_id_count == 0:
        return NULL
    i = _home(t, connection_id)
    while t.by_id[i] != NULL:
        if t.by_id[i].id == connection_id:
            return t.by_id[i]
        i = (i + 1) & (t.by_id_capacity - 1)
    return NULL


cdef bint _grow_map(NetThread* t) noexcept nogil:
    cdef Connection** old = t.by_id
    cdef int64_t old_capacity = t.by_id_capacity
    cdef int64_t capacity = old_capacity * 2 if old_capacity else 64
    cdef Connection** slots = <Connection**>calloc(capacity, sizeof(Connection*))
    cdef int64_t i
    if slots == NULL:
        return False
    t.by_id = slots
    t.by_id_capacity = capacity
    for i in range(old_capacity):
        if old[i] != NULL:
            _place(t, old[i])
    free(old)
    return True


cdef void _place(NetThread* t, Connection* c) noexcept nogil:
    cdef int64_t i = _home(t, c.id)
    while t.by_id[i] != NULL:
        i = (i + 1) & (t.by_id_capacity - 1)
    t.by_id[i] = c


cdef bint table_add(NetThread* t, Connection* c) noexcept nogil:
    if t.by_id_count * 2 >= t.by_id_capacity and not _grow_map(t):
        return False
    if not array_room(&t.heap, &t.heap_capacity, t.heap_count + 1, sizeof(Connection*)):
        return False
    _place(t, c)
    t.by_id_count += 1
    t.heap[t.heap_count] = c
    c.heap_index = t.heap_count
    t.heap_count += 1
    _up(t, c)
    return True


cdef void table_remove(NetThread* t, Connection* c) noexcept nogil:
    cdef int64_t mask = t.by_id_capacity - 1
    cdef int64_t hole = _home(t, c.id)
    cdef int64_t i
    cdef int64_t home
    cdef Connection* moved
    while t.by_id[hole] != c:
        hole = (hole + 1) & mask
    # Later entries of the run move back, so that no search stops at the free place.
    i = (hole + 1) & mask
    while t.by_id[i] != NULL:
        home = _home(t, t.by_id[i].id)
        if ((i - home) & mask) >= ((i - hole) & mask):
            t.by_id[hole] = t.by_id[i]
            hole = i
        i = (i + 1) & mask
    t.by_id[hole] = NULL
    t.by_id_count -= 1
    t.heap_count -= 1
    moved = t.heap[t.heap_count]
    if moved != c:
        t.heap[c.heap_index] = moved
        moved.heap_index = c.heap_index
        _up(t, moved)
        _down(t, moved)
    c.heap_index = NOT_IN_TABLE


cdef void timer_move(NetThread* t, Connection* c, int64_t deadline_ns) noexcept nogil:
    c.timer_ns = deadline_ns
    _up(t, c)
    _down(t, c)


cdef void _up(NetThread* t, Connection* c) noexcept nogil:
    cdef int64_t i = c.heap_index
    cdef int64_t above
    while i:
        above = (i - 1) >> 1
        if t.heap[above].timer_ns <= c.timer_ns:
            break
        t.heap[i] = t.heap[above]
        t.heap[i].heap_index = i
        i = above
    t.heap[i] = c
    c.heap_index = i


cdef void _down(NetThread* t, Connection* c) noexcept nogil:
    cdef int64_t i = c.heap_index
    cdef int64_t below
    while True:
        below = 2 * i + 1
        if below >= t.heap_count:
            break
        if below + 1 < t.heap_count and t.heap[below + 1].timer_ns < t.heap[below].timer_ns:
            below += 1
        if t.heap[below].timer_ns >= c.timer_ns:
            break
        t.heap[i] = t.heap[below]
        t.heap[i].heap_index = i
        i = below
    t.heap[i] = c
    c.heap_index = i


cdef void paused_add(NetThread* t, Connection* c, int64_t wanted_bytes, bint starved) noexcept nogil:
    c.paused = True
    c.starved = starved
    if starved:
        atomic_add_i64(&t.network.starved_count, 1)
    c.wanted_bytes = wanted_bytes
    c.next_paused = NULL
    if t.paused == NULL:
        t.paused = c
    else:
        t.paused_last.next_paused = c
    t.paused_last = c


cdef void paused_remove(NetThread* t, Connection* c) noexcept nogil:
    cdef Connection** link = &t.paused
    cdef Connection* before = NULL
    while link[0] != c:
        before = link[0]
        link = &before.next_paused
    link[0] = c.next_paused
    if t.paused_last == c:
        t.paused_last = before
    c.paused = False
    if c.starved:
        c.starved = False
        atomic_add_i64(&t.network.starved_count, -1)
