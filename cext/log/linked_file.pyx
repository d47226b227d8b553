"""Files of a log that have a second name: no byte of them is changed.

A snapshot of a running broker, and a log directory that was taken over by links, share sealed files
with their origin: both directories name the same file. So each place that writes to a file of a log
which an earlier process or a roll may have completed calls `own_file` first. It copies a file with
several names to NAME.own, brings that to disk, renames it over NAME, and makes the open descriptor
refer to the copy. The other names keep the file as it was. Renaming and unlinking change names only
and need no copy.

A crash leaves the old file or the copy under the name, and NAME.own, which the next opening deletes.
Next on the data path: cext/log/segment.pyx.
"""
from libc.stdint cimport int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport strrchr

from barnabas.cext.memory.sys cimport read_whole, write_whole

cdef extern from "<fcntl.h>" nogil:
    int O_RDWR, O_CREAT, O_TRUNC

cdef extern from "<errno.h>" nogil:
    int ENOMEM, EIO

cdef extern from "filemap.h" nogil:
    int file_has_other_names(int fd)
    int file_copy_modified(int source, int target)
    int file_take_over(int target, int source)

cdef enum:
    PATH_BYTES_MAX = 4096
    PIECE_BYTES = 262144


cdef int _copy(System* system, int source, int target, int64_t size_bytes) noexcept nogil:
    cdef uint8_t* piece = <uint8_t*>malloc(PIECE_BYTES)
    cdef int64_t position = 0, wanted, got
    cdef int status = 0 if piece != NULL else -ENOMEM
    while status == 0 and position < size_bytes:
        wanted = min(size_bytes - position, <int64_t>PIECE_BYTES)
        got = read_whole(system, source, piece, wanted, position)
        if got == wanted:
            status = write_whole(system, target, piece, got, position)
        else:
            status = <int>got if got < 0 else -EIO
        position += wanted
    free(piece)
    return status


cdef int _sync_directory_of(System* system, const char* path) noexcept nogil:
    cdef char directory[PATH_BYTES_MAX]
    cdef const char* slash = strrchr(path, b"/")
    if slash == NULL:
        return system.fsync_directory(system, ".")
    snprintf(directory, PATH_BYTES_MAX, "%.*s", <int>(slash - path), path)
    return system.fsync_directory(system, directory)


cdef int own_file(System* system, const char* path, int fd, int64_t size_bytes) noexcept nogil:
    cdef char made_path[PATH_BYTES_MAX]
    cdef int made
    cdef int status = file_has_other_names(fd)
    if status <= 0:
        return status
    snprintf(made_path, PATH_BYTES_MAX, "%s.own", path)
    made = system.open(system, made_path, O_RDWR | O_CREAT | O_TRUNC, 0o644)
    if made < 0:
        return made
    status = _copy(system, fd, made, size_bytes)
    if status == 0:
        status = file_copy_modified(fd, made)
    if status == 0:
        status = system.fdatasync(system, made)
    if status == 0:
        status = system.rename(system, made_path, path)
    if status == 0:
        status = _sync_directory_of(system, path)
    if status == 0:
        status = file_take_over(fd, made)
    system.close(system, made)
    return status
