"""The verification of a produce request's transactional batches with the coordinator's table.

A VerifyWork is one request's question. The request owns it until verify_drop.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

from barnabas.cext.codec.buffer cimport Buffer
from barnabas.cext.coordinator.durable_wait cimport DurableWait
from barnabas.cext.coordinator.remote_verification cimport Remote
from barnabas.cext.coordinator.transaction_steps cimport Steps
from barnabas.cext.network.handler cimport Request
from barnabas.cext.partition.partitions cimport Partition, Table

cdef enum:
    VERIFY_ADDS_FROM = 12       # from this version of Produce on the broker adds partitions (KIP-890)

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
    Table* table
    DurableWait wait            # for the transactional id, when it is busy
    Remote* remote              # the question to a coordinator on another broker; NULL: none
    int64_t producer_id
    int32_t producer_epoch
    int16_t api_version         # of the Produce request
    int32_t id_bytes            # the transactional id is the beginning of `names`
    Buffer names
    VerifyPart* parts
    int32_t part_count
    int64_t part_capacity

cdef VerifyWork* verify_new(Table* table, const Request* request, const uint8_t* transactional_id, int32_t id_bytes) noexcept nogil
# Adds a partition to the question, and begins a verification in its log. The caller is inside the
# epoch in which it found the partition. Returns False without memory.
cdef bint verify_ask_for(VerifyWork* work, Partition* partition, const uint8_t* records) noexcept nogil
# Asks the table, or a coordinator on another broker; call it outside an epoch. True: each part has
# its error code. False: the id is busy or the answer has not arrived, and the request's connection
# will be woken to ask again. When the time is over (`expired`) it does not return False.
cdef bint verify_settles(VerifyWork* work, Steps* transactions, bint expired) noexcept nogil
# Returns the deadline of the wait after verify_settles has returned False: the request's own,
# `deadline_ns`, while it waits for a flush or for another broker, otherwise that of a busy id.
cdef int64_t verify_deadline_ns(VerifyWork* work, Steps* transactions, const Request* request, int64_t deadline_ns) noexcept nogil
# Returns the question for these records; NULL if there is none.
cdef VerifyPart* verify_part(VerifyWork* work, const uint8_t* records) noexcept nogil
# Ends the verifications, except in logs that are removed, and frees the question. Call it outside
# an epoch.
cdef void verify_drop(VerifyWork* work) noexcept nogil
