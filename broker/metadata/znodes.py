"""Kafka's nodes: their paths, and their data as typed values. Pure functions; no tree here.

path                                     data                                     kept
/brokers/ids/N                           BrokerRegistration, versions 1-5         ephemeral
/brokers/topics/T                        TopicAssignment, versions 1-3
/brokers/topics/T/partitions/P/state     PartitionState
/brokers/seqid                           none; generated broker ids are its versions
/cluster/id                              cluster id, version as text "1"; Unfinished
/controller                              ControllerRegistration                   ephemeral
/controller_epoch                        number as text
/config/KIND/NAME                        configuration: topics, brokers, clients, users, ips,
                                         client-metrics, groups;
                                         /config/users/U/clients/C for a pair
/config/changes/config_change_N          ConfigChange, versions 1 and 2           sequential
/admin/delete_topics/T                   none
/admin/reassign_partitions               Reassignment
/admin/preferred_replica_election        partitions
/isr_change_notification/isr_change_N    partitions                               sequential
/log_dir_event_notification/log_dir_event_N  LogDirEvent                          sequential
/latest_producer_id_block                ProducerIdBlock
/feature                                 FeatureLevels, version 2
/kafka-acl-changes/acl_changes_N         access rules: security/acl_nodes.py      sequential
/consumers/G/ids/C                       ConsumerSubscription                     ephemeral
/consumers/G/offsets/T/P                 number as text
/consumers/G/owners/T/P                  consumer thread as text                  ephemeral

Each `decode` raises ZnodeDataError for data that does not have the format. It ignores unknown
fields, because later versions of Kafka add some, and refuses unknown versions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from barnabas.metadata import znode_json as znode
from barnabas.metadata.tree import InvalidPath
from barnabas.metadata.znode_json import ZnodeDataError
from barnabas.wire import uuids
from barnabas.wire.uuids import uuid_text

BROKER_IDS_PATH = "/brokers/ids"
BROKER_SEQUENCE_PATH = "/brokers/seqid"
TOPICS_PATH = "/brokers/topics"
CLUSTER_ID_PATH = "/cluster/id"
CONTROLLER_PATH = "/controller"
CONTROLLER_EPOCH_PATH = "/controller_epoch"
CONFIG_PATH = "/config"
CONFIG_CHANGES_PATH = "/config/changes"
CONFIG_CHANGE_PREFIX = "/config/changes/config_change_"
DELETE_TOPICS_PATH = "/admin/delete_topics"
REASSIGN_PARTITIONS_PATH = "/admin/reassign_partitions"
PREFERRED_ELECTION_PATH = "/admin/preferred_replica_election"
ISR_CHANGES_PATH = "/isr_change_notification"
ISR_CHANGE_PREFIX = "/isr_change_notification/isr_change_"
LOG_DIR_EVENTS_PATH = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = "/log_dir_event_notification/log_dir_event_"
PRODUCER_ID_BLOCK_PATH = "/latest_producer_id_block"
FEATURES_PATH = "/feature"
ACL_CHANGES_PATHS = ("/kafka-acl-changes", "/kafka-acl-extended-changes")  # literal, prefixed
CONSUMERS_PATH = "/consumers"

# The last three are newer than Kafka 2.7: their nodes are created on first use.
CONFIG_KINDS = ("topics", "brokers", "clients", "users", "ips", "client-metrics", "groups")
DEFAULT_ENTITY = "<default>"
# The nodes that a store has after its first start, as in Kafka.
PERSISTENT_PATHS = (
    CONSUMERS_PATH,
    BROKER_IDS_PATH,
    BROKER_SEQUENCE_PATH,
    TOPICS_PATH,
    CONFIG_CHANGES_PATH,
    DELETE_TOPICS_PATH,
    ISR_CHANGES_PATH,
    PRODUCER_ID_BLOCK_PATH,
    LOG_DIR_EVENTS_PATH,
    *(f"{CONFIG_PATH}/{kind}" for kind in CONFIG_KINDS[:4]),
)

# Children of these are notes, which only running brokers read.
NOTES_PATHS = (
    CONFIG_CHANGES_PATH,
    ISR_CHANGES_PATH,
    LOG_DIR_EVENTS_PATH,
    *ACL_CHANGES_PATHS,
    "/delegation_token/token_changes",
)
# The names at the top of a tree that brokers of Kafka and of barnabas use.
TOP_NAMES = (
    "admin",
    "barnabas",
    "brokers",
    "cluster",
    "config",
    "consumers",
    "controller",
    "controller_epoch",
    "delegation_token",
    "feature",
    "isr_change_notification",
    "kafka-acl",
    "kafka-acl-changes",
    "kafka-acl-extended",
    "kafka-acl-extended-changes",
    "latest_producer_id_block",
    "log_dir_event_notification",
    "migration",
)

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")


def _part(name: str) -> str:
    """Encodes a name, which may come from a client, as one part of a path."""
    if not name or "/" in name or name in (".", ".."):
        raise InvalidPath(f"{name!r} cannot name a node")
    return name


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS_PATH}/{broker_id}"


def topic_path(topic: str) -> str:
    return f"{TOPICS_PATH}/{_part(topic)}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS_PATH}/{_part(topic)}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS_PATH}/{_part(topic)}/partitions/{partition}"


def partition_of_state(path: str) -> tuple[str, int] | None:
    """Returns topic and partition of a state's path; None for other paths."""
    steps = path.split("/")
    if len(steps) != 7 or not path.startswith(TOPICS_PATH + "/") or steps[6] != "state":
        return None
    return steps[3], int(steps[5])


