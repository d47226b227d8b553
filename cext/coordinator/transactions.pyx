"""The transactional ids of a broker, and native AddPartitionsToTxn, AddOffsetsToTxn and EndTxn.

Every id that this node coordinates is in one table, in shards with a lock each. This file has the
rules of the three APIs: whether an id takes the step that a request asks for (begin a transaction,
let it grow, end it), with which error it is refused, and the step itself: the record of
__transaction_state, the logs that are to expect the transaction, the markers. Produce and
TxnOffsetCommit of the second version add partitions by `transaction_adds`. Python
(barnabas.coordinator.transactions.coordinator) takes the steps of InitProducerId, of expiry, and
the Complete record of an end that it carries out. It reads an id with `get`, writes the step with
`begin`, its journal, and `finish`. `begin` fails when the id has changed since `get`; between
`begin` and `finish` native code does not touch the id.

A step appends its record. With log.durability=os it counts at once. With fsync the state that
follows waits in `after` for the flush, and the request in purgatory. The next look at the id makes
the state visible (_catch_up), so a closed connection loses nothing. While the step waits, the id
takes no other step. After offsets.commit.timeout.ms the answer is COORDINATOR_NOT_AVAILABLE; the
step stays, and counts when the flush has ended after all. A request that finds its id busy waits
for add.partitions.to.txn.retry.backoff.max.ms, then the answer is CONCURRENT_TRANSACTIONS.

An end is answered when it is decided. With os this thread then writes the markers and the Complete
record. With fsync, or where it cannot, it gives the id to Python (SettledIds), which writes them.

Python parses, and asks the table by `add` and `has`, for requests in another form than the plain
one: AddPartitionsToTxn 4 and 5, which brokers send; tagged fields; more than ADDED_MAX partitions;
a partition that this node does not host; a group when __consumer_offsets does not exist yet.

    AddPartitionsToTxnRequest   transactional id, producer id, epoch, [name, [index]]    0 to 3
    AddOffsetsToTxnRequest      transactional id, producer id, epoch, group              0 to 4
    EndTxnRequest               transactional id, producer id, epoch, committed          0 to 5
    answers                     throttle, [name, [index, error]] or error, producer id and epoch
                                (EndTxn 5); flexible from 3
    marker                      key int16 0, int16 0 abort or 1 commit; value int16 0, int32
                                coordinator epoch

EndTxn 5 bumps the epoch. A crash loses nothing that was answered, because the table is a copy of
the log; one between the decision and the Complete record leaves what Python finds when it loads. An
id takes some 400 bytes and leaves the table after transactional.id.expiration.ms.
Next on the data path: cext/coordinator/transaction_state.pyx; for Python's steps
broker/coordinator/transactions/coordinator.py.
"""
cimport cython
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, intptr_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from barnabas.cext.codec.buffer cimport (
    Buffer, buffer_bytes, buffer_free, buffer_i16, buffer_i32, buffer_i64, buffer_init,
)
from barnabas.cext.codec.cursor cimport (
    Cursor, cursor_i16, cursor_i32, cursor_i64, cursor_i8, cursor_left, cursor_of, cursor_take,
)
from barnabas.cext.codec.error_codes cimport (
    ERROR_CONCURRENT_TRANSACTIONS, ERROR_COORDINATOR_LOAD_IN_PROGRESS,
    ERROR_INVALID_PRODUCER_EPOCH, ERROR_INVALID_PRODUCER_ID_MAPPING, ERROR_INVALID_REQUEST,
    ERROR_INVALID_TXN_STATE, ERROR_NONE, ERROR_NOT_COORDINATOR, ERROR_PRODUCER_FENCED,
    ERROR_TRANSACTION_ABORTABLE, ERROR_UNKNOWN_SERVER_ERROR,
)
from barnabas.cext.codec.fields cimport (
    read_count, read_no_tags, read_string, skip_tags, write_count, write_no_tags, write_string,
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
from barnabas.cext.coordinator.partition_states cimport (
    PartitionStates, states_error, states_partition_of,
)
from barnabas.cext.coordinator.settled_ids cimport settled_put, SettledIds
from barnabas.cext.coordinator.transaction_state cimport (
    LOADING, rows_add, rows_copy, rows_free, rows_have, STATE_COMPLETE_ABORT,
    STATE_COMPLETE_COMMIT, STATE_ONGOING, STATE_PREPARE_ABORT, STATE_PREPARE_COMMIT, Txn, txn_free,
    txn_key, txn_new, txn_takes_part, txn_value, txn_was_left_on, TxnRow, TxnRows, Waiter,
    WAITERS_MAX,
)
from barnabas.cext.log.log cimport BUMPING_MARKER, TRUSTED
from barnabas.cext.log.log_transactions cimport log_expect_transaction, log_renew_verification
from barnabas.cext.memory.atomics cimport (
    atomic_add_i64, atomic_cas_i64, atomic_load_i32, atomic_load_i64, atomic_load_pointer,
    atomic_store_i32, atomic_store_i64,
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
    Partition, partition_by_name, partition_find, partition_high_watermark, partition_watch,
    table_epochs, table_is_fsync, table_of, table_system, table_wake, Watch, watch_waits,
)
from barnabas.cext.partition.topics cimport ProducePolicy
from barnabas.cext.record.records cimport ATTR_CONTROL, ATTR_TRANSACTIONAL

cdef enum:
    KEY_ADD_PARTITIONS = 24
    KEY_ADD_OFFSETS = 25
    KEY_END = 26
    ADD_PARTITIONS_LAST = 3
    ADD_OFFSETS_LAST = 4
    END_LAST = 5
    END_BUMPS_FROM = 5
    FENCED_FROM = 2                 # from here on clients know PRODUCER_FENCED
    EPOCH_MAX = 32767               # for fencing; a producer gets its next id below it
    VERSION_FLEXIBLE = 3
    KEY_HEAD_BYTES = 4              # of a record's key: version, length of the id
    MARKERS_MAX = 128               # of a transaction that ends here; Python ends larger ones
    RENEWED_MAX = 3                 # times that a marker may come in between
    MARKER_ABORT = 0
    MARKER_COMMIT = 1
    NONE = -1
    # The outcome of a step, beside Kafka's error codes.
    STEP_WAITS = -100               # for its record to be durable
    STEP_SETTLES = -101             # the id is busy
    # Which ids Python asks for; see _matches.
    EVERY = 0
    PREPARED_IN = 1
    LATE = 2
    UNUSED = 3

cdef struct WaitingStep:            # a parked request; the transactional id follows
    DurableWait wait
    bint is_taken                   # its step is in the log; else it waits for the id
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

cdef inline bint _is_prepared(const Txn* txn) noexcept nogil:
    """Returns whether the end of the id is decided but not complete."""
    return txn.state in (STATE_PREPARE_COMMIT, STATE_PREPARE_ABORT)

cdef inline bint _is_pending(const Txn* txn) noexcept nogil:
    """Returns whether a step is being written, by Python or by native code."""
    return txn.token != 0 or txn.after != NULL

cdef inline bint _is_busy(const Txn* txn) noexcept nogil:
    return _is_pending(txn) or _is_prepared(txn)

cdef void _hand_over(TransactionCore* core, const Txn* txn) noexcept nogil:
    """Python looks at the id (TransactionCoordinator.look_at)."""
    if core.settled != NULL:
        settled_put(core.settled, txn_key(txn) + KEY_HEAD_BYTES, txn.key_bytes - KEY_HEAD_BYTES)

cdef inline Partition* _led(TransactionCore* core, const uint8_t* topic, int32_t topic_bytes, int32_t index) noexcept nogil:
    """Returns, inside an epoch, a partition that is online and led by this node, else NULL."""
    cdef int16_t error
    cdef Partition* p = partition_by_name(core.table, topic, topic_bytes, index, &error)
    return p if p != NULL and error == ERROR_NONE and p.log != NULL else NULL

cdef Partition* _journal(TransactionCore* core, const Txn* txn) noexcept nogil:
    """Returns, inside an epoch, the id's partition of __transaction_state; NULL: another node leads
    it, or this one does so in another leader epoch, or it is offline."""
    cdef Partition* p = _led(core, core.topic, core.topic_bytes, txn.partition)
    if p == NULL or atomic_load_i32(&p.leader_epoch) != txn.leader_epoch:
        return NULL
    return p


# -------------------------------------------------------------------------------- waiting for an id

cdef bint _add_waiter(Txn* txn, const Watch* watch) noexcept nogil:
    """Returns False if too many requests wait for the id already."""
    cdef int32_t i
    for i in range(txn.waiter_count):
        if txn.waiters[i].connection_id == watch.connection_id and (
                txn.waiters[i].thread_index == watch.thread_index):
            return True
    if txn.waiters == NULL:
        txn.waiters = <Waiter*>calloc(WAITERS_MAX, sizeof(Waiter))
    if txn.waiters == NULL or txn.waiter_count == WAITERS_MAX:
        return False
    txn.waiters[txn.waiter_count].thread_index = watch.thread_index
    txn.waiters[txn.waiter_count].connection_id = watch.connection_id
    txn.waiter_count += 1
    return True

cdef void _wake_waiters(TransactionCore* core, Txn* txn) noexcept nogil:
    """The id has taken a step, or has left the table."""
    cdef int32_t i
    for i in range(txn.waiter_count):
        table_wake(core.table, txn.waiters[i].thread_index, txn.waiters[i].connection_id)
    txn.waiter_count = 0
    free(txn.waiters)
    txn.waiters = NULL

cdef int _wait_for_id(TransactionCore* core, Txn* txn, Watch* watch) noexcept nogil:
    """Under the shard's lock and inside an epoch: the connection of the watch is woken when the id
    takes no step any more, or at once if that is so by now."""
    cdef Partition* p
    if txn.after == NULL:
        return STEP_SETTLES if _add_waiter(txn, watch) else ERROR_CONCURRENT_TRANSACTIONS
    p = _journal(core, txn)
    if p != NULL and not watch_waits(watch):
        partition_watch(core.table, p, watch)       # before the look, not after it
    _catch_up(core, txn)
    if txn.after == NULL:
        table_wake(core.table, watch.thread_index, watch.connection_id)
    return STEP_SETTLES


# -------------------------------------------------------------------------------- a step

cdef Txn* _after(Shard* shard, const Txn* txn) noexcept nogil:
    """Returns the state that follows, in the memory of an earlier one: as the id is now, without
    partitions. NULL: no memory."""
    cdef Txn* after = shard.spare
    cdef TxnRows rows
    shard.spare = NULL
    if after == NULL:
        after = txn_new(NULL, 0)
        if after == NULL:
            return NULL
    rows = after.rows
    after[0] = txn[0]
    after.rows = rows
    after.rows.count = after.rows.names.size = 0
    after.after, after.waiters, after.waiter_count, after.key_bytes = NULL, NULL, 0, 0
    return after

cdef void _give_back(Shard* shard, Txn* after) noexcept nogil:
    if shard.spare == NULL and after.rows.capacity <= ADDED_MAX:
        shard.spare = after
    else:
        txn_free(after)

cdef int _append(TransactionCore* core, Shard* shard, Txn* txn, const Txn* after, bint* is_durable) noexcept nogil:
    """Appends the record of `after`, which counts when the high watermark has reached
    txn.required. Returns 0 or the error code for the client; then it is not in the log."""
    cdef int64_t offset
    cdef Buffer* b = &shard.batch
    cdef Partition* p = _journal(core, txn)
    if p == NULL:
        return ERROR_NOT_COORDINATOR
    shard.value.size = 0
    txn_value(&shard.value, after, <int16_t>atomic_load_i32(&core.value_version))
    own_batch_begin(b)
    own_record_begin(b, 0, txn.key_bytes, <int32_t>shard.value.size)
    buffer_bytes(b, txn_key(txn), txn.key_bytes)
    own_record_value(b, <int32_t>shard.value.size)
    buffer_bytes(b, shard.value.data, shard.value.size)
    own_record_end(b)
    if shard.value.failed or b.failed:
        buffer_free(&shard.value)
        buffer_free(b)
        return ERROR_UNKNOWN_SERVER_ERROR
    if b.size > (<ProducePolicy*>atomic_load_pointer(<void**>&p.policy)).message_bytes_max:
        return ERROR_UNKNOWN_SERVER_ERROR           # as in Kafka's TransactionStateManager
    own_batch_end(b, 1, after.update_ms)
    if own_batch_append(core.table, p, b, txn.leader_epoch, &offset) != ERROR_NONE:
        return ERROR_NOT_COORDINATOR
    txn.required = offset + 1
    is_durable[0] = partition_high_watermark(p) > offset
    return ERROR_NONE

cdef void _expect_added(TransactionCore* core, const Txn* txn, const Txn* after) noexcept nogil:
    """Makes the logs of the partitions that `after` adds expect the transaction."""
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

cdef void _make_visible(TransactionCore* core, Txn* txn, Txn* after) noexcept nogil:
    """The record of `after` is durable. The logs of clients that add partitions themselves expect
    the transaction before the table has it, so that no end of it comes first."""
    if after.state == STATE_ONGOING and after.client_version < BUMPS_EPOCH:
        _expect_added(core, txn, after)
    _replace(core, txn, after)

cdef void _catch_up(TransactionCore* core, Txn* txn) noexcept nogil:
    """Under the shard's lock and inside an epoch: makes the step of native code visible when its
    record is durable, and drops it when this node does not lead the partition any more (the id is
    loaded again then). Every look at an id begins with this."""
    cdef Partition* p
    cdef Txn* after = txn.after
    if after == NULL:
        return
    p = _journal(core, txn)
    if p != NULL:
        if partition_high_watermark(p) < txn.required:
            return
        _make_visible(core, txn, after)
    txn.after = NULL
    txn_free(after)
    if _is_prepared(txn):
        _hand_over(core, txn)
    _wake_waiters(core, txn)

cdef int _take(TransactionCore* core, Shard* shard, Txn* txn, Txn* after, bint is_durable) noexcept nogil:
    """The record of `after` is in the log."""
    if is_durable:
        _make_visible(core, txn, after)
        _give_back(shard, after)
        return ERROR_NONE
    txn.after = after
    return STEP_WAITS


# -------------------------------------------------------------------------------- who asks

cdef int _refused(TransactionCore* core, const Asked* asked, const Txn* txn) noexcept nogil:
    """Returns the error code for an id that this node does not coordinate, or that does not exist;
    0: the id takes requests."""
    cdef int code
    if asked.name_bytes <= 0:
        return ERROR_INVALID_REQUEST
    code = states_error(
        core.states, txn.partition if txn != NULL else states_partition_of(
            core.states, asked.name, asked.name_bytes))
    if code == ERROR_NONE and txn == NULL:
        code = ERROR_INVALID_PRODUCER_ID_MAPPING
    return code

cdef inline int _producer_error(const Txn* txn, const Asked* asked) noexcept nogil:
    if txn.producer_id != asked.producer_id:
        return ERROR_INVALID_PRODUCER_ID_MAPPING
    if txn.producer_epoch != asked.producer_epoch or txn.producer_epoch < 0:
        return ERROR_PRODUCER_FENCED
    return ERROR_NONE


# -------------------------------------------------------------------------------- what grows

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

cdef bint _merge(TxnRows* rows, const Txn* txn, const Asked* asked) noexcept nogil:
    """The partitions as they will be. False: no memory."""
    cdef const AskedRow* row
    cdef int32_t i
    if txn.state == STATE_ONGOING and not rows_copy(rows, &txn.rows):
        return False
    for i in range(asked.count):
        row = &asked.rows[i]
        if not rows_add(rows, row.topic, row.topic_bytes, row.index):
            return False
    return True

cdef int _grow(TransactionCore* core, Shard* shard, Txn* txn, const Asked* asked) noexcept nogil:
    cdef System* system = table_system(core.table)
    cdef Txn* after = _after(shard, txn)
    cdef bint is_durable
    cdef int code
    if after == NULL:
        return ERROR_UNKNOWN_SERVER_ERROR
    after.update_ms = system.wall_ms(system)
    if txn.state != STATE_ONGOING:
        after.start_ms = after.update_ms
    after.state, after.client_version = STATE_ONGOING, asked.client_version
    code = ERROR_UNKNOWN_SERVER_ERROR
    if _merge(&after.rows, txn, asked):
        code = _append(core, shard, txn, after, &is_durable)
    if code != ERROR_NONE:
        _give_back(shard, after)
        return code
    txn_takes_part(txn, asked.connection_id)        # while the state is the one before
    return _take(core, shard, txn, after, is_durable)

cdef int _add(TransactionCore* core, Shard* shard, Txn* txn, const Asked* asked) noexcept nogil:
    """Under the shard's lock and inside an epoch. While a step or the markers are under way, they
    may be changing epoch and producer id: nothing is compared before they are over."""
    cdef int code
    if _is_busy(txn):
        return STEP_SETTLES
    code = _producer_error(txn, asked)
    if code != ERROR_NONE:
        return code
    if not _has_all(txn, asked):
        return _grow(core, shard, txn, asked)
    txn_takes_part(txn, asked.connection_id)
    return ERROR_NONE


# -------------------------------------------------------------------------------- the markers

cdef bint _find_endings(TransactionCore* core, const Txn* txn, Ending* endings, int32_t* found) noexcept nogil:
    """Finds every partition, and makes a note for each with groups' offsets. It sets `found` to
    their number also when it returns False."""
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
            at.note = entry_marker(
                row.index, txn.producer_id, txn.state == STATE_PREPARE_COMMIT)
            if at.note == NULL:
                return False
        found[0] = i + 1
    return True

cdef bint _write_markers(TransactionCore* core, Shard* shard, const Txn* txn, Ending* endings) noexcept nogil:
    """Writes the markers and takes over the notes. Returns whether all are written."""
    cdef Buffer* b = &shard.batch
    cdef bint all_written = True
    cdef int64_t verification = BUMPING_MARKER if txn.client_version >= BUMPS_EPOCH else TRUSTED
    cdef int64_t offset
    cdef int32_t epoch, i
    own_batch_begin(b)
    own_record_begin(b, 0, 4, 6)
    buffer_i16(b, 0)
    buffer_i16(b, MARKER_COMMIT if txn.state == STATE_PREPARE_COMMIT else MARKER_ABORT)
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
            b, 1, txn.update_ms, ATTR_TRANSACTIONAL | ATTR_CONTROL, txn.producer_id,
            txn.producer_epoch)
        if endings[i].note != NULL:
            all_written = ended_append(
                core.ended, core.table, endings[i].p, b, endings[i].note, verification) == 0
        else:
            epoch = atomic_load_i32(&endings[i].p.leader_epoch)
            all_written = own_batch_append(
                core.table, endings[i].p, b, epoch, &offset, verification) == 0
    return all_written

