"""The JoinGroup lane: members that join at once come to Python without its dispatch.

Who may join is Python's to say (barnabas.groups). The network thread takes the request apart,
queues a copy of it and parks the connection; one Python thread takes jobs (JoinQueue.next), whose
attributes are the request's fields, and whoever has the answer calls the job with it, from any
thread, now or when the generation begins. Whatever is not plain takes the way of other requests:
damage, text that is not ASCII, tagged fields, more than PLAIN_BYTES_MAX.

    JoinGroupRequest    groupId, session ms, rebalance ms (1+), memberId, instanceId (5+),
                        protocol type, [name, metadata], reason (8+)
    JoinGroupResponse   throttle (2+), error, generation, protocol type (7+), protocol name, leader,
                        skip assignment (9+), memberId, [memberId, instanceId (5+), metadata]
                        both flexible from 6

Limits: the queue's depth; beyond it requests take the other way. A job let fall without an answer
closes its connection. Next on the data path: broker/coordinator/groups/joins.py.
"""
from sys import intern

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport INT16_MAX, INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from barnabas.cext.codec.buffer cimport (
    Buffer, buffer_bytes, buffer_free, buffer_i16, buffer_i32, buffer_i8, buffer_init,
    buffer_uvarint,
)
from barnabas.cext.codec.cursor cimport Cursor, cursor_i32, cursor_left, cursor_of, cursor_take
from barnabas.cext.codec.fields cimport (
    read_bytes, read_count, read_no_tags, read_string, write_bytes, write_count, write_no_tags,
    write_null_string, write_string,
)
from barnabas.cext.memory.job_queue cimport (
    Job, JOB_QUEUED, JOB_WORKING, JobQueue, Jobs, jobs_done, jobs_is_done, jobs_put, jobs_remove,
)
from barnabas.cext.memory.mutex cimport pthread_mutex_lock, pthread_mutex_unlock
from barnabas.cext.memory.waker cimport Waker
from barnabas.cext.network.handler cimport (
    Lane, LANE_CLOSE, LANE_DONE, lane_of, LANE_PARKED, LANE_PYTHON, lane_parks, LaneHandle, Parked,
    Request, request_error, Response, response_begin, response_end,
)
from barnabas.cext.network.request_queue cimport peer_of
from barnabas.cext.network.sockets cimport net_peer

cdef enum:
    KEY = 11
    VERSION_LAST = 9
    VERSION_REBALANCE = 1
    VERSION_THROTTLE = 2
    VERSION_ID_REQUIRED = 4
    VERSION_INSTANCE = 5
    VERSION_FLEXIBLE = 6
    VERSION_TYPE = 7
    VERSION_REASON = 8
    VERSION_SKIP = 9
    PLAIN_BYTES_MAX = 65536

cdef struct Work:                   # a parked request
    Job job                         # first: what the queue links
    Core* core
    int32_t thread_index
    uint64_t connection_id
    bint dropped                    # the request is gone: freed when it is answered
    bint closes                     # nobody answered
    int16_t error
    int16_t version
    uint8_t* frame                  # a copy, until Python has read it
    int64_t body_at
    int64_t size_bytes
    const uint8_t* client_id        # in it
    int32_t client_id_bytes
    net_peer peer
    Buffer answer                   # behind the header

cdef struct Core:
    Lane lane
    Jobs* jobs
    Waker* waker

cdef struct Fields:                 # a request
    const uint8_t* group
    const uint8_t* member
    const uint8_t* instance
    const uint8_t* type
    int32_t group_bytes
    int32_t member_bytes
    int32_t instance_bytes          # -1: null
    int32_t type_bytes
    int32_t session_ms
    int32_t rebalance_ms
    int32_t protocol_count          # what follows in the cursor


# -------------------------------------------------------------------------------- the request

