"""The table of all groups of one node: kind, state, generation, and members with their epochs.

Python decides every change of a group and writes it here under the coordinator's lock, before it
answers the request that caused the change. A commit is checked against the table in one place,
`group_accepts`, which the native handler calls on network threads; tests call it through `check`:
the rules of Kafka's ClassicGroup.validateOffsetCommit and ConsumerGroup.validateOffsetCommit.

    kind of group           accepts a commit from                           otherwise
    none                    a client without a generation (a new group)     ILLEGAL_GENERATION, or
                                                                            GROUP_ID_NOT_FOUND
    classic, no members     a client without a generation
    classic                 a member in its generation; a producer          UNKNOWN_MEMBER_ID,
                            without a member id                             FENCED_INSTANCE_ID,
                                                                            ILLEGAL_GENERATION
      completing            a producer alone                                REBALANCE_IN_PROGRESS
    share                   -                                               GROUP_ID_NOT_FOUND
    consumer, no members    a client without a member epoch
    consumer                a member in its epoch; in an earlier one, for   UNKNOWN_MEMBER_ID,
                            partitions that it has had since; a producer    UNSUPPORTED_VERSION,
                            without a member id                             STALE_MEMBER_EPOCH,
                                                                            ILLEGAL_GENERATION

Groups are divided into shards with a lock each. A native handler holds the lock from the check to
the append: after a write of Python has returned, no commit that depends on the state before it
follows in the log. While a group is on hold, because Python writes tombstones of its offsets, its
commits wait. A group's first commit makes the group here; Python adds it to its own with
`take_new`. The table has no limit of its own.
Next on the data path: cext/coordinator/offset_commit.pyx.
"""
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from barnabas.cext.codec.endian cimport be32_load, be32_store
from barnabas.cext.codec.error_codes cimport (
    ERROR_COORDINATOR_NOT_AVAILABLE, ERROR_FENCED_INSTANCE_ID, ERROR_GROUP_ID_NOT_FOUND,
    ERROR_ILLEGAL_GENERATION, ERROR_NONE, ERROR_REBALANCE_IN_PROGRESS, ERROR_STALE_MEMBER_EPOCH,
    ERROR_UNKNOWN_MEMBER_ID, ERROR_UNSUPPORTED_VERSION,
)
from barnabas.cext.coordinator.commit_entries cimport entry_free
from barnabas.cext.coordinator.shards cimport (
    named_find, named_first, named_put, named_take, shard_free, shard_init,
)
from barnabas.cext.memory.atomics cimport (
    atomic_add_i64, atomic_load_i32, atomic_load_i64, atomic_store_i32,
)
from barnabas.cext.memory.epoch cimport epoch_enter, epoch_leave
from barnabas.cext.memory.int64_map cimport (
    int64_map_free, int64_map_get, int64_map_init, int64_map_put, int64_map_remove,
)
from barnabas.cext.memory.mutex cimport pthread_mutex_lock, pthread_mutex_unlock
from barnabas.cext.memory.secret_hash cimport secret_init
from barnabas.cext.partition.partitions cimport (
    Partition, partition_find, partition_wake, table_epochs, table_of,
)

cdef enum:
    MEMBER_EPOCHS_FROM = 9          # of OffsetCommit

_STATES = {
    "Empty": GROUP_EMPTY,
    "PreparingRebalance": GROUP_PREPARING,
    "CompletingRebalance": GROUP_COMPLETING,
    "Stable": GROUP_STABLE,
}
_KINDS = {"classic": KIND_CLASSIC, "consumer": KIND_CONSUMER, "share": KIND_SHARE}


cdef void group_free(Group* group) noexcept nogil:
    cdef Named* at
    cdef Named* following
    cdef int64_t i
    if group == NULL:
        return
    for i in range(group.members.capacity):
        at = named_first(&group.members, i)
        while at != NULL:
            following = at.next
            free(at)
            at = following
    int64_map_free(&group.members)
    free(group)


# -------------------------------------------------------------------------------- the check

cdef inline const uint8_t* _instance(const GroupMember* member) noexcept nogil:
    return member.named.name + member.named.name_bytes


