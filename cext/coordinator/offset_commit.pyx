"""The native handler of OffsetCommit and TxnOffsetCommit: the network thread carries them out.

The handler checks the request, appends it to __consumer_offsets, and answers without the GIL, with
errors too. Python has version 0, whose offsets go to the metadata tree (api/k08), and takes
committed offsets when a shard has ENTRIES_MAX of them; then it gives the request back.

    OffsetCommitRequest   groupId, generation, memberId, instanceId (7+), retention (2-4),
                          [name | topic id from 10, [index, offset, leader epoch (6+),
                          timestamp (1), metadata]]
    TxnOffsetCommitRequest transactionalId, groupId, producerId, epoch, generation, memberId,
                          instanceId (these three 3+), [name | topic id from 6, [index, offset,
                          leader epoch (2+), metadata]]
    record key            int16 1, string group, string topic, int32 partition
    record value          int16 3, int64 offset, int32 leader epoch, string metadata, int64 ms; or,
                          of a commit with a retention time: int16 1, int64 offset, string metadata,
                          int64 ms of the commit, int64 ms of the expiry

Kafka's order of checks: the rights to the transactional id and the group (an error of the whole
request), then those to the topics (cext/network/permissions.pyx). A row whose topic the client may
not read, or whose topic or partition the cluster lacks, has its own error, whatever the coordinator
says; then the state of the group's partition, the transaction, the group
(group_table.pyx), and the size of the metadata. If no row is left, nothing is appended.

Offsets of a transaction (TxnOffsetCommit) are a transactional batch, appended as one of a client:
the log takes it, under its lock, when the producer's transaction is open there or expected
(log_transactions.pyx), so that a marker comes after it. When the log knows no such transaction, the
table of transactional ids is asked (transaction_steps.pyx); from version 5 on it adds the
partition. The request waits while its transactional id is busy, and for the answer of a coordinator
on another broker; then it keeps the verification that it began in the log before the question.

Durability: a commit is answered when the high watermark has passed its record; with log.durability
fsync, or other replicas, the request is parked on a watch of the partition until then. If another
broker has led the partition since, the record may be lost: the answer is NOT_COORDINATOR. One request
is one batch, not compressed. A group's first commit makes the group. A commit of a group on hold
waits for the end of the hold, and both waits together last no longer than offsets.commit.timeout.ms.

Committed offsets wait here for Python, as entries with the offset of their record, and `take`
returns the durable ones in the order of the log. The lock of a shard of groups protects the check,
the append and the entries of its groups. A thread that has seen a durable marker finds all commits
of its transaction, because the handler counts entries before their batch is in the log.

Limits: a batch has at most max.message.bytes of the topic (INVALID_COMMIT_OFFSET_SIZE). A crash
loses no acknowledged commit: entries are only copies of records in the log.
Next on the data path: cext/partition/partitions.pyx; coordinator/groups/offsets.py takes the
entries.
"""
cimport cython
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from barnabas.cext.codec.buffer cimport (
    Buffer, buffer_bytes, buffer_free, buffer_i16, buffer_i32, buffer_i64,
)
from barnabas.cext.codec.error_codes cimport (
    ERROR_CONCURRENT_TRANSACTIONS, ERROR_COORDINATOR_LOAD_IN_PROGRESS,
    ERROR_COORDINATOR_NOT_AVAILABLE, ERROR_INVALID_COMMIT_OFFSET_SIZE, ERROR_INVALID_GROUP_ID,
    ERROR_INVALID_PRODUCER_EPOCH, ERROR_INVALID_TXN_STATE, ERROR_NETWORK_EXCEPTION, ERROR_NONE,
    ERROR_NOT_COORDINATOR, ERROR_OFFSET_METADATA_TOO_LARGE, ERROR_PRODUCER_FENCED,
    ERROR_STALE_MEMBER_EPOCH, ERROR_GROUP_AUTHORIZATION_FAILED, ERROR_ILLEGAL_GENERATION,
    ERROR_TRANSACTION_ABORTABLE, ERROR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ERROR_UNKNOWN_TOPIC_ID, ERROR_UNKNOWN_TOPIC_OR_PARTITION,
)
from barnabas.cext.codec.fields cimport write_count, write_no_tags, write_string
from barnabas.cext.coordinator.commit_entries cimport (
    ENTRIES_MAX, Entries, entries_add, entries_announce, entries_are_durable, entries_forget,
    entries_have, entries_take, entries_thin, Entry, entry_free, entry_new,
)
from barnabas.cext.coordinator.coordinator_batch cimport (
    own_batch_begin, own_batch_end, own_record_begin, own_record_end, own_record_value,
)
from barnabas.cext.coordinator.durable_wait cimport (
    ANY_EPOCH, durable_wait_by, durable_wait_end, durable_wait_lasts, durable_wait_on, DurableWait,
)
from barnabas.cext.coordinator.ended_transactions cimport Ended, EndedTransactions
from barnabas.cext.coordinator.group_table cimport (
    Committer, EARLIER_EPOCH, Group, group_accepts, group_add, group_find, group_free, group_hash,
    group_is_held, GroupMember, group_new, Groups, groups_forget, GroupShard, GroupTable,
    member_has_had, member_refuses_epoch,
)
from barnabas.cext.coordinator.offset_commit_request cimport (
    commit_begin, commit_is_whole, commit_row, commit_tags, commit_topic, KEY_OFFSET_COMMIT,
    KEY_TXN_OFFSET_COMMIT, TXN_VERSION_ADDS, Walk,
)
from barnabas.cext.coordinator.partition_states cimport (
    PartitionState, PartitionStates, states_error, states_partition_of,
)
from barnabas.cext.coordinator.remote_verification cimport Remote, remote_drop
from barnabas.cext.coordinator.shards cimport shard_index, SHARDS
from barnabas.cext.coordinator.transaction_state cimport Asked, AskedRow
from barnabas.cext.coordinator.transaction_steps cimport (
    asked_begin, Steps, transaction_adds, transaction_has, TransactionSteps,
)
from barnabas.cext.coordinator.transactional_ids cimport STEP_SETTLES
from barnabas.cext.log.log cimport Appended, log_append_verified
from barnabas.cext.log.log_transactions cimport (
    log_begin_verification, log_end_verification, log_knows_transaction,
)
from barnabas.cext.memory.atomics cimport atomic_add_i64, atomic_load_i32, atomic_load_i64, atomic_load_pointer
from barnabas.cext.memory.epoch cimport epoch_enter, epoch_leave
from barnabas.cext.memory.mutex cimport pthread_mutex_lock, pthread_mutex_unlock
from barnabas.cext.memory.sys cimport System
from barnabas.cext.network.handler cimport (
    HANDLER_CLOSE, HANDLER_DONE, HANDLER_PYTHON, handler_parks, NativeHandler, Parked, Request,
    request_error, Response, response_begin, response_end,
)
from barnabas.cext.network.permissions cimport (
    OPERATION_READ, OPERATION_WRITE, permission_ask, PERMISSION_ALLOWED, permission_begin,
    PERMISSION_DENIED, PERMISSION_UNKNOWN, RESOURCE_GROUP, RESOURCE_TRANSACTIONAL_ID,
)
from barnabas.cext.network.topic_permission cimport topic_refusal
from barnabas.cext.partition.partitions cimport (
    Partition, partition_again, partition_appended, partition_error, partition_find,
    partition_high_watermark, partition_watch, ProducePolicy, Table, table_epochs, table_of,
    table_system, Topic, topic_has_partition, topic_named, topic_with_id, watch_waits,
)
from barnabas.cext.record.records cimport ATTR_TRANSACTIONAL, batch_header, BatchHeader, RECORDS_OK

