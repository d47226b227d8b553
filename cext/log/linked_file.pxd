"""Copies a file of a log that has a second name, before it is changed; described in
linked_file.pyx."""
from libc.stdint cimport int64_t

from barnabas.cext.memory.sys cimport System

# Makes an open file one that has only the name `path`, with its first `size_bytes` bytes, when it
# has other names too; otherwise changes nothing. Returns 0 or -errno; after an error the file may
# be the old one or the copy, and both are sound.
cdef int own_file(System* system, const char* path, int fd, int64_t size_bytes) noexcept nogil
