"""Groups in a whole broker: what survives kill -9, settings, offsets in the metadata tree."""

import threading
import time
from contextlib import closing

import pytest
from compat.support import Wire, create_topic
from durability.broker_process import BrokerProcess, free_port

from barnabas import Broker
from barnabas.cext.record.records import Record
from barnabas.coordinator.groups.group_records import Committed, offset_key, offset_value
from barnabas.errors import CoordinatorLoadInProgress
from barnabas.wire import request
from barnabas.wire.batches import encode_batch

PATIENCE_S = 30


def broker_on(path, settings=()):
    base = {"log.dirs": str(path), "listeners": "PLAINTEXT://127.0.0.1:0"}
    return Broker({**base, **dict(settings)})


def ready(address, group):
    with closing(Wire(address)) as wire:
        told = wire.call(10, 0, request(10).cls(key=group))
    assert told.errorCode == 0, told
    return told


def commit(address, group, offset, topic="t", version=8, metadata="", **more):
    ask = request(8)
    row = ask.struct("topics.partitions")(
        partitionIndex=0, committedOffset=offset, committedMetadata=metadata
    )
    topics = [ask.struct("topics")(name=topic, partitions=[row])]
    with closing(Wire(address)) as wire:
        told = wire.call(8, version, ask.cls(groupId=group, topics=topics, **more))
    return told.topics[0].partitions[0].errorCode


def fetched(address, group, topic="t", version=5):
    ask = request(9)
    topics = [ask.struct("topics")(name=topic, partitionIndexes=[0])]
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with closing(Wire(address)) as wire:
            told = wire.call(9, version, ask.cls(groupId=group, topics=topics))
        if told.errorCode != CoordinatorLoadInProgress.code or time.monotonic() > deadline:
            return told.topics[0].partitions[0].committedOffset
        time.sleep(0.05)


def test_commits_that_were_answered_outlive_kill_9(tmp_path):
    port = free_port()
    broker = BrokerProcess(tmp_path, port)
    create_topic(broker.address, "t")
    ready(broker.address, "g0")
    last = {}

    def commit_on(group):
        offset = 0
        while True:
            try:
                if commit(broker.address, group, offset + 1) != 0:
                    return
            except OSError:
                return
            offset += 1
            last[group] = offset

    threads = [threading.Thread(target=commit_on, args=(f"g{at}",)) for at in range(4)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + PATIENCE_S
    while (len(last) < 4 or min(last.values()) < 20) and time.monotonic() < deadline:
        time.sleep(0.01)
    broker.kill()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(last) == 4 and min(last.values()) >= 20
    with BrokerProcess(tmp_path, port) as broker:
        for group, offset in last.items():
            # One more may have been written, whose response was lost.
            assert fetched(broker.address, group) in (offset, offset + 1)


def test_a_group_keeps_its_members_over_a_restart(tmp_path):
    from confluent_kafka import Consumer

    port = free_port()
    settings = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "group.id": "g",
        "group.instance.id": "one",
        "session.timeout.ms": 30_000,
        "heartbeat.interval.ms": 200,
    }
    with BrokerProcess(tmp_path, port) as broker:
        create_topic(broker.address, "t", 2)
        consumer = Consumer(settings)
        consumer.subscribe(["t"])
        deadline = time.monotonic() + PATIENCE_S
        while not consumer.assignment() and time.monotonic() < deadline:
            consumer.poll(0.1)
        assert len(consumer.assignment()) == 2
        broker.kill()
        with BrokerProcess(tmp_path, port):
            lost = []
            consumer.subscribe(["t"], on_lost=lambda *_: lost.append(1))
            until = time.monotonic() + 3
            while time.monotonic() < until:
                consumer.poll(0.1)
            assert len(consumer.assignment()) == 2 and not lost
            consumer.close()


