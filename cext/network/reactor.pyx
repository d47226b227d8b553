"""The reactor: network threads that never hold the GIL, an acceptor, and Python's handle of both.

Each network thread has its own epoll and its own connections and runs requests to completion
through the native handlers (cext/network/handler.pxd). Connections come from the acceptor
(cext/network/acceptor.pyx); one that holds up its thread moves to a spare thread
(cext/network/spare_threads.pyx). Requests without a native handler wait for Python
(cext/network/request_queue.pyx). Next on the data path: cext/network/connection.pyx.
"""
import errno
import os
import socket
import threading
from collections import namedtuple

cimport cython
from libc.stdint cimport INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from barnabas.cext.memory.atomics cimport (
    atomic_add_i64, atomic_cas_i64, atomic_fence, atomic_load_i32, atomic_load_i64,
    atomic_store_i64, atomic_store_pointer,
)
from barnabas.cext.memory.mutex cimport pthread_mutex_lock, pthread_mutex_unlock
from barnabas.cext.memory.sys cimport SystemCalls
from barnabas.cext.memory.threads import start_thread
from barnabas.cext.network.acceptor cimport LISTENER_LIMIT_NONE, accept_loop
from barnabas.cext.network.closed_connections cimport (
    CloseMark, closed_end, closed_put, closed_take,
)
from barnabas.cext.network.connection cimport (
    conn_arrive, conn_buffered, conn_close, conn_event, conn_handshake, conn_login, conn_open, conn_proceed,
    conn_quotas, conn_replied, conn_resume, conn_settle, conn_timer, conn_unpause,
)
from barnabas.cext.network.connection_table cimport table_find
from barnabas.cext.network.handler cimport NativeHandler, PermissionTable
from barnabas.cext.network.network_state cimport *
from barnabas.cext.network.request_metrics cimport RequestMetricsTable, metrics_dict, metrics_init
from barnabas.cext.network.request_queue cimport peer_of, pending_request
from barnabas.cext.network.sockets cimport (
    EPOLL_CTL_ADD, EPOLLIN, close, epoll_wait, net_clock_ns, net_epoll, net_hush, net_own_thread,
    net_ring,
)
from barnabas.cext.network.spare_threads cimport connections_move, spare_threads_join
from barnabas.cext.network.transport cimport Transport

cdef enum:
    PAUSED_TURN = 64
    LOGIN_BYTES_MAX = 524288        # the default of sasl.server.max.receive.size
    RETIRE_GRACE_MS = 5000          # time for the requests of a thread that must end

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
    "queued.max.requests": (LIMIT_QUEUED_REQUESTS, 500),
    "max.connection.creation.rate": (LIMIT_CONNECTION_RATE, 2147483647),
    "max.tls.handshakes": (LIMIT_HANDSHAKES, 500),
}

cdef list REASONS = [
    "peer", "negative-frame", "short-frame", "large-frame", "tls-client", "http-client",
    "plaintext-client", "tls", "handshake-timeout", "too-many-handshakes", "bad-header",
    "malformed-request", "no-login", "login-expired", "handler", "idle", "receive-timeout",
    "send-timeout", "slow-request", "file", "memory",
    "max-connections-per-ip", "connection-rate-per-ip", "accept-failed", "stop",
]

NetworkEvent = namedtuple("NetworkEvent", "reason listener host port detail suppressed")


# ------------------------------------------------------------------ a network thread