cdef enum:
    VERSION_FIRST = 1               # 0 goes to the metadata tree
    VERSION_LAST = 10
    VERSION_THROTTLE = 3
    TXN_VERSION_STALE = 6           # the first one with STALE_MEMBER_EPOCH
    TXN_VERSION_LAST = 6
    TXN_VERSION_ABORTABLE = 4       # clients know TRANSACTION_ABORTABLE
    NS_PER_MS = 1000000
    UNVERIFIED = 0                  # no verification: the log knows the transaction or refuses the batch
    NEVER = -1                      # the commit has no expiry time
    SCRATCH_KEEP_BYTES = 65536
    OFFSET_KEY_VERSION = 1
    OFFSET_VALUE_VERSION = 3
    OFFSET_VALUE_VERSION_WITH_EXPIRY = 1

cdef enum Outcome:                  # of a commit
    REFUSED = 0                     # `code` says why; ERROR_NONE: no row remained
    APPENDED = 1
    HELD = 2                        # it waits for the end of a hold, or for its transactional id
    ASKS_PYTHON = 3
    FAILED = 4                      # no memory

cdef struct Core:
    Table* table
    Steps* transactions
    Ended* ended
    Groups* groups
    PartitionState* states
    int64_t entry_count             # atomic: of all shards
    int64_t timeout_ns
    int32_t metadata_bytes_max
    const uint8_t* topic
    int32_t topic_bytes

cdef struct Wait:                   # the state of a waiting request
    DurableWait durable             # first
    bint is_held                    # nothing is appended: the commit is tried again later
    int64_t deadline_ns             # of that wait
    int16_t expired_code            # the error code after the deadline
    uint8_t* codes                  # of each row, none of them negative or above 127; NULL: all 0
    Remote* remote                  # the question to a coordinator on another broker; NULL: none
    int64_t verification            # begun in the log of this partition; 0: none
    uint8_t topic_id[16]
    int32_t index
    uint64_t generation

cdef struct Commit:                 # one attempt to carry out a request
    Walk w
    const Request* request
    int64_t hashed                  # of the group
    int64_t verification
    int64_t now_ms
    Partition* p                    # of __consumer_offsets; inside the epoch
    Appended appended
    int32_t leader_epoch            # of the append
    int16_t code                    # the error of rows without their own error
    uint8_t* codes                  # as in Wait
    Entry* first                    # copies of the records
    Entry* last
    int32_t count
    Wait* wait
    Wait* joining                   # the wait for the transactional id; it has the verification


# -------------------------------------------------------------------------------- the rows

cdef inline int16_t _refusal(const Commit* c, int64_t at) noexcept nogil:
    """Returns the error code with which a row is refused; 0: none."""
    return ERROR_NONE if c.codes == NULL else c.codes[at]

