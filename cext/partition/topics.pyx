"""Topics of the partition table: two hash maps of published pointers, and arrays of partitions.

Readers follow published pointers inside an epoch and never lock; changes are made one at a time,
under the table's mutex. Memory that a reader may still use is retired through the epoch.

A map uses open addressing with linear probing: adding writes one slot, removing leaves a tombstone,
and a map that would become more than half full is replaced by a new one. A random seed for each
table prevents that a client creates topics whose names all have the same hash.
Next on the data path: cext/partition/partitions.pyx.
"""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from barnabas.cext.memory.atomics cimport atomic_add_i64, atomic_load_pointer, atomic_store_pointer
from barnabas.cext.memory.counters cimport counters_free
from barnabas.cext.memory.epoch cimport EpochDomain, epoch_retire

cdef Topic _gone                # its address is the tombstone; it is never written
cdef void* TOMBSTONE = &_gone


# ----------------------------------------------------------------------------------- the maps

cdef inline uint64_t _mix(uint64_t h) noexcept nogil:
    h ^= h >> 33
    h *= 0xFF51AFD7ED558CCDu
    return h ^ (h >> 33)

cdef inline uint64_t _name_hash(uint64_t seed, const uint8_t* name, int32_t size) noexcept nogil:
    cdef uint64_t h = seed
    cdef uint64_t word
    while size >= 8:
        memcpy(&word, name, 8)
        h = _mix(h ^ word)
        name += 8
        size -= 8
    word = <uint64_t>size
    if size:
        memcpy(<uint8_t*>&word + 1, name, size)
    return _mix(h ^ word)

cdef inline uint64_t _id_hash(uint64_t seed, const uint8_t* topic_id) noexcept nogil:
    cdef uint64_t words[2]
    memcpy(words, topic_id, 16)
    return _mix(_mix(seed ^ words[0]) ^ words[1])

cdef Map* map_new(uint64_t size) noexcept nogil:
    cdef Map* made = <Map*>calloc(1, sizeof(Map) + (size - 1) * sizeof(void*))
    if made != NULL:
        made.mask = size - 1
    return made

cdef Topic* topic_by_name(void** published, uint64_t seed, const uint8_t* name, int32_t size) noexcept nogil:
    cdef uint64_t h = _name_hash(seed, name, size)
    cdef Map* map = <Map*>atomic_load_pointer(published)
    cdef uint64_t i = h & map.mask
    cdef Topic* topic
    while True:
        topic = <Topic*>atomic_load_pointer(&map.slots[i])
        if topic == NULL:
            return NULL
        if (topic != TOMBSTONE and topic.name_hash == h and topic.name_bytes == size
                and memcmp(topic.name, name, size) == 0):
            return topic
        i = (i + 1) & map.mask

cdef Topic* topic_by_id(void** published, uint64_t seed, const uint8_t* topic_id) noexcept nogil:
    cdef Map* map = <Map*>atomic_load_pointer(published)
    cdef uint64_t i = _id_hash(seed, topic_id) & map.mask
    cdef Topic* topic
    while True:
        topic = <Topic*>atomic_load_pointer(&map.slots[i])
        if topic == NULL:
            return NULL
        if topic != TOMBSTONE and memcmp(topic.id, topic_id, 16) == 0:
            return topic
        i = (i + 1) & map.mask

cdef Topic* map_topic(Map* map, uint64_t slot) noexcept nogil:
    cdef Topic* topic = <Topic*>map.slots[slot]
    return NULL if topic == TOMBSTONE else topic

cdef inline uint64_t _hash_in(const Topic* topic, bint by_id) noexcept nogil:
    return topic.id_hash if by_id else topic.name_hash

cdef void _map_put(Map* map, Topic* topic, bint by_id) noexcept nogil:
    """Stores a topic in an empty slot, never in a tombstone, because a reader may be searching past
    that one."""
    cdef uint64_t i = _hash_in(topic, by_id) & map.mask
    while map.slots[i] != NULL:
        i = (i + 1) & map.mask
    map.used += 1
    map.topics += 1
    atomic_store_pointer(&map.slots[i], topic)

cdef bint map_add(EpochDomain* epochs, void** published, Topic* topic, bint by_id) noexcept nogil:
    cdef Map* map = <Map*>published[0]
    cdef Map* grown
    cdef uint64_t i, size
    if (map.used + 1) * 2 > <int64_t>(map.mask + 1):
        size = 16
        while size < <uint64_t>(map.topics + 1) * 4:
            size *= 2
        grown = map_new(size)
        if grown == NULL:
            return False
        for i in range(map.mask + 1):
            if map.slots[i] != NULL and map.slots[i] != TOMBSTONE:
                _map_put(grown, <Topic*>map.slots[i], by_id)
        _map_put(grown, topic, by_id)
        atomic_store_pointer(published, grown)
        epoch_retire(epochs, map, free)
        return True
    _map_put(map, topic, by_id)
    return True

cdef void map_remove(void** published, Topic* topic, bint by_id) noexcept nogil:
    cdef Map* map = <Map*>published[0]
    cdef uint64_t i = _hash_in(topic, by_id) & map.mask
    while map.slots[i] != NULL:
        if map.slots[i] == topic:
            map.topics -= 1
            atomic_store_pointer(&map.slots[i], TOMBSTONE)
            return
        i = (i + 1) & map.mask


