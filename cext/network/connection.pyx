"""One connection on its network thread: cuts frames, calls native handlers, sends answers.

The thread receives bytes into its scratch buffer and serves requests from there. A connection owns
a buffer only while a frame is partial or a request waits; it grows with the received bytes. The
connection handles one request at a time and reads nothing until that is done. This limits its
memory: one frame, the bytes of one receive after it, and the answers to the requests of one
receive.

    frame     int32 size, then `size` bytes: the request header and the body
    header    int16 key, int16 version, int32 correlation id
              nullable string client id (all but ControlledShutdown v0)
              tagged section (flexible versions)

Next on the data path: the native handlers (cext/network/handler.pxd), or
cext/network/request_queue.pyx for requests that Python answers.
"""
from libc.errno cimport EAGAIN, EINTR, EPROTO
from libc.stdint cimport INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove

from barnabas.cext.codec.buffer cimport Buffer, buffer_free, buffer_init
from barnabas.cext.codec.cursor cimport (
    Cursor, cursor_i16, cursor_i32, cursor_left, cursor_of, cursor_take, cursor_uvarint,
)
from barnabas.cext.codec.endian cimport be32_load
from barnabas.cext.log.segment cimport segment_fd, segment_release
from barnabas.cext.memory.atomics cimport atomic_add_i64, atomic_load_i64, atomic_load_pointer
from barnabas.cext.memory.memory_limit cimport memory_release
from barnabas.cext.memory.sys cimport System, iovec
from barnabas.cext.network.closed_connections cimport closed_put
from barnabas.cext.network.connection_metrics cimport (
    answers_dropped, answers_left, answers_sent, count_parked, read_clock, request_begins,
    request_done, request_done_by_python, request_parks, work_begins,
)
from barnabas.cext.network.connection_chains cimport chain_remove, chain_append, chains_leave
from barnabas.cext.network.connection_table cimport (
    NOT_IN_TABLE, paused_add, paused_remove, table_add, table_remove, timer_move, timer_not_after,
)
from barnabas.cext.network.handler cimport (
    HANDLER_DONE, HANDLER_PARKED, HANDLER_PYTHON, HANDLER_SILENT, Handler, KEPT_BUFFER_BYTES, Request,
    Response, ResponseSlice,
    response_append as _append, response_free, response_init, response_reset as _response_reset,
)
from barnabas.cext.network.network_state cimport *
from barnabas.cext.network.quotas cimport (
    QUOTA_PRODUCE, QUOTA_REQUEST, QuotaBinding, QuotaSensor, quota_fits, quota_note, quota_unbind,
    quota_use, quota_waits,
)
from barnabas.cext.network.send_buffer cimport send_buffer_stalled
from barnabas.cext.network.sockets cimport (
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP,
    close, net_epoll, net_prepare, net_recv, net_send, net_unread, net_waits,
)
from barnabas.cext.network.throttling cimport throttle_write
from barnabas.cext.network.transport cimport (
    HANDSHAKE_CUT, HANDSHAKE_DONE, HANDSHAKE_FAILED, HANDSHAKE_WRITES, REASON_PLAINTEXT,
    TRANSPORT_BUFFERED, TRANSPORT_WRITES,
)

cdef enum:
    FRAME_WHOLE = -1
    FRAME_PARTIAL = -2
    HEADER_BYTES_MIN = 8
    # A request up to this size is copied before a handler sees it, because its bytes must not move
    # while it waits. A larger one stays in the scratch buffer, which the connection then takes
    # over.
    SMALL_REQUEST_BYTES = 16384
    GATHER_BYTES = 65536            # answers that are sent together
    TURN_BYTES = 262144             # bytes sent to one connection before others have their turn
    RECEIVE_TURNS = 4
    SLICE_SENDFILE_MIN = 4096
    PARTS_MAX = 32
    PRODUCE = 0
    CONTROLLED_SHUTDOWN = 7
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    WRITE_TXN_MARKERS = 27
    SASL_AUTHENTICATE = 36
    RAW_TOKEN_VERSION = -1          # of SaslAuthenticate: a token without a header
    CERTIFICATE_KEY = -1            # in place of an API key: a client's certificate, not a request
    RETRY_NS = 1000000
    # A thread is watched for WATCHED_NS after a request that takes longer than HELD_UP_NS. If it
    # waits so long in another request, for a disk or a lock, the connection of this one moves to a
    # spare thread. It returns with its first request after RETURN_NS without a long one.
    HELD_UP_NS = 20000000
    WATCHED_NS = 5000000000
    RETURN_NS = 30000000000
    _FILE_ERROR = -100000           # below every -errno
    NS_PER_MS = 1000000
    # While others wait for memory, a partial request that holds PACED_BYTES or more must continue
    # to arrive at this pace. Otherwise its connection closes, for a large request after one slow
    # second.
    PACED_BYTES = 16384
    PACE_BYTES_MIN = 65536          # a second
    PACE_NS = 1000000000
    SLOW_SMALL_COUNT = 2            # slow seconds of a request in a small buffer

# The first four bytes of each method and of the preface of HTTP/2.
cdef const char** HTTP_METHODS = [
    b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"CONN", b"OPTI", b"TRAC", b"PATC", b"PRI ", NULL,
]


# ------------------------------------------------------------------ opening and closing

cdef void conn_open(NetThread* t, int fd, int32_t listener_index, uint64_t connection_id,
                    const net_peer* peer) noexcept nogil:
    cdef Connection* c = <Connection*>calloc(1, sizeof(Connection))
    if c != NULL:
        c.id = connection_id
        c.fd = fd
        c.listener_index = listener_index
        c.peer = peer[0]
        c.address = address_find(t.network, peer)
        c.login = t.network.listeners[listener_index].login
        c.request.connection_id = connection_id
        c.request.thread_index = t.index
        c.request.listener_index = listener_index
        c.request.peer = &c.peer
        c.request.permissions = atomic_load_pointer(&t.network.permissions)
        c.request.questions = &t.questions
        c.transport = t.network.listeners[listener_index].transport
        c.work = WORK_NONE if c.transport == NULL else WORK_HANDSHAKE
        c.active_ns = t.now_ns
        c.timer_ns = INT64_MAX
        c.armed = EPOLLIN | EPOLLRDHUP if c.transport == NULL else EPOLLIN
        response_init(&c.out)
        net_prepare(fd, atomic_load_i64(&t.network.limits[LIMIT_SEND_BUFFER_BYTES]))
    if c == NULL or not table_add(t, c):
        free(c)
        close(fd)
        _uncount(t, listener_index, peer, WHY_MEMORY)
        return
    t.counters.connections[listener_index] += 1
    if net_epoll(t.epoll_fd, EPOLL_CTL_ADD, fd, c.armed, c) < 0:
        conn_close(t, c, WHY_MEMORY, 0)
        return
    conn_settle(t, c)


cdef void _uncount(NetThread* t, int32_t listener_index, const net_peer* peer, int why) noexcept nogil:
    t.counters.closed[why] += 1
    atomic_add_i64(&t.connection_count, -1)
    atomic_add_i64(&t.network.listeners[listener_index].connection_count, -1)
    atomic_add_i64(&t.network.connection_count, -1)
    address_leave(t.network, peer)
    slot_came_free(t.network)


