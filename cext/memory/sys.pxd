"""The system-call table: cext reaches files, sendfile and clocks only through it.

One table per broker. The real calls are the default; a fault rule, a moved clock or a simulated
disk replaces single entries. Every call returns -errno on failure. Implementation: sys.pyx.
"""
from libc.stdint cimport int64_t

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len

cdef struct System:
    ssize_t (*pread)(System*, int fd, void* into, size_t size_bytes, int64_t position) noexcept nogil
    # 1 when the range is in the page cache, 0 when not
    int (*is_cached)(System*, int fd, int64_t position, int64_t size_bytes) noexcept nogil
    ssize_t (*pwritev)(System*, int fd, const iovec* parts, int part_count, int64_t position) noexcept nogil
    ssize_t (*sendfile)(System*, int socket_fd, int file_fd, int64_t position, size_t size_bytes) noexcept nogil
    int (*fdatasync)(System*, int fd) noexcept nogil
    int (*fsync_directory)(System*, const char* path) noexcept nogil
    int (*ftruncate)(System*, int fd, int64_t size_bytes) noexcept nogil
    int (*open)(System*, const char* path, int flags, int mode) noexcept nogil
    int (*close)(System*, int fd) noexcept nogil
    int (*rename)(System*, const char* source, const char* target) noexcept nogil
    int (*unlink)(System*, const char* path) noexcept nogil
    int64_t (*wall_ms)(System*) noexcept nogil
    int64_t (*monotonic_ns)(System*) noexcept nogil
    # The same files for a thread that must not wait for a disk: pread and open fail with -EAGAIN where
    # the kernel does not have the bytes, or the path, in memory.
    System* cached_only
    void* rules                 # owned by cext.memory.sys: fault rules and clock offsets

# Writes all bytes: it calls pwritev again after a short write, with at most WRITE_PIECE_BYTES each
# (larger pieces cost several times as much, because the kernel needs fresh pages). Returns 0 or
# -errno; after an error some of the bytes may be in the file.
cdef enum:
    WRITE_PIECE_BYTES = 65536

cdef int write_whole(System*, int fd, const void* bytes, int64_t size_bytes, int64_t position) noexcept nogil
# Reads up to size_bytes and returns their number, which is smaller only at the end of the file;
# -errno on failure.
cdef int64_t read_whole(System*, int fd, void* into, int64_t size_bytes, int64_t position) noexcept nogil

cdef class SystemCalls:
    """Python's handle of one table. An object that keeps `table` also keeps a reference to this."""
    cdef System table
    cdef System cached_only
