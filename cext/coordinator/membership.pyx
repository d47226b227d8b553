"""The membership lane: SyncGroup and Heartbeat of generations that Python has begun here.

Who is in a group and when it rebalances is Python's to say (barnabas.coordinator.groups.rebalance). Once all have
joined it begins the generation here, with its members: from then on a follower's SyncGroup waits on
its network thread for what the leader assigns, or is answered with it, and heartbeats are answered,
without the GIL, until the group changes in any way and Python dismisses the generation. It is told
then who has synced and when each was last heard; syncs that wait go to Python, which answers them
as the group is by then. Whatever is not plain goes there too, with nothing changed here: the
leader's sync, assignments of somebody else, another generation, instance id or protocol.

    HeartbeatRequest    groupId, generation, memberId, instanceId (3+)                   0 to 4
    SyncGroupRequest    groupId, generation, memberId, instanceId (3+), protocol type and
                        name (5+), [memberId, assignment]                                0 to 5
    answers             throttle (1+), error, protocol type and name (SyncGroup 5), assignment;
                        all flexible from 4

A generation and its members are under the lock of one shard, so that what `dismiss` has returned
from, no later request passes. Limits: MEMBERS_MAX, and ASSIGNED_BYTES_MAX of assignments; a
generation that has no room is Python's alone.
Next on the data path: broker/coordinator/groups/rebalance.py, which begins generations and has the other way.
"""
cimport cython
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport (
    INT64_MAX, int16_t, int32_t, int64_t, int8_t, intptr_t, uint8_t, uint64_t,
)
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from barnabas.cext.codec.buffer cimport Buffer, buffer_i16, buffer_i32
from barnabas.cext.codec.cursor cimport Cursor, cursor_i32, cursor_left, cursor_of
from barnabas.cext.codec.error_codes cimport ERROR_NONE
from barnabas.cext.codec.fields cimport (
    read_count, read_no_tags, read_string, write_bytes, write_no_tags, write_null_string,
    write_string,
)
from barnabas.cext.memory.atomics cimport atomic_add_i64, atomic_load_i64
from barnabas.cext.memory.int64_map cimport (
    Int64Map, int64_map_free, int64_map_get, int64_map_init, int64_map_put, int64_map_remove,
)
from barnabas.cext.memory.mutex cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t,
    pthread_mutex_unlock,
)
from barnabas.cext.memory.secret_hash cimport Secret, secret_hash, secret_hash_within, secret_init
from barnabas.cext.memory.sys cimport System, SystemCalls
from barnabas.cext.memory.waker cimport Waker
from barnabas.cext.network.handler cimport (
    Lane, LANE_CLOSE, LANE_DONE, lane_of, LANE_PARKED, LANE_PYTHON, lane_parks, LaneHandle, Parked,
    Request, request_error, Response, response_begin, response_end,
)

cdef enum:
    KEY_HEARTBEAT = 12
    KEY_SYNC = 14
    HEARTBEAT_LAST = 4
    SYNC_LAST = 5
    VERSION_THROTTLE = 1
    VERSION_INSTANCE = 3
    VERSION_FLEXIBLE = 4
    VERSION_PROTOCOL = 5
    ERROR_REBALANCE_IN_PROGRESS = 27
    SHARDS = 64                         # a power of two
    MEMBERS_MAX = 65536                 # each takes some 200 bytes and its assignment
    ASSIGNED_BYTES_MAX = 67108864

cdef struct Waiting:                    # a parked sync; freed by the thread that it is parked on
    Shard* shard
    Member* member                      # NULL: dismissed, or overtaken
    int16_t error                       # what it is answered then; ERROR_NONE: Python's to say
    int32_t thread_index
    uint64_t connection_id

cdef struct Member:                     # the bytes of its id and its instance's follow
    Member* next
    Generation* generation
    Waiting* waiting
    uint8_t* assignment
    int32_t assignment_bytes
    int32_t id_bytes
    int32_t instance_bytes              # -1: none
    int8_t leads
    int8_t synced
    int64_t hashed
    int64_t heard_ns                    # 0: not yet

cdef struct Generation:                 # the bytes of group, protocol type and name follow
    Member* members
    int64_t hashed
    int64_t member_count
    int64_t assigned_bytes
    int32_t number
    int32_t group_bytes
    int32_t type_bytes
    int32_t name_bytes
    bint assigned

