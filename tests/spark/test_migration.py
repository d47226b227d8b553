"""A query switches its format with one checkpoint, in both directions: no gap, no duplicate."""

import pytest
from scan.scan_rows import produce
from spark.queries import landed, run_once, stream
from spark.some_rows import rows

from barnabas.spark.checkpoint import Checkpoint
from barnabas.spark.files import LocalFiles

pytestmark = pytest.mark.java


@pytest.mark.topic(partitions=2)
@pytest.mark.parametrize("begun_by", ["kafka", "barnabas"])
def test_a_query_moves_and_comes_back(
    spark, session_broker, topic, tmp_path, kafka_format, begun_by
):
    other = {"kafka": "barnabas", "barnabas": kafka_format}[begun_by]
    count = 0
    for n, kind in enumerate([begun_by, other, begun_by, other]):
        for partition in (0, 1):
            produce(session_broker, topic, rows(100 + 10 * n), partition=partition)
        count += 100 + 10 * n
        frame = stream(
            spark,
            session_broker,
            kind,
            subscribe=topic,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=120,
        )
        run_once(frame, tmp_path)
        wanted = [(partition, offset) for partition in (0, 1) for offset in range(count)]
        assert landed(spark, tmp_path) == wanted, (n, kind)
        newest = Checkpoint(LocalFiles(tmp_path / "checkpoint")).last_committed()
        assert newest.kafka() == {topic: {0: count, 1: count}}
        # Our offsets have the topic id; spark-sql-kafka reads them, and writes none.
        assert list(newest.topic_ids()) == ([topic] if kind == "barnabas" else [])
    batches = {int(p.name) for p in (tmp_path / "checkpoint/commits").iterdir() if p.name.isdigit()}
    assert batches == set(range(len(batches)))
