"""The transactional ids of a broker, and native AddPartitionsToTxn, AddOffsetsToTxn and EndTxn.

Every id that this node coordinates is in one table, in shards with a lock each. The native handlers
take a step of an id (begin a transaction, let it grow, end it) under the lock of its shard: records
of __transaction_state, the logs that are to expect the transaction, the markers, the answer. Python
(barnabas.coordinator.transactions.coordinator) takes all other steps: InitProducerId, fencing,
expiry, and errors. It reads an id with `get`, writes the step with `begin`, its journal, and
`finish`. `begin` fails when the id has changed since `get`; between `begin` and `finish` no native
handler touches the id.

A native handler answers when producer id and epoch are those of the id and every partition is led
here and online. Every other request goes to Python whole, with nothing changed.

With log.durability=os a transaction that ends here is complete when its end is answered. If its
markers or its Complete record could not be written, `late` names the id, and Python writes them.
Produce and TxnOffsetCommit of the second version add partitions by `transaction_adds`.

With fsync the step appends its record, keeps the state that follows in `after`, and waits in
purgatory for the flush. The next look at the id makes the state visible (_catch_up), so a closed
connection loses nothing. While the step waits, the id takes no other step. A decided end goes to
Python (SettledIds), which writes the markers. Python also adds partitions for Produce and
TxnOffsetCommit then. After offsets.commit.timeout.ms the answer is COORDINATOR_NOT_AVAILABLE; the
step stays, and counts when the flush has ended after all.

    AddPartitionsToTxnRequest   transactional id, producer id, epoch, [name, [index]]    0 to 3
    AddOffsetsToTxnRequest      transactional id, producer id, epoch, group              0 to 4
    EndTxnRequest               transactional id, producer id, epoch, committed          0 to 5
    answers                     throttle, [name, [index, error]] or error, producer id and epoch
                                (EndTxn 5); flexible from 3
    marker                      key int16 0, int16 0 abort or 1 commit; value int16 0, int32
                                coordinator epoch

From 4 on brokers ask to add partitions, in another form; EndTxn 5 bumps the epoch. A crash loses
nothing that was answered, because the table is a copy of the log; one between the decision and the
Complete record leaves what Python finds when it loads. An id takes some 400 bytes and leaves the
table after transactional.id.expiration.ms.
Next on the data path: cext/coordinator/transaction_state.pyx; for Python's steps
broker/coordinator/transactions/coordinator.py.
"""
cimport cython
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, intptr_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from barnabas.cext.codec.buffer cimport (
    Buffer, buffer_bytes, buffer_free, buffer_i16, buffer_i32, buffer_i64, buffer_init,
)
from barnabas.cext.codec.cursor cimport (
    Cursor, cursor_i16, cursor_i32, cursor_i64, cursor_i8, cursor_left, cursor_of, cursor_take,
)
from barnabas.cext.codec.error_codes cimport ERROR_NONE
from barnabas.cext.codec.fields cimport (
    read_count, read_no_tags, read_string, write_count, write_no_tags, write_string,
)
from barnabas.cext.coordinator.commit_entries cimport Entry, entry_free, entry_marker
from barnabas.cext.coordinator.coordinator_batch cimport (
    own_batch_append, own_batch_begin, own_batch_end, own_record_begin, own_record_end,
    own_record_value,
)
from barnabas.cext.coordinator.durable_wait cimport (
    durable_wait_by, durable_wait_end, durable_wait_lasts, durable_wait_on, DurableWait,
)
from barnabas.cext.coordinator.ended_transactions cimport (
    ended_append, ended_has_capacity, EndedTransactions,
)
from barnabas.cext.coordinator.settled_ids cimport settled_put, SettledIds
from barnabas.cext.coordinator.transaction_state cimport (
    LOADING, rows_add, rows_copy, rows_free, rows_have, STATE_COMPLETE_ABORT,
    STATE_COMPLETE_COMMIT, STATE_ONGOING, STATE_PREPARE_ABORT, STATE_PREPARE_COMMIT, Txn, txn_after,
    txn_free, txn_key, txn_new, txn_takes_part, txn_value, txn_was_left_on, TxnRow, TxnRows,
)
from barnabas.cext.log.log cimport BUMPING_MARKER, TRUSTED
from barnabas.cext.log.log_transactions cimport log_expect_transaction, log_renew_verification
from barnabas.cext.memory.atomics cimport (
    atomic_add_i64, atomic_load_i32, atomic_load_i64, atomic_store_i32,
)
from barnabas.cext.memory.epoch cimport epoch_enter, epoch_leave
from barnabas.cext.memory.int64_map cimport (
    int64_map_free, int64_map_get, int64_map_init, int64_map_put, int64_map_remove,
)
from barnabas.cext.memory.mutex cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)
from barnabas.cext.memory.secret_hash cimport secret_hash, secret_init
from barnabas.cext.memory.sys cimport System
from barnabas.cext.network.handler cimport (
    HANDLER_CLOSE, HANDLER_DONE, HANDLER_PYTHON, handler_parks, Parked, Request, request_error,
    Response, response_begin, response_end,
)
from barnabas.cext.partition.partitions cimport (
    Partition, partition_by_name, partition_high_watermark, table_epochs, table_is_fsync,
    table_of, table_system,
)
from barnabas.cext.record.records cimport ATTR_CONTROL, ATTR_TRANSACTIONAL

cdef enum:
    KEY_ADD_PARTITIONS = 24
    KEY_ADD_OFFSETS = 25
    KEY_END = 26
    ADD_PARTITIONS_LAST = 3
    ADD_OFFSETS_LAST = 4
    END_LAST = 5
    END_BUMPS_FROM = 5
    BUMPS_EPOCH = 2                 # of transaction.version
    EPOCH_MAX = 32767               # Python gives a producer a new id before it
    VERSION_FLEXIBLE = 3
    KEY_HEAD_BYTES = 4              # of a record's key: version, length of the id
    RENEWED_MAX = 3                 # attempts that a marker may overtake before Python takes the step
    MARKER_ABORT = 0
    MARKER_COMMIT = 1
    # The outcome of a step.
    STEP_PYTHON = 0                 # not taken: Python answers the request
    STEP_DONE = 1
    STEP_WAITS = 2                  # the step waits until its record is durable
    # Selections of ids for Python; see _matches.
    EVERY = 0
    PREPARED_IN = 1
    LATE = 2
    UNUSED = 3

cdef struct AskedRow:
    const uint8_t* topic
    int32_t topic_bytes
    int32_t index
    Partition* p                    # valid inside the epoch

cdef struct Asked:                  # a request
    const uint8_t* name
    int32_t name_bytes
    int64_t producer_id
    int16_t producer_epoch
    uint64_t connection_id          # 0: any
    int16_t client_version          # of transaction.version
    AskedRow rows[ADDED_MAX]
    int32_t count
    bint committed                  # of an end

