"""The Fetch answer, versions 0 to 18, as bytes with slices of log files in between.

    throttleTimeMs int32                                    from 1
    errorCode int16, sessionId int32                        from 7
    responses [] of
        topic string (id from 13)
        partitions [] of
            partitionIndex int32, errorCode int16, highWatermark int64
            lastStableOffset int64                          from 4
            logStartOffset int64                            from 5
            abortedTransactions [] or null                  from 4, see below
                producerId int64, firstOffset int64
            preferredReadReplica int32                      from 11
            records: length and bytes                       never null, as in Kafka
            tags from 12: 0 divergingEpoch, 1 currentLeader (from 16 in use)
    tags from 12

Kafka answers partitions that it does not know after all others, unknown ids first, and gives a
topic one group per run of its partitions. abortedTransactions is null for read_uncommitted
consumers, and empty for partitions that do not exist. Next: fetch.pyx.
"""
from libc.stdint cimport int64_t
from libc.string cimport memset

from barnabas.cext.codec.buffer cimport (
    Buffer, buffer_bytes, buffer_i16, buffer_i32, buffer_i64, buffer_i8, buffer_uvarint,
)
from barnabas.cext.codec.fields cimport write_count, write_string
from barnabas.cext.fetch.request cimport (
    FETCH_BATCHES_FROM, FETCH_FLEXIBLE_FROM, FETCH_IDS_FROM, FETCH_RACK_FROM, FETCH_SESSIONS_FROM, PART_ORDERS, PART_PRESENT,
    FetchPartition, fetch_same_topic,
)
from barnabas.cext.network.handler cimport response_add_slice, response_begin, response_end

cdef enum:
    READ_COMMITTED = 1
    PARTITION_BYTES_MAX = 96    # without records: its fields, lengths and tags

cdef struct Walk:               # over the partitions of the answer, in its order
    FetchRequest* r
    int32_t at
    int absent

cdef FetchPartition* walk_next(Walk* w) noexcept nogil:
    cdef FetchPartition* part
    while True:
        while w.at < w.r.part_count:
            part = &w.r.parts[w.at]
            w.at += 1
            if part.in_answer and part.absent == w.absent:
                return part
        if w.absent == PART_ORDERS - 1:
            return NULL
        w.absent += 1
        w.at = 0

cdef Walk walk_of(FetchRequest* r) noexcept nogil:
    cdef Walk w
    w.r = r
    w.at = 0
    w.absent = PART_PRESENT
    return w

cdef long long fetch_answer_frame_bytes(const FetchRequest* r) noexcept nogil:
    cdef long long total = 64
    cdef int32_t i
    for i in range(r.part_count):
        total += PARTITION_BYTES_MAX + 16 + r.parts[i].key.topic_bytes
    return total

cdef int32_t count_topics(FetchRequest* r) noexcept nogil:
    cdef Walk w = walk_of(r)
    cdef FetchPartition* before = NULL
    cdef FetchPartition* part = walk_next(&w)
    cdef int32_t topics = 0
    while part != NULL:
        if before == NULL or not fetch_same_topic(&before.key, &part.key):
            topics += 1
        before = part
        part = walk_next(&w)
    return topics

cdef int32_t count_run(Walk w, FetchPartition* first) noexcept nogil:
    """Returns the length of the run of first's topic; `w` is just behind the first partition."""
    cdef int32_t n = 0
    cdef FetchPartition* part = first
    while part != NULL and fetch_same_topic(&first.key, &part.key):
        n += 1
        part = walk_next(&w)
    return n

cdef void write_topic(Buffer* b, int16_t version, const FetchPartition* part) noexcept nogil:
    if version >= FETCH_IDS_FROM:
        buffer_bytes(b, part.key.topic_id, 16)
        return
    write_string(b, version >= FETCH_FLEXIBLE_FROM, part.key.topic, part.key.topic_bytes)

