"""CRC-32C and CRC-32, by the fastest implementation for this processor, chosen once at import.

The implementations are in crc32c.h: AVX-512 carry-less folding, AVX2 folding beside the SSE4.2
instruction, that instruction in three streams at once, the ARM CRC instructions, and tables
(slicing by eight) for any processor. The table of usable implementations is filled while the module
is imported and never written again, so brokers in one process share only constants.
Hand-written, because the crc32c package needs the GIL and takes 2.8 times as long for 64 KiB.
Next on the data path: cext/record/records.pyx.
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

# From this size on a checksum releases the GIL: it takes about 2 us with SSE4.2, 10 us with tables.
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
    """Returns the CRC-32C of a bytes-like object; `value`: the checksum of the bytes before it."""
    return _checksum(best, data, value)


def crc32(data, uint32_t value=0) -> int:
    """Returns the CRC-32 (IEEE, as zlib.crc32) of a bytes-like object; `value`: the checksum of the
    bytes before it."""
    return _checksum(crc32_sliced, data, value)


def implementations() -> tuple[str, ...]:
    """Returns the names of the CRC-32C implementations that this machine can run; the first is in
    use."""
    return tuple([ways[i].name.decode() for i in range(ways_count)])


def crc32c_with(str name not None, data, uint32_t value=0) -> int:
    """Returns the CRC-32C by the named implementation. Raises ValueError for one that this machine
    cannot run."""
    cdef int i
    for i in range(ways_count):
        if ways[i].name.decode() == name:
            return _checksum(ways[i].run, data, value)
    raise ValueError(f"no implementation {name!r} here; there are {', '.join(implementations())}")


# In this module the name crc32c belongs to the C function, which other modules cimport from
# crc.pxd. So the Python function has another name here and gets its public name by assignment.
_crc32c.__name__ = _crc32c.__qualname__ = "crc32c"
globals()["crc32c"] = _crc32c
del globals()["_crc32c"]
