"""Messages of Kafka 0.7: reads what its producers send, and writes records for its consumers.

    message   length int32 (of all that follows), magic int8, then
    magic 0   crc uint32, payload
    magic 1   attributes int8 (bits 0 and 1: 0 plain, 1 gzip, 2 snappy), crc uint32, payload

The CRC-32 covers the payload only. The payload of a compressed message (a wrapper) is a set of plain
messages, compressed. There are no keys, timestamps and offsets.

In: split_messages() finds the plain messages and the wrappers of a set and checks their sizes and
CRCs; to_message_set() makes plain messages entries of format 0, of which
conversion.pyx makes a batch. As in Kafka 0.7 the last message may be cut off, also inside a wrapper,
and is left out, but not the only one.

Out: the records of a stored batch become plain messages of one magic: 1, as the producers of 0.7 write,
or 0, as those of 0.6 (some clients read only one of them: prozess 1, brod 0). Keys, timestamps and
headers are left out; a null value becomes an empty payload. The form depends on the values only, so
that the sum of its sizes can be an address (broker/legacy07/addresses.py). The
records of a batch have consecutive offsets unless compaction has removed some; then MissingRecords
is raised, because the sizes of the removed records are not known any more.

Memory: an entry of format 0 has at most 17 bytes more than its message, a message at most 10 bytes
more than its value. Hostile bytes raise BadMessages, and damaged
batches CorruptRecords. Next on the data path: broker/legacy07/produce.py, broker/legacy07/addresses.py.
"""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from barnabas.cext.codec.buffer cimport Buffer, buffer_free, buffer_init, buffer_reserve
from barnabas.cext.codec.crc cimport crc32_ieee
from barnabas.cext.codec.cursor cimport (
    Cursor, cursor_i8, cursor_i32, cursor_left, cursor_of, cursor_take,
)
from barnabas.cext.codec.endian cimport be32_load, be32_store
from barnabas.cext.record.messageset cimport (
    AT_MESSAGE_CRC, MESSAGE_V0_SIZE_MIN, MessageView, message_entry_size, message_view,
)
from barnabas.cext.record.old_messages cimport old_body_is_sound
from barnabas.cext.record.records cimport (
    ATTR_CODEC_MASK, AT_BATCH_LENGTH, AT_MAGIC, BATCH_OVERHEAD, BatchHeader,
    LOG_OVERHEAD, MESSAGE_BAD_NESTING, RECORDS_LEFT_OVER, RECORDS_MISSING, RECORDS_OK, RecordView,
    batch_header, batch_size, corrupt, record_next,
)

cdef enum:
    CODEC_MASK_07 = 3
    CODEC_NONE = 0
    CODEC_UNKNOWN = 3
    HEADER_0_BYTES = 5              # behind the length, before the payload
    HEADER_1_BYTES = 6
    MESSAGE_BYTES_MIN = 9           # with its length

cdef enum:                          # the outcomes of message07_view
    MESSAGE_OK
    MESSAGE_CUT_OFF
    MESSAGE_BAD_SIZE
    MESSAGE_BAD_MAGIC
    MESSAGE_BAD_CODEC
    MESSAGE_BAD_CRC
    MESSAGE_NESTED

cdef dict REASONS = {
    MESSAGE_CUT_OFF: "the message is cut off",
    MESSAGE_BAD_SIZE: "the size is smaller than a message",
    MESSAGE_BAD_MAGIC: "magic is neither 0 nor 1",
    MESSAGE_BAD_CODEC: "the codec is not none, gzip or snappy",
    MESSAGE_BAD_CRC: "the CRC is not that of the payload",
    MESSAGE_NESTED: "a compressed message inside a compressed message",
}

cdef struct Message07:
    int64_t size                    # with its length
    int32_t codec
    const uint8_t* payload
    int64_t payload_size


class BadMessages(ValueError):
    """The bytes are not a message set of Kafka 0.7. `position`: where the wrong message begins."""

    def __init__(self, reason, position):
        super().__init__(f"{reason} (at byte {position})")
        self.position = position


class MissingRecords(ValueError):
    """Compaction has removed records of the batch, or records before it."""


# --------------------------------------------------------------------------------- what producers send

cdef int _message_view(const uint8_t* p, int64_t left, Message07* m) noexcept nogil:
    """Reads the message at p, of which `left` bytes may be read. After MESSAGE_OK its payload is
    within them, and its CRC is right."""
    cdef Cursor c = cursor_of(p, left)
    cdef int32_t size = cursor_i32(&c)
    cdef int magic
    cdef uint32_t crc
    if c.bad:
        return MESSAGE_CUT_OFF
    if size < HEADER_0_BYTES:
        return MESSAGE_BAD_SIZE
    if size > cursor_left(&c):
        return MESSAGE_CUT_OFF
    magic = cursor_i8(&c)
    if magic != 0 and magic != 1:
        return MESSAGE_BAD_MAGIC
    m.codec = CODEC_NONE
    if magic == 1:
        if size < HEADER_1_BYTES:
            return MESSAGE_BAD_SIZE
        m.codec = cursor_i8(&c) & CODEC_MASK_07
        if m.codec == CODEC_UNKNOWN:
            return MESSAGE_BAD_CODEC
    crc = <uint32_t>cursor_i32(&c)
    m.size = 4 + <int64_t>size
    m.payload_size = size - (HEADER_1_BYTES if magic == 1 else HEADER_0_BYTES)
    m.payload = cursor_take(&c, m.payload_size)
    if c.bad:
        return MESSAGE_CUT_OFF
    return MESSAGE_OK if crc32_ieee(0, m.payload, m.payload_size) == crc else MESSAGE_BAD_CRC


