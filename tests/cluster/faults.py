"""The parts that tests of faults share: three brokers and ZooKeeper in their own network, a
producer that writes during the whole test, and raw requests to one broker."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cluster import logins
from cluster.acknowledged import Sender, leaders_and_isrs
from cluster.network import Network
from cluster.three_brokers import BrokerProcess, Cluster
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import soon
from zookeeper_server import ZooKeeperServer

from barnabas.wire import request
from barnabas.wire.batches import Record, encode_batch

IDS = (1, 2, 3)
SESSION_S = 2.0
LAG_S = 3.0  # replica.lag.time.max.ms of BrokerProcess
ZOOKEEPER = "zookeeper"
PRODUCE, FETCH, EPOCH_END = 0, 1, 23
# A client that soon gives up a broker that says nothing.
IMPATIENT = {
    "socket.timeout.ms": 3000,
    "socket.connection.setup.timeout.ms": 1000,
    "reconnect.backoff.max.ms": 200,
}


class Rig:
    """The network, ZooKeeper and three brokers. A topic has one partition, on all three."""

    def __init__(self, network: Network, zookeeper: ZooKeeperServer, cluster: Cluster) -> None:
        self.network, self.zookeeper, self.cluster = network, zookeeper, cluster
        self.brokers = cluster.brokers
        self.servers = cluster.bootstrap_servers

    def create(self, topic: str, leader: int = 1, replicas: int = 3, **config: str) -> None:
        """Creates a topic with this preferred leader, and waits until it leads and all replicas are
        in sync. `config`: settings beside min.insync.replicas=2, with _ in place of each dot."""
        order = list(itertools.islice(itertools.cycle(IDS), leader - 1, leader - 1 + replicas))
        given = {"min_insync_replicas": "2", **config}
        new = NewTopic(
            topic,
            replica_assignment=[order],
            num_partitions=1,
            config={name.replace("_", "."): value for name, value in given.items()},
        )
        admin = AdminClient({"bootstrap.servers": self.servers, **logins.CLIENT})
        admin.create_topics([new])[topic].result(30)
        self.wait_for(topic, lambda found: found == (leader, sorted(order)), "not in sync")

    def sender(self, topic: str, padding_bytes: int = 0) -> Sender:
        return Sender(
            self.servers, topic, more={**IMPATIENT, **logins.CLIENT}, padding_bytes=padding_bytes
        )

    def state(self, topic: str, ask: int) -> tuple[int, list[int]]:
        """Returns leader and ISR of a topic as one broker reports them."""
        found = leaders_and_isrs(self.brokers[ask].address, topic, logins.CLIENT)
        return found.get(0, (-1, []))

    def wait_for(
        self,
        topic: str,
        condition: Callable[[tuple[int, list[int]]], bool],
        why: str,
        ask: tuple[int, ...] = IDS,
        patience_s: float = 60,
    ) -> float:
        """Waits until each of the brokers reports a state that fits `condition`. Returns the
        seconds that it took."""
        began = time.monotonic()
        for broker_id in ask:
            told: list[tuple[int, list[int]]] = []

            def says(broker_id: int = broker_id, told: list = told) -> bool:
                told[:] = [self.state(topic, broker_id)]
                return condition(told[0])

            try:
                soon(says, why, patience_s)
            except AssertionError:
                raise AssertionError(f"{topic}: {why}: broker {broker_id} says {told}") from None
        return time.monotonic() - began

    def finish(self, topic: str, sender: Sender) -> int:
        """Ends a test: waits until all replicas are in sync, and checks that a consumer and the
        files of each replica have every acknowledged record. Returns the number of batches."""
        self.wait_for(topic, lambda found: found[1] == list(IDS), "not in sync at the end")
        sender.wait_for_more(20)
        sender.stop()
        sender.check(self.servers)
        for broker_id in IDS:
            self.wait_for_end(topic, broker_id)
        return sender.check_files(list(self.brokers.values()))

    def wait_for_end(self, topic: str, broker_id: int) -> None:
        """Waits until the log of a replica has as many bytes as those of the others."""

        def size(broker: BrokerProcess) -> int:
            return sum(len(batch) for _offset, _epoch, batch in broker.batches(topic, 0))

        most = max(size(broker) for broker in self.brokers.values())
        soon(lambda: size(self.brokers[broker_id]) >= most, f"{broker_id} lacks records")


@contextlib.contextmanager
def rig(folder: Path, **settings: str) -> Iterator[Rig]:
    """Starts all of them; over SASL_SSL with access rules if the tests run with --over sasl_ssl."""
    with Network([ZOOKEEPER, *map(str, IDS)]) as network:
        zookeeper = ZooKeeperServer(
            folder / "zookeeper",
            host=network.address(ZOOKEEPER),
            prefix=network.prefix(ZOOKEEPER),
        )
        given: dict[str, str] = dict(settings)
        if logins.IS_SECURE:
            hosts = [network.address(str(broker_id)) for broker_id in IDS]
            given |= logins.settings_of(folder, hosts)
        with zookeeper, Cluster(folder, zookeeper.connect("/c"), network=network, **given) as it:
            if logins.IS_SECURE:
                logins.grant(it.bootstrap_servers, logins.RULES)
            try:
                yield Rig(network, zookeeper, it)
            finally:
                network.heal()


class Direct:
    """A connection to one broker. It sends its requests to this broker, whichever broker leads."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self._wire, self._topic = logins.connection(broker.address), topic

    def close(self) -> None:
        self._wire.close()

    def produce(self, value: bytes, acks: int = -1, timeout_ms: int = 1000) -> tuple[int, int]:
        """Sends one record. Returns the error code and the offset."""
        ask = request(PRODUCE)
        record = Record(value=value, timestamp=int(time.time() * 1000))
        part = ask.struct("topicData.partitionData")(index=0, records=encode_batch([record]))
        topic = ask.struct("topicData")(name=self._topic, partitionData=[part])
        body = ask.cls(acks=acks, timeoutMs=timeout_ms, topicData=[topic])
        [row] = self._wire.call(PRODUCE, 9, body).responses[0].partitionResponses
        return row.errorCode, row.baseOffset

    def fetch(self, offset: int, leader_epoch: int = -1) -> tuple[int, int]:
        """Returns the error code and the high watermark."""
        ask = request(FETCH)
        part = ask.struct("topics.partitions")(
            partition=0, fetchOffset=offset, currentLeaderEpoch=leader_epoch, partitionMaxBytes=1000
        )
        topic = ask.struct("topics")(topic=self._topic, partitions=[part])
        body = ask.cls(maxWaitMs=0, minBytes=0, maxBytes=1000, topics=[topic])
        [row] = self._wire.call(FETCH, 11, body).responses[0].partitions
        return row.errorCode, row.highWatermark

    def epoch_end(self, leader_epoch: int) -> int:
        """Returns the end offset of a leader epoch (OffsetForLeaderEpoch)."""
        ask = request(EPOCH_END)
        part = ask.struct("topics.partitions")(partition=0, leaderEpoch=leader_epoch)
        topic = ask.struct("topics")(topic=self._topic, partitions=[part])
        [row] = self._wire.call(EPOCH_END, 3, ask.cls(topics=[topic])).topics[0].partitions
        assert row.errorCode == 0
        return row.endOffset
