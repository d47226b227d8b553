"""The fetches of a follower from one leader broker: the next request, and the effects of a
response.

The steps do no I/O except on the logs: next_request() makes the bytes of a Fetch request,
take_response() appends the records of the answer, moves high watermarks and log starts, and returns
events for what Python must decide (truncation, an epoch that is not the leader's, a log that is
offline). The caller does the network I/O, or simulates it. Both steps run without the GIL.

A partition is fetched from its log's end, with the epoch of its last record, so that the leader
sees where the logs diverge (KIP-595). Requests use a session (KIP-227): they name only partitions
whose offset or epoch has changed; the leader rotates the partitions of a session, and without a
session each request begins with another partition.

    answer for a partition          what follows
    records, no divergence          appended; the high watermark is the leader's, at most the log's end
    divergence, OFFSET_OUT_OF_RANGE, FENCED_LEADER_EPOCH, a log that is offline
                                    an event; the partition waits until restart() or add()
    UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER, an unknown topic or partition
                                    an event; the leader has not got the controller's request yet.
                                    The partition is delayed by NOT_YET_MS, then by twice as much
                                    each time, up to replica.fetch.backoff.ms
    any other error, corrupt records
                                    an event; the partition is delayed by replica.fetch.backoff.ms
    for an offset or epoch that is not the present one: ignored, because the partition has changed
    since the request was sent

With log.durability=fsync the fetch offset must be the flushed end, and the leader sends from there:
so a partition is left out of requests until all that was appended is flushed. wait_flushed() waits
for that, because a request without the partition would wait at the leader while its records are
durable here; the flushes of all partitions of an answer run side by side.

While a partition is delayed, a request waits at the leader no longer than this delay: otherwise the
partition would be missing there for up to replica.fetch.wait.max.ms more.

Partitions in follower.replication.throttled.replicas are counted in a sensor that all fetchers share.
While its rate is above follower.replication.throttled.rate, those of them that are behind the leader's
high watermark are left out of requests (KIP-73; Kafka: ReplicaFetcherThread.shouldFollowerThrottle).

One thread makes the steps; any thread may add, remove and look. remove() returns when no append of
the partition is under way, and an answer to an earlier request does not change a log any more.
Limits: PARTITIONS_MAX partitions; memory is 300 bytes for each, and the request.

Kafka: AbstractFetcherThread, ReplicaFetcherThread, FetchSessionHandler. Next: fetch_messages.pyx.
"""
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from barnabas.cext.codec.buffer cimport Buffer, buffer_free, buffer_i32, buffer_init
from barnabas.cext.codec.endian cimport be64_load
from barnabas.cext.codec.fields cimport write_count, write_no_tags
from barnabas.cext.log.follower_append cimport (
    APPEND_BELOW_START, FollowerAppend, log_append_as_follower, log_last_epoch,
)
from barnabas.cext.log.log cimport (
    log_end_offset, log_flushed_offset, log_is_offline, log_start_offset,
)
from barnabas.cext.log.truncation cimport log_advance_start
from barnabas.cext.memory.array cimport array_room
from barnabas.cext.memory.atomics cimport atomic_load_i32
from barnabas.cext.memory.condition cimport monotonic_now_ns
from barnabas.cext.memory.epoch cimport EpochDomain, epoch_enter, epoch_leave
from barnabas.cext.memory.int64_map cimport (
    Int64Map, int64_map_free, int64_map_get, int64_map_init, int64_map_put, int64_map_remove,
)
from barnabas.cext.memory.mutex cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t,
    pthread_mutex_unlock,
)
from barnabas.cext.network.handler cimport SensorCarrier
from barnabas.cext.network.quotas cimport QuotaSensor, quota_is_exceeded, quota_note
from barnabas.cext.partition.partitions cimport (
    LOCAL_THREAD, Partition, THROTTLED_FOLLOWER, Table, partition_commit, partition_find_id,
    partition_flush, partition_follow, partition_is_throttled, partition_truncated,
    partition_unwatch, partition_watch, table_epochs, table_is_fsync, table_local_wakes,
    table_node_id, table_of, table_wait_local, topic_named, watch_waits,
)
from barnabas.cext.partition.topics cimport Topic
from barnabas.cext.replica.fetch_messages cimport (
    AnswerPartition, FetchAnswer, FetchLimits, REPLICA_FETCH_VERSION_MAX,
    REPLICA_FETCH_VERSION_MIN, TOPIC_IDS_FROM, WantedPartition, answer_begin, answer_is_whole,
    answer_next, write_begin, write_end, write_topic, write_wanted,
)

