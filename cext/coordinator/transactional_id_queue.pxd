"""A queue of transactional ids that network threads pass to Python, which completes them: Python
writes the markers of transactions whose end is decided, and reserves a producer id when none is
reserved.

A full queue drops a name. That is safe: Python's check for late transactions finds decided ends,
and the client repeats an EndTxn that needs a producer id.
"""
from libc.stdint cimport int32_t, uint8_t

from barnabas.cext.memory.job_queue cimport Job, JobQueue, Jobs

cdef struct QueuedId:               # the name follows
    Job job
    int32_t name_bytes

# Queues a name, or drops it when the queue is full or closed, or memory ran out.
cdef void id_queue_put(Jobs* jobs, const uint8_t* name, int32_t name_bytes) noexcept nogil

cdef class TransactionalIdQueue(JobQueue):
    pass