cdef inline bint _is_instance(const GroupMember* member, const Committer* asks) noexcept nogil:
    return member.instance_bytes == asks.instance_bytes and memcmp(
        _instance(member), asks.instance, asks.instance_bytes) == 0


cdef bint _has_instance(const Group* group, const Committer* asks) noexcept nogil:
    """Returns whether any member has the instance id. Only called before a refusal, because it
    searches all members."""
    cdef const Named* at
    cdef int64_t i
    for i in range(group.members.capacity):
        at = named_first(&group.members, i)
        while at != NULL:
            if _is_instance(<const GroupMember*>at, asks):
                return True
            at = at.next
    return False


cdef int16_t _classic_accepts(const Group* group, const Committer* asks, const GroupMember* member) noexcept nogil:
    if asks.epoch < 0 and group.state == GROUP_EMPTY:
        return ERROR_NONE
    if asks.epoch >= 0 or asks.member_bytes > 0 or asks.instance_bytes >= 0:
        if asks.instance_bytes >= 0 and (member == NULL or not _is_instance(member, asks)):
            return (
                ERROR_FENCED_INSTANCE_ID if _has_instance(group, asks) else ERROR_UNKNOWN_MEMBER_ID)
        if member == NULL:
            return ERROR_UNKNOWN_MEMBER_ID
        if asks.epoch != group.generation:
            return ERROR_ILLEGAL_GENERATION
    elif not asks.transactional:
        return ERROR_UNKNOWN_MEMBER_ID      # a group with members accepts only their commits
    if not asks.transactional and group.state == GROUP_COMPLETING:
        return ERROR_REBALANCE_IN_PROGRESS  # the member does not know its assignment yet
    return ERROR_NONE


cdef int16_t _consumer_accepts(const Group* group, const Committer* asks, const GroupMember* member) noexcept nogil:
    if asks.epoch < 0 and group.members.count == 0:
        return ERROR_NONE
    if asks.transactional and asks.epoch == -1 and asks.member_bytes == 0 and asks.instance_bytes < 0:
        return ERROR_NONE               # a producer without a member id
    if member == NULL:
        return ERROR_UNKNOWN_MEMBER_ID
    if not member.speaks_classic and not asks.transactional and asks.version < MEMBER_EPOCHS_FROM:
        return ERROR_UNSUPPORTED_VERSION
    if asks.epoch == member.epoch:
        return ERROR_NONE
    return EARLIER_EPOCH if asks.epoch < member.epoch else member_refuses_epoch(member)


cdef int16_t member_refuses_epoch(const GroupMember* member) noexcept nogil:
    return ERROR_ILLEGAL_GENERATION if member.speaks_classic else ERROR_STALE_MEMBER_EPOCH


cdef bint member_has_had(const GroupMember* member, const uint8_t* topic_id, int32_t index, int32_t epoch) noexcept nogil:
    cdef uint8_t key[HELD_KEY_BYTES]
    cdef const uint8_t* at
    cdef int64_t low = 0, high = member.held_count, middle
    cdef int order
    memcpy(key, topic_id, 16)
    be32_store(key + 16, <uint32_t>index)
    while low < high:
        middle = (low + high) // 2
        at = member.held + middle * HELD_BYTES
        order = memcmp(at, key, HELD_KEY_BYTES)
        if order == 0:
            return <int32_t>be32_load(at + HELD_KEY_BYTES) <= epoch
        if order < 0:
            low = middle + 1
        else:
            high = middle
    return False


cdef int16_t group_accepts(const Groups* groups, const Group* group, const Committer* asks, GroupMember** member) noexcept nogil:
    member[0] = NULL
    if atomic_load_i32(&groups.closed):
        return ERROR_COORDINATOR_NOT_AVAILABLE
    if group == NULL:
        if asks.epoch < 0:
            return ERROR_NONE
        return ERROR_GROUP_ID_NOT_FOUND if (
            not asks.transactional and asks.version >= MEMBER_EPOCHS_FROM
        ) else ERROR_ILLEGAL_GENERATION
    if group.members.count:
        member[0] = <GroupMember*>named_find(
            &group.members, secret_hash(&groups.secret, asks.member, asks.member_bytes),
            asks.member, asks.member_bytes)
    if group.kind == KIND_CONSUMER:
        return _consumer_accepts(group, asks, member[0])
    if group.kind == KIND_SHARE:
        return ERROR_GROUP_ID_NOT_FOUND
    return _classic_accepts(group, asks, member[0])


