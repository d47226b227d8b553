"""Serving -> Running: starts the repeating tasks; they must not delay the first answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cext.log.log_handle import LogError
from barnabas.cext.memory.histogram import Times
from barnabas.cext.memory.threads import start_refused
from barnabas.coordinator.coordinators import Coordinators
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.tree import MetadataError
from barnabas.server.background import Background
from barnabas.server.local_requests import LocalRequests
from barnabas.server.replica_manager import RETRY_MS
from barnabas.stages.configured import Undo
from barnabas.stages.loaded import Loaded
from barnabas.stages.opened import METADATA_DIRECTORY
from barnabas.stages.serving import Serving
from barnabas.storage.damage_log import PERIOD_MS as DAMAGE_PERIOD_MS
from barnabas.storage.damage_log import write_damage
from barnabas.storage.failure_log import PERIOD_MS as FAILURES_PERIOD_MS
from barnabas.storage.failure_log import FailureLog
from barnabas.storage.flusher import Flusher
from barnabas.storage.log_cleaner import LogCleaner
from barnabas.storage.log_manager import PartitionLog
from barnabas.storage.scrub import FIRST_MS as SCRUB_FIRST_MS
from barnabas.storage.scrub import Scrub
from barnabas.telemetry.network_events import PERIOD_MS as EVENTS_PERIOD_MS
from barnabas.telemetry.network_events import write_events

if TYPE_CHECKING:
    from barnabas.server.controlled_shutdown import ControlledShutdown
    from barnabas.server.isr import IsrChanges
    from barnabas.storage.cleanup import Cleanup

FLUSH_TIMEOUT_MS = 30_000
ISR_GROW_MS = 100
ISR_FLUSH_MS = 60_000  # beside the runs after each new state
BALANCE_FIRST_MS = 5000  # as in Kafka


class Running(NamedTuple):
    """The start is complete."""

    before: Serving
    cleaner: LogCleaner
    scrub: Scrub
    retention: Retention
    flush_times: Times  # durations of the flushes that no group commit makes


class Retention:
    """Deletes segments by the retention of their topics. The first run imports its module."""

    def __init__(self, make: Callable[[], Cleanup]) -> None:
        self._make = make

    @cached_property
    def cleanup(self) -> Cleanup:
        return self._make()

    def run(self) -> None:
        self.cleanup.run()


def run_tasks(before: Serving) -> Running:
    """Starts the repeating tasks, such as retention and flushes."""
    loaded = before.before.before
    opened, start = loaded.before, loaded.before.before
    background, system, undo = start.background, start.system, start.undo
    background.add("events", partial(_each_second, before), lambda: EVENTS_PERIOD_MS)
    background.add("offline-logs", loaded.replicas.try_offline, lambda: RETRY_MS)
    start.metrics.offline_partitions = loaded.replicas.offline_count
    start.metrics.status = partial(_status, loaded)
    failures = FailureLog(loaded.logs, system.monotonic_ns)
    if opened.tree.is_shared:
        failures = FailureLog(
            loaded.logs, system.monotonic_ns, _keep_isrs(loaded, background).resign
        )
    background.add("failures", failures.write, lambda: FAILURES_PERIOD_MS)
    background.add("damage", lambda: write_damage(loaded.logs), lambda: DAMAGE_PERIOD_MS)
    scrub = Scrub(
        loaded.logs,
        lambda: opened.dynamic.integer("log.scrub.bytes.per.second"),
        system.monotonic_ns,
        lambda: undo.has_begun,
    )
    background.add("scrub", scrub.run, scrub.period_ms, first_ms=SCRUB_FIRST_MS)
    tokens = before.before.tokens()
    if tokens is not None:
        background.add(
            "delegation-tokens",
            tokens.remove_expired,
            lambda: start.config.integer("delegation.token.expiry.check.interval.ms"),
        )
    cleaner = LogCleaner(
        loaded.logs,
        opened.dynamic,
        system,
        topic_config=loaded.replicas.topic_config,
        high_watermark=loaded.replicas.high_watermark,
        stopping=lambda: undo.has_begun,
        allowed=loaded.plugins.may_compact,
    )
    cleaner.begin(background.add)
    loaded.logs.is_compacted = cleaner.is_busy
    if loaded.logs.futures():
        before.log_dir_moves().wake()  # continues the moves that the last stop interrupted
    flush_times = Times()
    retention = Retention(lambda: _cleanup(before))
    flusher = Flusher(
        loaded.logs,
        loaded.replicas.topic_config,
        lambda row: _flush(loaded, row, flush_times),
        system.monotonic_ns,
        loaded.plugins.should_flush,
    )
    _add_tasks(loaded, before.coordinators, flusher, retention, background)
    if opened.tree.is_shared:
        _report_failed_logs(loaded, background)
        _balance_leaders(before, background)
    local = LocalRequests(
        loaded.logs.directories()[0].path,
        {"snapshot": partial(_snapshot, loaded)},
        _reason_of,
    )
    undo.callback(local.close)
    if before.controlled_shutdown is not None:
        undo.callback(_shut_down, undo, before.controlled_shutdown)
    return Running(before, cleaner, scrub, retention, flush_times)


def _snapshot(loaded: Loaded) -> dict[str, object]:
    """Makes a snapshot; the first one imports its module. Raises NoSnapshot, MetadataError,
    LogError, OSError."""
    from barnabas.storage.snapshot import NoSnapshot, Snapshots

    opened = loaded.before
    if not isinstance(opened.tree, EmbeddedTree):
        raise NoSnapshot(
            "the metadata of this broker is in ZooKeeper, and a snapshot would not have it"
        )
    snapshots = Snapshots(
        loaded.logs,
        opened.tree.frozen,
        f"{METADATA_DIRECTORY}/{opened.tree.path.name}",
        loaded.replicas.high_watermark,
        opened.before.system.wall_ms,
    )
    return snapshots.make()._asdict()


def _reason_of(error: Exception) -> str | None:
    """Returns the answer to a local request that failed; None for an error of the program."""
    from barnabas.storage.snapshot import NoSnapshot

    if isinstance(error, OSError) and error.strerror is not None:
        where = "" if error.filename is None else f": {error.filename}"
        return f"{error.strerror}{where}"
    expected = isinstance(error, NoSnapshot | MetadataError | LogError | OSError)
    return str(error) if expected else None


def _status(loaded: Loaded) -> tuple[str, bytes]:
    """Returns the content type and the bytes of the page /status."""
    from barnabas.telemetry import status_page

    opened = loaded.before
    return status_page.CONTENT_TYPE, status_page.status_page(opened.reader.state, opened.node_id)


def _keep_isrs(loaded: Loaded, background: Background) -> IsrChanges:
    """Starts to shrink and grow the ISRs of the partitions that this node leads."""
    from barnabas.server.isr import IsrChanges

    opened = loaded.before
    config, replicas = opened.before.config, loaded.replicas
    lag_ms = config.integer("replica.lag.time.max.ms")
    loaded.table.replica_lag_ms_max = lag_ms
    is_in_memory = config.log_durability == "os"

    def isr_size_min(topic: str) -> int:
        return replicas.topic_config(topic).integer("min.insync.replicas")

    changes = IsrChanges(
        loaded.table,
        opened.tree,
        opened.reader,
        opened.node_id,
        isr_size_min if is_in_memory else None,
    )
    background.add("isr-shrink", changes.shrink, lambda: lag_ms // 2)
    background.add("isr-grow", changes.grow, lambda: ISR_GROW_MS)
    if is_in_memory:
        flush = background.add("isr-flush", changes.flush_small, lambda: ISR_FLUSH_MS)
        replicas.on_applied.append(lambda _state: flush())
    return changes


def _report_failed_logs(loaded: Loaded, background: Background) -> None:
    """Begins to report logs that fail, and that can be used again, to the controller."""
    from barnabas.server.log_dir_reports import PERIOD_MS, LogDirReports

    opened = loaded.before
    reports = LogDirReports(opened.tree, opened.node_id, loaded.replicas)
    background.add("log-dir-reports", reports.run, lambda: PERIOD_MS)


def _balance_leaders(before: Serving, background: Background) -> None:
    """Starts to elect preferred replicas, if auto.leader.rebalance.enable is set."""
    from barnabas.controller.leader_balance import LeaderBalance

    opened = before.before.before.before
    config, control = opened.before.config, before.administration.control
    if not config.boolean("auto.leader.rebalance.enable"):
        return
    percentage = config.integer("leader.imbalance.per.broker.percentage")
    period_ms = 1000 * config.integer("leader.imbalance.check.interval.seconds")
    balance = LeaderBalance(opened.reader, control.controller_role, control.elections(), percentage)
    first_ms = min(BALANCE_FIRST_MS, period_ms)
    background.add("leader-balance", balance.run, lambda: period_ms, first_ms)


def _shut_down(undo: Undo, controlled_shutdown: ControlledShutdown) -> None:
    if undo.is_clean:
        controlled_shutdown.run()


def _add_tasks(
    loaded: Loaded,
    coordinators: Coordinators,
    flusher: Flusher,
    retention: Retention,
    background: Background,
) -> None:
    """Adds the tasks whose periods are settings of Kafka."""
    integer, checkpoints = loaded.before.before.config.integer, loaded.checkpoints
    transactions = coordinators.transactions

    def add(
        name: str, task: Callable[[], object], setting: str, first_ms: float | None = None
    ) -> None:
        background.add(name, task, lambda: integer(setting), first_ms)

    add(
        "high-watermarks",
        checkpoints.write_high_watermarks,
        "replica.high.watermark.checkpoint.interval.ms",
    )
    add(
        "recovery-points",
        checkpoints.write_recovery_points,
        "log.flush.offset.checkpoint.interval.ms",
    )
    add(
        "log-starts",
        checkpoints.write_log_starts,
        "log.flush.start.offset.checkpoint.interval.ms",
    )
    add("flush", flusher.run, "log.flush.scheduler.interval.ms")
    add(
        "offset-expiry",
        coordinators.group_administration.expire,
        "offsets.retention.check.interval.ms",
    )
    add(
        "transaction-timeouts",
        transactions.abort_timed_out,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    )
    add(
        "transactional-id-expiry",
        transactions.expire_ids,
        "transaction.remove.expired.transaction.cleanup.interval.ms",
    )
    add(
        "producer-expiry",
        loaded.logs.expire_producers,
        "producer.id.expiration.check.interval.ms",
    )
    first_ms = integer("log.initial.task.delay.ms")
    add("retention", retention.run, "log.retention.check.interval.ms", first_ms)


def _cleanup(node: Serving) -> Cleanup:
    from barnabas.storage.cleanup import Cleanup

    loaded = node.before.before
    opened = loaded.before
    return Cleanup(
        loaded.logs,
        loaded.plugins.deletable_segments,
        loaded.replicas.topic_config,
        loaded.replicas.high_watermark,
        opened.before.system.wall_ms,
        lambda: opened.dynamic.integer("log.segment.delete.delay.ms"),
        loaded.plugins.should_roll,
        node.coordinators.groups.committed_of_partition,
    )


def _flush(loaded: Loaded, row: PartitionLog, times: Times) -> None:
    """Flushes a log: by the group commit when log.durability=fsync, because the high watermark
    waits for it; otherwise directly, and adds the duration to `times`."""
    start = loaded.before.before
    found = loaded.table.partition(row.topic, row.partition)
    if start.config.log_durability == "fsync" and found is not None:
        found.commit(FLUSH_TIMEOUT_MS)
    else:
        began_ns = start.system.monotonic_ns()
        row.handle.flush()
        times.add(start.system.monotonic_ns() - began_ns)


def _each_second(node: Serving) -> None:
    start_refused()
    write_events(node.before.reactor)
    node.bad_requests.write()