cdef struct WaitingStep:            # a waiting request; the transactional id follows
    DurableWait wait
    int64_t producer_id             # of the answer, as the epoch
    int16_t producer_epoch
    int32_t name_bytes

cdef struct Ending:                 # a partition of a transaction that ends
    Partition* p
    Entry* note                     # for the group coordinator; NULL: a partition of another topic


# -------------------------------------------------------------------------------- ids

cdef inline int64_t _hash(const TransactionCore* core, const uint8_t* p, int64_t n) noexcept nogil:
    return secret_hash(&core.secret, p, n)

cdef inline Shard* _shard(TransactionCore* core, int64_t hashed) noexcept nogil:
    return &core.shards[hashed & (SHARDS - 1)]

cdef inline int64_t _next_step(TransactionCore* core) noexcept nogil:
    return atomic_add_i64(&core.step, 1)

cdef Txn* _find(Shard* shard, int64_t hashed, const uint8_t* name, int32_t name_bytes) noexcept nogil:
    """The caller holds the shard's lock."""
    cdef Txn* txn = <Txn*><intptr_t>int64_map_get(&shard.ids, hashed, 0)
    if txn == NULL or txn.key_bytes - KEY_HEAD_BYTES != name_bytes or (
            memcmp(txn_key(txn) + KEY_HEAD_BYTES, name, name_bytes) != 0):
        return NULL
    return txn


# -------------------------------------------------------------------------------- the request

cdef bint _read_partitions(Cursor* c, Asked* asked, bint flexible) noexcept nogil:
    cdef int32_t topics = read_count(c, flexible)
    cdef int32_t partitions, topic_bytes, i, k
    cdef const uint8_t* topic
    cdef AskedRow* row
    for i in range(topics):
        topic = read_string(c, flexible, False, &topic_bytes)
        partitions = read_count(c, flexible)
        if c.bad or asked.count + partitions > ADDED_MAX:
            return False
        for k in range(partitions):
            row = &asked.rows[asked.count]
            row.topic, row.topic_bytes, row.index = topic, topic_bytes, cursor_i32(c)
            asked.count += 1
        read_no_tags(c, flexible)
    return True

cdef int32_t _java_hash(const uint8_t* p, int32_t n) noexcept nogil:
    """String.hashCode of ASCII text, made positive as Kafka's Utils.abs does; -1: not ASCII."""
    cdef uint32_t found = 0
    cdef int32_t i
    for i in range(n):
        if p[i] >= 0x80:
            return -1
        found = 31 * found + p[i]
    if found >= 0x80000000u:
        found = 0 - found
    return 0 if found == 0x80000000u else <int32_t>found

cdef int32_t _offsets_index(TransactionCore* core, const uint8_t* group, int32_t group_bytes) noexcept nogil:
    """Returns the partition of a group's offsets; -1: Python must decide."""
    cdef int32_t count = atomic_load_i32(&core.offsets_partitions)
    cdef int32_t hashed = _java_hash(group, group_bytes)
    return hashed % count if count > 0 and hashed >= 0 else -1

cdef bint _read_group(TransactionCore* core, Cursor* c, Asked* asked, bint flexible) noexcept nogil:
    cdef int32_t group_bytes
    cdef const uint8_t* group = read_string(c, flexible, False, &group_bytes)
    if c.bad:
        return False
    asked.rows[0].topic, asked.rows[0].topic_bytes = core.offsets_topic, core.offsets_topic_bytes
    asked.rows[0].index = _offsets_index(core, group, group_bytes)
    asked.count = 1
    return asked.rows[0].index >= 0

cdef bint _read(TransactionCore* core, const Request* r, Asked* asked) noexcept nogil:
    cdef Cursor c = cursor_of(r.data + r.body_at, r.size_bytes - r.body_at)
    cdef bint flexible = r.api_version >= VERSION_FLEXIBLE
    asked.name = read_string(&c, flexible, False, &asked.name_bytes)
    asked.producer_id = cursor_i64(&c)
    asked.producer_epoch = cursor_i16(&c)
    asked.connection_id = r.connection_id
    asked.client_version = 0
    asked.count = 0
    if r.api_key == KEY_END:
        if r.api_version >= END_BUMPS_FROM:
            asked.client_version = BUMPS_EPOCH
        asked.committed = cursor_i8(&c) != 0
        read_no_tags(&c, flexible)
        return not c.bad and cursor_left(&c) == 0
    if r.api_key == KEY_ADD_OFFSETS:
        if not _read_group(core, &c, asked, flexible):
            return False
    elif not _read_partitions(&c, asked, flexible):
        return False
    read_no_tags(&c, flexible)
    return not c.bad and cursor_left(&c) == 0 and asked.count > 0

cdef inline Partition* _led(TransactionCore* core, const uint8_t* topic, int32_t topic_bytes, int32_t index) noexcept nogil:
    """Returns, inside an epoch, a partition that is online and led by this node, else NULL."""
    cdef int16_t error
    cdef Partition* p = partition_by_name(core.table, topic, topic_bytes, index, &error)
    return p if p != NULL and error == ERROR_NONE and p.log != NULL else NULL

cdef bint _is_led_here(TransactionCore* core, Asked* asked) noexcept nogil:
    """Finds every partition, inside an epoch."""
    cdef AskedRow* row
    cdef int32_t i
    for i in range(asked.count):
        row = &asked.rows[i]
        row.p = _led(core, row.topic, row.topic_bytes, row.index)
        if row.p == NULL:
            return False
    return True


# -------------------------------------------------------------------------------- adding partitions

cdef inline bint _is_prepared(const Txn* txn) noexcept nogil:
    """Returns whether the end of the id is decided but not complete."""
    return txn.state in (STATE_PREPARE_COMMIT, STATE_PREPARE_ABORT)

cdef inline bint _is_pending(const Txn* txn) noexcept nogil:
    """Returns whether a step is being written, by Python or by a native handler."""
    return txn.token != 0 or txn.after != NULL

cdef inline bint _takes_steps(const Txn* txn) noexcept nogil:
    """Returns whether a native handler may take a step: the partition is loaded, Python writes no
    step, no flush is awaited, and no end waits for its markers."""
    return txn.leader_epoch != LOADING and not _is_pending(txn) and txn.producer_epoch >= 0 and (
        not _is_prepared(txn))

cdef bint _has_all(const Txn* txn, const Asked* asked) noexcept nogil:
    cdef const AskedRow* row
    cdef int32_t i
    if txn.state != STATE_ONGOING:
        return False
    for i in range(asked.count):
        row = &asked.rows[i]
        if not rows_have(&txn.rows, row.topic, row.topic_bytes, row.index):
            return False
    return True

cdef bint _merge(Shard* shard, const Txn* txn, const Asked* asked) noexcept nogil:
    """Makes the rows with the new partitions."""
    cdef const AskedRow* row
    cdef int32_t i
    shard.rows.count = 0
    shard.rows.names.size = 0
    if txn.state == STATE_ONGOING and not rows_copy(&shard.rows, &txn.rows):
        return False
    if shard.rows.count + asked.count > PARTITIONS_MAX:
        return False
    for i in range(asked.count):
        row = &asked.rows[i]
        if not rows_add(&shard.rows, row.topic, row.topic_bytes, row.index):
            return False
    return True

