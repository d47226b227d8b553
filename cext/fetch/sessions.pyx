"""Incremental fetch sessions (KIP-227): the broker keeps the partitions that a consumer fetches, so
that requests and answers contain only changes.

    request                   answer
    id 0, epoch 0             all partitions, and the id of a new session (0: the cache is full)
    id n, epoch 0             the same; session n is closed
    id n, epoch -1            all partitions; session n is closed, none is made
    id n, epoch e > 0         partitions with records, an error, or another high watermark or log
                              start than last sent. e is one more than last time; after 2^31-1
                              comes 1
Errors of a whole answer: 70 no such session, 71 another epoch, 106 the session names its topics by
id and the request by name (or the reverse).

Fairness: a partition whose records were sent moves to the end of the session's order, and answers
take records in that order, so that no partition starves when an answer reaches its limits.

Limits: `slots_max` sessions, and `memory_bytes_max` for all (a partition takes 96 bytes, its name,
and one or two places in a table). If all slots are in use, a new session may replace one that was
not used for two minutes, otherwise one that is older than two minutes and has fewer partitions; a
follower (privileged) may also replace any consumer's session. If a session exceeds the memory, the
broker closes it; its client gets error 70, sends a full request and gets id 0, and then continues
with full requests.

Locks: no thread holds the cache's lock and a session's lock together. A request holds a reference
to its session and keeps pointers to entries; `changes` shows at the end whether they are valid.
"""
from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from barnabas.cext.codec.buffer cimport buffer_reserve
from barnabas.cext.fetch.request cimport (
    FETCH_IDS_FROM, FETCH_NO_MEMORY, FETCH_SESSIONS_FROM, PART_ORDERS, FetchKey, FetchPartition,
    fetch_add, fetch_add_forgotten, fetch_key_hash, fetch_merge_twins, fetch_request_free,
    fetch_request_init,
)
from barnabas.cext.memory.atomics cimport atomic_add_i32, atomic_add_i64, atomic_load_i64
from barnabas.cext.memory.mutex cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)

cdef enum:
    PLACES_MIN = 8
    EPOCH_LAST = 0x7FFFFFFF

cdef inline const uint8_t* entry_topic(const SessionEntry* e) noexcept nogil:
    return <const uint8_t*>e + sizeof(SessionEntry) if e.topic_bytes else NULL

cdef inline int64_t entry_bytes(const SessionEntry* e) noexcept nogil:
    return <int64_t>sizeof(SessionEntry) + e.topic_bytes

cdef inline int32_t next_epoch(int32_t epoch) noexcept nogil:
    return 1 if epoch == EPOCH_LAST else epoch + 1

# ---- entries of one session (under its lock)

cdef bint account(SessionCache* cache, Session* s, int64_t bytes_more) noexcept nogil:
    """Counts memory; returns False and counts nothing if it would exceed the cache's limit."""
    if atomic_add_i64(&cache.memory_bytes, bytes_more) > cache.memory_bytes_max and bytes_more > 0:
        atomic_add_i64(&cache.memory_bytes, -bytes_more)
        return False
    s.memory_bytes += bytes_more
    return True

cdef bint is_entry(const SessionEntry* e, const FetchKey* key, uint64_t hash) noexcept nogil:
    if e.hash != hash or e.index != key.index:
        return False
    if key.topic == NULL:
        return e.topic_bytes == 0 and memcmp(e.topic_id, key.topic_id, 16) == 0
    return (
        e.topic_bytes == key.topic_bytes
        and memcmp(entry_topic(e), key.topic, key.topic_bytes) == 0
    )

cdef SessionEntry** find_place(Session* s, const FetchKey* key, uint64_t hash) noexcept nogil:
    """Returns the address where the pointer to the key's entry is, or would be."""
    cdef SessionEntry** at = &s.places[hash & <uint64_t>(s.place_count - 1)]
    while at[0] != NULL and not is_entry(at[0], key, hash):
        at = &at[0].next_in_place
    return at