cdef bint _worth_noting(int why) noexcept nogil:
    return why not in (WHY_PEER, WHY_HANDLER, WHY_IDLE, WHY_STOP)


cdef void conn_close(NetThread* t, Connection* c, int why, int64_t detail) noexcept nogil:
    """Closes the connection and frees everything except the struct, which the thread frees at the
    end of the turn."""
    cdef Buffer nothing
    if c.fd < 0:
        return
    if c.transport != NULL:
        _leave_transport(t, c)
    # A forked child may have a copy of the descriptor, which would stay in our epoll for ever.
    net_epoll(t.epoll_fd, EPOLL_CTL_DEL, c.fd, 0, NULL)
    close(c.fd)
    c.fd = -1
    if c.work == WORK_PARKED:
        count_parked(t, c, -1)
        c.handler.abandon(c.handler.context, &c.parked)
    if c.work == WORK_PARKED or c.work == WORK_PYTHON:
        request_done(t, c, has_answer=False)  # as in Kafka, which counts it when nobody waits for it
    c.work = WORK_NONE
    _forget_questions(t)
    _release_block(t, c)
    _release_input(t, c)
    _give_overdraft_back(t, c)
    response_free(&c.out)
    _release_memory(c)
    buffer_init(&nothing)
    _hold(t, &c.session, nothing)
    _hold(t, &c.principal, nothing)
    _set_quotas(c, NULL)
    if c.paused:
        paused_remove(t, c)
    chain_remove(t, CHAIN_MOVING, c)
    if c.heap_index != NOT_IN_TABLE:
        table_remove(t, c)
    if c.close_mark != NULL:
        closed_put(&t.network.closed_connections, c.close_mark)
    t.counters.connections[c.listener_index] -= 1
    if _worth_noting(why):
        ring_note(t.network, why, c.listener_index, &c.peer, detail, t.now_ns)
    _uncount(t, c.listener_index, &c.peer, why)
    c.next_paused = t.dead
    t.dead = c


cdef void _forget_questions(NetThread* t) noexcept nogil:
    t.questions.size = 0
    if t.questions.failed or t.questions.capacity > KEPT_BUFFER_BYTES:
        buffer_free(&t.questions)


cdef void _release_block(NetThread* t, Connection* c) noexcept nogil:
    if c.block != NULL:
        budget_give(t.network, c.block_bytes)
        free(c.block)
        c.block = NULL


cdef void _release_memory(Connection* c) noexcept nogil:
    """Releases what the answer claimed."""
    memory_release(c.request.memory)
    c.request.memory = NULL


cdef void _release_input(NetThread* t, Connection* c) noexcept nogil:
    if c.input == NULL:
        return
    budget_give_input(t.network, c)
    if c.input_capacity == SCRATCH_BYTES and t.spare_scratch_count < SPARE_SCRATCH_MAX:
        t.spare_scratch[t.spare_scratch_count] = c.input
        t.spare_scratch_count += 1
    else:
        free(c.input)
    c.input = NULL
    c.input_at = c.input_end = c.input_capacity = 0


cdef void _give_overdraft_back(NetThread* t, Connection* c) noexcept nogil:
    if c.overdrawn:
        budget_end_overdraft(t.network, c)


# ------------------------------------------------------------------ moving to another thread

cdef void conn_leave(NetThread* t, Connection* c) noexcept nogil:
    chains_leave(t, c)
    net_epoll(t.epoll_fd, EPOLL_CTL_DEL, c.fd, 0, NULL)
    table_remove(t, c)
    t.counters.connections[c.listener_index] -= 1


cdef void conn_arrive(NetThread* t, Connection* c) noexcept nogil:
    c.request.thread_index = t.index
    c.request.questions = &t.questions
    t.counters.connections[c.listener_index] += 1
    if not table_add(t, c) or net_epoll(t.epoll_fd, EPOLL_CTL_ADD, c.fd, c.armed, c) < 0:
        conn_close(t, c, WHY_MEMORY, 0)
        return
    conn_stay(t, c)


cdef void conn_stay(NetThread* t, Connection* c) noexcept nogil:
    if not t.draining:              # otherwise conn_settle closes it: its thread may have ended
        _go_on(t, c)
    conn_settle(t, c)


cdef inline int64_t _waits(const NetThread* t) noexcept nogil:
    """Call it before a handler, for _note_clock; -1: the thread is not watched."""
    return net_waits() if t.metrics.clock_ns < t.watched_until_ns else -1


cdef inline void _note_clock(NetThread* t, Connection* c, int64_t before_ns, int64_t waits) noexcept nogil:
    """Reads the clock behind a handler that began at `before_ns`."""
    read_clock(t)
    if t.metrics.clock_ns - before_ns > HELD_UP_NS:
        _note_long(t, c, waits)


cdef void _note_long(NetThread* t, Connection* c, int64_t waits) noexcept nogil:
    """If the thread has not waited, something kept it from running, and a move would not help."""
    t.watched_until_ns = t.metrics.clock_ns + WATCHED_NS
    if t.is_spare or 0 <= waits < net_waits():
        c.held_up_ns = t.metrics.clock_ns


cdef void _choose_thread(NetThread* t, Connection* c) noexcept nogil:
    """Lets a connection move that has held up its thread, now or before, when its request is done."""
    cdef bint quiet = t.metrics.clock_ns - c.held_up_ns > RETURN_NS
    if c.work != WORK_NONE:
        return
    if quiet:
        c.held_up_ns = 0
    if quiet == t.is_spare:
        c.work = WORK_MOVING
        chain_append(t, CHAIN_MOVING, c)


# ------------------------------------------------------------------ events of a connection

cdef inline bint _out_pending(Connection* c) noexcept nogil:
    return c.out.bytes.size > 0


cdef inline bint _ready(Connection* c) noexcept nogil:
    """Returns whether the next request may start: none is in progress, every answer is sent."""
    return c.fd >= 0 and c.work == WORK_NONE and not _out_pending(c)


cdef void conn_event(NetThread* t, Connection* c, uint32_t events) noexcept nogil:
    if c.fd < 0:
        return
    if events & EPOLLOUT:
        if _out_pending(c):
            _flush(t, c)
            _go_on(t, c)
        elif c.transport != NULL:
            events |= EPOLLIN               # bytes that its transport received needed an answer
        if c.fd < 0:
            return
    if events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR):
        if _ready(c) and not c.paused and not t.draining:
            _receive(t, c)
        elif c.work == WORK_HANDSHAKE:
            chain_append(t, CHAIN_HANDSHAKES, c)
        elif events & (EPOLLHUP | EPOLLERR):
            conn_close(t, c, WHY_PEER, 0)
        elif events & EPOLLRDHUP and not _is_unfinished(c) and _has_no_request(c):
            conn_close(t, c, WHY_PEER, 0)
        elif events & EPOLLRDHUP:
            # Requests that it sent before it closed (acks=0, for example) are still carried out.
            c.half_closed = True
            c.in_fired = True
        else:
            c.in_fired = True
    conn_settle(t, c)


cdef inline bint _is_unfinished(const Connection* c) noexcept nogil:
    """Returns whether the request in work must be carried out although the peer has closed its side."""
    return c.parked.unfinished and (c.work == WORK_PARKED or c.work == WORK_PYTHON)


