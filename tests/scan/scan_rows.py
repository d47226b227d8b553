"""The rows of a topic in one form, from three readers: scan of files, scan over Fetch, and a
consumer."""

import time

from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, TopicPartition
from confluent_kafka import Producer as ConfluentProducer

from barnabas.scan import scan

# For topics with old timestamps, whose records retention would delete.
KEPT = {"retention.ms": "-1"}


def rows_of(table):
    """(partition, offset, timestamp, appended, key, value, headers), sorted."""
    found = []
    for row in table.to_pylist():
        at = row["timestamp"]
        ms = -1 if at is None else round(at.timestamp() * 1000)
        headers = tuple((h["key"], h["value"]) for h in row["headers"])
        appended = row["timestamp_type"] == 1
        found.append(
            (row["partition"], row["offset"], ms, appended, row["key"], row["value"], headers)
        )
    return sorted(found, key=lambda row: row[:2])


def scanned(broker, topic, **options):
    return rows_of(scan(topic, bootstrap_servers=broker.bootstrap_servers, **options).to_arrow())


def consumed(broker, topic, *, isolation="read_committed"):
    """Read by librdkafka, to the end of each partition for that isolation level."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    found, ended = [], set()
    try:
        partitions = consumer.list_topics(topic, 10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
        deadline = time.monotonic() + 20
        while len(ended) < len(partitions):
            assert time.monotonic() < deadline, "the consumer does not come to the end"
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error():
                ended.add(message.partition())
                continue
            kind, ms = message.timestamp()
            headers = tuple((k.encode(), v) for k, v in message.headers() or ())
            found.append(
                (
                    message.partition(),
                    message.offset(),
                    ms,
                    kind > TIMESTAMP_CREATE_TIME,
                    message.key(),
                    message.value(),
                    headers,
                )
            )
    finally:
        consumer.close()
    return sorted(found, key=lambda row: row[:2])


def produce(broker, topic, rows, *, codec="none", partition=0, **options):
    """rows: (key, value, headers)."""
    failed = []
    producer = ConfluentProducer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "compression.type": codec,
            "batch.num.messages": 50,
            "linger.ms": 50,
            **options,
        }
    )
    for key, value, headers in rows:
        producer.produce(
            topic,
            key=key,
            value=value,
            headers=headers,
            partition=partition,
            on_delivery=lambda e, m: failed.append(e) if e else None,
        )
    assert producer.flush(20) == 0 and not failed, failed
