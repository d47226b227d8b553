"""The state of one transactional id, and its record in the log.

Record of __transaction_state, value version 0 or 1 (flexible): shared/protocol,
TransactionLogValue.
"""
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t

from barnabas.cext.codec.buffer cimport Buffer
from barnabas.cext.coordinator.shards cimport Named

cdef enum:
    CONNECTIONS_MAX = 8             # connections that an id remembers
    WAITERS_MAX = 16                # requests that wait for a step of one id to end
    LOADING = -1                    # in place of a leader epoch

cdef struct TxnRow:                 # a partition of a transaction
    int64_t name_at                 # of its topic, in the rows' names
    int32_t name_bytes
    int32_t index

cdef struct TxnRows:                # zeroed: none. By topic and index, each once
    Buffer names
    TxnRow* at
    int32_t count
    int64_t capacity

cdef enum:                          # TransactionState, in the log
    STATE_EMPTY = 0
    STATE_ONGOING = 1
    STATE_PREPARE_COMMIT = 2
    STATE_PREPARE_ABORT = 3
    STATE_COMPLETE_COMMIT = 4
    STATE_COMPLETE_ABORT = 5

cdef struct Connections:            # ids of the newest connections, the oldest of them first
    uint64_t at[CONNECTIONS_MAX]
    int32_t count

cdef struct Waiter:                 # a connection to wake, which may have closed by then
    int32_t thread_index
    uint64_t connection_id

cdef struct Txn:                    # a transactional id; the record's key follows
    Named named                     # the id, which is the end of the key
    int64_t step                    # the number of its newest change; no number is used twice
    int64_t token                   # of the step that Python is writing; 0: none
    Txn* after                      # the state after a step that native code appended; NULL: none
    int64_t required                # the high watermark from which `after` is valid
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
    int16_t last_epoch              # the epoch before the newest end that bumped it; -1: none
    int16_t client_version          # the client's transaction.version at the newest step
    int8_t state
    bint ordered                    # the markers of a prepared transaction are being written
    TxnRows rows
    Connections connections         # connections that take part in the newest transaction
    Connections begun_by            # connections that began earlier transactions
    int32_t key_bytes

cdef struct AskedRow:               # a partition
    const uint8_t* topic
    int32_t topic_bytes
    int32_t index

cdef struct Asked:                  # the step that a request asks for
    const uint8_t* name
    int32_t name_bytes
    int64_t producer_id
    int16_t producer_epoch
    uint64_t connection_id          # 0: any
    int16_t client_version          # of transaction.version
    AskedRow* rows
    int32_t count
    bint committed                  # an end commits; otherwise it aborts

# Makes an id with its record's key; all other fields are zero. NULL: no memory.
cdef Txn* txn_new(const uint8_t* key, int32_t key_bytes) noexcept nogil
cdef void txn_free(Txn* txn) noexcept nogil
# Returns the record's key: `key_bytes` bytes.
cdef const uint8_t* txn_key(const Txn* txn) noexcept nogil

cdef inline bint txn_is_prepared(const Txn* txn) noexcept nogil:
    """Returns whether the end of the id is decided but not complete."""
    return txn.state in (STATE_PREPARE_COMMIT, STATE_PREPARE_ABORT)

cdef inline bint txn_is_pending(const Txn* txn) noexcept nogil:
    """Returns whether Python or native code is writing a step."""
    return txn.token != 0 or txn.after != NULL

cdef inline bint txn_is_busy(const Txn* txn) noexcept nogil:
    return txn_is_pending(txn) or txn_is_prepared(txn)

cdef void rows_free(TxnRows* rows) noexcept nogil
cdef bint rows_copy(TxnRows* rows, const TxnRows* other) noexcept nogil
cdef bint rows_have(const TxnRows* rows, const uint8_t* topic, int32_t topic_bytes, int32_t index) noexcept nogil
# Adds a row unless it is there already. Returns False without memory.
cdef bint rows_add(TxnRows* rows, const uint8_t* topic, int32_t topic_bytes, int32_t index) noexcept nogil

cdef void connections_add(Connections* connections, uint64_t connection_id) noexcept nogil
# Notes that a connection begins a transaction if none is ongoing, or else takes part in it.
# Connection id 0: there is nothing to note.
cdef void txn_takes_part(Txn* txn, uint64_t connection_id) noexcept nogil
# Returns whether a connection began an earlier transaction and takes no part in the newest one.
cdef bint txn_was_left_on(const Txn* txn, uint64_t connection_id) noexcept nogil

# Appends the value of the id's record, in version 0 or 1, to the buffer.
cdef void txn_value(Buffer* b, const Txn* txn, int16_t value_version) noexcept nogil