cdef bint _has_no_request(Connection* c) noexcept nogil:
    """Returns whether a peer that has closed its side has left no whole frame, neither read nor
    unread. A partial frame would keep its memory while the connection waits for more memory."""
    cdef int64_t present = c.input_end - c.input_at
    cdef int64_t unread = net_unread(c.fd)
    if c.transport != NULL:
        if c.transport.waits_for(c.tls) & TRANSPORT_BUFFERED:
            return False
        if present == 0:                # the unread bytes may be the end of its transport
            return unread < c.transport.record_bytes_min(c.tls, 4 + HEADER_BYTES_MIN)
    if present == 0:
        return unread == 0
    return (_ready(c) and present >= 4
            and present + unread < 4 + <int64_t>be32_load(c.input + c.input_at))


cdef void conn_settle(NetThread* t, Connection* c) noexcept nogil:
    cdef uint32_t want
    cdef bint ready = _ready(c)
    if c.fd < 0:
        return
    if (ready or c.work == WORK_MUTED and not _out_pending(c)) and (
            t.draining or atomic_load_i64(&t.network.listeners[c.listener_index].removed)):
        conn_close(t, c, WHY_STOP, 0)
        return
    if c.login == LOGIN_FAILED and ready:
        conn_close(t, c, WHY_HANDLER, 0)
        return
    want = 0 if c.half_closed else EPOLLRDHUP
    if ready and not c.paused:
        want |= EPOLLIN
        c.in_fired = False
    elif not c.in_fired and not c.paused:
        # Disarmed only when it fires: most answers are ready before the peer sends again.
        want |= c.armed & EPOLLIN
    if _out_pending(c):
        want |= EPOLLOUT
    if c.transport != NULL:
        want = _transport_wants(t, c, want)
        if c.fd < 0:
            return
    if want != c.armed:
        c.armed = want
        net_epoll(t.epoll_fd, EPOLL_CTL_MOD, c.fd, want, c)
    timer_not_after(t, c, _deadline_ns(t, c))


cdef inline int64_t _after(NetThread* t, int64_t since_ns, int limit) noexcept nogil:
    cdef int64_t ms = atomic_load_i64(&t.network.limits[limit])
    return INT64_MAX if ms <= 0 or ms > INT64_MAX // 4000000 else since_ns + ms * 1000000


cdef int64_t _deadline_ns(NetThread* t, Connection* c) noexcept nogil:
    cdef int64_t due = INT64_MAX
    if _out_pending(c):
        due = _after(t, c.progress_ns, LIMIT_SEND_MS)
    if c.work != WORK_NONE:
        if c.work == WORK_PARKED:
            return min(due, c.parked.deadline_ns)
        if c.work == WORK_MUTED:
            return min(due, c.muted_until_ns)
        return due if c.work != WORK_HANDSHAKE else _after(t, c.active_ns, LIMIT_RECEIVE_MS)
    if not _ready(c) or c.paused:
        return due
    if c.frame_began_ns:
        due = _after(t, c.frame_began_ns, LIMIT_RECEIVE_MS)
        return min(due, c.pace_began_ns + PACE_NS) if c.input_capacity >= PACED_BYTES else due
    return _after(t, c.active_ns, LIMIT_IDLE_MS)


cdef void conn_timer(NetThread* t, Connection* c) noexcept nogil:
    if _deadline_ns(t, c) <= t.now_ns:
        if _out_pending(c) and _after(t, c.progress_ns, LIMIT_SEND_MS) <= t.now_ns:
            conn_close(t, c, WHY_SEND_TIMEOUT, c.out.bytes.size + c.out.slice_bytes)
        elif c.work == WORK_PARKED:
            conn_resume(t, c, True)
        elif c.work == WORK_HANDSHAKE:
            conn_close(t, c, WHY_HANDSHAKE_TIMEOUT, 0)
        elif c.work == WORK_MUTED:
            _unmute(t, c)
        elif c.frame_began_ns and _after(t, c.frame_began_ns, LIMIT_RECEIVE_MS) <= t.now_ns:
            conn_close(t, c, WHY_RECEIVE_TIMEOUT, c.input_end - c.input_at)
        elif c.frame_began_ns:
            _end_second(t, c)
        else:
            conn_close(t, c, WHY_IDLE, 0)
    if c.fd >= 0:
        timer_move(t, c, _deadline_ns(t, c))


cdef void _begin_second(NetThread* t, Connection* c) noexcept nogil:
    c.pace_began_ns = t.now_ns
    c.pace_bytes = 0


cdef void _end_second(NetThread* t, Connection* c) noexcept nogil:
    """Ends a second of a partial request: closes its connection if it was too slow and others wait
    for memory. Connections with slow requests in small buffers close only if closing those with
    large buffers did not free enough memory."""
    cdef bint large = c.input_capacity > LARGE_BUFFER_BYTES
    if c.pace_bytes >= PACE_BYTES_MIN:
        c.pace_slow_count = 0
    else:
        c.pace_slow_count += 1
    if atomic_load_i64(&t.network.starved_count) and c.pace_slow_count >= (
            1 if large else SLOW_SMALL_COUNT):
        conn_close(t, c, WHY_SLOW_REQUEST, c.input_end - c.input_at)
    _begin_second(t, c)


cdef void _begin_frame(NetThread* t, Connection* c) noexcept nogil:
    """Starts to measure the time of a partial frame, or starts again after a pause in reading."""
    c.frame_began_ns = t.now_ns
    c.pace_slow_count = 0
    _begin_second(t, c)


cdef void conn_resume(NetThread* t, Connection* c, bint expired) noexcept nogil:
    cdef int outcome
    cdef int64_t before_ns = t.metrics.clock_ns     # hardly older: each answer reads the clock
    cdef int64_t waits = _waits(t)
    if c.fd < 0 or c.work != WORK_PARKED:
        return
    outcome = c.handler.resume(c.handler.context, &c.request, &t.response, &c.parked, expired)
    _note_clock(t, c, before_ns, waits)
    if outcome == HANDLER_PARKED:
        _response_reset(&t.response)
        if c.parked.deadline_ns <= t.now_ns:
            c.parked.deadline_ns = t.now_ns + RETRY_NS
        conn_settle(t, c)
        return
    count_parked(t, c, -1)
    c.work = WORK_NONE
    c.active_ns = t.now_ns
    _outcome(t, c, c.handler, outcome)
    if c.fd >= 0:
        _release_block(t, c)
        _send_gathered(t, c)
        _go_on(t, c)
        conn_settle(t, c)


cdef void conn_replied(NetThread* t, Connection* c, Mail* mail) noexcept nogil:
    if c.work != WORK_PYTHON:
        buffer_free(&mail.bytes)
        return
    c.work = WORK_NONE
    c.active_ns = t.now_ns
    request_done_by_python(t, c, mail)
    if mail.kind != MAIL_SILENT:
        response_free(&t.gathered)
        t.gathered.bytes = mail.bytes
        if c.request.quota != NULL or mail.throttle_ms:
            _meter(t, c, &t.gathered, (mail.parked_ns or mail.answered_ns) - mail.dequeued_ns,
                   mail.throttle_ms)
        _send_gathered(t, c)
    _go_on(t, c)
    conn_settle(t, c)


