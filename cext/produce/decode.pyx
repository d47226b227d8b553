"""Decode jobs: Python threads decompress gzip and zstd batches, and compress batches again.

The network thread checks header and CRC, queues a job, and the request waits. A decode thread takes
the job (DecodeQueue.next), decompresses the batch piece by piece and passes each piece to check(),
which validates its records without the GIL and keeps none. If the batch must be compressed again,
the thread passes all records to done() instead. The job keeps the verdict. The last job of the
request wakes the connection, and the produce path continues.

A batch whose topic has interceptors is a job too, with any codec: the Python thread checks it
(look), calls the plugins, and accepts it, rejects it with a message for the client, or supplies
another batch in its place. broker/hooks has the plugins and their budgets.

A message set of format 0 or 1 that is compressed, or whose batch must be, is a job too. The thread
decompresses the wrapper's content whole, up_convert() makes a batch of format 2 of it without the
GIL, and from then on the job is that of an uncompressed batch, which is compressed again.

Limits: the queue holds depth_max jobs; if it is full, the producer gets a retriable error. A queued
job holds no copy of its batch; the request holds it, and the reactor's budget bounds that memory.
Next on the data path: cext/record/validate.pyx; broker/server/decode_pool.py takes the jobs.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint16_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from barnabas.cext.codec.buffer cimport Buffer, buffer_free, buffer_init
from barnabas.cext.codec.endian cimport be16_store
from barnabas.cext.memory.condition cimport monotonic_now_ns
from barnabas.cext.memory.counters cimport (
    COUNT_REJECTED_INVALID, COUNT_REJECTED_OTHER, COUNT_REJECTED_TOO_LARGE,
)
from barnabas.cext.memory.job_queue cimport (
    JOB_DONE, JOB_QUEUED, JOB_WORKING, Jobs, jobs_done, jobs_put, jobs_remove,
)
from barnabas.cext.memory.mutex cimport pthread_mutex_lock, pthread_mutex_unlock
from barnabas.cext.partition.partitions cimport table_wake
from barnabas.cext.record.record_walk cimport walk_begin, walk_end, walk_piece
from barnabas.cext.record.conversion cimport batch_seal, message_set_up
from barnabas.cext.record.messageset cimport message_view
from barnabas.cext.record.records cimport (
    AT_ATTRIBUTES, ATTR_APPEND_TIME, ATTR_CODEC_MASK, RECORDS_OK, batch_crc_check, batch_header, batch_size,
)
from barnabas.cext.codec.error_codes cimport ERROR_REQUEST_TIMED_OUT
from barnabas.cext.record.validate cimport ERROR_INVALID_RECORD, body_check, verdict_of

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
    Jobs* jobs, DecodeGroup* group, const uint8_t* batch, const BatchHeader* h,
    const BodyRules* rules, int target_codec, const ProducePolicy* policy,
    const Partition* intercepted,
) noexcept nogil:
    cdef DecodeWork* work = <DecodeWork*>calloc(1, sizeof(DecodeWork))
    if work == NULL:
        return False
    work.batch = batch
    work.old_magic = -1
    work.body = batch + BATCH_OVERHEAD
    work.body_bytes = batch_size(h) - BATCH_OVERHEAD
    work.codec = h.attributes & ATTR_CODEC_MASK
    work.h = h[0]
    memcpy(work.header, batch, BATCH_OVERHEAD)
    work.target_codec = target_codec
    return _submit(jobs, group, work, rules, policy, intercepted)


cdef bint decode_submit_old(
    Jobs* jobs, DecodeGroup* group, const uint8_t* records, const MessageSet* found,
    const BodyRules* rules, int codec, const ProducePolicy* policy, const Partition* intercepted,
) noexcept nogil:
    cdef DecodeWork* work = <DecodeWork*>calloc(1, sizeof(DecodeWork))
    if work == NULL:
        return False
    work.batch = work.body = records
    work.body_bytes = found.size_bytes
    work.old_magic = found.magic
    work.codec = found.codec
    if found.codec:
        if message_view(records, found.size_bytes, &work.wrapper) != RECORDS_OK:
            free(work)
            return False
        work.body = work.wrapper.value
        work.body_bytes = max(work.wrapper.value_size, 0)
        work.wrapper.key = work.wrapper.value = NULL
    work.target_codec = codec
    return _submit(jobs, group, work, rules, policy, intercepted)


cdef bint _submit(
    Jobs* jobs, DecodeGroup* group, DecodeWork* work, const BodyRules* rules,
    const ProducePolicy* policy, const Partition* intercepted,
) noexcept nogil:
    """Queues the job, or frees it."""
    work.group = group
    work.rules = rules[0]
    work.size_max = policy.decompressed_bytes_max
    work.has_level, work.target_level = policy.codec >= 0, policy.codec_level
    if intercepted != NULL and intercepted.topic_bytes <= TOPIC_NAME_BYTES_MAX:
        work.topic_bytes = intercepted.topic_bytes
        work.partition = intercepted.index
        memcpy(work.topic, intercepted.topic, intercepted.topic_bytes)
    walk_begin(&work.walk)
    pthread_mutex_lock(&jobs.lock)
    if not jobs_put(jobs, &work.job):
        pthread_mutex_unlock(&jobs.lock)
        free(work)
        return False
    work.sibling = group.first
    group.first = work
    group.pending += 1
    pthread_mutex_unlock(&jobs.lock)
    return True


cdef int32_t decode_pending(Jobs* jobs, DecodeGroup* group) noexcept nogil:
    cdef int32_t pending
    pthread_mutex_lock(&jobs.lock)
    pending = group.pending
    pthread_mutex_unlock(&jobs.lock)
    return pending


cdef DecodeWork* decode_result(DecodeGroup* group, const uint8_t* batch) noexcept nogil:
    cdef DecodeWork* work = group.first
    while work != NULL and (work.batch != batch or work.job.state != JOB_DONE):
        work = work.sibling
    return work


cdef void _work_free(DecodeWork* work) noexcept nogil:
    free(work.made)
    free(work.words)
    free(work)


cdef void decode_abandon(Jobs* jobs, DecodeGroup* group) noexcept nogil:
    cdef DecodeWork* work
    cdef DecodeWork* sibling
    if group.first == NULL:
        return
    pthread_mutex_lock(&jobs.lock)
    work = group.first
    while work != NULL:
        sibling = work.sibling
        if work.job.state == JOB_QUEUED:
            jobs_remove(jobs, &work.job)
        if work.job.state == JOB_WORKING:
            work.group = NULL
        else:
            _work_free(work)
        work = sibling
    group.first = NULL
    group.pending = 0
    pthread_mutex_unlock(&jobs.lock)


cdef void _finish(Jobs* jobs, DecodeWork* work) noexcept nogil:
    """Returns the job to its request, or frees it if the request is gone."""
    cdef DecodeGroup* group
    pthread_mutex_lock(&jobs.lock)
    jobs.done_count += 1
    group = work.group
    if group == NULL:
        _work_free(work)
    else:
        jobs_done(&work.job)
        group.pending -= 1
        if group.pending == 0:
            # The lock is held: the request may free the group as soon as the job is complete.
            table_wake(group.table, group.thread_index, group.connection_id)
    pthread_mutex_unlock(&jobs.lock)


cdef DecodeWork* _take(DecodeQueue queue, int64_t timeout_ms, uint8_t** body) noexcept nogil:
    """Returns the next job and a copy of its records; NULL at the deadline or when closed."""
    cdef DecodeWork* work = <DecodeWork*>queue.wait(timeout_ms)
    if work != NULL:
        body[0] = <uint8_t*>malloc(work.body_bytes if work.body_bytes else 1)
        if body[0] != NULL:
            memcpy(body[0], work.body, work.body_bytes)
    pthread_mutex_unlock(&queue.jobs.lock)
    return work


cdef void _make_batch(DecodeWork* work, const uint8_t* body, int64_t size) noexcept nogil:
    """Builds a batch of other records; its header differs only in size, codec and CRC."""
    cdef uint16_t attributes = <uint16_t>((work.h.attributes & ~ATTR_CODEC_MASK) | work.target_codec)
    cdef int64_t total = BATCH_OVERHEAD + size
    work.made = <uint8_t*>malloc(total)
    if work.made == NULL:
        verdict_of(&work.verdict, ERROR_UNKNOWN_SERVER_ERROR, COUNT_REJECTED_OTHER, NULL)
        return
    work.made_bytes = total
    memcpy(work.made, work.header, BATCH_OVERHEAD)
    memcpy(work.made + BATCH_OVERHEAD, body, size)
    be16_store(work.made + AT_ATTRIBUTES, attributes)
    batch_seal(work.made, total)


cdef class DecodeQueue(JobQueue):
    """The queue of one broker's decode jobs."""

    def next(self, int64_t timeout_ms=-1):
        """Returns the next DecodeJob; None after timeout_ms (-1: waits without limit) or when the
        queue is closed."""
        cdef DecodeWork* work
        cdef uint8_t* body = NULL
        cdef DecodeJob job
        with nogil:
            work = _take(self, timeout_ms, &body)
        if work == NULL:
            return None
        job = DecodeJob.__new__(DecodeJob)
        job.queue = self
        job.work = work
        if body == NULL:
            job.failed(ERROR_UNKNOWN_SERVER_ERROR)
            raise MemoryError
        try:
            job.data = PyBytes_FromStringAndSize(<const char*>body, work.body_bytes)
        finally:
            free(body)
        return job


