"""The leader dies in a cluster whose brokers and clients log in over TLS, with access rules for all
of them: no user but the administrator is a super user, and the brokers' user has the right to act
for the cluster, by a rule."""

import pytest
from cluster.acknowledged import Sender, leaders_and_isrs
from cluster.three_brokers import Cluster, soon
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from security.login_broker import PLAIN_MODULE
from tls.tls_broker import AUTHORITY, pem_settings

pytestmark = [pytest.mark.slow, pytest.mark.only_long, pytest.mark.takes(seconds=60)]

TOPIC = "replicated"
USERS = {name: f"password of {name}" for name in ("broker", "admin", "alice", "stranger")}


def settings_of(folder):
    accepted = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    own = f'username="broker" password="{USERS["broker"]}"'
    return {
        "listeners": "SAFE://127.0.0.1:0",
        "listener.security.protocol.map": "SAFE:SASL_SSL",
        "inter.broker.listener.name": "SAFE",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.safe.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {own} {accepted};",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin",
        **pem_settings(folder),
    }


def client(folder, user):
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(folder / "ca.pem"),
        "sasl.mechanisms": "PLAIN",
        "sasl.username": user,
        "sasl.password": USERS[user],
    }


def rule(user, resource, name, operation):
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    return AclBinding(resource, name, literal, f"User:{user}", "*", operation, allow)


RULES = [
    rule("broker", ResourceType.BROKER, "kafka-cluster", AclOperation.CLUSTER_ACTION),
    rule("alice", ResourceType.TOPIC, TOPIC, AclOperation.WRITE),
    rule("alice", ResourceType.TOPIC, TOPIC, AclOperation.READ),
    rule("alice", ResourceType.GROUP, "reader", AclOperation.READ),
]


def test_the_leader_is_killed_and_comes_back(own_zookeeper, tmp_path):
    (tmp_path / "ca.pem").write_text(AUTHORITY.pem)
    connect, settings = own_zookeeper.connect("/s"), settings_of(tmp_path)
    with Cluster(tmp_path, connect, **settings) as cluster:
        servers, alice = cluster.bootstrap_servers, client(tmp_path, "alice")

        def leader():
            return leaders_and_isrs(servers, TOPIC, alice)[0][0]

        def wait_for_isr(*expected):
            def says():
                rows = leaders_and_isrs(servers, TOPIC, alice)
                return rows and rows[0][1] == list(expected)

            soon(says, f"the ISR is not {expected}")

        admin = AdminClient({"bootstrap.servers": servers, **client(tmp_path, "admin")})
        for made in admin.create_acls(RULES).values():
            made.result(30)
        new = NewTopic(TOPIC, 1, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([new])[TOPIC].result(30)
        wait_for_isr(1, 2, 3)
        sender = Sender(servers, TOPIC, more=alice)
        sender.wait_for_more()
        assert refusal(servers, client(tmp_path, "stranger")) in (
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