# ------------------------------------------------------------------ TLS

cdef uint32_t _transport_wants(NetThread* t, Connection* c, uint32_t want) noexcept nogil:
    """Returns the events that epoll must watch. The thread serves a ready connection with buffered
    bytes without epoll. A handshake ends when the thread stops or the listener is closed."""
    cdef int waits_for
    if c.work == WORK_HANDSHAKE:
        if t.draining or atomic_load_i64(&t.network.listeners[c.listener_index].removed):
            conn_close(t, c, WHY_STOP, 0)
        return EPOLLOUT if c.handshake_writes else EPOLLIN
    if not _ready(c) or c.paused:
        return want
    waits_for = c.transport.waits_for(c.tls)
    if waits_for & TRANSPORT_BUFFERED:
        chain_append(t, CHAIN_BUFFERED, c)
    return want | EPOLLOUT if waits_for & TRANSPORT_WRITES else want


cdef void conn_buffered(NetThread* t) noexcept nogil:
    """Reads from each connection of the chain once; one with bytes left follows in the next turn."""
    cdef Connection* c = t.chain_first[CHAIN_BUFFERED]
    cdef int64_t count = 0
    while c != NULL:
        count += 1
        c = c.chain_next[CHAIN_BUFFERED]
    while count and t.chain_first[CHAIN_BUFFERED] != NULL:
        count -= 1
        c = t.chain_first[CHAIN_BUFFERED]
        chain_remove(t, CHAIN_BUFFERED, c)
        if _ready(c) and not c.paused and not t.draining:
            conn_event(t, c, EPOLLIN)       # the only caller of _receive, which is then inlined into it
        else:
            conn_settle(t, c)


cdef void conn_handshake(NetThread* t) noexcept nogil:
    cdef Connection* c = t.chain_first[CHAIN_HANDSHAKES]
    cdef int outcome
    cdef int64_t reason
    chain_remove(t, CHAIN_HANDSHAKES, c)
    work_begins(t)
    if c.tls == NULL and not _begin_handshake(t, c):
        return
    outcome = c.transport.handshake(c.tls)
    c.handshake_writes = outcome == HANDSHAKE_WRITES
    if outcome == HANDSHAKE_DONE:
        _end_handshake(t, c)
        if c.login == LOGIN_OPEN and c.fd >= 0:
            _look_at_certificate(t, c)
        if _ready(c) and not c.paused and not t.draining:
            conn_event(t, c, EPOLLIN)
    elif outcome == HANDSHAKE_CUT:
        conn_close(t, c, WHY_PEER, 0)
    elif outcome == HANDSHAKE_FAILED:
        reason = c.transport.reason(c.tls)
        conn_close(t, c, WHY_PLAINTEXT_CLIENT if reason == REASON_PLAINTEXT else WHY_TLS, reason)
    conn_settle(t, c)


cdef bint _begin_handshake(NetThread* t, Connection* c) noexcept nogil:
    """Opens the session when the first bytes have arrived, so that silent connections have none.
    Beyond the limit of handshakes it closes the connection with the thread's oldest handshake."""
    if (atomic_load_i64(&t.network.handshake_count)
            >= atomic_load_i64(&t.network.limits[LIMIT_HANDSHAKES])):
        if t.chain_first[CHAIN_STARTED] == NULL:
            conn_close(t, c, WHY_HANDSHAKES, 0)
            return False
        conn_close(t, t.chain_first[CHAIN_STARTED], WHY_HANDSHAKES, 0)
    c.tls = c.transport.open(t.network.listeners[c.listener_index].transport_context, c.fd)
    if c.tls == NULL:
        conn_close(t, c, WHY_MEMORY, 0)
        return False
    atomic_add_i64(&t.network.handshake_count, 1)
    chain_append(t, CHAIN_STARTED, c)
    return True


cdef void _end_handshake(NetThread* t, Connection* c) noexcept nogil:
    atomic_add_i64(&t.network.handshake_count, -1)
    chain_remove(t, CHAIN_STARTED, c)
    c.work = WORK_NONE
    c.active_ns = t.now_ns


cdef void _look_at_certificate(NetThread* t, Connection* c) noexcept nogil:
    """Passes the client's certificate to Python, which names the principal before the first request
    is read."""
    cdef Buffer certificate
    cdef Request* q = &c.request
    buffer_init(&certificate)
    if not c.transport.peer_certificate(c.tls, &certificate):
        conn_close(t, c, WHY_TLS, 0)
    elif certificate.size:
        c.login = LOGIN_CERTIFICATE
        if queue_is_full(t.network):
            paused_add(t, c, 0, False)      # conn_unpause looks again
        else:
            q.data = certificate.data
            q.size_bytes = q.body_at = certificate.size
            q.api_key = CERTIFICATE_KEY
            q.api_version = 0
            q.received_ns = t.now_ns
            _outcome(t, c, NULL, HANDLER_PYTHON)
    buffer_free(&certificate)


cdef void _leave_transport(NetThread* t, Connection* c) noexcept nogil:
    """Ends the transport's session, before the socket closes."""
    if c.chained[CHAIN_STARTED]:
        atomic_add_i64(&t.network.handshake_count, -1)
    chains_leave(t, c)
    if c.tls != NULL:
        c.transport.close(c.tls)
        c.tls = NULL


# ------------------------------------------------------------------ bytes in

cdef int _foreign_client(const uint8_t* p) noexcept nogil:
    """Returns the reason (WHY_...) why a frame is too large, from its first four bytes: RFC 8446
    section 5.1 (a handshake record of SSL 3.0 to TLS 1.3), RFC 9110 section 9 (a method), RFC 9113
    section 3.4 (the preface)."""
    cdef const char** method = HTTP_METHODS
    if p[0] == 0x16 and p[1] == 3 and p[2] <= 4:
        return WHY_TLS_CLIENT
    while method[0] != NULL:
        if memcmp(p, method[0], 4) == 0:
            return WHY_HTTP_CLIENT
        method += 1
    return WHY_LARGE_FRAME


cdef inline int _frame(NetThread* t, Connection* c, const uint8_t* p, int64_t present_bytes,
                       int64_t* size) noexcept nogil:
    """Returns FRAME_WHOLE, FRAME_PARTIAL (size -1: not known yet) or the reason (WHY_...) to close."""
    size[0] = -1
    if present_bytes < 4:
        return FRAME_PARTIAL
    size[0] = <int32_t>be32_load(p)
    if size[0] < 0:
        return WHY_NEGATIVE_FRAME
    if c.login > LOGIN_EXPIRING:
        return _login_frame(t, c, p, present_bytes, size[0])
    if size[0] < HEADER_BYTES_MIN:
        return WHY_SHORT_FRAME
    if size[0] > atomic_load_i64(&t.network.limits[LIMIT_REQUEST_BYTES]):
        return _foreign_client(p)
    return FRAME_WHOLE if present_bytes - 4 >= size[0] else FRAME_PARTIAL


