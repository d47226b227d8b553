"""The native handler of Fetch: answers consumers on the network thread, without the GIL.

    parse (fetch_request) -> session (sessions) -> look at each partition -> enough records, or an
    error, or no time to wait?  yes: read cold ranges (cold_reads), answer (fetch_answer)
                                no:  watch the partitions, look once more, wait until woken

As in Kafka:
- maxBytes of the request and of each partition, and fetch.max.bytes, limit the answer, in the
  request's order; the first batch of the first partition with records is sent whole in any case.
- an error of any partition that exists, a diverging epoch, or maxWaitMs 0 is answered at once.
  An unknown partition is an error in the answer; it completes the request at once only if the
  request has no other partitions.
- an offset between the high watermark and the log's end is no error: the records are empty.

Under fsync durability the high watermark is the end of the data on disk. A fetch at the high
watermark, with more records appended behind it, requests a group commit. If it may wait, the move
of the high watermark wakes it. With maxWaitMs 0 it answers at once and the next fetch sees the
records.

A read_committed consumer reads up to the last stable offset, and its answer lists the aborted
transactions that overlap the returned records (cext/log/log_transactions.pyx).

The client must have the right to read each topic (cext/network/permissions.pyx). A topic without it
has the error TOPIC_AUTHORIZATION_FAILED and is treated like one that does not exist. The handler
checks the rights also at each fetch of a session, and again when a rule changes while the request
waits, until its records are sent.

A client that sends a replica id needs the right CLUSTER_ACTION; without it, it is not treated as a
replica (CVE-2018-1288). With it, a replica id >= 0 is that of a follower. A follower reads up to
the log's end with any isolation, no plugin sees its records, and no client quota counts them. The
first look at a partition records the follower's fetch offset (cext/partition/replicas.pyx), which
may move the high watermark; the answer has the high watermark after that. An append wakes its
waiting fetch. A broker that is not a replica of the partition gets UNKNOWN_LEADER_EPOCH if the
request has an epoch, otherwise NOT_LEADER_OR_FOLLOWER.

A consumer may read from a follower (KIP-392), from version 11 on. The leader names the follower in
its answer, and sends no records, if replica.selector.class selects by racks, the consumer names its
rack, and a follower in that rack is in sync, has the offset, and has a listener with the name of the
consumer's (cext/partition/replicas.pyx). A follower serves consumers up to its own high watermark; to
an older version it answers NOT_LEADER_OR_FOLLOWER. So that its high watermark is not late, a leader
that selects by racks answers a follower at once, without records, when the high watermark is higher
than what it has sent to it. Without the selector this would double the followers' requests for no
use.

Records of partitions in leader.replication.throttled.replicas are counted. While their rate is
above leader.replication.throttled.rate, followers that are not in the ISR get none of them (KIP-73;
Kafka: ReplicaManager.shouldLeaderThrottle).

Versions 0 to 3 get messages of the formats 0 and 1: each range is converted after it was read
(cext/fetch/down_conversion.pyx). Versions 0 to 2 have no limit for the whole answer, and get nothing
of a batch that is larger than the limit of its partition. If no message is left of all ranges,
because they hold only control batches, the request goes on behind them, and waits for records there;
Kafka sends a fragment at which consumers fail.

Memory for converted answers is limited (cext/memory/memory_limit.pyx). While it is short, the ranges
of a fetch are cut, or the fetch waits; after MEMORY_WAIT_NS its answer has no records.

A delayed fetch first registers its watches, then reads the partitions' state again, then waits.
This module keeps no Partition pointer: each look enters its own epoch. Slices hold their segments;
a request that continues to wait releases them.
"""

cimport cython
from libc.stdint cimport int16_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

from barnabas.cext.memory.threads import start_thread
from barnabas.cext.codec.cursor cimport (
    Cursor, cursor_i16, cursor_i32, cursor_of, cursor_take, cursor_uvarint,
)
from barnabas.cext.codec.endian cimport be32_load
from barnabas.cext.fetch.cold_reads cimport (
    cold_ask, cold_ask_place, cold_asked_all, cold_close, cold_expect_thread, cold_has_threads,
    cold_limit_reading, cold_reads_free, cold_reads_new, cold_run, cold_wait_is_over, cold_wait_new,
    cold_wait_release, slice_is_cold,
)
from barnabas.cext.fetch.interception cimport (
    Rewrite, RewriteQueue, rewrite_ask, rewrite_drop, rewrite_is_done, rewrite_new,
)
from barnabas.cext.fetch.down_conversion cimport (
    DOWN_CONVERSION_BYTES_MAX, DOWN_CONVERSION_FACTOR, DOWN_CONVERSION_SHARE_BYTES_MIN,
    DownConversionQueue,
)
from barnabas.cext.fetch.request cimport (
    COLD_ASK, COLD_SKIP, COLD_WAIT, FETCH_BATCHES_FROM, FETCH_FLEXIBLE_FROM, FETCH_SOFT_LIMITS_FROM, FETCH_NO_MEMORY, FETCH_OK, FETCH_VERSION_MAX, FETCH_VERSION_MIN,
    PART_OF_UNKNOWN_ID, PART_PRESENT, PART_UNKNOWN, FetchPartition, fetch_magic, fetch_may_follow,
    fetch_parse,
    fetch_request_clear, fetch_request_free, fetch_request_init, fetch_same_topic,
)
from barnabas.cext.fetch.response cimport fetch_answer, fetch_answer_frame_bytes
from barnabas.cext.fetch.sessions cimport (
    FetchSessions, session_begin, session_drop, session_finish, session_retract,
)
from barnabas.cext.log.log cimport (
    ColdPlace, LOG_COLD, LogSlice, log_end_offset, log_epoch_end, log_read, log_read_cached,
    log_start_offset,
)
from barnabas.cext.log.log_transactions cimport log_aborted_txns
from barnabas.cext.log.segment cimport segment_fd, segment_release
from barnabas.cext.log.txn_index cimport aborted_txns_free
from barnabas.cext.memory.atomics cimport (
    atomic_add_i64, atomic_load_i32, atomic_load_i64, atomic_load_pointer, atomic_store_i32,
)
from barnabas.cext.memory.counters cimport (
    COUNT_BYTES_OUT, COUNT_FETCH_CONVERSIONS, COUNT_FETCHES, COUNT_FETCHES_FAILED, count, fetch_error_is_expected,
)
from barnabas.cext.memory.epoch cimport epoch_enter, epoch_leave
from barnabas.cext.memory.memory_limit cimport (
    MemoryLimit, memory_claim, memory_is_granted, memory_release, memory_resize, memory_share,
)
from barnabas.cext.memory.sys cimport System
from barnabas.cext.memory.waker cimport Waker
from barnabas.cext.network.handler cimport (
    HANDLER_CLOSE, HANDLER_DONE, HANDLER_PARKED, handler_parks, HANDLER_PYTHON, Parked, Request,
    request_error, Response, response_free, response_init, SensorCarrier,
)
from barnabas.cext.network.permissions cimport (
    OPERATION_CLUSTER_ACTION, OPERATION_READ, permission_ask, PERMISSION_ALLOWED, permission_begin,
    PERMISSION_DENIED, permission_moved, PERMISSION_UNKNOWN, RESOURCE_CLUSTER,
)
from barnabas.cext.network.quotas cimport (
    QUOTA_FETCH, QuotaSensor, quota_is_exceeded, quota_largest, quota_note, quota_use,
)
from barnabas.cext.network.topic_permission cimport topic_refusal
from barnabas.cext.partition.partitions cimport (
    LOCAL_THREAD, Partition, partition_commit, partition_error, partition_find, partition_find_id,
    partition_follower_fetched, partition_has_follower, partition_high_watermark,
    partition_is_in_isr, partition_is_throttled, partition_preferred_replica,
    partition_sends_high_watermark, partition_unwatch,
    partition_visible_end, partition_watch, partition_watch_appends, table_bind_waker, table_epochs,
    table_local_wakes, table_of, table_system, table_wait_local, THROTTLED_LEADER, watch_waits,
)
from barnabas.cext.partition.replicas cimport FollowerFetch
from barnabas.cext.partition.topics cimport ProducePolicy
from barnabas.cext.record.records cimport AT_BATCH_LENGTH, LOG_OVERHEAD
from barnabas.cext.codec.wire import MalformedMessage
from barnabas.cext.log.crc_check cimport slice_end, slice_is_verified, slice_settle, slice_verify

