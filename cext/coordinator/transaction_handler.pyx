"""The native handler of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn: parses, waits, answers.

transaction_steps.pyx decides and takes the step. With log.durability=fsync, or other replicas, the
request waits in purgatory until its record is durable. After offsets.commit.timeout.ms the answer
is COORDINATOR_NOT_AVAILABLE; the step stays, and takes effect when its record becomes durable. A
request that finds its id busy waits for add.partitions.to.txn.retry.backoff.max.ms; then the answer
is CONCURRENT_TRANSACTIONS.

Python parses these requests, and calls `TransactionSteps.add` and `has`: AddPartitionsToTxn 4 and
5, which brokers send; requests with tagged fields or more than ADDED_MAX partitions; with a
partition that the cluster does not have; with a group while __consumer_offsets does not exist yet;
and with an authorizer those whose client lacks a right (except EndTxn, which this handler refuses).

    AddPartitionsToTxnRequest   transactional id, producer id, epoch, [name, [index]]    0 to 3
    AddOffsetsToTxnRequest      transactional id, producer id, epoch, group              0 to 4
    EndTxnRequest               transactional id, producer id, epoch, committed          0 to 5
    answers                     throttle, [name, [index, error]] or error, producer id and epoch
                                (EndTxn 5); flexible from 3

Next on the data path: cext/coordinator/transaction_steps.pyx.
"""
cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from barnabas.cext.codec.buffer cimport Buffer, buffer_i16, buffer_i32, buffer_i64
from barnabas.cext.codec.cursor cimport (
    Cursor, cursor_i16, cursor_i32, cursor_i64, cursor_i8, cursor_left, cursor_of,
)
from barnabas.cext.codec.error_codes cimport (
    ERROR_CONCURRENT_TRANSACTIONS, ERROR_INVALID_PRODUCER_EPOCH, ERROR_NONE,
    ERROR_PRODUCER_FENCED, ERROR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
from barnabas.cext.codec.fields cimport (
    read_count, read_no_tags, read_string, skip_tags, write_count, write_no_tags, write_string,
)
from barnabas.cext.coordinator.durable_wait cimport (
    durable_wait_by, durable_wait_end, durable_wait_lasts, DurableWait,
)
from barnabas.cext.coordinator.partition_states cimport (
    PartitionState, PartitionStates, states_partition_of,
)
from barnabas.cext.coordinator.transaction_state cimport Asked, AskedRow
from barnabas.cext.coordinator.transaction_steps cimport (
    Steps, steps_may_wait, transaction_steps, TransactionSteps,
)
from barnabas.cext.coordinator.transactional_ids cimport (
    BUMPS_EPOCH, ids_look, STEP_SETTLES, STEP_WAITS,
)
from barnabas.cext.memory.atomics cimport atomic_add_i64, atomic_load_i64
from barnabas.cext.memory.epoch cimport epoch_enter, epoch_leave
from barnabas.cext.network.handler cimport (
    HANDLER_CLOSE, HANDLER_DONE, HANDLER_PYTHON, handler_parks, NativeHandler, Parked, Request,
    request_error, Response, response_begin, response_end,
)
from barnabas.cext.network.permissions cimport (
    OPERATION_READ, OPERATION_WRITE, permission_ask, PERMISSION_ALLOWED, permission_begin,
    PERMISSION_DENIED, RESOURCE_GROUP, RESOURCE_TOPIC, RESOURCE_TRANSACTIONAL_ID,
)
from barnabas.cext.partition.partitions cimport (
    Table, table_epochs, topic_has_partition, topic_named,
)
from barnabas.cext.partition.topics cimport Topic

cdef enum:
    KEY_ADD_PARTITIONS = 24
    KEY_ADD_OFFSETS = 25
    KEY_END = 26
    ADD_PARTITIONS_LAST = 3
    ADD_OFFSETS_LAST = 4
    END_LAST = 5
    END_BUMPS_FROM = 5
    FENCED_FROM = 2                 # the first version whose clients know PRODUCER_FENCED
    VERSION_FLEXIBLE = 3
    ADDED_MAX = 32                  # partitions in one request

cdef struct Core:
    Table* table
    Steps* steps
    PartitionState* offsets         # of __consumer_offsets
    int64_t timeout_ns              # of a wait for a flush
    int64_t served                  # atomic

cdef struct WaitingStep:            # a parked request; the transactional id follows
    DurableWait wait
    bint is_taken                   # its step is in the log; otherwise it waits for the id
    int64_t producer_id             # of the answer, as is the epoch
    int16_t producer_epoch
    int32_t name_bytes

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

cdef bint _read_group(Core* core, Cursor* c, Asked* asked, bint flexible) noexcept nogil:
    cdef int32_t group_bytes
    cdef const uint8_t* group = read_string(c, flexible, False, &group_bytes)
    if c.bad:
        return False
    asked.rows[0].topic = core.steps.offsets_topic
    asked.rows[0].topic_bytes = core.steps.offsets_topic_bytes
    asked.rows[0].index = states_partition_of(core.offsets, group, group_bytes)
    asked.count = 1
    return asked.rows[0].index >= 0

cdef bint _are_known(Core* core, const Asked* asked) noexcept nogil:
    """Returns whether the cluster has each partition; inside an epoch."""
    cdef const AskedRow* row
    cdef Topic* topic
    cdef int32_t i
    for i in range(asked.count):
        row = &asked.rows[i]
        topic = topic_named(core.table, row.topic, row.topic_bytes)
        if topic == NULL or not topic_has_partition(topic, row.index):
            return False
    return True

cdef int _read(Core* core, const Request* r, Asked* asked, AskedRow* rows) noexcept nogil:
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

cdef int _group_right(Request* r) noexcept nogil:
    """Asks for the right to read the group of AddOffsetsToTxn, whose request _read has checked."""
    cdef Cursor c = cursor_of(r.data + r.body_at, r.size_bytes - r.body_at)
    cdef bint flexible = r.api_version >= VERSION_FLEXIBLE
    cdef int32_t size_bytes
    cdef const uint8_t* group
    read_string(&c, flexible, False, &size_bytes)
    cursor_i64(&c)
    cursor_i16(&c)
    group = read_string(&c, flexible, False, &size_bytes)
    return permission_ask(r, OPERATION_READ, RESOURCE_GROUP, group, size_bytes)

cdef int _right(Request* r, const Asked* asked) noexcept nogil:
    """Asks for the rights that a step needs; returns the largest answer of permission_ask."""
    cdef int worst = permission_ask(
        r, OPERATION_WRITE, RESOURCE_TRANSACTIONAL_ID, asked.name, asked.name_bytes)
    cdef const uint8_t* before = NULL
    cdef int32_t i
    if r.api_key == KEY_ADD_OFFSETS:
        worst = max(worst, _group_right(r))
    elif r.api_key == KEY_ADD_PARTITIONS:
        for i in range(asked.count):
            if asked.rows[i].topic != before:
                before = asked.rows[i].topic
                worst = max(worst, permission_ask(
                    r, OPERATION_WRITE, RESOURCE_TOPIC, before, asked.rows[i].topic_bytes))
    return worst

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

cdef int _answer(Core* core, Request* r, Response* out, int64_t producer_id, int16_t producer_epoch, int16_t code) noexcept nogil:
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

cdef void _drop(Core* core, WaitingStep* waiting) noexcept nogil:
    if waiting != NULL:
        durable_wait_end(core.table, &waiting.wait)
        free(waiting)

cdef void _look(Core* core, const WaitingStep* waiting) noexcept nogil:
    ids_look(core.steps.ids, <const uint8_t*>(waiting + 1), waiting.name_bytes)

cdef int _settle(Core* core, Request* r, Response* out, Parked* parked, WaitingStep* waiting, bint expired) noexcept nogil:
    """Answers when the record of the step is durable, or has failed. Takes over `waiting`."""
    cdef int16_t code
    cdef int status
    if durable_wait_lasts(core.table, &waiting.wait, expired, &code):
        return handler_parks(parked, waiting, r.received_ns + core.timeout_ns, unfinished=True)
    _look(core, waiting)
    status = _answer(core, r, out, waiting.producer_id, waiting.producer_epoch, code)
    _drop(core, waiting)
    return status

cdef int _try(Core* core, Request* r, Response* out, Parked* parked, WaitingStep* waiting, bint expired) noexcept nogil:
    """Takes the step of the request, or waits for the id. Takes over `waiting`, which may be
    NULL."""
    cdef Asked asked
    cdef AskedRow rows[ADDED_MAX]
    cdef int outcome, right, slot
    cdef int status = _read(core, r, &asked, rows)
    if status != HANDLER_DONE:
        _drop(core, waiting)
        return status
    if r.permissions != NULL:
        permission_begin(r)
        right = _right(r, &asked)
        if right != PERMISSION_ALLOWED:
            _drop(core, waiting)
            if right == PERMISSION_DENIED and r.api_key == KEY_END:
                return _answer(core, r, out, -1, -1, ERROR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return HANDLER_PYTHON               # Python decides, or refuses single partitions
    if waiting == NULL and steps_may_wait(core.steps):
        waiting = _waiting_new(r, &asked)       # before the append, after which nothing may fail
        if waiting == NULL:
            return HANDLER_CLOSE
    slot = epoch_enter(table_epochs(core.table))
    if not _are_known(core, &asked):
        epoch_leave(table_epochs(core.table), slot)
        _drop(core, waiting)
        return HANDLER_PYTHON
    outcome = transaction_steps(
        core.steps, &asked, r.api_key == KEY_END, NULL if waiting == NULL else &waiting.wait, False)
    if outcome == STEP_SETTLES and waiting == NULL:
        waiting = _waiting_new(r, &asked)
        outcome = ERROR_CONCURRENT_TRANSACTIONS
        if waiting != NULL:
            outcome = transaction_steps(core.steps, &asked, False, &waiting.wait, False)
    epoch_leave(table_epochs(core.table), slot)
    if outcome == STEP_SETTLES and not expired:
        return handler_parks(
            parked, waiting, r.received_ns + atomic_load_i64(&core.steps.retry_max_ms) * 1000000,
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
    return _try(<Core*>context, r, out, parked, NULL, False)

cdef int _resume(void* context, Request* r, Response* out, Parked* parked, bint expired) noexcept nogil:
    cdef WaitingStep* waiting = <WaitingStep*>parked.state
    parked.state = NULL
    if waiting.is_taken:
        return _settle(<Core*>context, r, out, parked, waiting, expired)
    return _try(<Core*>context, r, out, parked, waiting, expired)

cdef void _abandon(void* context, Parked* parked) noexcept nogil:
    cdef WaitingStep* waiting = <WaitingStep*>parked.state
    parked.state = NULL
    if waiting.is_taken:
        _look(<Core*>context, waiting)
    _drop(<Core*>context, waiting)


@cython.no_gc_clear         # __dealloc__ needs what it refers to
cdef class TransactionHandler(NativeHandler):
    """The native handler of one broker. `offsets_states`: the states of the partitions of
    __consumer_offsets. `timeout_ms`: the longest wait for a flush, from the arrival of the
    request."""
    cdef Core core
    cdef TransactionSteps steps
    cdef PartitionStates offsets_states

    def __cinit__(
        self, TransactionSteps steps not None, PartitionStates offsets_states not None,
        *, int64_t timeout_ms=5000,
    ):
        self.steps, self.offsets_states = steps, offsets_states
        self.core.table, self.core.steps = steps.ids.ids.table, &steps.steps
        self.core.offsets = &offsets_states.log
        self.core.timeout_ns = timeout_ms * 1000000
        self.declare(
            ((KEY_ADD_PARTITIONS, 0, ADD_PARTITIONS_LAST), (KEY_ADD_OFFSETS, 0, ADD_OFFSETS_LAST),
             (KEY_END, 0, END_LAST)),
            &self.core, _handle, _resume, _abandon)

    def __init__(self, steps, offsets_states, *, timeout_ms=5000):
        pass

    @property
    def served(self) -> int:
        """Returns the number of requests that the native handler answered."""
        return atomic_load_i64(&self.core.served)
