"""The state of many logs at one instant, for a snapshot of a running broker.

All logs are locked, one after the other, before the first is read: no append to any of them falls
between two of the marks. An append waits from its log's lock on until all logs are read, some
microseconds a log. No other code holds the locks of two logs, so the order does not matter.
Next on the data path: broker/storage/snapshot.py.
"""
from collections import namedtuple

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from barnabas.cext.log.leader_epochs cimport EpochEntry
from barnabas.cext.log.log cimport Log, LogMarks
from barnabas.cext.log.log_handle cimport LogHandle
from barnabas.cext.memory.mutex cimport pthread_mutex_lock, pthread_mutex_unlock

from barnabas.cext.log.log_handle import LogError

cdef enum:
    STORAGE_ERROR = 56

LogAtInstant = namedtuple(
    "LogAtInstant", "start_offset end_offset active_base active_bytes bases leader_epochs")

cdef struct Seen:
    int64_t start_offset
    LogMarks marks
    int64_t* bases          # of all segments, the active one last
    int64_t base_count
    EpochEntry* epochs
    int64_t epoch_count
    bint failed             # offline or closed, or there was no memory


cdef void _see(Log* log, Seen* seen) noexcept nogil:
    """Copies the state of a locked log."""
    cdef int64_t i
    seen.start_offset = log.start_offset
    seen.marks = log.marks
    seen.base_count = log.segments.count
    seen.bases = <int64_t*>malloc(seen.base_count * sizeof(int64_t))
    pthread_mutex_lock(&log.leader_epochs.lock)
    seen.epoch_count = log.leader_epochs.count
    seen.epochs = <EpochEntry*>malloc((seen.epoch_count + 1) * sizeof(EpochEntry))
    if seen.epochs != NULL and seen.epoch_count:
        memcpy(seen.epochs, log.leader_epochs.entries, seen.epoch_count * sizeof(EpochEntry))
    pthread_mutex_unlock(&log.leader_epochs.lock)
    seen.failed = log.offline or log.closed or seen.bases == NULL or seen.epochs == NULL
    if seen.bases != NULL:
        for i in range(seen.base_count):
            seen.bases[i] = log.segments.items[i].base_offset


def logs_at_instant(handles not None) -> tuple:
    """Returns (a LogAtInstant of each of the LogHandles, how long appends may have waited in
    nanoseconds). The caller makes sure that no log is closed meanwhile. Raises LogError when a log
    is closed or offline, MemoryError."""
    cdef list owners = list(handles)
    cdef int64_t count = len(owners), i
    cdef int64_t begun_ns, ended_ns
    cdef Log** logs = <Log**>malloc((count + 1) * sizeof(Log*))
    cdef Seen* seen = <Seen*>calloc(count + 1, sizeof(Seen))
    cdef Seen* one
    cdef LogHandle handle
    try:
        if logs == NULL or seen == NULL:
            raise MemoryError
        for i in range(count):
            handle = owners[i]
            if handle.log == NULL:
                raise LogError(STORAGE_ERROR, f"the log {handle.directory} is closed")
            logs[i] = handle.log
        if count == 0:
            return [], 0
        with nogil:
            begun_ns = logs[0].system.monotonic_ns(logs[0].system)
            for i in range(count):
                pthread_mutex_lock(&logs[i].lock)
            for i in range(count):
                _see(logs[i], &seen[i])
            for i in range(count):
                pthread_mutex_unlock(&logs[i].lock)
            ended_ns = logs[0].system.monotonic_ns(logs[0].system)
        found = []
        for i in range(count):
            one = &seen[i]
            if one.failed:
                handle = owners[i]
                raise LogError(STORAGE_ERROR, f"the log {handle.directory} is offline")
            found.append(LogAtInstant(
                one.start_offset, one.marks.end_offset, one.marks.end_base, one.marks.end_position,
                [one.bases[k] for k in range(one.base_count)],
                [(one.epochs[k].epoch, one.epochs[k].start_offset)
                 for k in range(one.epoch_count)]))
        return found, ended_ns - begun_ns
    finally:
        if seen != NULL:
            for i in range(count):
                free(seen[i].bases)
                free(seen[i].epochs)
        free(seen)
        free(logs)
