"""Begins, extends and ends transactions: the rules of AddPartitionsToTxn, AddOffsetsToTxn and
EndTxn.

This file decides whether an id takes the step that a request asks for, with which error it refuses
the request, and what the step is; transactional_ids.pyx writes it. Produce and TxnOffsetCommit add
partitions by `transaction_adds` from transaction.version 2 on. Python calls `add` and `has` for
requests that it parsed.

An end is answered when it is decided. On a single node with log.durability=os this thread then
writes the markers and the Complete record. With fsync or in a cluster, where an append becomes
durable later, or when the thread cannot write them, it passes the id to Python
(TransactionalIdQueue), which writes them. EndTxn 5 bumps the epoch. After a crash between the
decision and the Complete record, Python finds the decided end when it loads the partition, and
completes it.

A partition that this node leads may belong to a transaction that another broker coordinates:
`transaction_adds` and `transaction_has` then ask that broker (remote_verification.pyx).

    marker      key int16 0, int16 0 abort or 1 commit; value int16 0, int32 coordinator epoch

Next on the data path: cext/coordinator/transactional_ids.pyx.
"""
cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp

from barnabas.cext.codec.buffer cimport Buffer, buffer_free, buffer_i16, buffer_i32
from barnabas.cext.codec.error_codes cimport (
    ERROR_CONCURRENT_TRANSACTIONS, ERROR_COORDINATOR_LOAD_IN_PROGRESS,
    ERROR_INVALID_PRODUCER_ID_MAPPING, ERROR_INVALID_REQUEST, ERROR_INVALID_TXN_STATE,
    ERROR_NETWORK_EXCEPTION, ERROR_NONE, ERROR_NOT_COORDINATOR, ERROR_PRODUCER_FENCED,
    ERROR_TRANSACTION_ABORTABLE, ERROR_UNKNOWN_SERVER_ERROR,
)
from barnabas.cext.coordinator.commit_entries cimport Entry, entry_free, entry_marker
from barnabas.cext.coordinator.coordinator_batch cimport (
    own_batch_append, own_batch_begin, own_batch_end, own_record_begin, own_record_end,
    own_record_value,
)
from barnabas.cext.coordinator.durable_wait cimport durable_wait_on, DurableWait
from barnabas.cext.coordinator.ended_transactions cimport (
    ended_append, ended_has_capacity, EndedTransactions,
)
from barnabas.cext.coordinator.partition_states cimport states_error, states_partition_of
from barnabas.cext.coordinator.remote_verification cimport (
    remote_ask, remote_drop, remote_is_answered, RemoteVerifications,
)
from barnabas.cext.coordinator.transaction_state cimport (
    Asked, AskedRow, rows_add, rows_copy, rows_have, STATE_COMPLETE_ABORT, STATE_COMPLETE_COMMIT,
    STATE_ONGOING, STATE_PREPARE_ABORT, STATE_PREPARE_COMMIT, Txn, txn_is_busy, txn_is_prepared,
    txn_takes_part, txn_was_left_on, TxnRow, TxnRows,
)
from barnabas.cext.coordinator.transactional_ids cimport (
    BUMPS_EPOCH, ids_after, ids_append, ids_enqueue, ids_give_back, ids_journal, ids_lock,
    ids_take, ids_unlock, ids_wait, IdShard, STEP_SETTLES, STEP_WAITS, TransactionalIds,
)
from barnabas.cext.log.log cimport BUMPING_MARKER, TRUSTED
from barnabas.cext.log.log_transactions cimport log_renew_verification
from barnabas.cext.memory.atomics cimport (
    atomic_cas_i64, atomic_load_i32, atomic_load_i64, atomic_store_i64,
)
from barnabas.cext.memory.epoch cimport epoch_enter, epoch_leave
from barnabas.cext.memory.sys cimport System
from barnabas.cext.partition.partitions cimport (
    Partition, partition_by_name, table_epochs, table_system,
)
from barnabas.cext.record.records cimport ATTR_CONTROL, ATTR_TRANSACTIONAL

