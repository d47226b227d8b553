"""The followers of one partition that this node leads, and the high watermark that they allow.

A follower's fetch offset is the end of its log: it has everything below. The leader keeps for each
follower the offset and time of its last fetch, and when it was last caught up. A follower is caught
up when it fetches at or above the leader's present log end. Because records may come faster than
fetches, it also counts as caught up at the time of its previous fetch when it now fetches at or
above the leader's log end of that time.

The high watermark is the minimum of the leader's own durable end and the log ends of the ISR. Also
counted are followers that are joining the ISR and not confirmed yet (the maximal ISR of KIP-497),
and live followers that were caught up within replica.lag.time.max.ms: otherwise the high watermark
of a busy partition would stay ahead of a follower that wants to join. A follower that leaves the
ISR has to catch up again, so that the high watermark does not wait for a broker that died. The high
watermark does not move while a member of the ISR has not fetched in this leader epoch, or while the
confirmed ISR has fewer members than min.insync.replicas, as in Kafka since 3.7.

A follower may join the ISR when its log end is at or above the high watermark and the start of this
leader epoch, its broker is live, and its last fetch came from the present run of that broker
(KIP-903). The high watermark moves only under the lock, so that a follower that joins cannot fall
behind it at the same time.

A consumer that names its rack may read from a follower of that rack (KIP-392) that is in the ISR,
has the offset, and has a listener with the name of the consumer's. Of several, it reads from the one
with the most records; then from the one that was caught up last; then from the one with the largest
id. If the leader is in that rack, the consumer continues to read from it. Kafka:
RackAwareReplicaSelector.

Replicas are made for one leader epoch and one set of followers; a change replaces them. The old
ones are closed under their lock: a thread that finds them closed reads the partition again.
Memory: about 80 bytes, and 72 for each follower. Kafka: Partition and Replica of kafka.cluster.
Callers: cext/partition/partitions.pyx. Next on the data path: cext/fetch/fetch.pyx.
"""
from libc.stdint cimport INT64_MIN, UINT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from collections import namedtuple

from barnabas.cext.memory.atomics cimport (
    atomic_load_i64, atomic_load_pointer, atomic_store_i64, atomic_store_pointer,
)
from barnabas.cext.memory.mutex cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)

ReplicaState = namedtuple("ReplicaState", (
    "broker_id", "log_end_offset", "log_start_offset", "caught_up_ms_ago", "in_isr",
))

cdef int64_t NEVER_NS = INT64_MIN
cdef int64_t NS_PER_MS = 1000000


cdef Follower* replicas_find(Replicas* r, int32_t broker_id) noexcept nogil:
    cdef int32_t i
    for i in range(r.follower_count):
        if r.followers[i].broker_id == broker_id:
            return &r.followers[i]
    return NULL


cdef LiveBroker* _live(const LiveBrokers* live, int32_t broker_id) noexcept nogil:
    cdef int32_t i
    for i in range(live.count):
        if live.brokers[i].broker_id == broker_id:
            return <LiveBroker*>&live.brokers[i]
    return NULL


cdef bint _is_present_run(const LiveBrokers* live, const Follower* f) noexcept nogil:
    """Returns whether the follower's broker is live, and its last fetch is of its present run."""
    cdef LiveBroker* broker
    if live == NULL:
        return True
    broker = _live(live, f.broker_id)
    return broker != NULL and (
        f.broker_epoch < 0 or broker.epoch < 0 or f.broker_epoch == broker.epoch)


cdef bint _may_join(
    const Replicas* r, const Follower* f, int64_t high_watermark, const LiveBrokers* live,
) noexcept nogil:
    return (f.log_end_offset >= high_watermark and f.log_end_offset >= r.epoch_start_offset
            and _is_present_run(live, f))


cdef int replicas_fetched(
    Replicas* r, const FollowerFetch* fetch, const int64_t* high_watermark,
    const LiveBrokers* live, bint* may_join,
) noexcept nogil:
    cdef int status
    may_join[0] = False
    pthread_mutex_lock(&r.lock)
    status = _fetched(r, fetch, high_watermark, live, may_join)
    pthread_mutex_unlock(&r.lock)
    return status


