"""A cluster of Apache Kafka with everything that an import takes over, and clients that go on.

    with KafkaBefore("4.3.1", tmp_path) as before:
        before.fill()
        before.stop()              or before.kill()
        ... import before.log_dir, start a broker on before.port ...
        before.go_on()

`python -m takeover.kafka_before VERSION` (in tests/) writes recorded/kafka-VERSION.tar.xz: the log
directory after a clean stop, for tests that start no Java.
"""

import sys
import tarfile
import tempfile
import time
from pathlib import Path

from compat.support import QUICK_HEAP, rival
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from barnabas.client import Cluster
from barnabas.client.quotas import alter_quotas

SET = AlterConfigOpType.SET
RECORDED = Path(__file__).with_name("recorded")
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "1",
    "auto.create.topics.enable": "false",
    # A snapshot of the metadata with records behind it.
    "metadata.log.max.record.bytes.between.snapshots": "2500",
}
IN_ZOOKEEPER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
NEWS, KEYS, MONEY, CUT, GONE = "news", "keys", "money", "cut", "gone"
CUT_BEFORE = 7  # the first offset of CUT that is kept
READERS = "readers"
COMMITTED = {0: 40, 1: 60}
BEFORE, AFTER = 100, 50  # records in each partition of NEWS
USER, PASSWORD = "alice", "in wonderland"
TIMEOUT_S = 60
LOADING = ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE")


def done(futures):
    return {name: future.result(TIMEOUT_S) for name, future in futures.items()}


def commit(consumer, places):
    """Commits offsets. A coordinator that has just been elected refuses at first."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            if error.args[0].name() not in LOADING or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


class KafkaBefore:
    """Kafka, and clients that were connected to it."""

    def __init__(self, version, folder, mode="kraft", **settings):
        known = SETTINGS if mode == "kraft" else SETTINGS | IN_ZOOKEEPER
        self._kafka = rival.Rival(
            version, folder / "kafka", mode, settings=known | settings, heap=QUICK_HEAP
        )
        self.version = version
        # KRaft has credentials of SCRAM from 3.5 on.
        self.has_users = mode != "kraft" or not version.startswith(("3.3.", "3.4."))
        self._is_killed = False
        self._zookeeper_data = folder / "kafka" / "zookeeper"

    @property
    def log_dir(self):
        return self._kafka.log_dir

    @property
    def port(self):
        return self._kafka.port

    def __enter__(self):
        self._kafka.start()
        servers = {"bootstrap.servers": self._kafka.address, "log_level": 0}
        self._idempotent = Producer(servers | {"enable.idempotence": True})
        self._transactional = Producer(
            servers | {"transactional.id": "open", "transaction.timeout.ms": 300_000}
        )
        self._servers = servers
        return self

    def __exit__(self, *_exc):
        self._kafka.stop()

    def stop(self):
        self._kafka.stop()

    def kill(self):
        self._kafka.kill()
        self._is_killed = True

    @property
    def zookeeper(self):
        """Where ZooKeeper's tree can be read: after a kill of Kafka it still runs."""
        if self._is_killed:
            return f"127.0.0.1:{self._kafka.side_port}"
        return self._zookeeper_data

    def start_again(self):
        self._kafka.start()

    @property
    def address(self):
        return self._kafka.address

    def fill(self):
        """Writes records, offsets, an open transaction, settings, rules, users and quotas."""
        admin = AdminClient(self._servers)
        topics = [
            NewTopic(NEWS, 2, 1, config={"retention.ms": "-1"}),
            NewTopic(KEYS, 1, 1, config={"cleanup.policy": "compact", "retention.ms": "-1"}),
            NewTopic(MONEY, 1, 1),
            NewTopic(CUT, 1, 1),
            NewTopic(GONE, 1, 1),
        ]
        done(admin.create_topics(topics))
        self._send_news(0, BEFORE)
        for number in range(20):
            self._idempotent.produce(KEYS, b"%d" % number, b"key%d" % (number % 3))
            self._idempotent.produce(CUT, b"%d" % number)
            self._idempotent.produce(GONE, b"")
        assert self._idempotent.flush(TIMEOUT_S) == 0
        done(admin.delete_records([TopicPartition(CUT, 0, CUT_BEFORE)]))
        consumer = Consumer(self._servers | {"group.id": READERS})
        places = [TopicPartition(NEWS, p, offset) for p, offset in COMMITTED.items()]
        commit(consumer, places)
        consumer.close()
        self._transactions()
        self._security(admin)
        done(admin.delete_topics([GONE]))

    def _send_news(self, first, count):
        for number in range(first, first + count):
            for partition in (0, 1):
                self._idempotent.produce(NEWS, b"%d" % number, partition=partition)
        assert self._idempotent.flush(TIMEOUT_S) == 0

    def _transactions(self):
        """One that was aborted, one that was committed, and one that is left open."""
        producer = self._transactional
        producer.init_transactions(TIMEOUT_S)
        for value, ends in ((b"aborted", "abort"), (b"committed", "commit"), (b"open 1", None)):
            producer.begin_transaction()
            producer.produce(MONEY, value)
            assert producer.flush(TIMEOUT_S) == 0
            if ends is not None:
                getattr(producer, f"{ends}_transaction")(TIMEOUT_S)

    def _security(self, admin):
        mechanisms = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        for mechanism in mechanisms if self.has_users else ():
            info = ScramCredentialInfo(mechanism, 4096)
            change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
            done(admin.alter_user_scram_credentials([change]))
        rules = [
            (ResourceType.TOPIC, NEWS, ResourcePatternType.LITERAL, AclOperation.READ),
            (ResourceType.GROUP, "read", ResourcePatternType.PREFIXED, AclOperation.READ),
        ]
        done(
            admin.create_acls(
                [
                    AclBinding(kind, name, pattern, f"User:{USER}", "*", operation, allow)
                    for kind, name, pattern, operation in rules
                    for allow in [AclPermissionType.ALLOW]
                ]
            )
        )
        with Cluster(self._kafka.address) as cluster:
            alter_quotas(cluster, {"user": USER}, {"producer_byte_rate": 1048576.0})
        setting = ConfigEntry("log.cleaner.threads", "1", incremental_operation=SET)
        broker = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[setting])
        done(admin.incremental_alter_configs([broker]))

    def go_on(self):
        """Uses the same clients on the broker that has Kafka's port now."""
        self._send_news(BEFORE, AFTER)
        self._transactional.produce(MONEY, b"open 2")
        assert self._transactional.flush(TIMEOUT_S) == 0
        self._transactional.commit_transaction(TIMEOUT_S)
        self._transactional.begin_transaction()
        self._transactional.produce(MONEY, b"next")
        self._transactional.commit_transaction(TIMEOUT_S)


def recorded(version, folder):
    """Unpacks the recorded log directory of a version. Returns its path."""
    with tarfile.open(RECORDED / f"kafka-{version}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "data"


def record(version):
    RECORDED.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, KafkaBefore(version, Path(folder)) as before:
        before.fill()
        before.stop()
        with tarfile.open(RECORDED / f"kafka-{version}.tar.xz", "w:xz") as archive:
            archive.add(before.log_dir, "data")


if __name__ == "__main__":
    record(sys.argv[1])
