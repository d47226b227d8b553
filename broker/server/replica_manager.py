"""Applies the metadata to this node: opens and deletes logs, leads and follows partitions.

`apply` compares a new state of the cluster with the previous one and changes only the differences.
It runs on the thread that changed the metadata, one call at a time. When it returns, clients can
produce to and fetch from every partition of the new state that this node hosts; only a partition
whose log cannot be used is offline.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from barnabas.cext.log.log_handle import LogError, LogHandle
from barnabas.cext.log.offline import offline_changes
from barnabas.cext.partition.partitions import PartitionHandle, PartitionTable
from barnabas.config import DynamicConfig, TopicConfig
from barnabas.errors import KafkaStorageError, NotLeaderOrFollower, UnknownTopicOrPartition
from barnabas.metadata.cluster_state import ClusterState, ClusterStateReader, Partition, Topic
from barnabas.metadata.znodes import BrokerRegistration, PartitionState, uuid_bytes
from barnabas.storage.log_manager import LogManager, OfflineLog, PartitionLog, WantedLog
from barnabas.wire.internal import TOPICS as INTERNAL_TOPICS

if TYPE_CHECKING:
    from barnabas.server.replica_fetchers import Leader, ReplicaFetchers
    from barnabas.server.replication_throttles import ReplicationThrottles

log = logging.getLogger("barnabas.replicas")

Result = TypeVar("Result")

NO_LEADER = -1
RETRY_MS = 3000  # the broker tries to open offline logs again in this period

LEVELS = {"gzip", "lz4", "zstd"}  # codecs with a level
CODECS = {"producer": -1, "none": 0, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


class ReplicaManager:
    """The partitions of one node."""

    def __init__(
        self,
        node_id: int,
        table: PartitionTable,
        logs: LogManager,
        config: DynamicConfig,
        more_policy: Callable[[TopicConfig], dict[str, bool]] | None = None,
    ) -> None:
        """`more_policy` returns more flags of a topic for the partition table's policy."""
        self._node_id = node_id
        self._table = table
        self._logs = logs
        self._config = config
        self._more_policy = more_policy or (lambda config: {})
        self._lock = threading.Lock()
        self._applied = ClusterState()
        self._failed: dict[tuple[str, int], str] = {}  # partitions without a log, with the reason
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.fetchers: ReplicaFetchers | None = None  # None: a single node
        self.throttles: ReplicationThrottles | None = None  # None: a single node
        # Returns the names of this node's listeners by their index.
        self.listener_names: Callable[[], Sequence[str]] = lambda: ()
        self._is_stopped = False  # by `stop`: no state is applied any more
        self.has_led = False  # set by `begin`; high watermarks are known from then on
        # Called with topic and partition of new logs before they are served. Returns those that may
        # not be served yet.
        self.before_new: Callable[[set[tuple[str, int]]], Mapping[tuple[str, int], OSError]] = (
            lambda _new: {}
        )
        # Called with each state after it was applied, on the thread that applied it.
        self.on_applied: list[Callable[[ClusterState], object]] = []
        # Called with topic and partition of a log that was offline and can be used again.
        self.on_returned: list[Callable[[str, int], object]] = []
        self._arrived: list[tuple[Topic, int, PartitionLog | None]] = []  # not served yet
        self._moved: list[tuple[Topic, int, PartitionState]] = []
        config.on_change.append(self._broker_config_changed)

    def begin(self, reader: ClusterStateReader) -> None:
        """Applies the state, now and after each change. Raises OSError."""
        reader.on_change(self.apply)
        self.has_led = True

    def apply(self, state: ClusterState) -> None:
        """Applies `state` to this node, then calls `on_applied`. Raises OSError when a leader epoch
        that changed cannot be written. Does nothing after `stop`."""
        with self._lock:
            if self._is_stopped:
                return
            before = self._applied
            if state.is_shared and state.brokers != before.brokers:
                self._set_live_brokers(state)
            for name in before.topics.keys() - state.topics.keys():
                self._drop(before.topics[name])
            for name, topic in state.topics.items():
                known = before.topics.get(name)
                if known is not None and known.topic_id != topic.topic_id:
                    self._drop(known)
                    known = None
                if topic.deleting:
                    if known is not None:
                        self._drop(known)
                    continue
                if known is None or known.deleting:
                    self._host(topic, state)
                elif known is not topic:
                    self._change(known, topic, state)
                path = f"topics/{name}"
                if known is not None and before.configs.get(path) != state.configs.get(path):
                    self._configure(name, state)
            self._serve(state)
            self._applied = state
        for listener in self.on_applied:
            listener(state)

    def _set_live_brokers(self, state: ClusterState) -> None:
        brokers = {key: row.registration for key, row in state.brokers.items()}
        own = self.listener_names()
        self._table.set_live_brokers(
            {key: row.epoch for key, row in state.brokers.items()},
            {key: row.rack for key, row in brokers.items() if row.rack is not None},
            {key: _same_listeners(own, row) for key, row in brokers.items()},
        )

    def stop(self) -> None:
        """Waits for the state that is being applied, and ignores later ones. The metadata store
        reports changes until it is closed, which is after the logs."""
        with self._lock:
            self._is_stopped = True

    def while_unchanged(self, step: Callable[[], Result]) -> Result:
        """Runs `step` while no state of the cluster is applied and no log is opened or deleted."""
        with self._lock:
            return step()

    def is_known(self, topic: str, index: int) -> bool:
        """Returns whether the cluster has the partition, on any broker."""
        known = self._applied.topics.get(topic)
        return known is not None and not known.deleting and index in known.partitions

    def stop_following(self, epochs: Mapping[tuple[str, int], int]) -> set[tuple[str, int]]:
        """Stops copying the partitions until their next state. `epochs`: the leader epoch that
        each has for the caller; negative: any. Returns the partitions that have a newer one here
        and go on (Kafka: ReplicaManager.stopReplicas)."""
        with self._lock:
            newer = {place for place, epoch in epochs.items() if 0 <= epoch < self._epoch(*place)}
            if self.fetchers is not None:
                self.fetchers.follow(dict.fromkeys(epochs.keys() - newer))
        return newer

    def _epoch(self, topic: str, index: int) -> int:
        """Returns the leader epoch of a partition in the applied state; -1 when it has none."""
        found = self._applied.topic(topic)
        partition = None if found is None else found.partitions.get(index)
        return -1 if partition is None or partition.state is None else partition.state.leader_epoch

    def led_with_others(self) -> set[tuple[str, int]]:
        """Returns the partitions with several replicas that this node leads."""
        return {
            (topic.name, index)
            for topic in self._applied.topics.values()
            for index, partition in topic.partitions.items()
            if len(partition.replicas) > 1 and self._applied.leads(self._node_id, partition)
        }

    def partition(self, topic: str, index: int) -> PartitionHandle:
        """Returns a partition that this node leads. Raises UnknownTopicOrPartition,
        NotLeaderOrFollower, and KafkaStorageError when its log is offline."""
        found = self._table.partition(topic, index)
        if found is None:
            if not self.is_known(topic, index):
                raise UnknownTopicOrPartition()
            raise NotLeaderOrFollower()
        if found.offline:
            raise KafkaStorageError()
        if found.leader_id != self._node_id:
            raise NotLeaderOrFollower()
        return found

    def log(self, topic: str, index: int) -> LogHandle:
        """Returns the log of a partition that this node leads; raises as `partition` does."""
        found = self.partition(topic, index).log
        if found is None:
            raise KafkaStorageError()
        return found

    def advance_log_start(self, topic: str, index: int, offset: int) -> None:
        """Moves the start of a log to `offset`; raises as `log` does, and LogError."""
        found = self.log(topic, index)
        self._logs.start_moves(topic, index, offset)
        found.advance_log_start(offset)

    def is_offline(self, topic: str, index: int) -> bool:
        """Returns whether a partition of this node has a log that cannot be used."""
        found = self._table.partition(topic, index)
        return (topic, index) in self._failed or (found is not None and found.offline)

    def is_served(self, topic: str, index: int) -> bool:
        """Returns whether clients can use a partition that this node leads: its log is open and the
        partition in the table. A new topic is in the metadata a moment before that."""
        found = self._table.partition(topic, index)
        return found is not None and not found.offline and (topic, index) not in self._failed

    def offline_count(self) -> int:
        """Returns the number of partitions of this node whose log cannot be used."""
        return len(self._failed) + self._logs.offline_count()

    def offline_replicas(self) -> frozenset[tuple[str, int]]:
        """Returns the partitions of this node whose log cannot be used."""
        return frozenset(self._failed).union(
            (row.topic, row.partition) for row in self._logs.offline_logs()
        )

    def offline_changes(self) -> object:
        """Returns a value that differs when `offline_replicas` may differ; it is cheap."""
        return offline_changes(), tuple(self._failed)

    def high_watermark(self, topic: str, index: int) -> int:
        """Returns the high watermark; 0 for a partition that this node does not host."""
        found = self._table.partition(topic, index)
        return found.high_watermark if found is not None else 0

    def topic_config(self, name: str, state: ClusterState | None = None) -> TopicConfig:
        overrides = (state or self._applied).config("topics", name)
        return TopicConfig(overrides, self._config)

    # -- changes, under the lock ----------------------------------------------------------------

    def _host(self, topic: Topic, state: ClusterState) -> None:
        assert topic.topic_id is not None
        config = self.topic_config(topic.name, state)
        self._table.add_topic(
            topic.name, uuid_bytes(topic.topic_id), **self._policy(topic.name, config)
        )
        self._count_partitions(topic)
        self._add(topic, topic.partitions, config, state)

    def _count_partitions(self, topic: Topic) -> None:
        self._table.set_partition_count(topic.name, max(topic.partitions, default=-1) + 1)

    def _change(self, known: Topic, topic: Topic, state: ClusterState) -> None:
        config = self.topic_config(topic.name, state)
        self._count_partitions(topic)
        self._add(topic, topic.partitions.keys() - known.partitions.keys(), config, state)
        for index in known.partitions.keys() & topic.partitions.keys():
            was, now = known.partitions[index], topic.partitions[index]
            if now is was:
                continue
            if self._node_id not in now.replicas:
                if self._node_id in was.replicas:
                    self._drop_one(topic.name, index)
            elif self._node_id not in was.replicas:
                self._add(topic, [index], config, state)
            elif now.state is not None and (
                now.state != was.state
                or now.replicas != was.replicas
                or state.leads(self._node_id, now) != self._applied.leads(self._node_id, was)
            ):
                self._move(topic, index, was, state)

    def _move(self, topic: Topic, index: int, was: Partition, state: ClusterState) -> None:
        """Notes a partition of this node whose leader, ISR or replicas have changed."""
        partition = topic.partitions[index]
        now = partition.state
        assert now is not None
        if state.leads(self._node_id, partition):
            if was.state is not None:
                self.isr_shrinks += len(now.isr) < len(was.state.isr)
                self.isr_expands += len(now.isr) > len(was.state.isr)
                is_led_on = self._applied.leads(self._node_id, was) and (
                    was.state.leader_epoch == now.leader_epoch
                )
                if is_led_on and was.replicas == partition.replicas:
                    self._table.set_isr(topic.name, index, now.isr, is_pending=False)
                    return
            if self.fetchers is not None:
                self.fetchers.follow({(topic.name, index): None})
            self._logs.begin_epoch(topic.name, index, now.leader_epoch)
        self._moved.append((topic, index, now))

    def _add(
        self, topic: Topic, indexes: Iterable[int], config: TopicConfig, cluster: ClusterState
    ) -> None:
        assert topic.topic_id is not None
        for index in sorted(indexes):
            partition = topic.partitions[index]
            if self._node_id not in partition.replicas:
                if self._logs.get(topic.name, index) is not None:  # loaded before it was moved
                    self._logs.delete(topic.name, [index])
                continue
            opened = self._opened(topic, index, config, len(partition.replicas) > 1)
            state = partition.state
            leads = state is not None and cluster.leads(self._node_id, partition)
            if opened is not None and state is not None and leads:
                try:
                    self._logs.begin_epoch(topic.name, index, state.leader_epoch)
                except OSError as error:
                    self._note_failure(topic.name, index, error)
                    opened = None
            self._arrived.append((topic, index, opened))

    def _serve(self, state: ClusterState) -> None:
        """Writes all opened logs and new leader epochs to disk together, then serves their
        partitions; those that cannot be written are offline. Raises OSError when a leader epoch
        that changed cannot be written."""
        arrived, self._arrived = self._arrived, []
        moved, self._moved = self._moved, []
        unsaved = self._save(
            [opened for _, _, opened in arrived if opened is not None],
            [(topic.name, index) for topic, index, _ in moved],
        )
        if unsaved:
            log.error("cannot write %d partitions: %s", len(unsaved), next(iter(unsaved.values())))
            self._failed |= {name: str(error) for name, error in unsaved.items()}
            arrived = [
                (topic, index, None if (topic.name, index) in unsaved else opened)
                for topic, index, opened in arrived
            ]
        for topic, index, opened in arrived:
            self._serve_one(topic, index, opened, state)
        for topic, index, now in moved:
            self._table.set_leader(
                topic.name,
                index,
                leader_id=self._leader_of(topic.partitions[index], state),
                leader_epoch=now.leader_epoch,
                replicas=topic.partitions[index].replicas,
                isr=now.isr,
            )
        self._follow([(topic, index) for topic, index, _ in (*arrived, *moved)], state)

    def _save(
        self, opened: Collection[PartitionLog], moved: Collection[tuple[str, int]] = ()
    ) -> dict[tuple[str, int], OSError]:
        """Brings new logs and leader epochs to disk. Returns which of the `opened` logs may not be
        served, and why. Raises OSError when the leader epoch of a `moved` partition cannot be
        written."""
        failed = self._logs.save()
        unsaved = {
            (row.topic, row.partition): failed[row.directory]
            for row in opened
            if row.directory in failed
        }
        for name in moved if failed else ():
            log_of_name = self._logs.get(*name)
            if log_of_name is not None and log_of_name.directory in failed:
                self._failed |= {place: str(error) for place, error in unsaved.items()}
                raise failed[log_of_name.directory]
        new = {
            (row.topic, row.partition)
            for row in opened
            if row.handle.end_offset == 0 and (row.topic, row.partition) not in unsaved
        }
        return {**unsaved, **self.before_new(new)} if new else unsaved

    def _follow(self, places: Iterable[tuple[Topic, int]], cluster: ClusterState) -> None:
        """Copies partitions from their leaders, except partitions without a leader or led by this
        node."""
        if self.fetchers is None:
            return
        from barnabas.server.replica_fetchers import Leader

        changes: dict[tuple[str, int], Leader | None] = {}
        for topic, index in places:
            state = topic.partitions[index].state
            leader = None
            if state is not None and state.leader not in (self._node_id, NO_LEADER):
                assert topic.topic_id is not None
                leader = Leader(state.leader, state.leader_epoch, uuid_bytes(topic.topic_id))
            changes[topic.name, index] = leader
        self.fetchers.follow(changes)

    def _serve_one(
        self, topic: Topic, index: int, opened: PartitionLog | None, cluster: ClusterState
    ) -> None:
        state = topic.partitions[index].state
        self._table.add_partition(
            topic.name,
            index,
            opened.handle if opened is not None else None,
            directory=str(opened.directory.parent) if opened is not None else None,
            leader_epoch=state.leader_epoch if state is not None else 0,
            leader_id=self._leader_of(topic.partitions[index], cluster),
            replicas=topic.partitions[index].replicas,
            isr=state.isr if state is not None else (),
            high_watermark=self._logs.high_watermark(topic.name, index),
        )
        overrides = cluster.config("topics", topic.name)
        if overrides and self.throttles is not None:
            self.throttles.mark(self._table, topic.name, [index], overrides)

    def _leader_of(self, partition: Partition, cluster: ClusterState) -> int:
        """Returns the leader for this node's partition table; -1: none, while the state names this
        node but it may not lead yet."""
        if partition.state is None:
            return -1
        leader = partition.state.leader
        return -1 if leader == self._node_id and not cluster.leads(leader, partition) else leader

    def _opened(
        self, topic: Topic, index: int, config: TopicConfig, is_replicated: bool
    ) -> PartitionLog | None:
        assert topic.topic_id is not None
        topic_id = uuid_bytes(topic.topic_id)
        try:
            return self._logs.get_or_create(topic.name, index, topic_id, config, is_replicated)
        except (OSError, LogError) as error:
            self._note_failure(topic.name, index, error)
            return None

    def _note_failure(self, topic: str, index: int, error: OSError | LogError) -> None:
        """Marks a partition as offline; logs each reason once."""
        reason = str(error)
        if not isinstance(error, OfflineLog) and self._failed.get((topic, index)) != reason:
            log.error(
                "%s-%d is offline, clients get KAFKA_STORAGE_ERROR: %s. The broker tries it again"
                " every %d s.",
                topic,
                index,
                reason,
                RETRY_MS // 1000,
            )
        self._failed[topic, index] = reason

    def try_offline(self) -> int:
        """Tries once more to open the logs that are offline. Returns the number of partitions that
        are online again. A log that is offline after a failed flush needs a restart of the broker:
        its newest records may be in memory only."""
        back = [(row.topic, row.partition) for row in self._logs.cut_again()]
        with self._lock:
            self._follow_returned(back)
            for name, index in sorted(self._failed):
                topic = self._applied.topics.get(name)
                if topic is None or topic.deleting or index not in topic.partitions:
                    continue
                if self._open_again(topic, index):
                    back.append((name, index))
        for name, index in back:
            log.warning("%s-%d is online again", name, index)
            for returned in self.on_returned:
                returned(name, index)
        return len(back)

    def _follow_returned(self, places: Iterable[tuple[str, int]]) -> None:
        """Fetches partitions again whose log can be used again: their fetcher has stopped."""
        known = [(self._applied.topics.get(name), index) for name, index in places]
        self._follow(
            [(topic, index) for topic, index in known if topic and index in topic.partitions],
            self._applied,
        )

    def _open_again(self, topic: Topic, index: int) -> bool:
        """Opens and serves one offline partition; returns whether this succeeded. It writes one
        partition at a time, so that a log that cannot be written does not keep others offline."""
        self._add(topic, [index], self.topic_config(topic.name), self._applied)
        opened = self._arrived.pop()[2]
        if opened is None:
            return False
        for error in self._save([opened]).values():
            self._note_failure(topic.name, index, error)
            return False
        del self._failed[topic.name, index]
        self._table.remove_partition(topic.name, index)
        self._serve_one(topic, index, self._logs.get(topic.name, index), self._applied)
        self._follow([(topic, index)], self._applied)
        return True

    def _drop_one(self, topic: str, index: int) -> None:
        """Drops a partition that was moved to other brokers."""
        if self.fetchers is not None:
            self.fetchers.follow({(topic, index): None})
        self._table.remove_partition(topic, index)
        self._logs.delete(topic, [index])
        self._failed.pop((topic, index), None)

    def _drop(self, topic: Topic) -> None:
        if topic.deleting:
            return  # `apply` dropped it when the topic was marked for deletion
        if self.fetchers is not None:
            self.fetchers.follow({(topic.name, index): None for index in topic.partitions})
        self._table.remove_topic(topic.name)
        self._logs.delete(topic.name)
        self._failed = {pair: why for pair, why in self._failed.items() if pair[0] != topic.name}

    def _configure(self, name: str, state: ClusterState) -> None:
        config = self.topic_config(name, state)
        self._table.set_policy(name, **self._policy(name, config))
        self._logs.configure(name, config)
        if self.throttles is not None:
            self.throttles.mark(self._table, name, state.topics[name].partitions, config.overrides)

    def _broker_config_changed(self, names: frozenset[str]) -> None:
        """Configures all topics again: those without their own value use the broker's."""
        with self._lock:
            for name, topic in self._applied.topics.items():
                if not topic.deleting:
                    self._configure(name, self._applied)

    def _policy(self, name: str, config: TopicConfig) -> dict[str, int | bool]:
        """Returns the settings of a topic that native handlers need, by the partition table's
        names."""
        return {
            "message_bytes_max": config.integer("max.message.bytes"),
            "timestamp_before_max_ms": config.integer("message.timestamp.before.max.ms"),
            "timestamp_after_max_ms": config.integer("message.timestamp.after.max.ms"),
            "decompressed_bytes_max": min(
                config.integer("max.decompressed.message.bytes"),
                self._config.integer("max.decompressed.bytes"),
            ),
            "append_time": config.text("message.timestamp.type") == "LogAppendTime",
            "requires_keys": "compact" in config.names("cleanup.policy"),
            "internal": name in INTERNAL_TOPICS,
            "codec": CODECS[codec := config.text("compression.type")],
            "codec_level": config.integer(f"compression.{codec}.level") if codec in LEVELS else 0,
            "min_insync_replicas": config.integer("min.insync.replicas"),
            "down_converts": config.boolean("message.downconversion.enable"),
            **self._more_policy(config),
        }