def partition_state_path(topic: str, partition: int) -> str:
    return f"{TOPICS_PATH}/{_part(topic)}/partitions/{partition}/state"


def config_path(kind: str, name: str) -> str:
    """Returns the path of a configuration. `name`: as in the node, that is users and clients
    `sanitized`, a pair as `U/clients/C`."""
    return f"{CONFIG_PATH}/{kind}/{'/'.join(map(_part, name.split('/')))}"


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS_PATH}/{_part(topic)}"


def consumer_id_path(group: str, consumer: str) -> str:
    return f"{CONSUMERS_PATH}/{_part(group)}/ids/{_part(consumer)}"


def consumer_offset_path(group: str, topic: str, partition: int) -> str:
    return f"{CONSUMERS_PATH}/{_part(group)}/offsets/{_part(topic)}/{partition}"


def consumer_owner_path(group: str, topic: str, partition: int) -> str:
    return f"{CONSUMERS_PATH}/{_part(group)}/owners/{_part(topic)}/{partition}"


def sanitized(name: str) -> str:
    """Returns a user or client id as a node's name (Kafka's Sanitizer). The caller leaves out
    DEFAULT_ENTITY, which is written as it is."""
    from urllib.parse import quote  # takes 3 ms, and few starts need it

    return quote(name, safe="-_.").replace("~", "%7E")


def unsanitized(node_name: str) -> str:
    """Returns the user or client id of a node's name. Raises ZnodeDataError."""
    try:
        from urllib.parse import unquote

        return unquote(node_name, errors="strict")
    except UnicodeDecodeError as error:
        raise ZnodeDataError(f"{node_name[:60]!r} is not a sanitized name") from error


def topic_name(value: object) -> str:
    """Returns a legal topic name. Names become directories, so all others raise ZnodeDataError."""
    if isinstance(value, str) and _TOPIC_NAME.fullmatch(value) and value not in (".", ".."):
        return value
    raise ZnodeDataError(f"{repr(value)[:60]} is not a valid topic name")


def partition_number(value: str) -> int:
    """Returns the number in a node's name. Raises ZnodeDataError."""
    if not _PARTITION.fullmatch(value) or int(value) > znode.INT32_MAX:
        raise ZnodeDataError(f"{value[:60]!r} is not a partition number")
    return int(value)


def uuid_bytes(text: str) -> bytes:
    """Returns the bytes of an id in a node. Raises ZnodeDataError."""
    try:
        return uuids.uuid_bytes(text)
    except ValueError as error:
        raise ZnodeDataError(str(error)) from None


