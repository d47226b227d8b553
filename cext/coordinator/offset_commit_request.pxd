"""One pass over an OffsetCommit request, versions 1 to 10, or a TxnOffsetCommit request, versions 0
to 6; a Walk holds the position.

    commit_begin -> number of topics; for each: commit_topic -> number of partitions; for each:
    commit_row; after a topic's partitions, and after all topics, commit_tags.

`c.bad` means that the request is damaged. The walk never reads past the end, and ignores bytes
after the message, as Kafka does.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from barnabas.cext.codec.cursor cimport (
    Cursor, cursor_i16, cursor_i32, cursor_i64, cursor_of, cursor_take,
)
from barnabas.cext.codec.fields cimport read_count, read_string, skip_tags
from barnabas.cext.codec.utf8 cimport utf8_is_valid
from barnabas.cext.network.handler cimport Request

cdef enum:
    KEY_OFFSET_COMMIT = 8
    VERSION_TIMESTAMP = 1           # the only version with the time of the commit
    VERSION_RETENTION_LAST = 4
    VERSION_LEADER_EPOCH = 6
    VERSION_INSTANCE = 7
    VERSION_FLEXIBLE = 8
    VERSION_TOPIC_IDS = 10
    KEY_TXN_OFFSET_COMMIT = 28
    TXN_VERSION_LEADER_EPOCH = 2
    TXN_VERSION_MEMBER = 3          # earlier versions do not name the member
    TXN_VERSION_FLEXIBLE = 3
    TXN_VERSION_ADDS = 5            # the broker adds the offsets to the transaction itself
    TXN_VERSION_TOPIC_IDS = 6

cdef struct Walk:
    Cursor c
    int16_t version
    bint transactional
    bint flexible
    bint by_id
    bint has_leader_epoch
    const uint8_t* transactional_id
    int32_t transactional_id_bytes
    int64_t producer_id             # -1: not of a transaction
    int16_t producer_epoch
    const uint8_t* group
    int32_t group_bytes
    int32_t generation
    const uint8_t* member
    int32_t member_bytes
    const uint8_t* instance         # NULL: none
    int32_t instance_bytes
    int64_t retention_ms            # negative: the broker's setting applies
    int64_t rows
    # the topic and the partition at the walk's position
    const uint8_t* topic
    int32_t topic_bytes
    const uint8_t* topic_id         # NULL where topics are named
    int32_t index
    int64_t committed_offset
    int32_t leader_epoch
    int64_t commit_ms               # negative: the client does not say
    const uint8_t* metadata
    int32_t metadata_bytes

cdef inline void commit_tags(Walk* w) noexcept nogil:
    skip_tags(&w.c, w.flexible)

cdef inline void _begin_plain(Walk* w) noexcept nogil:
    w.flexible = w.version >= VERSION_FLEXIBLE
    w.by_id = w.version >= VERSION_TOPIC_IDS
    w.has_leader_epoch = w.version >= VERSION_LEADER_EPOCH
    w.producer_id = w.producer_epoch = -1
    w.group = read_string(&w.c, w.flexible, False, &w.group_bytes)
    w.generation = cursor_i32(&w.c)
    w.member = read_string(&w.c, w.flexible, False, &w.member_bytes)
    if w.version >= VERSION_INSTANCE:
        w.instance = read_string(&w.c, w.flexible, True, &w.instance_bytes)
    if VERSION_TIMESTAMP < w.version <= VERSION_RETENTION_LAST:
        w.retention_ms = cursor_i64(&w.c)

cdef inline void _begin_transactional(Walk* w) noexcept nogil:
    w.flexible = w.version >= TXN_VERSION_FLEXIBLE
    w.by_id = w.version >= TXN_VERSION_TOPIC_IDS
    w.has_leader_epoch = w.version >= TXN_VERSION_LEADER_EPOCH
    w.transactional_id = read_string(&w.c, w.flexible, False, &w.transactional_id_bytes)
    w.group = read_string(&w.c, w.flexible, False, &w.group_bytes)
    w.producer_id = cursor_i64(&w.c)
    w.producer_epoch = cursor_i16(&w.c)
    w.generation = -1
    w.member = w.group
    w.member_bytes = 0
    if w.version >= TXN_VERSION_MEMBER:
        w.generation = cursor_i32(&w.c)
        w.member = read_string(&w.c, w.flexible, False, &w.member_bytes)
        w.instance = read_string(&w.c, w.flexible, True, &w.instance_bytes)

cdef inline int64_t commit_begin(Walk* w, const Request* r) noexcept nogil:
    """Reads up to the topics and returns their count."""
    w.c = cursor_of(r.data + r.body_at, r.size_bytes - r.body_at)
    w.version = r.api_version
    w.transactional = r.api_key == KEY_TXN_OFFSET_COMMIT
    w.instance = NULL
    w.instance_bytes = -1
    w.topic = w.topic_id = NULL
    w.topic_bytes = 0
    w.retention_ms = -1
    if w.transactional:
        _begin_transactional(w)
    else:
        _begin_plain(w)
    return read_count(&w.c, w.flexible)

cdef inline int64_t commit_topic(Walk* w) noexcept nogil:
    if w.by_id:
        w.topic_id = cursor_take(&w.c, 16)
    else:
        w.topic = read_string(&w.c, w.flexible, False, &w.topic_bytes)
    return read_count(&w.c, w.flexible)

cdef inline void commit_row(Walk* w) noexcept nogil:
    w.index = cursor_i32(&w.c)
    w.committed_offset = cursor_i64(&w.c)
    w.leader_epoch = cursor_i32(&w.c) if w.has_leader_epoch else -1
    w.commit_ms = -1
    if w.version == VERSION_TIMESTAMP and not w.transactional:
        w.commit_ms = cursor_i64(&w.c)
    w.metadata = read_string(&w.c, w.flexible, True, &w.metadata_bytes)
    if w.metadata == NULL:
        w.metadata_bytes = 0
    commit_tags(w)

cdef inline bint commit_is_whole(Walk* w, const Request* r) noexcept nogil:
    """Reads the whole request and counts its rows. Returns False if it is damaged, or if the group
    or a row's metadata is not UTF-8."""
    cdef int64_t topics = commit_begin(w, r), partitions, i, k
    w.rows = 0
    if w.c.bad or not utf8_is_valid(w.group, w.group_bytes):
        return False
    for i in range(topics):
        partitions = commit_topic(w)
        if w.c.bad:
            return False
        w.rows += partitions
        for k in range(partitions):
            commit_row(w)
            if w.c.bad or not utf8_is_valid(w.metadata, w.metadata_bytes):
                return False
        commit_tags(w)
    commit_tags(w)
    return not w.c.bad
