"""Compaction of one log: finds the latest offset of each key, then writes the segments again
without the records that a later record of the same key replaces.

There are two passes. Both run in turns of a given number of bytes, so that the caller can throttle
them and stop between two turns. Both run without the GIL, which they take only to call Python
packages: to decompress gzip and zstd batches, and to compress a batch that lost records.

    Learning    reads the dirty part of the log, from its first offset until the map of keys is full
    Cleaning    writes a group of segments as one: NAME.log.cleaned, .index.cleaned,
                .timeindex.cleaned and, when aborted transactions remain, .txnindex.cleaned

These records stay (Kafka's rules, LogCleaner and MemoryRecords.filterTo): the latest record of each
key, and all records behind the end of the Learning pass; a record without a value (tombstone) until
the batch's delete horizon, which is set delete.retention.ms ahead when a batch with a tombstone is
cleaned for the first time; a marker while data of its transaction remains, and then until its
horizon; and at least the empty header of a producer's last batch, because its sequence numbers are
needed. A batch keeps its base and last offset, sequence, epochs and codec. Records without a key
are removed.

A crash leaves .cleaned files, which the next opening removes. Memory: the map, twice the largest
batch, and one output buffer.

Messages of the formats 0 and 1 become batches (old_messages.pxd). They have no delete horizon: the
caller that opens a segment decides whether their tombstones stay (keeps_old_tombstones), and those
that stay get a horizon.
Next on the data path: cext/log/cleaner/replacement.pyx.
"""
import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy, memset

from barnabas.cext.codec.buffer cimport (
    Buffer, buffer_bytes, buffer_free, buffer_init, buffer_reserve, buffer_uvarint,
)
from barnabas.cext.codec.crc cimport crc32c
from barnabas.cext.codec.cursor cimport Cursor, cursor_i8, cursor_of, cursor_varint, cursor_varlong
from barnabas.cext.codec.endian cimport be16_store, be32_store, be64_store
from barnabas.cext.codec.inflate cimport (
    INFLATE_OK, Inflated, inflated_free, inflated_init, inflated_reset, lz4_frame_decode,
    snappy_framed_decode,
)
from barnabas.cext.codec.varint cimport varint_size, varint_write, zigzag
from barnabas.cext.log.cleaner.cleaned_output cimport (
    Output, output_note_batch, output_note_time, output_write_pending,
)
from barnabas.cext.log.cleaner.cleaned_txns cimport (
    CleanedTxns, cleaned_txns_data, cleaned_txns_free, cleaned_txns_init, cleaned_txns_marker,
)
from barnabas.cext.log.cleaner.offset_map cimport OffsetMap, hash128
from barnabas.cext.record.old_messages cimport old_body_is_sound, old_header, old_record_put
from barnabas.cext.log.producers cimport AbortedTxn
from barnabas.cext.log.recover cimport (
    BatchReader, batch_is_sound, reader_free, reader_init, reader_next,
)
from barnabas.cext.memory.int64_map cimport (
    Int64Map, int64_map_free, int64_map_get, int64_map_init, int64_map_put,
)
from barnabas.cext.memory.sys cimport System, SystemCalls, write_whole
from barnabas.cext.record.batch_at cimport SEGMENT_CORRUPT, BatchAt
from barnabas.cext.record.messageset cimport (
    MessageView, message_crc_check, message_entry_size, message_view,
)
from barnabas.cext.record.records cimport (
    ATTR_APPEND_TIME, ATTR_CODEC_MASK, ATTR_CONTROL, ATTR_DELETE_HORIZON, AT_ATTRIBUTES,
    AT_BASE_TIMESTAMP, AT_BATCH_LENGTH, AT_CRC, AT_MAX_TIMESTAMP, AT_RECORD_COUNT, BATCH_OVERHEAD,
    BatchHeader, LOG_OVERHEAD, RECORDS_OK, RecordView, record_next,
)

cdef extern from "<fcntl.h>" nogil:
    int O_RDONLY, O_RDWR, O_CREAT, O_TRUNC

cdef extern from "<errno.h>" nogil:
    int ENOMEM

cdef enum:
    CODEC_NONE = 0
    CODEC_SNAPPY = 2
    CODEC_LZ4 = 3
    IO_BYTES = 262144           # bytes of one read or write unless the caller sets io_bytes
    AHEAD = 16                  # keys whose slots are prefetched before the first look-up
    KEEP_BYTES = 1 << 20        # memory beyond this is freed after each batch

