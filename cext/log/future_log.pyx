"""Puts a future log, a copy in another log directory, in the place of the current log (KIP-113).

The current log keeps its Log object, to which the partition table, waiting requests and the group
commit point. It also keeps what only memory has: producers, verifications and leader epochs. It
gets the future log's directory, segments and marks:

    1. Under the current log's lock, so that appends wait: copies the records that the future log
       does not have yet, at most `bytes_max`, and flushes the future log.
    2. Renames the future log's directory, and gives its segments the new path. Only the owner of
       the future log uses these segments until now.
    3. Exchanges the segment lists between two changes of `truncations`, so that readers begin
       again, and brings the new name to disk before the lock is released.

Afterwards the handle of the future log has the replaced files; its close() waits for the last
readers. A crash before the rename leaves the current log; after it, broker/storage/future_logs.py
tells the two directories apart. No record is acknowledged before the new name is on disk.

Kafka: LogManager.replaceCurrentWithFutureLog. Next on the data path: cext/log/follower_append.pyx.
"""
import os

from libc.stdint cimport INT32_MAX, INT64_MAX, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport strdup, strlen

from barnabas.cext.log.follower_append cimport FollowerAppend, log_append_as_follower
from barnabas.cext.log.log cimport (
    Log, LogMarks, LogSlice, SegmentList, log_end_offset, log_flush, log_marks, log_publish,
    log_read, log_start_offset,
)
from barnabas.cext.log.log_handle cimport LogHandle
from barnabas.cext.log.offline cimport mark_offline
from barnabas.cext.log.segment cimport Segment, segment_fd, segment_release
from barnabas.cext.memory.atomics cimport atomic_add_i64, atomic_store_pointer
from barnabas.cext.memory.epoch cimport epoch_enter, epoch_leave
from barnabas.cext.memory.mutex cimport pthread_mutex_lock, pthread_mutex_unlock
from barnabas.cext.memory.sys cimport read_whole

from barnabas.cext.log.log_handle import LogError

cdef enum:
    COPY_BYTES = 1 << 20        # of one read; a larger batch is read whole
    STORAGE_ERROR = 56
    SAME = 1                    # the logs have the same records
    BEHIND = 0                  # the future log must copy more, or truncate, first


cdef int64_t _copy_next(Log* log, Log* future) noexcept nogil:
    """Copies the next batches. Returns their bytes, 0 when none was appended, or -errno. The caller
    holds the current log's lock, which readers do not need."""
    cdef LogSlice slice
    cdef FollowerAppend appended
    cdef uint8_t* records
    cdef int64_t got
    cdef int slot = epoch_enter(log.epochs)
    cdef int status = log_read(
        log, max(log_end_offset(future), log_start_offset(log)), COPY_BYTES, INT64_MAX, True, &slice)
    epoch_leave(log.epochs, slot)
    if status != 0 or slice.segment == NULL:
        return -5 if status != 0 else 0
    records = <uint8_t*>malloc(slice.size_bytes)
    got = -12
    if records != NULL:
        got = segment_fd(slice.segment, log.system)
        if got >= 0:
            got = read_whole(log.system, <int>got, records, slice.size_bytes, slice.position)
    segment_release(slice.segment)
    if got >= 0:
        status = log_append_as_follower(future, records, got, INT32_MAX, &appended)
        got = appended.size_bytes if status == 0 else -5
    free(records)
    return got


cdef int _catch_up(Log* log, Log* future, int64_t truncated_to, int64_t bytes_max) noexcept nogil:
    """Copies the rest and flushes the future log. Returns SAME, BEHIND or -errno."""
    cdef int64_t copied = 0, got
    cdef int64_t end_offset = log_end_offset(future)
    if end_offset > truncated_to or end_offset > log_end_offset(log):
        return BEHIND
    while log_end_offset(future) < log_end_offset(log):
        got = _copy_next(log, future)
        if got <= 0:
            return <int>got
        copied += got
        if copied > bytes_max:
            return BEHIND
    return SAME if log_flush(future) == 0 else -5