cdef bint _is_ascii(const uint8_t* p, int32_t n) noexcept nogil:
    cdef uint8_t seen = 0
    cdef int32_t i
    for i in range(n):
        seen |= p[i]
    return seen < 0x80

cdef const uint8_t* _text(Cursor* c, bint flexible, bint nullable, int32_t* size_bytes) noexcept nogil:
    cdef const uint8_t* p = read_string(c, flexible, nullable, size_bytes)
    c.bad = c.bad or not _is_ascii(p, size_bytes[0])
    return p

cdef void _read_fields(Cursor* c, int16_t version, Fields* f) noexcept nogil:
    """Up to the protocols."""
    cdef bint flexible = version >= VERSION_FLEXIBLE
    f.group = _text(c, flexible, False, &f.group_bytes)
    f.session_ms = cursor_i32(c)
    f.rebalance_ms = cursor_i32(c) if version >= VERSION_REBALANCE else f.session_ms
    f.member = _text(c, flexible, False, &f.member_bytes)
    f.instance, f.instance_bytes = NULL, -1
    if version >= VERSION_INSTANCE:
        f.instance = _text(c, flexible, True, &f.instance_bytes)
    f.type = _text(c, flexible, False, &f.type_bytes)
    f.protocol_count = read_count(c, flexible)

cdef bint _is_plain(const Request* r) noexcept nogil:
    cdef Cursor c = cursor_of(r.data + r.body_at, r.size_bytes - r.body_at)
    cdef bint flexible = r.api_version >= VERSION_FLEXIBLE
    cdef int32_t size_bytes, i
    cdef Fields f
    _read_fields(&c, r.api_version, &f)
    for i in range(f.protocol_count):
        _text(&c, flexible, False, &size_bytes)
        read_bytes(&c, flexible, &size_bytes)
        read_no_tags(&c, flexible)
    if r.api_version >= VERSION_REASON:
        read_string(&c, flexible, True, &size_bytes)
    read_no_tags(&c, flexible)
    return not c.bad and cursor_left(&c) == 0


# -------------------------------------------------------------------------------- the lane

cdef bint _takes(void* context, int16_t api_key, int16_t api_version) noexcept nogil:
    return api_key == KEY and 0 <= api_version <= VERSION_LAST

cdef Work* _work(Core* core, const Request* r) noexcept nogil:
    cdef Work* work = <Work*>malloc(sizeof(Work))
    if work == NULL:
        return NULL
    work.frame = <uint8_t*>malloc(r.size_bytes)
    if work.frame == NULL:
        free(work)
        return NULL
    memcpy(work.frame, r.data, r.size_bytes)
    work.core = core
    work.thread_index, work.connection_id = r.thread_index, r.connection_id
    work.dropped = work.closes = False
    work.error, work.version = 0, r.api_version
    work.body_at, work.size_bytes = r.body_at, r.size_bytes
    work.client_id = NULL if r.client_id == NULL else work.frame + (r.client_id - r.data)
    work.client_id_bytes = r.client_id_bytes
    work.peer = (<const net_peer*>r.peer)[0]
    buffer_init(&work.answer)
    return work

cdef void _free(Work* work) noexcept nogil:
    buffer_free(&work.answer)
    free(work.frame)
    free(work)

cdef int _handle(void* context, Request* r, Response* out, Parked* parked) noexcept nogil:
    cdef Core* core = <Core*>context
    cdef Work* work
    cdef bint queued
    if r.peer == NULL or r.size_bytes > PLAIN_BYTES_MAX or not _is_plain(r):
        return LANE_PYTHON
    work = _work(core, r)
    if work == NULL:
        return LANE_CLOSE
    pthread_mutex_lock(&core.jobs.lock)
    queued = jobs_put(core.jobs, &work.job)
    pthread_mutex_unlock(&core.jobs.lock)
    if not queued:
        _free(work)
        return LANE_PYTHON
    return lane_parks(parked, work, INT64_MAX)