cdef inline int16_t _topic_error(Table* table, Walk* w, Topic** topic) noexcept nogil:
    """Finds the topic of the current row, inside an epoch, and writes its name into `w`."""
    if w.topic_id == NULL:
        topic[0] = topic_named(table, w.topic, w.topic_bytes)
    else:
        topic[0] = topic_with_id(table, w.topic_id)
        if topic[0] == NULL:
            return ERROR_UNKNOWN_TOPIC_ID
        w.topic, w.topic_bytes = <const uint8_t*>topic[0].name, topic[0].name_bytes
    if topic[0] == NULL or not topic_has_partition(topic[0], w.index):
        return ERROR_UNKNOWN_TOPIC_OR_PARTITION
    return ERROR_NONE

cdef inline int16_t _row_error(Core* core, Walk* w, Topic** topic) noexcept nogil:
    cdef int16_t code = _topic_error(core.table, w, topic)
    if code == ERROR_NONE and w.metadata_bytes > core.metadata_bytes_max:
        return ERROR_OFFSET_METADATA_TOO_LARGE
    return code

cdef bint _has_topic(Core* core, const Commit* c) noexcept nogil:
    """Returns whether the cluster has the partition of any row; inside an epoch."""
    cdef Walk w
    cdef Topic* topic
    cdef int64_t topics, partitions, i, k
    if c.codes != NULL:                     # _check_rights has looked at them
        return True
    topics = commit_begin(&w, c.request)
    for i in range(topics):
        partitions = commit_topic(&w)
        for k in range(partitions):
            commit_row(&w)
            if _topic_error(core.table, &w, &topic) == ERROR_NONE:
                return True
        commit_tags(&w)
    return False

cdef bint _has_had_all(Core* core, const Commit* c, const GroupMember* member) noexcept nogil:
    """Returns whether the member has had the partition of each row since the request's epoch."""
    cdef Walk w
    cdef Topic* topic
    cdef int64_t topics = commit_begin(&w, c.request), partitions, i, k, at = 0
    for i in range(topics):
        partitions = commit_topic(&w)
        for k in range(partitions):
            commit_row(&w)
            if _refusal(c, at) == ERROR_NONE and _row_error(core, &w, &topic) == ERROR_NONE and (
                    not member_has_had(member, topic.id, w.index, w.generation)):
                return False
            at += 1
        commit_tags(&w)
    return True


# -------------------------------------------------------------------------------- rights

cdef int _group_right(Commit* c, Request* r, int16_t* code) noexcept nogil:
    """Asks for the rights that the whole request needs, and sets `code` to the error when one is
    denied. As in Kafka, it asks for the right to the group only if the client has the right to the
    transactional id."""
    cdef int answer = PERMISSION_ALLOWED
    code[0] = ERROR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if c.w.transactional:
        answer = permission_ask(
            r, OPERATION_WRITE, RESOURCE_TRANSACTIONAL_ID, c.w.transactional_id,
            c.w.transactional_id_bytes)
    if answer != PERMISSION_ALLOWED:
        return answer
    code[0] = ERROR_GROUP_AUTHORIZATION_FAILED
    return permission_ask(r, OPERATION_READ, RESOURCE_GROUP, c.w.group, c.w.group_bytes)

cdef bint _refuse_rows(Core* core, Commit* c, Request* r, int64_t* left, int* worst) noexcept nogil:
    """Refuses the rows of topics that the client may not read; call it inside an epoch. If it
    refuses any, it also refuses rows of topics and partitions that the cluster does not have, so
    that c.codes shows which rows are left. Returns False without memory."""
    cdef Topic* topic
    cdef int64_t topics = commit_begin(&c.w, r), partitions, i, k, at = 0
    cdef int16_t refusal, code
    cdef bint refused = False
    left[0] = 0
    for i in range(topics):
        partitions = commit_topic(&c.w)
        refusal = topic_refusal(
            r, OPERATION_READ, core.table, c.w.by_id, c.w.topic_id, c.w.topic, c.w.topic_bytes, worst)
        refused |= refusal != ERROR_NONE
        for k in range(partitions):
            commit_row(&c.w)
            code = refusal
            if code == ERROR_NONE:
                code = _topic_error(core.table, &c.w, &topic)
            if code == ERROR_NONE:
                left[0] += 1
            elif not _refuse_row(c, at, code):
                return False
            at += 1
        commit_tags(&c.w)
    if not refused:                         # the coordinator's errors come first, as without rules
        free(c.codes)
        c.codes = NULL
    return True

cdef int _check_rights(Core* core, Commit* c, Request* r) noexcept nogil:
    """Returns the next step: APPENDED: continue with the rows that c.codes does not refuse;
    REFUSED: no row is left; ASKS_PYTHON: Python decides on rights; FAILED: no memory."""
    cdef int64_t left = 0
    cdef int worst, slot
    cdef int16_t code
    cdef bint has_memory
    permission_begin(r)
    worst = _group_right(c, r, &code)
    if worst == PERMISSION_DENIED:
        if not _refuse_row(c, 0, code):
            return FAILED
        memset(c.codes, code, c.w.rows)     # the answer does not show whether a topic exists
        return REFUSED
    slot = epoch_enter(table_epochs(core.table))
    has_memory = _refuse_rows(core, c, r, &left, &worst)
    epoch_leave(table_epochs(core.table), slot)
    if not has_memory:
        return FAILED
    if worst == PERMISSION_UNKNOWN:
        return ASKS_PYTHON
    return APPENDED if left or c.codes == NULL else REFUSED


# -------------------------------------------------------------------------------- the group

cdef inline GroupShard* _shard(Core* core, int64_t hashed) noexcept nogil:
    """`hashed`: of the group."""
    return &core.groups.shards[shard_index(hashed)]

