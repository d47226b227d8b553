"""One Fetch request in progress: the requested partitions and the results for each."""
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from barnabas.cext.codec.buffer cimport Buffer
from barnabas.cext.fetch.interception cimport Rewrite
from barnabas.cext.log.log cimport LogSlice
from barnabas.cext.log.txn_index cimport AbortedTxns

cdef enum:
    FETCH_VERSION_MIN = 0
    FETCH_SOFT_LIMITS_FROM = 3  # an answer has a limit, and one batch may exceed the limits
    FETCH_BATCHES_FROM = 4      # records of format 2; below it messages of format 1, below 2 of 0
    FETCH_VERSION_MAX = 18
    FETCH_RACK_FROM = 11        # a consumer may read from a follower
    FETCH_FLEXIBLE_FROM = 12
    FETCH_IDS_FROM = 13         # topics are named by id
    FETCH_SESSIONS_FROM = 7
    # More partitions than brokers serve; one takes about 200 bytes here while its request waits.
    FETCH_PARTITIONS_MAX = 262144

cdef enum:  # what fetch_parse answers
    FETCH_OK = 0
    FETCH_MALFORMED = -1
    FETCH_NO_MEMORY = -2

cdef struct FetchKey:           # `topic` is NULL if the request names topics by id
    const uint8_t* topic
    int32_t topic_bytes
    int32_t index
    uint8_t topic_id[16]

cdef enum:  # whether a partition is read, in the order in which Kafka answers them
    PART_PRESENT = 0
    PART_OF_UNKNOWN_ID = 1
    PART_UNKNOWN = 2            # it does not exist, or the client may not read it
    PART_ORDERS = 3

cdef struct FetchPartition:
    FetchKey key
    int64_t offset
    int64_t follower_log_start  # -1: the request does not contain it; it has not changed
    int32_t leader_epoch        # -1: not checked
    int32_t last_fetched_epoch  # -1: not checked
    int32_t bytes_max
    # what was found
    int16_t error
    int8_t absent               # PART_PRESENT, PART_OF_UNKNOWN_ID or PART_UNKNOWN
    int8_t intercepted          # plugins look at the records: the topic's policy says so
    bint diverging
    bint in_answer              # the answer contains it
    int32_t diverging_epoch
    int64_t diverging_end
    bint has_news                # the follower does not know the high watermark yet
    int32_t preferred_replica   # the consumer should read from this broker; -1: it reads here
    int32_t leader_id           # with leader_now_epoch: the current leader, if the version has it
    int32_t leader_now_epoch
    int64_t high_watermark
    int64_t last_stable_offset
    int64_t log_start_offset
    AbortedTxns aborted         # for readers of committed records
    LogSlice slice              # size 0: no records; otherwise it holds a reference
    Rewrite* rewrite            # plugins look at the records before they are sent (interception.pxd)
    void* entry                 # the session's entry of this partition (sessions.pxd), or NULL

cdef enum:  # what a lookup does where it would have to wait for the disk
    COLD_ASK = 0                # another thread reads the place, and the request waits
    COLD_WAIT = 1               # it waits
    COLD_SKIP = 2               # the answer has no records of this partition

cdef struct FetchRequest:
    int16_t version
    int8_t on_cold
    int8_t isolation
    int32_t replica_id          # >= 0: a follower's
    int64_t replica_epoch       # broker epoch of the follower; -1: unknown
    int32_t max_wait_ms
    int32_t min_bytes
    int32_t max_bytes
    int32_t session_id
    int32_t session_epoch
    FetchPartition* parts
    int32_t part_count
    int64_t part_capacity
    FetchKey* forgotten
    int32_t forgotten_count
    int64_t forgotten_capacity
    const uint8_t* rack         # client.rack of a consumer
    int32_t rack_bytes          # 0: none
    int32_t listener_index      # of the connection
    Buffer names                # names copied from a session, when the request has none

cdef inline int fetch_magic(const FetchRequest* r) noexcept nogil:
    """Returns the newest message format that the version may have."""
    return 2 if r.version >= FETCH_BATCHES_FROM else 1 if r.version >= 2 else 0

cdef inline bint fetch_may_follow(const FetchRequest* r) noexcept nogil:
    """Returns whether a follower may answer: consumers of a version that has a rack (KIP-392)."""
    return r.replica_id < 0 and r.version >= FETCH_RACK_FROM

cdef inline bint fetch_same_topic(const FetchKey* a, const FetchKey* b) noexcept nogil:
    if a.topic == NULL or b.topic == NULL:
        return a.topic == b.topic and memcmp(a.topic_id, b.topic_id, 16) == 0
    return a.topic_bytes == b.topic_bytes and (
        a.topic == b.topic or memcmp(a.topic, b.topic, a.topic_bytes) == 0
    )

cdef inline uint64_t fetch_key_hash(const FetchKey* key, uint64_t seed) noexcept nogil:
    """FNV-1a from a secret seed, then a mix; a client cannot choose keys that collide."""
    cdef uint64_t h = seed ^ 0xCBF29CE484222325u
    cdef const uint8_t* p = key.topic if key.topic != NULL else &key.topic_id[0]
    cdef int32_t n = key.topic_bytes if key.topic != NULL else 16
    cdef int32_t i
    for i in range(n):
        h = (h ^ p[i]) * 0x100000001B3u
    h ^= (<uint64_t><uint32_t>key.index + 1) * 0x9E3779B97F4A7C15u
    h = (h ^ (h >> 33)) * 0xFF51AFD7ED558CCDu
    h = (h ^ (h >> 33)) * 0xC4CEB9FE1A85EC53u
    return h ^ (h >> 33)

cdef void fetch_request_init(FetchRequest* r) noexcept nogil
# Releases every slice and all memory.
cdef void fetch_request_free(FetchRequest* r) noexcept nogil
# Releases the slices and clears the results; only `absent` remains.
cdef void fetch_request_clear(FetchRequest* r) noexcept nogil
# Parses the body of a request. Returns FETCH_OK, FETCH_MALFORMED or FETCH_NO_MEMORY.
cdef int fetch_parse(FetchRequest* r, const uint8_t* body, int64_t size_bytes, int16_t version) noexcept nogil
# Appends a partition without results; returns NULL when memory ran out.
cdef FetchPartition* fetch_add(FetchRequest* r) noexcept nogil

cdef FetchKey* fetch_add_forgotten(FetchRequest* r) noexcept nogil
# Merges duplicates of a partition: first position, last values. Returns False if memory ran out.
cdef bint fetch_merge_twins(FetchRequest* r, uint64_t seed) noexcept nogil
