"""Examples of what the old design document promised for consumers, as a user would write them."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas import Broker
from barnabas.client import Cluster, Producer
from barnabas.clients import ConsumerConnector, FetchRequest, SimpleConsumer

Connect = Callable[..., ConsumerConnector]
Write = Callable[..., None]


class Downstream:
    """A service that receives page views; it may be unavailable, and refuses damaged ones."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.refusals_left = 0
        self.attempts = 0

    def take(self, value: bytes) -> None:
        self.attempts += 1
        if value.startswith(b"broken"):
            raise ValueError("it will never be taken")
        if self.refusals_left:
            self.refusals_left -= 1
            raise ConnectionError("away")
        self.got.append(value)


def forward(
    connector: ConsumerConnector, topic: str, downstream: Downstream, dead: Producer, count: int
) -> None:
    """Forwards messages. While the service is unavailable it reads no messages, and the stream
    fetches no more than its queue holds; refused messages go to the dead-letter topic, with their
    offsets. An offset is committed when its message is in one of the two."""
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    for message in stream:
        while True:
            try:
                downstream.take(message.message)
            except ConnectionError:
                time.sleep(0.01)  # the pause
                continue
            except ValueError as error:
                place = f"{message.topic}/{message.partition}/{message.offset}".encode()
                reason = str(error).encode()
                dead.send(message.message, place, headers=[("reason", reason)], partition=0)
                dead.flush()
            break
        connector.commit_offsets()
        count -= 1
        if count == 0:
            break


def test_a_dead_letter_topic_with_pause_and_retry(
    old_broker: Broker, connect: Connect, topic: str, write: Write, group: str
):
    dead_topic = old_broker.create_topic(f"{topic}-dead")
    sent = [b"broken" if i in (3, 7) else b"view %d" % i for i in range(10)]
    write(topic, 0, sent)
    downstream = Downstream()
    downstream.refusals_left = 25
    with Cluster(old_broker.bootstrap_servers) as cluster, Producer(cluster, dead_topic) as dead:
        # It dies in the middle, and its group continues at the committed offset.
        for count in (5, 5):
            connector = connect({"auto.commit.enable": "false"})
            forward(connector, topic, downstream, dead, count)
            connector.shutdown()
    good = [value for value in sent if value != b"broken"]
    assert downstream.got == good and downstream.attempts == len(sent) + 25
    # Once the cause is repaired, the dead letters are read again from their own topic.
    mending = connect({"group.id": f"{group}-mends", "consumer.timeout.ms": 10_000})
    (letters,) = mending.create_message_streams({dead_topic: 1})[dead_topic]
    found = [next(letters) for _ in range(2)]
    assert [letter.key for letter in found] == [f"{topic}/0/3".encode(), f"{topic}/0/7".encode()]
    assert [dict(letter.headers)["reason"] for letter in found] == 2 * [b"it will never be taken"]
    for letter in found:
        downstream.take(letter.message.replace(b"broken", b"mended"))
    assert downstream.got == [*good, b"mended", b"mended"]


def test_rewind_after_a_bug(old_broker: Broker, connect: Connect, topic: str, write: Write, group):
    """A consumer has counted wrongly since a known time. Its group is reset to that time and counts
    again, because the broker still has the messages."""
    with Cluster(old_broker.bootstrap_servers) as cluster, Producer(cluster, topic) as producer:
        for hour in range(6):
            for partition in range(4):
                for _ in range(10):
                    producer.send(b"%d" % hour, timestamp=1000 * hour, partition=partition)
            producer.flush()  # a batch an hour, as time passes

    def count(is_right: bool, end: int) -> dict[bytes, int]:
        found: dict[bytes, int] = {}
        connector = connect({"consumer.timeout.ms": 10_000})
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        for _ in range(end):
            hour = next(stream).message
            found[hour] = found.get(hour, 0) + (1 if is_right or hour < b"4" else 2)
        connector.shutdown()
        return found

    counted = count(is_right=False, end=240)
    assert counted[b"3"] == 40 and counted[b"4"] == counted[b"5"] == 80  # the bug, since hour 4
    host, _, port = old_broker.bootstrap_servers.rpartition(":")
    with SimpleConsumer(host, int(port)) as simple:
        simple._connected()[0].versions[2] = (1, 7)  # by timestamps, as current brokers do
        back = {(topic, p): simple.get_offsets_before(topic, p, 4000, 1)[0] for p in range(4)}
        assert set(back.values()) == {40}
        assert set(simple.commit_offsets(group, back).values()) == {0}
    counted |= count(is_right=True, end=80)
    assert counted == {b"%d" % hour: 40 for hour in range(6)}


