"""The partitions of a coordinator's log on this node: not led, loading, or led and loaded.

The hash of an id chooses its partition, and the leader of the partition coordinates the id. Python
(coordinator/journal.py) writes the states; network threads read them without a lock.
"""
from libc.stdint cimport int16_t, int32_t, uint8_t

cdef enum:
    PARTITION_NOT_LED = 0
    PARTITION_LOADING = 1
    PARTITION_LED = 2

cdef struct PartitionState:         # the states of one coordinator's log
    int32_t count                   # atomic; 0: there is no topic
    void* states                    # atomic: int32_t of each partition, atomic too

# Returns Java's String.hashCode of a UTF-8 text, made positive as Kafka's Utils.abs does; -1: it is
# not UTF-8.
cdef int32_t java_string_hash(const uint8_t* p, int32_t n) noexcept nogil
# Returns the partition of an id; -1: there is no topic, or the id is not UTF-8.
cdef int32_t states_partition_of(PartitionState* log, const uint8_t* id, int32_t id_bytes) noexcept nogil
# Returns 0 if this node serves the partition's ids, otherwise NOT_COORDINATOR or
# COORDINATOR_LOAD_IN_PROGRESS. `partition` -1: there is none, as states_partition_of says.
cdef int16_t states_error(PartitionState* log, int32_t partition) noexcept nogil

cdef class PartitionStates:
    cdef PartitionState log
    cdef list arrays                # all arrays so far: a reader may still use an earlier one
    cdef int32_t capacity
    cdef grow(self, int32_t count, int32_t known)
