"""Checks the records of a batch piece by piece, so that a decompression bomb needs memory for one
piece.

record_next reads the records that lie whole in a piece. The record in which a piece ends is read by
a state machine, field by field: it keeps the read part of a number, and skips keys and values. It
needs no memory beside the struct, whatever sizes the record has.
"""
from libc.string cimport memset

from barnabas.cext.codec.cursor cimport Cursor, cursor_left, cursor_of, cursor_varint
from barnabas.cext.codec.inflate cimport INFLATE_OK, lz4_frame_decode, snappy_framed_decode
from barnabas.cext.memory.counters cimport (
    COUNT_REJECTED_INVALID, COUNT_REJECTED_NO_KEY, COUNT_REJECTED_TIMESTAMP,
)
from barnabas.cext.record.records cimport (
    BATCH_BAD_COUNT, CHECK_STRICT, RECORD_BAD_FIELD, RECORD_BAD_HEADERS, RECORD_BAD_KEY_SIZE,
    RECORD_BAD_OFFSET, RECORD_BAD_SIZE, RECORD_BAD_VALUE_SIZE, RECORD_LEFT_OVER, RECORD_SIZE_MIN,
    RECORDS_LEFT_OVER, RECORDS_MISSING, RECORDS_OK, RecordView, batch_rules, record_next,
)
from barnabas.cext.record.validate cimport (
    ERROR_INVALID_RECORD, ERROR_INVALID_TIMESTAMP, timestamp_refused, verdict_of,
)

cdef enum:  # fields of a record, in their order
    AT_LENGTH = 0
    AT_RECORD_ATTRIBUTES = 1
    AT_TIMESTAMP = 2
    AT_OFFSET = 3
    AT_KEY_SIZE = 4
    AT_KEY = 5
    AT_VALUE_SIZE = 6
    AT_VALUE = 7
    AT_HEADER_COUNT = 8
    AT_HEADER_KEY_SIZE = 9
    AT_HEADER_KEY = 10
    AT_HEADER_VALUE_SIZE = 11
    AT_HEADER_VALUE = 12

cdef enum:
    CODEC_LZ4 = 3

cdef struct Walking:  # the context of _take_piece
    RecordWalk walk
    const BatchHeader* h
    const BodyRules* rules

cdef enum:  # results of _number
    NUMBER_WHOLE = 1
    NUMBER_CUT = 0
    NUMBER_BAD = -1


cdef void walk_begin(RecordWalk* w) noexcept nogil:
    memset(w, 0, sizeof(RecordWalk))
    w.max_timestamp = -1
    w.last_offset_delta = -1


cdef inline void _record_done(
    RecordWalk* w, int64_t timestamp_delta, int32_t offset_delta, bint has_key,
    const BatchHeader* h, const BodyRules* rules,
) noexcept nogil:
    """Checks a whole record against the rules of the topic."""
    cdef int64_t timestamp = <int64_t>(<uint64_t>h.base_timestamp + <uint64_t>timestamp_delta)
    if not w.names_only and (offset_delta != w.count or offset_delta > h.last_offset_delta):
        w.status = RECORD_BAD_OFFSET
        return
    if rules.requires_keys and not has_key:
        w.names_only = True
        if w.keyless_count < REJECTED_RECORDS_MAX:
            w.keyless[w.keyless_count] = w.count
            w.keyless_count += 1
    if not rules.append_time and timestamp_refused(timestamp, rules):
        if w.late_count < REJECTED_RECORDS_MAX:
            w.late[w.late_count] = w.count
            w.late_count += 1
    if w.count == 0 or timestamp > w.max_timestamp:
        w.max_timestamp = timestamp
    w.last_offset_delta = offset_delta
    w.count += 1


cdef inline int _number(RecordWalk* w, Cursor* c, int bytes_max) noexcept nogil:
    """Reads more bytes of a varint into w.number, and subtracts them from w.left. Returns NUMBER_...."""
    cdef uint8_t b
    while c.p < c.end:
        if w.field != AT_LENGTH:
            if w.left == 0:
                return NUMBER_BAD
            w.left -= 1
        b = c.p[0]
        c.p += 1
        w.number |= <uint64_t>(b & 0x7F) << (7 * w.number_bytes)
        w.number_bytes += 1
        if b < 0x80:
            # The last byte may not carry bits above the type's width.
            if (bytes_max == 5 and w.number > 0xFFFFFFFFu) or (w.number_bytes == 10 and b > 1):
                return NUMBER_BAD
            return NUMBER_WHOLE
        if w.number_bytes == bytes_max:
            return NUMBER_BAD
    if w.field != AT_LENGTH and w.left == 0:
        return NUMBER_BAD
    return NUMBER_CUT


