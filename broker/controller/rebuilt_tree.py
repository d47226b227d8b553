"""Rebuilds the metadata tree of a cluster from what the log directories of its brokers hold.

    topic                 name and id of its directories (partition.metadata)
    partitions            numbers of the directories of all brokers
    replicas              the brokers that have the directory
    leader and ISR        the replicas whose log ends last: by the epoch of the last record, then by
                          the end offset. Such a log has every acknowledged record: a record that
                          was acknowledged is in all logs of the ISR, and the next leader came from
                          it. The other replicas join the ISR when they have caught up
    leader epoch          above all epochs in leader-epoch-checkpoint and in the last batches, by
                          EPOCH_MARGIN: elections without a record may have left no trace on a disk
                          that is still there, and clients ignore metadata of an earlier epoch
    producer ids          above all ids in logs, by PRODUCER_ID_MARGIN: producers that have an id
                          and have not written yet keep it
    internal topics       the settings of a new one

Settings of other topics are not in log directories. So that no record is deleted by a default, each
gets the settings KEPT_FOREVER. Pure functions: cli/log_inventory.py reads the directories.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.metadata import znode_json, znodes
from barnabas.metadata.producer_ids import BLOCK_SIZE
from barnabas.metadata.tree import CreateNode, parent_of
from barnabas.metadata.znode_json import ZnodeDataError
from barnabas.metadata.znodes import PartitionState, ProducerIdBlock, TopicAssignment

EPOCH_MARGIN = 100
PRODUCER_ID_MARGIN = 1_000_000
KEPT_FOREVER = {"retention.bytes": "-1", "retention.ms": "-1"}
NAMED_MAX = 10

Configs = Callable[[str], Mapping[str, str] | None]  # of an internal topic; None: it is not one


_REPLICA = ("topic", "partition", "topicId", "leaderEpoch", "lastEpoch", "endOffset")


class FoundReplica(NamedTuple):
    """The log of a partition in a log directory."""

    topic: str
    partition: int
    topic_id: str | None  # None: the directory is from Kafka before 2.8
    leader_epoch: int  # the largest known one; -1: none
    last_epoch: int  # of the last record; -1: none
    end_offset: int


class Inventory(NamedTuple):
    """What the log directories of one broker hold."""

    broker_id: int
    cluster_id: str
    is_clean: bool  # the broker was stopped cleanly
    latest_producer_id: int  # -1: none
    replicas: tuple[FoundReplica, ...]

    def document(self) -> dict[str, Any]:
        """Returns the inventory as JSON."""
        return {
            "version": 1,
            "brokerId": self.broker_id,
            "clusterId": self.cluster_id,
            "isClean": self.is_clean,
            "latestProducerId": self.latest_producer_id,
            "replicas": [dict(zip(_REPLICA, row, strict=True)) for row in self.replicas],
        }

    @classmethod
    def decode(cls, data: bytes) -> Inventory:
        """Reads the JSON of `document`. Raises ZnodeDataError."""
        found = znode_json.read_object(data, range(1, 2))
        is_clean = found.get("isClean")
        if not isinstance(is_clean, bool):
            raise ZnodeDataError("isClean is not true or false")
        return cls(
            znode_json.integer_of(found, "brokerId", 0),
            znode_json.text_of(found, "clusterId"),
            is_clean,
            znode_json.integer_of(found, "latestProducerId", -1, znode_json.INT64_MAX),
            tuple(_replica(row) for row in znode_json.list_of(found, "replicas")),
        )


def _replica(row: object) -> FoundReplica:
    if not isinstance(row, dict):
        raise ZnodeDataError("a replica is not a JSON object")
    topic_id = znode_json.text_or_none_of(row, "topicId")
    if topic_id is not None:
        znodes.uuid_bytes(topic_id)
    return FoundReplica(
        znodes.topic_name(row.get("topic")),
        znode_json.integer_of(row, "partition", 0),
        topic_id,
        znode_json.integer_of(row, "leaderEpoch", -1),
        znode_json.integer_of(row, "lastEpoch", -1),
        znode_json.integer_of(row, "endOffset", 0, znode_json.INT64_MAX),
    )


class CannotRebuild(Exception):
    """The inventories contradict each other or are incomplete; `problems`: one line for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(" ".join(problems))
        self.problems = list(problems)


class Rebuilt(NamedTuple):
    """A tree to be written, parents before children, and what it lacks, in plain lines."""

    cluster_id: str
    nodes: list[CreateNode]
    lines: list[str]


def rebuilt(
    inventories: Sequence[Inventory],
    internal: Configs,
    random_bytes: Callable[[int], bytes],
    may_lack_partitions: bool = False,
) -> Rebuilt:
    """Returns the tree of a cluster. `internal`: the settings of an internal topic;
    `may_lack_partitions`: partitions without any directory begin empty. Raises CannotRebuild."""
    problems = list(_problems(inventories))
    topics = _topics(inventories)
    lacking = [f"{name}-{index}" for name, parts in topics.items() for index in _gaps(parts)]
    if lacking and not may_lack_partitions:
        problems.append(
            f"no broker has a directory of {_named(lacking)}. Give inventories of all brokers; or"
            " give --allow-missing, and these partitions begin empty: their records are lost."
        )
    for name, parts in topics.items():
        ids = {row.topic_id for _, row in _rows(parts) if row.topic_id is not None}
        if len(ids) > 1:
            problems.append(
                f"the directories of topic {name} have {len(ids)} topic ids:"
                f" {', '.join(sorted(ids))}. The topic was deleted and made again. Move the"
                " directories of the earlier one away, and take new inventories."
            )
    if problems:
        raise CannotRebuild(problems)
    paths = dict.fromkeys(above for path in znodes.PERSISTENT_PATHS for above in _upwards(path))
    block = _producer_ids(inventories)
    nodes = [CreateNode(path) for path in paths if path != znodes.PRODUCER_ID_BLOCK_PATH]
    nodes.append(CreateNode(znodes.PRODUCER_ID_BLOCK_PATH, block.encode()))
    for name, parts in sorted(topics.items()):
        nodes += _topic_nodes(name, parts, random_bytes)
        configs = internal(name)
        data = znodes.encode_config(KEPT_FOREVER if configs is None else configs)
        nodes.append(CreateNode(znodes.config_path("topics", name), data))
    own = [name for name in topics if internal(name) is None]
    return Rebuilt(inventories[0].cluster_id, nodes, list(_lines(inventories, own, lacking, block)))


