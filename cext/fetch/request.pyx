"""Parses the Fetch request, versions 0 to 18, without the GIL, from untrusted bytes.

    replicaId int32            up to 14; from 15 in tag 1: replicaId int32, replicaEpoch int64
    maxWaitMs, minBytes int32; maxBytes int32 (from 3); isolationLevel int8 (from 4)
    sessionId, sessionEpoch int32                           from 7
    topics [] of
        topic string (id from 13)
        partitions [] of
            partition int32; currentLeaderEpoch int32 (from 9); fetchOffset int64
            lastFetchedEpoch int32 (from 12); logStartOffset int64 (from 5); partitionMaxBytes int32
            tags: 0 replicaDirectoryId (from 17), 1 highWatermark (from 18): of followers, not used
    forgottenTopicsData [] of topic and partitions []int32  from 7
    rackId string                                           from 11
    tags: 0 clusterId

From 12 lengths are compact and each struct ends in tagged fields; the parser skips unknown tags.
Invariants: the checked cursor reads every byte; no count may exceed the remaining bytes; tags
ascend and a known tagged field has exactly its size; no bytes remain at the end. The parsed request
needs at most about 12 times the request's bytes, and FETCH_PARTITIONS_MAX limits it. Next:
fetch.pyx.
"""
from libc.stdint cimport INT32_MAX
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from barnabas.cext.codec.buffer cimport buffer_free, buffer_init
from barnabas.cext.codec.cursor cimport (
    Cursor, cursor_i32, cursor_i64, cursor_i8, cursor_left, cursor_of, cursor_take, cursor_uvarint,
)
from barnabas.cext.codec.fields cimport read_count, read_string
from barnabas.cext.fetch.interception cimport rewrite_drop
from barnabas.cext.log.segment cimport segment_release
from barnabas.cext.log.txn_index cimport aborted_txns_free
from barnabas.cext.memory.array cimport array_room

cdef void fetch_request_init(FetchRequest* r) noexcept nogil:
    memset(r, 0, sizeof(FetchRequest))
    r.replica_id = -1
    r.replica_epoch = -1
    r.session_epoch = -1
    buffer_init(&r.names)

cdef inline void forget_found(FetchPartition* part) noexcept nogil:
    part.error = 0
    part.absent = PART_PRESENT
    part.diverging = False
    part.has_news = False
    part.preferred_replica = -1
    part.leader_id = -1
    part.leader_now_epoch = -1
    part.high_watermark = -1
    part.last_stable_offset = -1
    part.log_start_offset = -1
    part.rewrite = NULL
    part.intercepted = False
    memset(&part.slice, 0, sizeof(LogSlice))

cdef void fetch_request_clear(FetchRequest* r) noexcept nogil:
    cdef int32_t i
    for i in range(r.part_count):
        if r.parts[i].slice.segment != NULL:
            segment_release(r.parts[i].slice.segment)
        if r.parts[i].aborted.items != NULL:
            aborted_txns_free(&r.parts[i].aborted)
        rewrite_drop(r.parts[i].rewrite)
        if r.parts[i].absent == PART_PRESENT:
            forget_found(&r.parts[i])

cdef void fetch_request_free(FetchRequest* r) noexcept nogil:
    fetch_request_clear(r)
    free(r.parts)
    free(r.forgotten)
    buffer_free(&r.names)
    fetch_request_init(r)

cdef FetchPartition* fetch_add(FetchRequest* r) noexcept nogil:
    cdef FetchPartition* added
    if not array_room(&r.parts, &r.part_capacity, r.part_count + 1, sizeof(FetchPartition)):
        return NULL
    added = &r.parts[r.part_count]
    r.part_count += 1
    memset(added, 0, sizeof(FetchPartition))
    added.follower_log_start = -1
    forget_found(added)
    return added

cdef FetchKey* fetch_add_forgotten(FetchRequest* r) noexcept nogil:
    cdef int64_t wanted = r.forgotten_count + 1
    if not array_room(&r.forgotten, &r.forgotten_capacity, wanted, sizeof(FetchKey)):
        return NULL
    r.forgotten_count += 1
    return &r.forgotten[r.forgotten_count - 1]

