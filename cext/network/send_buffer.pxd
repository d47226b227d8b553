"""The send buffer of a connection: it grows for a reader whose window is smaller.

Such a reader (Java's consumers have 64 KiB) wakes the network thread for each piece that it takes.
With a buffer that holds a whole answer, the kernel sends on its own as the window opens. For
readers with a wide window a small buffer, which stays in the processor's cache, is best. Numbers:
docs/performance.md, "Tried and dropped".
"""
from barnabas.cext.memory.atomics cimport atomic_load_i64
from barnabas.cext.network.network_state cimport LIMIT_SEND_BUFFER_BYTES, Connection, NetThread
from barnabas.cext.network.sockets cimport net_send_buffer, net_unsent

cdef enum:
    NARROW_STALLS = 64          # a window that only opens slowly is wide by then
    SEND_BUFFER_GROWTH = 10


cdef inline void send_buffer_stalled(NetThread* t, Connection* c) noexcept nogil:
    """Call it when the socket is full: grows the buffer if the peer's window is small."""
    if c.narrow_stalls < NARROW_STALLS and net_unsent(c.fd) > 0:
        c.narrow_stalls += 1
        if c.narrow_stalls == NARROW_STALLS:
            net_send_buffer(c.fd, SEND_BUFFER_GROWTH * atomic_load_i64(
                &t.network.limits[LIMIT_SEND_BUFFER_BYTES]))
