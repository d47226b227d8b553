"""Hashes of names from clients, with a secret key: no client can choose names that collide."""
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef extern from "<sys/random.h>" nogil:
    ssize_t getrandom(void* into, size_t size_bytes, unsigned int flags)

cdef extern from "siphash.h" nogil:
    ctypedef struct hash128:
        unsigned long long low
    hash128 siphash128(const uint8_t* key, const uint8_t* p, int64_t n)

cdef struct Secret:
    uint8_t key[16]

cdef inline int secret_init(Secret* secret) except -1:
    if getrandom(secret.key, sizeof(secret.key), 0) != sizeof(secret.key):
        raise OSError("cannot get random bytes from the system")
    return 0

cdef inline int64_t secret_hash(const Secret* secret, const uint8_t* p, int64_t n) noexcept nogil:
    return <int64_t>siphash128(secret.key, p, n).low

cdef inline int64_t secret_hash_within(const Secret* secret, int64_t outer, const uint8_t* p,
int64_t n) noexcept nogil:
    """Returns the hash of a member id within the group with the hash `outer`, because many groups
    may have a member with the same id."""
    return <int64_t>(<uint64_t>outer * 31 + <uint64_t>secret_hash(secret, p, n))
