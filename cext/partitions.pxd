"""The partition table: what every thread knows of a partition, and who waits for it.

Python owns every change; network threads, flush threads and Python handlers read it inside an
epoch (epoch.pxd). A Partition pointer is valid only inside the epoch in which it was looked up;
what lives longer keeps (topic id, index, generation) and looks it up again.
"""
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t

from barnabas.cext.epoch cimport EpochDomain
from barnabas.cext.lane cimport Waker
from barnabas.cext.log cimport Log
from barnabas.cext.sys cimport System

cdef struct ProducePolicy:          # of the topic's configuration; read without a lock, replaced whole
    int64_t message_bytes_max       # max.message.bytes
    int64_t timestamp_before_max_ms
    int64_t timestamp_after_max_ms
    int64_t decompressed_bytes_max  # max.decompressed.bytes
    int8_t append_time              # message.timestamp.type=LogAppendTime
    int8_t requires_keys            # cleanup.policy has compact
    int8_t codec                    # compression.type: -1 producer, else 0..4
    int16_t min_insync_replicas

cdef struct Partition:
    Log* log                        # NULL: offline (its directory failed)
    const char* topic               # UTF-8, not terminated
    int32_t topic_bytes
    uint8_t topic_id[16]
    int32_t index
    uint64_t generation             # never the same for two Partitions of one table
    int32_t leader_id               # -1: none
    int32_t leader_epoch
    int64_t high_watermark          # read and write with the atomic helpers only
    ProducePolicy* policy           # retired through the epoch when replaced

cdef struct Table                   # private to partitions.pyx

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
cdef void table_wake(Table* table, int32_t thread_index, uint64_t connection_id) noexcept nogil

# Inside an epoch. NULL and *error = 3 UNKNOWN_TOPIC_OR_PARTITION, 100 UNKNOWN_TOPIC_ID,
# 6 NOT_LEADER_OR_FOLLOWER or 56 KAFKA_STORAGE_ERROR (log offline); 0 with a partition this node leads.
cdef Partition* partition_by_name(Table*, const uint8_t* name, int32_t name_bytes, int32_t index, int16_t* error) noexcept nogil
cdef Partition* partition_by_id(Table*, const uint8_t* topic_id, int32_t index, int16_t* error) noexcept nogil
# The same with the generation checked (NULL when it is another partition by now): for watches and sessions.
cdef Partition* partition_again(Table*, const uint8_t* topic_id, int32_t index, uint64_t generation) noexcept nogil

cdef int64_t partition_high_watermark(const Partition*) noexcept nogil
# What a fetch may see: the high watermark, or the last stable offset for read_committed.
cdef int64_t partition_visible_end(Table*, Partition*, bint committed_only) noexcept nogil

# After an append. os durability: moves the high watermark to the log end and wakes watchers. fsync: asks the
# group commit when somebody waits (watchers, or `wanted`), which moves the high watermark after fdatasync.
cdef void partition_appended(Table*, Partition*, bint wanted) noexcept nogil
# Asks for a commit of everything appended so far (fsync durability; nothing to do in os).
cdef void partition_commit(Table*, Partition*) noexcept nogil

# A watch is one-shot: when the high watermark moves (or the partition goes) all watches of the partition
# are unlinked and their connections woken through the Waker. Registering does not look at the state:
# register first, then check again, then park.
cdef void partition_watch(Table*, Partition*, Watch* watch) noexcept nogil
cdef void partition_unwatch(Table*, Watch* watch) noexcept nogil     # safe when already woken or the partition is gone