cdef struct Shard:
    pthread_mutex_t lock
    Int64Map generations                # hash of the group: Generation*
    Int64Map members                    # hash of group and member: Member*
    int64_t served

cdef struct Core:
    Lane lane
    System* system
    Waker* waker
    Shard shards[SHARDS]
    int64_t member_count                # atomic
    int64_t assigned_bytes              # atomic
    Secret secret

cdef struct Asked:                      # a request
    const uint8_t* group
    const uint8_t* member
    const uint8_t* instance
    const uint8_t* type
    const uint8_t* name
    int32_t group_bytes
    int32_t member_bytes
    int32_t instance_bytes              # -1: not said, as of type and name
    int32_t type_bytes
    int32_t name_bytes
    int32_t generation


# -------------------------------------------------------------------------------- who is here

cdef inline int64_t _hash(const Core* core, const uint8_t* p, int64_t n) noexcept nogil:
    return secret_hash(&core.secret, p, n)

cdef inline Shard* _shard(Core* core, int64_t group_hash) noexcept nogil:
    return &core.shards[group_hash & (SHARDS - 1)]

cdef inline const uint8_t* _group(const Generation* g) noexcept nogil:
    return <const uint8_t*>(g + 1)

cdef inline const uint8_t* _id(const Member* m) noexcept nogil:
    return <const uint8_t*>(m + 1)

cdef inline bint _same(const uint8_t* p, int32_t n, const uint8_t* q, int32_t other) noexcept nogil:
    return n == other and (n <= 0 or memcmp(p, q, n) == 0)

cdef Generation* _find(Shard* shard, int64_t hashed, const uint8_t* group, int32_t group_bytes) noexcept nogil:
    """Under the shard's lock."""
    cdef Generation* g = <Generation*><intptr_t>int64_map_get(&shard.generations, hashed, 0)
    return g if g != NULL and _same(_group(g), g.group_bytes, group, group_bytes) else NULL

cdef Member* _member(Core* core, Shard* shard, const Generation* g, const uint8_t* id, int32_t id_bytes) noexcept nogil:
    """Under the shard's lock."""
    cdef int64_t hashed = secret_hash_within(&core.secret, g.hashed, id, id_bytes)
    cdef Member* m = <Member*><intptr_t>int64_map_get(&shard.members, hashed, 0)
    if m == NULL or m.generation != g or not _same(_id(m), m.id_bytes, id, id_bytes):
        return NULL
    return m

cdef Member* _asks(Core* core, Shard* shard, int64_t hashed, const Asked* asked) noexcept nogil:
    """Under the shard's lock: the member that asks; NULL: not for here."""
    cdef Generation* g = _find(shard, hashed, asked.group, asked.group_bytes)
    cdef const uint8_t* protocol
    cdef Member* m
    if g == NULL or g.number != asked.generation:
        return NULL
    m = _member(core, shard, g, asked.member, asked.member_bytes)
    if m == NULL or asked.instance_bytes >= 0 and not _same(
            _id(m) + m.id_bytes, m.instance_bytes, asked.instance, asked.instance_bytes):
        return NULL
    protocol = _group(g) + g.group_bytes
    if asked.type_bytes >= 0 and not _same(protocol, g.type_bytes, asked.type, asked.type_bytes):
        return NULL
    protocol += g.type_bytes
    if asked.name_bytes >= 0 and not _same(protocol, g.name_bytes, asked.name, asked.name_bytes):
        return NULL
    return m

cdef void _free_generation(Generation* g) noexcept nogil:
    cdef Member* m
    if g == NULL:
        return
    while g.members != NULL:
        m = g.members
        g.members = m.next
        free(m.assignment)
        free(m)
    free(g)