cdef int _fetched(
    Replicas* r, const FollowerFetch* fetch, const int64_t* high_watermark,
    const LiveBrokers* live, bint* may_join,
) noexcept nogil:
    cdef Follower* f
    cdef LiveBroker* broker
    if r.closed:
        return REPLICAS_CLOSED
    if fetch.leader_epoch >= 0 and fetch.leader_epoch != r.leader_epoch:
        return REPLICAS_OLD_EPOCH if fetch.leader_epoch < r.leader_epoch else REPLICAS_NEW_EPOCH
    f = replicas_find(r, fetch.broker_id)
    if f == NULL:
        return REPLICAS_UNKNOWN
    broker = NULL if live == NULL else _live(live, fetch.broker_id)
    if broker != NULL and 0 <= fetch.broker_epoch < broker.epoch:
        return REPLICAS_OLD_BROKER
    if fetch.offset >= fetch.leader_end_offset:
        f.caught_up_ns = max(f.caught_up_ns, fetch.now_ns)
    elif f.log_end_offset >= 0 and fetch.offset >= f.leader_end_offset:
        f.caught_up_ns = max(f.caught_up_ns, f.fetched_ns)
    f.log_end_offset = fetch.offset
    if fetch.log_start_offset >= 0:
        f.log_start_offset = fetch.log_start_offset
    f.broker_epoch = fetch.broker_epoch
    f.fetched_ns = fetch.now_ns
    f.leader_end_offset = max(f.leader_end_offset, fetch.leader_end_offset)
    may_join[0] = not f.in_isr and _may_join(r, f, atomic_load_i64(high_watermark), live)
    return REPLICAS_OK


cdef bint _holds(const Follower* f, const JoinRules* rules) noexcept nogil:
    """Returns whether the high watermark waits for the follower."""
    cdef System* system = rules.system
    if f.in_isr or f.is_joining:
        return True
    return f.caught_up_ns != NEVER_NS and _is_present_run(rules.live, f) and (
        system.monotonic_ns(system) - f.caught_up_ns <= rules.lag_ns_max)


cdef int replicas_raise(
    Replicas* r, int64_t* high_watermark, int64_t durable_end, int32_t isr_size_min,
    const JoinRules* rules,
) noexcept nogil:
    cdef int64_t end = durable_end
    cdef int status = REPLICAS_OK
    cdef int32_t i
    pthread_mutex_lock(&r.lock)
    if r.closed:
        status = REPLICAS_CLOSED
    elif r.isr_size >= isr_size_min:
        for i in range(r.follower_count):
            if r.followers[i].log_end_offset < end and _holds(&r.followers[i], rules):
                end = r.followers[i].log_end_offset
        if end > atomic_load_i64(high_watermark):
            atomic_store_i64(high_watermark, end)
            status = REPLICAS_MOVED
    pthread_mutex_unlock(&r.lock)
    return status


cdef int32_t replicas_isr_size_max(Replicas* r) noexcept nogil:
    cdef int32_t size
    pthread_mutex_lock(&r.lock)
    size = r.isr_size + r.joining_count
    pthread_mutex_unlock(&r.lock)
    return size


cdef bint replicas_is_in_isr(Replicas* r, int32_t broker_id) noexcept nogil:
    cdef Follower* f
    cdef bint is_in
    pthread_mutex_lock(&r.lock)
    f = replicas_find(r, broker_id)
    is_in = f != NULL and f.in_isr
    pthread_mutex_unlock(&r.lock)
    return is_in


# ------------------------------------------------------------------------- consumers and their racks

cdef bint _is_in_rack(
    const LiveBrokers* live, int32_t broker_id, const uint8_t* rack, int32_t rack_bytes,
) noexcept nogil:
    cdef LiveBroker* broker = _live(live, broker_id)
    return broker != NULL and broker.rack_bytes == rack_bytes and (
        memcmp(broker.rack, rack, rack_bytes) == 0)


cdef bint _is_nearer_end(const Follower* a, const Follower* b) noexcept nogil:
    if a.log_end_offset != b.log_end_offset:
        return a.log_end_offset > b.log_end_offset
    if a.caught_up_ns != b.caught_up_ns:
        return a.caught_up_ns > b.caught_up_ns
    return a.broker_id > b.broker_id


cdef int32_t replicas_preferred(
    Replicas* r, const LiveBrokers* live, int32_t leader_id, const uint8_t* rack,
    int32_t rack_bytes, int32_t listener_index, int64_t offset,
) noexcept nogil:
    cdef Follower* f
    cdef Follower* best = NULL
    cdef int32_t i, found
    if live == NULL or rack_bytes == 0 or _is_in_rack(live, leader_id, rack, rack_bytes):
        return -1
    pthread_mutex_lock(&r.lock)
    for i in range(r.follower_count):
        f = &r.followers[i]
        if (f.in_isr and f.log_start_offset <= offset <= f.log_end_offset
                and _is_in_rack(live, f.broker_id, rack, rack_bytes)
                and _live(live, f.broker_id).listeners >> listener_index & 1
                and (best == NULL or _is_nearer_end(f, best))):
            best = f
    found = -1 if best == NULL or r.closed else best.broker_id
    pthread_mutex_unlock(&r.lock)
    return found


