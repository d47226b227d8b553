"""The permissions: decisions of the authorizer, kept for native handlers.

A decision says whether a principal, from a host, may do an operation on a resource. Python (the
authorizer) makes it, stores it with the epoch that the rules had before, and increments the epoch
after each change of a rule. A decision is valid only in its own epoch, and each use compares the
two: so a change of a rule ends all earlier decisions, for all connections at once.

    key         principal, address, operation, resource type, name; all of it is compared
    value       allowed or not; the epoch; until when it is valid (monotonic)
    look-up     by the network threads: no lock, no allocation, no GIL
    UNKNOWN     no decision is valid: the right becomes a question of the request for Python
    limits      DECISIONS_MAX decisions, BYTES_MAX of their principals and names; beyond these, and
                with the first decision of a later epoch, the table is emptied
                Python decides at most ASKED_MAX times for a request; then an unknown right is denied
                QUESTIONS_BYTES_MAX of questions at a time; the others follow in the next turn

Only threads that hold the GIL write. Readers are inside an epoch of the table's own domain
(cext/memory/epoch.pyx); memory that they may still read is freed later.
Next: barnabas.security.decisions asks the authorizer.
"""
from libc.stdint cimport INT64_MAX, int8_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from barnabas.cext.codec.buffer cimport buffer_bytes, buffer_i32, buffer_i8
from barnabas.cext.memory.atomics cimport (
    atomic_add_i64, atomic_load_i64, atomic_load_pointer, atomic_store_pointer,
)
from barnabas.cext.memory.epoch cimport (
    epoch_domain_free, epoch_domain_new, epoch_enter, epoch_leave, epoch_retire, EpochDomain,
)
from barnabas.cext.memory.secret_hash cimport (
    Secret, secret_hash, secret_hash_within, secret_init,
)
from barnabas.cext.network.sockets cimport net_address, net_peer

cdef enum:
    PLACES = 65536              # a power of two
    DECISIONS_MAX = 65536
    BYTES_MAX = 16777216
    ASKED_MAX = 8
    QUESTIONS_BYTES_MAX = 1048576
    ADDRESS_BYTES = 16

cdef const char* EMPTY = b""

# Limits of a table, for tests.
LIMITS = {"decisions": DECISIONS_MAX, "bytes": BYTES_MAX, "asked": ASKED_MAX}

cdef struct Right:              # a right that is asked for; `hashed`: of all its fields
    const uint8_t* principal    # no bytes: User:ANONYMOUS
    int64_t principal_bytes
    const uint8_t* address
    int operation
    int resource_type
    const uint8_t* name
    int64_t name_bytes
    int64_t hashed

cdef struct Decision:           # principal and name follow it; it never changes once others see it
    Decision* next              # an older one of the same place
    int64_t hashed
    int64_t epoch
    int64_t until_ns
    int64_t principal_bytes
    int64_t name_bytes
    uint8_t address[ADDRESS_BYTES]
    int8_t operation
    int8_t resource_type
    int8_t answer

cdef struct Places:
    void* first[PLACES]         # Decision*, atomic

cdef struct Core:
    Permissions shared          # first: native handlers know only this
    EpochDomain* domain
    void* places                # Places*, atomic
    int64_t filled_epoch        # the latest epoch of a decision in it
    int64_t count               # of decisions in it
    int64_t held_bytes          # of their principals and names
    Secret secret


# -------------------------------------------------------------------------------- the table

cdef inline int64_t _caller(const Core* core, const Right* right) noexcept nogil:
    cdef int64_t hashed = secret_hash_within(
        &core.secret, secret_hash(&core.secret, right.principal, right.principal_bytes),
        right.address, ADDRESS_BYTES)
    return hashed if hashed else 1


cdef inline int64_t _hashed(const Core* core, const Right* right, int64_t caller) noexcept nogil:
    return secret_hash_within(
        &core.secret, caller ^ (right.operation << 8 | right.resource_type), right.name,
        right.name_bytes)


