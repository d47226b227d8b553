"""Clients of Apache Kafka go on where they were after `barnabas storage import`."""

import time

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from long_form import pick
from takeover.importing import content, import_to
from takeover.kafka_before import (
    AFTER,
    BEFORE,
    COMMITTED,
    CUT,
    CUT_BEFORE,
    KEYS,
    MONEY,
    NEWS,
    PASSWORD,
    READERS,
    TIMEOUT_S,
    USER,
    KafkaBefore,
    rival,
)

from barnabas import Broker
from barnabas.client import Cluster
from barnabas.client.quotas import describe_quotas

pytestmark = [pytest.mark.java, pytest.mark.takes(seconds=25)]

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
KRAFT, ZOOKEEPER = "kraft", "zookeeper"
CASES = pick(
    short=[("4.3.1", KRAFT, "stop")],
    long=[
        (version, mode, end)
        for version, mode in [
            ("4.4.0", KRAFT),
            ("4.3.1", KRAFT),
            ("3.9.2", KRAFT),
            ("3.7.2", KRAFT),
            ("3.3.2", KRAFT),
            ("3.9.2", ZOOKEEPER),
            ("2.7.2", ZOOKEEPER),
        ]
        for end in ("stop", "kill")
    ],
)


def polled(consumer):
    """Returns the next record, or the end of a partition. Connections may fail in between: the
    machine may be busy."""
    deadline, last = time.monotonic() + TIMEOUT_S, None
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None:
            last = message.error()
            if last is None or last.name() == "_PARTITION_EOF":
                return message
    raise AssertionError(f"no record within {TIMEOUT_S} s; last error: {last}")


def values(servers, topic, partition, isolation="read_committed", **settings):
    """Returns the values of a partition from its start to its end."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "reading", "isolation.level": isolation}
        | {"enable.partition.eof": True}
        | settings
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found = []
    while not (message := polled(consumer)).error():
        found.append(message.value())
    consumer.close()
    return found


def committed(consumer):
    """Returns the group's offsets. A coordinator that has just started refuses at first."""
    asked = [TopicPartition(NEWS, partition) for partition in (0, 1)]
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return consumer.committed(asked, TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].name() != "NOT_COORDINATOR" or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def places(servers):
    """Returns where a member of the group begins in each partition."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": READERS, "auto.offset.reset": "error"}
    )
    found = {row.partition: row.offset for row in committed(consumer)}
    consumer.subscribe([NEWS])
    first: dict[int, int] = {}
    while len(first) < 2:
        message = polled(consumer)
        first.setdefault(message.partition(), message.offset())
    consumer.close()
    assert first == found
    return found


@pytest.mark.parametrize(("version", "mode", "end"), CASES)
def test_clients_go_on_where_they_were(tmp_path, capsys, version, mode, end):
    if reason := rival.missing(version):
        pytest.skip(reason)
    with KafkaBefore(version, tmp_path, mode) as before:
        before.fill()
        getattr(before, end)()
        source = content(before.log_dir)
        data = tmp_path / "data"
        zookeeper = ("--zookeeper", before.zookeeper) if mode == ZOOKEEPER else ()
        imported = import_to(capsys, data, before.log_dir, *zookeeper)
        assert content(before.log_dir) == source
        assert imported["openTransactions"] == {"open": "ongoing"}
        assert (imported["groups"], imported["groupOffsets"]) == (1, 2)
        users = 2 if before.has_users else 0
        assert (imported["accessRules"], imported["users"], imported["quotas"]) == (2, users, 1)
        assert {row["topic"]: row["records"] for row in imported["partitions"]}[KEYS] == 20
        settings = {
            "log.dirs": data,
            "listeners": f"PLAINTEXT://127.0.0.1:{before.port},SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "auto.create.topics.enable": "false",
        }
        for mechanism in MECHANISMS:
            name = f"listener.name.sasl_plaintext.{mechanism.lower()}.sasl.jaas.config"
            settings[name] = SCRAM_LOGIN
        with Broker(settings) as broker:
            servers = broker.bootstrap_servers
            assert places(servers) == COMMITTED
            assert values(servers, MONEY, 0) == [b"committed"]
            before.go_on()
            for partition in (0, 1):
                sent = [b"%d" % number for number in range(BEFORE + AFTER)]
                assert values(servers, NEWS, partition) == sent
            assert values(servers, MONEY, 0) == [b"committed", b"open 1", b"open 2", b"next"]
            # Kafka writes the new start each minute, and when it stops.
            first = CUT_BEFORE if end == "stop" else 0
            kept = [b"%d" % number for number in range(first, 20)]
            assert values(servers, CUT, 0, **{"auto.offset.reset": "earliest"}) == kept
            check_topics(servers, imported)
            check_security(servers, broker, before.has_users)


def check_topics(servers, imported):
    admin = AdminClient({"bootstrap.servers": servers})
    names = set(admin.list_topics(timeout=TIMEOUT_S).topics)
    assert {row["topic"] for row in imported["partitions"]} <= names
    assert "gone" not in names


def check_security(servers, broker, has_users):
    with Cluster(servers) as cluster:
        found = describe_quotas(cluster, {"user": USER})
        assert [row.values for row in found] == [{"producer_byte_rate": 1048576.0}]
    second = broker.node.listening[1]
    for mechanism in MECHANISMS if has_users else ():
        login = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
        protected = f"{second.host}:{second.port}"
        assert len(values(protected, NEWS, 0, **login)) == BEFORE + AFTER
        admin = AdminClient({"bootstrap.servers": protected} | login)
        refused = admin.list_topics(MONEY, TIMEOUT_S).topics[MONEY].error
        assert refused.name() == "TOPIC_AUTHORIZATION_FAILED"
