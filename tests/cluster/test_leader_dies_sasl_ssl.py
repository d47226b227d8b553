"""The leader dies in a cluster whose brokers and clients log in over TLS, with access rules for all
of them: no user but the administrator is a super user, and the brokers' user has the right to act
for the cluster, by a rule."""

import pytest
from cluster.acknowledged import Sender, leaders_and_isrs
from cluster.logins import FOR_THE_CLUSTER, client, grant, rule, settings_of
from cluster.three_brokers import Cluster
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, ResourceType
from waiting import soon

pytestmark = [pytest.mark.slow, pytest.mark.only_long, pytest.mark.takes(seconds=60)]

TOPIC = "replicated"
RULES = [
    FOR_THE_CLUSTER,
    rule("alice", ResourceType.TOPIC, TOPIC, AclOperation.WRITE),
    rule("alice", ResourceType.TOPIC, TOPIC, AclOperation.READ),
    rule("alice", ResourceType.GROUP, "reader", AclOperation.READ),
]


def test_the_leader_is_killed_and_comes_back(own_zookeeper, tmp_path):
    connect, settings = own_zookeeper.connect("/s"), settings_of(tmp_path)
    with Cluster(tmp_path, connect, **settings) as cluster:
        servers, alice = cluster.bootstrap_servers, client("alice")

        def leader():
            return leaders_and_isrs(servers, TOPIC, alice)[0][0]

        def wait_for_isr(*expected):
            def says():
                rows = leaders_and_isrs(servers, TOPIC, alice)
                return rows and rows[0][1] == list(expected)

            soon(says, f"the ISR is not {expected}")

        admin = AdminClient({"bootstrap.servers": servers, **client("admin")})
        grant(servers, RULES)
        new = NewTopic(TOPIC, 1, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([new])[TOPIC].result(30)
        wait_for_isr(1, 2, 3)
        sender = Sender(servers, TOPIC, more=alice)
        sender.wait_for_more()
        assert refusal(servers, client("stranger")) in (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        )
        first = leader()
        cluster.brokers[first].kill()
        sender.wait_for_more()
        assert leader() != first
        wait_for_isr(*sorted({1, 2, 3} - {first}))
        cluster.brokers[first].start()
        wait_for_isr(1, 2, 3)
        sender.wait_for_more()
        sender.stop()
        sender.check(servers)
        for broker in cluster.brokers.values():
            broker.stop()
        assert sender.check_files(list(cluster.brokers.values())) > 10


def refusal(servers, user):
    """Returns the error that a user gets for a record."""
    producer, errors = Producer({"bootstrap.servers": servers, "log_level": 0, **user}), []
    producer.produce(TOPIC, b"no right", on_delivery=lambda error, _: errors.append(error.code()))
    assert producer.flush(30) == 0
    return errors[0]
