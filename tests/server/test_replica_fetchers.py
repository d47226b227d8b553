"""Fetcher threads copy the partitions of other brokers, and repair logs that differ from theirs."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from oracle.follower import Follower
from oracle.log_builder import Disk, batch
from waiting import soon

from barnabas import Broker
from barnabas.cext.log.log_handle import LogHandle
from barnabas.server import replica_fetchers
from barnabas.server.follower_truncation import common_end, truncate_to_epoch
from barnabas.server.replica_fetchers import (
    Brokers,
    FetchSettings,
    Leader,
    Listeners,
    ReplicaFetchers,
)

CONSUMER = -1  # the leaders have no followers: they answer as they answer consumers
SETTINGS = FetchSettings(wait_max_ms=50, backoff_ms=20)


def threads(broker_id: int) -> list[str]:
    return sorted(
        thread.name for thread in threading.enumerate() if f"fetcher-{broker_id}-" in thread.name
    )


class Pair:
    """A broker that leads, and a follower's table; `follower.fetches` is not used."""

    def __init__(self, broker: Broker, directory: Path, partitions: int = 1, **options) -> None:
        self.broker = broker
        broker.create_topic("t", partitions)
        ids = {name: topic_id for name, topic_id, _ in self.table.topics()}
        self.topic_id = ids["t"]
        self.follower = Follower(directory, {"t": (ids["t"], partitions)}, leader_epoch=0)
        self.truncated: list[tuple[str, int]] = []
        self.fetchers = self.made(**options)

    def made(
        self,
        settings: FetchSettings = SETTINGS,
        address=None,
        epoch=lambda: -1,
        monotonic_ns=time.monotonic_ns,
    ) -> ReplicaFetchers:
        return ReplicaFetchers(
            CONSUMER,
            self.follower.table,
            Brokers(address or (lambda broker_id: self.address), epoch=epoch),
            settings,
            Listeners(truncated=lambda *name: self.truncated.append(name)),
            monotonic_ns,
        )

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.broker.bootstrap_servers.rsplit(":", 1)
        return host, int(port)

    @property
    def table(self):
        return self.broker.node.loaded.table

    def leader(self, epoch: int = 0, broker_id: int = 1) -> Leader:
        return Leader(broker_id, epoch, self.topic_id)

    def log(self, index: int = 0) -> LogHandle:
        return self.table.partition("t", index).log

    def copy(self, index: int = 0) -> LogHandle:
        return self.follower.logs["t", index]

    def append(self, count: int, index: int = 0, epoch: int = 0, value: bytes = b"v") -> None:
        for _ in range(count):
            self.log(index).append(bytearray(batch(value)), leader_epoch=epoch)
        self.table.partition("t", index).appended()

    def begin_epoch(self, epoch: int) -> None:
        self.table.set_leader("t", 0, leader_id=self.table.node_id, leader_epoch=epoch)
        self.log().assign_epoch(epoch)

    def are_equal(self, index: int = 0) -> bool:
        own, theirs = self.copy(index), self.log(index)
        return (own.start_offset, own.end_offset) == (theirs.start_offset, theirs.end_offset) and (
            own.read(own.start_offset, 1 << 24) == theirs.read(theirs.start_offset, 1 << 24)
        )


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def made(broker: Broker, tmp_path: Path) -> Iterator[Callable[..., Pair]]:
    pairs: list[Pair] = []

    def make(**options) -> Pair:
        pairs.append(Pair(broker, tmp_path / "follower", **options))
        return pairs[-1]

    yield make
    for pair in pairs:
        pair.fetchers.stop()
        pair.follower.close()


def test_partitions_are_copied_by_the_threads_of_their_leader(made):
    pair = made(partitions=4, settings=FetchSettings(fetchers=2, wait_max_ms=50, backoff_ms=20))
    pair.fetchers.follow({("t", index): pair.leader() for index in range(4)})
    assert threads(1) == ["fetcher-1-0", "fetcher-1-1"]
    for number in range(40):
        pair.append(number, number % 4)
    for index in range(4):
        soon(lambda index=index: pair.are_equal(index))
        assert pair.copy(index).leader_epochs() == pair.log(index).leader_epochs()
        soon(
            lambda index=index: (
                pair.follower.high_watermark("t", index) == pair.log(index).end_offset
            )
        )
    assert set(pair.fetchers.states().values()) == {(1, 0, 0, False)}


def test_a_broker_that_registers_again_fetches_with_its_new_epoch(made):
    """With the former one, the leader would never take it into an ISR again (KIP-903)."""
    epoch = 7
    pair = made(epoch=lambda: epoch)
    pair.fetchers.follow({("t", 0): pair.leader()})
    (fetcher,) = pair.fetchers._fetchers.values()
    soon(lambda: fetcher.fetches.broker_epoch == 7)
    epoch = 9
    soon(lambda: fetcher.fetches.broker_epoch == 9)


