"""The rules for the content of a produced batch: structure, keys, timestamps; and the leader's
corrections.

The leader accepts a batch whole or not at all. The answer names by its index each record without a
key in a compacted topic, and each record whose timestamp the topic does not allow; it names no
damaged record. A timestamp of -1 means none and is always allowed.
Next on the data path: cext/record/records.pyx.
"""
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint16_t, uint64_t, uint8_t

from barnabas.cext.codec.crc cimport crc32c
from barnabas.cext.codec.cursor cimport Cursor, cursor_of
from barnabas.cext.codec.endian cimport be16_store, be32_store, be64_store
from barnabas.cext.memory.counters cimport (
    COUNT_REJECTED_CORRUPT, COUNT_REJECTED_INVALID, COUNT_REJECTED_NO_KEY, COUNT_REJECTED_SEQUENCE,
    COUNT_REJECTED_TIMESTAMP, COUNT_REJECTED_TOO_LARGE,
)
from barnabas.cext.record.records cimport (
    AT_ATTRIBUTES, AT_CRC, AT_MAX_TIMESTAMP, ATTR_APPEND_TIME, ATTR_CODEC_MASK, ATTR_TRANSACTIONAL,
    BATCH_BAD_CRC, BATCH_BAD_LENGTH, BATCH_CUT_OFF, CHECK_STRICT, KIND_CORRUPT, RECORD_WITHOUT_KEY,
    RECORDS_OK, REQUIRE_KEYS, RecordsSummary, RecordView, batch_crc_check, batch_header,
    batch_rules, batch_set_append_time, batch_size, record_next, records_check, records_kind,
)

cdef enum:
    ERROR_CORRUPT_MESSAGE = 2
    ERROR_MESSAGE_TOO_LARGE = 10
    ERROR_INVALID_TXN_STATE = 48
    ERROR_UNSUPPORTED_COMPRESSION_TYPE = 76
    VERSION_ZSTD = 7                # of Produce
    CODEC_ZSTD = 4
    RECORD_OVERHEAD_V0 = 14


cdef void verdict_of(Verdict* out, int16_t error, int32_t reason, const char* message) noexcept nogil:
    out.error = error
    out.reason = reason
    out.message = message
    out.max_timestamp = -1
    out.rejected_count = 0
    out.no_key = False


cdef int16_t batch_frame_error(
    const uint8_t* records, int64_t size, int16_t version, BatchHeader* h, const char** message,
) noexcept nogil:
    """Refuses a cut-off batch with an error that clients do not retry. It takes an impossible frame
    for damage on the way, for which a retry helps."""
    cdef int status
    cdef int codec
    message[0] = NULL
    if size == 0:
        return ERROR_INVALID_RECORD
    status = batch_header(records, size, h)
    if status == BATCH_CUT_OFF:
        return ERROR_INVALID_RECORD
    if status == BATCH_BAD_LENGTH:
        if batch_size(h) < RECORD_OVERHEAD_V0:
            message[0] = b"The batch is smaller than any message can be"
        return ERROR_CORRUPT_MESSAGE
    if status:
        if h.magic == 0 or h.magic == 1:
            return ERROR_INVALID_RECORD
        message[0] = b"The batch has a magic byte that is not known"
        return ERROR_CORRUPT_MESSAGE
    if batch_size(h) != size:
        return ERROR_INVALID_RECORD
    codec = h.attributes & ATTR_CODEC_MASK
    if codec > CODEC_ZSTD or (codec == CODEC_ZSTD and version < VERSION_ZSTD):
        return ERROR_UNSUPPORTED_COMPRESSION_TYPE
    return 0