cdef bint _enter(Core* core, Shard* shard, Generation* g) noexcept nogil:
    """Under the shard's lock: the group had no generation here. False: it is not here now either."""
    cdef Member* m = g.members
    cdef Member* entered = g.members
    cdef bint fits = int64_map_get(&shard.generations, g.hashed, 0) == 0 and (
        int64_map_put(&shard.generations, g.hashed, <int64_t><intptr_t>g))
    if not fits:
        return False
    while m != NULL and int64_map_get(&shard.members, m.hashed, 0) == 0 and (
            int64_map_put(&shard.members, m.hashed, <int64_t><intptr_t>m)):
        m = m.next
    if m == NULL:
        return True
    while entered != m:                 # no memory, or two of one hash
        int64_map_remove(&shard.members, entered.hashed)
        entered = entered.next
    int64_map_remove(&shard.generations, g.hashed)
    return False

cdef void _wake(Core* core, const Waiting* w) noexcept nogil:
    core.waker.wake(core.waker.context, w.thread_index, w.connection_id)

cdef void _leave(Core* core, Shard* shard, Generation* g) noexcept nogil:
    """Under the shard's lock: who waits goes to Python."""
    cdef Member* m = g.members
    cdef Waiting* w
    int64_map_remove(&shard.generations, g.hashed)
    while m != NULL:
        int64_map_remove(&shard.members, m.hashed)
        w, m.waiting = m.waiting, NULL
        if w != NULL:
            w.member = NULL
            m.heard_ns = core.system.monotonic_ns(core.system)
            _wake(core, w)
        m = m.next
    atomic_add_i64(&core.member_count, -g.member_count)
    atomic_add_i64(&core.assigned_bytes, -g.assigned_bytes)


# -------------------------------------------------------------------------------- the request

cdef bint _read(const Request* r, Asked* asked) noexcept nogil:
    cdef Cursor c = cursor_of(r.data + r.body_at, r.size_bytes - r.body_at)
    cdef bint flexible = r.api_version >= VERSION_FLEXIBLE
    asked.group = read_string(&c, flexible, False, &asked.group_bytes)
    asked.generation = cursor_i32(&c)
    asked.member = read_string(&c, flexible, False, &asked.member_bytes)
    asked.instance = asked.type = asked.name = NULL
    asked.instance_bytes = asked.type_bytes = asked.name_bytes = -1
    if r.api_version >= VERSION_INSTANCE:
        asked.instance = read_string(&c, flexible, True, &asked.instance_bytes)
    if r.api_key == KEY_SYNC:
        if r.api_version >= VERSION_PROTOCOL:
            asked.type = read_string(&c, flexible, False, &asked.type_bytes)
            asked.name = read_string(&c, flexible, False, &asked.name_bytes)
        if read_count(&c, flexible) > 0:
            return False
    read_no_tags(&c, flexible)
    return not c.bad and cursor_left(&c) == 0


# -------------------------------------------------------------------------------- the answer

cdef int _answer(const Request* r, Response* out, int16_t error, const Member* m) noexcept nogil:
    """`m`: under its shard's lock, of a sync that is answered with its assignment."""
    cdef Buffer* b = &out.bytes
    cdef bint flexible = r.api_version >= VERSION_FLEXIBLE
    cdef const Generation* g = m.generation if m != NULL else NULL
    response_begin(out, r.correlation_id, flexible)
    if r.api_version >= VERSION_THROTTLE:
        buffer_i32(b, 0)                # nobody is throttled
    buffer_i16(b, error)
    if r.api_key == KEY_SYNC:
        if r.api_version >= VERSION_PROTOCOL:
            if g == NULL:
                write_null_string(b, True)
                write_null_string(b, True)
            else:
                write_string(b, True, _group(g) + g.group_bytes, g.type_bytes)
                write_string(b, True, _group(g) + g.group_bytes + g.type_bytes, g.name_bytes)
        if m == NULL:
            write_bytes(b, flexible, NULL, 0)
        else:
            write_bytes(b, flexible, m.assignment, m.assignment_bytes)
    write_no_tags(b, flexible)
    request_error(r, error)
    if b.failed:
        return LANE_CLOSE
    response_end(out)
    return LANE_DONE


# -------------------------------------------------------------------------------- the lane

cdef bint _takes(void* context, int16_t api_key, int16_t api_version) noexcept nogil:
    if api_key == KEY_HEARTBEAT:
        return 0 <= api_version <= HEARTBEAT_LAST
    return api_key == KEY_SYNC and 0 <= api_version <= SYNC_LAST

