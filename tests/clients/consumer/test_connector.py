"""ConsumerConnector with a group coordinator: streams, offsets, rebalances and failures."""

import threading
from collections.abc import Callable, Iterable

import pytest
from waiting import soon

from barnabas import Broker
from barnabas.clients import Blacklist, Consumer, ConsumerConnector, ConsumerTimeout, Whitelist
from barnabas.clients.consumer.messages import MessageAndMetadata
from barnabas.clients.consumer.streams import KafkaStream
from barnabas.clients.error_mapping import InvalidMessageException

Connect = Callable[..., ConsumerConnector]
Write = Callable[..., None]
PATIENCE_S = 30.0


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % i for i in range(first, end)]


def take(stream: KafkaStream, count: int) -> list[MessageAndMetadata]:
    return [next(stream) for _ in range(count)]


class Reading:
    """Threads that read streams to the end and keep the messages."""

    def __init__(self, streams: Iterable[KafkaStream]) -> None:
        self.found: list[list[MessageAndMetadata]] = []
        self.threads = []
        for stream in streams:
            rows: list[MessageAndMetadata] = []
            self.found.append(rows)
            self.threads.append(threading.Thread(target=self._read, args=(stream, rows)))
            self.threads[-1].start()

    @staticmethod
    def _read(stream: KafkaStream, rows: list[MessageAndMetadata]) -> None:
        while True:
            try:
                rows.append(next(stream))
            except ConsumerTimeout:
                continue
            except StopIteration:
                return

    @property
    def values(self) -> list[bytes | None]:
        return sorted(row.raw_message for rows in self.found for row in rows)

    def owned(self) -> list[set[int]]:
        return [{row.partition for row in rows} for rows in self.found]

    def join(self) -> None:
        for thread in self.threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


# --------------------------------------------------------------------------------------- streams


@pytest.mark.parametrize("fetchers", [1, 3])
def test_a_stream_gives_all_partitions_in_order(
    connect: Connect, topic: str, write: Write, fetchers: int
):
    for partition in range(4):
        write(topic, partition, numbers(0, 500), batch_bytes=2000)
    (stream,) = connect({"num.consumer.fetchers": fetchers}).create_message_streams({topic: 1})[
        topic
    ]
    found = take(stream, 2000)
    for partition in range(4):
        rows = [row for row in found if row.partition == partition]
        assert [row.message for row in rows] == numbers(0, 500)
        assert [row.offset for row in rows] == list(range(500))
    assert (found[0].topic, found[0].key) == (topic, b"k0")


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec(connect: Connect, topic: str, write: Write, codec: str):
    write(topic, 2, numbers(0, 100), codec=codec)
    (stream,) = connect().create_message_streams({topic: 1})[topic]
    assert [row.message for row in take(stream, 100)] == numbers(0, 100)


def test_streams_of_a_topic_share_its_partitions(connect: Connect, topic: str, write: Write):
    for partition in range(4):
        write(topic, partition, numbers(0, 50))
    connector = connect()
    reading = Reading(connector.create_message_streams({topic: 3})[topic])
    soon(lambda: len(reading.values) == 200)
    connector.shutdown()
    reading.join()
    assert reading.owned() == [{0, 1}, {2}, {3}]


def test_decoders_for_keys_and_values(connect: Connect, topic: str, write: Write):
    write(topic, 0, [b"1", b"nonsense", b"[2]"])
    connector = connect({"key.serializer.class": "string"})
    (stream,) = connector.create_message_streams({topic: 1}, value_decoder="json")[topic]
    first, second, third = take(stream, 3)
    assert (first.key, first.message, third.message) == ("k1", 1, [2])
    with pytest.raises(ValueError):
        _ = second.message
    assert second.raw_message == b"nonsense"


def test_consumer_timeout_leaves_the_stream_as_it_is(connect: Connect, topic: str, write: Write):
    connector = connect({"consumer.timeout.ms": 50})
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    for _ in range(2):
        with pytest.raises(ConsumerTimeout, match=r"within 0\.05 s"):
            next(stream)
    write(topic, 0, [b"late"])
    soon(lambda: _has(stream, b"late"))


def _has(stream: KafkaStream, value: bytes) -> bool:
    try:
        return next(stream).message == value
    except ConsumerTimeout:
        return False


def test_shutdown_ends_the_loop_of_another_thread(connect: Connect, topic: str, write: Write):
    connector = connect({"consumer.timeout.ms": -1})
    reading = Reading(connector.create_message_streams({topic: 2})[topic])
    write(topic, 0, [b"a"])
    soon(lambda: reading.values == [b"a"])
    connector.shutdown()
    connector.shutdown()
    reading.join()
    with pytest.raises(RuntimeError, match="shut down"):
        connector.create_message_streams({topic: 1})


