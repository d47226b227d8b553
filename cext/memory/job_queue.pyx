"""The Python side of a bounded queue of jobs: creation, closing, counters. See job_queue.pxd."""
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from barnabas.cext.memory.condition cimport monotonic_now_ns, pthread_cond_broadcast
from barnabas.cext.memory.mutex cimport pthread_mutex_lock, pthread_mutex_unlock


cdef class JobQueue:
    """A queue of at most `depth_max` jobs. After close() it accepts and returns no job. Raises
    ValueError for a wrong depth_max, and MemoryError."""

    def __cinit__(self, int depth_max=4096):
        if depth_max < 1:
            raise ValueError(f"a queue of {depth_max} jobs")
        self.jobs = <Jobs*>calloc(1, sizeof(Jobs))
        if self.jobs == NULL:
            raise MemoryError
        jobs_init(self.jobs, depth_max)

    def __dealloc__(self):
        if self.jobs != NULL:
            jobs_free(self.jobs)
            free(self.jobs)

    cdef Job* wait(self, int64_t timeout_ms) noexcept nogil:
        cdef int64_t deadline_ns = -1
        if timeout_ms >= 0:
            deadline_ns = monotonic_now_ns() + timeout_ms * 1000000
        pthread_mutex_lock(&self.jobs.lock)
        return jobs_take(self.jobs, deadline_ns)

    cdef Job* take(self, int64_t timeout_ms) noexcept nogil:
        cdef Job* job = self.wait(timeout_ms)
        pthread_mutex_unlock(&self.jobs.lock)
        return job

    @property
    def closed(self):
        return bool(self.jobs.closed)

    def close(self):
        """Closes the queue: every thread in next() returns None."""
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
