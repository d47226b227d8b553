"""Message sets v0 and v1 for other modules of cext: one entry at a time, without the GIL.

The bytes are described in messageset.pyx; statuses are those of records.pxd.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from barnabas.cext.codec.cursor cimport (
    Cursor, cursor_i8, cursor_i32, cursor_i64, cursor_left, cursor_of, cursor_take,
)
from barnabas.cext.codec.endian cimport be32_load, be64_load
from barnabas.cext.record.records cimport (
    ATTR_APPEND_TIME, ATTR_CODEC_MASK, AT_BATCH_LENGTH, AT_MAGIC, BATCH_BAD_LENGTH, BATCH_BAD_MAGIC,
    BATCH_CUT_OFF, LOG_OVERHEAD, RECORD_BAD_KEY_SIZE, RECORD_BAD_VALUE_SIZE, RECORD_LEFT_OVER,
    RECORDS_OK,
)

cdef enum:  # where the fields of an entry are, and the smallest messages
    AT_MESSAGE_CRC = 12
    AT_MESSAGE_ATTRIBUTES = 17
    AT_MESSAGE_TIMESTAMP = 18   # magic 1 only
    MESSAGE_V0_SIZE_MIN = 14
    MESSAGE_V1_SIZE_MIN = 22

cdef struct MessageView:
    int64_t offset
    int64_t timestamp           # -1 for magic 0
    int32_t size                # of the message, in bytes, without the fields offset and size
    int32_t magic
    int32_t attributes
    uint32_t crc
    const uint8_t* key          # NULL for a null key
    int32_t key_size            # -1 for a null key
    const uint8_t* value
    int32_t value_size

cdef inline int64_t message_entry_size(const MessageView* m) noexcept nogil:
    return <int64_t>LOG_OVERHEAD + m.size

cdef inline int message_view(const uint8_t* p, int64_t left, MessageView* m) noexcept nogil:
    """Reads the entry at p, of which `left` bytes may be read. Returns a RecordsStatus. After 0 the
    whole entry, message_entry_size(m) bytes, lies within `left`, and key and value fill it exactly.
    The CRC is not checked."""
    cdef Cursor c
    if left <= AT_MAGIC:
        return BATCH_CUT_OFF
    m.offset = <int64_t>be64_load(p)
    m.size = <int32_t>be32_load(p + AT_BATCH_LENGTH)
    m.magic = <int>p[AT_MAGIC]
    if m.magic > 1:
        return BATCH_BAD_MAGIC
    if m.size < (MESSAGE_V1_SIZE_MIN if m.magic == 1 else MESSAGE_V0_SIZE_MIN):
        return BATCH_BAD_LENGTH
    if left < message_entry_size(m):
        return BATCH_CUT_OFF
    m.crc = be32_load(p + AT_MESSAGE_CRC)
    c = cursor_of(p + AT_MESSAGE_ATTRIBUTES, m.size - (AT_MESSAGE_ATTRIBUTES - LOG_OVERHEAD))
    m.attributes = <uint8_t>cursor_i8(&c)
    m.timestamp = cursor_i64(&c) if m.magic == 1 else -1
    m.key_size = cursor_i32(&c)
    m.key = NULL
    if m.key_size >= 0:
        m.key = cursor_take(&c, m.key_size)
    if c.bad or m.key_size < -1:
        return RECORD_BAD_KEY_SIZE
    m.value_size = cursor_i32(&c)
    m.value = NULL
    if m.value_size >= 0:
        m.value = cursor_take(&c, m.value_size)
    if c.bad or m.value_size < -1:
        return RECORD_BAD_VALUE_SIZE
    return RECORDS_OK if c.p == c.end else RECORD_LEFT_OVER

cdef int message_crc_check(const uint8_t* p, const MessageView* m) noexcept nogil
cdef int message_set_check(const uint8_t* p, int64_t size, int magic, int flags, int64_t* position) noexcept nogil