cdef Partition* _journal(TransactionCore* core, const Txn* txn) noexcept nogil:
    """Returns, inside an epoch, the id's partition of __transaction_state; NULL: another node leads
    it, or this one does so in another leader epoch, or it is offline."""
    cdef Partition* p = _led(core, core.topic, core.topic_bytes, txn.partition)
    if p == NULL or atomic_load_i32(&p.leader_epoch) != txn.leader_epoch:
        return NULL
    return p

cdef int _append(TransactionCore* core, Shard* shard, const Txn* txn, int8_t state, const TxnRows* rows, int64_t start_ms, int64_t now_ms, int64_t* required) noexcept nogil:
    """Appends the record of a step. STEP_DONE: it counts. STEP_WAITS: it counts when the high
    watermark has reached `required`. STEP_PYTHON: it is not in the log."""
    cdef int64_t offset
    cdef Buffer* b = &shard.batch
    cdef Partition* p = _journal(core, txn)
    if p == NULL:
        return STEP_PYTHON
    shard.value.size = 0
    txn_value(
        &shard.value, txn, <int16_t>atomic_load_i32(&core.value_version), state, rows, start_ms,
        now_ms)
    own_batch_begin(b)
    own_record_begin(b, 0, txn.key_bytes, <int32_t>shard.value.size)
    buffer_bytes(b, txn_key(txn), txn.key_bytes)
    own_record_value(b, <int32_t>shard.value.size)
    buffer_bytes(b, shard.value.data, shard.value.size)
    own_record_end(b)
    if shard.value.failed or b.failed:
        buffer_free(&shard.value)
        buffer_free(b)
        return STEP_PYTHON
    own_batch_end(b, 1, now_ms)
    if own_batch_append(core.table, p, b, txn.leader_epoch, &offset) != ERROR_NONE:
        return STEP_PYTHON
    required[0] = offset + 1
    return STEP_DONE if partition_high_watermark(p) > offset else STEP_WAITS

cdef int _append_and_wait(TransactionCore* core, Shard* shard, Txn* txn, Txn* after) noexcept nogil:
    """Appends the record of the step to `after`, which it takes over. The state becomes visible
    when the record is durable (_catch_up); no other step begins before that."""
    cdef int outcome
    if after == NULL:
        return STEP_PYTHON
    outcome = _append(
        core, shard, after, after.state, &after.rows, after.start_ms, after.update_ms,
        &txn.required)
    if outcome == STEP_PYTHON:
        txn_free(after)
        return STEP_PYTHON
    txn.after = after
    _catch_up(core, txn)
    return STEP_DONE if txn.after == NULL else STEP_WAITS

cdef int _grow_and_wait(TransactionCore* core, Shard* shard, Txn* txn, const Asked* asked, int64_t now_ms) noexcept nogil:
    """Does what _grow does with log.durability=fsync, where an append counts after a flush."""
    cdef Txn* after
    if not _merge(shard, txn, asked):
        return STEP_PYTHON
    after = txn_after(txn, &shard.rows)
    if after != NULL:
        after.client_version = asked.client_version
        after.start_ms = txn.start_ms if txn.state == STATE_ONGOING else now_ms
        after.state, after.update_ms = STATE_ONGOING, now_ms
        txn_takes_part(txn, asked.connection_id)    # while the state is still the previous one
    return _append_and_wait(core, shard, txn, after)

cdef int _grow(TransactionCore* core, Shard* shard, Txn* txn, const Asked* asked) noexcept nogil:
    """Adds partitions, under the shard's lock and inside an epoch. A caller that lets the broker
    add them has begun a verification, and needs no other."""
    cdef System* system = table_system(core.table)
    cdef int64_t now_ms = system.wall_ms(system)
    cdef int64_t start_ms = txn.start_ms if txn.state == STATE_ONGOING else now_ms
    cdef int64_t required
    cdef TxnRows before = txn.rows
    cdef int16_t version_before = txn.client_version
    cdef int32_t i
    if table_is_fsync(core.table):
        return _grow_and_wait(core, shard, txn, asked, now_ms)
    txn.client_version = asked.client_version
    if not _merge(shard, txn, asked) or _append(
            core, shard, txn, STATE_ONGOING, &shard.rows, start_ms, now_ms,
            &required) != STEP_DONE:
        txn.client_version = version_before
        return STEP_PYTHON
    txn.rows, shard.rows = shard.rows, before
    txn_takes_part(txn, asked.connection_id)
    txn.state, txn.step = STATE_ONGOING, _next_step(core)
    txn.start_ms, txn.update_ms = start_ms, now_ms
    for i in range(asked.count if asked.client_version < BUMPS_EPOCH else 0):
        log_expect_transaction(asked.rows[i].p.log, asked.producer_id, asked.producer_epoch)
    return STEP_DONE

cdef int _add(TransactionCore* core, Shard* shard, Txn* txn, const Asked* asked) noexcept nogil:
    if not _has_all(txn, asked):
        return _grow(core, shard, txn, asked)
    txn_takes_part(txn, asked.connection_id)
    return STEP_DONE


# -------------------------------------------------------------------------------- the end

cdef bint _find_endings(TransactionCore* core, const Txn* txn, bint committed, Ending* endings, int32_t* found) noexcept nogil:
    """Finds every partition, and makes a note for each partition of __consumer_offsets. It sets
    `found` to their number also when it returns False."""
    cdef const TxnRow* row
    cdef const uint8_t* topic
    cdef Ending* at
    cdef int32_t i
    for i in range(txn.rows.count):
        row = &txn.rows.at[i]
        topic = txn.rows.names.data + row.name_at
        at = &endings[i]
        at.note = NULL
        at.p = _led(core, topic, row.name_bytes, row.index)
        if at.p == NULL:
            return False
        if row.name_bytes == core.offsets_topic_bytes and (
                memcmp(topic, core.offsets_topic, row.name_bytes) == 0):
            at.note = entry_marker(row.index, txn.producer_id, committed)
            if at.note == NULL:
                return False
        found[0] = i + 1
    return True

