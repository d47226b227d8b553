"""Verifies the first batch of a transaction in a partition with the transaction coordinator.

The network thread begins a verification in the partition's log (log_transactions.pyx). If the
client leaves it to the broker to add the partition, the thread adds it itself if it can
(transactions.pyx); else it queues a question and the request waits. A Python thread takes the
question (VerifyQueue.next) and asks the coordinator, which may have to write to its log first. Any
thread calls done() with the answer; that wakes the connection, and the produce path continues. For
partitions that clients add themselves, the coordinator has already called expect().

Limits: the queue holds depth_max questions; if it is full, producers get a retriable error.
Next on the data path: cext/log/log_transactions.pyx; broker/coordinator/transactions takes the
questions.
"""
cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from barnabas.cext.codec.buffer cimport buffer_bytes, buffer_free, buffer_init
from barnabas.cext.coordinator.transactions cimport ADDED_MAX, transaction_adds
from barnabas.cext.log.log_transactions cimport (
    log_begin_verification, log_end_verification, log_expect_transaction, log_renew_verification,
)
from barnabas.cext.memory.epoch cimport epoch_enter, epoch_leave
from barnabas.cext.memory.job_queue cimport (
    JOB_DONE, JOB_QUEUED, JOB_WORKING, Jobs, jobs_done, jobs_put, jobs_remove,
)
from barnabas.cext.memory.mutex cimport pthread_mutex_lock, pthread_mutex_unlock
from barnabas.cext.partition.partitions cimport (
    partition_again, partition_find, table_epochs, table_of, table_wake,
)

cdef enum:
    ERROR_UNKNOWN_SERVER_ERROR = -1


cdef VerifyWork* verify_new(
    Table* table, const Request* request, const uint8_t* transactional_id, int32_t id_bytes,
) noexcept nogil:
    cdef VerifyWork* work = <VerifyWork*>calloc(1, sizeof(VerifyWork))
    if work == NULL:
        return NULL
    work.table = table
    work.thread_index = request.thread_index
    work.connection_id = request.connection_id
    work.api_version = request.api_version
    work.id_bytes = id_bytes
    buffer_init(&work.names)
    buffer_bytes(&work.names, transactional_id, id_bytes)
    return work


cdef bint verify_ask_for(VerifyWork* work, Partition* partition, const uint8_t* records) noexcept nogil:
    cdef VerifyPart* part
    cdef VerifyPart* grown
    cdef int32_t capacity
    if work.part_count == work.part_capacity:
        capacity = work.part_capacity * 2 if work.part_capacity else 2
        grown = <VerifyPart*>realloc(work.parts, capacity * sizeof(VerifyPart))
        if grown == NULL:
            return False
        work.parts = grown
        work.part_capacity = capacity
    part = &work.parts[work.part_count]
    memset(part, 0, sizeof(VerifyPart))
    part.records = records
    memcpy(part.topic_id, partition.topic_id, 16)
    part.index = partition.index
    part.generation = partition.generation
    part.name_at = work.names.size
    part.name_bytes = partition.topic_bytes
    buffer_bytes(&work.names, partition.topic, partition.topic_bytes)
    part.verification = log_begin_verification(
        partition.log, work.producer_id, work.api_version >= VERIFY_ADDS_FROM)
    if part.verification == 0:
        return False
    work.part_count += 1
    return not work.names.failed


cdef bint verify_adds(VerifyWork* work, TransactionCore* transactions) noexcept nogil:
    cdef Partition* partitions[ADDED_MAX]
    cdef int64_t verifications[ADDED_MAX]
    cdef int32_t i
    if work.part_count > ADDED_MAX:
        return False
    for i in range(work.part_count):
        partitions[i] = partition_again(
            work.table, work.parts[i].topic_id, work.parts[i].index, work.parts[i].generation)
        if partitions[i] == NULL or partitions[i].log == NULL:
            return False
        verifications[i] = work.parts[i].verification
    return transaction_adds(
        transactions, work.names.data, work.id_bytes, work.producer_id,
        <int16_t>work.producer_epoch, partitions, verifications, work.part_count)


cdef bint verify_submit(Jobs* jobs, VerifyWork* work) noexcept nogil:
    cdef bint queued
    pthread_mutex_lock(&jobs.lock)
    queued = jobs_put(jobs, &work.job)
    pthread_mutex_unlock(&jobs.lock)
    return queued


cdef bint verify_is_done(Jobs* jobs, VerifyWork* work) noexcept nogil:
    cdef bint done
    pthread_mutex_lock(&jobs.lock)
    done = work.job.state == JOB_DONE
    pthread_mutex_unlock(&jobs.lock)
    return done


cdef VerifyPart* verify_part(VerifyWork* work, const uint8_t* records) noexcept nogil:
    cdef int32_t i
    if work != NULL:
        for i in range(work.part_count):
            if work.parts[i].records == records:
                return &work.parts[i]
    return NULL


cdef void _work_free(VerifyWork* work) noexcept nogil:
    free(work.parts)
    buffer_free(&work.names)
    free(work)