cdef enum:
    EPOCH_MAX = 32767               # reserved for fencing; before it a producer gets its next id
    MARKERS_MAX = 128               # of a transaction that this file ends; Python ends larger ones
    RENEWED_MAX = 3                 # how often a marker may overtake the verifications of one request
    MARKER_ABORT = 0
    MARKER_COMMIT = 1
    NONE = -1

cdef struct Ending:                 # a partition of a transaction that ends
    Partition* p
    Entry* note                     # for the group coordinator; NULL: a partition of another topic


# -------------------------------------------------------------------------------- the producer

cdef int _refused(Steps* steps, const Asked* asked, const Txn* txn) noexcept nogil:
    """Returns the error code for an id that this node does not coordinate, or that does not exist;
    0: the id takes requests."""
    cdef int code
    if asked.name_bytes <= 0:
        return ERROR_INVALID_REQUEST
    code = states_error(
        steps.ids.states, txn.partition if txn != NULL else states_partition_of(
            steps.ids.states, asked.name, asked.name_bytes))
    if code == ERROR_NONE and txn == NULL:
        code = ERROR_INVALID_PRODUCER_ID_MAPPING
    return code

cdef inline int _producer_error(const Txn* txn, const Asked* asked) noexcept nogil:
    if txn.producer_id != asked.producer_id:
        return ERROR_INVALID_PRODUCER_ID_MAPPING
    if txn.producer_epoch != asked.producer_epoch or txn.producer_epoch < 0:
        return ERROR_PRODUCER_FENCED
    return ERROR_NONE


# -------------------------------------------------------------------------------- adding partitions

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
    """Writes the transaction's partitions with the added ones into `rows`. Returns False without
    memory."""
    cdef const AskedRow* row
    cdef int32_t i
    if txn.state == STATE_ONGOING and not rows_copy(rows, &txn.rows):
        return False
    for i in range(asked.count):
        row = &asked.rows[i]
        if not rows_add(rows, row.topic, row.topic_bytes, row.index):
            return False
    return True

cdef int _grow(Steps* steps, IdShard* shard, Txn* txn, const Asked* asked) noexcept nogil:
    cdef System* system = table_system(steps.ids.table)
    cdef Txn* after = ids_after(shard, txn)
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
        code = ids_append(steps.ids, shard, txn, after, &is_durable)
    if code != ERROR_NONE:
        ids_give_back(shard, after)
        return code
    txn_takes_part(txn, asked.connection_id)        # before the state changes
    return ids_take(steps.ids, shard, txn, after, is_durable)

cdef int _add(Steps* steps, IdShard* shard, Txn* txn, const Asked* asked) noexcept nogil:
    """Adds partitions; the caller holds the shard's lock and is inside an epoch. A step in
    progress, or the end of a transaction, may change epoch and producer id, so nothing is compared
    before it ends."""
    cdef int code
    if txn_is_busy(txn):
        return STEP_SETTLES
    code = _producer_error(txn, asked)
    if code != ERROR_NONE:
        return code
    if not _has_all(txn, asked):
        return _grow(steps, shard, txn, asked)
    txn_takes_part(txn, asked.connection_id)
    return ERROR_NONE


# -------------------------------------------------------------------------------- the markers

cdef bint _find_endings(Steps* steps, const Txn* txn, Ending* endings, int32_t* found) noexcept nogil:
    """Finds every partition, and makes a note for each with groups' offsets. It sets `found` to
    their number also when it returns False."""
    cdef const TxnRow* row
    cdef const uint8_t* topic
    cdef Ending* at
    cdef int16_t error
    cdef int32_t i
    for i in range(txn.rows.count):
        row = &txn.rows.at[i]
        topic = txn.rows.names.data + row.name_at
        at = &endings[i]
        at.note = NULL
        at.p = partition_by_name(steps.ids.table, topic, row.name_bytes, row.index, &error)
        if at.p == NULL:
            return False
        if row.name_bytes == steps.offsets_topic_bytes and (
                memcmp(topic, steps.offsets_topic, row.name_bytes) == 0):
            at.note = entry_marker(
                row.index, txn.producer_id, txn.state == STATE_PREPARE_COMMIT)
            if at.note == NULL:
                return False
        found[0] = i + 1
    return True

