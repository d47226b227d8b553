"""The reactor: network threads that never hold the GIL, an acceptor, and Python's handle of both.

Each network thread has its own epoll and its own connections and runs requests to completion
through the lanes (cext/lane.pxd). The acceptor gives a new connection to the thread that has the
fewest. What no lane takes waits for Python (cext/pylane.pyx). Next on the data path: cext/conn.pyx.
"""
import errno
import os
import socket
import threading
from collections import namedtuple

from libc.errno cimport EAGAIN, ECONNABORTED, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from barnabas.cext.atomics cimport atomic_add_i64, atomic_cas_i64, atomic_load_i64, atomic_store_i64
from barnabas.cext.conn cimport (
    conn_close,
    conn_event,
    conn_open,
    conn_replied,
    conn_resume,
    conn_settle,
    conn_timer,
    conn_unpause,
)
from barnabas.cext.conntable cimport table_find
from barnabas.cext.lane cimport LaneHandle
from barnabas.cext.network cimport *
from barnabas.cext.pylane cimport peer_of, pending_request
from barnabas.cext.sockets cimport (
    EPOLL_CTL_ADD,
    EPOLL_CTL_MOD,
    EPOLLIN,
    close,
    epoll_event,
    epoll_wait,
    net_accept,
    net_clock_ns,
    net_epoll,
    net_hush,
    net_own_thread,
    net_peer,
    net_ring,
)
from barnabas.cext.sys cimport SystemCalls

cdef enum:
    PAUSED_POLL_MS = 5              # how often room in the budget is looked for
    PAUSED_TURN = 64
    ACCEPT_TURN = 64
    ACCEPT_REST_MS = 100            # when descriptors or memory ran out
    STOPPED_POLL_MS = 20

# name -> (place in Network.limits, default); -1 or 0: see each
LIMITS = {
    "socket.request.max.bytes": (LIMIT_REQUEST_BYTES, 104857600),
    "queued.max.request.bytes": (LIMIT_QUEUED_BYTES, 268435456),       # -1: no limit
    "max.connections": (LIMIT_CONNECTIONS, 2147483647),
    "max.connections.per.ip": (LIMIT_CONNECTIONS_PER_IP, 2147483647),
    "connections.max.idle.ms": (LIMIT_IDLE_MS, 600000),                # 0 or less: never
    "request.receive.timeout.ms": (LIMIT_RECEIVE_MS, 30000),
    "response.send.timeout.ms": (LIMIT_SEND_MS, 60000),
    "socket.send.buffer.bytes": (LIMIT_SEND_BUFFER_BYTES, 102400),     # -1: the system's
    "socket.receive.buffer.bytes": (LIMIT_RECEIVE_BUFFER_BYTES, -1),
}

cdef list REASONS = [
    "peer", "negative-frame", "short-frame", "large-frame", "bad-header", "malformed-request",
    "handler", "idle", "receive-timeout", "send-timeout", "file", "memory", "max-connections",
    "max-connections-per-ip", "accept-failed", "stop",
]

NetworkEvent = namedtuple("NetworkEvent", "reason listener host port detail suppressed")


# ------------------------------------------------------------------ a network thread

cdef void _network_loop(NetThread* t) noexcept nogil:
    cdef System* system = t.network.system
    cdef Connection* c
    cdef int count
    cdef int i
    cdef int64_t slept_ns
    t.counters.started_ns = t.now_ns = system.monotonic_ns(system)
    while not _finished(t):
        atomic_store_i64(&t.counters.sleeping_since_ns, t.now_ns)
        count = epoll_wait(t.epoll_fd, t.events, EPOLL_EVENTS_MAX, _sleep_ms(t))
        slept_ns = t.now_ns
        t.now_ns = system.monotonic_ns(system)
        atomic_store_i64(&t.counters.sleeping_since_ns, 0)
        t.counters.idle_ns += t.now_ns - slept_ns
        for i in range(count):
            if t.events[i].data.ptr == NULL:
                net_hush(t.event_fd)
            else:
                conn_event(t, <Connection*>t.events[i].data.ptr, t.events[i].events)
        _read_mail(t)
        while t.heap_count and t.heap[0].timer_ns <= t.now_ns:
            conn_timer(t, t.heap[0])
        _resume_paused(t)
        while t.dead != NULL:
            c = t.dead
            t.dead = c.next_paused
            free(c)
        t.now_ns = system.monotonic_ns(system)
    while t.heap_count:
        conn_close(t, t.heap[0], WHY_STOP, 0)
    _read_mail(t)
    while t.dead != NULL:
        c = t.dead
        t.dead = c.next_paused
        free(c)


