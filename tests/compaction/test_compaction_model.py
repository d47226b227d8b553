"""Logs with every kind of batch, compacted pass by pass, are compared with the plain-Python
oracle."""

import random
import struct
from contextlib import closing

import pytest
from oracle.compaction import aborted_spans, last_of_producers, passes, rows_of
from oracle.log_builder import NOW, Disk

from barnabas.cext.log.cleaner.offset_map import OffsetMap
from barnabas.cext.record.records import Record
from barnabas.cext.record.records import encode_batch as plain_batch
from barnabas.storage.compaction import compact
from barnabas.storage.dirty_range import dirty_range_of
from barnabas.storage.log_manager import PartitionLog
from barnabas.wire.batches import decode_batches, encode_batch

RETENTION_MS = 1000
KEYS = [b"key-%d" % i for i in range(150)]  # more than one turn of the cleaner writes


class Settings(dict):
    """The settings of a topic that compaction reads."""

    def integer(self, name):
        return self[name]


SETTINGS = Settings(
    {
        "segment.bytes": 6000,
        "delete.retention.ms": RETENTION_MS,
        "index.interval.bytes": 300,
        "min.compaction.lag.ms": 0,
        "max.compaction.lag.ms": 2**63 - 1,
    }
)


class Author:
    """Writes a log as producers and a coordinator would."""

    def __init__(self, log, rng):
        self.log, self.rng = log, rng
        self.sequences = {}
        self.open = set()
        self.now = NOW

    def write(self, count):
        for _ in range(count):
            self.now += self.rng.randrange(20)
            if self.open and self.rng.random() < 0.25:
                self.end(self.rng.choice(sorted(self.open)), self.rng.random() < 0.5)
            else:
                self.data(self.rng.choice([-1, -1, 1, 2, 7, 8, 9]))

    def data(self, pid):
        records = [
            Record(
                None if self.rng.random() < 0.2 else self.rng.randbytes(self.rng.randrange(60)),
                self.rng.choice(KEYS),
                timestamp=self.now + self.rng.randrange(-5, 5),
            )
            for _ in range(self.rng.randrange(1, 6))
        ]
        fields = {}
        if pid >= 0:
            sequence = self.sequences.get(pid, 0)
            self.sequences[pid] = sequence + len(records)
            fields = {"producer_id": pid, "producer_epoch": 0, "base_sequence": sequence}
        if pid >= 7:
            fields["transactional"] = True
            self.open.add(pid)
        codec = self.rng.choice([0, 0, 0, 1, 2, 3, 4])
        self.log.append(bytearray(encode_batch(records, codec=codec, **fields)))

    def end(self, pid, commit):
        self.open.discard(pid)
        record = Record(
            struct.pack(">hi", 0, 0), struct.pack(">hh", 0, int(commit)), timestamp=self.now
        )
        self.log.append(plain_batch([record], attributes=0x30, producer_id=pid, producer_epoch=0))

    def end_all(self):
        for pid in sorted(self.open):
            self.end(pid, self.rng.random() < 0.5)


def rows(log):
    data, at = b"", log.start_offset
    while at < log.end_offset:
        piece = log.read(at, 1 << 24)
        if not piece:
            break
        data += piece
        for batch in decode_batches(piece, size_max=1 << 24):
            at = batch.last_offset + 1
    return rows_of(decode_batches(data, size_max=1 << 24))


def row_of(disk, log):
    return PartitionLog("t", 0, b"\0" * 16, disk.directory, log)


def one_pass(disk, log, checkpoint, now, *, memory_bytes=1 << 20):
    row = row_of(disk, log)
    dirty_range = dirty_range_of(row, SETTINGS, checkpoint, log.end_offset, now)
    offsets = OffsetMap(memory_bytes, secret=bytes(16))
    return dirty_range, compact(
        row, SETTINGS, dirty_range, offsets, disk.system, 1 << 24, now, lambda size_bytes: True
    )


@pytest.mark.parametrize("seed", range(24))
def test_each_pass_leaves_what_the_oracle_leaves(tmp_path, seed):
    rng = random.Random(seed)
    disk = Disk(tmp_path, segment_bytes=2500, index_interval_bytes=300)
    with closing(disk.open()) as log:
        author = Author(log, rng)
        checkpoint, spans = 0, {}
        for turn in range(4):
            author.write(60)
            if turn % 2:
                author.end_all()
            log.roll()
            now = author.now + turn * 700
            before = rows(log)
            for producer, found in aborted_spans(before).items():
                spans.setdefault(producer, []).extend(found)
            small = rng.random() < 0.3
            memory = 24 * 16 if small else 1 << 20
            bases = [info.base_offset for info in log.segments()]
            dirty_range, done = one_pass(disk, log, checkpoint, now, memory_bytes=memory)
            below = next((base for base in bases if base >= done.first_dirty), bases[-1])
            expected = passes(
                before,
                spans=spans,
                producers=last_of_producers(before),
                dirty_from=dirty_range.first_dirty,
                end=done.first_dirty,
                now=now,
                retention=RETENTION_MS,
                below=below,
            )
            assert rows(log) == expected
            checkpoint = done.first_dirty
        kept = rows(log)
    with closing(disk.open(clean=True)) as log:
        assert rows(log) == kept
    with closing(disk.open()) as log:  # every segment walked
        assert rows(log) == kept
        assert log.recovered.cut_bytes == 0