_RESERVED_UUIDS = (bytes(16), bytes(15) + b"\x01")


def new_uuid(random_bytes: Callable[[int], bytes]) -> str:
    """Returns a random (version 4) uuid without a leading dash, which command lines would take for
    an option. Topic ids and the cluster id are such uuids."""
    while True:
        raw = bytearray(random_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        text = uuid_text(bytes(raw))
        if not text.startswith("-") and bytes(raw) not in _RESERVED_UUIDS:
            return text


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a broker's listener."""

    listener_name: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener_name}://{host}:{self.port}"


_ENDPOINT = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([0-9A-Fa-f:.%]*)\]|([^\[\]/:]*)):([0-9]{1,5})")


def _endpoint(text: object, protocols: Mapping[str, str] | None) -> Endpoint:
    match = _ENDPOINT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ZnodeDataError(f"{repr(text)[:80]} is not an endpoint NAME://host:port")
    name = match[1]
    port = znode.integer(int(match[4]), "port", 0, 65535)
    if protocols is not None and name not in protocols:
        raise ZnodeDataError(f"listener {name} has no security protocol")
    protocol = name if protocols is None else protocols[name]
    return Endpoint(name, match[2] or match[3] or "", port, protocol)


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """Versions: 1 host and port; 2 endpoints; 3 rack; 4 listener names; 5 features."""

    endpoints: tuple[Endpoint, ...]
    timestamp_ms: int
    rack: str | None = None
    jmx_port: int = -1
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    version: int = 5  # Kafka writes 4 with an inter.broker.protocol.version below 2.7

    def encode(self) -> bytes:
        """Returns version 5, with its fields in Kafka's order. Host and port repeat the first
        PLAINTEXT endpoint, for old readers."""
        plain = [e for e in self.endpoints if e.security_protocol == "PLAINTEXT"]
        found: dict[str, Any] = {
            "features": {
                name: {"min_version": low, "max_version": high}
                for name, (low, high) in self.features.items()
            },
            "listener_security_protocol_map": {
                e.listener_name: e.security_protocol for e in self.endpoints
            },
            "endpoints": [str(endpoint) for endpoint in self.endpoints],
            **({} if self.rack is None else {"rack": self.rack}),
            "jmx_port": self.jmx_port,
            "port": plain[0].port if plain else -1,
            "host": plain[0].host if plain else None,
            "version": 5,
            "timestamp": str(self.timestamp_ms),
        }
        return znode.to_json(found)

    @classmethod
    def decode(cls, data: bytes) -> BrokerRegistration:
        found = znode.read_object(data, range(1, 6))
        version = znode.integer_of(found, "version")
        if version == 1:
            port = znode.integer_of(found, "port", 0, 65535)
            host = znode.text_of(found, "host")
            endpoints = [Endpoint("PLAINTEXT", host, port, "PLAINTEXT")]
        else:
            protocols = None
            if version >= 4:
                protocols = znode.object_of(found, "listener_security_protocol_map")
                for name in protocols:
                    znode.text_of(protocols, name)
            endpoints = [_endpoint(e, protocols) for e in znode.list_of(found, "endpoints")]
            if not endpoints:
                raise ZnodeDataError("endpoints is empty")
        features = {}
        asked = znode.object_of({"features": {}} | found, "features") if version >= 5 else {}
        for name, span in asked.items():
            if not isinstance(span, dict):
                raise ZnodeDataError(f"feature {name[:60]!r} is not a JSON object")
            features[name] = (
                znode.integer_of(span, "min_version"),
                znode.integer_of(span, "max_version"),
            )
        return cls(
            tuple(endpoints),
            _time_ms(found),
            znode.text_or_none_of(found, "rack") if version >= 3 else None,
            znode.integer_of({"jmx_port": -1} | found, "jmx_port"),
            features,
            version,
        )


def _time_ms(found: dict[str, Any]) -> int:
    """Returns the timestamp in ms; -1 if an old writer left it out."""
    return znode.time_of({"timestamp": "-1"} | found)


