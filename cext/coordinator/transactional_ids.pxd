"""The transactional ids of one broker, and how an id takes a step.

A step has three parts: `ids_after` makes the state that follows, `ids_append` writes its record,
and `ids_take` puts it into effect, at once or when the record is durable (Txn.after). Callers use
them, and read an id, only between `ids_lock` and `ids_unlock`, inside an epoch.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from barnabas.cext.codec.buffer cimport Buffer
from barnabas.cext.coordinator.partition_states cimport PartitionState, PartitionStates
from barnabas.cext.coordinator.transactional_id_queue cimport TransactionalIdQueue
from barnabas.cext.coordinator.shards cimport Shard, SHARDS
from barnabas.cext.coordinator.transaction_state cimport Txn
from barnabas.cext.memory.job_queue cimport Jobs
from barnabas.cext.memory.mutex cimport pthread_mutex_unlock
from barnabas.cext.memory.secret_hash cimport Secret
from barnabas.cext.partition.partitions cimport Partition, Table, Watch

cdef enum:
    BUMPS_EPOCH = 2                 # the transaction.version from which on each end bumps the epoch
    # The outcome of a step, beside Kafka's error codes.
    STEP_WAITS = -100               # it waits until its record is durable
    STEP_SETTLES = -101             # the id is busy; the waiter is woken and asks again

cdef struct IdShard:
    Shard own                       # its records: Txn*
    Txn* spare                      # the memory of the last step, which the next one uses; NULL: none
    Buffer value                    # likewise, for the record's value

cdef struct Ids:
    Table* table
    Jobs* queue                     # may be NULL
    PartitionState* states          # of __transaction_state
    const uint8_t* topic            # __transaction_state
    int32_t topic_bytes
    IdShard shards[SHARDS]
    int64_t count                   # atomic
    int64_t step                    # atomic: the number of the newest step
    int32_t value_version           # atomic: of the records
    Secret secret

# Locks the shard of an id and returns the id, after a step that has become durable is put into
# effect; NULL: there is no such id, and the shard is locked. The caller is inside an epoch.
cdef Txn* ids_lock(Ids* ids, const uint8_t* name, int32_t name_bytes, IdShard** shard) noexcept nogil
cdef inline void ids_unlock(IdShard* shard) noexcept nogil:
    pthread_mutex_unlock(&shard.own.lock)
# Puts the step of an id into effect if its record is durable; otherwise queues the id for Python,
# which looks again later.
cdef void ids_look(Ids* ids, const uint8_t* name, int32_t name_bytes) noexcept nogil

# The other functions need the lock. Returns the id's partition of __transaction_state; NULL:
# another node leads it, or this node leads it in another leader epoch, or it is offline.
cdef Partition* ids_journal(Ids* ids, const Txn* txn) noexcept nogil
# Queues the id, so that Python completes it (TransactionCoordinator.complete).
cdef void ids_enqueue(Ids* ids, const Txn* txn) noexcept nogil
# Wakes the connection of the watch when the id is no longer busy, or at once if it is not busy by
# now. Returns STEP_SETTLES, or an error code if too many requests wait for the id.
cdef int ids_wait(Ids* ids, Txn* txn, Watch* watch) noexcept nogil

# Returns the state that follows: a copy of the id's state without partitions. NULL: no memory.
cdef Txn* ids_after(IdShard* shard, const Txn* txn) noexcept nogil
# Releases a state whose record is not in the log.
cdef void ids_give_back(IdShard* shard, Txn* after) noexcept nogil
# Appends the record of `after`, which takes effect when the high watermark has reached
# txn.required. Returns 0, or the error code for the client if the record is not in the log.
cdef int ids_append(Ids* ids, IdShard* shard, Txn* txn, const Txn* after, bint* is_durable) noexcept nogil
# Takes over `after`, whose record is in the log. Returns 0: it is in effect; or STEP_WAITS.
cdef int ids_take(Ids* ids, IdShard* shard, Txn* txn, Txn* after, bint is_durable) noexcept nogil

cdef class TransactionalIds:
    cdef Ids* ids
    cdef object table               # kept alive
    cdef bytes topic
    cdef TransactionalIdQueue queue
    cdef PartitionStates states
    cdef Txn* made(self, str name, transaction) except NULL
    cdef list names_of(self, int which, int64_t argument, int32_t leader_epoch)
