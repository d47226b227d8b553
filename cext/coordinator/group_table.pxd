"""The table of all groups that this node coordinates, and their members: what a commit is checked
against. Python writes it at each change of a group; native handlers read it."""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from barnabas.cext.memory.int64_map cimport Int64Map, int64_map_get
from barnabas.cext.memory.mutex cimport pthread_mutex_t
from barnabas.cext.memory.secret_hash cimport Secret, secret_hash

cdef enum:
    GROUP_SHARDS = 64               # a power of two

cdef enum GroupState:               # of a classic group
    GROUP_EMPTY = 0
    GROUP_PREPARING = 1
    GROUP_COMPLETING = 2
    GROUP_STABLE = 3

cdef struct Named:                  # a record of a map by name: a group or a member
    Named* next                     # of the same hash
    int64_t hashed
    const uint8_t* name             # behind the record
    int32_t name_bytes

cdef enum:
    EARLIER_EPOCH = -2              # no error code: a member commits in an epoch that is over
    HELD_KEY_BYTES = 20             # of a row of GroupMember.held: topic id, partition (big-endian)
    HELD_BYTES = 24                 # ... and the epoch since which the member has had it

cdef struct GroupMember:            # the bytes of member id, instance id and `held` follow
    Named named
    int32_t epoch                   # of a member of a consumer group
    bint speaks_classic             # the classic protocol
    int32_t instance_bytes          # -1: none
    const uint8_t* held             # the partitions of a member of a consumer group, sorted
    int32_t held_count
    int64_t heard_ns                # monotonic, of its last commit in a native handler; -1: none

cdef struct Group:                  # the bytes of the group id follow
    Named named
    int32_t partition               # of __consumer_offsets
    bint is_consumer                # a group of the consumer protocol (KIP-848)
    int32_t state
    int32_t generation              # of a classic group
    Int64Map members                # hash of the member id: Named*

cdef struct GroupShard:
    pthread_mutex_t lock
    Int64Map groups                 # hash of the group id: Named*
    Int64Map holds                  # hash of the group id: number of holds

cdef struct Groups:
    Secret secret
    GroupShard shards[GROUP_SHARDS]
    int64_t count                   # atomic: groups of all shards

cdef struct Committer:              # which client commits to which group
    const uint8_t* group
    int32_t group_bytes
    const uint8_t* member
    int32_t member_bytes
    const uint8_t* instance         # NULL: none
    int32_t instance_bytes          # -1: none
    int32_t epoch                   # the generation, or the member epoch
    int16_t version                 # of OffsetCommit
    bint transactional              # TxnOffsetCommit, which has no such version

cdef inline int64_t group_hash(const Groups* groups, const uint8_t* group, int64_t group_bytes) noexcept nogil:
    return secret_hash(&groups.secret, group, group_bytes)

cdef inline int64_t group_shard_index(int64_t hashed) noexcept nogil:
    return hashed & (GROUP_SHARDS - 1)

cdef inline bint group_is_held(const Groups* groups, int64_t hashed) noexcept nogil:
    """Returns whether commits of the group go through Python; the caller holds the shard's lock."""
    return int64_map_get(&groups.shards[group_shard_index(hashed)].holds, hashed, 0) != 0

# The caller holds the shard's lock. Returns the error code for a commit, ERROR_NONE if the group
# accepts it; or EARLIER_EPOCH if it accepts only partitions for which `member_has_had` is true, and
# else refuses the commit with `member_refuses_epoch`. Sets the group and the member (NULL: the
# group, or the member, is unknown).
cdef int16_t group_accepts(Groups* groups, int64_t hashed, const Committer* asks, Group** group, GroupMember** member) noexcept nogil
# Returns whether the member has, or must revoke, a partition that it has had since an epoch, or since
# an earlier one. `topic_id`: 16 bytes.
cdef bint member_has_had(const GroupMember* member, const uint8_t* topic_id, int32_t index, int32_t epoch) noexcept nogil
# Returns the error code for a member epoch that is not the member's.
cdef int16_t member_refuses_epoch(const GroupMember* member) noexcept nogil
# Removes the groups of a partition of __consumer_offsets from a shard, whose lock the caller holds.
cdef void groups_forget(Groups* groups, GroupShard* shard, int32_t partition) noexcept nogil

cdef class GroupTable:
    cdef Groups* groups
    cdef int _hold(self, str group_id, int by) except -1
    cdef GroupShard* _shard_of(self, bytes group, int64_t* hashed) noexcept
    cdef Group* _find(self, bytes group, int64_t hashed) noexcept