cdef enum:                      # why a pass stops; negative: -errno
    DONE = 0                    # the end of the file, or of the offset range, is reached
    TURN_OVER = 1               # the bytes of this turn are used up
    MAP_FULL = 2
    OPEN_BODY = 3               # Python must decompress the current batch
    CLOSE_BODY = 4              # Python must compress the remaining records
    BAD_BATCH = 5


class Uncleanable(Exception):
    """The log contains a damaged batch, so that compaction cannot go on; the message names the
    place."""


cdef struct Ahead:              # a record whose key's slot is being prefetched
    RecordView record
    const uint8_t* begin
    const uint8_t* end
    hash128 key


cdef struct Body:               # the records of the current batch
    const uint8_t* data
    int64_t size_bytes


cdef class _Walk:
    """The common part of both passes: a file, a position in it, and the current batch."""
    cdef SystemCalls calls
    cdef System* system
    cdef OffsetMap map
    cdef object decompress      # (codec, bytes) -> bytes
    cdef CleanedTxns txns
    cdef BatchReader reader
    cdef Inflated inflated
    cdef int64_t inflated_max
    cdef int64_t io_bytes
    cdef int fd
    cdef readonly object path
    cdef readonly int64_t position
    cdef readonly int64_t bytes_read
    cdef BatchAt at
    cdef BatchHeader h          # of a batch of format 2
    cdef MessageView m          # a message of format 0 or 1
    cdef const uint8_t* bytes
    cdef Body body
    cdef readonly bint full     # the map is full
    cdef bint body_is_open      # `body` has the current batch's records, uncompressed
    cdef object held            # keeps alive the bytes that `body` points into

    def __cinit__(self, SystemCalls system not None, OffsetMap map not None, *args, **options):
        self.calls = system
        self.system = &system.table
        self.map = map
        self.fd = -1
        cleaned_txns_init(&self.txns)
        inflated_init(&self.inflated)

    def __dealloc__(self):
        self._close_file()
        cleaned_txns_free(&self.txns)
        inflated_free(&self.inflated)

    cdef void _close_file(self) noexcept:
        if self.fd >= 0:
            reader_free(&self.reader)
            self.system.close(self.system, self.fd)
            self.fd = -1

    cdef int _set_aborted(self, aborted) except -1:
        """Takes the aborted transactions, in any order: (producer id, first offset, last offset,
        last stable offset) of each."""
        cdef int64_t i
        rows = sorted(set(aborted), key=lambda row: row[1])
        self.txns.aborted = <AbortedTxn*>malloc(max(len(rows), 1) * sizeof(AbortedTxn))
        if self.txns.aborted == NULL:
            raise MemoryError
        for i, (producer_id, first, last, stable) in enumerate(rows):
            self.txns.aborted[i].producer_id = producer_id
            self.txns.aborted[i].first_offset = first
            self.txns.aborted[i].last_offset = last
            self.txns.aborted[i].last_stable_offset = stable
        self.txns.count = len(rows)
        return 0

    def open(self, path, int64_t size_bytes) -> None:
        """Opens the next segment's .log at `path`; the pass reads its first `size_bytes` bytes.
        Raises OSError."""
        cdef bytes name = os.fsencode(path)
        self._close_file()
        self.fd = self.system.open(self.system, PyBytes_AS_STRING(name), O_RDONLY, 0)
        if self.fd < 0:
            raise OSError(-self.fd, f"{os.strerror(-self.fd)}: {path}")
        reader_init(&self.reader, self.system, self.fd, size_bytes)
        self.reader.read_bytes = self.io_bytes
        self.path = path
        self.position = 0

    cdef int _next(self) noexcept nogil:
        """Reads and checks the batch at `position`. Returns 1, or DONE at the end, BAD_BATCH, or
        -errno."""
        cdef int status
        self.body_is_open = False
        status = reader_next(&self.reader, self.position, &self.at, &self.bytes)
        if status <= 0:
            return BAD_BATCH if status == SEGMENT_CORRUPT else status
        if self.at.magic == 2:
            return 1 if batch_is_sound(self.bytes, &self.at, &self.h) else BAD_BATCH
        if message_view(self.bytes, self.at.size_bytes, &self.m) != RECORDS_OK or (
            message_crc_check(self.bytes, &self.m) != RECORDS_OK
        ):
            return BAD_BATCH
        return 1

    cdef bint _find_body(self) noexcept nogil:
        """Sets `body` to the stored, perhaps compressed, records of the current batch. False: it
        has none."""
        self.body.data = self.bytes
        self.body.size_bytes = self.at.size_bytes
        if self.at.magic == 2:
            self.body.data += BATCH_OVERHEAD
            self.body.size_bytes -= BATCH_OVERHEAD
        elif self.at.attributes & ATTR_CODEC_MASK:
            self.body.data = self.m.value
            self.body.size_bytes = self.m.value_size
        return self.body.data != NULL

    cdef int _open_body(self) noexcept nogil:
        """Sets `body` to the uncompressed records of the current batch. Returns DONE, OPEN_BODY
        when Python must decompress them, or BAD_BATCH."""
        cdef int codec = self.at.attributes & ATTR_CODEC_MASK
        cdef int status
        if not self._find_body() or (self.at.magic < 2 and codec > CODEC_LZ4):
            return BAD_BATCH
        if codec == CODEC_NONE:
            return DONE
        if codec == CODEC_LZ4:
            status = lz4_frame_decode(
                &self.inflated, self.body.data, self.body.size_bytes, self.inflated_max)
        elif codec == CODEC_SNAPPY:
            status = snappy_framed_decode(
                &self.inflated, self.body.data, self.body.size_bytes, self.inflated_max)
        else:
            return OPEN_BODY
        self.body.data = self.inflated.data
        self.body.size_bytes = self.inflated.size_bytes
        return DONE if status == INFLATE_OK else BAD_BATCH

    cdef int _raise_for(self, int status) except -1:
        where = f"{self.path}, position {self.position}"
        if status == BAD_BATCH:
            raise Uncleanable(f"damaged batch: {where}")
        raise OSError(-status, f"{os.strerror(-status)}: {where}")

    cdef int _open_with_package(self) except -1:
        cdef bytes packed
        cdef bytes opened
        self._find_body()
        packed = PyBytes_FromStringAndSize(<const char*>self.body.data, self.body.size_bytes)
        try:
            opened = self.decompress(self.at.attributes & ATTR_CODEC_MASK, packed)
        except ValueError as error:
            raise Uncleanable(f"{error}: {self.path}, position {self.position}") from error
        self.held = opened
        self.body.data = <const uint8_t*>PyBytes_AS_STRING(opened)
        self.body.size_bytes = len(opened)
        self.body_is_open = True
        return 0

    cdef void _step(self) noexcept nogil:
        self.position += self.at.size_bytes
        self.bytes_read += self.at.size_bytes
        inflated_reset(&self.inflated, KEEP_BYTES)

    cdef int _run(self, int64_t until) noexcept nogil:
        """Processes batches until `position` reaches `until`. Returns why it stopped."""
        return DONE

    cdef int _close_with_package(self) except -1:
        """Compresses and writes the remaining records of the current batch; Cleaning overrides
        it."""
        return 0

    def turn(self, int64_t bytes_max) -> bool:
        """Processes about `bytes_max` more bytes of the file. Returns False when the file needs no
        further turn: its end or the offset range's end is reached, or the map is full. Raises
        OSError and Uncleanable."""
        cdef int64_t until = self.position + bytes_max
        cdef int status
        while True:
            with nogil:
                status = self._run(until)
            if status == OPEN_BODY:
                self._open_with_package()
            elif status == CLOSE_BODY:
                self._close_with_package()
            elif status in (TURN_OVER, DONE, MAP_FULL):
                self.full = status == MAP_FULL
                self.held = None
                return status == TURN_OVER
            else:
                self._raise_for(status)