cdef bint grow_places(SessionCache* cache, Session* s) noexcept nogil:
    cdef int32_t count = s.place_count * 2 if s.place_count else PLACES_MIN
    cdef SessionEntry** grown
    cdef SessionEntry* e
    cdef SessionEntry** at
    if not account(cache, s, (count - s.place_count) * <int64_t>sizeof(void*)):
        return False
    grown = <SessionEntry**>calloc(count, sizeof(void*))
    if grown == NULL:
        account(cache, s, -(count - s.place_count) * <int64_t>sizeof(void*))
        return False
    e = s.first
    while e != NULL:
        at = &grown[e.hash & <uint64_t>(count - 1)]
        e.next_in_place = at[0]
        at[0] = e
        e = e.next
    free(s.places)
    s.places = grown
    s.place_count = count
    return True

cdef void order_unlink(Session* s, SessionEntry* e) noexcept nogil:
    if e.previous != NULL:
        e.previous.next = e.next
    else:
        s.first = e.next
    if e.next != NULL:
        e.next.previous = e.previous
    else:
        s.last = e.previous

cdef void order_append(Session* s, SessionEntry* e) noexcept nogil:
    e.next = NULL
    e.previous = s.last
    if s.last != NULL:
        s.last.next = e
    else:
        s.first = e
    s.last = e

cdef void entry_ask(SessionEntry* e, const FetchPartition* part) noexcept nogil:
    e.offset = part.offset
    e.leader_epoch = part.leader_epoch
    e.last_fetched_epoch = part.last_fetched_epoch
    e.bytes_max = part.bytes_max

cdef SessionEntry* session_put(SessionCache* cache, Session* s, const FetchPartition* part) noexcept nogil:
    """Adds or changes an entry; returns NULL if memory ran out or the name is too long."""
    cdef const FetchKey* key = &part.key
    cdef int32_t name_bytes = key.topic_bytes if key.topic != NULL else 0
    cdef uint64_t hash = fetch_key_hash(key, cache.seed)
    cdef SessionEntry** at
    cdef SessionEntry* e
    if key.topic != NULL and (name_bytes == 0 or name_bytes > SESSION_TOPIC_BYTES_MAX):
        return NULL
    if s.entry_count >= s.place_count and not grow_places(cache, s):
        return NULL
    at = find_place(s, key, hash)
    if at[0] != NULL:
        if s.privileged and at[0].offset == part.offset:
            # The follower begins again: it may have dropped the answer with this high watermark.
            at[0].high_watermark = -1
        entry_ask(at[0], part)
        return at[0]
    if not account(cache, s, <int64_t>sizeof(SessionEntry) + name_bytes):
        return NULL
    e = <SessionEntry*>calloc(1, sizeof(SessionEntry) + name_bytes)
    if e == NULL:
        account(cache, s, -(<int64_t>sizeof(SessionEntry) + name_bytes))
        return NULL
    e.hash = hash
    e.index = key.index
    e.topic_bytes = name_bytes
    memcpy(e.topic_id, key.topic_id, 16)
    if name_bytes:
        memcpy(<uint8_t*>e + sizeof(SessionEntry), key.topic, name_bytes)
    e.high_watermark = -1
    e.log_start_offset = -1
    entry_ask(e, part)
    at[0] = e
    order_append(s, e)
    s.entry_count += 1
    return e

cdef void session_forget(SessionCache* cache, Session* s, const FetchKey* key) noexcept nogil:
    cdef SessionEntry** at
    cdef SessionEntry* e
    if s.place_count == 0:
        return
    at = find_place(s, key, fetch_key_hash(key, cache.seed))
    e = at[0]
    if e == NULL:
        return
    at[0] = e.next_in_place
    order_unlink(s, e)
    s.entry_count -= 1
    account(cache, s, -entry_bytes(e))
    free(e)

# ---- sessions

cdef Session* session_new(SessionCache* cache) noexcept nogil:
    cdef Session* s = <Session*>calloc(1, sizeof(Session))
    if s == NULL:
        return NULL
    if not account(cache, s, sizeof(Session)):
        free(s)
        return NULL
    pthread_mutex_init(&s.lock, NULL)
    s.holders = 1
    return s

