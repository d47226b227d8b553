"""Converts fetched ranges to the message formats 0 and 1: a queue from network threads to threads
of broker/server/down_conversion.py.

A Fetch of version 0 to 3 that has chosen its ranges waits while each range is converted. A thread
takes a range (DownConversionQueue.next), reads it, and calls convert(): it converts batch after
batch without the GIL and returns at one that is compressed. The thread decompresses it with the
packages, content() makes the messages without the GIL, the thread compresses them, and wrap()
appends the wrapper. Kafka: LazyDownConversionRecords, RecordsUtil.downConvert.

As in Kafka:
- batches of a format that the version may have stay as they are; control batches are left out;
- the result has whole messages up to the size of the range, and at least its first batch that is no
  control batch (Kafka sends the beginning of one more message, which clients ignore);
- a batch that is cut off at the end of the range is left out;
- a zstd batch ends the result; if it is the first, the error is UNSUPPORTED_COMPRESSION_TYPE.

A compressed batch whose records all lie before the fetch offset, after compaction, is left out: if the
limit of the fetch ends behind it, an old consumer of Kafka gets it again and again.

Damage ends the result too; if nothing is converted, the error is CORRUPT_MESSAGE, or
MESSAGE_TOO_LARGE for a batch above max.decompressed.bytes.

Limits: DOWN_CONVERSION_BYTES_MAX of stored records for a request. All answers together hold
DOWN_CONVERSION_MEMORY_BYTES_MAX, from their ranges until they are sent: fetch.pyx claims
DOWN_CONVERSION_FACTOR times the ranges (cext/memory/memory_limit.pyx), and a fetch gets less, or waits,
while memory is short. A first batch may become larger than was claimed, because a compressed one has
more records than its size tells; its result is added, and while such results exceed the limit, a range
gives nothing. Beside this each thread has one decompressed batch with its messages in memory.
Next: fetch.pyx.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from barnabas.cext.codec.buffer cimport buffer_bytes, buffer_free, buffer_init
from barnabas.cext.codec.endian cimport be32_load
from barnabas.cext.memory.atomics cimport atomic_load_i64
from barnabas.cext.memory.condition cimport monotonic_now_ns
from barnabas.cext.memory.memory_limit cimport (
    memory_add, memory_is_overdrawn, memory_limit_free, memory_limit_init, memory_limit_set,
)
from barnabas.cext.partition.partitions cimport table_wake
from barnabas.cext.record.conversion cimport batch_down, messages_down, wrapper_put
from barnabas.cext.record.messageset cimport (
    AT_MESSAGE_ATTRIBUTES, MessageView, message_entry_size, message_view,
)
from barnabas.cext.record.records cimport (
    AT_BATCH_LENGTH, AT_MAGIC, ATTR_CODEC_MASK, ATTR_CONTROL, BATCH_CUT_OFF, BATCH_OVERHEAD,
    BatchHeader, LOG_OVERHEAD, RECORDS_OK, batch_header, batch_size,
)
from barnabas.cext.fetch.interception cimport Rewrites, rewrite_finish, rewrite_read

cdef enum:
    ERROR_UNKNOWN_SERVER_ERROR = -1
    ERROR_CORRUPT_MESSAGE = 2
    ERROR_UNSUPPORTED_COMPRESSION_TYPE = 76
    CODEC_ZSTD = 4

cdef struct Source:             # a range in memory, and how far it is converted
    uint8_t* data
    int64_t size
    int64_t at
    int64_t size_max            # of the result
    int64_t next_offset         # behind the batches before `at`
    # the compressed batch at `at`
    bint is_batch               # of format 2
    BatchHeader h
    MessageView outer
    const uint8_t* packed
    int64_t packed_bytes
    int64_t batch_bytes
    Down down

cdef enum:                      # how convert() ended
    CONVERT_DONE = 0
    CONVERT_COMPRESSED = 1      # at a compressed batch
    CONVERT_CORRUPT = 2
    CONVERT_ZSTD = 3


cdef bint _is_full(Source* s, Buffer* made, int64_t before) noexcept nogil:
    """Ends the result behind the last whole message that fits, unless it is the first batch's.
    `before`: its size before the last batch. Returns whether no more fits."""
    cdef int64_t at = before, entry
    if made.failed:
        return True
    if before == 0:
        s.size_max = max(s.size_max, made.size)
        return made.size == s.size_max and made.size > 0
    while at < made.size:
        entry = LOG_OVERHEAD + <int64_t>be32_load(made.data + at + AT_BATCH_LENGTH)
        if at + entry > s.size_max:
            made.size = at
            return True
        at += entry
    return False


cdef inline void _step(Source* s) noexcept nogil:
    """Goes on to the next batch."""
    s.at += s.batch_bytes
    s.next_offset = 1 + (
        s.h.base_offset + s.h.last_offset_delta if s.is_batch else s.outer.offset)


cdef int _next_entry(Source* s, int magic) noexcept nogil:
    """Reads the header at s.at. Returns RECORDS_OK, BATCH_CUT_OFF, or another status for damage."""
    cdef const uint8_t* p = s.data + s.at
    cdef int64_t left = s.size - s.at
    cdef int status
    if left <= AT_MAGIC:
        return BATCH_CUT_OFF
    s.is_batch = p[AT_MAGIC] == 2
    memset(&s.down, 0, sizeof(Down))
    s.down.magic = magic
    if s.is_batch:
        status = batch_header(p, left, &s.h)
        if status == RECORDS_OK:
            s.batch_bytes = batch_size(&s.h)
            s.packed = p + BATCH_OVERHEAD
            s.packed_bytes = s.batch_bytes - BATCH_OVERHEAD
            s.down.codec = s.h.attributes & ATTR_CODEC_MASK
    else:
        status = message_view(p, left, &s.outer)
        if status == RECORDS_OK:
            s.batch_bytes = message_entry_size(&s.outer)
            s.packed = s.outer.value
            s.packed_bytes = max(s.outer.value_size, 0)
            s.down.codec = s.outer.attributes & ATTR_CODEC_MASK
    return status


cdef int _convert(Source* s, Buffer* made, int magic, int64_t first_offset, int64_t* count) noexcept nogil:
    """Converts batches up to the next compressed one. Returns CONVERT_...."""
    cdef int64_t before
    cdef int status
    while True:
        status = _next_entry(s, magic)
        if status == BATCH_CUT_OFF:
            return CONVERT_DONE
        if status != RECORDS_OK:
            return CONVERT_CORRUPT
        s.down.first_offset = first_offset
        before = made.size
        if s.is_batch and (s.h.attributes & ATTR_CONTROL or s.packed_bytes == 0):
            _step(s)
            continue
        if not s.is_batch and s.outer.magic <= magic:
            buffer_bytes(made, s.data + s.at, s.batch_bytes)
        elif s.down.codec == CODEC_ZSTD:
            return CONVERT_ZSTD
        elif s.down.codec:
            return CONVERT_COMPRESSED
        elif s.is_batch:
            status = batch_down(made, s.packed, s.packed_bytes, &s.h, &s.down)
        else:
            status = messages_down(made, NULL, 0, &s.outer, &s.down)
        if status != RECORDS_OK:
            made.size = before
            return CONVERT_CORRUPT
        _step(s)
        count[0] += s.down.count
        if made.size > before and _is_full(s, made, before):
            return CONVERT_DONE


cdef void _wake(void* context, int32_t thread_index, uint64_t connection_id) noexcept nogil:
    table_wake((<Rewrites*>context).table, thread_index, connection_id)


@cython.no_gc_clear         # __dealloc__ of jobs needs its references
cdef class DownConversionQueue(RangeQueue):
    """The queue of one broker's ranges that wait for their conversion. Its jobs are
    DownConversions."""

    def __cinit__(self, *_args, **_named):
        memory_limit_init(
            &self.memory, DOWN_CONVERSION_MEMORY_BYTES_MAX, _wake, &self.rewrites)
        self.rewrites.memory = &self.memory

    def __dealloc__(self):
        memory_limit_free(&self.memory)

    @property
    def memory_bytes_max(self):
        """Limit of the memory of all converted answers."""
        return self.memory.bytes_max

    @memory_bytes_max.setter
    def memory_bytes_max(self, int64_t value):
        with nogil:
            memory_limit_set(&self.memory, value)

    @property
    def memory_bytes(self):
        """Memory that converted answers hold or have claimed."""
        return atomic_load_i64(&self.memory.held_bytes)

    @property
    def memory_waits(self):
        """Fetches that had to wait for memory, since the start."""
        return atomic_load_i64(&self.memory.waits)

    cdef object job_of(self, Rewrite* rewrite):
        cdef DownConversion job = DownConversion.__new__(DownConversion)
        job.queue = self
        job.rewrite = rewrite
        job.began_ns = monotonic_now_ns()
        job.load()
        return job


@cython.no_gc_clear         # __dealloc__ needs what it refers to
cdef class DownConversion:
    """One range. Call convert() until it returns None, then done(); or failed(). A job that is
    dropped without either fails."""
    cdef DownConversionQueue queue
    cdef Rewrite* rewrite
    cdef Source source
    cdef Buffer made
    cdef int64_t began_ns
    cdef int64_t largest_bytes  # a decompressed batch and its messages
    cdef int error

    def __cinit__(self):
        memset(&self.source, 0, sizeof(Source))
        buffer_init(&self.made)

    def __init__(self):
        raise TypeError("jobs come from a DownConversionQueue")

    def __dealloc__(self):
        if self.rewrite != NULL:
            self.finish(ERROR_UNKNOWN_SERVER_ERROR)
        buffer_free(&self.made)

    cdef int load(self) except -1:
        """Reads the range into memory."""
        cdef Rewrite* rewrite = self.rewrite
        cdef Source* s = &self.source
        cdef int status = 0
        with nogil:
            if rewrite.source != NULL:
                s.data, s.size = rewrite.source, rewrite.source_bytes
            else:
                s.size = rewrite.size_bytes
                s.data = rewrite.source = <uint8_t*>malloc(s.size if s.size else 1)
                if s.data != NULL:
                    status = rewrite_read(rewrite, 0, s.data, s.size)
            s.size_max = s.size
            if memory_is_overdrawn(&self.queue.memory):
                s.size = 0          # the client asks again
        if s.data == NULL or status != 0:
            self.error = ERROR_UNKNOWN_SERVER_ERROR
            s.size = 0
        return 0

    cdef Rewrite* unanswered(self) except NULL:
        if self.rewrite == NULL:
            raise RuntimeError("the job is answered already")
        return self.rewrite

    @property
    def magic(self): return self.unanswered().magic
    @property
    def size_max(self):
        """The largest decompressed size of a batch in bytes."""
        return self.unanswered().inflated_bytes_max
    @property
    def codec(self):
        """The codec of the batch at which convert() has returned."""
        return self.source.down.codec
    @property
    def stored_magic(self):
        """Its message format."""
        return 2 if self.source.is_batch else self.source.outer.magic

    def convert(self):
        """Converts batches, and returns the compressed records of the next one that is compressed;
        None at the end."""
        cdef Rewrite* rewrite = self.unanswered()
        cdef Source* s = &self.source
        cdef int ended
        with nogil:
            ended = _convert(
                s, &self.made, rewrite.magic, rewrite.first_offset, &rewrite.converted_count)
        if ended == CONVERT_COMPRESSED:
            return PyBytes_FromStringAndSize(<const char*>s.packed, s.packed_bytes)
        if ended == CONVERT_CORRUPT:
            self.stop(ERROR_CORRUPT_MESSAGE)
        elif ended == CONVERT_ZSTD:
            self.stop(ERROR_UNSUPPORTED_COMPRESSION_TYPE)
        return None

    def content(self, bytes inflated not None):
        """Returns the messages of the batch whose decompressed records are given; None if it is
        damaged or has none: then call convert() again."""
        cdef Rewrite* rewrite = self.unanswered()
        cdef Source* s = &self.source
        cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(inflated)
        cdef int64_t size = len(inflated)
        cdef Buffer inner
        cdef int status
        buffer_init(&inner)
        try:
            with nogil:
                if s.is_batch:
                    status = batch_down(&inner, data, size, &s.h, &s.down)
                else:
                    status = messages_down(&inner, data, size, &s.outer, &s.down)
            if inner.failed:
                raise MemoryError
            if status != RECORDS_OK:
                self.stop(ERROR_CORRUPT_MESSAGE)
                return None
            self.largest_bytes = max(self.largest_bytes, size + inner.size)
            # After compaction a batch can end behind its last record: its messages would not lead an
            # old consumer any further.
            if s.down.count == 0 or s.down.last_offset < rewrite.first_offset:
                _step(s)
                return None
            return PyBytes_FromStringAndSize(<const char*>inner.data, inner.size)
        finally:
            buffer_free(&inner)

    def wrap(self, bytes packed not None):
        """Appends the wrapper of the messages, which are compressed again."""
        cdef Rewrite* rewrite = self.unanswered()
        cdef Source* s = &self.source
        cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(packed)
        cdef int64_t size = len(packed), before = self.made.size
        with nogil:
            wrapper_put(&self.made, data, size, &s.down)
            rewrite.converted_count += s.down.count
            _step(s)
            if _is_full(s, &self.made, before):
                s.size = s.at

    def stop(self, int code):
        """Ends the result before the batch at which convert() has returned. If nothing is converted,
        the consumer gets this error code."""
        if self.made.size == 0 and self.error == 0:
            self.error = code
        self.source.size = self.source.at

    def done(self):
        """Completes the job: the broker sends the messages in place of the range."""
        self.unanswered()
        if self.made.failed:
            raise MemoryError
        self.finish(self.error)

    def failed(self, int code):
        """Fails the job: the consumer gets this Kafka error code for the partition."""
        self.unanswered()
        self.finish(code if code else ERROR_UNKNOWN_SERVER_ERROR)

    cdef void finish(self, int code) noexcept:
        cdef Rewrite* rewrite = self.rewrite
        self.rewrite = NULL
        rewrite.error = <short>code
        rewrite.next_offset = self.source.next_offset
        rewrite.conversion_ns = max(monotonic_now_ns() - self.began_ns, 1)
        rewrite.conversion_bytes = rewrite.size_bytes + self.made.size + self.largest_bytes
        if code == 0:
            rewrite.made, rewrite.made_bytes = self.made.data, self.made.size
            rewrite.added_bytes = max(self.made.size - rewrite.claimed_bytes, 0)
            if rewrite.added_bytes:
                memory_add(&self.queue.memory, rewrite.added_bytes)
            buffer_init(&self.made)
        free(rewrite.source)
        rewrite.source = NULL
        with nogil:
            rewrite_finish(rewrite)