def test_streams_are_made_once_and_in_sane_numbers(connect: Connect, topic: str):
    connector = connect()
    with pytest.raises(ValueError, match="at least one topic"):
        connector.create_message_streams({})
    with pytest.raises(ValueError, match="0 streams"):
        connector.create_message_streams({topic: 0})
    connector.create_message_streams({topic: 1})
    with pytest.raises(RuntimeError, match="once"):
        connector.create_message_streams({topic: 1})
    with pytest.raises(RuntimeError, match="once"):
        connector.create_message_streams_by_filter(Whitelist(".*"))
    with pytest.raises(RuntimeError, match="before the streams are made"):
        connector.set_consumer_rebalance_listener(None)  # type: ignore[arg-type]


def test_a_slow_stream_holds_up_no_other_one(connect: Connect, topic: str, write: Write):
    """The first stream has more messages than its queue can hold, and no thread reads it."""
    for partition in range(4):
        write(topic, partition, [b"x" * 1000] * 200, batch_bytes=5000)
    connector = connect({"fetch.message.max.bytes": 5000, "queued.max.message.chunks": 1})
    slow, quick = connector.create_message_streams({topic: 2})[topic]
    assert {row.partition for row in take(quick, 400)} == {2, 3}
    held = [info for info in connector._infos.values() if info.name.partition < 2]
    assert all(info.fetch_offset <= 25 for info in held)  # one chunk in the queue, one beside it
    assert len(take(slow, 400)) == 400


# --------------------------------------------------------------------------------------- filters


def test_filters_take_in_topics_that_come_later(
    old_broker: Broker, connect: Connect, topic: str, write: Write
):
    old_broker.create_topic(f"white-{topic}-a", partitions=2)
    write(f"white-{topic}-a", 1, [b"first"])
    connector = connect({"topic.metadata.refresh.interval.ms": 100})
    (stream,) = connector.create_message_streams_by_filter(Whitelist(f"white-{topic}-.*"))
    assert next(stream).topic == f"white-{topic}-a"
    old_broker.create_topic(f"white-{topic}-b", partitions=2)
    write(f"white-{topic}-b", 0, [b"second"])
    found = next(stream)
    assert (found.topic, found.message) == (f"white-{topic}-b", b"second")


def test_a_blacklist_reads_all_others(old_broker: Broker, connect: Connect, topic: str):
    others = ",".join(name for name in old_broker.topics if name != topic)
    connector = connect()
    connector.create_message_streams_by_filter(Blacklist(others), 2)
    assert {name.topic for name in connector._infos} == {topic}


def test_new_partitions_are_read(old_broker: Broker, connect: Connect, write: Write, group: str):
    from barnabas.client import Cluster, create_partitions

    name = old_broker.create_topic(f"grows-{group}")
    connector = connect({"topic.metadata.refresh.interval.ms": 100})
    (stream,) = connector.create_message_streams({name: 1})[name]
    with Cluster(old_broker.bootstrap_servers) as cluster:
        create_partitions(cluster, {name: 3})
    write(name, 2, [b"new"])
    assert next(stream).message == b"new"


def test_a_topic_that_is_not_there_yet_is_read_once_it_is(
    old_broker: Broker, connect: Connect, write: Write, group: str
):
    name = f"later-{group}"
    connector = connect({"topic.metadata.refresh.interval.ms": 100})
    (stream,) = connector.create_message_streams({name: 1})[name]
    old_broker.create_topic(name, partitions=2)
    write(name, 1, [b"at last"])
    assert next(stream).message == b"at last"


# --------------------------------------------------------------------------------------- offsets


def test_a_new_group_begins_where_auto_offset_reset_says(
    connect: Connect, topic: str, write: Write, group: str
):
    write(topic, 0, [b"old"])
    largest = connect({"auto.offset.reset": "largest", "group.id": f"{group}-l"})
    (late,) = largest.create_message_streams({topic: 1})[topic]
    soon(lambda: all(info.fetch_offset >= 0 for info in largest._infos.values()))
    (early,) = connect().create_message_streams({topic: 1})[topic]
    write(topic, 0, [b"new"])
    assert next(late).message == b"new"
    assert [row.message for row in take(early, 2)] == [b"old", b"new"]


def test_an_offset_that_is_no_longer_there_is_reset(
    old_broker: Broker, connect: Connect, topic: str, write: Write
):
    from barnabas.client import Cluster, delete_records

    write(topic, 0, numbers(0, 10))
    first = connect()
    first.commit_offsets({(topic, 0): 2})
    first.shutdown()
    with Cluster(old_broker.bootstrap_servers) as cluster:
        delete_records(cluster, topic, {0: 5})
    (stream,) = connect().create_message_streams({topic: 1})[topic]
    assert next(stream).offset == 5