cdef void session_release(SessionCache* cache, Session* s) noexcept nogil:
    cdef SessionEntry* e
    cdef SessionEntry* following
    if atomic_add_i32(&s.holders, -1) > 0:
        return
    e = s.first
    while e != NULL:
        following = e.next
        free(e)
        e = following
    free(s.places)
    atomic_add_i64(&cache.memory_bytes, -s.memory_bytes)
    pthread_mutex_destroy(&s.lock)
    free(s)

# ---- the cache (under its lock unless said otherwise)

cdef inline Session** session_place(SessionCache* cache, int32_t id) noexcept nogil:
    cdef Session** at = &cache.places[<uint32_t>id & <uint32_t>(cache.place_count - 1)]
    while at[0] != NULL and at[0].id != id:
        at = &at[0].next_in_place
    return at

cdef void use_unlink(SessionCache* cache, Session* s) noexcept nogil:
    if s.older != NULL:
        s.older.newer = s.newer
    else:
        cache.oldest = s.newer
    if s.newer != NULL:
        s.newer.older = s.older
    else:
        cache.newest = s.older

cdef void use_append(SessionCache* cache, Session* s) noexcept nogil:
    s.newer = NULL
    s.older = cache.newest
    if cache.newest != NULL:
        cache.newest.newer = s
    else:
        cache.oldest = s
    cache.newest = s

cdef void note_use(Session* s, int32_t size, int64_t now_ms) noexcept nogil:
    s.last_used_ms = now_ms
    s.size_at_touch = size
    s.evictable_by_all = now_ms - s.created_ms > SESSION_EVICTION_MS
    s.evictable_by_privileged = s.evictable_by_all or not s.privileged

cdef void cache_unlink(SessionCache* cache, Session* s) noexcept nogil:
    """Removes a session; the caller takes over the cache's reference."""
    session_place(cache, s.id)[0] = s.next_in_place
    use_unlink(cache, s)
    cache.session_count -= 1
    s.closed = True

cdef bint worth_less(const Session* a, const Session* b) noexcept nogil:
    if a.privileged != b.privileged:
        return not a.privileged
    if a.size_at_touch != b.size_at_touch:
        return a.size_at_touch < b.size_at_touch
    return a.id < b.id

cdef Session* find_victim(SessionCache* cache, const Session* proposed, int64_t now_ms) noexcept nogil:
    """Returns the session that a new one may replace, or NULL. Looks at all sessions at most, and
    only when every slot is taken."""
    cdef Session* s = cache.oldest
    cdef Session* least = NULL
    if s == NULL:
        return NULL
    if now_ms - s.last_used_ms > SESSION_EVICTION_MS:
        return s
    while s != NULL:
        if s.evictable_by_privileged if proposed.privileged else s.evictable_by_all:
            if least == NULL or worth_less(s, least):
                least = s
        s = s.newer
    return least if least != NULL and worth_less(least, proposed) else NULL

cdef bint grow_sessions(SessionCache* cache) noexcept nogil:
    cdef int32_t count = cache.place_count * 2 if cache.place_count else PLACES_MIN
    cdef Session** grown = <Session**>calloc(count, sizeof(void*))
    cdef Session* s = cache.oldest
    cdef Session** at
    if grown == NULL:
        return False
    while s != NULL:
        at = &grown[<uint32_t>s.id & <uint32_t>(count - 1)]
        s.next_in_place = at[0]
        at[0] = s
        s = s.newer
    free(cache.places)
    cache.places = grown
    cache.place_count = count
    return True

cdef int32_t fresh_id(SessionCache* cache) noexcept nogil:
    """Returns a random id that is not in use. Ids are not secret, but must be unique."""
    cdef int32_t id
    while True:  # the slots are far fewer than the ids
        cache.random ^= cache.random << 13
        cache.random ^= cache.random >> 7
        cache.random ^= cache.random << 17
        id = <int32_t>((cache.random * 0x2545F4914F6CDD1Du) >> 33)
        if id > 0 and session_place(cache, id)[0] == NULL:
            return id

