"""Names and meanings of the metrics that broker_collector.py collects."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.cext.partition.partition_metrics import PartitionMetrics
from barnabas.telemetry.registry import COUNTER, GAUGE, SUMMARY, Metric, of_mbean

PARTITION = ("topic", "partition")


def _topics(name: str, meaning: str, labels: tuple[str, ...] = ("topic",)) -> Metric:
    mbean = f"kafka.server:type=BrokerTopicMetrics,name={name}PerSec"
    return of_mbean(mbean, COUNTER, meaning, labels)


def _replicas(name: str, meaning: str, kind: str = GAUGE) -> Metric:
    return of_mbean(f"kafka.server:type=ReplicaManager,name={name}", kind, meaning)


def _controller(name: str, meaning: str) -> Metric:
    return of_mbean(f"kafka.controller:type=KafkaController,name={name}", GAUGE, meaning)


def _partition(name: str, meaning: str) -> Metric:
    return of_mbean(f"kafka.cluster:type=Partition,name={name}", GAUGE, meaning, PARTITION)


def _log(name: str, meaning: str) -> Metric:
    return of_mbean(f"kafka.log:type=Log,name={name}", GAUGE, meaning, PARTITION)


def _exporter(name: str, meaning: str) -> Metric:
    return Metric(f"kafka_topic_partition_{name}", GAUGE, PARTITION, meaning)


MESSAGES_IN = _topics(
    "MessagesIn", "Records appended; without a topic: of all topics, deleted ones included"
)
BYTES_IN = _topics("BytesIn", "Bytes of record batches appended")
BYTES_OUT = _topics("BytesOut", "Bytes of record batches sent to consumers")
PRODUCE_REQUESTS = _topics(
    "TotalProduceRequests", "Produce requests, counted once for each partition in them"
)
FETCH_REQUESTS = _topics(
    "TotalFetchRequests", "Fetch requests, counted once for each partition in them"
)
FAILED_PRODUCES = _topics(
    "FailedProduceRequests",
    "Those of them that failed with an error which clients do not meet in normal operation",
)
FAILED_FETCHES = _topics(
    "FailedFetchRequests",
    "Those of them that failed with an error which clients do not meet in normal operation",
)
BYTES_REJECTED = _topics("BytesRejected", "Bytes of batches larger than max.message.bytes")
PRODUCE_CONVERSIONS = _topics(
    "ProduceMessageConversions",
    "Records of old producers (Produce 0 to 2) converted from the message formats 0 and 1",
)
FETCH_CONVERSIONS = _topics(
    "FetchMessageConversions",
    "Records converted to the message formats 0 and 1 for old consumers (Fetch 0 to 3)",
)
INVALID_CRC = _topics("InvalidMessageCrcRecords", "Batches whose frame or checksum is damaged", ())
INVALID_SEQUENCE = _topics(
    "InvalidOffsetOrSequenceRecords",
    "Batches rejected because of their producer id, epoch or sequence",
    (),
)
NO_KEY = _topics(
    "NoKeyCompactedTopicRecords",
    "Batches with a record without a key, sent to a compacted topic",
    (),
)
BATCHES = Metric("barnabas_batches_total", COUNTER, (), "Record batches appended")
DUPLICATES = Metric(
    "barnabas_duplicate_batches_total",
    COUNTER,
    (),
    "Batches that an idempotent producer sent twice",
)
BATCHES_REJECTED = Metric(
    "barnabas_rejected_batches_total", COUNTER, ("reason",), "Record batches refused"
)

PARTITION_COUNT = _replicas("PartitionCount", "Partitions on this node")
LEADER_COUNT = _replicas("LeaderCount", "Partitions that this node leads")
UNDER_REPLICATED = _replicas(
    "UnderReplicatedPartitions",
    "Partitions that this node leads with a replica that is not in sync",
)
UNDER_MIN_ISR = _replicas(
    "UnderMinIsrPartitionCount",
    "Partitions that this node leads with fewer in-sync replicas than min.insync.replicas",
)
AT_MIN_ISR = _replicas(
    "AtMinIsrPartitionCount",
    "Partitions that this node leads with exactly min.insync.replicas in-sync replicas",
)
OFFLINE_REPLICAS = _replicas(
    "OfflineReplicaCount", "Partitions on this node whose log cannot be used"
)
REASSIGNING = _replicas("ReassigningPartitions", "Partitions that are being reassigned")
PRODUCER_IDS = _replicas("ProducerIdCount", "Idempotent producers whose state this node holds")
ISR_SHRINKS = _replicas(
    "IsrShrinksPerSec", "Times that a replica left the in-sync replicas", COUNTER
)
ISR_EXPANDS = _replicas(
    "IsrExpandsPerSec", "Times that a replica joined the in-sync replicas", COUNTER
)
PARTITION_METRICS = Metric(
    "barnabas_partition_metrics",
    GAUGE,
    (),
    "1 when the page has metrics of each partition, 0 when metrics.max.partitions omits them",
)

PARTITION_UNDER_REPLICATED = _partition("UnderReplicated", "1 when a replica is not in sync")
PARTITION_UNDER_MIN_ISR = _partition(
    "UnderMinIsr", "1 when fewer replicas than min.insync.replicas are in sync"
)
PARTITION_AT_MIN_ISR = _partition(
    "AtMinIsr", "1 when exactly min.insync.replicas replicas are in sync"
)
PARTITION_ISR = _partition("InSyncReplicasCount", "Replicas in sync")
PARTITION_REPLICAS = _partition("ReplicasCount", "Replicas")
PARTITION_STABLE_LAG = _partition(
    "LastStableOffsetLag", "Records that open transactions hide from read_committed consumers"
)

OF_LOG: dict[Metric, Callable[[PartitionMetrics], int]] = {
    _log("Size", "Bytes of the log's segments"): lambda row: row.size_bytes,
    _log("LogStartOffset", "First offset of the log"): lambda row: row.log_start_offset,
    _log("LogEndOffset", "Offset of the next record"): lambda row: row.log_end_offset,
    _log("NumLogSegments", "Segments of the log"): lambda row: row.segment_count,
}
OFFLINE_DIRECTORIES = of_mbean(
    "kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
    GAUGE,
    "Log directories with a log that failed",
)
DIRECTORY_OFFLINE = of_mbean(
    "kafka.log:type=LogManager,name=LogDirectoryOffline",
    GAUGE,
    "1 when a log of the directory failed",
    ("logDirectory",),
)
DISK_SIZE = Metric(
    "barnabas_log_directory_disk_bytes", GAUGE, ("logDirectory",), "Size of the directory's disk"
)
DISK_FREE = Metric(
    "barnabas_log_directory_free_bytes",
    GAUGE,
    ("logDirectory",),
    "Bytes that the broker may still write to the directory's disk",
)
FAILED_DISK_CALLS = Metric(
    "barnabas_log_failed_disk_calls_total",
    COUNTER,
    (),
    "Writes, flushes and other calls on files of logs that failed",
)
FLUSHES = of_mbean(
    "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
    SUMMARY,
    "Duration of flushes of logs to the disk, in ms; one flush may cover many appends",
)

ACTIVE_CONTROLLER = _controller("ActiveControllerCount", "1 when this node is the controller")
ACTIVE_BROKERS = _controller("ActiveBrokerCount", "Brokers that are registered")
TOPICS = _controller("GlobalTopicCount", "Topics of the cluster")
PARTITIONS = _controller("GlobalPartitionCount", "Partitions of the cluster")
OFFLINE_PARTITIONS = _controller("OfflinePartitionsCount", "Partitions without a usable leader")
IMBALANCE = _controller(
    "PreferredReplicaImbalanceCount", "Partitions whose leader is not their preferred replica"
)
TOPICS_TO_DELETE = _controller("TopicsToDeleteCount", "Topics whose deletion is in progress")
UNCLEAN_ELECTIONS = of_mbean(
    "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
    COUNTER,
    "Leaders that were elected although they were not in sync",
)

SESSIONS = of_mbean(
    "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions",
    GAUGE,
    "Fetch sessions that are open",
)
SESSION_EVICTIONS = of_mbean(
    "kafka.server:type=FetchSessionCache,name=IncrementalFetchSessionEvictionsPerSec",
    COUNTER,
    "Fetch sessions evicted from the full cache",
)
FETCHES_EXPIRED = of_mbean(
    "kafka.server:type=DelayedFetchMetrics,name=ExpiresPerSec",
    COUNTER,
    "Fetches that waited for the whole max wait time of their request",
    ("fetcherType",),
)
COLD_BYTES = Metric(
    "barnabas_cold_bytes_read_total",
    COUNTER,
    (),
    "Bytes read from the disk for fetches of old data",
)
CONVERSION_BYTES = Metric(
    "barnabas_conversion_memory_bytes",
    GAUGE,
    (),
    "Memory of records that are converted for old consumers, until the answers are sent",
)
CONVERSION_WAITS = Metric(
    "barnabas_conversion_memory_waits_total",
    COUNTER,
    (),
    "Fetches of old consumers that had to wait for this memory",
)

EXPORTER_BROKERS = Metric("kafka_brokers", GAUGE, (), "Brokers that are registered")
EXPORTER_BROKER_INFO = Metric(
    "kafka_broker_info", GAUGE, ("id", "address"), "A broker and its address; always 1"
)
EXPORTER_TOPIC_PARTITIONS = Metric(
    "kafka_topic_partitions", GAUGE, ("topic",), "Partitions of a topic"
)
EXPORTER_CURRENT = _exporter("current_offset", "Offset after the last visible record")
EXPORTER_OLDEST = _exporter("oldest_offset", "First offset of the log")
EXPORTER_ISR = _exporter("in_sync_replica", "Replicas in sync")
EXPORTER_REPLICAS = _exporter("replicas", "Replicas")
EXPORTER_LEADER = _exporter("leader", "Id of the partition's leader, -1 without one")
EXPORTER_PREFERRED = _exporter("leader_is_preferred", "1 when the preferred replica leads")
EXPORTER_UNDER_REPLICATED = _exporter(
    "under_replicated_partition", "1 when a replica is not in sync"
)

METRICS = tuple(found for found in list(vars().values()) if isinstance(found, Metric)) + tuple(
    OF_LOG
)