cdef void read_topic(Cursor* c, int16_t version, FetchKey* key) noexcept nogil:
    cdef const uint8_t* at
    memset(key, 0, sizeof(FetchKey))
    if version < FETCH_IDS_FROM:
        key.topic = read_string(c, version >= FETCH_FLEXIBLE_FROM, False, &key.topic_bytes)
        return
    at = cursor_take(c, 16)
    if at != NULL:
        memcpy(key.topic_id, at, 16)

cdef bint next_tag(Cursor* c, int64_t* last, int64_t* tag, Cursor* value) noexcept nogil:
    """Reads the next tagged field's tag, and sets a cursor over its value alone."""
    cdef int64_t size
    cdef const uint8_t* at
    tag[0] = <int64_t>cursor_uvarint(c, 5)
    size = <int64_t>cursor_uvarint(c, 5)
    at = cursor_take(c, size)
    if c.bad or tag[0] <= last[0]:
        c.bad = True
        return False
    last[0] = tag[0]
    value[0] = cursor_of(at, size)
    return True

cdef int32_t tag_count(Cursor* c) noexcept nogil:
    cdef int64_t n = <int64_t>cursor_uvarint(c, 5)
    if n > cursor_left(c) // 2:
        c.bad = True
        return 0
    return <int32_t>n

cdef void skip_tags(Cursor* c) noexcept nogil:
    cdef int64_t last = -1, tag
    cdef Cursor value
    cdef int32_t i
    for i in range(tag_count(c)):
        if not next_tag(c, &last, &tag, &value):
            return

cdef void read_partition_tags(Cursor* c, int16_t version) noexcept nogil:
    """Skips the fields of followers, which this broker does not use; checks their size."""
    cdef int64_t last = -1, tag
    cdef Cursor value
    cdef int32_t i
    for i in range(tag_count(c)):
        if not next_tag(c, &last, &tag, &value):
            return
        if version >= 17 and tag == 0 and cursor_left(&value) != 16:
            c.bad = True
        elif version >= 18 and tag == 1 and cursor_left(&value) != 8:
            c.bad = True

cdef void read_request_tags(Cursor* c, FetchRequest* r) noexcept nogil:
    cdef int64_t last = -1, tag, size
    cdef Cursor value
    cdef int32_t i
    for i in range(tag_count(c)):
        if not next_tag(c, &last, &tag, &value):
            return
        if tag == 0:  # the cluster id, a nullable string
            size = <int64_t>cursor_uvarint(&value, 5) - 1
            if size > 0:
                cursor_take(&value, size)
            c.bad = c.bad or value.bad or value.p != value.end
        elif tag == 1 and r.version >= 15:
            r.replica_id = cursor_i32(&value)
            r.replica_epoch = cursor_i64(&value)
            skip_tags(&value)
            c.bad = c.bad or value.bad or value.p != value.end

cdef int read_partition(Cursor* c, FetchRequest* r, const FetchKey* topic) noexcept nogil:
    cdef FetchPartition* part
    if r.part_count == FETCH_PARTITIONS_MAX:
        c.bad = True
        return FETCH_MALFORMED
    part = fetch_add(r)
    if part == NULL:
        return FETCH_NO_MEMORY
    part.key = topic[0]
    part.key.index = cursor_i32(c)
    part.leader_epoch = cursor_i32(c) if r.version >= 9 else -1
    part.offset = cursor_i64(c)
    part.last_fetched_epoch = cursor_i32(c) if r.version >= 12 else -1
    if r.version >= 5:
        part.follower_log_start = cursor_i64(c)
    part.bytes_max = cursor_i32(c)
    if r.version >= FETCH_FLEXIBLE_FROM:
        read_partition_tags(c, r.version)
    return FETCH_MALFORMED if c.bad else FETCH_OK

