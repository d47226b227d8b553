"""Streaming queries from a topic into parquet, and functions that read the results."""

from barnabas.client import Cluster
from barnabas.client.groups import committed_offsets

TIMEOUT_S = 120


def stream(spark, broker, kind="barnabas", **options):
    """A streaming frame; dots of options are underscores."""
    reader = spark.readStream.format(kind)
    reader = reader.option("kafka.bootstrap.servers", broker.bootstrap_servers)
    for name, value in options.items():
        reader = reader.option(name.replace("_", "."), str(value))
    return reader.load()


def to_parquet(frame, place):
    """A writer of `frame` into place/sink with its checkpoint at place/checkpoint."""
    writer = frame.writeStream.format("parquet").option("path", str(place / "sink"))
    return writer.option("checkpointLocation", str(place / "checkpoint"))


def run_once(frame, place):
    """Processes all available records in one or more batches. Returns the query's progress
    events."""
    query = to_parquet(frame, place).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(TIMEOUT_S), "the query does not come to its end"
    finally:
        query.stop()
    return query.recentProgress


def landed(spark, place):
    """(partition, offset) of each row in the sink, sorted."""
    rows = spark.read.parquet(str(place / "sink")).select("partition", "offset").collect()
    return sorted((row.partition, row.offset) for row in rows)


def group_stands(broker, group, topic):
    with Cluster(broker.bootstrap_servers) as cluster:
        return committed_offsets(cluster, group).get(topic, {})