cdef bint cache_insert(SessionCache* cache, Session* s, int64_t now_ms) noexcept nogil:
    """The caller does not hold the lock. Adds s, and the cache takes over one reference to it;
    returns False when the cache is full."""
    cdef Session* victim = NULL
    cdef bint room
    pthread_mutex_lock(&cache.lock)
    s.size_at_touch = s.entry_count
    room = cache.session_count < cache.slots_max
    if not room and cache.slots_max > 0:
        victim = find_victim(cache, s, now_ms)
        if victim != NULL:
            cache_unlink(cache, victim)
            cache.evicted += 1
            room = True
    if room and cache.session_count >= cache.place_count:
        room = grow_sessions(cache)
    if room:
        s.id = fresh_id(cache)
        s.created_ms = now_ms
        note_use(s, s.entry_count, now_ms)
        session_place(cache, s.id)[0] = s
        s.next_in_place = NULL
        use_append(cache, s)
        cache.session_count += 1
    else:
        cache.refused += 1
    pthread_mutex_unlock(&cache.lock)
    if victim != NULL:
        session_release(cache, victim)
    return room

cdef Session* cache_hold(SessionCache* cache, int32_t id) noexcept nogil:
    """The caller does not hold the lock. Returns a new reference to the session, or NULL."""
    cdef Session* s = NULL
    pthread_mutex_lock(&cache.lock)
    if cache.place_count:
        s = session_place(cache, id)[0]
        if s != NULL:
            atomic_add_i32(&s.holders, 1)
    pthread_mutex_unlock(&cache.lock)
    return s

cdef void cache_close(SessionCache* cache, int32_t id) noexcept nogil:
    """The caller does not hold the lock. Removes the session if the cache has it."""
    cdef Session* s = NULL
    pthread_mutex_lock(&cache.lock)
    if cache.place_count:
        s = session_place(cache, id)[0]
        if s != NULL:
            cache_unlink(cache, s)
    pthread_mutex_unlock(&cache.lock)
    if s != NULL:
        session_release(cache, s)

cdef void cache_touch(SessionCache* cache, Session* s, int32_t size, int64_t now_ms) noexcept nogil:
    """Notes a use of the session. The caller does not hold the lock."""
    pthread_mutex_lock(&cache.lock)
    if not s.closed:
        use_unlink(cache, s)
        use_append(cache, s)
        note_use(s, size, now_ms)
    pthread_mutex_unlock(&cache.lock)

cdef SessionCache* session_cache_new(int32_t slots_max, int64_t memory_bytes_max, uint64_t seed) noexcept nogil:
    cdef SessionCache* cache = <SessionCache*>calloc(1, sizeof(SessionCache))
    if cache == NULL:
        return NULL
    pthread_mutex_init(&cache.lock, NULL)
    cache.slots_max = slots_max
    cache.memory_bytes_max = memory_bytes_max
    cache.seed = seed
    cache.random = seed | 1
    return cache

cdef void session_cache_free(SessionCache* cache) noexcept nogil:
    """The caller ensures that no request holds a session."""
    if cache == NULL:
        return
    while cache.oldest != NULL:
        cache_close(cache, cache.oldest.id)
    free(cache.places)
    pthread_mutex_destroy(&cache.lock)
    free(cache)

cdef void session_cache_set_slots(SessionCache* cache, int32_t slots_max) noexcept nogil:
    """Sets the number of slots; removes the least recently used sessions beyond it."""
    cdef Session* gone
    pthread_mutex_lock(&cache.lock)
    cache.slots_max = slots_max
    pthread_mutex_unlock(&cache.lock)
    while True:
        gone = NULL
        pthread_mutex_lock(&cache.lock)
        if cache.session_count > cache.slots_max:
            gone = cache.oldest
            cache_unlink(cache, gone)
            cache.evicted += 1
        pthread_mutex_unlock(&cache.lock)
        if gone == NULL:
            return
        session_release(cache, gone)

# ---- one request

cdef bint session_update(SessionCache* cache, Session* s, const FetchRequest* r) noexcept nogil:
    cdef int32_t i
    s.changes += 1
    for i in range(r.part_count):
        if session_put(cache, s, &r.parts[i]) == NULL:
            return False
    for i in range(r.forgotten_count):
        session_forget(cache, s, &r.forgotten[i])
    return True