def _replicas_by_partition(found: dict[str, Any], name: str) -> dict[int, tuple[int, ...]]:
    return {
        partition_number(key): znode.broker_ids(value, f"{name}[{key[:10]}]")
        for key, value in znode.object_of({name: {}} | found, name).items()
    }


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """Versions: 1 partitions; 2 adding and removing replicas; 3 topic id."""

    partitions: Mapping[int, tuple[int, ...]]
    topic_id: str | None = None
    adding_replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing_replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Returns version 3, or version 2 for a topic that has no id yet."""

        def keyed(table: Mapping[int, tuple[int, ...]]) -> dict[str, list[int]]:
            return {str(partition): list(replicas) for partition, replicas in table.items()}

        found: dict[str, Any] = {"partitions": keyed(self.partitions)}
        if self.topic_id is not None:
            found["topic_id"] = self.topic_id
        found["adding_replicas"] = keyed(self.adding_replicas)
        found["removing_replicas"] = keyed(self.removing_replicas)
        found["version"] = 2 if self.topic_id is None else 3
        return znode.to_json(found)

    @classmethod
    def decode(cls, data: bytes) -> TopicAssignment:
        found = znode.read_object(data, range(1, 4))
        topic_id = znode.text_or_none_of(found, "topic_id")
        if topic_id is not None:
            uuid_bytes(topic_id)
        znode.object_of(found, "partitions")
        partitions = _replicas_by_partition(found, "partitions")
        adding = _replicas_by_partition(found, "adding_replicas")
        removing = _replicas_by_partition(found, "removing_replicas")
        for table, name in ((adding, "adding_replicas"), (removing, "removing_replicas")):
            for partition, moving in table.items():
                if not set(moving) <= set(partitions.get(partition, ())):
                    raise ZnodeDataError(f"{name}[{partition}] names no replicas of the partition")
        return cls(partitions, topic_id, adding, removing)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Leader and in-sync replicas. `recovering`: the leader was elected uncleanly and has not
    recovered yet."""

    leader: int  # -1: none
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    recovering: bool = False

    def encode(self) -> bytes:
        found: dict[str, Any] = {
            "controller_epoch": self.controller_epoch,
            "leader": self.leader,
            "version": 1,
            "leader_epoch": self.leader_epoch,
            "isr": list(self.isr),
        }
        if self.recovering:
            found["leader_recovery_state"] = 1
        return znode.to_json(found)

    @classmethod
    def decode(cls, data: bytes) -> PartitionState:
        found = znode.read_object(data, range(1, 2))
        recovery = found.get("leader_recovery_state", 0)
        return cls(
            znode.integer_of(found, "leader", -2),
            znode.integer_of(found, "leader_epoch", 0),
            znode.broker_ids(found.get("isr"), "isr"),
            znode.integer_of(found, "controller_epoch", 0),
            znode.integer(recovery, "leader_recovery_state", 0, 1) == 1,
        )


class Unfinished(NamedTuple):
    """The command that has not finished its work on the tree: an action of `barnabas cluster`, or a
    command with its action, as `storage import`. No broker starts on such a tree. The field is
    ours; Kafka ignores it."""

    command: str
    broker_id: int = -1  # -1: none

    def __str__(self) -> str:
        of_broker = f" of broker {self.broker_id}" if self.broker_id >= 0 else ""
        command = self.command if " " in self.command else f"cluster {self.command}"
        return f"`barnabas {command}`{of_broker}"


def encode_cluster_id(cluster_id: str, unfinished: Unfinished | None = None) -> bytes:
    found: dict[str, Any] = {"version": "1", "id": cluster_id}
    if unfinished is not None:
        found["unfinished"] = {"command": unfinished.command, "broker": unfinished.broker_id}
    return znode.to_json(found)


def decode_cluster_id(data: bytes) -> str:
    """Returns the cluster id. Any short text is legal: old clusters have ids in other formats, and
    operators can choose ids. Raises ZnodeDataError."""
    found = znode.read_object(data, range(1, 2))
    cluster_id = znode.text_of(found, "id")
    if not 0 < len(cluster_id) <= 255 or not cluster_id.isprintable():
        raise ZnodeDataError(f"id is {cluster_id[:60]!r}, which is not a cluster id")
    return cluster_id


