"""Converts records between the message formats: 0 and 1 up to 2, and 2 down to 1 and 0.

Up (Produce 0 to 2; Kafka: LogValidator). A plain message set, or the one wrapper with its content,
becomes one batch of format 2 with the offsets 0, 1, 2, ...: the offsets of the producer mean
nothing. As in Kafka the last entry may be cut off, also inside a wrapper, and is left out. Refused
are: another magic behind or inside, a wrapper inside a wrapper or beside other entries, wrong
checksums, and fields that do not fill a message exactly (Kafka accepts bytes behind a value). A
record of format 2 is never larger than its message, so the batch needs at most the bytes received,
or those of the content, and a header.

Down (Fetch 0 to 3; Kafka: RecordsUtil.downConvert). Offsets stay. Headers, producers, leader epochs
and control batches are left out; the caller leaves out control batches, because it sees the header.
Plain batches become plain messages from the fetch offset on, compressed ones a wrapper of all their
messages: absolute inner offsets in format 0, in format 1 relative ones, and the wrapper has the
largest timestamp. With append time each message has the time of the batch. A record of 7 bytes
becomes a message of 34 at most, so the result has at most five times the bytes of the body.

Next on the data path: cext/produce/produce.pyx, cext/fetch/down_conversion.pyx.
"""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from barnabas.cext.codec.buffer cimport buffer_free, buffer_init, buffer_reserve
from barnabas.cext.codec.crc cimport crc32_ieee, crc32c
from barnabas.cext.codec.cursor cimport Cursor, cursor_of
from barnabas.cext.codec.endian cimport be32_load, be32_store, be64_store
from barnabas.cext.memory.counters cimport (
    COUNT_REJECTED_CODEC, COUNT_REJECTED_CORRUPT, COUNT_REJECTED_INVALID, COUNT_REJECTED_OTHER,
    COUNT_REJECTED_TIMESTAMP, COUNT_REJECTED_TOO_LARGE,
)
from barnabas.cext.record.messageset cimport (
    AT_MESSAGE_ATTRIBUTES, AT_MESSAGE_CRC, AT_MESSAGE_TIMESTAMP, MESSAGE_V0_SIZE_MIN,
    MESSAGE_V1_SIZE_MIN, message_crc_check, message_entry_size, message_view,
)
from barnabas.cext.record.old_messages cimport old_body_is_sound, old_header, old_record_put
from barnabas.cext.record.records cimport (
    AT_ATTRIBUTES, AT_BASE_TIMESTAMP, AT_BATCH_LENGTH, AT_CRC, AT_MAGIC, AT_MAX_TIMESTAMP,
    AT_RECORD_COUNT, ATTR_APPEND_TIME, ATTR_CODEC_MASK, BATCH_BAD_CRC, BATCH_BAD_LENGTH,
    BATCH_CUT_OFF, BATCH_OVERHEAD, LOG_OVERHEAD, MESSAGE_BAD_NESTING, RECORDS_LEFT_OVER,
    RECORDS_MISSING, RECORDS_OK, RecordView, batch_crc_check, batch_header, corrupt, record_next,
)
from barnabas.cext.record.validate cimport (
    ERROR_INVALID_RECORD, ERROR_INVALID_TIMESTAMP, verdict_of,
)

cdef enum:
    ERROR_UNKNOWN_SERVER_ERROR = -1
    ERROR_CORRUPT_MESSAGE = 2
    ERROR_MESSAGE_TOO_LARGE = 10
    ERROR_UNSUPPORTED_COMPRESSION_TYPE = 76
    CODEC_ZSTD = 4              # formats 0 and 1 do not have it


# ------------------------------------------------------------------------------ up: what is received

cdef inline int64_t _size_min(int magic) noexcept nogil:
    if magic == 2:
        return BATCH_OVERHEAD - LOG_OVERHEAD
    return MESSAGE_V1_SIZE_MIN if magic == 1 else MESSAGE_V0_SIZE_MIN