cdef inline bint names_follow(const SessionEntry* e) noexcept nogil:
    """Returns whether the name equals the previous partition's name."""
    return (
        e.previous != NULL and e.topic_bytes == e.previous.topic_bytes
        and memcmp(entry_topic(e), entry_topic(e.previous), e.topic_bytes) == 0
    )

cdef bint copy_entries(Session* s, FetchRequest* r) noexcept nogil:
    """Copies every partition of the session into the request, in the session's order."""
    cdef SessionEntry* e = s.first
    cdef FetchPartition* part
    cdef int64_t name_bytes = 0
    cdef uint8_t* name = NULL
    cdef uint8_t* room
    while e != NULL:
        if e.topic_bytes and not names_follow(e):
            name_bytes += e.topic_bytes
        e = e.next
    room = buffer_reserve(&r.names, name_bytes) if name_bytes else NULL
    if name_bytes and room == NULL:
        return False
    r.part_count = 0
    e = s.first
    while e != NULL:
        part = fetch_add(r)
        if part == NULL:
            return False
        if e.topic_bytes:
            if name == NULL or not names_follow(e):
                name = room
                memcpy(name, entry_topic(e), e.topic_bytes)
                room += e.topic_bytes
            part.key.topic = name
            part.key.topic_bytes = e.topic_bytes
        memcpy(part.key.topic_id, e.topic_id, 16)
        part.key.index = e.index
        part.offset = e.offset
        part.leader_epoch = e.leader_epoch
        part.last_fetched_epoch = e.last_fetched_epoch
        part.bytes_max = e.bytes_max
        part.entry = e
        e = e.next
    return True

cdef int begin_incremental(SessionCache* cache, FetchRequest* r, Session* s, SessionUse* use) noexcept nogil:
    """As session_begin; the caller holds the session's lock. use.session stays NULL if the session
    must be closed."""
    if s.epoch != r.session_epoch:
        return INVALID_FETCH_SESSION_EPOCH
    if s.by_id != (r.version >= FETCH_IDS_FROM):
        return FETCH_SESSION_TOPIC_ID_ERROR
    if not session_update(cache, s, r):
        return FETCH_SESSION_ID_NOT_FOUND
    if s.entry_count == 0:
        return 0
    s.epoch = next_epoch(s.epoch)
    if not copy_entries(s, r):
        return FETCH_NO_MEMORY
    use.session = s
    use.epoch, use.asked_epoch = s.epoch, r.session_epoch
    use.changes = s.changes
    return 0

cdef int session_begin(SessionCache* cache, FetchRequest* r, int64_t now_ms, SessionUse* use) noexcept nogil:
    cdef Session* s
    cdef int status
    cdef int32_t size
    memset(use, 0, sizeof(SessionUse))
    if r.version < FETCH_SESSIONS_FROM or r.session_epoch == SESSION_EPOCH_FIRST or r.session_epoch == SESSION_EPOCH_FINAL:
        if r.version >= FETCH_SESSIONS_FROM:
            if r.session_id != SESSION_NONE:
                cache_close(cache, r.session_id)
            use.create = r.session_epoch == SESSION_EPOCH_FIRST
        return 0 if fetch_merge_twins(r, cache.seed) else FETCH_NO_MEMORY
    s = cache_hold(cache, r.session_id)
    if s == NULL:
        return FETCH_SESSION_ID_NOT_FOUND
    pthread_mutex_lock(&s.lock)
    status = begin_incremental(cache, r, s, use)
    size = s.entry_count
    pthread_mutex_unlock(&s.lock)
    if use.session != NULL:
        cache_touch(cache, s, size, now_ms)
        return 0
    if status == 0 or status == FETCH_SESSION_ID_NOT_FOUND or status == FETCH_NO_MEMORY:
        cache_close(cache, s.id)  # empty now, or it cannot grow
        if status == 0 and not fetch_merge_twins(r, cache.seed):
            status = FETCH_NO_MEMORY
    session_release(cache, s)
    return status

cdef void session_drop(SessionCache* cache, SessionUse* use) noexcept nogil:
    if use.session != NULL:
        session_release(cache, use.session)
        use.session = NULL