cdef enum:
    UNKNOWN_SERVER_ERROR = -1
    OFFSET_OUT_OF_RANGE = 1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    MESSAGE_TOO_LARGE = 10
    FENCED_LEADER_EPOCH = 74
    TOPIC_AUTHORIZATION_FAILED = 29
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    UNSUPPORTED_VERSION = 35
    KAFKA_STORAGE_ERROR = 56
    STORAGE_ERROR_FROM = 6      # the first version whose clients know KAFKA_STORAGE_ERROR
    ZSTD_FROM = 10              # the first version whose clients know zstd
    CODEC_ZSTD = 4
    UNKNOWN_TOPIC_ID = 100
    FETCH_KEY = 1
    CLUSTER_NAME_BYTES = 13
    INT32_LAST = 0x7FFFFFFF
    NOT_COUNTED = -2            # in place of a thread index: do not count this look
    ABORTED_ANSWER_BYTES = 17   # of an aborted transaction in the answer
    REQUEST_TIMED_OUT = 7
    COLD_LOOKUPS_MAX = 8        # after that many waits for the disk, the next lookup waits here
    REWRITES_MAX = 1024         # ranges that wait for plugins

cdef const char* CLUSTER_NAME = b"kafka-cluster"     # the one resource of its type

cdef int64_t COLD_WAIT_NS = 30000000000     # after it the range is sent, read or not
cdef int64_t COLD_RETRY_NS = 50000000       # after it a lookup is tried again whose queue was full
cdef int64_t MEMORY_WAIT_NS = 10000000000   # after it an old client gets no records
cdef int64_t REWRITE_WAIT_NS = 30000000000  # after it a range that plugins still process is an error
cdef int64_t NS_PER_MS = 1000000

cdef struct Budget:             # the result of one look, and the rest of the limits
    int64_t bytes_left
    int64_t bytes_found
    bint hurry                  # an error or a divergence: answer now
    bint wanted                 # at least one partition exists
    ColdWait* cold              # not NULL: threads read for lookups of this look
    bint cold_is_full           # a lookup must be tried again, because the queue was full

# ---- one partition (inside an epoch)

cdef inline int64_t now_ns(FetchCore* core) noexcept nogil:
    cdef System* system = table_system(core.table)
    return system.monotonic_ns(system)

cdef inline int16_t refuse(FetchPartition* part, int16_t error, const Partition* p) noexcept nogil:
    """Sets an error. The answer then has no offsets of the log, but has the leader if it moved."""
    part.error = error
    part.high_watermark = -1
    part.last_stable_offset = -1
    part.log_start_offset = -1
    if p != NULL and (error == NOT_LEADER_OR_FOLLOWER or error == FENCED_LEADER_EPOCH):
        part.leader_id = atomic_load_i32(&p.leader_id)
        part.leader_now_epoch = atomic_load_i32(&p.leader_epoch)
    return error

cdef int16_t known_error(const FetchRequest* r, int16_t error) noexcept nogil:
    """Returns the error that clients of the version know, as in Kafka."""
    if error == KAFKA_STORAGE_ERROR and r.version < STORAGE_ERROR_FROM:
        return NOT_LEADER_OR_FOLLOWER
    return error

cdef Partition* find(FetchCore* core, FetchPartition* part, int16_t* error) noexcept nogil:
    cdef Partition* p
    if part.key.topic == NULL:
        return partition_find_id(core.table, part.key.topic_id, part.key.index, error)
    p = partition_find(core.table, part.key.topic, part.key.topic_bytes, part.key.index)
    error[0] = UNKNOWN_TOPIC_OR_PARTITION if p == NULL else 0
    return p

cdef int16_t check_leader(FetchCore* core, const FetchRequest* r, const FetchPartition* part, Partition* p) noexcept nogil:
    """Checks in Kafka's order: storage, the epochs, the leader, the replica id of the request."""
    cdef int16_t error = partition_error(core.table, p)
    cdef int32_t epoch = atomic_load_i32(&p.leader_epoch)
    if error != 0 and error != NOT_LEADER_OR_FOLLOWER:
        return error
    if part.leader_epoch >= 0 and part.leader_epoch != epoch:
        return FENCED_LEADER_EPOCH if part.leader_epoch < epoch else UNKNOWN_LEADER_EPOCH
    if error != 0:
        return 0 if fetch_may_follow(r) else error
    if r.replica_id >= 0 and not partition_has_follower(p, r.replica_id):
        return UNKNOWN_LEADER_EPOCH if part.leader_epoch >= 0 else NOT_LEADER_OR_FOLLOWER
    return 0

cdef int16_t check_divergence(FetchPartition* part, Partition* p, int64_t log_start) noexcept nogil:
    """Sets the diverging epoch when the log that the client has read is no prefix of this log
    (KIP-595). Returns 0, or OFFSET_OUT_OF_RANGE for an epoch above all known ones or an offset
    below the start."""
    cdef int32_t epoch
    cdef int64_t end
    log_epoch_end(p.log, part.last_fetched_epoch, &epoch, &end)
    if epoch < 0 or part.offset < log_start:  # above all known epochs, or too old
        return OFFSET_OUT_OF_RANGE
    if epoch < part.last_fetched_epoch or end < part.offset:
        part.diverging = True
        part.diverging_epoch = epoch
        part.diverging_end = end
    return 0

cdef void drop_partial_batch(FetchCore* core, LogSlice* slice) noexcept nogil:
    """Drops a slice that ends inside its first batch because of the limit: clients cannot use it."""
    cdef System* system = table_system(core.table)
    cdef uint8_t head[LOG_OVERHEAD]
    cdef ssize_t got = 0
    if slice.size_bytes >= LOG_OVERHEAD:
        got = system.pread(
            system, segment_fd(slice.segment, system), head, LOG_OVERHEAD, slice.position)
    if got == LOG_OVERHEAD and (
            LOG_OVERHEAD + <int64_t><int32_t>be32_load(head + AT_BATCH_LENGTH) <= slice.size_bytes):
        return
    segment_release(slice.segment)
    memset(slice, 0, sizeof(LogSlice))

cdef int16_t read_records(FetchCore* core, FetchPartition* part, Partition* p, int64_t limit, int64_t log_end, bint committed_only, Budget* budget, ColdPlace* cold) noexcept nogil:
    """Finds the records. With `cold` it does not wait for the disk: LOG_COLD if it would have to."""
    cdef int64_t size_max = budget.bytes_left
    cdef bint whole_first = budget.bytes_found == 0
    cdef int error
    if part.bytes_max < size_max:
        size_max = part.bytes_max
    if part.offset >= limit:
        if limit < log_end:
            partition_commit(core.table, p)
        return 0
    if size_max < 0:
        return UNKNOWN_SERVER_ERROR
    if size_max == 0 and not whole_first:
        return 0
    if cold == NULL:
        error = log_read(p.log, part.offset, size_max, limit, whole_first, &part.slice)
    else:
        error = log_read_cached(
            p.log, part.offset, size_max, limit, whole_first, &part.slice, cold)
    if error == 0 and not whole_first and 0 < size_max <= part.slice.size_bytes:
        drop_partial_batch(core, &part.slice)
    if error == 0 and committed_only and part.slice.size_bytes > 0:
        error = log_aborted_txns(
            p.log, part.offset, limit, &part.slice, &part.aborted, cold)
        if error != 0:
            segment_release(part.slice.segment)
            memset(&part.slice, 0, sizeof(LogSlice))
    return <int16_t>error

