"""Shared state of the network threads: inboxes, the queue to Python, the byte budget, the events.

All of it is C memory, guarded by mutexes or atomics; no thread holds a lock during a call that can
wait. Next on the data path: cext/network/connection.pyx.
"""
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from barnabas.cext.codec.buffer cimport Buffer, buffer_free
from barnabas.cext.memory.array cimport array_room
from barnabas.cext.memory.atomics cimport (
    atomic_add_i64, atomic_cas_i64, atomic_fence, atomic_load_i32, atomic_load_i64,
    atomic_store_i32, atomic_store_i64,
)
from barnabas.cext.memory.mutex cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)
from barnabas.cext.network.closed_connections cimport closed_free, closed_init
from barnabas.cext.network.handler cimport response_free
from barnabas.cext.network.request_metrics cimport metrics_free, metrics_init
from barnabas.cext.network.sockets cimport (
    EPOLL_CTL_ADD, EPOLLIN, close, net_address, net_clock_ns, net_cond_init, net_cond_wait,
    net_epoll, net_epoll_new, net_eventfd, net_ring, pthread_cond_broadcast, pthread_cond_destroy,
    pthread_cond_signal,
)

cdef enum:
    EVENT_QUIET_NS = 1000000000     # one log line for each peer and second
    WATCH_NS = 1000000              # a handler without progress in this time is assumed to wait


# ------------------------------------------------------------------ making and freeing

cdef Network* network_new(System* system) noexcept nogil:
    cdef Network* n = <Network*>calloc(1, sizeof(Network))
    if n == NULL:
        return NULL
    n.system = system
    n.acceptor_epoll_fd = net_epoll_new()
    n.acceptor_event_fd = net_eventfd()
    n.ring.events = <NetEvent*>calloc(EVENTS_MAX, sizeof(NetEvent))
    n.ring.peers = <EventPeer*>calloc(EVENT_PEERS_MAX, sizeof(EventPeer))
    pthread_mutex_init(&n.queue.lock, NULL)
    net_cond_init(&n.queue.ready)
    closed_init(&n.closed_connections)
    pthread_mutex_init(&n.ring.lock, NULL)
    pthread_mutex_init(&n.addresses_lock, NULL)
    pthread_mutex_init(&n.accept_lock, NULL)
    pthread_mutex_init(&n.budget_lock, NULL)
    n.waker.context = n
    n.waker.wake = network_wake
    if n.acceptor_epoll_fd < 0 or n.acceptor_event_fd < 0 or n.ring.events == NULL \
            or n.ring.peers == NULL:
        network_free(n)
        return NULL
    net_epoll(n.acceptor_epoll_fd, EPOLL_CTL_ADD, n.acceptor_event_fd, EPOLLIN, NULL)
    return n


cdef void network_free(Network* n) noexcept nogil:
    cdef AddressPace* pace
    """The caller ensures that no thread runs any more, and that no native handler wakes one."""
    cdef int i
    cdef AddressCount* a
    cdef PyRequest* r
    for i in range(n.made_count):
        _thread_free(n.threads[i])
    for i in range(<int>n.listener_count):
        if n.listeners[i].fd >= 0:
            close(n.listeners[i].fd)
    while n.queue.first != NULL:
        r = n.queue.first
        n.queue.first = r.next
        free(r)
    for i in range(ADDRESS_BUCKETS):
        while n.addresses[i] != NULL:
            a = n.addresses[i]
            n.addresses[i] = a.next
            free(a)
        while n.paces[i] != NULL:
            pace = n.paces[i]
            n.paces[i] = pace.next
            free(pace)
    if n.acceptor_epoll_fd >= 0:
        close(n.acceptor_epoll_fd)
    if n.acceptor_event_fd >= 0:
        close(n.acceptor_event_fd)
    pthread_mutex_destroy(&n.queue.lock)
    pthread_cond_destroy(&n.queue.ready)
    closed_free(&n.closed_connections)
    pthread_mutex_destroy(&n.ring.lock)
    pthread_mutex_destroy(&n.addresses_lock)
    pthread_mutex_destroy(&n.accept_lock)
    pthread_mutex_destroy(&n.budget_lock)
    free(n.address_limits)
    free(n.address_rates)
    free(n.ring.events)
    free(n.ring.peers)
    free(n.flexible_from)
    free(n)


