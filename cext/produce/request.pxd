"""One pass over a Produce request: a checked cursor, and the topic and partition at its position.

    walk_begin -> number of topics; for each: walk_topic -> number of partitions; for each:
    walk_partition; after a topic's partitions, and after all topics, walk_tags.

`c.bad` means that the request is damaged. The walk never reads past the end, and it rejects a count
of more elements than the remaining bytes.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

from barnabas.cext.codec.cursor cimport (
    Cursor, cursor_i16, cursor_i32, cursor_of, cursor_take, cursor_uvarint,
)
from barnabas.cext.codec.fields cimport read_count, read_string
from barnabas.cext.network.handler cimport Request

cdef enum:
    VERSION_BATCHES = 3             # below it records may be messages of the formats 0 and 1
    VERSION_FLEXIBLE = 9
    VERSION_TOPIC_IDS = 13

cdef struct Walk:                   # one pass over a request
    Cursor c
    int16_t version
    bint flexible
    bint by_id
    int16_t acks
    int32_t timeout_ms
    const uint8_t* transactional_id     # NULL: none
    int32_t transactional_id_bytes
    # the topic and the partition at the walk's position
    const uint8_t* topic
    int32_t topic_bytes
    const uint8_t* topic_id
    int32_t index
    const uint8_t* records
    int64_t records_bytes

cdef inline void walk_tags(Walk* w) noexcept nogil:
    cdef uint64_t i, count
    if w.flexible:
        count = cursor_uvarint(&w.c, 5)
        for i in range(count):
            cursor_uvarint(&w.c, 5)
            cursor_take(&w.c, <int64_t>cursor_uvarint(&w.c, 5))
            if w.c.bad:
                return

cdef inline int64_t walk_begin(Walk* w, const Request* request) noexcept nogil:
    """Reads up to the topics and returns their number; sets w.c.bad if the request is damaged."""
    w.c = cursor_of(request.data + request.body_at, request.size_bytes - request.body_at)
    w.version = request.api_version
    w.flexible = w.version >= VERSION_FLEXIBLE
    w.by_id = w.version >= VERSION_TOPIC_IDS
    w.transactional_id = NULL
    w.transactional_id_bytes = 0
    if w.version >= VERSION_BATCHES:
        w.transactional_id = read_string(&w.c, w.flexible, True, &w.transactional_id_bytes)
    w.acks = cursor_i16(&w.c)
    w.timeout_ms = cursor_i32(&w.c)
    w.topic = NULL
    w.topic_id = NULL
    w.topic_bytes = 0
    return read_count(&w.c, w.flexible)

cdef inline int64_t walk_topic(Walk* w) noexcept nogil:
    """Reads a topic up to its partitions and returns their number."""
    if w.by_id:
        w.topic_id = cursor_take(&w.c, 16)
    else:
        w.topic = read_string(&w.c, w.flexible, False, &w.topic_bytes)
    return read_count(&w.c, w.flexible)

cdef inline void walk_partition(Walk* w) noexcept nogil:
    cdef int64_t size
    w.index = cursor_i32(&w.c)
    size = <int64_t>cursor_uvarint(&w.c, 5) - 1 if w.flexible else cursor_i32(&w.c)
    w.records = NULL
    w.records_bytes = size if size > 0 else 0
    if size >= 0:
        w.records = cursor_take(&w.c, size)
    elif size < -1:
        w.c.bad = True
    walk_tags(w)
