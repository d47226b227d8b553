"""Bugs that are planted into the simulation of one broker: it must find each of them.

A bug is a call that is left out, for a kind of file, or a change of the shipped code. `BUGS` says
what a seed finds: words of the violation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from durability.recording import Call
from simulation import readers, single_node
from simulation.node import Replacement, WaitingPartition, WaitingReplicas, replaced

from barnabas.coordinator.groups import group_records
from barnabas.coordinator.groups.classic_group import ClassicGroup
from barnabas.coordinator.share import share_state
from barnabas.coordinator.streams import streams_records
from barnabas.coordinator.transactions.coordinator import TransactionCoordinator
from barnabas.server.replica_manager import ReplicaManager
from barnabas.storage import log_manager
from barnabas.storage.checkpoint_writer import CheckpointWriter
from barnabas.storage.cleanup import Cleanup
from barnabas.storage.log_manager import OFFSET_MAX, LogManager
from barnabas.storage.replace_file import Replacements
from barnabas.wire.internal import CONSUMER_OFFSETS, SHARE_GROUP_STATE

Leaves = Callable[[Call], bool]  # a call out


class Bug(NamedTuple):
    """`words`: of the violation that finds it. `leaves`: a pattern of the paths that no `call`
    reaches on the disk. `replacements` of the shipped code. `first`: a seed that finds it.
    `durability`: the setting log.durability. `directories`: their number."""

    words: str
    leaves: str | None = None
    replacements: Sequence[Replacement] = ()
    first: int = 1
    durability: str = "fsync"
    directories: int = 1
    call: str = "sync"


def without_markers(coordinator: TransactionCoordinator, name: str) -> None:
    """Ends a transaction whose markers are not written."""
    coordinator._write_markers = lambda _order, done: done()
    _carry_out(coordinator, name)


_carry_out = TransactionCoordinator._carry_out


class AtOnce(WaitingPartition):
    """A partition whose appends count as durable before they are flushed."""

    def commit(self, *_given: Any) -> bool:
        return True


def at_once(topic: str) -> Replacement:
    """Lets the coordinator with this topic answer before its records are flushed."""

    def partition(replicas: WaitingReplicas, name: str, index: int) -> WaitingPartition:
        found = _partition(replicas, name, index)
        return AtOnce(replicas._broker, found._handle) if name == topic else found

    return WaitingReplicas, "partition", partition


_partition = WaitingReplicas.partition


def forgetting_producers(logs: LogManager, *given: Any) -> None:
    """Opens the logs without the idempotent producers of the lives before."""
    _load(logs, *given)
    logs._system.move_wall_clock(2)
    logs.expire_producers()
    logs._system.move_wall_clock(-2)


_load = LogManager.load


def without_delivery_counts(name: str, kept: Any, batches: Any) -> Any:
    """Stores a share group's changes without the delivery counts."""
    return _fields(name, kept, [row._replace(deliveries=0) for row in batches])


def deleting_too_much(logs: LogManager, policies: Any, *given: Any) -> Cleanup:
    """Retention whose policies choose one segment more."""

    def one_more(view: Any, now_ms: int, names: Any) -> int:
        count = policies(view, now_ms, names)
        return count + 1 if 0 < count < len(view.segments) - 1 else count

    return Cleanup(logs, one_more, *given)


def without_members(group_id: str, _value: bytes | None) -> ClassicGroup:
    """Reads a classic group without its members."""
    return ClassicGroup(group_id)


def cutting(logs: LogManager, *given: Any, **named: Any) -> Any:
    """Opens a log, and cuts off what no checkpoint says was flushed."""
    handle = _open_handle(logs, *given, **named)
    if "recovery_point" in named:
        handle.truncate_to(max(named["recovery_point"], handle.start_offset))
    return handle


def opening_again(replicas: ReplicaManager) -> int:
    """Opens the logs again whose flush has failed."""
    logs = replicas._logs
    for row in list(logs.offline_logs()):
        name, (state,) = (row.topic, row.partition), [
            state for state in logs._dirs if state.directory.path == row.directory.parent
        ]  # fmt: skip
        del logs._logs[name]
        found = log_manager._FoundLog(state, row.directory, name, True)
        logs._unopened[name] = log_manager._UnopenedLog(found, "")
        replicas._failed[name] = ""
    return _try_offline(replicas)


def all_unwritten(checkpoints: CheckpointWriter) -> set[Path]:
    """Takes the log starts of all directories for unwritten when those of one are."""
    failed = _unwritten_log_starts(checkpoints)
    return {row.path for row in checkpoints._logs.directories()} if failed else failed


def commit_all(rows: Mapping[Path, Replacements]) -> dict[Path, OSError]:
    """Commits the replacements of all directories together."""
    whole = Replacements()
    for row in rows.values():
        whole.add_all(row)
    try:
        whole.commit()
    except OSError as error:
        return dict.fromkeys(rows, error)
    return {}


_try_offline = ReplicaManager.try_offline
_unwritten_log_starts = CheckpointWriter.unwritten_log_starts
_open_handle = LogManager._open_handle
_fields = share_state._fields
_table = single_node.PartitionTable

