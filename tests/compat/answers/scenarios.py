"""The requests for each API key, with fields that every version has.

A scenario creates its own topics, so that each can run alone. Fields that a version lacks are left
out; cases that need such a field depend on the version.
"""

import base64
import time
from collections.abc import Callable
from typing import Any

from compat.answers.asking import SOFTWARE, Asker
from compat.answers.group_scenarios import GROUP_SCENARIOS
from compat.answers.share_scenarios import SHARE_SCENARIOS
from compat.answers.streams_scenarios import STREAMS_SCENARIOS
from compat.answers.transaction_scenarios import TRANSACTION_SCENARIOS
from compat.support import CALL_TIMEOUT_S, create_topic

from barnabas.cext.record.records import Record
from barnabas.wire.batches import encode_batch

START = 1_700_000_000_000  # the first record's timestamp; each later one is 10 more
UNKNOWN = "no-such-topic"
UNKNOWN_ID = "AAECAwQFBgcICQoLDA0ODw"
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC_KEYS = ["cleanup.policy", "max.message.bytes", "retention.bytes", "segment.bytes"]
BROKER_KEYS = ["message.max.bytes", "num.partitions", "log.cleaner.threads", "log.roll.ms"]
# Those of 4.3; a later release may have more.
GROUP_KEYS = [
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "share.auto.offset.reset",
    "share.delivery.count.limit",
    "share.isolation.level",
    "streams.num.standby.replicas",
]


def batch(count: int = 3, magic: int = 2, first: int = 0) -> bytes:
    records = [
        Record(b"value-%d" % i, b"key-%d" % i, timestamp=START + 10 * i if magic else -1)
        for i in range(first, first + count)
    ]
    return encode_batch(records, magic=magic)


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def filled_topic(asker: Asker, partitions: int = 1, **configs: str) -> str:
    """A topic with two batches of three records in partition 0."""
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    create_topic(asker.address, asker.topic, partitions, settings)
    for first in (0, 3):
        data = {"index": 0, "records": base64_of(batch(first=first))}
        topics = [{"name": asker.topic, "partitionData": [data]}]
        told = asker.call(0, 7, acks=-1, timeoutMs=30_000, topicData=topics)
        assert told.responses[0].partitionResponses[0].errorCode == 0
    return asker.topic


def alter_entities(asker: Asker) -> None:
    """Sets one setting of a group and of a subscription, both named like the topic. Apache Kafka
    answers when its controller has the change; the broker may apply it a little later."""
    for kind, key, value in (
        (GROUP, "consumer.session.timeout.ms", "50000"),
        (CLIENT_METRICS, "interval.ms", "500"),
    ):
        config = {"name": key, "configOperation": SET, "value": value}
        asked = {"resourceType": kind, "resourceName": asker.topic, "configs": [config]}
        answer = asker.call(44, 1, resources=[asked])
        assert answer.responses[0].errorCode == 0, answer.responses[0].errorMessage
        deadline = time.monotonic() + CALL_TIMEOUT_S
        while told_value(asker, kind, key) != value:
            assert time.monotonic() < deadline, f"{key} is not told"
            time.sleep(0.02)


def told_value(asker: Asker, kind: int, key: str) -> str | None:
    """The value of a setting of the group or the subscription that is named like the topic."""
    asked = {"resourceType": kind, "resourceName": asker.topic, "configurationKeys": [key]}
    answer = asker.call(32, 1, resources=[asked])
    return next((row.value for row in answer.results[0].configs if row.name == key), None)


