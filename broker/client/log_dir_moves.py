"""Moves of replicas between the log directories of a broker (KIP-113), as an administrator makes
them, and their throttle. Each request goes to the broker that has the replica. Kafka:
ReassignPartitionsCommand."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from barnabas.client.admin import (
    BROKER,
    DELETE,
    SET,
    ConfigChange,
    Resource,
    alter_configs,
    describe_log_dirs,
)
from barnabas.client.cluster import Cluster
from barnabas.client.reassignments import refusal
from barnabas.errors import KafkaError
from barnabas.wire import Struct, request

ALTER_REPLICA_LOG_DIRS = 34
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


class Replica(NamedTuple):
    """The replica of a partition on one broker."""

    topic: str
    partition: int
    broker: int


def alter_replica_log_dirs(
    cluster: Cluster, wanted: Mapping[Replica, str]
) -> dict[Replica, KafkaError | None]:
    """Begins to move replicas to log directories, which are paths on their brokers. Returns the
    error of each replica, None if the move was begun or the replica is there. ReplicaNotAvailable:
    the broker has no replica of the partition, and will create it in that directory. Raises
    ClientError."""
    message = request(ALTER_REPLICA_LOG_DIRS)
    found: dict[Replica, KafkaError | None] = {}
    for broker in sorted({row.broker for row in wanted}):
        directories: dict[str, dict[str, list[int]]] = {}
        for replica, path in wanted.items():
            if replica.broker == broker:
                topics = directories.setdefault(path, {})
                topics.setdefault(replica.topic, []).append(replica.partition)
        body = message.cls(
            dirs=[
                message.struct("dirs")(
                    path=path,
                    topics=[
                        message.struct("dirs.topics")(name=name, partitions=indexes)
                        for name, indexes in topics.items()
                    ],
                )
                for path, topics in directories.items()
            ]
        )
        answer = cluster.retrying(partial(_ask, cluster, broker, body))
        for topic in answer.results:
            for row in topic.partitions:
                index, name = row.partitionIndex, topic.topicName
                text = f"broker {broker} cannot move it"
                found[Replica(name, index, broker)] = refusal(row.errorCode, name, index, text)
    return found


def _ask(cluster: Cluster, broker: int, body: Struct) -> Struct:
    return cluster.connection_to(broker).call(ALTER_REPLICA_LOG_DIRS, body)


def directories_of(
    cluster: Cluster, replicas: Iterable[Replica]
) -> dict[Replica, tuple[str | None, bool]]:
    """Returns the log directory of each replica (None: its broker does not have it yet), and
    whether the replica is moving to another one. Raises ClientError."""
    wanted = list(replicas)
    found: dict[Replica, tuple[str | None, bool]] = dict.fromkeys(wanted, (None, False))
    for broker in sorted({row.broker for row in wanted}):
        topics: dict[str, list[int]] = {}
        for row in wanted:
            if row.broker == broker:
                topics.setdefault(row.topic, []).append(row.partition)
        for directory in describe_log_dirs(cluster, broker, topics):
            for topic in directory.topics:
                for part in topic.partitions:
                    replica = Replica(topic.name, part.partitionIndex, broker)
                    path, moves = found[replica]
                    found[replica] = (path, True) if part.isFutureKey else (directory.logDir, moves)
    return found


def throttle_copies(cluster: Cluster, brokers: Iterable[int], bytes_s: int) -> None:
    """Lets each of these brokers copy at most `bytes_s` bytes/s between its log directories. Raises
    KafkaError, ClientError."""
    for broker in brokers:
        alter_configs(
            cluster, Resource(BROKER, str(broker)), [ConfigChange(SET, RATE, str(bytes_s))]
        )


def end_throttle_of_copies(cluster: Cluster, brokers: Iterable[int]) -> bool:
    """Removes the rates of these brokers. Returns False, and changes nothing, while one of them
    still copies. Raises KafkaError, ClientError."""
    found = list(brokers)
    if any(_copies(cluster, broker) for broker in found):
        return False
    for broker in found:
        alter_configs(cluster, Resource(BROKER, str(broker)), [ConfigChange(DELETE, RATE)])
    return True


def _copies(cluster: Cluster, broker: int) -> bool:
    return any(
        part.isFutureKey
        for directory in describe_log_dirs(cluster, broker)
        for topic in directory.topics
        for part in topic.partitions
    )
