"""Kafka Streams with group.protocol=streams (KIP-1071) on three brokers: the group's coordinator is
killed, and then an instance. Each word is counted exactly once."""

import random

import pytest
from cluster.test_streams_groups_over_brokers import coordinator
from cluster.three_brokers import Cluster
from compat.kafka_streams.application import (
    COUNTS,
    DAYS,
    LINES,
    NAME,
    PARTITIONS,
    Application,
    Progress,
    Sender,
    missing,
)
from compat.kafka_streams.test_streams_protocol import SETTINGS as OF_GROUPS
from compat.kafka_streams.test_streams_protocol import check_counts, is_stable
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import soon

pytestmark = [pytest.mark.only_long, pytest.mark.takes(seconds=60)]

SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "group.streams.session.timeout.ms": "10000",
}
WORK_LINES = 100


def test_the_coordinator_and_an_instance_are_killed(shared_zookeeper, tmp_path):
    if reason := missing():
        pytest.skip(reason)
    given = {name.replace(".", "_"): value for name, value in (OF_GROUPS | SETTINGS).items()}
    with Cluster(tmp_path, shared_zookeeper.connect("/kafka-streams"), **given) as cluster:
        servers = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        topics = [NewTopic(name, PARTITIONS, 3) for name in (LINES, COUNTS, DAYS)]
        for made in admin.create_topics(topics).values():
            made.result(30)
        instances = [Application(servers, tmp_path, "streams", f"s{n}") for n in (1, 2)]
        try:
            progress = Progress(servers)
            sender = Sender(servers, random.SystemRandom().getrandbits(32))
            for instance in instances:
                instance.wait_until_running()

            def are_stable(count):
                now = soon(lambda: coordinator(cluster, NAME), "no coordinator")
                return is_stable(cluster.brokers[now].address, count)

            soon(lambda: are_stable(2), "two instances do not share the tasks")
            progress.wait_beyond(progress.lines() + WORK_LINES)
            before = coordinator(cluster, NAME)
            cluster.brokers[before].kill()
            after = soon(lambda: coordinator(cluster, NAME), "no coordinator after the kill")
            assert after != before
            progress.wait_beyond(progress.lines() + WORK_LINES)
            instances[0].kill()
            soon(lambda: are_stable(1), "the tasks are not taken over")
            progress.wait_beyond(progress.lines() + WORK_LINES)
            progress.close()
            check_counts(servers, sender.stop())
            assert instances[1].stop() == 0 and not instances[1].failures(), instances[1].said
        finally:
            for instance in instances:
                if instance.process.poll() is None:
                    instance.kill()
