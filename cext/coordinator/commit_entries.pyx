"""Committed offsets that Python has not taken yet: a list in each shard of the OffsetCommit
handler.

An entry is a copy of a record of the log. Python takes the durable entries when it needs them. Only
the newest durable entry of a key matters, so the handler drops the older ones when the list is
full. The offsets that a transaction commits have a separate key for each producer: when a marker
arrives, the newest entry of each key, in the order of the log, decides. Limit: ENTRIES_MAX entries
in a list. Next on the data path: cext/coordinator/offset_commit.pyx, whose locks guard the lists.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from barnabas.cext.memory.atomics cimport atomic_add_i64
from barnabas.cext.partition.partitions cimport Partition, partition_find, partition_high_watermark


cdef Entry* entry_new(const Walk* w, int32_t partition, int64_t commit_ms, int64_t expire_ms) noexcept nogil:
    cdef int64_t size = <int64_t>w.group_bytes + w.topic_bytes + w.metadata_bytes
    cdef Entry* e = <Entry*>malloc(sizeof(Entry) + size)
    cdef uint8_t* at
    if e == NULL:
        return NULL
    e.next = NULL
    e.committed_offset, e.leader_epoch = w.committed_offset, w.leader_epoch
    e.commit_ms, e.expire_ms = commit_ms, expire_ms
    e.index, e.partition, e.producer_id = w.index, partition, w.producer_id
    e.group_bytes, e.topic_bytes, e.metadata_bytes = w.group_bytes, w.topic_bytes, w.metadata_bytes
    at = <uint8_t*>(e + 1)
    memcpy(at, w.group, w.group_bytes)
    memcpy(at + w.group_bytes, w.topic, w.topic_bytes)
    if w.metadata_bytes:
        memcpy(at + w.group_bytes + w.topic_bytes, w.metadata, w.metadata_bytes)
    return e


cdef Entry* entry_marker(int32_t partition, int64_t producer_id, bint committed) noexcept nogil:
    cdef Entry* e = <Entry*>calloc(1, sizeof(Entry))
    if e != NULL:
        e.partition, e.producer_id, e.committed_offset = partition, producer_id, committed
        e.leader_epoch = -1
    return e


cdef void entry_free(Entry* entry) noexcept nogil:
    cdef Entry* following
    while entry != NULL:
        following = entry.next
        free(entry)
        entry = following


cdef void entries_announce(Entries* entries, int64_t count) noexcept nogil:
    atomic_add_i64(&entries.count, count)


cdef void entries_add(Entries* entries, Entry* first, Entry* last) noexcept nogil:
    if entries.last != NULL:
        entries.last.next = first
    else:
        entries.first = first
    entries.last = last


cdef inline void _append(Entries* entries, Entry* entry) noexcept nogil:
    entry.next = NULL
    entries_announce(entries, 1)
    entries_add(entries, entry, entry)


cdef inline Entry* _emptied(Entries* entries) noexcept nogil:
    """Empties the list and returns its first entry; the caller adds back the entries that stay."""
    cdef Entry* first = entries.first
    entries.first = entries.last = NULL
    atomic_add_i64(&entries.count, -entries.count)
    return first


cdef int64_t _durable_end(Table* table, const uint8_t* topic, int32_t topic_bytes, int32_t partition) noexcept nogil:
    cdef Partition* p = partition_find(table, topic, topic_bytes, partition)
    return partition_high_watermark(p) if p != NULL else 0


cdef Entry* entries_take(Entries* entries, Table* table, const uint8_t* topic, int32_t topic_bytes, int64_t* taken, Entry* behind) noexcept nogil:
    cdef Entries durable
    cdef Entry* at = _emptied(entries)
    cdef Entry* following
    cdef int32_t partition = -1
    cdef int64_t end = 0
    durable.first = durable.last = NULL
    durable.count = 0
    while at != NULL:
        following = at.next
        if at.partition != partition:
            partition = at.partition
            end = _durable_end(table, topic, topic_bytes, partition)
        _append(&durable if at.log_offset < end else entries, at)
        at = following
    taken[0] = durable.count
    if durable.last == NULL:
        return behind
    durable.last.next = behind
    return durable.first


cdef inline bint _same_key(const Entry* a, const Entry* b) noexcept nogil:
    return a.index == b.index and a.partition == b.partition and (
        a.group_bytes == b.group_bytes and a.topic_bytes == b.topic_bytes) and (
        memcmp(a + 1, b + 1, a.group_bytes + a.topic_bytes) == 0)


cdef int64_t entries_thin(Entries* entries, Table* table, const uint8_t* topic, int32_t topic_bytes) noexcept nogil:
    cdef Entry* all[ENTRIES_MAX]
    cdef Entry* newest[ENTRIES_MAX]     # newest durable entry of each key
    cdef Entry* at
    cdef int64_t count = 0, keys = 0, dropped = 0, end = 0
    cdef int64_t i, k
    cdef int32_t partition = -1
    if entries.count > ENTRIES_MAX:
        return 0
    at = _emptied(entries)
    while at != NULL:
        all[count] = at
        count += 1
        at = at.next
    for i in range(count - 1, -1, -1):
        at = all[i]
        if at.partition != partition:
            partition = at.partition
            end = _durable_end(table, topic, topic_bytes, partition)
        if at.log_offset >= end or at.producer_id >= 0:
            continue
        for k in range(keys):
            if _same_key(newest[k], at):
                free(at)
                all[i] = NULL
                dropped += 1
                break
        else:
            newest[keys] = at
            keys += 1
    for i in range(count):
        if all[i] != NULL:
            _append(entries, all[i])
    return dropped


cdef bint entries_are_durable(const Entries* entries, Table* table, const uint8_t* topic, int32_t topic_bytes) noexcept nogil:
    cdef const Entry* first = entries.first
    return first != NULL and first.log_offset < _durable_end(
        table, topic, topic_bytes, first.partition)


cdef bint entries_have(const Entries* entries, const uint8_t* group, int64_t group_bytes) noexcept nogil:
    cdef const Entry* at = entries.first
    while at != NULL:
        if at.group_bytes == group_bytes and memcmp(at + 1, group, group_bytes) == 0:
            return True
        at = at.next
    return False


cdef int64_t entries_forget(Entries* entries, int32_t partition) noexcept nogil:
    cdef int64_t before = entries.count
    cdef Entry* at = _emptied(entries)
    cdef Entry* following
    while at != NULL:
        following = at.next
        if at.partition == partition:
            free(at)
        else:
            _append(entries, at)
        at = following
    return before - entries.count