VERSION_MIN = REPLICA_FETCH_VERSION_MIN
VERSION_MAX = REPLICA_FETCH_VERSION_MAX
PARTITIONS_MAX = 262144

cdef enum:
    NOT_YET_MS = 10             # the first delay while the leader does not know that it leads
    MS = 1000000                # in ns

cdef enum:                      # Kafka error codes
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNKNOWN_TOPIC_ID = 100

cdef enum EventKind:            # the first of these wait for Python
    EVENT_DIVERGED = 0
    EVENT_OUT_OF_RANGE = 1
    EVENT_BELOW_START = 2
    EVENT_FENCED = 3
    EVENT_OFFLINE = 4
    EVENT_LAST_WAITING = 4
    EVENT_UNKNOWN_EPOCH = 5
    EVENT_NOT_LEADER = 6
    EVENT_UNKNOWN_TOPIC = 7
    EVENT_CORRUPT = 8
    EVENT_STORAGE = 9
    EVENT_ERROR = 10
    EVENT_REFUSED = 11

KINDS = (
    "diverged", "out of range", "below start", "fenced", "offline", "unknown epoch", "not leader",
    "unknown topic", "corrupt", "storage", "error", "refused",
)

cdef struct Event:
    Follow* follow              # NULL: all partitions
    int kind
    int64_t first
    int64_t second


class MalformedFetchAnswer(ValueError):
    """The bytes are not the answer to a Fetch request of this version."""