cdef bint _complete(TransactionCore* core, Shard* shard, Txn* txn) noexcept nogil:
    """Writes the Complete record. Returns whether it is in the log and counts."""
    cdef System* system = table_system(core.table)
    cdef Txn* after = _after(shard, txn)
    cdef bint is_durable
    if after == NULL:
        return False
    after.update_ms = system.wall_ms(system)
    after.state = STATE_COMPLETE_ABORT
    if txn.state == STATE_PREPARE_COMMIT:
        after.state = STATE_COMPLETE_COMMIT
    if _append(core, shard, txn, after, &is_durable) != ERROR_NONE:
        _give_back(shard, after)
        return False
    return _take(core, shard, txn, after, is_durable) == ERROR_NONE

cdef bint _carries_out(TransactionCore* core, Shard* shard, Txn* txn) noexcept nogil:
    """Writes the markers and the Complete record of a prepared id, where an append counts at once.
    False: Python is to write what is missing."""
    cdef Ending endings[MARKERS_MAX]
    cdef int32_t found = 0, i
    if table_is_fsync(core.table) or txn.rows.count > MARKERS_MAX or (
            txn.next_producer_id >= 0 or core.ended == NULL or not ended_has_capacity(core.ended)):
        return False
    if not _find_endings(core, txn, endings, &found):
        for i in range(found):
            entry_free(endings[i].note)
        return False
    return _write_markers(core, shard, txn, endings) and _complete(core, shard, txn)


