"""A network thread's connections: found by id, and ordered by their next deadline."""
from libc.stdint cimport int64_t, uint64_t

from barnabas.cext.network.network_state cimport Connection, NetThread

cdef enum:
    NOT_IN_TABLE = -1           # heap_index of a connection that was removed

cdef Connection* table_find(NetThread* t, uint64_t connection_id) noexcept nogil
# Adds the connection to both orders; returns False when memory ran out.
cdef bint table_add(NetThread* t, Connection* c) noexcept nogil
cdef void table_remove(NetThread* t, Connection* c) noexcept nogil
# Moves the connection's timer, to an earlier or a later time.
cdef void timer_move(NetThread* t, Connection* c, int64_t deadline_ns) noexcept nogil

cdef inline void timer_not_after(NetThread* t, Connection* c, int64_t deadline_ns) noexcept nogil:
    """Moves the timer to an earlier deadline. A later deadline is found when the timer fires, so
    that a request costs no change of the heap."""
    if deadline_ns < c.timer_ns:
        timer_move(t, c, deadline_ns)
# Pauses a connection until `wanted_bytes` more of the budget and a place in the queue to Python are
# free. `starved`: it waits for the memory.
cdef void paused_add(NetThread* thread, Connection* connection, int64_t wanted_bytes,
                     bint starved) noexcept nogil
cdef void paused_remove(NetThread* thread, Connection* connection) noexcept nogil
