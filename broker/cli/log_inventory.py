"""Reads the log directories of a stopped broker for controller/rebuilt_tree.py.

Of each partition it reads partition.metadata, leader-epoch-checkpoint, the producer snapshots, and
the batches of the newest segment from its last snapshot or the last entry of its index on. Producer
ids that no log has, but a transactional id owns, are in the records of __transaction_state: they
are read whole. Nothing is changed.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from barnabas.cext.record.records import CorruptRecords
from barnabas.cli import log_files
from barnabas.controller.rebuilt_tree import FoundReplica, Inventory
from barnabas.storage import checkpoints, partition_dirs
from barnabas.storage.checkpoints import DamagedFile
from barnabas.storage.log_dirs import LogDir, UnusableDirectory
from barnabas.wire import MalformedMessage
from barnabas.wire.batches import Batch
from barnabas.wire.internal import TRANSACTION_STATE, UnknownRecord, read_key
from barnabas.wire.uuids import uuid_text


def inventory(directories: Sequence[LogDir]) -> Inventory:
    """Reads the directories of one broker. Raises UnusableDirectory, OSError."""
    clusters = sorted({row.identity().get("cluster.id", "") for row in directories})
    if len(clusters) > 1:
        raise UnusableDirectory(
            f"the log directories belong to several clusters: {', '.join(clusters)}. Give those of"
            " one broker."
        )
    identity = directories[0].identity()
    broker_id = int(identity.get("node.id", identity.get("broker.id", "-1")))
    replicas: list[FoundReplica] = []
    latest_producer_id = -1
    for directory in directories:
        for path in sorted(directory.path.iterdir()):
            named = partition_dirs.parse(path.name) if path.is_dir() else None
            if named is None or named.mark is not None:
                continue
            replica, producer_id = _replica(path, named.topic, named.partition)
            latest_producer_id = max(latest_producer_id, producer_id)
            replicas.append(replica)
    is_clean = all(row.was_clean for row in directories)
    return Inventory(broker_id, clusters[0], is_clean, latest_producer_id, tuple(replicas))


def _replica(path: Path, topic: str, partition: int) -> tuple[FoundReplica, int]:
    """Returns what is known of one log, and the largest producer id in it."""
    try:
        epochs = checkpoints.read_leader_epochs(path)
        topic_id = checkpoints.read_topic_id(path)
    except DamagedFile as error:
        raise UnusableDirectory(
            f"{error}. Restore the file, or move the directory {path} away."
        ) from error
    end_offset, last_epoch, producer_id = _tail(path)
    producer_id = max(producer_id, max(_snapshot_ids(path), default=-1))
    if topic == TRANSACTION_STATE:
        producer_id = max(producer_id, max(_owned_ids(path), default=-1))
    written = (epoch for epoch, start in epochs if start < end_offset)
    last_epoch = max(last_epoch, max(written, default=-1))
    found = FoundReplica(
        topic,
        partition,
        None if topic_id is None else uuid_text(topic_id),
        max(last_epoch, max((epoch for epoch, _ in epochs), default=-1)),
        last_epoch,
        end_offset,
    )
    return found, producer_id


def _segments(path: Path) -> list[Path]:
    return sorted(file for file in path.glob("*.log") if file.stem.isdecimal())


def _tail(path: Path) -> tuple[int, int, int]:
    """Returns the end offset of a log, the epoch of the last batch and the largest producer id of
    the batches behind the last snapshot; -1 for none. It ends at the first damaged batch, as
    recovery does."""
    segments = _segments(path)
    if not segments:
        return 0, -1, -1
    newest = segments[-1]
    end_offset, epoch, producer_id = log_files.base_offset_of(newest), -1, -1
    data = log_files.mapped(newest)
    for row, batch in log_files.batches(data[_first_position(newest, len(data)) :]):
        if batch is None:
            break
        end_offset = int(row["lastOffset"]) + 1
        epoch = max(epoch, int(row["leaderEpoch"]))
        producer_id = max(producer_id, int(row["producerId"]))
    return end_offset, epoch, producer_id


def _first_position(segment: Path, size_bytes: int) -> int:
    """Returns the position in a segment from which its batches are read: at or before the newest
    snapshot, and as late as the index allows."""
    base = log_files.base_offset_of(segment)
    snapshots = [log_files.base_offset_of(file) for file in segment.parent.glob("*.snapshot")]
    known = max(snapshots, default=-1)
    index = segment.with_suffix(".index")
    if known < base or not index.exists():
        return 0
    position = 0
    for row in log_files.offset_index(log_files.mapped(index), base):
        if "problem" in row or row["offset"] > known or row["position"] >= size_bytes:
            break
        position = int(row["position"])
    return position


def _snapshot_ids(path: Path) -> Iterator[int]:
    for file in path.glob("*.snapshot"):
        for row in log_files.producer_snapshot(log_files.mapped(file)):
            if "producerId" in row:
                yield int(row["producerId"])


def _owned_ids(path: Path) -> Iterator[int]:
    """Yields the producer ids of the transactional ids in a partition of __transaction_state."""
    for segment in _segments(path):
        for _row, batch in log_files.batches(log_files.mapped(segment)):
            if batch is not None and not batch.control:
                yield from _ids_in(batch)


def _ids_in(batch: Batch) -> Iterator[int]:
    try:
        for record in batch.records:
            if record.key is None or record.value is None:
                continue
            kind, _key = read_key(TRANSACTION_STATE, record.key)
            yield int(kind.read_value(record.value)[1].producerId)
    except (CorruptRecords, MalformedMessage, UnknownRecord):
        return  # the coordinator skips it too
