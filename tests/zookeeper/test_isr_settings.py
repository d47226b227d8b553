"""When a follower leaves the ISR, and when acks=all is refused: two brokers in this process."""

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import soon

pytestmark = [pytest.mark.java, pytest.mark.takes(seconds=10)]


def test_a_follower_that_lags_leaves_and_acks_all_needs_enough(brokers, zookeeper_server):
    """replica.lag.time.max.ms, and min.insync.replicas of broker and topic."""
    connect = zookeeper_server.connect(zookeeper_server.new_chroot())
    settings = {
        "replica.lag.time.max.ms": "700",  # 30000 by default: longer than the test
        "min.insync.replicas": "2",
    }
    first = brokers.start(connect, **settings)
    second = brokers.start(connect, node_id=2, **settings)
    admin = AdminClient({"bootstrap.servers": first.bootstrap_servers})
    both, one = {}, {"min.insync.replicas": "1"}
    new = [
        NewTopic(name, 1, replica_assignment=[[1, 2]], config=config)
        for name, config in (("both", both), ("one", one))
    ]
    for created in admin.create_topics(new).values():
        created.result(30)

    def isr(topic):
        return sorted(first.node.cluster().topic(topic).partitions[0].state.isr)

    soon(lambda: isr("both") == isr("one") == [1, 2])
    assert produced(first, "both") is None
    second.node.loaded.replicas.fetchers.stop()  # it is still registered
    for topic in ("both", "one"):  # a follower that has all of the log does not lag
        assert produced(first, topic, acks="1") is None
    soon(lambda: isr("both") == isr("one") == [1])
    assert 2 in first.node.cluster().brokers
    assert produced(first, "both").name() == "NOT_ENOUGH_REPLICAS"
    assert produced(first, "one") is None


def produced(broker, topic, acks="all"):
    """The error of a record; None when it was acknowledged."""
    errors = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": acks, "retries": 0})
    producer.produce(topic, b"value", on_delivery=lambda error, _message: errors.append(error))
    assert producer.flush(30) == 0
    return errors[0]
