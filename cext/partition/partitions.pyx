"""The partition table: leaders, high watermarks, and the watches of waiting requests.

Two hash maps, by topic name and by topic id (topics.pyx), contain the Topics, each of which has an
array of its partitions. Readers follow published pointers inside an epoch and never lock. An old
map, array, topic, partition or policy that a reader may still use is retired through the epoch.
Python makes all changes, one at a time under `changes`.

High watermark: with `os` durability it is the log's end after each append; with `fsync` it is the
flushed end, and the group commit (group_commit.pyx) moves it. A partition with followers also waits
for those (replicas.pyx). While this node leads, it never decreases.

Leadership: a set_leader that ends it returns when no thread appends or answers as leader any more,
so that the log may then follow another leader.

Watches: a list per partition under its own mutex. A waiting thread links a watch and then checks
the partition again; the thread that moves the high watermark checks the list afterwards. Both put a
full fence between the two steps, so that at least one of them sees the other's change. The list of
a partition is closed before the partition is removed: a watch on a closed list is woken at once.

Memory: memory_bytes(), about 350 bytes a partition. Limit: MAX_PARTITIONS a topic.
Callers: cext/produce/produce.pyx, cext/fetch/fetch.pyx. Next on the data path: cext/log/log.pyx.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport int16_t, int32_t, int64_t, uint64_t, uint8_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

import os

from barnabas.cext.log.log cimport (
    Log, log_end_offset, log_flush_is_due, log_flushed_offset, log_is_offline, log_start_offset,
)
from barnabas.cext.log.log_handle cimport LogHandle
from barnabas.cext.log.log_transactions cimport log_first_unstable_offset, log_high_watermark_moved
from barnabas.cext.log.offline cimport mark_offline
from barnabas.cext.memory.atomics cimport (
    atomic_add_i64, atomic_cas_i32, atomic_cas_i64, atomic_fence, atomic_load_i32, atomic_load_i64,
    atomic_load_pointer, atomic_store_i32, atomic_store_i64, atomic_store_pointer,
)
from barnabas.cext.memory.condition cimport (
    condition_init, condition_wait_until, monotonic_now_ns, pthread_cond_broadcast,
    pthread_cond_destroy, pthread_cond_t,
)
from barnabas.cext.memory.counters cimport COUNTS, counters_dict, counters_fold
from barnabas.cext.memory.epoch cimport Epochs, epoch_enter, epoch_leave, epoch_retire, epoch_wait
from barnabas.cext.memory.mutex cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)
from barnabas.cext.memory.sys cimport System, SystemCalls
from barnabas.cext.memory.waker cimport Waker
from barnabas.cext.partition.group_commit cimport (
    CommitItem, CommitQueue, GroupCommit, commit_ask, commit_forget, commit_item_init,
)
from barnabas.cext.partition.replicas cimport (
    FollowerFetch, JoinRules, LiveBrokers, Replicas, REPLICAS_BEHIND, REPLICAS_CLOSED,
    REPLICAS_MOVED, REPLICAS_NEW_EPOCH, REPLICAS_OK, REPLICAS_OLD_EPOCH, REPLICAS_UNKNOWN,
    live_brokers_new, replicas_bytes, replicas_caught_up, replicas_fetched, replicas_find,
    replicas_free, replicas_is_in_isr, replicas_isr_size_max, replicas_lagging, replicas_new,
    replicas_preferred, replicas_raise, replicas_replace, replicas_sends_high_watermark,
    replicas_set_isr, replicas_states,
)
from barnabas.cext.partition.topics cimport (
    Entries, Map, Topic, map_add, map_new, map_remove, map_topic, policy_new, topic_by_id,
    topic_by_name, topic_entry, topic_id_bytes, topic_name_bytes, topic_new, topic_release,
    topic_reserve,
)

MAX_PARTITIONS = 1_000_000      # partitions of one topic, which has an array with 8 bytes each

cdef enum:                      # the watches that _wake fires
    WAKE_APPENDS = 0            # those that wait for records
    WAKE_ALL = 1
    WAKE_FOR_GOOD = 2           # all, and those that are added later

cdef int64_t NS_PER_MS = 1000000
cdef int64_t REPLICA_LAG_NS_MAX = 30000 * NS_PER_MS     # the default of replica.lag.time.max.ms

cdef void _entry_free(void* pointer) noexcept nogil:
    cdef Entry* entry = <Entry*>pointer
    topic_release(entry.topic)
    replicas_free(entry.p.replicas)
    pthread_mutex_destroy(&entry.watch_lock)
    free(entry)

cdef void _entry_release(EpochDomain* epochs, Entry* entry) noexcept nogil:
    if atomic_add_i64(&entry.refs, -1) == 0:
        epoch_retire(epochs, entry, _entry_free)

# ---------------------------------------------------------------------------------------- look-ups

cdef EpochDomain* table_epochs(Table* table) noexcept nogil:
    return table.epochs

cdef System* table_system(Table* table) noexcept nogil:
    return table.system

cdef int32_t table_node_id(Table* table) noexcept nogil:
    return table.node_id

cdef bint table_is_fsync(Table* table) noexcept nogil:
    return table.fsync

cdef Partition* partition_find(Table* table, const uint8_t* name, int32_t name_bytes, int32_t index) noexcept nogil:
    cdef Topic* topic = topic_by_name(&table.by_name, table.seed, name, name_bytes)
    return NULL if topic == NULL else <Partition*>topic_entry(topic, index)

cdef Partition* partition_find_id(Table* table, const uint8_t* topic_id, int32_t index, int16_t* error) noexcept nogil:
    cdef Topic* topic = topic_by_id(&table.by_id, table.seed, topic_id)
    cdef Partition* found
    error[0] = 100
    if topic == NULL:
        return NULL
    found = <Partition*>topic_entry(topic, index)
    error[0] = 3 if found == NULL else 0
    return found

cdef int16_t partition_error(Table* table, const Partition* partition) noexcept nogil:
    if partition.log == NULL or atomic_load_i32(&partition.offline) or log_is_offline(partition.log):
        return 56
    return 0 if atomic_load_i32(&partition.leader_id) == table.node_id else 6

cdef bint partition_is_led_since(Table* table, const Partition* partition, int32_t leader_epoch) noexcept nogil:
    return atomic_load_i32(&partition.leader_id) == table.node_id and (
        leader_epoch >= atomic_load_i32(&partition.led_since))

cdef Partition* partition_by_name(Table* table, const uint8_t* name, int32_t name_bytes, int32_t index, int16_t* error) noexcept nogil:
    cdef Partition* found = partition_find(table, name, name_bytes, index)
    error[0] = 3 if found == NULL else partition_error(table, found)
    return found if error[0] == 0 else NULL

cdef Partition* partition_by_id(Table* table, const uint8_t* topic_id, int32_t index, int16_t* error) noexcept nogil:
    cdef Partition* found = partition_find_id(table, topic_id, index, error)
    if found != NULL:
        error[0] = partition_error(table, found)
    return found if error[0] == 0 else NULL

cdef Partition* partition_again(Table* table, const uint8_t* topic_id, int32_t index, uint64_t generation) noexcept nogil:
    cdef int16_t error
    cdef Partition* found = partition_find_id(table, topic_id, index, &error)
    return found if found != NULL and found.generation == generation else NULL

cdef const char* topic_name_by_id(Table* table, const uint8_t* topic_id, int32_t* name_bytes) noexcept nogil:
    cdef Topic* topic = topic_by_id(&table.by_id, table.seed, topic_id)
    if topic == NULL:
        return NULL
    name_bytes[0] = topic.name_bytes
    return topic.name

cdef Topic* topic_named(Table* table, const uint8_t* name, int32_t name_bytes) noexcept nogil:
    return topic_by_name(&table.by_name, table.seed, name, name_bytes)

cdef Topic* topic_with_id(Table* table, const uint8_t* topic_id) noexcept nogil:
    return topic_by_id(&table.by_id, table.seed, topic_id)

cdef int64_t partition_high_watermark(const Partition* partition) noexcept nogil:
    return atomic_load_i64(&partition.high_watermark)

cdef int64_t partition_visible_end(Table* table, Partition* partition, bint committed_only) noexcept nogil:
    cdef int64_t end = atomic_load_i64(&partition.high_watermark)
    cdef int64_t unstable = -1
    if committed_only and partition.log != NULL:
        unstable = log_first_unstable_offset(partition.log)     # read after the high watermark
    return end if unstable < 0 else min(end, max(unstable, log_start_offset(partition.log)))

# ------------------------------------------------------------------------------ waking and waiting
cdef void table_bind_waker(Table* table, const Waker* waker) noexcept nogil:
    table.waker = waker[0]

cdef void table_wake(Table* table, int32_t thread_index, uint64_t connection_id) noexcept nogil:
    if thread_index >= 0:
        if table.waker.wake != NULL:
            table.waker.wake(table.waker.context, thread_index, connection_id)
        return
    pthread_mutex_lock(&table.local_lock)
    atomic_store_i64(&table.local_wakes, table.local_wakes + 1)
    pthread_cond_broadcast(&table.local_cond)
    pthread_mutex_unlock(&table.local_lock)

cdef int64_t table_local_wakes(Table* table) noexcept nogil:
    return atomic_load_i64(&table.local_wakes)

cdef bint table_wait_local(Table* table, int64_t wakes_seen, int64_t deadline_ns) noexcept nogil:
    cdef bint moved
    pthread_mutex_lock(&table.local_lock)
    while table.local_wakes == wakes_seen:
        if not condition_wait_until(&table.local_cond, &table.local_lock, deadline_ns):
            break
    moved = table.local_wakes != wakes_seen
    pthread_mutex_unlock(&table.local_lock)
    return moved

cdef void _unlink(Entry* entry, Watch* watch) noexcept nogil:
    """Takes a watch out of its list. Afterwards only its owner uses it, and may read `linked`
    without the lock, which the caller holds."""
    if watch.previous != NULL:
        watch.previous.next = watch.next
    else:
        atomic_store_pointer(&entry.watches, watch.next)
    if watch.next != NULL:
        watch.next.previous = watch.previous
    atomic_store_i32(<int32_t*>&watch.linked, 0)

cdef void _wake(Table* table, Entry* entry, int which) noexcept nogil:
    cdef Watch* watch
    cdef Watch* following
    cdef int32_t thread_index
    cdef uint64_t connection_id
    pthread_mutex_lock(&entry.watch_lock)
    entry.closed = entry.closed or which == WAKE_FOR_GOOD
    watch = <Watch*>entry.watches
    while watch != NULL:
        following = watch.next
        if which != WAKE_APPENDS or watch.at_append:
            thread_index = watch.thread_index
            connection_id = watch.connection_id
            _unlink(entry, watch)
            table_wake(table, thread_index, connection_id)
        watch = following
    pthread_mutex_unlock(&entry.watch_lock)

cdef void partition_wake(Table* table, Partition* partition) noexcept nogil:
    _wake(table, <Entry*>partition, WAKE_ALL)

cdef void partition_watch(Table* table, Partition* partition, Watch* watch) noexcept nogil:
    watch.at_append = False
    _link(table, partition, watch)

cdef void partition_watch_appends(Table* table, Partition* partition, Watch* watch) noexcept nogil:
    watch.at_append = True
    _link(table, partition, watch)

cdef void _link(Table* table, Partition* partition, Watch* watch) noexcept nogil:
    cdef Entry* entry = <Entry*>partition
    cdef Watch* first
    cdef bint linked
    memcpy(watch.topic_id, partition.topic_id, 16)
    watch.index = partition.index
    watch.generation = partition.generation
    watch.previous = NULL
    watch.next = NULL
    pthread_mutex_lock(&entry.watch_lock)
    linked = watch.linked = not entry.closed
    if linked:
        first = <Watch*>entry.watches
        watch.next = first
        if first != NULL:
            first.previous = watch
        atomic_store_pointer(&entry.watches, watch)
    pthread_mutex_unlock(&entry.watch_lock)
    if not linked:
        table_wake(table, watch.thread_index, watch.connection_id)
    atomic_fence()

cdef void partition_unwatch(Table* table, Watch* watch) noexcept nogil:
    """Removes a watch. A watch is in a list only while its partition is in the table, because a
    removal closes the list before it removes the partition. So without a partition there is nothing
    to do."""
    cdef int slot = epoch_enter(table.epochs)
    cdef Entry* entry = <Entry*>partition_again(
        table, watch.topic_id, watch.index, watch.generation)
    if entry != NULL:
        pthread_mutex_lock(&entry.watch_lock)
        if watch.linked:
            _unlink(entry, watch)
        pthread_mutex_unlock(&entry.watch_lock)
    epoch_leave(table.epochs, slot)

# -------------------------------------------------------------------------------- the high watermark

cdef inline LiveBrokers* _live_brokers(Table* table) noexcept nogil:
    return <LiveBrokers*>atomic_load_pointer(&table.live_brokers)

cdef inline Replicas* _replicas(Partition* partition) noexcept nogil:
    return <Replicas*>atomic_load_pointer(&partition.replicas)

cdef bint _raise_alone(Partition* partition, int64_t to) noexcept nogil:
    cdef int64_t seen = atomic_load_i64(&partition.high_watermark)
    while seen < to:
        if atomic_cas_i64(&partition.high_watermark, seen, to):
            return True
        seen = atomic_load_i64(&partition.high_watermark)
    return False

cdef bint _raise_with(Table* table, Partition* partition, Replicas* replicas, int64_t durable_end) noexcept nogil:
    cdef JoinRules rules
    cdef int status = REPLICAS_CLOSED
    rules.live = _live_brokers(table)
    rules.lag_ns_max = atomic_load_i64(&table.replica_lag_ns_max)
    rules.system = table.system
    while status == REPLICAS_CLOSED and replicas != NULL:
        status = replicas_raise(
            replicas, &partition.high_watermark, durable_end, partition_isr_size_min(partition),
            &rules)
        replicas = _replicas(partition)
    return status == REPLICAS_MOVED

cdef bint _raise_high_watermark(Table* table, Partition* partition) noexcept nogil:
    """Raises the high watermark as far as allowed; returns whether it moved. A follower gets its
    high watermark with the fetched records."""
    cdef int64_t durable_end = (
        log_flushed_offset(partition.log) if table.fsync else log_end_offset(partition.log))
    cdef Replicas* replicas = _replicas(partition)
    cdef bint moved
    if replicas != NULL:
        moved = _raise_with(table, partition, replicas, durable_end)
    else:
        moved = atomic_load_i32(&partition.replica_count) <= 1 and (
            _raise_alone(partition, durable_end))
    if moved:
        log_high_watermark_moved(partition.log, partition_high_watermark(partition))
    return moved

cdef void _raise_and_wake(Table* table, Partition* partition, bint appended) noexcept nogil:
    cdef bint moved = _raise_high_watermark(table, partition)
    atomic_fence()
    if (moved or appended) and atomic_load_pointer(&(<Entry*>partition).watches) != NULL:
        _wake(table, <Entry*>partition, WAKE_ALL if moved else WAKE_APPENDS)

cdef void partition_appended(Table* table, Partition* partition, bint wanted) noexcept nogil:
    cdef Entry* entry = <Entry*>partition
    if not table.fsync or _replicas(partition) != NULL:
        _raise_and_wake(table, partition, True)
    if not table.fsync:
        partition_commit(table, partition)
        return
    atomic_fence()
    if wanted or atomic_load_pointer(&entry.watches) != NULL or log_flush_is_due(partition.log):
        partition_commit(table, partition)

cdef inline CommitQueue* _queue(Entry* entry) noexcept nogil:
    return <CommitQueue*>atomic_load_pointer(<void**>&entry.queue)

cdef void partition_commit(Table* table, Partition* partition) noexcept nogil:
    cdef Entry* entry = <Entry*>partition
    cdef CommitQueue* queue = _queue(entry)
    if queue != NULL and (log_flush_is_due(partition.log) or table.fsync and (
            partition_high_watermark(partition) if _replicas(partition) == NULL
            else log_flushed_offset(partition.log)) < log_end_offset(partition.log)):
        commit_ask(queue, &entry.commit)

cdef void _committed(CommitItem* item, int error) noexcept nogil:
    """Raises the high watermark and wakes the watches; runs on a flush thread. After an error it
    only wakes the watches, whose requests then find the log offline."""
    cdef Entry* entry = <Entry*>item.owner
    cdef bint moved = error == 0 and _raise_high_watermark(entry.table, &entry.p)
    atomic_fence()
    if (error or moved or _replicas(&entry.p) == NULL) and (
            atomic_load_pointer(&entry.watches) != NULL):
        _wake(entry.table, entry, WAKE_ALL)

# ----------------------------------------------------------------------------------------- followers

cdef bint partition_has_follower(Partition* partition, int32_t broker_id) noexcept nogil:
    cdef Replicas* replicas = _replicas(partition)
    return replicas != NULL and replicas_find(replicas, broker_id) != NULL

cdef bint partition_is_in_isr(Partition* partition, int32_t broker_id) noexcept nogil:
    cdef Replicas* replicas = _replicas(partition)
    return replicas != NULL and replicas_is_in_isr(replicas, broker_id)

cdef int32_t partition_isr_size_max(Partition* partition) noexcept nogil:
    cdef Replicas* replicas = _replicas(partition)
    return atomic_load_i32(&partition.isr_count) if replicas == NULL else (
        replicas_isr_size_max(replicas))

cdef bint partition_sends_high_watermark(Partition* partition, int32_t broker_id, int64_t high_watermark) noexcept nogil:
    cdef Replicas* replicas = _replicas(partition)
    return replicas != NULL and (
        replicas_sends_high_watermark(replicas, broker_id, high_watermark))

cdef int32_t partition_preferred_replica(Table* table, Partition* partition, const uint8_t* rack, int32_t rack_bytes, int32_t listener_index, int64_t offset) noexcept nogil:
    cdef Replicas* replicas = _replicas(partition)
    if replicas == NULL:
        return -1
    return replicas_preferred(
        replicas, _live_brokers(table), table.node_id, rack, rack_bytes, listener_index, offset)

cdef int16_t partition_follower_fetched(Table* table, Partition* partition, const FollowerFetch* fetch) noexcept nogil:
    cdef Replicas* replicas = _replicas(partition)
    cdef int status = REPLICAS_CLOSED
    cdef bint may_join = False
    while status == REPLICAS_CLOSED and replicas != NULL:
        status = replicas_fetched(
            replicas, fetch, &partition.high_watermark, _live_brokers(table), &may_join)
        replicas = _replicas(partition)
    if status == REPLICAS_OK:
        if may_join:
            atomic_store_i32(&table.someone_may_join, 1)
        _raise_and_wake(table, partition, False)
        return 0
    if status == REPLICAS_OLD_EPOCH:
        return 74
    if status == REPLICAS_NEW_EPOCH or (
            status == REPLICAS_UNKNOWN and fetch.leader_epoch >= 0):
        return 75
    return 6

# Flush threads of a log directory. Concurrent fdatasyncs in one file system share its journal
# commits: flushing 50 logs took 15 ms with 2 threads and 1.4 to 2.6 ms with 8 to 32; 300 logs took
# 23, 61 and 7 ms (ext4, medians of 7, docs/performance.md). An idle thread costs a stack.
FLUSH_THREADS = 16



# --------------------------------------------------------------------------------- Python's handles

@cython.no_gc_clear         # __dealloc__ uses the objects to which it refers
cdef class PartitionTable:
    """The partitions of one broker. All changes are made here; every thread may read.

    `system`: the broker's SystemCalls; `epochs`: the Epochs with which its logs were opened;
    `node_id`: this broker's id; `durability`: "fsync" (records are visible and acknowledged after a
    flush) or "os" (after the write). Raises ValueError for another durability, and MemoryError.
    """
    cdef Table* table
    cdef SystemCalls system
    cdef readonly Epochs epochs
    cdef readonly str durability
    cdef dict directories
    cdef tuple commits          # the same, as a tuple, which the garbage collector cannot empty before
                                # __dealloc__

    def __cinit__(self, SystemCalls system not None, Epochs epochs not None, *,
                  int node_id, str durability="fsync"):
        if durability not in ("fsync", "os"):
            raise ValueError(f"durability is {durability!r}; it must be fsync or os")
        self.system = system
        self.epochs = epochs
        self.durability = durability
        self.directories = {}
        self.commits = ()
        self.table = <Table*>calloc(1, sizeof(Table))
        if self.table == NULL:
            raise MemoryError
        self.table.by_name = map_new(16)
        self.table.by_id = map_new(16)
        if self.table.by_name == NULL or self.table.by_id == NULL:
            raise MemoryError
        self.table.seed = int.from_bytes(os.urandom(8), "little")
        self.table.epochs = epochs.domain
        self.table.system = &system.table
        self.table.node_id = node_id
        self.table.fsync = durability == "fsync"
        self.table.replica_lag_ns_max = REPLICA_LAG_NS_MAX
        pthread_mutex_init(&self.table.changes, NULL)
        pthread_mutex_init(&self.table.local_lock, NULL)
        condition_init(&self.table.local_cond)

    @property
    def node_id(self):
        return self.table.node_id

    # -- log directories and their flush threads

    def add_directory(self, str path not None, *, int flush_threads=FLUSH_THREADS):
        """Starts the flush threads of a log directory and returns its GroupCommit. `path`: as in
        add_partition; `flush_threads`: the most threads, 1 to 64. Raises ValueError when the
        directory was added before or for another number of threads, RuntimeError without a
        thread."""
        if path in self.directories:
            raise ValueError(f"the log directory {path} was added already")
        group = GroupCommit(self.epochs, os.path.basename(path.rstrip("/")) or path, flush_threads)
        self.directories[path] = group
        self.commits += (group,)
        group.start()
        return group

    def close(self):
        """Waits until the requested flushes are done and the flush threads have ended. The table
        stays readable."""
        for group in self.directories.values():
            (<GroupCommit>group).stop()

    # -- topics

    def add_topic(self, str name not None, topic_id not None, **policy):
        """Adds a topic without partitions. `name`: 1 to 32767 bytes in UTF-8; `topic_id`: 16 bytes,
        not all zero; `policy`: as for set_policy, Kafka's defaults where not given. Raises
        ValueError for a wrong or existing name or id, TypeError for an unknown policy, and
        MemoryError."""
        cdef bytes raw = topic_name_bytes(name)
        cdef bytes raw_id = topic_id_bytes(topic_id)
        cdef Topic* topic
        cdef bint added
        self._lock()
        try:
            if topic_by_name(&self.table.by_name, self.table.seed, <const uint8_t*>PyBytes_AS_STRING(raw), len(raw)) != NULL:
                raise ValueError(f"the table has a topic {name} already")
            if topic_by_id(&self.table.by_id, self.table.seed, <const uint8_t*>PyBytes_AS_STRING(raw_id)) != NULL:
                raise ValueError(f"the table has a topic with id {raw_id.hex()} already")
            topic = topic_new(self.table.seed, raw, raw_id, policy)
            added = map_add(self.table.epochs, &self.table.by_name, topic, False)
            if added and not map_add(self.table.epochs, &self.table.by_id, topic, True):
                map_remove(&self.table.by_name, topic, False)
                added = False
            if not added:
                epoch_retire(self.table.epochs, topic, topic_release)
                raise MemoryError
        finally:
            pthread_mutex_unlock(&self.table.changes)

    cdef int _lock(self) except -1:
        # Only Python threads take it, and all release the GIL to wait for it, so that no deadlock
        # with the GIL is possible.
        with nogil:
            pthread_mutex_lock(&self.table.changes)
        return 0

    cdef Topic* _topic(self, str name) except NULL:
        cdef bytes raw = name.encode()  # from a request: it may be no valid topic name
        cdef Topic* topic = topic_by_name(
            &self.table.by_name, self.table.seed, <const uint8_t*>PyBytes_AS_STRING(raw), <int32_t>len(raw))
        if topic == NULL:
            raise KeyError(name)
        return topic

    cdef Entry* _entry(self, str name, int32_t index) except NULL:
        cdef Entry* entry = <Entry*>topic_entry(self._topic(name), index)
        if entry == NULL:
            raise KeyError(f"{name}-{index}")
        return entry

    def set_partition_count(self, str name not None, int32_t count) -> None:
        """Sets the number of partitions that the topic has in the whole cluster, with indexes from
        0; a new topic has none. Raises KeyError for an unknown topic."""
        self._lock()
        try:
            atomic_store_i32(&self._topic(name).cluster_partitions, count)
        finally:
            pthread_mutex_unlock(&self.table.changes)

    def set_policy(self, str name not None, **policy):
        """Changes the given ones of: message_bytes_max, timestamp_before_max_ms,
        timestamp_after_max_ms, decompressed_bytes_max, append_time, requires_keys, internal, codec
        (-1: the producer's, or 0 to 4), codec_level, min_insync_replicas, produce_intercepted,
        fetch_intercepted. They apply to the next batch. Raises KeyError for an unknown topic,
        TypeError for another name, ValueError for another codec, MemoryError."""
        cdef Topic* topic
        cdef ProducePolicy* old
        cdef Entries* entries
        cdef int32_t i
        self._lock()
        try:
            topic = self._topic(name)
            old = topic.policy
            topic.policy = policy_new(policy, old)
            entries = <Entries*>topic.entries
            for i in range(0 if entries == NULL else entries.capacity):
                if entries.at[i] != NULL:
                    atomic_store_pointer(<void**>&(<Entry*>entries.at[i]).p.policy, topic.policy)
            epoch_retire(self.table.epochs, old, free)
        finally:
            pthread_mutex_unlock(&self.table.changes)

    def policy(self, str name not None):
        """Returns a topic's policy by the names of set_policy, without the two about interception.
        Raises KeyError for an unknown topic."""
        cdef ProducePolicy rules
        self._lock()
        try:
            rules = self._topic(name).policy[0]
        finally:
            pthread_mutex_unlock(&self.table.changes)
        return {
            "message_bytes_max": rules.message_bytes_max,
            "timestamp_before_max_ms": rules.timestamp_before_max_ms,
            "timestamp_after_max_ms": rules.timestamp_after_max_ms,
            "decompressed_bytes_max": rules.decompressed_bytes_max,
            "append_time": bool(rules.append_time),
            "requires_keys": bool(rules.requires_keys),
            "internal": bool(rules.internal),
            "codec": rules.codec,
            "codec_level": rules.codec_level,
            "min_insync_replicas": rules.min_insync_replicas,
        }

    def topics(self):
        """Returns [(name, topic id in 16 bytes, number of partitions), ...] in no order."""
        cdef list found = []
        cdef Map* map
        cdef Topic* topic
        cdef uint64_t i
        self._lock()
        try:
            map = <Map*>self.table.by_name
            for i in range(map.mask + 1):
                topic = map_topic(map, i)
                if topic != NULL:
                    found.append((
                        topic.name[:topic.name_bytes].decode(),
                        PyBytes_FromStringAndSize(<const char*>topic.id, 16),
                        topic.partition_count,
                    ))
        finally:
            pthread_mutex_unlock(&self.table.changes)
        return found

    def remove_topic(self, str name not None):
        """Removes a topic and its partitions. It wakes waiting requests and waits for a running
        flush. Afterwards no thread uses the logs, so that the caller may close them. Raises
        KeyError for an unknown topic."""
        cdef Topic* topic
        cdef Entries* entries
        cdef list gone = []
        cdef int64_t seen[COUNTS]
        cdef int32_t i
        memset(seen, 0, sizeof(seen))
        self._lock()
        try:
            topic = self._topic(name)
            atomic_add_i64(&topic.refs, 1)
            entries = <Entries*>topic.entries
            for i in range(0 if entries == NULL else entries.capacity):
                if entries.at[i] != NULL:
                    gone.append(self._take_out(topic, i))
            counters_fold(&topic.counters, seen, self.table.removed_counts)
            self.table.removals += 1
            map_remove(&self.table.by_name, topic, False)
            map_remove(&self.table.by_id, topic, True)
            epoch_retire(self.table.epochs, topic, topic_release)
        finally:
            pthread_mutex_unlock(&self.table.changes)
        self._drop(gone)
        self._lock()
        counters_fold(&topic.counters, seen, self.table.removed_counts)     # counted meanwhile
        pthread_mutex_unlock(&self.table.changes)
        topic_release(topic)

    def removed_counts(self):
        """Returns (number of topics removed so far, the sums of their counters in the order of
        COUNT_NAMES)."""
        self._lock()
        counts = tuple([self.table.removed_counts[i] for i in range(COUNTS)])
        removals = self.table.removals
        pthread_mutex_unlock(&self.table.changes)
        return removals, counts

    # -- partitions

    def add_partition(self, str name not None, int index, LogHandle log, *, str directory=None,
                      int leader_epoch=0, leader_id=None, replicas=None, isr=None,
                      high_watermark=None):
        """Adds a partition and returns its PartitionHandle.

        `log`: open, or None when its directory is offline; `directory`: the path of its log
        directory, as in add_directory; `leader_id`: None: this node; `replicas`, `isr`: ids of
        brokers, the leader included; None: this node alone, or all replicas. All records of a
        partition with one replica are visible at once; the others begin with `high_watermark`, an
        offset (None: the log's start), moved into the log. Raises ValueError for an index outside 0
        to MAX_PARTITIONS - 1, an existing partition, a closed log, or no directory with fsync
        durability; KeyError for an unknown topic or directory; MemoryError."""
        cdef Topic* topic
        cdef Entry* entry
        cdef CommitQueue* queue = NULL
        if not 0 <= index < MAX_PARTITIONS:
            raise ValueError(f"partition is {index}; it must be 0 to {MAX_PARTITIONS - 1}")
        if directory is not None:
            queue = (<GroupCommit>self.directories[directory]).queue
        elif self.table.fsync and log is not None:
            raise ValueError("fsync durability needs the partition's log directory")
        self._lock()
        try:
            if log is not None and log.log == NULL:
                raise ValueError(f"the log of {name}-{index} is closed")
            topic = self._topic(name)
            if topic_entry(topic, index) != NULL:
                raise ValueError(f"the table has partition {name}-{index} already")
            if not topic_reserve(self.table.epochs, topic, index):
                raise MemoryError
            entry = <Entry*>calloc(1, sizeof(Entry))
            if entry == NULL:
                raise MemoryError
            entry.p.index = index
            entry.p.leader_id = -1
            self._furnish(entry, topic, log, queue)
            if log is not None and replicas is not None and len(replicas) > 1:
                entry.p.high_watermark = log_start_offset(log.log)
                self._know_high_watermark(&entry.p, high_watermark)
            elif log is not None:
                log_high_watermark_moved(log.log, entry.p.high_watermark)
            self._set_leader(
                entry, self.table.node_id if leader_id is None else leader_id, leader_epoch,
                replicas, isr, high_watermark)
            atomic_store_pointer(&(<Entries*>topic.entries).at[index], entry)
            topic.partition_count += 1
            self.table.partition_count += 1
            return _handle_for(self, entry)
        finally:
            pthread_mutex_unlock(&self.table.changes)

    cdef void _furnish(self, Entry* entry, Topic* topic, LogHandle log, CommitQueue* queue):
        entry.table = self.table
        entry.topic = topic
        entry.queue = queue
        entry.refs = 1
        entry.p.topic = topic.name
        entry.p.topic_bytes = topic.name_bytes
        memcpy(entry.p.topic_id, topic.id, 16)
        self.table.generation += 1
        entry.p.generation = self.table.generation
        entry.p.policy = topic.policy
        entry.p.counters = &topic.counters
        atomic_add_i64(&topic.refs, 1)
        pthread_mutex_init(&entry.watch_lock, NULL)
        if log is not None:
            entry.p.log = log.log
            entry.p.high_watermark = log_end_offset(log.log)
            Py_INCREF(log)
            entry.log_owner = <PyObject*>log
        commit_item_init(&entry.commit, entry.p.log, entry, _committed)

    cdef object _take_out(self, Topic* topic, int32_t index):
        """Closes the list of watches, then removes the partition from its topic. The caller holds
        `changes`. Returns the entry's address for _drop."""
        cdef Entry* entry = <Entry*>topic_entry(topic, index)
        _wake(self.table, entry, WAKE_FOR_GOOD)
        atomic_store_pointer(&(<Entries*>topic.entries).at[index], NULL)
        topic.partition_count -= 1
        self.table.partition_count -= 1
        atomic_store_i64(&entry.removed, 1)
        return <size_t>entry

    def _drop(self, list gone):
        """Waits for flushes and readers of the entries that _take_out returned, and releases them.
        The caller does not hold `changes`."""
        cdef Entry* entry
        cdef size_t address
        for address in gone:
            entry = <Entry*>address
            if entry.queue != NULL:
                with nogil:
                    commit_forget(entry.queue, &entry.commit)
        with nogil:
            epoch_wait(self.table.epochs)
        for address in gone:
            entry = <Entry*>address
            self._let_go(entry)

    cdef void _let_go(self, Entry* entry):
        cdef PyObject* owner = entry.log_owner
        entry.log_owner = NULL
        _entry_release(self.table.epochs, entry)
        if owner != NULL:
            Py_DECREF(<object>owner)

    def remove_partition(self, str name not None, int index):
        """Removes one partition as remove_topic does. Raises KeyError when the table does not have
        it."""
        self._lock()
        try:
            self._entry(name, index)
            gone = [self._take_out(self._topic(name), index)]
        finally:
            pthread_mutex_unlock(&self.table.changes)
        self._drop(gone)

    def set_directory(self, str name not None, int index, str directory not None):
        """Lets the flush threads of another log directory flush the partition, whose log was moved
        there. Requests for a flush wait for those threads then. One thread calls it at a time, and
        none removes the partition meanwhile. Raises KeyError when the table does not have the
        partition or the directory."""
        cdef CommitQueue* queue = (<GroupCommit>self.directories[directory]).queue
        cdef Entry* entry
        cdef CommitQueue* old
        self._lock()
        try:
            entry = self._entry(name, index)
        finally:
            pthread_mutex_unlock(&self.table.changes)
        old = entry.queue
        if old == queue or old == NULL:
            return
        with nogil:
            commit_forget(old, &entry.commit)       # requests do nothing until it has a log again
            atomic_store_pointer(<void**>&entry.queue, queue)
            epoch_wait(self.table.epochs)           # no thread uses the old queue any more
            pthread_mutex_lock(&queue.lock)
            entry.commit.log = entry.p.log
            pthread_mutex_unlock(&queue.lock)
            commit_ask(queue, &entry.commit)        # for the requests that did nothing

    def partition(self, str name not None, int index):
        """Returns the PartitionHandle of a partition, or None."""
        self._lock()
        try:
            return _handle_for(self, self._entry(name, index))
        except KeyError:
            return None
        finally:
            pthread_mutex_unlock(&self.table.changes)

    def find(self, topic_id not None, int index):
        """Returns the PartitionHandle of a partition by topic id (16 bytes), or None. Raises
        ValueError for a wrong id."""
        cdef bytes raw = topic_id_bytes(topic_id)
        cdef int16_t error
        cdef Partition* found
        self._lock()
        try:
            found = partition_find_id(
                self.table, <const uint8_t*>PyBytes_AS_STRING(raw), index, &error)
            return None if found == NULL else _handle_for(self, <Entry*>found)
        finally:
            pthread_mutex_unlock(&self.table.changes)

    def set_leader(self, str name not None, int index, *, int leader_id, int leader_epoch,
                   replicas=None, isr=None, high_watermark=None):
        """Sets the leader, leader epoch, replicas and confirmed ISR of a partition; arguments as in
        add_partition. Waiting requests check the partition again.

        When this node begins to lead, the high watermark stays as the follower knew it, or rises to
        `high_watermark` if that is given. In a new leader epoch it rises further when all of the
        ISR have fetched. Within a leader epoch, what is known of the followers stays. When this
        node ceases to lead, no thread appends as leader any more after the return. Raises KeyError
        when the table does not have the partition, and MemoryError."""
        cdef Entry* entry
        cdef bint led
        self._lock()
        try:
            entry = self._entry(name, index)
            led = entry.p.leader_id == self.table.node_id
            self._set_leader(entry, leader_id, leader_epoch, replicas, isr, high_watermark)
            _wake(self.table, entry, WAKE_ALL)
        finally:
            pthread_mutex_unlock(&self.table.changes)
        if led and leader_id != self.table.node_id:
            with nogil:
                epoch_wait(self.table.epochs)

    cdef int _set_leader(self, Entry* entry, int32_t leader_id, int32_t leader_epoch, replicas, isr,
                         high_watermark) except -1:
        """The caller holds `changes`. A reader that finds this node as the leader also finds the
        Replicas."""
        cdef Partition* p = &entry.p
        cdef Replicas* old = _replicas(p)
        cdef Replicas* made = NULL
        cdef bint led = atomic_load_i32(&p.leader_id) == self.table.node_id
        cdef bint leads = leader_id == self.table.node_id
        replicas = (self.table.node_id,) if replicas is None else tuple(replicas)
        isr = replicas if isr is None else tuple(isr)
        if leads and p.log != NULL and set(replicas) - {leader_id}:
            made = replicas_new(
                leader_id, replicas, isr, leader_epoch, log_end_offset(p.log), self._now_ns())
        atomic_store_i32(&p.replica_count, <int32_t>len(replicas))
        if not leads:
            atomic_store_i32(&p.leader_id, leader_id)
        replicas_replace(&p.replicas, made)
        if old != NULL:
            epoch_retire(self.table.epochs, old, replicas_free)
        elif leads and not led and p.log != NULL:
            self._know_high_watermark(p, high_watermark)
        if leads and not led:
            atomic_store_i32(&p.led_since, leader_epoch)
        atomic_store_i32(&p.leader_epoch, leader_epoch)
        atomic_store_i32(&p.isr_count, <int32_t>len(isr))
        atomic_store_i32(&p.leader_id, leader_id)
        if leads and p.log != NULL:
            _raise_high_watermark(self.table, p)
        return 0

    cdef int _know_high_watermark(self, Partition* p, high_watermark) except -1:
        """Raises the high watermark of a partition that this node did not lead so far to the known
        one, and moves it into the log. While this node follows, its fetches move the high
        watermark."""
        cdef int64_t known = atomic_load_i64(&p.high_watermark)
        if high_watermark is not None:
            known = max(known, <int64_t>high_watermark)
        known = min(max(known, log_start_offset(p.log)), log_end_offset(p.log))
        atomic_store_i64(&p.high_watermark, known)
        log_high_watermark_moved(p.log, known)
        return 0

    cdef int64_t _now_ns(self):
        return self.table.system.monotonic_ns(self.table.system)

    # -- followers of the partitions that this node leads

    @property
    def replica_lag_ms_max(self):
        """replica.lag.time.max.ms: the time after which a follower that is not caught up leaves the
        ISR. It can be changed while the broker runs."""
        return atomic_load_i64(&self.table.replica_lag_ns_max) // NS_PER_MS

    @replica_lag_ms_max.setter
    def replica_lag_ms_max(self, int64_t value):
        atomic_store_i64(&self.table.replica_lag_ns_max, value * NS_PER_MS)

    def set_live_brokers(self, epochs not None, racks=None, listeners=None):
        """Sets the live brokers: `epochs` is {broker id: broker epoch, -1: unknown}, `racks` is
        {broker id: rack} of those that have one, `listeners` {broker id: bits}, where bit i says
        that the broker has a listener with the name of this node's listener i; without an entry it
        has all. Only live brokers may join an ISR, and only with a fetch of the present epoch
        (KIP-903). Before the first call, all brokers count as live, and none has a rack. Raises
        MemoryError."""
        cdef LiveBrokers* made
        cdef LiveBrokers* old
        self._lock()
        try:
            made = live_brokers_new(epochs, racks or {}, listeners or {})
            old = _live_brokers(self.table)
            atomic_store_pointer(&self.table.live_brokers, made)
            if old != NULL:
                epoch_retire(self.table.epochs, old, free)
        finally:
            pthread_mutex_unlock(&self.table.changes)

    def set_isr(self, str name not None, int index, isr not None, bint is_pending):
        """Sets the ISR of a partition that this node leads. `isr`: ids of brokers, the leader
        included. With `is_pending` its new members are joining: the high watermark waits for them
        from now on, but they do not count for min.insync.replicas; otherwise the ISR is confirmed.

        Returns False, and changes nothing, when this node does not lead the partition, it has one
        replica, or a new member of a pending ISR is no longer caught up. Raises KeyError when the
        table does not have it."""
        cdef Entry* entry
        cdef Replicas* replicas
        self._lock()
        try:
            entry = self._entry(name, index)
            replicas = _replicas(&entry.p)
            if replicas == NULL or replicas_set_isr(
                    replicas, isr, is_pending, &entry.p.high_watermark,
                    _live_brokers(self.table)) == REPLICAS_BEHIND:
                return False
            atomic_store_i32(&entry.p.isr_count, replicas.isr_size)
            _raise_and_wake(self.table, &entry.p, False)
            return True
        finally:
            pthread_mutex_unlock(&self.table.changes)

    def replica_states(self, str name not None, int index):
        """Returns a ReplicaState for each follower of a partition; an empty list when this node
        does not lead it or it has one replica. Raises KeyError when the table does not have it."""
        cdef Replicas* replicas
        self._lock()
        try:
            replicas = _replicas(&self._entry(name, index).p)
            return [] if replicas == NULL else replicas_states(replicas, self._now_ns())
        finally:
            pthread_mutex_unlock(&self.table.changes)

    def lagging(self):
        """Returns [(topic, partition, [broker ids]), ...]: members of the confirmed ISR that were
        not caught up within replica_lag_ms_max, and so should leave it."""
        cdef list found = []
        cdef Entry* entry
        cdef size_t address
        self._lock()
        try:
            for address in self._replicated():
                entry = <Entry*>address
                ids = replicas_lagging(
                    _replicas(&entry.p), log_end_offset(entry.p.log), self._now_ns(),
                    self.table.replica_lag_ns_max)
                if ids:
                    found.append((_topic_of(entry), entry.p.index, ids))
        finally:
            pthread_mutex_unlock(&self.table.changes)
        return found

    def caught_up(self):
        """Returns [(topic, partition, [broker ids]), ...]: followers outside of the ISR that may
        join it, because they have all records below the high watermark and the start of the leader
        epoch.
        Cheap when no follower's fetch since the last call has found that it may join."""
        cdef list found = []
        cdef Entry* entry
        cdef size_t address
        if not atomic_cas_i32(&self.table.someone_may_join, 1, 0):
            return found
        self._lock()
        try:
            for address in self._replicated():
                entry = <Entry*>address
                ids = replicas_caught_up(
                    _replicas(&entry.p), &entry.p.high_watermark, _live_brokers(self.table))
                if ids:
                    found.append((_topic_of(entry), entry.p.index, ids))
        finally:
            pthread_mutex_unlock(&self.table.changes)
        return found

    cdef list _replicated(self):
        """Returns the addresses of the Entries that have Replicas. The caller holds `changes`."""
        cdef list found = []
        cdef Map* map = <Map*>self.table.by_name
        cdef Entries* entries
        cdef Topic* topic
        cdef uint64_t i
        cdef int32_t k
        for i in range(map.mask + 1):
            topic = map_topic(map, i)
            entries = NULL if topic == NULL else <Entries*>topic.entries
            for k in range(0 if entries == NULL else entries.capacity):
                if entries.at[k] != NULL and (<Entry*>entries.at[k]).p.replicas != NULL:
                    found.append(<size_t>entries.at[k])
        return found

    def set_throttled(self, str name not None, int index, *, bint leader, bint follower):
        """Sets whether this replica is throttled while it leads, and while it follows (KIP-73).
        Does nothing when the table does not have it. Raises KeyError for an unknown topic."""
        cdef Entry* entry
        self._lock()
        try:
            entry = <Entry*>topic_entry(self._topic(name), index)
            if entry != NULL:
                atomic_store_i32(&entry.p.throttled,
                                 leader * THROTTLED_LEADER + follower * THROTTLED_FOLLOWER)
        finally:
            pthread_mutex_unlock(&self.table.changes)

    def set_offline(self, str name not None, int index):
        """Marks a partition as offline, because its log directory failed: requests get
        KAFKA_STORAGE_ERROR until it is removed and added again. Raises KeyError when the table does
        not have it."""
        self._lock()
        try:
            mark_offline(&self._entry(name, index).p.offline)
            _wake(self.table, self._entry(name, index), WAKE_ALL)
        finally:
            pthread_mutex_unlock(&self.table.changes)

    def memory_bytes(self):
        """Returns the memory of the table's maps, arrays, topics, partitions and their followers in
        bytes, without the logs."""
        cdef size_t address
        cdef Map* map
        cdef Topic* topic
        cdef uint64_t i
        cdef int64_t total = sizeof(Table) + self.table.partition_count * sizeof(Entry)
        self._lock()
        try:
            map = <Map*>self.table.by_name
            for i in range(map.mask + 1):
                topic = map_topic(map, i)
                if topic != NULL:
                    total += sizeof(Topic) + sizeof(ProducePolicy) + topic.name_bytes
                    if topic.entries != NULL:
                        total += (<Entries*>topic.entries).capacity * sizeof(void*)
            for address in self._replicated():
                total += replicas_bytes(_replicas(&(<Entry*>address).p))
            total += 2 * sizeof(Map) + (map.mask + (<Map*>self.table.by_id).mask) * sizeof(void*)
        finally:
            pthread_mutex_unlock(&self.table.changes)
        return total

    def __dealloc__(self):
        cdef Map* map
        cdef Topic* topic
        cdef Entries* entries
        cdef Entry* entry
        cdef uint64_t i
        cdef int32_t k
        if self.table == NULL:
            return
        map = <Map*>self.table.by_name
        for i in range(0 if map == NULL or self.table.by_id == NULL else map.mask + 1):
            topic = map_topic(map, i)
            if topic == NULL:
                continue
            entries = <Entries*>topic.entries
            for k in range(0 if entries == NULL else entries.capacity):
                entry = <Entry*>entries.at[k]
                if entry != NULL:
                    if entry.queue != NULL:
                        with nogil:
                            commit_forget(entry.queue, &entry.commit)
                    self._let_go(entry)
            epoch_retire(self.table.epochs, topic, topic_release)
        free(self.table.live_brokers)
        free(self.table.by_name)
        free(self.table.by_id)
        pthread_cond_destroy(&self.table.local_cond)
        pthread_mutex_destroy(&self.table.local_lock)
        pthread_mutex_destroy(&self.table.changes)
        free(self.table)


cdef str _topic_of(Entry* entry):
    return entry.p.topic[:entry.p.topic_bytes].decode()

cdef PartitionHandle _handle_for(PartitionTable table, Entry* entry):
    cdef PartitionHandle handle = PartitionHandle.__new__(PartitionHandle)
    atomic_add_i64(&entry.refs, 1)
    handle.entry = entry
    handle.table = table
    return handle


@cython.no_gc_clear         # __dealloc__ uses the table
cdef class PartitionHandle:
    """Python's view of one partition of the table; it stays readable after the partition was
    removed."""
    cdef Entry* entry
    cdef PartitionTable table

    def __init__(self):
        raise TypeError("get a PartitionHandle from PartitionTable.partition() or find()")

    def __dealloc__(self):
        if self.entry != NULL:
            _entry_release(self.table.table.epochs, self.entry)

    @property
    def topic(self): return _topic_of(self.entry)
    @property
    def topic_id(self): return PyBytes_FromStringAndSize(<const char*>self.entry.p.topic_id, 16)
    @property
    def index(self): return self.entry.p.index
    @property
    def generation(self): return self.entry.p.generation
    @property
    def leader_id(self): return atomic_load_i32(&self.entry.p.leader_id)
    @property
    def leader_epoch(self): return atomic_load_i32(&self.entry.p.leader_epoch)
    @property
    def high_watermark(self): return atomic_load_i64(&self.entry.p.high_watermark)
    @property
    def last_stable_offset(self): return partition_visible_end(NULL, &self.entry.p, True)
    @property
    def alive(self): return not atomic_load_i64(&self.entry.removed)

    @property
    def is_replicated(self):
        """Whether the partition has followers here: this node leads it, and it has several
        replicas."""
        return _replicas(&self.entry.p) != NULL

    @property
    def offline(self):
        return self.alive and (
            self.entry.p.log == NULL or bool(atomic_load_i32(&self.entry.p.offline))
            or bool(log_is_offline(self.entry.p.log))
        )

    @property
    def log(self):
        """The LogHandle; None when the directory is offline or the partition was removed."""
        if self.entry.log_owner == NULL:
            return None
        return <object>self.entry.log_owner

    def counters(self):
        """Returns the counters of its topic: see counters.pxd."""
        return counters_dict(self.entry.p.counters)

    def commit(self, int64_t timeout_ms, int32_t leader_epoch=-1, int64_t offset=-1):
        """Waits until all records below `offset` (-1: all that were appended so far) are visible:
        durable here and in all of the ISR.
        Returns False after timeout_ms, when the log is offline, or when this node has not led the
        partition without a break since `leader_epoch` (-1: since the call). Call it from a Python
        thread; it releases the GIL."""
        cdef bint done
        with nogil:
            done = _commit_and_wait(
                self.table.table, self.entry, leader_epoch, offset,
                monotonic_now_ns() + timeout_ms * 1000000)
        return bool(done)

    def appended(self, bint wanted=False):
        """Reports to the table an append through the log handle; wanted: a caller waits for its
        flush."""
        cdef int slot
        with nogil:
            slot = epoch_enter(self.table.table.epochs)
            if not atomic_load_i64(&self.entry.removed) and self.entry.p.log != NULL:
                partition_appended(self.table.table, &self.entry.p, wanted)
            epoch_leave(self.table.table.epochs, slot)


cdef bint _commit_and_wait(
    Table* table, Entry* entry, int32_t leader_epoch, int64_t target, int64_t deadline_ns,
) noexcept nogil:
    cdef Watch watch
    cdef Partition* p
    cdef int64_t wakes
    cdef int slot, state
    watch.thread_index = LOCAL_THREAD
    watch.connection_id = 0
    while True:
        wakes = table_local_wakes(table)
        state = 0
        slot = epoch_enter(table.epochs)
        p = partition_again(table, entry.p.topic_id, entry.p.index, entry.p.generation)
        if p == NULL or partition_error(table, p) != 0:
            state = -1
        else:
            if target < 0:
                target = log_end_offset(p.log)
            if leader_epoch < 0:
                leader_epoch = atomic_load_i32(&p.leader_epoch)
            partition_watch(table, p, &watch)
            if not partition_is_led_since(table, p, leader_epoch):
                state = -1
            elif partition_high_watermark(p) >= target:
                state = 1
            elif not table.fsync:
                partition_appended(table, p, False)
                state = partition_high_watermark(p) >= target
            else:
                commit_ask(_queue(entry), &entry.commit)
        epoch_leave(table.epochs, slot)
        if state == 0 and not table_wait_local(table, wakes, deadline_ns):
            state = -1
        if p != NULL:
            partition_unwatch(table, &watch)
        if state != 0:
            return state == 1

# ------------------------------------------------------------------- partitions that this node follows

cdef void partition_follow(Table* table, Partition* partition, int64_t leader_high_watermark) noexcept nogil:
    cdef int64_t to = min(leader_high_watermark, log_end_offset(partition.log))
    cdef int64_t seen = atomic_load_i64(&partition.high_watermark)
    while seen < to and not atomic_cas_i64(&partition.high_watermark, seen, to):
        seen = atomic_load_i64(&partition.high_watermark)
    if seen < to:
        log_high_watermark_moved(partition.log, to)
        atomic_fence()
        if atomic_load_pointer(&(<Entry*>partition).watches) != NULL:
            partition_wake(table, partition)

cdef void partition_flush(Table* table, Partition* partition) noexcept nogil:
    cdef CommitQueue* queue = _queue(<Entry*>partition)
    if queue != NULL:
        commit_ask(queue, &(<Entry*>partition).commit)

cdef void partition_truncated(Table* table, Partition* partition) noexcept nogil:
    cdef int64_t end = log_end_offset(partition.log)
    cdef int64_t seen = atomic_load_i64(&partition.high_watermark)
    while seen > end and not atomic_cas_i64(&partition.high_watermark, seen, end):
        seen = atomic_load_i64(&partition.high_watermark)
    log_high_watermark_moved(partition.log, partition_high_watermark(partition))

cdef Table* table_of(object handle) except NULL:
    if not isinstance(handle, PartitionTable):
        raise TypeError(f"the table must be a PartitionTable, not {type(handle).__name__}")
    return (<PartitionTable>handle).table