def produce(asker: Asker) -> None:
    create_topic(asker.address, asker.topic)
    topic_id = asker.topic_id(asker.topic)
    magic = 2 if asker.version >= 3 else 1 if asker.version == 2 else 0
    good = batch(magic=magic)
    broken = good[:-1] + bytes([good[-1] ^ 1])

    def ask(case: str, records: bytes, index: int = 0, name: str = "", acks: int = -1) -> None:
        known = name != UNKNOWN
        data = [{"index": index, "records": base64_of(records)}]
        ident = topic_id if known else UNKNOWN_ID
        topic = {"name": name or asker.topic, "topicId": ident, "partitionData": data}
        asker.ask(case, acks=acks, timeoutMs=30_000, topicData=[topic])

    ask("acks all", good)
    ask("acks one", good, acks=1)
    ask("acks that do not exist", good, acks=7)
    ask("a wrong checksum", broken)
    ask("unknown topic", good, name=UNKNOWN)
    ask("unknown partition", good, index=9)


def fetch(asker: Asker) -> None:
    name = filled_topic(asker)
    topic_id = asker.topic_id(name)

    def ask(case: str, offset: int, partition: int = 0, known: bool = True, **more: Any) -> None:
        wanted = {"partition": partition, "fetchOffset": offset, "partitionMaxBytes": 1 << 20}
        wanted |= more
        ident = topic_id if known else UNKNOWN_ID
        topic = {"topic": name if known else UNKNOWN, "topicId": ident, "partitions": [wanted]}
        asker.ask(
            case, replicaId=-1, maxWaitMs=0, minBytes=0, maxBytes=1 << 20, sessionId=0,
            sessionEpoch=-1, topics=[topic],
        )  # fmt: skip

    ask("from the start", 0)
    ask("inside the second batch", 4)
    ask("one byte at most", 0, partitionMaxBytes=1)
    ask("at the end", 6)
    ask("past the end", 99)
    ask("unknown partition", 0, partition=9)
    ask("unknown topic", 0, known=False)
    if asker.version >= 9:
        ask("the leader's epoch", 0, currentLeaderEpoch=0)
        ask("an epoch of the future", 0, currentLeaderEpoch=7)


def list_offsets(asker: Asker) -> None:
    name = filled_topic(asker)

    def ask(case: str, timestamp: int, topic: str = name, partition: int = 0, **more: Any) -> None:
        wanted = {"partitionIndex": partition, "timestamp": timestamp, **more}
        asker.ask(case, replicaId=-1, topics=[{"name": topic, "partitions": [wanted]}])

    ask("latest", LATEST)
    ask("earliest", EARLIEST)
    ask("unknown topic", LATEST, topic=UNKNOWN)
    ask("unknown partition", LATEST, partition=9)
    if asker.version == 0:
        ask("latest, more than one", LATEST, maxNumOffsets=5)
        return
    ask("a record's time", START + 20)
    ask("between two records", START + 31)
    ask("after all", START + 1000)
    if asker.version >= 4:
        ask("an epoch of the future", LATEST, currentLeaderEpoch=7)
    for low, case, timestamp in (
        (7, "max timestamp", MAX_TIMESTAMP),
        (8, "earliest local", EARLIEST_LOCAL),
        (9, "latest tiered", LATEST_TIERED),
    ):
        if asker.version >= low:
            ask(case, timestamp)


def metadata(asker: Asker) -> None:
    name = filled_topic(asker, 2)
    quiet = {"allowAutoTopicCreation": False}
    asker.ask("by name", topics=[{"name": name}], **quiet)
    asker.ask("name that is not allowed", topics=[{"name": "a/b"}], **quiet)
    if asker.version >= 4:
        asker.ask("unknown topic", topics=[{"name": UNKNOWN}], **quiet)
    if asker.version >= 1:
        asker.ask("no topics", topics=[], **quiet)
        asker.ask("all topics", topics=None, **quiet)
    if asker.version >= 8:
        asker.ask("operations", topics=[{"name": name}], includeTopicAuthorizedOperations=True)
    if asker.version >= 12:
        by_id = {"topicId": asker.topic_id(name), "name": None}
        asker.ask("by id", topics=[by_id], **quiet)
        asker.ask("unknown id", topics=[{"topicId": UNKNOWN_ID, "name": None}], **quiet)


