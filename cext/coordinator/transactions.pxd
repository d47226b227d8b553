"""The transactional ids of one broker, for the native handlers that add partitions to transactions.

From the second version of transactions on (KIP-890) clients add no partitions: the first batch of a
transaction does so in each partition that it is for (produce.pyx), and its offsets in theirs
(offset_commit.pyx).
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from barnabas.cext.codec.buffer cimport Buffer
from barnabas.cext.coordinator.ended_transactions cimport Ended, EndedTransactions
from barnabas.cext.coordinator.settled_ids cimport SettledIds
from barnabas.cext.coordinator.transaction_state cimport Txn, TxnRows
from barnabas.cext.memory.int64_map cimport Int64Map
from barnabas.cext.memory.job_queue cimport Jobs
from barnabas.cext.memory.mutex cimport pthread_mutex_t
from barnabas.cext.memory.secret_hash cimport Secret
from barnabas.cext.network.handler cimport NativeHandler
from barnabas.cext.partition.partitions cimport Partition, Table

cdef enum:
    SHARDS = 16                     # a power of two
    PARTITIONS_MAX = 128            # of a transaction; Python takes the steps of larger ones
    ADDED_MAX = 32                  # partitions in one request

cdef struct Shard:
    pthread_mutex_t lock
    Int64Map ids                    # hash of the id: Txn*
    TxnRows rows                    # as they will be: swapped for the id's own after the append
    Buffer value                    # the memory of the last ones, used again
    Buffer batch

cdef struct TransactionCore:
    Table* table
    Ended* ended
    Jobs* settled                   # NULL: Python takes every step with log.durability=fsync
    int64_t timeout_ns              # of a wait for a flush
    Shard shards[SHARDS]
    int64_t id_count                # atomic
    int64_t step                    # atomic: the number of the newest step
    int32_t value_version           # atomic: of the records
    int64_t served                  # atomic
    int32_t offsets_partitions      # atomic; of the topic that AddOffsetsToTxn adds
    const uint8_t* topic
    int32_t topic_bytes
    const uint8_t* offsets_topic
    int32_t offsets_topic_bytes
    Secret secret

# Adds partitions that this node leads to a producer's transaction; some may belong to it already.
# `verifications`: of their logs, begun before. When it gives True, no marker of an earlier transaction
# has overtaken them. Inside an epoch. False: Python is to do it.
cdef bint transaction_adds(TransactionCore* core, const uint8_t* name, int32_t name_bytes, int64_t producer_id, int16_t producer_epoch, Partition** partitions, const int64_t* verifications, int32_t count) noexcept nogil

# The log of a group's offsets, if it is here; NULL: Python is to say. Inside an epoch.
cdef Partition* transaction_offsets_of(TransactionCore* core, const uint8_t* group, int32_t group_bytes) noexcept nogil

cdef class TransactionHandler(NativeHandler):
    cdef TransactionCore* core
    cdef bytes topic, offsets_topic
    cdef EndedTransactions ended
    cdef SettledIds settled
    cdef Txn* made(self, str name, transaction) except NULL
    cdef list names_of(self, int which, int64_t argument, int32_t leader_epoch)
