"""Offsets, sizes and counters of many partitions at once, one topic at a time, for Python.

One call reads a topic's partitions in one epoch, without the GIL, and copies their values: /metrics
reads thousands of partitions and must not delay other threads. broker/telemetry calls it.
"""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from collections import namedtuple

from barnabas.cext.log.log cimport SegmentList, log_end_offset, log_start_offset
from barnabas.cext.memory.atomics cimport atomic_load_i32, atomic_load_i64, atomic_load_pointer
from barnabas.cext.memory.counters cimport COUNTS, counters_fold
from barnabas.cext.memory.epoch cimport epoch_enter, epoch_leave
from barnabas.cext.partition.partitions cimport (
    Partition, Table, partition_error, partition_find, partition_high_watermark,
    partition_visible_end, table_epochs, table_node_id, table_of,
)
from barnabas.cext.partition.topics cimport Topic, topic_by_name, topic_name_bytes

ROWS_MAX = 1024                     # limit of `count`: the partitions of one call

PartitionMetrics = namedtuple("PartitionMetrics", (
    "partition", "leader_id", "leader_epoch", "offline", "isr_count", "replica_count",
    "min_insync_replicas", "high_watermark", "last_stable_offset", "log_start_offset",
    "log_end_offset", "segment_count", "size_bytes", "producer_count",
))

cdef struct Row:
    int32_t index
    int32_t leader_id
    int32_t leader_epoch
    bint offline
    int32_t isr_count
    int32_t replica_count
    int32_t min_insync_replicas
    int64_t high_watermark
    int64_t last_stable_offset
    int64_t log_start_offset
    int64_t log_end_offset
    int64_t segment_count
    int64_t size_bytes
    int64_t producer_count


cdef void _read(Table* table, Partition* p, Row* row) noexcept nogil:
    """Copies the values of a partition. The caller is inside an epoch."""
    cdef SegmentList* segments
    cdef int64_t i
    memset(row, 0, sizeof(Row))
    row.index = p.index
    row.leader_id = atomic_load_i32(&p.leader_id)
    row.leader_epoch = atomic_load_i32(&p.leader_epoch)
    row.offline = partition_error(table, p) == 56
    row.isr_count = atomic_load_i32(&p.isr_count)
    row.replica_count = atomic_load_i32(&p.replica_count)
    row.min_insync_replicas = p.policy.min_insync_replicas
    if p.log == NULL:
        return
    row.high_watermark = partition_high_watermark(p)
    row.last_stable_offset = partition_visible_end(table, p, True)
    row.log_start_offset = log_start_offset(p.log)
    row.log_end_offset = log_end_offset(p.log)
    row.producer_count = p.log.producers.count
    segments = <SegmentList*>atomic_load_pointer(<void**>&p.log.segments)
    row.segment_count = segments.count
    for i in range(segments.count):
        row.size_bytes += atomic_load_i64(&segments.items[i].size_bytes)


def partition_metrics(table, str topic not None, int32_t first, int32_t count) -> list:
    """Returns a PartitionMetrics for each of the `count` partitions from index `first` on that this
    broker hosts. Raises ValueError for a count outside 0 to ROWS_MAX, and MemoryError."""
    cdef Table* t = table_of(table)
    cdef bytes raw = topic_name_bytes(topic)
    cdef const uint8_t* name = <const uint8_t*>PyBytes_AS_STRING(raw)
    cdef int32_t name_bytes = <int32_t>len(raw)
    cdef int32_t i, found = 0
    cdef int slot
    cdef Partition* p
    cdef Row* rows
    cdef Row* r
    if not 0 <= count <= ROWS_MAX:
        raise ValueError(f"count is {count}; it must be 0 to {ROWS_MAX}")
    rows = <Row*>malloc((count + 1) * sizeof(Row))
    if rows == NULL:
        raise MemoryError
    with nogil:
        slot = epoch_enter(table_epochs(t))
        for i in range(first, first + count):
            p = partition_find(t, name, name_bytes, i)
            if p != NULL:
                _read(t, p, &rows[found])
                found += 1
        epoch_leave(table_epochs(t), slot)
    try:
        made = []
        for i in range(found):
            r = &rows[i]
            made.append(PartitionMetrics(
                r.index, r.leader_id, r.leader_epoch, bool(r.offline), r.isr_count,
                r.replica_count, r.min_insync_replicas, r.high_watermark, r.last_stable_offset,
                r.log_start_offset, r.log_end_offset, r.segment_count, r.size_bytes, r.producer_count,
            ))
        return made
    finally:
        free(rows)


def topic_counts(table, str topic not None):
    """Returns the counters of a topic in the order of COUNT_NAMES, or None when this broker does
    not host it."""
    cdef Table* t = table_of(table)
    cdef bytes raw = topic_name_bytes(topic)
    cdef int64_t seen[COUNTS]
    cdef int64_t counts[COUNTS]
    cdef Topic* found
    cdef int slot, what
    memset(seen, 0, sizeof(seen))
    memset(counts, 0, sizeof(counts))
    slot = epoch_enter(table_epochs(t))
    found = topic_by_name(
        &t.by_name, t.seed, <const uint8_t*>PyBytes_AS_STRING(raw), <int32_t>len(raw))
    if found != NULL:
        counters_fold(&found.counters, seen, counts)
    epoch_leave(table_epochs(t), slot)
    return None if found == NULL else tuple([counts[what] for what in range(COUNTS)])
