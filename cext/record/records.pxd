"""Record batches v2 for other modules of cext: headers, records and checks without the GIL.

The bytes are described in records.pyx. The functions take plain pointers; the checks return a
RecordsStatus. records_kind() returns the kind of a status, which decides on Kafka's error code.
"""
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from barnabas.cext.codec.cursor cimport (
    Cursor, cursor_i8, cursor_left, cursor_of, cursor_take, cursor_varint, cursor_varlong,
)
from barnabas.cext.codec.endian cimport be16_load, be32_load, be32_store, be64_load, be64_store
from barnabas.cext.codec.varint cimport unzigzag

cdef enum:  # where the fields of a batch are
    LOG_OVERHEAD = 12           # base offset and length, which the length field does not include
    BATCH_OVERHEAD = 61         # the header of a batch; the records follow
    AT_BASE_OFFSET = 0
    AT_BATCH_LENGTH = 8
    AT_LEADER_EPOCH = 12
    AT_MAGIC = 16               # also the place of the magic byte in message sets v0 and v1
    AT_CRC = 17
    AT_ATTRIBUTES = 21          # the CRC covers everything from here on
    AT_LAST_OFFSET_DELTA = 23
    AT_BASE_TIMESTAMP = 27
    AT_MAX_TIMESTAMP = 35
    AT_PRODUCER_ID = 43
    AT_PRODUCER_EPOCH = 51
    AT_BASE_SEQUENCE = 53
    AT_RECORD_COUNT = 57
    OFFSET_MAX = 0x7fffffff7fffffff     # a batch at a larger one may have offsets beyond int64
    RECORD_SIZE_MIN = 7         # length, attributes, two deltas, two sizes and a header count

cdef enum:  # bits of the attributes
    ATTR_CODEC_MASK = 0x07
    ATTR_APPEND_TIME = 0x08
    ATTR_TRANSACTIONAL = 0x10
    ATTR_CONTROL = 0x20
    ATTR_DELETE_HORIZON = 0x40

cdef enum:  # results of the checks, called a RecordsStatus here
    RECORDS_OK = 0
    # The frame of a batch or message is damaged: KIND_CORRUPT.
    BATCH_CUT_OFF = 1           # fewer bytes are left than the batch's length
    BATCH_BAD_LENGTH = 2        # a length below the smallest batch, negative, or a size beyond int32
    BATCH_BAD_MAGIC = 3
    BATCH_BAD_CRC = 4
    BATCH_BAD_OFFSET = 5        # no log has so large an offset
    # The frame is whole and its content breaks a rule: KIND_INVALID.
    BATCH_BAD_COUNT = 20        # a negative count, or more records than the bytes can hold
    BATCH_BAD_LAST_OFFSET = 21  # last offset delta and count do not agree
    BATCH_IS_CONTROL = 22       # only brokers write control batches
    BATCH_NO_SEQUENCE = 23      # a producer id without a sequence number
    RECORD_BAD_SIZE = 24        # a record's length is negative, unreadable or beyond the end
    RECORD_BAD_FIELD = 25       # a field of a record runs over its record's end
    RECORD_BAD_KEY_SIZE = 26
    RECORD_BAD_VALUE_SIZE = 27
    RECORD_BAD_HEADERS = 28
    RECORD_LEFT_OVER = 29       # bytes after the last field, inside the record
    RECORD_BAD_OFFSET = 30      # offset deltas are not 0, 1, 2, ... (or do not ascend)
    RECORDS_MISSING = 31        # the bytes end before the count is reached
    RECORDS_LEFT_OVER = 32      # bytes after the last record
    MESSAGE_BAD_NESTING = 33    # a wrapper inside a wrapper, of another magic, or empty
    # A record without a key where keys are required: KIND_MISSING_KEY.
    RECORD_WITHOUT_KEY = 50

cdef enum:  # kinds of a RecordsStatus
    KIND_OK = 0
    KIND_CORRUPT = 1            # error 2, CORRUPT_MESSAGE
    KIND_INVALID = 2            # error 87, INVALID_RECORD
    KIND_MISSING_KEY = 3        # error 87 too, with its own message

cdef enum:  # flags of the checks
    CHECK_STRICT = 1            # a producer's batch: no gaps, no control records
    REQUIRE_KEYS = 2            # the topic is compacted

cdef struct BatchHeader:
    int64_t base_offset
    int32_t batch_length
    int32_t leader_epoch
    int32_t magic
    uint32_t crc
    int32_t attributes
    int32_t last_offset_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int32_t producer_epoch
    int32_t base_sequence
    int32_t record_count

