"""Reads the header of a batch or message in the middle of a file, from its first bytes alone.

A walk over a segment goes from header to header; it trusts a length only within the file's size.
Next on the data path: cext/log/segment.pyx.
"""
from barnabas.cext.codec.endian cimport be16_load, be32_load, be64_load
from barnabas.cext.record.messageset cimport MESSAGE_V0_SIZE_MIN, MESSAGE_V1_SIZE_MIN
from barnabas.cext.record.records cimport (
    AT_ATTRIBUTES, AT_BATCH_LENGTH, AT_LAST_OFFSET_DELTA, AT_LEADER_EPOCH, AT_MAGIC,
    AT_MAX_TIMESTAMP, BATCH_OVERHEAD, LOG_OVERHEAD,
)


cdef int batch_header_at(
    const uint8_t* p, int64_t left, int64_t file_left, BatchAt* found
) noexcept nogil:
    """Reads the header at p into `found`. `left`: the bytes at p that may be read; `file_left`: the
    bytes that the file has from there on. Returns 1 when the header can be right and its batch lies
    within `file_left`; 0 when this needs more bytes than `left`; SEGMENT_CORRUPT."""
    cdef int64_t length
    cdef int64_t least
    if left <= AT_MAGIC:
        return SEGMENT_CORRUPT if file_left <= AT_MAGIC else 0
    length = <int32_t>be32_load(p + AT_BATCH_LENGTH)
    found.magic = p[AT_MAGIC]
    if found.magic == 2:
        least = BATCH_OVERHEAD - LOG_OVERHEAD
    else:
        least = MESSAGE_V1_SIZE_MIN if found.magic == 1 else MESSAGE_V0_SIZE_MIN
    if found.magic > 2 or length < least or length > file_left - LOG_OVERHEAD:
        return SEGMENT_CORRUPT
    if left < LOG_OVERHEAD + least:
        return 0
    found.size_bytes = LOG_OVERHEAD + length
    found.base_offset = <int64_t>be64_load(p)
    found.last_offset = found.base_offset
    found.leader_epoch = -1
    found.max_timestamp = -1
    found.attributes = p[AT_MAGIC + 1]
    if found.magic == 1:
        found.max_timestamp = <int64_t>be64_load(p + AT_MAGIC + 2)
    elif found.magic == 2:
        found.last_offset += <int32_t>be32_load(p + AT_LAST_OFFSET_DELTA)
        found.leader_epoch = <int32_t>be32_load(p + AT_LEADER_EPOCH)
        found.max_timestamp = <int64_t>be64_load(p + AT_MAX_TIMESTAMP)
        found.attributes = be16_load(p + AT_ATTRIBUTES)
    return 1 if found.last_offset >= found.base_offset else SEGMENT_CORRUPT