# -------------------------------------------------------------------------------- the end

cdef inline bint _has_ended(const Txn* txn, const Asked* asked) noexcept nogil:
    """Returns whether the newest transaction has the end that is asked for."""
    return txn.state == (STATE_COMPLETE_COMMIT if asked.committed else STATE_COMPLETE_ABORT)

cdef int _check_end(const Txn* txn, const Asked* asked, bint* again) noexcept nogil:
    """Whether an EndTxn of the first version ends a transaction, or was answered before (`again`).
    The epoch does not show that it came late, from a connection that its producer has left
    (docs/decisions/late-end-of-transaction.md)."""
    cdef int code = _producer_error(txn, asked)
    if code != ERROR_NONE:
        return code
    if _is_busy(txn):
        return ERROR_CONCURRENT_TRANSACTIONS
    if txn.state == STATE_ONGOING:
        if txn_was_left_on(txn, asked.connection_id):
            return ERROR_CONCURRENT_TRANSACTIONS
        return ERROR_NONE
    again[0] = _has_ended(txn, asked)
    return ERROR_NONE if again[0] else ERROR_INVALID_TXN_STATE

cdef int _check_bumping_end(const Txn* txn, const Asked* asked, bint* again) noexcept nogil:
    """The same for version 2, where each end bumps the epoch. Aborting a transaction that was not
    begun is allowed: the producer may not know whether a batch of it arrived."""
    cdef bint has_new_id = txn.previous_producer_id == asked.producer_id and (
        asked.producer_epoch == EPOCH_MAX - 1 and txn.producer_epoch == 0)
    cdef bint was_ended = txn.state in (STATE_COMPLETE_COMMIT, STATE_COMPLETE_ABORT) and (
        has_new_id or txn.producer_epoch == asked.producer_epoch + 1)
    if _is_busy(txn):
        return ERROR_CONCURRENT_TRANSACTIONS
    if txn.producer_id != asked.producer_id and not has_new_id:
        return ERROR_INVALID_PRODUCER_ID_MAPPING
    if (asked.producer_epoch != txn.producer_epoch or txn.producer_epoch < 0) and not was_ended:
        return ERROR_PRODUCER_FENCED
    if txn.state == STATE_ONGOING:
        return ERROR_NONE
    again[0] = was_ended and _has_ended(txn, asked)
    if again[0] or not (was_ended or asked.committed):
        return ERROR_NONE
    return ERROR_INVALID_TXN_STATE

