"""Clients of Kafka 0.8.2 to 0.10 and of today on one topic: each reads what every other produced.
In the long form there are Java clients of 0.11 to 4.4 too.

Each old request version must really have been sent: the broker counts requests by version.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from compat.java.driver import missing
from compat.old_java.old_clients import (
    JavaConsumer,
    JavaProducer,
    PythonConsumer,
    PythonProducer,
    Row,
    watched_broker,
)
from confluent_kafka import Consumer, Producer, TopicPartition
from long_form import pick
from telemetry.conftest import Watched

from barnabas import Broker
from barnabas.wire.batches import decode_batches

pytestmark = [pytest.mark.java, pytest.mark.takes(seconds=60)]

RELEASES = ("0.8.2.2", "0.9.0.1", "0.10.0.1", "0.10.2.2")
# With the versions of Produce and Fetch that they send. A consumer of 4.x has no poll(long);
# tests/compat/test_matrix.py has one.
LATER = pick(
    short=[],
    long=[
        ("0.11.0.3", 3, 5), ("1.1.1", 5, 7), ("2.1.1", 7, 10), ("2.7.2", 8, 12),
        ("3.9.2", 11, 17), ("4.3.1", 13, None), ("4.4.0", 13, None),
    ],
)  # fmt: skip
CODECS = ("none", "gzip", "snappy", "lz4")
T = 1_700_000_000_000
RECORDS = [
    Row(-1, b"key", b"value", T),
    Row(-1, None, b"no key", T + 5),
    Row(-1, b"tombstone", None, T - 3),
    Row(-1, b"", b"", T + 1),
    Row(-1, b"large", bytes(range(256)) * 60, T + 2),
]
TIMES_FROM = (0, 10)  # message format 1
DISCONNECTED = "NetworkException: The server disconnected before a response was received"


class Client(NamedTuple):
    """`produces`, `fetches`: the request version that it must send."""

    name: str
    release: tuple[int, ...]
    producer: Callable[[str], Any] | None
    produces: int | None
    consumer: Callable[[str], Any] | None
    fetches: int | None


class Today:
    """librdkafka, as a producer and a consumer."""

    def __init__(self, address: str) -> None:
        self._address = address

    def produce(self, topic: str, codec: str, records: list[Row]) -> list[int]:
        producer = Producer(
            {"bootstrap.servers": self._address, "compression.codec": codec, "linger.ms": 50}
        )
        offsets: list[int] = []
        for r in records:
            producer.produce(
                topic, r.value, r.key, 0, timestamp=r.timestamp, headers=[("h", b"new")],
                on_delivery=lambda error, told: offsets.append(told.offset()),
            )  # fmt: skip
        assert producer.flush(20) == 0
        return offsets

    def read(self, topic: str, offset: int, count: int) -> list[Row]:
        consumer = Consumer({"bootstrap.servers": self._address, "group.id": "today"})
        consumer.assign([TopicPartition(topic, 0, offset)])
        found = []
        while len(found) < count:
            (row,) = consumer.consume(1, timeout=20)
            assert row.error() is None
            stamp = row.timestamp()[1]
            found.append(Row(row.offset(), row.key(), row.value(), stamp))
        consumer.close()
        return found

    def close(self) -> None:
        pass


def _java(release: str, produces: int, fetches: int | None) -> Client:
    return Client(
        f"Java {release}",
        tuple(map(int, release.split("."))),
        lambda address: JavaProducer(release, address),
        produces,
        (lambda address: JavaConsumer(release, address)) if fetches is not None else None,
        fetches,
    )


def _scala(release: str, fetches: int) -> Client:
    """Its releases from 0.9 on send version 1."""
    return Client(
        f"SimpleConsumer {release}", tuple(map(int, release.split("."))), None, None,
        lambda address: JavaConsumer(release, address, "SimpleReader"), fetches,
    )  # fmt: skip


def _python(release: tuple[int, ...], produces: int, fetches: int) -> Client:
    return Client(
        f"kafka-python as of {'.'.join(map(str, release))}", release,
        lambda address: PythonProducer(release, address), produces,
        lambda address: PythonConsumer(release, address), fetches,
    )  # fmt: skip


CLIENTS = [
    _java("0.8.2.2", 0, None),  # its consumer has no poll yet
    _scala("0.8.2.2", 0),
    _java("0.9.0.1", 1, 1),
    _java("0.10.0.1", 2, 2),
    _java("0.10.2.2", 2, 3),
    _python((0, 8, 2), 0, 0),  # as of 0.8.1 it has no lz4, as of 0.8.0 no null values
    _python((0, 9), 1, 1),
    _python((0, 10), 2, 2),
    *(_java(*row) for row in LATER),
    # The last: a fetch of it that waits is counted after it has left.
    Client("librdkafka", (9,), Today, None, Today, None),
]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    for release in (*RELEASES, *(release for release, *_ in LATER)):
        reason = missing(release)
        if reason:
            pytest.skip(reason)
    with watched_broker(tmp_path_factory.mktemp("broker")) as started:
        yield started


def sent_versions(watched: Watched, request_name: str) -> dict[int, int]:
    """{version: how many requests of it were answered}"""
    family = watched.page()["kafka_network_requestmetrics_requests_total"]
    found = [(dict(labels), count) for (_, labels), count in family.samples.items()]
    return {
        int(labels["version"]): int(count)
        for labels, count in found
        if labels["request"] == request_name
    }


def stored(watched: Watched, topic: str) -> list:
    handle = watched.broker.node.loaded.logs.get(topic, 0).handle
    data = Path(handle.directory, f"{0:020}.log").read_bytes()
    return list(decode_batches(data, size_max=1 << 20))


@pytest.fixture(scope="module")
def produced(watched: Watched) -> list[tuple[Row, tuple[int, ...], str]]:
    """Every record of every producer and codec: as stored, with the producer's release and the
    codec."""
    watched.broker.create_topic("all")
    found = []
    for client in CLIENTS:
        if client.producer is None:
            continue
        producer = client.producer(watched.bootstrap)
        for codec in CODECS:
            before = sent_versions(watched, "Produce")
            offsets = producer.produce("all", codec, RECORDS)
            assert offsets == list(range(len(found), len(found) + len(RECORDS))), client.name
            after = sent_versions(watched, "Produce")
            if client.produces is not None:
                assert after[client.produces] > before.get(client.produces, 0), client.name
                assert sum(after.values()) - sum(before.values()) == (
                    after[client.produces] - before.get(client.produces, 0)
                ), f"{client.name} sent another version too"
            for offset, record in zip(offsets, RECORDS, strict=True):
                stamp = record.timestamp if client.release >= TIMES_FROM else -1
                found.append(
                    (record._replace(offset=offset, timestamp=stamp), client.release, codec)
                )
        producer.close()
    return found


def test_every_record_is_stored_in_format_2_with_its_codec(watched: Watched, produced) -> None:
    batches = stored(watched, "all")
    assert {batch.magic for batch in batches} == {2}
    rows = [
        (Row(r.offset, r.key, r.value, r.timestamp), CODECS[batch.codec])
        for batch in batches
        for r in batch.records
    ]
    assert rows == [(row, codec) for row, _, codec in produced]


@pytest.mark.parametrize(
    "client", [c for c in CLIENTS if c.consumer is not None], ids=lambda c: c.name
)
def test_each_client_reads_what_every_other_produced(
    watched: Watched, produced, client: Client
) -> None:
    assert client.consumer is not None
    before = sent_versions(watched, "FetchConsumer")
    consumer = client.consumer(watched.bootstrap)
    got = consumer.read("all", 0, len(produced))
    inside = consumer.read("all", 7, 3)  # in the middle of a wrapper
    consumer.close()
    after = sent_versions(watched, "FetchConsumer")
    times = client.release >= TIMES_FROM
    expected = [row if times else row._replace(timestamp=-1) for row, _, _ in produced]
    assert got == expected
    assert inside == expected[7:10]
    if client.fetches is not None:
        sent = {version for version in after if after[version] > before.get(version, 0)}
        assert sent == {client.fetches}


@pytest.mark.parametrize("release", pick(short=RELEASES[1:2], long=RELEASES[1:]))
def test_groups_of_old_consumers(watched: Watched, release: str) -> None:
    """A member commits and leaves; another of the same group goes on, and then one of today."""
    topic = f"group-{release}"
    watched.broker.create_topic(topic)
    today = Today(watched.bootstrap)
    today.produce(topic, "lz4", RECORDS)
    for _ in range(2):
        consumer = JavaConsumer(release, watched.bootstrap)
        consumer.lines.ask("join", f"g-{release}", topic)
        found: list[str] = []
        for _ in range(40):
            found += consumer.lines.ask("poll")
            if len(found) == len(RECORDS):
                break
        assert len(found) == len(RECORDS)
        for _ in range(40):  # polls of 300 ms; a heartbeat is due each 200 ms
            if sent_versions(watched, "Heartbeat"):
                break
            assert consumer.lines.ask("poll") == []
        consumer.lines.ask("commit")
        consumer.lines.ask("leave")
        consumer.close()
        today.produce(topic, "gzip", RECORDS)
    for key in ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "FindCoordinator"):
        assert 0 in sent_versions(watched, key), key
    after = Consumer({"bootstrap.servers": watched.bootstrap, "group.id": f"g-{release}",
                      "auto.offset.reset": "earliest"})  # fmt: skip
    after.subscribe([topic])
    rows = after.consume(len(RECORDS), timeout=20)
    assert [row.offset() for row in rows] == list(range(10, 15))
    after.close()


def test_offsets_of_the_simple_consumer(watched: Watched) -> None:
    """OffsetCommit and OffsetFetch 0 (the tree) and 1 (__consumer_offsets), ListOffsets 0."""
    watched.broker.create_topic("simple")
    Today(watched.bootstrap).produce("simple", "none", RECORDS)
    reader = JavaConsumer("0.8.2.2", watched.bootstrap, "SimpleReader")
    for version, offset in ((0, 3), (1, 4)):
        for _ in range(50):
            try:
                reader.lines.ask("commit", "gs", "simple", 0, offset, version)
                break
            except RuntimeError as error:  # the coordinator loads
                assert any(code in str(error) for code in ("14", "15", "16"))
                time.sleep(0.1)
        assert reader.lines.ask("committed", "gs", "simple", 0, version) == [str(offset)]
    assert reader.lines.ask("committed", "gs", "simple", 0, 0) == ["3"]
    assert reader.lines.ask("offsets", "simple", 0, -1) == ["5", "0"]
    assert reader.lines.ask("offsets", "simple", 0, -2) == ["0"]
    reader.close()
    for key, version in (
        ("OffsetCommit", 0),
        ("OffsetCommit", 1),
        ("OffsetFetch", 0),
        ("ListOffsets", 0),
    ):
        assert version in sent_versions(watched, key), key


@pytest.mark.parametrize("release", pick(short=RELEASES[3:], long=RELEASES[1:]))
def test_old_clients_fail_where_only_versions_of_kafka_4_are_served(tmp_path, release: str) -> None:
    """Kafka 4.3.1 closes the connection of Produce 0 to 2 and Fetch 0 to 3; each producer fails
    with this error there. (Consumers read nothing for 20 seconds, there and here.)"""
    settings = {"log.dirs": str(tmp_path), "api.versions.of": "4.4"}
    with Broker(settings | {"listeners": "PLAINTEXT://127.0.0.1:0"}) as broker:
        broker.create_topic("t")
        producer = JavaProducer(release, broker.bootstrap_servers)
        with pytest.raises(RuntimeError, match=DISCONNECTED):
            producer.produce("t", "none", RECORDS[:1])
        producer.close()
        broker.assert_records("t", [])
