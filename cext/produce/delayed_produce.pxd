"""A delayed Produce request: the events that it waits for, and its response so far."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from barnabas.cext.codec.buffer cimport Buffer
from barnabas.cext.memory.job_queue cimport Jobs
from barnabas.cext.network.handler cimport Request
from barnabas.cext.partition.partitions cimport Partition, Table, Watch
from barnabas.cext.produce.decode cimport DecodeGroup
from barnabas.cext.produce.transaction_check cimport VerifyWork

cdef enum:                          # what the request waits for
    PRODUCE_VISIBLE = 0             # the high watermark, which makes its appends visible
    PRODUCE_VERIFYING = 1           # the answer of the transaction coordinator
    PRODUCE_DECODING = 2            # Python, which decompresses its batches

cdef struct Wait:                   # a partition whose append is not visible yet
    Watch watch
    int64_t required                # the high watermark that answers it
    int32_t leader_epoch            # of the append
    int64_t error_at                # the position of its error code in the response
    bint settled

cdef struct State:
    int phase
    DecodeGroup group
    VerifyWork* verify              # NULL: it needs no confirmation
    uint8_t* refused                # an error code for each topic of the request (0: none), or NULL
    Wait* waits
    int32_t wait_count
    int64_t wait_capacity
    Buffer response
    int64_t deadline_ns

# Adds a partition to wait for; the caller sets error_at. NULL: no memory.
cdef Wait* state_wait_for(State* state, const Request* request, const Partition* p, int64_t required, int32_t leader_epoch) noexcept nogil
# Checks every waiting partition and writes errors into the response. Returns whether no partition
# waits any more.
cdef bint state_settle(State* state, const Request* request, Table* table, bint expired) noexcept nogil
cdef void state_free(State* state, Table* table, Jobs* decode) noexcept nogil