cdef int _park(Core* core, Shard* shard, Member* m, const Request* r, Parked* parked) noexcept nogil:
    """Under the shard's lock. A sync asked again ends the one that waits, whose client has most
    likely gone."""
    cdef Waiting* w = <Waiting*>malloc(sizeof(Waiting))
    if w == NULL:
        return LANE_CLOSE
    w.shard, w.member, w.error = shard, m, ERROR_NONE
    w.thread_index, w.connection_id = r.thread_index, r.connection_id
    if m.waiting != NULL:
        m.waiting.member = NULL
        m.waiting.error = ERROR_REBALANCE_IN_PROGRESS
        _wake(core, m.waiting)
    m.waiting = w
    return lane_parks(parked, w, INT64_MAX)

cdef int _synced(Core* core, Shard* shard, Member* m, const Request* r, Response* out) noexcept nogil:
    """Under the shard's lock: of a generation that is assigned."""
    m.synced = True
    m.heard_ns = core.system.monotonic_ns(core.system)
    shard.served += 1
    return _answer(r, out, ERROR_NONE, m)

cdef int _handle(void* context, Request* r, Response* out, Parked* parked) noexcept nogil:
    cdef Core* core = <Core*>context
    cdef int outcome = LANE_PYTHON
    cdef Asked asked
    cdef Shard* shard
    cdef Member* m
    cdef int64_t hashed
    if atomic_load_i64(&core.member_count) == 0 or not _read(r, &asked):
        return LANE_PYTHON
    hashed = _hash(core, asked.group, asked.group_bytes)
    shard = _shard(core, hashed)
    pthread_mutex_lock(&shard.lock)
    m = _asks(core, shard, hashed, &asked)
    if m != NULL and r.api_key == KEY_HEARTBEAT:
        m.heard_ns = r.received_ns
        shard.served += 1
        outcome = LANE_DONE
    elif m != NULL and not m.leads:
        if m.generation.assigned:
            outcome = _synced(core, shard, m, r, out)
        else:
            outcome = _park(core, shard, m, r, parked)
    pthread_mutex_unlock(&shard.lock)
    if outcome == LANE_DONE and r.api_key == KEY_HEARTBEAT:
        return _answer(r, out, ERROR_NONE, NULL)
    return outcome

cdef int _resume(void* context, Request* r, Response* out, Parked* parked, bint expired) noexcept nogil:
    cdef Core* core = <Core*>context
    cdef Waiting* w = <Waiting*>parked.state
    cdef Shard* shard = w.shard
    cdef Member* m
    cdef int outcome = LANE_PARKED
    pthread_mutex_lock(&shard.lock)
    m = w.member
    if m == NULL:
        outcome = LANE_PYTHON if w.error == ERROR_NONE else _answer(r, out, w.error, NULL)
    elif m.generation.assigned:
        m.waiting = NULL
        outcome = _synced(core, shard, m, r, out)
    pthread_mutex_unlock(&shard.lock)
    if outcome == LANE_PARKED:
        return lane_parks(parked, w, INT64_MAX)
    free(w)
    return outcome

cdef void _abandon(void* context, Parked* parked) noexcept nogil:
    cdef Waiting* w = <Waiting*>parked.state
    pthread_mutex_lock(&w.shard.lock)
    if w.member != NULL:
        w.member.waiting = NULL
    pthread_mutex_unlock(&w.shard.lock)
    free(w)


# -------------------------------------------------------------------------------- Python's side

cdef Generation* _new_generation(bytes group, bytes type, bytes name) except NULL:
    cdef int64_t size = len(group) + len(type) + len(name)
    cdef Generation* g = <Generation*>calloc(1, sizeof(Generation) + size)
    cdef uint8_t* at
    if g == NULL:
        raise MemoryError
    g.group_bytes, g.type_bytes = <int32_t>len(group), <int32_t>len(type)
    g.name_bytes = <int32_t>len(name)
    at = <uint8_t*>(g + 1)
    memcpy(at, <const char*>group, g.group_bytes)
    memcpy(at + g.group_bytes, <const char*>type, g.type_bytes)
    memcpy(at + g.group_bytes + g.type_bytes, <const char*>name, g.name_bytes)
    return g