cdef int _login_frame(NetThread* t, Connection* c, const uint8_t* p, int64_t present_bytes,
                      int64_t size_bytes) noexcept nogil:
    """Does what _frame does, before a login: only smaller frames are allowed, and a token without a
    header may be empty. Requests of Kafka 0.7 have a shorter header."""
    if size_bytes < HEADER_BYTES_MIN and c.login < LOGIN_LEGACY07 and c.login != LOGIN_RAW_TOKENS:
        return WHY_SHORT_FRAME
    if (size_bytes > t.network.listeners[c.listener_index].login_bytes_max
            or size_bytes > atomic_load_i64(&t.network.limits[LIMIT_REQUEST_BYTES])):
        return _foreign_client(p)
    return FRAME_WHOLE if present_bytes - 4 >= size_bytes else FRAME_PARTIAL


cdef inline ssize_t _receive_some(Connection* c, uint8_t* into, size_t size_bytes) noexcept nogil:
    if c.transport == NULL:
        return net_recv(c.fd, into, size_bytes)
    return c.transport.receive(c.tls, into, size_bytes)


cdef void _receive(NetThread* t, Connection* c) noexcept nogil:
    cdef int turn
    cdef ssize_t got
    cdef int64_t room
    work_begins(t)
    for turn in range(RECEIVE_TURNS):
        if queue_is_full(t.network):
            paused_add(t, c, 0, False)
            return
        if c.input != NULL:
            room = _room(t, c)
            if room == 0:
                return
            got = _receive_some(c, c.input + c.input_end, room)
        else:
            if not budget_allows(t.network, c, 1):
                paused_add(t, c, 1, True)
                return
            room = SCRATCH_BYTES
            got = _receive_some(c, t.scratch, SCRATCH_BYTES)
        if got <= 0:
            if got == -EPROTO and c.transport != NULL:
                conn_close(t, c, WHY_TLS, c.transport.reason(c.tls))
            elif got != -EAGAIN and got != -EINTR:
                conn_close(t, c, WHY_PEER, 0)
            return
        t.counters.bytes_in += got
        c.active_ns = t.now_ns
        c.pace_bytes += got
        if c.input != NULL:
            c.input_end += got
            _serve_input(t, c)
        else:
            _serve_scratch(t, c, got)
        if got < room or not _ready(c):
            return


cdef int64_t _room(NetThread* t, Connection* c) noexcept nogil:
    """Returns how many bytes may go into the connection's buffer, never beyond the partial frame.
    0: the budget is exhausted (the connection pauses) or memory ran out (it closes)."""
    cdef int64_t size
    cdef int64_t total
    cdef int64_t capacity
    cdef uint8_t* grown
    if c.input_at:
        memmove(c.input, c.input + c.input_at, c.input_end - c.input_at)
        c.input_end -= c.input_at
        c.input_at = 0
    _frame(t, c, c.input, c.input_end, &size)
    total = 4 + size if size >= 0 else 4
    if c.input_end == c.input_capacity:
        capacity = c.input_capacity * 2
        if capacity > total:
            capacity = total
        if not budget_grow(t.network, c, capacity):
            paused_add(t, c, capacity - c.input_capacity, True)
            return 0
        c.input_capacity = capacity         # also when realloc fails: conn_close returns it
        grown = <uint8_t*>realloc(c.input, capacity)
        if grown == NULL:
            conn_close(t, c, WHY_MEMORY, capacity)
            return 0
        c.input = grown
    if total > c.input_capacity:
        total = c.input_capacity
    return total - c.input_end


cdef void _serve_input(NetThread* t, Connection* c) noexcept nogil:
    """Serves the requests in the connection's own buffer, and frees the buffer when it is empty."""
    cdef int64_t before = c.input_at
    cdef int64_t after = _serve(t, c, c.input, c.input_at, c.input_end, True)
    if after < 0:
        return
    c.input_at = after
    if after == c.input_end:
        c.frame_began_ns = 0
        if c.work != WORK_PARKED:
            _release_input(t, c)
    elif after != before or c.frame_began_ns == 0:
        _begin_frame(t, c)


cdef void _serve_scratch(NetThread* t, Connection* c, int64_t got) noexcept nogil:
    cdef int64_t after = _serve(t, c, t.scratch, 0, got, False)
    cdef int64_t left = got - after
    if after < 0 or c.input != NULL:        # closed, or the connection took over the scratch buffer
        return
    c.frame_began_ns = 0
    if left == 0:
        return
    c.input_capacity = left if left > 64 else 64
    c.input = <uint8_t*>malloc(c.input_capacity)
    if c.input == NULL:
        conn_close(t, c, WHY_MEMORY, left)
        return
    budget_force_input(t.network, c)
    memcpy(c.input, t.scratch + after, left)
    c.input_at = 0
    c.input_end = left
    _begin_frame(t, c)


cdef void _go_on(NetThread* t, Connection* c) noexcept nogil:
    """Serves the next requests that have arrived, if the connection is ready for them."""
    if _ready(c) and c.input != NULL:
        _serve_input(t, c)
        if _ready(c) and c.input != NULL:
            _begin_frame(t, c)


cdef int64_t _serve(NetThread* t, Connection* c, uint8_t* base, int64_t at, int64_t end,
                    bint owned) noexcept nogil:
    """Serves whole frames until one is partial or waits. Returns the next position; -1: closed."""
    cdef int status
    cdef int64_t size
    while _ready(c):
        status = _frame(t, c, base + at, end - at, &size)
        if status == FRAME_PARTIAL:
            break
        if status != FRAME_WHOLE:
            _send_gathered(t, c)
            conn_close(t, c, status, size)
            return -1
        _give_overdraft_back(t, c)
        _dispatch(t, c, base + at + 4, size, owned)
        at += 4 + size
        if c.work == WORK_PARKED and c.request.data == base + at - size and not owned:
            _keep_scratch(t, c, at, end)
        if t.gathered.slice_count or t.gathered.bytes.size >= GATHER_BYTES:
            _send_gathered(t, c)
    _send_gathered(t, c)
    return at if c.fd >= 0 else -1


cdef void _keep_scratch(NetThread* t, Connection* c, int64_t at, int64_t end) noexcept nogil:
    """Gives the scratch buffer to a connection with a large waiting request; allocates another."""
    c.input = t.scratch
    c.input_at = at
    c.input_end = end
    c.input_capacity = SCRATCH_BYTES
    budget_force_input(t.network, c)
    if t.spare_scratch_count:
        t.spare_scratch_count -= 1
        t.scratch = t.spare_scratch[t.spare_scratch_count]
        return
    t.scratch = <uint8_t*>malloc(SCRATCH_BYTES)
    if t.scratch == NULL:
        # Without memory for another buffer, the connection closes and the thread keeps this one.
        t.scratch = c.input
        budget_give_input(t.network, c)
        c.input = NULL
        c.input_at = c.input_end = c.input_capacity = 0
        conn_close(t, c, WHY_MEMORY, SCRATCH_BYTES)


# ------------------------------------------------------------------ pausing

cdef void conn_unpause(NetThread* t, Connection* c) noexcept nogil:
    paused_remove(t, c)
    c.active_ns = t.now_ns
    if c.frame_began_ns:
        _begin_frame(t, c)
    if c.login == LOGIN_CERTIFICATE:
        _look_at_certificate(t, c)
    conn_settle(t, c)


# ------------------------------------------------------------------ a request

