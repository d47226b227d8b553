"""ListOffsets: the start and the end of a log in each state, for every version; malformed
requests."""

import random
import struct
from contextlib import closing, suppress

import pytest
from compat.support import Wire, create_topic
from confluent_kafka import Consumer, Producer, TopicPartition
from waiting import soon

from barnabas import Broker
from barnabas.wire import request, response
from barnabas.wire.headers import decode_response_header, encode_request

KEY = 2
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = range(-1, -6, -1)
VERSIONS = range(1, 12)
TOPIC = "t"
STATES = 4  # partitions, each in another state


@pytest.fixture(scope="module", params=["fsync", "os"])
def broker(tmp_path_factory, request):
    """Partitions of `t`: 0 empty, 1 with records, 2 begins later, 3 in an open transaction."""
    place = tmp_path_factory.mktemp("native")
    settings = {"log.dirs": str(place), "log.durability": request.param, "metrics.port": "0"}
    with Broker(settings) as running:
        create_topic(running.bootstrap_servers, TOPIC, STATES)
        create_topic(running.bootstrap_servers, "other", 1)
        producer = Producer({"bootstrap.servers": running.bootstrap_servers})
        for index in (1, 2, 3):
            for number in range(20):
                producer.produce(TOPIC, b"%d" % number, partition=index)
        assert producer.flush(20) == 0
        with closing(Wire(running.bootstrap_servers)) as wire:
            delete_before(wire, 2, 7)
        writer = Producer({"bootstrap.servers": running.bootstrap_servers, "transactional.id": "x"})
        writer.init_transactions(20)
        writer.begin_transaction()
        writer.produce(TOPIC, b"open", partition=3)
        assert writer.flush(20) == 0
        yield running
        writer.abort_transaction(20)


@pytest.fixture
def wire(broker):
    with closing(Wire(broker.bootstrap_servers)) as one:
        yield one


def delete_before(wire, index, offset):
    ask = request(21)
    row = ask.struct("topics.partitions")(partitionIndex=index, offset=offset)
    topic = ask.struct("topics")(name=TOPIC, partitions=[row])
    told = wire.call(21, 2, ask.cls(topics=[topic], timeoutMs=20_000))
    assert told.topics[0].partitions[0].errorCode == 0


def question(rows, version, isolation=0, epoch=-1):
    """The request for (topic, partition, timestamp) rows; adjacent rows of one topic share its
    entry."""
    ask = request(KEY)
    topics = []
    for name, index, time_ms in rows:
        if not topics or topics[-1].name != name:
            topics.append(ask.struct("topics")(name=name, partitions=[]))
        row = ask.struct("topics.partitions")(partitionIndex=index, timestamp=time_ms)
        if version >= 4:
            row.currentLeaderEpoch = epoch
        topics[-1].partitions.append(row)
    body = ask.cls(replicaId=-1, topics=topics)
    if version >= 2:
        body.isolationLevel = isolation
    if version >= 10:
        body.timeoutMs = 1000
    return encode_request(KEY, version, 77, "compat", body)


def rows_of(frame, version):
    _, at = decode_response_header(frame, KEY, version)
    told = response(KEY).decode(frame, version, at)
    return [
        (row.errorCode, row.offset, row.timestamp, row.leaderEpoch)
        for topic in told.topics
        for row in topic.partitions
    ]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("isolation", [0, 1])
def test_start_and_end_of_a_log_in_each_state(broker, wire, version, isolation):
    for time_ms in (LATEST, EARLIEST):
        rows = [(TOPIC, index, time_ms) for index in range(STATES)] + [("other", 0, EARLIEST)]
        frame = question(rows, version, isolation)
        mine = wire.call_raw(frame)
        offsets = [row[1] for row in rows_of(mine, version)]
        end = 20 if isolation and version >= 2 else 21
        assert offsets == ([0, 20, 20, end, 0] if time_ms == LATEST else [0, 0, 7, 0, 0])


@pytest.mark.parametrize("version", [1, 5, 6, 11])
def test_a_partition_that_stands_twice_or_is_unknown_has_an_error_of_its_own(wire, version):
    rows = [(TOPIC, 1, LATEST), ("other", 0, LATEST), (TOPIC, 1, EARLIEST), (TOPIC, -1, LATEST)]
    told = rows_of(wire.call_raw(question([*rows, ("nowhere", 0, LATEST)], version)), version)
    assert [row[:2] for row in told] == [(42, -1), (0, 0), (42, -1), (3, -1), (3, -1)]


def test_many_partitions_of_one_question(broker, wire):
    create_topic(broker.bootstrap_servers, "many", 65)
    frame = question([("many", index, LATEST) for index in range(65)], 8)
    assert rows_of(wire.call_raw(frame), 8) == [(0, 0, -1, 0)] * 65


def test_a_leader_epoch_that_is_not_ours(broker, wire):
    for epoch, code in ((0, 0), (1, 75)):
        frame = question([(TOPIC, 1, LATEST)], 9, epoch=epoch)
        mine = wire.call_raw(frame)
        assert rows_of(mine, 9)[0][0] == code


def test_no_topics_at_all(wire):
    assert rows_of(wire.call_raw(question([], 7)), 7) == []


def test_what_was_written_is_seen_at_once(broker, wire):
    """Also what acks=1 wrote, whose response does not wait for the disk."""
    create_topic(broker.bootstrap_servers, "fresh", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": 1, "linger.ms": 0})
    for count in range(1, 30):
        producer.produce("fresh", b"x", partition=0)
        assert producer.flush(20) == 0
        assert rows_of(wire.call_raw(question([("fresh", 0, LATEST)], 6)), 6)[0][1] == count


def test_a_reader_of_committed_records_learns_the_new_end(broker):
    create_topic(broker.bootstrap_servers, "ending", 1)
    place = TopicPartition("ending", 0)
    writer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "y"})
    writer.init_transactions(20)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "isolation.level": "read_committed",
        }
    )
    for count in range(3):
        writer.begin_transaction()
        writer.produce("ending", b"x", partition=0)
        assert writer.flush(20) == 0
        assert consumer.get_watermark_offsets(place, timeout=20)[1] == 2 * count
        writer.commit_transaction(20)
        soon(lambda end=2 * count + 2: consumer.get_watermark_offsets(place, timeout=20)[1] == end)
    consumer.close()


def test_each_partition_is_counted(broker, wire):
    begin = broker.node.serving.errors.counts().get((KEY, 0), 0)
    wire.call_raw(question([(TOPIC, index, LATEST) for index in range(STATES)], 7))
    assert broker.node.serving.errors.counts()[KEY, 0] == begin + STATES


def test_damage_ends_a_connection_and_nothing_else(broker):
    chance = random.Random(5)
    for version in VERSIONS:
        whole = question([(TOPIC, index, LATEST) for index in range(STATES)], version)
        for _ in range(40):
            frame = bytearray(whole)
            if chance.random() < 0.5:
                del frame[chance.randrange(14, len(frame)) :]
                frame[:4] = struct.pack(">i", len(frame) - 4)
            else:
                frame[chance.randrange(24, len(frame))] = chance.randrange(256)
            with closing(Wire(broker.bootstrap_servers)) as wire:
                with suppress(ConnectionError):
                    wire.call_raw(bytes(frame))
    with closing(Wire(broker.bootstrap_servers)) as wire:
        assert rows_of(wire.call_raw(question([(TOPIC, 1, LATEST)], 9)), 9)[0][:2] == (0, 20)
