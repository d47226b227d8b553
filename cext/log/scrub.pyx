"""The scrub: reads sealed segments again at intervals, to find damage while a good copy still
exists and before a consumer needs the bytes.

A turn checks some batches of one segment like a first read does (crc_check.pyx), through its own
descriptor without read-ahead. It drops those pages from the page cache that were not in it before,
so that records that consumers read stay there. Pages in the page cache are checked there, and not
on the disk. Bad bytes are recorded (damage.pyx); from then on their fetches are answered
CORRUPT_MESSAGE, also in a segment that this process wrote. broker/storage/scrub.py selects the
segment, the time and the rate.
"""
from libc.stdint cimport int64_t

from barnabas.cext.log.crc_check cimport verify_batches
from barnabas.cext.log.log cimport Log, SegmentList, segment_list_floor
from barnabas.cext.log.log_handle cimport LogHandle
from barnabas.cext.log.recover cimport BatchReader, reader_free, reader_init
from barnabas.cext.log.segment cimport Segment, segment_open_log, segment_release, segment_retain
from barnabas.cext.memory.atomics cimport atomic_load_i32, atomic_load_i64, atomic_store_i64
from barnabas.cext.memory.epoch cimport epoch_enter, epoch_leave
from barnabas.cext.memory.sys cimport System

cdef extern from "filemap.h" nogil:
    void file_read_without_ahead(int fd)
    void file_drop_pages(int fd, int64_t position, int64_t size_bytes)


cdef Segment* _sealed(Log* log, int64_t base_offset) noexcept nogil:
    """Returns the sealed segment, retained; NULL when there is no such segment, or it is the active
    one."""
    cdef SegmentList* segments
    cdef Segment* found = NULL
    cdef int64_t i
    cdef int slot = epoch_enter(log.epochs)
    segments = log.segments
    i = segment_list_floor(segments, base_offset)
    if i >= 0 and segments.items[i].base_offset == base_offset and not atomic_load_i32(
        &segments.items[i].active
    ):
        found = segments.items[i]
        segment_retain(found)
    epoch_leave(log.epochs, slot)
    return found


cdef int64_t _turn(
    System* system, Segment* segment, int64_t position, int64_t bytes_max
) noexcept nogil:
    """Checks about `bytes_max` bytes from `position` on. Returns the position where it ended, or
    -errno."""
    cdef BatchReader reader
    cdef int64_t begun = position
    cdef int64_t size_bytes = atomic_load_i64(&segment.size_bytes)
    cdef int64_t end = min(size_bytes, position + bytes_max)
    cdef int64_t corrupt_to
    cdef bint cached
    cdef int status
    cdef int fd = segment_open_log(segment, system)
    if fd < 0:
        return fd
    file_read_without_ahead(fd)
    cached = position >= end or system.is_cached(system, fd, position, end - position) != 0
    reader_init(&reader, system, fd, size_bytes)
    status = verify_batches(&reader, segment, &position, end)
    if not cached:
        file_drop_pages(fd, begun, max(position, reader.buffer_at + reader.filled) - begun)
    reader_free(&reader)
    system.close(system, fd)
    corrupt_to = segment.corrupt_to if atomic_load_i64(&segment.corrupt_from) >= 0 else 0
    if corrupt_to > atomic_load_i64(&segment.foreign_bytes):
        # The bytes that this process wrote are no longer trusted: they are checked before a read.
        atomic_store_i64(&segment.foreign_bytes, size_bytes)
    return status if status < 0 else position


def scrub_segment(LogHandle handle not None, int64_t base_offset, int64_t position, int64_t bytes_max):
    """Checks the batches in about `bytes_max` bytes of a sealed segment from `position` on, without
    the GIL.

    Returns (position of the next turn, whether the segment is finished). A segment that was deleted
    or cannot be read counts as finished; reads of it return an error."""
    cdef Segment* segment
    cdef int64_t reached = -1, size_bytes = 0
    if handle.log == NULL:
        return position, True
    # This thread still has the GIL, and LogHandle.close() takes the GIL first, so the log is open
    # here; afterwards the reference keeps the segment.
    segment = _sealed(handle.log, base_offset)
    if segment != NULL:
        with nogil:
            size_bytes = atomic_load_i64(&segment.size_bytes)
            reached = _turn(&handle.system.table, segment, position, bytes_max)
            segment_release(segment)
    return max(reached, position), reached < 0 or reached >= size_bytes
