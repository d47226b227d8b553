"""What the OffsetCommit lane has committed and Python has not been told of, of one shard, and
markers that ended transactions in the same log."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from barnabas.cext.coordinator.offset_commit_request cimport Walk
from barnabas.cext.partition.partitions cimport Table

cdef enum:
    ENTRIES_MAX = 256               # of one shard: Python makes objects of them under its lock

cdef struct Entry:                  # the bytes of group, topic and metadata follow; a marker has none
    Entry* next
    int64_t log_offset
    int64_t committed_offset        # a marker's: 1 committed, 0 aborted
    int64_t commit_ms
    int64_t producer_id             # whose transaction it waits for; -1: nobody's
    int32_t leader_epoch
    int32_t index
    int32_t partition               # of the internal topic
    int32_t group_bytes
    int32_t topic_bytes
    int32_t metadata_bytes

cdef struct Entries:                # zeroed: none. In the order of each partition's log
    Entry* first
    Entry* last
    int64_t count                   # atomic; those that are announced, too

# Of the row that is read; NULL: no memory.
cdef Entry* entry_new(const Walk* w, int32_t partition, int64_t now_ms) noexcept nogil
# Of a marker in a partition of the internal topic; NULL: no memory.
cdef Entry* entry_marker(int32_t partition, int64_t producer_id, bint committed) noexcept nogil
# It and those behind it.
cdef void entry_free(Entry* entry) noexcept nogil

# All of these under the lock of their owner; those with a table inside an epoch, too.
# There will be so many more (fewer: it came to nothing), once what they are copies of is in the log.
# Before it is: who looks at the count because of what comes after it there sees them, and takes the lock.
cdef void entries_announce(Entries* entries, int64_t count) noexcept nogil
# Those that were announced.
cdef void entries_add(Entries* entries, Entry* first, Entry* last) noexcept nogil
# Those that are durable, out of the list, with `behind` at their end; the others stay.
cdef Entry* entries_take(Entries* entries, Table* table, const uint8_t* topic, int32_t topic_bytes, int64_t* taken, Entry* behind) noexcept nogil
# Drops those whose key was committed again, durably, and says how many. Not those of transactions:
# a marker may stand between them.
cdef int64_t entries_thin(Entries* entries, Table* table, const uint8_t* topic, int32_t topic_bytes) noexcept nogil
# Whether there are any of a group.
cdef bint entries_have(const Entries* entries, const uint8_t* group, int64_t group_bytes) noexcept nogil
# Drops those of a partition of the internal topic, and says how many.
cdef int64_t entries_forget(Entries* entries, int32_t partition) noexcept nogil
