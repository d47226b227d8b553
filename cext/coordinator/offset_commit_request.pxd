"""One pass over an OffsetCommit request, versions 2 to 10, or a TxnOffsetCommit request, versions 0
to 6; a Walk holds the position.

    commit_begin -> number of topics; for each: commit_topic -> number of partitions; for each:
    commit_row; after a topic's partitions, and after all topics, commit_tags.

`c.bad` means that the request is damaged or needs Python: it has unknown tagged fields, a retention
time, or an invalid producer. The walk never reads past the end.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from barnabas.cext.codec.cursor cimport (
    Cursor, cursor_i16, cursor_i32, cursor_i64, cursor_left, cursor_of, cursor_take,
)
from barnabas.cext.codec.fields cimport read_count, read_no_tags, read_string
from barnabas.cext.network.handler cimport Request

cdef enum:
    KEY_OFFSET_COMMIT = 8
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
    ROWS_MAX = 128                  # partitions in one request; the keys and the values of more ...
    REQUEST_BYTES_MAX = 65536       # ... or of a larger request may be too much for one batch

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
    int64_t rows
    # the topic and the partition it is at
    const uint8_t* topic
    int32_t topic_bytes
    const uint8_t* topic_id
    int32_t index
    int64_t committed_offset
    int32_t leader_epoch
    const uint8_t* metadata
    int32_t metadata_bytes

cdef inline void commit_tags(Walk* w) noexcept nogil:
    """Marks a request with unknown tagged fields: Python must handle it."""
    read_no_tags(&w.c, w.flexible)

cdef inline bint is_ascii(const uint8_t* p, int32_t n) noexcept nogil:
    cdef int32_t i
    cdef uint8_t seen = 0
    for i in range(n):
        seen |= p[i]
    return seen < 0x80

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
    if w.version <= VERSION_RETENTION_LAST and cursor_i64(&w.c) != -1:
        w.c.bad = True

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
    if w.c.bad or w.transactional_id_bytes == 0 or w.producer_id < 0 or w.producer_epoch < 0:
        w.c.bad = True
    elif not is_ascii(w.transactional_id, w.transactional_id_bytes):
        w.c.bad = True

cdef inline int64_t commit_begin(Walk* w, const Request* r) noexcept nogil:
    """Reads up to the topics and returns their count."""
    w.c = cursor_of(r.data + r.body_at, r.size_bytes - r.body_at)
    w.version = r.api_version
    w.transactional = r.api_key == KEY_TXN_OFFSET_COMMIT
    w.instance = NULL
    w.instance_bytes = -1
    w.topic = w.topic_id = NULL
    w.topic_bytes = 0
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
    w.metadata = read_string(&w.c, w.flexible, True, &w.metadata_bytes)
    if w.metadata == NULL:
        w.metadata_bytes = 0
    commit_tags(w)

cdef inline bint commit_is_plain(Walk* w, const Request* r, int32_t metadata_bytes_max) noexcept nogil:
    """Returns whether the request is whole and has nothing that Python would reject by its form."""
    cdef int64_t topics, partitions, i, k
    if r.size_bytes > REQUEST_BYTES_MAX:
        return False
    w.rows = 0
    topics = commit_begin(w, r)
    for i in range(topics):
        partitions = commit_topic(w)
        w.rows += partitions
        if w.c.bad or w.rows > ROWS_MAX:
            return False
        for k in range(partitions):
            commit_row(w)
            if w.c.bad or w.metadata_bytes > metadata_bytes_max or (
                    not is_ascii(w.metadata, w.metadata_bytes)):
                return False
        commit_tags(w)
    commit_tags(w)
    return not w.c.bad and cursor_left(&w.c) == 0 and w.rows > 0 and w.group_bytes > 0