cdef bint replicas_sends_high_watermark(
    Replicas* r, int32_t broker_id, int64_t high_watermark,
) noexcept nogil:
    cdef Follower* f
    cdef bint is_news
    pthread_mutex_lock(&r.lock)
    f = replicas_find(r, broker_id)
    is_news = f != NULL and f.sent_high_watermark < high_watermark
    if is_news:
        f.sent_high_watermark = high_watermark
    pthread_mutex_unlock(&r.lock)
    return is_news


# --------------------------------------------------------------------------------- made and replaced

cdef void replicas_free(void* replicas) noexcept nogil:
    if replicas != NULL:
        pthread_mutex_destroy(&(<Replicas*>replicas).lock)
        free(replicas)


cdef int64_t replicas_bytes(const Replicas* r) noexcept nogil:
    return sizeof(Replicas) + (r.follower_count - 1) * <int64_t>sizeof(Follower)


cdef void _take_over(Replicas* made, Replicas* old) noexcept nogil:
    """Keeps what the same leader epoch knows of the followers."""
    cdef Follower* before
    cdef Follower* f
    cdef int32_t i
    made.epoch_start_offset = old.epoch_start_offset
    for i in range(made.follower_count):
        f = &made.followers[i]
        before = replicas_find(old, f.broker_id)
        if before == NULL:
            continue
        f.log_end_offset, f.log_start_offset = before.log_end_offset, before.log_start_offset
        f.broker_epoch, f.fetched_ns = before.broker_epoch, before.fetched_ns
        f.leader_end_offset = before.leader_end_offset
        f.sent_high_watermark = before.sent_high_watermark
        if before.caught_up_ns != NEVER_NS and (f.in_isr or not before.in_isr):
            f.caught_up_ns = before.caught_up_ns
        f.is_joining = before.is_joining and not f.in_isr
        made.joining_count += f.is_joining


cdef void replicas_replace(void** at, Replicas* made) noexcept nogil:
    cdef Replicas* old = <Replicas*>atomic_load_pointer(at)
    if old == NULL:
        atomic_store_pointer(at, made)
        return
    pthread_mutex_lock(&old.lock)
    if made != NULL and made.leader_epoch == old.leader_epoch:
        _take_over(made, old)
    old.closed = True
    atomic_store_pointer(at, made)
    pthread_mutex_unlock(&old.lock)


cdef Replicas* replicas_new(
    int32_t leader_id, object replicas, object isr, int32_t leader_epoch, int64_t log_end_offset,
    int64_t now_ns,
) except NULL:
    """Makes the Replicas of a leader epoch that begins now. `replicas`: at least one of them is not
    the leader. Raises MemoryError."""
    cdef list others = [broker_id for broker_id in replicas if broker_id != leader_id]
    cdef Replicas* r = <Replicas*>calloc(
        1, sizeof(Replicas) + (len(others) - 1) * sizeof(Follower))
    cdef Follower* f
    cdef int32_t i
    if r == NULL:
        raise MemoryError
    pthread_mutex_init(&r.lock, NULL)
    r.leader_epoch = leader_epoch
    r.epoch_start_offset = log_end_offset
    r.isr_size = len(isr)
    r.follower_count = len(others)
    for i in range(r.follower_count):
        f = &r.followers[i]
        f.broker_id = others[i]
        f.in_isr = others[i] in isr
        f.log_end_offset = f.log_start_offset = f.broker_epoch = f.leader_end_offset = -1
        f.caught_up_ns = now_ns if f.in_isr else NEVER_NS
    return r


# ------------------------------------------------------------------------------- Python's ISR task

