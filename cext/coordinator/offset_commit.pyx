"""The native handler of OffsetCommit: it appends commits on the network thread.

The table of groups (group_table.pyx) says whether a group accepts a commit from its client; Python
writes the table at each change of a group. The handler appends accepted commits to
__consumer_offsets and answers without the GIL. Python answers every other request: one that is
damaged, refused by its group, of a group that does not exist yet, with a retention time, with
metadata that is not ASCII or too long, for a partition that does not exist, or while the log is
offline.

    OffsetCommitRequest   groupId, generation, memberId, instanceId (7+), retention (2-4),
                          [name | topic id from 10, [index, offset, leader epoch (6+), metadata]]
    TxnOffsetCommitRequest transactionalId, groupId, producerId, epoch, generation, memberId,
                          instanceId (these three 3+), [name | topic id from 6, [index, offset,
                          leader epoch (2+), metadata]]
    record key            int16 1, string group, string topic, int32 partition
    record value          int16 3, int64 offset, int32 leader epoch, string metadata, int64 ms

Offsets of a transaction (TxnOffsetCommit) are a transactional batch, appended as one of a client:
the log takes it, under its lock, when the producer's transaction is open there or expected
(log_transactions.pyx), so that a marker comes after it. From version 5 on they become part of it
here where an append counts at once (transactions.pyx). Else Python asks the coordinator.

Durability: a commit is answered when the high watermark has passed its record; with log.durability
fsync the request is parked on a watch of the partition until then. One request is one batch.

Committed offsets wait here for Python, as entries with the offset of their record, and `take`
returns the durable ones in the order of the log. The lock of one shard of the table protects the
check, the append and the entries of a group. While a commit goes through Python, Python `hold`s its
keys, so no later commit overtakes it in the log. A thread that has seen a durable marker finds all commits of its transaction, because the
handler counts entries before their batch is in the log.

Limit: ENTRIES_MAX a shard (commit_entries.pyx): if more keys have entries, commits go
to Python, which then takes the entries. A crash loses no acknowledged commit: entries are only
copies of records in the log.
Next on the data path: cext/partition/partitions.pyx; broker/coordinator/groups/coordinator.py is the other way.
"""
cimport cython
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from barnabas.cext.codec.buffer cimport (
    Buffer, buffer_bytes, buffer_free, buffer_i16, buffer_i32, buffer_i64, buffer_init,
)
from barnabas.cext.codec.error_codes cimport ERROR_NONE
from barnabas.cext.codec.fields cimport write_count, write_no_tags, write_string
from barnabas.cext.coordinator.commit_entries cimport (
    ENTRIES_MAX, Entries, entries_add, entries_announce, entries_forget, entries_have, entries_take,
    entries_thin, Entry, entry_free, entry_new,
)
from barnabas.cext.coordinator.coordinator_batch cimport (
    own_batch_begin, own_batch_end, own_record_begin, own_record_end, own_record_value,
)
from barnabas.cext.coordinator.durable_wait cimport (
    ANY_EPOCH, durable_wait_by, durable_wait_end, durable_wait_lasts, durable_wait_on, DurableWait,
)
from barnabas.cext.coordinator.ended_transactions cimport Ended, EndedTransactions
from barnabas.cext.coordinator.group_table cimport (
    Committer, Group, GROUP_SHARDS, group_accepts, group_hash, group_is_held, GroupMember, Groups,
    groups_forget, GroupShard, group_shard_index, GroupTable,
)
from barnabas.cext.coordinator.offset_commit_request cimport (
    commit_begin, commit_is_plain, commit_row, commit_tags, commit_topic, KEY_OFFSET_COMMIT,
    KEY_TXN_OFFSET_COMMIT, TXN_VERSION_ADDS, Walk,
)
from barnabas.cext.coordinator.transactions cimport (
    transaction_adds, transaction_offsets_of, TransactionCore, TransactionHandler,
)
from barnabas.cext.log.log cimport Appended, log_append_verified
from barnabas.cext.log.log_transactions cimport (
    log_begin_verification, log_end_verification, log_knows_transaction,
)
from barnabas.cext.memory.atomics cimport atomic_add_i64, atomic_load_i32, atomic_load_i64
from barnabas.cext.memory.epoch cimport epoch_enter, epoch_leave
from barnabas.cext.memory.mutex cimport pthread_mutex_lock, pthread_mutex_unlock
from barnabas.cext.memory.secret_hash cimport secret_hash
from barnabas.cext.memory.sys cimport System
from barnabas.cext.network.handler cimport (
    HANDLER_CLOSE, HANDLER_DONE, HANDLER_PYTHON, handler_parks, NativeHandler, Parked, Request,
    request_error, Response, response_begin, response_end,
)
from barnabas.cext.partition.partitions cimport (
    Partition, partition_appended, partition_error, partition_find, partition_find_id,
    partition_high_watermark, Table, table_epochs, table_of, table_system, topic_name_by_id,
)
from barnabas.cext.record.records cimport ATTR_TRANSACTIONAL, batch_header, BatchHeader, RECORDS_OK