cdef struct RecordView:
    int64_t timestamp_delta
    int32_t offset_delta
    const uint8_t* key          # NULL for a null key
    int32_t key_size            # -1 for a null key
    const uint8_t* value
    int32_t value_size
    const uint8_t* headers      # the first header; all headers are checked
    int32_t headers_size
    int32_t header_count

cdef struct RecordsSummary:
    int32_t count               # records found whole
    int32_t max_timestamp_delta  # offset delta of the first record with the largest timestamp
    int64_t max_timestamp
    int64_t position            # where in the body the record that failed begins
    int32_t last_offset_delta   # of the last whole record, -1 when there is none

cdef inline int records_kind(int status) noexcept nogil:
    if status == RECORDS_OK:
        return KIND_OK
    if status < BATCH_BAD_COUNT:
        return KIND_CORRUPT
    return KIND_MISSING_KEY if status == RECORD_WITHOUT_KEY else KIND_INVALID

cdef inline int64_t batch_size(const BatchHeader* h) noexcept nogil:
    return <int64_t>LOG_OVERHEAD + h.batch_length

cdef inline int batch_header(const uint8_t* p, int64_t left, BatchHeader* h) noexcept nogil:
    """Reads the header at p, of which `left` bytes may be read. Returns a RecordsStatus; after 0
    the whole batch (batch_size(h) bytes) is within `left`.

    It checks in this order: frame, magic, length, whole batch. So it reports another magic even
    when the batch is smaller than a header, and BATCH_CUT_OFF always means that more bytes may
    help.
    """
    if left <= AT_MAGIC:
        return BATCH_CUT_OFF
    h.base_offset = <int64_t>be64_load(p)
    h.batch_length = <int32_t>be32_load(p + AT_BATCH_LENGTH)
    h.leader_epoch = <int32_t>be32_load(p + AT_LEADER_EPOCH)
    h.magic = <int>p[AT_MAGIC]
    if h.magic != 2:
        return BATCH_BAD_MAGIC
    if h.batch_length < BATCH_OVERHEAD - LOG_OVERHEAD or batch_size(h) > INT32_MAX:
        return BATCH_BAD_LENGTH
    if left < batch_size(h):
        return BATCH_CUT_OFF
    h.crc = be32_load(p + AT_CRC)
    h.attributes = <int16_t>be16_load(p + AT_ATTRIBUTES)
    h.last_offset_delta = <int32_t>be32_load(p + AT_LAST_OFFSET_DELTA)
    h.base_timestamp = <int64_t>be64_load(p + AT_BASE_TIMESTAMP)
    h.max_timestamp = <int64_t>be64_load(p + AT_MAX_TIMESTAMP)
    h.producer_id = <int64_t>be64_load(p + AT_PRODUCER_ID)
    h.producer_epoch = <int16_t>be16_load(p + AT_PRODUCER_EPOCH)
    h.base_sequence = <int32_t>be32_load(p + AT_BASE_SEQUENCE)
    h.record_count = <int32_t>be32_load(p + AT_RECORD_COUNT)
    return RECORDS_OK

cdef inline void batch_stamp(uint8_t* p, int64_t base_offset, int32_t leader_epoch) noexcept nogil:
    """Writes the fields that the leader assigns; the CRC covers neither of them."""
    be64_store(p + AT_BASE_OFFSET, <uint64_t>base_offset)
    be32_store(p + AT_LEADER_EPOCH, <uint32_t>leader_epoch)

cdef inline int headers_check(Cursor* c, int32_t count) noexcept nogil:
    """Checks `count` record headers and steps over them. Each takes at least two bytes, so the
    number of bytes left limits the loop."""
    cdef int32_t i, size
    if count < 0 or count > cursor_left(c) // 2:
        return RECORD_BAD_HEADERS
    for i in range(count):
        size = cursor_varint(c)
        if c.bad or cursor_take(c, size) == NULL:
            return RECORD_BAD_HEADERS
        size = cursor_varint(c)
        if size < -1 or c.bad:
            return RECORD_BAD_HEADERS
        if size > 0 and cursor_take(c, size) == NULL:
            return RECORD_BAD_HEADERS
    return RECORDS_OK

cdef inline uint32_t short_uvarint(const uint8_t** at, bint* too_long) noexcept nogil:
    """Reads a varint of at most three bytes, which the caller knows to be readable; a longer one
    sets too_long."""
    cdef const uint8_t* p = at[0]
    cdef uint32_t v = p[0]
    if v < 0x80:
        at[0] = p + 1
        return v
    v = (v & 0x7F) | <uint32_t>p[1] << 7
    if v < 0x4000:
        at[0] = p + 2
        return v
    v = (v & 0x3FFF) | <uint32_t>p[2] << 14
    if v < 0x200000:
        at[0] = p + 3
        return v
    too_long[0] = True
    return 0