def split_messages(data not None) -> list[tuple[int, int, int]]:
    """Returns the parts of a message set in their order, each as (codec, start, end): for codec 0
    the bytes of plain messages that follow one another; for a wrapper its compressed payload.
    Raises BadMessages, and leaves out a last message that is cut off."""
    cdef Py_buffer view
    cdef Message07 m
    cdef const uint8_t* p
    cdef int64_t at = 0, plain_at = 0       # where the plain messages before `at` begin
    cdef int status
    found = []
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t*>view.buf
        while at < view.len:
            with nogil:
                status = _message_view(p + at, view.len - at, &m)
            if status == MESSAGE_CUT_OFF and at:
                break
            if status != MESSAGE_OK:
                raise BadMessages(REASONS[status], at)
            if m.codec != CODEC_NONE:
                if plain_at < at:
                    found.append((CODEC_NONE, plain_at, at))
                found.append((m.codec, m.payload - p, m.payload - p + m.payload_size))
                plain_at = at + m.size
            at += m.size
        if plain_at < at:
            found.append((CODEC_NONE, plain_at, at))
        return found
    finally:
        PyBuffer_Release(&view)


cdef int _to_message_set(Buffer* into, const uint8_t* p, int64_t size, int64_t* position) noexcept nogil:
    cdef Message07 m
    cdef int64_t at = 0
    cdef int status
    cdef uint8_t* entry
    while at < size:
        position[0] = at
        status = _message_view(p + at, size - at, &m)
        if status == MESSAGE_CUT_OFF and at:
            break
        if status == MESSAGE_OK and m.codec != CODEC_NONE:
            status = MESSAGE_NESTED
        if status != MESSAGE_OK:
            return status
        entry = buffer_reserve(into, LOG_OVERHEAD + MESSAGE_V0_SIZE_MIN + m.payload_size)
        if entry == NULL:
            return MESSAGE_OK
        memset(entry, 0, LOG_OVERHEAD + MESSAGE_V0_SIZE_MIN)
        be32_store(entry + AT_BATCH_LENGTH, <uint32_t>(MESSAGE_V0_SIZE_MIN + m.payload_size))
        memset(entry + 18, 0xFF, 4)                                 # no key
        be32_store(entry + 22, <uint32_t>m.payload_size)
        memcpy(entry + 26, m.payload, m.payload_size)
        be32_store(entry + AT_MESSAGE_CRC, crc32_ieee(0, entry + AT_MAGIC, 10 + m.payload_size))
        at += m.size
    return MESSAGE_OK


def to_message_set(data not None) -> bytes:
    """Returns plain messages of 0.7 as a message set of format 0 without keys, with the offset 0 in
    each entry. Raises BadMessages, and MemoryError."""
    cdef Py_buffer view
    cdef Buffer made
    cdef int64_t position = 0
    cdef int status
    buffer_init(&made)
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            status = _to_message_set(&made, <const uint8_t*>view.buf, view.len, &position)
        if made.failed:
            raise MemoryError
        if status != MESSAGE_OK:
            raise BadMessages(REASONS[status], position)
        return PyBytes_FromStringAndSize(<const char*>made.data, made.size)
    finally:
        buffer_free(&made)
        PyBuffer_Release(&view)


# ------------------------------------------------------------------------------ what consumers receive

cdef struct Output:
    Buffer* into                    # NULL: the sizes are added, nothing is written
    int magic
    int64_t size
    int64_t next_offset             # the offset that the next record must have
    bint has_gap


cdef inline void _put(Output* out, int64_t offset, const uint8_t* value, int32_t value_size) noexcept nogil:
    """Appends one record, unless it lies before the first wanted offset."""
    cdef int64_t size = max(value_size, 0)
    cdef int header_bytes = HEADER_1_BYTES if out.magic else HEADER_0_BYTES
    cdef uint8_t* at
    if offset < out.next_offset:
        return
    if offset > out.next_offset:
        out.has_gap = True
        return
    out.next_offset += 1
    out.size += 4 + header_bytes + size
    if out.into == NULL:
        return
    at = buffer_reserve(out.into, 4 + header_bytes + size)
    if at == NULL:
        return
    be32_store(at, <uint32_t>(header_bytes + size))
    at[4] = <uint8_t>out.magic
    at[5] = CODEC_NONE                      # with magic 0 the CRC begins here
    be32_store(at + header_bytes, crc32_ieee(0, value, size))
    if size:
        memcpy(at + 4 + header_bytes, value, size)


