"""Reads the files of a log directory, of barnabas or of Kafka, as rows for the user.

    *.log, *.checkpoint (KRaft), *.cut record batches (cext/record/records.pyx); CRCs are checked
    *.index *.timeindex                cext/log/index.pyx has the table
    *.txnindex                         cext/log/txn_index.pyx has the table
    *.snapshot                         producer state: cext/log/producers.pyx has the table
    the *-checkpoint files, leader-epoch-checkpoint, partition.metadata, meta.properties: text

The suffixes .deleted, .cleaned and .swap are ignored. Damaged data becomes a row with "problem",
and reading continues after it if the end of the damage is known. Files are mapped or read in
pieces, so that a segment of any size can be shown.
"""

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barnabas.cext.codec.crc import crc32c
from barnabas.cext.record.records import CorruptRecords
from barnabas.wire.batches import MAGIC_AT, Batch, decode_batches
from barnabas.wire.compression import CODEC_NAMES

Row = dict[str, Any]

BATCH_SIZE_MAX = 2**31 - 1
INFLATED_BYTES_MAX = 256 * 1024 * 1024
TEXT_BYTES_MAX = 16 * 1024 * 1024
LOG_OVERHEAD_BYTES = 12
SMALLEST_BYTES = {0: 26, 1: 34, 2: 61}  # by magic: size of an empty message or batch
OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
ABORTED_ENTRY = struct.Struct(">hqqqq")
PRODUCER_ENTRY = struct.Struct(">qhiqiqiq")
SNAPSHOT_HEAD = struct.Struct(">hIi")
TIMESTAMP_TYPES = {0: "create", 1: "append"}
CONTROL_KINDS = {0: "abort", 1: "commit", 2: "leader change"}
PASSING = (".deleted", ".cleaned", ".swap")


class UnknownFile(ValueError):
    """The name is not that of a file of a log."""


def kind_of(path: Path) -> str:
    """Returns the kind of a file by its name. Raises UnknownFile."""
    name = path.name
    for suffix in PASSING:
        name = name.removesuffix(suffix)
    if name in ("meta.properties", "partition.metadata", "leader-epoch-checkpoint"):
        return name
    if name.endswith("-checkpoint"):
        return "checkpoint"
    suffix = Path(name).suffix
    if suffix in (".checkpoint", ".cut"):
        return "log"
    if suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
        return suffix[1:]
    raise UnknownFile(
        f"{path.name} is not a log file. Files of these names are shown: .log, .index,"
        " .timeindex, .txnindex, .snapshot, meta.properties, partition.metadata, checkpoints."
    )


def is_known(path: Path) -> bool:
    try:
        kind_of(path)
    except UnknownFile:
        return False
    return True


def base_offset_of(path: Path) -> int:
    """Returns the base offset in a file's name; 0 when it has none."""
    digits = path.name.split(".")[0].split("-")[0]
    return int(digits) if digits.isdecimal() else 0