cdef int16_t _check_group(Core* core, const Commit* c, const Group* group, GroupMember** member) noexcept nogil:
    """Returns 0 if the group accepts the commit, otherwise the error code. The caller holds the
    shard's lock and is inside an epoch."""
    cdef const Walk* w = &c.w
    cdef Committer asks
    cdef int16_t code
    asks.member, asks.member_bytes = w.member, w.member_bytes
    asks.instance, asks.instance_bytes = w.instance, w.instance_bytes
    asks.epoch, asks.version, asks.transactional = w.generation, w.version, w.transactional
    code = group_accepts(core.groups, group, &asks, member)
    if code == EARLIER_EPOCH:
        code = ERROR_NONE if _has_had_all(core, c, member[0]) else (
            member_refuses_epoch(member[0]))
    if w.transactional and w.version < TXN_VERSION_STALE and code == ERROR_STALE_MEMBER_EPOCH:
        return ERROR_ILLEGAL_GENERATION         # the error that these producers know
    return code


# -------------------------------------------------------------------------------- the batch

cdef void _write_record(Buffer* b, const Walk* w, int32_t delta, int64_t commit_ms, int64_t expire_ms) noexcept nogil:
    cdef int32_t key_bytes = 2 + 2 + w.group_bytes + 2 + w.topic_bytes + 4
    cdef int32_t value_bytes = 2 + 8 + (4 if expire_ms == NEVER else 8) + 2 + w.metadata_bytes + 8
    own_record_begin(b, delta, key_bytes, value_bytes)
    buffer_i16(b, OFFSET_KEY_VERSION)
    write_string(b, False, w.group, w.group_bytes)
    write_string(b, False, w.topic, w.topic_bytes)
    buffer_i32(b, w.index)
    own_record_value(b, value_bytes)
    buffer_i16(b, OFFSET_VALUE_VERSION if expire_ms == NEVER else OFFSET_VALUE_VERSION_WITH_EXPIRY)
    buffer_i64(b, w.committed_offset)
    if expire_ms == NEVER:
        buffer_i32(b, w.leader_epoch)
    write_string(b, False, w.metadata, w.metadata_bytes)
    buffer_i64(b, commit_ms)
    if expire_ms != NEVER:
        buffer_i64(b, expire_ms)
    own_record_end(b)

cdef bint _add_row(Commit* c, Buffer* b) noexcept nogil:
    """Writes the record of the current row, and makes its entry. False: no memory."""
    cdef int64_t commit_ms = c.w.commit_ms if c.w.commit_ms >= 0 else c.now_ms
    cdef int64_t expire_ms = NEVER
    cdef Entry* made
    if c.w.retention_ms >= 0:
        expire_ms = commit_ms + min(c.w.retention_ms, INT64_MAX - commit_ms)
    made = entry_new(&c.w, c.p.index, commit_ms, expire_ms)
    if made == NULL:
        return False
    if c.last == NULL:
        c.first = made
    else:
        c.last.next = made
    c.last = made
    _write_record(b, &c.w, c.count, commit_ms, expire_ms)
    c.count += 1
    return not b.failed

cdef inline bint _refuse_row(Commit* c, int64_t at, int16_t code) noexcept nogil:
    """False: no memory."""
    if c.codes == NULL:
        c.codes = <uint8_t*>calloc(c.w.rows, 1)
        if c.codes == NULL:
            return False
    c.codes[at] = <uint8_t>code
    return True

cdef int16_t _build(Core* core, Commit* c, Buffer* b) noexcept nogil:
    """Writes the batch of the rows that are accepted, and makes their entries. Returns 0, or the
    error of the whole request; -1: no memory."""
    cdef const ProducePolicy* policy = <const ProducePolicy*>atomic_load_pointer(
        <void**>&c.p.policy)
    cdef System* system = table_system(core.table)
    cdef Topic* topic
    cdef int64_t topics, partitions, i, k, at = 0
    cdef int16_t code
    c.now_ms = system.wall_ms(system)
    own_batch_begin(b)
    topics = commit_begin(&c.w, c.request)
    for i in range(topics):
        partitions = commit_topic(&c.w)
        for k in range(partitions):
            commit_row(&c.w)
            code = _refusal(c, at)
            if code == ERROR_NONE:
                code = _row_error(core, &c.w, &topic)
            if not (_add_row(c, b) if code == ERROR_NONE else _refuse_row(c, at, code)):
                return -1
            if b.size > policy.message_bytes_max:
                return ERROR_INVALID_COMMIT_OFFSET_SIZE
            at += 1
        commit_tags(&c.w)
    if b.failed:
        return -1
    if c.w.transactional:
        own_batch_end(
            b, c.count, c.now_ms, ATTR_TRANSACTIONAL, c.w.producer_id, c.w.producer_epoch)
    else:
        own_batch_end(b, c.count, c.now_ms)
    return ERROR_NONE


# -------------------------------------------------------------------------------- the append

cdef inline void _announce(Core* core, GroupShard* shard, int64_t count) noexcept nogil:
    atomic_add_i64(&core.entry_count, count)
    entries_announce(&shard.entries, count)

