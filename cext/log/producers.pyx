"""The state of idempotent and transactional producers in a log, and its snapshots.

For each producer id: epoch, the last five batches (sequences and offsets), the time of the last,
the coordinator epoch of its last marker, and the start of its open transaction. With it a log
distinguishes a repeated batch from a new one and detects gaps.

    OFFSET.snapshot  version int16 = 1, crc uint32, count int32, then 46 bytes an entry:
                     producer id int64, epoch int16, last sequence int32, last offset int64,
                     offset delta int32, timestamp int64, coordinator epoch int32 (-1: no marker
                     yet), first offset of the open transaction int64 (-1: none).
                     crc is CRC-32C of everything after it. Entries ascend by producer id.

A snapshot keeps only the last batch of each producer: after a restart an older repeat is out of
order. The CRC detects a torn or wrong snapshot; the log then falls back on an older one and reads
its batches from there. Sequences run from 0 to 2^31-1 and begin again at 0.

Memory: 152 bytes a producer, in an array that grows by half, and 8 to 16 bytes in the hash table.
Expiry (producer.id.expiration.ms) bounds the number of producers.

Next on the data path: cext/log/leader_epochs.pyx.
"""
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memmove, memset

from barnabas.cext.codec.buffer cimport buffer_i16, buffer_i32, buffer_i64, buffer_reserve
from barnabas.cext.codec.crc cimport crc32c
from barnabas.cext.codec.cursor cimport Cursor, cursor_of
from barnabas.cext.codec.endian cimport be16_load, be32_load, be32_store, be64_load
from barnabas.cext.log.open_txns cimport open_txns_begin, open_txns_end, open_txns_free
from barnabas.cext.memory.array cimport array_room
from barnabas.cext.record.records cimport (
    ATTR_TRANSACTIONAL, BATCH_OVERHEAD, RECORDS_OK, RecordView, record_next,
)

cdef enum:
    SLOTS_MIN = 16
    SNAPSHOT_VERSION = 1
    CONTROL_ABORT = 0
    CONTROL_COMMIT = 1


# ------------------------------------------------------------------------------------ the hash map

cdef void producers_init(Producers* p) noexcept nogil:
    memset(p, 0, sizeof(Producers))


cdef void producers_free(Producers* p) noexcept nogil:
    free(p.entries)
    free(p.slots)
    open_txns_free(&p.open)
    producers_init(p)


cdef void producers_clear(Producers* p) noexcept nogil:
    producers_free(p)


cdef inline int64_t _home(const Producers* p, int64_t producer_id) noexcept nogil:
    return <int64_t>((<uint64_t>producer_id * <uint64_t>0x9E3779B97F4A7C15) >> 32) & (p.slot_count - 1)


cdef int64_t _slot_of(const Producers* p, int64_t producer_id) noexcept nogil:
    """Returns the producer's slot, or the free slot where it belongs. There is always a free
    slot."""
    cdef int64_t slot = _home(p, producer_id)
    while p.slots[slot] >= 0 and p.entries[p.slots[slot]].producer_id != producer_id:
        slot = (slot + 1) & (p.slot_count - 1)
    return slot


cdef Producer* producers_find(const Producers* p, int64_t producer_id) noexcept nogil:
    cdef int64_t slot
    if p.count == 0:
        return NULL
    slot = _slot_of(p, producer_id)
    return &p.entries[p.slots[slot]] if p.slots[slot] >= 0 else NULL


cdef bint _grow_slots(Producers* p) noexcept nogil:
    cdef int64_t slot_count = p.slot_count * 2 if p.slot_count else SLOTS_MIN
    cdef int32_t* slots = <int32_t*>malloc(slot_count * sizeof(int32_t))
    cdef int64_t i
    if slots == NULL:
        return False
    memset(slots, 0xFF, slot_count * sizeof(int32_t))
    free(p.slots)
    p.slots = slots
    p.slot_count = slot_count
    for i in range(p.count):
        p.slots[_slot_of(p, p.entries[i].producer_id)] = <int32_t>i
    return True


cdef Producer* producers_add(Producers* p, int64_t producer_id) noexcept nogil:
    cdef Producer* entry = producers_find(p, producer_id)
    if entry != NULL:
        return entry
    if not array_room(&p.entries, &p.capacity, p.count + 1, sizeof(Producer)):
        return NULL
    if (p.count + 1) * 4 > p.slot_count * 3 and not _grow_slots(p):
        return NULL
    entry = &p.entries[p.count]
    memset(entry, 0, sizeof(Producer))
    entry.producer_id = producer_id
    entry.epoch = -1
    entry.last_timestamp = -1
    entry.coordinator_epoch = -1
    entry.txn_first_offset = -1
    p.slots[_slot_of(p, producer_id)] = <int32_t>p.count
    p.count += 1
    return entry


