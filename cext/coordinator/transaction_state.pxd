"""A transactional id that Python has lent to the network threads, and its record in the log.

Record of __transaction_state, value version 0 or 1 (flexible): shared/protocol, TransactionLogValue.
"""
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t

from barnabas.cext.codec.buffer cimport Buffer

cdef enum:
    PARTITIONS_MAX = 128            # of a transaction; larger ones are Python's
    CONNECTIONS_MAX = 8             # of an id, as broker/coordinator/transactions/transactional_id.py keeps

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
    STATE_ONGOING = 1
    STATE_PREPARE_COMMIT = 2
    STATE_PREPARE_ABORT = 3
    STATE_COMPLETE_COMMIT = 4
    STATE_COMPLETE_ABORT = 5

cdef struct Connections:            # the newest, oldest first
    uint64_t at[CONNECTIONS_MAX]
    int32_t count

cdef struct Lent:                   # the record's key follows
    int64_t hashed                  # of the id
    int32_t partition               # of __transaction_state
    int32_t leader_epoch            # in which Python knows it
    int64_t producer_id
    int64_t previous_producer_id    # -1: none
    int64_t start_ms
    int64_t update_ms
    int32_t timeout_ms
    int16_t producer_epoch
    int16_t last_epoch              # before the newest end that bumped it, -1: none
    int16_t client_version          # of transaction.version, of the newest step
    int16_t value_version
    int8_t state
    bint changed                    # here
    TxnRows rows
    Connections connections         # that have a part in the newest transaction
    Connections begun_by            # that began earlier ones
    int32_t key_bytes

# NULL: no memory.
cdef Lent* lent_new(const uint8_t* key, int32_t key_bytes) noexcept nogil
cdef void lent_free(Lent* lent) noexcept nogil
cdef const uint8_t* lent_key(const Lent* lent) noexcept nogil

cdef void rows_free(TxnRows* rows) noexcept nogil
cdef bint rows_copy(TxnRows* rows, const TxnRows* other) noexcept nogil
cdef bint rows_have(const TxnRows* rows, const uint8_t* topic, int32_t topic_bytes, int32_t index) noexcept nogil
# False: no memory, or PARTITIONS_MAX of them.
cdef bint rows_add(TxnRows* rows, const uint8_t* topic, int32_t topic_bytes, int32_t index) noexcept nogil

cdef void connections_add(Connections* connections, uint64_t connection_id) noexcept nogil
# A connection begins a transaction, when none is ongoing, or goes on with it. 0: nobody asks which.
cdef void lent_takes_part(Lent* lent, uint64_t connection_id) noexcept nogil
# Whether a connection began an earlier transaction and has no part in the newest.
cdef bint lent_was_left_on(const Lent* lent, uint64_t connection_id) noexcept nogil

# The value of its record in a state, behind what the buffer holds.
cdef void lent_value(Buffer* b, const Lent* lent, int8_t state, const TxnRows* rows, int64_t start_ms, int64_t update_ms) noexcept nogil