cdef void message_set_frame(const uint8_t* p, int64_t size, MessageSet* out) noexcept nogil:
    cdef int64_t at = 0, length
    cdef int magic, codec
    memset(out, 0, sizeof(MessageSet))
    out.magic = -1
    while size - at >= LOG_OVERHEAD:
        length = <int32_t>be32_load(p + at + AT_BATCH_LENGTH)
        if length < MESSAGE_V0_SIZE_MIN:
            out.is_damaged = True
            break
        if size - at <= AT_MAGIC:
            break
        magic = p[at + AT_MAGIC]
        if magic > 2 or length < _size_min(magic):
            out.is_damaged = True
            break
        if length > size - at - LOG_OVERHEAD:
            break
        if out.magic < 0:
            out.magic = magic
        out.is_mixed |= magic != out.magic
        codec = p[at + (AT_ATTRIBUTES + 1 if magic == 2 else AT_MESSAGE_ATTRIBUTES)] & ATTR_CODEC_MASK
        if codec:
            out.codec = codec
        out.entry_count += 1
        at += LOG_OVERHEAD + length
    out.size_bytes = at


cdef inline bint _entry_is_whole(const uint8_t* p, int64_t size) noexcept nogil:
    cdef BatchHeader h
    cdef MessageView m
    if p[AT_MAGIC] == 2:
        return batch_header(p, size, &h) == RECORDS_OK and batch_crc_check(p, &h) == RECORDS_OK
    m.size = <int32_t>(size - LOG_OVERHEAD)
    m.crc = be32_load(p + AT_MESSAGE_CRC)
    return message_crc_check(p, &m) == RECORDS_OK


cdef inline bint _wrapper_is_readable(const uint8_t* p, const MessageSet* found) noexcept nogil:
    cdef MessageView m
    return message_view(p, found.size_bytes, &m) == RECORDS_OK and m.value_size >= 0


cdef bint message_set_accept(
    const uint8_t* p, const MessageSet* found, int64_t bytes_max, Verdict* out,
) noexcept nogil:
    cdef int64_t at = 0, size
    verdict_of(out, 0, 0, NULL)
    while at < found.size_bytes:
        size = LOG_OVERHEAD + <int64_t>be32_load(p + at + AT_BATCH_LENGTH)
        if size > bytes_max:
            verdict_of(out, ERROR_MESSAGE_TOO_LARGE, COUNT_REJECTED_TOO_LARGE, NULL)
            return False
        if not _entry_is_whole(p + at, size):
            verdict_of(out, ERROR_CORRUPT_MESSAGE, COUNT_REJECTED_CORRUPT, NULL)
            return False
        at += size
    if found.is_damaged:
        verdict_of(out, ERROR_CORRUPT_MESSAGE, COUNT_REJECTED_CORRUPT, NULL)
    elif found.is_mixed or (found.entry_count > 1 and (found.codec or found.magic == 2)) or (
            found.magic < 2 and found.codec == CODEC_ZSTD):
        verdict_of(out, ERROR_INVALID_RECORD, COUNT_REJECTED_INVALID, NULL)
    elif found.codec > CODEC_ZSTD:
        verdict_of(out, ERROR_UNSUPPORTED_COMPRESSION_TYPE, COUNT_REJECTED_CODEC, NULL)
    elif found.magic < 2 and found.codec and not _wrapper_is_readable(p, found):
        verdict_of(out, ERROR_INVALID_RECORD, COUNT_REJECTED_INVALID, NULL)
    return out.error == 0


# ---------------------------------------------------------------------------------- up: the records

cdef inline bint _refuse(Verdict* out, int16_t error, int32_t reason) noexcept nogil:
    verdict_of(out, error, reason, NULL)
    return False


cdef inline bint _time_is_refused(int64_t timestamp, bint append_time, const BodyRules* rules) noexcept nogil:
    """Returns whether the timestamp is no time, or a producer's append time that the topic would
    have to keep or to replace (Kafka: LogValidator.validateTimestamp)."""
    return timestamp < -1 or (append_time and (rules.append_time or timestamp == -1))


