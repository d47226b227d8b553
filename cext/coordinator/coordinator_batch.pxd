"""Writes the record batches of native coordinators into a Buffer: begin, one record after another,
end.

Format 2, uncompressed, records without headers and with the same timestamp; the log sets offset and
leader epoch (shared/protocol, record batches).
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from barnabas.cext.codec.buffer cimport Buffer, buffer_i8, buffer_reserve, buffer_uvarint
from barnabas.cext.codec.crc cimport crc32c
from barnabas.cext.codec.endian cimport be16_store, be32_store, be64_store
from barnabas.cext.codec.error_codes cimport ERROR_CORRUPT_MESSAGE
from barnabas.cext.codec.varint cimport varint_size, zigzag
from barnabas.cext.log.log cimport TRUSTED, Appended, log_append_verified
from barnabas.cext.partition.partitions cimport Partition, partition_appended, Table
from barnabas.cext.record.records cimport (
    AT_ATTRIBUTES, AT_BASE_SEQUENCE, AT_BASE_TIMESTAMP, AT_BATCH_LENGTH, AT_CRC,
    AT_LAST_OFFSET_DELTA, AT_MAGIC, AT_MAX_TIMESTAMP, AT_PRODUCER_EPOCH, AT_PRODUCER_ID,
    AT_RECORD_COUNT, BATCH_OVERHEAD, batch_header, BatchHeader, LOG_OVERHEAD, RECORDS_OK,
)

cdef inline void own_batch_begin(Buffer* b) noexcept nogil:
    b.size = 0
    buffer_reserve(b, BATCH_OVERHEAD)

cdef inline void own_record_begin(Buffer* b, int32_t delta, int32_t key_bytes, int32_t value_bytes) noexcept nogil:
    """Begins a record; the caller writes its key next. `delta` is its offset in the batch."""
    cdef int64_t size = 1 + 1 + varint_size(delta) + varint_size(key_bytes) + key_bytes
    size += varint_size(value_bytes) + value_bytes + 1
    buffer_uvarint(b, zigzag(size))
    buffer_i8(b, 0)                     # attributes
    buffer_i8(b, 0)                     # timestamp delta
    buffer_uvarint(b, zigzag(delta))
    buffer_uvarint(b, zigzag(key_bytes))

cdef inline void own_record_value(Buffer* b, int32_t value_bytes) noexcept nogil:
    """Ends the key; the caller writes the value next."""
    buffer_uvarint(b, zigzag(value_bytes))

cdef inline void own_record_end(Buffer* b) noexcept nogil:
    buffer_i8(b, 0)                     # headers

cdef inline void own_batch_end(Buffer* b, int32_t count, int64_t now_ms, int16_t attributes=0, int64_t producer_id=-1, int16_t producer_epoch=-1) noexcept nogil:
    """Writes the header in front of the `count` records; the buffer must not have failed. A batch
    with a producer id has no sequence number, as in Kafka when a coordinator writes it."""
    cdef uint8_t* p = b.data
    memset(p, 0, BATCH_OVERHEAD)
    be32_store(p + AT_BATCH_LENGTH, <uint32_t>(b.size - LOG_OVERHEAD))
    p[AT_MAGIC] = 2
    be16_store(p + AT_ATTRIBUTES, <uint16_t>attributes)
    be32_store(p + AT_LAST_OFFSET_DELTA, <uint32_t>(count - 1))
    be64_store(p + AT_BASE_TIMESTAMP, <uint64_t>now_ms)
    be64_store(p + AT_MAX_TIMESTAMP, <uint64_t>now_ms)
    be64_store(p + AT_PRODUCER_ID, <uint64_t>producer_id)
    be16_store(p + AT_PRODUCER_EPOCH, <uint16_t>producer_epoch)
    be32_store(p + AT_BASE_SEQUENCE, 0xFFFFFFFFu)
    be32_store(p + AT_RECORD_COUNT, <uint32_t>count)
    be32_store(p + AT_CRC, crc32c(0, p + AT_ATTRIBUTES, b.size - AT_ATTRIBUTES))

cdef inline int own_batch_append(Table* table, Partition* p, Buffer* b, int32_t leader_epoch, int64_t* offset, int64_t verification=TRUSTED) noexcept nogil:
    """Appends the finished batch, inside an epoch, and sets the offset of its first record. Returns
    0 or Kafka's error code."""
    cdef BatchHeader header
    cdef Appended appended
    cdef int status
    if batch_header(b.data, b.size, &header) != RECORDS_OK:
        return ERROR_CORRUPT_MESSAGE
    status = log_append_verified(
        p.log, b.data, b.size, &header, leader_epoch, verification, &appended)
    if status == 0:
        offset[0] = appended.first_offset
        partition_appended(table, p, True)
    return status