def test_version_0_keeps_offsets_in_the_metadata_tree(tmp_path):
    with broker_on(tmp_path) as broker:
        address = broker.bootstrap_servers
        create_topic(address, "t")
        assert commit(address, "old", 12, version=0) == 0
        assert commit(address, "old", 13, version=0) == 0
        assert broker.node.opened.tree.get("/consumers/old/offsets/t/0")[0] == b"13"
        assert fetched(address, "old", version=0) == 13
        ready(address, "old")
        assert fetched(address, "old") == -1  # not in __consumer_offsets
    with broker_on(tmp_path) as broker:
        assert fetched(broker.bootstrap_servers, "old", version=0) == 13


def test_offset_metadata_max_bytes(tmp_path):
    with broker_on(tmp_path, {"offset.metadata.max.bytes": "8"}) as broker:
        address = broker.bootstrap_servers
        create_topic(address, "t")
        ready(address, "g")
        assert commit(address, "g", 1, metadata="12345678") == 0
        assert commit(address, "g", 1, metadata="123456789") == 12


def join(address, group="g", session_ms=10_000, member="", version=3, client=None):
    ask = request(11)
    protocol = ask.struct("protocols")(name="range", metadata=b"")
    with closing(Wire(address)) as wire:
        return wire.call(
            11,
            version,
            ask.cls(
                groupId=group,
                sessionTimeoutMs=session_ms,
                rebalanceTimeoutMs=5000,
                memberId=member,
                protocolType="consumer",
                protocols=[protocol],
            ),
        )


def test_session_timeouts_within_group_min_and_max_session_timeout_ms(tmp_path):
    settings = {"group.min.session.timeout.ms": "500", "group.max.session.timeout.ms": "2000"}
    with broker_on(tmp_path, settings) as broker:
        address = broker.bootstrap_servers
        ready(address, "g")
        assert [join(address, f"g{ms}", ms).errorCode for ms in (499, 500, 2000, 2001)] == [
            26,
            0,
            0,
            26,
        ]


def test_group_max_size(tmp_path):
    with broker_on(tmp_path, {"group.max.size": "1"}) as broker:
        address = broker.bootstrap_servers
        ready(address, "g")
        assert join(address).errorCode == 0
        assert join(address).errorCode == 81


def test_group_initial_rebalance_delay_ms(tmp_path):
    with broker_on(tmp_path, {"group.initial.rebalance.delay.ms": "200000"}) as broker:
        address = broker.bootstrap_servers
        ready(address, "g")
        told = []
        thread = threading.Thread(target=lambda: told.append(join(address)))
        thread.start()
        deadline = time.monotonic() + PATIENCE_S
        groups = broker.node.serving.coordinators.groups.groups
        while time.monotonic() < deadline:
            if "g" in groups and groups["g"].join_timer is not None:
                break
            time.sleep(0.01)
        assert groups["g"].join_timer is not None and told == []
        broker.node.clock.move(200_000)
        thread.join(PATIENCE_S)
        assert told and told[0].errorCode == 0


@pytest.mark.parametrize(
    ("name", "value", "seen"),
    [
        ("offsets.topic.num.partitions", "3", lambda t, c: len(t.partitions) == 3),
        ("offsets.topic.replication.factor", "2", lambda t, c: len(t.partitions[0].replicas) == 1),
        ("offsets.topic.segment.bytes", "1048576", lambda t, c: c["segment.bytes"] == "1048576"),
    ],
)
def test_settings_of_the_coordinators_topic(tmp_path, name, value, seen):
    with broker_on(tmp_path, {name: value}) as broker:
        ready(broker.bootstrap_servers, "g")
        state = broker.node.cluster()
        topic = state.topic("__consumer_offsets")
        assert seen(topic, state.config("topics", "__consumer_offsets"))


def test_metadata_makes_the_coordinators_topic_as_it_must_be(tmp_path):
    with broker_on(tmp_path) as broker:
        ask = request(3)
        topics = [ask.struct("topics")(name="__consumer_offsets")]
        body = ask.cls(topics=topics, allowAutoTopicCreation=True)
        deadline = time.monotonic() + 10
        with closing(Wire(broker.bootstrap_servers)) as wire:
            while (found := wire.call(3, 8, body).topics[0]).errorCode == 3:
                assert time.monotonic() < deadline  # the first request creates the topic
        assert len(found.partitions) == 50
        config = broker.node.loaded.replicas.topic_config("__consumer_offsets")
        assert config.names("cleanup.policy") == ("compact",)