cdef bint _write_markers(Steps* steps, IdShard* shard, const Txn* txn, Ending* endings) noexcept nogil:
    """Writes the markers and takes over the notes. Returns whether all are written."""
    cdef Buffer* b = &shard.own.batch
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
                steps.ended, steps.ids.table, endings[i].p, b, endings[i].note, verification) == 0
        else:
            epoch = atomic_load_i32(&endings[i].p.leader_epoch)
            all_written = own_batch_append(
                steps.ids.table, endings[i].p, b, epoch, &offset, verification) == 0
    return all_written

cdef bint _complete(Steps* steps, IdShard* shard, Txn* txn) noexcept nogil:
    """Writes the Complete record. Returns whether it is in the log and in effect."""
    cdef System* system = table_system(steps.ids.table)
    cdef Txn* after = ids_after(shard, txn)
    cdef bint is_durable
    if after == NULL:
        return False
    after.update_ms = system.wall_ms(system)
    after.state = STATE_COMPLETE_ABORT
    if txn.state == STATE_PREPARE_COMMIT:
        after.state = STATE_COMPLETE_COMMIT
    if ids_append(steps.ids, shard, txn, after, &is_durable) != ERROR_NONE:
        ids_give_back(shard, after)
        return False
    return ids_take(steps.ids, shard, txn, after, is_durable) == ERROR_NONE

cdef bint _carries_out(Steps* steps, IdShard* shard, Txn* txn) noexcept nogil:
    """Writes the markers and the Complete record of a prepared id, if an append takes effect at
    once. Returns False if Python must write the missing ones."""
    cdef Ending endings[MARKERS_MAX]
    cdef int32_t found = 0, i
    if steps_may_wait(steps) or txn.rows.count > MARKERS_MAX or (
            txn.next_producer_id >= 0 or steps.ended == NULL or not ended_has_capacity(steps.ended)):
        return False
    if not _find_endings(steps, txn, endings, &found):
        for i in range(found):
            entry_free(endings[i].note)
        return False
    return _write_markers(steps, shard, txn, endings) and _complete(steps, shard, txn)


# -------------------------------------------------------------------------------- the end

cdef inline bint _has_ended(const Txn* txn, const Asked* asked) noexcept nogil:
    """Returns whether the newest transaction has ended as the request asks."""
    return txn.state == (STATE_COMPLETE_COMMIT if asked.committed else STATE_COMPLETE_ABORT)

cdef int _check_end(const Txn* txn, const Asked* asked, bint* again) noexcept nogil:
    """Checks an EndTxn before transaction.version 2. Returns 0 if it ends a transaction, or if an
    earlier request ended it (then sets `again`); otherwise the error code. The epoch does not show
    whether the request is late, from a connection that its producer has left
    (docs/decisions/late-end-of-transaction.md)."""
    cdef int code = _producer_error(txn, asked)
    if code != ERROR_NONE:
        return code
    if txn_is_busy(txn):
        return ERROR_CONCURRENT_TRANSACTIONS
    if txn.state == STATE_ONGOING:
        if txn_was_left_on(txn, asked.connection_id):
            return ERROR_CONCURRENT_TRANSACTIONS
        return ERROR_NONE
    again[0] = _has_ended(txn, asked)
    return ERROR_NONE if again[0] else ERROR_INVALID_TXN_STATE