cdef inline int64_t _taken(RecordWalk* w) noexcept nogil:
    """Returns the number that was read, decoded from zigzag, and resets it for the next one."""
    cdef uint64_t v = w.number
    w.number = 0
    w.number_bytes = 0
    return <int64_t>((v >> 1) ^ (0 - (v & 1)))


cdef inline int _status_of(int field) noexcept nogil:
    """Returns the status for a field that cannot be read."""
    if field == AT_LENGTH:
        return RECORD_BAD_SIZE
    if field <= AT_KEY_SIZE:
        return RECORD_BAD_FIELD
    if field == AT_VALUE_SIZE:
        return RECORD_BAD_VALUE_SIZE
    return RECORD_BAD_HEADERS


cdef inline void _skip(RecordWalk* w, int64_t size, int field, int status) noexcept nogil:
    """Sets that the next `size` bytes belong to `field`; sets `status` if they exceed the record."""
    if size > w.left:
        w.status = status
    w.to_skip = size
    w.field = field


cdef void _take_number(RecordWalk* w) noexcept nogil:
    """Uses a number that is whole, and sets the field that follows it."""
    cdef int64_t number = _taken(w)
    if w.field == AT_LENGTH:
        w.left = number
        if number < 0:
            w.status = RECORD_BAD_SIZE
        elif number == 0:
            w.status = RECORD_BAD_FIELD
        w.to_skip = 1
        w.field = AT_RECORD_ATTRIBUTES
    elif w.field == AT_TIMESTAMP:
        w.timestamp_delta = number
        w.field = AT_OFFSET
    elif w.field == AT_OFFSET:
        w.offset_delta = <int32_t>number
        w.field = AT_KEY_SIZE
    elif w.field == AT_KEY_SIZE:
        w.has_key = number >= 0
        if number < -1:
            w.status = RECORD_BAD_KEY_SIZE
        _skip(w, number if number > 0 else 0, AT_KEY, RECORD_BAD_KEY_SIZE)
    elif w.field == AT_VALUE_SIZE:
        if number < -1:
            w.status = RECORD_BAD_VALUE_SIZE
        _skip(w, number if number > 0 else 0, AT_VALUE, RECORD_BAD_VALUE_SIZE)
    elif w.field == AT_HEADER_COUNT:
        # Each header takes two bytes at least.
        if number < 0 or number > w.left // 2:
            w.status = RECORD_BAD_HEADERS
        w.headers_left = <int32_t>number
        w.field = AT_HEADER_KEY_SIZE
    elif w.field == AT_HEADER_KEY_SIZE:
        if number < 0:
            w.status = RECORD_BAD_HEADERS
        _skip(w, number, AT_HEADER_KEY, RECORD_BAD_HEADERS)
    else:
        if number < -1:
            w.status = RECORD_BAD_HEADERS
        _skip(w, number if number > 0 else 0, AT_HEADER_VALUE, RECORD_BAD_HEADERS)


cdef inline int _after_skip(RecordWalk* w) noexcept nogil:
    """Returns the field that follows a skipped one."""
    if w.field == AT_RECORD_ATTRIBUTES:
        return AT_TIMESTAMP
    if w.field == AT_KEY:
        return AT_VALUE_SIZE
    if w.field == AT_VALUE:
        return AT_HEADER_COUNT
    if w.field == AT_HEADER_KEY:
        return AT_HEADER_VALUE_SIZE
    w.headers_left -= 1
    return AT_HEADER_KEY_SIZE


cdef inline bint _is_skipped(int field) noexcept nogil:
    return (field == AT_RECORD_ATTRIBUTES or field == AT_KEY or field == AT_VALUE
            or field == AT_HEADER_KEY or field == AT_HEADER_VALUE)


