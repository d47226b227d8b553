"""Reading whole batches of a segment: recovery after a crash, replay, search by time.

Recovery checks a segment from its first byte: sizes, magic, CRC, and that offsets only grow. The
first batch that fails a check ends the log: the file is cut there (cut_files.py keeps the rest),
and the new indexes contain only entries for the batches before it. Records are not decoded, because
a batch with a right CRC was checked when it was appended. After a crash during recovery, the next
recovery gets the same result.

Memory: one buffer, as large as the largest batch, which lies within the file.
Next on the data path: broker/storage.
"""
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from barnabas.cext.codec.cursor cimport Cursor, cursor_of
from barnabas.cext.log.index cimport OffsetEntry, TimeEntry
from barnabas.cext.log.leader_epochs cimport leader_epochs_assign
from barnabas.cext.log.producers cimport (
    AbortedTxn, Marker, Producer, batch_marker, producer_aborts, producer_note,
    producer_note_marker, producers_add,
)
from barnabas.cext.log.segment cimport (
    segment_batch_at, segment_fd, segment_find, segment_last_entries, segment_note_batch,
    segment_own_log, segment_reserve_entries, segment_time_floor,
)
from barnabas.cext.log.txn_index cimport (
    AbortedTxns, aborted_txns_add, aborted_txns_free, txn_index_append, txn_index_replace,
)
from barnabas.cext.memory.atomics cimport atomic_store_i64
from barnabas.cext.memory.sys cimport read_whole
from barnabas.cext.record.batch_at cimport SEGMENT_CORRUPT, batch_header_at
from barnabas.cext.record.messageset cimport MessageView, message_crc_check, message_view
from barnabas.cext.record.records cimport (
    ATTR_APPEND_TIME, ATTR_CODEC_MASK, ATTR_CONTROL, BATCH_OVERHEAD, BatchHeader, RECORDS_OK,
    RecordView, batch_crc_check, batch_header, record_next,
)

cdef extern from "<errno.h>" nogil:
    int ENOENT, ENOMEM

cdef enum:
    READ_BYTES = 262144
    PATH_BYTES_MAX = 4096


# ------------------------------------------------------------------------------------- the reader

cdef void reader_init(BatchReader* r, System* system, int fd, int64_t end) noexcept nogil:
    memset(r, 0, sizeof(BatchReader))
    r.system = system
    r.fd = fd
    r.end = end
    r.read_bytes = READ_BYTES


cdef void reader_free(BatchReader* r) noexcept nogil:
    free(r.buffer)
    r.buffer = NULL


cdef int _fill(BatchReader* r, int64_t position, int64_t wanted) noexcept nogil:
    """Reads at least `wanted` bytes from `position` on into the buffer; the caller knows that the
    file has them. Returns 0, -errno or SEGMENT_CORRUPT."""
    cdef int64_t size_bytes = min(max(wanted, r.read_bytes), r.end - position)
    cdef uint8_t* grown
    cdef int64_t got
    if r.capacity < size_bytes:
        grown = <uint8_t*>realloc(r.buffer, size_bytes)
        if grown == NULL:
            return -ENOMEM
        r.buffer = grown
        r.capacity = size_bytes
    got = read_whole(r.system, r.fd, r.buffer, size_bytes, position)
    if got < 0:
        return <int>got
    r.buffer_at = position
    r.filled = got
    return 0 if got >= wanted else SEGMENT_CORRUPT


cdef int reader_next(
    BatchReader* r, int64_t position, BatchAt* at, const uint8_t** bytes
) noexcept nogil:
    cdef int64_t inside
    cdef int status, attempt
    if position >= r.end:
        return 0
    for attempt in range(3):
        inside = position - r.buffer_at
        if not 0 <= inside < r.filled:
            status = _fill(r, position, 1)
            if status < 0:
                return status
            inside = 0
        status = batch_header_at(r.buffer + inside, r.filled - inside, r.end - position, at)
        if status < 0:
            return status
        if status == 1 and at.size_bytes <= r.filled - inside:
            at.position = position
            bytes[0] = r.buffer + inside
            return 1
        status = _fill(r, position, at.size_bytes if status == 1 else 1)
        if status < 0:
            return status
    return SEGMENT_CORRUPT


