"""Columns, one after another, through Arrow's C stream interface: pyarrow, polars and duckdb read
them a batch at a time, without a copy; this module does not need pyarrow.

The stream reports an error of the iterator as EIO with its text, and again at each later call.
"""
from cpython.pycapsule cimport PyCapsule_Destructor, PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from barnabas.cext.record.columns cimport Columns

cdef extern from *:
    """
    #include "arrow.h"
    #ifndef ARROW_C_STREAM_INTERFACE
    #define ARROW_C_STREAM_INTERFACE
    struct ArrowArrayStream {
      int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *);
      int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *);
      const char *(*get_last_error)(struct ArrowArrayStream *);
      void (*release)(struct ArrowArrayStream *);
      void *private_data;
    };
    #endif
    """
    struct ArrowSchema:
        void (*release)(ArrowSchema*) noexcept with gil
    struct ArrowArray:
        void (*release)(ArrowArray*) noexcept with gil
    struct ArrowArrayStream:
        int (*get_schema)(ArrowArrayStream*, ArrowSchema*) noexcept with gil
        int (*get_next)(ArrowArrayStream*, ArrowArray*) noexcept with gil
        const char* (*get_last_error)(ArrowArrayStream*) noexcept with gil
        void (*release)(ArrowArrayStream*) noexcept with gil
        void* private_data

cdef extern from "<errno.h>" nogil:
    int EIO


cdef class _Source:
    cdef object batches
    cdef bytes error            # stays in memory as long as the stream, as the interface demands


cdef int _get_schema(ArrowArrayStream* stream, ArrowSchema* out) noexcept with gil:
    cdef _Source source = <_Source>stream.private_data
    cdef ArrowSchema* made
    try:
        capsule = Columns().__arrow_c_schema__()
        made = <ArrowSchema*>PyCapsule_GetPointer(capsule, "arrow_schema")
        out[0] = made[0]
        made.release = NULL     # its content was moved to `out`
    except Exception as error:
        source.error = f"{type(error).__name__}: {error}".encode()
        return EIO
    return 0


cdef int _get_next(ArrowArrayStream* stream, ArrowArray* out) noexcept with gil:
    cdef _Source source = <_Source>stream.private_data
    cdef ArrowArray* made
    if source.error is not None:
        return EIO
    memset(out, 0, sizeof(ArrowArray))      # a released array means the end of the stream
    try:
        columns = next(source.batches, None)
        if columns is not None:
            _, capsule = (<Columns?>columns).__arrow_c_array__()
            made = <ArrowArray*>PyCapsule_GetPointer(capsule, "arrow_array")
            out[0] = made[0]
            made.release = NULL
    except Exception as error:
        source.error = f"{type(error).__name__}: {error}".encode()
        return EIO
    return 0


cdef const char* _get_last_error(ArrowArrayStream* stream) noexcept with gil:
    cdef _Source source = <_Source>stream.private_data
    return NULL if source.error is None else <const char*>source.error


cdef void _release(ArrowArrayStream* stream) noexcept with gil:
    stream.release = NULL
    Py_DECREF(<object>stream.private_data)


cdef void _end_capsule(object capsule) noexcept:
    cdef ArrowArrayStream* stream
    stream = <ArrowArrayStream*>PyCapsule_GetPointer(capsule, "arrow_array_stream")
    if stream.release != NULL:
        stream.release(stream)
    free(stream)


def arrow_stream(batches):
    """Returns a PyCapsule with the stream of an iterator of Columns, as `__arrow_c_stream__` must
    return it. Raises MemoryError."""
    cdef _Source source = _Source()
    cdef ArrowArrayStream* stream = <ArrowArrayStream*>calloc(1, sizeof(ArrowArrayStream))
    if stream == NULL:
        raise MemoryError
    source.batches = iter(batches)
    stream.get_schema = _get_schema
    stream.get_next = _get_next
    stream.get_last_error = _get_last_error
    stream.release = _release
    Py_INCREF(source)
    stream.private_data = <void*>source
    return PyCapsule_New(
        stream, "arrow_array_stream", <PyCapsule_Destructor>_end_capsule)
