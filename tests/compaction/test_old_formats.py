"""Segments in message formats 0 and 1 are cleaned as Kafka 4 cleans them: kept messages become
batches."""

import gzip
import json
import os
import random
import struct
import zlib
from contextlib import closing
from pathlib import Path

import pytest
from compaction.test_compaction_model import one_pass
from oracle.compaction import Row, rows_of
from oracle.log_builder import NOW, Disk
from oracle.old_compaction import cleaned, entries, latest_of

from barnabas.cext.log.cleaner.compact import Cleaning, Learning, Uncleanable
from barnabas.cext.log.cleaner.offset_map import OffsetMap
from barnabas.cext.memory.sys import SystemCalls
from barnabas.cext.record.records import Record
from barnabas.wire.batches import decode_batches, encode_batch
from barnabas.wire.compression import compress, decompress

VECTORS = Path(__file__).resolve().parents[1] / "vectors" / "compacted-old.jsonl.gz"
CASES = [json.loads(line) for line in gzip.open(VECTORS, "rt")]
LARGE = 2**62
RETENTION_MS = 1000
HORIZON = NOW + RETENTION_MS


def opened(codec: int, data: bytes) -> bytes:
    return decompress(codec, data, size_max=1 << 24)


def cleaned_file(
    path: Path, *, first: int = 0, end: int = LARGE, keys: int = 1 << 16, tombstones: bool = True
) -> tuple[bytes, OffsetMap]:
    """The .log that a pass over one segment's file writes, and the keys that it had found."""
    system, offsets = SystemCalls(), OffsetMap(24 * keys, secret=bytes(16))
    offsets.reset(keys)
    size = path.stat().st_size
    learning = Learning(
        system, offsets, decompress=opened, inflated_max=1 << 24, from_offset=first, end_offset=end
    )
    learning.open(path, size)
    while learning.turn(200):
        pass
    cleaning = Cleaning(
        system,
        offsets,
        decompress=opened,
        compress=compress,
        inflated_max=1 << 24,
        now_ms=NOW,
        delete_retention_ms=RETENTION_MS,
        index_interval_bytes=300,
    )
    cleaning.begin(path.with_suffix(""), 0)
    cleaning.keeps_old_tombstones = tombstones
    cleaning.open(path, size)
    while cleaning.turn(200):
        pass
    cleaning.finish()
    made = path.with_suffix(".log.cleaned").read_bytes()
    assert len(made) == cleaning.size_bytes
    return made, offsets


def rows(data: bytes) -> list[Row]:
    return rows_of(decode_batches(data, size_max=1 << 24))


