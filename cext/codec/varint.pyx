"""Varints for Python callers: one value in, bytes out, and back. cext itself uses varint.pxd.

Next on the data path: cext/codec/cursor.pxd.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint64_t, uint8_t

from barnabas.cext.codec.cursor cimport (
    Cursor, cursor_of, cursor_uvarint, cursor_varint, cursor_varlong,
)
from barnabas.cext.codec.varint cimport uvarint_write, varint_write


def encode_uvarint(uint64_t value) -> bytes:
    """Returns an unsigned varint, low group first. Raises OverflowError outside 0..2^64-1."""
    cdef uint8_t room[10]
    cdef uint8_t* end = uvarint_write(room, value)
    return PyBytes_FromStringAndSize(<char*>room, end - room)


def encode_varint(int64_t value) -> bytes:
    """Returns a zigzag varint (a varint and a varlong of one value are equal). Raises OverflowError
    beyond 64 bits."""
    cdef uint8_t room[10]
    cdef uint8_t* end = varint_write(room, value)
    return PyBytes_FromStringAndSize(<char*>room, end - room)


cdef tuple _decoded(object value, Cursor* c, const uint8_t* start, Py_ssize_t offset):
    if c.bad:
        raise ValueError(f"no whole varint at byte {offset}")
    return value, offset + (c.p - start)


cdef Cursor _at(bytes data, Py_ssize_t offset) except *:
    if not 0 <= offset <= len(data):
        raise ValueError(f"offset {offset} outside {len(data)} bytes")
    return cursor_of(<const char*>data + offset, len(data) - offset)


def decode_uvarint(bytes data not None, Py_ssize_t offset=0, bint wide=False) -> tuple[int, int]:
    """Returns (value, offset after it) of an unsigned varint of 32 bits, or 64 with `wide`. Raises
    ValueError for one that is cut off or too long."""
    cdef Cursor c = _at(data, offset)
    cdef const uint8_t* start = c.p
    cdef uint64_t value = cursor_uvarint(&c, 10 if wide else 5)
    return _decoded(value, &c, start, offset)


def decode_varint(bytes data not None, Py_ssize_t offset=0) -> tuple[int, int]:
    """Returns (value, offset after it) of a zigzag varint of 32 bits. Raises ValueError."""
    cdef Cursor c = _at(data, offset)
    cdef const uint8_t* start = c.p
    cdef int64_t value = cursor_varint(&c)
    return _decoded(value, &c, start, offset)


def decode_varlong(bytes data not None, Py_ssize_t offset=0) -> tuple[int, int]:
    """Returns (value, offset after it) of a zigzag varint of 64 bits. Raises ValueError."""
    cdef Cursor c = _at(data, offset)
    cdef const uint8_t* start = c.p
    cdef int64_t value = cursor_varlong(&c)
    return _decoded(value, &c, start, offset)
