"""The table of a broker's transactional ids, and the steps that an id takes.

The table has every id that this node coordinates, in shards with a lock each. This file finds an id
and moves it from one state to the next; transaction_steps.pyx decides which step a request may
take.

A step appends its record. With log.durability=os it takes effect at once. With fsync the state that
follows waits in `after` for the flush. The next access to the id puts the state into effect
(_catch_up), so a closed connection loses nothing. While the step waits, the id takes no other step,
and requests that find it busy wait for it (`ids_wait`).

Python (barnabas.coordinator.transactions.coordinator) takes the steps of InitProducerId, of expiry,
and the Complete record of an end that it carries out. It reads an id with `get`, writes the step
with `begin`, its journal, and `finish`. `begin` fails when the id has changed since `get`; between
`begin` and `finish` native code does not touch the id.

A crash loses nothing that was answered, because the table is a copy of the log. An id takes some
400 bytes and leaves the table after transactional.id.expiration.ms.
Next on the data path: cext/coordinator/transaction_state.pyx; for Python's steps
broker/coordinator/transactions/coordinator.py.
"""
cimport cython
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from barnabas.cext.codec.buffer cimport (
    Buffer, buffer_bytes, buffer_free, buffer_i32, buffer_init,
)
from barnabas.cext.codec.cursor cimport (
    Cursor, cursor_i32, cursor_left, cursor_of, cursor_take,
)
from barnabas.cext.codec.error_codes cimport (
    ERROR_CONCURRENT_TRANSACTIONS, ERROR_NONE, ERROR_NOT_COORDINATOR, ERROR_UNKNOWN_SERVER_ERROR,
)
from barnabas.cext.coordinator.coordinator_batch cimport (
    own_batch_append, own_batch_begin, own_batch_end, own_record_begin, own_record_end,
    own_record_value,
)
from barnabas.cext.coordinator.partition_states cimport PartitionStates
from barnabas.cext.coordinator.shards cimport (
    Named, named_find, named_first, named_put, named_take, shard_free, shard_index, shard_init,
)
from barnabas.cext.coordinator.transaction_state cimport (
    LOADING, rows_add, rows_copy, rows_free, rows_have, STATE_ONGOING, Txn, txn_free,
    txn_is_pending, txn_is_prepared, txn_key, txn_new, txn_value, TxnRow, TxnRows, Waiter,
    WAITERS_MAX,
)
from barnabas.cext.coordinator.transactional_id_queue cimport id_queue_put, TransactionalIdQueue
from barnabas.cext.log.log_transactions cimport log_expect_transaction
from barnabas.cext.memory.atomics cimport (
    atomic_add_i64, atomic_load_i32, atomic_load_i64, atomic_load_pointer, atomic_store_i32,
)
from barnabas.cext.memory.epoch cimport epoch_enter, epoch_leave
from barnabas.cext.memory.mutex cimport pthread_mutex_lock, pthread_mutex_unlock
from barnabas.cext.memory.secret_hash cimport secret_hash, secret_init
from barnabas.cext.partition.partitions cimport (
    Partition, partition_by_name, partition_high_watermark, partition_watch, table_epochs,
    table_of, table_wake, Watch, watch_waits,
)
from barnabas.cext.partition.topics cimport ProducePolicy

cdef enum:
    SPARE_ROWS_MAX = 32             # partitions of a step whose memory is kept
    # Which ids Python asks for; see _matches.
    EVERY = 0
    PREPARED_IN = 1
    LATE = 2
    UNUSED = 3


# -------------------------------------------------------------------------------- finding an id

cdef inline int64_t _hash(const Ids* ids, const uint8_t* p, int64_t n) noexcept nogil:
    return secret_hash(&ids.secret, p, n)

cdef inline IdShard* _shard(Ids* ids, int64_t hashed) noexcept nogil:
    return &ids.shards[shard_index(hashed)]

cdef inline int64_t _next_step(Ids* ids) noexcept nogil:
    return atomic_add_i64(&ids.step, 1)