cdef void _drop(Work* work) noexcept nogil:
    """The request is gone. Under the queue's lock."""
    if work.job.state == JOB_QUEUED:
        jobs_remove(work.core.jobs, &work.job)
    if work.job.state == JOB_WORKING:
        work.dropped = True
    else:
        _free(work)

cdef int _resume(void* context, Request* r, Response* out, Parked* parked, bint expired) noexcept nogil:
    cdef Core* core = <Core*>context
    cdef Work* work = <Work*>parked.state
    cdef bint flexible = r.api_version >= VERSION_FLEXIBLE
    cdef int outcome = LANE_DONE
    # Without the lock, for which many that are woken at once would wait.
    if not jobs_is_done(&work.job):
        return lane_parks(parked, work, INT64_MAX)
    if work.closes or work.answer.failed:
        outcome = LANE_CLOSE
    else:
        response_begin(out, r.correlation_id, flexible)
        buffer_bytes(&out.bytes, work.answer.data, work.answer.size)
        response_end(out)
        request_error(r, work.error)
    _free(work)
    return LANE_CLOSE if out.bytes.failed else outcome

cdef void _abandon(void* context, Parked* parked) noexcept nogil:
    cdef Core* core = <Core*>context
    pthread_mutex_lock(&core.jobs.lock)
    _drop(<Work*>parked.state)
    pthread_mutex_unlock(&core.jobs.lock)

cdef void _finish(Work* work) noexcept nogil:
    cdef Core* core = work.core
    cdef int32_t thread_index = work.thread_index
    cdef uint64_t connection_id = work.connection_id
    pthread_mutex_lock(&core.jobs.lock)
    core.jobs.done_count += 1
    if work.dropped:
        _free(work)
    else:
        jobs_done(&work.job)        # from here on it may be freed
        core.waker.wake(core.waker.context, thread_index, connection_id)
    pthread_mutex_unlock(&core.jobs.lock)


# -------------------------------------------------------------------------------- Python's side

cdef inline str _str(const uint8_t* p, int32_t n):
    return PyUnicode_DecodeUTF8(<char*>p, n, NULL)

cdef int _write_text(Buffer* b, bint flexible, object text) except -1:
    """`text`: a str, or None where it may be null. One that no version can tell fails the answer."""
    cdef Py_ssize_t size
    cdef const char* raw
    if text is None:
        write_null_string(b, flexible)
        return 0
    raw = PyUnicode_AsUTF8AndSize(text, &size)
    if size > INT16_MAX:
        b.failed = True
    else:
        write_string(b, flexible, raw, <int32_t>size)
    return 0


cdef class JoinQueue(JobQueue):
    """The joins of one broker."""
    cdef Core core

    def __cinit__(self, *args, **options):
        self.core.jobs = self.jobs
        self.core.lane = lane_of(&self.core, _takes, _handle, _resume, _abandon)

    def next(self, int64_t timeout_ms=-1):
        """The next JoinJob; None after timeout_ms (-1: no end) or when the queue is closed."""
        cdef Work* work
        cdef JoinJob job
        with nogil:
            work = <Work*>self.take(timeout_ms)
        if work == NULL:
            return None
        job = JoinJob.__new__(JoinJob)
        job.queue = self
        job.work = work
        job.read()
        return job