cdef void _walk_cut_record(
    RecordWalk* w, Cursor* c, const BatchHeader* h, const BodyRules* rules,
) noexcept nogil:
    """Reads the record at the cursor field by field, to its end or to the end of the piece."""
    cdef int64_t size
    cdef int read
    while w.status == RECORDS_OK:
        if _is_skipped(w.field):
            size = cursor_left(c)
            if size > w.to_skip:
                size = w.to_skip
            c.p += size
            w.to_skip -= size
            w.left -= size
            if w.to_skip:
                return
            w.field = _after_skip(w)
        elif w.field == AT_HEADER_KEY_SIZE and w.headers_left == 0:
            if w.left:
                w.status = RECORD_LEFT_OVER
                return
            w.field = AT_LENGTH
            _record_done(w, w.timestamp_delta, w.offset_delta, w.has_key, h, rules)
            return
        else:
            read = _number(w, c, 10 if w.field == AT_TIMESTAMP else 5)
            if read == NUMBER_CUT:
                return
            if read == NUMBER_BAD:
                w.status = _status_of(w.field)
                return
            _take_number(w)


cdef void walk_piece(
    RecordWalk* w, const uint8_t* piece, int64_t size, const BatchHeader* h,
    const BodyRules* rules,
) noexcept nogil:
    cdef Cursor c = cursor_of(piece, size)
    cdef Cursor ahead
    cdef RecordView record
    cdef int32_t length
    cdef int status
    w.bytes += size
    while c.p < c.end and w.status == RECORDS_OK:
        if w.field != AT_LENGTH or w.number_bytes:
            _walk_cut_record(w, &c, h, rules)
            continue
        if w.count == h.record_count:
            w.status = RECORDS_LEFT_OVER
            return
        ahead = c
        length = cursor_varint(&ahead)
        if ahead.bad or length < 0 or length > cursor_left(&ahead):
            _walk_cut_record(w, &c, h, rules)
            continue
        status = record_next(&c, &record)
        if status != RECORDS_OK:
            w.status = status
            return
        _record_done(
            w, record.timestamp_delta, record.offset_delta, record.key_size >= 0, h, rules)


cdef inline void _name(Verdict* out, const int32_t* indexes, int32_t count) noexcept nogil:
    cdef int32_t i
    out.rejected_count = count
    for i in range(count):
        out.rejected[i] = indexes[i]


cdef void walk_end(
    RecordWalk* w, const BatchHeader* h, const BodyRules* rules, Verdict* out,
) noexcept nogil:
    cdef int status = batch_rules(h, CHECK_STRICT)
    if status == RECORDS_OK and h.record_count > w.bytes // RECORD_SIZE_MIN:
        status = BATCH_BAD_COUNT
    if status != RECORDS_OK:
        w.names_only = False
    else:
        status = w.status
    if status == RECORDS_OK and (w.field != AT_LENGTH or w.number_bytes):
        status = RECORD_BAD_SIZE        # the bytes end inside a record
    if status == RECORDS_OK and w.count < h.record_count:
        status = RECORDS_MISSING
    verdict_of(out, 0, 0, NULL)
    if w.names_only:
        verdict_of(out, ERROR_INVALID_RECORD, COUNT_REJECTED_NO_KEY,
                   b"One or more records without a key were sent to a compacted topic")
        out.no_key = True
        _name(out, w.keyless, w.keyless_count)
    elif status != RECORDS_OK:
        verdict_of(out, ERROR_INVALID_RECORD, COUNT_REJECTED_INVALID, NULL)
    elif not rules.append_time:
        out.max_timestamp = w.max_timestamp
        if w.late_count:
            _name(out, w.late, w.late_count)
            out.error = ERROR_INVALID_TIMESTAMP
            out.reason = COUNT_REJECTED_TIMESTAMP
            out.message = b"One or more records have a timestamp outside the range that the topic allows"


cdef void _take_piece(void* context, const uint8_t* piece, int64_t size) noexcept nogil:
    cdef Walking* walking = <Walking*>context
    walk_piece(&walking.walk, piece, size, walking.h, walking.rules)


cdef int compressed_check(
    Inflated* scratch, int codec, const uint8_t* body, int64_t size, int64_t size_max,
    const BatchHeader* h, const BodyRules* rules, Verdict* out,
) noexcept nogil:
    cdef Walking walking
    cdef int status
    walk_begin(&walking.walk)
    walking.h = h
    walking.rules = rules
    scratch.take = _take_piece
    scratch.context = &walking
    if codec == CODEC_LZ4:
        status = lz4_frame_decode(scratch, body, size, size_max)
    else:
        status = snappy_framed_decode(scratch, body, size, size_max)
    scratch.take = NULL
    scratch.context = NULL
    if status == INFLATE_OK:
        walk_end(&walking.walk, h, rules, out)
    return status
