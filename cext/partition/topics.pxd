"""Topics of the partition table: found by name and by id without a lock, inside an epoch."""
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t

from barnabas.cext.memory.counters cimport TopicCounters
from barnabas.cext.memory.epoch cimport EpochDomain

# A part of a topic's configuration. Threads read it without a lock; a change replaces the whole.
cdef struct ProducePolicy:
    int64_t message_bytes_max       # max.message.bytes
    int64_t timestamp_before_max_ms
    int64_t timestamp_after_max_ms
    int64_t decompressed_bytes_max  # max.decompressed.bytes
    int8_t append_time              # message.timestamp.type=LogAppendTime
    int8_t requires_keys            # cleanup.policy has compact
    int8_t internal                 # a coordinator's topic: clients cannot produce to it
    int8_t codec                    # compression.type: -1: the producer's, otherwise 0 to 4
    int32_t codec_level             # compression.CODEC.level, as Kafka counts it; for codecs with levels
    int16_t min_insync_replicas
    int8_t produce_intercepted      # a plugin intercepts Produce
    int8_t fetch_intercepted        # a plugin intercepts Fetch
    int8_t down_converts            # message.downconversion.enable

cdef struct Entries:
    int32_t capacity
    void* at[1]                     # `capacity` partitions, NULL where there is none

cdef struct Topic:
    const char* name
    int32_t name_bytes
    uint8_t id[16]
    uint64_t name_hash
    uint64_t id_hash
    void* entries                   # Entries*
    int32_t partition_count         # of this node
    int32_t cluster_partitions      # atomic; of the whole cluster, with indexes from 0
    int64_t refs                    # of the table and of its partitions
    ProducePolicy* policy
    TopicCounters counters

cdef struct Map:
    uint64_t mask
    int64_t used                    # slots with a topic or a tombstone
    int64_t topics
    void* slots[1]                  # mask + 1 slots: Topic*, NULL or a tombstone

cdef Map* map_new(uint64_t size) noexcept nogil
# `published` is the address of the map's pointer, because map_add may replace the map. False: no
# memory.
cdef bint map_add(EpochDomain* epochs, void** published, Topic* topic, bint by_id) noexcept nogil
cdef void map_remove(void** published, Topic* topic, bint by_id) noexcept nogil
# Returns the topic in a slot, NULL for an empty slot or a tombstone.
cdef Topic* map_topic(Map* map, uint64_t slot) noexcept nogil
cdef Topic* topic_by_name(void** published, uint64_t seed, const uint8_t* name, int32_t size) noexcept nogil
cdef Topic* topic_by_id(void** published, uint64_t seed, const uint8_t* topic_id) noexcept nogil
# Returns a topic's partition, NULL when it has none with this index.
cdef void* topic_entry(Topic* topic, int32_t index) noexcept nogil
# Makes the array large enough for a partition index. Returns False without memory.
cdef bint topic_reserve(EpochDomain* epochs, Topic* topic, int32_t index) noexcept nogil
# Releases one reference, after a grace period of the epoch.
cdef void topic_release(void* topic) noexcept nogil

cdef bytes topic_name_bytes(str name)
cdef bytes topic_id_bytes(object topic_id)
cdef Topic* topic_new(uint64_t seed, bytes raw, bytes raw_id, dict policy) except NULL
cdef ProducePolicy* policy_new(dict changes, const ProducePolicy* old) except NULL
