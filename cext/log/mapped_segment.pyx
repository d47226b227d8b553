"""A segment's files, read by a process that does not own them.

The length of the log is that at the time of opening; later appends are not visible. Records are
read in pieces into the builder's buffer (pread): the copy stays in the core's own cache for the
checksum and the columns, which costs less than the page faults of a map. A piece ends at the end of
a batch; a batch that is larger than a piece is read whole. When another process truncates the file,
a read returns too few bytes: it raises CutShort with the file's name and returns no part of the
piece, and no later read returns any bytes either.

Seeking reads a few bytes far apart, in maps. When a file is truncated below its map, the next
access raises SIGBUS: every access runs under a guard (mapguard.h) that maps zeros there, and the
guard's count shows afterwards that this happened. The log is not read again then, as above.

An index entry is used under the broker's conditions: an offset's entry when the batch at its
position begins at or before that offset, a time's entry when its batch has that time. Otherwise the
search begins at the segment's start, and finds the same result more slowly. The indexes are mapped
for one search only, because the broker may truncate or delete them at any time.

Only the map itself lives longer than a call: a segment that is deleted, or swapped by compaction,
keeps its bytes for the processes that have it open.
Next on the data path: broker/scan/log_directory.py.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EINTR, ENOMEM, errno
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memset

from barnabas.cext.codec.buffer cimport Buffer, buffer_reserve
from barnabas.cext.codec.endian cimport be32_load
from barnabas.cext.log.index cimport (
    OffsetEntry, TimeEntry, offset_index_entry, offset_index_floor, offset_index_used,
    time_index_entry, time_index_floor, time_index_used,
)
from barnabas.cext.record.batch_at cimport BatchAt, batch_header_at
from barnabas.cext.record.column_table cimport table_bytes
from barnabas.cext.record.columns cimport WALK_CUT_OFF, ColumnsBuilder, columns_walk, walk_error
from barnabas.cext.record.records cimport AT_BATCH_LENGTH, LOG_OVERHEAD, RECORDS_OK

import os

cdef extern from "filemap.h" nogil:
    int64_t file_size(int fd)
    uint8_t* map_file(int fd, int64_t size, int writable)
    void unmap_file(uint8_t* p, int64_t size)
    void file_read_ahead(int fd)

cdef extern from "<unistd.h>" nogil:
    int64_t pread(int fd, void* into, size_t size, int64_t at)
    int close(int fd)

cdef extern from "mapguard.h" nogil:
    void mapguard_install()
    void mapguard_enter(const void* a, int64_t a_bytes, const void* b, int64_t b_bytes)
    void mapguard_leave()
    int64_t mapguard_own_count()        # how often this thread met a lost page

cdef enum:
    PIECE_BYTES = 256 * 1024            # bytes of one read: they fit into a core's L2 cache
    PIECE_BYTES_MIN = 64 * 1024
    READ_SHORT = -1


class CutShort(OSError):
    """The file became shorter while it was read."""


cdef uint8_t* _map_of(object path, int fd, int64_t* size_bytes) except? NULL:
    """Maps an open file in its current length; returns NULL for an empty file. Raises OSError."""
    cdef uint8_t* map = NULL
    size_bytes[0] = file_size(fd)
    if size_bytes[0] > 0:
        map = map_file(fd, size_bytes[0], 0)
        if map == NULL:
            raise OSError(f"{path}: cannot map the file (limit: vm.max_map_count)")
    return map


cdef uint8_t* _mapped(object path, int64_t* size_bytes) except? NULL:
    cdef int fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _map_of(path, fd, size_bytes)
    finally:
        os.close(fd)


@cython.final
cdef class MappedSegment:
    """One segment, opened for reading. `path`: its `.log`; the indexes are in the same directory.
    Raises OSError."""

    cdef readonly str path
    cdef readonly int64_t base_offset
    cdef readonly int64_t size_bytes
    cdef readonly object inode  # differs from that of a file with which compaction replaced it
    cdef uint8_t* map
    cdef int fd
    cdef int users              # calls that are reading now
    cdef bint is_cut_short

    def __init__(self, str path not None, int64_t base_offset):
        if self.path is not None:
            raise ValueError("this segment is open already: make a new MappedSegment")
        self.path = path
        self.base_offset = base_offset
        mapguard_install()
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        file_read_ahead(self.fd)
        self.map = _map_of(path, self.fd, &self.size_bytes)
        self.inode = os.fstat(self.fd).st_ino

    def __cinit__(self):
        self.fd = -1

    cdef void _close(self) noexcept:
        if self.map != NULL:
            unmap_file(self.map, self.size_bytes)
        if self.fd >= 0:
            close(self.fd)
        self.map = NULL
        self.fd = -1
        self.size_bytes = 0

    def __dealloc__(self):
        self._close()

    def close(self) -> None:
        """Closes the file; while another thread is inside a call, the file is closed when the
        object is freed."""
        if not self.users:
            self._close()

    cdef object _cut_short(self):
        return CutShort(
            f"{self.path} became shorter while it was read: another process truncated it; "
            "open it again")

    cdef int _check(self, int64_t start, int64_t size) except -1:
        if self.is_cut_short:
            raise self._cut_short()
        if not (0 <= start <= self.size_bytes and 0 <= size <= self.size_bytes - start):
            raise ValueError(
                f"bytes {start} to {start + size} are outside the file, which has "
                f"{self.size_bytes} bytes")
        return 0

    cdef int _read(self, uint8_t* into, int64_t start, int64_t size) noexcept nogil:
        """Reads `size` bytes from `start` on. Returns 0, READ_SHORT, or a positive errno."""
        cdef int64_t got
        while size > 0:
            got = pread(self.fd, into, size, start)
            if got == 0:
                return READ_SHORT
            if got < 0:
                if errno == EINTR:
                    continue
                return errno
            into += got
            start += got
            size -= got
        return 0

    cdef int _read_error(self, int code) except -1:
        if code == READ_SHORT:
            self.is_cut_short = True
            raise self._cut_short()
        if code:
            raise OSError(code, os.strerror(code), self.path)
        return 0

    cdef int _fill(self, Buffer* piece, int64_t start, int64_t size) noexcept nogil:
        """Makes `piece` hold the `size` bytes of the file from `start` on; reads only those it does
        not hold yet. Returns as _read does, or ENOMEM."""
        cdef int64_t had = piece.size
        if size == had:
            return 0
        if buffer_reserve(piece, size - had) == NULL:
            return ENOMEM
        return self._read(piece.data + had, start + had, size - had)

    cdef int _walk(
        self, ColumnsBuilder builder, int64_t start, int64_t* at, int* status
    ) noexcept nogil:
        cdef Buffer* piece = &builder.piece
        cdef int64_t left = self.size_bytes - start
        # Bytes that do not fit into the builder would be read again for the next columns.
        cdef int64_t size = builder.w.bytes_max - table_bytes(&builder.t)
        cdef int64_t batch_bytes
        cdef int code
        size = min(max(size, <int64_t>PIECE_BYTES_MIN), <int64_t>PIECE_BYTES, left)
        piece.size = 0
        code = self._fill(piece, start, size)
        if code:
            return code
        status[0] = columns_walk(&builder.t, &builder.w, piece.data, size, at)
        if status[0] == RECORDS_OK and at[0] == 0 and builder.w.stop == WALK_CUT_OFF and size < left:
            batch_bytes = LOG_OVERHEAD + <int64_t><int32_t>be32_load(piece.data + AT_BATCH_LENGTH)
            if size < batch_bytes <= left:
                code = self._fill(piece, start, batch_bytes)
                if code:
                    return code
                status[0] = columns_walk(&builder.t, &builder.w, piece.data, batch_bytes, at)
        return 0

    def add_to(self, ColumnsBuilder builder not None, int64_t start) -> int:
        """Adds the records from byte `start` on to the builder, within its limits
        (ColumnsBuilder.add) and at most one piece: `stop` is "cut off" at the end of the piece and
        at the end of the file.

        Returns the position where it stopped. Raises CorruptRecords, OverflowError, CutShort (the
        columns are as before the call), and OSError.
        """
        cdef int64_t at = 0
        cdef int code, status = RECORDS_OK
        self._check(start, 0)
        builder._enter()
        self.users += 1
        with nogil:
            code = self._walk(builder, start, &at, &status)
        self.users -= 1
        builder.busy = False
        self._read_error(code)
        walk_error(status, start + at + builder.w.position)
        return start + at

    def copy(self, int64_t start, int64_t size_bytes) -> bytes:
        """Returns the `size_bytes` bytes from `start` on. Raises ValueError outside the file,
        CutShort, OSError."""
        cdef bytes found
        cdef uint8_t* into
        cdef int code
        self._check(start, size_bytes)
        found = PyBytes_FromStringAndSize(NULL, size_bytes)
        into = <uint8_t*>PyBytes_AS_STRING(found)
        self.users += 1
        with nogil:
            code = self._read(into, start, size_bytes)
        self.users -= 1
        self._read_error(code)
        return found

    def batch_bytes(self, int64_t start) -> bytes:
        """Returns the bytes of the batch at `start`, or the rest of the file when the batch is not
        complete. Raises ValueError outside the file, CutShort, OSError."""
        cdef int64_t length, left = self.size_bytes - start
        cdef bytes head
        self._check(start, 0)
        if left < LOG_OVERHEAD:
            return self.copy(start, left)
        head = self.copy(start, LOG_OVERHEAD)
        length = <int32_t>be32_load(<const uint8_t*>PyBytes_AS_STRING(head) + AT_BATCH_LENGTH)
        if length < 0 or length > left - LOG_OVERHEAD:
            return self.copy(start, left)
        return self.copy(start, LOG_OVERHEAD + length)

    # ---------------------------------------------------------------- seeking

    cdef int64_t _batch_with(self, int64_t start, int64_t offset, BatchAt* found) noexcept nogil:
        """Returns the position of the first batch from `start` on whose last offset is at or above
        `offset`, and sets `found`; -1 when there is none."""
        cdef int64_t at = start
        while at < self.size_bytes:
            if batch_header_at(
                    self.map + at, self.size_bytes - at, self.size_bytes - at, found) != 1:
                return -1
            if found.last_offset >= offset:
                return at
            at += found.size_bytes
        return -1

    cdef int64_t _start_by(
        self, const uint8_t* index, int64_t index_bytes, int64_t offset
    ) noexcept nogil:
        """Returns the position where a search for `offset` may begin, from an offset index; 0 when
        no entry helps."""
        cdef int64_t used = offset_index_used(index, index_bytes)
        cdef int64_t relative = min(offset - self.base_offset, <int64_t>INT32_MAX)
        cdef int64_t slot
        cdef OffsetEntry entry
        cdef BatchAt found
        if relative <= 0:
            return 0
        slot = offset_index_floor(index, used, <int32_t>relative)
        if slot < 0:
            return 0
        entry = offset_index_entry(index, slot)
        if not 0 < entry.position < self.size_bytes:
            return 0
        if batch_header_at(
                self.map + entry.position, self.size_bytes - entry.position,
                self.size_bytes - entry.position, &found) != 1 or found.base_offset > offset:
            return 0
        return entry.position

    cdef int64_t _position_of(self, int64_t offset) except -1:
        cdef int64_t index_bytes = 0, found = 0, losses
        cdef uint8_t* index = NULL
        if offset <= self.base_offset:
            return 0
        try:
            index = _mapped(self.path.removesuffix(".log") + ".index", &index_bytes)
        except FileNotFoundError:
            return 0
        if index == NULL or self.map == NULL:
            if index != NULL:
                unmap_file(index, index_bytes)
            return 0
        self.users += 1
        with nogil:
            losses = mapguard_own_count()
            mapguard_enter(self.map, self.size_bytes, index, index_bytes)
            found = self._start_by(index, index_bytes, offset)
            mapguard_leave()
            losses = mapguard_own_count() - losses
            unmap_file(index, index_bytes)
        self.users -= 1
        return 0 if losses else found       # a later read finds a truncated log

    def position_of(self, int64_t offset) -> int:
        """Returns the position of a batch at or before the batch that contains `offset`. Raises
        OSError."""
        return self._position_of(offset)

    def position_before(self, int64_t timestamp) -> int:
        """Returns the position of a batch such that all records before it are earlier than
        `timestamp` (ms). Raises OSError."""
        cdef int64_t index_bytes = 0, losses, slot
        cdef uint8_t* index = NULL
        cdef TimeEntry entry
        try:
            index = _mapped(self.path.removesuffix(".log") + ".timeindex", &index_bytes)
        except FileNotFoundError:
            return 0
        if index == NULL:
            return 0
        memset(&entry, 0, sizeof(TimeEntry))
        with nogil:
            losses = mapguard_own_count()
            mapguard_enter(index, index_bytes, NULL, 0)
            # Records with a later timestamp than an entry's have larger offsets than the entry.
            slot = time_index_floor(index, time_index_used(index, index_bytes), timestamp - 1)
            if slot >= 0:
                entry = time_index_entry(index, slot)
            mapguard_leave()
            losses = mapguard_own_count() - losses
            unmap_file(index, index_bytes)
        if losses or slot < 0:
            return 0
        return max(self._batch_of(entry.relative_offset, entry.timestamp), <int64_t>0)

    cdef int64_t _batch_of(self, int32_t relative_offset, int64_t timestamp) except? -2:
        """Returns the position of the batch that a time index entry names; -1 when the batch has
        another timestamp."""
        cdef int64_t offset = self.base_offset + relative_offset
        cdef int64_t at = self._position_of(offset)
        cdef int64_t losses
        cdef BatchAt found
        memset(&found, 0, sizeof(BatchAt))
        self.users += 1
        with nogil:
            losses = mapguard_own_count()
            mapguard_enter(self.map, self.size_bytes, NULL, 0)
            at = self._batch_with(at, offset, &found)
            mapguard_leave()
            losses = mapguard_own_count() - losses
        self.users -= 1
        if losses or at < 0 or found.max_timestamp != timestamp:
            return -1
        return at