cdef Txn* ids_lock(Ids* ids, const uint8_t* name, int32_t name_bytes, IdShard** shard) noexcept nogil:
    cdef int64_t hashed = _hash(ids, name, name_bytes)
    cdef Txn* txn
    shard[0] = _shard(ids, hashed)
    pthread_mutex_lock(&shard[0].own.lock)
    txn = <Txn*>named_find(&shard[0].own.records, hashed, name, name_bytes)
    if txn != NULL:
        _catch_up(ids, txn)
    return txn

cdef void ids_look(Ids* ids, const uint8_t* name, int32_t name_bytes) noexcept nogil:
    cdef int slot = epoch_enter(table_epochs(ids.table))
    cdef IdShard* shard
    cdef Txn* txn = ids_lock(ids, name, name_bytes, &shard)
    if txn != NULL and txn.after != NULL:
        ids_enqueue(ids, txn)
    ids_unlock(shard)
    epoch_leave(table_epochs(ids.table), slot)

cdef void ids_enqueue(Ids* ids, const Txn* txn) noexcept nogil:
    if ids.queue != NULL:
        id_queue_put(ids.queue, txn.named.name, txn.named.name_bytes)

cdef Partition* ids_journal(Ids* ids, const Txn* txn) noexcept nogil:
    cdef int16_t error
    cdef Partition* p = partition_by_name(
        ids.table, ids.topic, ids.topic_bytes, txn.partition, &error)
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

cdef void _wake_waiters(Ids* ids, Txn* txn) noexcept nogil:
    """Wakes the requests that wait for the id, because it has taken a step or was removed."""
    cdef int32_t i
    for i in range(txn.waiter_count):
        table_wake(ids.table, txn.waiters[i].thread_index, txn.waiters[i].connection_id)
    txn.waiter_count = 0
    free(txn.waiters)
    txn.waiters = NULL

cdef int ids_wait(Ids* ids, Txn* txn, Watch* watch) noexcept nogil:
    cdef Partition* p
    if txn.after == NULL:
        return STEP_SETTLES if _add_waiter(txn, watch) else ERROR_CONCURRENT_TRANSACTIONS
    p = ids_journal(ids, txn)
    if p != NULL and not watch_waits(watch):
        partition_watch(ids.table, p, watch)       # before the check, not after it
    _catch_up(ids, txn)
    if txn.after == NULL:
        table_wake(ids.table, watch.thread_index, watch.connection_id)
    return STEP_SETTLES


# -------------------------------------------------------------------------------- a step

cdef Txn* ids_after(IdShard* shard, const Txn* txn) noexcept nogil:
    """Uses the memory of an earlier step."""
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
    memset(&after.named, 0, sizeof(Named))
    after.after, after.waiters, after.waiter_count, after.key_bytes = NULL, NULL, 0, 0
    return after

cdef void ids_give_back(IdShard* shard, Txn* after) noexcept nogil:
    if shard.spare == NULL and after.rows.capacity <= SPARE_ROWS_MAX:
        shard.spare = after
    else:
        txn_free(after)

cdef int ids_append(Ids* ids, IdShard* shard, Txn* txn, const Txn* after, bint* is_durable) noexcept nogil:
    cdef int64_t offset
    cdef Buffer* b = &shard.own.batch
    cdef Partition* p = ids_journal(ids, txn)
    if p == NULL:
        return ERROR_NOT_COORDINATOR
    shard.value.size = 0
    txn_value(&shard.value, after, <int16_t>atomic_load_i32(&ids.value_version))
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
    if own_batch_append(ids.table, p, b, txn.leader_epoch, &offset) != ERROR_NONE:
        return ERROR_NOT_COORDINATOR
    txn.required = offset + 1
    is_durable[0] = partition_high_watermark(p) > offset
    return ERROR_NONE

