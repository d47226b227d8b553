"""One node: wires the rooms together, and knows the order of start and stop.

Start: directories are locked, the metadata store opens, directories are checked against it, logs
open (recovered where the last stop was unclean), listeners are bound, this node registers, becomes
leader of its partitions, and serves. Background work and plugins come after that: they must not
delay the first answer. Stop is the same backwards, and leaves a mark that no recovery is needed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.api import k03_metadata, k10_find_coordinator
from barnabas.api.dispatch import CloseConnection, Dispatcher
from barnabas.api.kept import forgetting, keeper
from barnabas.api.rooms import Rooms
from barnabas.api.table import advertised_versions, api_table
from barnabas.cext.fetch.fetch import FetchLane
from barnabas.cext.fetch.sessions import FetchSessions
from barnabas.cext.memory.epoch import Epochs
from barnabas.cext.memory.histogram import Times
from barnabas.cext.memory.sys import SystemCalls
from barnabas.cext.network.reactor import LIMITS, Reactor
from barnabas.cext.network.request_queue import PendingRequest
from barnabas.cext.network.response_cache import KeptAnswers
from barnabas.cext.partition.group_commit import GroupCommit
from barnabas.cext.partition.partitions import PartitionTable
from barnabas.cext.produce.produce import ProduceLane
from barnabas.cext.produce.transaction_check import VerifyQueue
from barnabas.config import BrokerConfig, DynamicConfig
from barnabas.config.listeners import Listener
from barnabas.controller import config_changes, unkept_settings
from barnabas.controller.auto_creation import AutoTopicCreation
from barnabas.controller.config_changes import ConfigChanges
from barnabas.controller.entity_configs import EntityConfigs
from barnabas.controller.features import Features
from barnabas.controller.new_partitions import give_ids
from barnabas.controller.partition_growth import PartitionGrowth
from barnabas.controller.topic_deletion import TopicDeletion
from barnabas.controller.topics import TopicController
from barnabas.coordinator.coordinators import Coordinators, coordinator_lanes
from barnabas.coordinator.groups.administration import GroupAdministration
from barnabas.coordinator.groups.tree_offsets import TreeOffsets
from barnabas.coordinator.rounds import lending
from barnabas.coordinator.timers import Timers
from barnabas.coordinator.transactions.administration import TransactionAdministration
from barnabas.coordinator.transactions.producer_ids import ProducerIds
from barnabas.metadata.cluster_state import ClusterStateReader, Topic
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.tree import MetadataError, MetadataTree
from barnabas.server.background import Background
from barnabas.server.clock import Clock
from barnabas.server.decode_pool import decode_threads
from barnabas.server.listener_changes import ListenerChanges
from barnabas.server.listeners import advertised
from barnabas.server.membership import Membership
from barnabas.server.network_settings import THREADS, NetworkSettings, network_threads
from barnabas.server.plugins import Plugins, UnusablePlugins
from barnabas.server.registration import (
    choose_node_id,
    claim_cluster,
    register_again,
)
from barnabas.server.replica_manager import RETRY_MS, ReplicaManager, deleted_logs, wanted_logs
from barnabas.server.request_handlers import ANSWERED_LATER, Answer, Gate, RequestHandlers
from barnabas.storage.checkpoint_writer import CheckpointWriter
from barnabas.storage.damage_log import PERIOD_MS as DAMAGE_PERIOD_MS
from barnabas.storage.damage_log import write_damage
from barnabas.storage.failure_log import PERIOD_MS as FAILURES_PERIOD_MS
from barnabas.storage.failure_log import FailureLog
from barnabas.storage.flusher import Flusher
from barnabas.storage.log_cleaner import LogCleaner
from barnabas.storage.log_dirs import LogDir, UnusableDirectory, keep_usable, open_directories
from barnabas.storage.log_manager import LogManager, PartitionLog, topic_id_on_disk
from barnabas.storage.scrub import FIRST_MS as SCRUB_FIRST_MS
from barnabas.storage.scrub import Scrub
from barnabas.telemetry.metrics_page import (
    RECOVERY,
    SHUTTING_DOWN,
    MetricsPage,
    NoMetricsPage,
)
from barnabas.telemetry.network_events import PERIOD_MS as EVENTS_PERIOD_MS
from barnabas.telemetry.network_events import write_events
from barnabas.telemetry.registry import Collector
from barnabas.telemetry.request_errors import RequestErrors
from barnabas.wire.api_keys import api_keys
from barnabas.wire.uuids import uuid_text

if TYPE_CHECKING:
    from barnabas.cext.produce.decode import DecodeJob
    from barnabas.controller.controller import Controller
    from barnabas.hooks.services import Services
    from barnabas.server.job_threads import JobThreads
    from barnabas.storage.cleanup import Cleanup

log = logging.getLogger("barnabas.node")

METADATA_DIRECTORY = "metadata"
VERIFICATION = "transaction.partition.verification.enable"
DECODE_THREADS = 2
FLUSH_TIMEOUT_MS = 30_000


class CannotStart(Exception):
    """Why the broker does not start and what to do: one plain line."""


# Opens the metadata store in a directory, with the wall clock.
OpenTree = Callable[[Path, Callable[[], int]], MetadataTree]


def open_embedded(directory: Path, wall_ms: Callable[[], int]) -> MetadataTree:
    """The store of a node on its own: one file, every commit synced."""
    return EmbeddedTree(directory, clock_ms=wall_ms)


def open_zookeeper(config: BrokerConfig, directory: Path) -> MetadataTree:
    """The store of nodes that share one. `directory` keeps the number of the session."""
    from barnabas.config.zookeeper import zookeeper_settings
    from barnabas.metadata.former_session import FormerSession
    from barnabas.metadata.zookeeper import ZooKeeperTree  # and kazoo: 60 ms

    return ZooKeeperTree(zookeeper_settings(config.get), FormerSession(directory))


class Node:
    """One broker of this process. `start` once, `stop` once or more.

    Nothing here belongs to the whole process: several nodes may live in one, and what only one
    broker may have (signals, the switch interval) is left to `barnabas start`. `gate` sees every
    request that comes to Python.
    """

    def __init__(
        self,
        config: BrokerConfig,
        system: SystemCalls | None = None,
        open_tree: OpenTree = open_embedded,
        gate: Gate | None = None,
        default_metrics_port: int = -1,
    ) -> None:
        self.config = config
        self.dynamic = DynamicConfig(config)
        self.system = system or SystemCalls()
        self.clock = Clock(self.system)
        self.rooms: Rooms | None = None
        self._open_tree = open_tree
        self._gate = gate
        self.node_id = config.node_id
        self.cluster_id = ""
        self.listeners: tuple[Listener, ...] = ()  # as clients are told
        self.listening: tuple[Listener, ...] = ()  # as they are bound
        self._dirs: list[LogDir] = []
        self._failed_dirs: list[Path] = []
        self._keeps_metadata = True  # in the first directory
        self._tree: MetadataTree | None = None
        self._membership: Membership | None = None
        self._controller: Controller | None = None
        self._reactor: Reactor | None = None
        self._table: PartitionTable | None = None
        self.logs: LogManager | None = None
        self._handlers: RequestHandlers | None = None
        self._decoders: JobThreads[DecodeJob] | None = None
        self._fetch: FetchLane | None = None
        self._sessions: FetchSessions | None = None
        self._replicas: ReplicaManager | None = None
        self._plugins: Plugins | None = None
        self._auto_creation: AutoTopicCreation | None = None
        self._checkpoints: CheckpointWriter | None = None
        self._cleanup: Cleanup | None = None
        self._scrub: Scrub | None = None
        self.cleaner: LogCleaner | None = None
        self._background = Background(self.clock)
        self._timers = Timers(self.clock)
        self._verify = VerifyQueue()
        self._coordinators: Coordinators | None = None
        self._produce: ProduceLane | None = None
        self.kept_answers = KeptAnswers(k03_metadata.KEY)
        self._errors = RequestErrors()
        self._commits: list[GroupCommit] = []
        self._flush_times = Times()
        self._began_ns = self.system.monotonic_ns()
        self.metrics = MetricsPage(
            config, default_metrics_port, self.system.monotonic_ns, self._collectors
        )
        self._logs_are_open = False
        self._stopped = False

    def start(self) -> None:
        """Returns when clients are served. Raises CannotStart, with everything given back."""
        try:
            self.metrics.open()
            self._open_directories()
            reader = self._open_metadata()
            self._open_logs(reader)
            self._serve(reader)
        except (UnusableDirectory, MetadataError, NoMetricsPage, UnusablePlugins) as error:
            self._give_up()
            raise CannotStart(str(error)) from error
        except BaseException:
            self._give_up()
            raise
        self._start_background()
        self.metrics.ready()

    def stop(self) -> None:
        """A clean stop."""
        if self._stopped:
            return
        self._stopped = True
        self._close(mark_clean=True)

    @property
    def reactor(self) -> Reactor:
        assert self._reactor is not None, "the node has not started"
        return self._reactor

    @property
    def handlers(self) -> RequestHandlers:
        assert self._handlers is not None, "the node has not started"
        return self._handlers

    @property
    def plugins(self) -> Plugins:
        assert self._plugins is not None, "the node has not started"
        return self._plugins

    @property
    def background(self) -> Background:
        return self._background

    def _give_up(self) -> None:
        """After a failed start: closes what was opened. Directories that were clean are so again:
        their logs were opened and closed, so the next start need not check them."""
        self._stopped = True
        were_clean = all(row.was_clean or row.is_new for row in self._dirs)
        self._close(mark_clean=were_clean and self._logs_are_open)

    def _close(self, mark_clean: bool) -> None:
        self.metrics.state = SHUTTING_DOWN
        self._close_network()
        self.metrics.close()  # who reads it looks at logs, which are open until now
        self._background.stop()
        self._timers.stop()
        if self._controller is not None:
            self._controller.stop()
        if self._auto_creation is not None:
            self._auto_creation.stop()
        if self._coordinators is not None:
            self._coordinators.stop()
        if self._plugins is not None:
            self._plugins.stop_serving()
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
        if self._reactor is not None:
            self._reactor.close()
        self.clock.on_move.clear()
        self.dynamic.on_change.clear()
        self._reactor = self._handlers = None

    def _close_network(self) -> None:
        if self._coordinators is not None:
            self._coordinators.groups.stop()  # the reactor lets all be answered that it has taken
        if self._reactor is not None:
            self._reactor.stop()
        if self._handlers is not None:
            self._handlers.join(timeout_s=5)
        if self._fetch is not None:
            self._fetch.stop()

    def _open_directories(self) -> None:
        self._keeps_metadata = self.config.metadata_store != "zookeeper"
        self._dirs, failed = open_directories(self.config.log_dirs, self._keeps_metadata)
        self._failed_dirs.extend(failed)

    def _each_directory(self, step: Callable[[LogDir], object]) -> None:
        """Takes a step of the start; directories that fail are left out."""
        self._dirs, failed = keep_usable(self._dirs, step, self._keeps_metadata)
        self._failed_dirs.extend(failed)

    def _open_metadata(self) -> ClusterStateReader:
        first = self._dirs[0].path
        if self.config.metadata_store == "zookeeper":
            self._tree = open_zookeeper(self.config, first)
        else:
            self._tree = self._open_tree(first / METADATA_DIRECTORY, self.system.wall_ms)
        identities = [row.identity() for row in self._dirs]
        known = {found for row in identities if (found := row.get("cluster.id"))}
        self.cluster_id = claim_cluster(self._tree, known, os.urandom)
        self.node_id = choose_node_id(self._tree, self.config, identities)
        self.dynamic = DynamicConfig(self.config, self.node_id, on_error=_setting_failed)
        self._each_directory(lambda row: row.claim(self.node_id, self.cluster_id))
        self._membership = Membership(
            self._tree, self.node_id, self.config, lambda: self.listeners, self.system.wall_ms
        )
        dynamic = self.dynamic
        reader = ClusterStateReader(
            self._tree, may_delete=lambda: dynamic.boolean("delete.topic.enable")
        )
        config_changes.load(self.dynamic, reader.state)
        unkept_settings.warn(self.dynamic, reader.state)
        if reader.state.without_id:  # a tree of Kafka before 2.8
            give_ids(self._tree, reader, self._id_on_disk, os.urandom)
        return reader

    def _id_on_disk(self, topic: Topic) -> str | None:
        directories = [row.path for row in self._dirs]
        found = topic_id_on_disk(directories, topic.name, topic.partitions)
        return None if found is None else uuid_text(found)

    def _open_logs(self, reader: ClusterStateReader) -> None:
        epochs = Epochs()
        self._table = PartitionTable(
            self.system, epochs, node_id=self.node_id, durability=self.config.log_durability
        )
        self._each_directory(LogDir.begin)
        self.logs = LogManager(
            self._dirs, self.dynamic, self.system, epochs, failed=self._failed_dirs
        )
        for directory in self._dirs:
            self._commits.append(self._table.add_directory(str(directory.path)))
        if not all(row.was_clean or row.is_new for row in self._dirs):
            self.metrics.state = RECOVERY
        self.logs.load(
            wanted_logs(reader.state, self.node_id, self.dynamic), deleted_logs(reader.state)
        )
        self._logs_are_open = True

    def _serve(self, reader: ClusterStateReader) -> None:
        assert self._table is not None and self.logs is not None and self._tree is not None
        transaction_lane, lane = coordinator_lanes(self.config, self._table)
        produce = ProduceLane(self._table, self._verify, transaction_lane)
        produce.verifies = bool(self.dynamic[VERIFICATION])
        self._produce = produce
        self._sessions = FetchSessions(
            self.config.integer("max.incremental.fetch.session.cache.slots"),
            seed=int.from_bytes(os.urandom(8), "big"),
        )
        self._fetch = FetchLane(
            self._table,
            self._sessions,
            fetch_bytes_max=self.config.integer("fetch.max.bytes"),
        )
        lanes = [produce, self._fetch, self.kept_answers, transaction_lane]
        if lane is not None:
            lanes.append(lane)
        rows = api_keys()
        flexible_from = [-1] * (max(rows) + 1)
        for row in rows.values():
            if row.request_flexible_from is not None:
                flexible_from[row.key] = row.request_flexible_from
        self._reactor = Reactor(
            self.system,
            lanes,
            network_threads=network_threads(self.dynamic, self.config.is_set(THREADS)),
            flexible_from=flexible_from,
            limits={name: self.dynamic.integer(name) for name in LIMITS},
        )
        settings = NetworkSettings(self._reactor, self.dynamic)
        self.dynamic.on_change.append(settings.changed)
        self.dynamic.on_change.append(self._threads_changed)
        self.clock.on_move.append(self._reactor.look_at_timers)
        asked = self.dynamic.listeners
        self.listening = tuple(
            Listener(row.name, row.host, self._bind(row), row.protocol) for row in asked.bound
        )
        self._begin_limits(settings)
        self.listeners = advertised(asked.advertised, self.listening)
        assert self._membership is not None
        self._membership.begin()
        reader.refresh_brokers()
        reader.refresh_controller()
        self._follow_listeners(settings, reader)
        plugins = self._load_plugins()
        self.logs.choose_directory = plugins.choose_directory
        replicas = ReplicaManager(
            self.node_id, self._table, self.logs, self.dynamic, plugins.policy_flags
        )
        plugins.attach(replicas.topic_config, self._fetch.rewrites, self.node_id)
        checkpoints = CheckpointWriter(self.logs, replicas.high_watermark)
        deletion = TopicDeletion(self._tree, reader, checkpoints.write_all)
        replicas.lead(self._tree, reader, unclean=not all(row.was_clean for row in self._dirs))
        reader.on_change(forgetting(self.kept_answers, replicas.apply))
        deletion.finish()
        self._checkpoints = checkpoints
        table = api_table()
        said = plugins.place, plugins.check_topic
        topics = TopicController(self._tree, reader, self.dynamic, _random_below, os.urandom, *said)
        self._auto_creation = AutoTopicCreation(topics, self.dynamic, lambda: reader.state)
        features = Features(self._tree, self.node_id)
        producer_ids = ProducerIds(self._tree, self.node_id)
        entities = EntityConfigs(self._tree, reader, self.dynamic)
        coordinators = self._coordinators = Coordinators(
            node_id=self.node_id,
            config=self.config,
            dynamic=self.dynamic,
            system=self.system,
            timers=self._timers,
            table=self._table,
            reader=reader,
            replicas=replicas,
            topics=topics,
            features=features,
            producer_ids=producer_ids,
            entities=entities,
            plugins=plugins,
            lane=lane,
            transaction_lane=transaction_lane,
            verify=self._verify,
            next_closed=self._reactor.next_closed,
        )
        administration = GroupAdministration(coordinators.groups)
        tree = self._tree
        self.rooms = Rooms(
            node_id=self.node_id,
            cluster_id=self.cluster_id,
            config=self.config,
            dynamic=self.dynamic,
            cluster=lambda: reader.state,
            topics=topics,
            auto_creation=self._auto_creation,
            deletion=deletion,
            growth=PartitionGrowth(self._tree, reader, _random_below, plugins.place),
            configs=ConfigChanges(self._tree, reader, self.dynamic, plugins.check_config_change),
            entities=entities,
            features=features,
            replicas=replicas,
            logs=self.logs,
            checkpoints=checkpoints,
            producer_ids=producer_ids,
            groups=coordinators.groups,
            group_administration=administration,
            tree_offsets=TreeOffsets(self._tree),
            share=coordinators.share,
            transactions=coordinators.transactions,
            transaction_administration=TransactionAdministration(
                coordinators.transactions, coordinators.transaction_log.led_partitions
            ),
            transaction_markers=coordinators.markers,
            journals={
                k10_find_coordinator.GROUP: coordinators.group_log,
                k10_find_coordinator.TRANSACTION: coordinators.transaction_log,
                k10_find_coordinator.SHARE: coordinators.share_log,
            },
            api_versions=advertised_versions(table),
            last_commit=lambda: tree.last_commit,
            wall_ms=self.system.wall_ms,
            clock=self.clock,
        )
        coordinators.follow()
        replicas.on_applied.append(administration.apply)
        administration.apply(reader.state)
        replicas.on_applied.append(plugins.apply)
        plugins.apply(reader.state)
        if self._tree.is_shared:
            self._follow_others(reader, replicas, deletion)
        dispatcher = Dispatcher(
            self.rooms, table, self._errors.count if self.metrics.is_open else None
        )
        self._decoders = decode_threads(self._produce.decodes, DECODE_THREADS, plugins.intercept)
        self._decoders.start()
        self._handlers = RequestHandlers(
            self._reactor,
            _answering(dispatcher, self.kept_answers),
            self.dynamic.integer("num.io.threads"),
            self._gate,
            lending,
        )
        plugins.serving()
        self._handlers.start()
        self._fetch.start()
        self._reactor.start()
        self._replicas = replicas

    def _follow_others(
        self, reader: ClusterStateReader, replicas: ReplicaManager, deletion: TopicDeletion
    ) -> None:
        """What others write to a shared tree is carried out from now on."""
        from barnabas.controller.controller import Controller

        assert self._tree is not None and self._membership is not None
        self._controller = Controller(
            self._tree,
            reader,
            self._membership,
            deletion,
            self.node_id,
            lambda: self.dynamic.boolean("delete.topic.enable"),
            self._id_on_disk,
            os.urandom,
            self.system.wall_ms,
        )
        replicas.on_applied.append(config_changes.follower(self.dynamic, reader.state))
        replicas.on_applied.append(self._controller.apply)
        self._controller.start()

    def _load_plugins(self) -> Plugins:
        """Those of `plugins`; what they may do with the broker comes when it serves."""

        def services() -> Services:
            from barnabas.controller.plugin_services import PluginServices

            rooms = self._rooms()
            keep_starts = rooms.checkpoints.write_log_starts
            committed = rooms.groups.committed_of_partition
            return PluginServices(
                rooms.replicas, rooms.topics, rooms.cluster, keep_starts, wall_ms, committed
            )

        wall_ms, add_task = self.system.wall_ms, self._background.add
        self._plugins = Plugins(self.dynamic, services, add_task, self.metrics.figures, wall_ms)
        self._plugins.load()
        return self._plugins

    def _rooms(self) -> Rooms:
        assert self.rooms is not None, "the node has not started"
        return self.rooms

    def _start_background(self) -> None:
        assert self._checkpoints is not None and self._reactor is not None
        assert self.logs is not None and self._replicas is not None
        plugins = self.plugins
        period = self.config.integer
        reactor = self._reactor
        logs = self.logs
        self._background.add("events", lambda: write_events(reactor), lambda: EVENTS_PERIOD_MS)
        self._background.add("offline-logs", self._replicas.try_offline, lambda: RETRY_MS)
        self.metrics.offline_partitions = self._replicas.offline_count
        failures = FailureLog(logs, self.system.monotonic_ns)
        self._background.add("failures", failures.write, lambda: FAILURES_PERIOD_MS)
        self._background.add("damage", lambda: write_damage(logs), lambda: DAMAGE_PERIOD_MS)
        self._scrub = Scrub(
            logs,
            lambda: self.dynamic.integer("log.scrub.bytes.per.second"),
            self.system.monotonic_ns,
            lambda: self._stopped,
        )
        self._background.add(
            "scrub", self._scrub.run, self._scrub.period_ms, first_ms=SCRUB_FIRST_MS
        )
        self.cleaner = LogCleaner(
            logs,
            self.dynamic,
            self.system,
            topic_config=self._replicas.topic_config,
            high_watermark=self._replicas.high_watermark,
            stopping=lambda: self._stopped,
            allowed=plugins.may_compact,
        )
        self.cleaner.begin(self._background.add)
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
            self.logs,
            self._replicas.topic_config,
            self._flush,
            self.system.monotonic_ns,
            plugins.should_flush,
        )
        self._background.add(
            "flush", flusher.run, lambda: period("log.flush.scheduler.interval.ms")
        )
        assert self.rooms is not None
        self._background.add(
            "offset-expiry",
            self.rooms.group_administration.expire,
            lambda: period("offsets.retention.check.interval.ms"),
        )
        self._background.add(
            "transaction-timeouts",
            self.rooms.transactions.abort_timed_out,
            lambda: period("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
        )
        self._background.add(
            "transactional-id-expiry",
            self.rooms.transactions.expire_ids,
            lambda: period("transaction.remove.expired.transaction.cleanup.interval.ms"),
        )
        self._background.add(
            "producer-expiry",
            self.logs.expire_producers,
            lambda: period("producer.id.expiration.check.interval.ms"),
        )
        self._background.add(
            "retention",
            self._retention,
            lambda: period("log.retention.check.interval.ms"),
            first_ms=period("log.initial.task.delay.ms"),
        )

    def _flush(self, row: PartitionLog) -> None:
        """By the group commit where the high watermark waits for it."""
        assert self._table is not None
        found = self._table.partition(row.topic, row.partition)
        if self.config.log_durability == "fsync" and found is not None:
            found.commit(FLUSH_TIMEOUT_MS)
        else:
            began_ns = self.system.monotonic_ns()
            row.handle.flush()
            self._flush_times.add(self.system.monotonic_ns() - began_ns)

    def _collectors(self) -> list[Collector]:
        """Who is asked for figures; their modules are imported when somebody reads them."""
        from barnabas import __version__
        from barnabas.telemetry import broker_collector
        from barnabas.telemetry.cleaner_metrics import CleanerFigures
        from barnabas.telemetry.group_metrics import GroupFigures
        from barnabas.telemetry.network_metrics import NetworkFigures
        from barnabas.telemetry.plugin_metrics import PluginFigures
        from barnabas.telemetry.process_metrics import ProcessFigures
        from barnabas.telemetry.share_metrics import ShareFigures

        assert self.rooms is not None and self._reactor is not None and self._table is not None
        assert self._fetch is not None and self._sessions is not None and self._handlers is not None
        handlers = self._handlers
        rooms = broker_collector.Rooms(
            node_id=self.node_id,
            table=self._table,
            cluster=self.rooms.cluster,
            replicas=self.rooms.replicas,
            logs=self.rooms.logs,
            fetch=self._fetch,
            sessions=self._sessions,
            commits=self._commits,
            flush_times=self._flush_times.read,
            partitions_max=lambda: self.config.integer("metrics.max.partitions"),
            began_ns=self._began_ns,
        )
        network = NetworkFigures(
            self._reactor,
            self._errors,
            lambda: handlers.thread_count,
            lambda: self.dynamic.integer("queued.max.request.bytes"),
            self._began_ns,
        )
        groups = GroupFigures(
            self.rooms.groups, self.rooms.replicas.high_watermark, rooms.partitions_max
        )
        assert self.cleaner is not None and self._coordinators is not None
        return [
            broker_collector.BrokerFigures(rooms),
            groups,
            CleanerFigures(self.cleaner, self.system.monotonic_ns),
            network,
            PluginFigures(self.plugins),
            ProcessFigures(__version__),
            ShareFigures(
                self.rooms.share, self._coordinators.share_log.led_partitions, self._began_ns
            ),
        ]

    def _retention(self) -> None:
        assert self.logs is not None and self._replicas is not None
        if self._cleanup is None:
            from barnabas.storage.cleanup import Cleanup

            self._cleanup = Cleanup(
                self.logs,
                self.plugins.deletable_segments,
                self._replicas.topic_config,
                self._replicas.high_watermark,
                self.system.wall_ms,
                lambda: self.dynamic.integer("log.segment.delete.delay.ms"),
                self.plugins.should_roll,
                self._rooms().groups.committed_of_partition,
            )
        self._cleanup.run()

    def _follow_listeners(self, settings: NetworkSettings, reader: ClusterStateReader) -> None:
        """From now on `listeners` may be altered."""
        tree = self._tree
        assert tree is not None

        def announce(bound: tuple[Listener, ...], told: tuple[Listener, ...]) -> None:
            self.listening, self.listeners = bound, told
            settings.listen(listener.name for listener in bound)
            register_again(tree, self.node_id, told, self.config, self.system.wall_ms())
            reader.refresh_brokers()

        changes = ListenerChanges(
            self.dynamic, self.listening, self._bind, self.reactor.unlisten, announce
        )
        self.dynamic.checks.append(changes.check)
        self.dynamic.on_change.append(changes.changed)

    def _begin_limits(self, settings: NetworkSettings) -> None:
        try:
            settings.begin(listener.name for listener in self.listening)
        except OSError as error:
            raise CannotStart(
                f"max.connections.per.ip.overrides: a host is not known: {error.strerror}."
                " Use its address, or correct the name."
            ) from error

    def _threads_changed(self, names: frozenset[str]) -> None:
        if VERIFICATION in names and self._produce is not None:
            self._produce.verifies = bool(self.dynamic[VERIFICATION])
        if "num.io.threads" in names and self._handlers is not None:
            self._handlers.resize(self.dynamic.integer("num.io.threads"))

    def _bind(self, listener: Listener) -> int:
        assert self._reactor is not None
        backlog = self.config.integer("socket.listen.backlog.size")
        try:
            return int(self._reactor.listen(listener.name, listener.host, listener.port, backlog))
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


def _answering(dispatcher: Dispatcher, kept: KeptAnswers) -> Answer:
    def answer(pending: PendingRequest) -> bytes | None:
        try:
            frame = dispatcher.answer(pending, keeper(kept, pending))
            return ANSWERED_LATER if frame is None else frame
        except CloseConnection as error:
            log.info("connection of %s:%d closed: %s", *pending.peer, error)
            return None

    return answer
