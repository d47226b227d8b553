"""The settings of throttled replication (KIP-73): rates, windows, and the replicas of a topic."""

import pytest

from barnabas.config import BrokerConfig, ConfigError, DynamicConfig
from barnabas.config.throttled_replicas import throttled_partitions
from barnabas.config.topic_config import check_topic
from barnabas.server.replication_throttles import ReplicationThrottles, alter_log_dirs_throttle


def made(**given):
    values = {name: str(value) for name, value in given.items()}
    config = DynamicConfig(BrokerConfig(values), node_id=1)
    return config, ReplicationThrottles(1, config)


def test_the_rates_change_while_the_broker_runs():
    config, throttles = made()
    assert (throttles.leader.limit, throttles.follower.limit) == (None, None)
    config.alter(1, {"leader.replication.throttled.rate": "1000"})
    assert (throttles.leader.limit, throttles.follower.limit) == (1000, None)
    config.alter(1, {"follower.replication.throttled.rate": "0"})
    assert (throttles.leader.limit, throttles.follower.limit) == (1000, 0)
    assert not throttles.follower.is_exceeded(5000)
    throttles.follower.note(1, 5000)
    assert throttles.follower.is_exceeded(5000)


@pytest.mark.parametrize(
    ("number", "seconds", "at_once", "later"),
    [
        (11, 1, 6000 / 1, 12_000 / 6),
        (2, 1, 6000 / 1, 6000 / 1),  # the first 6,000 bytes are forgotten
        (3, 10, 6000 / 10, 12_000 / 10),
    ],
)
def test_the_windows_of_the_rates(number, seconds, at_once, later):
    """6,000 bytes, and again 6 s later. The rate is over the time since the oldest window began,
    and over one window at least."""
    given = {
        "replication.quota.window.num": number,
        "replication.quota.window.size.seconds": seconds,
    }
    _, throttles = made(**given)
    throttles.leader.note(6000, 100_000)
    assert throttles.leader.rate(100_000) == pytest.approx(at_once)
    throttles.leader.note(6000, 106_000)
    assert throttles.leader.rate(106_000) == pytest.approx(later)


class Marks(dict):
    def set_throttled(self, topic, index, *, leader, follower):
        self[topic, index] = (leader, follower)


def test_the_replicas_of_a_topic():
    table, (_, throttles) = Marks(), made()
    overrides = {
        "leader.replication.throttled.replicas": "0:1,1:2, 2:1",
        "follower.replication.throttled.replicas": "*",
    }
    throttles.mark(table, "t", range(3), overrides)
    assert table == {("t", 0): (True, True), ("t", 1): (False, True), ("t", 2): (True, True)}
    throttles.mark(table, "t", range(3), {})
    assert set(table.values()) == {(False, False)}


@pytest.mark.parametrize("text", ["", "*", " * ", "0:1", "0:1,10:22", "0:1, 2:3,", "00:1"])
@pytest.mark.parametrize("side", ["leader", "follower"])
def test_lists_that_kafka_accepts(side, text):
    config, _ = made()
    check_topic({f"{side}.replication.throttled.replicas": text}, config)
    assert (0 in throttled_partitions(text, 1)) == (text not in ("",))


@pytest.mark.parametrize(
    "text", ["all", "0", "0:", ":1", "0:1:2", "-1:1", "*,0:1", "0:1;1:2", "0:x"]
)
@pytest.mark.parametrize("side", ["leader", "follower"])
def test_lists_that_kafka_refuses(side, text):
    config, _ = made()
    with pytest.raises(ConfigError, match="not a list of replicas"):
        check_topic({f"{side}.replication.throttled.replicas": text}, config)


def test_the_rate_of_moves_between_directories_changes():
    config = DynamicConfig(BrokerConfig({}), node_id=1)
    throttle = alter_log_dirs_throttle(config)
    assert throttle.limit is None
    config.alter(1, {"replica.alter.log.dirs.io.max.bytes.per.second": "1000"})
    assert throttle.limit == 1000
    throttle.note(1_000_000, 5000)
    assert throttle.is_exceeded(5000)
    config.alter(1, {"leader.replication.throttled.rate": "5"})
    assert throttle.limit == 1000


def test_the_windows_of_the_rate_of_moves_between_directories():
    given = {
        "alter.log.dirs.replication.quota.window.num": "3",
        "alter.log.dirs.replication.quota.window.size.seconds": "10",
    }
    throttle = alter_log_dirs_throttle(DynamicConfig(BrokerConfig(given), node_id=1))
    throttle.note(6000, 100_000)
    throttle.note(6000, 106_000)
    assert throttle.rate(106_000) == pytest.approx(12_000 / 10)
