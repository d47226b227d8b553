"""What an import of log directories of Kafka 0.7 would do. Nothing is changed here.

A broker of 0.7 shares no partition with others, has one log directory, and keeps no id in it. Its
topics are the directories TOPIC-PARTITION; it makes one when a first message comes, so a missing
one below the largest number is an empty partition. Settings are in the broker's file alone: topics
get those that delete nothing (KEPT_FOREVER).

Each broker counts its partitions of a topic from 0. Those of several brokers are counted on in the
order of the brokers' ids, as producers of 0.7 do, so that a key keeps its partition.

Each message is read and its CRC compared. Damage, and addresses that no segment has, are a loss. At
the end of the last segment after an unclean stop they are not: 0.7 cuts them off at its next start.

Groups keep their addresses in ZooKeeper, /consumers/GROUP/offsets/TOPIC/BROKER-PARTITION. They
become offsets, which clients of 0.8 and of OffsetFetch 0 use. Next: converted_import.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from barnabas.cext.record.messages07 import BadMessages
from barnabas.controller.rebuilt_tree import KEPT_FOREVER
from barnabas.metadata import znodes
from barnabas.metadata.tree import MetadataTree, NoNode
from barnabas.storage.log_dirs import FailedDirectory, UnusableDirectory
from barnabas.storage.partition_dirs import ORIGINAL_SEGMENT
from barnabas.takeover.converted_import import Piece, borders, pieces
from barnabas.takeover.found_cluster import Counts, FoundCluster
from barnabas.takeover.import_plan import (
    ImportPlan,
    PlannedPartition,
    finished_plan,
    known_uuid,
)
from barnabas.takeover.internal_facts import InternalFacts
from barnabas.takeover.metadata_image import FoundPartition, FoundTopic
from barnabas.takeover.partition_files import PartitionFile, Progress
from barnabas.takeover.refusals import CannotImport
from barnabas.takeover.source_directory import SourceDirectory
from barnabas.takeover.stored_batches import mapped
from barnabas.wire import compression

WHERE = "the log directories"


class GroupAddress(NamedTuple):
    """The position of a group in a partition, as 0.7 keeps it."""

    group: str
    topic: str
    broker_id: int
    partition: int
    address: int

    @property
    def place(self) -> tuple[int, str, int]:
        return self.broker_id, self.topic, self.partition


def segments_of(directory: Path) -> list[PartitionFile]:
    """Returns the segments of a partition, the oldest first. Raises UnusableDirectory,
    FailedDirectory."""
    found = []
    try:
        for path in sorted(directory.iterdir(), key=lambda row: row.name):
            if path.suffix != ORIGINAL_SEGMENT:
                continue
            if path.is_symlink() or not path.is_file() or not _is_address(path.stem):
                raise UnusableDirectory(f"{path} is not a segment of Kafka 0.7. Move it away.")
            found.append(PartitionFile(path, path.stat().st_size))
    except OSError as error:
        raise FailedDirectory(f"cannot read {directory}", error) from error
    return found


def _is_address(stem: str) -> bool:
    return len(stem) == 20 and stem.isascii() and stem.isdecimal() and int(stem) < 2**63


class _Partition:
    """Reads all messages of one partition. `wanted`: addresses whose offsets are asked for."""

    def __init__(self, source: SourceDirectory, wanted: set[int]) -> None:
        self._source, self._wanted = source, wanted
        self.losses: list[str] = []
        self.notes: list[str] = []
        self.offsets: dict[int, int] = {}  # of the wanted addresses
        self.start = self.end = -1
        self.count = 0
        self.index = -1  # the partition's new number

    def read(self, files: list[PartitionFile], progress: Progress) -> None:
        """Raises FailedDirectory."""
        for number, row in enumerate(files):
            start = int(row.path.stem)
            if number == 0:
                self.start = start
            elif start != self.end:
                self.losses.append(
                    f"{row.path}: the segment before it ends at address {self.end}, so messages in"
                    " between are missing"
                )
            self._segment(row, start, is_last=number == len(files) - 1, progress=progress)

    def _segment(self, row: PartitionFile, start: int, is_last: bool, progress: Progress) -> None:
        done, data = 0, mapped(row.path)
        try:
            for piece in pieces(data):
                self._look_up(piece, start)
                count = sum(1 for _ in borders(piece.messages))
                self.count += count
                done = piece.end
                progress(count, piece.end - piece.start)
        except BadMessages as error:
            left = len(data) - done
            if is_last and not self._source.is_clean:
                self.notes.append(
                    f"left out: {row.path}: the {left} bytes from byte {done} on are no whole"
                    " message. Kafka 0.7 cuts them off when it starts"
                )
            else:
                self.losses.append(
                    f"{row.path}: damaged at byte {done} ({str(error).partition(' (at byte')[0]}),"
                    f" so the messages in its last {left} bytes are missing"
                )
                done = left + done  # where the next segment has to begin
        self.end = start + done
        if self.end in self._wanted:
            self.offsets[self.end] = self.count

    def _look_up(self, piece: Piece, start: int) -> None:
        if piece.codec != compression.NONE:
            if start + piece.start in self._wanted:
                self.offsets[start + piece.start] = self.count
            return
        first, last = start + piece.start, start + piece.end
        for address in self._wanted:
            if first <= address < last:
                for number, at in enumerate(borders(piece.messages)):
                    if first + at == address:
                        self.offsets[address] = self.count + number


def group_addresses(tree: MetadataTree) -> Iterator[GroupAddress]:
    """Yields the positions of all groups that clients of 0.7 have stored. Raises MetadataError."""
    for group in _children(tree, znodes.CONSUMERS_PATH):
        offsets = f"{znodes.CONSUMERS_PATH}/{group}/offsets"
        for topic in _children(tree, offsets):
            for name in _children(tree, f"{offsets}/{topic}"):
                broker, dash, partition = name.partition("-")
                text = tree.get(f"{offsets}/{topic}/{name}")[0].decode(errors="replace")
                numbers = (broker, partition, text)
                if dash and all(row.isascii() and row.isdecimal() for row in numbers):
                    yield GroupAddress(group, topic, *map(int, numbers))


def _children(tree: MetadataTree, path: str) -> list[str]:
    try:
        return sorted(tree.children(path))
    except NoNode:
        return []


class Plan07(NamedTuple):
    """An import, and the groups whose positions are imported."""

    plan: ImportPlan
    facts: InternalFacts


def plan_import_07(
    sources: Sequence[SourceDirectory],
    node_id: int,
    tree: MetadataTree | None,
    may_lose: bool,
    progress: Callable[[int, int], object],
) -> Plan07:
    """Plans the import of directories of 0.7. `tree`: ZooKeeper's, where the groups are;
    `may_lose`: the operator accepts losses. Raises CannotImport with all reasons,
    UnusableDirectory, FailedDirectory, MetadataError."""
    _check_brokers(sources)
    found = FoundCluster()
    groups = list(group_addresses(tree)) if tree is not None else []
    if tree is None:
        found.notes.append("not imported: groups: 0.7 has them in ZooKeeper. --zookeeper reads it")
    brokers = {row.broker_id for row in sources}
    ours = [row for row in groups if row.broker_id in brokers]
    for broker in sorted({row.broker_id for row in groups} - brokers):
        found.notes.append(f"not imported: positions of groups in partitions of broker {broker}")
    read: dict[tuple[int, str, int], _Partition] = {}
    chosen = []
    counts: dict[str, int] = {}  # of partitions, by topic
    for number, source in sorted(enumerate(sources), key=lambda row: row[1].broker_id):
        firsts = dict(counts)
        for (topic, index), path in sorted(source.partitions.items()):
            files = segments_of(path)
            if not files:
                found.notes.append(f"not imported: {path}: it has no segment of Kafka 0.7")
                continue
            place = (source.broker_id, topic, index)
            partition = _Partition(source, {row.address for row in ours if row.place == place})
            partition.read(files, progress)
            found.losses += partition.losses
            found.notes += partition.notes
            partition.index = firsts.get(topic, 0) + index
            read[place] = partition
            chosen.append(PlannedPartition(topic, partition.index, number, tuple(files)))
            counts[topic] = partition.index + 1
            if partition.index != index:
                found.notes.append(f"{path} becomes {topic}-{partition.index}")
        for path in source.set_aside:
            found.losses.append(f"{path}: no topic can have this name, so its messages are missing")
    problems = [] if may_lose else [f"{row}. --allow-loss accepts that." for row in found.losses]
    if problems:
        raise CannotImport(problems)
    _add_topics(found, counts, [str(row.path.absolute()) for row in sources])
    facts = _add_groups(found, ours, read)
    return Plan07(finished_plan(sources, chosen, found, node_id, WHERE, {}), facts)


def _check_brokers(sources: Sequence[SourceDirectory]) -> None:
    paths: dict[int, Path] = {}
    for row in sources:
        if not row.is_07:
            raise CannotImport([f"{row.path} is not of Kafka 0.7, as the others. Import it alone."])
        before = paths.setdefault(row.broker_id, row.path)
        if before is not row.path:
            raise CannotImport(
                [
                    f"{before} and {row.path} are of broker {row.broker_id}, and a broker of Kafka"
                    " 0.7 has one log directory. Give each with its broker's id: DIR=ID."
                ]
            )


def _add_topics(found: FoundCluster, counts: Mapping[str, int], paths: Sequence[str]) -> None:
    for name, count in sorted(counts.items()):
        topic = FoundTopic(name, known_uuid(*paths, name))
        for index in range(count):
            topic.partitions[index] = FoundPartition((), -1, 0, ())
        found.topics[name] = topic
        found.nodes[znodes.config_path("topics", name)] = znodes.encode_config(KEPT_FOREVER)
    if found.topics:
        forever = " and ".join(f"{name}={value}" for name, value in KEPT_FOREVER.items())
        found.notes.append(f"{len(found.topics)} topics get {forever}, so that nothing is deleted")
    found.counts = Counts(len(KEPT_FOREVER) * len(found.topics), 0, 0, 0, 0)


def _add_groups(
    found: FoundCluster,
    rows: list[GroupAddress],
    read: Mapping[tuple[int, str, int], _Partition],
) -> InternalFacts:
    kept = set()
    for row in rows:
        partition = read.get(row.place)
        where = f"group {row.group!r} in {row.topic}-{row.partition}, address {row.address}"
        if partition is None:
            found.notes.append(f"not imported: {where}: there is no such partition")
            continue
        offset = partition.offsets.get(row.address)
        if offset is None and row.address < partition.start:
            offset = 0  # its messages were deleted
        if offset is None:
            found.notes.append(f"not imported: {where}: no message begins there")
            continue
        path = f"{znodes.CONSUMERS_PATH}/{row.group}/offsets/{row.topic}/{partition.index}"
        found.nodes[path] = str(offset).encode()
        kept.add(row)
    return InternalFacts(len({row.group for row in kept}), len(kept), {})