cdef int64_t _take_producer_id(TransactionCore* core) noexcept nogil:
    """Returns the producer id in reserve; -1: Python has not brought another one yet."""
    cdef int64_t found = atomic_load_i64(&core.reserved_producer_id)
    while found >= 0 and not atomic_cas_i64(&core.reserved_producer_id, found, NONE):
        found = atomic_load_i64(&core.reserved_producer_id)
    return found

cdef int _decide(TransactionCore* core, Shard* shard, Txn* txn, Asked* asked) noexcept nogil:
    """Writes the Prepare record. Sets the producer of the answer in `asked`."""
    cdef System* system = table_system(core.table)
    cdef bint bumps = asked.client_version >= BUMPS_EPOCH, is_durable
    cdef int64_t next_id = NONE
    cdef Txn* after
    cdef int code
    if bumps and txn.producer_epoch >= EPOCH_MAX - 1:
        next_id = _take_producer_id(core)
        if next_id < 0:
            _hand_over(core, txn)
            return ERROR_COORDINATOR_LOAD_IN_PROGRESS   # as Kafka without a block of producer ids
    after = _after(shard, txn)
    if after == NULL:
        return ERROR_UNKNOWN_SERVER_ERROR
    after.state = STATE_PREPARE_COMMIT if asked.committed else STATE_PREPARE_ABORT
    after.client_version, after.next_producer_id = asked.client_version, next_id
    after.update_ms = system.wall_ms(system)
    if bumps:
        after.last_epoch, after.producer_epoch = txn.producer_epoch, txn.producer_epoch + 1
    code = ERROR_NONE
    if txn.state != STATE_ONGOING:
        after.start_ms = after.update_ms
    elif not rows_copy(&after.rows, &txn.rows):
        code = ERROR_UNKNOWN_SERVER_ERROR
    if code == ERROR_NONE:
        code = _append(core, shard, txn, after, &is_durable)
    if code != ERROR_NONE:
        _give_back(shard, after)
        return code
    asked.producer_id = next_id if next_id >= 0 else after.producer_id
    asked.producer_epoch = 0 if next_id >= 0 else after.producer_epoch
    code = _take(core, shard, txn, after, is_durable)
    if code == ERROR_NONE and not _carries_out(core, shard, txn):
        _hand_over(core, txn)
    return code

