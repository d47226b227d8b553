"""The files of a cleaned segment while compaction writes them; see compact.pyx.

Compaction writes the .log in pieces; the indexes are small and stay in memory until the end. The
rules for index entries are the same as at an append: see segment_note_batch.
"""
from libc.stdint cimport int32_t, int64_t

from barnabas.cext.codec.buffer cimport Buffer, buffer_i32, buffer_i64
from barnabas.cext.memory.sys cimport System, write_whole

cdef struct Output:             # the .cleaned files
    int fd
    Buffer pending              # bytes of the .log that are not written yet
    Buffer offsets              # content of the .index
    Buffer times                # content of the .timeindex
    Buffer txns                 # content of the .txnindex
    int64_t size_bytes
    int64_t base_offset
    int64_t max_timestamp
    int64_t max_timestamp_offset
    int64_t noted_timestamp     # timestamp of the last time entry
    int64_t unindexed_bytes

cdef inline void output_note_time(Output* out) noexcept nogil:
    if out.max_timestamp > out.noted_timestamp:
        buffer_i64(&out.times, out.max_timestamp)
        buffer_i32(&out.times, <int32_t>(out.max_timestamp_offset - out.base_offset))
        out.noted_timestamp = out.max_timestamp

cdef inline void output_note_batch(
    Output* out, int64_t size_bytes, int64_t last_offset, int64_t max_timestamp,
    int64_t index_interval_bytes
) noexcept nogil:
    if max_timestamp > out.max_timestamp:
        out.max_timestamp = max_timestamp
        out.max_timestamp_offset = last_offset
    if out.unindexed_bytes > index_interval_bytes:
        buffer_i32(&out.offsets, <int32_t>(last_offset - out.base_offset))
        buffer_i32(&out.offsets, <int32_t>out.size_bytes)
        output_note_time(out)
        out.unindexed_bytes = 0
    out.unindexed_bytes += size_bytes
    out.size_bytes += size_bytes

cdef inline int output_write_pending(Output* out, System* system) noexcept nogil:
    cdef int status = write_whole(
        system, out.fd, out.pending.data, out.pending.size, out.size_bytes - out.pending.size)
    out.pending.size = 0
    return status
