"""The only node of an embedded store, in a simulation, without threads and sockets.

It has the shipped code, composed as the stages of `barnabas start` do (broker/stages): log
directory, metadata store (SQLite), recovery, native handlers, coordinators, checkpoints, compaction
and retention. All files are real ones; the world records the calls that
change them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulation import node
from simulation.node import Actor, SimNode, StillThread

from barnabas.api import (
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
    k21_delete_records,
    k68_consumer_group_heartbeat,
    k88_streams_group_heartbeat,
)
from barnabas.api.contexts import GroupContext, PartitionContext, StreamsContext
from barnabas.cext.fetch.fetch import FetchHandler
from barnabas.cext.fetch.sessions import FetchSessions
from barnabas.cext.memory.epoch import Epochs
from barnabas.cext.partition.partitions import PartitionTable
from barnabas.cext.produce.produce import ProduceHandler
from barnabas.config import BrokerConfig, DynamicConfig, TopicConfig
from barnabas.config.listeners import Listener
from barnabas.controller import config_changes
from barnabas.controller.config_changes import ConfigChanges
from barnabas.controller.controller_role import SingleNodeRole
from barnabas.controller.features import registered_features
from barnabas.controller.partition_growth import PartitionGrowth
from barnabas.controller.single_node import lead_all
from barnabas.controller.stored_passwords import StoredPasswords
from barnabas.controller.topic_deletion import TopicDeletion
from barnabas.controller.topics import TopicController
from barnabas.coordinator import coordinators
from barnabas.coordinator.coordinators import coordinator_handlers
from barnabas.coordinator.groups import group_dependencies
from barnabas.coordinator.groups.tree_offsets import TreeOffsets
from barnabas.coordinator.share import dead_letters, waiting
from barnabas.hooks import calls
from barnabas.metadata import watches
from barnabas.metadata.cluster_state import ClusterStateReader
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.server.membership import Membership
from barnabas.server.plugins import Plugins
from barnabas.server.registration import claim_cluster
from barnabas.server.replica_manager import ReplicaManager, deleted_logs, wanted_logs
from barnabas.stages.opened import embedded_directory
from barnabas.storage.checkpoint_writer import CheckpointWriter
from barnabas.storage.cleanup import Cleanup
from barnabas.storage.failure_log import PERIOD_MS as FAILURES_MS
from barnabas.storage.failure_log import FailureLog
from barnabas.storage.flusher import Flusher
from barnabas.storage.log_cleaner import LogCleaner
from barnabas.storage.log_dirs import LogDir, keep_usable, open_directories
from barnabas.storage.log_manager import LogManager

if TYPE_CHECKING:
    from simulation.one_node import OneNodeWorld

NODE_ID = 1
WAL_PAGES_MAX = 30  # so that SQLite often moves its log into the file
CHECKPOINT_MS, CLEAN_MS, RETENTION_MS, TIMEOUTS_MS, FLUSH_MS = 2000, 1000, 1000, 1000, 500
OFFLINE_MS = 300  # so that a life has attempts
SETTINGS = node.SETTINGS | {
    "node.id": str(NODE_ID),
    "log.index.size.max.bytes": "4096",
    "log.cleaner.dedupe.buffer.size": str(1 << 20),
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.delete.delay.ms": "2000",
    "log.retention.ms": "-1",
    "group.streams.initial.rebalance.delay.ms": "0",
    "log.flush.interval.ms": "1500",
    "offsets.topic.segment.bytes": "3000",
    "transaction.state.log.segment.bytes": "3000",
    "share.coordinator.state.topic.segment.bytes": "3000",
    "group.share.min.record.lock.duration.ms": "30000",
    "group.share.record.lock.duration.ms": "30000",
}
OF_GROUPS = (11, 12, 13, 14, 68)
OF_STREAMS_GROUPS = (88,)
OF_PARTITIONS = (21,)
MODULES = (
    k11_join_group, k12_heartbeat, k13_leave_group, k14_sync_group, k21_delete_records,
    k68_consumer_group_heartbeat, k88_streams_group_heartbeat,
)  # fmt: skip


@cache  # no code changes it
def config_of(folders: str, durability: str) -> BrokerConfig:
    return BrokerConfig({**SETTINGS, "log.dirs": folders, "log.durability": durability})


class HereNow:
    """Takes the place of a plugin's thread, and of a pool of threads: runs each call where it is
    asked for."""

    def __init__(self, *_given: object) -> None:
        self.calls = self

    def put(self, call: Any) -> None:
        if call is not None:
            call.run()

    def submit(self, function: Callable[..., object], *given: object) -> Future[object]:
        made: Future[object] = Future()
        try:
            made.set_result(function(*given))
        except Exception as error:
            made.set_exception(error)
        return made

    def __enter__(self) -> HereNow:
        return self

    def __exit__(self, *_failure: object) -> None:
        pass


class InTurn:
    """Takes the place of a thread that runs calls one after the other: an actor of the broker runs
    them."""

    def __init__(self, world: OneNodeWorld, _name: str) -> None:
        self._world = world

    def __call__(self, call: Callable[[], object]) -> None:
        self._world.node.in_turn.append(call)


class Uuids:
    """Makes the ids that the group coordinator gives, from the chance of the world."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes

    def __call__(self) -> str:
        return self._random_bytes(16).hex()


