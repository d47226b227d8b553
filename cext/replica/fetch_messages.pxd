"""Fetch requests of a follower and their answers as bytes; described in fetch_messages.pyx."""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from barnabas.cext.codec.buffer cimport Buffer
from barnabas.cext.codec.cursor cimport Cursor

cdef enum:
    REPLICA_FETCH_VERSION_MIN = 12      # the first with the epoch of the follower's last record
    REPLICA_FETCH_VERSION_MAX = 17
    TOPIC_IDS_FROM = 13

cdef struct FetchLimits:
    int32_t wait_ms_max
    int32_t bytes_min
    int32_t bytes_max           # of an answer
    int32_t partition_bytes_max

cdef struct WantedPartition:
    const char* topic
    int32_t topic_bytes
    uint8_t topic_id[16]
    int32_t index
    int32_t leader_epoch
    int64_t offset
    int32_t last_epoch          # of the record before `offset`; -1: not known
    int64_t log_start

cdef struct FetchAnswer:
    int16_t error
    int32_t session_id
    int16_t version
    Cursor c
    int32_t topics_left
    int32_t partitions_left     # of the present topic

cdef struct AnswerPartition:
    const uint8_t* topic        # NULL from TOPIC_IDS_FROM on
    int32_t topic_bytes
    uint8_t topic_id[16]
    int32_t index
    int16_t error
    int64_t high_watermark
    int64_t log_start
    bint diverges
    int32_t diverging_epoch
    int64_t diverging_end
    const uint8_t* records
    int64_t size_bytes

# A request consists of write_begin; for each of the `runs` of partitions of one topic, write_topic
# and write_wanted for each partition; the number of forgotten runs, each with write_topic and the
# int32 indexes; write_end. The caller writes the tagged fields that end a topic.
cdef void write_begin(Buffer* b, int16_t version, int32_t node_id, const FetchLimits* limits, int32_t wait_ms, int32_t session_id, int32_t session_epoch, int32_t runs) noexcept nogil
cdef void write_wanted(Buffer* b, int16_t version, const WantedPartition* wanted, int32_t bytes_max) noexcept nogil
cdef void write_topic(Buffer* b, int16_t version, const WantedPartition* first, int32_t partitions) noexcept nogil
cdef void write_end(Buffer* b, int16_t version, int32_t node_id, int64_t broker_epoch) noexcept nogil

# Begins to read an answer. Returns False when the bytes are no answer.
cdef bint answer_begin(FetchAnswer* answer, const uint8_t* body, int64_t size_bytes, int16_t version) noexcept nogil
# Reads the next partition into `partition`, which must be the same struct at each call. Returns
# False at the end, or when the bytes are no answer.
cdef bint answer_next(FetchAnswer* answer, AnswerPartition* partition) noexcept nogil
# Call it after answer_next has returned False: returns whether all bytes were a valid answer.
cdef bint answer_is_whole(const FetchAnswer* answer) noexcept nogil