cdef void _expect_added(Ids* ids, const Txn* txn, const Txn* after) noexcept nogil:
    """Makes the logs of the partitions that `after` adds expect the transaction."""
    cdef const TxnRow* row
    cdef const uint8_t* topic
    cdef Partition* p
    cdef int16_t error
    cdef int32_t i
    for i in range(after.rows.count):
        row = &after.rows.at[i]
        topic = after.rows.names.data + row.name_at
        if txn.state == STATE_ONGOING and rows_have(
                &txn.rows, topic, row.name_bytes, row.index):
            continue
        p = partition_by_name(ids.table, topic, row.name_bytes, row.index, &error)
        if p != NULL:
            log_expect_transaction(p.log, after.producer_id, after.producer_epoch)

cdef void _replace(Ids* ids, Txn* txn, Txn* after) noexcept nogil:
    """Moves the state of `after` into the id; `after` gets the old partitions. The caller holds the
    shard's lock."""
    cdef TxnRows before = txn.rows
    txn.rows, after.rows = after.rows, before
    txn.producer_id, txn.producer_epoch = after.producer_id, after.producer_epoch
    txn.previous_producer_id = after.previous_producer_id
    txn.next_producer_id = after.next_producer_id
    txn.timeout_ms, txn.state = after.timeout_ms, after.state
    txn.start_ms, txn.update_ms = after.start_ms, after.update_ms
    txn.last_epoch, txn.client_version = after.last_epoch, after.client_version
    txn.ordered = False
    txn.step = _next_step(ids)

cdef void _make_visible(Ids* ids, Txn* txn, Txn* after) noexcept nogil:
    """Puts `after`, whose record is durable, into effect. For clients that add partitions
    themselves, the logs expect the transaction before the table shows it, so that no end of it
    comes first."""
    if after.state == STATE_ONGOING and after.client_version < BUMPS_EPOCH:
        _expect_added(ids, txn, after)
    _replace(ids, txn, after)

cdef void _catch_up(Ids* ids, Txn* txn) noexcept nogil:
    """Puts the step of native code into effect when its record is durable, and drops it when this
    node no longer leads the partition (the id is loaded again then). Every access to an id begins
    with this. The caller holds the shard's lock and is inside an epoch."""
    cdef Partition* p
    cdef Txn* after = txn.after
    if after == NULL:
        return
    p = ids_journal(ids, txn)
    if p != NULL:
        if partition_high_watermark(p) < txn.required:
            return
        _make_visible(ids, txn, after)
    txn.after = NULL
    txn_free(after)
    if txn_is_prepared(txn):
        ids_enqueue(ids, txn)
    _wake_waiters(ids, txn)

cdef int ids_take(Ids* ids, IdShard* shard, Txn* txn, Txn* after, bint is_durable) noexcept nogil:
    if is_durable:
        _make_visible(ids, txn, after)
        ids_give_back(shard, after)
        return ERROR_NONE
    txn.after = after
    return STEP_WAITS

# -------------------------------------------------------------------------------- Python's side

cdef bint _matches(const Txn* txn, int which, int64_t argument) noexcept nogil:
    if which == EVERY:
        return True
    if which == PREPARED_IN:
        return txn.partition == argument and txn_is_prepared(txn)
    if txn.leader_epoch == LOADING or txn_is_pending(txn):
        return False
    if which == UNUSED:
        return txn.state != STATE_ONGOING and not txn_is_prepared(txn) and txn.update_ms <= argument
    if txn.state == STATE_ONGOING:
        return txn.start_ms + txn.timeout_ms < argument
    return txn_is_prepared(txn) and not txn.ordered

cdef void _add_name(Buffer* b, const Txn* txn) noexcept nogil:
    buffer_i32(b, txn.named.name_bytes)
    buffer_bytes(b, txn.named.name, txn.named.name_bytes)