cdef int _add_member(Core* core, Generation* g, bytes id, bytes instance, bint leads) except -1:
    """`instance`: None without one."""
    cdef int64_t size = len(id) + (len(instance) if instance is not None else 0)
    cdef Member* m = <Member*>calloc(1, sizeof(Member) + size)
    cdef uint8_t* at
    if m == NULL:
        raise MemoryError
    m.id_bytes, m.instance_bytes = <int32_t>len(id), -1
    at = <uint8_t*>(m + 1)
    memcpy(at, <const char*>id, m.id_bytes)
    if instance is not None:
        m.instance_bytes = <int32_t>len(instance)
        memcpy(at + m.id_bytes, <const char*>instance, m.instance_bytes)
    m.hashed = secret_hash_within(&core.secret, g.hashed, at, m.id_bytes)
    m.generation, m.leads = g, leads
    m.next, g.members = g.members, m
    g.member_count += 1
    return 0

cdef bint _assign_one(Core* core, Shard* shard, Generation* g, bytes id, bytes given) noexcept:
    """Under the shard's lock. False: no memory."""
    cdef Member* m = _member(
        core, shard, g, <const uint8_t*><const char*>id, <int32_t>len(id))
    cdef uint8_t* kept
    if m == NULL or len(given) == 0:
        return True
    kept = <uint8_t*>malloc(len(given))
    if kept == NULL:
        return False
    memcpy(kept, <const char*>given, len(given))
    free(m.assignment)
    m.assignment, m.assignment_bytes = kept, <int32_t>len(given)
    return True

cdef void _wake_all(Core* core, const Generation* g) noexcept nogil:
    """Under the shard's lock."""
    cdef Member* m = g.members
    while m != NULL:
        if m.waiting != NULL:
            _wake(core, m.waiting)
        m = m.next