def mapped(path: Path) -> memoryview:
    """Returns the mapped bytes of a file; the system reads them when they are used."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def batches(data: memoryview) -> Iterator[tuple[Row, Batch | None]]:
    """Yields a row for each batch, and the batch; None for a damaged one."""
    position = 0
    while position < len(data):
        size_bytes, problem = _size_at(data, position)
        if problem:
            yield {"position": position, "problem": problem}, None
            return
        row: Row = {"position": position, "sizeBytes": size_bytes}
        try:
            batch = next(
                decode_batches(data[position : position + size_bytes], size_max=INFLATED_BYTES_MAX)
            )
            yield row | _facts(batch), batch
        except CorruptRecords as error:
            offset = int.from_bytes(data[position : position + 8], "big", signed=True)
            yield row | {"baseOffset": offset, "problem": error.reason}, None
        position += size_bytes


def _size_at(data: memoryview, position: int) -> tuple[int, str | None]:
    """Returns the size of the batch at `position`, and None; or 0 and the damage after which
    reading cannot continue."""
    left = len(data) - position
    if left < LOG_OVERHEAD_BYTES + 5:
        return 0, f"{left} bytes at the end are no batch"
    length = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
    magic = data[position + MAGIC_AT]
    if length == 0:
        return 0, f"{left} bytes that begin with zeros: preallocated and not written, or lost"
    if magic not in SMALLEST_BYTES:
        return 0, f"magic {magic} is not 0, 1 or 2"
    size_bytes = LOG_OVERHEAD_BYTES + length
    if size_bytes < SMALLEST_BYTES[magic]:
        return 0, f"a batch of {size_bytes} bytes is too small"
    if size_bytes > left:
        return 0, f"torn: the batch has {size_bytes} bytes and {left} are here"
    return size_bytes, None


def _facts(batch: Batch) -> Row:
    return {
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "count": batch.count,
        "magic": batch.magic,
        "codec": CODEC_NAMES.get(batch.codec, str(batch.codec)),
        "timestampType": TIMESTAMP_TYPES.get(batch.timestamp_type or 0),
        "maxTimestamp": batch.max_timestamp,
        "leaderEpoch": batch.leader_epoch,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "baseSequence": batch.base_sequence,
        "transactional": batch.transactional,
        "control": batch.control,
        "crc": f"{batch.crc & 0xFFFFFFFF:08x}",
    }


def control_kind(key: bytes | None) -> str:
    """Returns the type of a control record by its key: version int16, type int16."""
    if key is None or len(key) < 4:
        return "unknown"
    number = int.from_bytes(key[2:4], "big", signed=True)
    return CONTROL_KINDS.get(number, f"type {number}")


def offset_index(data: memoryview, base_offset: int) -> Iterator[Row]:
    """Yields the entries of an offset index, up to the first that is not larger than the one
    before: the rest of an active index is preallocated."""
    before = -1
    for relative, position in OFFSET_ENTRY.iter_unpack(data[: len(data) // 8 * 8]):
        if relative <= before or (before == -1 and relative == position == 0):
            break
        before = relative
        yield {"offset": base_offset + relative, "position": position}
    yield from _tail(len(data), OFFSET_ENTRY.size)


def time_index(data: memoryview, base_offset: int) -> Iterator[Row]:
    before, last = -1, -1
    for timestamp, relative in TIME_ENTRY.iter_unpack(data[: len(data) // 12 * 12]):
        if timestamp <= 0 or timestamp < before or relative < last:
            break
        before, last = timestamp, relative
        yield {"timestamp": timestamp, "offset": base_offset + relative}
    yield from _tail(len(data), TIME_ENTRY.size)


def aborted_transactions(data: memoryview) -> Iterator[Row]:
    whole = len(data) // ABORTED_ENTRY.size * ABORTED_ENTRY.size
    for version, producer_id, first, last, stable in ABORTED_ENTRY.iter_unpack(data[:whole]):
        row: Row = {
            "producerId": producer_id,
            "firstOffset": first,
            "lastOffset": last,
            "lastStableOffset": stable,
        }
        if version != 0:
            row["problem"] = f"version {version} is not 0"
        yield row
    yield from _tail(len(data), ABORTED_ENTRY.size)


def _tail(size_bytes: int, entry_bytes: int) -> Iterator[Row]:
    if size_bytes % entry_bytes:
        yield {"problem": f"{size_bytes % entry_bytes} bytes at the end are no whole entry"}


def producer_snapshot(data: memoryview) -> Iterator[Row]:
    if len(data) < SNAPSHOT_HEAD.size:
        yield {"problem": f"{len(data)} bytes are no snapshot"}
        return
    version, crc, count = SNAPSHOT_HEAD.unpack_from(data)
    if version != 1:
        yield {"problem": f"version {version} is not 1"}
        return
    if crc32c(data[6:]) != crc:
        yield {"problem": f"CRC {crc:08x} is wrong: the content has {crc32c(data[6:]):08x}"}
    entries = data[SNAPSHOT_HEAD.size :]
    size = PRODUCER_ENTRY.size
    for entry in PRODUCER_ENTRY.iter_unpack(entries[: len(entries) // size * size]):
        names = (
            "producerId producerEpoch lastSequence lastOffset offsetDelta timestamp"
            " coordinatorEpoch currentTransactionFirstOffset"
        )
        yield dict(zip(names.split(), entry, strict=True))
    if len(entries) != count * size:
        yield {"problem": f"{count} entries are announced and {len(entries) / size:g} are here"}


def text_file(path: Path, kind: str) -> Iterator[Row]:
    """Yields the rows of a text file: checkpoints have a version, a count and lines; the other
    files have names and values."""
    data = mapped(path)
    if len(data) > TEXT_BYTES_MAX:
        yield {"problem": f"{len(data)} bytes are too many for {kind}"}
        return
    lines = bytes(data).decode("utf-8", "replace").splitlines()
    if kind in ("meta.properties", "partition.metadata"):
        sign = "=" if kind == "meta.properties" else ":"
        for line in (line for line in lines if line and not line.startswith("#")):
            name, found, value = line.partition(sign)
            yield {"name": name, "value": value.strip()} if found else {"problem": repr(line)}
        return
    columns = ("epoch", "startOffset") if kind.startswith("leader") else _OFFSET_COLUMNS
    if not lines:
        return
    if lines[0] != "0":
        yield {"problem": f"version {lines[0]!r} is not 0"}
    for line in lines[2:]:
        words = line.split(" ")
        numbers = words[-2:] if columns is _OFFSET_COLUMNS else words
        if len(words) != len(columns) or not all(word.isdecimal() for word in numbers):
            yield {"problem": f"cannot read {line!r}"}
            continue
        yield {
            name: word if name == "topic" else int(word)
            for name, word in zip(columns, words, strict=True)
        }
    if len(lines) < 2 or lines[1] != str(len(lines) - 2):
        announced = lines[1] if len(lines) > 1 else ""
        yield {
            "problem": f"{announced!r} lines are announced and {max(len(lines) - 2, 0)} are here"
        }


_OFFSET_COLUMNS = ("topic", "partition", "offset")