cdef bint _header(NetThread* t, Request* q, uint8_t* frame, int64_t size_bytes) noexcept nogil:
    cdef Network* n = t.network
    cdef Cursor c = cursor_of(frame, size_bytes)
    cdef uint64_t fields
    q.data = frame
    q.size_bytes = size_bytes
    q.api_key = cursor_i16(&c)
    q.api_version = cursor_i16(&c)
    q.correlation_id = cursor_i32(&c)
    q.client_id = NULL
    q.client_id_bytes = 0
    if q.api_key != CONTROLLED_SHUTDOWN or q.api_version != 0:
        q.client_id_bytes = cursor_i16(&c)
        if q.client_id_bytes < 0:           # Kafka reads every negative size as null
            q.client_id_bytes = 0
        else:
            q.client_id = cursor_take(&c, q.client_id_bytes)
    if 0 <= q.api_key < n.key_count and 0 <= n.flexible_from[q.api_key] <= q.api_version:
        fields = cursor_uvarint(&c, 5)
        if fields > <uint64_t>cursor_left(&c):
            return False
        while fields and not c.bad:
            cursor_uvarint(&c, 5)
            cursor_take(&c, <int64_t>cursor_uvarint(&c, 5))
            fields -= 1
    q.body_at = c.p - frame
    return not c.bad


cdef int _login_header(NetThread* t, Connection* c, uint8_t* frame, int64_t size_bytes) noexcept nogil:
    """Reads the header of a request before its connection has logged in, or when its login expires.
    Returns FRAME_WHOLE if the request may be answered, or the reason (WHY_...) to close. No handler
    sees a request before this check."""
    cdef Request* q = &c.request
    if c.login == LOGIN_RAW_TOKENS:
        q.data = frame
        q.size_bytes = size_bytes
        q.api_key = SASL_AUTHENTICATE
        q.api_version = RAW_TOKEN_VERSION
        q.correlation_id = 0
        q.client_id = NULL
        q.client_id_bytes = 0
        q.body_at = 0
        return FRAME_WHOLE
    if c.login == LOGIN_LEGACY07:
        return _legacy07_header(q, frame, size_bytes)
    if not _header(t, q, frame, size_bytes):
        return WHY_BAD_HEADER
    if c.login == LOGIN_EXPIRING:
        return (FRAME_WHOLE if t.now_ns <= c.login_ends_ns or q.api_key == SASL_HANDSHAKE
                else WHY_LOGIN_EXPIRED)
    if c.login == LOGIN_NEEDED and (q.api_key == SASL_HANDSHAKE or q.api_key == API_VERSIONS):
        return FRAME_WHOLE
    if c.login == LOGIN_TOKENS and q.api_key == SASL_AUTHENTICATE and q.api_version >= 0:
        return FRAME_WHOLE
    return WHY_NO_LOGIN


cdef int _legacy07_header(Request* q, uint8_t* frame, int64_t size_bytes) noexcept nogil:
    """Reads the type of a request of Kafka 0.7: it has no other header."""
    cdef Cursor c = cursor_of(frame, size_bytes)
    q.data = frame
    q.size_bytes = size_bytes
    q.api_key = LEGACY07_KEY
    q.api_version = cursor_i16(&c)
    q.correlation_id = 0
    q.client_id = NULL
    q.client_id_bytes = 0
    q.body_at = c.p - frame
    return WHY_BAD_HEADER if c.bad else FRAME_WHOLE


cdef void conn_login(NetThread* t, Connection* c, Mail* mail) noexcept nogil:
    if c.work != WORK_PYTHON:           # the request that it belongs to was answered
        buffer_free(&mail.bytes)
        return
    if mail.kind == MAIL_LOGIN:
        c.login = <int8_t>mail.fd
        c.login_ends_ns = mail.login_ends_ns
        _hold(t, &c.session, mail.bytes)
    else:
        _set_quotas(c, NULL)            # those of another user
        _hold(t, &c.principal, mail.bytes)
        c.request.principal = c.principal.data if c.principal.size else NULL
        c.request.principal_bytes = c.principal.size
        c.request.caller = 0


cdef void _hold(NetThread* t, Buffer* place, Buffer value) noexcept nogil:
    """Replaces bytes of a login; they count in the budget as long as the connection holds them."""
    if place.size:
        budget_give(t.network, place.size)
    buffer_free(place)
    place[0] = value
    if value.size:
        budget_force(t.network, value.size)


cdef Handler* _handler_for(Network* n, Request* q) noexcept nogil:
    """Returns the native handler of the request; NULL: Python answers it, or sees it first (gate)."""
    cdef int64_t gate = atomic_load_i64(&n.gate[(q.api_key >> 6) & 1])
    q.gated = gate != 0 and 0 <= q.api_key < API_KEYS_MAX and (gate >> (q.api_key & 63)) & 1
    return NULL if q.gated else _native_of(n, q)


cdef Handler* _native_of(Network* n, const Request* q) noexcept nogil:
    cdef const Route* route
    if not 0 <= q.api_key < API_KEYS_MAX:
        return NULL
    route = &n.routes[q.api_key]
    return route.handler if route.version_min <= q.api_version <= route.version_max else NULL


cdef void _dispatch(NetThread* t, Connection* c, uint8_t* frame, int64_t size_bytes,
                    bint owned) noexcept nogil:
    """Passes the request to a native handler or to Python; collects the answer if there is one."""
    cdef Request* q = &c.request
    cdef Handler* handler
    cdef uint8_t* block = NULL
    cdef int64_t waits
    cdef int outcome
    cdef int why = WHY_BAD_HEADER
    if c.login:
        why = _login_header(t, c, frame, size_bytes)
    elif _header(t, q, frame, size_bytes):
        why = FRAME_WHOLE
    if why != FRAME_WHOLE:
        _send_gathered(t, c)
        conn_close(t, c, why, size_bytes if why == WHY_BAD_HEADER else q.api_key)
        return
    q.received_ns = t.now_ns
    q.asked_count = 0
    request_begins(t, c)
    t.counters.requests += 1
    handler = _handler_for(t.network, q)
    if atomic_load_i64(&t.network.quota_generation) and (
            c.login == LOGIN_OPEN or c.login == LOGIN_EXPIRING) and not _is_metered(t, c):
        q.unmetered = True
        q.native = handler != NULL
        handler = NULL
    if handler == NULL:
        _outcome(t, c, NULL, HANDLER_PYTHON)
        return
    if not owned and size_bytes <= SMALL_REQUEST_BYTES:
        block = <uint8_t*>malloc(size_bytes)
        if block == NULL:
            conn_close(t, c, WHY_MEMORY, size_bytes)
            return
        memcpy(block, frame, size_bytes)
        q.data = block
        if q.client_id != NULL:
            q.client_id = block + (q.client_id - frame)
    waits = _waits(t)
    outcome = handler.handle(handler.context, q, &t.response, &c.parked)
    _note_clock(t, c, c.began_ns, waits)
    _outcome(t, c, handler, outcome)
    if block != NULL and c.work == WORK_PARKED:
        c.block = block
        c.block_bytes = size_bytes
        budget_force(t.network, size_bytes)
    else:
        free(block)