def test_a_partition_that_is_not_followed_any_more_is_left_alone(made):
    pair = made(partitions=2)
    pair.fetchers.follow({("t", 0): pair.leader(), ("t", 1): pair.leader()})
    pair.append(5)
    soon(pair.are_equal)
    pair.fetchers.follow({("t", 0): None})
    pair.append(5)
    pair.append(3, 1)
    soon(lambda: pair.are_equal(1))
    assert pair.copy().end_offset == 5
    pair.fetchers.follow({("t", 0): pair.leader()})
    soon(pair.are_equal)
    pair.fetchers.follow({("t", 0): None, ("t", 1): None})
    soon(lambda: not threads(1))


def test_a_partition_moves_to_another_leader(made):
    pair = made()
    pair.fetchers.follow({("t", 0): pair.leader(broker_id=1)})
    pair.append(5)
    soon(pair.are_equal)
    pair.begin_epoch(1)
    pair.fetchers.follow({("t", 0): pair.leader(1, broker_id=3)})
    assert threads(3) == ["fetcher-3-0"]
    soon(lambda: not threads(1))
    pair.append(5, epoch=1)
    soon(pair.are_equal)
    assert pair.copy().leader_epochs() == [(0, 0), (1, 5)]


def test_a_leader_that_comes_back_is_fetched_from_again(made, caplog):
    addresses: list = [("127.0.0.1", 9)]  # nobody listens there
    pair = made(address=lambda broker_id: addresses[0])
    with caplog.at_level(logging.INFO, "barnabas.replicas"):
        pair.fetchers.follow({("t", 0): pair.leader()})
        soon(lambda: "cannot fetch from broker 1" in caplog.text)
        addresses[0] = None
        soon(lambda: "it is not alive" in caplog.text)
        pair.append(5)
        addresses[0] = pair.address
        soon(pair.are_equal)
        soon(lambda: "fetching from broker 1 again" in caplog.text)
    assert len([r for r in caplog.records if "cannot fetch" in r.message]) == 2


def test_a_stop_does_not_wait_for_an_answer(made):
    pair = made(settings=FetchSettings(wait_max_ms=30_000))
    pair.append(1)
    pair.fetchers.follow({("t", 0): pair.leader()})
    soon(pair.are_equal)  # the next request waits at the leader
    began = time.monotonic()
    pair.fetchers.stop()
    assert time.monotonic() - began < 10
    assert not threads(1)
    pair.fetchers.follow({("t", 0): pair.leader()})
    assert not threads(1)


def test_records_that_the_leader_does_not_have_are_truncated(made, caplog):
    """The follower led in epoch 0 and appended what nobody else got."""
    pair = made()
    for _ in range(6):
        pair.copy().append(batch(b"lost"), leader_epoch=0)
    pair.append(3, value=b"lost")
    pair.begin_epoch(1)
    pair.append(4, epoch=1)
    with caplog.at_level(logging.INFO, "barnabas.replicas"):
        pair.fetchers.follow({("t", 0): pair.leader(1)})
        soon(pair.are_equal)
    assert pair.copy().leader_epochs() == [(0, 0), (1, 3)]
    soon(lambda: pair.truncated == [("t", 0)])
    (line,) = [r for r in caplog.records if "truncated" in r.message]
    assert line.levelno == logging.INFO
    assert "t-0: truncated from offset 6 to 3: its leader ends epoch 0 there" in line.message


