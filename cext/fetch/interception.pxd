"""Ranges of records that are processed before a fetch sends them: by plugins (interception.pyx), or
to convert them to an older message format (down_conversion.pyx)."""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

from barnabas.cext.log.log cimport LogSlice
from barnabas.cext.log.segment cimport Segment
from barnabas.cext.memory.job_queue cimport Job, JobQueue, Jobs
from barnabas.cext.memory.memory_limit cimport MemoryLimit
from barnabas.cext.partition.partitions cimport Partition, Table

cdef enum:
    REWRITE_NAME_BYTES_MAX = 249

cdef struct Rewrite:
    Job job                     # first: what the queue links
    Rewrites* rewrites
    bint dropped                # the request is gone: the thread that works on it frees it
    int32_t thread_index        # of the network thread to wake
    uint64_t connection_id
    Segment* segment            # held
    int64_t position
    int64_t size_bytes
    int32_t topic_bytes
    int32_t partition
    uint8_t topic[REWRITE_NAME_BYTES_MAX]
    uint8_t* made               # what is sent, when done without an error
    int64_t made_bytes
    int16_t error
    # of a conversion
    int32_t magic               # the message format to convert to: 0 or 1
    int64_t first_offset        # of the fetch
    int64_t inflated_bytes_max  # of one batch
    uint8_t* source             # bytes to convert in place of the range, made by plugins; or NULL
    int64_t source_bytes
    int64_t converted_count     # records
    int64_t next_offset         # behind the last batch that was converted or left out; 0: none was
    int64_t conversion_ns
    int64_t conversion_bytes    # memory that it took
    int64_t claimed_bytes       # of memory, for it
    int64_t added_bytes         # by which the result is larger than was claimed for it

cdef struct Rewrites:
    Table* table
    Jobs* jobs
    MemoryLimit* memory         # of conversions; NULL: results are not limited together

cdef class RangeQueue(JobQueue):
    """Bounded queue of ranges; `next` is for Python threads."""
    cdef Rewrites rewrites
    cdef object table_owner
    cdef Rewrites* serve(self, table) except NULL
    cdef object job_of(self, Rewrite* rewrite)      # a subclass makes the job for Python

cdef class RewriteQueue(RangeQueue):
    pass

# Makes a job for a range of `p`. The caller is inside an epoch. Returns NULL without memory.
cdef Rewrite* rewrite_new(Rewrites* rewrites, int32_t thread_index, uint64_t connection_id, const Partition* p, const LogSlice* slice) noexcept nogil
# Queues the job. Frees it and returns NULL if the queue is full or closed. Ignores NULL.
cdef Rewrite* rewrite_ask(Rewrite* made) noexcept nogil
# Gives a job back to its request, or frees it if the request is gone.
cdef void rewrite_finish(Rewrite* rewrite) noexcept nogil
# Reads `size` bytes of the range from its byte `at` on. Returns 0 or -errno.
cdef int rewrite_read(Rewrite* rewrite, int64_t at, uint8_t* into, int64_t size) noexcept nogil
cdef bint rewrite_is_done(Rewrite* rewrite) noexcept nogil
# Releases the job in any state; ignores NULL.
cdef void rewrite_drop(Rewrite* rewrite) noexcept nogil