def api_versions(asker: Asker) -> None:
    asker.ask("plain", **SOFTWARE)
    if asker.version >= 3:
        asker.ask("a software name that is not allowed", **SOFTWARE | {"clientSoftwareName": "%"})


def acls(asker: Asker) -> None:
    """Without an authorizer."""
    rule = {
        "resourceType": TOPIC,
        "resourceName": "t",
        "principal": "User:a",
        "host": "*",
        "operation": 3,
        "permissionType": 3,
    }
    wanted = {
        "resourceTypeFilter": TOPIC,
        "resourceNameFilter": "t",
        "principalFilter": None,
        "hostFilter": None,
        "operation": 1,
        "permissionType": 1,
    }
    if asker.key == 29:
        asker.ask("one resource's", **wanted)
        return
    name, row = ("creations", rule) if asker.key == 30 else ("filters", wanted)
    for case, count in (("none", 0), ("one", 1), ("two", 2)):
        asker.ask(case, **{name: [row] * count})


def delegation_tokens(asker: Asker) -> None:
    """Of a client that has not logged in."""
    if asker.key == 38:
        row = {"principalType": "User", "principalName": "a"}
        asker.ask("for itself", renewers=[], maxLifetimeMs=-1)
        asker.ask("with a renewer", renewers=[row], maxLifetimeMs=1000)
    elif asker.key == 39:
        asker.ask("of no token", hmac="eA==", renewPeriodMs=-1)
    elif asker.key == 40:
        asker.ask("of no token", hmac="eA==", expiryTimePeriodMs=-1)
    else:
        asker.ask("all", owners=None)
        asker.ask("none", owners=[])


def alter_replica_log_dirs(asker: Asker) -> None:
    create_topic(asker.address, asker.topic)
    current = asker.call(35, 1, topics=None).results[0].logDir

    def ask(case: str, path: str, topic: str = asker.topic, partition: int = 0) -> None:
        asker.ask(
            case, dirs=[{"path": path, "topics": [{"name": topic, "partitions": [partition]}]}]
        )

    ask("the directory that it is in", current)
    ask("no directory of the broker's", "/no-such-directory")
    ask("a relative path", "data")
    ask("unknown topic", current, topic=UNKNOWN)
    ask("unknown topic and directory", "/no-such-directory", topic=UNKNOWN)
    ask("unknown partition", current, partition=9)
    asker.ask("none", dirs=[])


def elect_leaders(asker: Asker) -> None:
    create_topic(asker.address, asker.topic, 2)

    def ask(case: str, partitions: list[int], topic: str = asker.topic, kind: int = 0) -> None:
        rows = [{"topic": topic, "partitions": partitions}]
        asker.ask(case, electionType=kind, topicPartitions=rows, timeoutMs=30_000)

    ask("preferred", [0, 1])
    ask("a partition twice", [0, 0])
    ask("unknown topic", [0], topic=UNKNOWN)
    ask("unknown partition", [9])
    asker.ask("none", electionType=0, topicPartitions=[], timeoutMs=30_000)
    if asker.version >= 1:
        ask("unclean", [0], kind=1)
        ask("a kind that does not exist", [0], kind=7)


def alter_reassignments(asker: Asker) -> None:
    create_topic(asker.address, asker.topic)
    broker = asker.call(3, 9, topics=[]).brokers[0].nodeId

    def ask(
        case: str,
        replicas: list[int] | None,
        topic: str = asker.topic,
        partition: int = 0,
        **more: Any,
    ) -> None:
        row = {"partitionIndex": partition, "replicas": replicas}
        topics = [{"name": topic, "partitions": [row]}]
        asker.ask(case, timeoutMs=30_000, topics=topics, **more)

    ask("the replicas that it has", [broker])
    ask("without a change of their number", [broker], allowReplicationFactorChange=False)
    ask("an unknown broker", [broker + 1])
    ask("an unknown broker beside", [broker, broker + 1])
    ask("a negative broker", [-1])
    ask("a broker twice", [broker, broker])
    ask("no replicas", [])
    ask("cancelled", None)
    ask("cancelled of an unknown topic", None, topic=UNKNOWN)
    ask("unknown topic", [broker], topic=UNKNOWN)
    ask("unknown partition", [broker], partition=9)
    asker.ask("none", timeoutMs=30_000, topics=[])