# ---------------------------------------------------------------------------------------- recovery

cdef bint batch_is_sound(const uint8_t* bytes, const BatchAt* at, BatchHeader* h) noexcept nogil:
    """Returns whether the header and the CRC of a batch or message are right."""
    cdef MessageView m
    if at.magic == 2:
        return (batch_header(bytes, at.size_bytes, h) == RECORDS_OK
                and batch_crc_check(bytes, h) == RECORDS_OK)
    return (message_view(bytes, at.size_bytes, &m) == RECORDS_OK
            and message_crc_check(bytes, &m) == RECORDS_OK)


cdef int recoverable_next(
    BatchReader* r, int64_t position, int64_t offset_min, int64_t base_offset, BatchAt* at,
    const uint8_t** bytes, BatchHeader* h
) noexcept nogil:
    cdef int status = reader_next(r, position, at, bytes)
    if status > 0 and (
        not batch_is_sound(bytes[0], at, h) or at.base_offset < offset_min
        or at.last_offset - base_offset > INT32_MAX
    ):
        return SEGMENT_CORRUPT
    return status


cdef int _apply(
    Producers* producers, const uint8_t* bytes, const BatchAt* at, const BatchHeader* h,
    AbortedTxn* aborted
) noexcept nogil:
    """Updates producer state from a batch that is in the log already. Returns 1 and fills `aborted`
    when it is a marker that aborts a transaction with data, otherwise 0 or -ENOMEM."""
    cdef Marker marker
    cdef Producer* entry
    cdef int aborts
    if h.producer_id < 0:
        return 0
    if h.attributes & ATTR_CONTROL:
        if batch_marker(bytes, at.size_bytes, &marker) != 1:
            return 0
    entry = producers_add(producers, h.producer_id)
    if entry == NULL:
        return -ENOMEM
    if not h.attributes & ATTR_CONTROL:
        return 0 if producer_note(producers, entry, h, at.base_offset, at.last_offset) else -ENOMEM
    aborts = producer_aborts(producers, entry, &marker, at.last_offset, aborted)
    producer_note_marker(producers, entry, h, &marker, at.last_offset)
    return aborts


cdef int segment_recover(
    Segment* segment, System* system, Producers* producers, LeaderEpochs* epochs,
    int64_t index_interval_bytes, SegmentFacts* facts
) noexcept nogil:
    cdef BatchReader reader
    cdef BatchAt at
    cdef BatchHeader h
    cdef AbortedTxn aborted
    cdef const uint8_t* bytes
    cdef char path[PATH_BYTES_MAX]
    cdef int status
    memset(facts, 0, sizeof(SegmentFacts))
    facts.end_offset = segment.base_offset
    segment.unindexed_bytes = 0
    snprintf(path, PATH_BYTES_MAX, "%s.txnindex", segment.stem)
    status = system.unlink(system, path)
    if status < 0 and status != -ENOENT:
        return status
    atomic_store_i64(&segment.aborted_last_offset, -1)
    atomic_store_i64(&segment.aborted_count, 0)
    reader_init(&reader, system, segment.fd, segment.size_bytes)
    while True:
        status = recoverable_next(
            &reader, facts.valid_bytes, facts.end_offset, segment.base_offset, &at, &bytes, &h)
        if status <= 0:
            break
        status = segment_reserve_entries(segment, system)
        if status == 0 and at.magic == 2:
            leader_epochs_assign(epochs, at.leader_epoch, at.base_offset)
            status = _apply(producers, bytes, &at, &h, &aborted)
            if status == 1:
                status = txn_index_append(segment, system, &aborted)
        if status < 0:
            break
        segment_note_batch(segment, at.position, at.size_bytes, at.last_offset, at.max_timestamp,
                           index_interval_bytes)
        facts.batches += 1
        facts.records += at.last_offset - at.base_offset + 1
        facts.valid_bytes += at.size_bytes
        facts.end_offset = at.last_offset + 1
        status = 0
    reader_free(&reader)
    if status < 0 and status != SEGMENT_CORRUPT:
        return status
    facts.cut_bytes = segment.size_bytes - facts.valid_bytes
    segment.unindexed_bytes = 0
    segment.foreign_bytes = 0   # all remaining bytes are checked
    return 0


