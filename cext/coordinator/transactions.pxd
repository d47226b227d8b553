"""The transactional ids of one broker, for the native handlers that add partitions to transactions.

From the second version of transactions on (KIP-890) clients add no partitions: the first batch of a
transaction does so in each partition that it is for (produce.pyx), and its offsets in theirs
(offset_commit.pyx).
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

from barnabas.cext.codec.buffer cimport Buffer
from barnabas.cext.coordinator.durable_wait cimport DurableWait
from barnabas.cext.coordinator.ended_transactions cimport Ended, EndedTransactions
from barnabas.cext.coordinator.partition_states cimport PartitionState, PartitionStates
from barnabas.cext.coordinator.settled_ids cimport SettledIds
from barnabas.cext.coordinator.transaction_state cimport Txn
from barnabas.cext.memory.int64_map cimport Int64Map
from barnabas.cext.memory.job_queue cimport Jobs
from barnabas.cext.memory.mutex cimport pthread_mutex_t
from barnabas.cext.memory.secret_hash cimport Secret
from barnabas.cext.network.handler cimport NativeHandler
from barnabas.cext.partition.partitions cimport Partition, Table

cdef enum:
    SHARDS = 16                     # a power of two
    ADDED_MAX = 32                  # partitions in one request that a native handler parses
    BUMPS_EPOCH = 2                 # of transaction.version
    TRANSACTION_WAITS = -102        # beside Kafka's error codes

cdef struct Shard:
    pthread_mutex_t lock
    Int64Map ids                    # hash of the id: Txn*
    Txn* spare                      # the memory of the last step, used again; NULL: none
    Buffer value
    Buffer batch

cdef struct TransactionCore:
    Table* table
    Ended* ended
    Jobs* settled                   # may be NULL
    PartitionState* states          # of __transaction_state
    PartitionState* offsets         # of __consumer_offsets
    int64_t timeout_ns              # of a wait for a flush
    int64_t retry_max_ms            # atomic: of a wait for a busy id
    int64_t reserved_producer_id    # atomic; -1: none
    Shard shards[SHARDS]
    int64_t id_count                # atomic
    int64_t step                    # atomic: the number of the newest step
    int32_t value_version           # atomic: of the records
    int64_t served                  # atomic
    const uint8_t* topic
    int32_t topic_bytes
    const uint8_t* offsets_topic
    int32_t offsets_topic_bytes
    Secret secret

cdef struct AskedRow:               # a partition
    const uint8_t* topic
    int32_t topic_bytes
    int32_t index

cdef struct Asked:                  # what a request asks of an id
    const uint8_t* name
    int32_t name_bytes
    int64_t producer_id
    int16_t producer_epoch
    uint64_t connection_id          # 0: any
    int16_t client_version          # of transaction.version
    AskedRow* rows
    int32_t count
    bint committed                  # of an end

cdef inline void asked_begin(Asked* asked, const uint8_t* name, int32_t name_bytes, int64_t producer_id, int16_t producer_epoch) noexcept nogil:
    """A question of the second version about no partition yet."""
    asked.name, asked.name_bytes = name, name_bytes
    asked.producer_id, asked.producer_epoch = producer_id, producer_epoch
    asked.connection_id, asked.client_version = 0, BUMPS_EPOCH
    asked.rows, asked.count, asked.committed = NULL, 0, False

# Adds partitions to a producer's transaction; some may belong to it already. `verifications`: of
# their logs, begun before; `partitions`: those that this node leads, in the order of the rows. 0: the
# transaction has them, and no marker of an earlier one has overtaken the verifications. Else Kafka's
# error code, or TRANSACTION_WAITS: the connection of `wait` is woken, and asks again then. The
# caller is inside an epoch, and ends the wait with durable_wait_end.
cdef int transaction_adds(TransactionCore* core, Asked* asked, Partition** partitions, const int64_t* verifications, DurableWait* wait) noexcept nogil
# Returns 0 and sets a code for each row: whether it belongs to the transaction; or an error code for
# all of them.
cdef int transaction_has(TransactionCore* core, const Asked* asked, int16_t* codes) noexcept nogil

cdef class TransactionHandler(NativeHandler):
    cdef TransactionCore* core
    cdef bytes topic, offsets_topic
    cdef EndedTransactions ended
    cdef SettledIds settled
    cdef PartitionStates states, offsets_states
    cdef Txn* made(self, str name, transaction) except NULL
    cdef list names_of(self, int which, int64_t argument, int32_t leader_epoch)
