"""The request queue: the requests that Python answers, and the way of the answers back.

Any thread may answer a PendingRequest, once. `reply` copies the answer into C memory and posts it
to the inbox of the connection's network thread, which sends it. Next: barnabas.api.
"""
import socket

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from barnabas.cext.codec.buffer cimport Buffer, buffer_bytes, buffer_free, buffer_init
from barnabas.cext.codec.cursor cimport (
    Cursor, cursor_i32, cursor_i8, cursor_left, cursor_of, cursor_take,
)
from barnabas.cext.codec.endian cimport be32_load
from barnabas.cext.memory.atomics cimport atomic_add_i64, atomic_load_pointer
from barnabas.cext.network.closed_connections cimport CloseMark
from barnabas.cext.network.network_state cimport (
    LOGIN_CERTIFICATE, LOGIN_EXPIRING, LOGIN_FAILED, LOGIN_LEGACY07, LOGIN_NEEDED, LOGIN_OPEN,
    LOGIN_RAW_TOKENS, LOGIN_TOKENS,
    MAIL_CLOSE, MAIL_CLOSE_MARK, MAIL_LOGIN, MAIL_PRINCIPAL, MAIL_PROCEED, MAIL_PROCEED_MUFFLED,
    MAIL_REPLY, MAIL_SILENT, Mail,
    Network, PyRequest, budget_give, inbox_post,
)
from barnabas.cext.network.sockets cimport net_address, net_peer, net_port

# The states of a login: see Connection.login.
OPEN, EXPIRING, NEEDED, TOKENS = LOGIN_OPEN, LOGIN_EXPIRING, LOGIN_NEEDED, LOGIN_TOKENS
RAW_TOKENS, CERTIFICATE, FAILED = LOGIN_RAW_TOKENS, LOGIN_CERTIFICATE, LOGIN_FAILED
LEGACY07 = LOGIN_LEGACY07

cdef enum:
    SESSION_BYTES_MAX = 65536       # of the session of a connection, and of its principal

cdef bytes V4_MAPPED = b"\0" * 10 + b"\xff\xff"
# The last address and its text, because requests of one machine often follow each other.
cdef tuple _last_peer = (b"", "")


cdef tuple peer_of(const void* peer):
    """Returns (address as text, port)."""
    global _last_peer
    cdef uint8_t address[16]
    net_address(<const net_peer*>peer, address)
    cdef bytes packed = PyBytes_FromStringAndSize(<char*>address, 16)
    cdef tuple known = _last_peer
    if packed != known[0]:
        if packed.startswith(V4_MAPPED):
            known = packed, socket.inet_ntop(socket.AF_INET, packed[12:])
        else:
            known = packed, socket.inet_ntop(socket.AF_INET6, packed)
        _last_peer = known
    return known[1], net_port(<const net_peer*>peer)


cdef list questions_of(bytes noted):
    """Reads what permissions.pyx has noted."""
    cdef Cursor c = cursor_of(<const uint8_t*><const char*>noted, len(noted))
    cdef int operation, resource_type
    cdef int32_t name_bytes
    found = []
    while cursor_left(&c) > 0:
        operation, resource_type = cursor_i8(&c), cursor_i8(&c)
        name_bytes = cursor_i32(&c)
        found.append((
            operation, resource_type,
            PyBytes_FromStringAndSize(<char*>cursor_take(&c, name_bytes), name_bytes),
        ))
    return found


