"""Who may use the descriptors that the system allows this process (RLIMIT_NOFILE): descriptors.pyx."""
from libc.stdint cimport int64_t

# Opens a file of a log, never a link, for which close() is log_file_close(). Returns the descriptor,
# or -errno: -EMFILE when log files hold all descriptors that they may.
cdef int log_file_open(const char* path, int flags, int mode) noexcept nogil
# The same without waiting for the disk: -EAGAIN when the kernel does not have the path in memory.
cdef int log_file_open_cached(const char* path, int flags, int mode) noexcept nogil
# Returns 0 or -errno.
cdef int log_file_close(int fd) noexcept nogil
# The descriptor of a connection is less.
cdef int64_t connection_descriptors_end() noexcept nogil
