"""Writes what a log directory of KRaft has besides partitions.

    meta.properties          version 1: the cluster, the node, and a new id of the directory
    __cluster_metadata-0     one snapshot, END20-EPOCH10.checkpoint, and nothing else: Kafka begins
                             its log behind it

The snapshot is batches with offsets from 0: a header and a footer (control records of types 3 and
4), records between them. Its end offset, in its name, is that of the log which it stands for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from barnabas.cext.record.records import Record, encode_batch
from barnabas.storage.log_dirs import KRAFT_METADATA, META
from barnabas.storage.replace_file import replace_file
from barnabas.wire.messages import by_name
from barnabas.wire.uuids import uuid_text

HEADER, FOOTER = 3, 4
CONTROL = 1 << 5  # attribute of a batch
EPOCH = 1
BATCH_RECORDS_MAX = 1000
BATCH_BYTES_MAX = 4 << 20  # Kafka reads batches of up to 8 MiB


def write_snapshot(log_dir: Path, values: Iterable[bytes], now_ms: int) -> int:
    """Writes the metadata log of a directory. Returns the number of records. Raises OSError."""
    directory = log_dir / KRAFT_METADATA
    directory.mkdir()
    header = by_name("SnapshotHeaderRecord")
    footer = by_name("SnapshotFooterRecord")
    first = header.encode(header.cls(version=0, lastContainedLogTimestamp=now_ms), 0)
    pieces = [_control(HEADER, first, 0)]
    offset = 1
    for batch in _divided(values):
        rows = [Record(value, timestamp=now_ms) for value in batch]
        pieces.append(encode_batch(rows, base_offset=offset, leader_epoch=EPOCH))
        offset += len(batch)
    pieces.append(_control(FOOTER, footer.encode(footer.cls(version=0), 0), offset))
    end_offset = offset + 1
    replace_file(directory / f"{end_offset:020d}-{EPOCH:010d}.checkpoint", b"".join(pieces))
    return offset - 1


def _control(kind: int, value: bytes, offset: int) -> bytes:
    key = (0).to_bytes(2, "big") + kind.to_bytes(2, "big")
    row = Record(value, key, timestamp=0)
    return encode_batch([row], base_offset=offset, attributes=CONTROL, leader_epoch=EPOCH)


def _divided(values: Iterable[bytes]) -> Iterator[list[bytes]]:
    part: list[bytes] = []
    size_bytes = 0
    for value in values:
        if part and (len(part) == BATCH_RECORDS_MAX or size_bytes + len(value) > BATCH_BYTES_MAX):
            yield part
            part, size_bytes = [], 0
        part.append(value)
        size_bytes += len(value)
    if part:
        yield part


def write_identity(log_dir: Path, cluster_id: str, node_id: int, directory_id: bytes) -> None:
    """Writes meta.properties. Raises OSError."""
    lines = ["#", "version=1", f"cluster.id={cluster_id}", f"node.id={node_id}"]
    lines.append(f"directory.id={uuid_text(directory_id)}")
    replace_file(log_dir / META, "".join(f"{line}\n" for line in lines).encode())