cdef int16_t _append_batch(Core* core, GroupShard* shard, Commit* c) noexcept nogil:
    """Returns 0 or Kafka's error code, as the log says it."""
    cdef BatchHeader header
    cdef int16_t code
    cdef Entry* at = c.first
    cdef int64_t offset
    c.leader_epoch = atomic_load_i32(&c.p.leader_epoch)
    _announce(core, shard, c.count)
    if batch_header(shard.own.batch.data, shard.own.batch.size, &header) != RECORDS_OK:
        code = ERROR_NOT_COORDINATOR
    else:
        code = <int16_t>log_append_verified(
            c.p.log, shard.own.batch.data, shard.own.batch.size, &header,
            c.leader_epoch, c.verification, &c.appended)
    if code != ERROR_NONE:
        _announce(core, shard, -c.count)
        return code
    offset = c.appended.first_offset
    while at != NULL:
        at.log_offset = offset
        offset += 1
        at = at.next
    entries_add(&shard.entries, c.first, c.last)
    c.first = NULL
    return ERROR_NONE

cdef int _refused_by_log(Commit* c, int16_t code) noexcept nogil:
    if c.w.transactional and code == ERROR_INVALID_TXN_STATE:
        return ASKS_PYTHON              # a marker came first: the coordinator decides on the error
    if not c.w.transactional or code != ERROR_INVALID_PRODUCER_EPOCH:
        code = ERROR_NOT_COORDINATOR
    c.code = code
    return REFUSED

cdef int _append(Core* core, GroupShard* shard, Commit* c, Group* group) noexcept nogil:
    """Appends the rows, and makes the group if it is NULL."""
    cdef Group* made = NULL
    cdef int16_t code = _build(core, c, &shard.own.batch)
    if code < 0:
        return FAILED
    if code != ERROR_NONE or c.count == 0:
        c.code = code
        return REFUSED
    if group == NULL:
        made = group_new(core.groups, c.w.group, c.w.group_bytes, c.p.index)
        if made == NULL or not group_add(core.groups, made):
            group_free(made)
            return FAILED
    code = _append_batch(core, shard, c)
    if code != ERROR_NONE:
        return _refused_by_log(c, code)
    shard.served += 1
    return APPENDED

cdef bint _makes_way(Core* core, GroupShard* shard) noexcept nogil:
    """Returns False if Python has entries to take. Groups commit the same keys repeatedly, so the
    handler drops older entries, and Python need not take them."""
    if shard.entries.count >= ENTRIES_MAX:
        atomic_add_i64(&core.entry_count, -entries_thin(
            &shard.entries, core.table, core.topic, core.topic_bytes))
    return shard.entries.count < ENTRIES_MAX or not entries_are_durable(
        &shard.entries, core.table, core.topic, core.topic_bytes)

cdef Wait* _wait_for(Core* core, const Commit* c, int64_t required, int32_t leader_epoch) noexcept nogil:
    cdef Wait* wait = <Wait*>calloc(1, sizeof(Wait))
    if wait != NULL:
        durable_wait_by(&wait.durable, c.request)
        durable_wait_on(&wait.durable, c.p, required, leader_epoch)
        wait.codes = c.codes
    return wait

cdef int _hold(Core* core, Commit* c) noexcept nogil:
    """Makes the commit wait for the end of a hold, which fires the partition's watches. The caller
    holds the shard's lock, which the end of the hold takes first."""
    c.wait = _wait_for(core, c, INT64_MAX, ANY_EPOCH)
    if c.wait == NULL:
        return FAILED
    c.wait.is_held = True
    c.wait.deadline_ns = c.request.received_ns + core.timeout_ns
    c.wait.expired_code = ERROR_COORDINATOR_NOT_AVAILABLE
    partition_watch(core.table, c.p, &c.wait.durable.watch)
    return HELD

cdef int _carry_out(Core* core, GroupShard* shard, Commit* c) noexcept nogil:
    """Checks and appends, under the shard's lock and inside an epoch."""
    cdef Group* group = group_find(core.groups, c.hashed, c.w.group, c.w.group_bytes)
    cdef GroupMember* member
    cdef int32_t partition = group.partition if group != NULL else states_partition_of(
        core.states, c.w.group, c.w.group_bytes)
    cdef int outcome
    c.code = states_error(core.states, partition)
    if c.code == ERROR_NONE and c.w.transactional and c.w.group_bytes == 0:
        c.code = ERROR_INVALID_GROUP_ID
    if c.code != ERROR_NONE:
        return REFUSED
    c.p = partition_find(core.table, core.topic, core.topic_bytes, partition)
    if c.p == NULL or partition_error(core.table, c.p) != ERROR_NONE:
        c.code = ERROR_NOT_COORDINATOR
        return REFUSED
    if group_is_held(core.groups, c.hashed):
        return _hold(core, c)
    c.code = _check_group(core, c, group, &member)
    if c.code != ERROR_NONE:
        return REFUSED
    if not _makes_way(core, shard):
        return ASKS_PYTHON
    outcome = _append(core, shard, c, group)
    entry_free(c.first)                     # entries that are not in the log
    if outcome == APPENDED and member != NULL and not c.w.transactional:
        member.heard_ns = c.request.received_ns
    if shard.own.batch.failed or shard.own.batch.capacity > SCRATCH_KEEP_BYTES:
        buffer_free(&shard.own.batch)
    return outcome


# -------------------------------------------------------------------------------- transactions