cdef void _collect(Ids* ids, Buffer* b, int which, int64_t argument, int32_t leader_epoch) noexcept nogil:
    """Adds the names of the ids that match to the buffer. PREPARED_IN also sets the leader epoch of
    every id of the partition."""
    cdef IdShard* shard
    cdef Txn* txn
    cdef int64_t k
    cdef int i
    cdef int slot = epoch_enter(table_epochs(ids.table))
    for i in range(SHARDS):
        shard = &ids.shards[i]
        pthread_mutex_lock(&shard.own.lock)
        for k in range(shard.own.records.capacity):
            txn = <Txn*>named_first(&shard.own.records, k)
            while txn != NULL:
                _catch_up(ids, txn)
                if which == PREPARED_IN and txn.partition == argument:
                    txn.leader_epoch = leader_epoch
                if _matches(txn, which, argument):
                    _add_name(b, txn)
                txn = <Txn*>txn.named.next
        pthread_mutex_unlock(&shard.own.lock)
    epoch_leave(table_epochs(ids.table), slot)

cdef void _take(Ids* ids, IdShard* shard, Txn* txn) noexcept nogil:
    """Removes an id from the table; the caller holds the shard's lock."""
    named_take(&shard.own.records, txn.named.hashed, txn.named.name, txn.named.name_bytes)
    atomic_add_i64(&ids.count, -1)
    _wake_waiters(ids, txn)

cdef void _forget(Ids* ids, Buffer* b, int32_t partition) noexcept nogil:
    cdef IdShard* shard
    cdef Txn* txn
    cdef int64_t k
    cdef int i
    for i in range(SHARDS):
        shard = &ids.shards[i]
        pthread_mutex_lock(&shard.own.lock)
        k = 0
        while k < shard.own.records.capacity:
            txn = <Txn*>named_first(&shard.own.records, k)
            while txn != NULL and txn.partition != partition:
                txn = <Txn*>txn.named.next
            if txn == NULL:
                k += 1
                continue
            _add_name(b, txn)
            _take(ids, shard, txn)      # another id may move to this place
            txn_free(txn)
        pthread_mutex_unlock(&shard.own.lock)

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


cdef struct Wanted:                 # an id that Python names
    const uint8_t* at
    int32_t size_bytes
    IdShard* shard                  # locked

cdef Wanted _wanted(bytes name):
    """Returns the name as a Wanted, which is valid as long as the caller holds `name`."""
    cdef Wanted wanted
    wanted.at, wanted.size_bytes = <const uint8_t*><const char*>name, <int32_t>len(name)
    return wanted

cdef Txn* _lock(Ids* ids, Wanted* wanted) noexcept nogil:
    """Does what ids_lock does, for a caller outside an epoch that reads no partition."""
    cdef int slot = epoch_enter(table_epochs(ids.table))
    cdef Txn* txn = ids_lock(ids, wanted.at, wanted.size_bytes, &wanted.shard)
    epoch_leave(table_epochs(ids.table), slot)
    return txn


