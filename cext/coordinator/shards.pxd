"""Tables in shards with a lock each: the groups of a node, and its transactional ids.

Each record of a table begins with a Named. Names come from clients, so the table finds a name by a
hash with a secret key; records with the same hash form a chain. A network thread holds one lock at
a time, and never waits for a disk or for the GIL while it holds one.
"""
from libc.stdint cimport int32_t, int64_t, intptr_t, uint8_t
from libc.string cimport memcmp

from barnabas.cext.codec.buffer cimport Buffer, buffer_free, buffer_init
from barnabas.cext.memory.int64_map cimport (
    Int64Map, int64_map_free, int64_map_get, int64_map_init, int64_map_put, int64_map_remove,
)
from barnabas.cext.memory.mutex cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_t,
)

cdef enum:
    SHARDS = 64                     # of a table; a power of two

cdef struct Named:                  # the first field of each record of a map by name
    Named* next                     # the next record with the same hash
    int64_t hashed
    const uint8_t* name             # in the record's own memory
    int32_t name_bytes

cdef struct Shard:
    pthread_mutex_t lock
    Int64Map records                # hash of the name: Named*
    Buffer batch                    # the batch that is appended under the lock; its memory is reused

cdef inline int64_t shard_index(int64_t hashed) noexcept nogil:
    return hashed & (SHARDS - 1)

cdef inline void shard_init(Shard* shard) noexcept nogil:
    pthread_mutex_init(&shard.lock, NULL)
    int64_map_init(&shard.records)
    buffer_init(&shard.batch)

cdef inline void shard_free(Shard* shard) noexcept nogil:
    """Frees the shard, but not its records: the caller frees them."""
    int64_map_free(&shard.records)
    buffer_free(&shard.batch)
    pthread_mutex_destroy(&shard.lock)

cdef inline Named* named_first(const Int64Map* records, int64_t place) noexcept nogil:
    """Returns the first record of the chain at a place of the map (0 to capacity - 1); NULL: the
    place is empty."""
    return <Named*><intptr_t>records.values[place] if records.used[place] else NULL

cdef inline bint named_is(const Named* record, const uint8_t* name, int32_t name_bytes) noexcept nogil:
    return record.name_bytes == name_bytes and memcmp(record.name, name, name_bytes) == 0

cdef inline Named* named_find(
    const Int64Map* records, int64_t hashed, const uint8_t* name, int32_t name_bytes
) noexcept nogil:
    """Returns the record; NULL: the map has no such name."""
    cdef Named* at = <Named*><intptr_t>int64_map_get(records, hashed, 0)
    while at != NULL and not named_is(at, name, name_bytes):
        at = at.next
    return at

cdef inline Named* named_take(
    Int64Map* records, int64_t hashed, const uint8_t* name, int32_t name_bytes
) noexcept nogil:
    """Removes a record and returns it; NULL: the map has no such name."""
    cdef Named* before = NULL
    cdef Named* at = <Named*><intptr_t>int64_map_get(records, hashed, 0)
    while at != NULL and not named_is(at, name, name_bytes):
        before = at
        at = at.next
    if at == NULL:
        return NULL
    if before != NULL:
        before.next = at.next
    elif at.next == NULL:
        int64_map_remove(records, hashed)
    else:                           # an existing key: this allocates no memory
        int64_map_put(records, hashed, <int64_t><intptr_t>at.next)
    return at

cdef inline bint named_put(Int64Map* records, Named* record) noexcept nogil:
    """Adds a record whose name the map lacks; False: no memory."""
    record.next = <Named*><intptr_t>int64_map_get(records, record.hashed, 0)
    return int64_map_put(records, record.hashed, <int64_t><intptr_t>record)
