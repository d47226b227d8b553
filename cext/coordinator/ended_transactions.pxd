"""Transactions that network threads have ended, for the group coordinator.

The TransactionHandler writes markers to partitions of __consumer_offsets and notes them here; the
OffsetCommitHandler gives them to Python among the commits, in the order of each partition's log.
"""
from libc.stdint cimport int64_t

from barnabas.cext.codec.buffer cimport Buffer
from barnabas.cext.coordinator.commit_entries cimport Entries, Entry
from barnabas.cext.memory.mutex cimport pthread_mutex_t
from barnabas.cext.partition.partitions cimport Partition, Table

cdef struct Ended:
    pthread_mutex_t lock            # held while a marker is appended, counted and noted
    Entries entries

# Returns whether there is space for another marker: Python has taken enough of the earlier ones.
cdef bint ended_has_capacity(Ended* ended) noexcept nogil
# Appends a marker's batch and adds its entry, which it takes over. The caller is inside an epoch.
# Returns 0 or Kafka's error code.
cdef int ended_append(Ended* ended, Table* table, Partition* p, Buffer* batch, Entry* entry, int64_t verification) noexcept nogil

cdef class EndedTransactions:
    cdef Ended ended