cdef inline bint record_short(Cursor* c, RecordView* out) noexcept nogil:
    """Reads the record at the cursor and steps over it if it is a usual one: every varint has at
    most three bytes, it has no headers, and it is not among the last bytes. Otherwise returns False
    and changes nothing: record_next then finds the error, if there is one. Two checks of the bounds
    instead of one for each byte need a third of the instructions."""
    cdef const uint8_t* p = c.p
    cdef const uint8_t* end
    cdef bint bad = False
    cdef uint32_t size, time_delta, offset_delta, key, value
    if c.end - p < 32:                      # five varints and the attributes are at most 16
        return False
    size = short_uvarint(&p, &bad)
    end = p + (size >> 1)
    p += 1
    time_delta = short_uvarint(&p, &bad)
    offset_delta = short_uvarint(&p, &bad)
    key = short_uvarint(&p, &bad)
    if bad or size & 1 or size >> 1 > c.end - p:
        return False
    out.key = NULL
    out.key_size = -1
    if key != 1:
        out.key = p
        out.key_size = <int32_t>(key >> 1)
        if key & 1 or out.key_size > c.end - p:
            return False
        p += out.key_size
    if c.end - p < 4:
        return False
    value = short_uvarint(&p, &bad)
    out.value = NULL
    out.value_size = -1
    if value != 1:
        out.value = p
        out.value_size = <int32_t>(value >> 1)
        if bad or value & 1 or out.value_size >= c.end - p:
            return False
        p += out.value_size
    if p[0] != 0 or p + 1 != end:           # a header count of none, at the record's very end
        return False
    out.timestamp_delta = unzigzag(time_delta)
    out.offset_delta = <int32_t>unzigzag(offset_delta)
    out.headers = p + 1
    out.headers_size = out.header_count = 0
    c.p = end
    return True

cdef inline int record_next(Cursor* c, RecordView* out) noexcept nogil:
    """Reads the record at the cursor and steps over it. Returns a RecordsStatus. After 0 every
    pointer in `out` is valid for its size and the headers are checked; after an error the cursor
    must not be used any more."""
    cdef int32_t size
    cdef const uint8_t* at
    cdef Cursor r
    cdef int status
    if record_short(c, out):
        return RECORDS_OK
    size = cursor_varint(c)
    if c.bad:
        return RECORD_BAD_SIZE
    at = cursor_take(c, size)
    if at == NULL:
        return RECORD_BAD_SIZE
    r = cursor_of(at, size)
    cursor_i8(&r)  # the attributes of a record mean nothing yet; Kafka ignores them too
    out.timestamp_delta = cursor_varlong(&r)
    out.offset_delta = cursor_varint(&r)
    out.key_size = cursor_varint(&r)
    if r.bad:
        return RECORD_BAD_FIELD
    out.key = NULL
    if out.key_size >= 0:
        out.key = cursor_take(&r, out.key_size)
    if r.bad or out.key_size < -1:
        return RECORD_BAD_KEY_SIZE
    out.value_size = cursor_varint(&r)
    out.value = NULL
    if out.value_size >= 0:
        out.value = cursor_take(&r, out.value_size)
    if r.bad or out.value_size < -1:
        return RECORD_BAD_VALUE_SIZE
    out.header_count = cursor_varint(&r)
    if r.bad:
        return RECORD_BAD_HEADERS
    out.headers = r.p
    if out.header_count != 0:
        status = headers_check(&r, out.header_count)
        if status != RECORDS_OK:
            return status
    out.headers_size = <int32_t>(r.p - out.headers)
    return RECORDS_OK if r.p == r.end else RECORD_LEFT_OVER

cdef int batch_crc_check(const uint8_t* p, const BatchHeader* h) noexcept nogil
cdef void batch_set_append_time(uint8_t* p, const BatchHeader* h, int64_t now_ms) noexcept nogil
cdef int batch_rules(const BatchHeader* h, int flags) noexcept nogil
cdef int records_check(
    const uint8_t* body, int64_t size, const BatchHeader* h, int flags, RecordsSummary* out,
) noexcept nogil

cdef object corrupt(int status, int64_t position)

cdef class Record:
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp
    cdef readonly bytes key
    cdef readonly bytes value
    cdef readonly tuple headers

cdef Record record_of(
    int64_t offset, int64_t timestamp, const uint8_t* key, int64_t key_size,
    const uint8_t* value, int64_t value_size, tuple headers,
)