@cython.no_gc_clear         # __dealloc__ needs what it refers to
cdef class JoinJob:
    """One JoinGroup request, with the attributes of barnabas.coordinator.groups.rebalance.Join. Answered by a
    call with a barnabas.coordinator.groups.classic_group.JoinResult, once."""
    cdef JoinQueue queue
    cdef Work* work
    cdef readonly str group_id
    cdef readonly str member_id
    cdef readonly object instance_id
    cdef readonly str client_id
    cdef readonly str client_host
    cdef readonly int session_timeout_ms
    cdef readonly int rebalance_timeout_ms
    cdef readonly str protocol_type
    cdef readonly list protocols
    cdef readonly bint id_required
    cdef readonly bint can_skip_assignment

    def __init__(self):
        raise TypeError("joins come from a JoinQueue")

    cdef int read(self) except -1:
        cdef Work* work = self.work
        cdef bint flexible = work.version >= VERSION_FLEXIBLE
        cdef Cursor c = cursor_of(work.frame + work.body_at, work.size_bytes - work.body_at)
        cdef int32_t name_bytes, metadata_bytes, i
        cdef const uint8_t* name
        cdef const uint8_t* metadata
        cdef Fields f
        _read_fields(&c, work.version, &f)
        self.group_id = _str(f.group, f.group_bytes)
        self.member_id = _str(f.member, f.member_bytes)
        self.instance_id = None if f.instance_bytes < 0 else _str(f.instance, f.instance_bytes)
        # What many members have in common is kept once.
        self.client_id = "" if work.client_id == NULL else intern(
            PyUnicode_DecodeUTF8(<char*>work.client_id, work.client_id_bytes, "replace"))
        self.client_host = intern("/" + <str>peer_of(&work.peer)[0])
        self.session_timeout_ms, self.rebalance_timeout_ms = f.session_ms, f.rebalance_ms
        self.protocol_type = intern(_str(f.type, f.type_bytes))
        self.protocols = []
        for i in range(f.protocol_count):
            name = read_string(&c, flexible, False, &name_bytes)
            metadata = read_bytes(&c, flexible, &metadata_bytes)
            read_no_tags(&c, flexible)
            self.protocols.append((
                intern(_str(name, name_bytes)),
                PyBytes_FromStringAndSize(<char*>metadata, metadata_bytes),
            ))
        self.id_required = work.version >= VERSION_ID_REQUIRED
        self.can_skip_assignment = work.version >= VERSION_SKIP
        free(work.frame)        # it may wait for long
        work.frame = NULL
        return 0

    def __call__(self, result) -> None:
        """Raises RuntimeError the second time."""
        cdef Work* work = self.work
        if work == NULL:
            raise RuntimeError("this request was answered before")
        self.write(&work.answer, result)
        self.work = NULL
        _finish(work)           # with the GIL: the queue's lock is never held for long

    cdef int write(self, Buffer* b, result) except -1:
        cdef Work* work = self.work
        cdef int16_t version = work.version
        cdef bint flexible = version >= VERSION_FLEXIBLE
        b.size = 0              # of an answer that could not be written
        (error, member_id, generation, protocol_type, name, leader, members, skips) = result
        work.error = 0 if error is None else error.code
        if version >= VERSION_THROTTLE:
            buffer_i32(b, 0)
        buffer_i16(b, work.error)
        buffer_i32(b, generation)
        if version >= VERSION_TYPE:
            _write_text(b, flexible, protocol_type)
        elif name is None:
            name = ""
        _write_text(b, flexible, name)
        _write_text(b, flexible, leader)
        if version >= VERSION_SKIP:
            buffer_i8(b, bool(skips))
        _write_text(b, flexible, member_id)
        write_count(b, flexible, len(members))
        for other_id, instance_id, metadata in members:
            _write_text(b, flexible, other_id)
            if version >= VERSION_INSTANCE:
                _write_text(b, flexible, instance_id)
            write_bytes(b, flexible, <const char*>(<bytes>metadata), <int32_t>len(metadata))
            write_no_tags(b, flexible)
        write_no_tags(b, flexible)
        return 0

    def __dealloc__(self):
        if self.work != NULL:
            self.work.closes = True
            _finish(self.work)


cdef class JoinLane(LaneHandle):
    """Queues the joins."""

    def __cinit__(self, JoinQueue queue not None):
        self.lane = &queue.core.lane
        self.owner = queue

    def __init__(self, queue):
        pass

    cdef void bind(self, Waker* waker):
        (<Core*>self.lane.context).waker = waker