@cython.no_gc_clear         # __dealloc__ needs what it refers to
cdef class TransactionalIds:
    """The ids of one broker. `topic`: the topic of the coordinator's log, with the `states` of its
    partitions; `queue`: the ids that Python must complete; None: Python finds them by `late`.

    A transaction is a sequence of the fields of
    barnabas.coordinator.transactions.transaction.Transaction, in their order. Every call locks one
    shard at a time and never waits for a disk."""

    def __cinit__(
        self, table, str topic not None, TransactionalIdQueue queue=None, *,
        PartitionStates states not None,
    ):
        cdef IdShard* shard
        cdef int i
        self.table, self.topic, self.queue, self.states = table, topic.encode(), queue, states
        self.ids = <Ids*>calloc(1, sizeof(Ids))
        if self.ids == NULL:
            raise MemoryError
        self.ids.table = table_of(table)
        self.ids.queue = queue.jobs if queue is not None else NULL
        self.ids.states = &states.log
        self.ids.topic = <const uint8_t*><const char*>self.topic
        self.ids.topic_bytes = <int32_t>len(self.topic)
        secret_init(&self.ids.secret)
        for i in range(SHARDS):
            shard = &self.ids.shards[i]
            shard_init(&shard.own)
            buffer_init(&shard.value)

    def __init__(self, table, topic, queue=None, *, states):
        pass

    def __dealloc__(self):
        cdef IdShard* shard
        cdef Txn* txn
        cdef Txn* following
        cdef int i
        cdef int64_t k
        if self.ids == NULL:
            return
        for i in range(SHARDS):
            shard = &self.ids.shards[i]
            for k in range(shard.own.records.capacity):
                txn = <Txn*>named_first(&shard.own.records, k)
                while txn != NULL:
                    following = <Txn*>txn.named.next
                    txn_free(txn)
                    txn = following
            txn_free(shard.spare)
            buffer_free(&shard.value)
            shard_free(&shard.own)
        free(self.ids)

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
        txn.named.hashed = _hash(self.ids, txn.named.name, txn.named.name_bytes)
        return txn

    def put(self, str name not None, int32_t partition, int32_t leader_epoch, transaction) -> None:
        """Stores an id, and replaces one of the same name. `leader_epoch`: of its `partition` of
        __transaction_state; LOADING (-1) while that partition is replayed."""
        cdef Txn* txn = self.made(name, transaction)
        cdef Txn* before
        cdef IdShard* shard = _shard(self.ids, txn.named.hashed)
        cdef bint stored
        txn.partition, txn.leader_epoch = partition, leader_epoch
        txn.step = _next_step(self.ids)
        with nogil:
            pthread_mutex_lock(&shard.own.lock)
            before = <Txn*>named_find(
                &shard.own.records, txn.named.hashed, txn.named.name, txn.named.name_bytes)
            if before != NULL:
                _take(self.ids, shard, before)
            stored = named_put(&shard.own.records, &txn.named)
            if stored:
                atomic_add_i64(&self.ids.count, 1)
            pthread_mutex_unlock(&shard.own.lock)
            txn_free(before)
        if not stored:
            txn_free(txn)
            raise MemoryError

    def get(self, str name not None):
        """Returns (partition of __transaction_state, step, whether a step is being written,
        transaction); None if there is no such id. A step is also being written while native code
        waits for a flush; the transaction is then as it was before the step."""
        cdef bytes raw = name.encode()
        cdef Wanted wanted = _wanted(raw)
        cdef Txn copy
        cdef Txn* txn
        cdef TxnRows rows
        cdef bint copied = True
        memset(&rows, 0, sizeof(TxnRows))
        with nogil:
            txn = _lock(self.ids, &wanted)
            if txn != NULL:
                copy = txn[0]
                copied = rows_copy(&rows, &txn.rows)
            ids_unlock(wanted.shard)
        if txn == NULL:
            return None
        try:
            if not copied:
                raise MemoryError
            return copy.partition, copy.step, txn_is_pending(&copy), (
                copy.producer_id, copy.producer_epoch, copy.timeout_ms, copy.state,
                _partitions(&rows), copy.start_ms, copy.update_ms, copy.previous_producer_id,
                copy.next_producer_id, copy.last_epoch, copy.client_version,
            )
        finally:
            rows_free(&rows)

    def record(self, str name not None, transaction) -> tuple:
        """Returns (key, value) of the record for an id with this transaction, in `value_version`.
        `transaction` None: the record deletes the id, and the value is None. Raises MemoryError."""
        cdef Buffer b
        cdef Txn* txn
        raw = name.encode()
        key = b"\0\0" + len(raw).to_bytes(2, "big") + raw
        if transaction is None:
            return key, None
        txn = self.made(name, transaction)
        buffer_init(&b)
        try:
            txn_value(&b, txn, <int16_t>atomic_load_i32(&self.ids.value_version))
            if b.failed:
                raise MemoryError
            return key, b.data[:b.size]
        finally:
            buffer_free(&b)
            txn_free(txn)

    def begin(self, str name not None, int64_t step) -> int:
        """Begins a step of Python and returns its token for `finish`. `step`: the step that `get`
        returned. Returns 0, and does nothing, if the id has changed since or a step is being
        written."""
        cdef bytes raw = name.encode()
        cdef Wanted wanted = _wanted(raw)
        cdef int64_t token = 0
        cdef Txn* txn
        with nogil:
            txn = _lock(self.ids, &wanted)
            if txn != NULL and txn.step == step and not txn_is_pending(txn):
                token = txn.token = _next_step(self.ids)
            ids_unlock(wanted.shard)
        return token

    def finish(self, str name not None, int64_t token, transaction=None) -> None:
        """Ends the step of `begin`, whose record is durable. `transaction` None: the step failed.
        Has no effect when the id was removed since."""
        cdef bytes raw = name.encode()
        cdef Wanted wanted = _wanted(raw)
        cdef Txn* after = NULL
        cdef Txn* txn
        if transaction is not None:
            after = self.made(name, transaction)
        with nogil:
            txn = _lock(self.ids, &wanted)
            if txn != NULL and txn.token == token:
                txn.token = 0
                if after != NULL:
                    _replace(self.ids, txn, after)
                _wake_waiters(self.ids, txn)
            ids_unlock(wanted.shard)
            txn_free(after)

    def remove(self, str name not None, token=None) -> None:
        """Removes an id. With a `token`, only if that step is being written."""
        cdef bytes raw = name.encode()
        cdef Wanted wanted = _wanted(raw)
        cdef bint any_step = token is None
        cdef int64_t only = 0 if any_step else token
        cdef Txn* txn
        with nogil:
            txn = _lock(self.ids, &wanted)
            if txn != NULL and (any_step or txn.token == only):
                _take(self.ids, wanted.shard, txn)
            else:
                txn = NULL
            ids_unlock(wanted.shard)
            txn_free(txn)

    def order(self, str name not None, int64_t step) -> bool:
        """Returns, once, whether the caller must write the markers of an id prepared at `step`."""
        cdef bytes raw = name.encode()
        cdef Wanted wanted = _wanted(raw)
        cdef bint ordered = False
        cdef Txn* txn
        with nogil:
            txn = _lock(self.ids, &wanted)
            if txn != NULL and txn.step == step and txn_is_prepared(txn) and not txn.ordered:
                ordered = txn.ordered = True
            ids_unlock(wanted.shard)
        return ordered

    def forget_connections(self, str name not None) -> None:
        """Forgets the connections of the id, because another producer uses it now."""
        cdef bytes raw = name.encode()
        cdef Wanted wanted = _wanted(raw)
        cdef Txn* txn
        with nogil:
            txn = _lock(self.ids, &wanted)
            if txn != NULL:
                txn.connections.count = txn.begun_by.count = 0
            ids_unlock(wanted.shard)

    cdef list names_of(self, int which, int64_t argument, int32_t leader_epoch):
        cdef Buffer b
        buffer_init(&b)
        try:
            with nogil:
                _collect(self.ids, &b, which, argument, leader_epoch)
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
        """Lets native handlers serve the ids of a replayed partition. Returns its prepared ids."""
        return self.names_of(PREPARED_IN, partition, leader_epoch)

    def forget(self, int32_t partition) -> list:
        """Removes the partition's ids, which another node coordinates; returns their names."""
        cdef Buffer b
        buffer_init(&b)
        try:
            with nogil:
                _forget(self.ids, &b, partition)
            return _names(&b)
        finally:
            buffer_free(&b)

    @property
    def value_version(self) -> int:
        """The version of the records' values: 0 while transaction.version is 0, otherwise 1."""
        return atomic_load_i32(&self.ids.value_version)

    @value_version.setter
    def value_version(self, int32_t version):
        atomic_store_i32(&self.ids.value_version, version)

    @property
    def count(self) -> int:
        """Returns the number of ids in the table."""
        return atomic_load_i64(&self.ids.count)