cdef void producers_remove(Producers* p, int64_t producer_id) noexcept nogil:
    """Removes a producer. The last entry moves to its place in the array, and slots behind the free
    one move up, so that searches do not stop too early."""
    cdef int64_t slot, following, home, index
    if p.count == 0:
        return
    slot = _slot_of(p, producer_id)
    index = p.slots[slot]
    if index < 0:
        return
    following = slot
    while True:
        following = (following + 1) & (p.slot_count - 1)
        if p.slots[following] < 0:
            break
        home = _home(p, p.entries[p.slots[following]].producer_id)
        if ((following - home) & (p.slot_count - 1)) >= ((following - slot) & (p.slot_count - 1)):
            p.slots[slot] = p.slots[following]
            slot = following
    p.slots[slot] = -1
    p.count -= 1
    if index != p.count:
        p.slots[_slot_of(p, p.entries[p.count].producer_id)] = <int32_t>index
        p.entries[index] = p.entries[p.count]


cdef inline bint _expired(const Producer* entry, int64_t now_ms, int64_t expiration_ms) noexcept nogil:
    return entry.txn_first_offset < 0 and now_ms - entry.last_timestamp >= expiration_ms


cdef int64_t producers_expire(Producers* p, int64_t now_ms, int64_t expiration_ms) noexcept nogil:
    """Removes producers without a batch for that long and without an open transaction. Returns
    their number."""
    cdef int64_t i = p.count - 1, before = p.count
    while i >= 0:
        if _expired(&p.entries[i], now_ms, expiration_ms):
            producers_remove(p, p.entries[i].producer_id)
        i -= 1
    return before - p.count


# --------------------------------------------------------------------------------------- the rules

cdef int32_t sequence_after(int32_t sequence, int32_t increment) noexcept nogil:
    """Returns the sequence number `increment` steps later; after 2^31-1 comes 0."""
    if sequence > INT32_MAX - increment:
        return increment - (INT32_MAX - sequence) - 1
    return sequence + increment


cdef inline int32_t _last_sequence(const BatchHeader* h) noexcept nogil:
    return sequence_after(h.base_sequence, h.last_offset_delta) if h.base_sequence >= 0 else -1


cdef const ProducerBatch* producer_duplicate(const Producer* entry, const BatchHeader* h) noexcept nogil:
    cdef const ProducerBatch* kept
    cdef int i
    if entry == NULL or entry.epoch != h.producer_epoch or h.base_sequence < 0:
        return NULL
    for i in range(entry.batch_count):
        kept = &entry.batches[i]
        if kept.last_sequence == _last_sequence(h) and kept.offset_delta == h.last_offset_delta:
            return kept
    return NULL


cdef int producer_check(const Producer* entry, const BatchHeader* h) noexcept nogil:
    """Checks the epoch and sequence numbers of a client's batch. A producer that is not known may
    begin with any sequence, because its state may have been deleted with old segments. Therefore
    the result is never UNKNOWN_PRODUCER_ID, which brokers since 2.5 do not return. Records that a
    coordinator writes for a transaction have no sequences."""
    cdef int32_t last_sequence = -1
    if entry == NULL or entry.epoch < 0:
        return 0
    if h.producer_epoch < entry.epoch:
        return INVALID_PRODUCER_EPOCH
    if h.base_sequence < 0:
        pass
    elif h.producer_epoch != entry.epoch:
        if h.base_sequence != 0:
            return OUT_OF_ORDER_SEQUENCE_NUMBER
    else:
        if entry.batch_count > 0:
            last_sequence = entry.batches[entry.batch_count - 1].last_sequence
        if h.base_sequence != (sequence_after(last_sequence, 1) if last_sequence >= 0 else 0):
            return OUT_OF_ORDER_SEQUENCE_NUMBER
    if entry.txn_first_offset >= 0 and not h.attributes & ATTR_TRANSACTIONAL:
        return INVALID_TXN_STATE
    return 0


