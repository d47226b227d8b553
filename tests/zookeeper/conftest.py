"""Brokers whose metadata is in ZooKeeper, and a separate ZooKeeper for single tests."""

from pathlib import Path

import pytest
from kazoo.client import KazooClient
from zookeeper_server import ZooKeeperServer, missing

from barnabas import Broker

WAIT_SECONDS = 30


@pytest.fixture
def own_server(tmp_path):
    """For tests that stop, pause or kill it."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    with ZooKeeperServer(tmp_path / "zookeeper") as running:
        yield running


@pytest.fixture
def zk():
    """Connects kazoo to a server, as another client would."""
    made = []

    def connect(server, auth=None):
        client = KazooClient(server.address, auth_data=[("digest", auth)] if auth else [])
        made.append(client)
        client.start(WAIT_SECONDS)
        return client

    yield connect
    for client in made:
        client.stop()
        client.close()


class Brokers:
    """Starts brokers on one chroot, and stops them after the test."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._made: list[Broker] = []

    def settings(self, connect: str, node_id: int = 1, **more: str) -> dict[str, str]:
        given = {name.replace("_", "."): value for name, value in more.items()}
        return {
            "log.dirs": str(self._folder / f"data-{node_id}"),
            "metadata.store": "zookeeper",
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": "6000",
            "node.id": str(node_id),
            "num.network.threads": "1",
            "num.io.threads": "4",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "controlled.shutdown.retry.backoff.ms": "200",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            **given,
        }

    def start(self, connect: str, node_id: int = 1, **more: str) -> Broker:
        broker = Broker(self.settings(connect, node_id, **more), durable=False)
        self._made.append(broker)
        return broker.start()

    def stop(self) -> None:
        for broker in self._made:
            broker.stop()


@pytest.fixture
def brokers(tmp_path):
    made = Brokers(tmp_path)
    yield made
    made.stop()
