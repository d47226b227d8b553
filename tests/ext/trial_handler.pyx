# cython: language_level=3, cdivision=True
"""A handler for the reactor's tests: answers, parks, refuses and sends file slices on demand.

    key 100  answers with its body             key 103  is silent
    key 101  parks for int32 ms; answers       key 104  sends it on to Python
             "woken" or "expired"              key 105  answers with slices: body is
    key 102  closes                                     (int64 position, int64 size)*
    key 106  parks; a wake sends it on to Python
    key 107  answers with the principal of its connection
    key 108  keeps its network thread for int32 ms; answers with the thread's name
    key 109  does the same and is silent
    key 110  parks as 101; when it goes on, it keeps its network thread for 60 ms
    key 111  asks Python for a right to the topic `t`
    key 112  computes for int32 ms, then answers with an empty body
"""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset, strlen
from posix.unistd cimport usleep

from barnabas.cext.codec.buffer cimport buffer_bytes, buffer_i8, buffer_i32
from barnabas.cext.codec.cursor cimport Cursor, cursor_i32, cursor_i64, cursor_left, cursor_of
from barnabas.cext.log.log cimport LogSlice
from barnabas.cext.log.segment cimport (
    Segment, SegmentCache, segment_new, segment_release, segment_retain,
)
from barnabas.cext.memory.atomics cimport atomic_add_i64, atomic_load_i64
from barnabas.cext.memory.waker cimport Waker
from barnabas.cext.network.handler cimport (
    HANDLER_CLOSE, HANDLER_DONE, HANDLER_PARKED, HANDLER_PYTHON, HANDLER_SILENT, Handler, NativeHandler, Parked, Request,
    Response, response_add_slice, response_begin, response_end,
)

cdef extern from *:
    """
    #include <time.h>
    static int64_t thread_clock_ns(void) {
        struct timespec t;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    }
    """
    int64_t thread_clock_ns() nogil

cdef extern from "<pthread.h>" nogil:
    ctypedef unsigned long pthread_t
    pthread_t pthread_self()
    int pthread_getname_np(pthread_t thread, char* name, size_t size)


cdef struct State:
    uint8_t* data
    uint32_t sum


cdef struct Trial:
    Segment* segment
    Waker waker
    int64_t parked
    int64_t abandoned
    int64_t moved
    int64_t last_connection
    int64_t last_thread


cdef uint32_t _sum(Request* q) noexcept nogil:
    cdef uint32_t total = 0
    cdef int64_t i
    for i in range(q.size_bytes):
        total = total * 31 + q.data[i]
    return total


cdef int _handle(void* context, Request* q, Response* out, Parked* parked) noexcept nogil:
    cdef Trial* trial = <Trial*>context
    cdef Cursor c = cursor_of(q.data + q.body_at, q.size_bytes - q.body_at)
    cdef State* state
    cdef char name[16]
    if q.api_key == 102:
        return HANDLER_CLOSE
    if q.api_key == 111:
        buffer_i8(q.questions, 3)
        buffer_i8(q.questions, 2)
        buffer_i32(q.questions, 1)
        buffer_bytes(q.questions, "t", 1)
        return HANDLER_PYTHON
    if q.api_key == 108 or q.api_key == 109:
        usleep(cursor_i32(&c) * 1000)
    if q.api_key == 103 or q.api_key == 109:
        return HANDLER_SILENT
    if q.api_key == 104:
        return HANDLER_PYTHON
    if q.api_key == 101 or q.api_key == 106 or q.api_key == 110:
        state = <State*>malloc(sizeof(State))
        state.data = q.data
        state.sum = _sum(q)
        parked.state = state
        parked.deadline_ns = q.received_ns + <int64_t>cursor_i32(&c) * 1000000
        trial.last_connection = <int64_t>q.connection_id
        trial.last_thread = q.thread_index
        atomic_add_i64(&trial.parked, 1)
        return HANDLER_PARKED
    response_begin(out, q.correlation_id, False)
    if q.api_key == 112:
        _compute(<int64_t>cursor_i32(&c) * 1000000)
    elif q.api_key == 100:
        buffer_bytes(&out.bytes, c.p, cursor_left(&c))
    elif q.api_key == 107:
        buffer_bytes(&out.bytes, q.principal, q.principal_bytes)
    elif q.api_key == 108:
        pthread_getname_np(pthread_self(), name, sizeof(name))
        buffer_bytes(&out.bytes, name, strlen(name))
    else:
        _slices(trial, &c, out)
    response_end(out)
    return HANDLER_DONE


cdef void _compute(int64_t ns) noexcept nogil:
    cdef int64_t ends_ns = thread_clock_ns() + ns
    while thread_clock_ns() < ends_ns:
        pass


cdef void _slices(Trial* trial, Cursor* c, Response* out) noexcept nogil:
    cdef LogSlice piece
    while cursor_left(c):
        buffer_bytes(&out.bytes, "<", 1)
        piece.segment = trial.segment
        piece.position = cursor_i64(c)
        piece.size_bytes = cursor_i64(c)
        segment_retain(piece.segment)
        response_add_slice(out, &piece)
    buffer_bytes(&out.bytes, ">", 1)


cdef int _resume(void* context, Request* q, Response* out, Parked* parked, bint expired) noexcept nogil:
    cdef Trial* trial = <Trial*>context
    cdef State* state = <State*>parked.state
    if state.data != q.data or state.sum != _sum(q):
        atomic_add_i64(&trial.moved, 1)
    atomic_add_i64(&trial.parked, -1)
    free(state)
    if q.api_key == 110:
        usleep(60000)
    if q.api_key == 106:
        return HANDLER_PYTHON
    response_begin(out, q.correlation_id, False)
    buffer_bytes(&out.bytes, "expired" if expired else "woken", 7 if expired else 5)
    response_end(out)
    return HANDLER_DONE


cdef void _abandon(void* context, Parked* parked) noexcept nogil:
    cdef Trial* trial = <Trial*>context
    free(parked.state)
    atomic_add_i64(&trial.parked, -1)
    atomic_add_i64(&trial.abandoned, 1)


cdef class TrialHandler(NativeHandler):
    cdef Trial trial

    def __cinit__(self, SegmentCache cache=None, bytes directory=b""):
        memset(&self.trial, 0, sizeof(Trial))
        self.owner = cache
        if cache is not None:
            self.trial.segment = segment_new(cache.pool, PyBytes_AS_STRING(directory), 0)
        self.declare(
            tuple((key, 0, 32767) for key in range(100, 113)),
            &self.trial, _handle, _resume, _abandon)

    def __dealloc__(self):
        if self.trial.segment != NULL:
            segment_release(self.trial.segment)

    cdef void bind(self, Waker* waker):
        self.trial.waker = waker[0]

    def wake(self, int thread, uint64_t connection_id, int times=1):
        cdef int i
        with nogil:
            for i in range(times):
                self.trial.waker.wake(self.trial.waker.context, thread, connection_id)

    def wake_last(self):
        self.wake(<int>self.trial.last_thread, <uint64_t>self.trial.last_connection)

    @property
    def parked(self):
        return atomic_load_i64(&self.trial.parked)

    @property
    def abandoned(self):
        return self.trial.abandoned

    @property
    def moved(self):
        return self.trial.moved

    @property
    def segment_references(self):
        return self.trial.segment.references
