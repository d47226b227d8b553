"""The partition table: the shared state of each partition, and the watches on it.

Python owns every change; network threads, flush threads and Python handlers read it inside an
epoch (epoch.pxd). A Partition pointer is valid only inside the epoch in which it was looked up;
what lives longer keeps (topic id, index, generation) and looks it up again.
"""
from cpython.ref cimport PyObject
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t

from barnabas.cext.memory.atomics cimport atomic_load_i32
from barnabas.cext.memory.condition cimport pthread_cond_t
from barnabas.cext.memory.waker cimport Waker
from barnabas.cext.partition.group_commit cimport CommitItem, CommitQueue
from barnabas.cext.memory.counters cimport (   # what is counted when a batch is taken or refused
    COUNT_BATCHES, COUNT_BYTES, COUNT_DUPLICATES, COUNT_MESSAGES, COUNT_REJECTED_CODEC,
    COUNT_REJECTED_CORRUPT, COUNT_REJECTED_INVALID, COUNT_REJECTED_NO_KEY, COUNT_REJECTED_OTHER,
    COUNT_REJECTED_SEQUENCE, COUNT_REJECTED_TIMESTAMP, COUNT_REJECTED_TOO_LARGE, COUNTS,
    TopicCounters,
)
from barnabas.cext.log.log cimport Log
from barnabas.cext.memory.epoch cimport EpochDomain
from barnabas.cext.memory.mutex cimport pthread_mutex_t
from barnabas.cext.memory.sys cimport System
from barnabas.cext.partition.topics cimport ProducePolicy, Topic    # max.message.bytes and what else a batch must obey

cdef struct Partition:
    Log* log                        # NULL: never opened. Stays good while the Partition is, also when `offline`
    const char* topic               # UTF-8, not terminated
    int32_t topic_bytes
    uint8_t topic_id[16]
    int32_t index
    uint64_t generation             # never the same for two Partitions of one table
    int32_t leader_id               # -1: none
    int32_t leader_epoch
    int64_t high_watermark          # read and write with the atomic helpers only
    ProducePolicy* policy           # retired through the epoch when replaced
    int32_t isr_count               # replicas in sync, this one included
    int32_t replica_count           # min.insync.replicas asks for no more than these
    int32_t offline                 # its directory failed
    TopicCounters* counters         # its topic's

# The next two are for partitions.pyx and partition_metrics.pyx only.
cdef struct Table

cdef struct Entry:
    Partition p                 # first: an Entry* is a Partition*
    Table* table                # good while the entry is not `removed`
    Topic* topic
    CommitItem commit
    CommitQueue* queue          # NULL without a log directory
    pthread_mutex_t watch_lock
    void* watches               # Watch*, read without the lock to see whether there are any
    bint closed                 # no more watches
    int64_t refs                # the table's and the Python handles'; the last one retires it
    int64_t removed
    PyObject* log_owner

cdef struct Table:
    void* by_name               # Map*
    void* by_id
    uint64_t seed
    uint64_t generation
    int64_t partition_count
    EpochDomain* epochs
    System* system
    int32_t node_id
    bint fsync
    Waker waker
    pthread_mutex_t changes
    pthread_mutex_t local_lock
    pthread_cond_t local_cond
    int64_t local_wakes
    int64_t removed_counts[COUNTS]  # of topics that have gone
    int64_t removals

cdef struct Watch:                  # one waiting request's place in one partition's list; owner's memory
    Watch* next
    Watch* previous
    uint8_t topic_id[16]
    int32_t index
    uint64_t generation
    int32_t thread_index
    uint64_t connection_id
    bint linked

cdef Table* table_of(object handle) except NULL           # the Table of a PartitionTable object
cdef EpochDomain* table_epochs(Table* table) noexcept nogil
cdef System* table_system(Table* table) noexcept nogil
cdef int32_t table_node_id(Table* table) noexcept nogil
cdef bint table_is_fsync(Table* table) noexcept nogil
cdef void table_wake(Table* table, int32_t thread_index, uint64_t connection_id) noexcept nogil
# Where table_wake goes for thread indexes >= 0; the reactor's, given once before its threads start.
cdef void table_bind_waker(Table* table, const Waker* waker) noexcept nogil

# A waiter that is no connection (a Python thread) watches with thread_index LOCAL_THREAD: read the
# count, look at the state, then wait until the count has moved. False: the deadline has passed.
cdef enum:
    LOCAL_THREAD = -1
cdef int64_t table_local_wakes(Table* table) noexcept nogil
cdef bint table_wait_local(Table* table, int64_t wakes_seen, int64_t deadline_ns) noexcept nogil

# Inside an epoch. NULL and *error = 3 UNKNOWN_TOPIC_OR_PARTITION, 100 UNKNOWN_TOPIC_ID,
# 6 NOT_LEADER_OR_FOLLOWER or 56 KAFKA_STORAGE_ERROR (log offline); 0 with a partition this node leads.
cdef Partition* partition_by_name(Table* table, const uint8_t* name, int32_t name_bytes, int32_t index, int16_t* error) noexcept nogil
cdef Partition* partition_by_id(Table* table, const uint8_t* topic_id, int32_t index, int16_t* error) noexcept nogil
# The same with any leader and in any state; partition_error returns the error that a client gets.
cdef Partition* partition_find(Table* table, const uint8_t* name, int32_t name_bytes, int32_t index) noexcept nogil
cdef Partition* partition_find_id(Table* table, const uint8_t* topic_id, int32_t index, int16_t* error) noexcept nogil
cdef int16_t partition_error(Table* table, const Partition* partition) noexcept nogil
# The same with the generation checked (NULL when it is another partition by now): for watches and sessions.
cdef Partition* partition_again(Table* table, const uint8_t* topic_id, int32_t index, uint64_t generation) noexcept nogil
# The name of a topic of that id, NULL when there is none: answers that were asked by id, metrics.
cdef const char* topic_name_by_id(Table* table, const uint8_t* topic_id, int32_t* name_bytes) noexcept nogil

cdef int64_t partition_high_watermark(const Partition* partition) noexcept nogil
# What a fetch may see: the high watermark, or the last stable offset for read_committed.
cdef int64_t partition_visible_end(Table* table, Partition* partition, bint committed_only) noexcept nogil

# After an append. os durability: moves the high watermark to the log end and wakes watchers. fsync: asks the
# group commit when a request waits (watchers, or `wanted`), which moves the high watermark after fdatasync.
cdef void partition_appended(Table* table, Partition* partition, bint wanted) noexcept nogil
# Asks for a commit of everything appended so far (fsync durability; nothing to do in os).
cdef void partition_commit(Table* table, Partition* partition) noexcept nogil

# A watch is one-shot: when the high watermark moves (or the partition goes) all watches of the partition
# are unlinked and their connections woken through the Waker. Registering does not look at the state:
# register first, then check again, then delay the request.
cdef void partition_watch(Table* table, Partition* partition, Watch* watch) noexcept nogil
cdef void partition_unwatch(Table* table, Watch* watch) noexcept nogil     # safe when already woken or the partition is gone
# Whether the watch still waits; its owner calls it without a lock. After 0 no other thread uses it.
cdef inline bint watch_waits(Watch* watch) noexcept nogil:
    return atomic_load_i32(<int32_t*>&watch.linked) != 0