def test_shutdown_commits_what_was_given_out(connect: Connect, topic: str, write: Write):
    write(topic, 0, numbers(0, 10))
    for first in (0, 4):
        connector = connect()
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        assert [row.offset for row in take(stream, 4)] == list(range(first, first + 4))
        connector.shutdown()


def test_without_auto_commit_the_caller_decides(connect: Connect, topic: str, write: Write):
    write(topic, 0, numbers(0, 10))

    def read(*, commit: bool) -> list[int]:
        connector = connect({"auto.commit.enable": "false"})
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        found = [row.offset for row in take(stream, 2)]
        if commit:
            connector.commit_offsets()
            take(stream, 2)
        connector.shutdown()
        return found

    assert read(commit=False) == [0, 1]
    assert read(commit=True) == [0, 1]
    assert read(commit=False) == [2, 3]


def test_auto_commit_happens_by_itself(
    old_broker: Broker, connect: Connect, topic: str, write: Write, group: str
):
    from barnabas.client import Cluster
    from barnabas.client.groups import committed_offsets

    write(topic, 0, numbers(0, 10))
    (stream,) = connect({"auto.commit.interval.ms": 50}).create_message_streams({topic: 1})[topic]
    take(stream, 7)
    with Cluster(old_broker.bootstrap_servers) as cluster:
        soon(lambda: committed_offsets(cluster, group).get(topic, {}).get(0) == 7)


def test_a_connector_that_dies_has_its_messages_read_again(
    connect: Connect, topic: str, write: Write
):
    """At least once: no uncommitted message is lost."""
    write(topic, 0, numbers(0, 10))
    dead = connect({"session.timeout.ms": 500})
    (stream,) = dead.create_message_streams({topic: 1})[topic]
    take(stream, 3)
    dead.commit_offsets()
    take(stream, 3)
    dead._group.stop()  # no heartbeat and no LeaveGroup, as after kill -9
    (other,) = connect().create_message_streams({topic: 1})[topic]
    assert next(other).offset == 3


# ------------------------------------------------------------------------------------ rebalancing


def test_members_share_by_the_published_algorithm_and_lose_nothing(
    connect: Connect, topic: str, write: Write
):
    one = connect()
    first = Reading(one.create_message_streams({topic: 1})[topic])
    for partition in range(4):
        write(topic, partition, numbers(0, 100))
    soon(lambda: len(first.values) == 400)
    two = connect()
    second = Reading(two.create_message_streams({topic: 1})[topic])
    soon(lambda: len(one._infos) == len(two._infos) == 2)
    shares = [sorted(name.partition for name in c._infos) for c in (one, two)]
    assert sorted(shares) == [[0, 1], [2, 3]]
    for partition in range(4):
        write(topic, partition, numbers(100, 200))
    soon(lambda: len(first.values) + len(second.values) == 800)
    one.shutdown()
    first.join()
    soon(lambda: len(two._infos) == 4)
    for partition in range(4):
        write(topic, partition, numbers(200, 300))
    soon(lambda: len(first.values) + len(second.values) == 1200)
    two.shutdown()
    second.join()
    # Each was read once, because a member commits before it releases partitions.
    assert sorted(first.values + second.values) == sorted(4 * numbers(0, 300))


def test_more_streams_than_partitions_leaves_some_without(
    connect: Connect, topic: str, write: Write
):
    one, two = connect(), connect()
    one.create_message_streams({topic: 3})
    two.create_message_streams({topic: 3})
    soon(lambda: len(one._infos) + len(two._infos) == 4)
    # The first three streams of all belong to one member: it has three partitions.
    assert sorted((len(one._infos), len(two._infos))) == [1, 3]


def test_a_listener_may_commit_before_partitions_go(connect: Connect, topic: str, write: Write):
    write(topic, 0, numbers(0, 10))
    write(topic, 2, numbers(0, 10))
    told: list[dict[str, set[int]]] = []
    one = connect({"auto.commit.enable": False})

    class Commits:
        def before_releasing_partitions(self, owned: dict[str, set[int]]) -> None:
            told.append(owned)
            one.commit_offsets()

    one.set_consumer_rebalance_listener(Commits())
    (stream,) = one.create_message_streams({topic: 1})[topic]
    take(stream, 20)
    two = connect({"auto.commit.enable": False, "consumer.timeout.ms": 300})
    (other,) = two.create_message_streams({topic: 1})[topic]
    soon(lambda: len(one._infos) == len(two._infos) == 2)
    assert told[0] == {topic: {0, 1, 2, 3}}
    with pytest.raises(ConsumerTimeout):  # no message is delivered twice
        next(other)