cdef int16_t _for_client(const Walk* w, int code) noexcept nogil:
    """Returns the transaction coordinator's error as clients of this version can act on it."""
    if code == ERROR_PRODUCER_FENCED:
        return ERROR_INVALID_PRODUCER_EPOCH
    if code == ERROR_TRANSACTION_ABORTABLE and w.version < TXN_VERSION_ABORTABLE:
        return ERROR_INVALID_TXN_STATE
    if code == ERROR_NETWORK_EXCEPTION or (
            code == ERROR_CONCURRENT_TRANSACTIONS and w.version < TXN_VERSION_ADDS):
        return ERROR_COORDINATOR_LOAD_IN_PROGRESS   # clients repeat it without a new FindCoordinator
    return <int16_t>code

cdef int _ask(Core* core, Commit* c, Partition* p) noexcept nogil:
    """Asks the table of transactional ids about the group's partition. Returns 0, Kafka's error
    code, or STEP_SETTLES: c.joining waits for the id."""
    cdef Asked asked
    cdef AskedRow row
    cdef int16_t own = ERROR_NONE
    cdef int code
    asked_begin(
        &asked, c.w.transactional_id, c.w.transactional_id_bytes, c.w.producer_id,
        c.w.producer_epoch)
    row.topic, row.topic_bytes, row.index = core.topic, core.topic_bytes, p.index
    asked.rows, asked.count = &row, 1
    if c.w.version >= TXN_VERSION_ADDS:
        return transaction_adds(
            core.transactions, &asked, &p, &c.verification, &c.joining.durable, &c.joining.remote)
    code = transaction_has(
        core.transactions, &asked, &own, &c.joining.durable, &c.joining.remote)
    return code if code != ERROR_NONE else own

cdef void _await_id(Core* core, Commit* c) noexcept nogil:
    """Sets the deadline of the wait for the transactional id: timeout_ms while it waits for another
    broker or for the flush of the id; otherwise the time that a step of Python may take."""
    c.wait, c.joining = c.joining, NULL
    c.wait.is_held = True
    c.wait.codes = c.codes
    c.wait.expired_code = _for_client(
        &c.w, ERROR_CONCURRENT_TRANSACTIONS if c.wait.remote == NULL else ERROR_NETWORK_EXCEPTION)
    c.wait.deadline_ns = c.request.received_ns + core.timeout_ns
    if c.wait.remote == NULL and not watch_waits(&c.wait.durable.watch):
        c.wait.deadline_ns = c.request.received_ns + NS_PER_MS * atomic_load_i64(
            &core.transactions.retry_max_ms)

cdef Wait* _join(const Commit* c, Partition* p) noexcept nogil:
    """Begins a verification in the log of the group's partition. NULL: no memory."""
    cdef Wait* wait = <Wait*>calloc(1, sizeof(Wait))
    if wait == NULL:
        return NULL
    durable_wait_by(&wait.durable, c.request)
    memcpy(wait.topic_id, p.topic_id, 16)
    wait.index, wait.generation = p.index, p.generation
    wait.verification = log_begin_verification(p.log, c.w.producer_id, False)
    if wait.verification == UNVERIFIED:
        free(wait)
        return NULL
    return wait

cdef inline bint _is_of(const Wait* wait, const Partition* p) noexcept nogil:
    """Returns whether the wait's verification was begun in the log that the partition has now."""
    return wait.index == p.index and wait.generation == p.generation and (
        memcmp(wait.topic_id, p.topic_id, 16) == 0)

cdef int _joins(Core* core, Commit* c) noexcept nogil:
    """Makes sure that the group's partition belongs to the transaction; call it inside an epoch and
    without a shard's lock. Returns APPENDED when the commit may continue."""
    cdef BatchHeader h
    cdef Partition* p
    cdef int32_t partition
    cdef int code
    c.verification = UNVERIFIED
    if not c.w.transactional:
        return APPENDED
    partition = states_partition_of(core.states, c.w.group, c.w.group_bytes)
    if states_error(core.states, partition) != ERROR_NONE or c.w.group_bytes == 0:
        return APPENDED                     # the next check refuses the commit
    p = partition_find(core.table, core.topic, core.topic_bytes, partition)
    if p == NULL or partition_error(core.table, p) != ERROR_NONE or not _has_topic(core, c):
        return APPENDED
    h.producer_id, h.producer_epoch = c.w.producer_id, c.w.producer_epoch
    if core.transactions == NULL or (
            c.w.transactional_id_bytes > 0 and log_knows_transaction(p.log, &h)):
        return APPENDED
    if c.joining != NULL and not _is_of(c.joining, p):
        c.code = ERROR_NOT_COORDINATOR      # the partition was removed and added during the wait
        return REFUSED
    if c.joining == NULL:
        c.joining = _join(c, p)
        if c.joining == NULL:
            return FAILED
    c.verification = c.joining.verification
    code = _ask(core, c, p)
    if code == ERROR_NONE:
        return APPENDED
    if code == STEP_SETTLES:
        _await_id(core, c)
        return HELD
    c.code = _for_client(&c.w, code)
    return REFUSED


# -------------------------------------------------------------------------------- the answer

cdef inline int16_t _code_of(Core* core, Walk* w, int16_t code, const uint8_t* codes, int64_t at) noexcept nogil:
    """Returns the error of a row: its own, or `code`. Without errors of rows (`codes` is NULL) this
    checks the topics itself."""
    cdef Topic* topic
    cdef Walk row
    cdef int16_t own
    if codes != NULL:
        return codes[at] if codes[at] else code
    if code == ERROR_NONE:
        return ERROR_NONE
    row = w[0]                              # the response repeats the topic as the request names it
    own = _topic_error(core.table, &row, &topic)
    return own if own != ERROR_NONE else code

