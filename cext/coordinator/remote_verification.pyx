"""Questions to the transaction coordinator on another broker: see remote_verification.pxd.

Limits: the queue holds depth_max questions; if it is full, the producer gets a retriable error. The
size of a question is that of the names in its request. Questions are in memory only.
Next on the data path: broker/coordinator/remote_verification.py, which sends AddPartitionsToTxn.
"""
cimport cython
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from barnabas.cext.codec.error_codes cimport ERROR_NETWORK_EXCEPTION, ERROR_UNKNOWN_SERVER_ERROR
from barnabas.cext.coordinator.transaction_state cimport Asked, AskedRow
from barnabas.cext.memory.atomics cimport atomic_load_i32
from barnabas.cext.memory.job_queue cimport (
    JOB_DONE, JOB_QUEUED, JOB_WORKING, jobs_done, jobs_put, jobs_remove,
)
from barnabas.cext.memory.mutex cimport pthread_mutex_lock, pthread_mutex_unlock
from barnabas.cext.partition.partitions cimport table_wake


cdef Remote* _copy(const Asked* asked) noexcept nogil:
    cdef int64_t texts = asked.name_bytes
    cdef Remote* made
    cdef AskedRow* row
    cdef uint8_t* at
    cdef int32_t i
    for i in range(asked.count):
        texts += asked.rows[i].topic_bytes
    made = <Remote*>calloc(1, sizeof(Remote) + texts + asked.count * (
        sizeof(AskedRow) + sizeof(int16_t)))
    if made == NULL:
        return NULL
    made.asked = asked[0]
    made.asked.rows = <AskedRow*>(made + 1)
    made.codes = <int16_t*>(made.asked.rows + asked.count)
    at = <uint8_t*>(made.codes + asked.count)
    memcpy(at, asked.name, asked.name_bytes)
    made.asked.name = at
    at += asked.name_bytes
    for i in range(asked.count):
        row = &made.asked.rows[i]
        row[0] = asked.rows[i]
        memcpy(at, row.topic, row.topic_bytes)
        row.topic = at
        at += row.topic_bytes
    return made


cdef Remote* remote_ask(
    Jobs* jobs, Table* table, const Asked* asked, bint adds, const Watch* by,
) noexcept nogil:
    cdef Remote* remote = _copy(asked)
    cdef bint is_queued
    if remote == NULL:
        return NULL
    remote.jobs, remote.table, remote.adds = jobs, table, adds
    remote.thread_index, remote.connection_id = by.thread_index, by.connection_id
    pthread_mutex_lock(&jobs.lock)
    is_queued = jobs_put(jobs, &remote.job)
    pthread_mutex_unlock(&jobs.lock)
    if is_queued:
        return remote
    free(remote)
    return NULL


cdef bint remote_is_answered(const Remote* remote) noexcept nogil:
    return atomic_load_i32(<int32_t*>&remote.job.state) == JOB_DONE


cdef void remote_drop(Remote* remote) noexcept nogil:
    cdef Jobs* jobs
    cdef bint is_worked_on
    if remote == NULL:
        return
    jobs = remote.jobs
    pthread_mutex_lock(&jobs.lock)
    if remote.job.state == JOB_QUEUED:
        jobs_remove(jobs, &remote.job)
    is_worked_on = remote.job.state == JOB_WORKING
    remote.is_dropped = True
    pthread_mutex_unlock(&jobs.lock)
    if not is_worked_on:
        free(remote)


cdef void _finish(Remote* remote) noexcept nogil:
    """Passes the answer to the request, or frees the question if the request has ended."""
    cdef Jobs* jobs = remote.jobs
    cdef bint is_dropped
    pthread_mutex_lock(&jobs.lock)
    jobs.done_count += 1
    is_dropped = remote.is_dropped
    if not is_dropped:
        jobs_done(&remote.job)
        # The lock is held: the request may free the question as soon as it is answered.
        table_wake(remote.table, remote.thread_index, remote.connection_id)
    pthread_mutex_unlock(&jobs.lock)
    if is_dropped:
        free(remote)


cdef str _text(const uint8_t* p, int32_t n):
    return PyUnicode_DecodeUTF8(<char*>p, n, "replace")


cdef class RemoteVerifications(JobQueue):
    """The queue of one broker."""

    def next(self, int64_t timeout_ms=-1):
        """Returns the next RemoteVerification; None after timeout_ms (-1: waits without limit) or
        when the queue is closed."""
        cdef Remote* remote
        cdef RemoteVerification made
        with nogil:
            remote = <Remote*>self.take(timeout_ms)
        if remote == NULL:
            return None
        made = RemoteVerification.__new__(RemoteVerification)
        made.queue, made.remote = self, remote
        return made


@cython.no_gc_clear         # __dealloc__ uses the queue
cdef class RemoteVerification:
    """The question of one request. Answer it once. A question that is dropped without an answer
    fails with NETWORK_EXCEPTION."""
    cdef RemoteVerifications queue
    cdef Remote* remote

    def __init__(self):
        raise TypeError("get a RemoteVerification from RemoteVerifications.next()")

    def __dealloc__(self):
        if self.remote != NULL:
            self._answer_all(ERROR_NETWORK_EXCEPTION)

    cdef Remote* _unanswered(self) except NULL:
        if self.remote == NULL:
            raise RuntimeError("this question was answered already")
        return self.remote

    @property
    def transactional_id(self) -> str:
        cdef Remote* remote = self._unanswered()
        return _text(remote.asked.name, remote.asked.name_bytes)

    @property
    def producer_id(self) -> int:
        return self._unanswered().asked.producer_id

    @property
    def producer_epoch(self) -> int:
        return self._unanswered().asked.producer_epoch

    @property
    def adds(self) -> bool:
        """Whether the coordinator must add the partitions to the transaction; otherwise it only
        checks that they belong to it."""
        return self._unanswered().adds

    @property
    def partitions(self) -> list:
        """The partitions: [(topic, index), ...]."""
        cdef Remote* remote = self._unanswered()
        cdef int32_t i
        return [
            (_text(remote.asked.rows[i].topic, remote.asked.rows[i].topic_bytes),
             remote.asked.rows[i].index)
            for i in range(remote.asked.count)
        ]

    cdef void _answer_all(self, int16_t code):
        cdef Remote* remote = self.remote
        cdef int32_t i
        for i in range(remote.asked.count):
            remote.codes[i] = code
        self.remote = NULL
        with nogil:
            _finish(remote)

    def answer(self, codes not None) -> None:
        """Answers with Kafka's error codes: {(topic, index): code}. A partition that is missing in
        it gets UNKNOWN_SERVER_ERROR."""
        cdef Remote* remote = self._unanswered()
        cdef int32_t i
        found = [codes.get(place, ERROR_UNKNOWN_SERVER_ERROR) for place in self.partitions]
        for i in range(remote.asked.count):
            remote.codes[i] = found[i]
        self.remote = NULL
        with nogil:
            _finish(remote)

    def fail(self, int16_t code) -> None:
        """Answers with one error code for all partitions."""
        self._unanswered()
        self._answer_all(code)