cdef void verify_drop(Jobs* jobs, VerifyWork* work) noexcept nogil:
    """Releases the question and ends its verifications, except in logs that are gone."""
    cdef VerifyPart* part
    cdef Partition* p
    cdef int32_t i
    cdef int slot
    if work == NULL:
        return
    slot = epoch_enter(table_epochs(work.table))
    for i in range(work.part_count):
        part = &work.parts[i]
        p = partition_again(work.table, part.topic_id, part.index, part.generation)
        if p != NULL and p.log != NULL:
            log_end_verification(p.log, part.verification)
    epoch_leave(table_epochs(work.table), slot)
    pthread_mutex_lock(&jobs.lock)
    if work.job.state == JOB_QUEUED:
        jobs_remove(jobs, &work.job)
    if work.job.state == JOB_WORKING:
        work.dropped = True
    else:
        _work_free(work)
    pthread_mutex_unlock(&jobs.lock)


cdef bint _renew(VerifyWork* work) noexcept nogil:
    """Begins the question's verifications again, as if the request asked now."""
    cdef Partition* p
    cdef int32_t i
    cdef bint overtaken = False
    cdef int slot = epoch_enter(table_epochs(work.table))
    for i in range(work.part_count):
        p = partition_again(
            work.table, work.parts[i].topic_id, work.parts[i].index, work.parts[i].generation)
        if p != NULL and p.log != NULL and log_renew_verification(
                p.log, work.parts[i].verification):
            overtaken = True
    epoch_leave(table_epochs(work.table), slot)
    return overtaken


cdef void _finish(Jobs* jobs, VerifyWork* work) noexcept nogil:
    pthread_mutex_lock(&jobs.lock)
    jobs.done_count += 1
    if work.dropped:
        _work_free(work)
    else:
        jobs_done(&work.job)
        # The lock is held: the request may free the work as soon as it is complete.
        table_wake(work.table, work.thread_index, work.connection_id)
    pthread_mutex_unlock(&jobs.lock)


cdef class VerifyQueue(JobQueue):
    """The queue of one broker's questions."""

    def expect(
        self, table not None, str topic not None, int32_t index, int64_t producer_id, int16_t epoch
    ) -> None:
        """Marks the partition as part of the producer's ongoing transaction, so that its first
        batch needs no question. The caller must call it before that transaction can end."""
        cdef Table* known = table_of(table)
        cdef bytes name = topic.encode()
        cdef const char* at = name
        cdef int32_t size_bytes = <int32_t>len(name)
        cdef Partition* p
        cdef int slot
        with nogil:
            slot = epoch_enter(table_epochs(known))
            p = partition_find(known, <const uint8_t*>at, size_bytes, index)
            if p != NULL and p.log != NULL:
                log_expect_transaction(p.log, producer_id, epoch)
            epoch_leave(table_epochs(known), slot)

    def next(self, int64_t timeout_ms=-1):
        """Returns the next VerifyJob; None after timeout_ms (-1: waits without limit) or when the
        queue is closed."""
        cdef VerifyWork* work
        cdef VerifyJob job
        with nogil:
            work = <VerifyWork*>self.take(timeout_ms)
        if work == NULL:
            return None
        job = VerifyJob.__new__(VerifyJob)
        job.queue = self
        job.work = work
        job.read()
        return job


@cython.no_gc_clear         # __dealloc__ needs what it refers to
cdef class VerifyJob:
    """One question. Call done() once; a question that is dropped without it has failed.

    `partitions` is the list [(topic, index), ...] that a producer is about to write to.
    `api_version` is the version of its Produce request; from 12 on the coordinator adds the
    partitions to the transaction, before 12 it only verifies that they belong to it (KIP-890).
    """
    cdef VerifyQueue queue
    cdef VerifyWork* work
    cdef readonly bytes transactional_id
    cdef readonly list partitions
    cdef readonly int64_t producer_id
    cdef readonly int producer_epoch
    cdef readonly int api_version

    def __init__(self):
        raise TypeError("questions come from a VerifyQueue")

    cdef int read(self) except -1:
        cdef VerifyWork* work = self.work
        cdef const char* names = <const char*>work.names.data
        cdef int32_t i
        self.producer_id = work.producer_id
        self.producer_epoch = work.producer_epoch
        self.api_version = work.api_version
        self.transactional_id = PyBytes_FromStringAndSize(names, work.id_bytes)
        self.partitions = [
            (PyBytes_FromStringAndSize(
                names + work.parts[i].name_at, work.parts[i].name_bytes).decode(),
             work.parts[i].index)
            for i in range(work.part_count)
        ]
        return 0

    def __dealloc__(self):
        if self.work != NULL:
            self.answer([])

    cdef void answer(self, list codes):
        """Completes the question; a partition without a code has failed."""
        cdef VerifyWork* work = self.work
        cdef int32_t i
        for i in range(work.part_count):
            work.parts[i].error = <int>codes[i] if i < len(codes) else ERROR_UNKNOWN_SERVER_ERROR
        self.work = NULL
        with nogil:
            _finish(self.queue.jobs, work)

    def renew(self):
        """Returns whether a marker of the producer arrived after the question. The partition then
        ignores an answer from before the marker, so the caller must ask the coordinator again."""
        cdef VerifyWork* work = self.work
        cdef bint overtaken
        if work == NULL:
            raise RuntimeError("the question is answered already")
        with nogil:
            overtaken = _renew(work)
        return bool(overtaken)

    def done(self, list codes not None):
        """Completes the question with one Kafka error code for each partition; 0 permits the write.
        Raises ValueError for another number of codes, RuntimeError if the question is complete."""
        if self.work == NULL:
            raise RuntimeError("the question is answered already")
        if len(codes) != len(self.partitions):
            raise ValueError(f"{len(codes)} codes for {len(self.partitions)} partitions")
        self.answer([int(code) for code in codes])
