"""Chains of connections that a network thread serves without an event of epoll."""
from barnabas.cext.network.network_state cimport (
    CHAIN_COUNT, Connection, NetThread,
)

cdef inline void chain_append(NetThread* t, int which, Connection* c) noexcept nogil:
    """Adds the connection at the end of the chain, unless the chain has it already."""
    if c.chained[which]:
        return
    c.chained[which] = True
    c.chain_next[which] = NULL
    c.chain_before[which] = t.chain_last[which]
    if t.chain_last[which] == NULL:
        t.chain_first[which] = c
    else:
        t.chain_last[which].chain_next[which] = c
    t.chain_last[which] = c

cdef inline void chain_remove(NetThread* t, int which, Connection* c) noexcept nogil:
    """Removes the connection from the chain, if the chain has it."""
    cdef Connection* before = c.chain_before[which]
    cdef Connection* following = c.chain_next[which]
    if not c.chained[which]:
        return
    c.chained[which] = False
    if before == NULL:
        t.chain_first[which] = following
    else:
        before.chain_next[which] = following
    if following == NULL:
        t.chain_last[which] = before
    else:
        following.chain_before[which] = before

cdef inline void chains_leave(NetThread* t, Connection* c) noexcept nogil:
    cdef int which
    for which in range(CHAIN_COUNT):
        chain_remove(t, which, c)
