"""Leases: Python's permission that network threads serve a member, until Python revokes it."""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from barnabas.cext.memory.int64_map cimport Int64Map

cdef struct Lease:                  # the bytes of group, member and instance follow
    Lease* next_in_group
    int64_t hashed                  # of group and member
    int64_t group_hash
    int32_t partition               # of __consumer_offsets
    int32_t epoch                   # the generation, or the member epoch of KIP-848
    int16_t version_min             # of OffsetCommit
    int32_t group_bytes
    int32_t member_bytes
    int32_t instance_bytes          # -1: none
    int64_t heard_ns                # monotonic, of the last request that used it

cdef struct Leases:                 # of one shard, under its lock
    Int64Map members                # hash of group and member: Lease*
    Int64Map groups                 # hash of group: the first Lease*

cdef void leases_init(Leases* leases) noexcept nogil
cdef void leases_free(Leases* leases) noexcept nogil

cdef inline const uint8_t* lease_group(const Lease* lease) noexcept nogil:
    return <const uint8_t*>(lease + 1)

cdef inline const uint8_t* lease_member(const Lease* lease) noexcept nogil:
    return lease_group(lease) + lease.group_bytes

cdef inline const uint8_t* lease_instance(const Lease* lease) noexcept nogil:
    return lease_member(lease) + lease.member_bytes

cdef Lease* lease_new(bytes group, bytes member, bytes instance) except NULL
cdef void lease_free(Lease* lease) noexcept nogil
cdef Lease* lease_find(const Leases* leases, int64_t hashed, const uint8_t* group,
                       int32_t group_bytes, const uint8_t* member, int32_t member_bytes) noexcept nogil
cdef int64_t leases_grant(Leases* leases, Lease* made, bint fits) noexcept nogil
cdef int64_t leases_revoke_group(Leases* leases, int64_t group_hash, Lease** revoked) noexcept nogil
cdef int64_t leases_revoke_member(Leases* leases, Lease* lease) noexcept nogil
cdef int64_t leases_revoke_partition(Leases* leases, int32_t partition) noexcept nogil