def list_reassignments(asker: Asker) -> None:
    create_topic(asker.address, asker.topic)
    asker.ask("all", timeoutMs=30_000, topics=None)
    for case, topic in (("a topic", asker.topic), ("unknown topic", UNKNOWN)):
        rows = [{"name": topic, "partitionIndexes": [0]}]
        asker.ask(case, timeoutMs=30_000, topics=rows)


def describe_quorum(asker: Asker) -> None:
    def row(topic: str, partition: int = 0) -> dict[str, Any]:
        return {"topicName": topic, "partitions": [{"partitionIndex": partition}]}

    metadata_log = "__cluster_metadata"
    asker.ask("the metadata", topics=[row(metadata_log)])
    asker.ask("unknown partition", topics=[row(metadata_log, 9)])
    asker.ask("another topic", topics=[row(UNKNOWN)])
    asker.ask("the metadata and another topic", topics=[row(metadata_log), row(UNKNOWN)])
    asker.ask("none", topics=[])


def create_topics(asker: Asker) -> None:
    def ask(case: str, suffix: str, only: bool = False, **more: Any) -> None:
        topic = {"name": asker.topic + suffix, "numPartitions": 2, "replicationFactor": 1, **more}
        asker.ask(case, topics=[topic], timeoutMs=30_000, validateOnly=only)

    config = {"name": "retention.ms", "value": "1000"}
    ask("new", "-new", configs=[config])
    ask("there already", "-new")
    ask("name that is not allowed", "/")
    ask("no partitions", "-none", numPartitions=0)
    ask("more replicas than brokers", "-many", replicationFactor=9)
    ask("unknown setting", "-odd", configs=[{"name": "no.such", "value": "1"}])
    ask("a setting's wrong value", "-bad", configs=[config | {"value": "soon"}])
    if asker.version >= 1:
        ask("checked only", "-checked", only=True)
    if asker.version >= 4:
        ask("the broker's numbers", "-default", numPartitions=-1, replicationFactor=-1)
    twice = {"name": asker.topic + "-twice", "numPartitions": 1, "replicationFactor": 1}
    asker.ask("named twice", topics=[twice, twice], timeoutMs=30_000)
    asker.ask("none", topics=[], timeoutMs=30_000)


def delete_topics(asker: Asker) -> None:
    name = filled_topic(asker)

    def ask(case: str, topic: str) -> None:
        asker.ask(case, topics=[{"name": topic}], topicNames=[topic], timeoutMs=30_000)

    ask("there", name)
    ask("not there", UNKNOWN)
    if asker.version >= 6:
        unknown = {"name": None, "topicId": UNKNOWN_ID}
        asker.ask("unknown id", topics=[unknown], timeoutMs=30_000)


def delete_records(asker: Asker) -> None:
    name = filled_topic(asker)

    def ask(case: str, offset: int, topic: str = name, partition: int = 0) -> None:
        wanted = [{"partitionIndex": partition, "offset": offset}]
        asker.ask(case, topics=[{"name": topic, "partitions": wanted}], timeoutMs=30_000)

    ask("inside a batch", 2)
    ask("before the start", 1)
    ask("past the end", 99)
    ask("all", -1)
    ask("an offset that cannot be", -2)
    ask("unknown topic", 0, topic=UNKNOWN)
    ask("unknown partition", 0, partition=9)


def init_producer_id(asker: Asker) -> None:
    asker.ask("without a transaction", transactionalId=None, transactionTimeoutMs=60_000)
    asker.ask("an empty transactional id", transactionalId="", transactionTimeoutMs=60_000)


