"""The state of one transactional id, and its record in the log.

Record of __transaction_state, value version 0 or 1 (flexible): shared/protocol, TransactionLogValue.
"""
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t

from barnabas.cext.codec.buffer cimport Buffer
from barnabas.cext.coordinator.shards cimport Named

cdef enum:
    CONNECTIONS_MAX = 8             # of an id
    WAITERS_MAX = 16                # requests of an id that wait for a step to be over
    LOADING = -1                    # in place of a leader epoch

cdef struct TxnRow:                 # a partition of a transaction
    int64_t name_at                 # of its topic, in the rows' names
    int32_t name_bytes
    int32_t index

cdef struct TxnRows:                # zeroed: none. By topic and index, each once
    Buffer names
    TxnRow* at
    int32_t count
    int32_t capacity

cdef enum:                          # TransactionState, in the log
    STATE_EMPTY = 0
    STATE_ONGOING = 1
    STATE_PREPARE_COMMIT = 2
    STATE_PREPARE_ABORT = 3
    STATE_COMPLETE_COMMIT = 4
    STATE_COMPLETE_ABORT = 5

cdef struct Connections:            # the newest, oldest first
    uint64_t at[CONNECTIONS_MAX]
    int32_t count

cdef struct Waiter:                 # a connection that is woken; it may be gone by then
    int32_t thread_index
    uint64_t connection_id

cdef struct Txn:                    # a transactional id; the record's key follows
    Named named                     # the id, which is the end of the key
    int64_t step                    # the number of its newest change; no number comes twice
    int64_t token                   # of the step that Python writes now; 0: none
    Txn* after                      # the step that native code appended, owned; NULL: none
    int64_t required                # the high watermark from which `after` counts
    Waiter* waiters                 # WAITERS_MAX; NULL: none
    int32_t waiter_count
    int32_t partition               # of __transaction_state
    int32_t leader_epoch            # in which the partition was loaded, or LOADING
    int64_t producer_id
    int64_t previous_producer_id    # -1: none
    int64_t next_producer_id        # -1: none
    int64_t start_ms
    int64_t update_ms
    int32_t timeout_ms
    int16_t producer_epoch
    int16_t last_epoch              # before the newest end that bumped it, -1: none
    int16_t client_version          # of transaction.version, of the newest step
    int8_t state
    bint ordered                    # the markers of a prepared transaction are being written
    TxnRows rows
    Connections connections         # that have a part in the newest transaction
    Connections begun_by            # that began earlier ones
    int32_t key_bytes

cdef struct AskedRow:               # a partition
    const uint8_t* topic
    int32_t topic_bytes
    int32_t index

cdef struct Asked:                  # what a request asks of an id
    const uint8_t* name
    int32_t name_bytes
    int64_t producer_id
    int16_t producer_epoch
    uint64_t connection_id          # 0: any
    int16_t client_version          # of transaction.version
    AskedRow* rows
    int32_t count
    bint committed                  # of an end

# NULL: no memory.
cdef Txn* txn_new(const uint8_t* key, int32_t key_bytes) noexcept nogil
cdef void txn_free(Txn* txn) noexcept nogil
cdef const uint8_t* txn_key(const Txn* txn) noexcept nogil

cdef inline bint txn_is_prepared(const Txn* txn) noexcept nogil:
    """Returns whether the end of the id is decided but not complete."""
    return txn.state in (STATE_PREPARE_COMMIT, STATE_PREPARE_ABORT)

cdef inline bint txn_is_pending(const Txn* txn) noexcept nogil:
    """Returns whether a step is being written, by Python or by native code."""
    return txn.token != 0 or txn.after != NULL

cdef inline bint txn_is_busy(const Txn* txn) noexcept nogil:
    return txn_is_pending(txn) or txn_is_prepared(txn)

cdef void rows_free(TxnRows* rows) noexcept nogil
cdef bint rows_copy(TxnRows* rows, const TxnRows* other) noexcept nogil
cdef bint rows_have(const TxnRows* rows, const uint8_t* topic, int32_t topic_bytes, int32_t index) noexcept nogil
# False: no memory.
cdef bint rows_add(TxnRows* rows, const uint8_t* topic, int32_t topic_bytes, int32_t index) noexcept nogil

cdef void connections_add(Connections* connections, uint64_t connection_id) noexcept nogil
# A connection begins a transaction if none is ongoing, or continues it. 0: no connection to note.
cdef void txn_takes_part(Txn* txn, uint64_t connection_id) noexcept nogil
# Returns whether a connection began an earlier transaction and has no part in the newest.
cdef bint txn_was_left_on(const Txn* txn, uint64_t connection_id) noexcept nogil

# Appends the value of its record to the buffer.
cdef void txn_value(Buffer* b, const Txn* txn, int16_t value_version) noexcept nogil
