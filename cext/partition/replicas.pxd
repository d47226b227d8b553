"""The followers of one partition that this node leads; described in replicas.pyx."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from barnabas.cext.memory.mutex cimport pthread_mutex_t
from barnabas.cext.memory.sys cimport System

cdef struct Follower:
    int32_t broker_id
    bint in_isr                 # of the confirmed ISR
    bint is_joining             # of an ISR that is not confirmed yet
    # of its last fetch in this leader epoch
    int64_t log_end_offset      # its fetch offset; -1: it has not fetched
    int64_t log_start_offset    # -1: unknown
    int64_t broker_epoch        # -1: unknown
    int64_t fetched_ns
    int64_t leader_end_offset   # the leader's log end at that time
    int64_t caught_up_ns        # NEVER_NS: not in this leader epoch
    int64_t sent_high_watermark # the highest that it was sent in this leader epoch

cdef struct Replicas:           # followers, isr_size and joining_count change under the lock
    pthread_mutex_t lock
    bint closed                 # replaced, or this node does not lead any more
    int32_t leader_epoch
    int64_t epoch_start_offset  # the leader's log end at the start of its epoch
    int32_t isr_size            # of the confirmed ISR, the leader included
    int32_t joining_count
    int32_t follower_count
    Follower followers[1]       # `follower_count` of them

cdef struct LiveBroker:
    int32_t broker_id
    int64_t epoch               # -1: unknown
    uint32_t listeners          # bit i: the broker has a listener named as listener i here
    const uint8_t* rack         # UTF-8, not terminated; in the same allocation
    int32_t rack_bytes          # 0: no rack

cdef struct LiveBrokers:        # a change replaces the whole
    int32_t count
    LiveBroker brokers[1]       # `count` of them, and then their racks

cdef struct FollowerFetch:      # what a follower's fetch says
    int32_t broker_id
    int64_t broker_epoch        # -1: unknown
    int32_t leader_epoch        # -1: unknown
    int64_t offset              # between the start and the end of the leader's log
    int64_t log_start_offset    # -1: as before
    int64_t leader_end_offset   # the leader's log end, read before the records
    int64_t now_ns              # monotonic

cdef struct JoinRules:          # who may join the ISR, and for how long a follower counts as caught up
    const LiveBrokers* live     # NULL: every broker counts as live
    int64_t lag_ns_max
    System* system

cdef enum:                      # results
    REPLICAS_OK = 0
    REPLICAS_MOVED = 1          # the high watermark was raised
    REPLICAS_CLOSED = 2         # look at the partition again: it has other Replicas, or none
    REPLICAS_UNKNOWN = 3        # the broker is no follower
    REPLICAS_OLD_EPOCH = 4      # the fetch has an earlier leader epoch
    REPLICAS_NEW_EPOCH = 5      # the fetch has a leader epoch that this node does not know yet
    REPLICAS_OLD_BROKER = 6     # the fetch has an earlier broker epoch
    REPLICAS_BEHIND = 7         # a new member of the ISR is not caught up any more

cdef Follower* replicas_find(Replicas* r, int32_t broker_id) noexcept nogil
# Records a fetch. Sets *may_join when the follower is not in the ISR and may join it.
cdef int replicas_fetched(Replicas* r, const FollowerFetch* fetch, const int64_t* high_watermark,
                          const LiveBrokers* live, bint* may_join) noexcept nogil
# Raises the high watermark; REPLICAS_MOVED, REPLICAS_OK or REPLICAS_CLOSED.
cdef int replicas_raise(Replicas* r, int64_t* high_watermark, int64_t durable_end,
                        int32_t isr_size_min, const JoinRules* rules) noexcept nogil
# Returns whether the broker is in the confirmed ISR.
cdef bint replicas_is_in_isr(Replicas* r, int32_t broker_id) noexcept nogil
# Returns the number of members of the ISR, with those that are joining and the leader.
cdef int32_t replicas_isr_size_max(Replicas* r) noexcept nogil
# Replaces *at, so that no fetch and no raise is lost between the two; made may be NULL. The caller
# retires the old one.
cdef void replicas_replace(void** at, Replicas* made) noexcept nogil
# Returns the follower from which a consumer of that rack and listener should read at `offset`, -1:
# none.
cdef int32_t replicas_preferred(Replicas* r, const LiveBrokers* live, int32_t leader_id,
                                const uint8_t* rack, int32_t rack_bytes, int32_t listener_index,
                                int64_t offset) noexcept nogil
# Returns whether a high watermark is higher than those that the follower was sent, and notes that it
# is being sent.
cdef bint replicas_sends_high_watermark(Replicas* r, int32_t broker_id, int64_t high_watermark) noexcept nogil
cdef void replicas_free(void* replicas) noexcept nogil
cdef int64_t replicas_bytes(const Replicas* r) noexcept nogil

cdef Replicas* replicas_new(int32_t leader_id, object replicas, object isr, int32_t leader_epoch, int64_t log_end_offset, int64_t now_ns) except NULL
cdef int replicas_set_isr(Replicas* r, object isr, bint is_pending, const int64_t* high_watermark, const LiveBrokers* live) except -1
cdef list replicas_states(Replicas* r, int64_t now_ns)
cdef list replicas_lagging(Replicas* r, int64_t leader_end_offset, int64_t now_ns, int64_t lag_ns_max)
cdef list replicas_caught_up(Replicas* r, const int64_t* high_watermark, const LiveBrokers* live)
cdef LiveBrokers* live_brokers_new(object epochs, object racks, object listeners) except NULL