def test_a_listener_that_raises_ends_nothing(connect: Connect, topic: str, write: Write):
    one = connect({"rebalance.backoff.ms": 50})
    calls: list[int] = []

    class Breaks:
        def before_releasing_partitions(self, owned: object) -> None:
            calls.append(1)
            if len(calls) == 1:
                raise ZeroDivisionError("planted")

    one.set_consumer_rebalance_listener(Breaks())
    one.create_message_streams({topic: 1})
    two = connect()
    two.create_message_streams({topic: 1})
    soon(lambda: len(one._infos) == len(two._infos) == 2 and calls)


# ------------------------------------------------------------------------------- what goes wrong


def test_a_missing_broker_is_reported_at_once(connect: Connect):
    from barnabas.client import CannotConnect

    connector = connect(
        {"bootstrap.servers": "127.0.0.1:1", "rebalance.max.retries": 2, "rebalance.backoff.ms": 1}
    )
    with pytest.raises(CannotConnect, match="127.0.0.1:1"):
        connector.create_message_streams({"t": 1})


def test_a_refused_group_is_reported_at_once(old_broker: Broker, connect: Connect, topic: str):
    from barnabas.errors import InvalidSessionTimeout

    connector = connect({"session.timeout.ms": 2, "heartbeat.interval.ms": 1})
    with pytest.raises(InvalidSessionTimeout):
        connector.create_message_streams({topic: 1})


def test_a_restart_of_the_broker_is_lived_through(group: str):
    with Broker({"log.retention.ms": "-1"}) as broker:
        name = broker.create_topic("survives", partitions=2)
        settings = {
            "group.id": group,
            "bootstrap.servers": broker.bootstrap_servers,
            "auto.offset.reset": "smallest",
            "refresh.leader.backoff.ms": "50",
            "heartbeat.interval.ms": "100",
            "consumer.timeout.ms": "30000",
        }
        connector = Consumer.create(settings)
        (stream,) = connector.create_message_streams({name: 1})[name]
        for value in (b"before", b"after"):
            _send(broker, name, value)
            assert next(stream).message == value
            if value == b"before":
                broker.restart()
        connector.commit_offsets()
        connector.shutdown()


def _send(broker: Broker, topic: str, value: bytes) -> None:
    from barnabas.client import Cluster, Producer

    with Cluster(broker.bootstrap_servers) as cluster, Producer(cluster, topic) as producer:
        producer.send(value, partition=0)


def test_passing_errors_of_fetches_are_passed_over(
    old_broker: Broker, connect: Connect, topic: str, write: Write
):
    write(topic, 0, [b"a"])
    fault = old_broker.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=2, topic=topic)
    (stream,) = connect().create_message_streams({topic: 1})[topic]
    assert next(stream).message == b"a"
    assert fault.fired == 2


def test_an_error_that_stays_is_raised_by_the_stream(
    old_broker: Broker, connect: Connect, topic: str, write: Write
):
    from barnabas.errors import TopicAuthorizationFailed

    write(topic, 0, [b"a"])
    write(topic, 3, [b"b"])
    old_broker.fail("Fetch", "TOPIC_AUTHORIZATION_FAILED", times=1, topic=topic)
    connector = connect({"consumer.timeout.ms": 300})
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    with pytest.raises(TopicAuthorizationFailed):
        next(stream)


def test_a_damaged_batch_is_raised_by_the_stream_behind_what_is_whole(
    connect: Connect, topic: str, write: Write, monkeypatch: pytest.MonkeyPatch
):
    import barnabas.clients.consumer.fetchers as fetchers

    write(topic, 0, [b"a" * 50], batch_bytes=100)
    write(topic, 0, [b"b" * 50], batch_bytes=100)
    whole = fetchers.decode_batches

    def damaged(data: bytes, **options: object) -> object:
        at = bytes(data).find(b"b" * 50)
        spoilt = bytes(data)[:at] + b"c" + bytes(data)[at + 1 :] if at >= 0 else data
        return whole(spoilt, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(fetchers, "decode_batches", damaged)
    (stream,) = connect().create_message_streams({topic: 1})[topic]
    assert next(stream).message == b"a" * 50
    with pytest.raises(InvalidMessageException, match=r"\[.*,0\] from 1 on"):
        next(stream)


def test_no_thread_stays_behind(connect: Connect, topic: str, write: Write):
    before = set(threading.enumerate())
    write(topic, 0, [b"a"])
    connector = connect()
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    next(stream)
    connector.shutdown()
    soon(lambda: not set(threading.enumerate()) - before)
