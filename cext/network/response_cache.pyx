"""The response cache: network threads send an answer of Python again for the same question.

A question is a request without its header: API key, version, listener and the bytes of the body;
with an authorizer also the client's principal and address, because the answer shows only what the
client may see. Many clients send the same question repeatedly (ApiVersions at each connect,
Metadata of their topics); Python answers only the first one after a change. A change of the
cluster, of a feature level or of a rule of the authorizer (`forget`), or a log that goes offline,
starts a new generation, and an answer is valid only in its own generation. Python reads the
generation before it reads any state, so the cache rejects an answer that a change has overtaken.

    slots       SLOTS answers, each in the slot of its question's hash; a newer answer replaces it
    limits      QUESTION_BYTES_MAX, ANSWER_BYTES_MAX; BYTES_MAX for all; beyond it all are dropped

The cache does not decode requests.
Next: `cacheable_codes` of an API's module says which answers to cache; broker/api/response_cache.py
stores them.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from barnabas.cext.codec.buffer cimport buffer_bytes, buffer_i32
from barnabas.cext.log.offline cimport offline_marks
from barnabas.cext.memory.atomics cimport atomic_add_i64, atomic_load_i64
from barnabas.cext.memory.mutex cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t,
    pthread_mutex_unlock,
)
from barnabas.cext.memory.secret_hash cimport (
    Secret, secret_hash, secret_hash_within, secret_init,
)
from barnabas.cext.network.handler cimport (
    HANDLER_DONE, HANDLER_PYTHON, handler_abandons_nothing, handler_resumes_nothing, NativeHandler,
    Parked, Request, Response, response_end,
)
from barnabas.cext.network.sockets cimport net_address, net_peer

cdef enum:
    SLOTS = 512                 # a power of two
    QUESTION_BYTES_MAX = 65536
    ANSWER_BYTES_MAX = 262144   # copied under the lock: about 20 us
    BYTES_MAX = 8388608
    FRAME_HEAD_BYTES = 8        # size and correlation id: the only bytes that differ
    ADDRESS_BYTES = 16

cdef struct Answer:             # the caller, the question's bytes and then the answer's follow it
    int64_t generation
    int64_t caller_bytes        # 16 of the address, and the principal; 0: no authorizer
    int32_t listener_index
    int16_t api_key
    int16_t api_version
    int64_t question_bytes
    int64_t answer_bytes
    int64_t good_codes          # how many error codes it has, all of them 0

cdef struct Caller:
    bint is_known               # False: there is no authorizer
    uint8_t address[ADDRESS_BYTES]
    const uint8_t* principal
    int64_t principal_bytes

cdef struct Cache:
    pthread_mutex_t lock        # of the slots and the two sums below
    Answer* slots[SLOTS]
    int64_t held_bytes
    int64_t served
    int64_t forgotten           # atomic
    Secret secret


cdef int64_t _generation(Cache* k) noexcept nogil:
    # Neither count decreases, so the sum is equal only while both counts are equal.
    return atomic_load_i64(&k.forgotten) + offline_marks()


cdef inline uint8_t* _question(const Answer* a) noexcept nogil:
    return <uint8_t*>(a + 1) + a.caller_bytes


cdef int64_t _slot(Cache* k, const Caller* caller, const uint8_t* question, int64_t size_bytes) noexcept nogil:
    cdef int64_t hashed = secret_hash(&k.secret, question, size_bytes)
    if caller.is_known:
        hashed = secret_hash_within(&k.secret, hashed, caller.address, ADDRESS_BYTES)
        hashed = secret_hash_within(&k.secret, hashed, caller.principal, caller.principal_bytes)
    return hashed & (SLOTS - 1)


cdef Caller _caller(const Request* r) noexcept nogil:
    cdef Caller caller
    caller.is_known = r.permissions != NULL
    caller.principal_bytes = 0
    if caller.is_known:
        net_address(<const net_peer*>r.peer, caller.address)
        caller.principal, caller.principal_bytes = r.principal, r.principal_bytes
    return caller


cdef bint _is_for(const Answer* a, const Caller* caller) noexcept nogil:
    cdef const uint8_t* at = <const uint8_t*>(a + 1)
    if not caller.is_known:
        return a.caller_bytes == 0
    return a.caller_bytes == ADDRESS_BYTES + caller.principal_bytes and (
        memcmp(at, caller.address, ADDRESS_BYTES) == 0) and (
        caller.principal_bytes == 0
        or memcmp(at + ADDRESS_BYTES, caller.principal, caller.principal_bytes) == 0)


cdef void _drop(Cache* k, int64_t slot) noexcept nogil:
    cdef Answer* a = k.slots[slot]
    if a != NULL:
        k.held_bytes -= a.caller_bytes + a.question_bytes + a.answer_bytes
        k.slots[slot] = NULL
        free(a)


cdef void _drop_all(Cache* k) noexcept nogil:
    cdef int64_t slot
    if k.held_bytes:
        for slot in range(SLOTS):
            _drop(k, slot)


cdef int _handle(void* context, Request* r, Response* out, Parked* parked) noexcept nogil:
    cdef Cache* k = <Cache*>context
    cdef const uint8_t* question = r.data + r.body_at
    cdef int64_t size_bytes = r.size_bytes - r.body_at
    cdef Caller caller
    cdef int64_t slot
    cdef Answer* a
    cdef int outcome = HANDLER_PYTHON
    if size_bytes > QUESTION_BYTES_MAX:
        return HANDLER_PYTHON
    caller = _caller(r)
    slot = _slot(k, &caller, question, size_bytes)
    pthread_mutex_lock(&k.lock)
    a = k.slots[slot]
    if a != NULL and a.generation == _generation(k) and a.api_key == r.api_key \
            and a.api_version == r.api_version \
            and a.listener_index == r.listener_index and a.question_bytes == size_bytes \
            and _is_for(a, &caller) and memcmp(_question(a), question, size_bytes) == 0:
        buffer_i32(&out.bytes, 0)
        buffer_i32(&out.bytes, r.correlation_id)
        buffer_bytes(&out.bytes, _question(a) + size_bytes, a.answer_bytes)
        response_end(out)
        if r.errors != NULL:
            r.errors[0] += a.good_codes
        k.served += 1
        outcome = HANDLER_DONE
    pthread_mutex_unlock(&k.lock)
    return outcome


cdef class ResponseCache(NativeHandler):
    """The response cache of one broker. `apis` are those whose answers it may hold: (API key, first
    version, last version) each."""
    cdef Cache core

    def __cinit__(self, tuple apis not None):
        memset(&self.core, 0, sizeof(Cache))
        pthread_mutex_init(&self.core.lock, NULL)
        secret_init(&self.core.secret)      # otherwise clients could evict each other's answers
        self.declare(
            apis, &self.core, _handle, handler_resumes_nothing, handler_abandons_nothing)

    def __init__(self, apis):
        pass

    def __dealloc__(self):
        _drop_all(&self.core)
        pthread_mutex_destroy(&self.core.lock)

    @property
    def generation(self) -> int:
        """The current generation. Read it before the state that the answer describes."""
        return _generation(&self.core)

    @property
    def served(self) -> int:
        """The number of requests that the cache answered."""
        return self.core.served

    @property
    def held_bytes(self) -> int:
        return self.core.held_bytes

    def forget(self) -> None:
        """Invalidates all answers, because the state that they describe has changed."""
        atomic_add_i64(&self.core.forgotten, 1)
        with nogil:
            pthread_mutex_lock(&self.core.lock)
            _drop_all(&self.core)
            pthread_mutex_unlock(&self.core.lock)

    def store(
        self, *, int64_t generation, int32_t listener_index, int16_t api_key, int16_t api_version,
        bytes question not None, bytes frame not None, int64_t good_codes, bytes caller=b"",
    ) -> bool:
        """Stores the framed answer to `question` (the request's body), which was made in that
        generation and has `good_codes` error codes, all of them 0. `caller`: PendingRequest.caller.
        Returns False if a change has overtaken the answer or it is too large. Raises ValueError for
        a wrong frame or caller."""
        cdef int64_t size_bytes = len(question), answer_bytes = len(frame) - FRAME_HEAD_BYTES
        cdef int64_t caller_bytes = len(caller), held_bytes = caller_bytes + size_bytes + answer_bytes
        cdef const uint8_t* caller_at = <const uint8_t*><const char*>caller
        cdef Caller known
        cdef const uint8_t* question_at = <const uint8_t*><const char*>question
        cdef const uint8_t* frame_at = <const uint8_t*><const char*>frame
        cdef Answer* a
        cdef int64_t slot
        cdef bint stored = False
        if answer_bytes < 0:
            raise ValueError(f"{len(frame)} bytes are no frame of an answer")
        if size_bytes > QUESTION_BYTES_MAX or answer_bytes > ANSWER_BYTES_MAX:
            return False
        if 0 < caller_bytes < ADDRESS_BYTES:
            raise ValueError(f"{caller_bytes} bytes are no caller")
        known.is_known = caller_bytes > 0
        if known.is_known:
            memcpy(known.address, caller_at, ADDRESS_BYTES)
            known.principal = caller_at + ADDRESS_BYTES
            known.principal_bytes = caller_bytes - ADDRESS_BYTES
        a = <Answer*>malloc(sizeof(Answer) + held_bytes)
        if a == NULL:
            return False
        a.generation, a.listener_index = generation, listener_index
        a.api_key, a.api_version = api_key, api_version
        a.question_bytes, a.answer_bytes, a.good_codes = size_bytes, answer_bytes, good_codes
        a.caller_bytes = caller_bytes
        memcpy(a + 1, caller_at, caller_bytes)
        memcpy(_question(a), question_at, size_bytes)
        memcpy(_question(a) + size_bytes, frame_at + FRAME_HEAD_BYTES, answer_bytes)
        slot = _slot(&self.core, &known, question_at, size_bytes)
        with nogil:
            pthread_mutex_lock(&self.core.lock)
            if generation == _generation(&self.core):
                _drop(&self.core, slot)
                if self.core.held_bytes + held_bytes > BYTES_MAX:
                    _drop_all(&self.core)
                self.core.slots[slot] = a
                self.core.held_bytes += held_bytes
                stored = True
            pthread_mutex_unlock(&self.core.lock)
            if not stored:
                free(a)
        return stored