cdef bint leave_cold(FetchCore* core, const FetchRequest* r, FetchPartition* part, Budget* budget, const ColdPlace* cold) noexcept nogil:
    """Leaves out records whose lookup would wait for the disk, and has a thread read the place. Returns
    False if no thread will: then the lookup must wait."""
    aborted_txns_free(&part.aborted)
    if r.on_cold == COLD_SKIP:
        segment_release(cold.segment)
        return True
    if budget.cold == NULL and cold_has_threads(core.cold):
        budget.cold = cold_wait_new(LOCAL_THREAD, 0)
    if budget.cold == NULL:
        segment_release(cold.segment)
        return False
    if not cold_ask_place(core.cold, budget.cold, cold):
        budget.cold_is_full = True
    return True

cdef int16_t look_at(FetchCore* core, const FetchRequest* r, FetchPartition* part, Budget* budget, int32_t counted_by) noexcept nogil:
    """Reads the state and the records of a partition. Returns 0 or an error code. `counted_by`: the
    thread index at the first look at the partition, later NOT_COUNTED."""
    cdef int16_t error
    cdef Partition* p = find(core, part, &error)
    if p == NULL:
        return refuse(part, error, NULL)
    error = look_into(core, r, part, p, budget, counted_by != NOT_COUNTED)
    if error != 0:
        part.error = known_error(r, error)
    if counted_by != NOT_COUNTED:
        count(p.counters, counted_by, COUNT_FETCHES, 1)
        if error != 0 and not fetch_error_is_expected(error):
            count(p.counters, counted_by, COUNT_FETCHES_FAILED, 1)
    return error

cdef int16_t note_follower(FetchCore* core, const FetchRequest* r, const FetchPartition* part, Partition* p, int64_t log_end) noexcept nogil:
    """Records a follower's fetch offset. Returns 0, or an error code if the broker is no longer a
    replica."""
    cdef FollowerFetch fetch
    fetch.broker_id = r.replica_id
    fetch.broker_epoch = r.replica_epoch
    fetch.leader_epoch = part.leader_epoch
    fetch.offset = part.offset
    fetch.log_start_offset = part.follower_log_start
    fetch.leader_end_offset = log_end
    fetch.now_ns = now_ns(core)
    return partition_follower_fetched(core.table, p, &fetch)

