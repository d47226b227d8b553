"""Scans of Apache Kafka's topics, from the first release with record batches on: the rows are those
of librdkafka's consumer. Its files are read, too, where they name their cluster:
meta.properties of the first releases has no cluster id."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from compat.small_kafka import small_kafka
from compat.support import rival
from long_form import pick
from scan.scan_rows import consumed, produce, scanned
from scan.test_scan import several, transact

from barnabas.client import Cluster, NewTopic, create_topics
from barnabas.scan import NoFilesHere, OutOfRange

pytestmark = [pytest.mark.java, pytest.mark.takes(seconds=60)]
ALL = ("0.11.0.3", "1.1.1", "2.7.2", "3.9.2", "4.3.1")
VERSIONS = pick(short=(ALL[0], ALL[-1]), long=ALL)
WITH_ZSTD = ALL[2:]
WITH_FILES = ALL[2:]


@pytest.fixture(scope="module", params=VERSIONS)
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator["Reached"]:
    reason = rival.missing(request.param)
    if reason:
        pytest.skip(reason)
    with small_kafka(request.param, tmp_path_factory.mktemp("kafka")) as running:
        yield Reached(running)


class Reached:
    """A Kafka with the interface that the helpers of these tests need."""

    def __init__(self, running: rival.Rival) -> None:
        self.version = running.version
        self.bootstrap_servers = running.address

    def create(self, name: str, partitions: int = 1) -> str:
        with Cluster(self.bootstrap_servers) as cluster:
            create_topics(cluster, [NewTopic(name, partitions, 1)])
        return name


def both(kafka: Reached, topic: str, **options: object) -> list[tuple[object, ...]]:
    found = scanned(kafka, topic, source="wire", **options)
    if kafka.version in WITH_FILES:
        assert scanned(kafka, topic, source="files", **options) == found
    return found


def test_rows_of_every_codec(kafka: Reached) -> None:
    codecs = ["none", "gzip", "snappy", "lz4"] + ["zstd"] * (kafka.version in WITH_ZSTD)
    topic = kafka.create("codecs", len(codecs))
    for partition, codec in enumerate(codecs):
        produce(kafka, topic, several(300), codec=codec, partition=partition)
    found = both(kafka, topic)
    assert len(found) == 300 * len(codecs) and found == consumed(kafka, topic)
    assert both(kafka, topic, batch_bytes=2000) == found
    assert both(kafka, topic, start=100, end=200) == [row for row in found if 100 <= row[1] < 200]
    since = max(row[2] for row in found if row[0] == 0) + 1
    late = both(kafka, topic, start=datetime.fromtimestamp(since / 1000, UTC))
    assert late == [row for row in found if row[1] >= first_at(found, row[0], since)]
    assert 0 < len(late) < len(found)


def first_at(rows: list[tuple[int, ...]], partition: int, ms: int) -> int:
    return min((r[1] for r in rows if r[0] == partition and r[2] >= ms), default=1 << 62)


def test_rows_of_transactions(kafka: Reached) -> None:
    topic = kafka.create("transactions")
    produce(kafka, topic, several(60))
    transact(kafka, topic, "one", [(0, 80, True), (100, 90, False), (200, 70, True)])
    open_one = transact(kafka, topic, "open", [(0, 30, None)])
    produce(kafka, topic, several(40))
    committed = both(kafka, topic)
    assert len(committed) == 60 + 80 + 70 and committed == consumed(kafka, topic)
    everything = both(kafka, topic, isolation="read_uncommitted")
    assert len(everything) == len(committed) + 90 + 30 + 40
    assert everything == consumed(kafka, topic, isolation="read_uncommitted")
    open_one.abort_transaction(20)


def test_what_cannot_be_read_is_said(kafka: Reached) -> None:
    topic = kafka.create("short")
    produce(kafka, topic, several(5))
    for source in ("wire", *["files"] * (kafka.version in WITH_FILES)):
        with pytest.raises(OutOfRange, match="offsets 0 to 5: 6 was asked for"):
            scanned(kafka, topic, source=source, start=6, end=9)
    if kafka.version not in WITH_FILES:
        assert len(scanned(kafka, topic)) == 5
        with pytest.raises(NoFilesHere):
            scanned(kafka, topic, source="files")
