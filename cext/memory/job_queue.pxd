"""Bounded queues of jobs that network threads hand to Python threads.

Each queued struct begins with a Job. Its owner may end while a Python thread works on the job; the
thread that finishes the job checks this under the lock. The caller holds the lock for every
function except jobs_init and jobs_free.
"""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from barnabas.cext.memory.atomics cimport atomic_store_i32
from barnabas.cext.memory.condition cimport (
    condition_init, condition_wait_until, pthread_cond_destroy, pthread_cond_signal, pthread_cond_t,
    pthread_cond_wait,
)
from barnabas.cext.memory.mutex cimport pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_t

cdef enum:  # states of a job
    JOB_NEW = 0
    JOB_QUEUED = 1
    JOB_WORKING = 2
    JOB_DONE = 3

cdef struct Job:
    Job* next
    int32_t state

cdef struct Jobs:
    pthread_mutex_t lock
    pthread_cond_t work
    Job* head
    Job* tail
    int32_t depth
    int32_t depth_max
    bint closed
    int64_t done_count
    int64_t refused_count

cdef class JobQueue:
    """Python's owner of the queue; a subclass defines the result of next()."""
    cdef Jobs* jobs
    # Returns the next job, which the caller finishes; NULL at the deadline (-1: no limit) and when
    # closed. The lock is held at the return.
    cdef Job* wait(self, int64_t timeout_ms) noexcept nogil
    cdef Job* take(self, int64_t timeout_ms) noexcept nogil     # as wait, but unlocks

cdef inline void jobs_init(Jobs* jobs, int32_t depth_max) noexcept nogil:
    memset(jobs, 0, sizeof(Jobs))
    jobs.depth_max = depth_max
    pthread_mutex_init(&jobs.lock, NULL)
    condition_init(&jobs.work)

cdef inline void jobs_free(Jobs* jobs) noexcept nogil:
    pthread_cond_destroy(&jobs.work)
    pthread_mutex_destroy(&jobs.lock)

cdef inline bint jobs_put(Jobs* jobs, Job* job) noexcept nogil:
    """Queues a job. Returns False when the queue is full or closed."""
    if jobs.closed or jobs.depth >= jobs.depth_max:
        jobs.refused_count += 1
        return False
    job.next = NULL
    job.state = JOB_QUEUED
    if jobs.tail != NULL:
        jobs.tail.next = job
    else:
        jobs.head = job
    jobs.tail = job
    jobs.depth += 1
    pthread_cond_signal(&jobs.work)
    return True

cdef inline void jobs_remove(Jobs* jobs, Job* job) noexcept nogil:
    """Removes a queued job: it was cancelled or taken."""
    cdef Job* before = NULL
    cdef Job* at = jobs.head
    while at != job:
        before = at
        at = at.next
    if before != NULL:
        before.next = job.next
    else:
        jobs.head = job.next
    if jobs.tail == job:
        jobs.tail = before
    jobs.depth -= 1

cdef inline void jobs_done(Job* job) noexcept nogil:
    """Marks a job as done. A thread that sees it done also sees all earlier writes."""
    atomic_store_i32(&job.state, JOB_DONE)

cdef inline Job* jobs_take(Jobs* jobs, int64_t deadline_ns) noexcept nogil:
    """Waits for a job until the deadline (-1: no limit) and returns the oldest; NULL: none, or
    closed."""
    cdef Job* job
    while jobs.head == NULL and not jobs.closed:
        if deadline_ns < 0:
            pthread_cond_wait(&jobs.work, &jobs.lock)
        elif not condition_wait_until(&jobs.work, &jobs.lock, deadline_ns):
            break
    if jobs.head == NULL or jobs.closed:
        return NULL
    job = jobs.head
    jobs_remove(jobs, job)
    job.state = JOB_WORKING
    return job
