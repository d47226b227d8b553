"""Ranges of records that plugins process before a fetch sends them; see interception.pyx."""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

from barnabas.cext.log.log cimport LogSlice
from barnabas.cext.log.segment cimport Segment
from barnabas.cext.memory.job_queue cimport Job, JobQueue, Jobs
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

cdef struct Rewrites:
    Table* table
    Jobs* jobs

cdef class RewriteQueue(JobQueue):
    """Bounded queue of ranges; `next` is for Python threads."""
    cdef Rewrites rewrites
    cdef object table_owner
    cdef Rewrites* serve(self, table) except NULL

# The caller is inside an epoch. Returns NULL if the queue is full or closed, or memory ran out.
cdef Rewrite* rewrite_ask(Rewrites* rewrites, int32_t thread_index, uint64_t connection_id, const Partition* p, const LogSlice* slice) noexcept nogil
cdef bint rewrite_is_done(Rewrite* rewrite) noexcept nogil
# Releases the job in any state; ignores NULL.
cdef void rewrite_drop(Rewrite* rewrite) noexcept nogil
