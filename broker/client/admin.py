"""Administration: topics, settings, deletion of records, cluster, log directories.

Each function waits for the broker's answer. It raises the KafkaError of a refusal, which names the
topic or resource, or a ClientError. A function with several items tries all of them and then raises
the first refusal.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from barnabas.client.cluster import METADATA, Cluster
from barnabas.client.connection import Connection
from barnabas.client.failures import raise_for
from barnabas.errors import KafkaError, UnknownTopicOrPartition
from barnabas.wire import Struct, request

CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, DESCRIBE_CONFIGS = 19, 20, 21, 32
DESCRIBE_LOG_DIRS, CREATE_PARTITIONS, ALTER_CONFIGS, DESCRIBE_CLUSTER = 35, 37, 44, 60
TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
OF_ONE_BROKER = (BROKER, BROKER_LOGGER)  # that broker answers
SET, DELETE, APPEND, SUBTRACT = range(4)
SOURCES = {
    0: "unknown",
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "file",
    5: "default",
    6: "logger",
    7: "client metrics",
    8: "group",
}


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created. With counts of -1 the broker decides (Kafka 2.4 and later)."""

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resource:
    """The owner of settings: a topic, a broker by its id (the empty name means all brokers), or the
    loggers of the broker with this id, whose settings are their levels."""

    kind: int
    name: str

    def __str__(self) -> str:
        if self.kind == TOPIC:
            return f"topic {self.name}"
        if self.kind == BROKER_LOGGER:
            return f"loggers of broker {self.name}"
        return f"broker {self.name}" if self.name else "all brokers"


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One change of a setting for `alter_configs`. `operation`: SET, DELETE, APPEND or SUBTRACT;
    `value`: None for DELETE."""

    operation: int
    name: str
    value: str | None = None


def _timeout_ms(cluster: Cluster) -> int:
    return round(1000 * cluster.timeout_s)


def _first_refusal(refusals: Iterable[KafkaError]) -> None:
    for error in refusals:
        raise error


def _refusals(rows: Iterable[Struct], what: Callable[[Struct], str]) -> list[KafkaError]:
    found = []
    for row in rows:
        try:
            raise_for(row.errorCode, what(row), getattr(row, "errorMessage", None))
        except KafkaError as error:
            found.append(error)
    return found


def _change(
    cluster: Cluster,
    key: int,
    body: Callable[[Connection], Struct],
    rows: Callable[[Struct], list[Struct]],
    *,
    what: Callable[[Struct], str],
    high: int | None = None,
) -> list[Struct]:
    """Sends a request to the controller, again when the controller has moved, and returns the rows
    of the answer. Raises the first refusal."""

    def step() -> list[Struct]:
        controller = cluster.controller()
        found = rows(controller.call(key, body(controller), high=high))
        refusals = _refusals(found, what)
        for error in refusals:
            # With several items, a second attempt would refuse those that succeeded. And the
            # controller knows every topic: an unknown topic will not appear later.
            if len(found) > 1 or isinstance(error, UnknownTopicOrPartition):
                error.retriable = False
        _first_refusal(refusals)
        return found

    return cluster.retrying(step)


def create_topics(
    cluster: Cluster, topics: Iterable[NewTopic], *, validate_only: bool = False
) -> list[Struct]:
    """Creates topics, or only checks them. Returns the rows of the answer: numPartitions,
    replicationFactor and topicId from newer brokers. Raises TopicAlreadyExists and other
    KafkaErrors."""
    message = request(CREATE_TOPICS)
    config = message.struct("topics.configs")
    asked = [
        message.struct("topics")(
            name=topic.name,
            numPartitions=topic.partition_count,
            replicationFactor=topic.replication_factor,
            configs=[config(name=name, value=value) for name, value in topic.configs.items()],
        )
        for topic in topics
    ]

    def body(controller: Connection) -> Struct:
        if controller.version_of(CREATE_TOPICS) < 4:  # older brokers have no defaults
            for row in asked:
                row.numPartitions = max(row.numPartitions, 1)
                row.replicationFactor = max(row.replicationFactor, 1)
        fields = {"validateOnly": True} if validate_only else {}
        return message.cls(topics=asked, timeoutMs=_timeout_ms(cluster), **fields)

    rows = _change(
        cluster, CREATE_TOPICS, body, lambda a: list(a.topics), what=lambda r: f"topic {r.name}"
    )
    for topic in rows:
        cluster.forget(topic.name)
    return rows


def delete_topics(cluster: Cluster, names: Iterable[str]) -> None:
    """Deletes topics and their records. Raises UnknownTopicOrPartition for a topic that does not
    exist, after the broker has deleted the others; TopicDeletionDisabled, ClientError."""
    body = request(DELETE_TOPICS).cls(topicNames=list(names), timeoutMs=_timeout_ms(cluster))
    rows = _change(
        cluster,
        DELETE_TOPICS,
        lambda _: body,
        lambda answer: list(answer.responses),
        what=lambda row: f"topic {row.name}",
        high=5,
    )
    for row in rows:
        cluster.forget(row.name)


def create_partitions(cluster: Cluster, counts: Mapping[str, int]) -> None:
    """Adds partitions to topics. `counts`: topic -> its total number of partitions after the
    change. Raises InvalidPartitions when a topic would not grow, UnknownTopicOrPartition,
    ClientError."""
    message = request(CREATE_PARTITIONS)
    row = message.struct("topics")
    body = message.cls(
        topics=[row(name=name, count=count, assignments=None) for name, count in counts.items()],
        timeoutMs=_timeout_ms(cluster),
    )
    _change(
        cluster,
        CREATE_PARTITIONS,
        lambda _: body,
        lambda answer: list(answer.results),
        what=lambda row: f"topic {row.name}",
    )
    for name in counts:
        cluster.forget(name)


def describe_configs(
    cluster: Cluster, resource: Resource, *, synonyms: bool = False, documentation: bool = False
) -> list[Struct]:
    """Returns the settings of a topic or broker, sorted by name: rows `configs` of DescribeConfigs
    (32). `synonyms`, `documentation`: whether the rows have these fields (from versions 1 and 3
    on). Raises UnknownTopicOrPartition, LeaderNotAvailable for a broker that is not alive,
    ClientError."""
    message = request(DESCRIBE_CONFIGS)

    def body(version: int) -> Struct:
        row = message.struct("resources")(
            resourceType=resource.kind, resourceName=resource.name, configurationKeys=None
        )
        fields = {"includeSynonyms": synonyms} if version >= 1 else {}
        if version >= 3:
            fields["includeDocumentation"] = documentation
        return message.cls(resources=[row], **fields)

    def step() -> list[Struct]:
        answer = _owner(cluster, resource).call(DESCRIBE_CONFIGS, body)
        _first_refusal(_refusals(answer.results, lambda _: str(resource)))
        configs = [config for result in answer.results for config in result.configs]
        return sorted(configs, key=lambda config: str(config.name))

    return cluster.retrying(step, timeout_s=min(2.0, cluster.timeout_s))


def alter_configs(
    cluster: Cluster,
    resource: Resource,
    changes: Iterable[ConfigChange],
    *,
    validate_only: bool = False,
) -> None:
    """Changes some settings of a topic, a broker or all brokers, and leaves the others
    (IncrementalAlterConfigs, KIP-339; Kafka 2.3 and later). `validate_only`: only checks. Raises
    InvalidConfig, UnknownTopicOrPartition, NotSpokenByBroker for an older broker, ClientError."""
    message = request(ALTER_CONFIGS)
    config = message.struct("resources.configs")
    rows = [config(name=c.name, configOperation=c.operation, value=c.value) for c in changes]
    row = message.struct("resources")(
        resourceType=resource.kind, resourceName=resource.name, configs=rows
    )
    body = message.cls(resources=[row], validateOnly=validate_only)

    def step() -> None:
        to_broker = resource.kind in OF_ONE_BROKER and resource.name
        connection = _owner(cluster, resource) if to_broker else cluster.controller()
        answer = connection.call(ALTER_CONFIGS, body)
        _first_refusal(_refusals(answer.responses, lambda _: str(resource)))

    cluster.retrying(step, timeout_s=min(2.0, cluster.timeout_s))


def _owner(cluster: Cluster, resource: Resource) -> Connection:
    """Returns the connection for a resource: each broker answers for its own settings, any broker
    for topics."""
    if resource.kind in OF_ONE_BROKER and resource.name.isdecimal():
        return cluster.connection_to(int(resource.name))
    return cluster.any_connection()


def delete_records(cluster: Cluster, topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
    """Deletes the records below an offset (-1: all records). `offsets`: partition -> offset.
    Returns the new log start offset of each partition. Raises OffsetOutOfRange, PolicyViolation for
    a compacted topic, UnknownTopicOrPartition, ClientError."""
    message = request(DELETE_RECORDS)
    row = message.struct("topics.partitions")
    left = dict(offsets)
    starts: dict[int, int] = {}

    def step() -> None:
        for index, offset in list(left.items()):
            rows = [row(partitionIndex=index, offset=offset)]
            body = message.cls(
                topics=[message.struct("topics")(name=topic, partitions=rows)],
                timeoutMs=_timeout_ms(cluster),
            )
            answer = cluster.leader(topic, index).call(DELETE_RECORDS, body)
            for found in (p for t in answer.topics for p in t.partitions):
                raise_for(found.errorCode, f"partition {index} of topic {topic}")
                starts[index] = found.lowWatermark
            del left[index]

    cluster.retrying(step, topic=topic)
    return starts


def describe_cluster(cluster: Cluster) -> Struct:
    """Returns the answer of DescribeCluster (Kafka 2.8 and later): clusterId, controllerId,
    brokers. Raises NotSpokenByBroker for an older broker, and other ClientErrors."""

    def step() -> Struct:
        answer = cluster.any_connection().call(DESCRIBE_CLUSTER, request(DESCRIBE_CLUSTER).cls())
        raise_for(answer.errorCode, "cluster", answer.errorMessage)
        return answer

    return cluster.retrying(step)


def cluster_operations(cluster: Cluster) -> int:
    """Returns the operations with the cluster that the user may do, as a bit set of AclOperation
    codes (KIP-430; Kafka 2.8 and later). Raises KafkaError, ClientError."""
    body = request(DESCRIBE_CLUSTER).cls(includeClusterAuthorizedOperations=True)

    def step() -> int:
        answer = cluster.any_connection().call(DESCRIBE_CLUSTER, body)
        raise_for(answer.errorCode, "cluster", answer.errorMessage)
        return int(answer.clusterAuthorizedOperations)

    return cluster.retrying(step)


def topic_operations(cluster: Cluster, name: str) -> int:
    """Returns the operations with a topic that the user may do, as a bit set of AclOperation codes
    (KIP-430; Kafka 2.3 and later). Raises UnknownTopicOrPartition, KafkaError, ClientError."""
    message = request(METADATA)
    body = message.cls(
        topics=[message.struct("topics")(name=name)],
        allowAutoTopicCreation=False,
        includeTopicAuthorizedOperations=True,
    )

    def step() -> int:
        (row,) = cluster.any_connection().call(METADATA, body, low=8).topics
        raise_for(row.errorCode, f"topic {name}")
        return int(row.topicAuthorizedOperations)

    return cluster.retrying(step, timeout_s=min(2.0, cluster.timeout_s))


def describe_log_dirs(
    cluster: Cluster, node_id: int, topics: Mapping[str, Iterable[int]] | None = None
) -> list[Struct]:
    """Returns the log directories of a broker: rows of DescribeLogDirs (35) with the sizes of
    partitions in bytes. `topics`: topic -> partitions; None: all. Raises KafkaStorageError for a
    directory that failed, ClientError."""

    def step() -> list[Struct]:
        rows = log_dirs_at(cluster.connection_to(node_id), topics)
        _first_refusal(_refusals(rows, lambda r: f"log directory {r.logDir}"))
        return rows

    return cluster.retrying(step)


def log_dirs_at(
    connection: Connection, topics: Mapping[str, Iterable[int]] | None = None
) -> list[Struct]:
    """Returns the log directories of the broker of a connection, also those that failed (their rows
    have an error code). `topics`: as in describe_log_dirs. Raises KafkaError, ClientError."""
    message = request(DESCRIBE_LOG_DIRS)
    row = message.struct("topics")
    asked = None
    if topics is not None:
        asked = [row(topic=name, partitions=list(found)) for name, found in topics.items()]
    answer = connection.call(DESCRIBE_LOG_DIRS, message.cls(topics=asked))
    raise_for(answer.errorCode, f"log directories of the broker at {connection.address}")
    return list(answer.results)


def identity_at(connection: Connection, node_ids: Iterable[int]) -> tuple[int, str] | None:
    """Returns the id of the broker of a connection, and its setting `listeners`: of several ids it
    describes the settings of its own only. None: of none of them, for example because the user may
    not describe settings. Raises ClientError."""
    message = request(DESCRIBE_CONFIGS)
    row = message.struct("resources")
    for node_id in node_ids:
        asked = row(resourceType=BROKER, resourceName=str(node_id), configurationKeys=["listeners"])
        answer = connection.call(DESCRIBE_CONFIGS, message.cls(resources=[asked]))
        for result in answer.results:
            if not result.errorCode:
                return node_id, next((one.value or "" for one in result.configs), "")
    return None
