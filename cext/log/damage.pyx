"""Damage in segments: bytes without a valid batch that a read or the scrub has found.

A segment keeps its damage as one range, [corrupt_from, corrupt_to), which each find extends; damage
inside the range is not reported again. The pool of the broker's segments counts the finds and keeps
the last ones for Python, which writes the log lines: a network thread never waits for a log.
Limit: FINDS_MAX finds that Python has not taken; more are counted and not kept.
Next: crc_check.pyx, scrub.pyx.
"""
import os
from collections import namedtuple

from libc.stdint cimport int64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset, strdup

from barnabas.cext.log.segment cimport FINDS_MAX, Find, SegmentCache, SegmentPool
from barnabas.cext.memory.atomics cimport atomic_store_i64
from barnabas.cext.memory.mutex cimport pthread_mutex_lock, pthread_mutex_unlock

Damage = namedtuple("Damage", "path base_offset first end")


cdef void damage_note(Segment* segment, int64_t first, int64_t end) noexcept nogil:
    cdef SegmentPool* pool = segment.pool
    cdef int64_t known
    cdef Find* find
    pthread_mutex_lock(&pool.lock)
    known = segment.corrupt_from
    if known < 0 or first < known or end > segment.corrupt_to:
        segment.corrupt_to = end if known < 0 else max(end, segment.corrupt_to)
        atomic_store_i64(&segment.corrupt_from, first if known < 0 else min(first, known))
        pool.corrupt_ranges += 1
        if pool.find_count < FINDS_MAX:
            find = &pool.finds[pool.find_count]
            find.stem = strdup(segment.stem)
            find.base_offset = segment.base_offset
            find.first = first
            find.end = end
            pool.find_count += find.stem != NULL
    pthread_mutex_unlock(&pool.lock)


def take_damage(SegmentCache cache not None) -> list:
    """Returns and removes the finds since the last call, at most FINDS_MAX. A Damage has the path
    of the .log file, its base offset, and the positions [first, end) of the bytes that contain no
    valid batch."""
    cdef Find[FINDS_MAX] finds
    cdef int64_t count, i
    with nogil:
        pthread_mutex_lock(&cache.pool.lock)
        count = cache.pool.find_count
        memcpy(finds, cache.pool.finds, count * sizeof(Find))
        memset(cache.pool.finds, 0, count * sizeof(Find))
        cache.pool.find_count = 0
        pthread_mutex_unlock(&cache.pool.lock)
    try:
        return [
            Damage(os.fsdecode(finds[i].stem) + ".log", finds[i].base_offset, finds[i].first,
                   finds[i].end)
            for i in range(count)
        ]
    finally:
        for i in range(count):
            free(finds[i].stem)


def corrupt_ranges(SegmentCache cache not None) -> int:
    """Returns how many ranges of bad bytes were found since the broker started."""
    return cache.pool.corrupt_ranges
