"""The acceptor: accepts connections and gives each to the network thread that has the fewest.

While a listener may not accept (too many connections, too many a second, no descriptors), the
acceptor does not watch it: clients wait in its backlog, as in Kafka. The acceptor closes a new
connection at once only if its address has reached max.connections.per.ip. A connection that exceeds
the connection_creation_rate of its address (/config/ips, KIP-612) counts in no other rate. It
closes after the time for which its address exceeds the rate, at most ADDRESS_WAIT_NS, so that a
client that connects repeatedly becomes slower. Next on the data path: cext/network/connection.pyx.
"""
from libc.errno cimport ECONNABORTED, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM
from libc.stdint cimport INT64_MAX, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from barnabas.cext.memory.atomics cimport (
    atomic_add_i64, atomic_fence, atomic_load_i32, atomic_load_i64, atomic_store_i64,
)
from barnabas.cext.memory.descriptors cimport connection_descriptors_end
from barnabas.cext.memory.mutex cimport pthread_mutex_lock, pthread_mutex_unlock
from barnabas.cext.memory.sys cimport System
from barnabas.cext.network.network_state cimport *
from barnabas.cext.network.sockets cimport (
    EPOLL_CTL_MOD, EPOLLIN, close, epoll_event, epoll_wait, net_accept, net_address, net_epoll,
    net_hush, net_peer,
)

cdef enum:
    ACCEPT_TURN = 64
    ACCEPT_REST_MS = 100            # pause after descriptors or memory ran out

cdef int64_t ADDRESS_WAIT_NS = 1000000000       # as Kafka: quota.window.size.seconds by default
cdef int64_t NS_PER_S = 1000000000
cdef int64_t CONNECTION_BURST_NS = 10000000000  # as Kafka: the rate is a mean over ten seconds