cdef enum:
    VERSION_FIRST = 2               # 1 brings a timestamp of its own, 0 goes to the metadata tree
    VERSION_LAST = 10
    VERSION_THROTTLE = 3
    TXN_VERSION_LAST = 6
    UNVERIFIED = 0                  # nobody was asked: the log knows the transaction, or refuses
    HOLDS = 256                     # counters that keys of commits in Python's hands fall upon
    SCRATCH_KEEP_BYTES = 65536
    OFFSET_KEY_VERSION = 1
    OFFSET_VALUE_VERSION = 3

cdef struct Shard:
    GroupShard* groups              # its lock protects all of this
    Entries entries
    Buffer batch                    # the memory of the last one, used again
    uint32_t held[HOLDS]
    int64_t served

cdef struct Core:
    Table* table
    TransactionCore* transactions
    Ended* ended
    Groups* groups
    Shard shards[GROUP_SHARDS]
    int64_t entry_count             # atomic: of all shards
    int64_t timeout_ns
    int32_t metadata_bytes_max
    const uint8_t* topic
    int32_t topic_bytes


# -------------------------------------------------------------------------------- the group

cdef inline Shard* _shard(Core* core, int64_t hashed) noexcept nogil:
    """`hashed`: of the group."""
    return &core.shards[group_shard_index(hashed)]

cdef inline int64_t _hash(const Core* core, const uint8_t* p, int64_t n) noexcept nogil:
    return group_hash(core.groups, p, n)

cdef Group* _accepting(Core* core, int64_t hashed, const Walk* w, GroupMember** member) noexcept nogil:
    """Returns the group if it accepts this request; NULL: Python answers. The caller holds the
    shard's lock."""
    cdef Committer asks
    cdef Group* group
    asks.group, asks.group_bytes = w.group, w.group_bytes
    asks.member, asks.member_bytes = w.member, w.member_bytes
    asks.instance, asks.instance_bytes = w.instance, w.instance_bytes
    asks.epoch, asks.version, asks.transactional = w.generation, w.version, w.transactional
    if group_is_held(core.groups, hashed) or (
            group_accepts(core.groups, hashed, &asks, &group, member) != ERROR_NONE):
        return NULL
    return group


# -------------------------------------------------------------------------------- keys in Python's hands

cdef inline uint32_t* _held(Core* core, Shard* shard, const uint8_t* topic, int32_t topic_bytes, int32_t index) noexcept nogil:
    """Returns the counter of the key's hash. While a key is held, all that share it need Python."""
    cdef uint64_t hashed = <uint64_t>secret_hash(
        &core.groups.secret, topic, topic_bytes) + <uint32_t>index
    return &shard.held[hashed & (HOLDS - 1)]


# -------------------------------------------------------------------------------- the batch

cdef void _write_record(Buffer* b, const Walk* w, int32_t delta, int64_t now_ms) noexcept nogil:
    cdef int32_t key_bytes = 2 + 2 + w.group_bytes + 2 + w.topic_bytes + 4
    cdef int32_t value_bytes = 2 + 8 + 4 + 2 + w.metadata_bytes + 8
    own_record_begin(b, delta, key_bytes, value_bytes)
    buffer_i16(b, OFFSET_KEY_VERSION)
    write_string(b, False, w.group, w.group_bytes)
    write_string(b, False, w.topic, w.topic_bytes)
    buffer_i32(b, w.index)
    own_record_value(b, value_bytes)
    buffer_i16(b, OFFSET_VALUE_VERSION)
    buffer_i64(b, w.committed_offset)
    buffer_i32(b, w.leader_epoch)
    write_string(b, False, w.metadata, w.metadata_bytes)
    buffer_i64(b, now_ms)
    own_record_end(b)