# ------------------------------------------------------------- creation and freeing of topics

cdef void topic_release(void* pointer) noexcept nogil:
    """Releases one reference. The epoch calls it after a grace period, when no reader can use the
    pointer any more."""
    cdef Topic* topic = <Topic*>pointer
    if atomic_add_i64(&topic.refs, -1) == 0:
        free(<void*>topic.name)
        free(topic.entries)
        free(topic.policy)
        counters_free(&topic.counters)
        free(topic)

cdef void* topic_entry(Topic* topic, int32_t index) noexcept nogil:
    cdef Entries* entries = <Entries*>atomic_load_pointer(&topic.entries)
    if index < 0 or entries == NULL or index >= entries.capacity:
        return NULL
    return atomic_load_pointer(&entries.at[index])

cdef bint topic_reserve(EpochDomain* epochs, Topic* topic, int32_t index) noexcept nogil:
    cdef Entries* entries = <Entries*>topic.entries
    cdef Entries* grown
    cdef int32_t i, had = 0 if entries == NULL else entries.capacity
    cdef int32_t capacity = had if had else 1
    if index < had:
        return True
    while capacity <= index:
        capacity *= 2
    grown = <Entries*>calloc(1, sizeof(Entries) + (capacity - 1) * sizeof(void*))
    if grown == NULL:
        return False
    grown.capacity = capacity
    for i in range(had):
        grown.at[i] = entries.at[i]
    atomic_store_pointer(&topic.entries, grown)
    if entries != NULL:
        epoch_retire(epochs, entries, free)
    return True




# ------------------------------------------------------------------------------ values from Python

cdef bytes topic_name_bytes(str name):
    cdef bytes raw = name.encode()
    if not 0 < len(raw) <= 32767:
        raise ValueError(f"a topic name has {len(raw)} bytes; it must have 1 to 32767")
    return raw


cdef bytes topic_id_bytes(topic_id):
    cdef bytes raw = bytes(topic_id)
    if len(raw) != 16 or raw == bytes(16):
        raise ValueError(f"topic id is {raw.hex()}; it must have 16 bytes, not all zero")
    return raw


cdef ProducePolicy* policy_new(dict changes, const ProducePolicy* old) except NULL:
    """Makes a policy with the values of `old` (NULL: Kafka's defaults), except for the changes."""
    cdef ProducePolicy rules
    cdef ProducePolicy* made
    if old != NULL:
        rules = old[0]
    else:
        rules.message_bytes_max = 1048588
        rules.timestamp_before_max_ms = INT64_MAX
        rules.timestamp_after_max_ms = 3600000
        rules.decompressed_bytes_max = 64 * 1024 * 1024
        rules.append_time = False
        rules.requires_keys = False
        rules.internal = False
        rules.codec = -1
        rules.codec_level = 0
        rules.min_insync_replicas = 1
        rules.produce_intercepted = False
        rules.fetch_intercepted = False
        rules.down_converts = True
    for name, value in changes.items():
        if name == "message_bytes_max":
            rules.message_bytes_max = value
        elif name == "timestamp_before_max_ms":
            rules.timestamp_before_max_ms = value
        elif name == "timestamp_after_max_ms":
            rules.timestamp_after_max_ms = value
        elif name == "decompressed_bytes_max":
            rules.decompressed_bytes_max = value
        elif name == "append_time":
            rules.append_time = bool(value)
        elif name == "requires_keys":
            rules.requires_keys = bool(value)
        elif name == "internal":
            rules.internal = bool(value)
        elif name == "codec":
            if not -1 <= value <= 4:
                raise ValueError(f"codec is {value}; it must be -1 (the producer's) to 4")
            rules.codec = value
        elif name == "codec_level":
            rules.codec_level = value
        elif name == "min_insync_replicas":
            rules.min_insync_replicas = value
        elif name == "produce_intercepted":
            rules.produce_intercepted = bool(value)
        elif name == "fetch_intercepted":
            rules.fetch_intercepted = bool(value)
        elif name == "down_converts":
            rules.down_converts = bool(value)
        else:
            raise TypeError(f"{name} is no policy: see PartitionTable.set_policy")
    made = <ProducePolicy*>malloc(sizeof(ProducePolicy))
    if made == NULL:
        raise MemoryError
    made[0] = rules
    return made


cdef Topic* topic_new(uint64_t seed, bytes raw, bytes raw_id, dict policy) except NULL:
    cdef ProducePolicy* rules = policy_new(policy, NULL)
    cdef Topic* topic = <Topic*>calloc(1, sizeof(Topic))
    cdef char* name = <char*>malloc(len(raw))
    if topic == NULL or name == NULL:
        free(rules)
        free(topic)
        free(name)
        raise MemoryError
    memcpy(name, PyBytes_AS_STRING(raw), len(raw))
    memcpy(topic.id, PyBytes_AS_STRING(raw_id), 16)
    topic.name = name
    topic.name_bytes = <int32_t>len(raw)
    topic.name_hash = _name_hash(seed, <const uint8_t*>name, topic.name_bytes)
    topic.id_hash = _id_hash(seed, topic.id)
    topic.policy = rules
    topic.refs = 1
    return topic
