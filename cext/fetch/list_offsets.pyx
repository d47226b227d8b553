"""The ListOffsets lane: where logs start and end, told on the network thread.

Readers that seek ask for both, some of them before every batch (Spark's connector twice a poll).
A request is answered here when all of it is plain: each timestamp LATEST or EARLIEST, each
partition led here, its log online, and for LATEST nothing appended that readers do not see yet
(the other way commits that first). All else goes to Python whole: other timestamps, which look
into the log, errors, a partition that stands twice, tagged fields.

    ListOffsetsRequest   replica id, isolation (2+),
                         [name, [index, current leader epoch (4+), timestamp]], timeout (10+)
    answer               throttle (2+), [name, [index, error, timestamp, offset, leader epoch (4+)]]

Version 6 is the first flexible one. Version 0 is another question and Python's.
Next on the data path: cext/partition/partitions.pyx; broker/api/k02_list_offsets.py is the other way.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from barnabas.cext.codec.buffer cimport Buffer, buffer_i16, buffer_i32, buffer_i64
from barnabas.cext.codec.cursor cimport (
    Cursor, cursor_i32, cursor_i64, cursor_i8, cursor_left, cursor_of,
)
from barnabas.cext.codec.error_codes cimport ERROR_NONE
from barnabas.cext.codec.fields cimport (
    read_count, read_no_tags, read_string, write_count, write_no_tags, write_string,
)
from barnabas.cext.log.log cimport log_end_offset, log_epoch_at, log_start_offset
from barnabas.cext.memory.atomics cimport atomic_add_i64, atomic_load_i32, atomic_load_i64
from barnabas.cext.memory.epoch cimport epoch_enter, epoch_leave
from barnabas.cext.network.handler cimport (
    LANE_DONE, LANE_PYTHON, Lane, lane_abandons_nothing, lane_of, lane_resumes_nothing, LaneHandle,
    Parked, Request, request_error, Response, response_begin, response_end,
)
from barnabas.cext.partition.partitions cimport (
    Partition, partition_by_name, partition_high_watermark, partition_visible_end, Table,
    table_epochs, table_of,
)

cdef enum:
    KEY_LIST_OFFSETS = 2
    VERSION_FIRST = 1
    VERSION_LAST = 11
    VERSION_ISOLATION = 2           # and throttle time
    VERSION_LEADER_EPOCH = 4
    VERSION_FLEXIBLE = 6
    VERSION_TIMEOUT = 10
    READ_COMMITTED = 1
    LATEST = -1
    EARLIEST = -2
    ROWS_MAX = 64                   # each is compared with all before it; larger requests are rare

cdef struct Row:
    const uint8_t* topic
    int32_t topic_bytes
    int32_t index

cdef struct Core:
    Lane lane
    Table* table
    int64_t served                  # atomic

cdef struct Walk:
    Cursor c
    Buffer* answer
    Table* table
    int16_t version
    bint flexible
    bint committed_only
    int32_t count
    Row rows[ROWS_MAX]


cdef bint _stands_twice(const Walk* w, const Row* row) noexcept nogil:
    cdef int32_t i
    for i in range(w.count):
        if w.rows[i].index == row.index and w.rows[i].topic_bytes == row.topic_bytes and (
                memcmp(w.rows[i].topic, row.topic, row.topic_bytes) == 0):
            return True
    return False

cdef bint _write(Walk* w, const Row* row, const Partition* p, int64_t timestamp) noexcept nogil:
    """False: not for here."""
    cdef int64_t offset
    cdef int32_t epoch
    if timestamp == EARLIEST:
        offset = log_start_offset(p.log)
        epoch = log_epoch_at(p.log, offset)
    elif timestamp == LATEST and partition_high_watermark(p) >= log_end_offset(p.log):
        offset = partition_visible_end(w.table, <Partition*>p, w.committed_only)
        epoch = atomic_load_i32(&p.leader_epoch)
    else:
        return False
    buffer_i32(w.answer, row.index)
    buffer_i16(w.answer, ERROR_NONE)
    buffer_i64(w.answer, -1)            # of no record
    buffer_i64(w.answer, offset)
    if w.version >= VERSION_LEADER_EPOCH:
        buffer_i32(w.answer, epoch)
    return True

cdef bint _row(Walk* w, const uint8_t* topic, int32_t topic_bytes) noexcept nogil:
    """Reads a partition and writes what is told of it. False: not for here."""
    cdef Row row
    cdef Partition* p
    cdef int32_t known_epoch = -1
    cdef int16_t error
    cdef int64_t timestamp
    row.topic, row.topic_bytes = topic, topic_bytes
    row.index = cursor_i32(&w.c)
    if w.version >= VERSION_LEADER_EPOCH:
        known_epoch = cursor_i32(&w.c)
    timestamp = cursor_i64(&w.c)
    read_no_tags(&w.c, w.flexible)
    if w.c.bad or w.count == ROWS_MAX or _stands_twice(w, &row):
        return False
    w.rows[w.count] = row
    w.count += 1
    p = partition_by_name(w.table, topic, topic_bytes, row.index, &error)
    if p == NULL or error != ERROR_NONE or p.log == NULL:
        return False
    if known_epoch >= 0 and known_epoch != atomic_load_i32(&p.leader_epoch):
        return False
    if not _write(w, &row, p, timestamp):
        return False
    write_no_tags(w.answer, w.flexible)
    return True

cdef bint _topic(Walk* w) noexcept nogil:
    cdef int32_t topic_bytes, partitions, i
    cdef const uint8_t* topic = read_string(&w.c, w.flexible, False, &topic_bytes)
    partitions = read_count(&w.c, w.flexible)
    if w.c.bad:
        return False
    write_string(w.answer, w.flexible, topic, topic_bytes)
    write_count(w.answer, w.flexible, partitions)
    for i in range(partitions):
        if not _row(w, topic, topic_bytes):
            return False
    read_no_tags(&w.c, w.flexible)
    write_no_tags(w.answer, w.flexible)
    return True

cdef bint _answer(Walk* w, const Request* r, Response* out) noexcept nogil:
    """Inside an epoch. False: not for here, whatever was written."""
    cdef int32_t topics, i
    w.c = cursor_of(r.data + r.body_at, r.size_bytes - r.body_at)
    w.answer = &out.bytes
    w.version = r.api_version
    w.flexible = w.version >= VERSION_FLEXIBLE
    w.count = 0
    cursor_i32(&w.c)                    # replica id: consumers and followers are told the same
    w.committed_only = w.version >= VERSION_ISOLATION and cursor_i8(&w.c) == READ_COMMITTED
    response_begin(out, r.correlation_id, w.flexible)
    if w.version >= VERSION_ISOLATION:
        buffer_i32(w.answer, 0)         # nobody is throttled
    topics = read_count(&w.c, w.flexible)
    write_count(w.answer, w.flexible, topics)
    for i in range(topics):
        if not _topic(w):
            return False
    if w.version >= VERSION_TIMEOUT:
        cursor_i32(&w.c)                # for what is kept elsewhere, of which there is none
    read_no_tags(&w.c, w.flexible)
    write_no_tags(w.answer, w.flexible)
    response_end(out)
    return not w.c.bad and cursor_left(&w.c) == 0


cdef bint _takes(void* context, int16_t api_key, int16_t api_version) noexcept nogil:
    return api_key == KEY_LIST_OFFSETS and VERSION_FIRST <= api_version <= VERSION_LAST

cdef int _handle(void* context, Request* r, Response* out, Parked* parked) noexcept nogil:
    cdef Core* core = <Core*>context
    cdef Walk w
    cdef bint answered
    cdef int32_t i
    cdef int slot = epoch_enter(table_epochs(core.table))
    w.table = core.table
    answered = _answer(&w, r, out)
    epoch_leave(table_epochs(core.table), slot)
    if not answered:
        return LANE_PYTHON
    for i in range(w.count):
        request_error(r, ERROR_NONE)
    atomic_add_i64(&core.served, 1)
    return LANE_DONE


cdef class ListOffsetsLane(LaneHandle):
    """The ListOffsets lane of one broker."""
    cdef Core* core

    def __cinit__(self, table):
        self.core = <Core*>calloc(1, sizeof(Core))
        if self.core == NULL:
            raise MemoryError
        self.core.table = table_of(table)
        self.core.lane = lane_of(
            self.core, _takes, _handle, lane_resumes_nothing, lane_abandons_nothing)
        self.lane = &self.core.lane
        self.owner = table

    def __init__(self, table):
        pass

    def __dealloc__(self):
        free(self.core)

    @property
    def served(self) -> int:
        """How many requests were answered here."""
        return atomic_load_i64(&self.core.served)
