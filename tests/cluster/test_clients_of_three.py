"""Clients of three brokers fail: a copier is killed between its writes and EndTxn, a member of a
group is paused past its session; and the coordinator of the group is killed during a rebalance.

`BARNABAS_HISTORY_SEED` runs a seed again.
"""

import pytest
from cluster.acknowledged import equal_replicas, leaders_and_isrs
from cluster.roles import GROUP as A_GROUP
from cluster.roles import coordinator
from cluster.three_brokers import Cluster
from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from history.test_copy_killed import kill_again_and_again
from history.test_group_faults import (
    GROUP,
    PARTITIONS,
    SETTINGS,
    TOPIC,
    assert_sound,
    disturb,
    last_positions,
    share,
)
from history.workload import BROKER_SETTINGS, COPY, INPUT, create_topics
from history.workload import PARTITIONS as COPIED_PARTITIONS
from long_form import pick
from waiting import soon

pytestmark = [
    pytest.mark.slow,
    pytest.mark.only_long,
    pytest.mark.takes(seconds=120),
    pytest.mark.timeout(600),
]

KILLS = pick(short=6, long=50)


def settings_of(settings):
    return {name.replace(".", "_"): value for name, value in settings.items()}


def check_files(cluster, topics):
    """Stops all brokers, and compares the files of all replicas."""
    for broker in cluster.brokers.values():
        broker.stop()
    for topic, count in topics.items():
        equal_replicas(list(cluster.brokers.values()), topic, count)


def test_a_copier_killed_before_its_end_copies_everything_once(own_zookeeper, tmp_path, seed):
    settings = settings_of(BROKER_SETTINGS)
    with Cluster(tmp_path, own_zookeeper.connect("/c"), **settings) as cluster:
        create_topics(cluster.bootstrap_servers, replicas=3, min_insync_replicas="2")
        kill_again_and_again(cluster.bootstrap_servers, tmp_path, seed, KILLS)
        topics = {INPUT: COPIED_PARTITIONS, COPY: COPIED_PARTITIONS, "__transaction_state": 2}
        check_files(cluster, topics)


def test_a_group_whose_coordinator_is_killed_in_a_rebalance(own_zookeeper, tmp_path, seed):
    """Another broker coordinates the group until the killed one is back."""
    print("seed", seed)
    settings = settings_of(SETTINGS)
    members, killed = [], []
    with Cluster(tmp_path, own_zookeeper.connect("/g"), **settings) as cluster:
        servers = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(30)

        def kill():
            killed.append(coordinator(cluster, GROUP, A_GROUP))
            cluster.brokers[killed[-1]].kill()

        def start():
            dead = killed[-1]
            ask = next(broker_id for broker_id in cluster.brokers if broker_id != dead)
            soon(lambda: coordinator(cluster, GROUP, A_GROUP, ask) != dead, "it does not move")
            share(members)
            cluster.brokers[dead].start()

        try:
            operations = disturb(servers, seed, members, kill, start)
            last = coordinator(cluster, GROUP, A_GROUP)
            operations.append(last_positions(cluster.brokers[last].address))
        finally:
            for member in members:
                member.process.kill()
        print(f"killed coordinators: {killed}; {len(operations)} operations")
        assert_sound(seed, members, operations)

        def has_ended():
            admin = AdminClient({"bootstrap.servers": servers})
            try:
                found = admin.describe_consumer_groups([GROUP])[GROUP].result(30)
            except KafkaException:  # the client knows a former coordinator
                return False
            return found.state == ConsumerGroupState.EMPTY

        # The sessions of the members end, which writes records.
        soon(has_ended, "the group has members")
        soon(
            lambda: all(
                len(isr) == 3
                for topic in (TOPIC, "__consumer_offsets")
                for _leader, isr in leaders_and_isrs(servers, topic).values()
            ),
            "not in sync",
        )
        check_files(cluster, {TOPIC: PARTITIONS, "__consumer_offsets": 2})
