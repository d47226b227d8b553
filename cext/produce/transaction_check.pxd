"""Questions to the transaction coordinator: a queue from network threads to Python.

A VerifyWork is one request's question; its answer wakes the connection. The request owns it until
verify_drop, in any state.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

from barnabas.cext.codec.buffer cimport Buffer
from barnabas.cext.coordinator.transactions cimport TransactionCore
from barnabas.cext.memory.job_queue cimport Job, JobQueue, Jobs
from barnabas.cext.network.handler cimport Request
from barnabas.cext.partition.partitions cimport Partition, Table

cdef enum:
    VERIFY_ADDS_FROM = 12       # version of Produce: partitions are added to the transaction

cdef struct VerifyPart:
    const uint8_t* records      # in the request: identifies the part
    uint8_t topic_id[16]
    int32_t index
    uint64_t generation
    int64_t verification        # of the partition's log (log_transactions.pxd)
    int64_t name_at             # in `names`
    int32_t name_bytes
    int16_t error               # when done

cdef struct VerifyWork:
    Job job                     # first: what the queue links
    Table* table
    int32_t thread_index
    uint64_t connection_id
    bint dropped                # the request is gone: freed when it is answered
    int64_t producer_id
    int32_t producer_epoch
    int16_t api_version         # of the Produce request
    int32_t id_bytes            # it stands at the beginning of `names`
    Buffer names
    VerifyPart* parts
    int32_t part_count
    int32_t part_capacity

cdef class VerifyQueue(JobQueue):
    """Bounded queue of questions; `next` is for Python threads."""

cdef VerifyWork* verify_new(Table* table, const Request* request, const uint8_t* transactional_id, int32_t id_bytes) noexcept nogil
# The caller is inside the epoch in which it found the partition. False: no memory.
cdef bint verify_ask_for(VerifyWork* work, Partition* partition, const uint8_t* records) noexcept nogil
# Adds the partitions to the transaction here, inside an epoch; returns whether that answers all.
cdef bint verify_adds(VerifyWork* work, TransactionCore* transactions) noexcept nogil
# Returns False if the queue is full or closed.
cdef bint verify_submit(Jobs* jobs, VerifyWork* work) noexcept nogil
cdef bint verify_is_done(Jobs* jobs, VerifyWork* work) noexcept nogil
# Returns the question for these records; NULL if there is none.
cdef VerifyPart* verify_part(VerifyWork* work, const uint8_t* records) noexcept nogil
# The caller is outside any epoch.
cdef void verify_drop(Jobs* jobs, VerifyWork* work) noexcept nogil