cdef bint _write_markers(TransactionCore* core, Shard* shard, const Txn* txn, bint committed, Ending* endings, int64_t now_ms) noexcept nogil:
    """Writes the markers and takes over the notes. Returns whether all are written."""
    cdef Buffer* b = &shard.batch
    cdef bint all_written = True
    cdef int64_t verification = BUMPING_MARKER if txn.client_version >= BUMPS_EPOCH else TRUSTED
    cdef int64_t offset
    cdef int32_t epoch, i
    own_batch_begin(b)
    own_record_begin(b, 0, 4, 6)
    buffer_i16(b, 0)
    buffer_i16(b, MARKER_COMMIT if committed else MARKER_ABORT)
    own_record_value(b, 6)
    buffer_i16(b, 0)
    buffer_i32(b, txn.leader_epoch)
    own_record_end(b)
    if b.failed:
        buffer_free(b)
        all_written = False
    for i in range(txn.rows.count):
        if not all_written:
            entry_free(endings[i].note)
            continue
        own_batch_end(
            b, 1, now_ms, ATTR_TRANSACTIONAL | ATTR_CONTROL, txn.producer_id, txn.producer_epoch)
        if endings[i].note != NULL:
            all_written = ended_append(
                core.ended, core.table, endings[i].p, b, endings[i].note, verification) == 0
        else:
            epoch = atomic_load_i32(&endings[i].p.leader_epoch)
            all_written = own_batch_append(
                core.table, endings[i].p, b, epoch, &offset, verification) == 0
    return all_written

cdef void _set_prepared(Txn* txn, const Asked* asked) noexcept nogil:
    if asked.client_version >= BUMPS_EPOCH:
        txn.last_epoch = txn.producer_epoch
        txn.producer_epoch += 1
    txn.client_version = asked.client_version
    txn.state = STATE_PREPARE_COMMIT if asked.committed else STATE_PREPARE_ABORT

cdef bint _decide(TransactionCore* core, Shard* shard, Txn* txn, const Asked* asked, int64_t now_ms) noexcept nogil:
    """Writes the Prepare record. Returns False if the id is unchanged."""
    cdef Txn before = txn[0]
    cdef int64_t required
    _set_prepared(txn, asked)
    if _append(
            core, shard, txn, txn.state, &txn.rows, txn.start_ms, now_ms,
            &required) != STEP_DONE:
        txn[0] = before
        return False
    txn.update_ms, txn.step, txn.ordered = now_ms, _next_step(core), False
    return True

cdef inline bint _may_end(const Txn* txn, const Asked* asked) noexcept nogil:
    if txn.state != STATE_ONGOING:
        return False
    if asked.client_version >= BUMPS_EPOCH:
        return txn.producer_epoch < EPOCH_MAX - 1
    return not txn_was_left_on(txn, asked.connection_id)

cdef inline bint _may_write_markers(TransactionCore* core, const Txn* txn) noexcept nogil:
    return core.ended != NULL and ended_has_capacity(core.ended) and txn.rows.count <= PARTITIONS_MAX

cdef int _decide_and_wait(TransactionCore* core, Shard* shard, Txn* txn, Asked* asked) noexcept nogil:
    """Writes the Prepare record. Python writes the markers when it is durable (_catch_up)."""
    cdef System* system = table_system(core.table)
    cdef TxnRows rows
    cdef Txn* after
    cdef int outcome
    memset(&rows, 0, sizeof(TxnRows))
    after = txn_after(txn, &rows) if rows_copy(&rows, &txn.rows) else NULL
    if after == NULL:
        rows_free(&rows)
        return STEP_PYTHON
    _set_prepared(after, asked)
    after.update_ms = system.wall_ms(system)
    outcome = _append_and_wait(core, shard, txn, after)
    if outcome != STEP_PYTHON and asked.client_version >= BUMPS_EPOCH:
        asked.producer_epoch += 1
    return outcome

cdef int _end(TransactionCore* core, Shard* shard, Txn* txn, Asked* asked) noexcept nogil:
    """Ends the transaction, under the shard's lock and inside an epoch. Sets the producer's next
    epoch in `asked`. STEP_PYTHON: Python must end it, or complete it when the id is prepared."""
    cdef System* system = table_system(core.table)
    cdef int64_t now_ms = system.wall_ms(system)
    cdef int64_t required
    cdef bint committed = asked.committed
    cdef Ending endings[PARTITIONS_MAX]
    cdef int32_t found = 0, i
    if not _may_end(txn, asked):
        return STEP_PYTHON
    if table_is_fsync(core.table):
        return _decide_and_wait(core, shard, txn, asked)
    if not _may_write_markers(core, txn):
        return STEP_PYTHON
    if not _find_endings(core, txn, committed, endings, &found) or not _decide(
            core, shard, txn, asked, now_ms):
        for i in range(found):
            entry_free(endings[i].note)
        return STEP_PYTHON
    if not _write_markers(core, shard, txn, committed, endings, now_ms):
        return STEP_PYTHON
    shard.rows.count = 0
    now_ms = system.wall_ms(system)
    if _append(
            core, shard, txn, STATE_COMPLETE_COMMIT if committed else STATE_COMPLETE_ABORT,
            &shard.rows, txn.start_ms, now_ms, &required) != STEP_DONE:
        return STEP_PYTHON
    txn.state = STATE_COMPLETE_COMMIT if committed else STATE_COMPLETE_ABORT
    txn.rows.count, txn.rows.names.size = 0, 0
    txn.update_ms, txn.step = now_ms, _next_step(core)
    asked.producer_epoch = txn.producer_epoch
    return STEP_DONE

cdef int _carry_out(TransactionCore* core, Asked* asked, bint ends, WaitingStep* waiting) noexcept nogil:
    """Takes the step of the request, inside an epoch. STEP_WAITS: `waiting` names the record that
    the step waits for."""
    cdef int64_t hashed = _hash(core, asked.name, asked.name_bytes)
    cdef Shard* shard = _shard(core, hashed)
    cdef Txn* txn
    cdef int outcome = STEP_PYTHON
    pthread_mutex_lock(&shard.lock)
    txn = _find(shard, hashed, asked.name, asked.name_bytes)
    if txn != NULL:
        _catch_up(core, txn)
    if txn != NULL and txn.producer_id == asked.producer_id and (
            txn.producer_epoch == asked.producer_epoch) and _takes_steps(txn):
        if ends:
            outcome = _end(core, shard, txn, asked)
        else:
            outcome = _add(core, shard, txn, asked)
        if outcome == STEP_WAITS:
            _waits_for(waiting, txn, _journal(core, txn))
    pthread_mutex_unlock(&shard.lock)
    return outcome


cdef bint _are_overtaken(Partition** partitions, const int64_t* verifications, int32_t count) noexcept nogil:
    """Returns whether a marker came meanwhile; the verifications then begin again from now."""
    cdef bint overtaken = False
    cdef int32_t i
    for i in range(count):
        if log_renew_verification(partitions[i].log, verifications[i]):
            overtaken = True
    return overtaken


cdef bint transaction_adds(TransactionCore* core, const uint8_t* name, int32_t name_bytes, int64_t producer_id, int16_t producer_epoch, Partition** partitions, const int64_t* verifications, int32_t count) noexcept nogil:
    cdef Asked asked
    cdef AskedRow* row
    cdef int32_t i
    if atomic_load_i64(&core.id_count) == 0 or table_is_fsync(core.table) or (
            count > ADDED_MAX or name_bytes <= 0):
        return False
    asked.name, asked.name_bytes = name, name_bytes
    asked.producer_id, asked.producer_epoch = producer_id, producer_epoch
    asked.connection_id, asked.client_version = 0, BUMPS_EPOCH
    asked.count = count
    for i in range(count):
        row = &asked.rows[i]
        row.p, row.index = partitions[i], partitions[i].index
        row.topic = <const uint8_t*>partitions[i].topic
        row.topic_bytes = partitions[i].topic_bytes
    for i in range(RENEWED_MAX):
        if _carry_out(core, &asked, False, NULL) != STEP_DONE:
            return False
        if not _are_overtaken(partitions, verifications, count):
            return True
    return False