# ---------------------------------------------------------------------------------------- learning

cdef class Learning(_Walk):
    """The first pass: fills the map with the keys of the dirty part of a log."""
    cdef int64_t from_offset
    cdef int64_t end_offset

    def __init__(self, SystemCalls system not None, OffsetMap map not None, *, decompress,
                 int64_t inflated_max, int64_t from_offset, int64_t end_offset, aborted=(),
                 int64_t io_bytes=IO_BYTES):
        """Sets the pass up for the records of [from_offset, end_offset).

        `decompress(codec, bytes)` decompresses gzip and zstd, and raises ValueError for bytes that
        are damaged or become larger than `inflated_max` bytes. `aborted`: see _set_aborted."""
        self.decompress = decompress
        self.inflated_max, self.io_bytes = inflated_max, io_bytes
        self.from_offset = from_offset
        self.end_offset = end_offset
        self._set_aborted(aborted)

    cdef int _learn(self) noexcept nogil:
        """Adds the keys of the current batch to the map. Returns DONE, MAP_FULL or BAD_BATCH."""
        cdef Cursor c = cursor_of(self.body.data, self.body.size_bytes)
        cdef RecordView record
        cdef hash128 asked[AHEAD]
        cdef int64_t offsets[AHEAD]
        cdef int64_t offset
        cdef int32_t i, k, count = 0
        for i in range(self.h.record_count):
            if record_next(&c, &record) != RECORDS_OK:
                return BAD_BATCH
            offset = self.h.base_offset + record.offset_delta
            if offset >= self.end_offset:
                break
            if record.key != NULL and offset >= self.from_offset:
                asked[count] = self.map.ask(record.key, record.key_size)
                offsets[count] = offset
                count += 1
            if count == AHEAD:
                for k in range(count):
                    if not self.map.put(asked[k], offsets[k]):
                        return MAP_FULL
                count = 0
        for k in range(count):
            if not self.map.put(asked[k], offsets[k]):
                return MAP_FULL
        return DONE

    cdef int _learn_old(self) noexcept nogil:
        """Adds the keys of the current message of format 0 or 1 to the map; returns as _learn
        does."""
        cdef MessageView m
        cdef int64_t offset, base, at = 0
        if not old_body_is_sound(self.body.data, self.body.size_bytes, &self.m, &base):
            return BAD_BATCH
        while at < self.body.size_bytes:
            if message_view(self.body.data + at, self.body.size_bytes - at, &m) != RECORDS_OK:
                return BAD_BATCH
            at += message_entry_size(&m)
            offset = base + m.offset
            if m.key != NULL and self.from_offset <= offset < self.end_offset:
                if not self.map.put(self.map.ask(m.key, m.key_size), offset):
                    return MAP_FULL
        return DONE

    cdef bint _is_of_interest(self) noexcept nogil:
        """Returns whether the keys of the current batch must be added to the map. Updates the state
        of transactions."""
        if self.at.magic == 2:
            if self.h.attributes & ATTR_CONTROL:
                cleaned_txns_marker(&self.txns, self.bytes, &self.h, self.at.size_bytes)
                return False
            if cleaned_txns_data(&self.txns, &self.h) or self.h.record_count == 0:
                return False
        return self.at.last_offset >= self.from_offset

    cdef int _run(self, int64_t until) noexcept nogil:
        cdef int status
        while True:
            if not self.body_is_open:
                status = self._next()
                if status != 1:
                    return status
                if self.at.base_offset >= self.end_offset:
                    return DONE
                if self._is_of_interest():
                    status = self._open_body()
                    if status != DONE:
                        return status
                    self.body_is_open = True
            if self.txns.failed:
                return -ENOMEM
            if self.body_is_open:
                status = self._learn() if self.at.magic == 2 else self._learn_old()
                if status != DONE:
                    return status
            self.body_is_open = False
            if self.map.latest_offset < min(self.at.last_offset, self.end_offset - 1):
                self.map.latest_offset = min(self.at.last_offset, self.end_offset - 1)
            self._step()
            if self.position >= until:
                return TURN_OVER