# -------------------------------------------------------------------------------- groups

cdef Group* group_find(Groups* groups, int64_t hashed, const uint8_t* name, int32_t name_bytes) noexcept nogil:
    return <Group*>named_find(
        &groups.shards[shard_index(hashed)].own.records, hashed, name, name_bytes)


cdef Named* _record_of(const Secret* secret, size_t size_bytes, const uint8_t* name, int32_t name_bytes, int64_t more_bytes) noexcept nogil:
    """Makes a record of a name, with space after it; NULL: no memory."""
    cdef Named* made = <Named*>calloc(1, size_bytes + name_bytes + more_bytes)
    cdef uint8_t* at = <uint8_t*>made + size_bytes
    if made == NULL:
        return NULL
    memcpy(at, name, name_bytes)
    made.name, made.name_bytes = at, name_bytes
    made.hashed = secret_hash(secret, made.name, name_bytes)
    return made


cdef Group* group_new(const Groups* groups, const uint8_t* name, int32_t name_bytes, int32_t partition) noexcept nogil:
    cdef Group* made = <Group*>_record_of(&groups.secret, sizeof(Group), name, name_bytes, 0)
    if made != NULL:
        made.partition, made.is_new = partition, True
    return made


cdef void _count_new(Groups* groups, GroupShard* shard, int64_t by) noexcept nogil:
    shard.new_count += by
    atomic_add_i64(&groups.new_count, by)


cdef bint group_add(Groups* groups, Group* group) noexcept nogil:
    cdef GroupShard* shard = &groups.shards[shard_index(group.named.hashed)]
    if not named_put(&shard.own.records, &group.named):
        return False
    atomic_add_i64(&groups.count, 1)
    if group.is_new:
        _count_new(groups, shard, 1)
    return True


cdef Group* _take_group(Groups* groups, int64_t hashed, const uint8_t* name, int32_t name_bytes) noexcept nogil:
    """Removes a group and returns it, under the shard's lock; NULL: there is no such group."""
    cdef GroupShard* shard = &groups.shards[shard_index(hashed)]
    cdef Group* taken = <Group*>named_take(&shard.own.records, hashed, name, name_bytes)
    if taken != NULL:
        atomic_add_i64(&groups.count, -1)
        if taken.is_new:
            _count_new(groups, shard, -1)
    return taken


cdef void groups_forget(Groups* groups, GroupShard* shard, int32_t partition) noexcept nogil:
    cdef int64_t i = 0
    cdef Named* at
    while i < shard.own.records.capacity:
        at = named_first(&shard.own.records, i)
        while at != NULL and (<Group*>at).partition != partition:
            at = at.next
        if at == NULL:
            i += 1
            continue
        _take_group(groups, at.hashed, at.name, at.name_bytes)
        group_free(<Group*>at)
        i = 0                               # the records after it in its run have moved up


# -------------------------------------------------------------------------------- Python's side

cdef Named* _record(Secret* secret, size_t size_bytes, bytes name, bytes more) except NULL:
    """Makes a record of a name, followed by the bytes of `more`."""
    cdef Named* made = _record_of(
        secret, size_bytes, <const uint8_t*><const char*>name, <int32_t>len(name), len(more))
    if made == NULL:
        raise MemoryError
    memcpy(<uint8_t*>made + size_bytes + len(name), <const char*>more, len(more))
    return made


