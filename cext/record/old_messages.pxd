"""How a message of format 0 or 1, whose bytes messageset.pyx describes, becomes a record of format 2.

Compaction writes the remaining part of a message, or of the messages inside a wrapper, as a batch of
format 2, as in Kafka 4 (MemoryRecords.filterTo): it has the same codec and timestamp type, the base
offset of its first record, no producer and no leader epoch. Format 0 has no timestamps: they become
-1. conversion.pyx does the same with what old producers send.
"""
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from barnabas.cext.codec.buffer cimport Buffer, buffer_reserve, buffer_uvarint
from barnabas.cext.codec.endian cimport be32_store, be64_store
from barnabas.cext.codec.varint cimport varint_size, varint_write, zigzag
from barnabas.cext.record.messageset cimport (
    MessageView, message_entry_size, message_set_check, message_view,
)
from barnabas.cext.record.records cimport (
    ATTR_CODEC_MASK, AT_BASE_OFFSET, AT_LAST_OFFSET_DELTA, AT_LEADER_EPOCH, AT_MAGIC,
    AT_PRODUCER_ID, AT_RECORD_COUNT, BATCH_OVERHEAD, RECORDS_OK,
)

cdef inline bint old_body_is_sound(
    const uint8_t* data, int64_t size_bytes, const MessageView* outer, int64_t* base
) noexcept nogil:
    """Returns whether the messages inside `outer` (or `outer` itself, when it is no wrapper) can be
    read one after another. Sets `base`: the log offset of a message is `base` + its own offset."""
    cdef MessageView m
    cdef int64_t position, last = -1, at = 0
    base[0] = 0
    if not outer.attributes & ATTR_CODEC_MASK:
        return True
    if message_set_check(data, size_bytes, outer.magic, 0, &position) != RECORDS_OK:
        return False
    while at < size_bytes:
        if message_view(data + at, size_bytes - at, &m) != RECORDS_OK or m.offset <= last:
            return False
        last = m.offset
        at += message_entry_size(&m)
    if outer.magic == 1:
        base[0] = outer.offset - last
    return base[0] >= 0 and base[0] + last <= outer.offset

cdef inline uint8_t* _old_bytes(uint8_t* at, const uint8_t* data, int64_t size) noexcept nogil:
    at = varint_write(at, size)
    if size > 0:
        memcpy(at, data, size)
        at += size
    return at

cdef inline bint old_record_put(
    Buffer* into, const MessageView* m, int64_t offset_delta, int64_t timestamp_delta
) noexcept nogil:
    """Appends the message to `into` as a record of format 2. Returns False without memory."""
    cdef int64_t size = (
        1 + varint_size(timestamp_delta) + varint_size(offset_delta) + varint_size(m.key_size)
        + max(m.key_size, 0) + varint_size(m.value_size) + max(m.value_size, 0) + 1
    )
    cdef uint8_t* at
    buffer_uvarint(into, zigzag(size))
    at = buffer_reserve(into, size)
    if at == NULL:
        return False
    at[0] = 0
    at = varint_write(at + 1, timestamp_delta)
    at = varint_write(at, offset_delta)
    at = _old_bytes(at, m.key, m.key_size)
    at = _old_bytes(at, m.value, m.value_size)
    at[0] = 0                   # no headers
    return True

cdef inline void old_header(uint8_t* header, int64_t base_offset, int64_t last_offset) noexcept nogil:
    """Writes those fields of a batch's header (BATCH_OVERHEAD bytes) that do not depend on its
    records."""
    memset(header, 0, BATCH_OVERHEAD)
    be64_store(header + AT_BASE_OFFSET, <uint64_t>base_offset)
    memset(header + AT_LEADER_EPOCH, 0xFF, 4)
    header[AT_MAGIC] = 2
    be32_store(header + AT_LAST_OFFSET_DELTA, <unsigned int>(last_offset - base_offset))
    memset(header + AT_PRODUCER_ID, 0xFF, AT_RECORD_COUNT - AT_PRODUCER_ID)