def offset_for_leader_epoch(asker: Asker) -> None:
    name = filled_topic(asker)

    def ask(case: str, epoch: int, topic: str = name, partition: int = 0, leader: int = -1) -> None:
        wanted = {"partition": partition, "leaderEpoch": epoch, "currentLeaderEpoch": leader}
        asker.ask(case, replicaId=-1, topics=[{"topic": topic, "partitions": [wanted]}])

    ask("the only epoch", 0)
    ask("an epoch of the future", 7)
    ask("unknown topic", 0, topic=UNKNOWN)
    ask("unknown partition", 0, partition=9)
    if asker.version >= 2:
        ask("the leader's epoch from the future", 0, leader=7)


def describe_configs(asker: Asker) -> None:
    name = filled_topic(asker, segment_bytes="2097152")

    def ask(case: str, kind: int, resource: str, keys: list[str] | None, **more: Any) -> None:
        wanted = {"resourceType": kind, "resourceName": resource, "configurationKeys": keys}
        asker.ask(case, resources=[wanted], **more)

    ask("of a topic", TOPIC, name, TOPIC_KEYS)
    ask("of a topic with synonyms", TOPIC, name, TOPIC_KEYS, includeSynonyms=True)
    ask("of the broker", BROKER, "1", BROKER_KEYS, includeSynonyms=True)
    ask("no such setting", TOPIC, name, ["no.such"])
    ask("unknown topic", TOPIC, UNKNOWN, TOPIC_KEYS)
    ask("unknown kind", 99, name, TOPIC_KEYS)
    if asker.version >= 1:
        ask("all of a topic with synonyms", TOPIC, name, None, includeSynonyms=True)
        ask("the root logger", BROKER_LOGGER, "1", ["root", "no.such"], includeSynonyms=True)
        ask("loggers of no broker", BROKER_LOGGER, "", ["root"])
        ask("loggers of another broker", BROKER_LOGGER, "2", ["root"])
        ask("a subscription that is not there", CLIENT_METRICS, name, None, includeSynonyms=True)
        ask("a subscription without a name", CLIENT_METRICS, "", None)
        ask("a group that is not there", GROUP, name, GROUP_KEYS, includeSynonyms=True)
        ask("a group without a name", GROUP, "", None)
        alter_entities(asker)
        ask("a subscription", CLIENT_METRICS, name, None, includeSynonyms=True)
        ask("a group", GROUP, name, GROUP_KEYS, includeSynonyms=True)


def alter_configs(asker: Asker) -> None:
    name = filled_topic(asker)

    def ask(case: str, key: str, value: str, topic: str = name, only: bool = False) -> None:
        config = [{"name": key, "value": value}]
        resource = {"resourceType": TOPIC, "resourceName": topic, "configs": config}
        asker.ask(case, resources=[resource], validateOnly=only)

    ask("of a topic", "retention.ms", "1000")
    ask("checked only", "retention.ms", "2000", only=True)
    ask("unknown setting", "no.such", "1")
    ask("wrong value", "retention.ms", "soon")
    ask("unknown topic", "retention.ms", "1", topic=UNKNOWN)

    def ask_of(case: str, kind: int, key: str, value: str, resource: str = name) -> None:
        config = [{"name": key, "value": value}]
        asked = {"resourceType": kind, "resourceName": resource, "configs": config}
        asker.ask(case, resources=[asked], validateOnly=False)

    ask_of("loggers", BROKER_LOGGER, "root", "INFO", resource="1")
    ask_of("of a subscription", CLIENT_METRICS, "interval.ms", "500")
    ask_of("of a subscription, unknown", CLIENT_METRICS, "no.such", "1")
    ask_of("of a group", GROUP, "consumer.session.timeout.ms", "50000")
    ask_of("of a group, unknown", GROUP, "no.such", "1")
    ask_of("unknown kind", 99, "a", "1")


