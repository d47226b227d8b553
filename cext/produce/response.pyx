"""Writes the bytes of a Produce response for one partition, versions 0 to 13.

Next on the data path: cext/produce/delayed_produce.pyx.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint64_t
from libc.string cimport strlen

from barnabas.cext.codec.buffer cimport (
    Buffer, buffer_bytes, buffer_i8, buffer_i16, buffer_i32, buffer_i64, buffer_uvarint,
)
from barnabas.cext.codec.fields cimport write_count


cdef void _write_message(Buffer* b, bint flexible, const char* message) noexcept nogil:
    cdef int64_t size = strlen(message) if message != NULL else -1
    if flexible:
        buffer_uvarint(b, <uint64_t>(size + 1))
    else:
        buffer_i16(b, <int16_t>size)
    if size > 0:
        buffer_bytes(b, message, size)


cdef int64_t produce_write(
    Buffer* b, const Walk* w, const Answer* a, const Verdict* verdict
) noexcept nogil:
    cdef int64_t error_at
    cdef int32_t i
    buffer_i32(b, w.index)
    error_at = b.size
    buffer_i16(b, a.error)
    buffer_i64(b, a.base_offset)
    if w.version >= 2:
        buffer_i64(b, a.append_time_ms)
    if w.version >= 5:
        buffer_i64(b, a.log_start)
    if w.version >= 8:
        write_count(b, w.flexible, verdict.rejected_count)
        for i in range(verdict.rejected_count):
            buffer_i32(b, verdict.rejected[i])
            _write_message(b, w.flexible, (
                b"The record has no key" if verdict.no_key
                else b"The record's timestamp is outside the range that the topic allows"))
            if w.flexible:
                buffer_i8(b, 0)
        _write_message(b, w.flexible, verdict.message if a.error else NULL)
    if w.flexible:
        if w.version >= 10 and a.leader_id >= 0:
            buffer_i8(b, 1)         # one tagged field:
            buffer_i8(b, 0)         # tag 0, current leader,
            buffer_i8(b, 9)         # of 9 bytes
            buffer_i32(b, a.leader_id)
            buffer_i32(b, a.leader_epoch)
        buffer_i8(b, 0)
    return error_at
