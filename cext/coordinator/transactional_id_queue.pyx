"""The queue of transactional ids that Python must complete: see transactional_id_queue.pxd.

Next on the data path: broker/coordinator/transactions/coordinator.py, `complete`.
"""
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from barnabas.cext.memory.job_queue cimport jobs_put, jobs_remove
from barnabas.cext.memory.mutex cimport pthread_mutex_lock, pthread_mutex_unlock


cdef void id_queue_put(Jobs* jobs, const uint8_t* name, int32_t name_bytes) noexcept nogil:
    cdef QueuedId* row = <QueuedId*>malloc(sizeof(QueuedId) + name_bytes)
    cdef bint is_queued
    if row == NULL:
        return
    row.name_bytes = name_bytes
    memcpy(row + 1, name, name_bytes)
    pthread_mutex_lock(&jobs.lock)
    is_queued = jobs_put(jobs, &row.job)
    pthread_mutex_unlock(&jobs.lock)
    if not is_queued:
        free(row)


cdef class TransactionalIdQueue(JobQueue):
    """The queue of one broker."""

    def __dealloc__(self):
        cdef Job* job = self.jobs.head
        while job != NULL:
            jobs_remove(self.jobs, job)
            free(job)
            job = self.jobs.head

    def next(self, int64_t timeout_ms=-1):
        """Returns the next transactional id; None after timeout_ms (-1: waits without limit) or
        when the queue is closed."""
        cdef QueuedId* row
        with nogil:
            row = <QueuedId*>self.take(timeout_ms)
        if row == NULL:
            return None
        try:
            return PyUnicode_DecodeUTF8(<char*>(row + 1), row.name_bytes, NULL)
        finally:
            free(row)
