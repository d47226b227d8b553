"""A segment's files mapped read-only, by one who does not own them: readers beside the broker.

The log is mapped as long as it is when it is opened; what is appended later is not seen. A file
that somebody cuts short below the map raises SIGBUS at the next touch: every touch is made under a
guard (mapguard.h) that lays zeros there, and afterwards the guard's count says that it happened.
What was read since then is not given out: the columns are cut back and CutShort names the file, at
every later read too, because the zeros stay.

An index is believed as the broker believes it: an offset's entry where the batch it points to
begins at or before that offset, a time's entry where the batch it names has that time. Otherwise
the search begins at the segment's start, and finds the same more slowly. They are mapped for one
search, because the broker may cut or delete them any time.

Nothing here is held longer than a call but the map itself: a segment that is deleted, or swapped
by compaction, keeps its bytes for who has it open. Next on the data path: broker/scan/files.py.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from barnabas.cext.batch_at cimport BatchAt, batch_header_at
from barnabas.cext.column_table cimport Mark, table_cut, table_mark
from barnabas.cext.columns cimport ColumnsBuilder, columns_walk, walk_error
from barnabas.cext.endian cimport be32_load
from barnabas.cext.index cimport (
    OffsetEntry, TimeEntry, offset_index_entry, offset_index_floor, offset_index_used,
    time_index_entry, time_index_floor, time_index_used,
)
from barnabas.cext.records cimport AT_BATCH_LENGTH, LOG_OVERHEAD

import os

cdef extern from "filemap.h" nogil:
    int64_t file_size(int fd)
    uint8_t* map_file(int fd, int64_t size, int writable)
    void unmap_file(uint8_t* p, int64_t size)
    void map_read_ahead(const uint8_t* map, int64_t start, int64_t end)

cdef extern from "mapguard.h" nogil:
    void mapguard_install()
    void mapguard_enter(const void* a, int64_t a_bytes, const void* b, int64_t b_bytes)
    void mapguard_leave()
    int64_t mapguard_own_count()        # losses of this thread

cdef enum:
    PIECE_BYTES = 8 * 1024 * 1024       # read ahead, and given to the walk, at once


class CutShort(OSError):
    """The file became shorter while it was read."""


cdef uint8_t* _mapped(object path, int64_t* size_bytes, object inode=None) except? NULL:
    """A file as long as it is now; NULL for an empty one. Raises OSError."""
    cdef int fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    cdef uint8_t* map = NULL
    try:
        if inode is not None:
            inode.append(os.fstat(fd).st_ino)
        size_bytes[0] = file_size(fd)
        if size_bytes[0] > 0:
            map = map_file(fd, size_bytes[0], 0)
            if map == NULL:
                raise OSError(f"{path}: cannot be mapped")
    finally:
        os.close(fd)
    return map


@cython.final
cdef class MappedSegment:
    """path: of the `.log`; its indexes are beside it. Raises OSError."""

    cdef readonly str path
    cdef readonly int64_t base_offset
    cdef readonly int64_t size_bytes
    cdef readonly object inode  # tells it from a file that compaction put in its place
    cdef uint8_t* map
    cdef int64_t ahead          # pages up to there were asked for
    cdef int users              # calls that are reading now
    cdef bint is_cut_short      # zeros lie in its place from some page on

    def __init__(self, str path not None, int64_t base_offset):
        if self.path is not None:
            raise ValueError("the segment is open already")
        self.path = path
        self.base_offset = base_offset
        cdef list inode = []
        mapguard_install()
        self.map = _mapped(path, &self.size_bytes, inode)
        self.inode = inode[0]

    def __dealloc__(self):
        if self.map != NULL:
            unmap_file(self.map, self.size_bytes)

    def close(self) -> None:
        """Gives the map back; with another thread inside a call it stays until the object goes."""
        if self.map != NULL and not self.users:
            unmap_file(self.map, self.size_bytes)
            self.map = NULL
            self.size_bytes = 0

    cdef object _cut_short(self):
        return CutShort(f"{self.path} became shorter while it was read")

    cdef int _check(self, int64_t start, int64_t size) except -1:
        if self.is_cut_short:
            raise self._cut_short()
        if not (0 <= start <= self.size_bytes and 0 <= size <= self.size_bytes - start):
            raise ValueError(f"bytes {start} to {start + size} of {self.size_bytes}")
        return 0

    def add_to(self, ColumnsBuilder builder not None, int64_t start) -> int:
        """Walks from byte `start` as far as the builder is told to (ColumnsBuilder.add), a piece at
        a time at most: `stop` is "cut off" where the piece ends, and the end of the file too.

        Raises CorruptRecords, OverflowError, CutShort: the columns are as before the call."""
        cdef int64_t at = start
        cdef int64_t end, losses
        cdef int status
        cdef Mark mark
        self._check(start, 0)
        builder._enter()
        self.users += 1
        with nogil:
            end = min(self.size_bytes, start + PIECE_BYTES)
            losses = mapguard_own_count()
            mark = table_mark(&builder.t)
            if end > self.ahead:
                map_read_ahead(self.map, max(start, self.ahead), end)
                self.ahead = end
            mapguard_enter(self.map, self.size_bytes, NULL, 0)
            # A batch that the piece ends in is whole in a longer one.
            if end < self.size_bytes:
                end = max(end, self._batch_end(start))
            status = columns_walk(&builder.t, &builder.w, self.map, end, &at)
            mapguard_leave()
            losses = mapguard_own_count() - losses
            if losses:
                self.is_cut_short = True
                table_cut(&builder.t, &mark)
        self.users -= 1
        builder.busy = False
        if losses:
            raise self._cut_short()
        walk_error(status, at + builder.w.position)
        return at

    cdef int64_t _batch_end(self, int64_t start) noexcept nogil:
        """Of the batch that begins at `start`, as its length says, within the file."""
        cdef int64_t length
        if self.size_bytes - start < LOG_OVERHEAD:
            return self.size_bytes
        length = <int32_t>be32_load(self.map + start + AT_BATCH_LENGTH)
        if length < 0 or length > self.size_bytes - start - LOG_OVERHEAD:
            return self.size_bytes
        return start + LOG_OVERHEAD + length

    def copy(self, int64_t start, int64_t size_bytes) -> bytes:
        """Raises CutShort."""
        cdef bytes found
        cdef char* into
        cdef int64_t losses
        self._check(start, size_bytes)
        found = PyBytes_FromStringAndSize(NULL, size_bytes)
        into = PyBytes_AS_STRING(found)
        self.users += 1
        with nogil:
            losses = mapguard_own_count()
            mapguard_enter(self.map, self.size_bytes, NULL, 0)
            memcpy(into, self.map + start, size_bytes)
            mapguard_leave()
            losses = mapguard_own_count() - losses
            if losses:
                self.is_cut_short = True
        self.users -= 1
        if losses:
            raise self._cut_short()
        return found

    def batch_bytes(self, int64_t start) -> bytes:
        """The batch at `start`, as far as the file has it. Raises CutShort."""
        cdef int64_t end, losses
        self._check(start, 0)
        self.users += 1
        with nogil:
            losses = mapguard_own_count()
            mapguard_enter(self.map, self.size_bytes, NULL, 0)
            end = self._batch_end(start)
            mapguard_leave()
            if losses != mapguard_own_count():
                self.is_cut_short = True
        self.users -= 1
        return self.copy(start, end - start)

    # ---------------------------------------------------------------- seeking

    cdef int64_t _batch_with(self, int64_t start, int64_t offset, BatchAt* found) noexcept nogil:
        """The first batch from `start` on that ends at or after an offset; -1 when there is none."""
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
        """Where to begin for an offset, by an offset index."""
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
        return 0 if losses else found       # the index's or the log's: who reads on will learn it

    def position_of(self, int64_t offset) -> int:
        """A byte where a batch begins, at or before the one that holds the offset."""
        return self._position_of(offset)

    def position_before(self, int64_t timestamp) -> int:
        """A byte where a batch begins, such that all records before it are earlier than this."""
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
            # Records later than an entry's time stand after its offset.
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
        """Where the batch that a time's entry names begins; -1 when it has another time."""
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