cdef int _check_bumping_end(const Txn* txn, const Asked* asked, bint* again) noexcept nogil:
    """The same for transaction.version 2, where each end bumps the epoch. A producer may abort a
    transaction that has not begun, because it may not know whether a batch of it has arrived."""
    cdef bint has_new_id = txn.previous_producer_id == asked.producer_id and (
        asked.producer_epoch == EPOCH_MAX - 1 and txn.producer_epoch == 0)
    cdef bint was_ended = txn.state in (STATE_COMPLETE_COMMIT, STATE_COMPLETE_ABORT) and (
        has_new_id or txn.producer_epoch == asked.producer_epoch + 1)
    if txn_is_busy(txn):
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

cdef int64_t _take_producer_id(Steps* steps) noexcept nogil:
    """Takes the producer id in reserve; -1: Python has not brought the next one yet."""
    cdef int64_t found = atomic_load_i64(&steps.reserved_producer_id)
    while found >= 0 and not atomic_cas_i64(&steps.reserved_producer_id, found, NONE):
        found = atomic_load_i64(&steps.reserved_producer_id)
    return found

cdef int _decide(Steps* steps, IdShard* shard, Txn* txn, Asked* asked) noexcept nogil:
    """Writes the Prepare record. Sets the producer of the answer in `asked`."""
    cdef System* system = table_system(steps.ids.table)
    cdef bint bumps = asked.client_version >= BUMPS_EPOCH, is_durable
    cdef int64_t next_id = NONE
    cdef Txn* after
    cdef int code
    if bumps and txn.producer_epoch >= EPOCH_MAX - 1:
        next_id = _take_producer_id(steps)
        if next_id < 0:
            ids_enqueue(steps.ids, txn)
            return ERROR_COORDINATOR_LOAD_IN_PROGRESS   # as Kafka when it has no producer ids left
    after = ids_after(shard, txn)
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
        code = ids_append(steps.ids, shard, txn, after, &is_durable)
    if code != ERROR_NONE:
        ids_give_back(shard, after)
        return code
    asked.producer_id = next_id if next_id >= 0 else after.producer_id
    asked.producer_epoch = 0 if next_id >= 0 else after.producer_epoch
    code = ids_take(steps.ids, shard, txn, after, is_durable)
    if code == ERROR_NONE and not _carries_out(steps, shard, txn):
        ids_enqueue(steps.ids, txn)
    return code

cdef int _end(Steps* steps, IdShard* shard, Txn* txn, Asked* asked) noexcept nogil:
    """Ends a transaction; the caller holds the shard's lock and is inside an epoch. Sets the
    producer of the answer in `asked`."""
    cdef bint again = False
    cdef int code
    if asked.client_version >= BUMPS_EPOCH:
        code = _check_bumping_end(txn, asked, &again)
    else:
        code = _check_end(txn, asked, &again)
    if code == ERROR_NONE and not again:
        return _decide(steps, shard, txn, asked)
    asked.producer_id, asked.producer_epoch = txn.producer_id, txn.producer_epoch
    return code


# -------------------------------------------------------------------------------- the steps of requests

cdef int transaction_steps(Steps* steps, Asked* asked, bint ends, DurableWait* wait, bint asks_again) noexcept nogil:
    cdef IdShard* shard
    cdef Txn* txn = ids_lock(steps.ids, asked.name, asked.name_bytes, &shard)
    cdef int outcome = _refused(steps, asked, txn)
    cdef Partition* p
    if outcome == ERROR_NONE:
        outcome = _end(steps, shard, txn, asked) if ends else _add(steps, shard, txn, asked)
    if outcome == STEP_WAITS and asks_again:
        outcome = STEP_SETTLES
    if wait != NULL and outcome == STEP_WAITS:
        p = ids_journal(steps.ids, txn)
        if p != NULL:               # otherwise the wait ends at once, with NOT_COORDINATOR
            durable_wait_on(wait, p, txn.required, txn.leader_epoch)
    elif wait != NULL and outcome == STEP_SETTLES:
        outcome = ids_wait(steps.ids, txn, &wait.watch)
    ids_unlock(shard)
    return outcome