@cython.no_gc_clear         # __dealloc__ needs what it refers to
cdef class MembershipLane(LaneHandle):
    """The membership lane of one broker."""
    cdef Core* core

    def __cinit__(self, SystemCalls system not None):
        cdef int i
        self.core = <Core*>calloc(1, sizeof(Core))
        if self.core == NULL:
            raise MemoryError
        self.core.system = &system.table
        secret_init(&self.core.secret)
        for i in range(SHARDS):
            pthread_mutex_init(&self.core.shards[i].lock, NULL)
            int64_map_init(&self.core.shards[i].generations)
            int64_map_init(&self.core.shards[i].members)
        self.core.lane = lane_of(self.core, _takes, _handle, _resume, _abandon)
        self.lane = &self.core.lane
        self.owner = system

    def __init__(self, system):
        pass

    def __dealloc__(self):
        cdef Shard* shard
        cdef int i
        cdef int64_t k
        if self.core == NULL:
            return
        for i in range(SHARDS):
            shard = &self.core.shards[i]
            for k in range(shard.generations.capacity):
                if shard.generations.used[k]:
                    _free_generation(<Generation*><intptr_t>shard.generations.values[k])
            int64_map_free(&shard.generations)
            int64_map_free(&shard.members)
            pthread_mutex_destroy(&shard.lock)
        free(self.core)

    cdef void bind(self, Waker* waker):
        self.core.waker = waker

    def begin(self, str group_id not None, int32_t number, str protocol_type not None,
              str protocol_name not None, str leader not None, members not None) -> bool:
        """From now on requests of this generation are taken here. `members`: (id, instance id or
        None) of each. The group has none here. False: there is no room."""
        cdef Generation* g = _new_generation(
            group_id.encode(), protocol_type.encode(), protocol_name.encode())
        cdef Shard* shard
        cdef bint entered
        g.number = number
        g.hashed = _hash(self.core, _group(g), g.group_bytes)
        try:
            for member_id, instance_id in members:
                _add_member(
                    self.core, g, member_id.encode(),
                    None if instance_id is None else instance_id.encode(), member_id == leader)
        except BaseException:
            _free_generation(g)
            raise
        shard = _shard(self.core, g.hashed)
        with nogil:
            pthread_mutex_lock(&shard.lock)
            entered = atomic_load_i64(&self.core.member_count) + g.member_count <= MEMBERS_MAX and (
                _enter(self.core, shard, g))
            if entered:
                atomic_add_i64(&self.core.member_count, g.member_count)
            pthread_mutex_unlock(&shard.lock)
            if not entered:
                _free_generation(g)
        return entered

    def assign(self, str group_id not None, assignments not None) -> bool:
        """The generation's assignments, bytes by member id: who waits for them is answered. False:
        there is no room, or no such group; who waits goes on waiting."""
        cdef bytes group = group_id.encode()
        cdef list rows = [(member_id.encode(), given) for member_id, given in assignments.items()]
        cdef int64_t size = sum([len(given) for _, given in rows])
        cdef int64_t hashed = _hash(
            self.core, <const uint8_t*><const char*>group, <int32_t>len(group))
        cdef Shard* shard = _shard(self.core, hashed)
        cdef Generation* g
        cdef bint taken
        # With the GIL: nothing below makes an object, and who holds the lock never wants the GIL.
        pthread_mutex_lock(&shard.lock)
        g = _find(shard, hashed, <const uint8_t*><const char*>group, <int32_t>len(group))
        taken = g != NULL and (
            atomic_load_i64(&self.core.assigned_bytes) + size <= ASSIGNED_BYTES_MAX)
        if taken:
            for row in rows:
                taken = taken and _assign_one(
                    self.core, shard, g, <bytes>(<tuple>row)[0], <bytes>(<tuple>row)[1])
            g.assigned_bytes += size
            atomic_add_i64(&self.core.assigned_bytes, size)
        if taken:
            g.assigned = True
            _wake_all(self.core, g)
        pthread_mutex_unlock(&shard.lock)
        return taken

    def dismiss(self, str group_id not None) -> list:
        """The group is Python's again, and so are syncs that wait. (member id, monotonic ms when it
        was heard last, whether it has synced) of those that were heard."""
        cdef bytes group = group_id.encode()
        cdef int64_t hashed = _hash(
            self.core, <const uint8_t*><const char*>group, <int32_t>len(group))
        cdef Shard* shard = _shard(self.core, hashed)
        cdef const uint8_t* name = <const uint8_t*><const char*>group
        cdef int32_t name_bytes = <int32_t>len(group)
        cdef Generation* g
        cdef Member* m
        found = []
        with nogil:
            pthread_mutex_lock(&shard.lock)
            g = _find(shard, hashed, name, name_bytes)
            if g != NULL:
                _leave(self.core, shard, g)
            pthread_mutex_unlock(&shard.lock)
        if g == NULL:
            return found
        try:
            m = g.members
            while m != NULL:
                if m.heard_ns:
                    found.append((
                        PyUnicode_DecodeUTF8(<char*>_id(m), m.id_bytes, NULL),
                        m.heard_ns // 1000000, bool(m.synced),
                    ))
                m = m.next
        finally:
            _free_generation(g)
        return found

    def heard_ms(self, str group_id not None, str member_id not None) -> int:
        """The monotonic time when a member was heard last, now while it waits; -1: not here."""
        cdef bytes group = group_id.encode(), member = member_id.encode()
        cdef int64_t hashed = _hash(
            self.core, <const uint8_t*><const char*>group, <int32_t>len(group))
        cdef Shard* shard = _shard(self.core, hashed)
        cdef const uint8_t* name = <const uint8_t*><const char*>group
        cdef const uint8_t* id = <const uint8_t*><const char*>member
        cdef int32_t name_bytes = <int32_t>len(group), id_bytes = <int32_t>len(member)
        cdef int64_t heard_ns = 0
        cdef Generation* g
        cdef Member* m
        with nogil:
            pthread_mutex_lock(&shard.lock)
            g = _find(shard, hashed, name, name_bytes)
            m = _member(self.core, shard, g, id, id_bytes) if g != NULL else NULL
            if m != NULL:
                heard_ns = m.heard_ns
                if m.waiting != NULL:
                    heard_ns = self.core.system.monotonic_ns(self.core.system)
            pthread_mutex_unlock(&shard.lock)
        return heard_ns // 1000000 if heard_ns else -1

    @property
    def members(self) -> int:
        """How many are here."""
        return atomic_load_i64(&self.core.member_count)

    @property
    def served(self) -> int:
        """How many requests were answered here."""
        cdef int i
        return sum([self.core.shards[i].served for i in range(SHARDS)])
