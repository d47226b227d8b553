"""SimpleConsumer: fetch, multifetch, offsets before a time, and a group's offsets."""

import random
from collections.abc import Callable, Iterator

import pytest

from barnabas import Broker
from barnabas.clients import (
    ErrorMapping,
    FetchRequest,
    FetchRequestBuilder,
    SimpleConsumer,
    TopicAndPartition,
)
from barnabas.clients.consumer.requests import EARLIEST, LATEST
from barnabas.clients.error_mapping import (
    InvalidMessageException,
    NotLeaderForPartitionException,
    OffsetOutOfRangeException,
    UnknownException,
    UnknownTopicOrPartitionException,
)
from barnabas.errors import ERRORS

Write = Callable[..., None]


@pytest.fixture
def consumer(old_broker: Broker) -> Iterator[SimpleConsumer]:
    host, _, port = old_broker.bootstrap_servers.rpartition(":")
    with SimpleConsumer(host, int(port), so_timeout=20_000, buffer_size=64 * 1024) as made:
        yield made


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])
def test_fetch_begins_at_the_offset_asked_for(
    consumer: SimpleConsumer, topic: str, write: Write, codec: str
):
    sent = [b"%d" % i for i in range(100)]
    write(topic, 1, sent, codec=codec)
    found = list(consumer.fetch(FetchRequest(topic, 1, 37, 1_000_000)))  # amid a batch
    assert [row.message.payload for row in found] == sent[37:]
    assert [row.offset for row in found] == list(range(37, 100))
    assert found[0].next_offset == 38
    assert (found[0].message.key, found[0].message.payload_size) == (b"k37", 2)


def test_fetch_of_the_end_gives_an_empty_set(consumer: SimpleConsumer, topic: str, write: Write):
    write(topic, 0, [b"a", b"b"])
    found = consumer.fetch(FetchRequest(topic, 0, 2, 1000))
    assert list(found) == [] and found.size_in_bytes == 0 and found.high_watermark == 2


def test_a_small_fetch_gets_whole_batches_and_goes_on(
    consumer: SimpleConsumer, topic: str, write: Write
):
    sent = [b"x" * 100 for _ in range(200)]
    write(topic, 0, sent, batch_bytes=1000)
    got, offset, fetches = [], 0, 0
    while offset < len(sent):
        rows = list(consumer.fetch(FetchRequest(topic, 0, offset, 1500)))
        assert rows, "one batch at least, however small the size"
        got += [row.message.payload for row in rows]
        offset, fetches = rows[-1].next_offset, fetches + 1
    assert got == sent and fetches > 10


def test_multifetch_tells_each_partition_its_own_error(
    consumer: SimpleConsumer, topic: str, write: Write
):
    write(topic, 0, [b"a"])
    write(topic, 2, [b"b", b"c"])
    sets = list(
        consumer.multifetch(
            [
                FetchRequest(topic, 2, 1, 1000),
                FetchRequest(topic, 0, 17, 1000),
                FetchRequest(topic, 99, 0, 1000),
                FetchRequest(topic, 0 + 1, 0, 1000),
            ]
        )
    )
    assert [row.message.payload for row in sets[0]] == [b"c"]
    assert sets[1].error_code == ErrorMapping.OFFSET_OUT_OF_RANGE
    with pytest.raises(OffsetOutOfRangeException):
        list(sets[1])
    with pytest.raises(UnknownTopicOrPartitionException):
        list(sets[2])
    assert list(sets[3]) == []


def test_a_request_from_the_builder_of_0_8(consumer: SimpleConsumer, topic: str, write: Write):
    write(topic, 0, [b"a"])
    asked = (
        FetchRequestBuilder()
        .add_fetch(topic, 0, 0, 1000)
        .add_fetch(topic, 3, 5, 1000)
        .max_wait(10)
        .min_bytes(1)
        .build()
    )
    answer = consumer.multifetch(asked)
    assert answer.has_error and len(answer) == 2
    assert answer.error_code(topic, 0) == ErrorMapping.NO_ERROR
    assert answer.error_code(topic, 3) == ErrorMapping.OFFSET_OUT_OF_RANGE
    assert answer.high_watermark(topic, 0) == 1
    assert [row.message.payload for row in answer.message_set(topic, 0)] == [b"a"]
    with pytest.raises(KeyError):
        answer.message_set(topic, 1)


def test_requests_that_ask_for_nothing_are_refused():
    with pytest.raises(ValueError, match="must name at least one partition"):
        FetchRequestBuilder().build()
    with pytest.raises(ValueError, match="offset must be 0 or greater"):
        FetchRequest("t", 0, -1, 1000)
    with pytest.raises(ValueError, match="size 1 or greater"):
        FetchRequest("t", 0, 0, 0)


def test_a_damaged_batch_raises_invalid_message(old_broker: Broker, topic: str, write: Write):
    host, _, port = old_broker.bootstrap_servers.rpartition(":")
    write(topic, 0, [b"some value that is looked for"])
    with SimpleConsumer(host, int(port)) as consumer:
        whole = consumer.fetch(FetchRequest(topic, 0, 0, 1000))
        damaged = bytearray(whole._data)
        damaged[-3] ^= 1
        whole._data = memoryview(bytes(damaged))
        with pytest.raises(InvalidMessageException, match="from offset 0 on"):
            list(whole)