cdef GroupMember* _member_of(Secret* secret, row) except NULL:
    """Makes a member of (member id, instance id, epoch, whether it speaks the classic protocol,
    and in a consumer group its partitions), as in `put_member`."""
    cdef str member_id = row[0]
    cdef bytes instance, held = row[4] if len(row) > 4 else b""
    cdef GroupMember* made
    _, instance_id, epoch, speaks_classic = row[:4]
    instance = b"" if instance_id is None else instance_id.encode()
    made = <GroupMember*>_record(secret, sizeof(GroupMember), member_id.encode(), instance + held)
    made.instance_bytes = -1 if instance_id is None else <int32_t>len(instance)
    made.held = made.named.name + made.named.name_bytes + len(instance)
    made.held_count = <int32_t>(len(held) // HELD_BYTES)
    made.epoch, made.speaks_classic, made.heard_ns = epoch, speaks_classic, -1
    return made


cdef str _text(const Named* record):
    return PyUnicode_DecodeUTF8(<char*>record.name, record.name_bytes, NULL)


cdef class GroupTable:
    """The groups of one broker. Callers hold the coordinator's lock. Names are text; an epoch, a
    generation and a partition are int32. Methods that add something raise MemoryError."""

    def __cinit__(self):
        cdef int i
        self.groups = <Groups*>calloc(1, sizeof(Groups))
        if self.groups == NULL:
            raise MemoryError
        for i in range(SHARDS):
            shard_init(&self.groups.shards[i].own)
            int64_map_init(&self.groups.shards[i].holds)
        secret_init(&self.groups.secret)

    def __init__(self):
        pass

    def __dealloc__(self):
        cdef Named* at
        cdef Named* following
        cdef GroupShard* shard
        cdef int64_t i, k
        if self.groups == NULL:
            return
        for i in range(SHARDS):
            shard = &self.groups.shards[i]
            for k in range(shard.own.records.capacity):
                at = named_first(&shard.own.records, k)
                while at != NULL:
                    following = at.next
                    group_free(<Group*>at)
                    at = following
            int64_map_free(&shard.holds)
            entry_free(shard.entries.first)
            shard_free(&shard.own)
        free(self.groups)

    cdef GroupShard* _shard_of(self, bytes group, int64_t* hashed) noexcept:
        hashed[0] = group_hash(self.groups, <const uint8_t*><const char*>group, len(group))
        return &self.groups.shards[shard_index(hashed[0])]

    cdef Group* _find(self, bytes group, int64_t hashed) noexcept:
        """The caller holds the shard's lock."""
        return group_find(
            self.groups, hashed, <const uint8_t*><const char*>group, <int32_t>len(group))

    def put(self, str group_id not None, int32_t partition, members=(), *,
            str kind not None="classic", str state not None="Empty", int32_t generation=0) -> None:
        """Adds a group, or replaces it, in one step. `members`: rows as for `put_member`. `kind`:
        classic, consumer or share. `state`: Kafka's name, of a classic group."""
        cdef Group* made = <Group*>_record(
            &self.groups.secret, sizeof(Group), group_id.encode(), b"")
        cdef Group* old = NULL
        cdef GroupShard* shard = &self.groups.shards[shard_index(made.named.hashed)]
        cdef GroupMember* member
        cdef bint is_in = False
        made.partition, made.generation = partition, generation
        try:
            made.kind, made.state = _KINDS[kind], _STATES[state]
            for row in members:
                member = _member_of(&self.groups.secret, row)
                if not named_put(&made.members, &member.named):
                    free(member)
                    raise MemoryError
        except:
            group_free(made)
            raise
        with nogil:
            pthread_mutex_lock(&shard.own.lock)
            old = _take_group(
                self.groups, made.named.hashed, made.named.name, made.named.name_bytes)
            is_in = group_add(self.groups, made)
            pthread_mutex_unlock(&shard.own.lock)
        group_free(old)
        if not is_in:
            group_free(made)
            raise MemoryError

    def remove(self, str group_id not None) -> None:
        """Removes a group with its members. Does nothing if the table does not have it."""
        cdef bytes name = group_id.encode()
        cdef int64_t hashed
        cdef GroupShard* shard = self._shard_of(name, &hashed)
        cdef Group* old
        pthread_mutex_lock(&shard.own.lock)     # with the GIL: its holder never waits for the GIL
        old = _take_group(
            self.groups, hashed, <const uint8_t*><const char*>name, <int32_t>len(name))
        pthread_mutex_unlock(&shard.own.lock)
        group_free(old)

    def set_state(self, str group_id not None, str state not None, int32_t generation) -> None:
        """Writes the state and the generation of a classic group."""
        cdef bytes name = group_id.encode()
        cdef int64_t hashed
        cdef GroupShard* shard = self._shard_of(name, &hashed)
        cdef int32_t number = _STATES[state]
        cdef Group* group
        pthread_mutex_lock(&shard.own.lock)
        group = self._find(name, hashed)
        if group != NULL:
            group.state, group.generation = number, generation
        pthread_mutex_unlock(&shard.own.lock)

    def put_member(self, str group_id not None, str member_id not None, instance_id,
                   int32_t epoch=-1, bint speaks_classic=True, bytes held not None=b"") -> None:
        """Adds a member, or replaces it. `instance_id`: None without a group.instance.id. `epoch`:
        the member epoch, in a consumer group. `speaks_classic`: the classic protocol. `held`: the
        partitions of a member of a consumer group, those to be revoked too: sorted rows of topic id
        (16 bytes), partition, and the epoch since which it has had it (int32, big-endian)."""
        cdef bytes name = group_id.encode()
        cdef int64_t hashed
        cdef GroupShard* shard = self._shard_of(name, &hashed)
        cdef GroupMember* made = _member_of(
            &self.groups.secret, (member_id, instance_id, epoch, speaks_classic, held))
        cdef GroupMember* old = NULL
        cdef Group* group
        cdef bint is_lost = False
        pthread_mutex_lock(&shard.own.lock)
        group = self._find(name, hashed)
        if group != NULL:
            old = <GroupMember*>named_take(
                &group.members, made.named.hashed, made.named.name, made.named.name_bytes)
            made.heard_ns = old.heard_ns if old != NULL else -1
            is_lost = not named_put(&group.members, &made.named)
        pthread_mutex_unlock(&shard.own.lock)
        free(old)
        if group == NULL or is_lost:
            free(made)
        if is_lost:
            raise MemoryError

    def remove_member(self, str group_id not None, str member_id not None) -> None:
        cdef bytes name = group_id.encode(), member = member_id.encode()
        cdef const uint8_t* member_name = <const uint8_t*><const char*>member
        cdef int64_t member_hash = secret_hash(&self.groups.secret, member_name, len(member))
        cdef int64_t hashed
        cdef GroupShard* shard = self._shard_of(name, &hashed)
        cdef Named* old = NULL
        cdef Group* group
        pthread_mutex_lock(&shard.own.lock)
        group = self._find(name, hashed)
        if group != NULL:
            old = named_take(&group.members, member_hash, member_name, <int32_t>len(member))
        pthread_mutex_unlock(&shard.own.lock)
        free(old)

    def heard_ms(self, str group_id not None, str member_id not None) -> int:
        """Returns the monotonic time of the member's last commit in a native handler; -1: none."""
        cdef bytes name = group_id.encode(), member = member_id.encode()
        cdef const uint8_t* member_name = <const uint8_t*><const char*>member
        cdef int64_t member_hash = secret_hash(&self.groups.secret, member_name, len(member))
        cdef int64_t hashed
        cdef GroupShard* shard = self._shard_of(name, &hashed)
        cdef GroupMember* found = NULL
        cdef Group* group
        cdef int64_t heard_ns
        pthread_mutex_lock(&shard.own.lock)
        group = self._find(name, hashed)
        if group != NULL:
            found = <GroupMember*>named_find(
                &group.members, member_hash, member_name, <int32_t>len(member))
        heard_ns = found.heard_ns if found != NULL else -1
        pthread_mutex_unlock(&shard.own.lock)
        return heard_ns // 1000000 if heard_ns >= 0 else -1

    def take_new(self) -> list:
        """Returns (group id, partition) of the groups that native handlers have made since the last
        call. The caller adds them to its own: this object returns each once."""
        cdef GroupShard* shard
        cdef Named* at
        cdef int64_t i, k
        found = []
        for i in range(SHARDS):
            shard = &self.groups.shards[i]
            pthread_mutex_lock(&shard.own.lock)
            try:
                for k in range(shard.own.records.capacity if shard.new_count else 0):
                    at = named_first(&shard.own.records, k)
                    while at != NULL:
                        if (<Group*>at).is_new:
                            found.append((_text(at), (<Group*>at).partition))
                            (<Group*>at).is_new = False
                            _count_new(self.groups, shard, -1)
                        at = at.next
            finally:
                pthread_mutex_unlock(&shard.own.lock)
        return found

    @property
    def new_count(self) -> int:
        """Returns the number of groups that `take_new` would return."""
        return atomic_load_i64(&self.groups.new_count)

    def follow(self, table not None, str topic not None) -> None:
        """Sets the partition table and the topic of commits, whose watches `release` fires. The
        caller calls it once, before the first commit."""
        self.table, self.topic = table, topic.encode()
        self.groups.table = table_of(table)
        self.groups.topic = <const uint8_t*><const char*>self.topic
        self.groups.topic_bytes = <int32_t>len(self.topic)

    def close(self) -> None:
        """Refuses all later commits with COORDINATOR_NOT_AVAILABLE: the coordinator stops."""
        atomic_store_i32(&self.groups.closed, 1)

    def hold(self, str group_id not None) -> None:
        """Makes the group's commits wait until `release`. Each call needs its own `release`. A hold
        also applies to a group that is removed and made again."""
        self._hold(group_id, 1)

    def release(self, str group_id not None, int32_t partition=-1) -> None:
        """Ends a hold; the commits that wait continue. `partition`: the group's."""
        cdef Groups* groups = self.groups
        cdef Partition* p
        cdef int slot
        self._hold(group_id, -1)
        if groups.table == NULL:
            return
        with nogil:
            slot = epoch_enter(table_epochs(groups.table))
            p = partition_find(groups.table, groups.topic, groups.topic_bytes, partition)
            if p != NULL:
                partition_wake(groups.table, p)
            epoch_leave(table_epochs(groups.table), slot)

    cdef int _hold(self, str group_id, int by) except -1:
        cdef bytes name = group_id.encode()
        cdef int64_t hashed
        cdef GroupShard* shard = self._shard_of(name, &hashed)
        cdef int64_t count
        cdef bint is_kept = True
        pthread_mutex_lock(&shard.own.lock)
        count = int64_map_get(&shard.holds, hashed, 0) + by
        if count > 0:
            is_kept = int64_map_put(&shard.holds, hashed, count)
        else:
            int64_map_remove(&shard.holds, hashed)
        pthread_mutex_unlock(&shard.own.lock)
        if not is_kept:
            raise MemoryError
        return 0

    def check(self, str group_id not None, str member_id not None, instance_id, int32_t epoch,
              int16_t version, bint transactional, partitions=()) -> int:
        """Returns the error code for a commit by this client; 0: the group accepts it. `epoch`: the
        generation or the member epoch. `version`: of OffsetCommit. `partitions`: of the commit,
        (topic id in 16 bytes, index) each."""
        cdef bytes group_name = group_id.encode(), member_name = member_id.encode()
        cdef bytes instance = None if instance_id is None else instance_id.encode()
        cdef list rows = [(bytes(topic_id), int(index)) for topic_id, index in partitions]
        cdef bytes topic_id
        cdef const char* at
        cdef int32_t index
        cdef Committer asks
        cdef int64_t hashed
        cdef GroupShard* shard = self._shard_of(group_name, &hashed)
        cdef GroupMember* member
        cdef int16_t code
        asks.member, asks.member_bytes = <const uint8_t*><const char*>member_name, <int32_t>len(member_name)
        asks.instance, asks.instance_bytes = NULL, -1
        if instance is not None:
            asks.instance, asks.instance_bytes = (
                <const uint8_t*><const char*>instance, <int32_t>len(instance))
        asks.epoch, asks.version, asks.transactional = epoch, version, transactional
        pthread_mutex_lock(&shard.own.lock)
        code = group_accepts(self.groups, self._find(group_name, hashed), &asks, &member)
        if code == EARLIER_EPOCH:
            code = ERROR_NONE
            for topic_id, index in rows:
                at = topic_id
                if not member_has_had(member, <const uint8_t*>at, index, epoch):
                    code = member_refuses_epoch(member)
                    break
        pthread_mutex_unlock(&shard.own.lock)
        return code

    @property
    def count(self) -> int:
        """Returns the number of groups."""
        return atomic_load_i64(&self.groups.count)