def facts(data: bytes) -> list[tuple]:
    """All fields of a header except those that depend on the compressed size."""
    return [
        (b.magic, b.timestamp_type, b.max_timestamp, b.base_timestamp, b.leader_epoch, b.count)
        for b in decode_batches(data, size_max=1 << 24)
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_it_leaves_what_kafka_leaves(tmp_path, case):
    log = bytes.fromhex(case["log"])
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(log)
    for tombstones, told in ((True, "with_tombstones"), (False, "without")):
        made, _ = cleaned_file(path, tombstones=tombstones)
        kafkas = bytes.fromhex(case[told])
        assert rows(made) == rows(kafkas) and facts(made) == facts(kafkas)
        if " none " in case["name"]:
            assert made == kafkas
        if case["name"].endswith("pass 0"):  # later ones have batches too
            whole = entries(log)
            latest = latest_of(whole, 0, LARGE)
            assert cleaned(whole, latest, LARGE, tombstones, HORIZON) == rows(kafkas)


def random_log(rng: random.Random, codecs=(0, 1, 2, 3), sets: int = 14) -> bytes:
    """Sets of messages with gaps between them and inside, as an earlier compaction leaves them."""
    data, offset = b"", 0
    for _ in range(sets):
        magic = rng.choice((0, 1))
        rows = []
        for _ in range(rng.randrange(1, 6)):
            offset += rng.choice((0, 0, 0, 1, 5))
            value = None if rng.random() < 0.2 else rng.randbytes(rng.randrange(40))
            key = None if rng.random() < 0.1 else b"k%d" % rng.randrange(18)
            stamp = -1 if magic == 0 else NOW + rng.randrange(1000)
            rows.append(Record(value, key, timestamp=stamp, offset=offset))
            offset += 1
        appended = magic == 1 and rng.random() < 0.4
        options = {"timestamp_type": 1, "append_time": NOW + offset} if appended else {}
        data += encode_batch(
            rows, magic=magic, codec=rng.choice(codecs), keep_offsets=True, **options
        )
    return data


@pytest.mark.parametrize("seed", range(60))
def test_it_leaves_what_the_oracle_leaves(tmp_path, seed):
    rng = random.Random(seed)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(random_log(rng))
    whole = entries(path.read_bytes())
    at = sorted(entry.message.offset + 1 for entry in whole)
    first, end = rng.choice([0, *at[:3]]), rng.choice([*at[-3:], LARGE])
    keys = rng.choice((16, 1 << 10))
    tombstones = rng.random() < 0.5
    made, offsets = cleaned_file(path, first=first, end=end, keys=keys, tombstones=tombstones)
    learnt = offsets.latest_offset + 1
    latest = latest_of(whole, first, min(end, learnt))
    if keys > 16:
        assert learnt == min(end, at[-1])
        assert rows(made) == cleaned(whole, latest, learnt, tombstones, HORIZON)
    else:  # the map was full: keys after that may be known, but records after that are kept
        kept = {e.message.offset for e in whole if e.message.offset >= learnt}
        assert kept <= {record[0] for row in rows(made) for record in row.records}


def test_damaged_wrappers_are_left_alone(tmp_path):
    """The checksum of the frame is correct in all of them."""
    path = tmp_path / f"{0:020d}.log"
    plain = encode_batch([Record(b"v", b"k", timestamp=-1)], magic=0)
    backwards = b"".join(
        encode_batch([Record(b"v", b"k", timestamp=-1)], magic=0, base_offset=offset)
        for offset in (5, 3)
    )

    def wrapped(content: bytes, codec: int = 1) -> bytes:
        body = struct.pack(">bbii", 0, codec, -1, len(content)) + content
        return struct.pack(">qiI", 9, len(body) + 4, zlib.crc32(body)) + body

    for content, codec in (
        (compress(1, b""), 1),
        (compress(1, plain[:-1]), 1),
        (compress(1, backwards), 1),
        (compress(1, wrapped(compress(1, plain))), 1),
        (b"nothing of gzip", 1),
        (compress(4, plain), 4),
        (plain, 7),
    ):
        path.write_bytes(wrapped(content, codec))
        with pytest.raises(Uncleanable):
            cleaned_file(path)


def write_segment(disk: Disk, data: bytes) -> None:
    disk.directory.mkdir(parents=True, exist_ok=True)
    disk.file(0, ".log").write_bytes(data)


def test_a_log_of_old_messages_is_compacted_among_newer_ones(tmp_path):
    """As in an old data directory that was upgraded: every format in one log."""
    rng = random.Random(1)
    disk = Disk(tmp_path / "t-0", segment_bytes=1 << 20)
    data = random_log(rng, sets=40)
    write_segment(disk, data)
    last = {
        row.key: (entry.base + row.offset, row.value)
        for entry in entries(data)
        for row in (entry.inner if entry.inner is not None else (entry.message,))
        if row.key is not None
    }
    with closing(disk.open()) as log:
        assert log.recovered.cut_bytes == 0
        log.roll()
        log.append(bytearray(encode_batch([Record(b"new", b"k3", timestamp=NOW)])))
        last[b"k3"] = log.end_offset - 1, b"new"
        log.roll()
        _, done = one_pass(disk, log, 0, NOW)
        assert done.records_after == len(last)
        found, at = {}, log.start_offset
        while at < log.end_offset:
            piece = log.read(at, 1 << 20)
            if not piece:
                break
            for batch in decode_batches(piece, size_max=1 << 20):
                found |= {row.key: (row.offset, row.value) for row in batch.records}
                at = batch.last_offset + 1
        assert found == last
    with closing(disk.open()) as log:
        assert log.recovered.cut_bytes == 0


@pytest.mark.parametrize(("later_ms", "left"), [(900, 2), (1500, 1)])
def test_old_tombstones_go_when_delete_retention_is_over(tmp_path, later_ms, left):
    """They have no delete horizon: one is removed at once when its segment was changed that long
    before the last clean one; otherwise the pass sets a horizon. A pass keeps the modification time
    of its input."""
    disk = Disk(tmp_path, segment_bytes=1 << 20)
    at_ms = NOW + later_ms
    rng = random.Random(1)
    with closing(disk.open()) as log:
        log.append(bytearray(encode_batch([Record(rng.randbytes(7000), b"first", timestamp=NOW)])))
        log.roll()
        os.utime(disk.file(0, ".log"), (at_ms / 1000, at_ms / 1000))
        checkpoint = one_pass(disk, log, 0, at_ms)[1].first_dirty
        assert disk.file(0, ".log").stat().st_mtime == pytest.approx(at_ms / 1000, abs=0.1)
    old = [Record(None, b"gone", timestamp=-1), Record(b"v", b"kept", timestamp=-1)]
    disk.file(1, ".log").write_bytes(encode_batch(old, magic=0, codec=1, base_offset=1))
    with closing(disk.open()) as log:
        log.roll()
        os.utime(disk.file(1, ".log"), (NOW / 1000, NOW / 1000))
        one_pass(disk, log, checkpoint, at_ms)
        (row,) = rows(disk.file(1, ".log").read_bytes())
        assert len(row.records) == left
        assert row.horizon == (at_ms + RETENTION_MS if left == 2 else -1)
        assert disk.file(1, ".log").stat().st_mtime == pytest.approx(NOW / 1000, abs=0.1)