@cython.no_gc_clear             # __dealloc__ uses the table
cdef class ReplicaFetches:
    """The partitions that this node follows from one leader broker, or a share of them.

    `table`: the PartitionTable, whose logs the records go to; `node_id`, `broker_epoch`: of this
    node (-1: none); `throttle`: counts throttled partitions, None: they are not throttled; the rest
    are replica.fetch.* settings, in bytes and ms. Raises MemoryError."""
    cdef object table_handle
    cdef Table* table
    cdef object throttle_owner
    cdef QuotaSensor* throttle
    cdef pthread_mutex_t lock   # of everything below
    cdef Follow** items
    cdef int64_t count
    cdef int64_t capacity
    cdef Int64Map by_id
    cdef Follow* forgotten      # removed; the leader's session still has them
    cdef Event* events
    cdef int64_t event_count
    cdef int64_t event_capacity
    cdef bint events_lost       # without memory: Python cannot act, so the step raises MemoryError
    cdef dict ids               # (topic, index): topic id
    cdef FetchLimits limits
    cdef int64_t backoff_ns
    cdef int32_t node_id
    cdef public int64_t broker_epoch
    cdef int16_t version
    cdef int32_t session_id
    cdef int32_t session_epoch  # of the next request; 0: it is full, and begins a session
    cdef int64_t rotation
    cdef int64_t requests
    cdef int64_t bytes_appended
    cdef int64_t batches_appended
    cdef int64_t session_errors

    def __cinit__(self, table not None, *, int32_t node_id, int64_t broker_epoch=-1,
                  int32_t max_bytes=1048576, int32_t response_max_bytes=10485760,
                  int32_t min_bytes=1, int32_t wait_max_ms=500, int64_t backoff_ms=1000,
                  SensorCarrier throttle=None):
        self.table = table_of(table)
        self.throttle_owner, self.throttle = throttle, NULL if throttle is None else throttle.sensor
        self.table_handle = table
        self.ids = {}
        self.node_id, self.broker_epoch = node_id, broker_epoch
        self.limits.partition_bytes_max, self.limits.bytes_max = max_bytes, response_max_bytes
        self.limits.bytes_min, self.limits.wait_ms_max = min_bytes, wait_max_ms
        self.backoff_ns = backoff_ms * 1000000
        int64_map_init(&self.by_id)
        pthread_mutex_init(&self.lock, NULL)

    def __dealloc__(self):
        cdef int64_t i
        for i in range(self.count):
            self._free(self.items[i])
        if self.table_handle is not None:
            self._free_forgotten()
            pthread_mutex_destroy(&self.lock)
        free(self.items)
        free(self.events)
        int64_map_free(&self.by_id)

    cdef int _lock(self) except -1:
        with nogil:
            pthread_mutex_lock(&self.lock)
        return 0

    cdef void _free(self, Follow* f) noexcept nogil:
        if f.flushing:
            partition_unwatch(self.table, &f.watch)
        free(<void*>f.wanted.topic)
        free(f)

    cdef void _free_forgotten(self) noexcept nogil:
        cdef Follow* following
        while self.forgotten != NULL:
            following = self.forgotten.next_forgotten
            self._free(self.forgotten)
            self.forgotten = following

    # -- which partitions

    def add(self, str topic not None, int32_t index, topic_id not None, int32_t leader_epoch) -> None:
        """Follows a partition, or changes its leader epoch; it is fetched from its log's end with
        the next request. `topic_id`: 16 bytes. Raises ValueError for another size or too many
        partitions, and MemoryError."""
        cdef bytes raw_id = bytes(topic_id)
        cdef bytes raw = topic.encode()
        cdef Follow* f
        if len(raw_id) != 16:
            raise ValueError(f"the id of topic {topic} has {len(raw_id)} bytes; it must have 16")
        self._lock()
        try:
            known = self.ids.get((topic, index))
            if known is not None and known != raw_id:
                self._remove(topic, index)
            f = self._find(<const uint8_t*>PyBytes_AS_STRING(raw_id), index)
            if f == NULL:
                if self.count == PARTITIONS_MAX:
                    raise ValueError(f"a fetcher follows at most {PARTITIONS_MAX} partitions")
                f = self._made(raw, raw_id, index)
                self.ids[topic, index] = raw_id
            f.leader_epoch = leader_epoch
            f.state = FOLLOW_FETCHES
            f.delayed_until_ns = f.not_yet_ns = 0
            f.read_from = -1
        finally:
            pthread_mutex_unlock(&self.lock)

    cdef Follow* _made(self, bytes raw, bytes raw_id, int32_t index) except NULL:
        cdef Follow* f = <Follow*>calloc(1, sizeof(Follow))
        cdef char* name = <char*>malloc(len(raw) + 1)
        cdef bint fits = f != NULL and name != NULL and array_room(
            &self.items, &self.capacity, self.count + 1, sizeof(Follow*)
        )
        if fits:
            memcpy(name, PyBytes_AS_STRING(raw), len(raw))
            memcpy(f.wanted.topic_id, PyBytes_AS_STRING(raw_id), 16)
            f.wanted.topic, f.wanted.topic_bytes, f.wanted.index = name, <int32_t>len(raw), index
            f.wanted.offset = -1        # nothing was sent
            f.lag = -1
            f.watch.thread_index = LOCAL_THREAD
            f.hash = _hash(f.wanted.topic_id, index)
            f.same_hash = <Follow*><size_t>int64_map_get(&self.by_id, f.hash, 0)
            fits = int64_map_put(&self.by_id, f.hash, <int64_t><size_t>f)
        if not fits:
            free(name)
            free(f)
            raise MemoryError
        f.place = self.count
        self.items[self.count] = f
        self.count += 1
        self._take_back(f)
        return f

    cdef void _take_back(self, Follow* f) noexcept:
        """The leader's session may still have the partition, or one of a former topic of that
        name: the request must not name it as forgotten."""
        cdef Follow** at = &self.forgotten
        cdef Follow* old
        while at[0] != NULL:
            old = at[0]
            if old.wanted.index == f.wanted.index and memcmp(
                    old.wanted.topic_id, f.wanted.topic_id, 16) == 0:
                at[0] = old.next_forgotten
                f.in_session = True
                self._free(old)
                continue
            if _same_topic(&old.wanted, &f.wanted, False) and old.wanted.index == f.wanted.index:
                old.replaced = True
            at = &old.next_forgotten

    cdef Follow* _find(self, const uint8_t* topic_id, int32_t index) noexcept nogil:
        cdef Follow* f = <Follow*><size_t>int64_map_get(&self.by_id, _hash(topic_id, index), 0)
        while f != NULL and (f.wanted.index != index or memcmp(f.wanted.topic_id, topic_id, 16)):
            f = f.same_hash
        return f

    def remove(self, str topic not None, int32_t index) -> bool:
        """Stops following a partition; returns whether it was followed. When it returns, no thread
        appends to the partition for this object any more."""
        self._lock()
        try:
            return self._remove(topic, index)
        finally:
            pthread_mutex_unlock(&self.lock)

    cdef bint _remove(self, str topic, int32_t index) except -1:
        cdef bytes raw_id = self.ids.pop((topic, index), None)
        cdef Follow* f
        cdef Follow* at
        cdef int64_t i
        if raw_id is None:
            return False
        f = self._find(<const uint8_t*>PyBytes_AS_STRING(raw_id), index)
        at = <Follow*><size_t>int64_map_get(&self.by_id, f.hash, 0)
        if at == f and f.same_hash == NULL:
            int64_map_remove(&self.by_id, f.hash)
        elif at == f:
            int64_map_put(&self.by_id, f.hash, <int64_t><size_t>f.same_hash)
        else:
            while at.same_hash != f:
                at = at.same_hash
            at.same_hash = f.same_hash
        self.count -= 1
        self.items[f.place] = self.items[self.count]
        self.items[f.place].place = f.place
        for i in range(self.event_count):
            if self.events[i].follow == f:
                self.events[i].kind = -1        # nothing to decide any more
        if f.flushing:
            partition_unwatch(self.table, &f.watch)
            f.flushing = False
        if f.in_session and self.session_epoch != 0:
            f.next_forgotten = self.forgotten
            self.forgotten = f
        else:
            self._free(f)
        return True

    def restart(self, str topic not None, int32_t index, *, int64_t read_from=-1,
                int64_t not_before_ns=0) -> None:
        """Fetches a partition that waits again, from its log's end, after Python has changed the
        log. It also moves the high watermark into the log. `read_from`: an offset that the requests
        name while the log ends below it: the log's start, when that lies inside a batch.
        `not_before_ns`: the earliest time of the next request. Does nothing for a partition that is
        not followed."""
        cdef Follow* f
        cdef Partition* p
        cdef int slot
        self._lock()
        try:
            raw_id = self.ids.get((topic, index))
            if raw_id is None:
                return
            f = self._find(<const uint8_t*>PyBytes_AS_STRING(raw_id), index)
            f.state = FOLLOW_FETCHES
            f.read_from = read_from
            f.delayed_until_ns = not_before_ns
            slot = epoch_enter(table_epochs(self.table))
            p = self._partition(f)
            if p != NULL:
                partition_truncated(self.table, p)
            epoch_leave(table_epochs(self.table), slot)
        finally:
            pthread_mutex_unlock(&self.lock)

    def waits(self, str topic not None, int32_t index) -> bool:
        """Returns whether the partition is followed and waits for restart() or add()."""
        self._lock()
        try:
            raw_id = self.ids.get((topic, index))
            return raw_id is not None and self._find(
                <const uint8_t*>PyBytes_AS_STRING(raw_id), index).state == FOLLOW_WAITS
        finally:
            pthread_mutex_unlock(&self.lock)

    def __len__(self):
        return self.count

    def partitions(self) -> list:
        """Returns [(topic, partition, leader epoch, lag in records, waits), ...]; lag is -1 before
        the first answer."""
        cdef int64_t i
        cdef Follow* f
        self._lock()
        try:
            found = []
            for i in range(self.count):
                f = self.items[i]
                found.append((_topic_of(f), f.wanted.index, f.leader_epoch, f.lag,
                              f.state == FOLLOW_WAITS))
            return found
        finally:
            pthread_mutex_unlock(&self.lock)

    def counters(self) -> dict:
        """Returns the number of requests, of appended bytes and batches, and of session errors."""
        return {"requests": self.requests, "bytes": self.bytes_appended,
                "batches": self.batches_appended, "session_errors": self.session_errors}

    # -- the next request

    def next_request(self, int16_t version, int64_t now_ns):
        """Returns the body of the next Fetch request; None when no partition can be fetched now.

        `version`: VERSION_MIN to VERSION_MAX; ValueError otherwise. `now_ns`: on the clock of
        take_response(). Raises MemoryError."""
        cdef Buffer b
        cdef bint any_wanted = False
        if not REPLICA_FETCH_VERSION_MIN <= version <= REPLICA_FETCH_VERSION_MAX:
            raise ValueError(f"the version of Fetch is {version}; it must be"
                             f" {REPLICA_FETCH_VERSION_MIN} to {REPLICA_FETCH_VERSION_MAX}")
        buffer_init(&b)
        try:
            with nogil:
                pthread_mutex_lock(&self.lock)
                any_wanted = self._write_request(&b, version, now_ns)
                pthread_mutex_unlock(&self.lock)
            if b.failed:
                raise MemoryError
            return PyBytes_FromStringAndSize(<char*>b.data, b.size) if any_wanted else None
        finally:
            buffer_free(&b)

    cdef bint _write_request(self, Buffer* b, int16_t version, int64_t now_ns) noexcept nogil:
        """Returns False, and writes nothing, when no partition can be fetched now."""
        cdef Follow** chosen = <Follow**>malloc((self.count + 1) * sizeof(Follow*))
        cdef Follow** left = <Follow**>malloc((self.count + 1) * sizeof(Follow*))
        cdef Follow* f
        cdef int64_t i, chosen_count = 0, left_count = 0
        cdef int32_t fetchable = 0, unflushed = 0
        cdef int64_t wait_ms = self.limits.wait_ms_max
        cdef bint full = self.session_epoch == 0, changed
        cdef int slot
        if chosen == NULL or left == NULL:
            b.failed = True
            free(chosen)
            free(left)
            return False
        slot = epoch_enter(table_epochs(self.table))
        for i in range(self.count):
            f = self.items[(i + self.rotation) % self.count] if full else self.items[i]
            changed = False
            if self._is_fetchable(f, now_ns, &changed, &unflushed):
                fetchable += 1
                if full or changed or not f.in_session:
                    chosen[chosen_count] = f
                    chosen_count += 1
                continue
            if f.state == FOLLOW_FETCHES and f.delayed_until_ns > now_ns:
                wait_ms = min(wait_ms, (f.delayed_until_ns - now_ns + MS - 1) // MS)
            if f.in_session and not full:
                left[left_count] = f
                left_count += 1
        epoch_leave(table_epochs(self.table), slot)
        if fetchable:
            if full:
                self.rotation += 1
            self._write(b, version, chosen, chosen_count, left, left_count,
                        0 if unflushed else <int32_t>wait_ms)
        free(chosen)
        free(left)
        return fetchable > 0

    cdef bint _is_fetchable(self, Follow* f, int64_t now_ns, bint* changed, int32_t* unflushed) noexcept nogil:
        """Returns whether to fetch a partition now, and sets its offset in the next request."""
        cdef WantedPartition* w = &f.wanted
        cdef Partition* p
        cdef int64_t offset, log_start
        cdef int32_t last_epoch
        if f.state != FOLLOW_FETCHES or now_ns < f.delayed_until_ns:
            return False
        p = self._partition(f)
        if p == NULL:
            self._note(f, EVENT_OFFLINE, 0, 0, now_ns)
            return False
        if self._is_throttled(f, p, now_ns):
            return False
        offset = log_end_offset(p.log)
        if table_is_fsync(self.table) and log_flushed_offset(p.log) < offset:
            unflushed[0] += 1
            self._ask_flush(f, p)
            return False
        last_epoch = log_last_epoch(p.log)
        log_start = log_start_offset(p.log)
        offset = max(offset, f.read_from)
        changed[0] = (
            w.offset != offset or w.leader_epoch != f.leader_epoch or w.last_epoch != last_epoch
            or w.log_start != log_start)
        w.offset, w.log_start, w.leader_epoch, w.last_epoch = (
            offset, log_start, f.leader_epoch, last_epoch)
        return True

    cdef bint _is_throttled(self, const Follow* f, const Partition* p, int64_t now_ns) noexcept nogil:
        return (self.throttle != NULL and f.lag != 0
                and partition_is_throttled(p, THROTTLED_FOLLOWER)
                and quota_is_exceeded(self.throttle, now_ns // MS))

    cdef void _write(self, Buffer* b, int16_t version, Follow** chosen, int64_t chosen_count,
                     Follow** left, int64_t left_count, int32_t wait_ms) noexcept nogil:
        cdef int64_t at = 0, i, run
        self.version = version
        self.requests += 1
        if self.session_epoch == 0:
            self._free_forgotten()
            for i in range(self.count):
                self.items[i].in_session = False
        write_begin(b, version, self.node_id, &self.limits, wait_ms, self.session_id,
                    self.session_epoch, _runs(chosen, chosen_count, version))
        while at < chosen_count:
            run = _run_length(chosen, chosen_count, at, version)
            _write_run(b, version, chosen + at, run, self.limits.partition_bytes_max)
            at += run
        for i in range(left_count):
            left[i].in_session = False
        self._write_forgotten(b, version, left, left_count)
        write_end(b, version, self.node_id, self.broker_epoch)

    cdef void _write_forgotten(self, Buffer* b, int16_t version, Follow** left, int64_t count) noexcept nogil:
        """Writes the partitions that the leader's session shall forget: those that were removed,
        and those that are not fetched now (`left`)."""
        cdef Follow* f = self.forgotten
        cdef int64_t total = count, i
        while f != NULL:
            total += version >= TOPIC_IDS_FROM or not f.replaced
            f = f.next_forgotten
        write_count(b, True, total)
        for i in range(count):
            _write_forgotten(b, version, left[i])
        f = self.forgotten
        while f != NULL:
            if version >= TOPIC_IDS_FROM or not f.replaced:
                _write_forgotten(b, version, f)
            f = f.next_forgotten
        self._free_forgotten()

    def delay_ns(self, int64_t now_ns):
        """Returns the time in ns until the first delayed partition is fetched again; None when none
        is delayed."""
        cdef int64_t first = INT64_MAX, i
        self._lock()
        for i in range(self.count):
            if self.items[i].state == FOLLOW_FETCHES and self.items[i].delayed_until_ns > now_ns:
                first = min(first, self.items[i].delayed_until_ns)
        pthread_mutex_unlock(&self.lock)
        return None if first == INT64_MAX else first - now_ns

    def disconnected(self) -> None:
        """Records that the connection has closed: no response will arrive, and the next request
        begins a new session."""
        self._lock()
        self.session_epoch = 0
        self._free_forgotten()
        pthread_mutex_unlock(&self.lock)

    # -- an answer

    def take_response(self, body not None, int64_t now_ns) -> list:
        """Applies the body of the answer to the last request, and returns the events as in
        take_events(). Raises MalformedFetchAnswer, before anything has changed, for bytes that are
        not a response; then the connection must be closed. Raises MemoryError."""
        cdef Py_buffer view
        cdef bint whole
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        with nogil:
            pthread_mutex_lock(&self.lock)
            whole = _is_answer(<const uint8_t*>view.buf, view.len, self.version)
            if whole:
                self._apply(<const uint8_t*>view.buf, view.len, now_ns)
            pthread_mutex_unlock(&self.lock)
        PyBuffer_Release(&view)
        if not whole:
            raise MalformedFetchAnswer(
                f"{view.len} bytes are no answer to a Fetch request of version {self.version}")
        return self.take_events()

    def take_events(self) -> list:
        """Returns [(topic, partition, kind, detail), ...] of what has happened since the last call,
        and removes them. Kinds and details:

        Until restart(), add() or remove() these partitions are not fetched:
        - "diverged": (epoch, end offset of that epoch at the leader; -1: none)
        - "out of range": the fetch offset
        - "below start": the base offset of a batch that contains the start of the empty log
        - "fenced": the leader epoch of the request
        - "offline": None
        These partitions are delayed:
        - "unknown epoch", "not leader", "unknown topic", "error": the error code
        - "corrupt", "storage" (this log could not be written): the log's end
        For all partitions, with topic "" and partition -1:
        - "refused": the error code"""
        cdef int64_t i
        cdef Event* event
        cdef bint lost
        self._lock()
        try:
            found = []
            for i in range(self.event_count):
                event = &self.events[i]
                if event.kind < 0:
                    continue
                detail = event.first
                if event.kind == EVENT_DIVERGED:
                    detail = (event.first, event.second)
                elif event.kind == EVENT_OFFLINE:
                    detail = None
                found.append((
                    _topic_of(event.follow) if event.follow != NULL else "",
                    event.follow.wanted.index if event.follow != NULL else -1,
                    KINDS[event.kind], detail))
            self.event_count = 0
            lost = self.events_lost
            self.events_lost = False
        finally:
            pthread_mutex_unlock(&self.lock)
        if lost:
            raise MemoryError
        return found

    cdef void _note(self, Follow* f, int kind, int64_t first, int64_t second, int64_t now_ns) noexcept nogil:
        """Records an event; the partition waits for Python, or is delayed."""
        if f != NULL and kind <= EVENT_LAST_WAITING:
            f.state = FOLLOW_WAITS
        elif f != NULL and EVENT_UNKNOWN_EPOCH <= kind <= EVENT_UNKNOWN_TOPIC:
            f.not_yet_ns = min(max(2 * f.not_yet_ns, <int64_t>NOT_YET_MS * MS), self.backoff_ns)
            f.delayed_until_ns = now_ns + f.not_yet_ns
        elif f != NULL:
            f.delayed_until_ns = now_ns + self.backoff_ns
        if not array_room(
            &self.events, &self.event_capacity, self.event_count + 1, sizeof(Event)
        ):
            self.events_lost = True
            return
        self.events[self.event_count].follow = f
        self.events[self.event_count].kind = kind
        self.events[self.event_count].first = first
        self.events[self.event_count].second = second
        self.event_count += 1

    cdef Partition* _partition(self, Follow* f) noexcept nogil:
        """Returns the partition of this node whose log can be written, or NULL. The caller is
        inside an epoch."""
        cdef int16_t error
        cdef Partition* p = partition_find_id(self.table, f.wanted.topic_id, f.wanted.index, &error)
        if p == NULL or p.log == NULL or atomic_load_i32(&p.offline) or log_is_offline(p.log):
            return NULL
        return p

    cdef void _apply(self, const uint8_t* body, int64_t size_bytes, int64_t now_ns) noexcept nogil:
        cdef FetchAnswer answer
        cdef AnswerPartition found
        cdef Follow* f
        cdef int64_t i
        cdef int slot
        answer_begin(&answer, body, size_bytes, self.version)
        if not self._next_session(&answer):
            if answer.error not in (FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH):
                for i in range(self.count):
                    self.items[i].delayed_until_ns = now_ns + self.backoff_ns
                self._note(NULL, EVENT_REFUSED, answer.error, 0, now_ns)
            return
        slot = epoch_enter(table_epochs(self.table))
        while answer_next(&answer, &found):
            f = self._answered(&found)
            if f != NULL:
                self._apply_one(f, &found, now_ns)
        epoch_leave(table_epochs(self.table), slot)

    cdef bint _next_session(self, const FetchAnswer* answer) noexcept nogil:
        """Returns whether the answer is about partitions: it has no error."""
        if answer.error != 0:
            self.session_errors += 1
            if answer.error == FETCH_SESSION_ID_NOT_FOUND:
                self.session_id = 0
            self.session_epoch = 0
            return False
        self.session_id = answer.session_id
        if self.session_id == 0:
            self.session_epoch = 0
        elif self.session_epoch == INT32_MAX:
            self.session_epoch = 1
        else:
            self.session_epoch += 1
        return True

    cdef Follow* _answered(self, const AnswerPartition* found) noexcept nogil:
        """Returns the partition that the answer is about; NULL when it is not fetched any more, or
        its place or epoch has changed since the request."""
        cdef Topic* topic = NULL
        cdef Follow* f
        if found.topic == NULL:
            f = self._find(found.topic_id, found.index)
        else:
            topic = topic_named(self.table, found.topic, found.topic_bytes)
            f = NULL if topic == NULL else self._find(topic.id, found.index)
        if f == NULL or f.state != FOLLOW_FETCHES or f.wanted.offset < 0 or (
                f.wanted.leader_epoch != f.leader_epoch):
            return NULL
        return f

    cdef void _apply_one(self, Follow* f, const AnswerPartition* found, int64_t now_ns) noexcept nogil:
        cdef Partition* p = self._partition(f)
        cdef int32_t leader_id
        if p == NULL:
            self._note(f, EVENT_OFFLINE, 0, 0, now_ns)
            return
        leader_id = atomic_load_i32(&p.leader_id)
        if leader_id == table_node_id(self.table) or (
                f.wanted.offset != max(log_end_offset(p.log), f.read_from)):
            return                      # this node leads it now, or its log was changed
        if found.error != 0:
            self._note_error(f, found.error, now_ns)
        elif found.diverges:
            self._note(f, EVENT_DIVERGED, found.diverging_epoch, found.diverging_end, now_ns)
        else:
            self._append(f, p, found, now_ns)

    cdef void _append(self, Follow* f, Partition* p, const AnswerPartition* found, int64_t now_ns) noexcept nogil:
        cdef FollowerAppend done
        cdef int status = log_append_as_follower(
            p.log, found.records, found.size_bytes, f.leader_epoch, &done)
        if self.throttle != NULL and found.size_bytes > 0 and (
                partition_is_throttled(p, THROTTLED_FOLLOWER)):
            quota_note(self.throttle, <double>found.size_bytes, now_ns // MS)
        self.bytes_appended += done.size_bytes
        self.batches_appended += done.batches
        if status == APPEND_BELOW_START:
            self._note(f, EVENT_BELOW_START, <int64_t>be64_load(found.records), 0, now_ns)
        elif status == CORRUPT_MESSAGE or status == OFFSET_OUT_OF_RANGE or (
                status == 0 and found.size_bytes > 0 and done.batches == 0):
            self._note(f, EVENT_CORRUPT, log_end_offset(p.log), 0, now_ns)
        elif status != 0:
            self._note(f, EVENT_OFFLINE if log_is_offline(p.log) else EVENT_STORAGE,
                       log_end_offset(p.log), 0, now_ns)
        if f.state != FOLLOW_FETCHES:
            return
        f.not_yet_ns = 0
        if done.batches:
            f.read_from = -1
        f.lag = max(found.high_watermark - log_end_offset(p.log), <int64_t>0)
        partition_follow(self.table, p, found.high_watermark)
        log_advance_start(p.log, found.log_start)
        if not table_is_fsync(self.table):
            partition_commit(self.table, p)     # for flush.messages
        elif log_flushed_offset(p.log) < log_end_offset(p.log):
            self._ask_flush(f, p)

    cdef void _note_error(self, Follow* f, int16_t error, int64_t now_ns) noexcept nogil:
        cdef int kind = EVENT_ERROR
        cdef int64_t detail = error
        if error == OFFSET_OUT_OF_RANGE:
            kind, detail = EVENT_OUT_OF_RANGE, f.wanted.offset
        elif error == FENCED_LEADER_EPOCH:
            kind, detail = EVENT_FENCED, f.wanted.leader_epoch
        elif error == UNKNOWN_LEADER_EPOCH:
            kind = EVENT_UNKNOWN_EPOCH
        elif error == NOT_LEADER_OR_FOLLOWER:
            kind = EVENT_NOT_LEADER
        elif error == UNKNOWN_TOPIC_OR_PARTITION or error == UNKNOWN_TOPIC_ID:
            kind = EVENT_UNKNOWN_TOPIC
        self._note(f, kind, detail, 0, now_ns)

    # -- flushes

    cdef void _ask_flush(self, Follow* f, Partition* p) noexcept nogil:
        if f.flushing and watch_waits(&f.watch):
            return
        f.flushing = True
        partition_watch(self.table, p, &f.watch)
        partition_flush(self.table, p)

    cdef bint _is_flushing(self) noexcept nogil:
        """Returns whether a partition waits for its flush."""
        cdef Follow* f
        cdef Partition* p
        cdef int64_t i
        cdef bint waiting = False
        cdef int slot = epoch_enter(table_epochs(self.table))
        for i in range(self.count):
            f = self.items[i]
            if f.flushing and not watch_waits(&f.watch):
                p = self._partition(f)
                if p == NULL or log_flushed_offset(p.log) >= log_end_offset(p.log):
                    f.flushing = False
                else:
                    self._ask_flush(f, p)
            waiting = waiting or f.flushing
        epoch_leave(table_epochs(self.table), slot)
        return waiting

    def wait_flushed(self, int64_t timeout_ms) -> bool:
        """Waits until all that was appended is flushed, with log.durability=fsync. Returns False
        after timeout_ms. Call it without the lock of another object; it releases the GIL."""
        cdef int64_t deadline_ns = monotonic_now_ns() + timeout_ms * 1000000
        cdef int64_t wakes
        cdef bint waiting = True
        with nogil:
            while waiting:
                wakes = table_local_wakes(self.table)
                pthread_mutex_lock(&self.lock)
                waiting = self._is_flushing()
                pthread_mutex_unlock(&self.lock)
                if waiting and not table_wait_local(self.table, wakes, deadline_ns):
                    break
        return not waiting


cdef inline int64_t _hash(const uint8_t* topic_id, int32_t index) noexcept nogil:
    """Returns a hash of the partition; it needs no secret key, because topic ids are random."""
    return <int64_t>(be64_load(topic_id) ^ be64_load(topic_id + 8)) + index


cdef bint _same_topic(const WantedPartition* a, const WantedPartition* b, bint by_id) noexcept nogil:
    if by_id:
        return memcmp(a.topic_id, b.topic_id, 16) == 0
    return a.topic_bytes == b.topic_bytes and memcmp(a.topic, b.topic, a.topic_bytes) == 0


cdef int64_t _run_length(Follow** chosen, int64_t count, int64_t first, int16_t version) noexcept nogil:
    """Returns how many partitions from `first` on have the same topic."""
    cdef int64_t i = first + 1
    while i < count and _same_topic(
            &chosen[first].wanted, &chosen[i].wanted, version >= TOPIC_IDS_FROM):
        i += 1
    return i - first


cdef int32_t _runs(Follow** chosen, int64_t count, int16_t version) noexcept nogil:
    cdef int64_t i = 0
    cdef int32_t runs = 0
    while i < count:
        i += _run_length(chosen, count, i, version)
        runs += 1
    return runs


cdef void _write_run(Buffer* b, int16_t version, Follow** chosen, int64_t count, int32_t bytes_max) noexcept nogil:
    cdef int64_t i
    write_topic(b, version, &chosen[0].wanted, <int32_t>count)
    for i in range(count):
        write_wanted(b, version, &chosen[i].wanted, bytes_max)
        chosen[i].in_session = True
    write_no_tags(b, True)


cdef void _write_forgotten(Buffer* b, int16_t version, const Follow* f) noexcept nogil:
    write_topic(b, version, &f.wanted, 1)
    buffer_i32(b, f.wanted.index)
    write_no_tags(b, True)


cdef bint _is_answer(const uint8_t* body, int64_t size_bytes, int16_t version) noexcept nogil:
    cdef FetchAnswer answer
    cdef AnswerPartition found
    if version == 0 or not answer_begin(&answer, body, size_bytes, version):
        return False
    while answer_next(&answer, &found):
        pass
    return answer_is_whole(&answer)


cdef str _topic_of(const Follow* f):
    return f.wanted.topic[:f.wanted.topic_bytes].decode()
