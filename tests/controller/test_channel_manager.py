"""What the controller's channels say about the other brokers."""

import threading
from types import SimpleNamespace

import pytest

from barnabas.client.failures import CannotConnect
from barnabas.controller.channel_manager import ControllerChannelManager
from barnabas.metadata.cluster_state import Broker, ClusterState, Partition, Topic
from barnabas.metadata.znodes import BrokerRegistration, Endpoint, PartitionState, TopicAssignment

SOON_S = 20
BROKER = BrokerRegistration((Endpoint("PLAINTEXT", "h", 9092, "PLAINTEXT"),), 0)


def state(epoch, *others):
    """Broker 1 leads the only partition."""
    partition = Partition((1, *others), PartitionState(1, epoch, (1,), 1), epoch, 10 + epoch)
    assignment = TopicAssignment({0: (1, *others)}, "AAAAAAAAQAEAAAAAAAAAAQ")
    brokers = {broker_id: Broker(broker_id, BROKER, broker_id) for broker_id in (1, *others)}
    topic = Topic("t", assignment, 0, {0: partition})
    return ClusterState(brokers=brokers, topics={"t": topic}, is_shared=True, controller_epoch=1)


class Answering:
    """A connection whose broker answers when it may."""

    def __init__(self):
        self.asked, self.may = threading.Semaphore(0), threading.Semaphore(0)

    def call(self, _key, body, _low, high):
        body(high)
        self.asked.release()
        assert self.may.acquire(timeout=SOON_S)
        return SimpleNamespace(errorCode=0)

    def close(self):
        pass

    def interrupt(self):
        self.may.release(9)


@pytest.fixture
def made():
    connections = {2: Answering(), 3: Answering()}

    def connect(broker_id):
        if broker_id not in connections:
            raise CannotConnect("no answer")
        return connections[broker_id]

    channels = ControllerChannelManager(1, connect)
    yield channels, connections
    channels.stop()


def test_all_other_brokers_have_acknowledged_when_each_has_answered_all_requests(made):
    channels, connections = made
    both = state(0, 2, 3)
    assert channels.is_acknowledged(state(0))  # there is no other
    assert not channels.is_acknowledged(both)
    channels.update(both)
    for broker in connections.values():  # brokers, LeaderAndIsr, partitions
        for _ in range(3):
            assert broker.asked.acquire(timeout=SOON_S)
            assert not channels.is_acknowledged(both)
            broker.may.release()
    done = threading.Event()
    for _ in range(SOON_S * 100):
        if channels.is_acknowledged(both):
            break
        done.wait(0.01)
    else:
        raise AssertionError("it is not acknowledged")
    assert not channels.is_acknowledged(state(1, 2, 3))
    assert not channels.is_acknowledged(state(0, 2, 3, 4))