cdef int segment_cut_tail(Segment* segment, System* system, int64_t valid_bytes) noexcept nogil:
    """Cuts off the bytes from `valid_bytes` on, and flushes that: the next segment may begin at this
    end, and recovery would not read this one again after a power cut that brings the bytes back."""
    cdef int status = segment_own_log(segment, system, valid_bytes)
    if status == 0:
        status = system.ftruncate(system, segment.fd, valid_bytes)
    if status == 0:
        status = system.fdatasync(system, segment.fd)
    if status == 0:
        segment.size_bytes = valid_bytes
    return status


cdef int segment_reindex(Segment* segment, System* system, int64_t index_interval_bytes) noexcept nogil:
    cdef BatchReader reader
    cdef BatchAt at
    cdef const uint8_t* bytes
    cdef int64_t position = 0, expected = segment.base_offset
    cdef int status
    segment.unindexed_bytes = 0
    reader_init(&reader, system, segment.fd, segment.size_bytes)
    while True:
        status = reader_next(&reader, position, &at, &bytes)
        if status <= 0 or at.base_offset < expected or (
            at.last_offset - segment.base_offset > INT32_MAX
        ):
            break
        status = segment_reserve_entries(segment, system)
        if status < 0:
            break
        segment_note_batch(segment, position, at.size_bytes, at.last_offset, at.max_timestamp,
                           index_interval_bytes)
        position += at.size_bytes
        expected = at.last_offset + 1
    reader_free(&reader)
    segment.unindexed_bytes = 0
    return 0 if status >= 0 or status == SEGMENT_CORRUPT else status


cdef int segment_indexes_agree(Segment* segment, System* system) noexcept nogil:
    """Compares the last entry of each index with its batch, because an index of another segment can
    look sound: its entries only grow, and lie inside the file."""
    cdef BatchAt at
    cdef OffsetEntry place
    cdef TimeEntry moment
    cdef int status
    if segment.offsets.map != NULL and segment.offsets.entries > 0:
        segment_last_entries(segment, &place, NULL)
        status = segment_batch_at(segment, system, place.position, segment.size_bytes, &at)
        if status <= 0:
            return 0 if status == SEGMENT_CORRUPT else status
        if at.last_offset != segment.base_offset + place.relative_offset:
            return 0
    if segment.times.map != NULL and segment.times.entries > 0:
        segment_last_entries(segment, NULL, &moment)
        status = segment_find(
            segment, system, segment.base_offset + moment.relative_offset, segment.size_bytes, &at)
        if status <= 0:
            return 0 if status == SEGMENT_CORRUPT else status
        if moment.timestamp != at.max_timestamp:
            return 0
    return 1


cdef int segment_measure(
    Segment* segment, System* system, int64_t* end_offset, int64_t* valid_bytes
) noexcept nogil:
    """Reads batch headers from the last index entry on: a cleanly closed segment is sound up to
    there."""
    cdef BatchAt at
    cdef OffsetEntry last
    cdef int64_t position = 0
    cdef int status
    end_offset[0] = segment.base_offset
    valid_bytes[0] = 0
    if segment.offsets.map != NULL and segment.offsets.entries > 0:
        segment_last_entries(segment, &last, NULL)
        status = segment_find(
            segment, system, segment.base_offset + last.relative_offset, segment.size_bytes, &at)
        if status < 0 and status != SEGMENT_CORRUPT:
            return status
        if status == 1:
            position = at.position
    while position < segment.size_bytes:
        status = segment_batch_at(segment, system, position, segment.size_bytes, &at)
        if status == SEGMENT_CORRUPT:
            break
        if status < 0:
            return status
        position += at.size_bytes
        end_offset[0] = at.last_offset + 1
    valid_bytes[0] = position
    return 0


