"""The batches of a segment's .log, checked as recovery checks them, for a process that does not own
the log and changes nothing.

A walk ends at the first bytes that recovery does not keep; `damage` says why, and `skip_to` goes on
behind them, so that a check can report all damage of a file. The size of the file is that at the
time of opening: later appends are not visible.

Memory: one buffer, as large as the largest batch, which lies within the file.
Next on the data path: broker/cli/check_partition.py.
"""
cimport cython
from collections import namedtuple

from libc.stdint cimport int64_t, uint8_t

from barnabas.cext.log.producers cimport Marker, batch_marker, sequence_after
from barnabas.cext.log.recover cimport (
    BatchReader, batch_is_sound, reader_free, reader_init, reader_next, recoverable_next,
)
from barnabas.cext.memory.sys cimport SystemCalls
from barnabas.cext.record.batch_at cimport BatchAt, SEGMENT_CORRUPT
from barnabas.cext.record.records cimport ATTR_CONTROL, BatchHeader

import os

WalkedBatch = namedtuple(
    "WalkedBatch",
    "position size_bytes base_offset last_offset max_timestamp magic attributes leader_epoch "
    "producer_id producer_epoch last_sequence record_count marker")
NO_MARKER, ABORT, COMMIT = -1, 0, 1


@cython.final
cdef class BatchWalk:
    """A walk over one .log file. `path` is opened for reading and not through a symbolic link.
    Raises OSError."""

    cdef readonly str path
    cdef readonly int64_t base_offset
    cdef readonly int64_t size_bytes
    cdef readonly int64_t position      # where the next batch begins
    cdef readonly int64_t end_offset    # no later batch may begin below it
    cdef BatchReader reader
    cdef SystemCalls system
    cdef int fd

    def __cinit__(self):
        self.fd = -1
        self.system = SystemCalls()

    def __init__(self, str path not None, int64_t base_offset):
        if self.fd >= 0:
            raise ValueError("this walk is open already: make a new BatchWalk")
        self.path = path
        self.base_offset = self.end_offset = base_offset
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self.size_bytes = os.fstat(self.fd).st_size
        reader_init(&self.reader, &self.system.table, self.fd, self.size_bytes)

    def __dealloc__(self):
        reader_free(&self.reader)
        if self.fd >= 0:
            self.system.table.close(&self.system.table, self.fd)

    def fileno(self) -> int:
        return self.fd

    def next_batches(self, int64_t count_max) -> list:
        """Returns the next WalkedBatches, at most `count_max`. Fewer mean that `position` is the
        file's end, or that no sound batch begins there. Raises OSError."""
        cdef BatchAt at
        cdef BatchHeader h
        cdef Marker marker
        cdef const uint8_t* bytes
        cdef int status = 1
        cdef int kind
        found = []
        while len(found) < count_max:
            with nogil:
                status = recoverable_next(
                    &self.reader, self.position, self.end_offset, self.base_offset, &at, &bytes, &h)
            if status <= 0:
                break
            self.position += at.size_bytes
            self.end_offset = at.last_offset + 1
            kind = NO_MARKER
            if at.magic == 2 and h.attributes & ATTR_CONTROL and batch_marker(
                    bytes, at.size_bytes, &marker) == 1:
                kind = marker.commit
            if at.magic == 2:
                found.append(WalkedBatch(
                    at.position, at.size_bytes, at.base_offset, at.last_offset, at.max_timestamp, 2,
                    at.attributes, at.leader_epoch, h.producer_id, h.producer_epoch,
                    sequence_after(h.base_sequence, h.last_offset_delta)
                    if h.base_sequence >= 0 else -1, h.record_count, kind))
            else:
                found.append(WalkedBatch(
                    at.position, at.size_bytes, at.base_offset, at.last_offset, at.max_timestamp,
                    at.magic, at.attributes, -1, -1, -1, -1, 1, NO_MARKER))
        if status < 0 and status != SEGMENT_CORRUPT:
            raise OSError(-status, os.strerror(-status), self.path)
        return found

    def damage(self) -> tuple:
        """Returns (why no sound batch begins at `position`, the position behind the damaged batch);
        the position is -1 when the damaged bytes have no believable length. Raises OSError."""
        cdef BatchAt at
        cdef BatchHeader h
        cdef const uint8_t* bytes
        cdef int status
        cdef bint sound
        with nogil:
            status = reader_next(&self.reader, self.position, &at, &bytes)
            sound = status > 0 and batch_is_sound(bytes, &at, &h)
        if status < 0 and status != SEGMENT_CORRUPT:
            raise OSError(-status, os.strerror(-status), self.path)
        if status <= 0:
            return f"the {self.size_bytes - self.position} bytes from here on begin with no batch", -1
        behind = self.position + at.size_bytes
        what = f"the batch of {at.size_bytes} bytes with offset {at.base_offset}"
        if not sound:
            return f"{what} has a wrong CRC or header", behind
        if at.base_offset < self.end_offset:
            return f"{what} is behind a batch that ends at offset {self.end_offset - 1}", behind
        return f"{what} does not fit a segment that begins at {self.base_offset}", behind

    def skip_to(self, int64_t position) -> None:
        """Continues at a position behind the present one."""
        if not self.position < position <= self.size_bytes:
            raise ValueError(f"{position} is not between {self.position} and {self.size_bytes}")
        self.position = position

    def sound_bytes_at(self, int64_t position, int64_t size_bytes) -> bytes:
        """Returns the bytes of a batch that the walk has returned. Raises OSError."""
        return os.pread(self.fd, size_bytes, position)