cdef bint _finished(NetThread* t) noexcept nogil:
    """Starts the drain when the reactor stops; true when it is over."""
    if atomic_load_i64(&t.network.state) == STATE_RUNNING:
        return False
    if not t.draining:
        t.draining = True
        _visit_all(t, False)
    return t.heap_count == 0 or t.now_ns >= t.network.stop_deadline_ns


cdef int _sleep_ms(NetThread* t) noexcept nogil:
    cdef int64_t until_ns = INT64_MAX
    cdef int64_t ms
    if t.heap_count:
        until_ns = t.heap[0].timer_ns
    if t.draining and t.network.stop_deadline_ns < until_ns:
        until_ns = t.network.stop_deadline_ns
    if until_ns == INT64_MAX:
        ms = -1
    elif until_ns <= t.now_ns:
        ms = 0
    else:
        ms = (until_ns - t.now_ns + 999999) // 1000000
        if ms > 3600000:
            ms = 3600000
    if t.paused != NULL and (ms < 0 or ms > PAUSED_POLL_MS):
        ms = PAUSED_POLL_MS
    return <int>ms


cdef void _visit_all(NetThread* t, bint resume) noexcept nogil:
    """Settles every connection, or resumes every parked one. Closing changes the heap, so a copy
    of it is walked; without memory for one, deadlines do the same later."""
    cdef int64_t count = t.heap_count
    cdef int64_t i
    cdef Connection** all_of_them = <Connection**>malloc((count + 1) * sizeof(Connection*))
    if all_of_them == NULL:
        return
    memcpy(all_of_them, t.heap, count * sizeof(Connection*))
    for i in range(count):
        if resume:
            conn_resume(t, all_of_them[i], False)
        else:
            conn_settle(t, all_of_them[i])
    free(all_of_them)


cdef void _read_mail(NetThread* t) noexcept nogil:
    cdef bint wake_all = False
    cdef int64_t count = inbox_take(t, &wake_all)
    cdef int64_t i
    cdef Mail* m
    cdef Connection* c
    for i in range(count):
        m = &t.taken[i]
        if m.kind == MAIL_CONNECTION:
            conn_open(t, m.fd, m.listener_index, m.connection_id, &m.peer)
            continue
        if m.kind == MAIL_LIMITS:
            _visit_all(t, False)
            continue
        c = table_find(t, m.connection_id)
        if c == NULL:
            free(m.bytes.data)
        elif m.kind == MAIL_WAKE:
            conn_resume(t, c, False)
        elif m.kind == MAIL_REPLY:
            conn_replied(t, c, &m.bytes)
        elif m.kind == MAIL_SILENT:
            conn_replied(t, c, NULL)
        else:
            conn_close(t, c, WHY_HANDLER, 0)
    if wake_all:
        _visit_all(t, True)         # a wake was lost for want of memory


cdef void _resume_paused(NetThread* t) noexcept nogil:
    """Lets connections read again while there is room; without room, one partial frame may go on."""
    cdef Network* n = t.network
    cdef Connection* c
    cdef int turn
    for turn in range(PAUSED_TURN):
        if t.paused == NULL or atomic_load_i64(&n.held_bytes) >= atomic_load_i64(&n.limits[LIMIT_QUEUED_BYTES]):
            break
        conn_unpause(t, t.paused)
    if t.paused == NULL or atomic_load_i64(&n.overdraft_id) != 0:
        return
    c = t.paused
    while c != NULL and c.input == NULL:
        c = c.next_paused
    if c != NULL and atomic_cas_i64(&n.overdraft_id, 0, <int64_t>c.id):
        conn_unpause(t, c)


# ------------------------------------------------------------------ the acceptor

