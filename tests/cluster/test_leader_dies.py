"""Kills the leader of a topic with three replicas: no acknowledged record is lost.

Each broker is a process. At the end the test compares the files of all replicas: they have the same
batches at the same offsets, with the same leader epochs."""

import pytest
from cluster.acknowledged import Sender, leaders_and_isrs
from cluster.three_brokers import Cluster
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import soon

pytestmark = pytest.mark.takes(seconds=60)

TOPIC = "replicated"


def leader(cluster):
    return leaders_and_isrs(cluster.bootstrap_servers, TOPIC)[0][0]


def isr(cluster):
    found = leaders_and_isrs(cluster.bootstrap_servers, TOPIC)
    return found[0][1] if found else None


def test_the_leader_is_killed_and_comes_back(own_zookeeper, tmp_path):
    with Cluster(tmp_path, own_zookeeper.connect("/c")) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        new = NewTopic(TOPIC, 1, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([new])[TOPIC].result(30)
        soon(lambda: isr(cluster) == [1, 2, 3], "the ISR has not all three")
        sender = Sender(cluster.bootstrap_servers, TOPIC)
        sender.wait_for_more()
        first = leader(cluster)
        cluster.brokers[first].kill()
        sender.wait_for_more()
        # A broker may hear of the election after the leader has acknowledged records.
        soon(lambda: isr(cluster) == sorted({1, 2, 3} - {first}), "the killed broker is in the ISR")
        second = leader(cluster)
        assert second != first
        cluster.brokers[first].start()
        soon(lambda: isr(cluster) == [1, 2, 3], "the killed broker did not come back into the ISR")
        sender.wait_for_more()
        cluster.brokers[second].kill()
        sender.wait_for_more()
        cluster.brokers[second].start()
        soon(lambda: isr(cluster) == [1, 2, 3], "the second one did not come back into the ISR")
        sender.wait_for_more()
        sender.stop()
        sender.check(cluster.bootstrap_servers)
        for broker in cluster.brokers.values():
            broker.stop()
        assert sender.check_files(list(cluster.brokers.values())) > 10
        epochs = {epoch for _offset, epoch, _batch in cluster.brokers[first].batches(TOPIC, 0)}
        assert max(epochs) >= 2