def describe_log_dirs(asker: Asker) -> None:
    name = filled_topic(asker, 2)
    asker.ask("a topic", topics=[{"topic": name, "partitions": [0, 1]}])
    asker.ask("a topic that is not there", topics=[{"topic": UNKNOWN, "partitions": [0]}])
    asker.ask("none", topics=[])


def create_partitions(asker: Asker) -> None:
    name = filled_topic(asker)

    def ask(case: str, count: int, topic: str = name, only: bool = False) -> None:
        wanted = {"name": topic, "count": count, "assignments": None}
        asker.ask(case, topics=[wanted], timeoutMs=30_000, validateOnly=only)

    ask("checked only", 4, only=True)
    ask("more", 3)
    ask("as many", 3)
    ask("fewer", 1)
    ask("unknown topic", 3, topic=UNKNOWN)


def incremental_alter_configs(asker: Asker) -> None:
    name = filled_topic(asker)

    def ask(case: str, key: str, operation: int, value: str | None, topic: str = name) -> None:
        config = {"name": key, "configOperation": operation, "value": value}
        resource = {"resourceType": TOPIC, "resourceName": topic, "configs": [config]}
        asker.ask(case, resources=[resource])

    ask("set", "retention.ms", SET, "1000")
    ask("delete", "retention.ms", DELETE, None)
    ask("append to a list", "cleanup.policy", APPEND, "compact")
    ask("subtract from a list", "cleanup.policy", SUBTRACT, "compact")
    ask("append to what is no list", "retention.ms", APPEND, "1")
    ask("unknown setting", "no.such", SET, "1")
    ask("wrong value", "retention.ms", SET, "soon")
    ask("unknown topic", "retention.ms", SET, "1", topic=UNKNOWN)
    for kind, changes in ENTITY_CHANGES.items():
        resource = "1" if kind == BROKER_LOGGER else name
        for key, operation, value in changes:
            config = {"name": key, "configOperation": operation, "value": value}
            asked = {"resourceType": kind, "resourceName": resource, "configs": [config]}
            asker.ask(f"kind {kind}: {key} {operation} {value}", resources=[asked])
    for kind in (BROKER_LOGGER, CLIENT_METRICS, GROUP):
        asked = {"resourceType": kind, "resourceName": "", "configs": []}
        asker.ask(f"kind {kind} without a name", resources=[asked])


ENTITY_CHANGES: dict[int, list[tuple[str, int, str | None]]] = {
    BROKER_LOGGER: [
        ("root", SET, "INFO"),
        ("root", SET, "info"),
        ("root", SET, "OFF"),
        ("root", SET, None),
        ("root", DELETE, None),
        ("root", APPEND, "INFO"),
        ("root", SUBTRACT, "INFO"),
        ("no.such", SET, "INFO"),
        ("no.such", DELETE, None),
    ],
    CLIENT_METRICS: [
        ("interval.ms", SET, "500"),
        ("interval.ms", SET, "99"),
        ("interval.ms", SET, "3600001"),
        ("interval.ms", SET, "soon"),
        ("interval.ms", SET, None),
        ("metrics", SET, "*"),
        ("metrics", APPEND, "org.apache"),
        ("match", SET, "client_id=.*,client_source_port=1"),
        ("match", SET, "client_id=["),
        ("match", SET, "client_id=a=b"),
        ("match", SET, "what=.*"),
        ("match", DELETE, None),
        ("no.such", SET, "1"),
    ],
    GROUP: [
        ("consumer.session.timeout.ms", SET, "50000"),
        ("consumer.session.timeout.ms", SET, "60001"),
        ("consumer.session.timeout.ms", SET, "44999"),
        ("consumer.session.timeout.ms", SET, "soon"),
        ("consumer.session.timeout.ms", SET, None),
        ("consumer.session.timeout.ms", APPEND, "1"),
        ("consumer.session.timeout.ms", DELETE, None),
        ("consumer.heartbeat.interval.ms", SET, "15000"),
        ("consumer.heartbeat.interval.ms", SET, "15001"),
        ("share.delivery.count.limit", SET, "11"),
        ("share.auto.offset.reset", SET, "by_duration:PT1H"),
        ("share.auto.offset.reset", SET, "by_duration:P1"),
        ("share.auto.offset.reset", SET, "none"),
        ("share.isolation.level", SET, "read_sometimes"),
        ("streams.num.standby.replicas", SET, "3"),
        ("no.such", SET, "1"),
    ],
}


