"""The rules for the steps of a transactional id, for the native handlers of requests that begin,
extend and end transactions.

From transaction.version 2 on (KIP-890) clients do not send AddPartitionsToTxn: the broker adds a
partition when the transaction's first batch for it arrives (produce.pyx), and a partition of
__consumer_offsets when the transaction's first offsets for it arrive (offset_commit.pyx).
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

from barnabas.cext.coordinator.durable_wait cimport DurableWait
from barnabas.cext.coordinator.ended_transactions cimport Ended, EndedTransactions
from barnabas.cext.coordinator.remote_verification cimport Remote, RemoteVerifications
from barnabas.cext.coordinator.transaction_state cimport Asked
from barnabas.cext.coordinator.transactional_ids cimport BUMPS_EPOCH, Ids, TransactionalIds
from barnabas.cext.memory.job_queue cimport Jobs
from barnabas.cext.partition.partitions cimport Partition, table_is_fsync

cdef struct Steps:
    Ids* ids
    Ended* ended
    const uint8_t* offsets_topic    # __consumer_offsets
    int32_t offsets_topic_bytes
    int64_t retry_max_ms            # atomic: the longest wait for a busy id
    int64_t reserved_producer_id    # atomic; -1: none
    Jobs* remote                    # questions to coordinators on other brokers; NULL: no others

cdef inline bint steps_may_wait(const Steps* steps) noexcept nogil:
    """Returns whether an append is durable only after a flush, or after a copy to another broker."""
    return steps.remote != NULL or table_is_fsync(steps.ids.table)

cdef inline void asked_begin(Asked* asked, const uint8_t* name, int32_t name_bytes, int64_t producer_id, int16_t producer_epoch) noexcept nogil:
    """Sets a question of transaction.version 2, about no partition yet."""
    asked.name, asked.name_bytes = name, name_bytes
    asked.producer_id, asked.producer_epoch = producer_id, producer_epoch
    asked.connection_id, asked.client_version = 0, BUMPS_EPOCH
    asked.rows, asked.count, asked.committed = NULL, 0, False

# Takes the step that `asked` describes, inside an epoch. `ends`: it ends the transaction, otherwise
# it adds partitions. Returns Kafka's error code; or STEP_WAITS: the step takes effect when `wait`
# is over; or STEP_SETTLES: the caller must ask again, and the connection of `wait` is woken for
# that (`wait` NULL: it is not). `asks_again`: the caller asks again for its own step too. An end
# sets the producer id and epoch of the answer in `asked`.
cdef int transaction_steps(Steps* steps, Asked* asked, bint ends, DurableWait* wait, bint asks_again) noexcept nogil
# Adds partitions to a producer's transaction; some may belong to it already. `partitions`: those
# that this node leads, in the order of the rows. `verifications`: the verification that the caller
# has begun in the log of each. Returns 0: the transaction has the partitions, and no marker of an
# earlier transaction has overtaken the verifications. Otherwise it returns Kafka's error code, or
# STEP_SETTLES: the connection of `wait` is woken, and the caller then asks again. The caller is
# inside the epoch, and ends the wait with durable_wait_end. If another broker coordinates the id,
# this function asks that broker: `remote` keeps the question for the next call, until remote_drop.
cdef int transaction_adds(Steps* steps, Asked* asked, Partition** partitions, const int64_t* verifications, DurableWait* wait, Remote** remote) noexcept nogil
# Returns 0 and sets a code for each row, which says whether the partition belongs to the
# transaction; or an error code for all rows; or, with a `remote` that is not NULL, STEP_SETTLES as
# above.
cdef int transaction_has(Steps* steps, const Asked* asked, int16_t* codes, const DurableWait* wait, Remote** remote) noexcept nogil

cdef class TransactionSteps:
    cdef Steps steps
    cdef readonly TransactionalIds ids
    cdef EndedTransactions ended
    cdef RemoteVerifications remote
    cdef bytes offsets_topic