cdef void _accept_loop(Network* n) noexcept nogil:
    cdef System* system = n.system
    cdef epoll_event events[LISTENERS_MAX]
    cdef bint resting = False
    cdef int count
    cdef int i
    cdef int listener
    while atomic_load_i64(&n.state) == STATE_RUNNING:
        count = epoll_wait(n.acceptor_epoll_fd, events, LISTENERS_MAX, ACCEPT_REST_MS if resting else -1)
        if resting:
            resting = False
            _arm_listeners(n, EPOLLIN)
            continue
        for i in range(count):
            if events[i].data.ptr == NULL:
                net_hush(n.acceptor_event_fd)
                continue
            listener = <int>(<Listener*>events[i].data.ptr - n.listeners)
            if not _accept_some(n, listener, system.monotonic_ns(system)):
                resting = True
        if resting:
            _arm_listeners(n, 0)
    for i in range(<int>atomic_load_i64(&n.listener_count)):
        if n.listeners[i].fd >= 0:
            close(n.listeners[i].fd)
            n.listeners[i].fd = -1


cdef void _arm_listeners(Network* n, int events) noexcept nogil:
    cdef int i
    for i in range(<int>atomic_load_i64(&n.listener_count)):
        net_epoll(n.acceptor_epoll_fd, EPOLL_CTL_MOD, n.listeners[i].fd, events, &n.listeners[i])


cdef bint _accept_some(Network* n, int listener, int64_t now_ns) noexcept nogil:
    """False when the system has no descriptor or memory left: accepting must rest."""
    cdef net_peer peer
    cdef int turn
    cdef int fd
    for turn in range(ACCEPT_TURN):
        fd = net_accept(n.listeners[listener].fd, &peer)
        if fd == -EINTR or fd == -ECONNABORTED:
            continue
        if fd == -EMFILE or fd == -ENFILE or fd == -ENOBUFS or fd == -ENOMEM:
            memset(&peer, 0, sizeof(net_peer))
            atomic_add_i64(&n.refused[WHY_ACCEPT_FAILED], 1)
            ring_note(n, WHY_ACCEPT_FAILED, listener, &peer, -fd, now_ns)
            return False
        if fd < 0:
            return True
        _welcome(n, listener, fd, &peer, now_ns)
    return True


cdef void _welcome(Network* n, int listener, int fd, const net_peer* peer, int64_t now_ns) noexcept nogil:
    cdef int64_t most = atomic_load_i64(&n.limits[LIMIT_CONNECTIONS])
    cdef NetThread* fewest = n.threads[0]
    cdef Mail mail
    cdef int i
    cdef int why = -1
    if atomic_load_i64(&n.connection_count) >= most:
        why = WHY_MAX_CONNECTIONS
    elif not address_enter(n, peer, atomic_load_i64(&n.limits[LIMIT_CONNECTIONS_PER_IP])):
        why = WHY_MAX_CONNECTIONS_PER_IP
    if why >= 0:
        close(fd)
        atomic_add_i64(&n.refused[why], 1)
        ring_note(n, why, listener, peer, atomic_load_i64(&n.connection_count), now_ns)
        return
    for i in range(1, n.thread_count):
        if atomic_load_i64(&n.threads[i].connection_count) < atomic_load_i64(&fewest.connection_count):
            fewest = n.threads[i]
    memset(&mail, 0, sizeof(Mail))
    mail.kind = MAIL_CONNECTION
    mail.fd = fd
    mail.listener_index = listener
    mail.connection_id = atomic_add_i64(&n.last_connection_id, 1)
    mail.peer = peer[0]
    atomic_add_i64(&n.connection_count, 1)
    atomic_add_i64(&fewest.connection_count, 1)
    n.listeners[listener].connections_total += 1
    if not inbox_post(fewest, &mail):
        close(fd)
        address_leave(n, peer)
        atomic_add_i64(&n.connection_count, -1)
        atomic_add_i64(&fewest.connection_count, -1)
        atomic_add_i64(&n.refused[WHY_MEMORY], 1)


# ------------------------------------------------------------------ Python's handle

