"""Topics of the partition table: found by name and by id without a lock, inside an epoch."""
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t

from barnabas.cext.memory.counters cimport TopicCounters
from barnabas.cext.memory.epoch cimport EpochDomain

cdef struct ProducePolicy:          # of the topic's configuration; read without a lock, replaced whole
    int64_t message_bytes_max       # max.message.bytes
    int64_t timestamp_before_max_ms
    int64_t timestamp_after_max_ms
    int64_t decompressed_bytes_max  # max.decompressed.bytes
    int8_t append_time              # message.timestamp.type=LogAppendTime
    int8_t requires_keys            # cleanup.policy has compact
    int8_t internal                 # a coordinator's journal: clients do not write to it
    int8_t codec                    # compression.type: -1 producer, else 0..4
    int16_t min_insync_replicas
    int8_t produce_intercepted      # a plugin looks at what is appended
    int8_t fetch_intercepted        # a plugin looks at what is fetched

cdef struct Entries:
    int32_t capacity
    void* at[1]                     # partitions, NULL where there is none; as many as capacity

cdef struct Topic:
    const char* name
    int32_t name_bytes
    uint8_t id[16]
    uint64_t name_hash
    uint64_t id_hash
    void* entries                   # Entries*
    int32_t partition_count
    int64_t refs                    # the table's and its partitions'
    ProducePolicy* policy
    TopicCounters counters

cdef struct Map:
    uint64_t mask
    int64_t used                    # slots with a topic or a tombstone
    int64_t topics
    void* slots[1]                  # Topic*, NULL or a tombstone; as many as mask + 1

cdef Map* map_new(uint64_t size) noexcept nogil
# The maps are given by where they are published: it may be another one after adding.
cdef bint map_add(EpochDomain* epochs, void** published, Topic* topic, bint by_id) noexcept nogil
cdef void map_remove(void** published, Topic* topic, bint by_id) noexcept nogil
cdef Topic* map_topic(Map* map, uint64_t slot) noexcept nogil     # NULL for an empty slot, a tombstone
cdef Topic* topic_by_name(void** published, uint64_t seed, const uint8_t* name, int32_t size) noexcept nogil
cdef Topic* topic_by_id(void** published, uint64_t seed, const uint8_t* topic_id) noexcept nogil
cdef void* topic_entry(Topic* topic, int32_t index) noexcept nogil
cdef bint topic_reserve(EpochDomain* epochs, Topic* topic, int32_t index) noexcept nogil
cdef void topic_release(void* topic) noexcept nogil     # gives one reference back, after a grace period

cdef bytes topic_name_bytes(str name)
cdef bytes topic_id_bytes(object topic_id)
cdef Topic* topic_new(uint64_t seed, bytes raw, bytes raw_id, dict policy) except NULL
cdef ProducePolicy* policy_new(dict changes, const ProducePolicy* old) except NULL