@cython.no_gc_clear         # __dealloc__ uses the queue
cdef class DecodeJob:
    """One batch to decompress. Complete it once: with done(), with check() and checked(), or with
    failed(). A job that is dropped without completion fails.

    `codec` is the codec of `data`, the records of the batch. `size_max` is the largest decompressed
    size in bytes. `target_codec` is the codec for the stored records, or None if the broker stores
    the batch as it is; `target_level` its level, as Kafka counts levels, or None if the topic sets
    no codec.
    """
    cdef DecodeQueue queue
    cdef DecodeWork* work
    cdef readonly bytes data

    def __init__(self):
        raise TypeError("get a DecodeJob from DecodeQueue.next()")

    def __dealloc__(self):
        if self.work != NULL:
            verdict_of(&self.work.verdict, ERROR_UNKNOWN_SERVER_ERROR, COUNT_REJECTED_OTHER, NULL)
            _finish(self.queue.jobs, self.work)

    cdef DecodeWork* _unanswered(self) except NULL:
        if self.work == NULL:
            raise RuntimeError("this job was completed already")
        return self.work

    @property
    def answered(self): return self.work == NULL
    @property
    def codec(self): return self._unanswered().codec
    @property
    def old_magic(self):
        """The message format, 0 or 1, of a message set; None for a batch."""
        cdef int magic = self._unanswered().old_magic
        return None if magic < 0 else magic
    @property
    def size_max(self): return self._unanswered().size_max
    @property
    def target_codec(self):
        cdef int codec = self._unanswered().target_codec
        return None if codec < 0 else codec
    @property
    def target_level(self):
        cdef DecodeWork* work = self._unanswered()
        return work.target_level if work.has_level else None

    @property
    def intercepted(self):
        """Returns (topic, partition) of an intercepted batch, otherwise None."""
        cdef DecodeWork* work = self._unanswered()
        if work.topic_bytes == 0:
            return None
        name = PyBytes_FromStringAndSize(<const char*>work.topic, work.topic_bytes)
        return name.decode("utf-8", "replace"), work.partition

    @property
    def batch(self):
        """Returns the whole batch as the client sent it."""
        cdef DecodeWork* work = self._unanswered()
        return PyBytes_FromStringAndSize(<const char*>work.header, BATCH_OVERHEAD) + self.data

    def up_convert(self, bytes content not None):
        """Converts a message set, or the decompressed content of its wrapper, without the GIL.
        Returns the records of its batch, which the job then has uncompressed; None if it is refused:
        then the job is complete."""
        cdef DecodeWork* work = self._unanswered()
        cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(content)
        cdef int64_t size = len(content)
        cdef Buffer made
        cdef bint accepted
        cdef int64_t began_ns
        if work.old_magic < 0:
            raise RuntimeError("this job is no message set")
        buffer_init(&made)
        try:
            with nogil:
                began_ns = monotonic_now_ns()
                accepted = message_set_up(
                    &made, data, size, work.old_magic, &work.wrapper if work.codec else NULL,
                    &work.rules, &work.verdict)
                if accepted:
                    batch_seal(made.data, made.size)
                    batch_header(made.data, made.size, &work.h)
                    memcpy(work.header, made.data, BATCH_OVERHEAD)
                    work.conversion_bytes = size + made.size
                work.conversion_ns = max(monotonic_now_ns() - began_ns, 1)
            if accepted:
                work.old_magic, work.codec = -1, 0
                self.data = PyBytes_FromStringAndSize(
                    <const char*>made.data + BATCH_OVERHEAD, made.size - BATCH_OVERHEAD)
                return self.data
        finally:
            buffer_free(&made)
        self.work = NULL
        with nogil:
            _finish(self.queue.jobs, work)
        return None

    def look(self, bytes decoded not None):
        """Returns whether the records are valid; if not, done() with them reports the error."""
        cdef DecodeWork* work = self._unanswered()
        cdef const uint8_t* body = <const uint8_t*>PyBytes_AS_STRING(decoded)
        cdef int64_t size = len(decoded)
        cdef Verdict verdict
        if size > work.size_max:
            return False
        with nogil:
            body_check(body, size, &work.h, &work.rules, &verdict)
        return verdict.error == 0

    def reject(self, str words not None, bint is_final=True):
        """Rejects the batch: the producer gets the message `words` with INVALID_RECORD, or with
        REQUEST_TIMED_OUT if it may try again."""
        cdef DecodeWork* work = self._unanswered()
        cdef bytes raw = words.encode("utf-8", "replace")[:WORDS_BYTES_MAX].replace(b"\0", b"?")
        raw = raw.decode("utf-8", "ignore").encode()    # drops a character that was cut in two
        cdef int64_t size = len(raw)
        if is_final:
            verdict_of(&work.verdict, ERROR_INVALID_RECORD, COUNT_REJECTED_INVALID, NULL)
        else:
            verdict_of(&work.verdict, ERROR_REQUEST_TIMED_OUT, COUNT_REJECTED_OTHER, NULL)
        work.words = <char*>malloc(size + 1)
        if work.words != NULL:
            memcpy(work.words, PyBytes_AS_STRING(raw), size + 1)
            work.verdict.message = work.words
        self.work = NULL
        with nogil:
            _finish(self.queue.jobs, work)

    def replace(self, bytes batch not None):
        """Replaces the batch. Raises ValueError unless the new one is one whole batch with as many
        offsets and the same producer."""
        cdef DecodeWork* work = self._unanswered()
        cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(batch)
        cdef int64_t size = len(batch)
        cdef BatchHeader h
        if batch_header(data, size, &h) != RECORDS_OK or batch_size(&h) != size or (
                batch_crc_check(data, &h) != RECORDS_OK):
            raise ValueError("the new bytes are not exactly one valid batch")
        if (h.base_offset != 0 or h.last_offset_delta != work.h.last_offset_delta
                or h.producer_id != work.h.producer_id or h.producer_epoch != work.h.producer_epoch
                or h.base_sequence != work.h.base_sequence
                or (h.attributes ^ work.h.attributes) & ~(ATTR_CODEC_MASK | ATTR_APPEND_TIME)):
            raise ValueError("the new batch has other offsets, attributes or another producer")
        verdict_of(&work.verdict, 0, 0, NULL)
        work.verdict.max_timestamp = h.max_timestamp
        work.made = <uint8_t*>malloc(size)
        if work.made == NULL:
            verdict_of(&work.verdict, ERROR_UNKNOWN_SERVER_ERROR, COUNT_REJECTED_OTHER, NULL)
        else:
            memcpy(work.made, data, size)
            work.made_bytes = size
        self.work = NULL
        with nogil:
            _finish(self.queue.jobs, work)

    def done(self, bytes decoded not None, bytes recompressed=None):
        """Completes the job with the decompressed records and, with a target codec, the newly
        compressed ones (None: stores them uncompressed). Validates them without the GIL."""
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

    def check(self, bytes piece not None):
        """Validates the next piece of decompressed records, of any size, without the GIL, and does
        not keep it. Call checked() after the last piece. Raises RuntimeError for a job with a
        target codec."""
        cdef DecodeWork* work = self._unanswered()
        cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(piece)
        cdef int64_t size = len(piece)
        if work.target_codec >= 0:
            raise RuntimeError("this job has a target_codec: pass all records to done()")
        with nogil:
            walk_piece(&work.walk, data, size, &work.h, &work.rules)

    def checked(self):
        """Completes the job after check() has seen all records."""
        cdef DecodeWork* work = self._unanswered()
        self.work = NULL
        with nogil:
            if work.walk.bytes > work.size_max:
                verdict_of(&work.verdict, ERROR_MESSAGE_TOO_LARGE, COUNT_REJECTED_TOO_LARGE, NULL)
            else:
                walk_end(&work.walk, &work.h, &work.rules, &work.verdict)
            _finish(self.queue.jobs, work)

    def failed(self, int code):
        """Fails the job: the producer gets this Kafka error code."""
        cdef DecodeWork* work = self._unanswered()
        verdict_of(
            &work.verdict, code if code else ERROR_UNKNOWN_SERVER_ERROR, COUNT_REJECTED_OTHER, NULL)
        self.work = NULL
        with nogil:
            _finish(self.queue.jobs, work)
