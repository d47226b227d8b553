"""Failures of the disk under a log's writes: what failed, on which file, how often.

A network thread or a flush thread notes a failure and continues; once a second Python takes the
notes and writes the log lines (broker/storage/failure_log.py). The same failure of the same file is
one row with a count. Limit: FAILURES_MAX rows that Python has not taken; more failures are only
counted. Next: damage.pyx, which does the same for bad bytes.
"""
import os
from collections import namedtuple

from libc.stdint cimport int64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset, strcmp, strdup

from barnabas.cext.log.segment cimport FAILURES_MAX, FailedCall, SegmentCache, SegmentPool
from barnabas.cext.memory.mutex cimport pthread_mutex_lock, pthread_mutex_unlock

FAILED_WHAT = ("write", "open", "cut", "flush")
Failure = namedtuple("Failure", "what path errno times")


cdef void failed_call_note(SegmentPool* pool, const char* stem, int what, int status) noexcept nogil:
    cdef FailedCall* row
    cdef int64_t i
    pthread_mutex_lock(&pool.lock)
    pool.failures_total += 1
    for i in range(pool.failure_count):
        row = &pool.failures[i]
        if row.what == what and row.status == status and strcmp(row.stem, stem) == 0:
            row.count += 1
            break
    else:
        if pool.failure_count < FAILURES_MAX:
            row = &pool.failures[pool.failure_count]
            row.stem = strdup(stem)
            row.what = what
            row.status = status
            row.count = 1
            pool.failure_count += row.stem != NULL
    pthread_mutex_unlock(&pool.lock)


def take_failures(SegmentCache cache not None) -> list:
    """Returns and removes the failures since the last call, at most FAILURES_MAX. A Failure has one
    of FAILED_WHAT, the path of the .log file, errno, and how often it happened."""
    cdef FailedCall[FAILURES_MAX] rows
    cdef int64_t count, i
    with nogil:
        pthread_mutex_lock(&cache.pool.lock)
        count = cache.pool.failure_count
        memcpy(rows, cache.pool.failures, count * sizeof(FailedCall))
        memset(cache.pool.failures, 0, count * sizeof(FailedCall))
        cache.pool.failure_count = 0
        pthread_mutex_unlock(&cache.pool.lock)
    try:
        return [
            Failure(FAILED_WHAT[rows[i].what], os.fsdecode(rows[i].stem) + ".log", -rows[i].status,
                    rows[i].count)
            for i in range(count)
        ]
    finally:
        for i in range(count):
            free(rows[i].stem)


def failures_total(SegmentCache cache not None) -> int:
    """Returns how many calls failed since the broker started."""
    return cache.pool.failures_total