cdef Partition* transaction_offsets_of(TransactionCore* core, const uint8_t* group, int32_t group_bytes) noexcept nogil:
    cdef int32_t index = _offsets_index(core, group, group_bytes)
    if index < 0:
        return NULL
    return _led(core, core.offsets_topic, core.offsets_topic_bytes, index)


# -------------------------------------------------------------------------------- waiting for a
# flush

cdef void _expect_added(TransactionCore* core, const Txn* txn) noexcept nogil:
    """Tells the logs of the partitions that `after` adds to expect the transaction."""
    cdef const Txn* after = txn.after
    cdef const TxnRow* row
    cdef const uint8_t* topic
    cdef Partition* p
    cdef int32_t i
    for i in range(after.rows.count):
        row = &after.rows.at[i]
        topic = after.rows.names.data + row.name_at
        if txn.state == STATE_ONGOING and rows_have(
                &txn.rows, topic, row.name_bytes, row.index):
            continue
        p = _led(core, topic, row.name_bytes, row.index)
        if p != NULL:
            log_expect_transaction(p.log, after.producer_id, after.producer_epoch)

cdef void _catch_up(TransactionCore* core, Txn* txn) noexcept nogil:
    """Makes the step of a native handler visible when its record is durable, under the shard's lock
    and inside an epoch. Drops the step when this node no longer leads the partition (the id is
    loaded again then). Every function that reads an id calls this first."""
    cdef Partition* p
    cdef Txn* after = txn.after
    if after == NULL:
        return
    p = _journal(core, txn)
    if p != NULL:
        if partition_high_watermark(p) < txn.required:
            return
        # The logs expect the transaction before the table has it: no end of it comes first.
        if after.state == STATE_ONGOING and after.client_version < BUMPS_EPOCH:
            _expect_added(core, txn)
        _replace(core, txn, after)
    txn.after = NULL
    txn_free(after)
    if txn.watched or _is_prepared(txn):
        txn.watched = False
        _hand_over(core, txn)

cdef inline void _hand_over(TransactionCore* core, const Txn* txn) noexcept nogil:
    """Queues the id for Python (TransactionCoordinator.step_is_over)."""
    if core.settled != NULL:
        settled_put(core.settled, txn_key(txn) + KEY_HEAD_BYTES, txn.key_bytes - KEY_HEAD_BYTES)

cdef WaitingStep* _waiting_new(TransactionCore* core, const Request* r, const Asked* asked) noexcept nogil:
    cdef WaitingStep* waiting = <WaitingStep*>calloc(1, sizeof(WaitingStep) + asked.name_bytes)
    if waiting == NULL:
        return NULL
    durable_wait_by(&waiting.wait, r)
    waiting.name_bytes = asked.name_bytes
    memcpy(waiting + 1, asked.name, asked.name_bytes)
    return waiting

cdef void _waits_for(WaitingStep* waiting, const Txn* txn, const Partition* p) noexcept nogil:
    if waiting != NULL and p != NULL:
        durable_wait_on(&waiting.wait, p, txn.required, txn.leader_epoch)

cdef void _look(TransactionCore* core, const WaitingStep* waiting) noexcept nogil:
    """Makes the step visible. Python checks again later if its record is not durable yet."""
    cdef const uint8_t* name = <const uint8_t*>(waiting + 1)
    cdef int64_t hashed = _hash(core, name, waiting.name_bytes)
    cdef Shard* shard = _shard(core, hashed)
    cdef int slot = epoch_enter(table_epochs(core.table))
    cdef Txn* txn
    pthread_mutex_lock(&shard.lock)
    txn = _find(shard, hashed, name, waiting.name_bytes)
    if txn != NULL:
        _catch_up(core, txn)
        if txn.after != NULL:
            _hand_over(core, txn)
    pthread_mutex_unlock(&shard.lock)
    epoch_leave(table_epochs(core.table), slot)

cdef void _drop(TransactionCore* core, WaitingStep* waiting) noexcept nogil:
    durable_wait_end(core.table, &waiting.wait)
    free(waiting)

cdef int _settle(TransactionCore* core, Request* r, Response* out, Parked* parked, WaitingStep* waiting, bint expired) noexcept nogil:
    """Answers when the record of the step is durable, or has failed. Takes over `waiting`."""
    cdef int16_t code
    cdef int status
    if durable_wait_lasts(core.table, &waiting.wait, expired, &code):
        return handler_parks(parked, waiting, r.received_ns + core.timeout_ns, unfinished=True)
    _look(core, waiting)
    atomic_add_i64(&core.served, 1)
    status = _answer(r, out, waiting.producer_id, waiting.producer_epoch, code)
    _drop(core, waiting)
    return status


# -------------------------------------------------------------------------------- the handler

cdef void _write_partitions(Buffer* b, Request* r, bint flexible, int16_t code) noexcept nogil:
    """Writes the request's topics again, each partition with the error code."""
    cdef Cursor c = cursor_of(r.data + r.body_at, r.size_bytes - r.body_at)
    cdef int32_t topics, partitions, size_bytes, i, k
    cdef const uint8_t* topic
    read_string(&c, flexible, False, &size_bytes)
    cursor_i64(&c)
    cursor_i16(&c)
    topics = read_count(&c, flexible)
    write_count(b, flexible, topics)
    for i in range(topics):
        topic = read_string(&c, flexible, False, &size_bytes)
        partitions = read_count(&c, flexible)
        write_string(b, flexible, topic, size_bytes)
        write_count(b, flexible, partitions)
        for k in range(partitions):
            buffer_i32(b, cursor_i32(&c))
            buffer_i16(b, code)
            write_no_tags(b, flexible)
            request_error(r, code)
        read_no_tags(&c, flexible)
        write_no_tags(b, flexible)

cdef int _answer(Request* r, Response* out, int64_t producer_id, int16_t producer_epoch, int16_t code) noexcept nogil:
    """`producer_id`, `producer_epoch`: of the producer's next transaction, for EndTxn."""
    cdef Buffer* b = &out.bytes
    cdef bint flexible = r.api_version >= VERSION_FLEXIBLE
    response_begin(out, r.correlation_id, flexible)
    buffer_i32(b, 0)                    # never throttles
    if r.api_key == KEY_ADD_PARTITIONS:
        _write_partitions(b, r, flexible, code)
    else:
        buffer_i16(b, code)
        request_error(r, code)
    if r.api_key == KEY_END and r.api_version >= END_BUMPS_FROM:
        buffer_i64(b, producer_id if code == ERROR_NONE else -1)
        buffer_i16(b, producer_epoch if code == ERROR_NONE else -1)
    write_no_tags(b, flexible)
    if b.failed:
        return HANDLER_CLOSE
    response_end(out)
    return HANDLER_DONE