cdef inline Partition* _target(Table* table, Walk* w) noexcept nogil:
    """Returns the current partition of the request and its topic's name; NULL if it is unknown."""
    cdef int16_t error
    cdef Partition* p
    if not w.by_id:
        return partition_find(table, w.topic, w.topic_bytes, w.index)
    p = partition_find_id(table, w.topic_id, w.index, &error)
    w.topic = <const uint8_t*>topic_name_by_id(table, w.topic_id, &w.topic_bytes)
    return p if w.topic != NULL else NULL

cdef Entry* _build(Core* core, Shard* shard, const Request* r, Walk* w, int32_t partition) noexcept nogil:
    """Writes the batch into the shard's buffer and makes an entry for each row; NULL: it needs
    Python."""
    cdef Buffer* b = &shard.batch
    cdef System* system = table_system(core.table)
    cdef int64_t now_ms = system.wall_ms(system)
    cdef int64_t topics, partitions, i, k
    cdef int32_t count = 0
    cdef Entry* first = NULL
    cdef Entry* last = NULL
    cdef Entry* made
    own_batch_begin(b)
    topics = commit_begin(w, r)
    for i in range(topics):
        partitions = commit_topic(w)
        for k in range(partitions):
            commit_row(w)
            made = NULL
            if _target(core.table, w) != NULL and (
                    _held(core, shard, w.topic, w.topic_bytes, w.index)[0] == 0):
                made = entry_new(w, partition, now_ms)
            if made == NULL:
                entry_free(first)
                return NULL
            if last == NULL:
                first = made
            else:
                last.next = made
            last = made
            _write_record(b, w, count, now_ms)
            count += 1
        commit_tags(w)
    if b.failed:
        entry_free(first)
        buffer_free(b)
        return NULL
    if w.transactional:
        own_batch_end(b, count, now_ms, ATTR_TRANSACTIONAL, w.producer_id, w.producer_epoch)
    else:
        own_batch_end(b, count, now_ms)
    return first

cdef inline void _announce(Core* core, Shard* shard, int64_t count) noexcept nogil:
    atomic_add_i64(&core.entry_count, count)
    entries_announce(&shard.entries, count)

cdef Partition* _append(Core* core, Shard* shard, Group* group, GroupMember* member, const Request* r, Walk* w, int64_t verification, Appended* appended) noexcept nogil:
    """Appends, under the shard's lock and inside an epoch. Returns NULL if it appended nothing."""
    cdef BatchHeader header
    cdef Entry* entry
    cdef Entry* at
    cdef Partition* p = partition_find(core.table, core.topic, core.topic_bytes, group.partition)
    cdef int64_t count = 0
    if p == NULL or partition_error(core.table, p) != ERROR_NONE:
        return NULL
    entry = _build(core, shard, r, w, group.partition)
    if entry == NULL:
        return NULL
    _announce(core, shard, w.rows)
    if batch_header(shard.batch.data, shard.batch.size, &header) != RECORDS_OK or log_append_verified(
            p.log, shard.batch.data, shard.batch.size, &header,
            atomic_load_i32(&p.leader_epoch), verification, appended) != ERROR_NONE:
        _announce(core, shard, -w.rows)
        entry_free(entry)
        return NULL
    at = entry
    while at != NULL:
        at.log_offset = appended.first_offset + count
        count += 1
        if at.next == NULL:
            break
        at = at.next
    entries_add(&shard.entries, entry, at)
    shard.served += 1
    if member != NULL:
        member.heard_ns = r.received_ns
    if shard.batch.capacity > SCRATCH_KEEP_BYTES:
        buffer_free(&shard.batch)
    return p


# -------------------------------------------------------------------------------- transactions

cdef bint _targets_are_known(Core* core, const Request* r) noexcept nogil:
    cdef Walk w
    cdef int64_t topics = commit_begin(&w, r), partitions, i, k
    for i in range(topics):
        partitions = commit_topic(&w)
        for k in range(partitions):
            commit_row(&w)
            if _target(core.table, &w) == NULL:
                return False
        commit_tags(&w)
    return True

cdef Partition* _joins(Core* core, const Request* r, const Walk* w, int64_t* verification) noexcept nogil:
    """Adds the group's partition to the transaction, if the client does not; inside an epoch and
    without a shard's lock. If it returns a partition, the caller must end `verification` in its
    log."""
    cdef BatchHeader h
    cdef Partition* p
    verification[0] = UNVERIFIED
    if not w.transactional or w.version < TXN_VERSION_ADDS or core.transactions == NULL:
        return NULL
    p = transaction_offsets_of(core.transactions, w.group, w.group_bytes)
    h.producer_id, h.producer_epoch = w.producer_id, w.producer_epoch
    if p == NULL or log_knows_transaction(p.log, &h) or not _targets_are_known(core, r):
        return NULL
    verification[0] = log_begin_verification(p.log, w.producer_id, False)
    if verification[0] != UNVERIFIED and transaction_adds(
            core.transactions, w.transactional_id, w.transactional_id_bytes, w.producer_id,
            w.producer_epoch, &p, verification, 1):
        return p
    log_end_verification(p.log, verification[0])
    verification[0] = UNVERIFIED
    return NULL


