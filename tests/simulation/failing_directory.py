"""One of several log directories of a simulated broker fails: from some call on, its calls give EIO
for a while or until the broker is started again, sometimes longer.

Checked behind every step, while a directory fails or has failed in this life of the broker:

- The partitions in the other directories are served; each takes a batch and gives its records.
- A partition whose flush has failed is offline until a restart, and no offset of it counts as
  flushed any more: the kernel takes the lost bytes for clean, so a later flush would succeed.
- No client gets UNKNOWN_SERVER_ERROR.

What was acknowledged in the failed directory is checked as after a power cut, when the broker has
started with it again. The first directory does not fail: it has the metadata store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from simulation.log_rows import Violation

from barnabas.storage import partition_dirs

if TYPE_CHECKING:
    from durability.recording import Call
    from simulation.judge import Log, Place
    from simulation.one_node import OneNodeWorld

ALL = ("create", "write", "truncate", "sync", "rename", "unlink", "mkdir", "rmdir")
KINDS = {
    "every call": ALL,
    "flushes": ("sync",),
    "writes": ("write",),
    "writes and cuts": ("write", "truncate"),
    "names": ("create", "rename", "unlink", "mkdir"),
}
FAILS, STAYS = 0.5, 0.3  # the probabilities that a directory fails in a life, and in the next one
AFTER_MAX = (5, 60)  # calls until it fails
COUNTS = (-1, -1, 1, 3, 10)  # calls that fail; -1: all
UNKNOWN = re.compile(r"error -1\b")


class FailingDirectory:
    """The failing log directory of a world; `path`: None while none has failed."""

    def __init__(self, world: OneNodeWorld) -> None:
        self._world = world
        self.path: Path | None = None
        self._has_failed = False  # in this life of the broker
        self._parents: dict[Log, Path] = {}
        self._unflushed: dict[Log, int] = {}  # by log: what was flushed before a flush has failed
        world.calls.fail(world.folder, (), 0, 0)  # of the world before

    def plan(self) -> None:
        """Perhaps lets a directory fail after some calls. It is the same until the next start."""
        world, others = self._world, self._world.node.folders[1:]
        if not others or self.path is not None or not world.happens(FAILS):
            return
        kind = world.choice(sorted(KINDS))
        self.path = world.choice(others)
        after, count = world.below(world.choice(AFTER_MAX)), world.choice(COUNTS)
        world.note("failing directories", f"{kind} in {self.path.name}: {count} after {after}")
        world.calls.fail(self.path, KINDS[kind], after, count)

    def before_start(self, may_stay: bool) -> None:
        """Ends the failure, or lets it stay for the next life."""
        world = self._world
        if self.path is not None and may_stay and world.happens(STAYS):
            world.note("directories that fail at a start", self.path.name)
            world.calls.fail(self.path, ALL, 0, -1)
        else:
            self.end()
        self._unflushed = {}
        self._has_failed = False

    @property
    def has_lost(self) -> bool:
        """Returns whether a flush of a log has failed in this life."""
        return bool(self._unflushed)

    def end(self) -> None:
        if self.path is not None:
            self._world.calls.fail(self.path, (), 0, 0)
        self.path = None

    def may_be_offline(self, place: Place) -> bool:
        """Returns whether a partition is, or may be, in the directory that fails."""
        if self.path is None:
            return False
        row = self._world.partitions().get(place)
        return row is None or self._parents.get(row.log, self.path) == self.path

    def take(self, calls: Iterable[Call]) -> None:
        """Takes the calls of a step."""
        for call in calls:
            if call.name == "failed":
                self._has_failed = True
                self._world.counts["failed calls"] += 1
                self._world.counts[f"{call.data.decode()} calls that failed"] += 1
                if call.data == b"sync" and call.path.endswith(".log"):
                    self._flush_failed(Path(call.path).parent)

    def _flush_failed(self, directory: Path) -> None:
        named = partition_dirs.parse(directory.name)
        if named is None or named.mark is not None or not self._world.node.is_running:
            return
        row = self._world.partitions().get((named.topic, named.partition))
        handle = self._world.node.table.partition(named.topic, named.partition)
        if row is not None and handle is not None and handle.log is not None:
            self._world.note("flushes of logs that failed", directory.name)
            self._unflushed.setdefault(row.log, handle.log.flushed_offset)

    def look(self) -> None:
        """Notes where the logs are, and checks them, behind a step."""
        node = self._world.node
        for place, row in self._world.partitions().items():
            opened, handle = node.logs.get(*place), node.table.partition(*place)
            if opened is not None:
                self._parents[row.log] = opened.directory.parent
            if handle is None:
                continue
            if handle.offline and self._is_in_use(place) and not self.may_be_offline(place):
                raise Violation(f"{place} is offline, and its log directory works")
            known = self._unflushed.get(row.log)
            if known is None:
                continue
            if not handle.offline:
                raise Violation(f"{place} is online after a failed flush")
            if handle.log is not None and handle.log.flushed_offset > known:
                raise Violation(f"{place}: counts as flushed up to {handle.log.flushed_offset}"
                                f" after a failed flush, and was up to {known}")  # fmt: skip
        for what in self._world.counts:
            if UNKNOWN.search(what):
                raise Violation(f"a client has got UNKNOWN_SERVER_ERROR: {what}")

    def _is_in_use(self, place: Place) -> bool:
        """Returns whether the broker serves a partition: a new one, only a moment later."""
        return self._world.node.logs.get(*place) is not None

    def check_others(self) -> None:
        """Checks that the partitions in the directories that work take batches and give their
        records."""
        world, producers = self._world, self._world.producers
        if self.path is None or not self._has_failed:
            return
        world.note("checks beside a failed directory", self.path.name)
        logs = [
            row.log
            for place, row in world.partitions().items()
            if place[0] in world.TOPICS and not self.may_be_offline(place)
        ]
        for log in logs:
            producers.send_to(world.node, log, may_begin=True)
        world.step(produces=False)  # lets the judge see what was acknowledged at once
        world.until(lambda: all(map(producers.is_idle_in, logs)), "a working directory is not used")
        world.judge.check_acknowledged()