cdef void write_partition_tags(Buffer* b, int16_t version, const FetchPartition* part) noexcept nogil:
    cdef bint leader = version >= 16 and part.leader_id >= 0
    buffer_uvarint(b, part.diverging + leader)
    if part.diverging:
        buffer_uvarint(b, 0)
        buffer_uvarint(b, 13)
        buffer_i32(b, part.diverging_epoch)
        buffer_i64(b, part.diverging_end)
        buffer_uvarint(b, 0)
    if leader:
        buffer_uvarint(b, 1)
        buffer_uvarint(b, 9)
        buffer_i32(b, part.leader_id)
        buffer_i32(b, part.leader_now_epoch)
        buffer_uvarint(b, 0)

cdef void write_aborted(Buffer* b, const FetchRequest* r, const FetchPartition* part) noexcept nogil:
    """Writes abortedTransactions; null for read_uncommitted consumers."""
    cdef bint flexible = r.version >= FETCH_FLEXIBLE_FROM
    cdef int64_t count = -1, i
    if part.absent != PART_PRESENT:
        count = 0
    elif r.isolation == READ_COMMITTED and part.error == 0:
        count = part.aborted.count
    write_count(b, flexible, count)
    for i in range(count):
        buffer_i64(b, part.aborted.items[i].producer_id)
        buffer_i64(b, part.aborted.items[i].first_offset)
        if flexible:
            buffer_uvarint(b, 0)

cdef void write_partition(Response* out, const FetchRequest* r, FetchPartition* part) noexcept nogil:
    cdef Buffer* b = &out.bytes
    cdef bint flexible = r.version >= FETCH_FLEXIBLE_FROM
    cdef int64_t size_bytes = part.slice.size_bytes
    buffer_i32(b, part.key.index)
    buffer_i16(b, part.error)
    buffer_i64(b, part.high_watermark)
    if r.version >= FETCH_BATCHES_FROM:
        buffer_i64(b, part.last_stable_offset)
        if r.version >= 5:
            buffer_i64(b, part.log_start_offset)
        write_aborted(b, r, part)
    if r.version >= FETCH_RACK_FROM:
        buffer_i32(b, part.preferred_replica)
    if part.rewrite != NULL:    # the bytes that plugins made replace the slice
        size_bytes = part.rewrite.made_bytes
    if flexible:
        buffer_uvarint(b, size_bytes + 1)
    else:
        buffer_i32(b, <int32_t>size_bytes)
    if part.rewrite != NULL:
        buffer_bytes(b, part.rewrite.made, size_bytes)
    elif part.slice.size_bytes > 0:
        response_add_slice(out, &part.slice)
        memset(&part.slice, 0, sizeof(part.slice))
    if flexible:
        write_partition_tags(b, r.version, part)

cdef void write_topics(FetchRequest* r, Response* out) noexcept nogil:
    cdef bint flexible = r.version >= FETCH_FLEXIBLE_FROM
    cdef Walk w = walk_of(r)
    cdef FetchPartition* part = walk_next(&w)
    cdef int32_t left
    write_count(&out.bytes, flexible, count_topics(r))
    while part != NULL:
        left = count_run(w, part)
        write_topic(&out.bytes, r.version, part)
        write_count(&out.bytes, flexible, left)
        while left > 0:
            write_partition(out, r, part)
            left -= 1
            part = walk_next(&w)
        if flexible:
            buffer_uvarint(&out.bytes, 0)

cdef bint fetch_answer(FetchRequest* r, int32_t correlation_id, int16_t error, int32_t session_id, Response* out) noexcept nogil:
    cdef bint flexible = r.version >= FETCH_FLEXIBLE_FROM
    response_begin(out, correlation_id, flexible)
    if r.version >= 1:
        buffer_i32(&out.bytes, 0)   # throttleTimeMs: this handler never throttles
    if r.version >= FETCH_SESSIONS_FROM:
        buffer_i16(&out.bytes, error)
        buffer_i32(&out.bytes, session_id)
    write_topics(r, out)
    if flexible:
        buffer_uvarint(&out.bytes, 0)
    response_end(out)
    return not out.bytes.failed