Parts = dict[int, dict[int, FoundReplica]]  # by partition and broker


def _topics(inventories: Sequence[Inventory]) -> dict[str, Parts]:
    topics: dict[str, Parts] = defaultdict(lambda: defaultdict(dict))
    for inventory in inventories:
        for row in inventory.replicas:
            topics[row.topic][row.partition][inventory.broker_id] = row
    return topics


def _rows(parts: Parts) -> Iterator[tuple[int, FoundReplica]]:
    for replicas in parts.values():
        yield from replicas.items()


def _gaps(parts: Parts) -> list[int]:
    return [index for index in range(max(parts) + 1) if index not in parts]


def _problems(inventories: Sequence[Inventory]) -> Iterator[str]:
    clusters = sorted({row.cluster_id for row in inventories})
    if len(clusters) > 1:
        yield f"the inventories are of {len(clusters)} clusters: {', '.join(clusters)}."
    seen: set[int] = set()
    for inventory in inventories:
        if inventory.broker_id in seen:
            yield f"two inventories are of broker {inventory.broker_id}. Give one of each broker."
        seen.add(inventory.broker_id)
        counts = Counter((row.topic, row.partition) for row in inventory.replicas)
        twice = sorted(f"{name}-{index}" for (name, index), count in counts.items() if count > 1)
        if twice:
            yield (
                f"broker {inventory.broker_id} has two directories of {_named(twice)}. Move the one"
                " that ends earlier away, and take a new inventory."
            )


def _topic_nodes(
    name: str, parts: Parts, random_bytes: Callable[[int], bytes]
) -> Iterator[CreateNode]:
    known = (row.topic_id for _, row in _rows(parts) if row.topic_id is not None)
    topic_id = next(known, None) or znodes.new_uuid(random_bytes)
    everyone = {broker: row for broker, row in _rows(parts)}
    empty = {broker: FoundReplica(name, -1, None, -1, -1, 0) for broker in everyone}
    replicas: dict[int, tuple[int, ...]] = {}
    states: dict[int, PartitionState] = {}
    for index in range(max(parts) + 1):
        found = parts.get(index) or empty
        replicas[index] = _rotated(sorted(found), index)
        states[index] = _state(replicas[index], found)
    yield CreateNode(znodes.topic_path(name), TopicAssignment(replicas, topic_id).encode())
    yield CreateNode(znodes.partitions_path(name))
    for index, state in states.items():
        yield CreateNode(znodes.partition_path(name, index))
        yield CreateNode(znodes.partition_state_path(name, index), state.encode())


def _state(replicas: tuple[int, ...], found: Mapping[int, FoundReplica]) -> PartitionState:
    def end(broker: int) -> tuple[int, int]:
        return found[broker].last_epoch, found[broker].end_offset

    last = max(map(end, replicas))
    isr = tuple(broker for broker in replicas if end(broker) == last)
    epoch = max(row.leader_epoch for row in found.values()) + EPOCH_MARGIN
    return PartitionState(leader=isr[0], leader_epoch=epoch, isr=isr, controller_epoch=0)


def _rotated(brokers: Sequence[int], by: int) -> tuple[int, ...]:
    """Returns the brokers so that each is the preferred leader of as many partitions as others."""
    at = by % len(brokers)
    return (*brokers[at:], *brokers[:at])


def _producer_ids(inventories: Sequence[Inventory]) -> ProducerIdBlock:
    above = max(row.latest_producer_id for row in inventories) + 1 + PRODUCER_ID_MARGIN
    start = -(-above // BLOCK_SIZE) * BLOCK_SIZE
    return ProducerIdBlock(inventories[0].broker_id, start, start + BLOCK_SIZE - 1)


def _upwards(path: str) -> list[str]:
    """Returns a path with all paths above it but the root, the highest first."""
    found = []
    while path != "/":
        found.append(path)
        path = parent_of(path)
    return found[::-1]


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def _lines(
    inventories: Sequence[Inventory],
    topics: Sequence[str],
    lacking: Sequence[str],
    block: ProducerIdBlock,
) -> Iterator[str]:
    """Yields what the tree lacks, and what the operator should know."""
    if topics:
        forever = " and ".join(f"{name}={value}" for name, value in KEPT_FOREVER.items())
        yield (
            f"not rebuilt: settings of topics. {len(topics)} topics get {forever}, so that nothing"
            " is deleted or compacted: set what they had (barnabas topics alter)"
        )
    yield (
        "not rebuilt: users (SCRAM), access rules, quotas, delegation tokens, and settings of"
        " brokers and groups that were altered at run time: set them again"
    )
    yield (
        "not known: topics and partitions with the highest numbers of which no directory is left,"
        " and topics that were being deleted, which come back"
    )
    yield f"new producer ids begin at {block.block_end + 1}"
    if lacking:
        yield f"without records: {_named(lacking)}"
    for row in inventories:
        if not row.is_clean:
            yield (
                f"broker {row.broker_id} was not stopped cleanly: its logs are checked when it"
                " starts"
            )