cdef int _answer(Core* core, Request* r, Response* out, int16_t code, const uint8_t* codes) noexcept nogil:
    cdef Walk w
    cdef Buffer* b = &out.bytes
    cdef int64_t topics, partitions, i, k, at = 0
    cdef int16_t own
    cdef bint looks_at_topics = code != ERROR_NONE and codes == NULL
    cdef int slot = epoch_enter(table_epochs(core.table)) if looks_at_topics else 0
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
            own = _code_of(core, &w, code, codes, at)
            at += 1
            buffer_i32(b, w.index)
            buffer_i16(b, own)
            write_no_tags(b, w.flexible)
            request_error(r, own)
        commit_tags(&w)
        write_no_tags(b, w.flexible)
    write_no_tags(b, w.flexible)
    if looks_at_topics:
        epoch_leave(table_epochs(core.table), slot)
    if b.failed:
        return HANDLER_CLOSE
    response_end(out)
    return HANDLER_DONE

cdef void _end_verification(Core* core, const Wait* wait) noexcept nogil:
    cdef int slot = epoch_enter(table_epochs(core.table))
    cdef Partition* p = partition_again(core.table, wait.topic_id, wait.index, wait.generation)
    if p != NULL and p.log != NULL:
        log_end_verification(p.log, wait.verification)
    epoch_leave(table_epochs(core.table), slot)

cdef void _drop(Core* core, Wait* wait) noexcept nogil:
    """Frees a wait and ends what it holds. Call it outside an epoch."""
    if wait != NULL:
        durable_wait_end(core.table, &wait.durable)
        remote_drop(wait.remote)
        if wait.verification != UNVERIFIED:
            _end_verification(core, wait)
        free(wait.codes)
        free(wait)

cdef int _settle(Core* core, Request* r, Response* out, Parked* parked, Wait* wait, bint expired) noexcept nogil:
    """Answers a commit that is durable or has failed; otherwise lets it wait. Takes over `wait`."""
    cdef int16_t code
    cdef int outcome
    if durable_wait_lasts(core.table, &wait.durable, expired, &code):
        return handler_parks(parked, wait, r.received_ns + core.timeout_ns)
    outcome = _answer(core, r, out, code, wait.codes)
    _drop(core, wait)
    return outcome


# -------------------------------------------------------------------------------- the handler

cdef int _attempt(Core* core, Commit* c) noexcept nogil:
    """Carries out the request, inside an epoch."""
    cdef GroupShard* shard = _shard(core, c.hashed)
    cdef int outcome = _joins(core, c)
    if outcome != APPENDED:
        return outcome
    pthread_mutex_lock(&shard.own.lock)
    outcome = _carry_out(core, shard, c)
    pthread_mutex_unlock(&shard.own.lock)
    if outcome == APPENDED:
        partition_appended(core.table, c.p, True)
        if partition_high_watermark(c.p) <= c.appended.last_offset:
            c.wait = _wait_for(core, c, c.appended.last_offset + 1, c.leader_epoch)
            if c.wait == NULL:
                return FAILED           # it is unknown whether the commit is durable
    return outcome

cdef int _begin(Core* core, Request* r, Response* out, Parked* parked, Wait* joining) noexcept nogil:
    """Carries a request out from its beginning. `joining`: the wait of an earlier attempt, with its
    question to another broker; NULL: none. Takes it over."""
    cdef Commit c
    cdef int outcome, slot
    c.request = r
    c.codes, c.first, c.last, c.wait, c.joining = NULL, NULL, NULL, NULL, joining
    c.code, c.count = ERROR_NONE, 0
    if not commit_is_whole(&c.w, r):
        return HANDLER_CLOSE
    if c.w.rows == 0:
        return _answer(core, r, out, ERROR_NONE, NULL)
    c.hashed = group_hash(core.groups, c.w.group, c.w.group_bytes)
    outcome = APPENDED if r.permissions == NULL else _check_rights(core, &c, r)
    if outcome == APPENDED:
        slot = epoch_enter(table_epochs(core.table))
        outcome = _attempt(core, &c)
        epoch_leave(table_epochs(core.table), slot)
    _drop(core, c.joining)
    if outcome == HELD:
        return handler_parks(parked, c.wait, c.wait.deadline_ns, unfinished=True)
    if outcome == APPENDED and c.wait != NULL:
        return _settle(core, r, out, parked, c.wait, False)
    if outcome == APPENDED or outcome == REFUSED:
        outcome = _answer(core, r, out, c.code, c.codes)
    else:
        outcome = HANDLER_PYTHON if outcome == ASKS_PYTHON else HANDLER_CLOSE
    free(c.codes)
    return outcome

cdef int _handle(void* context, Request* r, Response* out, Parked* parked) noexcept nogil:
    return _begin(<Core*>context, r, out, parked, NULL)

cdef int _resume(void* context, Request* r, Response* out, Parked* parked, bint expired) noexcept nogil:
    cdef Core* core = <Core*>context
    cdef Wait* wait = <Wait*>parked.state
    cdef int outcome
    parked.state = NULL
    if not wait.is_held:
        return _settle(core, r, out, parked, wait, expired)
    if expired:
        outcome = _answer(core, r, out, wait.expired_code, wait.codes)
        _drop(core, wait)
        return outcome
    if wait.remote == NULL:
        _drop(core, wait)
        wait = NULL
    else:
        free(wait.codes)
        wait.codes = NULL
    return _begin(core, r, out, parked, wait)   # checks the rights again

