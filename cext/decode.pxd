"""Batches that only Python can open or compress: a queue from network threads to decode threads.

A DecodeGroup is one request's jobs; its connection is woken when the last one is done. A job's
batch is request memory and is read only while the job is queued: whoever takes it copies it under
the queue's lock, so that a request may be dropped at any time (decode_abandon).
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from barnabas.cext.condition cimport pthread_cond_t
from barnabas.cext.mutex cimport pthread_mutex_t
from barnabas.cext.partitions cimport Table
from barnabas.cext.records cimport BATCH_OVERHEAD, BatchHeader
from barnabas.cext.validate cimport BodyRules, Verdict

cdef enum:  # states of a job
    JOB_QUEUED = 0
    JOB_WORKING = 1
    JOB_DONE = 2

cdef struct DecodeGroup:
    Table* table
    int32_t thread_index
    uint64_t connection_id
    int32_t pending
    DecodeWork* first           # the newest job; linked by `sibling`

cdef struct DecodeWork:
    DecodeWork* next            # in the queue
    DecodeWork* sibling
    DecodeGroup* group          # NULL: the request is gone, the job is freed when it is done
    int state
    const uint8_t* batch        # request memory
    BatchHeader h
    uint8_t header[BATCH_OVERHEAD]
    BodyRules rules
    int target_codec            # -1: only look inside
    int64_t size_max            # of the inflated records
    Verdict verdict             # when done
    uint8_t* made               # a new batch, when there is a target codec
    int64_t made_bytes

cdef struct DecodeJobs:
    pthread_mutex_t lock
    pthread_cond_t work
    DecodeWork* head
    DecodeWork* tail
    int32_t depth
    int32_t depth_max
    bint closed
    int64_t done_count
    int64_t refused_count

cdef class DecodeQueue:
    """Bounded queue of jobs; `next` is for Python threads."""
    cdef DecodeJobs* jobs

cdef void decode_group_init(DecodeGroup* group, Table* table, int32_t thread_index, uint64_t connection_id) noexcept nogil
# False: the queue is full or closed, or memory ran out; the job is not made then.
cdef bint decode_submit(DecodeJobs* jobs, DecodeGroup* group, const uint8_t* batch, const BatchHeader* h, const BodyRules* rules, int target_codec, int64_t size_max) noexcept nogil
cdef int32_t decode_pending(DecodeJobs* jobs, DecodeGroup* group) noexcept nogil
# The finished job of a batch of the group, NULL when none was made for it.
cdef DecodeWork* decode_result(DecodeGroup* group, const uint8_t* batch) noexcept nogil
# Frees every job of the group, whatever it is doing.
cdef void decode_abandon(DecodeJobs* jobs, DecodeGroup* group) noexcept nogil