def decode_unfinished(data: bytes) -> Unfinished | None:
    """Returns the command that has not finished, from the data of /cluster/id."""
    found = znode.read_object(data, range(1, 2))
    if "unfinished" not in found:
        return None
    row = znode.object_of(found, "unfinished")
    return Unfinished(znode.text_of(row, "command"), znode.integer_of(row, "broker", -1))


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    return znode.plain_number(data, "controller epoch")


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """The broker that is the controller, and when it was elected."""

    broker_id: int
    timestamp_ms: int

    def encode(self) -> bytes:
        stamp = str(self.timestamp_ms)
        return znode.to_json({"version": 1, "brokerid": self.broker_id, "timestamp": stamp})

    @classmethod
    def decode(cls, data: bytes) -> ControllerRegistration:
        found = znode.read_object(data, range(1, 3))  # version 2 adds the epoch of KRaft
        return cls(znode.integer_of(found, "brokerid", 0), _time_ms(found))


def encode_config(config: Mapping[str, str]) -> bytes:
    return znode.to_json({"version": 1, "config": dict(config)})


def decode_config(data: bytes) -> dict[str, str]:
    """Returns a stored configuration; empty data is an empty one. Raises ZnodeDataError."""
    if not data:
        return {}
    found = znode.read_object(data, range(1, 2))
    config = znode.object_of(found, "config")
    return {name: znode.text_of(config, name) for name in config}


class FeatureLevels(NamedTuple):
    """The data of /feature: the finalized levels, and whether the features without a finalized
    level are at level 0, because a broker of Apache Kafka has been in the cluster."""

    levels: Mapping[str, int]
    held: bool = False


HELD = "barnabas_held"  # a field beside Kafka's, which Kafka ignores


def encode_features(found: FeatureLevels) -> bytes:
    """Returns the data as Kafka writes it; status 1 means that features are in use."""
    rows = {name: {"max_version_level": level} for name, level in found.levels.items()}
    held = {HELD: True} if found.held else {}
    return znode.to_json({"version": 2, "status": 1, "features": rows, **held})


NO_FEATURES = b'{"features":{},"version":1,"status":1}'  # as the first controller of 2.7 writes it


def decode_features(data: bytes) -> FeatureLevels:
    """Returns the highest level of each feature. Version 1 also has the lowest level, which has no
    effect."""
    whole = znode.read_object(data, range(1, 3))
    found = znode.object_of(whole, "features")
    levels = {
        name: znode.integer_of(znode.object_of(found, name), "max_version_level", 0, 32767)
        for name in found
    }
    return FeatureLevels(levels, whole.get(HELD) is True)


def hold_features(data: bytes) -> bytes:
    """Returns the data of /feature with the features held; its version and levels stay."""
    return znode.to_json({**znode.read_object(data, range(1, 3)), HELD: True})


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A change of one configuration. `entity`: the path below /config: `topics/T`,
    `users/U/clients/C`."""

    entity: str

    def encode(self) -> bytes:
        return znode.to_json({"version": 2, "entity_path": self.entity})

    @classmethod
    def decode(cls, data: bytes) -> ConfigChange:
        found = znode.read_object(data, range(1, 3))
        if znode.integer_of(found, "version") == 2:
            entity = znode.text_of(found, "entity_path")
        else:
            kind = znode.text_of(found, "entity_type")
            entity = f"{kind}/{znode.text_of(found, 'entity_name')}"
        kind, _, name = entity.partition("/")
        if kind not in CONFIG_KINDS or not name or not all(name.split("/")):
            raise ZnodeDataError(f"{entity[:60]!r} names no configuration")
        return cls(entity)


TopicPartition = tuple[str, int]


def _topic_partition(value: object) -> TopicPartition:
    if not isinstance(value, dict):
        raise ZnodeDataError(f"{repr(value)[:60]} is not a topic and a partition")
    return topic_name(value.get("topic")), znode.integer_of(value, "partition", 0)


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Returns the data for /admin/preferred_replica_election and the notes of
    /isr_change_notification."""
    rows = [{"topic": topic, "partition": partition} for topic, partition in partitions]
    return znode.to_json({"version": 1, "partitions": rows})