def update_features(asker: Asker) -> None:
    """The newest level of metadata.version is different in each release; other features are
    unchanged."""

    def ask(case: str, feature: str, level: int, kind: int = 1) -> None:
        update = {"feature": feature, "maxVersionLevel": level, "upgradeType": kind}
        asker.ask(case, featureUpdates=[update], timeoutMs=30_000)

    asker.ask("none", featureUpdates=[], timeoutMs=30_000)
    ask("the level there is", "metadata.version", METADATA_VERSION)
    ask("a level that is too high", "metadata.version", 99)
    ask("a level below zero", "metadata.version", -1)
    ask("a feature that does not exist", "no.such.version", 1)
    if asker.version >= 1:
        ask("a kind of upgrade that does not exist", "metadata.version", METADATA_VERSION, 9)


METADATA_VERSION = 30  # of 4.3


def describe_cluster(asker: Asker) -> None:
    asker.ask("plain", includeClusterAuthorizedOperations=False)
    asker.ask("operations", includeClusterAuthorizedOperations=True)
    if asker.version >= 1:
        asker.ask("unknown endpoint type", endpointType=9)


def describe_producers(asker: Asker) -> None:
    name = filled_topic(asker)
    asker.ask("a topic without producers", topics=[{"name": name, "partitionIndexes": [0]}])
    asker.ask("unknown partition", topics=[{"name": name, "partitionIndexes": [9]}])
    asker.ask("unknown topic", topics=[{"name": UNKNOWN, "partitionIndexes": [0]}])


def list_config_resources(asker: Asker) -> None:
    asker.ask("client metrics", resourceTypes=[16])
    if asker.version >= 1:
        filled_topic(asker)
        asker.ask("topics", resourceTypes=[TOPIC])
        asker.ask("brokers", resourceTypes=[BROKER])
        asker.ask("loggers", resourceTypes=[BROKER_LOGGER])
        alter_entities(asker)
        asker.ask("groups", resourceTypes=[GROUP])
        asker.ask("client metrics and groups", resourceTypes=[CLIENT_METRICS, GROUP])
        asker.ask("unknown kind", resourceTypes=[99])


def describe_topic_partitions(asker: Asker) -> None:
    name = filled_topic(asker, 3)
    asker.ask("a topic", topics=[{"name": name}], responsePartitionLimit=2000)
    asker.ask("two of three", topics=[{"name": name}], responsePartitionLimit=2)
    cursor = {"topicName": name, "partitionIndex": 2}
    asker.ask("the rest", topics=[{"name": name}], responsePartitionLimit=2, cursor=cursor)
    asker.ask("unknown topic", topics=[{"name": UNKNOWN}], responsePartitionLimit=2000)


def sasl_handshake(asker: Asker) -> None:
    """On a listener without logins."""
    asker.ask("no login is asked for", mechanism="PLAIN")


def sasl_authenticate(asker: Asker) -> None:
    asker.ask("no login is asked for", authBytes=base64.b64encode(b"\0user\0password").decode())


def quota_of(name: str, key: str = "producer_byte_rate", value: float = 1024) -> dict[str, Any]:
    """An alteration of one quota of a user."""
    return {
        "entity": [{"entityType": "user", "entityName": name}],
        "ops": [{"key": key, "value": value, "remove": False}],
    }


