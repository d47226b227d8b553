"""Spare network threads, for connections that hold up the thread they are on.

A network thread sleeps in the kernel when it appends to a disk that cannot take the writes, and its
other connections wait (docs/decisions/slow-disks.md). A connection that holds up its thread so
moves to a spare one, which has no other connection as long as there are no more than
SPARE_THREADS_MAX of them. It returns when it has held up none for a time (connection.pyx has the
rules). Spare threads start when connections move to them, and run until the reactor stops.

Only network threads call this module, and stop().
"""
from libc.stdint cimport int32_t
from libc.stdio cimport snprintf
from libc.string cimport memset

from barnabas.cext.memory.atomics cimport atomic_add_i64, atomic_load_i64
from barnabas.cext.memory.mutex cimport pthread_mutex_lock, pthread_mutex_unlock
from barnabas.cext.network.connection cimport conn_arrive, conn_leave, conn_stay
from barnabas.cext.network.connection_chains cimport chain_remove
from barnabas.cext.network.network_state cimport *
from barnabas.cext.network.sockets cimport net_own_thread, pthread_create, pthread_join


cdef void connections_move(NetThread* t) noexcept nogil:
    cdef Connection* c
    while t.chain_first[CHAIN_MOVING] != NULL:
        c = t.chain_first[CHAIN_MOVING]
        chain_remove(t, CHAIN_MOVING, c)
        c.work = WORK_NONE
        if c.out.bytes.size:        # its metrics are those of this thread
            conn_stay(t, c)
            continue
        conn_leave(t, c)
        if not _moved(t, c):
            c.held_up_ns = 0        # the next request that holds up its thread tries it again
            conn_arrive(t, c)


cdef bint _moved(NetThread* t, Connection* c) noexcept nogil:
    cdef Network* n = t.network
    cdef NetThread* target = NULL
    cdef Mail mail
    cdef bint moved = False
    memset(&mail, 0, sizeof(Mail))
    mail.kind = MAIL_MOVED
    mail.connection = c
    pthread_mutex_lock(&n.accept_lock)      # as the acceptor: the thread ends after it has read the mail
    if atomic_load_i64(&n.state) == STATE_RUNNING and not t.draining:
        target = network_fewest(n.takers, n.thread_count) if t.is_spare else _spare_for_one_more(n)
    if target != NULL:
        moved = inbox_post(target, &mail)
    if moved:
        atomic_add_i64(&target.connection_count, 1)
        atomic_add_i64(&t.connection_count, -1)
    pthread_mutex_unlock(&n.accept_lock)
    return moved


cdef NetThread* _spare_for_one_more(Network* n) noexcept nogil:
    """Returns a spare thread without connections, a new one, or the one with the fewest; NULL:
    there is none, and the system allows no more threads. The caller holds accept_lock."""
    cdef NetThread* fewest = NULL
    cdef NetThread* made
    if n.spare_count:
        fewest = network_fewest(n.spares, n.spare_count)
        if atomic_load_i64(&fewest.connection_count) == 0 or n.spare_count == SPARE_THREADS_MAX:
            return fewest
    made = n.unused_spare
    if made == NULL:
        made = n.unused_spare = network_add_spare(n)
    if made == NULL or pthread_create(&made.spare_thread, NULL, _run, made) != 0:
        return fewest
    n.unused_spare = NULL
    n.spares[n.spare_count] = made
    n.spare_count += 1
    return made


cdef void* _run(void* thread) noexcept nogil:
    cdef NetThread* t = <NetThread*>thread
    cdef char name[16]
    snprintf(name, sizeof(name), b"net-spare-%d", t.index)
    net_own_thread(name)
    t.network.loop(t)
    return NULL


cdef void spare_threads_join(Network* n) noexcept nogil:
    cdef int32_t i
    for i in range(n.spare_count):
        pthread_join(n.spares[i].spare_thread, NULL)
    n.spare_count = 0