cdef int _handle(void* context, Request* r, Response* out, Parked* parked) noexcept nogil:
    cdef TransactionCore* core = <TransactionCore*>context
    cdef WaitingStep* waiting = NULL
    cdef Asked asked
    cdef int outcome = STEP_PYTHON
    cdef int slot
    if atomic_load_i64(&core.id_count) == 0 or not _read(core, r, &asked):
        return HANDLER_PYTHON
    if table_is_fsync(core.table):
        if core.settled == NULL:
            return HANDLER_PYTHON
        waiting = _waiting_new(core, r, &asked)     # before the append: then nothing may fail
        if waiting == NULL:
            return HANDLER_PYTHON
    slot = epoch_enter(table_epochs(core.table))
    if _is_led_here(core, &asked):
        outcome = _carry_out(core, &asked, r.api_key == KEY_END, waiting)
    epoch_leave(table_epochs(core.table), slot)
    if outcome == STEP_WAITS:
        waiting.producer_id, waiting.producer_epoch = asked.producer_id, asked.producer_epoch
        return _settle(core, r, out, parked, waiting, False)
    free(waiting)
    if outcome == STEP_PYTHON:
        return HANDLER_PYTHON
    atomic_add_i64(&core.served, 1)
    return _answer(r, out, asked.producer_id, asked.producer_epoch, ERROR_NONE)

cdef int _resume(void* context, Request* r, Response* out, Parked* parked, bint expired) noexcept nogil:
    cdef WaitingStep* waiting = <WaitingStep*>parked.state
    parked.state = NULL
    return _settle(<TransactionCore*>context, r, out, parked, waiting, expired)

cdef void _abandon(void* context, Parked* parked) noexcept nogil:
    cdef WaitingStep* waiting = <WaitingStep*>parked.state
    parked.state = NULL
    _look(<TransactionCore*>context, waiting)
    _drop(<TransactionCore*>context, waiting)


# -------------------------------------------------------------------------------- Python's side

cdef bint _matches(const Txn* txn, int which, int64_t argument) noexcept nogil:
    if which == EVERY:
        return True
    if which == PREPARED_IN:
        return txn.partition == argument and _is_prepared(txn)
    if txn.leader_epoch == LOADING or _is_pending(txn):
        return False
    if which == UNUSED:
        return txn.state != STATE_ONGOING and not _is_prepared(txn) and txn.update_ms <= argument
    if txn.state == STATE_ONGOING:
        return txn.start_ms + txn.timeout_ms < argument
    return _is_prepared(txn) and not txn.ordered

cdef void _add_name(Buffer* b, const Txn* txn) noexcept nogil:
    buffer_i32(b, txn.key_bytes - KEY_HEAD_BYTES)
    buffer_bytes(b, txn_key(txn) + KEY_HEAD_BYTES, txn.key_bytes - KEY_HEAD_BYTES)

cdef void _collect(TransactionCore* core, Buffer* b, int which, int64_t argument, int32_t leader_epoch) noexcept nogil:
    """Returns the names of the ids that match. PREPARED_IN opens every id of the partition."""
    cdef Shard* shard
    cdef Txn* txn
    cdef int64_t k
    cdef int i
    cdef int slot = epoch_enter(table_epochs(core.table))
    for i in range(SHARDS):
        shard = &core.shards[i]
        pthread_mutex_lock(&shard.lock)
        for k in range(shard.ids.capacity):
            if not shard.ids.used[k]:
                continue
            txn = <Txn*><intptr_t>shard.ids.values[k]
            _catch_up(core, txn)
            if which == PREPARED_IN and txn.partition == argument:
                txn.leader_epoch = leader_epoch
            if _matches(txn, which, argument):
                _add_name(b, txn)
        pthread_mutex_unlock(&shard.lock)
    epoch_leave(table_epochs(core.table), slot)

cdef void _forget(TransactionCore* core, Buffer* b, int32_t partition) noexcept nogil:
    cdef Shard* shard
    cdef Txn* txn
    cdef int64_t k
    cdef int i
    for i in range(SHARDS):
        shard = &core.shards[i]
        pthread_mutex_lock(&shard.lock)
        k = 0
        while k < shard.ids.capacity:
            txn = <Txn*><intptr_t>shard.ids.values[k] if shard.ids.used[k] else NULL
            if txn == NULL or txn.partition != partition:
                k += 1
                continue
            _add_name(b, txn)
            int64_map_remove(&shard.ids, txn.hashed)    # another id may move to this place
            atomic_add_i64(&core.id_count, -1)
            txn_free(txn)
        pthread_mutex_unlock(&shard.lock)

cdef void _replace(TransactionCore* core, Txn* txn, Txn* after) noexcept nogil:
    """Moves the transaction out of `after`, which gets the old partitions; under the shard's
    lock."""
    cdef TxnRows before = txn.rows
    txn.rows, after.rows = after.rows, before
    txn.producer_id, txn.producer_epoch = after.producer_id, after.producer_epoch
    txn.previous_producer_id = after.previous_producer_id
    txn.next_producer_id = after.next_producer_id
    txn.timeout_ms, txn.state = after.timeout_ms, after.state
    txn.start_ms, txn.update_ms = after.start_ms, after.update_ms
    txn.last_epoch, txn.client_version = after.last_epoch, after.client_version
    txn.ordered = False
    txn.step = _next_step(core)

cdef list _names(Buffer* b):
    cdef Cursor c = cursor_of(b.data, b.size)
    cdef int32_t size_bytes
    found = []
    while cursor_left(&c) > 0:
        size_bytes = cursor_i32(&c)
        found.append(PyUnicode_DecodeUTF8(<char*>cursor_take(&c, size_bytes), size_bytes, NULL))
    return found

cdef frozenset _partitions(const TxnRows* rows):
    cdef const TxnRow* row
    cdef int32_t i
    found = []
    for i in range(rows.count):
        row = &rows.at[i]
        found.append((
            PyUnicode_DecodeUTF8(<char*>rows.names.data + row.name_at, row.name_bytes, NULL),
            row.index,
        ))
    return frozenset(found)


cdef struct Named:                  # the arguments that find an id by its name
    Shard* shard
    int64_t hashed
    const uint8_t* at
    int32_t size_bytes

cdef Named _named(TransactionCore* core, bytes name):
    """The result is valid as long as the caller holds `name`."""
    cdef Named named
    named.at = <const uint8_t*><const char*>name
    named.size_bytes = <int32_t>len(name)
    named.hashed = _hash(core, named.at, named.size_bytes)
    named.shard = _shard(core, named.hashed)
    return named

