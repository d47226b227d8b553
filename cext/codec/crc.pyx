"""CRC-32C and CRC-32, with the fastest way this processor has, chosen once at import.

The ways themselves are in crc32c.h: AVX-512 carry-less folding, AVX2 folding beside the SSE4.2
instruction, that instruction three ways at once, the ARM CRC instructions, and tables (slicing by
eight) that run anywhere. The table of usable ways is filled while the module is imported and never
written again, so brokers in one process share only constants. Next on the data path: cext/record/records.pyx.
"""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t

cdef extern from "crc32c.h" nogil:
    ctypedef uint32_t (*crc_function)(uint32_t crc, const uint8_t* p, size_t n) noexcept
    ctypedef struct crc_implementation:
        const char* name
        crc_function run
    int CRC_IMPLEMENTATIONS_MAX
    int crc_setup(crc_implementation* found)
    uint32_t crc32_sliced(uint32_t crc, const uint8_t* p, size_t n) noexcept

# From this size on the GIL is given up meanwhile: about 2 us with SSE4.2, 10 us with tables.
cdef enum:
    NOGIL_SIZE_BYTES = 65536

cdef crc_implementation ways[4]
cdef int ways_count = crc_setup(ways)
cdef crc_function best = ways[0].run


cdef uint32_t crc32c(uint32_t crc, const uint8_t* p, size_t n) noexcept nogil:
    return best(crc, p, n)


cdef uint32_t crc32_ieee(uint32_t crc, const uint8_t* p, size_t n) noexcept nogil:
    return crc32_sliced(crc, p, n)


cdef uint32_t _checksum(crc_function run, object data, uint32_t value) except? 0xFFFFFFFF:
    cdef Py_buffer view
    cdef uint32_t result
    if PyBytes_CheckExact(data) and PyBytes_GET_SIZE(data) < NOGIL_SIZE_BYTES:
        return run(value, <const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len < NOGIL_SIZE_BYTES:
            result = run(value, <const uint8_t*>view.buf, view.len)
        else:
            with nogil:
                result = run(value, <const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return result


def _crc32c(data, uint32_t value=0) -> int:
    """CRC-32C of a bytes-like object; value is the checksum of what came before it."""
    return _checksum(best, data, value)


def crc32(data, uint32_t value=0) -> int:
    """CRC-32 (IEEE, as zlib's) of a bytes-like object; value is the checksum before it."""
    return _checksum(crc32_sliced, data, value)


def implementations() -> tuple[str, ...]:
    """The names of the CRC-32C implementations this machine can run; the first is in use."""
    return tuple([ways[i].name.decode() for i in range(ways_count)])


def crc32c_with(str name not None, data, uint32_t value=0) -> int:
    """CRC-32C by the named implementation. Raises ValueError for one this machine lacks."""
    cdef int i
    for i in range(ways_count):
        if ways[i].name.decode() == name:
            return _checksum(ways[i].run, data, value)
    raise ValueError(f"no implementation {name!r} here; there are {', '.join(implementations())}")


# In this module the name crc32c is the C function's, which crc.pxd gives to others; the Python
# function of that name has to be put beside it by hand.
_crc32c.__name__ = _crc32c.__qualname__ = "crc32c"
globals()["crc32c"] = _crc32c
del globals()["_crc32c"]