def test_offsets_expire_after_offsets_retention_minutes(tmp_path):
    """The broker checks every offsets.retention.check.interval.ms."""
    settings = {
        "offsets.retention.minutes": "5",
        "offsets.retention.check.interval.ms": "60000",
    }
    with broker_on(tmp_path, settings) as broker:
        address = broker.bootstrap_servers
        create_topic(address, "t")
        ready(address, "g")
        assert commit(address, "g", 9) == 0
        broker.node.clock.move(4 * 60_000)
        assert fetched(address, "g") == 9
        deadline = time.monotonic() + PATIENCE_S
        while fetched(address, "g") != -1 and time.monotonic() < deadline:
            broker.node.clock.move(61_000)
            time.sleep(0.05)
        assert fetched(address, "g") == -1


def test_a_commit_waits_no_longer_than_offsets_commit_timeout_ms(tmp_path):
    with broker_on(tmp_path, {"offsets.commit.timeout.ms": "200"}) as broker:
        address = broker.bootstrap_servers
        create_topic(address, "t")
        ready(address, "g")
        system = broker.node.system
        rule = system.fault("fdatasync", "hold", path_contains="__consumer_offsets")
        assert commit(address, "g", 1) == 15
        assert system.fired(rule) > 0
        system.release(rule)
        system.clear_faults()


def test_offsets_go_with_their_topic(tmp_path):
    with broker_on(tmp_path) as broker:
        address = broker.bootstrap_servers
        create_topic(address, "t")
        ready(address, "g")
        assert commit(address, "g", 9) == 0
        broker.node.serving.administration.deletion.delete(["t"])
        create_topic(address, "t")
        deadline = time.monotonic() + PATIENCE_S
        while fetched(address, "g") != -1 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert fetched(address, "g") == -1


def test_what_kafka_wrote_is_read_and_a_group_without_the_topic_is_not_ours(tmp_path):
    """NOT_COORDINATOR before the topic exists; every version finds a loaded offset."""
    with broker_on(tmp_path) as broker:
        address = broker.bootstrap_servers
        create_topic(address, "t")
        assert commit(address, "g", 1) == 16
        ready(address, "g")
        partition = broker.node.serving.coordinators.groups.journal.partition_of("g")
        batch = encode_batch(
            [
                Record(
                    offset_value(Committed(77, -1, "", 1_800_000_000_000)),
                    offset_key("g", "t", 0),
                    timestamp=1,
                )
            ]
        )
        handle = broker.node.loaded.replicas.log("__consumer_offsets", partition)
        handle.append(bytearray(batch))
    with broker_on(tmp_path) as broker:
        assert fetched(broker.bootstrap_servers, "g") == 77


@pytest.mark.parametrize("codec", [0, 1])
def test_clients_do_not_write_to_the_coordinators_topic(tmp_path, codec):
    with broker_on(tmp_path) as broker:
        address = broker.bootstrap_servers
        create_topic(address, "t")
        ready(address, "g")
        assert commit(address, "g", 5) == 0
        entry = offset_value(Committed(99, -1, "", 1)), offset_key("g", "t", 0)
        partition = broker.node.serving.coordinators.groups.journal.partition_of("g")
        ask = request(0)
        row = ask.struct("topicData.partitionData")(
            index=partition, records=encode_batch([Record(*entry, timestamp=1)], codec=codec)
        )
        topics = [ask.struct("topicData")(name="__consumer_offsets", partitionData=[row])]
        with closing(Wire(address)) as wire:
            told = wire.call(0, 9, ask.cls(acks=-1, timeoutMs=9000, topicData=topics))
        assert told.responses[0].partitionResponses[0].errorCode == 17
        assert broker.node.loaded.replicas.log("__consumer_offsets", partition).end_offset == 1
