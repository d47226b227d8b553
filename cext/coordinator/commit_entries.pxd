"""Entries of one shard of groups: offsets that the OffsetCommit handler committed and Python has
not taken yet, and markers that ended transactions in the same log."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from barnabas.cext.coordinator.offset_commit_request cimport Walk
from barnabas.cext.partition.partitions cimport Table

cdef enum:
    ENTRIES_MAX = 256               # of one shard, because Python makes objects of them under its lock.
                                    # Entries that are not durable may exceed it by one request for
                                    # each connection

cdef struct Entry:                  # the bytes of group, topic and metadata follow; a marker has none
    Entry* next
    int64_t log_offset
    int64_t committed_offset        # a marker's: 1 committed, 0 aborted
    int64_t commit_ms
    int64_t expire_ms               # -1: the broker's setting applies
    int64_t producer_id             # of the transaction that it waits for; -1: none
    int32_t leader_epoch
    int32_t index
    int32_t partition               # of the internal topic
    int32_t group_bytes
    int32_t topic_bytes
    int32_t metadata_bytes

cdef struct Entries:                # zeroed: none. In the order of each partition's log
    Entry* first
    Entry* last
    int64_t count                   # atomic; includes entries that are announced

# Makes an entry of the current row; NULL: no memory.
cdef Entry* entry_new(const Walk* w, int32_t partition, int64_t commit_ms, int64_t expire_ms) noexcept nogil
# Makes an entry of a marker in a partition of the internal topic; NULL: no memory.
cdef Entry* entry_marker(int32_t partition, int64_t producer_id, bint committed) noexcept nogil
# Frees the entry and those behind it.
cdef void entry_free(Entry* entry) noexcept nogil

# Callers of these functions hold the owner's lock; those that pass a table are inside an epoch.
# Adds to the count before the records are in the log (subtracts if the append failed). A reader of
# the count that has seen a later record of the log therefore sees these entries and locks.
cdef void entries_announce(Entries* entries, int64_t count) noexcept nogil
# Adds the announced entries.
cdef void entries_add(Entries* entries, Entry* first, Entry* last) noexcept nogil
# Takes the durable entries out of the list, followed by `behind`; the others stay.
cdef Entry* entries_take(Entries* entries, Table* table, const uint8_t* topic, int32_t topic_bytes, int64_t* taken, Entry* behind) noexcept nogil
# Drops entries whose key has a newer durable commit, and returns their number. Keeps entries of
# transactions: a marker may stand between them.
cdef int64_t entries_thin(Entries* entries, Table* table, const uint8_t* topic, int32_t topic_bytes) noexcept nogil
# Returns whether the oldest entry is durable.
cdef bint entries_are_durable(const Entries* entries, Table* table, const uint8_t* topic, int32_t topic_bytes) noexcept nogil
# Returns whether the list has entries of the group.
cdef bint entries_have(const Entries* entries, const uint8_t* group, int64_t group_bytes) noexcept nogil
# Drops the entries of a partition of the internal topic, and returns their number.
cdef int64_t entries_forget(Entries* entries, int32_t partition) noexcept nogil
