"""Writes Fetch requests, versions 12 to 17, as a follower sends them, and reads the answers.

    replicaId int32             up to 14; from 15 in tag 1: replicaId int32, replicaEpoch int64
    maxWaitMs, minBytes, maxBytes int32; isolationLevel int8 = 0; sessionId, sessionEpoch int32
    topics [] of
        topic string (id from 13)
        partitions [] of
            partition int32, currentLeaderEpoch int32, fetchOffset int64, lastFetchedEpoch int32
            logStartOffset int64, partitionMaxBytes int32
    forgottenTopicsData [] of topic and partitions []int32
    rackId string = ""

The answer is described in cext/fetch/response.pyx. All lengths are compact, and each struct ends in
tagged fields. A topic has one entry for each run of its partitions, as in Kafka's requests.

Answers come from another broker, and every byte is read through the checked cursor; records stay
where they are. answer_next reads at most as many partitions as the bytes hold. Next: fetches.pyx.
"""
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from barnabas.cext.codec.buffer cimport (
    buffer_bytes, buffer_i32, buffer_i64, buffer_i8, buffer_uvarint,
)
from barnabas.cext.codec.cursor cimport (
    cursor_i16, cursor_i32, cursor_i64, cursor_left, cursor_of, cursor_take, cursor_uvarint,
)
from barnabas.cext.codec.fields cimport (
    read_count, read_string, skip_tags, write_count, write_no_tags, write_string,
)

cdef enum:
    REPLICA_STATE_FROM = 15


# ------------------------------------------------------------------------------------- the request

cdef void write_begin(
    Buffer* b, int16_t version, int32_t node_id, const FetchLimits* limits, int32_t wait_ms,
    int32_t session_id, int32_t session_epoch, int32_t runs
) noexcept nogil:
    if version < REPLICA_STATE_FROM:
        buffer_i32(b, node_id)
    buffer_i32(b, wait_ms)
    buffer_i32(b, limits.bytes_min)
    buffer_i32(b, limits.bytes_max)
    buffer_i8(b, 0)
    buffer_i32(b, session_id)
    buffer_i32(b, session_epoch)
    write_count(b, True, runs)


cdef void write_topic(
    Buffer* b, int16_t version, const WantedPartition* first, int32_t partitions
) noexcept nogil:
    if version >= TOPIC_IDS_FROM:
        buffer_bytes(b, first.topic_id, 16)
    else:
        write_string(b, True, first.topic, first.topic_bytes)
    write_count(b, True, partitions)


cdef void write_wanted(
    Buffer* b, int16_t version, const WantedPartition* wanted, int32_t bytes_max
) noexcept nogil:
    buffer_i32(b, wanted.index)
    buffer_i32(b, wanted.leader_epoch)
    buffer_i64(b, wanted.offset)
    buffer_i32(b, wanted.last_epoch)
    buffer_i64(b, wanted.log_start)
    buffer_i32(b, bytes_max)
    write_no_tags(b, True)


cdef void write_end(Buffer* b, int16_t version, int32_t node_id, int64_t broker_epoch) noexcept nogil:
    write_string(b, True, NULL, 0)      # the rack: followers always read from the leader
    if version < REPLICA_STATE_FROM:
        write_no_tags(b, True)
        return
    buffer_uvarint(b, 1)
    buffer_uvarint(b, 1)
    buffer_uvarint(b, 13)
    buffer_i32(b, node_id)
    buffer_i64(b, broker_epoch)
    write_no_tags(b, True)


# -------------------------------------------------------------------------------------- the answer

cdef bint answer_begin(
    FetchAnswer* answer, const uint8_t* body, int64_t size_bytes, int16_t version
) noexcept nogil:
    answer.c = cursor_of(body, size_bytes)
    answer.version = version
    cursor_i32(&answer.c)               # the throttle time: the leader has waited already
    answer.error = cursor_i16(&answer.c)
    answer.session_id = cursor_i32(&answer.c)
    answer.topics_left = read_count(&answer.c, True)
    answer.partitions_left = 0
    return not answer.c.bad


cdef int64_t _nullable_count(Cursor* c) noexcept nogil:
    """Reads the length of an array or of bytes; 0 for null."""
    cdef int64_t n = <int64_t>cursor_uvarint(c, 5) - 1
    if n > cursor_left(c):
        c.bad = True
        return 0
    return max(n, <int64_t>0)


cdef void _read_tags(Cursor* c, AnswerPartition* partition) noexcept nogil:
    cdef int64_t count = <int64_t>cursor_uvarint(c, 5)
    cdef uint64_t tag
    cdef int64_t size_bytes
    cdef const uint8_t* at
    cdef Cursor value
    while count > 0 and not c.bad:
        tag = cursor_uvarint(c, 5)
        size_bytes = <int64_t>cursor_uvarint(c, 5)
        at = cursor_take(c, size_bytes)
        if tag == 0 and at != NULL:
            value = cursor_of(at, size_bytes)
            partition.diverging_epoch = cursor_i32(&value)
            partition.diverging_end = cursor_i64(&value)
            # The field may be there with its default values, which mean no divergence.
            partition.diverges = partition.diverging_epoch >= 0 or partition.diverging_end >= 0
            c.bad = c.bad or value.bad
        count -= 1


cdef void _read_partition(Cursor* c, AnswerPartition* partition) noexcept nogil:
    cdef int64_t aborted
    partition.index = cursor_i32(c)
    partition.error = cursor_i16(c)
    partition.high_watermark = cursor_i64(c)
    cursor_i64(c)                       # the last stable offset
    partition.log_start = cursor_i64(c)
    aborted = _nullable_count(c)
    while aborted > 0 and not c.bad:
        cursor_take(c, 16)
        skip_tags(c, True)
        aborted -= 1
    cursor_i32(c)                       # the preferred replica
    partition.size_bytes = _nullable_count(c)
    partition.records = cursor_take(c, partition.size_bytes)
    partition.diverges = False
    _read_tags(c, partition)


cdef void _read_topic(FetchAnswer* answer, AnswerPartition* partition) noexcept nogil:
    cdef const uint8_t* at
    partition.topic = NULL
    partition.topic_bytes = 0
    if answer.version < TOPIC_IDS_FROM:
        partition.topic = read_string(&answer.c, True, False, &partition.topic_bytes)
    else:
        at = cursor_take(&answer.c, 16)
        if at != NULL:
            memcpy(partition.topic_id, at, 16)
    answer.partitions_left = read_count(&answer.c, True)


cdef bint answer_next(FetchAnswer* answer, AnswerPartition* partition) noexcept nogil:
    cdef Cursor* c = &answer.c
    while answer.partitions_left == 0 and answer.topics_left > 0 and not c.bad:
        answer.topics_left -= 1
        _read_topic(answer, partition)
        if answer.partitions_left == 0:
            skip_tags(c, True)
    if answer.partitions_left == 0 or c.bad:
        if not c.bad and answer.topics_left == 0:
            skip_tags(c, True)          # of the answer
            answer.topics_left = -1     # once
        return False
    _read_partition(c, partition)
    answer.partitions_left -= 1
    if answer.partitions_left == 0:
        skip_tags(c, True)              # of the topic
    return not c.bad


cdef bint answer_is_whole(const FetchAnswer* answer) noexcept nogil:
    return not answer.c.bad and answer.topics_left == -1 and cursor_left(&answer.c) == 0
