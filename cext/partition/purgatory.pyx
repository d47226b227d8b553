"""Watches for a Python thread: one thread waits until any of many partitions changes.

A watch fires once, like those of connections (partitions.pyx): when the high watermark of its
partition moves, or the partition is removed, `wait` returns the key of the watch and removes the
watch. The caller checks the partition after it has added a watch, so that it misses no change.

Any thread may call `add` and `nudge`; one thread calls `wait`. The GIL guards the rows; the wait
releases it. Memory: one Watch (about 80 bytes) a watched partition. Limit: WATCHES_MAX.
Next on the data path: cext/partition/partitions.pyx.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uintptr_t
from libc.stdlib cimport calloc, free

from barnabas.cext.memory.atomics cimport atomic_load_i32
from barnabas.cext.memory.epoch cimport epoch_enter, epoch_leave
from barnabas.cext.partition.partitions cimport (
    LOCAL_THREAD, Partition, Table, Watch, partition_find_id, partition_unwatch, partition_watch,
    table_epochs, table_local_wakes, table_of, table_wait_local, table_wake,
)
from barnabas.cext.partition.topics cimport topic_id_bytes

WATCHES_MAX = 100_000
cdef int64_t FOR_EVER_NS = 0x7FFFFFFFFFFFFFFF


@cython.no_gc_clear         # the table's lists contain the watches
cdef class Watches:
    """The watches of one thread on partitions of a PartitionTable. Raises TypeError for another
    table."""
    cdef Table* table
    cdef object owner
    cdef dict rows          # (topic id, partition index): address of the Watch
    cdef bint nudged
    cdef bint closed

    def __cinit__(self, table not None):
        self.table = table_of(table)
        self.owner = table
        self.rows = {}

    def __len__(self):
        return len(self.rows)

    def add(self, topic_id not None, int32_t index):
        """Adds a watch on a partition unless it has one. `topic_id`: 16 bytes. Returns False when
        the table has no such partition, there are WATCHES_MAX watches, or this object is closed.
        Raises ValueError for a wrong id, MemoryError."""
        cdef bytes raw = topic_id_bytes(topic_id)
        cdef tuple key = (raw, index)
        cdef Watch* watch
        cdef Partition* found
        cdef int16_t error
        cdef int slot
        if key in self.rows:
            return True
        if self.closed or len(self.rows) >= WATCHES_MAX:
            return False
        watch = <Watch*>calloc(1, sizeof(Watch))
        if watch == NULL:
            raise MemoryError
        watch.thread_index = LOCAL_THREAD
        slot = epoch_enter(table_epochs(self.table))
        found = partition_find_id(
            self.table, <const uint8_t*>PyBytes_AS_STRING(raw), index, &error)
        if found != NULL:
            partition_watch(self.table, found, watch)
        epoch_leave(table_epochs(self.table), slot)
        if found == NULL:
            free(watch)
            return False
        self.rows[key] = <uintptr_t>watch
        return True

    def nudge(self):
        """Makes `wait` return now, or at its next call."""
        self.nudged = True
        table_wake(self.table, LOCAL_THREAD, 0)

    def wait(self):
        """Waits until a watch has fired. Returns the keys (topic id, partition index) of the fired
        watches and removes these watches; an empty list after `nudge` or `close`."""
        cdef int64_t wakes
        while True:
            wakes = table_local_wakes(self.table)
            moved = [key for key, at in self.rows.items() if not _is_linked(<uintptr_t>at)]
            for key in moved:
                free(<Watch*><uintptr_t>self.rows.pop(key))
            if moved or self.nudged or self.closed:
                self.nudged = False
                return moved
            with nogil:
                table_wait_local(self.table, wakes, FOR_EVER_NS)

    def close(self):
        """Removes all watches from the table and makes `wait` return."""
        cdef Watch* watch
        self.closed = True
        rows, self.rows = self.rows, {}
        for at in rows.values():
            watch = <Watch*><uintptr_t>at
            partition_unwatch(self.table, watch)
            free(watch)
        table_wake(self.table, LOCAL_THREAD, 0)

    def __dealloc__(self):
        if self.table != NULL and self.rows:
            for at in self.rows.values():
                partition_unwatch(self.table, <Watch*><uintptr_t>at)
                free(<Watch*><uintptr_t>at)


cdef bint _is_linked(uintptr_t at):
    return atomic_load_i32(<int32_t*>&(<Watch*>at).linked) != 0