cdef bint message_set_up(
    Buffer* into, const uint8_t* p, int64_t size, int magic, const MessageView* outer,
    const BodyRules* rules, Verdict* out,
) noexcept nogil:
    cdef MessageView m
    cdef int64_t at = 0, last = -1, timestamp, base_timestamp = -1, max_timestamp = -1
    cdef int32_t count = 0
    cdef bint append_time
    cdef uint8_t* header
    cdef int status
    verdict_of(out, 0, 0, NULL)
    # No record is larger than its message: after this the buffer does not grow.
    if buffer_reserve(into, BATCH_OVERHEAD + size) == NULL:
        return _refuse(out, ERROR_UNKNOWN_SERVER_ERROR, COUNT_REJECTED_OTHER)
    into.size = BATCH_OVERHEAD
    while at < size:
        status = message_view(p + at, size - at, &m)
        if outer != NULL:
            if status == BATCH_CUT_OFF:
                break
            if status == RECORDS_OK:
                status = message_crc_check(p + at, &m)
            if status == RECORDS_OK and (m.magic != magic or m.attributes & ATTR_CODEC_MASK):
                status = MESSAGE_BAD_NESTING
        if status == BATCH_BAD_CRC or status == BATCH_BAD_LENGTH:
            return _refuse(out, ERROR_CORRUPT_MESSAGE, COUNT_REJECTED_CORRUPT)
        if status != RECORDS_OK:
            return _refuse(out, ERROR_INVALID_RECORD, COUNT_REJECTED_INVALID)
        append_time = magic == 1 and (
            (m.attributes if outer == NULL else outer.attributes) & ATTR_APPEND_TIME)
        timestamp = outer.timestamp if append_time and outer != NULL else m.timestamp
        if _time_is_refused(timestamp, append_time, rules):
            return _refuse(out, ERROR_INVALID_TIMESTAMP, COUNT_REJECTED_TIMESTAMP)
        if count == 0:
            base_timestamp = timestamp
        max_timestamp = max(max_timestamp, timestamp)
        if not old_record_put(
                into, &m, count, <int64_t>(<uint64_t>timestamp - <uint64_t>base_timestamp)):
            return _refuse(out, ERROR_UNKNOWN_SERVER_ERROR, COUNT_REJECTED_OTHER)
        last = m.offset
        count += 1
        at += message_entry_size(&m)
    # Offset 0 is what some releases of librdkafka wrote into each wrapper.
    if count == 0 or (outer != NULL and magic == 1 and outer.offset != 0 and outer.offset < last):
        return _refuse(out, ERROR_INVALID_RECORD, COUNT_REJECTED_INVALID)
    header = into.data
    old_header(header, 0, count - 1)
    be32_store(header + AT_BATCH_LENGTH, <uint32_t>(into.size - LOG_OVERHEAD))
    be64_store(header + AT_BASE_TIMESTAMP, <uint64_t>base_timestamp)
    be64_store(header + AT_MAX_TIMESTAMP, <uint64_t>max_timestamp)
    be32_store(header + AT_RECORD_COUNT, <uint32_t>count)
    return True


cdef void batch_seal(uint8_t* batch, int64_t size) noexcept nogil:
    be32_store(batch + AT_BATCH_LENGTH, <uint32_t>(size - LOG_OVERHEAD))
    be32_store(batch + AT_CRC, crc32c(0, batch + AT_ATTRIBUTES, size - AT_ATTRIBUTES))


# --------------------------------------------------------------------------------------------- down

cdef inline uint8_t* _bytes_put(uint8_t* at, const uint8_t* data, int32_t size) noexcept nogil:
    be32_store(at, <uint32_t>size)
    if size > 0:
        memcpy(at + 4, data, size)
        at += size
    return at + 4


