"""The settings of followers: what they ask a leader for, and how many threads do."""

import socket
import threading
import time
from types import SimpleNamespace

import pytest
from oracle.follower import Follower

from barnabas.config import BrokerConfig, DynamicConfig
from barnabas.server.replica_fetchers import Brokers, FetchSettings, Leader, ReplicaFetchers
from barnabas.wire import request

TOPIC_ID = bytes(range(16))
SOON_S = 20
MS = 1_000_000


def settings(given):
    values = {name: str(value) for name, value in given.items()}
    return FetchSettings.of(DynamicConfig(BrokerConfig(values)))


def asked(folder, found):
    """The Fetch request of a follower with these settings."""
    follower = Follower(
        folder,
        {"t": (TOPIC_ID, 1)},
        max_bytes=found.max_bytes,
        response_max_bytes=found.response_max_bytes,
        min_bytes=found.min_bytes,
        wait_max_ms=found.wait_max_ms,
        backoff_ms=found.backoff_ms,
    )
    body = follower.fetches.next_request(12, 0)
    follower.close()
    return request(1).decode(body, 12, 0)


def test_the_limits_of_a_fetch(tmp_path):
    given = {
        "replica.fetch.max.bytes": 1234,
        "replica.fetch.response.max.bytes": 56789,
        "replica.fetch.min.bytes": 77,
        "replica.fetch.wait.max.ms": 88,
    }
    found = asked(tmp_path, settings(given))
    assert (found.maxWaitMs, found.minBytes, found.maxBytes) == (88, 77, 56789)
    assert found.topics[0].partitions[0].partitionMaxBytes == 1234


class Unreachable:
    """A leader that cannot be reached: notes when it was looked up."""

    def __init__(self):
        self.times_ns = []
        self.news = threading.Condition()

    def address(self, _broker_id):
        with self.news:
            self.times_ns.append(time.monotonic_ns())
            self.news.notify_all()

    def pauses_ms(self, count):
        with self.news:
            assert self.news.wait_for(lambda: len(self.times_ns) > count, SOON_S)
            times = list(self.times_ns)
        return [(after - before) / MS for before, after in zip(times, times[1:], strict=False)]


@pytest.fixture
def fetching(tmp_path):
    """Starts fetchers of eight partitions of a leader that cannot be reached."""
    made = []

    def start(given):
        follower, leader = Follower(tmp_path, {"t": (TOPIC_ID, 8)}), Unreachable()
        fetchers = ReplicaFetchers(2, follower.table, Brokers(leader.address), settings(given))
        made.append((fetchers, follower))
        fetchers.follow({("t", index): Leader(1, 2, TOPIC_ID) for index in range(8)})
        leader.times_ns.clear()  # partitions that are added cut the pauses short
        return SimpleNamespace(fetchers=fetchers, leader=leader)

    yield start
    for fetchers, follower in made:
        fetchers.stop()
        follower.close()


def test_the_pause_after_a_failure(fetching):
    pauses_ms = fetching({"replica.fetch.backoff.ms": 60}).leader.pauses_ms(3)
    assert min(pauses_ms[1:]) >= 60  # the last partition may have cut the first one short


def threads():
    return sorted(row.name for row in threading.enumerate() if row.name.startswith("fetcher-1-"))


def test_the_threads_of_a_leader_and_their_change(fetching):
    started = fetching({"num.replica.fetchers": 2})
    assert threads() == ["fetcher-1-0", "fetcher-1-1"]
    started.fetchers.resize(3)
    assert threads() == ["fetcher-1-0", "fetcher-1-1", "fetcher-1-2"]
    assert len(started.fetchers.states()) == 8
    started.fetchers.resize(1)
    assert len(started.fetchers.states()) == 8
    deadline = time.monotonic() + SOON_S
    while threads() != ["fetcher-1-0"]:
        assert time.monotonic() < deadline


@pytest.fixture
def silent(tmp_path):
    """Starts a fetcher of a leader that accepts connections and answers nothing."""
    made = []

    def start(given):
        listening = socket.create_server(("127.0.0.1", 0))
        listening.settimeout(SOON_S)
        follower = Follower(tmp_path, {"t": (TOPIC_ID, 1)})
        brokers = Brokers(lambda _broker_id: listening.getsockname())
        fetchers = ReplicaFetchers(2, follower.table, brokers, settings(given))
        made.append((fetchers, follower, listening))
        fetchers.follow({("t", 0): Leader(1, 2, TOPIC_ID)})
        return listening

    yield start
    for fetchers, follower, listening in made:
        listening.close()
        fetchers.stop()
        follower.close()


def test_a_leader_that_does_not_answer_is_given_up(silent):
    given = {"replica.socket.timeout.ms": 200, "replica.fetch.wait.max.ms": 100}
    peer, _ = silent(given).accept()
    peer.settimeout(SOON_S)  # the default is 30 s
    began = time.monotonic()
    while peer.recv(1000):
        pass
    assert time.monotonic() - began >= 0.25
    peer.close()


def test_the_receive_buffer_of_a_followers_connection(silent, monkeypatch):
    asked = []
    setsockopt = socket.socket.setsockopt

    def noted(self, level, name, value, *more):
        if name == socket.SO_RCVBUF:
            asked.append(value)
        return setsockopt(self, level, name, value, *more)

    monkeypatch.setattr(socket.socket, "setsockopt", noted)
    peer, _ = silent({"replica.socket.receive.buffer.bytes": 54321}).accept()
    assert peer.recv(1)  # of its first request
    assert asked[:1] == [54321]
    peer.close()