cdef void session_retract(SessionCache* cache, SessionUse* use) noexcept nogil:
    """Drops the use. The partitions that the request has added to the session or removed from it
    stay so: the same request does it again without effect."""
    cdef Session* s = use.session
    if s != NULL:
        pthread_mutex_lock(&s.lock)
        if s.epoch == use.epoch and s.changes == use.changes:
            s.epoch = use.asked_epoch
        pthread_mutex_unlock(&s.lock)
    session_drop(cache, use)

cdef bint must_tell(SessionEntry* e, const FetchPartition* part) noexcept nogil:
    """Returns whether the answer must contain the partition, and records in the entry what it sends."""
    cdef bint tell = (
        part.slice.size_bytes > 0 or part.diverging or part.preferred_replica >= 0)
    if e.high_watermark != part.high_watermark:
        e.high_watermark = part.high_watermark
        tell = True
    if e.log_start_offset != part.log_start_offset:
        e.log_start_offset = part.log_start_offset
        tell = True
    if part.error != 0 or part.diverging:
        # The client takes no high watermark from this answer: the next one contains it again.
        e.high_watermark = -1
        tell = True
    return tell

cdef void tell_changes(Session* s, FetchRequest* r) noexcept nogil:
    cdef FetchPartition* part
    cdef SessionEntry* e
    cdef int32_t i
    cdef int absent
    for absent in range(PART_ORDERS):
        for i in range(r.part_count):
            part = &r.parts[i]
            if part.absent != absent:
                continue
            e = <SessionEntry*>part.entry
            part.in_answer = must_tell(e, part)
            if part.slice.size_bytes > 0:
                order_unlink(s, e)
                order_append(s, e)

cdef int32_t create_session(SessionCache* cache, FetchRequest* r, int64_t now_ms) noexcept nogil:
    """Makes a session of r's partitions and returns its id, or 0 when the cache is full."""
    cdef Session* s = session_new(cache)
    cdef SessionEntry* e
    cdef int32_t i, id
    cdef int absent
    if s == NULL:
        return SESSION_NONE
    s.by_id = r.version >= FETCH_IDS_FROM
    s.privileged = r.replica_id >= 0
    s.epoch = 1
    for absent in range(PART_ORDERS):
        for i in range(r.part_count):
            if r.parts[i].absent != absent:
                continue
            e = session_put(cache, s, &r.parts[i])
            if e == NULL:
                session_release(cache, s)
                return SESSION_NONE
            must_tell(e, &r.parts[i])   # the answer contains every partition
    atomic_add_i32(&s.holders, 1)
    id = SESSION_NONE
    if cache_insert(cache, s, now_ms):
        id = s.id
    else:
        session_release(cache, s)
    session_release(cache, s)
    return id

cdef int16_t session_finish(SessionCache* cache, FetchRequest* r, int64_t now_ms, SessionUse* use, int32_t* session_id) noexcept nogil:
    cdef Session* s = use.session
    cdef int16_t error = 0
    cdef int32_t i
    session_id[0] = SESSION_NONE
    for i in range(r.part_count):
        r.parts[i].in_answer = s == NULL
    if s == NULL:
        if use.create:
            session_id[0] = create_session(cache, r, now_ms)
        return 0
    session_id[0] = s.id
    pthread_mutex_lock(&s.lock)
    if s.epoch == use.epoch and s.changes == use.changes:
        tell_changes(s, r)
    else:
        error = INVALID_FETCH_SESSION_EPOCH  # another request came in between
    pthread_mutex_unlock(&s.lock)
    session_drop(cache, use)
    return error

# ---- Python