cdef bint batch_head_check(
    const uint8_t* batch, const BatchHeader* h, int64_t bytes_max, Verdict* out,
) noexcept nogil:
    verdict_of(out, 0, 0, NULL)
    if h.base_offset != 0:
        verdict_of(out, ERROR_INVALID_RECORD, COUNT_REJECTED_INVALID, NULL)
    elif batch_size(h) > bytes_max:
        verdict_of(out, ERROR_MESSAGE_TOO_LARGE, COUNT_REJECTED_TOO_LARGE, NULL)
    elif batch_crc_check(batch, h) == BATCH_BAD_CRC:
        verdict_of(out, ERROR_CORRUPT_MESSAGE, COUNT_REJECTED_CORRUPT, NULL)
    elif batch_rules(h, CHECK_STRICT):
        verdict_of(out, ERROR_INVALID_RECORD, COUNT_REJECTED_INVALID, NULL)
    elif h.attributes & ATTR_TRANSACTIONAL and h.producer_id < 0:
        verdict_of(out, ERROR_INVALID_TXN_STATE, COUNT_REJECTED_SEQUENCE, NULL)
    return out.error == 0


cdef void _name_rejected(
    const uint8_t* body, int64_t size, const BatchHeader* h, const BodyRules* rules, Verdict* out,
) noexcept nogil:
    """Reads the records, which are whole, once more to find the indexes of those that break a rule."""
    cdef Cursor c = cursor_of(body, size)
    cdef RecordView record
    cdef int32_t i
    cdef bint wrong
    for i in range(h.record_count):
        if out.rejected_count == REJECTED_RECORDS_MAX or record_next(&c, &record) != RECORDS_OK:
            return
        if out.no_key:
            wrong = record.key_size < 0
        else:
            wrong = timestamp_refused(
                <int64_t>(<uint64_t>h.base_timestamp + <uint64_t>record.timestamp_delta), rules)
        if wrong:
            out.rejected[out.rejected_count] = i
            out.rejected_count += 1


cdef void body_check(
    const uint8_t* body, int64_t size, const BatchHeader* h, const BodyRules* rules, Verdict* out,
) noexcept nogil:
    cdef RecordsSummary summary
    cdef int status = records_check(
        body, size, h, CHECK_STRICT | (REQUIRE_KEYS if rules.requires_keys else 0), &summary)
    verdict_of(out, 0, 0, NULL)
    if status == RECORD_WITHOUT_KEY:
        verdict_of(out, ERROR_INVALID_RECORD, COUNT_REJECTED_NO_KEY,
                   b"One or more records without a key were sent to a compacted topic")
        out.no_key = True
        _name_rejected(body, size, h, rules, out)
        return
    if status != RECORDS_OK:
        if records_kind(status) == KIND_CORRUPT:
            verdict_of(out, ERROR_CORRUPT_MESSAGE, COUNT_REJECTED_CORRUPT, NULL)
        else:
            verdict_of(out, ERROR_INVALID_RECORD, COUNT_REJECTED_INVALID, NULL)
        return
    if rules.append_time:
        return
    out.max_timestamp = summary.max_timestamp
    # The largest timestamp decides about the future; only a limit for the past needs a walk.
    if rules.timestamp_before_max_ms == INT64_MAX and not timestamp_refused(summary.max_timestamp, rules):
        return
    _name_rejected(body, size, h, rules, out)
    if out.rejected_count:
        out.error = ERROR_INVALID_TIMESTAMP
        out.reason = COUNT_REJECTED_TIMESTAMP
        out.message = b"One or more records have a timestamp outside the range that the topic allows"


cdef void batch_correct(
    uint8_t* batch, BatchHeader* h, const BodyRules* rules, int64_t max_timestamp,
) noexcept nogil:
    cdef int64_t size = batch_size(h)
    if rules.append_time:
        batch_set_append_time(batch, h, rules.now_ms)
    elif h.max_timestamp != max_timestamp or h.attributes & ATTR_APPEND_TIME:
        be16_store(batch + AT_ATTRIBUTES, <uint16_t>(h.attributes & ~ATTR_APPEND_TIME))
        be64_store(batch + AT_MAX_TIMESTAMP, <uint64_t>max_timestamp)
        be32_store(batch + AT_CRC, crc32c(0, batch + AT_ATTRIBUTES, size - AT_ATTRIBUTES))
    else:
        return
    batch_header(batch, size, h)