@cython.no_gc_clear         # __dealloc__ needs what it refers to
cdef class PendingRequest:
    """One request for Python. If it is dropped without an answer, its connection closes."""

    def __init__(self):
        raise TypeError("a PendingRequest comes from Reactor.next_request()")

    @property
    def peer(self) -> tuple[str, int]:
        return peer_of(&self._peer)

    @property
    def address(self) -> bytes:
        """The client's address in 16 bytes."""
        cdef uint8_t address[16]
        net_address(&self._peer, address)
        return PyBytes_FromStringAndSize(<char*>address, 16)

    @property
    def caller(self) -> bytes:
        """The client's address and principal, if answers depend on them; empty without an authorizer."""
        return b"" if atomic_load_pointer(&self._network.permissions) == NULL else self.address + self.principal

    @property
    def questions(self) -> list:
        """The rights that its native handler asks for: (operation, resource type, name) of each,
        with Kafka's numbers; empty for a request that Python must answer."""
        return questions_of(self._questions) if self._questions else []

    def reply(self, frame) -> None:
        """Sends the answer: one frame with its 4-byte size, as a bytes-like object or a list of
        such.

        Raises ValueError when the size prefix is wrong, RuntimeError when the request was answered
        before, and MemoryError.
        """
        cdef Mail mail
        if self._muffled:
            self.close()
            return
        self._start(&mail, MAIL_REPLY)
        try:
            if isinstance(frame, (list, tuple)):
                for part in frame:
                    _copy(&mail.bytes, part)
            else:
                _copy(&mail.bytes, frame)
            if mail.bytes.failed:
                raise MemoryError("no memory for the answer")
            if mail.bytes.size < (
                    4 if self.login == LOGIN_RAW_TOKENS or self.login == LOGIN_LEGACY07 else 8) \
                    or <int32_t>be32_load(mail.bytes.data) != mail.bytes.size - 4:
                raise ValueError(f"the size prefix is not that of a frame of {mail.bytes.size} bytes")
        except BaseException:
            buffer_free(&mail.bytes)
            raise
        self._post(&mail)

    def silent(self) -> None:
        """Completes the request without an answer; the connection continues."""
        cdef Mail mail
        self._start(&mail, MAIL_CLOSE if self._muffled else MAIL_SILENT)
        self._post(&mail)

    def waits(self) -> None:
        """Ends the handler's part; another thread answers. The time from now on counts as remote."""
        self._parked_ns = self._network.system.monotonic_ns(self._network.system)

    def leave(self) -> None:
        """Frees the handler for the next request; this or another thread answers the request."""
        self._runs_no_more()

    cdef void _runs_no_more(self) noexcept:
        if not self._ran:
            self._ran = True
            atomic_add_i64(&self._network.queue.running, -1)

    def close(self) -> None:
        """Closes the connection without an answer."""
        cdef Mail mail
        self._start(&mail, MAIL_CLOSE)
        self._post(&mail)

    def muffle(self) -> None:
        """Suppresses the answer: a present or later answer closes the connection instead."""
        self._muffled = True

    def proceed(self, *, bint again=False) -> None:
        """Passes a gated request to its native handler, which answers it unless it is muffled.
        `again`: the native handler has passed the request to Python, and can continue now. Raises
        RuntimeError for another request, and MemoryError."""
        cdef Mail mail
        if not self.gated and not again:
            raise RuntimeError("no handler waits for this request")
        self._start(&mail, MAIL_PROCEED_MUFFLED if self._muffled else MAIL_PROCEED)
        _copy(&mail.bytes, self.data)
        if mail.bytes.failed:
            buffer_free(&mail.bytes)
            raise MemoryError("no memory for the request")
        self._post(&mail)

    def proceed_as(self, frame) -> None:
        """Passes `frame`, a request without its 4-byte size, to its native handler in place of this
        request of Kafka 0.7. Raises RuntimeError for another request, and MemoryError."""
        cdef Mail mail
        if self.login != LOGIN_LEGACY07:
            raise RuntimeError("this is not a request of Kafka 0.7")
        self._start(&mail, MAIL_PROCEED)
        _copy(&mail.bytes, frame)
        if mail.bytes.failed:
            buffer_free(&mail.bytes)
            raise MemoryError("no memory for the request")
        self._post(&mail)

    def set_login(self, int login, bytes session not None, int64_t ends_ns=0) -> None:
        """Sets the login state of the connection, and the bytes that its next requests have as
        `session`. `ends_ns`: when a login that is EXPIRING ends, monotonic. It takes effect before
        the answer to this request is sent. Raises ValueError for another state or too many bytes,
        and MemoryError."""
        if not LOGIN_OPEN <= login <= LOGIN_FAILED:
            raise ValueError(f"there is no login state {login}")
        self._set(MAIL_LOGIN, login, session, ends_ns)

    def set_principal(self, bytes principal not None) -> None:
        """Sets the principal of the connection: User:NAME in UTF-8. Call it before the set_login()
        that opens the connection for other requests."""
        self._set(MAIL_PRINCIPAL, 0, principal, 0)

    cdef int _set(self, int kind, int login, bytes value, int64_t ends_ns) except -1:
        cdef Mail mail
        if len(value) > SESSION_BYTES_MAX:
            raise ValueError(f"more than {SESSION_BYTES_MAX} bytes of a login")
        self._start(&mail, kind)
        mail.fd = login
        mail.login_ends_ns = ends_ns
        _copy(&mail.bytes, value)
        if mail.bytes.failed:
            buffer_free(&mail.bytes)
            raise MemoryError("no memory for the login of a connection")
        if not inbox_post(self._network.threads[self._thread_index], &mail):
            raise MemoryError("no memory for the login of a connection")
        return 0

    def throttle(self, int64_t throttle_ms) -> None:
        """Makes the client wait for throttle_ms after its answer, which gets this throttle time."""
        self._throttle_ms = max(self._throttle_ms, throttle_ms)

    def report_close(self) -> None:
        """Makes Reactor.next_closed() return this connection's id when it closes, or if it has
        closed already. Call it before the answer: afterwards the connection may move to another
        thread, and would be reported as closed. Raises MemoryError."""
        cdef Mail mail
        cdef CloseMark* close_mark = <CloseMark*>malloc(sizeof(CloseMark))
        cdef bint posted
        if close_mark == NULL:
            raise MemoryError("no memory for the mark of a connection")
        close_mark.connection_id = self.connection_id
        memset(&mail, 0, sizeof(Mail))
        mail.kind = MAIL_CLOSE_MARK
        mail.connection_id = self.connection_id
        mail.bytes.data = <uint8_t*>close_mark
        with nogil:
            posted = inbox_post(self._network.threads[self._thread_index], &mail)
        if not posted:
            raise MemoryError("no memory for the mark of a connection")

    cdef int _start(self, Mail* mail, int kind) except -1:
        if self._answered:
            raise RuntimeError("this request was answered before")
        memset(mail, 0, sizeof(Mail))
        mail.kind = <char>kind
        mail.connection_id = self.connection_id
        buffer_init(&mail.bytes)
        return 0

    cdef int _post(self, Mail* mail) except -1:
        cdef bint posted
        if self._answered:              # another thread was faster
            buffer_free(&mail.bytes)
            raise RuntimeError("this request was answered before")
        self._answered = True
        mail.dequeued_ns = self._dequeued_ns
        mail.parked_ns = self._parked_ns
        mail.answered_ns = self._network.system.monotonic_ns(self._network.system)
        mail.throttle_ms = self._throttle_ms
        budget_give(self._network, self._held_bytes)
        # It keeps the GIL: the inbox is never locked for long, and releasing the GIL for each of
        # many answers would make threads with little work exchange it all the time.
        posted = inbox_post(self._network.threads[self._thread_index], mail)
        if not posted:
            raise MemoryError("no memory for the answer")
        return 0

    def __dealloc__(self):
        cdef Mail mail
        if self._network != NULL:
            self._runs_no_more()
        if self._network != NULL and not self._answered:
            memset(&mail, 0, sizeof(Mail))
            mail.kind = MAIL_CLOSE
            mail.connection_id = self.connection_id
            budget_give(self._network, self._held_bytes)
            inbox_post(self._network.threads[self._thread_index], &mail)


