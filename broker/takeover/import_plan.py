"""What an import of Kafka's log directories would do. Nothing is changed here.

Of each partition one replica is taken: the leader's or, when its directory was not given, one of
the ISR or of the eligible replicas (KIP-966). All of these have every acknowledged record. Another
one is refused, and so is a partition without a directory, unless the operator accepts the loss;
then the replica that ends last is taken, and a partition without one begins empty.

The metadata log of a broker that was killed ends early, and says that it was in sync. Every change
is in the logs of a majority of the controllers, so fewer of them are a loss too.

Each partition gets a leader epoch above the one in the metadata and in its log, because the node
that leads it is another one.

Next: copied_import.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import NamedTuple

from barnabas.config import BrokerConfig
from barnabas.controller.stored_passwords import StoredPasswords
from barnabas.metadata import znodes
from barnabas.metadata.tree import CreateNode
from barnabas.metadata.znodes import PartitionState, TopicAssignment
from barnabas.storage import checkpoints
from barnabas.storage.checkpoints import DamagedFile
from barnabas.takeover.found_cluster import FoundCluster, with_parents
from barnabas.takeover.kraft_cluster import found_cluster
from barnabas.takeover.metadata_image import FoundPartition, FoundTopic
from barnabas.takeover.metadata_log import read_metadata_log
from barnabas.takeover.partition_files import PartitionFile, content_of, files_of
from barnabas.takeover.refusals import CannotImport
from barnabas.takeover.source_directory import SourceDirectory
from barnabas.wire.uuids import uuid_text

REMOTE_STORAGE = "remote.storage.enable"


class PlannedPartition(NamedTuple):
    """A partition and the replica that is taken. `source` counts the given directories from 0."""

    topic: str
    partition: int
    source: int
    files: tuple[PartitionFile, ...]

    @property
    def size_bytes(self) -> int:
        return sum(row.size_bytes for row in self.files)

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True)
class ImportPlan:
    """`nodes`: the tree of the new node, parents before children, without the cluster id. `notes`:
    what is not imported, and losses that the operator has accepted, in plain lines."""

    cluster_id: str
    node_id: int
    metadata: str  # where it was read
    sources: tuple[SourceDirectory, ...]
    partitions: tuple[PlannedPartition, ...]
    cluster: FoundCluster
    nodes: tuple[CreateNode, ...]
    notes: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        return sum(row.size_bytes for row in self.partitions)


class _Found(NamedTuple):
    """A directory of a partition."""

    source: int
    broker_id: int
    path: Path
    files: tuple[PartitionFile, ...]
    last_epoch: int  # -1: none


class Metadata(NamedTuple):
    """Where the metadata of a cluster is, and how it is read. `cluster_id` is "" where only the log
    directories have it. `read` takes the broker whose own settings are used, and the new node."""

    where: str
    cluster_id: str
    read: Callable[[int, int], FoundCluster]


def plan_import(
    sources: Sequence[SourceDirectory],
    config: BrokerConfig,
    may_lose: bool,
    metadata: Metadata | None = None,
) -> ImportPlan:
    """Plans an import. `config`: of the new node; `may_lose`: the operator accepts the losses, and
    they become notes; `metadata`: of a cluster in ZooKeeper mode, None for the metadata log of
    KRaft in one of the directories. Raises CannotImport with all reasons, UnusableDirectory,
    ConfigError, MetadataError."""
    known = {metadata.cluster_id} if metadata is not None else set()
    clusters = sorted({row.cluster_id for row in sources} | known - {""})
    if clusters[0] == "" and len(clusters) > 1:
        del clusters[0]  # Kafka before 0.10.1 writes no cluster id into its directories
    if len(clusters) > 1:
        raise CannotImport(
            [
                f"the directories belong to {len(clusters)} clusters: {', '.join(clusters)}."
                " Give those of one."
            ]
        )
    if metadata is None:
        metadata = _newest_metadata_log(sources, StoredPasswords(config))
    brokers = [row.broker_id for row in sources]
    node_id = config.node_id if config.node_id >= 0 else brokers[0]
    cluster = metadata.read(node_id if node_id in brokers else brokers[0], node_id)
    choice = _Choice(sources, cluster)
    choice.choose_all()
    problems = [*choice.problems]
    losses = [*cluster.losses, *choice.losses]
    if not may_lose:
        problems += [f"{line}. --allow-loss accepts that." for line in losses]
    if problems:
        raise CannotImport(problems)
    cluster.notes += choice.notes
    cluster.losses = losses
    return finished_plan(
        sources, choice.chosen, cluster, node_id, metadata.where, choice.epochs, clusters[0]
    )


def finished_plan(
    sources: Sequence[SourceDirectory],
    chosen: Sequence[PlannedPartition],
    cluster: FoundCluster,
    node_id: int,
    where: str,
    epochs: Mapping[tuple[str, int], int],
    cluster_id: str = "",
) -> ImportPlan:
    """Returns the plan, with the nodes of the topics. `epochs`: the largest known leader epoch of a
    partition."""
    nodes = dict(cluster.nodes)
    for topic in cluster.topics.values():
        nodes |= _topic_nodes(topic, node_id, epochs)
    for path in znodes.PERSISTENT_PATHS:
        nodes.setdefault(path, b"")
    return ImportPlan(
        cluster_id or _new_cluster_id(sources),
        node_id,
        where,
        tuple(sources),
        tuple(chosen),
        cluster,
        tuple(with_parents(nodes)),
        (*cluster.notes, *(f"lost: {line}" for line in cluster.losses)),
    )


def _new_cluster_id(sources: Sequence[SourceDirectory]) -> str:
    """Returns an id for a cluster without one, the same in each run on these directories."""
    return known_uuid(*(str(row.path.absolute()) for row in sources))


def known_uuid(*names: str) -> str:
    """Returns an id that is the same for the same names."""
    text = "\0".join(names)
    attempts = count()
    return znodes.new_uuid(
        lambda size: sha256(f"{next(attempts)}\0{text}".encode()).digest()[:size]
    )


def _newest_metadata_log(
    sources: Sequence[SourceDirectory], passwords: StoredPasswords
) -> Metadata:
    logs = [read_metadata_log(row.path) for row in sources if row.has_metadata_log]
    if not logs:
        raise CannotImport(
            [
                "no directory has the metadata log of KRaft (__cluster_metadata-0). Give the"
                " directory of metadata.log.dir, or one of a controller, too."
            ]
        )
    newest = max(logs, key=lambda row: (row.last_epoch, row.end_offset))
    controllers = newest.image.controllers
    given = {row.broker_id for row in sources if row.has_metadata_log} & controllers
    majority = len(controllers) // 2 + 1

    def read(broker_id: int, node_id: int) -> FoundCluster:
        found = found_cluster(newest.image, broker_id, node_id, passwords)
        if controllers and len(given) < majority:
            found.losses.append(
                f"{newest.directory} may lack the last changes, such as which replicas are in sync:"
                f" {majority} of the controllers {_ids(controllers)} have all of them, and the"
                f" directories of {len(given)} were given"
            )
        return found

    return Metadata(str(newest.directory), "", read)


class _Choice:
    """Chooses a replica of each partition."""

    def __init__(self, sources: Sequence[SourceDirectory], cluster: FoundCluster) -> None:
        self._sources = sources
        self._cluster = cluster
        self.chosen: list[PlannedPartition] = []
        self.epochs: dict[tuple[str, int], int] = {}  # the largest known leader epoch
        self.problems: list[str] = []
        self.losses: list[str] = []
        self.notes: list[str] = []

    def choose_all(self) -> None:
        """Raises UnusableDirectory."""
        self._check_remote()
        for topic in sorted(self._cluster.topics.values(), key=lambda row: row.name):
            for index, partition in sorted(topic.partitions.items()):
                self._choose(topic, index, partition)
        known = {(t.name, index) for t in self._cluster.topics.values() for index in t.partitions}
        for source in self._sources:
            for name, path in source.partitions.items():
                if name not in known:
                    self.notes.append(f"not imported: {path}: no topic of the metadata has it")
            for path in source.set_aside:
                self.notes.append(f"not imported: {path}: set aside by Kafka")

    def _check_remote(self) -> None:
        """Segments that Kafka has moved to remote storage (KIP-405) are in no log directory."""
        for topic in self._cluster.topics.values():
            data = self._cluster.nodes.get(znodes.config_path("topics", topic.name), b"")
            if znodes.decode_config(data).get(REMOTE_STORAGE) == "true":
                self.losses.append(
                    f"topic {topic.name} has {REMOTE_STORAGE}=true: segments in remote storage are"
                    " not imported"
                )

    def _choose(self, topic: FoundTopic, index: int, partition: FoundPartition) -> None:
        name = f"{topic.name}-{index}"
        found = list(self._candidates(topic, index))
        self.epochs[topic.name, index] = max(
            [partition.leader_epoch, *(row.last_epoch for row in found)]
        )
        complete = {*partition.isr, *partition.complete} - {-1}
        in_sync = [row for row in found if row.broker_id in complete]
        in_sync.sort(key=lambda row: row.broker_id != partition.leader)
        brokers = [row.broker_id for row in found]
        if len(set(brokers)) < len(brokers):
            self.problems.append(
                f"{name} has two directories of one broker. Move the one that ends earlier away."
            )
        elif in_sync:
            self._take(topic, index, in_sync[0])
        elif found:
            last = max(found, key=_end)
            self.losses.append(
                f"{name}: broker {_ids(brokers)} was not in sync (in sync: {_ids(complete)}), so"
                f" acknowledged records may be missing in {last.path}"
            )
            self._take(topic, index, last)
        else:
            self.losses.append(
                f"{name}: no given directory has it (replicas: {_ids(partition.replicas)}), so all"
                " its records are missing"
            )

    def _take(self, topic: FoundTopic, index: int, row: _Found) -> None:
        self.chosen.append(PlannedPartition(topic.name, index, row.source, row.files))

    def _candidates(self, topic: FoundTopic, index: int) -> Iterator[_Found]:
        for number, source in enumerate(self._sources):
            path = source.partitions.get((topic.name, index))
            if path is None:
                continue
            files = tuple(files_of(path))
            try:
                raw = checkpoints.read_topic_id(path)
                epochs = checkpoints.read_leader_epochs(path)
            except DamagedFile as error:
                self.problems.append(f"{error}. Restore the file.")
                continue
            if raw is not None and topic.topic_id not in (None, uuid_text(raw)):
                self.notes.append(
                    f"not imported: {path}: it is of an earlier topic (id {uuid_text(raw)})"
                )
                continue
            yield _Found(number, source.broker_id, path, files, epochs[-1][0] if epochs else -1)


def _end(row: _Found) -> tuple[int, int]:
    newest = [file for file in row.files if file.is_segment][-1:]
    return row.last_epoch, content_of(newest, lambda *_counts: None).end_offset


def _ids(brokers: Sequence[int] | set[int]) -> str:
    return ", ".join(map(str, sorted(brokers))) or "none"


def _topic_nodes(
    topic: FoundTopic, node_id: int, epochs: Mapping[tuple[str, int], int]
) -> dict[str, bytes]:
    """Returns the nodes of a topic whose only replica is on the new node."""
    replicas = (node_id,)
    assignment = TopicAssignment(
        dict.fromkeys(sorted(topic.partitions), replicas), topic_id=topic.topic_id
    )
    found = {znodes.topic_path(topic.name): assignment.encode()}
    for index in topic.partitions:
        state = PartitionState(
            leader=node_id,
            leader_epoch=epochs.get((topic.name, index), 0) + 1,
            isr=replicas,
            controller_epoch=0,
        )
        found[znodes.partition_state_path(topic.name, index)] = state.encode()
    return found