cdef int _ask_other(Steps* steps, const Asked* asked, bint adds, const DurableWait* wait, Remote** remote, int16_t* codes) noexcept nogil:
    """Asks the coordinator on another broker. Returns 0 and sets the codes, or an error code for
    all rows, or STEP_SETTLES until the answer has arrived."""
    cdef int32_t i
    if steps.remote == NULL:
        return ERROR_NOT_COORDINATOR
    if remote[0] == NULL:
        remote[0] = remote_ask(steps.remote, steps.ids.table, asked, adds, &wait.watch)
        return ERROR_NETWORK_EXCEPTION if remote[0] == NULL else STEP_SETTLES
    if not remote_is_answered(remote[0]):
        return STEP_SETTLES
    for i in range(asked.count):
        codes[i] = remote[0].codes[i]
    remote_drop(remote[0])
    remote[0] = NULL
    return ERROR_NONE

cdef int _add_at_other(Steps* steps, const Asked* asked, const DurableWait* wait, Remote** remote) noexcept nogil:
    """Adds partitions at the coordinator on another broker, which adds all or none: one code is for
    all."""
    cdef int16_t* codes = <int16_t*>calloc(asked.count + 1, sizeof(int16_t))
    cdef int outcome = ERROR_UNKNOWN_SERVER_ERROR
    cdef int32_t i
    if codes != NULL:
        outcome = _ask_other(steps, asked, True, wait, remote, codes)
        for i in range(asked.count):
            if outcome == ERROR_NONE:
                outcome = codes[i]
    free(codes)
    return outcome

cdef int transaction_adds(Steps* steps, Asked* asked, Partition** partitions, const int64_t* verifications, DurableWait* wait, Remote** remote) noexcept nogil:
    cdef int32_t attempt, i
    cdef int outcome
    cdef bint overtaken
    for attempt in range(RENEWED_MAX):
        outcome = ERROR_NOT_COORDINATOR
        if remote[0] == NULL:
            outcome = transaction_steps(steps, asked, False, wait, True)
        if outcome == ERROR_NOT_COORDINATOR:
            outcome = _add_at_other(steps, asked, wait, remote)
        if outcome != ERROR_NONE:
            return outcome
        overtaken = False
        for i in range(asked.count):
            # A verification that a marker has overtaken counts as begun now.
            overtaken |= log_renew_verification(partitions[i].log, verifications[i])
        if not overtaken:
            return ERROR_NONE
    return ERROR_CONCURRENT_TRANSACTIONS

cdef int _has(Steps* steps, const Asked* asked, int16_t* codes) noexcept nogil:
    cdef int slot = epoch_enter(table_epochs(steps.ids.table))
    cdef IdShard* shard
    cdef Txn* txn = ids_lock(steps.ids, asked.name, asked.name_bytes, &shard)
    cdef int32_t i
    cdef int code
    code = _refused(steps, asked, txn)
    if code == ERROR_NONE:
        code = _producer_error(txn, asked)
    if code == ERROR_NONE and txn_is_prepared(txn):
        code = ERROR_CONCURRENT_TRANSACTIONS
    for i in range(asked.count if code == ERROR_NONE else 0):
        codes[i] = ERROR_TRANSACTION_ABORTABLE
        if txn.state == STATE_ONGOING and rows_have(
                &txn.rows, asked.rows[i].topic, asked.rows[i].topic_bytes, asked.rows[i].index):
            codes[i] = ERROR_NONE
    ids_unlock(shard)
    epoch_leave(table_epochs(steps.ids.table), slot)
    return code

