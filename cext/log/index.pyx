"""The offset index and the time index of a segment: search, writing, sanity, used length.

The bytes and the search are in index.pxd, for cext/log/log_handle to inline. Here are the checks of recovery
and the Python face for tools and tests.

Invariants of a sound offset index: relative offsets and positions grow strictly, the last offset
lies below the log's end and the last position inside the log. Of a time index: timestamps grow
strictly from 0 up, offsets never fall back. An active segment's files are preallocated and filled
with zeros behind the last entry; they are cut on a roll and on a clean close. After a crash they
keep their full size, so the size of a file is not its count of entries: `..._used` finds it. An
entry may be torn by a crash, and pages may be lost in the middle: `..._check` stops there.
An index holds nothing that the log does not: when in doubt it is rebuilt.

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
    """The bytes up to the last that is not zero. Zeros go eight at a time: 10 MB in a millisecond."""
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
    """No entry in use is all zeros: the first batch of a segment, at position 0, is not indexed."""
    cdef int64_t slots = size_bytes // OFFSET_ENTRY_BYTES
    cdef int64_t used = _used_bytes(base, slots * OFFSET_ENTRY_BYTES)
    return (used + OFFSET_ENTRY_BYTES - 1) // OFFSET_ENTRY_BYTES

cdef int64_t time_index_used(const uint8_t* base, int64_t size_bytes) noexcept nogil:
    """An only entry of timestamp 0 and relative offset 0 looks unused; losing it loses nothing,
    because a search below the first entry begins at the segment's start as well."""
    cdef int64_t slots = size_bytes // TIME_ENTRY_BYTES
    cdef int64_t used = _used_bytes(base, slots * TIME_ENTRY_BYTES)
    return (used + TIME_ENTRY_BYTES - 1) // TIME_ENTRY_BYTES


cdef uint8_t[1] NOTHING  # an address for the index of no bytes

# -- for Python -----------------------------------------------------------------------------------

cdef class _Index:
    """An index file over any buffer (bytes, bytearray, mmap). The buffer is held until close()."""
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
            raise ValueError("the index is closed")
        return <const uint8_t*>self.view.buf if self.view.len > 0 else NOTHING

    cdef uint8_t* _next(self) except NULL:
        self._base()
        if self.view.readonly:
            raise ValueError("the buffer is read-only")
        if self.used >= self.view.len // self.entry_bytes:
            raise IndexFull(f"all {self.used} entries are in use")
        return <uint8_t*>self.view.buf

    cdef int _keep(self, object entries, int64_t found) except -1:
        cdef int64_t slots = self.view.len // self.entry_bytes
        self.used = found if entries is None else entries
        if not 0 <= self.used <= slots:
            self.close()
            raise ValueError(f"{entries} entries do not fit into {slots} slots")
        return 0

    def __len__(self) -> int:
        return self.used

    def close(self) -> None:
        """Lets go of the buffer (an mmap cannot be closed before)."""
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
    """No slot is left: the segment must roll."""


cdef class OffsetIndex(_Index):
    """entries: how many are in use; None takes what stands before the zeros at the end."""

    def __init__(self, buffer, *, entries=None):
        if self.held:
            raise ValueError("the index is open already")
        self._hold(buffer, OFFSET_ENTRY_BYTES)
        self._keep(entries, offset_index_used(self._base(), self.view.len))

    def entries(self) -> list:
        """(relative offset, position) of each."""
        cdef const uint8_t* base = self._base()
        cdef int64_t slot
        cdef OffsetEntry entry
        found = []
        for slot in range(self.used):
            entry = offset_index_entry(base, slot)
            found.append((entry.relative_offset, entry.position))
        return found

    def lookup(self, int64_t relative_offset):
        """The largest entry at or below relative_offset, or None."""
        cdef const uint8_t* base = self._base()
        cdef int32_t target = <int32_t>max(<int64_t>INT32_MIN, min(relative_offset, INT32_MAX))
        cdef int64_t slot = offset_index_floor(base, self.used, target)
        if slot < 0:
            return None
        cdef OffsetEntry entry = offset_index_entry(base, slot)
        return entry.relative_offset, entry.position

    def lookup_many(self, targets) -> array:
        """The slot for each target of an array of int64, -1 where every entry is above it."""
        return _slots(self._base(), self.used, targets, False)

    def append(self, int32_t relative_offset, int32_t position) -> None:
        """Raises IndexFull, or ValueError when either does not grow."""
        cdef uint8_t* base = self._next()
        cdef OffsetEntry last
        last.relative_offset = last.position = -1
        if self.used > 0:
            last = offset_index_entry(base, self.used - 1)
        if relative_offset <= last.relative_offset or position <= last.position:
            raise ValueError(
                f"({relative_offset}, {position}) after ({last.relative_offset}, {last.position})")
        offset_index_put(base, self.used, relative_offset, position)
        self.used += 1

    def check(self, *, int64_t base_offset, int64_t offset_end, int64_t log_size_bytes) -> int:
        """How many entries, from the first, are sound; len(self) when all are."""
        cdef const uint8_t* base = self._base()
        cdef int64_t used = self.used
        cdef int64_t sound
        with nogil:
            sound = offset_index_check(base, used, base_offset, offset_end, log_size_bytes)
        return sound


cdef class TimeIndex(_Index):
    """entries: how many are in use; None takes what stands before the zeros at the end."""

    def __init__(self, buffer, *, entries=None):
        if self.held:
            raise ValueError("the index is open already")
        self._hold(buffer, TIME_ENTRY_BYTES)
        self._keep(entries, time_index_used(self._base(), self.view.len))

    def entries(self) -> list:
        """(timestamp, relative offset) of each."""
        cdef const uint8_t* base = self._base()
        cdef int64_t slot
        cdef TimeEntry entry
        found = []
        for slot in range(self.used):
            entry = time_index_entry(base, slot)
            found.append((entry.timestamp, entry.relative_offset))
        return found

    def lookup(self, int64_t timestamp):
        """The largest entry at or below timestamp, or None."""
        cdef const uint8_t* base = self._base()
        cdef int64_t slot = time_index_floor(base, self.used, timestamp)
        if slot < 0:
            return None
        cdef TimeEntry entry = time_index_entry(base, slot)
        return entry.timestamp, entry.relative_offset

    def lookup_many(self, targets) -> array:
        """The slot for each target of an array of int64, -1 where every entry is above it."""
        return _slots(self._base(), self.used, targets, True)

    def append(self, int64_t timestamp, int32_t relative_offset) -> None:
        """Raises IndexFull, or ValueError when the time does not grow or the offset falls."""
        cdef uint8_t* base = self._next()
        cdef TimeEntry last
        last.timestamp = -1
        last.relative_offset = 0
        if self.used > 0:
            last = time_index_entry(base, self.used - 1)
        if timestamp <= last.timestamp or relative_offset < last.relative_offset:
            raise ValueError(
                f"({timestamp}, {relative_offset}) after ({last.timestamp}, {last.relative_offset})")
        time_index_put(base, self.used, timestamp, relative_offset)
        self.used += 1

    def check(self, *, int64_t base_offset, int64_t offset_end) -> int:
        """How many entries, from the first, are sound; len(self) when all are."""
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
            raise TypeError("targets must be an array of int64 ('q')")
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