cdef int _end(TransactionCore* core, Shard* shard, Txn* txn, Asked* asked) noexcept nogil:
    """Under the shard's lock and inside an epoch. Sets the producer of the answer in `asked`."""
    cdef bint again = False
    cdef int code
    if asked.client_version >= BUMPS_EPOCH:
        code = _check_bumping_end(txn, asked, &again)
    else:
        code = _check_end(txn, asked, &again)
    if code == ERROR_NONE and not again:
        return _decide(core, shard, txn, asked)
    asked.producer_id, asked.producer_epoch = txn.producer_id, txn.producer_epoch
    return code


# -------------------------------------------------------------------------------- the steps of requests

cdef int _carry_out(TransactionCore* core, Asked* asked, bint ends, DurableWait* wait, bint asks_again) noexcept nogil:
    """Takes the step that is asked for, inside an epoch. Returns Kafka's error code, or STEP_WAITS:
    the step counts when `wait` is over; or STEP_SETTLES: the caller is to ask again, and the
    connection of `wait` is woken for that (NULL: it is not). `asks_again`: it does so for its own
    step too."""
    cdef int64_t hashed = _hash(core, asked.name, asked.name_bytes)
    cdef Shard* shard = _shard(core, hashed)
    cdef Partition* p
    cdef Txn* txn
    cdef int outcome
    pthread_mutex_lock(&shard.lock)
    txn = _find(shard, hashed, asked.name, asked.name_bytes)
    if txn != NULL:
        _catch_up(core, txn)
    outcome = _refused(core, asked, txn)
    if outcome == ERROR_NONE:
        outcome = _end(core, shard, txn, asked) if ends else _add(core, shard, txn, asked)
    if outcome == STEP_WAITS and asks_again:
        outcome = STEP_SETTLES
    if wait != NULL and outcome == STEP_WAITS:
        p = _journal(core, txn)
        if p != NULL:               # else the wait is over at once, with NOT_COORDINATOR
            durable_wait_on(wait, p, txn.required, txn.leader_epoch)
    elif wait != NULL and outcome == STEP_SETTLES:
        outcome = _wait_for_id(core, txn, &wait.watch)
    pthread_mutex_unlock(&shard.lock)
    return outcome

cdef int transaction_adds(TransactionCore* core, Asked* asked, Partition** partitions, const int64_t* verifications, DurableWait* wait) noexcept nogil:
    cdef int32_t attempt, i
    cdef int outcome
    cdef bint overtaken
    for attempt in range(RENEWED_MAX):
        outcome = _carry_out(core, asked, False, wait, True)
        if outcome != ERROR_NONE:
            return TRANSACTION_WAITS if outcome == STEP_SETTLES else outcome
        overtaken = False
        for i in range(asked.count):
            # Those that a marker has overtaken are as if they were begun now.
            overtaken |= log_renew_verification(partitions[i].log, verifications[i])
        if not overtaken:
            return ERROR_NONE
    return ERROR_CONCURRENT_TRANSACTIONS

