"""A small synchronous client for any Kafka from 0.11 on, for the commands, benchmarks and tools.

    with Cluster("127.0.0.1:9092") as cluster:
        create_topics(cluster, [NewTopic("news", partition_count=3)])
        with Producer(cluster, "news") as producer:
            producer.send(b"hello", key=b"k")
        for partition, record in Reader(cluster, "news", offsets={0: 0, 1: 0, 2: 0}, to_end=True):
            print(partition, record.offset, record.value)

One thread at a time uses a Cluster and the objects made from it. Errors: `ClientError` and its
subclasses for failures between client and broker, `KafkaError` (barnabas.errors) for the error
codes of a broker's answer.
Read on: connection.py, cluster.py, offsets.py, producer.py, reader.py, admin.py.
"""

from barnabas.client.admin import (
    ConfigChange,
    NewTopic,
    Resource,
    alter_configs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
)
from barnabas.client.cluster import Cluster, Partition, Topic
from barnabas.client.connection import Connection
from barnabas.client.failures import (
    AnswerTooLarge,
    BadAddress,
    BadSetting,
    CannotConnect,
    ClientError,
    ConnectionLost,
    NoTls,
    NotSpokenByBroker,
    ProtocolViolation,
)
from barnabas.client.offsets import EARLIEST, LATEST, list_offsets
from barnabas.client.producer import Producer
from barnabas.client.reader import Reader

__all__ = [
    "EARLIEST",
    "LATEST",
    "AnswerTooLarge",
    "BadAddress",
    "BadSetting",
    "CannotConnect",
    "ClientError",
    "Cluster",
    "ConfigChange",
    "Connection",
    "ConnectionLost",
    "NewTopic",
    "NoTls",
    "NotSpokenByBroker",
    "Partition",
    "Producer",
    "ProtocolViolation",
    "Reader",
    "Resource",
    "Topic",
    "alter_configs",
    "create_partitions",
    "create_topics",
    "delete_records",
    "delete_topics",
    "describe_cluster",
    "describe_configs",
    "describe_log_dirs",
    "list_offsets",
]
