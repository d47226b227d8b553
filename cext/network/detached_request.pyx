"""A request to a native handler without a connection, so that tests can call handlers step by step.

Only `resume` resumes a request that waits: the caller decides what happens in between.
Next on the data path: cext/network/connection.pyx, which makes the same calls for a connection.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from barnabas.cext.codec.cursor cimport (
    Cursor, cursor_i16, cursor_i32, cursor_of, cursor_take, cursor_uvarint,
)
from barnabas.cext.memory.memory_limit cimport memory_release
from barnabas.cext.network.handler cimport (
    HANDLER_DONE, HANDLER_PARKED, HANDLER_PYTHON, HANDLER_SILENT, NativeHandler, Parked, Request,
    Response, response_free, response_init,
)

cdef enum:
    SIZE_PREFIX_BYTES = 4
    LOCAL_THREAD = -1               # wakes go to Python threads: partitions.pxd


cdef class DetachedRequest:
    """One request, which is handled at once. `frame`: with its size prefix; `flexible`: whether the
    header has tagged fields; `received_ns`: on the clock of the handler's waits. Raises ValueError
    for a damaged header, MemoryError, and ConnectionError where a connection would be closed."""
    cdef NativeHandler owner
    cdef Request request
    cdef Response response
    cdef Parked parked
    cdef int outcome

    def __cinit__(
        self, NativeHandler handler not None, bytes frame not None, *, bint flexible,
        int64_t received_ns, uint64_t connection_id=1,
    ):
        memset(&self.request, 0, sizeof(Request))
        memset(&self.parked, 0, sizeof(Parked))
        response_init(&self.response)
        self.owner = handler
        self.request.received_ns, self.request.connection_id = received_ns, connection_id
        self.request.thread_index = LOCAL_THREAD
        self.read(frame, flexible)
        with nogil:
            self.outcome = handler.handler.handle(
                handler.handler.context, &self.request, &self.response, &self.parked)
        self.check()

    def __init__(self, handler, frame, **_options):
        pass

    def __dealloc__(self):
        if self.parked.state != NULL:
            self.owner.handler.abandon(self.owner.handler.context, &self.parked)
        response_free(&self.response)
        memory_release(self.request.memory)
        free(self.request.data)

    cdef int read(self, bytes frame, bint flexible) except -1:
        cdef Request* r = &self.request
        cdef Cursor c
        r.size_bytes = len(frame) - SIZE_PREFIX_BYTES
        r.data = <uint8_t*>malloc(max(r.size_bytes, 1))
        if r.data == NULL:
            raise MemoryError
        memcpy(r.data, PyBytes_AS_STRING(frame) + SIZE_PREFIX_BYTES, max(r.size_bytes, 0))
        c = cursor_of(r.data, r.size_bytes)
        r.api_key, r.api_version = cursor_i16(&c), cursor_i16(&c)
        r.correlation_id = cursor_i32(&c)
        r.client_id_bytes = cursor_i16(&c)
        if r.client_id_bytes >= 0:
            r.client_id = cursor_take(&c, r.client_id_bytes)
        if c.bad or (flexible and cursor_uvarint(&c, 5) != 0):
            raise ValueError("the header is damaged, or has tagged fields")
        r.body_at = c.p - r.data
        return 0

    cdef int check(self) except -1:
        if self.outcome not in (HANDLER_DONE, HANDLER_PARKED, HANDLER_PYTHON, HANDLER_SILENT):
            raise ConnectionError("the handler closes the connection")
        return 0

    @property
    def answer(self):
        """The response with its size prefix; None while the request waits, or if it has no response."""
        if self.outcome != HANDLER_DONE:
            return None
        return PyBytes_FromStringAndSize(
            <const char*>self.response.bytes.data, self.response.bytes.size)

    @property
    def deadline_ns(self):
        """When the wait ends, in ns on the clock of received_ns; 0: the request does not wait."""
        return self.parked.deadline_ns if self.outcome == HANDLER_PARKED else 0

    @property
    def is_for_python(self):
        return self.outcome == HANDLER_PYTHON

    def resume(self, *, bint expired=False):
        """Resumes the request; `expired`: its deadline has passed. Returns `answer`. Raises
        ConnectionError where a connection would be closed."""
        if self.outcome == HANDLER_PARKED:
            with nogil:
                self.outcome = self.owner.handler.resume(
                    self.owner.handler.context, &self.request, &self.response, &self.parked,
                    expired)
            self.check()
        return self.answer