cdef int transaction_has(TransactionCore* core, const Asked* asked, int16_t* codes) noexcept nogil:
    cdef int64_t hashed = _hash(core, asked.name, asked.name_bytes)
    cdef Shard* shard = _shard(core, hashed)
    cdef int slot = epoch_enter(table_epochs(core.table))
    cdef Txn* txn
    cdef int code
    cdef int32_t i
    pthread_mutex_lock(&shard.lock)
    txn = _find(shard, hashed, asked.name, asked.name_bytes)
    if txn != NULL:
        _catch_up(core, txn)
    code = _refused(core, asked, txn)
    if code == ERROR_NONE:
        code = _producer_error(txn, asked)
    if code == ERROR_NONE and _is_prepared(txn):
        code = ERROR_CONCURRENT_TRANSACTIONS
    for i in range(asked.count if code == ERROR_NONE else 0):
        codes[i] = ERROR_TRANSACTION_ABORTABLE
        if txn.state == STATE_ONGOING and rows_have(
                &txn.rows, asked.rows[i].topic, asked.rows[i].topic_bytes, asked.rows[i].index):
            codes[i] = ERROR_NONE
    pthread_mutex_unlock(&shard.lock)
    epoch_leave(table_epochs(core.table), slot)
    return code


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

cdef inline int32_t _offsets_index(TransactionCore* core, const uint8_t* group, int32_t group_bytes) noexcept nogil:
    """Returns the partition of a group's offsets; -1: there is no topic of offsets yet."""
    return states_partition_of(core.offsets, group, group_bytes)

cdef bint _read_group(TransactionCore* core, Cursor* c, Asked* asked, bint flexible) noexcept nogil:
    cdef int32_t group_bytes
    cdef const uint8_t* group = read_string(c, flexible, False, &group_bytes)
    if c.bad:
        return False
    asked.rows[0].topic, asked.rows[0].topic_bytes = core.offsets_topic, core.offsets_topic_bytes
    asked.rows[0].index = _offsets_index(core, group, group_bytes)
    asked.count = 1
    return asked.rows[0].index >= 0

cdef bint _are_known(TransactionCore* core, const Asked* asked) noexcept nogil:
    """Returns whether this node hosts each partition; Python knows those of other nodes too."""
    cdef const AskedRow* row
    cdef int32_t i
    for i in range(asked.count):
        row = &asked.rows[i]
        if partition_find(core.table, row.topic, row.topic_bytes, row.index) == NULL:
            return False
    return True

cdef int _read(TransactionCore* core, const Request* r, Asked* asked, AskedRow* rows) noexcept nogil:
    """Returns HANDLER_DONE, HANDLER_CLOSE (damaged), or HANDLER_PYTHON (see the file's
    docstring)."""
    cdef Cursor c = cursor_of(r.data + r.body_at, r.size_bytes - r.body_at)
    cdef bint flexible = r.api_version >= VERSION_FLEXIBLE
    asked.name = read_string(&c, flexible, False, &asked.name_bytes)
    asked.producer_id = cursor_i64(&c)
    asked.producer_epoch = cursor_i16(&c)
    asked.connection_id = r.connection_id
    asked.client_version = 0
    asked.rows, asked.count = rows, 0
    if r.api_key == KEY_END:
        if r.api_version >= END_BUMPS_FROM:
            asked.client_version = BUMPS_EPOCH
        asked.committed = cursor_i8(&c) != 0
        skip_tags(&c, flexible)
        return HANDLER_CLOSE if c.bad else HANDLER_DONE
    if r.api_key == KEY_ADD_OFFSETS:
        if not _read_group(core, &c, asked, flexible):
            return HANDLER_PYTHON
    elif not _read_partitions(&c, asked, flexible):
        return HANDLER_PYTHON
    read_no_tags(&c, flexible)
    return HANDLER_PYTHON if c.bad or cursor_left(&c) != 0 else HANDLER_DONE

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

cdef int _answer(TransactionCore* core, Request* r, Response* out, int64_t producer_id, int16_t producer_epoch, int16_t code) noexcept nogil:
    """`producer_id`, `producer_epoch`: of the producer's next transaction, for EndTxn."""
    cdef Buffer* b = &out.bytes
    cdef bint flexible = r.api_version >= VERSION_FLEXIBLE
    if code == ERROR_PRODUCER_FENCED and r.api_version < FENCED_FROM:
        code = ERROR_INVALID_PRODUCER_EPOCH
    atomic_add_i64(&core.served, 1)
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


# -------------------------------------------------------------------------------- the handler

cdef WaitingStep* _waiting_new(const Request* r, const Asked* asked) noexcept nogil:
    cdef WaitingStep* waiting = <WaitingStep*>calloc(1, sizeof(WaitingStep) + max(asked.name_bytes, 0))
    if waiting == NULL:
        return NULL
    durable_wait_by(&waiting.wait, r)
    waiting.name_bytes = asked.name_bytes
    if asked.name_bytes > 0:
        memcpy(waiting + 1, asked.name, asked.name_bytes)
    return waiting

cdef void _drop(TransactionCore* core, WaitingStep* waiting) noexcept nogil:
    if waiting != NULL:
        durable_wait_end(core.table, &waiting.wait)
        free(waiting)