def _same_listeners(own: Sequence[str], registration: BrokerRegistration) -> int:
    """Returns the bits of the listeners in `own` whose names a broker has registered."""
    theirs = {row.listener_name for row in registration.endpoints}
    return sum(1 << index for index, name in enumerate(own) if name in theirs)


def deleted_logs(state: ClusterState) -> set[tuple[str, int, bytes]]:
    """Returns topic, partition and topic id of the partitions whose topic is marked for
    deletion."""
    return {
        (topic.name, index, uuid_bytes(topic.topic_id))
        for topic in state.topics.values()
        if topic.deleting and topic.topic_id is not None
        for index in topic.partitions
    }


def wanted_logs(
    state: ClusterState, node_id: int, config: DynamicConfig
) -> dict[tuple[str, int], WantedLog]:
    """Returns the logs that this node must have according to the metadata, by topic and
    partition."""
    wanted = {}
    for topic in state.topics.values():
        if topic.topic_id is None or topic.deleting:
            continue
        row = WantedLog(
            uuid_bytes(topic.topic_id), TopicConfig(state.config("topics", topic.name), config)
        )
        for index, partition in topic.partitions.items():
            if node_id in partition.replicas:
                is_replicated = len(partition.replicas) > 1
                wanted[topic.name, index] = row._replace(is_replicated=is_replicated)
    return wanted
