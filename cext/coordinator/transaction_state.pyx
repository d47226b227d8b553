"""Rows and record of a transactional id: see transaction_state.pxd.

broker/coordinator/transactions/transaction_records.py reads these records.
Next on the data path: cext/coordinator/transactional_ids.pyx, whose locks guard this state.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memmove

from barnabas.cext.codec.buffer cimport (
    Buffer, buffer_bytes, buffer_free, buffer_i16, buffer_i32, buffer_i64, buffer_i8,
    buffer_uvarint,
)
from barnabas.cext.codec.fields cimport write_count, write_no_tags, write_string
from barnabas.cext.memory.array cimport array_room

cdef enum:
    FLEXIBLE_FROM = 1               # of the value
    KEY_HEAD_BYTES = 4              # of a record's key: version, length of the id
    TAG_PREVIOUS_PRODUCER_ID = 0
    TAG_NEXT_PRODUCER_ID = 1
    TAG_CLIENT_VERSION = 2
    NONE = -1


cdef Txn* txn_new(const uint8_t* key, int32_t key_bytes) noexcept nogil:
    cdef Txn* txn = <Txn*>calloc(1, sizeof(Txn) + key_bytes)
    if txn != NULL:
        txn.key_bytes = key_bytes
        if key_bytes:                   # the state after has no key of its own
            memcpy(txn + 1, key, key_bytes)
            txn.named.name = txn_key(txn) + KEY_HEAD_BYTES
            txn.named.name_bytes = key_bytes - KEY_HEAD_BYTES
    return txn


cdef void txn_free(Txn* txn) noexcept nogil:
    if txn != NULL:
        txn_free(txn.after)
        rows_free(&txn.rows)
        free(txn.waiters)
        free(txn)


cdef const uint8_t* txn_key(const Txn* txn) noexcept nogil:
    return <const uint8_t*>(txn + 1)


# -------------------------------------------------------------------------------- partitions

cdef inline int _order(const TxnRows* rows, const TxnRow* row, const uint8_t* topic, int32_t topic_bytes, int32_t index) noexcept nogil:
    """Returns a number below, equal to or above zero: the row is before, equal to, or after the
    partition."""
    cdef int found = memcmp(rows.names.data + row.name_at, topic, min(row.name_bytes, topic_bytes))
    if found == 0:
        found = row.name_bytes - topic_bytes
    if found == 0:
        found = (row.index > index) - (row.index < index)
    return found


cdef inline int32_t _place(const TxnRows* rows, const uint8_t* topic, int32_t topic_bytes, int32_t index) noexcept nogil:
    """Returns the position of the first row that is not before the partition."""
    cdef int32_t low = 0, high = rows.count, middle
    while low < high:
        middle = (low + high) // 2
        if _order(rows, &rows.at[middle], topic, topic_bytes, index) < 0:
            low = middle + 1
        else:
            high = middle
    return low


cdef inline bint _is_at(const TxnRows* rows, int32_t place, const uint8_t* topic, int32_t topic_bytes, int32_t index) noexcept nogil:
    return place < rows.count and (
        _order(rows, &rows.at[place], topic, topic_bytes, index) == 0)


cdef void rows_free(TxnRows* rows) noexcept nogil:
    buffer_free(&rows.names)
    free(rows.at)
    rows.at = NULL
    rows.count = rows.capacity = 0


cdef bint _reserve(TxnRows* rows, int32_t count) noexcept nogil:
    return array_room(&rows.at, &rows.capacity, count, sizeof(TxnRow))


cdef bint rows_copy(TxnRows* rows, const TxnRows* other) noexcept nogil:
    rows.names.size = 0
    rows.count = 0
    if not _reserve(rows, other.count):
        return False
    buffer_bytes(&rows.names, other.names.data, other.names.size)
    if rows.names.failed:
        return False
    if other.count:
        memcpy(rows.at, other.at, other.count * sizeof(TxnRow))
    rows.count = other.count
    return True


cdef bint rows_have(const TxnRows* rows, const uint8_t* topic, int32_t topic_bytes, int32_t index) noexcept nogil:
    return _is_at(rows, _place(rows, topic, topic_bytes, index), topic, topic_bytes, index)


cdef int64_t _name_at(TxnRows* rows, int32_t place, const uint8_t* topic, int32_t topic_bytes) noexcept nogil:
    """Adds a row. A topic's rows are adjacent and share its name. Returns -1 if memory ran out."""
    cdef TxnRow* beside
    cdef int32_t i
    cdef int64_t at
    for i in range(max(place - 1, 0), min(place + 1, rows.count)):
        beside = &rows.at[i]
        if beside.name_bytes == topic_bytes and (
                memcmp(rows.names.data + beside.name_at, topic, topic_bytes) == 0):
            return beside.name_at
    at = rows.names.size
    buffer_bytes(&rows.names, topic, topic_bytes)
    return NONE if rows.names.failed else at