cdef int _replay(
    Segment* segment, System* system, Producers* producers, int64_t from_offset, int64_t to_offset,
    int64_t end, AbortedTxns* found
) noexcept nogil:
    """Updates producer state as segment_replay does. `found`, unless it is NULL, gets the
    transactions that the batches abort."""
    cdef BatchReader reader
    cdef BatchAt at
    cdef BatchHeader h
    cdef AbortedTxn aborted
    cdef const uint8_t* bytes
    cdef int64_t position
    cdef int fd = segment_fd(segment, system)
    cdef int status
    if fd < 0:
        return fd
    status = segment_find(segment, system, from_offset, end, &at)
    if status <= 0:
        return status
    position = at.position
    reader_init(&reader, system, fd, end)
    while True:
        status = reader_next(&reader, position, &at, &bytes)
        if status <= 0 or at.base_offset >= to_offset:
            break
        position += at.size_bytes
        if at.magic == 2 and batch_header(bytes, at.size_bytes, &h) == RECORDS_OK:
            status = _apply(producers, bytes, &at, &h, &aborted)
            if status == 1 and found != NULL and not aborted_txns_add(found, &aborted):
                status = -ENOMEM
            if status < 0:
                break
    reader_free(&reader)
    return status if status < 0 else 0


cdef int segment_replay(
    Segment* segment, System* system, Producers* producers, int64_t from_offset, int64_t to_offset,
    int64_t end
) noexcept nogil:
    return _replay(segment, system, producers, from_offset, to_offset, end, NULL)


cdef int segment_reindex_aborts(Segment* segment, System* system, Producers* producers) noexcept nogil:
    """Replaces the index in one step, by a rename: the next opening could not distinguish an index
    with a part of its entries from a complete one."""
    cdef AbortedTxns found
    cdef int status
    memset(&found, 0, sizeof(AbortedTxns))
    status = _replay(
        segment, system, producers, segment.base_offset, INT64_MAX, segment.size_bytes, &found)
    if status == 0:
        status = txn_index_replace(segment, system, &found)
    aborted_txns_free(&found)
    return status


# --------------------------------------------------------------------------------- search by time

cdef int _time_in_batch(
    const uint8_t* bytes, const BatchAt* at, int64_t timestamp, int64_t* offset, int64_t* found_ms
) noexcept nogil:
    """Finds the first record at or after `timestamp` in a batch. Returns 1; 0 when there is none; 2
    when the batch is compressed, with its base offset and largest timestamp; SEGMENT_CORRUPT."""
    cdef BatchHeader h
    cdef Cursor c
    cdef RecordView record
    cdef int32_t i
    offset[0] = at.base_offset
    found_ms[0] = at.max_timestamp
    if at.magic < 2:
        return 2 if at.attributes & ATTR_CODEC_MASK else 1
    if batch_header(bytes, at.size_bytes, &h) != RECORDS_OK:
        return SEGMENT_CORRUPT
    if h.attributes & ATTR_CODEC_MASK:
        return 2
    c = cursor_of(bytes + BATCH_OVERHEAD, at.size_bytes - BATCH_OVERHEAD)
    for i in range(h.record_count):
        if record_next(&c, &record) != RECORDS_OK:
            return SEGMENT_CORRUPT
        offset[0] = h.base_offset + record.offset_delta
        if not h.attributes & ATTR_APPEND_TIME:
            found_ms[0] = h.base_timestamp + record.timestamp_delta
        if found_ms[0] >= timestamp:
            return 1
    return 0


cdef int segment_find_time(
    Segment* segment, System* system, int64_t timestamp, int64_t end,
    int64_t* offset, int64_t* found_ms
) noexcept nogil:
    cdef BatchReader reader
    cdef BatchAt at
    cdef const uint8_t* bytes
    cdef int64_t position = segment_time_floor(segment, system, timestamp, end)
    cdef int fd = segment_fd(segment, system)
    cdef int status
    if position < 0:
        return <int>position
    if fd < 0:
        return fd
    reader_init(&reader, system, fd, end)
    while True:
        status = reader_next(&reader, position, &at, &bytes)
        if status <= 0:
            break
        position += at.size_bytes
        if at.max_timestamp >= timestamp:
            status = _time_in_batch(bytes, &at, timestamp, offset, found_ms)
            if status != 0:
                break
    reader_free(&reader)
    return status
