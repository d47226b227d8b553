"""Renames a segment's four files when the segment is dropped or replaced.

Dropping begins with the .log: without it the other files belong to no segment. Replacing ends with
the .log: when it has its new name, the others have theirs. A crash in between leaves names that
cext/log/log_files.py repairs. Next on the data path: cext/log/segment.pyx.
"""
from libc.stdio cimport snprintf

from barnabas.cext.memory.atomics cimport atomic_store_i32

cdef extern from "<errno.h>" nogil:
    int ENOENT

cdef enum:
    PATH_BYTES_MAX = 4096


cdef int _rename(
    const char* stem, System* system, const char* suffix, const char* ending, const char* target
) noexcept nogil:
    """Renames a file; an absent file is no error."""
    cdef char source_path[PATH_BYTES_MAX]
    cdef char target_path[PATH_BYTES_MAX]
    cdef int status
    snprintf(source_path, PATH_BYTES_MAX, "%s%s%s", stem, suffix, ending)
    snprintf(target_path, PATH_BYTES_MAX, "%s%s%s", stem, suffix, target)
    status = system.rename(system, source_path, target_path)
    return 0 if status == -ENOENT else status


cdef int segment_rename_all(
    const char* stem, System* system, const char* ending, const char* target
) noexcept nogil:
    cdef const char** suffixes = [".txnindex", ".timeindex", ".index", ".log"]
    cdef int status = 0, i = 0
    while i < 4 and status == 0:
        status = _rename(stem, system, suffixes[i], ending, target)
        i += 1
    return status


cdef int segment_rename_deleted(Segment* segment, System* system, bint cut_off) noexcept nogil:
    cdef const char** suffixes = [".log", ".index", ".timeindex", ".txnindex"]
    cdef int status = 0, i = 0
    if cut_off:
        atomic_store_i32(&segment.cut_off, 1)
    while i < 4 and status == 0:
        status = _rename(segment.stem, system, suffixes[i], "", ".deleted")
        i += 1
    return status