cdef int producer_check_marker(
    const Producer* entry, const BatchHeader* h, const Marker* marker, bint bumps
) noexcept nogil:
    """Checks the epochs of a marker. `bumps`: the marker's epoch is above that of the transaction
    that it ends (KIP-890). If an open transaction has the marker's epoch already, the marker is
    late, and the open transaction is the next one: it is refused."""
    if entry == NULL:
        return 0
    if h.producer_epoch < entry.epoch:
        return INVALID_PRODUCER_EPOCH
    if bumps and h.producer_epoch == entry.epoch and entry.txn_first_offset >= 0:
        return INVALID_PRODUCER_EPOCH
    if marker.coordinator_epoch < entry.coordinator_epoch:
        return TRANSACTION_COORDINATOR_FENCED
    return 0


cdef bint producer_in_transaction(const Producer* entry, const BatchHeader* h) noexcept nogil:
    return entry != NULL and entry.epoch == h.producer_epoch and entry.txn_first_offset >= 0


cdef bint producer_note(
    Producers* p, Producer* entry, const BatchHeader* h, int64_t first_offset, int64_t last_offset
) noexcept nogil:
    cdef ProducerBatch* batch
    if h.attributes & ATTR_TRANSACTIONAL and entry.txn_first_offset < 0:
        if not open_txns_begin(&p.open, entry.producer_id, first_offset):
            return False
        entry.txn_first_offset = first_offset
    if entry.epoch != h.producer_epoch:
        entry.epoch = <int16_t>h.producer_epoch
        entry.batch_count = 0
    if entry.batch_count == PRODUCER_BATCHES_KEPT:
        memmove(entry.batches, entry.batches + 1,
                (PRODUCER_BATCHES_KEPT - 1) * sizeof(ProducerBatch))
        entry.batch_count -= 1
    batch = &entry.batches[entry.batch_count]
    entry.batch_count += 1
    batch.last_offset = last_offset
    batch.offset_delta = <int32_t>(last_offset - first_offset)
    batch.last_sequence = _last_sequence(h)
    batch.timestamp = entry.last_timestamp = h.max_timestamp
    return True


cdef int64_t _first_open_but(const Producers* p, int64_t first_offset) noexcept nogil:
    """Returns the first offset of the earliest open transaction, without the one that begins at
    `first_offset`; -1 without one."""
    cdef int64_t i = p.open.first_open
    while i < p.open.end and (
        p.open.items[i].marker_offset >= 0 or p.open.items[i].first_offset == first_offset
    ):
        i += 1
    return p.open.items[i].first_offset if i < p.open.end else -1


cdef int producer_aborts(
    const Producers* p, const Producer* entry, const Marker* marker, int64_t offset,
    AbortedTxn* aborted
) noexcept nogil:
    cdef int64_t open_offset
    if entry.txn_first_offset < 0 or marker.commit:
        return 0
    open_offset = _first_open_but(p, entry.txn_first_offset)
    aborted.producer_id = entry.producer_id
    aborted.first_offset = entry.txn_first_offset
    aborted.last_offset = offset
    aborted.last_stable_offset = open_offset if open_offset >= 0 else offset + 1
    return 1


cdef void producer_note_marker(
    Producers* p, Producer* entry, const BatchHeader* h, const Marker* marker, int64_t offset
) noexcept nogil:
    if entry.epoch != h.producer_epoch:
        entry.epoch = <int16_t>h.producer_epoch
        entry.batch_count = 0
    entry.coordinator_epoch = marker.coordinator_epoch
    entry.last_timestamp = h.max_timestamp
    if entry.txn_first_offset >= 0:
        open_txns_end(&p.open, entry.txn_first_offset, offset)
        entry.txn_first_offset = -1


cdef int batch_marker(const uint8_t* batch, int64_t size_bytes, Marker* marker) noexcept nogil:
    """Reads the marker of a control batch. Returns 1, 0 for another type of control record, -1 for
    wrong bytes."""
    cdef Cursor c = cursor_of(batch + BATCH_OVERHEAD, size_bytes - BATCH_OVERHEAD)
    cdef RecordView record
    cdef int kind
    if record_next(&c, &record) != RECORDS_OK or record.key_size < 4:
        return -1
    kind = <int16_t>be16_load(record.key + 2)
    if kind != CONTROL_ABORT and kind != CONTROL_COMMIT:
        return 0
    if record.value_size < 6:
        return -1
    marker.commit = kind == CONTROL_COMMIT
    marker.coordinator_epoch = <int32_t>be32_load(record.value + 2)
    return 1


# --------------------------------------------------------------------------------------- the files

cdef int _by_id(const void* a, const void* b) noexcept nogil:
    cdef int64_t left = (<const Producer**>a)[0].producer_id
    cdef int64_t right = (<const Producer**>b)[0].producer_id
    return (left > right) - (left < right)


