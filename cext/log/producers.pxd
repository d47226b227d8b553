"""Producer state of one log; described in producers.pyx. The log's mutex guards it."""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from barnabas.cext.codec.buffer cimport Buffer
from barnabas.cext.log.open_txns cimport OpenTxns
from barnabas.cext.record.records cimport BatchHeader

cdef enum:
    PRODUCER_BATCHES_KEPT = 5
    SNAPSHOT_HEADER_BYTES = 10
    SNAPSHOT_ENTRY_BYTES = 46

cdef enum:                      # Kafka error codes that the checks return
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    TRANSACTION_COORDINATOR_FENCED = 52

cdef struct ProducerBatch:
    int64_t last_offset
    int64_t timestamp
    int32_t last_sequence
    int32_t offset_delta        # last offset - first offset; sequences differ by the same number

cdef struct Producer:
    int64_t producer_id
    int64_t last_timestamp
    int64_t txn_first_offset    # -1: no transaction is open
    int32_t coordinator_epoch   # -1: no marker yet
    int16_t epoch               # -1: none yet
    int16_t batch_count         # number of `batches`, oldest first
    ProducerBatch batches[PRODUCER_BATCHES_KEPT]

cdef struct Producers:
    Producer* entries           # dense, in no order
    int64_t count
    int64_t capacity
    int32_t* slots              # open addressing: index of the entry; -1: free
    int64_t slot_count          # a power of two
    OpenTxns open

cdef struct Marker:             # a control batch that ends a transaction
    bint commit
    int32_t coordinator_epoch

cdef struct AbortedTxn:
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset
    int64_t last_stable_offset

cdef void producers_init(Producers* p) noexcept nogil
cdef void producers_free(Producers* p) noexcept nogil
cdef void producers_clear(Producers* p) noexcept nogil
cdef Producer* producers_find(const Producers* p, int64_t producer_id) noexcept nogil
# Finds or adds a producer's entry; a new one has epoch -1 and no batches. Returns NULL without
# memory.
cdef Producer* producers_add(Producers* p, int64_t producer_id) noexcept nogil
cdef void producers_remove(Producers* p, int64_t producer_id) noexcept nogil
cdef int64_t producers_expire(Producers* p, int64_t now_ms, int64_t expiration_ms) noexcept nogil
# Returns the batch with the same sequences that is already in the log, or NULL.
cdef const ProducerBatch* producer_duplicate(const Producer* entry, const BatchHeader* h) noexcept nogil
# Returns 0, or the error code with which a client's batch is refused. `entry` may be NULL: a
# producer that is not known here.
cdef int producer_check(const Producer* entry, const BatchHeader* h) noexcept nogil
cdef int producer_check_marker(const Producer* entry, const BatchHeader* h, const Marker* marker, bint bumps) noexcept nogil
# Updates the state for a batch of data. Returns False without memory; nothing has changed then.
cdef bint producer_note(Producers* p, Producer* entry, const BatchHeader* h, int64_t first_offset, int64_t last_offset) noexcept nogil
# Returns whether a batch continues a transaction of its producer and epoch that is open here.
cdef bint producer_in_transaction(const Producer* entry, const BatchHeader* h) noexcept nogil
# Returns 1 and fills *aborted when the marker aborts a transaction with data, otherwise 0. It
# changes no producer state.
cdef int producer_aborts(const Producers* p, const Producer* entry, const Marker* marker, int64_t offset, AbortedTxn* aborted) noexcept nogil
cdef void producer_note_marker(Producers* p, Producer* entry, const BatchHeader* h, const Marker* marker, int64_t offset) noexcept nogil
cdef int batch_marker(const uint8_t* batch, int64_t size_bytes, Marker* marker) noexcept nogil
cdef int32_t sequence_after(int32_t sequence, int32_t increment) noexcept nogil

cdef void snapshot_write(const Producers* p, Buffer* out) noexcept nogil
# Replaces the state by that of a snapshot, without expired entries. Returns 0; -1 for wrong bytes
# or without memory: `p` has not changed then.
cdef int snapshot_read(Producers* p, const uint8_t* bytes, int64_t size_bytes, int64_t now_ms, int64_t expiration_ms) noexcept nogil