cdef inline bint _is_about(const Decision* d, const Right* right) noexcept nogil:
    cdef const uint8_t* principal = <const uint8_t*>(d + 1)
    return (
        d.hashed == right.hashed and d.operation == right.operation
        and d.resource_type == right.resource_type and d.name_bytes == right.name_bytes
        and d.principal_bytes == right.principal_bytes
        and memcmp(principal + d.principal_bytes, right.name, right.name_bytes) == 0
        and memcmp(principal, right.principal, right.principal_bytes) == 0
        and memcmp(d.address, right.address, ADDRESS_BYTES) == 0)


cdef int _find(Core* core, const Right* right, int64_t now_ns) noexcept nogil:
    cdef int slot = epoch_enter(core.domain)
    cdef Places* places = <Places*>atomic_load_pointer(&core.places)
    cdef Decision* d = <Decision*>atomic_load_pointer(
        &places.first[right.hashed & (PLACES - 1)])
    cdef int answer = PERMISSION_UNKNOWN
    while d != NULL and not _is_about(d, right):
        d = d.next
    if d != NULL and d.epoch == atomic_load_i64(&core.shared.epoch) and now_ns <= d.until_ns:
        answer = d.answer
    epoch_leave(core.domain, slot)
    return answer


cdef void _places_free(void* pointer) noexcept nogil:
    cdef Places* places = <Places*>pointer
    cdef Decision* d
    cdef Decision* following
    cdef int64_t i
    for i in range(PLACES):
        d = <Decision*>places.first[i]
        while d != NULL:
            following = d.next
            free(d)
            d = following
    free(places)


cdef bint _empty(Core* core) noexcept nogil:
    """Makes the table empty. Returns False, and changes nothing, if memory ran out."""
    cdef void* old = core.places
    cdef void* fresh = calloc(1, sizeof(Places))
    if fresh == NULL:
        return False
    atomic_store_pointer(&core.places, fresh)
    core.count = core.held_bytes = 0
    if old != NULL:
        epoch_retire(core.domain, old, _places_free)
    return True


cdef bint _store(Core* core, const Right* right, int answer, int64_t epoch, int64_t until_ns) noexcept nogil:
    """Stores a decision. Returns False if memory ran out: the right stays unknown."""
    cdef int64_t size_bytes = right.principal_bytes + right.name_bytes
    cdef void** place
    cdef Decision* d
    if epoch > core.filled_epoch or core.count == DECISIONS_MAX \
            or core.held_bytes + size_bytes > BYTES_MAX:
        if not _empty(core):
            return False
        core.filled_epoch = max(core.filled_epoch, epoch)
    d = <Decision*>malloc(sizeof(Decision) + size_bytes)
    if d == NULL:
        return False
    d.hashed, d.epoch, d.until_ns, d.answer = right.hashed, epoch, until_ns, <int8_t>answer
    d.operation, d.resource_type = <int8_t>right.operation, <int8_t>right.resource_type
    d.principal_bytes, d.name_bytes = right.principal_bytes, right.name_bytes
    memcpy(d.address, right.address, ADDRESS_BYTES)
    memcpy(d + 1, right.principal, right.principal_bytes)
    memcpy(<uint8_t*>(d + 1) + right.principal_bytes, right.name, right.name_bytes)
    place = &(<Places*>core.places).first[right.hashed & (PLACES - 1)]
    d.next = <Decision*>place[0]
    atomic_store_pointer(place, d)
    core.count += 1
    core.held_bytes += size_bytes
    return True


# -------------------------------------------------------------------------------- a request

cdef int _note(Request* r, const Right* right) noexcept nogil:
    if r.asked_count >= ASKED_MAX:
        return PERMISSION_DENIED
    if r.questions.size <= QUESTIONS_BYTES_MAX:
        buffer_i8(r.questions, <int8_t>right.operation)
        buffer_i8(r.questions, <int8_t>right.resource_type)
        buffer_i32(r.questions, <int32_t>right.name_bytes)
        buffer_bytes(r.questions, right.name, right.name_bytes)
    return PERMISSION_UNKNOWN


