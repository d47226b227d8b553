"""The lag and the number of groups on the metrics page."""

import time

from compat.support import create_topic, produce_batch
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from oracle.exposition import rows_of
from streams.streams_wire import StreamsMember
from telemetry.conftest import watched
from waiting import soon

PATIENCE_S = 40


def value_of(page, name, **labels):
    """The value of the one sample of a name with these labels."""
    (found,) = [value for given, value in rows_of(page, name) if given == labels]
    return found


def test_lag_of_a_group(tmp_path):
    with watched(tmp_path) as watch:
        create_topic(watch.bootstrap, "t")
        produce_batch(watch.bootstrap, "t", [b"x"] * 7)
        consumer = Consumer(
            {
                "bootstrap.servers": watch.bootstrap,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["t"])
        seen, deadline = 0, time.monotonic() + PATIENCE_S
        while seen < 3 and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                seen += 1
                consumer.commit(message=message, asynchronous=False)
        assert seen == 3
        page = watch.page()
        place = {"consumergroup": "readers", "topic": "t", "partition": "0"}
        whole = {"consumergroup": "readers", "topic": "t"}
        assert value_of(page, "kafka_consumergroup_current_offset", **place) == 3
        assert value_of(page, "kafka_consumergroup_lag", **place) == 4
        assert value_of(page, "kafka_consumergroup_lag_sum", **whole) == 4
        assert value_of(page, "kafka_consumergroup_current_offset_sum", **whole) == 3
        assert value_of(page, "kafka_consumergroup_members", consumergroup="readers") == 1
        manager = "kafka_coordinator_group_groupmetadatamanager_"
        assert value_of(page, f"{manager}numgroups") == 1
        assert value_of(page, f"{manager}numgroupsstable") == 1
        consumer.close()
        soon(lambda: value_of(watch.page(), f"{manager}numgroupsempty") == 1)
        page = watch.page()
        assert value_of(page, "kafka_consumergroup_members", consumergroup="readers") == 0
        produce_batch(watch.bootstrap, "t", [b"x"] * 5)
        assert value_of(watch.page(), "kafka_consumergroup_lag", **place) == 9


def test_groups_by_protocol_and_state(tmp_path):
    groups = "kafka_server_group_coordinator_metrics_"
    settings = {"group.streams.initial.rebalance.delay.ms": "0"}
    with watched(tmp_path, **settings) as watch:
        page = watch.page()
        for protocol in ("classic", "consumer", "share", "streams"):
            assert value_of(page, f"{groups}group_count", protocol=protocol) == 0
        create_topic(watch.bootstrap, "t", 1)
        member = StreamsMember(watch.bootstrap, "g", "t").join()
        page = watch.page()
        assert value_of(page, f"{groups}group_count", protocol="streams") == 1
        assert value_of(page, f"{groups}group_count", protocol="classic") == 0
        assert value_of(page, f"{groups}streams_group_count", state="Stable") == 1
        assert value_of(page, f"{groups}streams_group_rebalance_count") == 1
        assert value_of(page, f"{groups}streams_group_rebalance_rate") > 0
        unready = StreamsMember(watch.bootstrap, "unready", "nosuch")
        unready.beat()
        assert value_of(watch.page(), f"{groups}streams_group_count", state="NotReady") == 1
        member.leave()
        page = watch.page()
        assert value_of(page, f"{groups}streams_group_count", state="Empty") == 1
        assert value_of(page, f"{groups}streams_group_count", state="Stable") == 0
        assert value_of(page, f"{groups}streams_group_rebalance_count") == 3


def joined(servers, group, **settings):
    """Returns a consumer that reads topic t, when it has its partition."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False} | settings
    )
    consumer.subscribe(["t"])
    deadline = time.monotonic() + PATIENCE_S
    while not consumer.assignment():
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    return consumer


def test_rebalances_and_what_happens_to_offsets_are_counted(tmp_path):
    """By the names and meanings of Kafka's GroupCoordinatorMetrics."""
    prefix = "kafka_server_group_coordinator_metrics_"
    settings = {
        "offsets.topic.num.partitions": "3",
        "offsets.retention.minutes": "5",
        "offsets.retention.check.interval.ms": "60000",
        "group.initial.rebalance.delay.ms": "0",
    }
    with watched(tmp_path, **settings) as watch:

        def counted():
            names = ("group_completed", "consumer_group", "streams_group")
            names = [f"{name}_rebalance" for name in names]
            names += [f"offset_{name}" for name in ("commit", "expiration", "deletion")]
            page = watch.page()
            return [value_of(page, f"{prefix}{name}_count") for name in names]

        create_topic(watch.bootstrap, "t")
        places = [TopicPartition("t", 0, 5)]
        assert counted() == [0, 0, 0, 0, 0, 0]
        classic = joined(watch.bootstrap, "classic")
        classic.commit(offsets=places, asynchronous=False)
        assert counted() == [1, 0, 0, 1, 0, 0]
        classic.commit(offsets=places, asynchronous=False)
        page = watch.page()
        assert value_of(page, f"{prefix}offset_commit_rate") > 0
        assert value_of(page, f"{prefix}group_completed_rebalance_rate") > 0
        assert value_of(page, f"{prefix}consumer_group_rebalance_rate") == 0
        classic.close()
        consumer = joined(watch.bootstrap, "consumer", **{"group.protocol": "consumer"})
        consumer.commit(offsets=places, asynchronous=False)
        assert counted() == [1, 1, 0, 3, 0, 0]
        consumer.close()
        assert counted() == [1, 2, 0, 3, 0, 0]
        page = watch.page()
        assert value_of(page, f"{prefix}num_partitions", state="active") == 3
        assert value_of(page, f"{prefix}num_partitions", state="loading") == 0
        admin = AdminClient({"bootstrap.servers": watch.bootstrap})
        admin.delete_consumer_groups(["consumer"])["consumer"].result(PATIENCE_S)
        assert counted() == [1, 2, 0, 3, 0, 1]
        watch.broker.clock.advance(minutes=6)
        deadline = time.monotonic() + PATIENCE_S
        while (found := counted()) != [1, 2, 0, 3, 1, 1]:
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
    with watched(tmp_path, **settings) as watch:
        assert counted() == [0, 0, 0, 0, 0, 0]
