"""Who may use the descriptors that the system allows this process (RLIMIT_NOFILE).

Log files leave RESERVED descriptors to connections and to the rest of the process, so clients
connect and the broker starts, although it has more partitions than fit. Connections leave half of
these, so a log can be rolled although strangers hold as many connections as fit. A process that may
open few files reserves half of them.
"""
from libc.errno cimport EBADF, EMFILE
from libc.stdint cimport int64_t

from barnabas.cext.memory.atomics cimport atomic_add_i64

cdef extern from "syscalls.h" nogil:
    int real_open(const char* path, int flags, int mode)
    int real_open_cached(const char* path, int flags, int mode)
    int real_close(int fd)
    int64_t descriptors_max()       # INT64_MAX: no limit

cdef enum:
    RESERVED = 128                  # DESCRIPTORS_OTHER of cli/limits.py

cdef int64_t _open_count = 0


cdef inline int64_t _reserved(int64_t most) noexcept nogil:
    return min(most >> 1, <int64_t>RESERVED)


cdef inline int _open_counted(const char* path, int flags, int mode, bint waits) noexcept nogil:
    cdef int64_t most = descriptors_max()
    cdef int fd = -EMFILE
    if atomic_add_i64(&_open_count, 1) <= most - _reserved(most):
        if waits:
            fd = real_open(path, flags, mode)
        else:
            fd = real_open_cached(path, flags, mode)
    if fd < 0:
        atomic_add_i64(&_open_count, -1)
    return fd


cdef int log_file_open(const char* path, int flags, int mode) noexcept nogil:
    return _open_counted(path, flags, mode, True)


cdef int log_file_open_cached(const char* path, int flags, int mode) noexcept nogil:
    return _open_counted(path, flags, mode, False)


cdef int log_file_close(int fd) noexcept nogil:
    cdef int closed = real_close(fd)
    if closed != -EBADF:
        atomic_add_i64(&_open_count, -1)
    return closed


cdef int64_t connection_descriptors_end() noexcept nogil:
    cdef int64_t most = descriptors_max()
    return most - (_reserved(most) >> 1)


def log_files_open() -> int:
    """Returns how many log files of this process are open, for tests."""
    return atomic_add_i64(&_open_count, 0)