cdef void conn_proceed(NetThread* t, Connection* c, Buffer* frame, bint muffled) noexcept nogil:
    cdef Request* q = &c.request
    cdef Handler* handler
    cdef int64_t waits
    cdef int outcome
    if c.work == WORK_PYTHON and c.login == LOGIN_RAW_TOKENS:
        # The bytes of a token could look like a request, which no check has seen.
        buffer_free(frame)
        conn_close(t, c, WHY_HANDLER, 0)
        return
    if c.work != WORK_PYTHON or not _header(t, q, frame.data, frame.size):
        buffer_free(frame)
        return
    c.work = WORK_NONE
    c.muffled = muffled
    q.gated = q.unmetered = False
    handler = _native_of(t.network, q)
    if handler == NULL:
        conn_close(t, c, WHY_HANDLER, 0)
    else:
        c.began_ns = t.metrics.clock_ns     # the earlier work of Python counts as waiting
        waits = _waits(t)
        outcome = handler.handle(handler.context, q, &t.response, &c.parked)
        _note_clock(t, c, c.began_ns, waits)
        _outcome(t, c, handler, outcome)
    if c.work == WORK_PARKED:
        c.block = frame.data
        c.block_bytes = frame.size
        budget_force(t.network, frame.size)
    else:
        buffer_free(frame)
    _send_gathered(t, c)
    _go_on(t, c)
    conn_settle(t, c)


cdef inline bint _has_no_answer(const Request* q) noexcept nogil:
    """Returns whether it is a Produce or MultiProduce of Kafka 0.7: the client sends it and may close
    the connection at once."""
    return q.api_key == LEGACY07_KEY and (q.api_version == 0 or q.api_version == 3)


cdef inline void _outcome(NetThread* t, Connection* c, Handler* handler, int outcome) noexcept nogil:
    if c.muffled and outcome != HANDLER_PARKED:
        _response_reset(&t.response)
        conn_close(t, c, WHY_HANDLER, 0)
        return
    if outcome == HANDLER_DONE:
        if t.response.bytes.failed or t.response.bytes.size < HEADER_BYTES_MIN:
            _response_reset(&t.response)
            conn_close(t, c, WHY_MEMORY, 0)
            return
        if c.request.quota != NULL:
            _meter(t, c, &t.response, (c.parked_ns or t.metrics.clock_ns) - c.began_ns, 0)
        request_done(t, c, True)
        if not _append(&t.gathered, &t.response):
            answers_dropped(t)
            _response_reset(&t.gathered)
            conn_close(t, c, WHY_MEMORY, 0)
        elif c.held_up_ns:
            _choose_thread(t, c)
        return
    _response_reset(&t.response)
    if outcome == HANDLER_PARKED:
        c.work = WORK_PARKED
        c.handler = handler
        request_parks(t, c)
    elif outcome == HANDLER_PYTHON:
        if t.questions.failed or not queue_push(t.network, c):
            conn_close(t, c, WHY_MEMORY, c.request.size_bytes)
            return
        c.work = WORK_PYTHON
        # Its handler continues when Python has decided on rights, or knows the quotas of its
        # client.
        c.parked.unfinished = (
            t.questions.size > 0 or (c.request.unmetered and c.request.native)
            or _has_no_answer(&c.request))
        c.request.asked_count += t.questions.size > 0
        _forget_questions(t)
        t.counters.python_requests += 1
    elif outcome == HANDLER_SILENT:
        if c.request.quota != NULL:
            _meter(t, c, NULL, 0, 0)
        request_done(t, c, False)
        if c.held_up_ns:
            _choose_thread(t, c)
    else:
        _send_gathered(t, c)
        conn_close(t, c, WHY_NATIVE, c.request.api_key)


# ------------------------------------------------------------------ quotas

cdef void _set_quotas(Connection* c, QuotaBinding* quota) noexcept nogil:
    quota_unbind(c.request.quota)
    c.request.quota = quota


cdef bint _is_metered(NetThread* t, Connection* c) noexcept nogil:
    """Returns whether the present quotas of the request's client are known."""
    return quota_fits(c.request.quota, atomic_load_i64(&t.network.quota_generation),
                      c.request.client_id, c.request.client_id_bytes)


cdef void conn_quotas(NetThread* t, Connection* c, Mail* mail) noexcept nogil:
    if c == NULL or c.work != WORK_PYTHON:
        quota_unbind(<QuotaBinding*>mail.bytes.data)
        return
    _set_quotas(c, <QuotaBinding*>mail.bytes.data)
    c.request.unmetered = False


cdef int64_t _used(NetThread* t, Connection* c, bint has_answer, int64_t local_ns) noexcept nogil:
    """Counts a finished request against its client's quotas. Returns how long the client must wait
    in ms: the longest wait of all quotas. A handler may have found a wait before (Fetch). As in
    Kafka, the time of a request without an answer counts for no quota."""
    cdef QuotaBinding* quota = c.request.quota
    cdef QuotaSensor* exceeded = quota.exceeded
    cdef int64_t wait_ms = quota.wait_ms
    cdef int64_t now_ms = t.metrics.clock_ns // NS_PER_MS
    cdef QuotaSensor* sensor = quota.sensors[QUOTA_PRODUCE]
    cdef int64_t found
    quota.wait_ms = 0
    quota.exceeded = NULL
    if c.request.api_key == PRODUCE and sensor != NULL:
        exceeded, wait_ms = sensor, quota_use(sensor, <double>c.request.size_bytes, now_ms)
    sensor = quota.sensors[QUOTA_REQUEST]
    if has_answer and sensor != NULL and c.request.api_key != WRITE_TXN_MARKERS:
        found = quota_use(sensor, local_ns * 1e-7, now_ms)      # percent of a second
        if found >= wait_ms:
            exceeded, wait_ms = sensor, found
    if wait_ms and exceeded != NULL:
        quota_waits(exceeded, wait_ms, now_ms)
    return wait_ms


cdef void _meter(NetThread* t, Connection* c, Response* answer, int64_t local_ns,
                 int64_t throttle_ms) noexcept nogil:
    """Ends a request of a client that has quotas, or that Python throttles. If the client must
    wait, sets the throttle time of its answer (NULL: none) and mutes the connection for that
    time."""
    cdef Request* q = &c.request
    if q.quota != NULL and atomic_load_i64(&t.network.quota_generation) == 0:
        _set_quotas(c, NULL)            # the last quota was removed
    if q.quota != NULL:
        throttle_ms = max(throttle_ms, _used(t, c, answer != NULL, local_ns))
    if throttle_ms <= 0:
        return
    if answer != NULL and 0 <= q.api_key < min(API_KEYS_MAX, t.network.key_count):
        throttle_write(q, answer, t.network.throttle_from[q.api_key],
                       0 <= t.network.flexible_from[q.api_key] <= q.api_version,
                       <int32_t>min(throttle_ms, <int64_t>INT32_MAX))
    c.work = WORK_MUTED
    c.muted_until_ns = t.metrics.clock_ns + throttle_ms * NS_PER_MS