cdef int transaction_has(Steps* steps, const Asked* asked, int16_t* codes, const DurableWait* wait, Remote** remote) noexcept nogil:
    cdef int code = ERROR_NOT_COORDINATOR
    if remote == NULL or remote[0] == NULL:
        code = _has(steps, asked, codes)
    if code == ERROR_NOT_COORDINATOR and remote != NULL:
        code = _ask_other(steps, asked, False, wait, remote, codes)
    return code


# -------------------------------------------------------------------------------- Python's side

cdef class Asking:
    """A question of Python. It keeps its strings in memory."""
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


@cython.no_gc_clear         # network threads use what it refers to
cdef class TransactionSteps:
    """The rules of transactions for the transactional `ids` of one broker. `offsets_topic`: the
    topic with the offsets of groups. `ended`: the queue of ended transactions for the group
    coordinator; None: Python carries out every end. `retry_max_ms`: how long a request waits for a
    busy id, from its arrival."""

    def __cinit__(
        self, TransactionalIds ids not None, str offsets_topic not None, EndedTransactions ended,
        *, int64_t retry_max_ms=100,
    ):
        self.ids, self.ended, self.offsets_topic = ids, ended, offsets_topic.encode()
        self.steps.ids = ids.ids
        self.steps.ended = &ended.ended if ended is not None else NULL
        self.steps.offsets_topic = <const uint8_t*><const char*>self.offsets_topic
        self.steps.offsets_topic_bytes = <int32_t>len(self.offsets_topic)
        self.steps.retry_max_ms, self.steps.reserved_producer_id = retry_max_ms, NONE

    def __init__(self, ids, offsets_topic, ended, *, retry_max_ms=100):
        pass

    def add(
        self, str name not None, int64_t producer_id, int16_t epoch, partitions,
        int16_t client_version, uint64_t connection_id=0,
    ):
        """Carries out an AddPartitionsToTxn or AddOffsetsToTxn that Python parsed. `partitions`:
        [(topic, index)]; `client_version`: the client's transaction.version. Returns one error code
        for all partitions; None: the id is busy, or the step waits for its flush, and the caller
        must call again."""
        cdef Asking asking = Asking(name, producer_id, epoch, partitions)
        cdef int slot, outcome
        asking.asked.client_version, asking.asked.connection_id = client_version, connection_id
        with nogil:
            slot = epoch_enter(table_epochs(self.steps.ids.table))
            outcome = transaction_steps(&self.steps, &asking.asked, False, NULL, True)
            epoch_leave(table_epochs(self.steps.ids.table), slot)
        return None if outcome == STEP_SETTLES else outcome

    def has(self, str name not None, int64_t producer_id, int16_t epoch, partitions) -> list:
        """Returns an error code for each of [(topic, index)]: 0 for a partition of the producer's
        transaction."""
        cdef Asking asking = Asking(name, producer_id, epoch, partitions)
        cdef int code
        with nogil:
            code = transaction_has(&self.steps, &asking.asked, asking.codes, NULL, NULL)
        if code != ERROR_NONE:
            return [code] * asking.asked.count
        return [asking.codes[i] for i in range(asking.asked.count)]

    def ask_others(self, RemoteVerifications remote not None):
        """Sets the queue for questions to coordinators on other brokers. Call it before the first
        request."""
        self.remote = remote
        self.steps.remote = remote.jobs

    @property
    def retry_max_ms(self) -> int:
        """The longest wait for a busy id in ms."""
        return atomic_load_i64(&self.steps.retry_max_ms)

    @retry_max_ms.setter
    def retry_max_ms(self, int64_t value):
        atomic_store_i64(&self.steps.retry_max_ms, value)

    @property
    def reserved_producer_id(self) -> int:
        """A producer id for the next producer whose epochs are exhausted; -1: none."""
        return atomic_load_i64(&self.steps.reserved_producer_id)

    @reserved_producer_id.setter
    def reserved_producer_id(self, int64_t producer_id):
        atomic_store_i64(&self.steps.reserved_producer_id, producer_id)
