"""The partition table: the shared state of each partition, and the watches on it.

Only Python adds, changes and removes partitions; network threads, flush threads and Python handlers
read them inside an epoch (epoch.pxd). A Partition pointer is valid only inside the epoch in which
it was looked up; an object that lives longer keeps (topic id, index, generation) and looks it up
again.
"""
from cpython.ref cimport PyObject
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t

from barnabas.cext.memory.atomics cimport atomic_load_i32, atomic_load_pointer
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
from barnabas.cext.partition.replicas cimport FollowerFetch
from barnabas.cext.partition.topics cimport ProducePolicy, Topic

cdef enum:                          # KIP-73: a replica is in *.replication.throttled.replicas
    THROTTLED_LEADER = 1
    THROTTLED_FOLLOWER = 2

cdef struct Partition:
    Log* log                        # NULL: never opened. Valid as long as the Partition
    const char* topic               # UTF-8, not terminated
    int32_t topic_bytes
    uint8_t topic_id[16]
    int32_t index
    uint64_t generation             # unique for each Partition of a table
    int32_t leader_id               # -1: none
    int32_t leader_epoch
    int32_t led_since               # the leader epoch from which on this node has led without a break
    int64_t high_watermark          # read and write with the atomic helpers only
    void* replicas                  # Replicas*; NULL: this node does not lead it, or there is one replica
    ProducePolicy* policy           # retired through the epoch when replaced
    int32_t isr_count               # of the confirmed ISR, the leader included
    int32_t replica_count
    int32_t offline                 # its log directory failed
    int32_t throttled               # atomic: the flags THROTTLED_* of this replica
    TopicCounters* counters         # those of its topic

# Only partitions.pyx and partition_metrics.pyx use the next two.
cdef struct Table

cdef struct Entry:
    Partition p                 # first: an Entry* is a Partition*
    Table* table                # valid while the entry is not `removed`
    Topic* topic
    CommitItem commit
    CommitQueue* queue          # NULL without a log directory
    pthread_mutex_t watch_lock
    void* watches               # Watch*; a reader without the lock may only compare it with NULL
    bint closed                 # new watches are woken at once
    int64_t refs                # of the table and of Python handles; the last one retires it
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
    int64_t removed_counts[COUNTS]  # of topics that were removed
    int64_t removals
    void* live_brokers          # LiveBrokers*; NULL: not known. A change replaces it
    int64_t replica_lag_ns_max  # replica.lag.time.max.ms; atomic
    int32_t someone_may_join    # atomic: a follower's fetch has found that it may join the ISR

# A waiting request's entry in the list of one partition; the request's owner allocates it.
cdef struct Watch:
    Watch* next
    Watch* previous
    uint8_t topic_id[16]
    int32_t index
    uint64_t generation
    int32_t thread_index
    uint64_t connection_id
    bint at_append              # it waits for records, below the high watermark or not
    bint linked

# Returns the Table of a PartitionTable object. Raises TypeError for another object.
cdef Table* table_of(object handle) except NULL
cdef EpochDomain* table_epochs(Table* table) noexcept nogil
cdef System* table_system(Table* table) noexcept nogil
cdef int32_t table_node_id(Table* table) noexcept nogil
cdef bint table_is_fsync(Table* table) noexcept nogil
# Wakes a connection of a network thread, or with LOCAL_THREAD all waiting Python threads.
cdef void table_wake(Table* table, int32_t thread_index, uint64_t connection_id) noexcept nogil
# Sets the Waker that table_wake calls for thread indexes >= 0; the reactor sets it once before its
# threads start.
cdef void table_bind_waker(Table* table, const Waker* waker) noexcept nogil

# A Python thread, which has no connection, watches with thread_index LOCAL_THREAD: it reads the
# number of wakes, checks the state, and then waits until the number has changed. False: the
# deadline has passed.
cdef enum:
    LOCAL_THREAD = -1
cdef int64_t table_local_wakes(Table* table) noexcept nogil
cdef bint table_wait_local(Table* table, int64_t wakes_seen, int64_t deadline_ns) noexcept nogil

# Find a partition that this node leads; call them inside an epoch. They set *error to 0, or return
# NULL and set it to 3 UNKNOWN_TOPIC_OR_PARTITION, 100 UNKNOWN_TOPIC_ID, 6 NOT_LEADER_OR_FOLLOWER or
# 56 KAFKA_STORAGE_ERROR (the log is offline).
cdef Partition* partition_by_name(Table* table, const uint8_t* name, int32_t name_bytes, int32_t index, int16_t* error) noexcept nogil
cdef Partition* partition_by_id(Table* table, const uint8_t* topic_id, int32_t index, int16_t* error) noexcept nogil
# Find a partition with any leader and in any state; partition_error returns the error that a client
# gets for it.
cdef Partition* partition_find(Table* table, const uint8_t* name, int32_t name_bytes, int32_t index) noexcept nogil
cdef Partition* partition_find_id(Table* table, const uint8_t* topic_id, int32_t index, int16_t* error) noexcept nogil
cdef int16_t partition_error(Table* table, const Partition* partition) noexcept nogil
# Returns whether this node has led the partition without a break since that leader epoch. A record
# that it appended then is in its log; otherwise another leader's records may have replaced it.
cdef bint partition_is_led_since(Table* table, const Partition* partition, int32_t leader_epoch) noexcept nogil
# Finds the partition again for watches and sessions; NULL when it was removed, or added again
# since.
cdef Partition* partition_again(Table* table, const uint8_t* topic_id, int32_t index, uint64_t generation) noexcept nogil
# Find a topic of the cluster, which may have no partition on this node; NULL: there is none. The
# caller is inside an epoch.
cdef Topic* topic_named(Table* table, const uint8_t* name, int32_t name_bytes) noexcept nogil
cdef Topic* topic_with_id(Table* table, const uint8_t* topic_id) noexcept nogil
# Returns whether the topic has a partition with this index, on any node.
cdef inline bint topic_has_partition(const Topic* topic, int32_t index) noexcept nogil:
    return 0 <= index < atomic_load_i32(&topic.cluster_partitions)
