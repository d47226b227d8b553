"""Batches that only Python can (de)compress: a queue from network threads to decode threads.

A DecodeGroup contains one request's jobs; the last completed job wakes the connection. A job's
batch is request memory, which is valid only while the job is queued: the thread that takes the job
copies it under the queue's lock, so that a request may be dropped at any time (decode_abandon).
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from barnabas.cext.memory.job_queue cimport Job, JobQueue, Jobs
from barnabas.cext.partition.partitions cimport Partition, Table
from barnabas.cext.partition.topics cimport ProducePolicy
from barnabas.cext.record.conversion cimport MessageSet
from barnabas.cext.record.messageset cimport MessageView
from barnabas.cext.record.record_walk cimport RecordWalk
from barnabas.cext.record.records cimport BATCH_OVERHEAD, BatchHeader
from barnabas.cext.record.validate cimport BodyRules, Verdict

cdef enum:
    TOPIC_NAME_BYTES_MAX = 249
    WORDS_BYTES_MAX = 4096      # of a plugin's message for a refused batch

cdef struct DecodeGroup:
    Table* table
    int32_t thread_index
    uint64_t connection_id
    int32_t pending
    DecodeWork* first           # the newest job; linked by `sibling`

cdef struct DecodeWork:
    Job job                     # first: what the queue links
    DecodeWork* sibling
    DecodeGroup* group          # NULL: the request has ended, and the job is freed when it is done
    const uint8_t* batch        # request memory
    const uint8_t* body         # in it: what is to be decompressed, while the job is queued
    int64_t body_bytes
    int old_magic               # 0 or 1: a message set, which becomes a batch; -1: a batch
    MessageView wrapper         # of a message set with a codec; its pointers are NULL
    int codec                   # of `body`
    BatchHeader h               # of a message set: once it is converted
    int64_t conversion_ns
    int64_t conversion_bytes
    uint8_t header[BATCH_OVERHEAD]
    BodyRules rules
    int target_codec            # -1: the batch is only checked
    bint has_level              # the topic sets the codec, and so its level
    int32_t target_level
    int64_t size_max            # of the inflated records
    RecordWalk walk             # of the records that were checked in pieces
    Verdict verdict             # when done
    char* words                 # the message of a plugin that refused the batch, to which
                                # verdict.message points; otherwise NULL
    int32_t topic_bytes         # of an intercepted batch; 0: no plugin intercepts it
    int32_t partition
    uint8_t topic[TOPIC_NAME_BYTES_MAX]
    uint8_t* made               # a new batch, when there is a target codec
    int64_t made_bytes

cdef class DecodeQueue(JobQueue):
    """Bounded queue of jobs; `next` is for Python threads."""

cdef void decode_group_init(DecodeGroup* group, Table* table, int32_t thread_index, uint64_t connection_id) noexcept nogil
# `intercepted` is the partition whose plugins process the batch; NULL: none do.
# Returns False and makes no job if the queue is full or closed, or if memory ran out.
cdef bint decode_submit(Jobs* jobs, DecodeGroup* group, const uint8_t* batch, const BatchHeader* h, const BodyRules* rules, int target_codec, const ProducePolicy* policy, const Partition* intercepted) noexcept nogil
# The same for a message set of format 0 or 1 that message_set_accept has accepted. `codec`: of the
# batch that it becomes.
cdef bint decode_submit_old(Jobs* jobs, DecodeGroup* group, const uint8_t* records, const MessageSet* found, const BodyRules* rules, int codec, const ProducePolicy* policy, const Partition* intercepted) noexcept nogil
cdef int32_t decode_pending(Jobs* jobs, DecodeGroup* group) noexcept nogil
# Returns the completed job of a batch of the group, or NULL if the batch has no job.
cdef DecodeWork* decode_result(DecodeGroup* group, const uint8_t* batch) noexcept nogil
# Frees every job of the group, in any state.
cdef void decode_abandon(Jobs* jobs, DecodeGroup* group) noexcept nogil