class Killed(Exception):
    """The process ends here."""


class Totals:
    """Results and offsets in one database transaction, so that each message counts exactly once."""

    def __init__(self, file: Path) -> None:
        self.database = sqlite3.connect(file, isolation_level=None)
        self.database.execute("CREATE TABLE IF NOT EXISTS totals (key TEXT PRIMARY KEY, total)")
        self.database.execute(
            "CREATE TABLE IF NOT EXISTS offsets (topic, part, next, PRIMARY KEY (topic, part))"
        )

    def next_offset(self, topic: str, partition: int) -> int:
        query = "SELECT next FROM offsets WHERE topic = ? AND part = ?"
        row = self.database.execute(query, (topic, partition)).fetchone()
        return 0 if row is None else row[0]

    def add(self, topic: str, partition: int, messages: list, dies: Callable[[], bool]) -> None:
        self.database.execute("BEGIN")
        for row in messages:
            key, amount = row.message.payload.decode().split("=")
            self.database.execute(
                "INSERT INTO totals VALUES (?1, ?2)"
                " ON CONFLICT (key) DO UPDATE SET total = total + ?2",
                (key, int(amount)),
            )
            if dies():
                self.database.close()  # an open transaction is rolled back
                raise Killed
        self.database.execute(
            "INSERT OR REPLACE INTO offsets VALUES (?, ?, ?)",
            (topic, partition, messages[-1].next_offset),
        )
        self.database.execute("COMMIT")
        if dies():
            self.database.close()
            raise Killed


@pytest.fixture
def simple(old_broker: Broker) -> Iterator[SimpleConsumer]:
    host, _, port = old_broker.bootstrap_servers.rpartition(":")
    with SimpleConsumer(host, int(port)) as made:
        yield made


@pytest.mark.parametrize("steps", [1, 7, 40, 41, 100])
def test_offsets_beside_results_in_one_transaction(
    simple: SimpleConsumer, topic: str, write: Write, tmp_path: Path, steps: int
):
    """Killed after every so many steps, in the middle of a transaction or behind it."""
    for partition in range(4):
        rows = [b"%s=%d" % (b"ab"[i % 2 : i % 2 + 1], i) for i in range(100)]
        write(topic, partition, rows, batch_bytes=200)
    file, deaths, left = tmp_path / "totals.db", 0, [steps]

    def dies() -> bool:
        left[0] -= 1
        return left[0] == 0

    def run() -> None:
        totals = Totals(file)
        for partition in range(4):
            while (offset := totals.next_offset(topic, partition)) < 100:
                found = list(simple.fetch(FetchRequest(topic, partition, offset, 1000)))
                totals.add(topic, partition, found, dies)
        totals.database.close()

    while True:
        try:
            run()
            break
        except Killed:
            deaths += 1
            left[0] = steps + 40 * deaths  # so that each run makes progress
    assert deaths > 0
    rows = dict(sqlite3.connect(file).execute("SELECT key, total FROM totals"))
    assert rows == {"a": 4 * sum(range(0, 100, 2)), "b": 4 * sum(range(1, 100, 2))}


def test_a_paused_stream_fetches_no_more_than_its_queue_takes(
    connect: Connect, topic: str, write: Write
):
    write(topic, 0, [b"x" * 1000] * 500, batch_bytes=10_000)
    connector = connect({"fetch.message.max.bytes": 10_000, "queued.max.message.chunks": 2})
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    next(stream)
    info = next(info for info in connector._infos.values() if info.name.partition == 0)
    seen = -1
    while seen != info.fetch_offset:  # until it stands still
        seen = info.fetch_offset
        time.sleep(0.2)
    assert seen <= 4 * 10  # one being read, two in the queue, one that waits for the queue
    assert sum(1 for _ in range(499) if next(stream)) == 499