cdef void _network_loop(NetThread* t) noexcept nogil:
    cdef System* system = t.network.system
    cdef Connection* c
    cdef int count
    cdef int i
    cdef int64_t slept_ns
    cdef int timeout_ms
    t.counters.started_ns = t.now_ns = system.monotonic_ns(system)
    while not _finished(t):
        atomic_store_i64(&t.counters.sleeping_since_ns, t.now_ns)
        timeout_ms = _sleep_ms(t)
        if t.paused != NULL and timeout_ms != 0 and _room_is_there(t):
            timeout_ms = 0
        if t.chain_first[CHAIN_HANDSHAKES] != NULL or t.chain_first[CHAIN_BUFFERED] != NULL:
            timeout_ms = 0
        count = epoll_wait(t.epoll_fd, t.events, EPOLL_EVENTS_MAX, timeout_ms)
        if t.paused != NULL and atomic_cas_i64(&t.waits_for_room, 1, 0):
            atomic_add_i64(&t.network.room_waiters, -1)
        t.counters.wakeups += 1
        slept_ns = t.now_ns
        t.now_ns = t.metrics.clock_ns = system.monotonic_ns(system)
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
        if t.chain_first[CHAIN_BUFFERED] != NULL:
            conn_buffered(t)
        if t.chain_first[CHAIN_HANDSHAKES] != NULL:
            conn_handshake(t)       # one in each turn, so that other connections do not wait for all
        _resume_paused(t)
        if t.chain_first[CHAIN_MOVING] != NULL:
            connections_move(t)
        while t.dead != NULL:
            c = t.dead
            t.dead = c.next_paused
            free(c)
        # A turn that ended with an answer has read the clock just now.
        t.now_ns = t.metrics.clock_ns if t.metrics.clock_is_fresh else system.monotonic_ns(system)
        t.metrics.clock_is_fresh = False
    while t.heap_count:
        conn_close(t, t.heap[0], WHY_STOP, 0)
    _read_mail(t)
    while t.dead != NULL:
        c = t.dead
        t.dead = c.next_paused
        free(c)


cdef bint _finished(NetThread* t) noexcept nogil:
    """Starts the drain when the reactor stops or the thread is no longer needed. Returns True when
    the drain is over."""
    if atomic_load_i64(&t.network.state) == STATE_RUNNING:
        return _retired(t)
    if not t.draining:
        t.draining = True
        _visit_all(t, False)
    return t.heap_count == 0 or t.now_ns >= t.network.stop_deadline_ns


cdef bint _retired(NetThread* t) noexcept nogil:
    if atomic_load_i64(&t.state) == THREAD_RUNNING:
        if t.draining:              # the thread is needed again
            t.draining = False
            _visit_all(t, False)
        return False
    if not t.draining:
        t.draining = True
        t.retire_deadline_ns = t.now_ns + RETIRE_GRACE_MS * <int64_t>1000000
        _visit_all(t, False)
    while t.heap_count and t.now_ns >= t.retire_deadline_ns:
        conn_close(t, t.heap[0], WHY_STOP, 0)
    return t.heap_count == 0 and atomic_cas_i64(&t.state, THREAD_RETIRING, THREAD_ENDED)


cdef int _sleep_ms(NetThread* t) noexcept nogil:
    cdef int64_t until_ns = INT64_MAX
    cdef int64_t ends_ns
    cdef int64_t ms
    if t.heap_count:
        until_ns = t.heap[0].timer_ns
    if t.draining:
        ends_ns = t.retire_deadline_ns
        if atomic_load_i64(&t.network.state) != STATE_RUNNING:
            ends_ns = t.network.stop_deadline_ns
        until_ns = min(until_ns, ends_ns)
    if until_ns == INT64_MAX:
        ms = -1
    elif until_ns <= t.now_ns:
        ms = 0
    else:
        ms = (until_ns - t.now_ns + 999999) // 1000000
        if ms > 3600000:
            ms = 3600000
    return <int>ms


cdef void _visit_all(NetThread* t, bint resume) noexcept nogil:
    """Settles every connection, or resumes every waiting one. It goes through a copy of the heap,
    because a close changes the heap; without memory for a copy, the deadlines do the same later."""
    cdef int64_t count = t.heap_count
    cdef int64_t i
    cdef Connection** all_of_them
    if count == 0:
        return
    all_of_them = <Connection**>malloc(count * sizeof(Connection*))
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
        if m.kind == MAIL_MOVED:
            conn_arrive(t, m.connection)
            continue
        if m.kind == MAIL_LIMITS:
            _visit_all(t, False)
            continue
        c = table_find(t, m.connection_id)
        if m.kind == MAIL_CLOSE_MARK:
            _mark(t, c, <CloseMark*>m.bytes.data)
        elif m.kind == MAIL_QUOTAS:
            conn_quotas(t, c, m)
        elif c == NULL:
            free(m.bytes.data)
        elif m.kind == MAIL_WAKE:
            conn_resume(t, c, False)
        elif m.kind == MAIL_REPLY:
            conn_replied(t, c, m)
        elif m.kind == MAIL_SILENT:
            conn_replied(t, c, m)
        elif m.kind == MAIL_LOGIN or m.kind == MAIL_PRINCIPAL:
            conn_login(t, c, m)
        elif m.kind == MAIL_PROCEED or m.kind == MAIL_PROCEED_MUFFLED:
            conn_proceed(t, c, &m.bytes, m.kind == MAIL_PROCEED_MUFFLED)
        else:
            conn_close(t, c, WHY_HANDLER, 0)
    if wake_all:
        _visit_all(t, True)         # memory ran out and a wake was lost


