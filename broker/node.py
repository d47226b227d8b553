"""One node: wires the rooms together, and knows the order of start and stop.

Start: directories are locked, the metadata store opens, directories are checked against it, logs
open (recovered where the last stop was unclean), listeners are bound, this node registers, becomes
leader of its partitions, and serves. Background work and plugins come after that: they must not
delay the first answer. Stop is the same backwards, and leaves a mark that no recovery is needed.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.api.dispatch import CloseConnection, Dispatcher
from barnabas.api.rooms import Rooms
from barnabas.api.table import advertised_versions, api_table
from barnabas.cext.epoch import Epochs
from barnabas.cext.fetch import FetchLane
from barnabas.cext.partitions import PartitionTable
from barnabas.cext.produce import ProduceLane
from barnabas.cext.pylane import PendingRequest
from barnabas.cext.reactor import LIMITS, Reactor
from barnabas.cext.sessions import FetchSessions
from barnabas.cext.sys import SystemCalls
from barnabas.config import BrokerConfig, DynamicConfig
from barnabas.config.listeners import Listener
from barnabas.controller import config_changes
from barnabas.controller.config_changes import ConfigChanges
from barnabas.controller.partition_growth import PartitionGrowth
from barnabas.controller.topic_deletion import TopicDeletion
from barnabas.controller.topics import TopicController
from barnabas.metadata.cluster_state import ClusterStateReader
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.tree import MetadataError, MetadataTree
from barnabas.server.background import Background
from barnabas.server.decode_pool import DecodePool
from barnabas.server.listeners import advertised
from barnabas.server.network_events import PERIOD_MS as EVENTS_PERIOD_MS
from barnabas.server.network_events import write_events
from barnabas.server.producer_ids import ProducerIds
from barnabas.server.registration import choose_node_id, claim_cluster, register, take_control
from barnabas.server.replica_manager import ReplicaManager, deleted_logs, wanted_logs
from barnabas.server.request_handlers import Answer, RequestHandlers
from barnabas.storage.checkpoint_writer import CheckpointWriter
from barnabas.storage.flusher import Flusher
from barnabas.storage.log_dirs import LogDir, UnusableDirectory
from barnabas.storage.log_manager import LogManager, PartitionLog
from barnabas.wire.api_keys import api_keys

if TYPE_CHECKING:
    from barnabas.storage.cleanup import Cleanup

log = logging.getLogger("barnabas.node")

# Below the default of 5 ms a busy Python thread cannot hold up the Python lane for long; lower
# still costs throughput where threads wait for each other.
SWITCH_INTERVAL_S = 0.0005
METADATA_DIRECTORY = "metadata"
DECODE_THREADS = 2
FLUSH_TIMEOUT_MS = 30_000
PRODUCER_EXPIRY_PERIOD_MS = 600_000  # as Kafka
RETENTION_FIRST_MS = 30_000  # as Kafka: a start is busy enough without deleting files


class CannotStart(Exception):
    """Why the broker does not start and what to do: one plain line."""


class Node:
    """One broker of this process. `start` once, `stop` once or more."""

    def __init__(self, config: BrokerConfig, system: SystemCalls | None = None) -> None:
        self.config = config
        self.dynamic = DynamicConfig(config)
        self.system = system or SystemCalls()
        self.node_id = config.node_id
        self.cluster_id = ""
        self.listeners: tuple[Listener, ...] = ()  # as clients are told
        self.listening: tuple[Listener, ...] = ()  # as they are bound
        self._dirs: list[LogDir] = []
        self._tree: MetadataTree | None = None
        self._reactor: Reactor | None = None
        self._table: PartitionTable | None = None
        self.logs: LogManager | None = None
        self._handlers: RequestHandlers | None = None
        self._decoders: DecodePool | None = None
        self._fetch: FetchLane | None = None
        self._replicas: ReplicaManager | None = None
        self._checkpoints: CheckpointWriter | None = None
        self._cleanup: Cleanup | None = None
        self._background = Background()
        self._stopped = False

    def start(self) -> None:
        """Returns when clients are served. Raises CannotStart, with everything given back."""
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL_S))
        try:
            self._open_directories()
            reader = self._open_metadata()
            self._open_logs(reader)
            self._serve(reader)
        except (UnusableDirectory, MetadataError) as error:
            self._give_up()
            raise CannotStart(str(error)) from error
        except BaseException:
            self._give_up()
            raise
        self._start_background()

    def stop(self) -> None:
        """A clean stop."""
        if self._stopped:
            return
        self._stopped = True
        self._close(mark_clean=True)

    def _give_up(self) -> None:
        """After a failed start: what was opened is closed; nothing is marked as clean."""
        self._stopped = True
        self._close(mark_clean=False)

    def _close(self, mark_clean: bool) -> None:
        self._close_network()
        self._background.stop()
        if self._table is not None:
            self._table.close()
        if self._decoders is not None:
            self._decoders.stop()
        clean = mark_clean
        if self._checkpoints is not None:
            clean = self._checkpoints.write_all_and_close() and clean
        elif self.logs is not None:
            clean = self.logs.close() and clean
        if self._tree is not None:
            self._tree.close()
        for directory in self._dirs:
            directory.close(clean=clean)

    def _close_network(self) -> None:
        if self._reactor is not None:
            self._reactor.stop()
        if self._handlers is not None:
            self._handlers.join(timeout_s=5)
        if self._fetch is not None:
            self._fetch.stop()

    def _open_directories(self) -> None:
        for text in self.config.log_dirs:
            directory = LogDir(Path(text))
            directory.open()
            self._dirs.append(directory)

    def _open_metadata(self) -> ClusterStateReader:
        path = self._dirs[0].path / METADATA_DIRECTORY
        self._tree = EmbeddedTree(path, clock_ms=self.system.wall_ms)
        identities = [row.identity() for row in self._dirs]
        known = {found for row in identities if (found := row.get("cluster.id"))}
        self.cluster_id = claim_cluster(self._tree, known, os.urandom)
        self.node_id = choose_node_id(self._tree, self.config, identities)
        self.dynamic = DynamicConfig(self.config, self.node_id, on_error=_setting_failed)
        for directory in self._dirs:
            directory.claim(self.node_id, self.cluster_id)
        reader = ClusterStateReader(self._tree)
        config_changes.load(self.dynamic, reader.state)
        return reader

    def _open_logs(self, reader: ClusterStateReader) -> None:
        epochs = Epochs()
        self._table = PartitionTable(
            self.system, epochs, node_id=self.node_id, durability=self.config.log_durability
        )
        self.logs = LogManager(self._dirs, self.dynamic, self.system, epochs)
        for directory in self._dirs:
            self._table.add_directory(str(directory.path))
            directory.begin()
        self.logs.load(
            wanted_logs(reader.state, self.node_id, self.dynamic), deleted_logs(reader.state)
        )

    def _serve(self, reader: ClusterStateReader) -> None:
        assert self._table is not None and self.logs is not None and self._tree is not None
        produce = ProduceLane(self._table)
        self._fetch = FetchLane(
            self._table,
            FetchSessions(
                self.config.integer("max.incremental.fetch.session.cache.slots"),
                seed=int.from_bytes(os.urandom(8), "big"),
            ),
            fetch_bytes_max=self.config.integer("fetch.max.bytes"),
        )
        rows = api_keys()
        flexible_from = [-1] * (max(rows) + 1)
        for row in rows.values():
            if row.request_flexible_from is not None:
                flexible_from[row.key] = row.request_flexible_from
        self._reactor = Reactor(
            self.system,
            [produce, self._fetch],
            network_threads=self.config.integer("num.network.threads"),
            flexible_from=flexible_from,
            limits={name: self.dynamic.integer(name) for name in LIMITS},
        )
        self.dynamic.on_change.append(self._limits_changed)
        self.listening = tuple(
            Listener(row.name, row.host, self._bind(row), row.protocol)
            for row in self.config.listeners
        )
        self.listeners = advertised(self.config.advertised_listeners, self.listening)
        register(self._tree, self.node_id, self.listeners, self.config, self.system.wall_ms())
        take_control(self._tree, self.node_id, self.system.wall_ms())
        reader.refresh_brokers()
        reader.refresh_controller()
        replicas = ReplicaManager(self.node_id, self._table, self.logs, self.dynamic)
        checkpoints = CheckpointWriter(self.logs, replicas.high_watermark)
        deletion = TopicDeletion(self._tree, reader, checkpoints.write_all)
        replicas.lead(self._tree, reader, unclean=not all(row.was_clean for row in self._dirs))
        deletion.finish()
        self._checkpoints = checkpoints
        table = api_table()
        rooms = Rooms(
            node_id=self.node_id,
            cluster_id=self.cluster_id,
            config=self.config,
            dynamic=self.dynamic,
            cluster=lambda: reader.state,
            topics=TopicController(self._tree, reader, self.dynamic, _random_below, os.urandom),
            deletion=deletion,
            growth=PartitionGrowth(self._tree, reader, _random_below),
            configs=ConfigChanges(self._tree, reader, self.dynamic),
            replicas=replicas,
            logs=self.logs,
            checkpoints=checkpoints,
            producer_ids=ProducerIds(self._tree, self.node_id),
            api_versions=advertised_versions(table),
            wall_ms=self.system.wall_ms,
        )
        dispatcher = Dispatcher(rooms, table)
        self._decoders = DecodePool(self._table, DECODE_THREADS)
        self._decoders.start()
        self._handlers = RequestHandlers(
            self._reactor, _answering(dispatcher), self.dynamic.integer("num.io.threads")
        )
        self._handlers.start()
        self._fetch.start()
        self._reactor.start()
        self._replicas = replicas

    def _start_background(self) -> None:
        assert self._checkpoints is not None and self._reactor is not None
        assert self.logs is not None and self._replicas is not None
        period = self.config.integer
        reactor = self._reactor
        self._background.add("events", lambda: write_events(reactor), lambda: EVENTS_PERIOD_MS)
        self._background.add(
            "high-watermarks",
            self._checkpoints.write_high_watermarks,
            lambda: period("replica.high.watermark.checkpoint.interval.ms"),
        )
        self._background.add(
            "recovery-points",
            self._checkpoints.write_recovery_points,
            lambda: period("log.flush.offset.checkpoint.interval.ms"),
        )
        self._background.add(
            "log-starts",
            self._checkpoints.write_log_starts,
            lambda: period("log.flush.start.offset.checkpoint.interval.ms"),
        )
        flusher = Flusher(
            self.logs, self._replicas.topic_config, self._flush, self.system.monotonic_ns
        )
        self._background.add(
            "flush", flusher.run, lambda: period("log.flush.scheduler.interval.ms")
        )
        self._background.add(
            "producer-expiry",
            self.logs.expire_producers,
            lambda: PRODUCER_EXPIRY_PERIOD_MS,
        )
        self._background.add(
            "retention",
            self._retention,
            lambda: period("log.retention.check.interval.ms"),
            first_ms=RETENTION_FIRST_MS,
        )

    def _flush(self, row: PartitionLog) -> None:
        """By the group commit where the high watermark waits for it."""
        assert self._table is not None
        found = self._table.partition(row.topic, row.partition)
        if self.config.log_durability == "fsync" and found is not None:
            found.commit(FLUSH_TIMEOUT_MS)
        else:
            row.handle.flush()

    def _retention(self) -> None:
        """The plugins are found at the first round: importing them would delay the start."""
        assert self.logs is not None and self._replicas is not None
        if self._cleanup is None:
            from barnabas.hooks.registry import Registry
            from barnabas.plugins.retention_size import RetentionSize
            from barnabas.plugins.retention_time import RetentionTime
            from barnabas.storage.cleanup import Cleanup

            registry = Registry()
            registry.register(RetentionTime(), "retention_time")
            registry.register(RetentionSize(), "retention_size")
            self._cleanup = Cleanup(
                self.logs,
                registry.deletable_segments,
                self._replicas.topic_config,
                self._replicas.high_watermark,
                self.system.wall_ms,
                lambda: self.dynamic.integer("log.segment.delete.delay.ms"),
            )
        self._cleanup.run()

    def _limits_changed(self, names: frozenset[str]) -> None:
        assert self._reactor is not None
        for name in names & LIMITS.keys():
            self._reactor.set_limit(name, self.dynamic.integer(name))
        if "num.io.threads" in names and self._handlers is not None:
            self._handlers.resize(self.dynamic.integer("num.io.threads"))

    def _bind(self, listener: Listener) -> int:
        assert self._reactor is not None
        try:
            return int(self._reactor.listen(listener.name, listener.host, listener.port))
        except OSError as error:
            raise CannotStart(
                f"cannot listen on {listener.host}:{listener.port}:"
                f" {os.strerror(error.errno or 0)}. Stop what uses that port, or take another one:"
                f" --set listeners={listener.name}://{listener.host}:PORT"
            ) from error


def _setting_failed(error: Exception) -> None:
    log.error("a changed setting did not take effect everywhere: %s", error, exc_info=error)


def _random_below(limit: int) -> int:
    """Evenly enough for the choice of a broker, without the import of `secrets` and OpenSSL."""
    return int.from_bytes(os.urandom(8), "big") % limit


def _answering(dispatcher: Dispatcher) -> Answer:
    def answer(pending: PendingRequest) -> bytes | None:
        try:
            return dispatcher.answer(pending.data, pending.listener, pending.peer)
        except CloseConnection as error:
            log.info("connection of %s:%d closed: %s", *pending.peer, error)
            return None

    return answer