cdef void _exchange(Log* log, Log* future, char* directory) noexcept nogil:
    """Gives the current log the files of the future log, which are in `directory` now, and the
    other way round. The caller holds the locks of the current log, and owns the future log."""
    cdef SegmentList* segments = future.segments
    cdef SegmentList* replaced = log.segments
    cdef LogMarks marks = log_marks(future)
    cdef LogMarks replaced_marks = log_marks(log)
    cdef Segment* segment
    cdef int64_t i
    cdef size_t room = strlen(directory) + 32
    for i in range(segments.count):         # the new path is not longer than the old one
        segment = segments.items[i]
        snprintf(segment.stem, room, "%s/%020lld", directory, <long long>segment.base_offset)
    future.segments = replaced
    atomic_store_pointer(<void**>&log.segments, segments)
    log_publish(future, &replaced_marks)
    log_publish(log, &marks)
    free(future.directory)
    future.directory, log.directory = log.directory, directory
    future.new_files, log.new_files = log.new_files, future.new_files
    future.snapshot_offset, log.snapshot_offset = log.snapshot_offset, future.snapshot_offset
    log.cut_is_due = False


cdef int _replace(
    Log* log, Log* future, const int64_t* truncated_to, char* directory, const char* parent,
    int64_t bytes_max,
) noexcept nogil:
    """Returns SAME after the exchange, which takes over `directory`; BEHIND or -errno without
    one."""
    cdef int status
    pthread_mutex_lock(&log.flushing)
    pthread_mutex_lock(&log.lock)
    status = -5 if log.offline or log.closed or future.offline or future.closed else (
        _catch_up(log, future, truncated_to[0], bytes_max))
    if status == SAME:
        atomic_add_i64(&log.truncations, 1)
        status = log.system.rename(log.system, future.directory, directory)
        if status == 0:
            status = SAME
            _exchange(log, future, directory)
        atomic_add_i64(&log.truncations, 1)
        if status == SAME and log.system.fsync_directory(log.system, parent) < 0:
            mark_offline(&log.offline)
    pthread_mutex_unlock(&log.lock)
    pthread_mutex_unlock(&log.flushing)
    return status


def replace_with_future(LogHandle current not None, LogHandle future not None,
                        directory not None, int64_t bytes_max) -> bool:
    """Copies the records that the future log does not have yet, at most about `bytes_max` bytes,
    while appends to the current log wait. Then renames the future log's directory to `directory`
    and serves it as the current log. Afterwards `future` is the handle of the replaced files.

    Returns False, and changes nothing but the future log, when more is missing, or when the future
    log may have records that a truncation of the current one removed. When the new name cannot be brought to disk,
    the log is offline, as after a failed flush. Raises LogError (KAFKA_STORAGE_ERROR), ValueError
    for a path that is longer than the future log's, MemoryError. Only the caller may use `future`,
    and no thread may compact the current log."""
    cdef bytes path = os.fsencode(directory)
    cdef bytes parent = os.fsencode(os.path.dirname(os.fsdecode(path)))
    cdef const char* parent_path = parent
    cdef char* owned
    cdef int status
    if current.log == NULL or future.log == NULL:
        raise LogError(STORAGE_ERROR, f"{current.directory} or its future log is closed")
    if len(path) > len(os.fsencode(future.directory)):
        raise ValueError(f"{os.fsdecode(path)} is longer than {future.directory}")
    owned = strdup(path)
    if owned == NULL:
        raise MemoryError
    with nogil:
        status = _replace(
            current.log, future.log, &current.truncated_to, owned, parent_path, bytes_max)
    if status != SAME:
        free(owned)
    if status < 0:
        raise LogError(
            STORAGE_ERROR,
            f"cannot replace {current.directory} by {future.directory}: {os.strerror(-status)}")
    if status == SAME:
        future.directory, current.directory = current.directory, os.fsdecode(path)
        future.holds_deleted, current.holds_deleted = current.holds_deleted, future.holds_deleted
    return status == SAME
