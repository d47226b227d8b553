"""The partition table: who leads what, how far it is visible, and who waits for it.

Two hash maps, by topic name and by topic id, lead to a Topic, whose array leads to the partitions.
Readers follow published pointers inside an epoch and never lock. Whatever a reader could still see
(an old map, an old array, a topic, a partition, a policy) is retired through the epoch. Changes
come from Python, one at a time under `changes`.

A map is open addressing with linear probing: adding writes one slot, removing leaves a tombstone,
and a map more than half used is built anew and published whole. Names come from clients' requests
only to be looked up; a seed per table keeps made-up names from meeting in one chain.

High watermark: with `os` durability the log end at each append; with `fsync` the flushed end, moved
by the group commit (commit.pyx). It never goes back by itself.

Watches: a list per partition under its own mutex. Whoever waits links a watch and looks again; who
moves the high watermark looks at the list after it. Both put a full fence between, so that one of
the two sees the other. A removed partition's list is closed first: a watch on it is woken at once.

Memory: see PartitionTable.memory_bytes. Limits: MAX_PARTITIONS of a topic.
Next on the data path: cext/log.pyx; cext/produce.pyx and cext/fetch.pyx above.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

import os

from barnabas.cext.atomics cimport (
    atomic_add_i64, atomic_cas_i64, atomic_fence, atomic_load_i32, atomic_load_i64,
    atomic_load_pointer, atomic_store_i32, atomic_store_i64, atomic_store_pointer,
)
from barnabas.cext.commit cimport (
    CommitItem, CommitQueue, GroupCommit, commit_ask, commit_forget, commit_item_init,
)
from barnabas.cext.condition cimport (
    condition_init, condition_wait_until, monotonic_now_ns, pthread_cond_broadcast,
    pthread_cond_destroy, pthread_cond_t,
)
from barnabas.cext.epoch cimport (
    Epochs, epoch_enter, epoch_leave, epoch_retire, epoch_wait,
)
from barnabas.cext.log cimport (
    Log, LogHandle, log_end_offset, log_flushed_offset, log_is_offline,
)
from barnabas.cext.mutex cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t,
    pthread_mutex_unlock,
)
from barnabas.cext.sys cimport System, SystemCalls

MAX_PARTITIONS = 1_000_000      # of one topic; its array of pointers is 8 bytes each
COUNT_NAMES = (
    "batches", "messages", "bytes", "duplicates", "rejected_corrupt", "rejected_invalid",
    "rejected_no_key", "rejected_timestamp", "rejected_too_large", "rejected_codec",
    "rejected_sequence", "rejected_other",
)

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

cdef struct Entries:
    int32_t capacity
    void* at[1]                 # Entry*; as many as capacity

cdef struct Topic:
    const char* name
    int32_t name_bytes
    uint8_t id[16]
    uint64_t name_hash
    uint64_t id_hash
    void* entries               # Entries*
    int32_t partition_count
    int64_t refs                # the table's and its partitions'
    ProducePolicy* policy

cdef struct Map:
    uint64_t mask
    int64_t used                # slots with a topic or a tombstone
    int64_t topics
    void* slots[1]              # Topic*; as many as mask + 1

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

cdef Topic _gone                # a tombstone: its address only, never written
cdef void* TOMBSTONE = &_gone


# ----------------------------------------------------------------------------------- the maps

cdef inline uint64_t _mix(uint64_t h) noexcept nogil:
    h ^= h >> 33
    h *= 0xFF51AFD7ED558CCDu
    return h ^ (h >> 33)

cdef inline uint64_t _name_hash(uint64_t seed, const uint8_t* name, int32_t size) noexcept nogil:
    cdef uint64_t h = seed
    cdef uint64_t word
    while size >= 8:
        memcpy(&word, name, 8)
        h = _mix(h ^ word)
        name += 8
        size -= 8
    word = <uint64_t>size
    if size:
        memcpy(<uint8_t*>&word + 1, name, size if size < 7 else 7)
    return _mix(h ^ word)

cdef inline uint64_t _id_hash(uint64_t seed, const uint8_t* topic_id) noexcept nogil:
    cdef uint64_t words[2]
    memcpy(words, topic_id, 16)
    return _mix(_mix(seed ^ words[0]) ^ words[1])

cdef Map* _map_new(uint64_t size) noexcept nogil:
    cdef Map* made = <Map*>calloc(1, sizeof(Map) + (size - 1) * sizeof(void*))
    if made != NULL:
        made.mask = size - 1
    return made

cdef Topic* _topic_by_name(Table* table, const uint8_t* name, int32_t size) noexcept nogil:
    cdef uint64_t h = _name_hash(table.seed, name, size)
    cdef Map* map = <Map*>atomic_load_pointer(&table.by_name)
    cdef uint64_t i = h & map.mask
    cdef Topic* topic
    while True:
        topic = <Topic*>atomic_load_pointer(&map.slots[i])
        if topic == NULL:
            return NULL
        if (topic != TOMBSTONE and topic.name_hash == h and topic.name_bytes == size
                and memcmp(topic.name, name, size) == 0):
            return topic
        i = (i + 1) & map.mask

cdef Topic* _topic_by_id(Table* table, const uint8_t* topic_id) noexcept nogil:
    cdef Map* map = <Map*>atomic_load_pointer(&table.by_id)
    cdef uint64_t i = _id_hash(table.seed, topic_id) & map.mask
    cdef Topic* topic
    while True:
        topic = <Topic*>atomic_load_pointer(&map.slots[i])
        if topic == NULL:
            return NULL
        if topic != TOMBSTONE and memcmp(topic.id, topic_id, 16) == 0:
            return topic
        i = (i + 1) & map.mask

cdef inline uint64_t _hash_in(const Topic* topic, bint by_id) noexcept nogil:
    return topic.id_hash if by_id else topic.name_hash

cdef void _map_put(Map* map, Topic* topic, bint by_id) noexcept nogil:
    """Into an empty slot, never into a tombstone: a reader may be on its way past that one."""
    cdef uint64_t i = _hash_in(topic, by_id) & map.mask
    while map.slots[i] != NULL:
        i = (i + 1) & map.mask
    map.used += 1
    map.topics += 1
    atomic_store_pointer(&map.slots[i], topic)

cdef bint _map_add(Table* table, void** published, Topic* topic, bint by_id) noexcept nogil:
    cdef Map* map = <Map*>published[0]
    cdef Map* grown
    cdef uint64_t i, size
    if (map.used + 1) * 2 > <int64_t>(map.mask + 1):
        size = 16
        while size < <uint64_t>(map.topics + 1) * 4:
            size *= 2
        grown = _map_new(size)
        if grown == NULL:
            return False
        for i in range(map.mask + 1):
            if map.slots[i] != NULL and map.slots[i] != TOMBSTONE:
                _map_put(grown, <Topic*>map.slots[i], by_id)
        _map_put(grown, topic, by_id)
        atomic_store_pointer(published, grown)
        epoch_retire(table.epochs, map, free)
        return True
    _map_put(map, topic, by_id)
    return True

cdef void _map_remove(void** published, Topic* topic, bint by_id) noexcept nogil:
    cdef Map* map = <Map*>published[0]
    cdef uint64_t i = _hash_in(topic, by_id) & map.mask
    while map.slots[i] != NULL:
        if map.slots[i] == topic:
            map.topics -= 1
            atomic_store_pointer(&map.slots[i], TOMBSTONE)
            return
        i = (i + 1) & map.mask


# --------------------------------------------------------------------- life of topics, partitions

cdef void _topic_release(void* pointer) noexcept nogil:
    """After a grace period: nobody can be on the way to it any more."""
    cdef Topic* topic = <Topic*>pointer
    if atomic_add_i64(&topic.refs, -1) == 0:
        free(<void*>topic.name)
        free(topic.entries)
        free(topic.policy)
        free(topic)

cdef void _entry_free(void* pointer) noexcept nogil:
    cdef Entry* entry = <Entry*>pointer
    _topic_release(entry.topic)
    pthread_mutex_destroy(&entry.watch_lock)
    free(entry)

cdef void _entry_release(EpochDomain* epochs, Entry* entry) noexcept nogil:
    if atomic_add_i64(&entry.refs, -1) == 0:
        epoch_retire(epochs, entry, _entry_free)

cdef inline Entry* _entry_of(Topic* topic, int32_t index) noexcept nogil:
    cdef Entries* entries = <Entries*>atomic_load_pointer(&topic.entries)
    if index < 0 or entries == NULL or index >= entries.capacity:
        return NULL
    return <Entry*>atomic_load_pointer(&entries.at[index])

cdef bint _entries_reserve(Table* table, Topic* topic, int32_t index) noexcept nogil:
    cdef Entries* entries = <Entries*>topic.entries
    cdef Entries* grown
    cdef int32_t i, had = 0 if entries == NULL else entries.capacity
    cdef int32_t capacity = had if had else 1
    if index < had:
        return True
    while capacity <= index:
        capacity *= 2
    grown = <Entries*>calloc(1, sizeof(Entries) + (capacity - 1) * sizeof(void*))
    if grown == NULL:
        return False
    grown.capacity = capacity
    for i in range(had):
        grown.at[i] = entries.at[i]
    atomic_store_pointer(&topic.entries, grown)
    if entries != NULL:
        epoch_retire(table.epochs, entries, free)
    return True


# ------------------------------------------------------------------------------ looking things up

cdef EpochDomain* table_epochs(Table* table) noexcept nogil:
    return table.epochs

cdef System* table_system(Table* table) noexcept nogil:
    return table.system

cdef int32_t table_node_id(Table* table) noexcept nogil:
    return table.node_id

cdef bint table_is_fsync(Table* table) noexcept nogil:
    return table.fsync

cdef Partition* partition_find(Table* table, const uint8_t* name, int32_t name_bytes, int32_t index) noexcept nogil:
    cdef Topic* topic = _topic_by_name(table, name, name_bytes)
    return NULL if topic == NULL else <Partition*>_entry_of(topic, index)

cdef Partition* partition_find_id(Table* table, const uint8_t* topic_id, int32_t index, int16_t* error) noexcept nogil:
    cdef Topic* topic = _topic_by_id(table, topic_id)
    cdef Partition* found
    error[0] = 100
    if topic == NULL:
        return NULL
    found = <Partition*>_entry_of(topic, index)
    error[0] = 3 if found == NULL else 0
    return found

cdef int16_t partition_error(Table* table, const Partition* partition) noexcept nogil:
    if partition.log == NULL or atomic_load_i32(&partition.offline) or log_is_offline(partition.log):
        return 56
    return 0 if atomic_load_i32(&partition.leader_id) == table.node_id else 6

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
    cdef Topic* topic = _topic_by_id(table, topic_id)
    if topic == NULL:
        return NULL
    name_bytes[0] = topic.name_bytes
    return topic.name

cdef int64_t partition_high_watermark(const Partition* partition) noexcept nogil:
    return atomic_load_i64(&partition.high_watermark)

cdef int64_t partition_visible_end(Table* table, Partition* partition, bint committed_only) noexcept nogil:
    cdef int64_t end = atomic_load_i64(&partition.high_watermark)
    cdef int64_t stable
    if committed_only:
        stable = atomic_load_i64(&partition.last_stable_offset)
        if 0 <= stable < end:
            return stable
    return end


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

cdef void _wake_all(Table* table, Entry* entry, bint close) noexcept nogil:
    cdef Watch* watch
    cdef Watch* following
    pthread_mutex_lock(&entry.watch_lock)
    if close:
        entry.closed = True
    watch = <Watch*>entry.watches
    atomic_store_pointer(&entry.watches, NULL)
    while watch != NULL:
        following = watch.next
        watch.linked = False
        # The watch is its owner's again only when the lock is given back.
        table_wake(table, watch.thread_index, watch.connection_id)
        watch = following
    pthread_mutex_unlock(&entry.watch_lock)

cdef void partition_watch(Table* table, Partition* partition, Watch* watch) noexcept nogil:
    cdef Entry* entry = <Entry*>partition
    cdef Watch* first
    memcpy(watch.topic_id, partition.topic_id, 16)
    watch.index = partition.index
    watch.generation = partition.generation
    watch.previous = NULL
    watch.next = NULL
    pthread_mutex_lock(&entry.watch_lock)
    watch.linked = not entry.closed
    if watch.linked:
        first = <Watch*>entry.watches
        watch.next = first
        if first != NULL:
            first.previous = watch
        atomic_store_pointer(&entry.watches, watch)
    pthread_mutex_unlock(&entry.watch_lock)
    if not watch.linked:
        table_wake(table, watch.thread_index, watch.connection_id)
    atomic_fence()

cdef void partition_unwatch(Table* table, Watch* watch) noexcept nogil:
    """A watch is in a list only while its partition is in the table: removing closes the list
    before it unlinks the partition. So without a partition there is nothing to undo."""
    cdef int slot = epoch_enter(table.epochs)
    cdef Entry* entry = <Entry*>partition_again(
        table, watch.topic_id, watch.index, watch.generation)
    if entry != NULL:
        pthread_mutex_lock(&entry.watch_lock)
        if watch.linked:
            if watch.previous != NULL:
                watch.previous.next = watch.next
            else:
                atomic_store_pointer(&entry.watches, watch.next)
            if watch.next != NULL:
                watch.next.previous = watch.previous
            watch.linked = False
        pthread_mutex_unlock(&entry.watch_lock)
    epoch_leave(table.epochs, slot)

cdef bint _raise_high_watermark(Partition* partition, int64_t to) noexcept nogil:
    cdef int64_t seen = atomic_load_i64(&partition.high_watermark)
    while seen < to:
        if atomic_cas_i64(&partition.high_watermark, seen, to):
            return True
        seen = atomic_load_i64(&partition.high_watermark)
    return False

cdef void partition_appended(Table* table, Partition* partition, bint wanted) noexcept nogil:
    cdef Entry* entry = <Entry*>partition
    if not table.fsync:
        _raise_high_watermark(partition, log_end_offset(partition.log))
        atomic_fence()
        if atomic_load_pointer(&entry.watches) != NULL:
            _wake_all(table, entry, False)
        return
    atomic_fence()
    if wanted or atomic_load_pointer(&entry.watches) != NULL:
        partition_commit(table, partition)

cdef void partition_commit(Table* table, Partition* partition) noexcept nogil:
    cdef Entry* entry = <Entry*>partition
    if table.fsync and entry.queue != NULL and (
            partition_high_watermark(partition) < log_end_offset(partition.log)):
        commit_ask(entry.queue, &entry.commit)

cdef void _committed(CommitItem* item, int error) noexcept nogil:
    """On a flush thread. After an error nothing has moved: who waits sees an offline log."""
    cdef Entry* entry = <Entry*>item.owner
    if error == 0:
        _raise_high_watermark(&entry.p, log_flushed_offset(entry.p.log))
    atomic_fence()
    if error or atomic_load_pointer(&entry.watches) != NULL:
        _wake_all(entry.table, entry, False)