class SingleNode(SimNode):
    """The broker of a OneNodeWorld."""

    world: OneNodeWorld
    handled = node.HANDLED | {row.KEY: row for row in MODULES}

    def __init__(self, world: OneNodeWorld, node_id: int, folders: list[Path]) -> None:
        super().__init__(world, node_id, folders[0])
        self.folders = folders

    def _open(self, undo: ExitStack) -> None:
        system, world, folder = self.system, self.world, self.folder
        directories = [str(row) for row in self.folders]
        self.in_turn: deque[Callable[[], object]] = deque()  # calls of the group coordinator
        listeners = [Listener("PLAINTEXT", "node", 9092)]
        self.config = config = config_of(",".join(directories), world.durability)
        opened, failed = open_directories(directories, True)
        for row in opened:
            undo.callback(row.close, False)
        self.directories = opened
        self.tree = tree = EmbeddedTree(
            embedded_directory(folder), clock_ms=system.wall_ms, wal_pages_max=WAL_PAGES_MAX
        )
        undo.callback(tree._database.close)
        known = {found for row in opened if (found := row.identity().get("cluster.id"))}
        cluster_id = claim_cluster(tree, known, world.random_bytes)
        self.dynamic = dynamic = DynamicConfig(config, NODE_ID)
        usable, unclaimed = keep_usable(opened, lambda row: row.claim(NODE_ID, cluster_id), True)
        membership = Membership(
            tree, NODE_ID, config, registered_features(), lambda: listeners, system.wall_ms
        )
        self.reader = reader = ClusterStateReader(tree)
        passwords = StoredPasswords(config)
        config_changes.load(dynamic, tree, reader, passwords)
        epochs = Epochs()
        self.table = table = PartitionTable(
            system, epochs, node_id=NODE_ID, durability=world.durability
        )
        usable, unmarked = keep_usable(usable, LogDir.begin, True)
        failed += unclaimed + unmarked
        self.logs = logs = LogManager(
            usable, dynamic, system, epochs, failed=failed, first_must_work=True
        )
        plugins = Plugins(dynamic, lambda *_: None, dict, system.wall_ms)  # type: ignore[arg-type]
        self.replicas = replicas = ReplicaManager(
            NODE_ID, table, logs, dynamic, plugins.policy_flags
        )
        self.checkpoints = checkpoints = CheckpointWriter(logs, replicas.high_watermark)
        replicas.before_new = checkpoints.forget_former
        undo.callback(self._close_logs)
        undo.callback(table.close)
        self.flushes = [
            table.add_directory(str(row.path), flush_threads=1) for row in logs.directories()
        ]
        logs.load(wanted_logs(reader.state, NODE_ID, dynamic), deleted_logs(reader.state))
        self.native = coordinator_handlers(config, table)
        self.produces = ProduceHandler(table, self.native.steps)
        self.produces.verifies = True
        self.fetches = FetchHandler(table, FetchSessions(100, seed=1), fetch_bytes_max=1 << 24)
        undo.callback(self.fetches.stop)
        membership.begin()
        reader.refresh_brokers()
        reader.refresh_controller()
        plugins.load()
        is_unclean = not all(row.was_clean for row in opened)
        lead_all(tree, reader, NODE_ID, is_unclean=is_unclean)
        replicas.begin(reader)
        role = SingleNodeRole()
        self.deletion = TopicDeletion(tree, reader, role, checkpoints.write_all)
        self.deletion.finish()
        self.topics = TopicController(
            tree, reader, role, dynamic, world.below, world.random_bytes,
            plugins.place, plugins.check_topic,
        )  # fmt: skip
        self.growth = PartitionGrowth(tree, reader, role, plugins.place)
        self.configs = ConfigChanges(tree, reader, dynamic, passwords, plugins.check_config_change)
        self._coordinate(tree, None, not is_unclean, plugins.assign)
        made = self.coordinators
        self.group_context = GroupContext(
            lambda: reader.state, config, self.features, made.groups, made.group_administration,
            TreeOffsets(tree), system.wall_ms,
        )  # fmt: skip
        self.streams_context = StreamsContext(
            lambda: reader.state, config, self.features, made.streams, None, None
        )  # type: ignore[arg-type]  # the topology needs no internal topic
        self.partition_context = PartitionContext(
            lambda: reader.state, config, replicas, logs, checkpoints,
            lambda overrides: TopicConfig(overrides, dynamic), None,
        )  # type: ignore[arg-type]  # fmt: skip
        self.cleaner = LogCleaner(
            logs,
            dynamic,
            system,
            topic_config=replicas.topic_config,
            high_watermark=replicas.high_watermark,
            stopping=lambda: False,
        )
        logs.is_compacted = self.cleaner.is_busy
        self.cleanup = Cleanup(
            logs, plugins.deletable_segments, replicas.topic_config, replicas.high_watermark,
            system.wall_ms, lambda: dynamic.integer("log.segment.delete.delay.ms"),
            plugins.should_roll, made.groups.committed_of_partition,
        )  # fmt: skip
        self.flusher = Flusher(
            logs, replicas.topic_config, lambda row: row.handle.flush(), system.monotonic_ns
        )
        self.actors = self._all()

    def _all(self) -> list[Actor]:
        checkpoints = self.checkpoints
        periodic: list[tuple[str, Callable[[], object], int]] = [
            ("high-watermarks", checkpoints.write_high_watermarks, CHECKPOINT_MS),
            ("recovery-points", checkpoints.write_recovery_points, CHECKPOINT_MS),
            ("log-starts", checkpoints.write_log_starts, CHECKPOINT_MS),
            ("log-cleaner", self._clean, CLEAN_MS),
            ("retention", self.cleanup.run, RETENTION_MS),
            *([("flush", self.flusher.run, FLUSH_MS)] if self.world.durability == "os" else []),
            ("timeouts", self.coordinators.transactions.abort_timed_out, TIMEOUTS_MS),
        ]
        if len(self.folders) > 1:
            failures = FailureLog(self.logs, self.system.monotonic_ns)
            periodic += [
                ("offline-logs", self.replicas.try_offline, OFFLINE_MS),
                ("failures", failures.write, FAILURES_MS),
            ]
        queued = self.tree._watches._calls._queue
        now_ns = self.world.now_ns
        return [
            Actor("watches", self._call_watch, lambda: not queued.empty()),
            *self._coordinator_actors(),
            Actor("groups", self._run_in_turn, lambda: bool(self.in_turn)),
            Actor("disk", self._flush, self._is_disk_due),
            *(
                Actor(
                    name,
                    partial(self._periodic, task, period_ms),
                    due_ns=now_ns + self.world.below(period_ms) * 1_000_000,
                )
                for name, task, period_ms in periodic
            ),
        ]

    def _run_in_turn(self) -> None:
        self.in_turn.popleft()()

    def _clean(self) -> None:
        self.world.counts["compactions"] += self.cleaner.run()

    def _is_disk_due(self) -> bool:
        return any(row.counters()["depth"] for row in self.flushes)

    def _flush(self) -> None:
        due = [row for row in self.flushes if row.counters()["depth"]]
        (self.world.choice(due) if len(self.folders) > 1 else due[0]).flush_next()

    def _call_watch(self) -> None:
        function, argument = self.tree._watches._calls._queue.get()
        function(argument)

    def stop(self) -> None:
        """Stops as `barnabas start` does after SIGTERM. No actor is in the middle of a step."""
        assert all(row.worker is None for row in self.actors)
        self.is_running = False
        self.world.lost(self)
        self.actors = []
        self._undo.pop_all()  # not as after a kill
        self.coordinators.groups.stop()
        self.coordinators.stop()
        self.fetches.stop()
        self.replicas.stop()
        is_clean = self.checkpoints.write_all_and_close()
        self.table.close()
        self.tree.close()
        for row in self.directories:
            row.close(clean=is_clean)

    def context_of(self, key: int) -> Any:
        if key in OF_PARTITIONS:
            return self.partition_context
        if key in OF_STREAMS_GROUPS:
            return self.streams_context
        return self.group_context if key in OF_GROUPS else super().context_of(key)

    def handle(self, frame: bytes, connection: Any = node.NO_CONNECTION) -> Any:
        answer = super().handle(frame, connection)
        self.world.look_at_disk()
        return answer


def replacements(world: OneNodeWorld) -> list[node.Replacement]:
    """Returns what takes the place of threads and of chance in the shipped modules."""
    return [
        *node.THREADS,
        (watches, "NamedThread", StillThread),
        (waiting, "start_when_allowed", StillThread),
        (dead_letters, "start_when_allowed", StillThread),
        (group_dependencies, "SerialThread", partial(InTurn, world)),
        (calls, "_Thread", HereNow),
        (futures, "ThreadPoolExecutor", HereNow),
        (coordinators, "RandomUuids", partial(Uuids, world.random_bytes)),
    ]