cdef class Reactor:
    """Listeners, network threads and the queue to Python of one broker."""
    cdef Network* _network
    cdef object _system
    cdef list _lanes
    cdef list _names
    cdef list _threads
    cdef object _lock
    cdef int64_t _stop_grace_ms

    def __cinit__(self, SystemCalls system not None, lanes, *, int network_threads,
                  flexible_from, limits=None):
        cdef int i
        cdef LaneHandle lane
        if not 1 <= network_threads <= THREADS_MAX:
            raise ValueError(f"network_threads is {network_threads}, not within 1-{THREADS_MAX}")
        self._system = system
        self._lanes = list(lanes)
        self._names = []
        self._threads = []
        self._lock = threading.Lock()
        if len(self._lanes) > LANES_MAX:
            raise ValueError(f"{len(self._lanes)} lanes, {LANES_MAX} at most")
        self._network = network_new(&system.table)
        if self._network == NULL:
            raise MemoryError("no memory or descriptors for the network")
        for i in range(network_threads):
            if network_add_thread(self._network) < 0:
                raise MemoryError("no memory or descriptors for a network thread")
        for _name, (place, value) in LIMITS.items():
            self._network.limits[<int>place] = value
        for name, value in (limits or {}).items():
            self._set(name, value)
        self._take_versions(list(flexible_from))
        for lane in self._lanes:
            if lane.lane == NULL:
                raise ValueError(f"{lane!r} has no lane in it")
            self._network.lanes[self._network.lane_count] = lane.lane
            self._network.lane_count += 1
            lane.bind(&self._network.waker)

    cdef int _take_versions(self, list flexible_from) except -1:
        cdef int i
        self._network.flexible_from = <int16_t*>calloc(len(flexible_from) + 1, sizeof(int16_t))
        if self._network.flexible_from == NULL:
            raise MemoryError("no memory for the table of versions")
        for i in range(<int>len(flexible_from)):
            self._network.flexible_from[i] = flexible_from[i]
        self._network.key_count = <int32_t>len(flexible_from)
        return 0

    def __dealloc__(self):
        # Running threads keep the reactor alive through their target, so none runs here.
        if self._network != NULL:
            network_free(self._network)

    cdef int _set(self, str name, int64_t value) except -1:
        if name not in LIMITS:
            raise KeyError(f"the network has no limit {name!r}")
        if name == "queued.max.request.bytes" and value < 0:
            value = INT64_MAX
        atomic_store_i64(&self._network.limits[<int>LIMITS[name][0]], value)
        return 0

    def set_limit(self, str name not None, int64_t value) -> None:
        """Takes effect at once; buffer sizes for connections and listeners to come."""
        cdef Mail mail
        cdef int i
        self._set(name, value)
        memset(&mail, 0, sizeof(Mail))
        mail.kind = MAIL_LIMITS
        for i in range(self._network.thread_count):
            inbox_post(self._network.threads[i], &mail)

    def listen(self, str name not None, str host not None, int port, int backlog=50) -> int:
        """Opens a listener and gives its port (that which the system chose for 0).

        Raises OSError with its errno for a port that is taken or an address that is not here.
        """
        cdef Network* n = self._network
        cdef int index
        with self._lock:
            index = <int>n.listener_count
            if index == LISTENERS_MAX:
                raise ValueError(f"{LISTENERS_MAX} listeners at most")
            if name in self._names:
                raise ValueError(f"there is a listener {name!r} already")
            if atomic_load_i64(&n.state) != STATE_RUNNING:
                raise RuntimeError("the reactor has stopped")
            made = _listening_socket(host, port, backlog, n.limits[LIMIT_RECEIVE_BUFFER_BYTES])
            bound = made.getsockname()[1]
            n.listeners[index].fd = made.detach()
            self._names.append(name)
            atomic_store_i64(&n.listener_count, index + 1)
            net_epoll(n.acceptor_epoll_fd, EPOLL_CTL_ADD, n.listeners[index].fd, EPOLLIN,
                      &n.listeners[index])
        return bound

    def start(self) -> None:
        """Starts the threads; connections that wait in the listeners' backlogs are served."""
        with self._lock:
            if self._threads or atomic_load_i64(&self._network.state) != STATE_RUNNING:
                raise RuntimeError("a reactor starts once")
            self._threads = [
                threading.Thread(target=self._run, args=(i,), daemon=True, name=f"network-{i}")
                for i in range(self._network.thread_count)
            ]
            self._threads.append(
                threading.Thread(target=self._accept, daemon=True, name="acceptor")
            )
            for thread in self._threads:
                thread.start()

    def _run(self, int index) -> None:
        cdef bytes name = f"network-{index}".encode()
        cdef char* c_name = name
        with nogil:
            net_own_thread(c_name)
            _network_loop(self._network.threads[index])

    def _accept(self) -> None:
        with nogil:
            net_own_thread("acceptor")
            _accept_loop(self._network)

    def stop(self, int64_t timeout_ms=5000) -> None:
        """Accepts and reads no more, lets requests in work be answered, then closes everything.

        What is not answered after timeout_ms is closed without an answer. May be called twice.
        """
        cdef Network* n = self._network
        cdef int i
        with self._lock:
            if atomic_load_i64(&n.state) == STATE_RUNNING:
                n.stop_deadline_ns = n.system.monotonic_ns(n.system) + timeout_ms * 1000000
                atomic_store_i64(&n.state, STATE_DRAINING)
            net_ring(n.acceptor_event_fd)
            for i in range(n.thread_count):
                net_ring(n.threads[i].event_fd)
            for thread in self._threads:
                thread.join()
            self._threads = []
            atomic_store_i64(&n.state, STATE_STOPPED)
            queue_close(n)

    def next_request(self, int64_t timeout_ms=-1):
        """The next request for Python; None after timeout_ms (-1: never) or when stopped."""
        cdef PyRequest* request
        with nogil:
            request = queue_pop(self._network, timeout_ms)
        if request == NULL:
            return None
        return pending_request(self, self._network, self._names, request)

    @property
    def stopped(self) -> bool:
        return atomic_load_i64(&self._network.state) == STATE_STOPPED

    def events(self) -> list:
        """Takes what peers did wrong since the last call; one a peer and second."""
        cdef NetEvent e
        found = []
        while ring_take(self._network, &e):
            host, port = peer_of(&e.peer)
            found.append(NetworkEvent(
                reason=REASONS[e.why], listener=self._names[e.listener_index], host=host,
                port=port, detail=e.detail, suppressed=e.suppressed,
            ))
        return found

    def counters(self) -> dict:
        """Counts since the start, and what is held at this moment. See reactor.pyi."""
        cdef Network* n = self._network
        cdef ThreadCounters* c
        cdef int i
        cdef int why
        cdef int listener
        total = dict.fromkeys(("requests", "python_requests", "parked", "bytes_in", "bytes_out"), 0)
        closed = {reason: 0 for reason in REASONS}
        connections = {name: 0 for name in self._names}
        threads = []
        for i in range(n.thread_count):
            c = &n.threads[i].counters
            total["requests"] += c.requests
            total["python_requests"] += c.python_requests
            total["parked"] += c.parked
            total["bytes_in"] += c.bytes_in
            total["bytes_out"] += c.bytes_out
            for why in range(WHY_COUNT):
                closed[REASONS[why]] += c.closed[why]
            for listener in range(<int>len(self._names)):
                connections[self._names[listener]] += c.connections[listener]
            threads.append(self._thread_times(i))
        for why in range(WHY_COUNT):
            closed[REASONS[why]] += atomic_load_i64(&n.refused[why])
        total["closed"] = closed
        total["connections"] = connections
        total["connections_total"] = {
            name: n.listeners[i].connections_total for i, name in enumerate(self._names)
        }
        total["threads"] = threads
        total["connection_count"] = atomic_load_i64(&n.connection_count)
        total["held_bytes"] = atomic_load_i64(&n.held_bytes)
        total["python_queue"] = n.queue.count
        total["python_waiting"] = n.queue.waiting
        total["events_lost"] = n.ring.lost
        return total

    cdef dict _thread_times(self, int i):
        cdef NetThread* t = self._network.threads[i]
        cdef int64_t now_ns = self._network.system.monotonic_ns(self._network.system)
        cdef int64_t since_ns = atomic_load_i64(&t.counters.sleeping_since_ns)
        cdef int64_t idle_ns = t.counters.idle_ns + (now_ns - since_ns if since_ns else 0)
        cdef int64_t run_ns = now_ns - t.counters.started_ns if t.counters.started_ns else 0
        return {
            "connections": atomic_load_i64(&t.connection_count),
            "idle_ns": idle_ns,
            "run_ns": run_ns,
            "idle_ratio": min(1.0, idle_ns / run_ns) if run_ns > 0 else 1.0,
        }


def _listening_socket(host: str, port: int, backlog: int, receive_buffer_bytes: int):
    """Bound and listening, not blocking. The wildcard of IPv6 takes IPv4 too, as Kafka's does."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    if not found:
        raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL), host)
    family, kind, protocol, _, address = found[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if receive_buffer_bytes > 0:        # before listen, or the window cannot grow with it
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        made.setblocking(False)
        made.bind(address)
        made.listen(backlog)
    except BaseException:
        made.close()
        raise
    return made