cdef void _mark(NetThread* t, Connection* c, CloseMark* close_mark) noexcept nogil:
    """Marks a connection whose close Python waits for; reports it at once if it has closed (c is
    NULL)."""
    if c == NULL:
        closed_put(&t.network.closed_connections, close_mark)
    elif c.close_mark != NULL:
        free(close_mark)
    else:
        c.close_mark = close_mark


cdef Connection* _next_with_room(NetThread* t, Connection* c) noexcept nogil:
    """Returns the first paused connection from `c` on that may read now."""
    if queue_is_full(t.network):
        return NULL
    while c != NULL:
        if budget_allows(t.network, c, c.input_capacity + c.wanted_bytes):
            return c
        c = c.next_paused
    return NULL


cdef void _resume_paused(NetThread* t) noexcept nogil:
    """Makes paused connections read again while memory is free, the longest waiting first."""
    cdef Connection* c = _next_with_room(t, t.paused)
    cdef Connection* following
    cdef int turn = 0
    while c != NULL and turn < PAUSED_TURN:
        following = c.next_paused
        if budget_reserve(t.network, c, c.input_capacity + c.wanted_bytes):
            conn_unpause(t, c)
        turn += 1
        c = _next_with_room(t, following)


cdef bint _room_is_there(NetThread* t) noexcept nogil:
    """Announces, before the thread sleeps, that it waits for memory, and then checks once more: see
    room_came_free. Returns whether memory is free."""
    if atomic_cas_i64(&t.waits_for_room, 0, 1):
        atomic_add_i64(&t.network.room_waiters, 1)
    atomic_fence()
    return _next_with_room(t, t.paused) != NULL


cdef void _close_both(int* one, int* other) noexcept nogil:
    if one[0] >= 0:
        close(one[0])
    if other[0] >= 0:
        close(other[0])
    one[0] = other[0] = -1


# ------------------------------------------------------------------ Python's handle

cdef int64_t _idle_ns(Network* n):
    """Returns the time that takers of the queue have waited, including those that still wait."""
    cdef int64_t idle_ns
    with nogil:
        pthread_mutex_lock(&n.queue.lock)
        idle_ns = n.queue.waited_ns + n.queue.waiting * net_clock_ns() - n.queue.waiting_since_ns
        pthread_mutex_unlock(&n.queue.lock)
    return idle_ns


cdef int64_t _inboxes(Network* n):
    """Returns the number of mails that wait for the network threads, mostly answers of Python."""
    cdef int64_t mails = 0
    cdef int i
    with nogil:
        for i in range(n.thread_count):
            pthread_mutex_lock(&n.threads[i].inbox.lock)
            mails += n.threads[i].inbox.count
            pthread_mutex_unlock(&n.threads[i].inbox.lock)
    return mails


cdef int _spares(Network* n):
    cdef int count
    with nogil:
        pthread_mutex_lock(&n.accept_lock)
        count = n.spare_count
        pthread_mutex_unlock(&n.accept_lock)
    return count


cdef _add_pair(dict into, name, int64_t* count, int64_t* ns):
    before = into[name]
    into[name] = before[0] + atomic_load_i64(count), before[1] + atomic_load_i64(ns)


