"""Fetched records that plugins process: a queue from network threads to Python threads.

When a fetch has chosen its ranges, each range of a topic with fetch.interceptors becomes a job, and
the request waits. A Python thread takes a job (RewriteQueue.next), reads the range, calls the
plugins, and supplies the bytes to send in its place, or an error. Each completed job wakes the
connection, which answers when no job is left. The files on disk do not change.

RangeQueue is also the base of the queue of conversions (down_conversion.pyx).

Limits: the queue holds depth_max jobs; if it is full, the consumer gets a retriable error.
A job's result may be GROWTH times as large as its range, or GROWN_BYTES if that is more.
A job holds its segment, so that retention can continue. Next: fetch.pyx; the threads are
broker/server/interceptors.py.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EIO
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from barnabas.cext.log.segment cimport segment_fd, segment_release, segment_retain
from barnabas.cext.memory.job_queue cimport (
    JOB_DONE, JOB_QUEUED, JOB_WORKING, Jobs, jobs_done, jobs_put, jobs_remove,
)
from barnabas.cext.memory.memory_limit cimport memory_add
from barnabas.cext.memory.mutex cimport pthread_mutex_lock, pthread_mutex_unlock
from barnabas.cext.memory.sys cimport System
from barnabas.cext.partition.partitions cimport table_of, table_system, table_wake

cdef enum:
    ERROR_UNKNOWN_SERVER_ERROR = -1
    GROWTH = 4
    GROWN_BYTES = 1 << 20


cdef Rewrite* rewrite_new(
    Rewrites* rewrites, int32_t thread_index, uint64_t connection_id, const Partition* p,
    const LogSlice* slice,
) noexcept nogil:
    cdef Rewrite* made
    if p.topic_bytes > REWRITE_NAME_BYTES_MAX:
        return NULL
    made = <Rewrite*>calloc(1, sizeof(Rewrite))
    if made == NULL:
        return NULL
    made.rewrites = rewrites
    made.thread_index = thread_index
    made.connection_id = connection_id
    made.segment = slice.segment
    made.position = slice.position
    made.size_bytes = slice.size_bytes
    made.topic_bytes = p.topic_bytes
    made.partition = p.index
    memcpy(made.topic, p.topic, p.topic_bytes)
    segment_retain(made.segment)
    return made


cdef Rewrite* rewrite_ask(Rewrite* made) noexcept nogil:
    cdef Jobs* jobs
    cdef bint queued
    if made == NULL:
        return NULL
    jobs = made.rewrites.jobs
    pthread_mutex_lock(&jobs.lock)
    queued = jobs_put(jobs, &made.job)
    pthread_mutex_unlock(&jobs.lock)
    if not queued:
        _free(made)
    return made if queued else NULL


cdef bint rewrite_is_done(Rewrite* rewrite) noexcept nogil:
    cdef bint done
    pthread_mutex_lock(&rewrite.rewrites.jobs.lock)
    done = rewrite.job.state == JOB_DONE
    pthread_mutex_unlock(&rewrite.rewrites.jobs.lock)
    return done


cdef void _free(Rewrite* rewrite) noexcept nogil:
    if rewrite.added_bytes:
        memory_add(rewrite.rewrites.memory, -rewrite.added_bytes)
    segment_release(rewrite.segment)
    free(rewrite.made)
    free(rewrite.source)
    free(rewrite)


cdef void rewrite_drop(Rewrite* rewrite) noexcept nogil:
    cdef Rewrites* rewrites
    cdef bint works
    if rewrite == NULL:
        return
    rewrites = rewrite.rewrites
    pthread_mutex_lock(&rewrites.jobs.lock)
    works = rewrite.job.state == JOB_WORKING
    if works:
        rewrite.dropped = True
    elif rewrite.job.state == JOB_QUEUED:
        jobs_remove(rewrites.jobs, &rewrite.job)
    pthread_mutex_unlock(&rewrites.jobs.lock)
    if not works:
        _free(rewrite)


cdef void rewrite_finish(Rewrite* rewrite) noexcept nogil:
    cdef Rewrites* rewrites = rewrite.rewrites
    cdef bint dropped
    pthread_mutex_lock(&rewrites.jobs.lock)
    rewrites.jobs.done_count += 1
    dropped = rewrite.dropped
    jobs_done(&rewrite.job)
    if not dropped:
        # The lock is held: the request may drop the job as soon as it is done.
        table_wake(rewrites.table, rewrite.thread_index, rewrite.connection_id)
    pthread_mutex_unlock(&rewrites.jobs.lock)
    if dropped:
        _free(rewrite)


cdef int rewrite_read(Rewrite* rewrite, int64_t at, uint8_t* into, int64_t size) noexcept nogil:
    cdef System* system = table_system(rewrite.rewrites.table)
    cdef int fd = segment_fd(rewrite.segment, system)
    cdef int64_t done = 0
    cdef ssize_t got
    if fd < 0:
        return fd
    while done < size:
        got = system.pread(system, fd, into + done, size - done, rewrite.position + at + done)
        if got <= 0:
            return <int>got if got < 0 else -EIO
        done += got
    return 0


@cython.no_gc_clear         # __dealloc__ of jobs needs its references
cdef class RangeQueue(JobQueue):
    """A queue of one broker's ranges that wait for a Python thread."""

    cdef Rewrites* serve(self, table) except NULL:
        """Binds the queue to a table's native handler, before that runs."""
        self.table_owner = table
        self.rewrites.table = table_of(table)
        self.rewrites.jobs = self.jobs
        return &self.rewrites

    def next(self):
        """Waits for the next range and returns its job; returns None when the queue is closed."""
        cdef Rewrite* found
        with nogil:
            found = <Rewrite*>self.take(-1)
        return None if found == NULL else self.job_of(found)

    cdef object job_of(self, Rewrite* rewrite):
        raise NotImplementedError