cdef void accept_loop(Network* n) noexcept nogil:
    """Watches a listener only while it may accept; otherwise clients wait in its backlog."""
    cdef System* system = n.system
    cdef epoll_event events[LISTENERS_MAX + 1]
    cdef int64_t now_ns = system.monotonic_ns(system)
    cdef int64_t until_ns
    cdef int timeout_ms
    cdef int count
    cdef int i
    while atomic_load_i64(&n.state) == STATE_RUNNING:
        _close_delayed(n, now_ns)
        until_ns = _open_gates(n, now_ns)
        if n.delayed_count:
            until_ns = min(until_ns, n.delayed[n.delayed_first].close_ns)
        timeout_ms = -1
        if until_ns != INT64_MAX:
            timeout_ms = <int>min((max(until_ns - now_ns, 0) + 999999) // 1000000, 3600000)
        count = epoll_wait(n.acceptor_epoll_fd, events, LISTENERS_MAX + 1, timeout_ms)
        now_ns = system.monotonic_ns(system)
        for i in range(count):
            if events[i].data.ptr == NULL:
                net_hush(n.acceptor_event_fd)
                continue
            _accept_some(n, <int>(<Listener*>events[i].data.ptr - n.listeners), now_ns)
    _close_delayed(n, INT64_MAX)
    for i in range(<int>atomic_load_i64(&n.listener_count)):
        if n.listeners[i].fd >= 0:
            close(n.listeners[i].fd)
            n.listeners[i].fd = -1


cdef int64_t _open_gates(Network* n, int64_t now_ns) noexcept nogil:
    """Watches only the listeners that may accept; returns when to check them again."""
    cdef int64_t until_ns = INT64_MAX
    cdef int64_t due_ns, state
    cdef Listener* listener
    cdef int i
    atomic_store_i64(&n.acceptor_waits, 1)
    atomic_fence()                  # see slot_came_free
    for i in range(<int>atomic_load_i64(&n.listener_count)):
        listener = &n.listeners[i]
        state = atomic_load_i64(&listener.removed)
        if state == LISTENER_REMOVED:
            _close_listener(n, listener)
        if state != LISTENER_OPEN:  # after it has closed, another listener may use its place
            continue
        due_ns = _due_ns(n, listener, now_ns)
        if due_ns > now_ns:
            until_ns = min(until_ns, due_ns)
            if listener.closed_since_ns == 0:
                listener.closed_since_ns = now_ns
                _count_throttle(n, listener, now_ns)
                net_epoll(n.acceptor_epoll_fd, EPOLL_CTL_MOD, listener.fd, 0, listener)
        elif listener.closed_since_ns:
            atomic_add_i64(&listener.blocked_ns, now_ns - listener.closed_since_ns)
            listener.closed_since_ns = 0
            net_epoll(n.acceptor_epoll_fd, EPOLL_CTL_MOD, listener.fd, EPOLLIN, listener)
    return until_ns


cdef void _count_throttle(Network* n, Listener* listener, int64_t now_ns) noexcept nogil:
    """Counts a delay that a rate of new connections causes, and no other limit."""
    cdef int64_t until_ns = _rates_due_ns(n, listener)
    if now_ns < until_ns < INT64_MAX:
        atomic_add_i64(&listener.throttle_count, 1)
        atomic_add_i64(&listener.throttle_ns, until_ns - now_ns)


cdef void _close_listener(Network* n, Listener* listener) noexcept nogil:
    """Closes a listener. Only the acceptor does this, so that no connection follows the message to
    the threads."""
    cdef Mail mail
    cdef int i
    if listener.fd < 0:
        return
    close(listener.fd)
    listener.fd = -1
    listener.closed_since_ns = 0
    memset(&mail, 0, sizeof(Mail))
    mail.kind = MAIL_LIMITS         # conn_settle closes connections without a request in work
    for i in range(atomic_load_i32(&n.made_count)):
        if atomic_load_i64(&n.threads[i].state) != THREAD_ENDED:
            inbox_post(n.threads[i], &mail)
    atomic_store_i64(&listener.removed, LISTENER_CLOSED)


cdef int64_t _due_ns(Network* n, Listener* listener, int64_t now_ns) noexcept nogil:
    """Returns when the listener may accept; INT64_MAX: not before a connection closes or a limit
    changes."""
    cdef int64_t due_ns = max(n.rest_until_ns, _rates_due_ns(n, listener))
    if atomic_load_i64(&n.connection_count) >= atomic_load_i64(&n.limits[LIMIT_CONNECTIONS]):
        return INT64_MAX
    if atomic_load_i64(&listener.connection_count) >= atomic_load_i64(&listener.connections_max):
        return INT64_MAX
    return due_ns


cdef inline int64_t _rates_due_ns(Network* n, Listener* listener) noexcept nogil:
    return max(
        _rate_due_ns(n.rate_due_ns, atomic_load_i64(&n.limits[LIMIT_CONNECTION_RATE])),
        _rate_due_ns(listener.rate_due_ns, atomic_load_i64(&listener.connection_rate)),
    )


cdef inline int64_t _rate_due_ns(int64_t paid_ns, int64_t rate) noexcept nogil:
    if rate >= LISTENER_LIMIT_NONE:
        return 0
    return paid_ns - CONNECTION_BURST_NS if rate > 0 else INT64_MAX


cdef inline int64_t _paid_ns(int64_t paid_ns, int64_t rate, int64_t now_ns) noexcept nogil:
    """Counts one more connection: it uses 1/rate seconds after the previous one, or from now."""
    return max(paid_ns, now_ns) + 1000000000 // max(rate, 1) if rate < LISTENER_LIMIT_NONE else 0


cdef int64_t _address_rate(Network* n, const uint8_t* address) noexcept nogil:
    cdef int64_t rate
    cdef int64_t i
    pthread_mutex_lock(&n.addresses_lock)
    rate = n.address_rate_default
    for i in range(n.address_rate_count):
        if memcmp(n.address_rates[i].address, address, 16) == 0:
            rate = n.address_rates[i].most
    pthread_mutex_unlock(&n.addresses_lock)
    return rate


cdef AddressPace* _pace_of(Network* n, const uint8_t* address, int64_t now_ns) noexcept nogil:
    """Returns the AddressPace of an address; NULL when there are too many, or memory ran out."""
    cdef AddressPace** bucket = &n.paces[address_hash(address) % ADDRESS_BUCKETS]
    cdef AddressPace* pace = bucket[0]
    while pace != NULL and memcmp(pace.address, address, 16) != 0:
        pace = pace.next
    if pace != NULL:
        return pace
    if n.pace_count >= ADDRESS_PACES_MAX:
        _sweep_paces(n, now_ns)
    if n.pace_count >= ADDRESS_PACES_MAX:
        return NULL
    pace = <AddressPace*>calloc(1, sizeof(AddressPace))
    if pace != NULL:
        memcpy(pace.address, address, 16)
        pace.next = bucket[0]
        bucket[0] = pace
        n.pace_count += 1
    return pace


cdef void _sweep_paces(Network* n, int64_t now_ns) noexcept nogil:
    """Removes the addresses that use nothing of their rate any more; at most once a second."""
    cdef AddressPace** link
    cdef AddressPace* pace
    cdef int i
    if now_ns < n.paces_swept_ns + NS_PER_S:
        return
    n.paces_swept_ns = now_ns
    for i in range(ADDRESS_BUCKETS):
        link = &n.paces[i]
        while link[0] != NULL:
            pace = link[0]
            if pace.paid_ns <= now_ns:
                link[0] = pace.next
                n.pace_count -= 1
                free(pace)
            else:
                link = &pace.next


cdef int64_t _address_wait_ns(Network* n, const net_peer* peer, int64_t now_ns) noexcept nogil:
    """Counts a new connection of an address, and returns 0; or, when the address has exceeded its
    rate, returns the time after which the connection closes."""
    cdef uint8_t address[16]
    cdef AddressPace* pace
    cdef int64_t rate, due_ns
    if not atomic_load_i64(&n.has_address_rates):
        return 0
    net_address(peer, address)
    rate = _address_rate(n, address)
    if rate >= LISTENER_LIMIT_NONE:
        return 0
    pace = _pace_of(n, address, now_ns)
    due_ns = INT64_MAX if pace == NULL else _rate_due_ns(pace.paid_ns, rate)
    if due_ns > now_ns:
        return min(due_ns - now_ns, ADDRESS_WAIT_NS)
    pace.paid_ns = _paid_ns(pace.paid_ns, rate, now_ns)
    return 0


cdef void _close_later(Network* n, int index, int fd, const net_peer* peer, int64_t now_ns,
                       int64_t wait_ns) noexcept nogil:
    cdef DelayedClose* delayed
    atomic_add_i64(&n.refused[WHY_ADDRESS_RATE], 1)
    atomic_add_i64(&n.listeners[index].address_throttle_count, 1)
    atomic_add_i64(&n.listeners[index].address_throttle_ns, wait_ns)
    ring_note(n, WHY_ADDRESS_RATE, index, peer, wait_ns // 1000000, now_ns)
    if n.delayed_count == DELAYED_CLOSES_MAX:
        close(n.delayed[n.delayed_first].fd)
        n.delayed_first = (n.delayed_first + 1) % DELAYED_CLOSES_MAX
        n.delayed_count -= 1
    delayed = &n.delayed[(n.delayed_first + n.delayed_count) % DELAYED_CLOSES_MAX]
    delayed.fd = fd
    delayed.close_ns = now_ns + wait_ns
    n.delayed_count += 1


cdef void _close_delayed(Network* n, int64_t now_ns) noexcept nogil:
    while n.delayed_count and n.delayed[n.delayed_first].close_ns <= now_ns:
        close(n.delayed[n.delayed_first].fd)
        n.delayed_first = (n.delayed_first + 1) % DELAYED_CLOSES_MAX
        n.delayed_count -= 1


cdef void _accept_some(Network* n, int index, int64_t now_ns) noexcept nogil:
    cdef Listener* listener = &n.listeners[index]
    cdef net_peer peer
    cdef int64_t wait_ns
    cdef int turn
    cdef int fd
    for turn in range(ACCEPT_TURN):
        if listener.fd < 0 or _due_ns(n, listener, now_ns) > now_ns:
            return
        fd = net_accept(listener.fd, &peer)
        if fd == -EINTR or fd == -ECONNABORTED:
            continue
        if fd >= connection_descriptors_end():
            close(fd)
            fd = -EMFILE
        if fd == -EMFILE or fd == -ENFILE or fd == -ENOBUFS or fd == -ENOMEM:
            memset(&peer, 0, sizeof(net_peer))
            atomic_add_i64(&n.refused[WHY_ACCEPT_FAILED], 1)
            ring_note(n, WHY_ACCEPT_FAILED, index, &peer, -fd, now_ns)
            n.rest_until_ns = now_ns + ACCEPT_REST_MS * <int64_t>1000000
            return
        if fd < 0:
            return
        wait_ns = _address_wait_ns(n, &peer, now_ns)
        if wait_ns:
            _close_later(n, index, fd, &peer, now_ns, wait_ns)
            continue
        n.rate_due_ns = _paid_ns(n.rate_due_ns, atomic_load_i64(&n.limits[LIMIT_CONNECTION_RATE]), now_ns)
        listener.rate_due_ns = _paid_ns(
            listener.rate_due_ns, atomic_load_i64(&listener.connection_rate), now_ns)
        _welcome(n, index, fd, &peer, now_ns)


cdef void _welcome(Network* n, int index, int fd, const net_peer* peer, int64_t now_ns) noexcept nogil:
    cdef Listener* listener = &n.listeners[index]
    cdef NetThread* fewest
    cdef Mail mail
    cdef bint stopping
    cdef int i
    if not address_enter(n, peer, atomic_load_i64(&n.limits[LIMIT_CONNECTIONS_PER_IP])):
        close(fd)
        atomic_add_i64(&n.refused[WHY_MAX_CONNECTIONS_PER_IP], 1)
        ring_note(n, WHY_MAX_CONNECTIONS_PER_IP, index, peer, atomic_load_i64(&n.connection_count), now_ns)
        return
    memset(&mail, 0, sizeof(Mail))
    mail.kind = MAIL_CONNECTION
    mail.fd = fd
    mail.listener_index = index
    mail.connection_id = atomic_add_i64(&n.last_connection_id, 1)
    mail.peer = peer[0]
    listener.connections_total += 1
    atomic_add_i64(&n.connection_count, 1)
    atomic_add_i64(&listener.connection_count, 1)
    pthread_mutex_lock(&n.accept_lock)      # otherwise the thread could end before the mail arrives
    fewest = network_fewest(n.takers, n.thread_count)
    atomic_add_i64(&fewest.connection_count, 1)
    stopping = atomic_load_i64(&n.state) != STATE_RUNNING
    if stopping or not inbox_post(fewest, &mail):
        close(fd)
        address_leave(n, peer)
        atomic_add_i64(&n.connection_count, -1)
        atomic_add_i64(&listener.connection_count, -1)
        atomic_add_i64(&fewest.connection_count, -1)
        atomic_add_i64(&n.refused[WHY_STOP if stopping else WHY_MEMORY], 1)
    pthread_mutex_unlock(&n.accept_lock)
