"""The Scala producer and the ZooKeeper consumer of Kafka 0.8 to 0.10, with a broker whose metadata
is in ZooKeeper: the consumer finds the broker, its group and its offsets there."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from compat.java.driver import missing
from compat.old_java.old_clients import Lines, Row, row_of, text
from compat.old_java.test_old_clients import RECORDS, sent_versions
from long_form import pick
from telemetry.conftest import Watched
from zookeeper.conftest import Brokers
from zookeeper_server import ZooKeeperServer
from zookeeper_server import missing as no_zookeeper

pytestmark = [pytest.mark.java, pytest.mark.takes(seconds=40)]

RELEASES = {"0.8.2.2": (0, 0), "0.9.0.1": (1, 1), "0.10.2.2": (2, 3)}  # of Produce, of Fetch
CODECS = ("none", "gzip", "snappy", "lz4")


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    if reason := no_zookeeper():
        pytest.skip(reason)
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.mark.parametrize("release", pick(short=list(RELEASES)[:1], long=list(RELEASES)))
@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
def test_scala_clients_of_a_broker_on_zookeeper(
    zookeeper: ZooKeeperServer, tmp_path: Path, release: str, storage: str
) -> None:
    """A consumer commits and leaves; another of its group goes on behind what it has read."""
    if reason := missing(release):
        pytest.skip(reason)
    connect = zookeeper.connect(zookeeper.new_chroot())
    brokers = Brokers(tmp_path)
    watched = Watched(brokers.start(connect, metrics_port="0"))
    watched.broker.create_topic("t")
    address = f"{watched.bootstrap},{connect}"
    lines = Lines(release, "ScalaClients", address)
    wanted: list[Row] = []
    words = [f"{text(row.key)}:{text(row.value)}" for row in RECORDS]
    for codec in CODECS:
        lines.ask("produce", codec, "t", *words)
        wanted += [
            row._replace(offset=len(wanted) + at, timestamp=-1) for at, row in enumerate(RECORDS)
        ]
    lines.ask("join", "g", "t", storage)
    assert [row_of(word) for word in lines.ask("read", 12)] == wanted[:12]
    lines.ask("commit")
    lines.ask("leave")
    lines.close()
    second = Lines(release, "ScalaClients", address)
    second.ask("join", "g", "t", storage)
    assert [row_of(word) for word in second.ask("read", 8)] == wanted[12:]
    second.ask("leave")
    second.close()
    sent = [set(sent_versions(watched, name)) for name in ("Produce", "FetchConsumer")]
    assert sent == [{version} for version in RELEASES[release]]
    assert bool(sent_versions(watched, "OffsetCommit")) == (storage == "kafka")
    brokers.stop()