cdef class FetchSessions:
    """The cache of one broker. `slots_max`: the most sessions; `memory_bytes_max`: of all sessions;
    `seed`: keep it secret, because session ids and hashes come from it. Raises MemoryError."""

    def __cinit__(self, int slots_max, *, int64_t memory_bytes_max=67108864, uint64_t seed):
        self.cache = session_cache_new(slots_max, memory_bytes_max, seed)
        if self.cache == NULL:
            raise MemoryError

    def __dealloc__(self):
        session_cache_free(self.cache)

    @property
    def slots_max(self):
        return self.cache.slots_max

    @slots_max.setter
    def slots_max(self, int slots_max):
        session_cache_set_slots(self.cache, slots_max)

    @property
    def counters(self):
        """Returns the numbers of sessions, memory_bytes, evicted and refused (no free slot)."""
        cdef SessionCache* cache = self.cache
        with nogil:
            pthread_mutex_lock(&cache.lock)
        try:
            return {
                "sessions": cache.session_count,
                "memory_bytes": atomic_load_i64(&cache.memory_bytes),
                "evicted": cache.evicted,
                "refused": cache.refused,
            }
        finally:
            pthread_mutex_unlock(&cache.lock)

    def set_epoch(self, int32_t session_id, int32_t epoch):
        """Sets the epoch of the session's next request, for tests of the wrap at 2^31-1."""
        cdef Session* s = cache_hold(self.cache, session_id)
        if s == NULL:
            raise KeyError(session_id)
        with nogil:
            pthread_mutex_lock(&s.lock)
        s.epoch = epoch
        pthread_mutex_unlock(&s.lock)
        session_release(self.cache, s)

    def exchange(self, int version, int32_t session_id, int32_t epoch, wanted, forgotten, answers, int64_t now_ms, bint follower=False):
        """Handles one request without a log, for tests of the rules of sessions.

        wanted: (topic name or 16 bytes of an id, partition, offset); answers: {(topic, partition):
        (error, high watermark, log start, record bytes, whether it is unknown)}. Returns (error,
        session id, fetched and answered partitions as lists of (topic, partition, offset))."""
        cdef FetchRequest r
        cdef SessionUse use
        cdef FetchKey key
        cdef FetchPartition* part
        cdef int32_t i, given = 0
        cdef int16_t status
        kept = []  # the names, while the request points at them
        memset(&use, 0, sizeof(SessionUse))
        fetch_request_init(&r)
        r.version, r.session_id, r.session_epoch = version, session_id, epoch
        r.replica_id = 1 if follower else -1
        try:
            for topic, index, offset in wanted:
                part = fetch_add(&r)
                set_key(&part.key, topic, index, version >= FETCH_IDS_FROM, kept)
                part.offset = offset
            for topic, index in forgotten:
                if given >= 16:
                    raise ValueError("at most 16 forgotten partitions")
                set_key(&key, topic, index, version >= FETCH_IDS_FROM, kept)
                add_key(&r, &key)
                given += 1
            with nogil:
                status = session_begin(self.cache, &r, now_ms, &use)
            if status != 0:
                return status, 0, [], []
            fetched = []
            for i in range(r.part_count):
                name = topic_of(&r.parts[i].key)
                fetched.append((name, r.parts[i].key.index, r.parts[i].offset))
                error, high_watermark, log_start, record_bytes, absent = answers[name, r.parts[i].key.index]
                r.parts[i].error, r.parts[i].high_watermark = error, high_watermark
                r.parts[i].log_start_offset, r.parts[i].absent = log_start, 2 if absent else 0
                r.parts[i].slice.size_bytes = record_bytes
            with nogil:
                status = session_finish(self.cache, &r, now_ms, &use, &session_id)
            answered = [fetched[i] for i in range(r.part_count) if r.parts[i].in_answer]
            return status, session_id, fetched, answered
        finally:
            session_drop(self.cache, &use)
            fetch_request_free(&r)

cdef void set_key(FetchKey* key, topic, int32_t index, bint by_id, list kept):
    cdef bytes text = topic
    kept.append(text)
    memset(key, 0, sizeof(FetchKey))
    key.index = index
    if by_id:
        memcpy(key.topic_id, <const uint8_t*><const char*>text, 16)
    else:
        key.topic = <const uint8_t*><const char*>text
        key.topic_bytes = <int32_t>len(text)

cdef bytes topic_of(const FetchKey* key):
    if key.topic != NULL:
        return (<const char*>key.topic)[:key.topic_bytes]
    return (<const char*>key.topic_id)[:16]

cdef int add_key(FetchRequest* r, const FetchKey* key) except -1:
    cdef FetchKey* added = fetch_add_forgotten(r)
    if added == NULL:
        raise MemoryError
    added[0] = key[0]
    return 0