cdef NetThread* network_add_taker(Network* n) noexcept nogil:
    cdef NetThread* t = NULL
    pthread_mutex_lock(&n.accept_lock)
    if n.taker_count < THREADS_MAX:
        t = _thread_new(n)
    if t != NULL:
        n.takers[n.taker_count] = t
        n.taker_count += 1
    pthread_mutex_unlock(&n.accept_lock)
    return t


cdef NetThread* network_add_spare(Network* n) noexcept nogil:
    cdef NetThread* t = _thread_new(n)
    if t != NULL:
        t.is_spare = True
    return t


cdef NetThread* network_fewest(NetThread** threads, int32_t count) noexcept nogil:
    cdef NetThread* fewest = threads[0]
    cdef int32_t i
    for i in range(1, count):
        if atomic_load_i64(&threads[i].connection_count) < atomic_load_i64(&fewest.connection_count):
            fewest = threads[i]
    return fewest


cdef NetThread* _thread_new(Network* n) noexcept nogil:
    """The caller holds accept_lock."""
    cdef NetThread* t = <NetThread*>calloc(1, sizeof(NetThread))
    if t == NULL:
        return NULL
    t.network = n
    t.index = n.made_count
    t.epoll_fd = net_epoll_new()
    t.event_fd = net_eventfd()
    t.scratch = <uint8_t*>malloc(SCRATCH_BYTES)
    t.stage = <uint8_t*>malloc(STAGE_BYTES)
    pthread_mutex_init(&t.inbox.lock, NULL)
    if t.epoll_fd < 0 or t.event_fd < 0 or t.scratch == NULL or t.stage == NULL or \
            net_epoll(t.epoll_fd, EPOLL_CTL_ADD, t.event_fd, EPOLLIN, NULL) < 0 or \
            n.key_count and not metrics_init(&t.metrics, n.key_count):
        _thread_free(t)
        return NULL
    n.threads[t.index] = t
    atomic_store_i32(&n.made_count, t.index + 1)
    return t


cdef void _thread_free(NetThread* t) noexcept nogil:
    cdef int64_t i
    for i in range(t.inbox.count):
        if t.inbox.mails[i].kind == MAIL_CONNECTION:
            close(t.inbox.mails[i].fd)
        buffer_free(&t.inbox.mails[i].bytes)
    metrics_free(&t.metrics)
    if t.epoll_fd >= 0:
        close(t.epoll_fd)
    if t.event_fd >= 0:
        close(t.event_fd)
    for i in range(t.spare_scratch_count):
        free(t.spare_scratch[i])
    pthread_mutex_destroy(&t.inbox.lock)
    response_free(&t.response)
    response_free(&t.gathered)
    buffer_free(&t.questions)
    free(t.inbox.mails)
    free(t.taken)
    free(t.by_id)
    free(t.heap)
    free(t.scratch)
    free(t.stage)
    free(t)


# ------------------------------------------------------------------ inboxes

cdef bint inbox_post(NetThread* t, Mail* mail) noexcept nogil:
    cdef Inbox* box = &t.inbox
    cdef bint was_empty
    cdef bint posted = True
    pthread_mutex_lock(&box.lock)
    was_empty = box.count == 0 and not box.wake_all
    if mail.kind == MAIL_WAKE and box.count and box.mails[box.count - 1].kind == MAIL_WAKE \
            and box.mails[box.count - 1].connection_id == mail.connection_id:
        pthread_mutex_unlock(&box.lock)
        return True
    if array_room(&box.mails, &box.capacity, box.count + 1, sizeof(Mail)):
        box.mails[box.count] = mail[0]
        box.count += 1
    elif mail.kind == MAIL_WAKE:
        box.wake_all = True
    else:
        posted = False
    pthread_mutex_unlock(&box.lock)
    if not posted:
        buffer_free(&mail.bytes)
    elif was_empty:
        net_ring(t.event_fd)
    return posted