cdef void _look(TransactionCore* core, const WaitingStep* waiting) noexcept nogil:
    """Makes the step visible. Python looks again later if its record is not durable yet."""
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

cdef int _settle(TransactionCore* core, Request* r, Response* out, Parked* parked, WaitingStep* waiting, bint expired) noexcept nogil:
    """Answers when the record of the step is durable, or has failed. Takes over `waiting`."""
    cdef int16_t code
    cdef int status
    if durable_wait_lasts(core.table, &waiting.wait, expired, &code):
        return handler_parks(parked, waiting, r.received_ns + core.timeout_ns, unfinished=True)
    _look(core, waiting)
    status = _answer(core, r, out, waiting.producer_id, waiting.producer_epoch, code)
    _drop(core, waiting)
    return status

cdef int _try(TransactionCore* core, Request* r, Response* out, Parked* parked, WaitingStep* waiting, bint expired) noexcept nogil:
    """Takes the step of the request, or waits for the id. Takes over `waiting`, which may be
    NULL."""
    cdef Asked asked
    cdef AskedRow rows[ADDED_MAX]
    cdef int outcome, slot
    cdef int status = _read(core, r, &asked, rows)
    if status != HANDLER_DONE:
        _drop(core, waiting)
        return status
    if waiting == NULL and table_is_fsync(core.table):
        waiting = _waiting_new(r, &asked)       # before the append: then nothing may fail
        if waiting == NULL:
            return HANDLER_CLOSE
    slot = epoch_enter(table_epochs(core.table))
    if not _are_known(core, &asked):
        epoch_leave(table_epochs(core.table), slot)
        _drop(core, waiting)
        return HANDLER_PYTHON
    outcome = _carry_out(
        core, &asked, r.api_key == KEY_END, NULL if waiting == NULL else &waiting.wait, False)
    if outcome == STEP_SETTLES and waiting == NULL:
        waiting = _waiting_new(r, &asked)
        outcome = ERROR_CONCURRENT_TRANSACTIONS
        if waiting != NULL:
            outcome = _carry_out(core, &asked, False, &waiting.wait, False)
    epoch_leave(table_epochs(core.table), slot)
    if outcome == STEP_SETTLES and not expired:
        return handler_parks(
            parked, waiting, r.received_ns + atomic_load_i64(&core.retry_max_ms) * 1000000,
            unfinished=True)
    if outcome == STEP_WAITS:
        waiting.is_taken = True
        waiting.producer_id, waiting.producer_epoch = asked.producer_id, asked.producer_epoch
        return _settle(core, r, out, parked, waiting, False)
    _drop(core, waiting)
    if outcome == STEP_SETTLES:
        outcome = ERROR_CONCURRENT_TRANSACTIONS
    return _answer(core, r, out, asked.producer_id, asked.producer_epoch, <int16_t>outcome)

cdef int _handle(void* context, Request* r, Response* out, Parked* parked) noexcept nogil:
    return _try(<TransactionCore*>context, r, out, parked, NULL, False)

cdef int _resume(void* context, Request* r, Response* out, Parked* parked, bint expired) noexcept nogil:
    cdef WaitingStep* waiting = <WaitingStep*>parked.state
    parked.state = NULL
    if waiting.is_taken:
        return _settle(<TransactionCore*>context, r, out, parked, waiting, expired)
    return _try(<TransactionCore*>context, r, out, parked, waiting, expired)

cdef void _abandon(void* context, Parked* parked) noexcept nogil:
    cdef WaitingStep* waiting = <WaitingStep*>parked.state
    parked.state = NULL
    if waiting.is_taken:
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
            _wake_waiters(core, txn)
            int64_map_remove(&shard.ids, txn.hashed)    # another one may move to this place
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


cdef class Asking:
    """A question of Python: its strings stay in memory as long as it does."""
    cdef Asked asked
    cdef int16_t* codes
    cdef list kept

    def __cinit__(self, str name, int64_t producer_id, int16_t epoch, partitions):
        cdef bytes raw = name.encode()
        cdef AskedRow* row
        cdef int32_t i
        rows = [(topic.encode(), index) for topic, index in partitions]
        self.kept = [raw, rows]
        asked_begin(
            &self.asked, <const uint8_t*><const char*>raw, <int32_t>len(raw), producer_id, epoch)
        self.asked.count = <int32_t>len(rows)
        self.asked.rows = <AskedRow*>malloc((len(rows) + 1) * sizeof(AskedRow))
        self.codes = <int16_t*>malloc((len(rows) + 1) * sizeof(int16_t))
        if self.asked.rows == NULL or self.codes == NULL:
            raise MemoryError
        for i in range(self.asked.count):
            raw, row = rows[i][0], &self.asked.rows[i]
            row.topic, row.topic_bytes = <const uint8_t*><const char*>raw, <int32_t>len(raw)
            row.index = rows[i][1]

    def __dealloc__(self):
        free(self.asked.rows)
        free(self.codes)