cdef void snapshot_write(const Producers* p, Buffer* out) noexcept nogil:
    """Appends a snapshot to `out`; out.failed is set without memory."""
    cdef const Producer** sorted_entries
    cdef const Producer* entry
    cdef const ProducerBatch* last
    cdef int64_t start = out.size, i
    sorted_entries = <const Producer**>malloc((p.count + 1) * sizeof(Producer*))
    if sorted_entries == NULL:
        out.failed = True
        return
    for i in range(p.count):
        sorted_entries[i] = &p.entries[i]
    qsort(sorted_entries, p.count, sizeof(Producer*), _by_id)
    buffer_i16(out, SNAPSHOT_VERSION)
    buffer_i32(out, 0)
    buffer_i32(out, <int32_t>p.count)
    for i in range(p.count):
        entry = sorted_entries[i]
        last = NULL
        if entry.batch_count:
            last = <const ProducerBatch*>&entry.batches[entry.batch_count - 1]
        buffer_i64(out, entry.producer_id)
        buffer_i16(out, entry.epoch)
        buffer_i32(out, last.last_sequence if last != NULL else -1)
        buffer_i64(out, last.last_offset if last != NULL else -1)
        buffer_i32(out, last.offset_delta if last != NULL else 0)
        buffer_i64(out, entry.last_timestamp)
        buffer_i32(out, entry.coordinator_epoch)
        buffer_i64(out, entry.txn_first_offset)
    free(sorted_entries)
    if not out.failed:
        be32_store(out.data + start + 2, crc32c(0, out.data + start + 6, out.size - start - 6))


cdef int _by_first_offset(const void* a, const void* b) noexcept nogil:
    cdef int64_t left = (<const Producer**>a)[0].txn_first_offset
    cdef int64_t right = (<const Producer**>b)[0].txn_first_offset
    return (left > right) - (left < right)


cdef bint _reopen_transactions(Producers* p) noexcept nogil:
    """Adds the open transactions of producers that were read from a snapshot. Returns False without
    memory."""
    cdef const Producer** sorted_entries = <const Producer**>malloc(
        (p.count + 1) * sizeof(Producer*))
    cdef int64_t count = 0, i
    cdef bint done = True
    if sorted_entries == NULL:
        return False
    for i in range(p.count):
        if p.entries[i].txn_first_offset >= 0:
            sorted_entries[count] = &p.entries[i]
            count += 1
    qsort(sorted_entries, count, sizeof(Producer*), _by_first_offset)
    for i in range(count):
        done = done and open_txns_begin(
            &p.open, sorted_entries[i].producer_id, sorted_entries[i].txn_first_offset)
    free(sorted_entries)
    return done


cdef int snapshot_read(
    Producers* p, const uint8_t* bytes, int64_t size_bytes, int64_t now_ms, int64_t expiration_ms
) noexcept nogil:
    cdef Producers found
    cdef Producer read
    cdef Producer* entry
    cdef const uint8_t* at = bytes + SNAPSHOT_HEADER_BYTES
    cdef int64_t count, i
    if size_bytes < SNAPSHOT_HEADER_BYTES or be16_load(bytes) != SNAPSHOT_VERSION:
        return -1
    if be32_load(bytes + 2) != crc32c(0, bytes + 6, size_bytes - 6):
        return -1
    count = <int32_t>be32_load(bytes + 6)
    if count < 0 or size_bytes != SNAPSHOT_HEADER_BYTES + count * SNAPSHOT_ENTRY_BYTES:
        return -1
    producers_init(&found)
    memset(&read, 0, sizeof(Producer))
    for i in range(count):
        read.producer_id = <int64_t>be64_load(at)
        read.epoch = <int16_t>be16_load(at + 8)
        read.batches[0].last_sequence = <int32_t>be32_load(at + 10)
        read.batches[0].last_offset = <int64_t>be64_load(at + 14)
        read.batches[0].offset_delta = <int32_t>be32_load(at + 22)
        read.batches[0].timestamp = read.last_timestamp = <int64_t>be64_load(at + 26)
        read.coordinator_epoch = <int32_t>be32_load(at + 34)
        read.txn_first_offset = <int64_t>be64_load(at + 38)
        read.batch_count = 1 if read.batches[0].last_offset >= 0 else 0
        at += SNAPSHOT_ENTRY_BYTES
        if _expired(&read, now_ms, expiration_ms):
            continue
        entry = producers_add(&found, read.producer_id)
        if entry == NULL:
            producers_free(&found)
            return -1
        entry[0] = read
    if not _reopen_transactions(&found):
        producers_free(&found)
        return -1
    producers_free(p)
    p[0] = found
    return 0