cdef int64_t inbox_take(NetThread* t, bint* wake_all) noexcept nogil:
    """Swaps the inbox with t.taken. Returns the number of mails in t.taken."""
    cdef Inbox* box = &t.inbox
    cdef Mail* mails
    cdef int64_t count
    cdef int64_t capacity
    pthread_mutex_lock(&box.lock)
    mails = box.mails
    capacity = box.capacity
    count = box.count
    wake_all[0] = box.wake_all
    box.mails = t.taken
    box.capacity = t.taken_capacity
    box.count = 0
    box.wake_all = False
    pthread_mutex_unlock(&box.lock)
    t.taken = mails
    t.taken_capacity = capacity
    return count


cdef void network_wake(void* network, int32_t thread_index, uint64_t connection_id) noexcept nogil:
    cdef Network* n = <Network*>network
    cdef Mail mail
    if thread_index < 0 or thread_index >= atomic_load_i32(&n.made_count):
        return
    memset(&mail, 0, sizeof(Mail))
    mail.kind = MAIL_WAKE
    mail.connection_id = connection_id
    inbox_post(n.threads[thread_index], &mail)


# ------------------------------------------------------------------ the queue to Python

cdef bint queue_push(Network* n, const Connection* c) noexcept nogil:
    """Copies the frame and counts it against the budget. Returns False if memory ran out."""
    cdef const Request* request = &c.request
    cdef const Buffer* questions = request.questions
    cdef int64_t held_bytes = (
        request.size_bytes + c.principal.size + c.session.size + questions.size)
    cdef PyRequest* r = <PyRequest*>malloc(sizeof(PyRequest) + held_bytes)
    cdef uint8_t* data
    cdef bint wake
    if r == NULL:
        return False
    data = <uint8_t*>(r + 1)
    memcpy(data, request.data, request.size_bytes)
    r.next = NULL
    r.request = request[0]
    r.request.data = data
    r.request.peer = NULL
    r.request.principal = NULL
    r.request.quota = NULL
    r.request.permissions = NULL
    r.request.questions = NULL
    if request.client_id != NULL:
        r.request.client_id = data + (request.client_id - request.data)
    r.peer = c.peer
    r.login = c.login
    r.principal_bytes = c.principal.size
    r.session_bytes = c.session.size
    r.questions_bytes = questions.size
    r.held_bytes = held_bytes
    data += request.size_bytes
    if c.principal.size:
        memcpy(data, c.principal.data, c.principal.size)
    if c.session.size:
        memcpy(data + c.principal.size, c.session.data, c.session.size)
    if questions.size:
        memcpy(data + c.principal.size + c.session.size, questions.data, questions.size)
    budget_force(n, held_bytes)
    pthread_mutex_lock(&n.queue.lock)
    if n.queue.closed:
        pthread_mutex_unlock(&n.queue.lock)
        budget_give(n, held_bytes)
        free(r)
        return False
    if n.queue.last != NULL:
        n.queue.last.next = r
    else:
        n.queue.first = r
    n.queue.last = r
    atomic_add_i64(&n.queue.count, 1)
    wake = n.queue.waiting > 0 and not (n.queue.watched and atomic_load_i64(&n.queue.running) > 0)
    pthread_mutex_unlock(&n.queue.lock)
    if wake:
        pthread_cond_signal(&n.queue.ready)
    return True