@cython.no_gc_clear         # __dealloc__ needs what it refers to
cdef class Reactor:
    """Listeners, network threads and the queue to Python of one broker."""
    cdef Network* _network
    cdef object _system
    cdef tuple _handlers
    cdef list _names
    cdef object _permissions
    cdef dict _transports               # by place: network threads use them
    cdef list _threads                  # those that take connections, by their number
    cdef object _acceptor
    cdef object _lock
    cdef int64_t _stop_grace_ms

    def __cinit__(self, SystemCalls system not None, handlers, *, int network_threads,
                  flexible_from, limits=None, served=None):
        cdef int i
        cdef NativeHandler handler
        if not 1 <= network_threads <= THREADS_MAX:
            raise ValueError(f"network_threads is {network_threads}, not within 1-{THREADS_MAX}")
        self._system = system
        self._handlers = tuple(handlers)
        self._names = []
        self._transports = {}
        self._threads = []
        self._lock = threading.Lock()
        self._network = network_new(&system.table)
        if self._network == NULL:
            raise MemoryError("no memory or descriptors for the network")
        for i in range(network_threads):
            if network_add_taker(self._network) == NULL:
                raise MemoryError("no memory or descriptors for a network thread")
        self._network.thread_count = network_threads
        self._network.loop = _network_loop
        for _name, (place, value) in LIMITS.items():
            self._network.limits[<int>place] = value
        for name, value in (limits or {}).items():
            self._set(name, value)
        self._take_versions(list(flexible_from))
        for handler in self._handlers:
            self._route(handler, served)
            handler.bind(&self._network.waker)

    cdef int _route(self, NativeHandler handler, served) except -1:
        """Adds a handler to the table in which requests find it, with the versions in `served`."""
        cdef Route* route
        if handler.handler.context == NULL:
            raise ValueError(f"{handler!r} has no handler in it")
        for key, first, last in handler.apis:
            if not 0 <= key < API_KEYS_MAX:
                raise ValueError(f"API key {key} is not within 0-{API_KEYS_MAX - 1}")
            route = &self._network.routes[<int>key]
            if route.handler != NULL:
                raise ValueError(f"two native handlers answer API key {key}")
            if served is not None:
                lowest, highest = served.get(key, (0, -1))
                first, last = max(first, lowest), min(last, highest)
            route.handler, route.version_min, route.version_max = &handler.handler, first, last
        return 0

    cdef int _take_versions(self, list flexible_from) except -1:
        cdef int i
        self._network.flexible_from = <int16_t*>calloc(len(flexible_from) + 1, sizeof(int16_t))
        if self._network.flexible_from == NULL:
            raise MemoryError("no memory for the table of versions")
        for i in range(<int>len(flexible_from)):
            self._network.flexible_from[i] = flexible_from[i]
        self._network.key_count = <int32_t>len(flexible_from)
        for i in range(self._network.made_count):
            if not metrics_init(&self._network.threads[i].metrics, self._network.key_count):
                raise MemoryError("no memory for the metrics of requests")
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
        """Sets a limit. It takes effect at once; buffer sizes apply to new connections and
        listeners."""
        self._set(name, value)
        self.look_at_timers()

    def set_gate(self, keys) -> None:
        """Sets the API keys whose requests come to next_request() before a native handler sees
        them, with `gated` set; PendingRequest.proceed() passes them on to it."""
        cdef int64_t gate[2]
        gate[0] = gate[1] = 0
        for key in keys:
            if not 0 <= key < API_KEYS_MAX:
                raise ValueError(f"API key {key} is not within 0-{API_KEYS_MAX - 1}")
            gate[<int>key >> 6] |= <int64_t>1 << (<int>key & 63)
        atomic_store_i64(&self._network.gate[0], gate[0])
        atomic_store_i64(&self._network.gate[1], gate[1])

    def set_quotas(self, int64_t generation, throttle_from) -> None:
        """Sets the generation of the quotas. While the quotas of a request's client are of another
        generation, its requests come to next_request() with `unmetered` set. 0: there are no
        quotas. `throttle_from`: for each API key, the first version whose answer has a throttle
        time."""
        cdef int i
        for i in range(API_KEYS_MAX):
            self._network.throttle_from[i] = throttle_from.get(i, -1)
        atomic_store_i64(&self._network.quota_generation, generation)

    def set_permissions(self, PermissionTable permissions not None) -> None:
        """Makes native handlers check the rights of all connections that open from now on. Raises
        RuntimeError when permissions are set already, because connections refer to them."""
        with self._lock:
            if self._permissions is not None:
                raise RuntimeError("the reactor has permissions already")
            self._permissions = permissions
            atomic_store_pointer(&self._network.permissions, permissions.permissions)

    def look_at_timers(self) -> None:
        """Makes every thread check its timers now, after a limit or the clock has changed."""
        cdef Mail mail
        cdef int i
        memset(&mail, 0, sizeof(Mail))
        mail.kind = MAIL_LIMITS
        for i in range(self._network.made_count):
            if atomic_load_i64(&self._network.threads[i].state) != THREAD_ENDED:
                inbox_post(self._network.threads[i], &mail)
        net_ring(self._network.acceptor_event_fd)

    def set_listener_limit(self, str listener not None, str name not None, int64_t value) -> None:
        """Sets a listener's own max.connections or max.connection.creation.rate, beside the
        broker's."""
        cdef int index = self._place_of(listener)
        if index < 0:
            raise ValueError(f"there is no listener {listener!r}")
        if name == "max.connections":
            atomic_store_i64(&self._network.listeners[index].connections_max, value)
        elif name == "max.connection.creation.rate":
            atomic_store_i64(&self._network.listeners[index].connection_rate, value)
        else:
            raise KeyError(f"a listener has no limit {name!r} of its own")
        self.look_at_timers()

    def set_address_limits(self, limits not None) -> None:
        """Sets max.connections.per.ip.overrides: 16 bytes of an address -> its limit of
        connections."""
        cdef AddressLimit* made = _address_limits(limits)
        cdef AddressLimit* old
        pthread_mutex_lock(&self._network.addresses_lock)
        old = self._network.address_limits
        self._network.address_limits = made
        self._network.address_limit_count = len(limits)
        pthread_mutex_unlock(&self._network.addresses_lock)
        free(old)

    def set_address_rates(self, rates not None, int64_t default=LISTENER_LIMIT_NONE) -> None:
        """Sets how many new connections a second an address may open: 16 bytes of an address -> its
        rate; `default` of the others. Without a rate an address has no limit."""
        cdef AddressLimit* made = _address_limits(rates)
        cdef AddressLimit* old
        pthread_mutex_lock(&self._network.addresses_lock)
        old = self._network.address_rates
        self._network.address_rates = made
        self._network.address_rate_count = len(rates)
        self._network.address_rate_default = default
        pthread_mutex_unlock(&self._network.addresses_lock)
        free(old)
        atomic_store_i64(
            &self._network.has_address_rates, len(rates) > 0 or default < LISTENER_LIMIT_NONE)

    def resize(self, int network_threads) -> None:
        """Changes the number of network threads. New threads begin at once. A thread that is no
        longer needed takes no new connections, answers its requests for at most 5 s, closes its
        connections and ends; their clients connect again. Raises ValueError for another number,
        RuntimeError when the reactor is not running, and MemoryError."""
        cdef Network* n = self._network
        cdef NetThread* t
        cdef int i
        if not 1 <= network_threads <= THREADS_MAX:
            raise ValueError(f"network_threads is {network_threads}, not within 1-{THREADS_MAX}")
        with self._lock:
            if not self._threads or atomic_load_i64(&n.state) != STATE_RUNNING:
                raise RuntimeError("the reactor is not running")
            for i in range(n.thread_count, network_threads):
                self._start_thread(i)
            pthread_mutex_lock(&n.accept_lock)
            was = n.thread_count
            n.thread_count = network_threads
            pthread_mutex_unlock(&n.accept_lock)
            for i in range(network_threads, was):
                t = n.takers[i]
                atomic_store_i64(&t.state, THREAD_RETIRING)
                net_ring(t.event_fd)

    cdef int _start_thread(self, int index) except -1:
        """Ensures that the thread of that index runs: makes it, starts it again, or keeps it."""
        cdef Network* n = self._network
        cdef NetThread* t
        if index == n.taker_count and network_add_taker(n) == NULL:
            raise MemoryError("no memory or descriptors for a network thread")
        t = n.takers[index]
        if atomic_cas_i64(&t.state, THREAD_RETIRING, THREAD_RUNNING):
            net_ring(t.event_fd)
            return 0
        if index < len(self._threads):
            self._threads.pop(index).join()     # it has ended
        t.draining = False
        atomic_store_i64(&t.state, THREAD_RUNNING)
        self._threads.insert(index, start_thread(self._run, f"network-{index}", (index,)))
        return 0

    def listen(self, str name not None, str host not None, int port, int backlog=50,
               bint login=False, *, int64_t login_bytes_max=LOGIN_BYTES_MAX,
               Transport transport=None, bint legacy07=False) -> int:
        """Opens a listener and returns its port (for port 0, the port that the system chose).
        `login`: its connections have to log in before other requests are answered, with frames of
        at most `login_bytes_max` bytes. `transport`: None: the connections use no TLS. `legacy07`: its
        requests are those of Kafka 0.7 (PendingRequest.login is LEGACY07), without logins and TLS.

        Raises OSError with its errno if the port is in use or the host does not have the address,
        ValueError for a name that exists or too many listeners, RuntimeError after stop().
        """
        cdef Network* n = self._network
        cdef int index
        with self._lock:
            index = self._free_place()
            if index == LISTENERS_MAX:
                raise ValueError(f"{LISTENERS_MAX} listeners at most")
            if self._place_of(name) >= 0:
                raise ValueError(f"there is a listener {name!r} already")
            if atomic_load_i64(&n.state) != STATE_RUNNING:
                raise RuntimeError("the reactor has stopped")
            made = _listening_socket(host, port, backlog, n.limits[LIMIT_RECEIVE_BUFFER_BYTES])
            bound = made.getsockname()[1]
            n.listeners[index].fd = made.detach()
            n.listeners[index].connections_max = LISTENER_LIMIT_NONE
            n.listeners[index].connection_rate = LISTENER_LIMIT_NONE
            n.listeners[index].login = LOGIN_NEEDED if login else LOGIN_OPEN
            n.listeners[index].login_bytes_max = login_bytes_max
            if legacy07:
                n.listeners[index].login = LOGIN_LEGACY07
                n.listeners[index].login_bytes_max = INT32_MAX      # socket.request.max.bytes decides
            self._transports[index] = transport
            n.listeners[index].transport = NULL if transport is None else transport.calls
            n.listeners[index].transport_context = NULL if transport is None else transport.context
            if index == n.listener_count:
                self._names.append(name)
                atomic_store_i64(&n.listener_count, index + 1)
            else:
                self._names[index] = name
                atomic_store_i64(&n.listeners[index].removed, LISTENER_OPEN)
            net_epoll(n.acceptor_epoll_fd, EPOLL_CTL_ADD, n.listeners[index].fd, EPOLLIN,
                      &n.listeners[index])
        return bound

    @property
    def listener_names(self):
        """The names of the listeners by their index, removed ones too."""
        return list(self._names)

    def unlisten(self, str name not None) -> None:
        """Closes a listener; its connections close after the answers to requests in progress."""
        with self._lock:
            index = self._place_of(name)
            if index < 0:
                raise ValueError(f"there is no listener {name!r}")
            atomic_store_i64(&self._network.listeners[index].removed, LISTENER_REMOVED)
            net_ring(self._network.acceptor_event_fd)

    cdef int _place_of(self, str name):
        """Returns the index of an open listener; -1 when no open listener has the name."""
        cdef int i
        for i in range(<int>self._network.listener_count):
            if self._names[i] == name and not atomic_load_i64(&self._network.listeners[i].removed):
                return i
        return -1

    cdef int _free_place(self):
        """Returns the index of a closed listener without connections, or the next index."""
        cdef Listener* listener
        cdef int i
        for i in range(<int>self._network.listener_count):
            listener = &self._network.listeners[i]
            if atomic_load_i64(&listener.removed) == LISTENER_CLOSED \
                    and atomic_load_i64(&listener.connection_count) == 0:
                return i
        return <int>self._network.listener_count

    def start(self) -> None:
        """Starts the threads, which also serve the connections in the listeners' backlogs."""
        cdef int i
        with self._lock:
            if self._threads or atomic_load_i64(&self._network.state) != STATE_RUNNING:
                raise RuntimeError("a reactor starts once")
            for i in range(self._network.thread_count):
                self._start_thread(i)
            self._acceptor = start_thread(self._accept, "acceptor")

    def _run(self, int index) -> None:
        cdef bytes name = f"network-{index}".encode()
        cdef char* c_name = name
        with nogil:
            net_own_thread(c_name)
            _network_loop(self._network.takers[index])

    def _accept(self) -> None:
        with nogil:
            net_own_thread("acceptor")
            accept_loop(self._network)

    def stop(self, int64_t timeout_ms=5000) -> None:
        """Stops accepting and reading, waits for the answers in progress, then closes everything.

        After timeout_ms it closes connections without an answer. A second call does nothing.
        """
        cdef Network* n = self._network
        cdef int i
        with self._lock:
            if atomic_load_i64(&n.state) == STATE_RUNNING:
                n.stop_deadline_ns = n.system.monotonic_ns(n.system) + timeout_ms * 1000000
                # No thread ends before it has read the mail of each connection that was accepted.
                pthread_mutex_lock(&n.accept_lock)
                atomic_store_i64(&n.state, STATE_DRAINING)
                pthread_mutex_unlock(&n.accept_lock)
                closed_end(&n.closed_connections)
            net_ring(n.acceptor_event_fd)
            for i in range(n.made_count):
                net_ring(n.threads[i].event_fd)
            for thread in self._threads:
                thread.join()
            with nogil:
                spare_threads_join(n)
            if self._acceptor is not None:
                self._acceptor.join()
            self._threads = []
            atomic_store_i64(&n.state, STATE_STOPPED)
            queue_close(n)

    def close(self) -> None:
        """Closes the descriptors after stop(), even if other objects still refer to the reactor.
        Later wakes and answers have no effect."""
        cdef Network* n = self._network
        cdef NetThread* t
        cdef int i
        with self._lock:
            if atomic_load_i64(&n.state) != STATE_STOPPED:
                raise RuntimeError("the reactor has not stopped")
            for i in range(n.made_count):
                t = n.threads[i]
                pthread_mutex_lock(&t.inbox.lock)
                t.inbox.wake_all = True     # as after a wake, so that no thread wakes it again
                pthread_mutex_unlock(&t.inbox.lock)
                _close_both(&t.epoll_fd, &t.event_fd)
            _close_both(&n.acceptor_epoll_fd, &n.acceptor_event_fd)
            for i in range(<int>n.listener_count):  # of a reactor that was never started
                if n.listeners[i].fd >= 0:
                    close(n.listeners[i].fd)
                    n.listeners[i].fd = -1

    def next_request(self, int64_t timeout_ms=-1):
        """Waits for the next request for Python and returns it; None after timeout_ms (-1: no
        timeout), after let_go(), or when the reactor has stopped."""
        cdef PyRequest* request = queue_pop_now(self._network)
        if request == NULL:
            with nogil:
                request = queue_pop(self._network, timeout_ms)
        if request == NULL:
            return None
        return pending_request(self, self._network, self._names, request)

    def next_closed(self, int64_t timeout_ms=-1):
        """Waits for a closed connection that report_close() has marked and returns its id; None
        after timeout_ms (-1: no timeout), or when the reactor stops."""
        cdef uint64_t connection_id
        with nogil:
            connection_id = closed_take(&self._network.closed_connections, timeout_ms)
        return connection_id or None

    def let_go(self, int64_t takers) -> None:
        """Makes next_request() return None to `takers` present or later callers."""
        queue_let_go(self._network, takers)

    @property
    def stopped(self) -> bool:
        return atomic_load_i64(&self._network.state) == STATE_STOPPED

    def events(self) -> list:
        """Returns the errors of peers since the last call; one for each peer and second."""
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
        """Returns counts since the start and the present state. See reactor.pyi."""
        cdef Network* n = self._network
        cdef ThreadCounters* c
        cdef int i
        cdef int why
        cdef int listener
        total = dict.fromkeys(("requests", "python_requests", "parked", "bytes_in", "bytes_out"), 0)
        closed = {reason: 0 for reason in REASONS}
        connections = {name: 0 for name in self._names}
        threads = []
        for i in range(n.made_count):
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
        for i in range(n.thread_count):
            threads.append(self._thread_times(n.takers[i]))
        for why in range(WHY_COUNT):
            closed[REASONS[why]] += atomic_load_i64(&n.refused[why])
        total["closed"] = closed
        total["connections"] = connections
        total["connections_total"] = dict.fromkeys(self._names, 0)
        for i, name in enumerate(self._names):      # a name may have had several places
            total["connections_total"][name] += n.listeners[i].connections_total
        total["accept_blocked_ns"] = {
            name: self._blocked_ns(&n.listeners[i]) for i, name in enumerate(self._names)
        }
        for name in ("accept_throttles", "address_throttles"):
            total[name] = dict.fromkeys(self._names, (0, 0))
        for i, name in enumerate(self._names):
            _add_pair(total["accept_throttles"], name, &n.listeners[i].throttle_count,
                      &n.listeners[i].throttle_ns)
            _add_pair(total["address_throttles"], name, &n.listeners[i].address_throttle_count,
                      &n.listeners[i].address_throttle_ns)
        total["threads"] = threads
        total["spare_threads"] = [self._thread_times(n.spares[i]) for i in range(_spares(n))]
        total["connection_count"] = atomic_load_i64(&n.connection_count)
        total["held_bytes"] = atomic_load_i64(&n.held_bytes)
        total["python_queue"] = n.queue.count
        total["python_waiting"] = n.queue.waiting
        total["python_idle_ns"] = _idle_ns(n)
        total["answer_queue"] = _inboxes(n)
        total["events_lost"] = n.ring.lost
        return total

    def request_metrics(self) -> dict:
        """Returns the metrics of each API key since the start. See reactor.pyi."""
        cdef RequestMetricsTable* tables[THREADS_MAX + SPARE_THREADS_MAX]
        cdef int i
        for i in range(self._network.made_count):
            tables[i] = &self._network.threads[i].metrics
        return metrics_dict(tables, self._network.made_count)

    cdef int64_t _blocked_ns(self, Listener* listener):
        cdef int64_t since_ns = atomic_load_i64(&listener.closed_since_ns)
        cdef int64_t now_ns = self._network.system.monotonic_ns(self._network.system)
        return atomic_load_i64(&listener.blocked_ns) + (now_ns - since_ns if since_ns else 0)

    cdef dict _thread_times(self, NetThread* t):
        cdef int64_t now_ns = self._network.system.monotonic_ns(self._network.system)
        cdef int64_t since_ns = atomic_load_i64(&t.counters.sleeping_since_ns)
        cdef int64_t idle_ns = t.counters.idle_ns + (now_ns - since_ns if since_ns else 0)
        cdef int64_t run_ns = now_ns - t.counters.started_ns if t.counters.started_ns else 0
        return {
            "wakeups": t.counters.wakeups,
            "connections": atomic_load_i64(&t.connection_count),
            "by_listener": {
                name: t.counters.connections[k] for k, name in enumerate(self._names)
            },
            "bytes_in": t.counters.bytes_in,
            "bytes_out": t.counters.bytes_out,
            "idle_ns": idle_ns,
            "run_ns": run_ns,
            "idle_ratio": min(1.0, idle_ns / run_ns) if run_ns > 0 else 1.0,
        }


cdef AddressLimit* _address_limits(limits) except NULL:
    """Returns the limits by address as an array, which the caller frees."""
    cdef AddressLimit* made = <AddressLimit*>calloc(len(limits) + 1, sizeof(AddressLimit))
    cdef int64_t i = 0
    cdef bytes raw
    if made == NULL:
        raise MemoryError("no memory for the limits of addresses")
    for address, most in limits.items():
        raw = bytes(address)
        if len(raw) != 16:
            free(made)
            raise ValueError(f"an address has 16 bytes, not {len(raw)}")
        memcpy(made[i].address, <const char*>raw, 16)
        made[i].most = most
        i += 1
    return made


def _listening_socket(host: str, port: int, backlog: int, receive_buffer_bytes: int):
    """Returns a socket that listens and does not block. The wildcard of IPv6 accepts IPv4 too, as
    in Kafka."""
    # As bytes, because text needs the codec `idna`, whose import adds 2 ms to a start.
    name = host.encode() if host.isascii() else host
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
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