cdef void _message_put(
    Buffer* into, int magic, int attributes, int64_t offset, int64_t timestamp,
    const uint8_t* key, int32_t key_size, const uint8_t* value, int64_t value_size,
) noexcept nogil:
    cdef int64_t size = (
        (MESSAGE_V1_SIZE_MIN if magic == 1 else MESSAGE_V0_SIZE_MIN)
        + max(key_size, 0) + max(value_size, 0))
    cdef uint8_t* entry = buffer_reserve(into, LOG_OVERHEAD + size)
    cdef uint8_t* at
    if entry == NULL:
        return
    be64_store(entry, <uint64_t>offset)
    be32_store(entry + AT_BATCH_LENGTH, <uint32_t>size)
    entry[AT_MAGIC] = <uint8_t>magic
    entry[AT_MESSAGE_ATTRIBUTES] = <uint8_t>attributes
    at = entry + AT_MESSAGE_TIMESTAMP
    if magic == 1:
        be64_store(at, <uint64_t>timestamp)
        at += 8
    at = _bytes_put(at, key, key_size)
    _bytes_put(at, value, <int32_t>value_size)
    be32_store(
        entry + AT_MESSAGE_CRC, crc32_ieee(0, entry + AT_MAGIC, size - (AT_MAGIC - LOG_OVERHEAD)))


cdef inline void _record_down(
    Buffer* into, Down* down, int64_t offset, int64_t timestamp,
    const uint8_t* key, int32_t key_size, const uint8_t* value, int32_t value_size,
) noexcept nogil:
    """Appends one record, unless it lies before the fetch offset of a plain batch."""
    if down.codec == 0 and offset < down.first_offset:
        return
    if down.count == 0:
        down.base_offset = offset
    if down.count == 0 or timestamp > down.timestamp:
        down.timestamp = timestamp
    down.count += 1
    down.last_offset = offset
    _message_put(
        into, down.magic, ATTR_APPEND_TIME if down.append_time and down.magic == 1 else 0,
        offset - down.base_offset if down.codec and down.magic == 1 else offset, timestamp,
        key, key_size, value, value_size)


cdef int batch_down(
    Buffer* into, const uint8_t* body, int64_t size, const BatchHeader* h, Down* down,
) noexcept nogil:
    cdef Cursor c = cursor_of(body, size)
    cdef RecordView record
    cdef int32_t i
    cdef int status
    down.count = 0
    down.append_time = h.attributes & ATTR_APPEND_TIME
    for i in range(h.record_count):
        if c.p == c.end:
            return RECORDS_MISSING
        status = record_next(&c, &record)
        if status != RECORDS_OK:
            return status
        _record_down(
            into, down, <int64_t>(<uint64_t>h.base_offset + <uint64_t>record.offset_delta),
            h.max_timestamp if down.append_time
            else <int64_t>(<uint64_t>h.base_timestamp + <uint64_t>record.timestamp_delta),
            record.key, record.key_size, record.value, record.value_size)
        if into.failed:
            break
    return RECORDS_OK if c.p == c.end or into.failed else RECORDS_LEFT_OVER


cdef int messages_down(
    Buffer* into, const uint8_t* body, int64_t size, const MessageView* outer, Down* down,
) noexcept nogil:
    cdef MessageView m
    cdef int64_t at = 0, base = 0
    down.count = 0
    down.append_time = outer.attributes & ATTR_APPEND_TIME
    if down.codec == 0:
        _record_down(
            into, down, outer.offset, outer.timestamp, outer.key, outer.key_size, outer.value,
            outer.value_size)
        return RECORDS_OK
    if not old_body_is_sound(body, size, outer, &base):
        return MESSAGE_BAD_NESTING
    while at < size and message_view(body + at, size - at, &m) == RECORDS_OK and not into.failed:
        _record_down(
            into, down, base + m.offset, outer.timestamp if down.append_time else m.timestamp,
            m.key, m.key_size, m.value, m.value_size)
        at += message_entry_size(&m)
    return RECORDS_OK


cdef void wrapper_put(Buffer* into, const uint8_t* packed, int64_t size, const Down* down) noexcept nogil:
    cdef int attributes = down.codec
    if down.append_time and down.magic == 1:
        attributes |= ATTR_APPEND_TIME
    _message_put(
        into, down.magic, attributes, down.last_offset, down.timestamp, NULL, -1, packed, size)