# -------------------------------------------------------------------------------- the answer

cdef int _answer(Request* r, Response* out, int16_t code) noexcept nogil:
    cdef Walk w
    cdef Buffer* b = &out.bytes
    cdef int64_t topics, partitions, i, k
    topics = commit_begin(&w, r)
    response_begin(out, r.correlation_id, w.flexible)
    if w.transactional or w.version >= VERSION_THROTTLE:
        buffer_i32(b, 0)
    write_count(b, w.flexible, topics)
    for i in range(topics):
        partitions = commit_topic(&w)
        if w.by_id:
            buffer_bytes(b, w.topic_id, 16)
        else:
            write_string(b, w.flexible, w.topic, w.topic_bytes)
        write_count(b, w.flexible, partitions)
        for k in range(partitions):
            commit_row(&w)
            buffer_i32(b, w.index)
            buffer_i16(b, code)
            write_no_tags(b, w.flexible)
            request_error(r, code)
        commit_tags(&w)
        write_no_tags(b, w.flexible)
    write_no_tags(b, w.flexible)
    if b.failed:
        return HANDLER_CLOSE
    response_end(out)
    return HANDLER_DONE

cdef void _drop(Core* core, DurableWait* wait) noexcept nogil:
    if wait != NULL:
        durable_wait_end(core.table, wait)
        free(wait)

cdef int _settle(Core* core, Request* r, Response* out, Parked* parked, DurableWait* wait, bint expired) noexcept nogil:
    """Answers if the commit is durable or has failed, else it waits. Takes over `wait`."""
    cdef int16_t code
    if durable_wait_lasts(core.table, wait, expired, &code):
        return handler_parks(parked, wait, r.received_ns + core.timeout_ns)
    _drop(core, wait)
    return _answer(r, out, code)


# -------------------------------------------------------------------------------- the handler

cdef DurableWait* _wait(const Request* r, const Partition* p, int64_t required) noexcept nogil:
    cdef DurableWait* wait = <DurableWait*>calloc(1, sizeof(DurableWait))
    if wait != NULL:
        durable_wait_by(wait, r)
        durable_wait_on(wait, p, required, ANY_EPOCH)
    return wait

cdef bint _has_capacity(Core* core, Shard* shard, int64_t rows) noexcept nogil:
    """Frees space for entries, under the shard's lock and inside an epoch. Groups commit the same
    keys repeatedly, so the handler drops older entries, and Python need not take them."""
    if shard.entries.count + rows > ENTRIES_MAX:
        atomic_add_i64(&core.entry_count, -entries_thin(
            &shard.entries, core.table, core.topic, core.topic_bytes))
    return shard.entries.count + rows <= ENTRIES_MAX

cdef int _handle(void* context, Request* r, Response* out, Parked* parked) noexcept nogil:
    cdef Core* core = <Core*>context
    cdef Walk w
    cdef Appended appended
    cdef Shard* shard
    cdef Group* group
    cdef GroupMember* member
    cdef DurableWait* wait = NULL
    cdef Partition* p = NULL
    cdef Partition* joined
    cdef int64_t hashed, verification
    cdef bint visible = False
    cdef int slot
    if not commit_is_plain(&w, r, core.metadata_bytes_max):
        return HANDLER_PYTHON
    hashed = _hash(core, w.group, w.group_bytes)
    shard = _shard(core, hashed)
    slot = epoch_enter(table_epochs(core.table))
    joined = _joins(core, r, &w, &verification)
    pthread_mutex_lock(&shard.groups.lock)
    group = _accepting(core, hashed, &w, &member)
    if group != NULL and _has_capacity(core, shard, w.rows):
        p = _append(core, shard, group, member, r, &w, verification, &appended)
    pthread_mutex_unlock(&shard.groups.lock)
    if joined != NULL:
        log_end_verification(joined.log, verification)
    if p != NULL:
        partition_appended(core.table, p, True)
        visible = partition_high_watermark(p) > appended.last_offset
        if not visible:
            wait = _wait(r, p, appended.last_offset + 1)
    epoch_leave(table_epochs(core.table), slot)
    if p == NULL:
        return HANDLER_PYTHON
    if visible:
        return _answer(r, out, ERROR_NONE)
    if wait == NULL:
        return HANDLER_CLOSE        # no memory for the wait: whether the commit is durable is unknown
    return _settle(core, r, out, parked, wait, False)