cdef PyRequest* queue_pop(Network* n, int64_t timeout_ms) noexcept nogil:
    """Waits for a request, which the caller frees. Returns NULL at the timeout, after queue_let_go,
    or when the queue is closed and empty.

    Python runs one thread at a time, and switches between threads are expensive: with eight threads
    an OffsetCommit cost 150 us of CPU, with one 93. Therefore a thread that comes while another one
    handles a request does not take the next request, and only watches: if no thread has taken a
    request within WATCH_NS, the other thread waits for something or is slow, and the watcher takes
    a request too. While the queue is not empty, one thread watches, unless all threads handle
    requests.
    """
    cdef int64_t until_ns = net_clock_ns() + timeout_ms * 1000000 if timeout_ms >= 0 else -1
    cdef PyRequest* r
    cdef int64_t since_ns
    cdef int64_t look_ns, taken = -1
    cdef bint late, watches
    pthread_mutex_lock(&n.queue.lock)
    while not n.queue.closed and n.queue.let_go == 0:
        watches = n.queue.first != NULL
        if watches and (atomic_load_i64(&n.queue.running) <= 0 or n.queue.taken == taken):
            break
        watches = watches and not n.queue.watched
        since_ns = net_clock_ns()
        look_ns = until_ns
        taken = -1
        if watches:
            taken = n.queue.taken
            n.queue.watched = True
            if until_ns < 0 or until_ns > since_ns + WATCH_NS:
                look_ns = since_ns + WATCH_NS
        n.queue.waiting += 1
        n.queue.waiting_since_ns += since_ns
        late = net_cond_wait(&n.queue.ready, &n.queue.lock, look_ns) != 0
        if watches:
            n.queue.watched = False
            if not late:
                taken = -1          # woken before WATCH_NS were over
            late = look_ns == until_ns and late
        n.queue.waiting -= 1
        n.queue.waiting_since_ns -= since_ns
        n.queue.waited_ns += net_clock_ns() - since_ns
        if late:
            break
    r = _take_first(n)
    if r == NULL and n.queue.let_go > 0:
        n.queue.let_go -= 1
    pthread_mutex_unlock(&n.queue.lock)
    if r != NULL and not queue_is_full(n):
        room_came_free(n)
    return r


cdef PyRequest* queue_pop_now(Network* n) noexcept nogil:
    """Returns a request without a wait if no other thread handles one; otherwise NULL. It is short,
    so the caller keeps the GIL: a thread that releases the GIL here passes it to a thread without
    work, and then has to wait for it."""
    cdef PyRequest* r = NULL
    if atomic_load_i64(&n.queue.count) == 0:
        return NULL
    pthread_mutex_lock(&n.queue.lock)
    if not n.queue.closed and n.queue.let_go == 0 and atomic_load_i64(&n.queue.running) <= 0:
        r = _take_first(n)
    pthread_mutex_unlock(&n.queue.lock)
    if r != NULL and not queue_is_full(n):
        room_came_free(n)
    return r


cdef PyRequest* _take_first(Network* n) noexcept nogil:
    """The caller holds the lock. Returns NULL if there is none."""
    cdef PyRequest* r = n.queue.first
    if r == NULL:
        return NULL
    n.queue.first = r.next
    if r.next == NULL:
        n.queue.last = NULL
    atomic_add_i64(&n.queue.count, -1)
    atomic_add_i64(&n.queue.running, 1)
    n.queue.taken += 1
    if n.queue.first != NULL and n.queue.waiting > 0 and not n.queue.watched:
        pthread_cond_signal(&n.queue.ready)
    return r


cdef bint queue_is_full(Network* n) noexcept nogil:
    """Returns whether connections must not be read. Requests that were read before still enter the
    queue, one for each connection."""
    return atomic_load_i64(&n.queue.count) >= atomic_load_i64(&n.limits[LIMIT_QUEUED_REQUESTS])


cdef void queue_let_go(Network* n, int64_t count) noexcept nogil:
    pthread_mutex_lock(&n.queue.lock)
    n.queue.let_go += count
    pthread_cond_broadcast(&n.queue.ready)
    pthread_mutex_unlock(&n.queue.lock)


