"""The queue of transactional ids whose step by a native handler is over, from network threads to
Python, which writes the markers of decided ends and lets waiting requests go on.

A full queue drops a name: Python's sweep of late transactions finds decided ends, and requests
that wait have a deadline.
"""
from libc.stdint cimport int32_t, uint8_t

from barnabas.cext.memory.job_queue cimport Job, JobQueue, Jobs

cdef struct SettledId:              # the name follows
    Job job
    int32_t name_bytes

cdef void settled_put(Jobs* jobs, const uint8_t* name, int32_t name_bytes) noexcept nogil

cdef class SettledIds(JobQueue):
    pass