@cython.no_gc_clear
cdef class RewriteQueue(RangeQueue):
    """The queue of one broker's ranges that wait for its plugins. Its jobs are RewriteJobs."""

    cdef object job_of(self, Rewrite* rewrite):
        cdef RewriteJob job = RewriteJob.__new__(RewriteJob)
        job.queue = self
        job.rewrite = rewrite
        job.topic = PyBytes_FromStringAndSize(
            <const char*>rewrite.topic, rewrite.topic_bytes).decode("utf-8", "replace")
        job.partition = rewrite.partition
        job.size_bytes = rewrite.size_bytes
        return job


@cython.no_gc_clear         # __dealloc__ needs what it refers to
cdef class RewriteJob:
    """One range. Call done() or failed() once; a job that is dropped without either fails."""
    cdef RewriteQueue queue
    cdef Rewrite* rewrite
    cdef readonly str topic
    cdef readonly int partition
    cdef readonly int64_t size_bytes

    def __init__(self):
        raise TypeError("jobs come from a RewriteQueue")

    def __dealloc__(self):
        if self.rewrite != NULL:
            self.rewrite.error = ERROR_UNKNOWN_SERVER_ERROR
            rewrite_finish(self.rewrite)

    cdef Rewrite* _unanswered(self) except NULL:
        if self.rewrite == NULL:
            raise RuntimeError("the job is answered already")
        return self.rewrite

    def read(self):
        """Reads and returns the bytes of the range. Raises OSError."""
        cdef Rewrite* rewrite = self._unanswered()
        cdef bytes whole = PyBytes_FromStringAndSize(NULL, rewrite.size_bytes)
        cdef uint8_t* into = <uint8_t*>PyBytes_AS_STRING(whole)
        cdef int status
        with nogil:
            status = rewrite_read(rewrite, 0, into, rewrite.size_bytes)
        if status != 0:
            raise OSError(-status, "a range could not be read whole")
        return whole

    def done(self, bytes records not None):
        """Completes the job: the broker sends these bytes in place of the range. Raises ValueError
        if they are too large."""
        cdef Rewrite* rewrite = self._unanswered()
        cdef int64_t size = len(records)
        if size > GROWTH * rewrite.size_bytes and size > GROWN_BYTES:
            raise ValueError(f"{size} bytes in the place of {rewrite.size_bytes}")
        rewrite.made = <uint8_t*>malloc(size if size else 1)
        if rewrite.made == NULL:
            raise MemoryError
        memcpy(rewrite.made, PyBytes_AS_STRING(records), size)
        rewrite.made_bytes = size
        self.rewrite = NULL
        with nogil:
            rewrite_finish(rewrite)

    def failed(self, int code):
        """Fails the job: the consumer gets this Kafka error code for the partition."""
        cdef Rewrite* rewrite = self._unanswered()
        rewrite.error = <int16_t>(code if code else ERROR_UNKNOWN_SERVER_ERROR)
        self.rewrite = NULL
        with nogil:
            rewrite_finish(rewrite)
