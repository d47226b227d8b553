"""Queries with sink and checkpoint on HDFS: `barnabas checkpoint` works with Spark's files
there."""

import json

import pytest
from spark.loading import KEPT, loader_of, published, send

from barnabas.cli import main
from barnabas.client import Cluster
from barnabas.client.groups import committed_offsets
from barnabas.spark.checkpoint import Checkpoint
from barnabas.spark.files import files_at
from barnabas.spark.sink_log import SinkLog

pytestmark = pytest.mark.java
QUERY_S = 120


def run_query(spark, broker, topic, place):
    frame = spark.readStream.format("barnabas").options(
        **{
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "60",
        }
    )
    writer = frame.load().writeStream.format("parquet").option("path", f"{place}/sink")
    query = writer.option("checkpointLocation", f"{place}/cp").trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(QUERY_S), "the query does not come to its end"
    finally:
        query.stop()


def landed(spark, place):
    found = spark.read.parquet(f"{place}/sink").select("partition", "offset").collect()
    return sorted((row.partition, row.offset) for row in found)


def say(capsys, *words):
    status = main(["checkpoint", *words])
    told = capsys.readouterr()
    assert status == 0, told.err
    return told.out


@pytest.mark.topic(partitions=1, configs=KEPT)
def test_a_query_on_hdfs_and_the_commands(spark, session_broker, topic, hdfs, monkeypatch, capsys):
    monkeypatch.setenv("HADOOP_CONF_DIR", hdfs.conf_dir())
    place, servers = f"{hdfs.hdfs}/{topic}", session_broker.bootstrap_servers
    send(session_broker, topic, 100)
    run_query(spark, session_broker, topic, place)
    assert landed(spark, place) == [(0, offset) for offset in range(100)]
    checkpoint = Checkpoint(files_at(f"{place}/cp"))
    assert checkpoint.unfinished() is None
    say(capsys, "verify", f"{place}/cp", "--sink", f"{place}/sink", "--broker", "-b", servers)
    batches = json.loads(say(capsys, "show", f"{place}/cp", "--json"))["batches"]
    assert [row["offsets"][topic]["0"] for row in batches][-2:] == [60, 100]
    say(capsys, "to-group", f"{topic}-group", f"{place}/cp", "-b", servers)
    with Cluster(servers) as cluster:
        assert committed_offsets(cluster, f"{topic}-group") == {topic: {0: 100}}
    # The rewind drops batches, which are read again into another sink.
    last = batches[-1]["batch"]
    say(capsys, "rewind", str(last - 1), f"{place}/cp")
    assert json.loads(say(capsys, "export", f"{place}/cp")) == {topic: {"0": 60}}
    sink = files_at(f"{place}/sink")
    gone = [row.path for row in SinkLog(sink).current()]
    sink.delete(f"_spark_metadata/{last}")
    kept = [row.path for row in SinkLog(sink).current()]
    assert len(gone) > len(kept)
    send(session_broker, topic, 5)
    run_query(spark, session_broker, topic, place)
    assert landed(spark, place) == [(0, offset) for offset in range(105)]
    # A load continues with the query's checkpoint and reads the remaining records.
    send(session_broker, topic, 7)
    (report,) = loader_of(session_broker, topic, place, to="load").batches()
    assert report.audits[0].ends == {0: (105, 112)}
    assert len(published(f"{place}/load", topic)[0]) == 7
    assert checkpoint.verify().problems == []
