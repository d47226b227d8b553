"""The offset index and the time index of a segment: search, writing, sanity, used length.

The bytes and the search are in index.pxd, so that other modules can inline them. This file has the
checks for recovery, and Python classes for tools and tests.

Invariants of a sound offset index: relative offsets and positions grow strictly, the last offset is
below the log's end, and the last position is inside the log. Invariants of a sound time index:
timestamps grow strictly from 0 up, and offsets never decrease. The files of an active segment are
preallocated and contain zeros behind the last entry; a roll and a clean close cut them. After a
crash they keep their full size, so the file's size is not its number of entries: `..._used` finds
that number. A crash may leave a torn entry, and pages in the middle may be lost: `..._check` stops
there. An index contains nothing that the log does not contain: in case of doubt it is rebuilt.

Next on the data path: cext/record/records.
"""
from array import array

from cpython.buffer cimport (
    PyBUF_FORMAT,
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy


cdef int64_t offset_index_check(
    const uint8_t* base, int64_t entries, int64_t base_offset, int64_t offset_end,
    int64_t log_size_bytes
) noexcept nogil:
    cdef int64_t slot
    cdef OffsetEntry entry
    cdef OffsetEntry last
    last.relative_offset = -1
    last.position = -1
    for slot in range(entries):
        entry = offset_index_entry(base, slot)
        if entry.relative_offset <= last.relative_offset or entry.position <= last.position:
            return slot
        if entry.relative_offset >= offset_end - base_offset or entry.position >= log_size_bytes:
            return slot
        last = entry
    return entries

cdef int64_t time_index_check(
    const uint8_t* base, int64_t entries, int64_t base_offset, int64_t offset_end
) noexcept nogil:
    cdef int64_t slot
    cdef TimeEntry entry
    cdef TimeEntry last
    last.timestamp = -1
    last.relative_offset = 0
    for slot in range(entries):
        entry = time_index_entry(base, slot)
        if entry.timestamp <= last.timestamp or entry.relative_offset < last.relative_offset:
            return slot
        if entry.relative_offset >= offset_end - base_offset:
            return slot
        last = entry
    return entries

cdef inline int64_t _used_bytes(const uint8_t* base, int64_t size_bytes) noexcept nogil:
    """Returns the number of bytes up to the last byte that is not zero. It skips zeros eight at a
    time: 10 MB in a millisecond."""
    cdef uint64_t word
    while size_bytes >= 8:
        memcpy(&word, base + size_bytes - 8, 8)
        if word != 0:
            break
        size_bytes -= 8
    while size_bytes > 0 and base[size_bytes - 1] == 0:
        size_bytes -= 1
    return size_bytes

cdef int64_t offset_index_used(const uint8_t* base, int64_t size_bytes) noexcept nogil:
    """Returns the number of entries in use. None of them is all zeros, because a segment's first
    batch, at position 0, is not indexed."""
    cdef int64_t slots = size_bytes // OFFSET_ENTRY_BYTES
    cdef int64_t used = _used_bytes(base, slots * OFFSET_ENTRY_BYTES)
    return (used + OFFSET_ENTRY_BYTES - 1) // OFFSET_ENTRY_BYTES

cdef int64_t time_index_used(const uint8_t* base, int64_t size_bytes) noexcept nogil:
    """Returns the number of entries in use. A single entry with timestamp 0 and relative offset 0
    looks unused; its loss has no effect, because a search below the first entry begins at the
    segment's start as well."""
    cdef int64_t slots = size_bytes // TIME_ENTRY_BYTES
    cdef int64_t used = _used_bytes(base, slots * TIME_ENTRY_BYTES)
    return (used + TIME_ENTRY_BYTES - 1) // TIME_ENTRY_BYTES


cdef uint8_t[1] NOTHING  # the address for an empty index

# -- for Python -----------------------------------------------------------------------------------

cdef class _Index:
    """An index over a buffer (bytes, bytearray, mmap). It keeps the buffer until close();
    afterwards each call raises ValueError."""
    cdef Py_buffer view
    cdef bint held
    cdef int64_t used
    cdef int64_t entry_bytes

    cdef int _hold(self, object buffer, int64_t entry_bytes) except -1:
        try:
            PyObject_GetBuffer(buffer, &self.view, PyBUF_WRITABLE)
        except BufferError:
            PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.held = True
        self.entry_bytes = entry_bytes
        return 0

    cdef const uint8_t* _base(self) except NULL:
        if not self.held:
            raise ValueError("this index is closed: open the buffer again")
        return <const uint8_t*>self.view.buf if self.view.len > 0 else NOTHING

    cdef uint8_t* _next(self) except NULL:
        self._base()
        if self.view.readonly:
            raise ValueError("the buffer is read-only: append needs a writable buffer")
        if self.used >= self.view.len // self.entry_bytes:
            raise IndexFull(f"the index is full: all {self.used} entries are in use")
        return <uint8_t*>self.view.buf

    cdef int _keep(self, object entries, int64_t found) except -1:
        cdef int64_t slots = self.view.len // self.entry_bytes
        self.used = found if entries is None else entries
        if not 0 <= self.used <= slots:
            self.close()
            raise ValueError(f"entries is {entries}; the buffer has space for 0 to {slots}")
        return 0

    def __len__(self) -> int:
        return self.used

    def close(self) -> None:
        """Releases the buffer; an mmap cannot be closed before."""
        if self.held:
            self.held = False
            PyBuffer_Release(&self.view)

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


class IndexFull(ValueError):
    """All entries are in use: the segment must roll."""


cdef class OffsetIndex(_Index):
    """The .index of a segment over `buffer`. `entries`: the number of entries in use; None: all
    before the zeros at the end. Raises ValueError when the buffer has fewer entries. Kafka:
    OffsetIndex."""

    def __init__(self, buffer, *, entries=None):
        if self.held:
            raise ValueError("this index is open already: make a new OffsetIndex")
        self._hold(buffer, OFFSET_ENTRY_BYTES)
        self._keep(entries, offset_index_used(self._base(), self.view.len))

    def entries(self) -> list:
        """Returns (relative offset, position) of each entry in use."""
        cdef const uint8_t* base = self._base()
        cdef int64_t slot
        cdef OffsetEntry entry
        found = []
        for slot in range(self.used):
            entry = offset_index_entry(base, slot)
            found.append((entry.relative_offset, entry.position))
        return found

    def lookup(self, int64_t relative_offset):
        """Returns (relative offset, position) of the largest entry at or below `relative_offset`,
        or None."""
        cdef const uint8_t* base = self._base()
        cdef int32_t target = <int32_t>max(<int64_t>INT32_MIN, min(relative_offset, INT32_MAX))
        cdef int64_t slot = offset_index_floor(base, self.used, target)
        if slot < 0:
            return None
        cdef OffsetEntry entry = offset_index_entry(base, slot)
        return entry.relative_offset, entry.position

    def lookup_many(self, targets) -> array:
        """Returns the slot of the largest entry at or below each of `targets` (an array of int64),
        as such an array; -1 where there is none. Raises TypeError for another array."""
        return _slots(self._base(), self.used, targets, False)

    def append(self, int32_t relative_offset, int32_t position) -> None:
        """Adds an entry. Raises IndexFull, or ValueError when the offset or the position does not
        grow."""
        cdef uint8_t* base = self._next()
        cdef OffsetEntry last
        last.relative_offset = last.position = -1
        if self.used > 0:
            last = offset_index_entry(base, self.used - 1)
        if relative_offset <= last.relative_offset or position <= last.position:
            raise ValueError(
                f"({relative_offset}, {position}) cannot follow ({last.relative_offset}, "
                f"{last.position}): both numbers must grow")
        offset_index_put(base, self.used, relative_offset, position)
        self.used += 1

    def check(self, *, int64_t base_offset, int64_t offset_end, int64_t log_size_bytes) -> int:
        """Returns how many entries, from the first, are sound; len(self) when all are.
        `offset_end`: the end offset of the segment; `log_size_bytes`: the size of its .log."""
        cdef const uint8_t* base = self._base()
        cdef int64_t used = self.used
        cdef int64_t sound
        with nogil:
            sound = offset_index_check(base, used, base_offset, offset_end, log_size_bytes)
        return sound


cdef class TimeIndex(_Index):
    """The .timeindex of a segment over `buffer`. `entries`: the number of entries in use; None: all
    before the zeros at the end. Raises ValueError when the buffer has fewer entries. Kafka:
    TimeIndex."""

    def __init__(self, buffer, *, entries=None):
        if self.held:
            raise ValueError("this index is open already: make a new TimeIndex")
        self._hold(buffer, TIME_ENTRY_BYTES)
        self._keep(entries, time_index_used(self._base(), self.view.len))

    def entries(self) -> list:
        """Returns (timestamp, relative offset) of each entry in use; timestamps are in ms."""
        cdef const uint8_t* base = self._base()
        cdef int64_t slot
        cdef TimeEntry entry
        found = []
        for slot in range(self.used):
            entry = time_index_entry(base, slot)
            found.append((entry.timestamp, entry.relative_offset))
        return found

    def lookup(self, int64_t timestamp):
        """Returns (timestamp, relative offset) of the largest entry at or below `timestamp`, or
        None."""
        cdef const uint8_t* base = self._base()
        cdef int64_t slot = time_index_floor(base, self.used, timestamp)
        if slot < 0:
            return None
        cdef TimeEntry entry = time_index_entry(base, slot)
        return entry.timestamp, entry.relative_offset

    def lookup_many(self, targets) -> array:
        """Returns the slot of the largest entry at or below each of `targets` (an array of int64),
        as such an array; -1 where there is none. Raises TypeError for another array."""
        return _slots(self._base(), self.used, targets, True)

    def append(self, int64_t timestamp, int32_t relative_offset) -> None:
        """Adds an entry. Raises IndexFull, or ValueError when the timestamp does not grow or the
        offset decreases."""
        cdef uint8_t* base = self._next()
        cdef TimeEntry last
        last.timestamp = -1
        last.relative_offset = 0
        if self.used > 0:
            last = time_index_entry(base, self.used - 1)
        if timestamp <= last.timestamp or relative_offset < last.relative_offset:
            raise ValueError(
                f"({timestamp}, {relative_offset}) cannot follow ({last.timestamp}, "
                f"{last.relative_offset}): the timestamp must grow, the offset must not decrease")
        time_index_put(base, self.used, timestamp, relative_offset)
        self.used += 1

    def check(self, *, int64_t base_offset, int64_t offset_end) -> int:
        """Returns how many entries, from the first, are sound; len(self) when all are.
        `offset_end`: the end offset of the segment."""
        cdef const uint8_t* base = self._base()
        cdef int64_t used = self.used
        cdef int64_t sound
        with nogil:
            sound = time_index_check(base, used, base_offset, offset_end)
        return sound


cdef object _slots(const uint8_t* base, int64_t entries, object targets, bint by_time):
    cdef Py_buffer wanted
    cdef Py_buffer found
    cdef int64_t i, target
    PyObject_GetBuffer(targets, &wanted, PyBUF_FORMAT)
    try:
        if wanted.itemsize != 8 or wanted.format[0] not in b"ql":
            raise TypeError("targets must be an array of int64: array('q')")
        slots = array("q", bytes(wanted.len))
        PyObject_GetBuffer(slots, &found, PyBUF_WRITABLE)
        with nogil:
            for i in range(wanted.len // 8):
                target = (<int64_t*>wanted.buf)[i]
                if by_time:
                    target = time_index_floor(base, entries, target)
                else:
                    target = max(<int64_t>INT32_MIN, min(target, <int64_t>INT32_MAX))
                    target = offset_index_floor(base, entries, <int32_t>target)
                (<int64_t*>found.buf)[i] = target
        PyBuffer_Release(&found)
        return slots
    finally:
        PyBuffer_Release(&wanted)