# Returns the name of the topic with that id, NULL when there is none.
cdef const char* topic_name_by_id(Table* table, const uint8_t* topic_id, int32_t* name_bytes) noexcept nogil

# Returns how many replicas must be in sync for acks=all: min.insync.replicas, but at most the
# number of replicas.
cdef inline int32_t partition_isr_size_min(Partition* partition) noexcept nogil:
    return min(
        <int32_t>(<ProducePolicy*>atomic_load_pointer(
            <void**>&partition.policy)).min_insync_replicas,
        atomic_load_i32(&partition.replica_count))
# Returns whether a flag THROTTLED_* of this replica is set.
cdef inline bint partition_is_throttled(const Partition* partition, int32_t flag) noexcept nogil:
    return atomic_load_i32(<int32_t*>&partition.throttled) & flag != 0
# Returns whether a broker is in the confirmed ISR of a partition that this node leads.
cdef bint partition_is_in_isr(Partition* partition, int32_t broker_id) noexcept nogil
# Returns the size of the ISR, with followers that are joining it.
cdef int32_t partition_isr_size_max(Partition* partition) noexcept nogil
# Returns whether the broker is a follower of this partition, which this node leads.
cdef bint partition_has_follower(Partition* partition, int32_t broker_id) noexcept nogil
# Records a follower's fetch and raises the high watermark. Returns 0, 6 NOT_LEADER_OR_FOLLOWER,
# 74 FENCED_LEADER_EPOCH or 75 UNKNOWN_LEADER_EPOCH.
cdef int16_t partition_follower_fetched(Table* table, Partition* partition, const FollowerFetch* fetch) noexcept nogil
# Returns the follower from which a consumer of that rack and listener should read at `offset`
# (KIP-392); -1: it reads here.
cdef int32_t partition_preferred_replica(Table* table, Partition* partition, const uint8_t* rack, int32_t rack_bytes, int32_t listener_index, int64_t offset) noexcept nogil
# Returns whether a high watermark is higher than those that a follower was sent, and notes that it is
# being sent.
cdef bint partition_sends_high_watermark(Partition* partition, int32_t broker_id, int64_t high_watermark) noexcept nogil

cdef int64_t partition_high_watermark(const Partition* partition) noexcept nogil
# Returns the end of the records that a consumer may read: the high watermark, or the last stable
# offset for read_committed.
cdef int64_t partition_visible_end(Table* table, Partition* partition, bint committed_only) noexcept nogil

# Call it after an append. With `os` durability it raises the high watermark as far as the followers
# allow and wakes watches. With `fsync` it requests a flush when a request waits (a watch, or
# `wanted`) or flush.messages records are unflushed; the group commit raises the high watermark
# after fdatasync.
cdef void partition_appended(Table* table, Partition* partition, bint wanted) noexcept nogil
# Requests a flush of all records appended so far: with `fsync` durability when the high watermark
# is below the log's end and does not wait for followers, and with both when flush.messages records
# are unflushed.
cdef void partition_commit(Table* table, Partition* partition) noexcept nogil

# For a partition that this node follows, whose log has been appended to. Raises the high watermark
# to the leader's, at most to the log's end, and wakes watches when it has moved.
cdef void partition_follow(Table* table, Partition* partition, int64_t leader_high_watermark) noexcept nogil
# Requests a flush of all records appended so far; watches are woken after it.
cdef void partition_flush(Table* table, Partition* partition) noexcept nogil
# Moves the high watermark down to the log's end, after a truncation.
cdef void partition_truncated(Table* table, Partition* partition) noexcept nogil

# A watch fires once: when the high watermark moves, the leader changes, or the partition goes
# offline or is removed, all watches of the partition are unlinked and their connections are woken
# through the Waker. partition_watch does not check the partition: add the watch first, then check,
# then delay the request.
cdef void partition_watch(Table* table, Partition* partition, Watch* watch) noexcept nogil
# A watch that an append fires, too: a follower reads beyond the high watermark.
cdef void partition_watch_appends(Table* table, Partition* partition, Watch* watch) noexcept nogil
# Fires all watches of the partition.
cdef void partition_wake(Table* table, Partition* partition) noexcept nogil
# Removes a watch; does nothing when it has fired or the partition was removed.
cdef void partition_unwatch(Table* table, Watch* watch) noexcept nogil
# Returns whether the watch has not fired yet; its owner calls it without a lock. After False no
# other thread uses the watch.
cdef inline bint watch_waits(Watch* watch) noexcept nogil:
    return atomic_load_i32(<int32_t*>&watch.linked) != 0