cdef int _resume(void* context, Request* r, Response* out, Parked* parked, bint expired) noexcept nogil:
    cdef DurableWait* wait = <DurableWait*>parked.state
    parked.state = NULL
    return _settle(<Core*>context, r, out, parked, wait, expired)

cdef void _abandon(void* context, Parked* parked) noexcept nogil:
    _drop(<Core*>context, <DurableWait*>parked.state)
    parked.state = NULL


# -------------------------------------------------------------------------------- Python's side

cdef void _forget(Core* core, Shard* shard, int32_t partition) noexcept nogil:
    """Drops the groups and the entries of one partition, under the shard's lock."""
    atomic_add_i64(&core.entry_count, -entries_forget(&shard.entries, partition))
    groups_forget(core.groups, shard.groups, partition)


cdef void _lock_all(Core* core) noexcept nogil:
    cdef int i
    pthread_mutex_lock(&core.ended.lock)
    for i in range(GROUP_SHARDS):
        pthread_mutex_lock(&core.shards[i].groups.lock)

cdef void _unlock_all(Core* core) noexcept nogil:
    cdef int i
    for i in range(GROUP_SHARDS):
        pthread_mutex_unlock(&core.shards[i].groups.lock)
    pthread_mutex_unlock(&core.ended.lock)

cdef Entry* _take_some(Core* core, Entries* entries, Entry* before) noexcept nogil:
    """Takes the durable entries, followed by `before`."""
    cdef int64_t taken = 0
    cdef Entry* first
    if entries.first == NULL:
        return before
    first = entries_take(entries, core.table, core.topic, core.topic_bytes, &taken, before)
    if entries != &core.ended.entries:
        atomic_add_i64(&core.entry_count, -taken)
    return first

cdef Entry* _take(Core* core) noexcept nogil:
    """Takes the entries of all shards at one moment. It takes markers first: when a marker is
    durable, the commits before it in its log are durable too."""
    cdef int slot = epoch_enter(table_epochs(core.table))
    cdef Entry* first
    cdef int i
    _lock_all(core)
    first = _take_some(core, &core.ended.entries, NULL)
    for i in range(GROUP_SHARDS):
        first = _take_some(core, &core.shards[i].entries, first)
    _unlock_all(core)
    epoch_leave(table_epochs(core.table), slot)
    return first


def _place_in_log(row):
    return row[0], row[1]


cdef str _text(const uint8_t* p, int32_t n):
    return PyUnicode_DecodeUTF8(<char*>p, n, NULL)


