"""Reads `__cluster_metadata-0`: the newest complete snapshot, then the log behind it.

    ENDOFFSET20-EPOCH10.checkpoint   metadata records, between a header and a footer (control
                                     batches of types 3 and 4); without a footer it is not complete
    B.log                            metadata records; control batches (a new leader, its voters)

A broken last batch of the newest segment is what a crash leaves, and ends the log as in Kafka. Any
other damage is refused: what follows it would be lost.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from barnabas.cext.codec.wire import MalformedMessage
from barnabas.cext.record.records import CorruptRecords, Record
from barnabas.storage.log_dirs import KRAFT_METADATA
from barnabas.takeover.metadata_image import MetadataImage
from barnabas.takeover.metadata_records import read_record
from barnabas.takeover.refusals import CannotImport
from barnabas.takeover.stored_batches import DamagedSegment, batches_of, segments
from barnabas.wire.batches import Batch
from barnabas.wire.messages import by_name

LEADER_CHANGE, FOOTER = 2, 4  # types of control records


class MetadataLog(NamedTuple):
    """The metadata of a cluster, and where it ends."""

    directory: Path
    image: MetadataImage
    last_epoch: int
    end_offset: int


def read_metadata_log(log_dir: Path) -> MetadataLog:
    """Reads the metadata log in a log directory. Raises CannotImport, FailedDirectory."""
    directory = log_dir / KRAFT_METADATA
    image = MetadataImage()
    end_offset, epoch = _read_snapshot(directory, image)
    files = segments(directory)
    if files and int(files[0].stem) > end_offset:
        raise CannotImport(
            [
                f"{files[0]}: the metadata log begins at offset {int(files[0].stem)}, and no"
                f" complete snapshot reaches it (the newest ends at {end_offset}). Restore the"
                " directory from another controller or broker."
            ]
        )
    for file in files:
        try:
            for batch in batches_of(file):
                if batch.control:
                    _note_voters(file, batch, image)
                if batch.last_offset < end_offset:
                    continue
                _apply(file, batch, image, end_offset)
                end_offset, epoch = batch.last_offset + 1, max(epoch, batch.leader_epoch)
        except DamagedSegment as error:
            if file != files[-1]:
                raise CannotImport([f"{error}. Restore the file."]) from error
            break  # what a crash leaves: Kafka cuts it too
    if end_offset == 0:
        raise CannotImport(
            [f"{directory} has no metadata: Kafka was formatted and has never run here."]
        )
    return MetadataLog(directory, image, epoch, end_offset)


def _read_snapshot(directory: Path, image: MetadataImage) -> tuple[int, int]:
    """Applies the newest complete snapshot. Returns its end offset and epoch; 0 and -1 without
    one."""
    found = []
    for path in directory.glob("*.checkpoint"):
        end, _, of_epoch = path.stem.partition("-")
        if end.isdecimal() and of_epoch.isdecimal():
            found.append((int(end), int(of_epoch), path))
    for end_offset, epoch, path in sorted(found, reverse=True):
        try:
            rows = list(batches_of(path))
            if not rows or not _is_footer(rows[-1]):
                continue
        except (DamagedSegment, CorruptRecords):
            continue
        for batch in rows:
            _apply(path, batch, image, 0)
        return end_offset, epoch
    return 0, -1


def _is_footer(batch: Batch) -> bool:
    return batch.control and bool(batch.records) and _type_of(batch.records[-1]) == FOOTER


def _type_of(record: Record) -> int:
    return int.from_bytes((record.key or b"")[2:4], "big")


def _note_voters(path: Path, batch: Batch, image: MetadataImage) -> None:
    """Takes the controllers that elected a new leader; the newest one of the log counts."""
    message = by_name("LeaderChangeMessage")
    try:
        for record in batch.records:
            if _type_of(record) != LEADER_CHANGE or record.value is None:
                continue
            version = int.from_bytes(record.value[:2], "big")
            if version <= message.version_max:
                found = message.decode(record.value, version)
                image.voters = {row.voterId for row in found.voters}
    except (MalformedMessage, CorruptRecords) as error:
        raise CannotImport([f"{path}: offset {batch.base_offset}: {error}."]) from error


def _apply(path: Path, batch: Batch, image: MetadataImage, from_offset: int) -> None:
    if batch.control:
        return
    try:
        for record in batch.records:
            if record.offset >= from_offset and record.value is not None:
                image.apply(*read_record(record.value))
    except (MalformedMessage, CorruptRecords) as error:
        raise CannotImport([f"{path}: batch up to offset {batch.last_offset}: {error}."]) from error