def test_the_last_value_of_each_key_survives_and_indexes_lead_to_it(tmp_path):
    disk = Disk(tmp_path, segment_bytes=4000, index_interval_bytes=200)
    rng = random.Random(5)
    with closing(disk.open()) as log:
        last = {}
        for i in range(600):
            key = b"k%d" % rng.randrange(40)
            value = b"%d" % i + bytes(rng.randrange(40))
            log.append(bytearray(encode_batch([Record(value, key, timestamp=NOW + i)])))
            last[key] = i, value
        log.roll()
        _, done = one_pass(disk, log, 0, NOW)
        assert done.records_after == 40
        log.append(bytearray(encode_batch([Record(b"", b"another", timestamp=NOW + 600)])))
        log.roll()
        assert len(log.segments()) > 10
        one_pass(disk, log, done.first_dirty, NOW)
        assert len(log.segments()) < 4  # small segments were merged
        last[b"another"] = 600, b""
        found = {r[2]: (r[0], r[3]) for row in rows(log) for r in row.records}
        assert found == last
        for key, (offset, value) in last.items():
            batch = next(decode_batches(log.read(offset, 1), size_max=1 << 20, partial_tail=True))
            assert (batch.records[0].key, batch.records[0].value) == (key, value)
            assert log.offset_for_time(NOW + offset)[:2] == (offset, NOW + offset)
        gone = next(offset for offset in range(600) if offset not in {o for o, _ in last.values()})
        following = min(offset for offset, _ in last.values() if offset > gone)
        batch = next(decode_batches(log.read(gone, 1), size_max=1 << 20, partial_tail=True))
        assert batch.base_offset == following
        assert log.offset_for_time(NOW + gone)[:2] == (following, NOW + following)


def test_readers_get_valid_batches_while_segments_are_replaced(tmp_path):
    disk = Disk(tmp_path, segment_bytes=3000)
    with closing(disk.open()) as log:
        author = Author(log, random.Random(2))
        author.write(300)
        author.end_all()
        log.roll()
        before = {r[0]: r for row in rows(log) for r in row.records}
        seen = []

        def read_between(size_bytes):
            seen.extend(r for row in rows(log) for r in row.records)
            return True

        row = row_of(disk, log)
        dirty_range = dirty_range_of(row, SETTINGS, 0, log.end_offset, NOW)
        compact(
            row, SETTINGS, dirty_range, OffsetMap(1 << 20), disk.system, 1 << 24, NOW, read_between
        )
        assert seen and all(before[r[0]] == r for r in seen)


def keyed(key, value, **fields):
    return bytearray(encode_batch([Record(value, key, timestamp=NOW)], **fields))


def test_the_cleaner_stops_at_an_open_transaction_which_may_yet_be_aborted(tmp_path):
    """The value before it is the last one when the transaction is aborted."""
    disk = Disk(tmp_path, segment_bytes=1 << 20)
    with closing(disk.open()) as log:
        author = Author(log, random.Random(0))
        log.append(keyed(b"k", b"old"))
        log.append(keyed(b"k", b"committed"))
        opened = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
        log.append(keyed(b"k", b"in a transaction", **opened))
        log.append(keyed(b"k2", b"behind it"))
        log.roll()
        log.append(keyed(b"k3", b"active"))
        dirty_range, done = one_pass(disk, log, 0, NOW)
        assert (dirty_range.first_uncleanable, done.first_dirty) == (2, 2)
        # Nothing is left to clean before the transaction ends, although its segment is sealed.
        again = dirty_range_of(row_of(disk, log), SETTINGS, 2, log.end_offset, NOW)
        assert (again.dirty_bytes, again.is_overdue) == (0, False)
        author.end(7, commit=False)
        log.roll()
        log.append(keyed(b"k3", b"active"))
        dirty_range, done = one_pass(disk, log, done.first_dirty, NOW)
        assert dirty_range.first_uncleanable == done.first_dirty == log.segments()[-1].base_offset
        records = [record for row in rows(log) if row.commit is None for record in row.records]
        assert [value for *_, key, value in records if key == b"k"] == [b"committed"]


def test_a_compacted_segment_spans_no_more_offsets_than_its_index_has_bits_for(tmp_path):
    """A segment's index holds offsets relative to its base offset in 32 bits."""
    far = 2**32
    disk = Disk(tmp_path, segment_bytes=1 << 20)
    for base in (0, 10, far, far + 10):
        data = bytearray(keyed(b"k%d" % base, b"v"))
        data[:8] = struct.pack(">q", base)
        disk.file(base, ".log").write_bytes(data)
    with closing(disk.open()) as log:
        assert [info.base_offset for info in log.segments()] == [0, 10, far, far + 10]
        one_pass(disk, log, 0, NOW)
        assert [info.base_offset for info in log.segments()] == [0, 10, far, far + 10]
        assert [row.base for row in rows(log)] == [0, 10, far, far + 10]