@cython.no_gc_clear         # __dealloc__ needs what it refers to
cdef class OffsetCommitHandler(NativeHandler):
    """The native OffsetCommit handler of one broker. `topic` is the internal topic of commits;
    `groups` is the table of groups;
    `ended` has the transactions that network threads have ended in it; `transactions` is the table
    of transactional ids to which they add partitions."""
    cdef Core* core
    cdef bytes topic
    cdef EndedTransactions ended
    cdef GroupTable groups
    cdef TransactionHandler transactions

    def __cinit__(
        self, table, str topic not None, EndedTransactions ended not None,
        GroupTable groups not None, *, int metadata_bytes_max, int64_t timeout_ms, TransactionHandler transactions=None,
    ):
        cdef int i
        self.topic = topic.encode()
        self.core = <Core*>calloc(1, sizeof(Core))
        if self.core == NULL:
            raise MemoryError
        self.core.table = table_of(table)
        self.ended, self.core.ended = ended, &ended.ended
        self.groups, self.core.groups = groups, groups.groups
        self.transactions = transactions
        self.core.transactions = NULL if transactions is None else transactions.core
        self.core.topic = <const uint8_t*><const char*>self.topic
        self.core.topic_bytes = <int32_t>len(self.topic)
        self.core.metadata_bytes_max = metadata_bytes_max
        self.core.timeout_ns = timeout_ms * 1000000
        for i in range(GROUP_SHARDS):
            self.core.shards[i].groups = &self.core.groups.shards[i]
            buffer_init(&self.core.shards[i].batch)
        self.declare(
            ((KEY_OFFSET_COMMIT, VERSION_FIRST, VERSION_LAST),
             (KEY_TXN_OFFSET_COMMIT, 0, TXN_VERSION_LAST)),
            self.core, _handle, _resume, _abandon)
        self.owner = table

    def __init__(self, table, topic, ended, groups, *, metadata_bytes_max, timeout_ms, transactions=None):
        pass

    def __dealloc__(self):
        cdef Shard* shard
        cdef int i
        if self.core == NULL:
            return
        for i in range(GROUP_SHARDS):
            shard = &self.core.shards[i]
            entry_free(shard.entries.first)
            buffer_free(&shard.batch)
        free(self.core)

    def hold(self, str group_id not None, keys not None) -> None:
        """Sends commits of these (topic, partition) pairs to Python until `release` of the same."""
        self._hold(group_id, keys, 1)

    def release(self, str group_id not None, keys not None) -> None:
        self._hold(group_id, keys, -1)

    cdef int _hold(self, str group_id, keys, int by) except -1:
        cdef bytes group = group_id.encode(), raw
        cdef int64_t group_hash = _hash(self.core, <const uint8_t*><const char*>group, len(group))
        cdef Shard* shard = _shard(self.core, group_hash)
        cdef uint32_t* counter
        cdef int32_t index
        for topic, index in keys:
            raw = topic.encode()
            counter = _held(
                self.core, shard, <const uint8_t*><const char*>raw, <int32_t>len(raw), index)
            with nogil:
                pthread_mutex_lock(&shard.groups.lock)
                counter[0] = counter[0] + by
                pthread_mutex_unlock(&shard.groups.lock)
        return 0

    @property
    def waiting(self) -> int:
        """Returns the number of entries that Python has not taken yet, durable or not."""
        return atomic_load_i64(&self.core.entry_count) + atomic_load_i64(
            &self.core.ended.entries.count)

    @property
    def served(self) -> int:
        """Returns the number of requests that this handler answered."""
        cdef int i
        return sum([self.core.shards[i].served for i in range(GROUP_SHARDS)])

    def take(self) -> list:
        """Takes the durable commits of this handler, in the order of the log. Each is (group,
        topic, partition, offset, leader epoch, metadata, ms, producer id of the transaction that it
        waits for, else -1). Between them, an entry without a group is the end of a transaction:
        ("", "", partition of the log, 1 if committed, -1, "", 0, producer id). Only one thread may
        call it at a time."""
        cdef Entry* first
        cdef Entry* entry
        cdef const uint8_t* at
        found = []
        with nogil:
            first = entry = _take(self.core)
        try:
            while entry != NULL:
                at = <const uint8_t*>(entry + 1)
                found.append((
                    entry.partition, entry.log_offset,
                    (
                        _text(at, entry.group_bytes),
                        _text(at + entry.group_bytes, entry.topic_bytes),
                        entry.index if entry.group_bytes else entry.partition,
                        entry.committed_offset, entry.leader_epoch,
                        _text(at + entry.group_bytes + entry.topic_bytes, entry.metadata_bytes),
                        entry.commit_ms, entry.producer_id,
                    ),
                ))
                entry = entry.next
        finally:
            entry_free(first)
        found.sort(key=_place_in_log)
        return [row for _, _, row in found]

    def has_waiting(self, str group_id not None) -> bool:
        """Returns whether the group has commits that Python has not taken; most are not durable."""
        cdef bytes raw = group_id.encode()
        cdef const uint8_t* group = <const uint8_t*><const char*>raw
        cdef int64_t size = len(raw)
        cdef Shard* shard = _shard(self.core, _hash(self.core, group, size))
        cdef bint found
        with nogil:
            pthread_mutex_lock(&shard.groups.lock)
            found = entries_have(&shard.entries, group, size)
            pthread_mutex_unlock(&shard.groups.lock)
        return found

    def forget(self, int32_t partition) -> None:
        """Drops the groups and entries of the partition, whose groups another node coordinates."""
        cdef int i
        with nogil:
            pthread_mutex_lock(&self.core.ended.lock)
            entries_forget(&self.core.ended.entries, partition)
            pthread_mutex_unlock(&self.core.ended.lock)
            for i in range(GROUP_SHARDS):
                pthread_mutex_lock(&self.core.shards[i].groups.lock)
                _forget(self.core, &self.core.shards[i], partition)
                pthread_mutex_unlock(&self.core.shards[i].groups.lock)