cdef Txn* _locked(TransactionCore* core, const Named* named) noexcept nogil:
    """Returns the id with its shard locked, which the caller unlocks; NULL: there is no such id."""
    cdef int slot = epoch_enter(table_epochs(core.table))
    cdef Txn* txn
    pthread_mutex_lock(&named.shard.lock)
    txn = _find(named.shard, named.hashed, named.at, named.size_bytes)
    if txn != NULL:
        _catch_up(core, txn)
    epoch_leave(table_epochs(core.table), slot)
    return txn

cdef inline void _unlock(const Named* named) noexcept nogil:
    pthread_mutex_unlock(&named.shard.lock)


@cython.no_gc_clear         # __dealloc__ needs what it refers to
cdef class TransactionHandler(NativeHandler):
    """The ids of one broker. `topic`: the topic of the coordinator's log. `offsets_topic`: the
    topic of the group coordinator, which gets ended transactions by `ended`; None: Python takes
    every end with log.durability=os. `settled`: the queue to Python of steps that waited for a
    flush; None: Python takes every step with fsync. `timeout_ms`: the limit of such a wait, from
    the request on.

    A transaction is a sequence of the fields of barnabas.coordinator.transactions.transaction.
    Transaction, in their order. Every call locks one shard at a time and never waits for a disk."""

    def __cinit__(
        self, table, str topic not None, str offsets_topic not None, EndedTransactions ended,
        SettledIds settled=None, *, int64_t timeout_ms=5000,
    ):
        cdef Shard* shard
        cdef int i
        self.topic, self.offsets_topic = topic.encode(), offsets_topic.encode()
        self.ended, self.settled = ended, settled
        self.core = <TransactionCore*>calloc(1, sizeof(TransactionCore))
        if self.core == NULL:
            raise MemoryError
        self.core.table = table_of(table)
        self.core.ended = &ended.ended if ended is not None else NULL
        self.core.settled = settled.jobs if settled is not None else NULL
        self.core.timeout_ns = timeout_ms * 1000000
        self.core.topic = <const uint8_t*><const char*>self.topic
        self.core.topic_bytes = <int32_t>len(self.topic)
        self.core.offsets_topic = <const uint8_t*><const char*>self.offsets_topic
        self.core.offsets_topic_bytes = <int32_t>len(self.offsets_topic)
        secret_init(&self.core.secret)
        for i in range(SHARDS):
            shard = &self.core.shards[i]
            pthread_mutex_init(&shard.lock, NULL)
            int64_map_init(&shard.ids)
            buffer_init(&shard.rows.names)
            buffer_init(&shard.value)
            buffer_init(&shard.batch)
        self.declare(
            ((KEY_ADD_PARTITIONS, 0, ADD_PARTITIONS_LAST), (KEY_ADD_OFFSETS, 0, ADD_OFFSETS_LAST),
             (KEY_END, 0, END_LAST)),
            self.core, _handle, _resume, _abandon)
        self.owner = table

    def __init__(self, table, topic, offsets_topic, ended, settled=None, *, timeout_ms=5000):
        pass

    def __dealloc__(self):
        cdef Shard* shard
        cdef int i
        cdef int64_t k
        if self.core == NULL:
            return
        for i in range(SHARDS):
            shard = &self.core.shards[i]
            for k in range(shard.ids.capacity):
                if shard.ids.used[k]:
                    txn_free(<Txn*><intptr_t>shard.ids.values[k])
            int64_map_free(&shard.ids)
            rows_free(&shard.rows)
            buffer_free(&shard.value)
            buffer_free(&shard.batch)
            pthread_mutex_destroy(&shard.lock)
        free(self.core)

    cdef Txn* made(self, str name, transaction) except NULL:
        """Adds an id that is not in the table yet. Raises MemoryError, ValueError."""
        cdef bytes raw = name.encode(), topic_name
        cdef bytes key = b"\0\0" + len(raw).to_bytes(2, "big") + raw
        cdef int32_t index
        cdef Txn* txn = txn_new(<const uint8_t*><const char*>key, <int32_t>len(key))
        if txn == NULL:
            raise MemoryError
        try:
            (
                txn.producer_id, txn.producer_epoch, txn.timeout_ms, txn.state, partitions,
                txn.start_ms, txn.update_ms, txn.previous_producer_id, txn.next_producer_id,
                txn.last_epoch, txn.client_version,
            ) = transaction
            for topic, index in partitions:
                topic_name = topic.encode()
                if not rows_add(
                        &txn.rows, <const uint8_t*><const char*>topic_name,
                        <int32_t>len(topic_name), index):
                    raise MemoryError
        except BaseException:
            txn_free(txn)
            raise
        txn.hashed = _hash(
            self.core, txn_key(txn) + KEY_HEAD_BYTES, txn.key_bytes - KEY_HEAD_BYTES)
        return txn

    def put(self, str name not None, int32_t partition, int32_t leader_epoch, transaction) -> None:
        """Stores an id, in place of the one of that name. `leader_epoch`: of its partition of
        __transaction_state, LOADING (-1) while that one is replayed."""
        cdef Txn* txn = self.made(name, transaction)
        cdef Txn* before
        cdef Shard* shard = _shard(self.core, txn.hashed)
        cdef bint stored
        txn.partition, txn.leader_epoch = partition, leader_epoch
        txn.step = _next_step(self.core)
        with nogil:
            pthread_mutex_lock(&shard.lock)
            before = <Txn*><intptr_t>int64_map_get(&shard.ids, txn.hashed, 0)
            stored = int64_map_put(&shard.ids, txn.hashed, <int64_t><intptr_t>txn)
            if stored and before == NULL:
                atomic_add_i64(&self.core.id_count, 1)
            pthread_mutex_unlock(&shard.lock)
            txn_free(before if stored else txn)
        if not stored:
            raise MemoryError

    def get(self, str name not None):
        """Returns (partition of __transaction_state, step, whether the coordinator writes a step,
        transaction); None if there is no such id. "Writes a step" includes a native handler that
        waits for a flush: the transaction is as it was before, and SettledIds reports the end of
        the wait."""
        cdef bytes raw = name.encode()
        cdef Named named = _named(self.core, raw)
        cdef Txn copy
        cdef Txn* txn
        cdef TxnRows rows
        cdef bint copied = True
        memset(&rows, 0, sizeof(TxnRows))
        with nogil:
            txn = _locked(self.core, &named)
            if txn != NULL:
                copy = txn[0]
                txn.watched = txn.after != NULL
                copied = rows_copy(&rows, &txn.rows)
            _unlock(&named)
        if txn == NULL:
            return None
        try:
            if not copied:
                raise MemoryError
            return copy.partition, copy.step, _is_pending(&copy), (
                copy.producer_id, copy.producer_epoch, copy.timeout_ms, copy.state,
                _partitions(&rows), copy.start_ms, copy.update_ms, copy.previous_producer_id,
                copy.next_producer_id, copy.last_epoch, copy.client_version,
            )
        finally:
            rows_free(&rows)

    def record(self, str name not None, transaction) -> tuple:
        """Returns key and value of the id's record in a state, in `value_version`. None in place of
        a transaction: the record that deletes the id has no value. Raises MemoryError."""
        cdef Buffer b
        cdef Txn* txn
        raw = name.encode()
        key = b"\0\0" + len(raw).to_bytes(2, "big") + raw
        if transaction is None:
            return key, None
        txn = self.made(name, transaction)
        buffer_init(&b)
        try:
            txn_value(
                &b, txn, <int16_t>atomic_load_i32(&self.core.value_version), txn.state, &txn.rows,
                txn.start_ms, txn.update_ms)
            if b.failed:
                raise MemoryError
            return key, b.data[:b.size]
        finally:
            buffer_free(&b)
            txn_free(txn)

    def begin(self, str name not None, int64_t step, connection_id=None) -> int:
        """Returns a token for `finish`, if the id has not changed since `step`: Python may write
        its next step. `connection_id`: a connection that takes part in the transaction. Returns 0,
        and does nothing, when the id has changed or another step is being written."""
        cdef bytes raw = name.encode()
        cdef Named named = _named(self.core, raw)
        cdef bint takes_part = connection_id is not None
        cdef uint64_t connection = connection_id if takes_part else 0
        cdef int64_t token = 0
        cdef Txn* txn
        with nogil:
            txn = _locked(self.core, &named)
            if txn != NULL and txn.step == step and not _is_pending(txn):
                token = txn.token = _next_step(self.core)
                if takes_part:
                    txn_takes_part(txn, connection)
            _unlock(&named)
        return token

    def finish(self, str name not None, int64_t token, transaction=None) -> None:
        """Ends the step of `begin`, whose record is durable. None: the step failed. Has no effect
        when the id has left the table meanwhile."""
        cdef bytes raw = name.encode()
        cdef Named named = _named(self.core, raw)
        cdef Txn* after = NULL
        cdef Txn* txn
        if transaction is not None:
            after = self.made(name, transaction)
        with nogil:
            txn = _locked(self.core, &named)
            if txn != NULL and txn.token == token:
                txn.token = 0
                if after != NULL:
                    _replace(self.core, txn, after)
            _unlock(&named)
            txn_free(after)

    def remove(self, str name not None, token=None) -> None:
        """Removes an id. `token`: only if this step is being written."""
        cdef bytes raw = name.encode()
        cdef Named named = _named(self.core, raw)
        cdef bint any_step = token is None
        cdef int64_t wanted = 0 if any_step else token
        cdef Txn* txn
        with nogil:
            txn = _locked(self.core, &named)
            if txn != NULL and (any_step or txn.token == wanted):
                int64_map_remove(&named.shard.ids, named.hashed)
                atomic_add_i64(&self.core.id_count, -1)
            else:
                txn = NULL
            _unlock(&named)
            txn_free(txn)

    def order(self, str name not None, int64_t step) -> bool:
        """Returns, once, whether the caller must write the markers of an id prepared at `step`."""
        cdef bytes raw = name.encode()
        cdef Named named = _named(self.core, raw)
        cdef bint ordered = False
        cdef Txn* txn
        with nogil:
            txn = _locked(self.core, &named)
            if txn != NULL and txn.step == step and _is_prepared(txn) and not txn.ordered:
                ordered = txn.ordered = True
            _unlock(&named)
        return ordered

    def takes_part(self, str name not None, int64_t step, uint64_t connection_id) -> bool:
        """Notes the connection of a request that changes nothing. False: see `begin`."""
        cdef bytes raw = name.encode()
        cdef Named named = _named(self.core, raw)
        cdef bint is_same
        cdef Txn* txn
        with nogil:
            txn = _locked(self.core, &named)
            is_same = txn != NULL and txn.step == step and not _is_pending(txn)
            if is_same:
                txn_takes_part(txn, connection_id)
            _unlock(&named)
        return is_same

    def was_left_on(self, str name not None, uint64_t connection_id) -> bool:
        """Returns whether a connection began an earlier transaction and is not in the newest."""
        cdef bytes raw = name.encode()
        cdef Named named = _named(self.core, raw)
        cdef bint was_left
        cdef Txn* txn
        with nogil:
            txn = _locked(self.core, &named)
            was_left = txn != NULL and txn_was_left_on(txn, connection_id)
            _unlock(&named)
        return was_left

    def forget_connections(self, str name not None) -> None:
        """Forgets the connections of the id, because another producer has it."""
        cdef bytes raw = name.encode()
        cdef Named named = _named(self.core, raw)
        cdef Txn* txn
        with nogil:
            txn = _locked(self.core, &named)
            if txn != NULL:
                txn.connections.count = txn.begun_by.count = 0
            _unlock(&named)

    cdef list names_of(self, int which, int64_t argument, int32_t leader_epoch):
        cdef Buffer b
        buffer_init(&b)
        try:
            with nogil:
                _collect(self.core, &b, which, argument, leader_epoch)
            if b.failed:
                raise MemoryError
            return _names(&b)
        finally:
            buffer_free(&b)

    def names(self) -> list:
        """Returns every id."""
        return self.names_of(EVERY, 0, 0)

    def late(self, int64_t now_ms) -> list:
        """Returns the ids whose transaction exceeds its timeout, and those whose decided end a
        native handler could not carry out."""
        return self.names_of(LATE, now_ms, 0)

    def unused(self, int64_t oldest_ms) -> list:
        """Returns the ids without a transaction that have not changed since oldest_ms."""
        return self.names_of(UNUSED, oldest_ms, 0)

    def open(self, int32_t partition, int32_t leader_epoch) -> list:
        """Lets native handlers serve the ids of a replayed partition; returns prepared ids."""
        return self.names_of(PREPARED_IN, partition, leader_epoch)

    def forget(self, int32_t partition) -> list:
        """Removes the partition's ids, which another node coordinates; returns their names."""
        cdef Buffer b
        buffer_init(&b)
        try:
            with nogil:
                _forget(self.core, &b, partition)
            return _names(&b)
        finally:
            buffer_free(&b)

    @property
    def value_version(self) -> int:
        """Sets the version of the records' values: 0 while transaction.version is 0, else 1."""
        return atomic_load_i32(&self.core.value_version)

    @value_version.setter
    def value_version(self, int32_t version):
        atomic_store_i32(&self.core.value_version, version)

    @property
    def offsets_partitions(self) -> int:
        """Sets the number of partitions of the groups' topic; 0: there is no such topic."""
        return atomic_load_i32(&self.core.offsets_partitions)

    @offsets_partitions.setter
    def offsets_partitions(self, int32_t count):
        atomic_store_i32(&self.core.offsets_partitions, count)

    @property
    def count(self) -> int:
        """Returns the number of ids in the table."""
        return atomic_load_i64(&self.core.id_count)

    @property
    def served(self) -> int:
        """Returns the number of requests that the native handlers answered."""
        return atomic_load_i64(&self.core.served)