cdef int read_topics(Cursor* c, FetchRequest* r) noexcept nogil:
    cdef bint flexible = r.version >= FETCH_FLEXIBLE_FROM
    cdef FetchKey topic
    cdef int32_t i, j
    cdef int status
    for i in range(read_count(c, flexible)):
        read_topic(c, r.version, &topic)
        for j in range(read_count(c, flexible)):
            status = read_partition(c, r, &topic)
            if status != FETCH_OK:
                return status
        if flexible:
            skip_tags(c)
        if c.bad:
            return FETCH_MALFORMED
    return FETCH_OK

cdef int read_forgotten(Cursor* c, FetchRequest* r) noexcept nogil:
    cdef bint flexible = r.version >= FETCH_FLEXIBLE_FROM
    cdef FetchKey topic
    cdef FetchKey* key
    cdef int32_t i, j
    for i in range(read_count(c, flexible)):
        read_topic(c, r.version, &topic)
        for j in range(read_count(c, flexible)):
            topic.index = cursor_i32(c)
            if c.bad or r.forgotten_count == FETCH_PARTITIONS_MAX:
                return FETCH_MALFORMED
            key = fetch_add_forgotten(r)
            if key == NULL:
                return FETCH_NO_MEMORY
            key[0] = topic
        if flexible:
            skip_tags(c)
        if c.bad:
            return FETCH_MALFORMED
    return FETCH_OK

cdef int fetch_parse(FetchRequest* r, const uint8_t* body, int64_t size_bytes, int16_t version) noexcept nogil:
    cdef Cursor c = cursor_of(body, size_bytes)
    cdef int status
    r.version = version
    if version < FETCH_VERSION_MIN or version > FETCH_VERSION_MAX:
        return FETCH_MALFORMED
    if version < 15:
        r.replica_id = cursor_i32(&c)
    r.max_wait_ms = cursor_i32(&c)
    r.min_bytes = cursor_i32(&c)
    if version >= FETCH_BATCHES_FROM:
        r.max_bytes = cursor_i32(&c)
        r.isolation = cursor_i8(&c)
    else:
        r.max_bytes = cursor_i32(&c) if version >= FETCH_SOFT_LIMITS_FROM else INT32_MAX
    if version >= FETCH_SESSIONS_FROM:
        r.session_id = cursor_i32(&c)
        r.session_epoch = cursor_i32(&c)
    status = read_topics(&c, r)
    if status == FETCH_OK and version >= FETCH_SESSIONS_FROM:
        status = read_forgotten(&c, r)
    if status != FETCH_OK:
        return status
    if version >= FETCH_RACK_FROM:
        r.rack = read_string(&c, version >= FETCH_FLEXIBLE_FROM, False, &r.rack_bytes)
    if version >= FETCH_FLEXIBLE_FROM:
        read_request_tags(&c, r)
    return FETCH_MALFORMED if c.bad or c.p != c.end else FETCH_OK

cdef bint fetch_merge_twins(FetchRequest* r, uint64_t seed) noexcept nogil:
    cdef int32_t slots = 8
    cdef int32_t* table
    cdef int32_t i, kept = 0
    cdef uint64_t at
    cdef FetchPartition* part
    cdef FetchPartition* other
    if r.part_count < 2:
        return True
    while slots < 2 * r.part_count:
        slots *= 2
    table = <int32_t*>calloc(slots, sizeof(int32_t))  # places in r.parts, counted from 1
    if table == NULL:
        return False
    for i in range(r.part_count):
        part = &r.parts[i]
        at = fetch_key_hash(&part.key, seed) & (slots - 1)
        while table[at] != 0:
            other = &r.parts[table[at] - 1]
            if other.key.index == part.key.index and fetch_same_topic(&other.key, &part.key):
                break
            at = (at + 1) & (slots - 1)
        if table[at] != 0:
            r.parts[table[at] - 1] = part[0]
            continue
        r.parts[kept] = part[0]
        kept += 1
        table[at] = kept
    r.part_count = kept
    free(table)
    return True