# ------------------------------------------------------------------------------------- offsets


@pytest.fixture(params=["old broker", "broker of today"])
def both(consumer: SimpleConsumer, request: pytest.FixtureRequest) -> SimpleConsumer:
    """Current brokers (Kafka 4) do not serve ListOffsets 0, which lists segments."""
    if request.param == "broker of today":
        connection, _ = consumer._connected()
        connection.versions[2] = (1, connection.versions[2][1])
    return consumer


def test_offsets_before_the_end_and_the_start(both: SimpleConsumer, topic: str, write: Write):
    write(topic, 0, [b"a", b"b", b"c"])
    assert both.get_offsets_before(topic, 0, LATEST, 1) == [3]
    assert both.get_offsets_before(topic, 0, EARLIEST, 1) == [0]
    assert both.get_offsets_before(topic, 0, LATEST, 10) == [3, 0]
    assert both.earliest_or_latest_offset(topic, 0, LATEST) == 3
    assert both.get_offsets_before(topic, 1, LATEST, 10) == [0]
    with pytest.raises(UnknownTopicOrPartitionException):
        both.get_offsets_before(topic, 99, LATEST, 1)
    with pytest.raises(ValueError, match="must be 1 or greater"):
        both.get_offsets_before(topic, 0, LATEST, 0)


def test_offsets_before_a_time_are_those_of_segments(
    old_broker: Broker, consumer: SimpleConsumer, write: Write
):
    name = f"segments-{random.randrange(10**9)}"
    old_broker.create_topic(name, configs={"segment.bytes": "10000"})
    for _ in range(10):
        write(name, 0, [b"x" * 2000])
    found = consumer.get_offsets_before(name, 0, LATEST, 100)
    assert found == sorted(found, reverse=True) and found[0] == 10 and found[-1] == 0
    assert 3 <= len(found) <= 11
    assert consumer.get_offsets_before(name, 0, LATEST, 2) == found[:2]
    assert consumer.get_offsets_before(name, 0, 1, 100) == []  # nothing was there in 1970


def test_a_time_on_a_broker_of_today(old_broker: Broker, topic: str, consumer: SimpleConsumer):
    from barnabas.client import Cluster, Producer

    with Cluster(old_broker.bootstrap_servers) as cluster, Producer(cluster, topic) as producer:
        for at in (1000, 2000, 3000):
            producer.send(b"v", timestamp=at, partition=0)
    connection, _ = consumer._connected()
    connection.versions[2] = (1, connection.versions[2][1])
    assert consumer.get_offsets_before(topic, 0, 2000, 5) == [1, 0]
    assert consumer.get_offsets_before(topic, 0, 2001, 5) == [2, 0]
    assert consumer.get_offsets_before(topic, 0, 9000, 5) == [3, 0]


def test_a_groups_offsets_are_kept_and_returned(consumer: SimpleConsumer, topic: str, group: str):
    told = consumer.fetch_offsets(group, [(topic, 0), (topic, 1)])
    assert told == {(topic, 0): -1, (topic, 1): -1}
    answer = consumer.commit_offsets(group, {(topic, 0): 17, (topic, 1): 4}, "why")
    assert answer == {(topic, 0): ErrorMapping.NO_ERROR, (topic, 1): ErrorMapping.NO_ERROR}
    found = consumer.fetch_offsets(group, [(topic, 0), (topic, 1), (topic, 2)])
    assert found == {(topic, 0): 17, (topic, 1): 4, (topic, 2): -1}
    assert str(next(iter(found))) == f"[{topic},0]"
    refused = consumer.commit_offsets(group, {(topic, 99): 1})
    assert refused == {TopicAndPartition(topic, 99): ErrorMapping.UNKNOWN_TOPIC_OR_PARTITION}


# ------------------------------------------------------------------------------------ the rest


def test_a_lost_connection_is_made_again(topic: str, group: str):
    with Broker() as broker:
        broker.create_topic(topic)
        host, _, port = broker.bootstrap_servers.rpartition(":")
        with SimpleConsumer(host, int(port)) as consumer:
            assert consumer.get_offsets_before(topic, 0, LATEST, 1) == [0]
            assert consumer.commit_offsets(group, {(topic, 0): 0})[(topic, 0)] == 0
            broker.restart()
            assert consumer.get_offsets_before(topic, 0, LATEST, 1) == [0]


def test_codes_and_exceptions_map_both_ways():
    names = {name for name in vars(ErrorMapping) if name.isupper()}
    assert len(names) == 22  # every code of 0.8.2
    for name in names - {"NO_ERROR"}:
        code = getattr(ErrorMapping, name)
        kind = ErrorMapping.exception_for(code)
        assert ErrorMapping.code_for(kind) == code == ErrorMapping.code_for(kind())
        with pytest.raises(kind):
            ErrorMapping.maybe_throw_exception(code)
    ErrorMapping.maybe_throw_exception(ErrorMapping.NO_ERROR)
    assert ErrorMapping.exception_for(6) is NotLeaderForPartitionException
    assert ErrorMapping.exception_for(max(ERRORS) + 1000) is UnknownException
    assert ErrorMapping.code_for(ValueError("none of ours")) == ErrorMapping.UNKNOWN