cdef int _copy(Buffer* into, object part) except -1:
    cdef Py_buffer view
    PyObject_GetBuffer(part, &view, PyBUF_SIMPLE)
    buffer_bytes(into, view.buf, view.len)
    PyBuffer_Release(&view)
    return 0


cdef object pending_request(object owner, Network* network, list listener_names, PyRequest* r):
    """Takes over `r`."""
    cdef const uint8_t* behind = r.request.data + r.request.size_bytes
    cdef PendingRequest p
    try:
        p = PendingRequest.__new__(PendingRequest)
        p._owner = owner
        p._network = network
        p._peer = r.peer
        p._thread_index = r.request.thread_index
        p._held_bytes = r.held_bytes
        p._dequeued_ns = network.system.monotonic_ns(network.system)
        p.connection_id = r.request.connection_id
        p.api_key = r.request.api_key
        p.api_version = r.request.api_version
        p.correlation_id = r.request.correlation_id
        p.body_at = r.request.body_at
        p.received_ns = r.request.received_ns
        p.gated = r.request.gated
        p.unmetered = r.request.unmetered
        p.native = r.request.native
        p.client_id_bytes = r.request.client_id_bytes
        p.login = r.login
        p.principal = PyBytes_FromStringAndSize(<char*>behind, r.principal_bytes)
        p.session = PyBytes_FromStringAndSize(
            <char*>(behind + r.principal_bytes), r.session_bytes)
        p._questions = PyBytes_FromStringAndSize(
            <char*>(behind + r.principal_bytes + r.session_bytes), r.questions_bytes)
        p.listener_index = r.request.listener_index
        p.listener = listener_names[r.request.listener_index]
        p.data = PyBytes_FromStringAndSize(<char*>r.request.data, r.request.size_bytes)
        if r.request.client_id != NULL:
            p.client_id = PyUnicode_DecodeUTF8(
                <char*>r.request.client_id, r.request.client_id_bytes, "replace"
            )
        return p
    finally:
        free(r)