cdef bint is_throttled(FetchCore* core, const FetchRequest* r, Partition* p) noexcept nogil:
    """Returns whether a follower gets no records of this partition now."""
    return (core.leader_throttle != NULL and partition_is_throttled(p, THROTTLED_LEADER)
            and not partition_is_in_isr(p, r.replica_id)
            and quota_is_exceeded(core.leader_throttle, now_ns(core) // NS_PER_MS))

cdef inline int64_t read_limit(const FetchRequest* r, const FetchPartition* part, int64_t log_end) noexcept nogil:
    if r.replica_id >= 0:
        return log_end
    return part.last_stable_offset if r.isolation == 1 else part.high_watermark

cdef int16_t look_into(FetchCore* core, const FetchRequest* r, FetchPartition* part, Partition* p, Budget* budget, bint first_time) noexcept nogil:
    cdef ColdPlace cold
    cdef ColdPlace* at
    cdef int16_t error
    cdef int64_t log_start, log_end
    error = check_leader(core, r, part, p)
    if error != 0:
        return refuse(part, error, p)
    log_start = log_start_offset(p.log)
    log_end = log_end_offset(p.log)
    if part.last_fetched_epoch >= 0:
        error = check_divergence(part, p, log_start)
        if error != 0:
            return refuse(part, error, NULL)
    if not part.diverging and (part.offset < log_start or part.offset > log_end):
        return refuse(part, OFFSET_OUT_OF_RANGE, NULL)
    if first_time and r.replica_id >= 0 and not part.diverging:
        error = note_follower(core, r, part, p, log_end)
        if error != 0:
            return refuse(part, error, p)
    part.high_watermark = partition_high_watermark(p)
    part.last_stable_offset = partition_visible_end(core.table, p, True)
    part.log_start_offset = log_start
    if part.diverging:
        return 0
    if core.selects_by_rack and r.rack_bytes > 0 and fetch_may_follow(r):
        part.preferred_replica = partition_preferred_replica(
            core.table, p, r.rack, r.rack_bytes, r.listener_index, part.offset)
        if part.preferred_replica >= 0:
            return 0
    if r.replica_id >= 0:
        part.has_news = core.selects_by_rack and (
            partition_sends_high_watermark(p, r.replica_id, part.high_watermark))
        if is_throttled(core, r, p):
            return 0
    if r.version < ZSTD_FROM:
        error = old_client_error(r, policy_of(p))
        if error != 0:
            return refuse(part, error, NULL)
    at = NULL if r.on_cold == COLD_WAIT else &cold
    while True:
        error = read_records(
            core, part, p, read_limit(r, part, log_end), log_end, r.isolation == 1, budget, at)
        if error != LOG_COLD:
            break
        if leave_cold(core, r, part, budget, &cold):
            error = 0
            break
        at = NULL
    part.intercepted = (
        part.slice.size_bytes > 0 and r.replica_id < 0 and fetch_is_intercepted(p))
    return refuse(part, error, NULL) if error != 0 else 0

cdef inline const ProducePolicy* policy_of(Partition* p) noexcept nogil:
    return <const ProducePolicy*>atomic_load_pointer(<void**>&p.policy)

cdef inline bint fetch_is_intercepted(Partition* p) noexcept nogil:
    return policy_of(p).fetch_intercepted

cdef int16_t old_client_error(const FetchRequest* r, const ProducePolicy* policy) noexcept nogil:
    """Returns an error if the topic's settings keep its records from clients of an old version, as
    in Kafka: its compression.type is zstd, or message.downconversion.enable is false."""
    if policy.codec == CODEC_ZSTD:
        return UNSUPPORTED_COMPRESSION_TYPE
    if r.version < FETCH_BATCHES_FROM and r.replica_id < 0 and not policy.down_converts:
        return UNSUPPORTED_VERSION
    return 0

# ---- all partitions

cdef void look(FetchCore* core, FetchRequest* r, bint first_time, Budget* budget, int32_t thread_index) noexcept nogil:
    """Looks at all partitions. The first look decides the error of a partition that does not exist,
    as in Kafka."""
    cdef FetchPartition* part
    cdef int32_t i
    cdef int slot
    cdef int64_t frame_bytes = fetch_answer_frame_bytes(r)
    memset(budget, 0, sizeof(Budget))
    budget.bytes_left = r.max_bytes
    if budget.bytes_left > atomic_load_i32(&core.fetch_bytes_max):
        budget.bytes_left = atomic_load_i32(&core.fetch_bytes_max)
    if r.version < FETCH_BATCHES_FROM:
        budget.bytes_left = min(budget.bytes_left, <int64_t>DOWN_CONVERSION_BYTES_MAX)
        if r.version < FETCH_SOFT_LIMITS_FROM:
            budget.bytes_found = 1      # until the end: so no batch is read whole beyond the limits
    if budget.bytes_left < 0:
        budget.bytes_left = 0
    if budget.bytes_left > INT32_LAST - frame_bytes:
        budget.bytes_left = INT32_LAST - frame_bytes
    slot = epoch_enter(table_epochs(core.table))
    for i in range(r.part_count):
        part = &r.parts[i]
        if part.absent != PART_PRESENT:
            continue
        look_at(core, r, part, budget, thread_index if first_time else NOT_COUNTED)
        if first_time and part.error != 0:
            if part.error == UNKNOWN_TOPIC_ID:
                part.absent = PART_OF_UNKNOWN_ID
            elif part.error == UNKNOWN_TOPIC_OR_PARTITION:
                part.absent = PART_UNKNOWN
        if part.slice.size_bytes > INT32_LAST - frame_bytes:
            segment_release(part.slice.segment)
            memset(&part.slice, 0, sizeof(LogSlice))
            refuse(part, MESSAGE_TOO_LARGE, NULL)
        if part.absent == PART_PRESENT:
            budget.wanted = True
            budget.hurry = budget.hurry or (
                part.error != 0 or part.diverging or part.preferred_replica >= 0
                or part.has_news)
        budget.bytes_found += part.slice.size_bytes
        if part.slice.size_bytes > 0:
            budget.bytes_left -= part.slice.size_bytes + part.aborted.count * ABORTED_ANSWER_BYTES
            if budget.bytes_left < 0:
                budget.bytes_left = 0
    if r.version < FETCH_SOFT_LIMITS_FROM:
        budget.bytes_found -= 1
    epoch_leave(table_epochs(core.table), slot)

cdef bint is_enough(FetchCore* core, const FetchRequest* r, const Budget* found) noexcept nogil:
    cdef int64_t bytes_min = r.min_bytes
    if bytes_min > r.max_bytes:
        bytes_min = r.max_bytes
    if bytes_min > atomic_load_i32(&core.fetch_bytes_max):
        bytes_min = atomic_load_i32(&core.fetch_bytes_max)
    return r.max_wait_ms <= 0 or not found.wanted or found.hurry or found.bytes_found >= bytes_min

# ---- waiting

cdef bint watch_all(FetchCore* core, FetchWait* w, const Request* request) noexcept nogil:
    """Registers a watch on every partition that has none."""
    cdef Partition* p
    cdef Watch* watch
    cdef int16_t error
    cdef int32_t i
    cdef int slot
    if w.watches == NULL:
        w.watches = <Watch*>calloc(w.r.part_count, sizeof(Watch))
        if w.watches == NULL:
            return False
        w.watch_count = w.r.part_count
        for i in range(w.watch_count):
            w.watches[i].thread_index = request.thread_index
            w.watches[i].connection_id = request.connection_id
    slot = epoch_enter(table_epochs(core.table))
    for i in range(w.watch_count):
        watch = &w.watches[i]
        if not watch_waits(watch) and w.r.parts[i].absent == PART_PRESENT:
            p = find(core, &w.r.parts[i], &error)
            if p != NULL and w.r.replica_id >= 0:
                partition_watch_appends(core.table, p, watch)
            elif p != NULL:
                partition_watch(core.table, p, watch)
    epoch_leave(table_epochs(core.table), slot)
    return True

cdef void unwatch_all(FetchCore* core, FetchWait* w) noexcept nogil:
    cdef int32_t i
    if w.watches == NULL:
        return
    for i in range(w.watch_count):
        if w.r.parts[i].absent == PART_PRESENT:
            partition_unwatch(core.table, &w.watches[i])
    free(w.watches)
    w.watches = NULL
    w.watch_count = 0

cdef void wait_free(FetchCore* core, FetchWait* w) noexcept nogil:
    unwatch_all(core, w)
    session_drop(core.sessions, &w.use)
    cold_wait_release(w.cold)
    if w.memory != NULL:
        memory_release(w.memory)
    fetch_request_free(&w.r)
    free(w)

# ---- rights

cdef void refuse_part(FetchPartition* part, int16_t error, int absent) noexcept nogil:
    """Refuses a partition until the end of the request, and releases the records chosen for it."""
    refuse_records(part, error)
    part.absent = absent

cdef int ask_to_read(FetchCore* core, FetchPartition* part, Request* request) noexcept nogil:
    """Asks for the right to read the partition's topic; call it inside an epoch. Refuses the
    partition if the topic's id is unknown, until the end of the request, because no right was asked
    for."""
    cdef int answer = PERMISSION_ALLOWED
    if topic_refusal(
            request, OPERATION_READ, core.table, part.key.topic == NULL, part.key.topic_id,
            part.key.topic, part.key.topic_bytes, &answer) == UNKNOWN_TOPIC_ID:
        refuse_part(part, UNKNOWN_TOPIC_ID, PART_OF_UNKNOWN_ID)
    return answer

cdef int check_topics(FetchCore* core, FetchRequest* r, Request* request) noexcept nogil:
    """Refuses the partitions that the client may not read. Returns the largest answer of
    permission_ask."""
    cdef FetchPartition* part
    cdef FetchPartition* before = NULL      # the last partition for which a right was asked
    cdef int answer = PERMISSION_ALLOWED, worst = PERMISSION_ALLOWED
    cdef int32_t i
    cdef int slot = epoch_enter(table_epochs(core.table))
    for i in range(r.part_count):
        part = &r.parts[i]
        if part.absent != PART_PRESENT:
            continue
        if before == NULL or not fetch_same_topic(&before.key, &part.key):
            answer = ask_to_read(core, part, request)
            worst = max(worst, answer)
            before = part if part.absent == PART_PRESENT else NULL
        if answer == PERMISSION_DENIED:
            refuse_part(part, TOPIC_AUTHORIZATION_FAILED, PART_UNKNOWN)
    epoch_leave(table_epochs(core.table), slot)
    return worst

cdef int check_follower(FetchRequest* r, Request* request) noexcept nogil:
    """Does what check_topics does, for a request with a replica id: one right covers all partitions."""
    cdef int32_t i
    cdef int answer = permission_ask(
        request, OPERATION_CLUSTER_ACTION, RESOURCE_CLUSTER, <const uint8_t*>CLUSTER_NAME,
        CLUSTER_NAME_BYTES)
    if answer == PERMISSION_DENIED:
        for i in range(r.part_count):
            refuse_part(&r.parts[i], TOPIC_AUTHORIZATION_FAILED, PART_UNKNOWN)
        r.replica_id = -1
    return answer

cdef bint check_rights(FetchCore* core, FetchWait* w, Request* request) noexcept nogil:
    """Refuses the partitions that the client may not read by the present rules. Returns False when
    Python must decide: then the request has had no effect, and `w` is freed."""
    permission_begin(request)
    if (check_topics(core, &w.r, request) if w.r.replica_id < 0
            else check_follower(&w.r, request)) != PERMISSION_UNKNOWN:
        return True
    session_retract(core.sessions, &w.use)
    wait_free(core, w)
    return False

# ---- answering

cdef void settle_records(FetchRequest* r) noexcept nogil:
    """Checks the chosen bytes: the broker sends only verified bytes."""
    cdef int16_t error
    cdef int32_t i
    for i in range(r.part_count):
        error = slice_settle(&r.parts[i].slice)
        if error != 0:
            refuse(&r.parts[i], known_error(r, error), NULL)

cdef void count_answer(FetchCore* core, FetchWait* w, const Request* request, int16_t error) noexcept nogil:
    """Counts the errors of the answered partitions, bytes by topic, and those of throttled
    partitions."""
    cdef FetchPartition* part
    cdef Partition* p
    cdef int64_t throttled_bytes = 0
    cdef int16_t absent
    cdef int32_t i
    cdef int slot
    if error != 0 or w.r.part_count == 0:
        request_error(request, error)
        return
    slot = epoch_enter(table_epochs(core.table))
    for i in range(w.r.part_count):
        part = &w.r.parts[i]
        request_error(request, part.error)
        if part.slice.size_bytes == 0 or request.from_follower and core.leader_throttle == NULL:
            continue
        p = find(core, part, &absent)
        if p != NULL and not request.from_follower:
            count(p.counters, request.thread_index, COUNT_BYTES_OUT, part.slice.size_bytes)
        elif p != NULL and partition_is_throttled(p, THROTTLED_LEADER):
            throttled_bytes += part.slice.size_bytes
    epoch_leave(table_epochs(core.table), slot)
    if throttled_bytes:
        quota_note(core.leader_throttle, <double>throttled_bytes, now_ns(core) // NS_PER_MS)

cdef inline QuotaSensor* quota_of(const Request* request) noexcept nogil:
    if request.quota == NULL or request.from_follower:
        return NULL
    return request.quota.sensors[QUOTA_FETCH]

cdef bint exceeds(QuotaSensor* quota, const FetchWait* w, const Request* request, int64_t now_ms) noexcept nogil:
    """Counts the records against the client's quota, unless they exceed it. Returns whether they
    do: then the client must wait."""
    cdef int64_t size_bytes = 0
    cdef int32_t i
    for i in range(w.r.part_count):
        if w.r.parts[i].rewrite != NULL:
            size_bytes += w.r.parts[i].rewrite.made_bytes
        else:
            size_bytes += w.r.parts[i].slice.size_bytes
    request.quota.wait_ms = quota_use(quota, <double>size_bytes, now_ms, True)
    request.quota.exceeded = quota
    return request.quota.wait_ms > 0

cdef int answer_throttled(FetchCore* core, FetchWait* w, const Request* request, Response* out) noexcept nogil:
    """Ends the request without records, as in Kafka: the client asks for them again after its wait.
    A session stays unchanged, and no session is made."""
    cdef int32_t session_id = 0 if w.use.session == NULL else w.use.session.id
    cdef bint written
    cdef int32_t i
    for i in range(w.r.part_count):
        w.r.parts[i].in_answer = False
    request_error(request, 0)
    written = fetch_answer(&w.r, request.correlation_id, 0, session_id, out)
    atomic_add_i64(&core.requests, 1)
    wait_free(core, w)
    return HANDLER_DONE if written else HANDLER_CLOSE

cdef int answer(FetchCore* core, FetchWait* w, Request* request, int16_t error, Response* out) noexcept nogil:
    """Writes the answer and frees the request. Returns HANDLER_DONE or HANDLER_CLOSE."""
    cdef int32_t session_id = 0
    cdef bint written
    cdef QuotaSensor* quota = quota_of(request)
    if error != 0:
        w.r.part_count = 0
    else:
        settle_records(&w.r)
        if quota != NULL and exceeds(quota, w, request, now_ns(core) // NS_PER_MS):
            return answer_throttled(core, w, request, out)
        error = session_finish(
            core.sessions, &w.r, now_ns(core) // NS_PER_MS, &w.use, &session_id)
    count_answer(core, w, request, error)
    written = fetch_answer(&w.r, request.correlation_id, error, session_id, out)
    if quota != NULL:
        quota_note(quota, <double>out.bytes.size, now_ns(core) // NS_PER_MS)
    atomic_add_i64(&core.requests, 1)
    if out.slice_bytes:
        atomic_add_i64(&core.bytes_out, out.slice_bytes)
    elif w.memory != NULL:
        memory_resize(w.memory, out.bytes.size)
        request.memory, w.memory = w.memory, NULL
    wait_free(core, w)
    return HANDLER_DONE if written else HANDLER_CLOSE

# ---- conversion for old versions

cdef int64_t first_batch_bytes(FetchCore* core, const LogSlice* slice) noexcept nogil:
    """Returns the size of a slice's first batch; that of the slice if it cannot be read."""
    cdef System* system = table_system(core.table)
    cdef uint8_t head[LOG_OVERHEAD]
    cdef int64_t size_bytes
    if slice.size_bytes < LOG_OVERHEAD or system.pread(
            system, segment_fd(slice.segment, system), head, LOG_OVERHEAD, slice.position) != LOG_OVERHEAD:
        return slice.size_bytes
    size_bytes = LOG_OVERHEAD + <int64_t><int32_t>be32_load(head + AT_BATCH_LENGTH)
    return min(max(size_bytes, <int64_t>LOG_OVERHEAD), slice.size_bytes)

cdef void cut_ranges(FetchCore* core, FetchRequest* r, int64_t bytes_left) noexcept nogil:
    """Cuts the ranges, so that they take no more than `bytes_left` together. The first batch of the
    first one stays in any case; what plugins made of a range cannot be cut."""
    cdef FetchPartition* part
    cdef LogSlice* slice
    cdef int64_t first
    cdef int32_t i
    cdef bint is_first = True
    for i in range(r.part_count):
        part = &r.parts[i]
        slice = &part.slice
        if slice.size_bytes == 0 or part.rewrite != NULL:
            continue
        if slice.size_bytes > bytes_left:
            first = first_batch_bytes(core, slice)
            if first > bytes_left and not is_first:
                segment_release(slice.segment)
                memset(slice, 0, sizeof(LogSlice))
                continue
            slice.size_bytes = max(first, min(slice.size_bytes, bytes_left))
        bytes_left = max(bytes_left - slice.size_bytes, 0)
        is_first = False

cdef int64_t bytes_to_convert(const FetchRequest* r) noexcept nogil:
    cdef int64_t total = 0
    cdef int32_t i
    for i in range(r.part_count):
        total += range_bytes(&r.parts[i])
    return total

cdef inline int64_t range_bytes(const FetchPartition* part) noexcept nogil:
    """Returns the bytes that are converted: of the range, or what plugins made of it."""
    return part.slice.size_bytes if part.rewrite == NULL else part.rewrite.made_bytes

cdef bint claim_memory(FetchCore* core, FetchWait* w, const Request* request) noexcept nogil:
    """Claims memory for the ranges, which are cut while it is short. Returns whether it is granted
    now; with w.memory NULL there is no memory at all."""
    cdef MemoryLimit* limit = core.conversions.memory
    cdef int64_t share = memory_share(limit, DOWN_CONVERSION_SHARE_BYTES_MIN) // DOWN_CONVERSION_FACTOR
    if bytes_to_convert(&w.r) > share:
        cut_ranges(core, &w.r, share)
    w.memory = memory_claim(
        limit, DOWN_CONVERSION_FACTOR * bytes_to_convert(&w.r), request.thread_index,
        request.connection_id)
    return w.memory != NULL and memory_is_granted(w.memory)

cdef bint hand_to_conversion(FetchCore* core, FetchWait* w, const Request* request) noexcept nogil:
    """Returns whether some range must be converted first. If the queue is full, the partition gets a
    retriable error."""
    cdef FetchPartition* part
    cdef Rewrite* asked
    cdef Partition* p
    cdef int16_t error
    cdef int32_t i
    cdef int slot
    cdef bint waits = False
    slot = epoch_enter(table_epochs(core.table))
    for i in range(w.r.part_count):
        part = &w.r.parts[i]
        if part.slice.size_bytes == 0:
            continue
        asked = NULL
        p = find(core, part, &error)
        if p != NULL:
            asked = rewrite_new(
                core.conversions, request.thread_index, request.connection_id, p, &part.slice)
        if asked != NULL:
            asked.magic = fetch_magic(&w.r)
            asked.claimed_bytes = DOWN_CONVERSION_FACTOR * range_bytes(part)
            asked.first_offset = part.offset
            asked.inflated_bytes_max = policy_of(p).decompressed_bytes_max
            if part.rewrite != NULL:        # what plugins made is converted
                asked.source, asked.source_bytes = part.rewrite.made, part.rewrite.made_bytes
                part.rewrite.made = NULL
        rewrite_drop(part.rewrite)
        part.rewrite = rewrite_ask(asked)
        if part.rewrite == NULL:
            refuse_records(part, REQUEST_TIMED_OUT)
        waits |= part.rewrite != NULL
    epoch_leave(table_epochs(core.table), slot)
    return waits

cdef bint is_barren(FetchWait* w) noexcept nogil:
    """Returns whether no message is left of the ranges, and another look finds others behind them."""
    cdef FetchPartition* part
    cdef bint skips = False
    cdef int32_t i
    for i in range(w.r.part_count):
        part = &w.r.parts[i]
        if part.error != 0 or (part.rewrite != NULL and part.rewrite.made_bytes > 0):
            return False
    for i in range(w.r.part_count):
        part = &w.r.parts[i]
        if part.rewrite != NULL and part.rewrite.next_offset > part.offset:
            part.offset = part.rewrite.next_offset
            skips = True
    return skips

cdef void count_conversions(FetchCore* core, FetchWait* w, Request* request) noexcept nogil:
    cdef FetchPartition* part
    cdef Partition* p
    cdef int16_t absent
    cdef int32_t i
    cdef int slot = epoch_enter(table_epochs(core.table))
    for i in range(w.r.part_count):
        part = &w.r.parts[i]
        if part.rewrite == NULL or not rewrite_is_done(part.rewrite):
            continue
        request.conversion_ns += part.rewrite.conversion_ns
        request.conversion_bytes += part.rewrite.conversion_bytes
        p = find(core, part, &absent)
        if p != NULL:
            count(p.counters, request.thread_index, COUNT_FETCH_CONVERSIONS,
                  part.rewrite.converted_count)
    epoch_leave(table_epochs(core.table), slot)

cdef int convert(FetchCore* core, FetchWait* w, Request* request, Response* out, Parked* parked) noexcept nogil:
    """Converts the ranges as soon as there is memory for them."""
    w.rewrites, w.converts = False, True
    settle_records(&w.r)
    if bytes_to_convert(&w.r) == 0 or claim_memory(core, w, request):
        return convert_now(core, w, request, out, parked)
    if w.memory == NULL:
        drop_ranges(&w.r)
        return answer(core, w, request, 0, out)
    return handler_parks(parked, w, now_ns(core) + MEMORY_WAIT_NS)

cdef int convert_now(FetchCore* core, FetchWait* w, Request* request, Response* out, Parked* parked) noexcept nogil:
    if not hand_to_conversion(core, w, request):
        return answer(core, w, request, 0, out)
    w.rewrites = True
    return handler_parks(parked, w, now_ns(core) + REWRITE_WAIT_NS)

cdef int go_on_converting(FetchCore* core, FetchWait* w, Request* request, Response* out, Parked* parked, bint expired) noexcept nogil:
    """Goes on with a request that waits for memory. If it has waited too long, the answer has no
    records, and the client asks again."""
    if memory_is_granted(w.memory):
        return convert_now(core, w, request, out, parked)
    if not expired:
        return HANDLER_PARKED
    drop_ranges(&w.r)
    memory_release(w.memory)
    w.memory = NULL
    return answer(core, w, request, 0, out)

cdef void drop_ranges(FetchRequest* r) noexcept nogil:
    """Leaves the records out of the answer."""
    cdef FetchPartition* part
    cdef int32_t i
    for i in range(r.part_count):
        part = &r.parts[i]
        rewrite_drop(part.rewrite)
        part.rewrite = NULL
        if part.slice.segment != NULL:
            segment_release(part.slice.segment)
        memset(&part.slice, 0, sizeof(LogSlice))

cdef inline int convert_or_answer(FetchCore* core, FetchWait* w, Request* request, Response* out, Parked* parked) noexcept nogil:
    if w.r.version < FETCH_BATCHES_FROM and not w.converts:
        return convert(core, w, request, out, parked)
    return answer(core, w, request, 0, out)

cdef int wait_for_messages(FetchCore* core, FetchWait* w, Request* request, Response* out, Parked* parked) noexcept nogil:
    """Looks behind the records of which no message is left, and waits if there are none."""
    w.rewrites = w.converts = False
    cold_wait_release(w.cold)
    w.cold = NULL
    memory_release(w.memory)
    w.memory = NULL
    w.cold_lookups, w.cold_deadline_ns, w.r.on_cold = 0, 0, COLD_ASK
    fetch_request_clear(&w.r)
    return look_or_wait(core, w, request, out, parked, False, False)

cdef bint hand_to_plugins(FetchCore* core, FetchWait* w, const Request* request) noexcept nogil:
    """Returns whether plugins must process some range first. They see verified bytes only. If the
    queue is full, the partition gets a retriable error."""
    cdef FetchPartition* part
    cdef Partition* p
    cdef int16_t error
    cdef int32_t i
    cdef int slot
    cdef bint asked = False
    for i in range(w.r.part_count):
        asked |= w.r.parts[i].intercepted
    if not asked:
        return False
    settle_records(&w.r)
    asked = False
    slot = epoch_enter(table_epochs(core.table))
    for i in range(w.r.part_count):
        part = &w.r.parts[i]
        if not part.intercepted or part.slice.size_bytes == 0:
            continue
        p = find(core, part, &error)
        if p != NULL:
            part.rewrite = rewrite_ask(rewrite_new(
                core.rewrites, request.thread_index, request.connection_id, p, &part.slice))
        if part.rewrite == NULL:
            refuse_records(part, REQUEST_TIMED_OUT)
        asked |= part.rewrite != NULL
    epoch_leave(table_epochs(core.table), slot)
    return asked

cdef void refuse_records(FetchPartition* part, int16_t error) noexcept nogil:
    rewrite_drop(part.rewrite)
    part.rewrite = NULL
    if part.slice.segment != NULL:
        segment_release(part.slice.segment)
    memset(&part.slice, 0, sizeof(LogSlice))
    refuse(part, error, NULL)

cdef bint plugins_are_done(FetchWait* w) noexcept nogil:
    cdef int32_t i
    for i in range(w.r.part_count):
        if w.r.parts[i].rewrite != NULL and not rewrite_is_done(w.r.parts[i].rewrite):
            return False
    return True

cdef int take_rewritten(FetchCore* core, FetchWait* w, Request* request, Response* out, Parked* parked) noexcept nogil:
    """Goes on with the results of plugins or conversions, after they finished or their time is
    over."""
    cdef Rewrite* rewrite
    cdef int64_t left = INT32_LAST - fetch_answer_frame_bytes(&w.r)
    cdef int32_t i
    for i in range(w.r.part_count):
        rewrite = w.r.parts[i].rewrite
        if rewrite == NULL:
            left -= w.r.parts[i].slice.size_bytes
        elif not rewrite_is_done(rewrite):
            refuse_records(&w.r.parts[i], REQUEST_TIMED_OUT)
        elif rewrite.error != 0:
            refuse_records(&w.r.parts[i], rewrite.error)
        elif rewrite.made_bytes > left:
            refuse_records(&w.r.parts[i], MESSAGE_TOO_LARGE)
        else:
            left -= rewrite.made_bytes
    if w.converts:
        count_conversions(core, w, request)
        if is_barren(w):
            return wait_for_messages(core, w, request, out, parked)
    return convert_or_answer(core, w, request, out, parked)

cdef int finish(FetchCore* core, FetchWait* w, Request* request, Response* out, Parked* parked) noexcept nogil:
    """Answers when the records are in memory; plugins of the topic process them first, and then
    they are converted for old versions."""
    if not hand_to_plugins(core, w, request):
        return convert_or_answer(core, w, request, out, parked)
    w.rewrites = True
    return handler_parks(parked, w, now_ns(core) + REWRITE_WAIT_NS)

cdef bint warm(FetchCore* core, FetchWait* w, const Request* request) noexcept nogil:
    """Returns whether a range must be read from the disk first; then w.cold is that wait."""
    cdef ColdWait* wait = NULL
    cdef LogSlice* slice
    cdef int32_t i
    for i in range(w.r.part_count):
        slice = &w.r.parts[i].slice
        if slice.size_bytes == 0 or (
            slice_is_verified(slice) and not slice_is_cold(core.table, slice)
        ):
            continue
        if wait == NULL:
            wait = cold_wait_new(request.thread_index, request.connection_id)
            if wait == NULL:
                return False
        if not cold_ask(core.cold, wait, slice) and not slice_is_verified(slice):
            slice_verify(slice.segment, table_system(core.table), slice_end(slice))
    if wait == NULL:
        return False
    if cold_asked_all(wait):  # refused, or read already
        cold_wait_release(wait)
        return False
    w.cold = wait
    atomic_add_i64(&core.cold_waits, 1)
    return True

cdef int settle(FetchCore* core, FetchWait* w, Request* request, Response* out, Parked* parked) noexcept nogil:
    """Answers with the chosen records as soon as they are in memory."""
    unwatch_all(core, w)
    if not warm(core, w, request):
        return finish(core, w, request, out, parked)
    return handler_parks(parked, w, now_ns(core) + COLD_WAIT_NS)

cdef int wait_for_lookups(FetchCore* core, FetchWait* w, Request* request, Budget* found, Response* out, Parked* parked) noexcept nogil:
    """Waits until threads have read what the lookups need; then looks again. If the disk takes longer
    than COLD_WAIT_NS, the answer has no records from it, and the client asks again."""
    cdef int64_t now = now_ns(core), retry
    fetch_request_clear(&w.r)
    w.looks_again = True
    if w.cold_deadline_ns == 0:
        w.cold_deadline_ns = now + COLD_WAIT_NS
        atomic_add_i64(&core.cold_waits, 1)
    w.cold = found.cold
    w.cold.thread_index = request.thread_index
    w.cold.connection_id = request.connection_id
    if not cold_asked_all(w.cold):
        return handler_parks(parked, w, w.cold_deadline_ns)
    if found.cold_is_full:
        retry = min(now + COLD_RETRY_NS, w.cold_deadline_ns)
        cold_wait_release(w.cold)
        w.cold = NULL
        return handler_parks(parked, w, retry)
    return look_after_lookups(core, w, request, out, parked, now)

cdef int look_after_lookups(FetchCore* core, FetchWait* w, Request* request, Response* out, Parked* parked, int64_t now) noexcept nogil:
    if w.cold != NULL:
        w.cold_lookups += 1
    cold_wait_release(w.cold)
    w.cold = NULL
    w.looks_again = False
    if now >= w.cold_deadline_ns:
        w.r.on_cold = COLD_SKIP
    elif w.cold_lookups == COLD_LOOKUPS_MAX:
        w.r.on_cold = COLD_WAIT
    return look_or_wait(core, w, request, out, parked, False, now >= w.deadline_ns)

cdef int look_or_wait(FetchCore* core, FetchWait* w, Request* request, Response* out, Parked* parked, bint first_time, bint expired) noexcept nogil:
    cdef Budget found
    look(core, &w.r, first_time, &found, request.thread_index)
    if found.cold != NULL:
        return wait_for_lookups(core, w, request, &found, out, parked)
    if expired or is_enough(core, &w.r, &found):
        return settle(core, w, request, out, parked)
    fetch_request_clear(&w.r)
    if not watch_all(core, w, request):
        wait_free(core, w)
        return HANDLER_CLOSE
    look(core, &w.r, False, &found, request.thread_index)
    if found.cold != NULL:
        return wait_for_lookups(core, w, request, &found, out, parked)
    if is_enough(core, &w.r, &found):
        return settle(core, w, request, out, parked)
    fetch_request_clear(&w.r)
    w.cold_lookups, w.cold_deadline_ns, w.r.on_cold = 0, 0, COLD_ASK
    return handler_parks(parked, w, w.deadline_ns)

# ---- the native handler

cdef inline bint _serves(const Request* r) noexcept nogil:
    return r.api_key == FETCH_KEY and FETCH_VERSION_MIN <= r.api_version <= FETCH_VERSION_MAX

cdef int native_handle(void* context, Request* request, Response* out, Parked* parked) noexcept nogil:
    cdef FetchCore* core = <FetchCore*>context
    cdef FetchWait* w = <FetchWait*>malloc(sizeof(FetchWait))
    cdef int status
    if w == NULL:
        return HANDLER_CLOSE
    memset(w, 0, sizeof(FetchWait))
    fetch_request_init(&w.r)
    status = fetch_parse(
        &w.r, request.data + request.body_at, request.size_bytes - request.body_at, request.api_version)
    if status == FETCH_OK:
        status = session_begin(core.sessions, &w.r, request.received_ns // NS_PER_MS, &w.use)
        if status > 0:
            return answer(core, w, request, <int16_t>status, out)
    if status < 0:
        wait_free(core, w)
        return HANDLER_CLOSE
    if request.permissions != NULL and not check_rights(core, w, request):
        return HANDLER_PYTHON
    request.from_follower = w.r.replica_id >= 0
    if request.from_follower:
        w.r.isolation = 0           # its answer lists no aborted transactions
    if quota_of(request) != NULL:       # as in Kafka: no answer may be larger than the whole quota
        w.r.max_bytes = <int32_t>min(<int64_t>w.r.max_bytes, quota_largest(quota_of(request)))
    w.r.listener_index = request.listener_index
    w.deadline_ns = request.received_ns + w.r.max_wait_ms * NS_PER_MS
    status = look_or_wait(core, w, request, out, parked, True, False)
    if status == HANDLER_PARKED:
        atomic_add_i64(&core.waits, 1)
    return status

cdef int native_resume(void* context, Request* request, Response* out, Parked* parked, bint expired) noexcept nogil:
    cdef FetchCore* core = <FetchCore*>context
    cdef FetchWait* w = <FetchWait*>parked.state
    if permission_moved(request):
        unwatch_all(core, w)        # the check does not keep which partitions have watches
        if not check_rights(core, w, request):
            parked.state = NULL
            return HANDLER_PYTHON
    if w.rewrites:
        if not expired and not plugins_are_done(w):
            return HANDLER_PARKED
        return take_rewritten(core, w, request, out, parked)
    if w.converts:
        return go_on_converting(core, w, request, out, parked, expired)
    if w.looks_again:
        if not expired and (w.cold == NULL or not cold_wait_is_over(w.cold)):
            return HANDLER_PARKED
        return look_after_lookups(core, w, request, out, parked, now_ns(core))
    if w.cold != NULL:
        if not expired and not cold_wait_is_over(w.cold):
            return HANDLER_PARKED
        return finish(core, w, request, out, parked)
    if expired:
        atomic_add_i64(&core.expired, 1)
    return look_or_wait(core, w, request, out, parked, False, expired)

cdef void native_abandon(void* context, Parked* parked) noexcept nogil:
    wait_free(<FetchCore*>context, <FetchWait*>parked.state)
    parked.state = NULL

# ---- Python

cdef int read_header(Request* request) noexcept nogil:
    """Fills the request from its frame's header, as the reactor does; -1: malformed."""
    cdef Cursor c = cursor_of(request.data, request.size_bytes)
    cdef int64_t tags, i
    request.api_key = cursor_i16(&c)
    request.api_version = cursor_i16(&c)
    request.correlation_id = cursor_i32(&c)
    request.client_id_bytes = cursor_i16(&c)
    request.client_id = NULL
    if request.client_id_bytes > 0:
        request.client_id = cursor_take(&c, request.client_id_bytes)
    if request.api_version >= FETCH_FLEXIBLE_FROM:
        tags = <int64_t>cursor_uvarint(&c, 5)
        for i in range(tags):
            cursor_uvarint(&c, 5)
            cursor_take(&c, <int64_t>cursor_uvarint(&c, 5))
            if c.bad:
                break
    request.body_at = c.p - request.data
    return -1 if c.bad else 0

cdef bytes whole_response(Response* out, System* system):
    """Returns the answer's bytes, with its slices read from the files; consumes the response."""
    cdef bytes whole
    cdef char* at
    cdef int32_t i
    cdef int64_t done = 0, got
    cdef LogSlice slice
    parts = []
    try:
        for i in range(out.slice_count):
            slice = out.slices[i].slice
            parts.append((<char*>out.bytes.data)[done:out.slices[i].after_byte])
            done = out.slices[i].after_byte
            whole = PyBytes_FromStringAndSize(NULL, slice.size_bytes)
            at = PyBytes_AS_STRING(whole)
            with nogil:
                got = system.pread(
                    system, segment_fd(slice.segment, system), at, slice.size_bytes, slice.position)
            if got != slice.size_bytes:
                raise OSError(-got if got < 0 else 0, "a slice could not be read whole")
            parts.append(whole)
        parts.append((<char*>out.bytes.data)[done:out.bytes.size])
    finally:
        response_free(out)
    return b"".join(parts)

@cython.no_gc_clear         # __dealloc__ needs what it refers to
cdef class ParkedFetch:
    """A delayed fetch. It keeps the request's frame, because the request points into it."""
    cdef FetchHandler handler
    cdef bytes frame
    cdef Request request
    cdef Parked parked

    def __dealloc__(self):
        if self.parked.state != NULL:
            native_abandon(&self.handler.core, &self.parked)

    @property
    def deadline_ns(self):
        return self.parked.deadline_ns

    def resume(self, *, bint expired=False):
        """Returns the answer's frame, or None while the request still waits."""
        cdef Response out
        cdef int status
        if self.parked.state == NULL:
            raise ValueError("the request has been answered")
        response_init(&out)
        with nogil:
            status = native_resume(&self.handler.core, &self.request, &out, &self.parked, expired)
        if status == HANDLER_PARKED:
            return None
        self.parked.state = NULL
        memory_release(self.request.memory)     # the answer's bytes belong to the caller
        self.request.memory = NULL
        return self.handler.answer_of(status, &out)

    def wait(self):
        """Waits without the GIL, at most maxWaitMs of the request; returns the answer's frame."""
        cdef Table* table = self.handler.core.table
        cdef int64_t wakes, deadline_ns
        cdef bint expired = False
        while True:
            wakes = table_local_wakes(table)
            done = self.resume(expired=expired)
            if done is not None:
                return done
            deadline_ns = self.parked.deadline_ns
            with nogil:
                expired = not table_wait_local(table, wakes, deadline_ns)

    def abandon(self):
        """Drops the request, because its client has disconnected."""
        if self.parked.state != NULL:
            native_abandon(&self.handler.core, &self.parked)

@cython.no_gc_clear         # __dealloc__ needs what it refers to
cdef class FetchHandler(NativeHandler):
    """The native Fetch handler of one broker. It keeps references to `table` and `sessions`."""

    def __cinit__(self, table, FetchSessions sessions, *, int fetch_bytes_max,
                  bint selects_by_rack=False, int cold_depth_max=256):
        memset(&self.core, 0, sizeof(FetchCore))
        self.core.table = table_of(table)
        self.core.sessions = sessions.cache
        self.core.fetch_bytes_max = fetch_bytes_max
        self.core.selects_by_rack = selects_by_rack
        self.core.cold = cold_reads_new(self.core.table, cold_depth_max)
        if self.core.cold == NULL:
            raise MemoryError
        self.table_owner, self.sessions_owner, self.threads = table, sessions, []
        self.rewrites = RewriteQueue(REWRITES_MAX)
        self.core.rewrites = self.rewrites.serve(table)
        self.conversions = DownConversionQueue(REWRITES_MAX)
        self.core.conversions = self.conversions.serve(table)
        self.declare(
            ((FETCH_KEY, FETCH_VERSION_MIN, FETCH_VERSION_MAX),),
            &self.core, native_handle, native_resume, native_abandon)
        self.owner = (table, sessions)

    def __init__(self, *_args, **_named):
        pass

    def __dealloc__(self):
        cold_reads_free(self.core.cold)

    def throttle_followers(self, SensorCarrier throttle not None):
        """Counts the records of throttled partitions with `throttle`, and keeps them from followers
        while it is exceeded. Call it before the first request."""
        self.throttle_owner, self.core.leader_throttle = throttle, throttle.sensor

    cdef void bind(self, Waker* waker):
        table_bind_waker(self.core.table, waker)

    def start(self, int thread_count=2, *, int directory_count=1):
        """Starts the threads that read old data into memory, `thread_count` for each log directory.
        Without them sendfile waits for the disk."""
        cold_limit_reading(self.core.cold, thread_count)
        for i in range(thread_count * directory_count):
            self.threads.append(start_thread(self.read_cold_ranges, f"cold-reads-{i}"))
            cold_expect_thread(self.core.cold)

    def stop(self):
        """Ends the threads after they read all queued ranges. Call it after the reactor has stopped
        and before the table closes."""
        self.rewrites.close()
        self.conversions.close()
        cold_close(self.core.cold)
        for thread in self.threads:
            thread.join()
        self.threads.clear()

    def read_cold_ranges(self):
        """Runs one thread of the pool; returns when the pool closes."""
        with nogil:
            cold_run(self.core.cold)

    @property
    def fetch_bytes_max(self):
        return self.core.fetch_bytes_max

    @fetch_bytes_max.setter
    def fetch_bytes_max(self, int value):
        atomic_store_i32(&self.core.fetch_bytes_max, value)

    @property
    def counters(self):
        """Returns the numbers of requests, record bytes and waits; and of those waits, how many
        expired and how many were for the disk; memory of converted answers and waits for it."""
        cdef ColdReads* cold = self.core.cold
        return {
            "requests": atomic_load_i64(&self.core.requests),
            "bytes_out": atomic_load_i64(&self.core.bytes_out),
            "waits": atomic_load_i64(&self.core.waits),
            "expired": atomic_load_i64(&self.core.expired),
            "cold_waits": atomic_load_i64(&self.core.cold_waits),
            "cold_bytes_read": cold.bytes_read,
            "cold_refused": cold.refused,
            "conversion_bytes": self.conversions.memory_bytes,
            "conversion_waits": self.conversions.memory_waits,
        }

    cdef object answer_of(self, int status, Response* out):
        if status != HANDLER_DONE:
            response_free(out)
            raise MalformedMessage("a Fetch request that cannot be read; its connection is closed")
        return whole_response(out, table_system(self.core.table))

    def handle_frame(self, bytes frame not None):
        """Handles one request (header and body without the size) from a test or a request handler.

        Returns the answer with its size in front, or a ParkedFetch if it must wait. Raises
        MalformedMessage where the reactor would close the connection."""
        cdef ParkedFetch waiting = ParkedFetch.__new__(ParkedFetch)
        cdef System* system = table_system(self.core.table)
        cdef Response out
        cdef int status
        waiting.handler, waiting.frame = self, frame
        waiting.request.data = <uint8_t*>PyBytes_AS_STRING(frame)
        waiting.request.size_bytes = len(frame)
        waiting.request.thread_index = LOCAL_THREAD
        waiting.request.received_ns = system.monotonic_ns(system)
        response_init(&out)
        status = read_header(&waiting.request)
        if status < 0 or not _serves(&waiting.request):
            raise MalformedMessage("not a Fetch request of a version this handler takes")
        with nogil:
            status = native_handle(&self.core, &waiting.request, &out, &waiting.parked)
        if status == HANDLER_PARKED:
            return waiting
        return self.answer_of(status, &out)

    def measure(self, bytes frame not None, int64_t rounds):
        """Handles one request many times; returns the bytes of the last answer."""
        cdef Request request
        cdef Response out
        cdef Parked parked
        cdef int64_t i, size_bytes = 0
        cdef int status = HANDLER_DONE
        memset(&request, 0, sizeof(Request))
        request.data = <uint8_t*>PyBytes_AS_STRING(frame)
        request.size_bytes = len(frame)
        request.thread_index = LOCAL_THREAD
        if read_header(&request) < 0:
            raise MalformedMessage("the header cannot be read")
        with nogil:
            for i in range(rounds):
                response_init(&out)
                status = native_handle(&self.core, &request, &out, &parked)
                size_bytes = out.bytes.size + out.slice_bytes
                response_free(&out)
                if status == HANDLER_PARKED:
                    native_abandon(&self.core, &parked)
                if status != HANDLER_DONE:
                    break
        if status != HANDLER_DONE:
            raise ValueError(f"the request was not answered at once ({status})")
        return size_bytes
