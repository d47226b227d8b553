"""Decode jobs: gzip and zstd bodies, and batches to be compressed anew, are Python threads' work.

The network thread checks header and CRC, queues a job and parks the request. A Python thread takes
it (DecodeQueue.next), inflates with the packages, gives the bytes to done(): the check of the
records runs there without the GIL, the verdict is kept in the job, and when the last job of the
request is done the connection is woken and the one produce path goes on.

Limits: depth_max jobs queued; one that does not fit is refused and the producer may try again. A
job in the queue holds no copy of its batch, the request does, which the reactor's budget bounds.
Next on the data path: cext/validate.pyx; broker/server/decode_pool.py takes the jobs.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from barnabas.cext.condition cimport (
    condition_init, condition_wait_until, monotonic_now_ns, pthread_cond_broadcast,
    pthread_cond_destroy, pthread_cond_signal, pthread_cond_wait,
)
from barnabas.cext.crc cimport crc32c
from barnabas.cext.endian cimport be16_store, be32_store
from barnabas.cext.mutex cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)
from barnabas.cext.partitions cimport COUNT_REJECTED_OTHER, COUNT_REJECTED_TOO_LARGE, table_wake
from barnabas.cext.records cimport (
    AT_ATTRIBUTES, AT_BATCH_LENGTH, AT_CRC, ATTR_CODEC_MASK, LOG_OVERHEAD, batch_size,
)
from barnabas.cext.validate cimport body_check, verdict_of

cdef enum:
    ERROR_UNKNOWN_SERVER_ERROR = -1
    ERROR_MESSAGE_TOO_LARGE = 10


cdef void decode_group_init(
    DecodeGroup* group, Table* table, int32_t thread_index, uint64_t connection_id,
) noexcept nogil:
    group.table = table
    group.thread_index = thread_index
    group.connection_id = connection_id
    group.pending = 0
    group.first = NULL


cdef bint decode_submit(
    DecodeJobs* jobs, DecodeGroup* group, const uint8_t* batch, const BatchHeader* h,
    const BodyRules* rules, int target_codec, int64_t size_max,
) noexcept nogil:
    cdef DecodeWork* work = <DecodeWork*>calloc(1, sizeof(DecodeWork))
    if work == NULL:
        return False
    work.group = group
    work.batch = batch
    work.h = h[0]
    memcpy(work.header, batch, BATCH_OVERHEAD)
    work.rules = rules[0]
    work.target_codec = target_codec
    work.size_max = size_max
    pthread_mutex_lock(&jobs.lock)
    if jobs.closed or jobs.depth >= jobs.depth_max:
        jobs.refused_count += 1
        pthread_mutex_unlock(&jobs.lock)
        free(work)
        return False
    work.sibling = group.first
    group.first = work
    group.pending += 1
    if jobs.tail != NULL:
        jobs.tail.next = work
    else:
        jobs.head = work
    jobs.tail = work
    jobs.depth += 1
    pthread_cond_signal(&jobs.work)
    pthread_mutex_unlock(&jobs.lock)
    return True


cdef int32_t decode_pending(DecodeJobs* jobs, DecodeGroup* group) noexcept nogil:
    cdef int32_t pending
    pthread_mutex_lock(&jobs.lock)
    pending = group.pending
    pthread_mutex_unlock(&jobs.lock)
    return pending


cdef DecodeWork* decode_result(DecodeGroup* group, const uint8_t* batch) noexcept nogil:
    cdef DecodeWork* work = group.first
    while work != NULL and (work.batch != batch or work.state != JOB_DONE):
        work = work.sibling
    return work


cdef void _work_free(DecodeWork* work) noexcept nogil:
    free(work.made)
    free(work)


cdef void _unqueue(DecodeJobs* jobs, DecodeWork* work) noexcept nogil:
    cdef DecodeWork* before = NULL
    cdef DecodeWork* at = jobs.head
    while at != work:
        before = at
        at = at.next
    if before != NULL:
        before.next = work.next
    else:
        jobs.head = work.next
    if jobs.tail == work:
        jobs.tail = before
    jobs.depth -= 1


cdef void decode_abandon(DecodeJobs* jobs, DecodeGroup* group) noexcept nogil:
    cdef DecodeWork* work
    cdef DecodeWork* sibling
    if group.first == NULL:
        return
    pthread_mutex_lock(&jobs.lock)
    work = group.first
    while work != NULL:
        sibling = work.sibling
        if work.state == JOB_QUEUED:
            _unqueue(jobs, work)
        if work.state == JOB_WORKING:
            work.group = NULL
        else:
            _work_free(work)
        work = sibling
    group.first = NULL
    group.pending = 0
    pthread_mutex_unlock(&jobs.lock)


cdef void _finish(DecodeJobs* jobs, DecodeWork* work) noexcept nogil:
    """Gives the job back to its request, or frees it when that is gone."""
    cdef DecodeGroup* group
    pthread_mutex_lock(&jobs.lock)
    jobs.done_count += 1
    group = work.group
    if group == NULL:
        _work_free(work)
    else:
        work.state = JOB_DONE
        group.pending -= 1
        if group.pending == 0:
            # Under the lock: the group may be freed as soon as it is given back.
            table_wake(group.table, group.thread_index, group.connection_id)
    pthread_mutex_unlock(&jobs.lock)


cdef DecodeWork* _take(DecodeJobs* jobs, int64_t deadline_ns, uint8_t** body) noexcept nogil:
    """The next job and a copy of its records; NULL at the deadline, or when closed."""
    cdef DecodeWork* work = NULL
    cdef int64_t size
    pthread_mutex_lock(&jobs.lock)
    while jobs.head == NULL and not jobs.closed:
        if deadline_ns < 0:
            pthread_cond_wait(&jobs.work, &jobs.lock)
        elif not condition_wait_until(&jobs.work, &jobs.lock, deadline_ns):
            break
    if jobs.head != NULL and not jobs.closed:
        work = jobs.head
        _unqueue(jobs, work)
        size = batch_size(&work.h) - BATCH_OVERHEAD
        body[0] = <uint8_t*>malloc(size if size else 1)
        if body[0] != NULL:
            memcpy(body[0], work.batch + BATCH_OVERHEAD, size)
        work.state = JOB_WORKING
    pthread_mutex_unlock(&jobs.lock)
    return work


cdef void _make_batch(DecodeWork* work, const uint8_t* body, int64_t size) noexcept nogil:
    """The batch with other records under its header; all but size, codec and CRC stays."""
    cdef uint16_t attributes = <uint16_t>((work.h.attributes & ~ATTR_CODEC_MASK) | work.target_codec)
    cdef int64_t total = BATCH_OVERHEAD + size
    work.made = <uint8_t*>malloc(total)
    if work.made == NULL:
        verdict_of(&work.verdict, ERROR_UNKNOWN_SERVER_ERROR, COUNT_REJECTED_OTHER, NULL)
        return
    work.made_bytes = total
    memcpy(work.made, work.header, BATCH_OVERHEAD)
    memcpy(work.made + BATCH_OVERHEAD, body, size)
    be32_store(work.made + AT_BATCH_LENGTH, <uint32_t>(total - LOG_OVERHEAD))
    be16_store(work.made + AT_ATTRIBUTES, attributes)
    be32_store(work.made + AT_CRC, crc32c(0, work.made + AT_ATTRIBUTES, total - AT_ATTRIBUTES))


cdef class DecodeQueue:
    """The jobs of one broker."""

    def __cinit__(self, int depth_max=4096):
        if depth_max < 1:
            raise ValueError(f"a queue of {depth_max} jobs")
        self.jobs = <DecodeJobs*>calloc(1, sizeof(DecodeJobs))
        if self.jobs == NULL:
            raise MemoryError
        self.jobs.depth_max = depth_max
        pthread_mutex_init(&self.jobs.lock, NULL)
        condition_init(&self.jobs.work)

    def __dealloc__(self):
        if self.jobs != NULL:
            pthread_cond_destroy(&self.jobs.work)
            pthread_mutex_destroy(&self.jobs.lock)
            free(self.jobs)

    def next(self, int64_t timeout_ms=-1):
        """The next DecodeJob; None after timeout_ms (-1: no end) or when the queue is closed."""
        cdef DecodeWork* work
        cdef uint8_t* body = NULL
        cdef DecodeJob job
        with nogil:
            work = _take(
                self.jobs, -1 if timeout_ms < 0 else monotonic_now_ns() + timeout_ms * 1000000,
                &body)
        if work == NULL:
            return None
        job = DecodeJob.__new__(DecodeJob)
        job.queue = self
        job.work = work
        if body == NULL:
            job.failed(ERROR_UNKNOWN_SERVER_ERROR)
            raise MemoryError
        try:
            job.data = PyBytes_FromStringAndSize(
                <const char*>body, batch_size(&work.h) - BATCH_OVERHEAD)
        finally:
            free(body)
        return job

    @property
    def closed(self):
        return bool(self.jobs.closed)

    def close(self):
        """Every thread in next() comes back with None; no job is taken or queued any more."""
        with nogil:
            pthread_mutex_lock(&self.jobs.lock)
            self.jobs.closed = True
            pthread_cond_broadcast(&self.jobs.work)
            pthread_mutex_unlock(&self.jobs.lock)

    def counters(self):
        return {
            "depth": self.jobs.depth, "done": self.jobs.done_count,
            "refused": self.jobs.refused_count,
        }


cdef class DecodeJob:
    """One batch to open. Answer with done() or failed(), once; dropped without, it has failed.

    codec: of `data`, the records of the batch. size_max: how far it may inflate. target_codec: what
    to compress the decoded records with, or None when the batch is kept as it is.
    """
    cdef DecodeQueue queue
    cdef DecodeWork* work
    cdef readonly bytes data

    def __init__(self):
        raise TypeError("jobs come from a DecodeQueue")

    def __dealloc__(self):
        if self.work != NULL:
            verdict_of(&self.work.verdict, ERROR_UNKNOWN_SERVER_ERROR, COUNT_REJECTED_OTHER, NULL)
            _finish(self.queue.jobs, self.work)

    cdef DecodeWork* _unanswered(self) except NULL:
        if self.work == NULL:
            raise RuntimeError("the job is answered already")
        return self.work

    @property
    def answered(self): return self.work == NULL
    @property
    def codec(self): return self._unanswered().h.attributes & ATTR_CODEC_MASK
    @property
    def size_max(self): return self._unanswered().size_max
    @property
    def target_codec(self):
        cdef int codec = self._unanswered().target_codec
        return None if codec < 0 else codec

    def done(self, bytes decoded not None, bytes recompressed=None):
        """The records as they were before compression and, with a target codec, compressed anew
        (None: as decoded). They are checked here, without the GIL."""
        cdef DecodeWork* work = self._unanswered()
        cdef bytes kept = decoded if recompressed is None else recompressed   # owns what is copied
        cdef const uint8_t* body = <const uint8_t*>PyBytes_AS_STRING(decoded)
        cdef const uint8_t* made = <const uint8_t*>PyBytes_AS_STRING(kept)
        cdef int64_t size = len(decoded), made_size = len(kept)
        self.work = NULL
        with nogil:
            if size > work.size_max:
                verdict_of(&work.verdict, ERROR_MESSAGE_TOO_LARGE, COUNT_REJECTED_TOO_LARGE, NULL)
            else:
                body_check(body, size, &work.h, &work.rules, &work.verdict)
                if work.verdict.error == 0 and work.target_codec >= 0:
                    _make_batch(work, made, made_size)
            _finish(self.queue.jobs, work)

    def failed(self, int code):
        """The batch could not be opened; the producer gets this Kafka error code."""
        cdef DecodeWork* work = self._unanswered()
        verdict_of(
            &work.verdict, code if code else ERROR_UNKNOWN_SERVER_ERROR, COUNT_REJECTED_OTHER, NULL)
        self.work = NULL
        with nogil:
            _finish(self.queue.jobs, work)