cdef bint rows_add(TxnRows* rows, const uint8_t* topic, int32_t topic_bytes, int32_t index) noexcept nogil:
    cdef int32_t place = _place(rows, topic, topic_bytes, index)
    cdef int64_t name_at
    if _is_at(rows, place, topic, topic_bytes, index):
        return True
    if not _reserve(rows, rows.count + 1):
        return False
    name_at = _name_at(rows, place, topic, topic_bytes)
    if name_at < 0:
        return False
    memmove(rows.at + place + 1, rows.at + place, (rows.count - place) * sizeof(TxnRow))
    rows.at[place].name_at, rows.at[place].name_bytes = name_at, topic_bytes
    rows.at[place].index = index
    rows.count += 1
    return True


# -------------------------------------------------------------------------------- connections

cdef inline int32_t _connection_at(const Connections* connections, uint64_t connection_id) noexcept nogil:
    cdef int32_t i
    for i in range(connections.count):
        if connections.at[i] == connection_id:
            return i
    return NONE


cdef void connections_add(Connections* connections, uint64_t connection_id) noexcept nogil:
    if connections.count == CONNECTIONS_MAX:
        memmove(connections.at, connections.at + 1, (CONNECTIONS_MAX - 1) * sizeof(uint64_t))
        connections.count -= 1
    connections.at[connections.count] = connection_id
    connections.count += 1


cdef void _connections_remove(Connections* connections, uint64_t connection_id) noexcept nogil:
    cdef int32_t at = _connection_at(connections, connection_id)
    if at != NONE:
        connections.count -= 1
        memmove(connections.at + at, connections.at + at + 1, (connections.count - at) * sizeof(uint64_t))


cdef void txn_takes_part(Txn* txn, uint64_t connection_id) noexcept nogil:
    cdef Connections before = txn.begun_by
    cdef uint64_t other
    cdef int32_t i
    if txn.state != STATE_ONGOING:
        for i in range(txn.connections.count):
            other = txn.connections.at[i]
            if other != connection_id and _connection_at(&before, other) == NONE:
                connections_add(&txn.begun_by, other)
        txn.connections.count = 0
        _connections_remove(&txn.begun_by, connection_id)
    if connection_id != 0 and _connection_at(&txn.connections, connection_id) == NONE:
        connections_add(&txn.connections, connection_id)


cdef bint txn_was_left_on(const Txn* txn, uint64_t connection_id) noexcept nogil:
    return _connection_at(&txn.begun_by, connection_id) != NONE and (
        _connection_at(&txn.connections, connection_id) == NONE)


# -------------------------------------------------------------------------------- the record

cdef inline bint _same_topic(const TxnRows* rows, int32_t a, int32_t b) noexcept nogil:
    return rows.at[a].name_at == rows.at[b].name_at


cdef void _write_rows(Buffer* b, const TxnRows* rows, bint flexible) noexcept nogil:
    cdef int32_t topics = 0, first = 0, end, i
    for i in range(rows.count):
        topics += i == 0 or not _same_topic(rows, i - 1, i)
    write_count(b, flexible, topics)
    while first < rows.count:
        end = first + 1
        while end < rows.count and _same_topic(rows, first, end):
            end += 1
        write_string(
            b, flexible, rows.names.data + rows.at[first].name_at, rows.at[first].name_bytes)
        write_count(b, flexible, end - first)
        for i in range(first, end):
            buffer_i32(b, rows.at[i].index)
        write_no_tags(b, flexible)
        first = end


cdef inline void _write_null_rows(Buffer* b, bint flexible) noexcept nogil:
    if flexible:
        buffer_uvarint(b, 0)
    else:
        buffer_i32(b, NONE)


cdef void txn_value(Buffer* b, const Txn* txn, int16_t value_version) noexcept nogil:
    cdef bint flexible = value_version >= FLEXIBLE_FROM
    buffer_i16(b, value_version)
    buffer_i64(b, txn.producer_id)
    buffer_i16(b, txn.producer_epoch)
    buffer_i32(b, txn.timeout_ms)
    buffer_i8(b, txn.state)
    if txn.state == STATE_EMPTY:
        _write_null_rows(b, flexible)
    else:
        _write_rows(b, &txn.rows, flexible)
    buffer_i64(b, txn.update_ms)
    buffer_i64(b, txn.start_ms)
    if not flexible:
        return
    buffer_uvarint(b, (txn.previous_producer_id != NONE) + (txn.next_producer_id != NONE)
                   + (txn.client_version != 0))
    if txn.previous_producer_id != NONE:
        buffer_uvarint(b, TAG_PREVIOUS_PRODUCER_ID)
        buffer_uvarint(b, sizeof(int64_t))
        buffer_i64(b, txn.previous_producer_id)
    if txn.next_producer_id != NONE:
        buffer_uvarint(b, TAG_NEXT_PRODUCER_ID)
        buffer_uvarint(b, sizeof(int64_t))
        buffer_i64(b, txn.next_producer_id)
    if txn.client_version != 0:
        buffer_uvarint(b, TAG_CLIENT_VERSION)
        buffer_uvarint(b, sizeof(int16_t))
        buffer_i16(b, txn.client_version)
