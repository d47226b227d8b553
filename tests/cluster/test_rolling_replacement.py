"""Replaces three brokers of Apache Kafka by barnabas one after another, and then barnabas by Kafka,
under load: no record is lost, and none is written twice.

The test stops a broker, and starts one of the other kind with the same id and empty log directories
in its place. During the whole test librdkafka and Kafka's Java producer write with acks=all, groups
read on each side what they committed on the other, and transactions that began before a replacement
are committed after it. Only the long form runs this."""

import signal

import pytest
from cluster.acknowledged import (
    Groups,
    Sender,
    Transactions,
    equal_replicas,
    leaders_and_isrs,
)
from cluster.java_producer import JavaSender
from cluster.kafka_brokers import KafkaProcess
from cluster.three_brokers import BrokerProcess
from compat.support import rival
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from waiting import soon

pytestmark = [
    pytest.mark.java,
    pytest.mark.only_long,
    pytest.mark.takes(seconds=200),
    pytest.mark.timeout(900),
]

IDS = (1, 2, 3)
TOPICS = {"replicated": 3, "java": 2, "transactional": 3}


class Rolling:
    def __init__(self, folder, zookeeper, version):
        client = KazooClient(zookeeper.address)
        client.start(30)
        client.ensure_path("/rolling")
        client.stop()
        client.close()
        self._folder, self._version = folder, version
        self._connect = zookeeper.connect("/rolling")
        self._count = 0  # of brokers that were started
        self.brokers = {}
        for broker_id in IDS:
            self._begin(broker_id, is_ours=False)

    def _begin(self, broker_id, is_ours):
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        given = {"auto.create.topics.enable": "false"}
        if is_ours:
            broker = BrokerProcess(folder, broker_id, self._connect, given)
        else:
            broker = KafkaProcess(folder, broker_id, self._connect, given, self._version)
        self.brokers[broker_id] = broker.start()

    def replace(self, broker_id, is_ours):
        """Stops a broker, and starts one of the other kind in its place."""
        self.brokers[broker_id].stop()
        self._begin(broker_id, is_ours)
        self.wait_for_isrs()

    def wait_for_isrs(self):
        """Waits until each broker says that all replicas are in sync."""
        for topic, count in TOPICS.items():
            for broker_id, broker in self.brokers.items():
                found = {}

                def in_sync(asked=broker.address, name=topic, wanted=count, found=found):
                    found.clear()
                    found.update(leaders_and_isrs(asked, name))
                    return [row[1] for row in found.values()] == [list(IDS)] * wanted

                try:
                    soon(in_sync, "not in sync", patience_s=90)
                except AssertionError:
                    kinds = {number: type(row).__name__ for number, row in self.brokers.items()}
                    raise AssertionError(f"{broker_id} of {kinds}: {topic}: {found}") from None

    @property
    def replacements(self):
        return self._count - len(IDS)

    @property
    def servers(self):
        return ",".join(broker.address for broker in self.brokers.values())

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        for broker in self.brokers.values():
            if broker.is_running:
                broker.signal(signal.SIGCONT)
                broker.kill()


@pytest.mark.parametrize("version", ["3.9.2", "2.8.2"])
def test_all_three_and_back(own_zookeeper, tmp_path, version):
    reason = rival.missing(version)
    if reason:
        pytest.skip(reason)
    folder = tmp_path / "brokers"
    folder.mkdir()
    with Rolling(folder, own_zookeeper, version) as rolling:
        admin = AdminClient({"bootstrap.servers": rolling.servers})
        config = {"min.insync.replicas": "2"}
        for topic, count in TOPICS.items():
            admin.create_topics([NewTopic(topic, count, 3, config=config)])[topic].result(30)
        rolling.wait_for_isrs()
        sender = Sender(rolling.servers, "replicated", 3)
        java = JavaSender(tmp_path, rolling.servers, "java")
        try:
            groups = Groups("replicated")
            java.wait_for_more()
            transactions = Transactions(rolling.servers, "transactional")
            for is_ours in (True, False):
                for broker_id in IDS:
                    rolling.replace(broker_id, is_ours)
                    transactions.step(rolling.replacements)
                    sender.wait_for_more()
                    java.wait_for_more()
                    groups.step(rolling.servers)
            sender.stop()
            java.stop()
            transactions.end()
        finally:
            java.kill()
        sender.check(rolling.servers)
        java.check(rolling.servers)
        transactions.check(rolling.servers)
        for broker in rolling.brokers.values():
            broker.stop()
        brokers = list(rolling.brokers.values())
        assert sender.check_files(brokers) > 10
        for topic in ("java", "transactional"):
            assert equal_replicas(brokers, topic, TOPICS[topic]) > 10
        print(f"{len(sender.acknowledged)} records of librdkafka, {len(java.acknowledged)} of Java")
        print(f"{len(transactions.committed)} in transactions")