cdef int replicas_set_isr(
    Replicas* r, object isr, bint is_pending, const int64_t* high_watermark,
    const LiveBrokers* live,
) except -1:
    """Sets the confirmed ISR, or with `is_pending` lets its new members join. Returns REPLICAS_OK,
    or REPLICAS_BEHIND when a new member may not join any more; then nothing changes."""
    cdef Follower* f
    cdef int32_t i
    cdef int status = REPLICAS_OK
    members = frozenset(isr)
    pthread_mutex_lock(&r.lock)
    for i in range(r.follower_count):
        f = &r.followers[i]
        if is_pending and not f.in_isr and f.broker_id in members and (
                not _may_join(r, f, atomic_load_i64(high_watermark), live)):
            status = REPLICAS_BEHIND
    if status == REPLICAS_OK:
        r.joining_count = 0
        for i in range(r.follower_count):
            f = &r.followers[i]
            if not is_pending:
                if f.in_isr and f.broker_id not in members:
                    f.caught_up_ns = NEVER_NS
                f.in_isr = f.broker_id in members
            f.is_joining = not f.in_isr and f.broker_id in members
            r.joining_count += f.is_joining
        if not is_pending:
            r.isr_size = len(members)
    pthread_mutex_unlock(&r.lock)
    return status


cdef Replicas* _copy(Replicas* r) except NULL:
    """Copies the followers under the lock: no Python code runs with it. The caller frees the copy."""
    cdef Replicas* copy = <Replicas*>malloc(replicas_bytes(r))
    if copy == NULL:
        raise MemoryError
    pthread_mutex_lock(&r.lock)
    memcpy(copy, r, replicas_bytes(r))
    pthread_mutex_unlock(&r.lock)
    return copy


cdef list replicas_states(Replicas* r, int64_t now_ns):
    cdef Replicas* seen = _copy(r)
    cdef Follower* f
    cdef int32_t i
    try:
        states = []
        for i in range(seen.follower_count):
            f = &seen.followers[i]
            states.append(ReplicaState(
                f.broker_id, f.log_end_offset, f.log_start_offset,
                None if f.caught_up_ns == NEVER_NS else (now_ns - f.caught_up_ns) // NS_PER_MS,
                bool(f.in_isr),
            ))
        return states
    finally:
        free(seen)


cdef list replicas_lagging(
    Replicas* r, int64_t leader_end_offset, int64_t now_ns, int64_t lag_ns_max,
):
    """Returns the members of the ISR that are not caught up. A follower at the leader's end is
    caught up, however old its last fetch. Kafka: Partition.getOutOfSyncReplicas."""
    cdef Replicas* seen = _copy(r)
    cdef Follower* f
    cdef int32_t i
    try:
        found = []
        for i in range(seen.follower_count):
            f = &seen.followers[i]
            if f.in_isr and f.log_end_offset != leader_end_offset and (
                    f.caught_up_ns == NEVER_NS or now_ns - f.caught_up_ns > lag_ns_max):
                found.append(f.broker_id)
        return found
    finally:
        free(seen)


cdef list replicas_caught_up(Replicas* r, const int64_t* high_watermark, const LiveBrokers* live):
    """Returns the followers that may join the ISR. Those that join already are among them: the
    attempt to write the ISR may have failed, with an unknown outcome."""
    cdef Replicas* seen = _copy(r)
    cdef Follower* f
    cdef int32_t i
    try:
        found = []
        for i in range(seen.follower_count):
            f = &seen.followers[i]
            if not f.in_isr and (
                    _may_join(seen, f, atomic_load_i64(high_watermark), live)):
                found.append(f.broker_id)
        return found
    finally:
        free(seen)


cdef LiveBrokers* live_brokers_new(object epochs, object racks, object listeners) except NULL:
    """`epochs`: {broker id: broker epoch, -1: unknown}. `racks`: {broker id: rack}, without brokers
    that have none. `listeners`: {broker id: bits of LiveBroker.listeners}; without an entry, a broker
    has all listeners. Raises MemoryError."""
    cdef dict encoded = {key: text.encode() for key, text in racks.items()}
    cdef int64_t fixed = sizeof(LiveBrokers) + len(epochs) * <int64_t>sizeof(LiveBroker)
    cdef LiveBrokers* live = <LiveBrokers*>calloc(1, fixed + sum(map(len, encoded.values())))
    cdef LiveBroker* broker
    cdef uint8_t* free_at
    cdef bytes rack
    if live == NULL:
        raise MemoryError
    free_at = <uint8_t*>live + fixed
    for broker_id, epoch in epochs.items():
        broker = &live.brokers[live.count]
        rack = encoded.pop(broker_id, b"")
        broker.broker_id, broker.epoch = broker_id, epoch
        broker.listeners = listeners.get(broker_id, UINT32_MAX)
        broker.rack, broker.rack_bytes = free_at, <int32_t>len(rack)
        memcpy(free_at, <const char*>rack, len(rack))
        free_at += len(rack)
        live.count += 1
    return live