# --------------------------------------------------------------------------------------- for Python

class CannotConvert(ValueError):
    """What a producer sent is refused; `code` is Kafka's error code."""

    def __init__(self, code):
        super().__init__(f"not a message set that can be converted (error code {code})")
        self.code = code


def up_convert(data not None, *, wrapper=None, int64_t bytes_max=INT64_MAX, bint append_time=False) -> bytes:
    """Returns the records of a message set as one uncompressed batch of format 2.

    `data`: a plain set; with `wrapper`, the bytes of a wrapper entry, its decompressed content.
    `bytes_max`: the largest size of an entry; `append_time`: the topic's timestamps are the
    broker's. Raises CannotConvert, and MemoryError."""
    cdef Py_buffer view, outside
    cdef Buffer made
    cdef MessageSet found
    cdef MessageView outer
    cdef BodyRules rules
    cdef Verdict verdict
    cdef bint has_outer = wrapper is not None
    cdef bint accepted
    memset(&rules, 0, sizeof(rules))
    rules.append_time = append_time
    buffer_init(&made)
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if has_outer:
            PyObject_GetBuffer(wrapper, &outside, PyBUF_SIMPLE)
            try:
                if message_view(<const uint8_t*>outside.buf, outside.len, &outer) != RECORDS_OK:
                    raise ValueError("no wrapper")
                outer.key = outer.value = NULL
            finally:
                PyBuffer_Release(&outside)
            found.magic, found.size_bytes = outer.magic, view.len
        with nogil:
            accepted = True
            if not has_outer:
                message_set_frame(<const uint8_t*>view.buf, view.len, &found)
                accepted = message_set_accept(<const uint8_t*>view.buf, &found, bytes_max, &verdict)
        if accepted and not has_outer and found.codec:
            raise CannotConvert(ERROR_INVALID_RECORD)     # its content is needed
        with nogil:
            if accepted:
                accepted = message_set_up(
                    &made, <const uint8_t*>view.buf, found.size_bytes, found.magic,
                    &outer if has_outer else NULL, &rules, &verdict)
            if accepted:
                batch_seal(made.data, made.size)
        if not accepted:
            if made.failed:
                raise MemoryError
            raise CannotConvert(verdict.error)
        return PyBytes_FromStringAndSize(<const char*>made.data, made.size)
    finally:
        buffer_free(&made)
        PyBuffer_Release(&view)


def down_convert(batch not None, *, int magic, int64_t first_offset=0, bint wrapped=False) -> bytes:
    """Returns the records of an uncompressed batch of format 2, or of an uncompressed message of
    format 1, as messages of format `magic`. `wrapped`: the messages are the content of a wrapper.
    Raises CorruptRecords, and MemoryError."""
    cdef Py_buffer view
    cdef BatchHeader h
    cdef MessageView m
    cdef Down down
    cdef Buffer made
    cdef int status
    cdef const uint8_t* p
    if not 0 <= magic <= 1:
        raise ValueError(f"cannot convert down to magic {magic}")
    memset(&down, 0, sizeof(down))
    down.magic, down.first_offset, down.codec = magic, first_offset, 1 if wrapped else 0
    buffer_init(&made)
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t*>view.buf
        with nogil:
            if view.len > AT_MAGIC and p[AT_MAGIC] < 2:
                status = message_view(p, view.len, &m)
                if status == RECORDS_OK:
                    status = messages_down(&made, NULL, 0, &m, &down)
            else:
                status = batch_header(p, view.len, &h)
                if status == RECORDS_OK:
                    status = batch_down(
                        &made, p + BATCH_OVERHEAD, LOG_OVERHEAD + h.batch_length - BATCH_OVERHEAD,
                        &h, &down)
        if made.failed:
            raise MemoryError
        if status != RECORDS_OK:
            raise corrupt(status, 0)
        return PyBytes_FromStringAndSize(<const char*>made.data, made.size)
    finally:
        buffer_free(&made)
        PyBuffer_Release(&view)