@cython.no_gc_clear         # __dealloc__ needs what it refers to
cdef class TransactionHandler(NativeHandler):
    """The ids of one broker. `topic`: of the coordinator's log, with its `states`; `offsets_topic`:
    of groups' offsets, with `offsets_states`. The groups' coordinator hears of transactions by
    `ended`; None: Python carries out every end. `settled`: the queue by which Python hears of ids
    that it must look at; None: it finds them by `late`. `timeout_ms`: of the wait for a flush, and
    `retry_max_ms` of the wait for an id that is busy, both from the request on.

    A transaction is a sequence of the fields of barnabas.coordinator.transactions.transaction.
    Transaction, in their order. Every call locks one shard at a time and never waits for a disk."""

    def __cinit__(
        self, table, str topic not None, str offsets_topic not None, EndedTransactions ended,
        SettledIds settled=None, *, PartitionStates states not None,
        PartitionStates offsets_states not None, int64_t timeout_ms=5000, int64_t retry_max_ms=100,
    ):
        cdef Shard* shard
        cdef int i
        self.topic, self.offsets_topic = topic.encode(), offsets_topic.encode()
        self.ended, self.settled = ended, settled
        self.states, self.offsets_states = states, offsets_states
        self.core = <TransactionCore*>calloc(1, sizeof(TransactionCore))
        if self.core == NULL:
            raise MemoryError
        self.core.table = table_of(table)
        self.core.ended = &ended.ended if ended is not None else NULL
        self.core.settled = settled.jobs if settled is not None else NULL
        self.core.states, self.core.offsets = &states.log, &offsets_states.log
        self.core.timeout_ns = timeout_ms * 1000000
        self.core.retry_max_ms = retry_max_ms
        self.core.reserved_producer_id = NONE
        self.core.topic = <const uint8_t*><const char*>self.topic
        self.core.topic_bytes = <int32_t>len(self.topic)
        self.core.offsets_topic = <const uint8_t*><const char*>self.offsets_topic
        self.core.offsets_topic_bytes = <int32_t>len(self.offsets_topic)
        secret_init(&self.core.secret)
        for i in range(SHARDS):
            shard = &self.core.shards[i]
            pthread_mutex_init(&shard.lock, NULL)
            int64_map_init(&shard.ids)
            buffer_init(&shard.value)
            buffer_init(&shard.batch)
        self.declare(
            ((KEY_ADD_PARTITIONS, 0, ADD_PARTITIONS_LAST), (KEY_ADD_OFFSETS, 0, ADD_OFFSETS_LAST),
             (KEY_END, 0, END_LAST)),
            self.core, _handle, _resume, _abandon)
        self.owner = table

    def __init__(self, table, topic, offsets_topic, ended, settled=None, **_options):
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
            txn_free(shard.spare)
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
            if stored and before != NULL:
                _wake_waiters(self.core, before)
            pthread_mutex_unlock(&shard.lock)
            txn_free(before if stored else txn)
        if not stored:
            raise MemoryError

    def get(self, str name not None):
        """Returns (partition of __transaction_state, step, whether the coordinator writes a step,
        transaction); None if there is no such id. "Writes a step" includes native code that waits
        for a flush: the transaction is as it was before."""
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
            txn_value(&b, txn, <int16_t>atomic_load_i32(&self.core.value_version))
            if b.failed:
                raise MemoryError
            return key, b.data[:b.size]
        finally:
            buffer_free(&b)
            txn_free(txn)

    def begin(self, str name not None, int64_t step) -> int:
        """A token for `finish`: Python writes the next step of the id, which is as it was at `step`.
        0: it has changed since, or is being written; then nothing was done."""
        cdef bytes raw = name.encode()
        cdef Named named = _named(self.core, raw)
        cdef int64_t token = 0
        cdef Txn* txn
        with nogil:
            txn = _locked(self.core, &named)
            if txn != NULL and txn.step == step and not _is_pending(txn):
                token = txn.token = _next_step(self.core)
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
                _wake_waiters(self.core, txn)
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
                _wake_waiters(self.core, txn)
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

    def add(
        self, str name not None, int64_t producer_id, int16_t epoch, partitions,
        int16_t client_version, uint64_t connection_id=0,
    ):
        """AddPartitionsToTxn and AddOffsetsToTxn of a request that Python parsed. `partitions`:
        [(topic, index)]; `client_version`: of transaction.version. Returns the error code of all;
        None: the id is busy, or the step waits for its flush, and the caller is to ask again."""
        cdef Asking asking = Asking(name, producer_id, epoch, partitions)
        cdef int slot, outcome
        asking.asked.client_version, asking.asked.connection_id = client_version, connection_id
        with nogil:
            slot = epoch_enter(table_epochs(self.core.table))
            outcome = _carry_out(self.core, &asking.asked, False, NULL, True)
            epoch_leave(table_epochs(self.core.table), slot)
        return None if outcome == STEP_SETTLES else outcome

    def has(self, str name not None, int64_t producer_id, int16_t epoch, partitions) -> list:
        """Returns an error code for each of [(topic, index)]: 0 for a partition of the producer's
        transaction."""
        cdef Asking asking = Asking(name, producer_id, epoch, partitions)
        cdef int code
        with nogil:
            code = transaction_has(self.core, &asking.asked, asking.codes)
        if code != ERROR_NONE:
            return [code] * asking.asked.count
        return [asking.codes[i] for i in range(asking.asked.count)]

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
    def retry_max_ms(self) -> int:
        """The longest wait for an id that is busy."""
        return atomic_load_i64(&self.core.retry_max_ms)

    @retry_max_ms.setter
    def retry_max_ms(self, int64_t value):
        atomic_store_i64(&self.core.retry_max_ms, value)

    @property
    def reserved_producer_id(self) -> int:
        """A producer id for the next producer whose epochs are exhausted; -1: none."""
        return atomic_load_i64(&self.core.reserved_producer_id)

    @reserved_producer_id.setter
    def reserved_producer_id(self, int64_t producer_id):
        atomic_store_i64(&self.core.reserved_producer_id, producer_id)

    @property
    def count(self) -> int:
        """Returns the number of ids in the table."""
        return atomic_load_i64(&self.core.id_count)

    @property
    def served(self) -> int:
        """Returns the number of requests that the native handlers answered."""
        return atomic_load_i64(&self.core.served)