cdef int _ask(Permissions* shared, Request* r, int operation, int resource_type, const uint8_t* name, int32_t name_bytes) noexcept nogil:
    cdef Core* core = <Core*>shared
    cdef uint8_t address[ADDRESS_BYTES]
    cdef Right right
    cdef int answer
    net_address(<const net_peer*>r.peer, address)
    right.principal, right.principal_bytes = r.principal, r.principal_bytes
    if right.principal == NULL:
        right.principal = <const uint8_t*>EMPTY
    right.address = address
    right.operation, right.resource_type = operation, resource_type
    right.name, right.name_bytes = name, name_bytes
    if right.name == NULL:
        right.name, right.name_bytes = <const uint8_t*>EMPTY, 0
    if r.caller == 0:
        r.caller = _caller(core, &right)
    right.hashed = _hashed(core, &right, r.caller)
    answer = _find(core, &right, r.received_ns)
    return _note(r, &right) if answer == PERMISSION_UNKNOWN else answer


# -------------------------------------------------------------------------------- Python

cdef class Asking:
    """A right in Python's terms. It keeps its bytes in memory."""
    cdef Right right
    cdef tuple kept

    def __cinit__(
        self, bytes principal not None, bytes address not None, int operation, int resource_type,
        bytes name not None,
    ):
        if len(address) != ADDRESS_BYTES:
            raise ValueError(f"an address has {ADDRESS_BYTES} bytes, not {len(address)}")
        self.kept = (principal, address, name)
        self.right.principal = <const uint8_t*><const char*>principal
        self.right.principal_bytes = len(principal)
        self.right.address = <const uint8_t*><const char*>address
        self.right.operation, self.right.resource_type = operation, resource_type
        self.right.name = <const uint8_t*><const char*>name
        self.right.name_bytes = len(name)

    cdef Right* hashed(self, const Core* core):
        self.right.hashed = _hashed(core, &self.right, _caller(core, &self.right))
        return &self.right


cdef class DecisionTable(PermissionTable):
    """The decisions of one broker. Principals and names are UTF-8, addresses have 16 bytes, and
    operations and resource types are Kafka's numbers. Every method keeps the GIL, so only one
    thread writes at a time."""
    cdef Core* core

    def __cinit__(self):
        self.core = <Core*>calloc(1, sizeof(Core))
        if self.core == NULL:
            raise MemoryError
        secret_init(&self.core.secret)      # otherwise clients could choose names that collide
        self.core.domain = epoch_domain_new()
        if self.core.domain == NULL or not _empty(self.core):
            raise MemoryError
        self.core.shared.ask = _ask
        self.core.shared.epoch = 1
        self.permissions = &self.core.shared

    def __dealloc__(self):
        if self.core != NULL:
            if self.core.places != NULL:
                _places_free(self.core.places)
            epoch_domain_free(self.core.domain)
            free(self.core)

    @property
    def epoch(self) -> int:
        """The epoch of the rules. Read it before the rules from which a decision is made."""
        return atomic_load_i64(&self.core.shared.epoch)

    def new_epoch(self) -> None:
        """Ends the validity of every decision. Call it when rules have changed, before the answer
        to the client that changed them."""
        atomic_add_i64(&self.core.shared.epoch, 1)

    def decide(
        self, bytes principal, bytes address, int operation, int resource_type, bytes name, *,
        bint allowed, int64_t epoch, int64_t until_ns=INT64_MAX,
    ) -> None:
        """Stores a decision that was made in that epoch, and replaces an earlier one. It is valid
        for requests that were received until `until_ns` (monotonic). Raises ValueError for an
        address of another size, and MemoryError."""
        cdef Asking asking = Asking(principal, address, operation, resource_type, name)
        cdef int answer = PERMISSION_ALLOWED if allowed else PERMISSION_DENIED
        if not _store(self.core, asking.hashed(self.core), answer, epoch, until_ns):
            raise MemoryError

    def decided(
        self, bytes principal, bytes address, int operation, int resource_type, bytes name, *,
        int64_t now_ns=0,
    ):
        """Returns whether the right is given, as native handlers see it; None: it is unknown."""
        cdef Asking asking = Asking(principal, address, operation, resource_type, name)
        cdef const Right* right = asking.hashed(self.core)
        cdef int answer
        with nogil:
            answer = _find(self.core, right, now_ns)
        return None if answer == PERMISSION_UNKNOWN else answer == PERMISSION_ALLOWED

    @property
    def count(self) -> int:
        """Returns the number of decisions in the table, with those that are no longer valid."""
        return self.core.count

    @property
    def held_bytes(self) -> int:
        """Returns the size of their principals and names in bytes."""
        return self.core.held_bytes