cdef int _batch_records(const uint8_t* body, int64_t size, const BatchHeader* h, Output* out) noexcept nogil:
    cdef Cursor c = cursor_of(body, size)
    cdef RecordView record
    cdef int32_t i
    cdef int status
    for i in range(h.record_count):
        if c.p == c.end:
            return RECORDS_MISSING
        status = record_next(&c, &record)
        if status != RECORDS_OK:
            return status
        _put(out, h.base_offset + record.offset_delta, record.value, record.value_size)
    out.has_gap |= out.next_offset <= h.base_offset + h.last_offset_delta
    return RECORDS_OK if c.p == c.end else RECORDS_LEFT_OVER


cdef int _message_records(const uint8_t* body, int64_t size, const MessageView* outer, Output* out) noexcept nogil:
    cdef MessageView m
    cdef int64_t at = 0, base = 0
    if not outer.attributes & ATTR_CODEC_MASK:
        _put(out, outer.offset, outer.value, outer.value_size)
        return RECORDS_OK
    if not old_body_is_sound(body, size, outer, &base):
        return MESSAGE_BAD_NESTING
    while at < size and message_view(body + at, size - at, &m) == RECORDS_OK:
        _put(out, base + m.offset, m.value, m.value_size)
        at += message_entry_size(&m)
    out.has_gap |= out.next_offset <= outer.offset
    return RECORDS_OK


cdef int _records(const uint8_t* p, int64_t size, const uint8_t* content, int64_t content_size,
                  Output* out) noexcept nogil:
    cdef BatchHeader h
    cdef MessageView outer
    cdef int status
    if size > AT_MAGIC and p[AT_MAGIC] < 2:
        status = message_view(p, size, &outer)
        if status != RECORDS_OK:
            return status
        return _message_records(content, content_size, &outer, out)
    status = batch_header(p, size, &h)
    if status != RECORDS_OK:
        return status
    if content == NULL:
        content, content_size = p + BATCH_OVERHEAD, batch_size(&h) - BATCH_OVERHEAD
    return _batch_records(content, content_size, &h, out)


cdef object _converted(object batch, object content, int64_t first_offset, int magic, Output* out):
    cdef Py_buffer stored, inside
    cdef bint has_content = False
    cdef int status
    if magic != 0 and magic != 1:
        raise ValueError(f"messages of 0.7 have magic 0 or 1, not {magic}")
    out.magic, out.size, out.next_offset, out.has_gap = magic, 0, first_offset, False
    memset(&inside, 0, sizeof(inside))
    PyObject_GetBuffer(batch, &stored, PyBUF_SIMPLE)
    try:
        if content is not None:
            PyObject_GetBuffer(content, &inside, PyBUF_SIMPLE)
            has_content = True
        with nogil:
            status = _records(
                <const uint8_t*>stored.buf, stored.len,
                <const uint8_t*>inside.buf if has_content else NULL, inside.len, out)
    finally:
        if has_content:
            PyBuffer_Release(&inside)
        PyBuffer_Release(&stored)
    if status != RECORDS_OK:
        raise corrupt(status, 0)
    if out.has_gap:
        raise MissingRecords(f"records from offset {out.next_offset} on were removed by compaction")
    return None


def messages_size(batch not None, content=None, *, int64_t first_offset, int magic=1) -> int:
    """Returns the size in bytes of what messages_of() returns; raises the same."""
    cdef Output out
    out.into = NULL
    _converted(batch, content, first_offset, magic, &out)
    return out.size


def messages_of(batch not None, content=None, *, int64_t first_offset, int magic=1) -> bytes:
    """Returns the records of a stored batch from `first_offset` on as messages of 0.7.

    `batch`: a batch of format 2, or a message of format 0 or 1, with a correct CRC; `content`: its
    decompressed content if it is compressed. Raises CorruptRecords, MissingRecords, and
    MemoryError."""
    cdef Output out
    cdef Buffer made
    buffer_init(&made)
    out.into = &made
    try:
        _converted(batch, content, first_offset, magic, &out)
        if made.failed:
            raise MemoryError
        return PyBytes_FromStringAndSize(<const char*>made.data, made.size)
    finally:
        buffer_free(&made)


def whole_messages(bytes messages not None, int64_t start, int64_t size_max) -> int:
    """Returns where the last of the whole messages ends that begin at byte `start` and have at most
    `size_max` bytes together; `start` when the first is larger, -1 when no message begins there.
    `messages` come from messages_of()."""
    cdef const uint8_t* p = messages
    cdef int64_t size = len(messages), at = 0, step
    while size - at >= MESSAGE_BYTES_MIN:
        step = 4 + <int64_t>be32_load(p + at)
        if at >= start and at + step - start > size_max:
            break
        if at < start < at + step:
            return -1
        at += step
    return at if at >= start else -1
