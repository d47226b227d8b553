"""The table of all groups that this node coordinates, and their members: what a commit is checked
against. Python writes it at each change of a group; native handlers read it."""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from barnabas.cext.coordinator.commit_entries cimport Entries
from barnabas.cext.coordinator.shards cimport Named, Shard, shard_index, SHARDS
from barnabas.cext.memory.int64_map cimport Int64Map, int64_map_get
from barnabas.cext.memory.secret_hash cimport Secret, secret_hash
from barnabas.cext.partition.partitions cimport Table

cdef enum GroupState:               # of a classic group
    GROUP_EMPTY = 0
    GROUP_PREPARING = 1
    GROUP_COMPLETING = 2
    GROUP_STABLE = 3

cdef enum GroupKind:
    KIND_CLASSIC = 0
    KIND_CONSUMER = 1               # the consumer protocol (KIP-848)
    KIND_SHARE = 2                  # share groups (KIP-932), which commit no offsets

cdef enum:
    EARLIER_EPOCH = -2              # not an error code: a member commits with an earlier member epoch
    HELD_KEY_BYTES = 20             # of a row of GroupMember.held: topic id, partition (big-endian)
    HELD_BYTES = 24                 # ... and the epoch since which the member has had it

cdef struct GroupMember:            # the bytes of member id, instance id and `held` follow
    Named named
    int32_t epoch                   # of a member of a consumer group
    bint speaks_classic             # the member uses the classic protocol
    int32_t instance_bytes          # -1: none
    const uint8_t* held             # the partitions of a member of a consumer group, sorted
    int32_t held_count
    int64_t heard_ns                # monotonic time of its last commit in a native handler; -1: none

cdef struct Group:                  # the bytes of the group id follow
    Named named
    int32_t partition               # of __consumer_offsets
    int32_t kind
    bint is_new                     # a native handler made it, and Python does not know it yet
    int32_t state
    int32_t generation              # of a classic group
    Int64Map members                # hash of the member id: Named*

cdef struct GroupShard:
    Shard own                       # its records: Group*
    Int64Map holds                  # hash of the group id: number of holds
    int64_t new_count               # groups that Python does not know yet
    Entries entries                 # commits that Python has not taken yet
    int64_t served                  # requests answered by native handlers

cdef struct Groups:
    Secret secret
    GroupShard shards[SHARDS]
    int64_t count                   # atomic: groups of all shards
    int64_t new_count               # atomic
    int32_t closed                  # atomic: the coordinator has stopped
    Table* table                    # `release` fires the watches of `topic` in it; NULL: nothing waits
    const uint8_t* topic
    int32_t topic_bytes

cdef struct Committer:              # which client commits
    const uint8_t* member
    int32_t member_bytes
    const uint8_t* instance         # NULL: none
    int32_t instance_bytes          # -1: none
    int32_t epoch                   # the generation, or the member epoch
    int16_t version                 # of OffsetCommit
    bint transactional              # TxnOffsetCommit, which has no such version

cdef inline int64_t group_hash(const Groups* groups, const uint8_t* group, int64_t group_bytes) noexcept nogil:
    return secret_hash(&groups.secret, group, group_bytes)

cdef inline bint group_is_held(const Groups* groups, int64_t hashed) noexcept nogil:
    """Returns whether commits of the group wait for `release`. The caller holds the shard's lock."""
    return int64_map_get(&groups.shards[shard_index(hashed)].holds, hashed, 0) != 0

# The caller holds the shard's lock. Returns the error code for a commit: ERROR_NONE if the group
# accepts it. EARLIER_EPOCH: the group accepts only partitions for which `member_has_had` is true,
# and refuses the others with the code of `member_refuses_epoch`. Sets the member; NULL: it is
# unknown.
cdef int16_t group_accepts(const Groups* groups, const Group* group, const Committer* asks, GroupMember** member) noexcept nogil
# The caller holds the shard's lock. Returns the group; NULL: there is none.
cdef Group* group_find(Groups* groups, int64_t hashed, const uint8_t* name, int32_t name_bytes) noexcept nogil
# Makes an empty classic group for its first commit; NULL: no memory. `group_add` adds it under the
# shard's lock and returns False without memory; `group_free` frees one that was not added.
cdef Group* group_new(const Groups* groups, const uint8_t* name, int32_t name_bytes, int32_t partition) noexcept nogil
cdef bint group_add(Groups* groups, Group* group) noexcept nogil
cdef void group_free(Group* group) noexcept nogil
# Returns whether the member has, or must revoke, a partition that it has had since an epoch, or
# since an earlier one. `topic_id`: 16 bytes.
cdef bint member_has_had(const GroupMember* member, const uint8_t* topic_id, int32_t index, int32_t epoch) noexcept nogil
# Returns the error code for a commit with another member epoch than the member's.
cdef int16_t member_refuses_epoch(const GroupMember* member) noexcept nogil
# Removes the groups of a partition of __consumer_offsets from a shard, whose lock the caller holds.
cdef void groups_forget(Groups* groups, GroupShard* shard, int32_t partition) noexcept nogil

cdef class GroupTable:
    cdef Groups* groups
    cdef object table               # kept alive
    cdef bytes topic
    cdef int _hold(self, str group_id, int by) except -1
    cdef GroupShard* _shard_of(self, bytes group, int64_t* hashed) noexcept
    cdef Group* _find(self, bytes group, int64_t hashed) noexcept