cdef void queue_close(Network* n) noexcept nogil:
    """Closes the queue and drops the waiting requests, whose connections have closed."""
    cdef PyRequest* r
    pthread_mutex_lock(&n.queue.lock)
    n.queue.closed = True
    while n.queue.first != NULL:
        r = n.queue.first
        n.queue.first = r.next
        atomic_add_i64(&n.queue.count, -1)
        budget_give(n, r.held_bytes)
        free(r)
    n.queue.last = NULL
    pthread_cond_broadcast(&n.queue.ready)
    pthread_mutex_unlock(&n.queue.lock)


# ------------------------------------------------------------------ the budget of request bytes

# Let Q be queued.max.request.bytes. A buffer of more than LARGE_BUFFER_BYTES is large. Large
# buffers may grow while no more than 3/4 Q is in use, and those of one address while they use no
# more than Q/4. Small buffers get memory while less than Q is in use, or while all small ones use
# less than Q/4, so that large requests never stop them. Of this reserve one address leaves a part
# to the others: its small buffers may grow while they use no more than Q/8, and its connections
# begin to read while they use no more than 3/16 Q. A request may be larger than its share.
# Therefore one connection of each address may exceed the share, and one of all connections may
# exceed the budget (the overdrafts); otherwise connections with half a request each could wait for
# each other for ever.

cdef inline bint _fits(Network* n, Connection* c, int64_t capacity) noexcept nogil:
    cdef int64_t limit = atomic_load_i64(&n.limits[LIMIT_QUEUED_BYTES])
    cdef int64_t held = atomic_load_i64(&n.held_bytes) + capacity - c.input_capacity
    if capacity > LARGE_BUFFER_BYTES:
        return held <= limit - (limit >> 2)
    return held <= limit or held - atomic_load_i64(&n.large_bytes) <= limit >> 2


cdef inline int64_t* _bytes_of(AddressCount* a, int64_t capacity) noexcept nogil:
    return &a.large_bytes if capacity > LARGE_BUFFER_BYTES else &a.small_bytes


cdef inline bint _within_share(Network* n, Connection* c, int64_t capacity) noexcept nogil:
    cdef int64_t limit = atomic_load_i64(&n.limits[LIMIT_QUEUED_BYTES])
    cdef int64_t held = atomic_load_i64(_bytes_of(c.address, capacity)) + capacity
    if (capacity > LARGE_BUFFER_BYTES) == (c.input_capacity > LARGE_BUFFER_BYTES):
        held -= c.input_capacity
    if capacity > LARGE_BUFFER_BYTES:
        return held <= limit >> 2
    return held <= limit >> 3 if c.input != NULL else held - capacity <= 3 * (limit >> 4)


cdef inline bint _free_for(int64_t* overdraft_id, Connection* c) noexcept nogil:
    cdef int64_t owner = atomic_load_i64(overdraft_id)
    return c.input != NULL and (owner == 0 or owner == <int64_t>c.id)


cdef bint budget_allows(Network* n, Connection* c, int64_t capacity) noexcept nogil:
    # While all small buffers use no more than the share of one address, no address exceeds it.
    if capacity <= LARGE_BUFFER_BYTES and (
            atomic_load_i64(&n.held_bytes) + capacity
            <= atomic_load_i64(&n.limits[LIMIT_QUEUED_BYTES]) >> 3):
        return True
    if capacity == c.input_capacity:
        return True
    return (_fits(n, c, capacity) or _free_for(&n.overdraft_id, c)) and (
        _within_share(n, c, capacity) or _free_for(&c.address.overdraft_id, c))


cdef bint _reserve(Network* n, Connection* c, int64_t capacity) noexcept nogil:
    """The caller holds budget_lock."""
    if not budget_allows(n, c, capacity):
        return False
    if not _fits(n, c, capacity):
        c.overdrawn = True
        atomic_store_i64(&n.overdraft_id, <int64_t>c.id)
    if not _within_share(n, c, capacity):
        c.overdrawn = True
        atomic_store_i64(&c.address.overdraft_id, <int64_t>c.id)
    return True


