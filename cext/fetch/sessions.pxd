"""Incremental fetch sessions (KIP-227): the cache of one broker, shared by its threads."""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

from barnabas.cext.fetch.request cimport FetchRequest
from barnabas.cext.memory.mutex cimport pthread_mutex_t

cdef enum:
    SESSION_NONE = 0
    SESSION_EPOCH_FIRST = 0     # asks for a new session
    SESSION_EPOCH_FINAL = -1    # closes a session, asks for none
    SESSION_EVICTION_MS = 120000
    SESSION_TOPIC_BYTES_MAX = 249   # no topic has a longer name
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FETCH_SESSION_TOPIC_ID_ERROR = 106

cdef struct SessionEntry:       # one partition of a session; the name follows the struct
    SessionEntry* next_in_place # the next one with the same hash
    SessionEntry* next          # in the order in which answers are made
    SessionEntry* previous
    uint64_t hash
    int64_t offset
    int64_t high_watermark      # as last sent; -1: send it again
    int64_t log_start_offset
    int32_t index
    int32_t leader_epoch
    int32_t last_fetched_epoch
    int32_t bytes_max
    int32_t topic_bytes         # 0: by id
    uint8_t topic_id[16]

cdef struct Session:
    Session* next_in_place
    Session* older              # the list of sessions by last use
    Session* newer
    int32_t id
    int32_t epoch               # the epoch that the next request must have
    int32_t holders             # references: of the cache, and of requests that use the session
    bint by_id
    bint privileged             # a follower's
    bint closed
    bint evictable_by_privileged    # as of the last touch, as in Kafka
    bint evictable_by_all
    int64_t created_ms
    int64_t last_used_ms
    int32_t size_at_touch
    uint64_t changes            # counts changes of the entries; pointers to entries are valid until the next
    pthread_mutex_t lock        # guards the fields below
    SessionEntry** places
    int32_t place_count
    int32_t entry_count
    int64_t memory_bytes
    SessionEntry* first
    SessionEntry* last

cdef struct SessionCache:
    pthread_mutex_t lock        # no thread holds it and a session's lock together
    Session** places
    int32_t place_count
    int32_t session_count
    int32_t slots_max
    int64_t memory_bytes        # atomic: of all sessions
    int64_t memory_bytes_max
    Session* oldest
    Session* newest
    uint64_t seed
    uint64_t random
    int64_t evicted             # counters: atomic
    int64_t refused

cdef struct SessionUse:         # how one request uses a session
    Session* session            # held until session_finish or session_drop; NULL: none
    uint64_t changes
    int32_t epoch               # the session's after this request,
    int32_t asked_epoch         # and before it
    bint create                 # a full request: session_finish makes a session

cdef SessionCache* session_cache_new(int32_t slots_max, int64_t memory_bytes_max, uint64_t seed) noexcept nogil
cdef void session_cache_free(SessionCache* cache) noexcept nogil
cdef void session_cache_set_slots(SessionCache* cache, int32_t slots_max) noexcept nogil

# Reads the request's session fields. Returns 0, and r's partitions are those to fetch (those of the
# whole session for an incremental request; r's own names still point into the frame); otherwise the
# error that is the whole answer, or FETCH_NO_MEMORY (-2) without memory.
cdef int session_begin(SessionCache* cache, FetchRequest* r, int64_t now_ms, SessionUse* use) noexcept nogil
# Call it when the answers of r's partitions are known. It marks the partitions to send, moves
# partitions with records to the end of their session's order, and makes the session of a full
# request. It sets the session id of the answer and returns the error of the whole answer.
cdef int16_t session_finish(SessionCache* cache, FetchRequest* r, int64_t now_ms, SessionUse* use, int32_t* session_id) noexcept nogil
cdef void session_drop(SessionCache* cache, SessionUse* use) noexcept nogil
# Drops the use as if the request had not been made: the same request may come again.
cdef void session_retract(SessionCache* cache, SessionUse* use) noexcept nogil

cdef class FetchSessions:
    """Python's owner of one SessionCache."""
    cdef SessionCache* cache
