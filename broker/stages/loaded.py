"""Opened -> Loaded: opens the logs, and recovers them after an unclean stop."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.cext.memory.epoch import Epochs
from barnabas.cext.partition.group_commit import GroupCommit
from barnabas.cext.partition.partitions import PartitionTable
from barnabas.server.plugins import Plugins
from barnabas.server.replica_manager import ReplicaManager, deleted_logs, wanted_logs
from barnabas.stages.opened import Opened
from barnabas.storage.checkpoint_writer import CheckpointWriter
from barnabas.storage.log_dirs import LogDir, keep_usable
from barnabas.storage.log_manager import LogManager
from barnabas.telemetry.metrics_page import RECOVERY


class Loaded(NamedTuple):
    """Logs can be read and written; the node leads no partition yet, and has loaded no plugin."""

    before: Opened
    table: PartitionTable
    group_commits: tuple[GroupCommit, ...]  # one for each log directory
    logs: LogManager
    plugins: Plugins
    replicas: ReplicaManager
    checkpoints: CheckpointWriter


def load_logs(before: Opened) -> Loaded:
    """Opens the logs in the usable log directories. Raises UnusableDirectory if none is usable."""
    start, dynamic, node_id = before.before, before.dynamic, before.node_id
    config, system, undo = start.config, start.system, start.undo
    epochs = Epochs()
    table = PartitionTable(system, epochs, node_id=node_id, durability=config.log_durability)
    keeps_metadata = config.metadata_store != "zookeeper"
    usable, unmarked = keep_usable(before.directories, LogDir.begin, keeps_metadata)
    failed = [*before.failed_directories, *unmarked]
    logs = LogManager(
        usable, dynamic, system, epochs, failed=failed, first_must_work=keeps_metadata
    )
    plugins = Plugins(dynamic, start.background.add, start.metrics.values, system.wall_ms)
    replicas = ReplicaManager(node_id, table, logs, dynamic, plugins.policy_flags)
    checkpoints = CheckpointWriter(logs, replicas.high_watermark)
    replicas.before_new = checkpoints.forget_former

    def close_logs() -> bool:
        """Closes the logs. If the node has led its partitions, it also writes the checkpoints,
        because high watermarks are known only from then on. Returns whether everything was
        written."""
        return checkpoints.write_all_and_close() if replicas.has_led else logs.close()

    undo.check(close_logs)
    undo.callback(table.close)
    undo.callback(plugins.stop_serving)
    commits = [table.add_directory(str(directory.path)) for directory in logs.directories()]
    if not before.needs_no_recovery:
        start.metrics.progress = logs.progress
        start.metrics.state = RECOVERY
    logs.load(wanted_logs(before.reader.state, node_id, dynamic), deleted_logs(before.reader.state))
    return Loaded(before, table, tuple(commits), logs, plugins, replicas, checkpoints)
