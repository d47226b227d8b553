"""CRC checks: bytes that this process did not append are checked before they are first served.

A segment that recovery did not check has `foreign_bytes`, which an earlier process wrote.
`verified_bytes` is the mark below which their batches had true frames, true CRCs and offsets that
only grow. A fetch beyond the mark waits (cold_reads.pyx) while a thread moves the mark; appended
bytes cost nothing. Each segment is checked once for all readers.

While the length of a bad batch leads to the next batch, only the bad batch counts as damage: bad
bytes are kept as one range, [corrupt_from, corrupt_to), which each find extends. No byte of it is
sent, and each find is reported once (damage.pyx). Where the lengths are lost, the range reaches to
the end of the foreign bytes. The mark only grows, except when two threads check the same bytes: it
may then step back, which costs a second check.

Limit: TURN_BYTES a turn, so that one old segment does not delay other readers.
Next: cold_reads.pyx.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memset

from barnabas.cext.log.damage cimport damage_note
from barnabas.cext.log.recover cimport (
    BatchReader, batch_is_sound, reader_free, reader_init, reader_next,
)
from barnabas.cext.log.segment cimport segment_fd, segment_release
from barnabas.cext.memory.atomics cimport (
    atomic_load_i32, atomic_load_i64, atomic_store_i32, atomic_store_i64,
)
from barnabas.cext.memory.mutex cimport pthread_mutex_lock, pthread_mutex_unlock
from barnabas.cext.record.batch_at cimport BatchAt, SEGMENT_CORRUPT
from barnabas.cext.record.records cimport BatchHeader

cdef enum:
    TURN_BYTES = 16777216

cdef enum:                      # Kafka error codes
    CORRUPT_MESSAGE = 2
    STORAGE_ERROR = 56


cdef int64_t slice_end(const LogSlice* slice) noexcept nogil:
    return slice.position + slice.size_bytes


cdef inline int64_t _foreign_end(Segment* segment, int64_t until) noexcept nogil:
    return min(until, atomic_load_i64(&segment.foreign_bytes))


cdef bint slice_is_verified(const LogSlice* slice) noexcept nogil:
    cdef Segment* segment = slice.segment
    if slice.position >= atomic_load_i64(&segment.foreign_bytes):
        return True
    return (atomic_load_i64(&segment.verified_bytes) >= _foreign_end(segment, slice_end(slice))
            and atomic_load_i64(&segment.corrupt_from) < 0)


cdef int verify_batches(
    BatchReader* reader, Segment* segment, int64_t* position, int64_t end
) noexcept nogil:
    cdef BatchAt at
    cdef BatchHeader h
    cdef const uint8_t* bytes
    cdef int64_t last_offset = segment.base_offset - 1
    cdef int status
    while position[0] < end:
        status = reader_next(reader, position[0], &at, &bytes)
        if status == SEGMENT_CORRUPT:
            damage_note(segment, position[0], reader.end)
            position[0] = reader.end
            break
        if status <= 0:
            return status
        if not batch_is_sound(bytes, &at, &h) or at.base_offset <= last_offset:
            damage_note(segment, position[0], position[0] + at.size_bytes)
        else:
            last_offset = at.last_offset
        position[0] += at.size_bytes
    return 0


cdef int slice_verify(Segment* segment, System* system, int64_t until) noexcept nogil:
    cdef BatchReader reader
    cdef int64_t position = atomic_load_i64(&segment.verified_bytes)
    cdef int64_t end = _foreign_end(segment, until)
    cdef int fd = segment_fd(segment, system)
    cdef int status
    atomic_store_i32(&segment.verify_failed, fd < 0)
    if fd < 0:
        return fd
    reader_init(&reader, system, fd, atomic_load_i64(&segment.foreign_bytes))
    status = verify_batches(&reader, segment, &position, min(end, position + TURN_BYTES))
    reader_free(&reader)
    # After a truncation meanwhile, fewer bytes are foreign: readers do not need the rest of them.
    atomic_store_i64(&segment.verified_bytes, position)
    if status < 0:
        atomic_store_i32(&segment.verify_failed, 1)
        return status
    return position >= end


cdef void _empty(LogSlice* slice) noexcept nogil:
    segment_release(slice.segment)
    memset(slice, 0, sizeof(LogSlice))


cdef int16_t slice_settle(LogSlice* slice) noexcept nogil:
    cdef Segment* segment = slice.segment
    cdef int64_t bad_from, bad_to
    cdef int32_t failed
    if slice.size_bytes == 0 or slice_is_verified(slice):
        return 0
    if atomic_load_i64(&segment.verified_bytes) < _foreign_end(segment, slice_end(slice)):
        failed = atomic_load_i32(&segment.verify_failed)
        _empty(slice)
        return STORAGE_ERROR if failed else 0
    pthread_mutex_lock(&segment.pool.lock)
    bad_from = segment.corrupt_from
    bad_to = segment.corrupt_to
    pthread_mutex_unlock(&segment.pool.lock)
    if slice.position >= bad_to or slice_end(slice) <= bad_from:
        return 0
    if slice.position < bad_from:
        slice.size_bytes = bad_from - slice.position
        return 0
    _empty(slice)
    return CORRUPT_MESSAGE
