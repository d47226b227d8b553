"""Markers that network threads wrote for groups and Python has not taken yet: see
ended_transactions.pxd.

A thread that takes commits holds this lock together with the locks of all shards: so it takes no
marker without the commits before it in its log, and no commit behind a marker without the marker.
Limit: ENTRIES_MAX; beyond it Python must end transactions itself.
Next on the data path: cext/coordinator/offset_commit.pyx, which passes the markers to Python.
"""
from libc.stdint cimport int64_t

from barnabas.cext.coordinator.commit_entries cimport (
    ENTRIES_MAX, entries_add, entries_announce, entry_free,
)
from barnabas.cext.coordinator.coordinator_batch cimport own_batch_append
from barnabas.cext.memory.atomics cimport atomic_load_i32, atomic_load_i64
from barnabas.cext.memory.mutex cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)


cdef bint ended_has_capacity(Ended* ended) noexcept nogil:
    return atomic_load_i64(&ended.entries.count) < ENTRIES_MAX


cdef int ended_append(Ended* ended, Table* table, Partition* p, Buffer* batch, Entry* entry, int64_t verification) noexcept nogil:
    cdef int status
    pthread_mutex_lock(&ended.lock)
    entries_announce(&ended.entries, 1)
    status = own_batch_append(
        table, p, batch, atomic_load_i32(&p.leader_epoch), &entry.log_offset, verification)
    if status == 0:
        entries_add(&ended.entries, entry, entry)
    else:
        entries_announce(&ended.entries, -1)
        entry_free(entry)
    pthread_mutex_unlock(&ended.lock)
    return status


cdef class EndedTransactions:
    """The ended transactions of one broker."""

    def __cinit__(self):
        pthread_mutex_init(&self.ended.lock, NULL)

    def __init__(self):
        pass

    def __dealloc__(self):
        entry_free(self.ended.entries.first)
        pthread_mutex_destroy(&self.ended.lock)

    @property
    def waiting(self) -> int:
        return atomic_load_i64(&self.ended.entries.count)