cdef void _note_sending(NetThread* t, Connection* c) noexcept nogil:
    """Counts the time of sending answers, as Kafka does, without bytes that the socket did not
    accept at once, because the client may be slow."""
    cdef QuotaSensor* sensor = c.request.quota.sensors[QUOTA_REQUEST]
    if sensor != NULL:
        read_clock(t)
        quota_note(sensor, (t.metrics.clock_ns - c.sending_ns) * 1e-7,
                   t.metrics.clock_ns // NS_PER_MS)


cdef void _unmute(NetThread* t, Connection* c) noexcept nogil:
    c.work = WORK_NONE
    c.active_ns = t.now_ns
    _go_on(t, c)
    conn_settle(t, c)


# ------------------------------------------------------------------ bytes out

cdef void _send_gathered(NetThread* t, Connection* c) noexcept nogil:
    """Sends the collected answers, after the bytes that still wait."""
    if t.gathered.bytes.size == 0:
        return
    if c.fd < 0:
        answers_dropped(t)
        _response_reset(&t.gathered)
    elif _out_pending(c):
        if not _append(&c.out, &t.gathered):
            _response_reset(&t.gathered)
            conn_close(t, c, WHY_MEMORY, 0)
    else:
        c.out = t.gathered
        response_init(&t.gathered)
        c.out_sent = c.out_slice_sent = 0
        c.out_slice = 0
        c.progress_ns = t.now_ns
        c.sending_ns = t.metrics.clock_ns
        _flush(t, c)
        if c.request.quota != NULL:
            _note_sending(t, c)
    answers_left(t, c)


cdef void _flush(NetThread* t, Connection* c) noexcept nogil:
    """Sends until everything is sent, the socket is full, or the connection's turn is over."""
    cdef int64_t turn_bytes = TURN_BYTES
    cdef int64_t sent
    work_begins(t)
    while turn_bytes > 0:
        _skip_done_slices(c)
        if c.out_slice == c.out.slice_count and c.out_sent == c.out.bytes.size:
            _response_reset(&c.out)
            if t.gathered.bytes.data == NULL:
                t.gathered = c.out          # the thread uses its memory again
                response_init(&c.out)
            else:
                response_free(&c.out)
            c.active_ns = t.now_ns
            if c.request.memory != NULL:
                _release_memory(c)
            answers_sent(t, c)
            return
        sent = _send_some(t, c, turn_bytes)
        if sent == -EAGAIN:
            send_buffer_stalled(t, c)
            return
        if sent == -EINTR:
            continue
        if sent <= 0:
            conn_close(t, c, WHY_PEER if sent < 0 and sent != _FILE_ERROR else WHY_FILE, sent)
            return
        turn_bytes -= sent
        t.counters.bytes_out += sent
        c.progress_ns = t.now_ns
        _advance(c, sent)


cdef void _skip_done_slices(Connection* c) noexcept nogil:
    cdef ResponseSlice* s
    while c.out_slice < c.out.slice_count:
        s = &c.out.slices[c.out_slice]
        if c.out_sent < s.after_byte or c.out_slice_sent < s.slice.size_bytes:
            return
        segment_release(s.slice.segment)
        s.slice.segment = NULL
        c.out_slice += 1
        c.out_slice_sent = 0


cdef void _advance(Connection* c, int64_t sent) noexcept nogil:
    cdef int64_t until
    cdef int64_t step
    while sent:
        _skip_done_slices(c)
        until = c.out.bytes.size
        if c.out_slice < c.out.slice_count:
            until = c.out.slices[c.out_slice].after_byte
        if c.out_sent < until:
            step = until - c.out_sent if until - c.out_sent < sent else sent
            c.out_sent += step
        else:
            step = c.out.slices[c.out_slice].slice.size_bytes - c.out_slice_sent
            step = step if step < sent else sent
            c.out_slice_sent += step
        sent -= step


cdef inline int64_t _send_some(NetThread* t, Connection* c, int64_t bytes_max) noexcept nogil:
    """Sends with one call. Returns the number of bytes sent, -errno, 0 if the file was cut, or
    _FILE_ERROR if it cannot be read.

    One call sends bytes and file pieces below SLICE_SENDFILE_MIN; sendfile sends a large piece.
    """
    cdef iovec parts[PARTS_MAX]
    cdef int count = 0
    cdef bint more = False
    cdef int64_t staged = 0
    cdef int64_t at = c.out_sent
    cdef int32_t i = c.out_slice
    cdef int64_t slice_sent = c.out_slice_sent
    cdef int64_t left
    cdef int64_t got
    cdef int64_t until
    while True:
        until = c.out.slices[i].after_byte if i < c.out.slice_count else c.out.bytes.size
        if at < until:
            if count == PARTS_MAX:
                more = True
                break
            parts[count].iov_base = c.out.bytes.data + at
            parts[count].iov_len = until - at
            count += 1
            at = until
        if i == c.out.slice_count:
            break
        left = c.out.slices[i].slice.size_bytes - slice_sent
        if left >= SLICE_SENDFILE_MIN or staged + left > STAGE_BYTES or count == PARTS_MAX:
            more = True
            break
        if left:
            got = _read_slice(t, c, i, slice_sent, t.stage + staged, left)
            if got != left:
                return got if got == _FILE_ERROR else 0
            parts[count].iov_base = t.stage + staged
            parts[count].iov_len = left
            count += 1
            staged += left
        i += 1
        slice_sent = 0
    if c.transport != NULL:
        return _send_transported(t, c, parts, count, more, bytes_max)
    if count:
        return net_send(c.fd, parts, count, more)
    return _sendfile(t, c, bytes_max)


cdef int64_t _send_transported(NetThread* t, Connection* c, iovec* parts, int count, bint more,
                               int64_t bytes_max) noexcept nogil:
    """Does what _send_some does, over a transport: it reads at most STAGE_BYTES of a large piece,
    and sends them with the other bytes."""
    cdef int64_t left
    cdef int64_t got
    if count == 0:
        left = c.out.slices[c.out_slice].slice.size_bytes - c.out_slice_sent
        left = min(left, bytes_max, <int64_t>STAGE_BYTES)
        got = _read_slice(t, c, c.out_slice, c.out_slice_sent, t.stage, left)
        if got <= 0:
            return got
        parts[0].iov_base = t.stage
        parts[0].iov_len = got
        count = 1
        more = c.out_slice_sent + got < c.out.slices[c.out_slice].slice.size_bytes
    return c.transport.send(c.tls, parts, count, more)


cdef int64_t _read_slice(NetThread* t, Connection* c, int32_t i, int64_t skip, uint8_t* into,
                         int64_t size_bytes) noexcept nogil:
    cdef System* system = t.network.system
    cdef ResponseSlice* s = &c.out.slices[i]
    cdef int fd = segment_fd(s.slice.segment, system)
    cdef int64_t got
    if fd < 0:
        return _FILE_ERROR
    got = system.pread(system, fd, into, size_bytes, s.slice.position + skip)
    return _FILE_ERROR if got < 0 else got


cdef int64_t _sendfile(NetThread* t, Connection* c, int64_t bytes_max) noexcept nogil:
    cdef System* system = t.network.system
    cdef ResponseSlice* s = &c.out.slices[c.out_slice]
    cdef int64_t left = s.slice.size_bytes - c.out_slice_sent
    cdef int fd = segment_fd(s.slice.segment, system)
    if fd < 0:
        return _FILE_ERROR
    return system.sendfile(system, c.fd, fd, s.slice.position + c.out_slice_sent,
                           left if left < bytes_max else bytes_max)