cdef bint budget_reserve(Network* n, Connection* c, int64_t capacity) noexcept nogil:
    cdef bint reserved
    pthread_mutex_lock(&n.budget_lock)
    reserved = _reserve(n, c, capacity)
    pthread_mutex_unlock(&n.budget_lock)
    return reserved


cdef bint budget_grow(Network* n, Connection* c, int64_t capacity) noexcept nogil:
    cdef bint large = capacity > LARGE_BUFFER_BYTES
    cdef bint becomes_large = large and c.input_capacity <= LARGE_BUFFER_BYTES
    cdef int64_t more = capacity - c.input_capacity
    cdef bint reserved
    pthread_mutex_lock(&n.budget_lock)
    reserved = _reserve(n, c, capacity)
    if reserved:
        atomic_add_i64(&n.held_bytes, more)
        if becomes_large:
            atomic_add_i64(&c.address.small_bytes, -c.input_capacity)
            more = capacity
        if large:
            atomic_add_i64(&n.large_bytes, more)
        atomic_add_i64(_bytes_of(c.address, capacity), more)
    pthread_mutex_unlock(&n.budget_lock)
    if reserved and becomes_large:
        room_came_free(n)       # for small buffers
    return reserved


cdef void budget_force(Network* n, int64_t block_bytes) noexcept nogil:
    atomic_add_i64(&n.held_bytes, block_bytes)
    if block_bytes > LARGE_BUFFER_BYTES:
        atomic_add_i64(&n.large_bytes, block_bytes)


cdef void budget_give(Network* n, int64_t block_bytes) noexcept nogil:
    atomic_add_i64(&n.held_bytes, -block_bytes)
    if block_bytes > LARGE_BUFFER_BYTES:
        atomic_add_i64(&n.large_bytes, -block_bytes)
    room_came_free(n)


cdef void budget_force_input(Network* n, Connection* c) noexcept nogil:
    atomic_add_i64(_bytes_of(c.address, c.input_capacity), c.input_capacity)
    budget_force(n, c.input_capacity)


cdef void budget_give_input(Network* n, Connection* c) noexcept nogil:
    atomic_add_i64(_bytes_of(c.address, c.input_capacity), -c.input_capacity)
    budget_give(n, c.input_capacity)


cdef void budget_end_overdraft(Network* n, Connection* c) noexcept nogil:
    c.overdrawn = False
    pthread_mutex_lock(&n.budget_lock)
    if atomic_load_i64(&n.overdraft_id) == <int64_t>c.id:
        atomic_store_i64(&n.overdraft_id, 0)
    if atomic_load_i64(&c.address.overdraft_id) == <int64_t>c.id:
        atomic_store_i64(&c.address.overdraft_id, 0)
    pthread_mutex_unlock(&n.budget_lock)
    room_came_free(n)


cdef void room_came_free(Network* n) noexcept nogil:
    """Wakes threads that wait for memory. A thread announces its sleep, then checks for memory;
    this function frees memory, then checks for sleepers. With a fence between, one of the two sees
    the other's step."""
    cdef int i
    atomic_fence()
    if atomic_load_i64(&n.room_waiters) == 0:
        return
    for i in range(atomic_load_i32(&n.made_count)):
        if atomic_cas_i64(&n.threads[i].waits_for_room, 1, 0):
            atomic_add_i64(&n.room_waiters, -1)
            net_ring(n.threads[i].event_fd)


cdef void slot_came_free(Network* n) noexcept nogil:
    atomic_fence()
    if atomic_load_i64(&n.acceptor_waits) and atomic_cas_i64(&n.acceptor_waits, 1, 0):
        net_ring(n.acceptor_event_fd)


# ------------------------------------------------------------------ events for Python's logger

cdef uint64_t address_hash(const uint8_t* address) noexcept nogil:
    cdef uint64_t a
    cdef uint64_t b
    memcpy(&a, address, 8)
    memcpy(&b, address + 8, 8)
    a = (a ^ (b * <uint64_t>0x9E3779B97F4A7C15)) * <uint64_t>0xBF58476D1CE4E5B9
    return a ^ (a >> 29)