cdef void _abandon(void* context, Parked* parked) noexcept nogil:
    _drop(<Core*>context, <Wait*>parked.state)
    parked.state = NULL


# -------------------------------------------------------------------------------- Python's side

cdef void _forget(Core* core, GroupShard* shard, int32_t partition) noexcept nogil:
    """Drops the groups and the entries of one partition, under the shard's lock."""
    atomic_add_i64(&core.entry_count, -entries_forget(&shard.entries, partition))
    groups_forget(core.groups, shard, partition)


cdef void _lock_all(Core* core) noexcept nogil:
    cdef int i
    pthread_mutex_lock(&core.ended.lock)
    for i in range(SHARDS):
        pthread_mutex_lock(&core.groups.shards[i].own.lock)

cdef void _unlock_all(Core* core) noexcept nogil:
    cdef int i
    for i in range(SHARDS):
        pthread_mutex_unlock(&core.groups.shards[i].own.lock)
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
    for i in range(SHARDS):
        first = _take_some(core, &core.groups.shards[i].entries, first)
    _unlock_all(core)
    epoch_leave(table_epochs(core.table), slot)
    return first


def _place_in_log(row):
    return row[0], row[1]


cdef str _text(const uint8_t* p, int32_t n):
    return PyUnicode_DecodeUTF8(<char*>p, n, NULL)


@cython.no_gc_clear         # __dealloc__ needs what it refers to
cdef class OffsetCommitHandler(NativeHandler):
    """The native handler of OffsetCommit and TxnOffsetCommit of one broker. `topic` is the internal
    topic of commits, `states` the states of its partitions; `groups` is the table of groups;
    `ended` has the transactions that network threads have ended in the topic; `transactions` is the
    table of transactional ids to which they add partitions."""
    cdef Core* core
    cdef bytes topic
    cdef EndedTransactions ended
    cdef GroupTable groups
    cdef PartitionStates states
    cdef TransactionSteps transactions

    def __cinit__(
        self, table, str topic not None, PartitionStates states not None,
        EndedTransactions ended not None, GroupTable groups not None, *, int metadata_bytes_max,
        int64_t timeout_ms, TransactionSteps transactions=None,
    ):
        self.topic = topic.encode()
        self.core = <Core*>calloc(1, sizeof(Core))
        if self.core == NULL:
            raise MemoryError
        self.core.table = table_of(table)
        self.states, self.core.states = states, &states.log
        self.ended, self.core.ended = ended, &ended.ended
        self.groups, self.core.groups = groups, groups.groups
        self.transactions = transactions
        self.core.transactions = NULL if transactions is None else &transactions.steps
        self.core.topic = <const uint8_t*><const char*>self.topic
        self.core.topic_bytes = <int32_t>len(self.topic)
        self.core.metadata_bytes_max = metadata_bytes_max
        self.core.timeout_ns = timeout_ms * 1000000
        groups.follow(table, topic)
        self.declare(
            ((KEY_OFFSET_COMMIT, VERSION_FIRST, VERSION_LAST),
             (KEY_TXN_OFFSET_COMMIT, 0, TXN_VERSION_LAST)),
            self.core, _handle, _resume, _abandon)
        self.owner = table

    def __init__(self, table, topic, states, ended, groups, *, metadata_bytes_max, timeout_ms,
                 transactions=None):
        pass

    def __dealloc__(self):
        free(self.core)

    @property
    def waiting(self) -> int:
        """Returns the number of entries that Python has not taken yet, durable or not."""
        return atomic_load_i64(&self.core.entry_count) + atomic_load_i64(
            &self.core.ended.entries.count)

    @property
    def served(self) -> int:
        """Returns the number of requests whose commits this handler appended."""
        cdef int i
        return sum([self.core.groups.shards[i].served for i in range(SHARDS)])

    def take(self) -> list:
        """Takes the durable commits of this handler, in the order of the log. Each is (group,
        topic, partition, offset, leader epoch, metadata, commit time in ms, expiry time in ms or
        -1, producer id of the transaction that it waits for or -1). Between them, an entry without
        a topic is the end of a transaction: ("", "", partition of the log, 1 if committed, -1, "",
        0, 0, producer id). Only one thread may call it at a time."""
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
                        entry.index if entry.topic_bytes else entry.partition,
                        entry.committed_offset, entry.leader_epoch,
                        _text(at + entry.group_bytes + entry.topic_bytes, entry.metadata_bytes),
                        entry.commit_ms, entry.expire_ms, entry.producer_id,
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
        cdef GroupShard* shard = _shard(self.core, group_hash(self.core.groups, group, size))
        cdef bint found
        with nogil:
            pthread_mutex_lock(&shard.own.lock)
            found = entries_have(&shard.entries, group, size)
            pthread_mutex_unlock(&shard.own.lock)
        return found

    def forget(self, int32_t partition) -> None:
        """Drops the groups and entries of the partition, whose groups another node coordinates."""
        cdef int i
        with nogil:
            pthread_mutex_lock(&self.core.ended.lock)
            entries_forget(&self.core.ended.entries, partition)
            pthread_mutex_unlock(&self.core.ended.lock)
            for i in range(SHARDS):
                pthread_mutex_lock(&self.core.groups.shards[i].own.lock)
                _forget(self.core, &self.core.groups.shards[i], partition)
                pthread_mutex_unlock(&self.core.groups.shards[i].own.lock)