BUGS = {
    # -- log
    "segments are not flushed": Bug("was acknowledged at offset", r"/records-\d/\d+\.log$"),
    "names of partitions are not flushed": Bug("retained: begins at", r"/data$"),
    "compacted segments are not flushed": Bug("keyed: ", r"\.log\.cleaned$", first=2),
    "records count before they are flushed": Bug(
        "was acknowledged",
        replacements=[
            (single_node, "PartitionTable",
             lambda *given, **named: _table(*given, **named | {"durability": "os"})),
        ],
    ),
    "producers are forgotten at a start": Bug(
        "in place of sequence number",
        replacements=[
            (LogManager, "load", forgetting_producers),
            (single_node, "SETTINGS", single_node.SETTINGS | {"producer.id.expiration.ms": "1"}),
        ],
    ),
    "segments behind a gap stay": Bug(
        "are missing in the middle",
        replacements=[(LogManager, "_unflushed_from", lambda *_: OFFSET_MAX)],
        first=12,
        durability="os",
    ),
    "segments are not flushed after flush.ms": Bug(
        "was flushed up to", r"/records-\d/\d+\.log$", first=2, durability="os"
    ),
    "what a kill leaves in memory is cut off": Bug(
        "was acknowledged", replacements=[(LogManager, "_open_handle", cutting)], durability="os"
    ),
    # -- retention and deletion
    "log starts are not flushed": Bug("were deleted", r"/log-start-offset-checkpoint", first=2),
    "retention deletes a segment too many": Bug(
        "retention has left",
        replacements=[(single_node, "Cleanup", deleting_too_much)],
        first=3,
    ),
    "the directories of deleted topics stay": Bug(
        "has files of", replacements=[(log_manager, "_rename_deleted", lambda *_: None)]
    ),
    # -- log directories, one of which fails
    "what a failed flush has lost stays in memory": Bug(
        "was committed there", r"\.log$", call="evict", directories=2
    ),
    "a log comes back after a failed flush": Bug(
        "is online after a failed flush",
        replacements=[(ReplicaManager, "try_offline", opening_again)],
        directories=2,
    ),
    "records are deleted in all directories or in none": Bug(
        "DeleteRecords has answered",
        replacements=[(CheckpointWriter, "unwritten_log_starts", all_unwritten)],
        first=7,
        directories=3,
    ),
    "new partitions are written in all directories or in none": Bug(
        "its log directory works",
        replacements=[(log_manager, "commit_each", commit_all)],
        first=11,
        directories=2,
    ),
    # -- groups
    "offsets of groups are not flushed": Bug("group ", r"/__consumer_offsets-\d/\d+\.log$"),
    "members are acknowledged before they are flushed": Bug(
        "group members", replacements=[at_once(CONSUMER_OFFSETS)], first=5
    ),
    "a start forgets the members of classic groups": Bug(
        "group classic", replacements=[(group_records, "_group", without_members)], first=9
    ),
    "a start forgets the members of streams groups": Bug(
        "group streams", replacements=[(streams_records, "replay", lambda *_: None)]
    ),
    # -- transactions
    "transactions are not flushed": Bug(
        "__transaction_state", r"/__transaction_state-\d/\d+\.log$"
    ),
    "markers are not written": Bug(
        "is in the transaction",
        replacements=[(TransactionCoordinator, "_carry_out", without_markers)],
    ),
    "readers get aborted records": Bug(
        "that is not committed", replacements=[(readers, "aborted_in", lambda _answer: {})]
    ),
    "markers are not written, with os": Bug(
        "is in the transaction",
        replacements=[(TransactionCoordinator, "_carry_out", without_markers)],
        first=71,
        durability="os",
    ),
    "a power cut takes epochs that are given again": Bug(
        "was acknowledged for",
        replacements=[(TransactionCoordinator, "_may_lack_epochs", lambda *_: False)],
        first=60,
        durability="os",
    ),
    # -- share groups
    "states of share groups are not flushed": Bug(
        "__share_group_state", r"/__share_group_state-\d/\d+\.log$"
    ),
    "acknowledgements are confirmed before they are flushed": Bug(
        "whose acknowledgement was confirmed",
        replacements=[at_once(SHARE_GROUP_STATE)],
        first=3,
    ),
    "delivery counts are not stored": Bug(
        "with the delivery count",
        replacements=[(share_state, "_fields", without_delivery_counts)],
        first=2,
    ),
    # -- metadata
    "the log of SQLite is not flushed": Bug(", and not ", r"/metadata\.db-wal$"),
    "the file of SQLite is not flushed": Bug("does not start", r"/metadata\.db$", first=3),
}  # fmt: skip


@contextmanager
def bug(name: str | None) -> Iterator[Sequence[Leaves]]:
    """Plants the bug with a name, None: none. Yields which flushes are left out."""
    planted = Bug("") if name is None else BUGS[name]
    leaves: list[Leaves] = []
    if planted.leaves is not None:
        leaves.append(partial(_matches, planted.call, re.compile(planted.leaves)))
    single_node.config_of.cache_clear()
    with replaced(planted.replacements):
        yield leaves
    single_node.config_of.cache_clear()


def _matches(name: str, pattern: re.Pattern[str], call: Call) -> bool:
    return call.name == name and pattern.search(call.path) is not None
