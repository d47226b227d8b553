"""How fast throttled replicas are copied (KIP-73): one rate for what this broker sends as a leader,
and one for what it receives as a follower. A third rate is for moves between log directories.

The rates are settings of the broker, and topics name the throttled replicas.
`kafka-reassign-partitions --throttle` and `barnabas cluster reassign --throttle` set both, and
remove them after the move. Network threads and fetchers count the records of throttled replicas and
compare (cext/fetch/fetch.pyx, cext/replica/fetches.pyx); a replica in the ISR is not throttled.

Kafka: ReplicationQuotaManager, BrokerConfigHandler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.cext.network.quota_sensors import Sensor
from barnabas.cext.partition.partitions import PartitionTable
from barnabas.config import DynamicConfig
from barnabas.config.throttled_replicas import FOLLOWERS, LEADERS, throttled_partitions

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
ALTER_LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
UNLIMITED = (1 << 63) - 1


def alter_log_dirs_throttle(config: DynamicConfig) -> Sensor:
    """Returns the sensor for the bytes/s that moves between log directories copy (KIP-113). Its
    limit follows the setting. Kafka: the quota AlterLogDirs."""
    sensor = Sensor(
        samples=config.integer("alter.log.dirs.replication.quota.window.num"),
        window_ms=config.integer("alter.log.dirs.replication.quota.window.size.seconds") * 1000,
        is_simple=True,
    )

    def set_limit(names: Iterable[str]) -> None:
        if ALTER_LOG_DIRS_RATE in names:
            sensor.limit = _limit_of(config, ALTER_LOG_DIRS_RATE)

    set_limit([ALTER_LOG_DIRS_RATE])
    config.on_change.append(set_limit)
    return sensor


def _limit_of(config: DynamicConfig, name: str) -> int | None:
    rate = config.integer(name)
    return None if rate == UNLIMITED else rate


class ReplicationThrottles:
    """The throttles of one broker: the sensors `leader` and `follower`, in bytes/s."""

    def __init__(self, node_id: int, config: DynamicConfig) -> None:
        self._node_id = node_id
        self._config = config
        samples = config.integer("replication.quota.window.num")
        window_ms = config.integer("replication.quota.window.size.seconds") * 1000
        self.leader = Sensor(samples=samples, window_ms=window_ms, is_simple=True)
        self.follower = Sensor(samples=samples, window_ms=window_ms, is_simple=True)
        self._sensors = {LEADER_RATE: self.leader, FOLLOWER_RATE: self.follower}
        self._set(self._sensors)
        config.on_change.append(self._set)

    def _set(self, names: Iterable[str]) -> None:
        for name in self._sensors.keys() & set(names):
            self._sensors[name].limit = _limit_of(self._config, name)

    def mark(
        self,
        table: PartitionTable,
        topic: str,
        indexes: Iterable[int],
        overrides: Mapping[str, str],
    ) -> None:
        """Marks the replicas of this broker that the `overrides` of a topic throttle, and unmarks
        the others."""
        leaders = throttled_partitions(overrides.get(LEADERS, ""), self._node_id)
        followers = throttled_partitions(overrides.get(FOLLOWERS, ""), self._node_id)
        for index in indexes:
            table.set_throttled(topic, index, leader=index in leaders, follower=index in followers)
