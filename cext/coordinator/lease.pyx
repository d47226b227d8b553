"""Leases of group members: granted by Python, used by native handlers, revoked by Python.

A lease says that requests of one member, in one generation or member epoch (KIP-848), need no
further check. Python grants it under the coordinator's lock after it has taken such a request
itself, and revokes it before anything changes that it depends on. Revoking takes the lock of the
group's shard, under which native handlers use a lease: no request that comes after it passes.

A group's leases are a list; each is found by the secret hash of group and member, and compared by
its bytes. Two groups of one hash share a list: revoking one then revokes both, which costs their
members a request that Python answers. Limits are the owner's.
Next: cext/coordinator/offset_commit.pyx, which owns the shards.
"""
from libc.stdint cimport int32_t, int64_t, intptr_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from barnabas.cext.memory.int64_map cimport (
    int64_map_free, int64_map_get, int64_map_init, int64_map_put, int64_map_remove,
)


cdef void leases_init(Leases* leases) noexcept nogil:
    int64_map_init(&leases.members)
    int64_map_init(&leases.groups)


cdef void leases_free(Leases* leases) noexcept nogil:
    cdef int64_t i
    for i in range(leases.members.capacity):
        if leases.members.used[i]:
            free(<void*><intptr_t>leases.members.values[i])
    int64_map_free(&leases.members)
    int64_map_free(&leases.groups)


cdef Lease* lease_new(bytes group, bytes member, bytes instance) except NULL:
    """Makes a lease; `instance` is None without a group.instance.id. Raises MemoryError."""
    cdef int64_t instance_bytes = 0 if instance is None else len(instance)
    cdef Lease* lease = <Lease*>calloc(1, sizeof(Lease) + len(group) + len(member) + instance_bytes)
    if lease == NULL:
        raise MemoryError
    lease.group_bytes, lease.member_bytes = <int32_t>len(group), <int32_t>len(member)
    lease.instance_bytes = -1 if instance is None else <int32_t>instance_bytes
    memcpy(<uint8_t*>lease_group(lease), <const char*>group, len(group))
    memcpy(<uint8_t*>lease_member(lease), <const char*>member, len(member))
    if instance is not None:
        memcpy(<uint8_t*>lease_instance(lease), <const char*>instance, instance_bytes)
    return lease


cdef void lease_free(Lease* lease) noexcept nogil:
    """Frees the lease and those that follow it in its list."""
    cdef Lease* following
    while lease != NULL:
        following = lease.next_in_group
        free(lease)
        lease = following


cdef Lease* lease_find(const Leases* leases, int64_t hashed, const uint8_t* group,
                       int32_t group_bytes, const uint8_t* member, int32_t member_bytes) noexcept nogil:
    cdef Lease* lease = <Lease*><intptr_t>int64_map_get(&leases.members, hashed, 0)
    if lease == NULL or lease.group_bytes != group_bytes or lease.member_bytes != member_bytes:
        return NULL
    if memcmp(lease_group(lease), group, group_bytes) != 0 or (
            memcmp(lease_member(lease), member, member_bytes) != 0):
        return NULL
    return lease


cdef int64_t leases_revoke_group(Leases* leases, int64_t group_hash, Lease** revoked) noexcept nogil:
    """Revokes the group's leases and returns their number; the caller owns the list `revoked`."""
    cdef Lease* lease = <Lease*><intptr_t>int64_map_get(&leases.groups, group_hash, 0)
    cdef int64_t count = 0
    revoked[0] = lease
    int64_map_remove(&leases.groups, group_hash)
    while lease != NULL:
        int64_map_remove(&leases.members, lease.hashed)
        lease = lease.next_in_group
        count += 1
    return count


cdef int64_t _drop_group(Leases* leases, int64_t group_hash) noexcept nogil:
    cdef Lease* revoked
    cdef int64_t count = leases_revoke_group(leases, group_hash, &revoked)
    lease_free(revoked)
    return count


cdef int64_t leases_revoke_member(Leases* leases, Lease* lease) noexcept nogil:
    """Removes and frees a granted lease; returns the number of freed leases, 1."""
    cdef int64_t group_hash = lease.group_hash
    cdef Lease* first = <Lease*><intptr_t>int64_map_get(&leases.groups, group_hash, 0)
    cdef Lease* before = first
    int64_map_remove(&leases.members, lease.hashed)
    if first != lease:
        while before.next_in_group != lease:
            before = before.next_in_group
        before.next_in_group = lease.next_in_group
    elif lease.next_in_group == NULL:
        int64_map_remove(&leases.groups, group_hash)
    else:                           # in the place of one that was removed: no memory is needed
        int64_map_remove(&leases.groups, group_hash)
        int64_map_put(&leases.groups, group_hash, <int64_t><intptr_t>lease.next_in_group)
    free(lease)
    return 1


cdef int64_t leases_revoke_partition(Leases* leases, int32_t partition) noexcept nogil:
    """Revokes all groups' leases in a partition of __consumer_offsets; returns their number."""
    cdef int64_t i = 0, count = 0
    cdef Lease* lease
    while i < leases.groups.capacity:
        lease = <Lease*><intptr_t>leases.groups.values[i] if leases.groups.used[i] else NULL
        if lease != NULL and lease.partition == partition:
            count += _drop_group(leases, lease.group_hash)
            i = 0                   # what follows in its run has moved up
        else:
            i += 1
    return count


cdef int64_t leases_grant(Leases* leases, Lease* made, bint fits) noexcept nogil:
    """Grants the lease `made`, which it takes over, in place of the member's present one. Returns
    the change of the number of leases. Grants none if memory ran out, or if the member has none and
    `fits` is False."""
    cdef Lease* held = <Lease*><intptr_t>int64_map_get(&leases.members, made.hashed, 0)
    cdef int64_t more = 0
    if held != NULL:
        # One of another member and the same hash is not worth more than its whole group.
        more -= leases_revoke_member(leases, held) if held.group_hash == made.group_hash else (
            _drop_group(leases, held.group_hash))
        fits = True
    if not fits or not int64_map_put(&leases.members, made.hashed, <int64_t><intptr_t>made):
        free(made)
        return more
    made.next_in_group = <Lease*><intptr_t>int64_map_get(&leases.groups, made.group_hash, 0)
    if not int64_map_put(&leases.groups, made.group_hash, <int64_t><intptr_t>made):
        int64_map_remove(&leases.members, made.hashed)
        free(made)
        return more
    return more + 1
