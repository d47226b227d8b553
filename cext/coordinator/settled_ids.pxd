"""The queue of transactional ids that Python must look at, from network threads: it writes the
markers of decided ends, and brings a producer id when none is in reserve.

A full queue drops a name: Python's sweep of late transactions finds decided ends, and an EndTxn that
needs a producer id comes again.
"""
from libc.stdint cimport int32_t, uint8_t

from barnabas.cext.memory.job_queue cimport Job, JobQueue, Jobs

cdef struct SettledId:              # the name follows
    Job job
    int32_t name_bytes

cdef void settled_put(Jobs* jobs, const uint8_t* name, int32_t name_bytes) noexcept nogil

cdef class SettledIds(JobQueue):
    pass