def test_a_failure_concerns_its_own_partition_only(made, caplog, monkeypatch):
    """What one partition fails with neither pauses the others of its leader nor loses what the same
    answer says about them. The pause after a failed connection is longer than the test."""
    pair = made(partitions=3, settings=FetchSettings(wait_max_ms=50, backoff_ms=60_000))
    for index in range(3):
        for _ in range(6):
            pair.copy(index).append(batch(b"lost"), leader_epoch=0)
        pair.append(3, index, value=b"lost")
        pair.table.set_leader("t", index, leader_id=pair.table.node_id, leader_epoch=1)
        pair.log(index).assign_epoch(1)
        pair.append(4, index, epoch=1)

    def truncate(title, *rest):
        if title == "t-1":
            raise RuntimeError("a bug")
        return truncate_to_epoch(title, *rest)

    monkeypatch.setattr(replica_fetchers, "truncate_to_epoch", truncate)
    pair.fetchers.follow({("t", index): pair.leader(1) for index in range(3)})
    soon(lambda: pair.are_equal(0) and pair.are_equal(2))
    pair.append(5, 0, epoch=1)
    soon(pair.are_equal)
    (line,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert "t-1: following it failed" in line.message
    assert pair.copy(1).end_offset == 6
    assert pair.fetchers.states()["t", 1][3]
    monkeypatch.undo()
    pair.fetchers.follow({("t", 1): pair.leader(1)})
    soon(lambda: pair.are_equal(1))


def test_a_request_that_waits_is_dropped_for_new_partitions_once_in_its_time(made, monkeypatch):
    """A follower that waited at its leader fetched new partitions up to replica.fetch.wait.max.ms
    later, and so did every write with acks=all. The time here is longer than the test."""
    wait_ms, clock, asked, dropped = 60_000, [0], [], []

    class Watched(replica_fetchers.Connection):
        def exchange(self, *rest):
            asked.append(rest)
            return super().exchange(*rest)

        def interrupt(self):
            dropped.append(self)
            super().interrupt()

    monkeypatch.setattr(replica_fetchers, "Connection", Watched)
    pair = made(
        partitions=5,
        settings=FetchSettings(wait_max_ms=wait_ms, backoff_ms=60_000),
        monotonic_ns=lambda: clock[0],
    )
    for index in range(1, 5):
        pair.append(1, index)

    def follow(*indexes, epoch=0):
        pair.fetchers.follow({("t", index): pair.leader(epoch) for index in indexes})

    follow(0)
    soon(lambda: len(asked) == 1)
    follow(1, 2)
    soon(lambda: pair.are_equal(1) and pair.are_equal(2))
    assert len(dropped) == 1
    soon(lambda: len(asked) == 3)  # the dropped one, one with records, one that waits
    follow(0, 1, 2)  # nothing new
    follow(3)  # too soon after the last drop
    assert len(dropped) == 1 and pair.copy(3).end_offset == 0
    clock[0] += wait_ms * 1_000_000
    follow(0, 1, 2, 3)
    assert len(dropped) == 1
    follow(4)
    soon(lambda: pair.are_equal(3) and pair.are_equal(4))
    assert len(dropped) == 2


def test_a_log_behind_the_leaders_start_begins_there(made):
    pair = made()
    pair.append(50)
    pair.log().advance_log_start(20)
    for _ in range(5):
        pair.copy().append(batch(b"old"), leader_epoch=0)
    pair.fetchers.follow({("t", 0): pair.leader()})
    soon(pair.are_equal)
    assert (pair.copy().start_offset, pair.copy().end_offset) == (20, 50)


def test_a_start_inside_a_batch_is_followed(made):
    pair = made()
    for _ in range(5):
        pair.log().append(bytearray(batch(*[b"v"] * 10)), leader_epoch=0)
    pair.table.partition("t", 0).appended()
    pair.log().advance_log_start(23)
    pair.fetchers.follow({("t", 0): pair.leader()})
    soon(pair.are_equal)
    assert pair.copy().segments()[0].base_offset == 20


def test_a_truncation_below_the_high_watermark_is_an_error_of_the_log(made, caplog):
    """An unclean election: the leader's log ends before what was acknowledged."""
    pair = made()
    handle = pair.follower.table.partition("t", 0)
    pair.append(9)
    pair.fetchers.follow({("t", 0): pair.leader()})
    soon(lambda: handle.high_watermark == 9)
    pair.fetchers.follow({("t", 0): None})
    pair.log().truncate_to(4)
    pair.fetchers.follow({("t", 0): pair.leader()})
    soon(lambda: handle.high_watermark == 4 == pair.copy().end_offset)
    (line,) = [r for r in caplog.records if "truncated" in r.message]
    assert line.levelno == logging.ERROR
    assert "from offset 9 to 4, below the high watermark 9" in line.message


@pytest.mark.parametrize(
    ("leader_epoch", "leader_end", "expected"),
    [
        (3, 25, 25),  # both have epoch 3; the leader's ends first
        (3, 35, 30),  # this log's ends first
        (4, 28, 28),  # this log does not know epoch 4: its epoch 3 ends at 30
        (4, 45, 30),
        (5, 60, 50),  # the last epoch ends at the log's end
        (0, 5, 0),  # older than all that this log has: nothing is common
        (-1, -1, 17),  # the leader knows no epoch: the high watermark
    ],
)
def test_the_offset_of_a_truncation(tmp_path, leader_epoch, leader_end, expected):
    log = Disk(tmp_path).open()
    for epoch, count in ((1, 20), (3, 10), (5, 20)):
        for _ in range(count):
            log.append(batch(b"v"), leader_epoch=epoch)
    assert common_end(log, 17, leader_epoch, leader_end) == expected