cdef void ring_note(Network* n, int why, int32_t listener_index, const net_peer* peer,
                    int64_t detail, int64_t now_ns) noexcept nogil:
    cdef uint8_t address[16]
    cdef EventPeer* known
    cdef NetEvent* e
    net_address(peer, address)
    known = &n.ring.peers[address_hash(address) % EVENT_PEERS_MAX]
    pthread_mutex_lock(&n.ring.lock)
    if memcmp(known.address, address, 16) == 0 and now_ns < known.until_ns:
        known.suppressed += 1
    elif n.ring.count == EVENTS_MAX:
        n.ring.lost += 1
    else:
        if memcmp(known.address, address, 16) != 0:
            memcpy(known.address, address, 16)
            known.suppressed = 0
        e = &n.ring.events[(n.ring.first + n.ring.count) % EVENTS_MAX]
        n.ring.count += 1
        e.why = <int8_t>why
        e.listener_index = listener_index
        e.detail = detail
        e.suppressed = known.suppressed
        e.peer = peer[0]
        known.until_ns = now_ns + EVENT_QUIET_NS
        known.suppressed = 0
    pthread_mutex_unlock(&n.ring.lock)


cdef bint ring_take(Network* n, NetEvent* out) noexcept nogil:
    cdef bint found
    pthread_mutex_lock(&n.ring.lock)
    found = n.ring.count > 0
    if found:
        out[0] = n.ring.events[n.ring.first]
        n.ring.first = (n.ring.first + 1) % EVENTS_MAX
        n.ring.count -= 1
    pthread_mutex_unlock(&n.ring.lock)
    return found


# ------------------------------------------------------------------ connections per address

cdef bint address_enter(Network* n, const net_peer* peer, int64_t most) noexcept nogil:
    cdef uint8_t address[16]
    cdef AddressCount* a
    cdef AddressCount** bucket
    cdef bint allowed
    cdef int64_t i
    net_address(peer, address)
    bucket = &n.addresses[address_hash(address) % ADDRESS_BUCKETS]
    pthread_mutex_lock(&n.addresses_lock)
    for i in range(n.address_limit_count):
        if memcmp(n.address_limits[i].address, address, 16) == 0:
            most = n.address_limits[i].most
    a = bucket[0]
    while a != NULL and memcmp(a.address, address, 16) != 0:
        a = a.next
    allowed = most > 0 if a == NULL else a.count < most
    if allowed and a == NULL:
        a = <AddressCount*>calloc(1, sizeof(AddressCount))
        if a != NULL:
            memcpy(a.address, address, 16)
            a.next = bucket[0]
            bucket[0] = a
    if a == NULL:
        allowed = False
    if allowed:
        a.count += 1
    pthread_mutex_unlock(&n.addresses_lock)
    return allowed


cdef void address_leave(Network* n, const net_peer* peer) noexcept nogil:
    cdef uint8_t address[16]
    cdef AddressCount* a
    cdef AddressCount** link
    net_address(peer, address)
    link = &n.addresses[address_hash(address) % ADDRESS_BUCKETS]
    pthread_mutex_lock(&n.addresses_lock)
    while link[0] != NULL and memcmp(link[0].address, address, 16) != 0:
        link = &link[0].next
    a = link[0]
    if a != NULL:
        a.count -= 1
        if a.count == 0:
            link[0] = a.next
            free(a)
    pthread_mutex_unlock(&n.addresses_lock)


cdef AddressCount* address_find(Network* n, const net_peer* peer) noexcept nogil:
    cdef uint8_t address[16]
    cdef AddressCount* a
    net_address(peer, address)
    pthread_mutex_lock(&n.addresses_lock)
    a = n.addresses[address_hash(address) % ADDRESS_BUCKETS]
    while a != NULL and memcmp(a.address, address, 16) != 0:
        a = a.next
    pthread_mutex_unlock(&n.addresses_lock)
    return a