def decode_partitions(data: bytes) -> tuple[TopicPartition, ...]:
    found = znode.read_object(data, range(1, 2))
    return tuple(_topic_partition(row) for row in znode.list_of(found, "partitions"))


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The requested replicas of each partition that is to move."""

    replicas: Mapping[TopicPartition, tuple[int, ...]]

    def encode(self) -> bytes:
        rows = [
            {"topic": topic, "partition": partition, "replicas": list(replicas)}
            for (topic, partition), replicas in self.replicas.items()
        ]
        return znode.to_json({"version": 1, "partitions": rows})

    @classmethod
    def decode(cls, data: bytes) -> Reassignment:
        found = znode.read_object(data, range(1, 2))
        wanted: dict[TopicPartition, tuple[int, ...]] = {}
        for row in znode.list_of(found, "partitions"):
            key = _topic_partition(row)
            if key in wanted:
                raise ZnodeDataError(f"{key[0]}-{key[1]} occurs twice")
            wanted[key] = znode.broker_ids(row.get("replicas"), "replicas")
            if not wanted[key]:
                raise ZnodeDataError(f"{key[0]}-{key[1]} has no replicas")
        return cls(wanted)


@dataclass(frozen=True, slots=True)
class LogDirEvent:
    """A log directory of the broker failed (event 1)."""

    broker_id: int
    event: int = 1

    def encode(self) -> bytes:
        return znode.to_json({"version": 1, "broker": self.broker_id, "event": self.event})

    @classmethod
    def decode(cls, data: bytes) -> LogDirEvent:
        found = znode.read_object(data, range(1, 2))
        return cls(znode.integer_of(found, "broker", 0), znode.integer_of(found, "event", 1, 1))


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """A block of producer ids, and the broker that has taken it."""

    broker_id: int
    block_start: int
    block_end: int  # the last id of the block

    def encode(self) -> bytes:
        return znode.to_json(
            {
                "version": 1,
                "broker": self.broker_id,
                "block_start": str(self.block_start),
                "block_end": str(self.block_end),
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> ProducerIdBlock:
        found = znode.read_object(data, range(1, 2))
        start = znode.integer_of(found, "block_start", 0, znode.INT64_MAX)
        end = znode.integer_of(found, "block_end", start, znode.INT64_MAX)
        return cls(znode.integer_of(found, "broker", 0), start, end)


PATTERNS = ("static", "white_list", "black_list")


@dataclass(frozen=True, slots=True)
class ConsumerSubscription:
    """The subscription of a consumer of the old generation, which uses ZooKeeper: the number of
    streams (threads) for each topic, or a pattern of topic names."""

    subscription: Mapping[str, int]
    pattern: str
    timestamp_ms: int

    def encode(self) -> bytes:
        return znode.to_json(
            {
                "version": 1,
                "subscription": dict(self.subscription),
                "pattern": self.pattern,
                "timestamp": str(self.timestamp_ms),
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> ConsumerSubscription:
        found = znode.read_object(data, range(1, 2))
        asked = znode.object_of(found, "subscription")
        streams = {topic: znode.integer_of(asked, topic, 0) for topic in asked}
        pattern = znode.text_of(found, "pattern")
        if pattern not in PATTERNS:
            raise ZnodeDataError(f"pattern {pattern[:60]!r} is not known")
        return cls(streams, pattern, _time_ms(found))


def encode_consumer_offset(offset: int) -> bytes:
    return str(offset).encode()


def decode_consumer_offset(data: bytes) -> int:
    return znode.plain_number(data, "offset", -1, znode.INT64_MAX)


def encode_consumer_owner(consumer_thread: str) -> bytes:
    return consumer_thread.encode()


def decode_consumer_owner(data: bytes) -> str:
    """Returns the consumer thread that owns a partition. Raises ZnodeDataError."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ZnodeDataError(f"owner {data[:60]!r} is not UTF-8") from error