# ---------------------------------------------------------------------------------------- cleaning

cdef class Cleaning(_Walk):
    """The second pass: writes the segments of a log again, group by group from its start. Call
    `begin`, then `open` and `turn` for each segment, then `finish`. The state of transactions is
    kept from one group to the next."""
    cdef object compress        # (codec, bytes) -> bytes
    cdef Int64Map last_offsets  # producer id: its last data offset, -1 when it is a marker
    cdef Int64Map last_epochs
    cdef Buffer kept            # the records of the current batch that stay
    cdef Buffer moved           # the same records with other timestamp deltas
    cdef Output out
    cdef object stem
    cdef int64_t now_ms
    cdef int64_t delete_retention_ms
    cdef int64_t index_interval_bytes
    cdef int32_t kept_count
    cdef bint tombstones        # records without a value are among those that stay
    cdef int64_t kept_max_timestamp
    cdef int64_t horizon_ms     # delete horizon of the batch to be written, -1: none
    cdef int64_t old_base_offset    # base offset of a batch made from a message of format 0 or 1
    cdef uint8_t[BATCH_OVERHEAD] old_header
    cdef readonly int64_t records_read
    cdef readonly int64_t records_kept
    cdef public bint keeps_old_tombstones   # of formats 0 and 1, in the current segment

    def __init__(self, SystemCalls system not None, OffsetMap map not None, *, decompress, compress,
                 int64_t inflated_max, int64_t now_ms, int64_t delete_retention_ms,
                 int64_t index_interval_bytes, aborted=(), producers=(),
                 int64_t io_bytes=IO_BYTES):
        """Sets the pass up.

        `decompress` and `inflated_max` (bytes): as for Learning; `compress(codec, bytes)` returns
        the compressed bytes; `now_ms`: wall clock; `aborted`: as for Learning, for the whole log;
        `producers`: (producer id, epoch, last data offset or -1) of each active producer."""
        self.decompress, self.compress = decompress, compress
        self.inflated_max, self.io_bytes = inflated_max, io_bytes
        self.now_ms, self.delete_retention_ms = now_ms, delete_retention_ms
        self.index_interval_bytes = index_interval_bytes
        self._set_aborted(aborted)
        self.txns.index = &self.out.txns
        for producer_id, epoch, last_offset in producers:
            if not (int64_map_put(&self.last_offsets, producer_id, last_offset)
                    and int64_map_put(&self.last_epochs, producer_id, epoch)):
                raise MemoryError

    def begin(self, stem, int64_t base_offset) -> None:
        """Begins a new group; `stem`: the path of its files without suffix. Raises OSError."""
        cdef bytes name = os.fsencode(stem) + b".log.cleaned"
        self.stem = stem
        self.out.pending.size = self.out.offsets.size = self.out.times.size = self.out.txns.size = 0
        self.out.size_bytes = self.out.unindexed_bytes = 0
        self.out.base_offset = base_offset
        self.out.max_timestamp = self.out.noted_timestamp = -1
        self.out.max_timestamp_offset = base_offset
        self.out.fd = self.system.open(
            self.system, PyBytes_AS_STRING(name), O_RDWR | O_CREAT | O_TRUNC, 0o644)
        if self.out.fd < 0:
            raise OSError(-self.out.fd, f"{os.strerror(-self.out.fd)}: {os.fsdecode(name)}")

    def __cinit__(self, *args, **options):
        memset(&self.out, 0, sizeof(Output))
        self.out.fd = -1
        int64_map_init(&self.last_offsets)
        int64_map_init(&self.last_epochs)
        buffer_init(&self.kept)
        buffer_init(&self.moved)

    def __dealloc__(self):
        if self.out.fd >= 0:
            self.system.close(self.system, self.out.fd)
        int64_map_free(&self.last_offsets)
        int64_map_free(&self.last_epochs)
        buffer_free(&self.kept)
        buffer_free(&self.moved)
        buffer_free(&self.out.pending)
        buffer_free(&self.out.offsets)
        buffer_free(&self.out.times)
        buffer_free(&self.out.txns)

    cdef bint _is_last_of_producer(self) noexcept nogil:
        """Returns whether the current batch is the last one of an active producer."""
        cdef int64_t last_offset
        if self.h.producer_id < 0:
            return False
        last_offset = int64_map_get(&self.last_offsets, self.h.producer_id, -2)
        if last_offset >= 0:
            return last_offset == self.at.last_offset
        return (last_offset == -1 and self.h.attributes & ATTR_CONTROL
                and int64_map_get(&self.last_epochs, self.h.producer_id, -1) == self.h.producer_epoch)

    cdef inline bint _horizon_has_passed(self) noexcept nogil:
        """Returns whether the batch's delete horizon, which is its base timestamp, has passed."""
        return self.h.attributes & ATTR_DELETE_HORIZON and self.h.base_timestamp <= self.now_ms

    cdef inline bint _stays(self, const RecordView* record, hash128 key) noexcept nogil:
        cdef int64_t offset = self.h.base_offset + record.offset_delta
        if self.h.attributes & ATTR_CONTROL or offset > self.map.latest_offset:
            return True
        if record.key == NULL or offset < self.map.get(key):
            return False
        return record.value != NULL or not self._horizon_has_passed()

    cdef int _filter(self) noexcept nogil:
        """Copies the records that stay into `kept`, unchanged. Returns DONE, BAD_BATCH or
        -ENOMEM."""
        cdef Cursor c = cursor_of(self.body.data, self.body.size_bytes)
        cdef Ahead ahead[AHEAD]
        cdef Ahead* at
        cdef int64_t timestamp
        cdef int32_t i, k, count
        self.kept.size = 0
        self.kept_count = 0
        self.tombstones = False
        self.kept_max_timestamp = -1
        i = 0
        while i < self.h.record_count:
            count = min(<int32_t>AHEAD, self.h.record_count - i)
            i += count
            for k in range(count):
                at = &ahead[k]
                at.begin = c.p
                if record_next(&c, &at.record) != RECORDS_OK:
                    return BAD_BATCH
                at.end = c.p
                if at.record.key != NULL and not self.h.attributes & ATTR_CONTROL:
                    at.key = self.map.ask(at.record.key, at.record.key_size)
            self.records_read += count
            for k in range(count):
                at = &ahead[k]
                if not self._stays(&at.record, at.key):
                    continue
                buffer_bytes(&self.kept, at.begin, at.end - at.begin)
                timestamp = self.h.base_timestamp + at.record.timestamp_delta
                self.kept_count += 1
                self.kept_max_timestamp = max(self.kept_max_timestamp, timestamp)
                self.tombstones = self.tombstones or at.record.value == NULL
        self.records_kept += self.kept_count
        return -ENOMEM if self.kept.failed else DONE

    cdef int _move_base(self) noexcept nogil:
        """Copies the records of `kept` into `moved`, with timestamp deltas from the delete
        horizon."""
        cdef Cursor c = cursor_of(self.kept.data, self.kept.size)
        cdef Cursor inside
        cdef RecordView record
        cdef const uint8_t* begin
        cdef uint8_t* into
        cdef int64_t delta, size_bytes
        cdef int32_t i
        self.moved.size = 0
        for i in range(self.kept_count):
            begin = c.p
            if record_next(&c, &record) != RECORDS_OK:
                return BAD_BATCH
            inside = cursor_of(begin, c.p - begin)
            cursor_varint(&inside)
            cursor_i8(&inside)
            delta = self.h.base_timestamp + cursor_varlong(&inside)
            if self.h.attributes & ATTR_APPEND_TIME:
                delta = self.h.max_timestamp
            delta -= self.horizon_ms
            size_bytes = 1 + varint_size(delta) + (inside.end - inside.p)
            buffer_uvarint(&self.moved, zigzag(size_bytes))
            into = buffer_reserve(&self.moved, size_bytes)
            if into == NULL:
                return -ENOMEM
            into[0] = 0
            into = varint_write(into + 1, delta)
            memcpy(into, inside.p, inside.end - inside.p)
        return DONE

    cdef int _put(self, const uint8_t* body, int64_t size_bytes, int attributes, int64_t base_timestamp,
                  int64_t max_timestamp, int32_t count) noexcept nogil:
        """Writes the current batch with the given records, attributes and timestamps."""
        cdef int64_t total = BATCH_OVERHEAD + size_bytes
        cdef uint8_t* at = buffer_reserve(&self.out.pending, total)
        if at == NULL:
            return -ENOMEM
        memcpy(at, self.bytes, BATCH_OVERHEAD)
        if size_bytes:
            memcpy(at + BATCH_OVERHEAD, body, size_bytes)
        be32_store(at + AT_BATCH_LENGTH, <uint32_t>(total - LOG_OVERHEAD))
        be16_store(at + AT_ATTRIBUTES, attributes)
        be64_store(at + AT_BASE_TIMESTAMP, <uint64_t>base_timestamp)
        be64_store(at + AT_MAX_TIMESTAMP, <uint64_t>max_timestamp)
        be32_store(at + AT_RECORD_COUNT, <uint32_t>count)
        be32_store(at + AT_CRC, crc32c(0, at + AT_ATTRIBUTES, total - AT_ATTRIBUTES))
        output_note_batch(&self.out, total, self.at.last_offset, max_timestamp, self.index_interval_bytes)
        return DONE

    cdef int _put_as_it_is(self) noexcept nogil:
        buffer_bytes(&self.out.pending, self.bytes, self.at.size_bytes)
        output_note_batch(&self.out, self.at.size_bytes, self.at.last_offset, self.at.max_timestamp,
                    self.index_interval_bytes)
        return -ENOMEM if self.out.pending.failed else DONE

    cdef int _put_empty(self) noexcept nogil:
        return self._put(NULL, 0, self.h.attributes & ~(ATTR_CODEC_MASK | ATTR_DELETE_HORIZON), -1,
                         self.h.max_timestamp, 0)

    cdef int _put_kept(self, const uint8_t* body, int64_t size_bytes) noexcept nogil:
        cdef int attributes = self.h.attributes
        cdef int64_t base_timestamp = self.h.base_timestamp
        cdef int64_t max_timestamp = self.kept_max_timestamp
        if self.horizon_ms >= 0:
            attributes |= ATTR_DELETE_HORIZON
            base_timestamp = self.horizon_ms
        if attributes & ATTR_APPEND_TIME:
            max_timestamp = self.h.max_timestamp
        return self._put(body, size_bytes, attributes, base_timestamp, max_timestamp, self.kept_count)

    cdef int _keep(self, bint marker_of_nothing) noexcept nogil:
        """Writes the remaining records of the current batch. Returns DONE, -ENOMEM, BAD_BATCH, or
        CLOSE_BODY when Python must compress them first. marker_of_nothing: the batch is a marker
        whose transaction has no data left."""
        cdef const Buffer* records = &self.kept
        cdef int status
        if self.kept_count == 0:
            return self._put_empty() if self._is_last_of_producer() else DONE
        self.horizon_ms = -1
        if self.h.attributes & ATTR_DELETE_HORIZON:
            self.horizon_ms = self.h.base_timestamp
        elif self.tombstones and not self.h.attributes & ATTR_CONTROL or marker_of_nothing:
            self.horizon_ms = self.now_ms + self.delete_retention_ms
        if self.kept_count == self.h.record_count and (
            self.horizon_ms < 0 or self.h.attributes & ATTR_DELETE_HORIZON
        ):
            return self._put_as_it_is()
        if not self.h.attributes & ATTR_DELETE_HORIZON and self.horizon_ms >= 0:
            status = self._move_base()
            if status != DONE:
                return status
            records = &self.moved
        if self.h.attributes & ATTR_CODEC_MASK != CODEC_NONE:
            self.body.data = records.data
            self.body.size_bytes = records.size
            return CLOSE_BODY
        return self._put_kept(records.data, records.size)

    cdef int _clean(self) noexcept nogil:
        """Cleans the current batch; returns as _keep does, or OPEN_BODY."""
        cdef bint control = self.h.attributes & ATTR_CONTROL
        cdef bint needless
        cdef int status
        if not self.body_is_open:
            if control:
                needless = cleaned_txns_marker(&self.txns, self.bytes, &self.h, self.at.size_bytes)
            else:
                needless = cleaned_txns_data(&self.txns, &self.h)
            if self.txns.failed:
                return -ENOMEM
            if needless and (not control or self._horizon_has_passed() or self.h.record_count == 0):
                self.kept_count = 0
                self.records_read += self.h.record_count
                return self._keep(False)
            if self.h.record_count == 0:
                self.kept_count = 0
                return self._keep(False)
            status = self._open_body()
            if status != DONE:
                return status
        else:
            needless = False
        status = self._filter()
        return self._keep(control and needless) if status == DONE else status

    cdef inline bint _old_stays(self, const MessageView* m, int64_t offset) noexcept nogil:
        if offset > self.map.latest_offset:
            return True
        if m.key == NULL or offset < self.map.get(self.map.ask(m.key, m.key_size)):
            return False
        return m.value != NULL or self.keeps_old_tombstones

    cdef int _filter_old(self, int64_t base) noexcept nogil:
        """Counts the messages that stay and finds the offsets and timestamps of the batch to be
        written. Returns DONE or BAD_BATCH."""
        cdef MessageView m
        cdef int64_t offset, at = 0
        self.kept_count = 0
        self.tombstones = False
        self.kept_max_timestamp = -1
        while at < self.body.size_bytes:
            if message_view(self.body.data + at, self.body.size_bytes - at, &m) != RECORDS_OK:
                return BAD_BATCH
            at += message_entry_size(&m)
            offset = base + m.offset
            self.records_read += 1
            if not self._old_stays(&m, offset):
                continue
            if self.kept_count == 0:
                self.old_base_offset = offset
                self.h.base_timestamp = self._old_timestamp(&m)
            self.kept_count += 1
            self.at.last_offset = offset
            self.kept_max_timestamp = max(self.kept_max_timestamp, m.timestamp)
            self.tombstones = self.tombstones or m.value == NULL
        self.records_kept += self.kept_count
        return DONE

    cdef inline int64_t _old_timestamp(self, const MessageView* m) noexcept nogil:
        return self.m.timestamp if self.h.attributes & ATTR_APPEND_TIME else m.timestamp

    cdef int _clean_old(self) noexcept nogil:
        """Writes the remaining part of the current message of format 0 or 1 as a batch; returns as
        _clean does."""
        cdef MessageView m
        cdef int64_t base_timestamp, base, at = 0
        cdef int status
        if not self.body_is_open:
            status = self._open_body()
            if status != DONE:
                return status
        if not old_body_is_sound(self.body.data, self.body.size_bytes, &self.m, &base):
            return BAD_BATCH
        self.h.attributes = self.at.attributes & ATTR_CODEC_MASK
        if self.at.magic == 1:
            self.h.attributes |= self.at.attributes & ATTR_APPEND_TIME
        self.h.max_timestamp = self.m.timestamp
        status = self._filter_old(base)
        if status != DONE or self.kept_count == 0:
            return status
        self.horizon_ms = self.now_ms + self.delete_retention_ms if self.tombstones else -1
        base_timestamp = self.horizon_ms if self.tombstones else self.h.base_timestamp
        self.kept.size = 0
        while at < self.body.size_bytes:
            if message_view(self.body.data + at, self.body.size_bytes - at, &m) != RECORDS_OK:
                return BAD_BATCH
            at += message_entry_size(&m)
            if self._old_stays(&m, base + m.offset) and not old_record_put(
                &self.kept, &m, base + m.offset - self.old_base_offset,
                self._old_timestamp(&m) - base_timestamp
            ):
                return -ENOMEM
        old_header(self.old_header, self.old_base_offset, self.at.last_offset)
        self.bytes = self.old_header
        if self.h.attributes & ATTR_CODEC_MASK == CODEC_NONE:
            return self._put_kept(self.kept.data, self.kept.size)
        self.body.data = self.kept.data
        self.body.size_bytes = self.kept.size
        return CLOSE_BODY

    cdef int _run(self, int64_t until) noexcept nogil:
        cdef int status
        while True:
            if not self.body_is_open:
                status = self._next()
                if status != 1:
                    return status
                if self.at.last_offset - self.out.base_offset > INT32_MAX:
                    return BAD_BATCH
            status = self._clean() if self.at.magic == 2 else self._clean_old()
            if status != DONE:
                return status
            self.body_is_open = False
            self._step()
            if self.out.pending.size >= self.io_bytes:
                status = output_write_pending(&self.out, self.system)
                if status < 0:
                    return status
            if self.position >= until:
                return TURN_OVER

    cdef int _close_with_package(self) except -1:
        """Compresses and writes the remaining records of the current batch, and goes on to the next
        batch. Raises MemoryError."""
        cdef bytes plain = PyBytes_FromStringAndSize(<const char*>self.body.data, self.body.size_bytes)
        cdef int codec = self.at.attributes & ATTR_CODEC_MASK
        cdef bytes packed = self.compress(codec, plain)
        if self._put_kept(<const uint8_t*>PyBytes_AS_STRING(packed), len(packed)) < 0:
            raise MemoryError
        self.body_is_open = False
        self._step()
        return 0

    @property
    def size_bytes(self) -> int:
        """The size of the new segment's .log so far."""
        return self.out.size_bytes

    @property
    def max_timestamp(self) -> int: return self.out.max_timestamp

    @property
    def max_timestamp_offset(self) -> int: return self.out.max_timestamp_offset

    cdef int _write_file(self, const char* suffix, Buffer* content) except -1:
        cdef bytes name = os.fsencode(self.stem) + suffix
        cdef int fd = self.system.open(
            self.system, PyBytes_AS_STRING(name), O_RDWR | O_CREAT | O_TRUNC, 0o644)
        cdef int status = fd
        if fd >= 0:
            with nogil:
                status = write_whole(self.system, fd, content.data, content.size, 0)
                if status == 0:
                    status = self.system.fdatasync(self.system, fd)
                self.system.close(self.system, fd)
        if status < 0:
            raise OSError(-status, f"{os.strerror(-status)}: {os.fsdecode(name)}")
        return 0

    def finish(self) -> None:
        """Writes and flushes all files of the new segment. Raises OSError."""
        cdef int status
        self._close_file()
        output_note_time(&self.out)
        if self.out.offsets.failed or self.out.times.failed or self.out.txns.failed:
            raise MemoryError
        with nogil:
            status = output_write_pending(&self.out, self.system)
            if status == 0:
                status = self.system.fdatasync(self.system, self.out.fd)
            self.system.close(self.system, self.out.fd)
            self.out.fd = -1
        if status < 0:
            raise OSError(-status, f"{os.strerror(-status)}: {self.stem}.log.cleaned")
        self._write_file(b".index.cleaned", &self.out.offsets)
        self._write_file(b".timeindex.cleaned", &self.out.times)
        if self.out.txns.size:
            self._write_file(b".txnindex.cleaned", &self.out.txns)
