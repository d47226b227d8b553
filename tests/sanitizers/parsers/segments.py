"""The files of a partition: indexes, segments that the cleaner reads, and a start after a crash."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from native.test_fetch_old import Old
from oracle.log_builder import Disk
from oracle.log_builder import batch as log_batch
from oracle.produce import batch, compressed, record
from oracle.vectors import vectors
from sanitizers.parsers import Parse, Parser, of
from sanitizers.parsers.sealed import SIZE_MAX, old_messages, sealed

from barnabas.cext.fetch.fetch import ParkedFetch
from barnabas.cext.log.batch_walk import BatchWalk
from barnabas.cext.log.cleaner.compact import Cleaning, Learning, Uncleanable
from barnabas.cext.log.cleaner.offset_map import OffsetMap
from barnabas.cext.log.index import OffsetIndex, TimeIndex
from barnabas.cext.log.log_handle import LogError, LogHandle
from barnabas.cext.memory.sys import SystemCalls
from barnabas.cext.record.records import CorruptRecords, Record, encode_batch
from barnabas.server.down_conversion import convert_range
from barnabas.wire import compression

NOW_MS = 1_800_000_000_000
OFFSET_END = 1 << 33
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def index(data: bytes) -> None:
    """An offset index and a time index: searched as they are, and what a start accepts of them."""
    with contextlib.suppress(ValueError):
        with OffsetIndex(data) as found:
            for target in (0, 1, 1 << 20, 2**31 - 1):
                found.lookup(target)
            kept = found.check(base_offset=0, offset_end=OFFSET_END, log_size_bytes=1 << 20)
            assert 0 <= kept <= len(found)
    with contextlib.suppress(ValueError):
        with TimeIndex(data) as times:
            for target in (0, NOW_MS, 2**63 - 1):
                times.lookup(target)
            assert 0 <= times.check(base_offset=0, offset_end=OFFSET_END) <= len(times)


def indexes() -> Iterator[bytes]:
    for count in (0, 1, 5, 40):
        yield b"".join(
            (n + 1).to_bytes(4, "big") + (n * 100).to_bytes(4, "big") for n in range(count)
        )
        yield b"".join(
            (NOW_MS + n).to_bytes(8, "big") + (n + 1).to_bytes(4, "big") for n in range(count)
        )
    yield bytes(240)


def segment_file(folder: Path, _stack: contextlib.ExitStack) -> Parse:
    """A segment as the cleaner reads and writes it, and as a walk over its batches does. The first
    byte says whether the first batch gets its length and its checksum."""
    system, offsets = SystemCalls(), OffsetMap(1 << 16)
    path = folder / f"{0:020d}.log"

    def parse(data: bytes) -> None:
        made = sealed(data[1:]) if data[:1] != b"\0" else data[1:]
        path.write_bytes(made)
        walk = BatchWalk(str(path), 0)
        with contextlib.suppress(CorruptRecords):
            while walk.next_batches(100):
                pass
            walk.damage()
        offsets.reset(100)
        with contextlib.suppress(Uncleanable, CorruptRecords):
            learning = Learning(
                system,
                offsets,
                decompress=opened,
                inflated_max=SIZE_MAX,
                from_offset=0,
                end_offset=OFFSET_END,
            )
            learning.open(path, len(made))
            while learning.turn(1 << 16):
                pass
            cleaning = Cleaning(
                system,
                offsets,
                decompress=opened,
                compress=compression.compress,
                inflated_max=SIZE_MAX,
                now_ms=NOW_MS,
                delete_retention_ms=1000,
                index_interval_bytes=300,
            )
            cleaning.begin(path.with_suffix(""), 0)
            cleaning.open(path, len(made))
            while cleaning.turn(1 << 16):
                pass
            cleaning.finish()

    return parse


def opened(codec: int, body: bytes) -> bytes:
    return compression.decompress(codec, body, size_max=SIZE_MAX)


def segment_files() -> Iterator[bytes]:
    for vector in vectors("batches"):
        yield b"\1" + vector["bytes"]
    for made in (*old_messages(), batch(), *(compressed(c, [record()]) for c in range(5))):
        yield b"\0" + made
        yield b"\1" + made


def recovery(folder: Path, _stack: contextlib.ExitStack) -> Parse:
    """A log that is opened after a crash. The first byte chooses the file that has the bytes, and
    whether they replace it or are behind its own; the other files are sound. Whatever the file
    holds, the log opens and takes the next batch, or the directory is refused."""
    whole = folder / "whole"
    whole.mkdir()
    _filled(whole).close(clean=False)
    sound = {path.name: path.read_bytes() for path in whole.iterdir()}
    place = folder / "opened"
    place.mkdir()
    again = Disk(place)

    def parse(data: bytes) -> None:
        choice = data[0] if data else 0
        suffix, content = SUFFIXES[(choice & 31) % len(SUFFIXES)], data[1:]
        if suffix == ".log" and choice & 32:
            content = sealed(content)
        name = f"{3 if suffix == '.snapshot' else 0:020d}{suffix}"
        before = sound.get(name, b"") if choice & 64 else b""
        for left in os.listdir(place):
            os.remove(f"{place}/{left}")
        for made, kept in (sound | {name: before + content}).items():
            with open(f"{place}/{made}", "xb", buffering=0) as file:  # faster than with Path
                file.write(kept)
        with contextlib.suppress(LogError, OSError):
            found = again.open(recovery_point=0, clean=bool(choice & 128))
            try:
                found.append(bytearray(log_batch(b"next")))
            finally:
                found.close(clean=False)

    return parse


def _filled(directory: Path) -> LogHandle:
    """A log with three batches of an idempotent producer."""
    log = Disk(directory).open()
    for number in range(3):
        made = log_batch(b"v%d" % number, producer_id=7, producer_epoch=0, base_sequence=number)
        log.append(bytearray(made))
    return log


def recoveries() -> Iterator[bytes]:
    stored = log_batch(b"one", b"two", producer_id=7, producer_epoch=0, base_sequence=3)
    for choice in (0, 32, 64, 96, 128):
        yield bytes([choice]) + stored
        yield bytes([choice]) + bytes(100)
    for place, content in enumerate(indexes()):
        yield bytes([1 + place % 2]) + content
    aborted = b"".join(n.to_bytes(8, "big") for n in (7, 0, 2, 3))
    yield b"\3\0\0" + aborted
    yield b"\x03" + aborted * 2
    yield b"\x04\0\1" + bytes(30)
    with tempfile.TemporaryDirectory() as folder:
        _filled(Path(folder)).close()  # cleanly
        for path in Path(folder).iterdir():
            if path.suffix in SUFFIXES:
                yield bytes([SUFFIXES.index(path.suffix)]) + path.read_bytes()
                yield bytes([SUFFIXES.index(path.suffix) | 128]) + path.read_bytes()


def stored_fetch(folder: Path, stack: contextlib.ExitStack) -> Parse:
    """Stored bytes that a Fetch of version 1 or 2 converts to messages, as on a damaged disk: no
    append has checked them. The first byte chooses the version; and whether the bytes behind the
    second are decompressed content, whatever the batch holds, and compressed messages."""
    directory = folder / "stored"
    directory.mkdir()
    broker = Old(directory, {"t": 1}, threads=False)
    stack.callback(broker.close)
    log = broker.logs["t", 0]

    def fetch(data: bytes, version: int) -> bytes | ParkedFetch:
        """The bytes keep the place of a batch that was appended: its base offset and its last."""
        log.truncate_fully_and_start_at(0)
        broker.append("t", 0, encode_batch([Record(bytes(len(data)), timestamp=1)]))
        [segment] = log.segments()
        assert segment.base_offset == 0
        with open(directory / "t-0" / f"{0:020d}.log", "r+b") as file:
            file.seek(8)
            file.write(data[8:])
        return broker.fetch("t", version)

    def parse(data: bytes) -> None:
        choice, content = data[0] if data else 0, data[2:]
        answer = fetch(sealed(content), 1 + choice % 2)
        if isinstance(answer, ParkedFetch):
            job = broker.native.conversions.next()
            if choice & 2:
                while job.convert() is not None:
                    if job.content(content) is not None:
                        job.wrap(content)
                job.done()
            else:
                convert_range(job)
            answer = answer.wait()
        assert len(answer) <= 5 * SIZE_MAX

    return parse


def stored_fetches() -> Iterator[bytes]:
    for made in (*(vector["bytes"] for vector in vectors("batches")), *old_messages()):
        for choice in range(4):
            yield bytes([choice, 0]) + made


PARSERS = {
    "index": Parser(of(index), indexes),
    "segment_file": Parser(segment_file, segment_files),
    "recovery": Parser(recovery, recoveries),
    "stored_fetch": Parser(stored_fetch, stored_fetches),
}