def describe_client_quotas(asker: Asker) -> None:
    named = {"entityType": "user", "matchType": 0, "match": asker.topic}
    asker.call(49, 0, entries=[quota_of(asker.topic)], validateOnly=False)
    deadline = time.monotonic() + CALL_TIMEOUT_S
    while not asker.call(48, 0, components=[named], strict=True).entries:
        assert time.monotonic() < deadline, "the quota is not told"
        time.sleep(0.02)
    asker.ask("a user", components=[named], strict=True)
    asker.ask("no such user", components=[{**named, "match": UNKNOWN}], strict=False)
    asker.ask("a type twice", components=[named, named], strict=False)
    asker.ask("unknown type", components=[{**named, "entityType": "group"}], strict=False)
    asker.ask("unknown match", components=[{**named, "matchType": 9}], strict=False)


def alter_client_quotas(asker: Asker) -> None:
    def ask(case: str, *entries: dict[str, Any], validate_only: bool = False) -> None:
        asker.ask(case, entries=list(entries), validateOnly=validate_only)

    name = asker.topic
    ask("checked", quota_of(name), validate_only=True)
    ask("set", quota_of(name))
    ask("unknown key", quota_of(name, key="nonsense"))
    ask("zero", quota_of(name, value=0))
    ask("no name", quota_of(""))
    ask("a user twice", quota_of(name), quota_of(name))
    ask("no entity", quota_of(name) | {"entity": []})


def describe_user_scram_credentials(asker: Asker) -> None:
    asker.ask("every user", users=None)
    asker.ask("no such user", users=[{"name": UNKNOWN}])
    asker.ask("a user twice", users=[{"name": UNKNOWN}, {"name": UNKNOWN}])


def alter_user_scram_credentials(asker: Asker) -> None:
    def ask(case: str, name: str, mechanism: int, iterations: int) -> None:
        row = {"name": name, "mechanism": mechanism, "iterations": iterations}
        row |= {"salt": "c2FsdA==", "saltedPassword": "eHh4eHh4eHh4eHg="}
        asker.ask(case, deletions=[], upsertions=[row])

    gone = {"name": UNKNOWN, "mechanism": 1}
    asker.ask("no such user", deletions=[gone], upsertions=[])
    ask("no name", "", 1, 4096)
    ask("unknown mechanism", "u", 9, 4096)
    ask("too few iterations", "u", 1, 4095)
    ask("too many iterations", "u", 2, 16385)
    ask("set", "u", 1, 4096)
    asker.ask("deleted", deletions=[{"name": "u", "mechanism": 1}], upsertions=[])


SCENARIOS: dict[int, Callable[[Asker], None]] = {
    0: produce,
    1: fetch,
    2: list_offsets,
    3: metadata,
    17: sasl_handshake,
    18: api_versions,
    19: create_topics,
    20: delete_topics,
    21: delete_records,
    22: init_producer_id,
    23: offset_for_leader_epoch,
    29: acls,
    30: acls,
    31: acls,
    32: describe_configs,
    33: alter_configs,
    34: alter_replica_log_dirs,
    35: describe_log_dirs,
    36: sasl_authenticate,
    37: create_partitions,
    38: delegation_tokens,
    39: delegation_tokens,
    40: delegation_tokens,
    41: delegation_tokens,
    43: elect_leaders,
    44: incremental_alter_configs,
    45: alter_reassignments,
    46: list_reassignments,
    55: describe_quorum,
    48: describe_client_quotas,
    49: alter_client_quotas,
    50: describe_user_scram_credentials,
    51: alter_user_scram_credentials,
    57: update_features,
    60: describe_cluster,
    61: describe_producers,
    74: list_config_resources,
    75: describe_topic_partitions,
} | GROUP_SCENARIOS
SCENARIOS |= TRANSACTION_SCENARIOS
SCENARIOS |= SHARE_SCENARIOS
SCENARIOS |= STREAMS_SCENARIOS


def answers_to(address: str, key: int, version: int) -> dict[str, Any]:
    """Every case of one key in one version: the masked responses by the name of the case."""
    asker = Asker(address, key, version)
    SCENARIOS[key](asker)
    return asker.answers
