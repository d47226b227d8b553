"""All logs of a node: opening at the start, creating, deleting, closing.

At start every partition directory of every log directory is opened; after an unclean stop its
newest segments are checked first. A directory that the metadata does not know, or knows under
another topic id, is renamed to `-stray` and logged: its data is never deleted. A new partition goes
to the log directory with the fewest partitions.

A future log is a copy in another log directory that will replace the log of its partition (KIP-113,
future_logs.py). The replaced directory has a file `moved-to` with the path of the new one, written
before the new one gets its name. So after a crash at any step one of the two is the log.

Next: future_logs.py, checkpoint_writer.py, cleanup.py (the periodic tasks).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.cext.log.damage import Damage, corrupt_ranges, take_damage
from barnabas.cext.log.failed_calls import Failure, failures_total, take_failures
from barnabas.cext.log.log_handle import LogError, LogHandle, LogSettings, SegmentInfo
from barnabas.cext.log.segment import SegmentCache
from barnabas.cext.memory.epoch import Epochs
from barnabas.cext.memory.sys import SystemCalls
from barnabas.cext.memory.threads import name_this_thread
from barnabas.config import DynamicConfig, TopicConfig
from barnabas.storage import checkpoints as files
from barnabas.storage import partition_dirs
from barnabas.storage.checkpoints import DamagedFile, TopicPartition
from barnabas.storage.log_dirs import FailedDirectory, LogDir, keep_usable
from barnabas.storage.missing_records import report_cuts, report_missing, report_short
from barnabas.storage.replace_file import (
    Replacements,
    commit_each,
    replace_file,
    sync_directory,
)

log = logging.getLogger("barnabas.logs")

OPEN_SEGMENTS_MAX = 1000  # sealed segments that keep a descriptor; each costs one and two maps
MOVED_TO = "moved-to"  # in the directory of a log that a future log replaces
PREFERRED_MAX = 10_000  # partitions without a log whose log directory is remembered
OFFSET_MAX = 2**63 - 1  # above every offset


class PartitionLog(NamedTuple):
    """One open log and its directory."""

    topic: str
    partition: int
    topic_id: bytes
    directory: Path
    handle: LogHandle

    def path_of(self, segment: SegmentInfo) -> Path:
        """Returns the path of its .log file."""
        return self.directory / f"{segment.base_offset:020d}.log"

    def changed_ms(self, segment: SegmentInfo) -> int:
        """When its file was changed last, or that which it was cleaned from; wall clock."""
        return int(self.path_of(segment).stat().st_mtime * 1000)

    def largest_ms(self, segment: SegmentInfo) -> int:
        """The largest record timestamp; the file's last change for a segment without one."""
        return (
            segment.largest_timestamp
            if segment.largest_timestamp >= 0
            else self.changed_ms(segment)
        )


class _FoundLog(NamedTuple):
    """A partition directory to open."""

    state: _DirState
    path: Path
    name: TopicPartition
    is_marked: bool  # partition.metadata is there and whole: a power cut may tear it


class _LostDirectory(NamedTuple):
    """A partition directory that is missing; its log continues at the offset of the checkpoints."""

    topic_id: bytes
    state: _DirState
    end_offset_min: int


class OfflineLog(OSError):
    """The log of a partition cannot be used; the reason was logged before."""


class _UnopenedLog(NamedTuple):
    """A partition of this node without an open log: its directory (None: it is in a log directory
    that failed) and the last reason."""

    found: _FoundLog | None
    reason: str


class WantedLog(NamedTuple):
    """The metadata of a partition whose log may be on disk."""

    topic_id: bytes
    config: TopicConfig
    # Other brokers have its records too. If it ends before its checkpoints say, it stays so and
    # fetches the rest: offsets that were skipped here would differ from the leader's.
    is_replicated: bool = False


class _DirState:
    """The content of the checkpoints of one log directory at start. Raises FailedDirectory."""

    def __init__(self, directory: LogDir) -> None:
        self.directory = directory
        try:
            self.recovery_points = _offsets(directory.path / files.RECOVERY_POINT)
            self.log_starts = _offsets(directory.path / files.LOG_START)
            self.high_watermarks = _offsets(directory.path / files.HIGH_WATERMARK)
            self.compacted = _offsets(directory.path / files.CLEANER).keys()
        except OSError as error:
            raise FailedDirectory(f"cannot read the checkpoints in {directory.path}", error) from (
                error
            )

    def end_offset_min(self, name: TopicPartition) -> int:
        """Returns the end of the offsets that records have used: no log of this name may use them
        again."""
        known = (self.recovery_points, self.high_watermarks, self.log_starts)
        return max(offsets.get(name, 0) for offsets in known)

    def reached(self) -> set[TopicPartition]:
        """Returns the partitions that had records here, by the checkpoints."""
        known = (self.recovery_points, self.high_watermarks, self.log_starts)
        return {name for offsets in known for name, offset in offsets.items() if offset > 0}


def _are_saved(directory: Path, epochs: list[tuple[int, int]]) -> bool:
    """Whether the checkpoint already has the log's end, as after a clean stop; this saves two
    fsyncs."""
    try:
        return files.read_leader_epochs(directory) == epochs
    except DamagedFile:
        return False


def _remove_tree(path: Path) -> None:
    import shutil  # with its compressors it costs a start some milliseconds

    shutil.rmtree(path)


def _offsets(path: Path) -> dict[TopicPartition, int]:
    try:
        return files.read_offsets(path)
    except DamagedFile as error:
        log.warning("%s; continuing without it", error)
        return {}


def topic_id_on_disk(
    directories: Iterable[Path], topic: str, partitions: Iterable[int]
) -> bytes | None:
    """Returns the topic id in the directories of a topic, if they have one."""
    names = [partition_dirs.plain_name(topic, partition) for partition in partitions]
    for path in (directory / name for directory in directories for name in names):
        try:
            found = None if path.is_symlink() else files.read_topic_id(path)
        except DamagedFile as error:
            log.warning("%s", error)
            continue
        if found is not None:
            return found
    return None


class LogManager:
    """The logs of one node. The replica manager makes the changes, one at a time."""

    def __init__(
        self,
        directories: Iterable[LogDir],
        config: DynamicConfig,
        system: SystemCalls,
        epochs: Epochs,
        failed: Iterable[Path] = (),
        first_must_work: bool = False,
    ) -> None:
        """`failed`: the log directories that cannot be used; the others are served.
        `first_must_work`: the first one holds the metadata store. Raises UnusableDirectory when its
        checkpoints cannot be read, or those of none can."""
        self._dirs: list[_DirState] = []
        _, unread = keep_usable(
            directories, lambda row: self._dirs.append(_DirState(row)), first_must_work
        )
        self.failed_directories = (*failed, *unread)
        self._config = config
        self._system = system
        self._epochs = epochs
        self._cache = SegmentCache(open_segments_max=OPEN_SEGMENTS_MAX)
        self._lock = threading.Lock()  # of the two maps below
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._per_dir: dict[Path, int] = {row.directory.path: 0 for row in self._dirs}
        # Which directory a new partition goes to, by how many each has; None: the emptiest.
        self.choose_directory: Callable[[str, int, Mapping[str, int]], str | None] | None = None
        # Called with topic, partition and offset before the records below it are removed.
        self.start_moves: Callable[[str, int, int], object] = lambda *_place: None
        self._unsaved: dict[Path, Replacements] = {}  # by partition directory, for `save`
        # The leader epoch checkpoints as read at start, until the first save.
        self._saved_epochs: dict[Path, list[tuple[int, int]]] = {}
        self._epoch_files = threading.Lock()  # held while leader epoch checkpoints are written
        self._begun: set[Path] = set()  # partition directories whose epochs `save` will write
        # The leader epochs that `save_leader_epochs` found in the checkpoint of each log, or wrote.
        self._written_epochs: dict[Path, list[tuple[int, int]]] = {}
        # Partitions whose directory is missing though a checkpoint shows that it had records.
        self._lost: dict[TopicPartition, _LostDirectory] = {}
        self._put_aside: set[TopicPartition] = set()  # at this start
        self._unopened: dict[TopicPartition, _UnopenedLog] = {}
        # New directories whose log could not be opened: it is made there, in no second one.
        self._half_made: dict[TopicPartition, Path] = {}
        # Held while a future log is copied or removed, so that neither log is closed meanwhile.
        self.moving = threading.RLock()
        # Held while compaction replaces segments, and while a snapshot links those of an instant.
        self.linking = threading.Lock()
        self._futures: dict[TopicPartition, PartitionLog] = {}  # under `_lock`
        self._found_futures: list[tuple[_DirState, Path]] = []  # at this start
        self.failed_moves: set[TopicPartition] = set()  # given up and not begun again
        self._preferred: dict[TopicPartition, Path] = {}  # where partitions will be made
        # Whether a log is being compacted; a future log does not replace it then.
        self.is_compacted: Callable[[str, int], bool] = lambda topic, partition: False
        self._found_count = 0  # logs on disk at start

    # -- start ------------------------------------------------------------------------------------

    def load(
        self,
        wanted: Mapping[TopicPartition, WantedLog],
        deleted: Collection[tuple[str, int, bytes]] = (),
    ) -> None:
        """Opens the logs on disk; removes the `deleted` ones (topic, partition, topic id), whose
        topics are being deleted. A log that cannot be opened is offline and logged; get_or_create
        tries it again. Raises OSError when a log directory cannot be listed, or when a partition is
        in two of them."""
        for topic, partition, topic_id in deleted:
            self._remove_found(topic, partition, topic_id)
        found = [row for state in self._dirs for row in self._found(state, wanted)]
        found = _without_replaced(found)
        self._note_lost(wanted, {row.name for row in found})
        self._found_count = len(found)
        if all(row.state.directory.was_clean for row in found):
            # A clean log opens faster than a thread is handed one; the import would cost as much.
            for row in found:
                self._keep_or_report(row, self._try_to_open(row, wanted[row.name]))
        else:
            from concurrent.futures import ThreadPoolExecutor

            threads = self._config.integer("num.recovery.threads.per.data.dir")
            name = "log-recovery"
            with ThreadPoolExecutor(
                threads * len(self._dirs), name, name_this_thread, (name,)
            ) as pool:
                opening = [pool.submit(self._try_to_open, row, wanted[row.name]) for row in found]
                for row, done in zip(found, opening, strict=True):
                    self._keep_or_report(row, done.result())
        if self.failed_directories:
            self._report_absent(wanted.keys() - {row.name for row in found} - self._lost.keys())
        if self._found_futures:
            self._open_futures(wanted)
        for state in self._dirs:
            self._say_how_it_was_left(state.directory)

    def progress(self) -> str:
        """Returns how far `load` is, for the operator; "" before it knows the logs."""
        if not self._found_count:
            return ""
        with self._lock:
            opened_count = len(self._logs)
        return f"{opened_count} of {self._found_count} logs opened"

    def _try_to_open(self, row: _FoundLog, want: WantedLog) -> PartitionLog | Exception:
        try:
            return self._open_found(row, want)
        except (OSError, LogError) as error:
            return error

    def _keep_or_report(self, row: _FoundLog, opened: PartitionLog | Exception) -> None:
        if isinstance(opened, PartitionLog):
            self._keep(opened)
            return
        self._unopened[row.name] = _UnopenedLog(row, str(opened))
        log.error(
            "%s cannot be opened: %s. The partition is offline (KAFKA_STORAGE_ERROR), the others"
            " are served. The broker tries it again every few seconds: remove the cause.",
            row.path,
            opened,
        )

    def _report_absent(self, names: Collection[TopicPartition]) -> None:
        """Treats partitions that are on no working disk as partitions of a failed one: a new, empty
        log would use their offsets again."""
        for name in names:
            self._unopened[name] = _UnopenedLog(None, "it is in a log directory that failed")
        if names:
            log.error(
                "%d partitions are in no log directory that works and are offline until %s can be"
                " used again",
                len(names),
                ", ".join(map(str, self.failed_directories)),
            )

    def _note_lost(
        self, wanted: Mapping[TopicPartition, WantedLog], found: Collection[TopicPartition]
    ) -> None:
        for state in self._dirs:
            # A directory that was put aside now belongs to an earlier topic of the same name.
            lost = state.reached() & wanted.keys() - found - self._put_aside
            for name in lost:
                if wanted[name].is_replicated:
                    continue
                end_offset = state.end_offset_min(name)
                known = self._lost.get(name)
                if known is None or known.end_offset_min < end_offset:
                    self._lost[name] = _LostDirectory(wanted[name].topic_id, state, end_offset)

    def _say_how_it_was_left(self, directory: LogDir) -> None:
        if directory.was_clean:
            log.info("%s was closed cleanly: no recovery was needed", directory.path)
        elif not directory.is_new:
            rows = [row for row in self.logs() if row.directory.parent == directory.path]
            recovered = [row.handle.recovered for row in rows]
            log.warning(
                "%s was not closed cleanly: %d logs checked, %d batches read, %d bytes cut",
                directory.path,
                len(rows),
                sum(row.batches for row in recovered),
                sum(row.cut_bytes for row in recovered),
            )

    def _remove_found(self, topic: str, partition: int, topic_id: bytes) -> None:
        """Ends a deletion that a crash interrupted: deletes the directories of exactly this
        topic."""
        for state in self._dirs:
            path = state.directory.path / partition_dirs.plain_name(topic, partition)
            try:
                if path.is_symlink() or files.read_topic_id(path) != topic_id:
                    continue
            except DamagedFile as error:
                log.warning("%s; keeping it", error)
                continue
            _rename_deleted(path, topic, partition)
            sync_directory(state.directory.path)

    def _found(
        self, state: _DirState, wanted: Mapping[TopicPartition, WantedLog]
    ) -> list[_FoundLog]:
        """Returns the partition directories to open; deletes the others, or renames them to
        `-stray`."""
        found, strays = [], []
        with os.scandir(state.directory.path) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
        for entry in entries:
            named = partition_dirs.parse(entry.name)
            if named is None or not entry.is_dir(follow_symlinks=False):
                continue
            path = state.directory.path / entry.name
            if named.mark == "delete":
                try:
                    _remove_tree(path)
                except OSError as error:
                    log.error("cannot remove the deleted log %s: %s", path, error)
            elif named.mark == "stray":
                strays.append(path)
            elif named.mark == "future":
                self._found_futures.append((state, path))
            elif named.mark is None:
                name = named.topic, named.partition
                want = wanted.get(name)
                topic_id = None if want is None else self._topic_id_in(path)
                if want is not None and topic_id in (None, want.topic_id):
                    found.append(_FoundLog(state, path, name, topic_id is not None))
                else:
                    self._put_aside.add(name)
                    _rename_aside(path, partition_dirs.marked_name(*name, "stray"))
        if strays:
            self._report_strays(strays, wanted)
        return found

    @staticmethod
    def _topic_id_in(path: Path) -> bytes | None:
        try:
            return files.read_topic_id(path)
        except (DamagedFile, OSError) as error:
            log.warning("%s; using it for the topic of its name", error)
            return None

    def _report_strays(
        self, strays: Sequence[Path], wanted: Mapping[TopicPartition, WantedLog]
    ) -> None:
        """Logs one warning, at every start, for each stray directory whose partition exists, with
        the steps that restore it."""
        names = _by_topic_id(wanted)
        for path in strays:
            name = self._name_of_marked(path, names)
            if name is not None:
                log.warning(
                    "%s was put aside and is not served, but its topic exists. To use its records"
                    " in place of the present ones, stop the broker, move %s away and rename"
                    " this directory to that name.",
                    path,
                    partition_dirs.plain_name(*name),
                )

    def _name_of_marked(
        self, path: Path, names: Mapping[tuple[bytes, int], TopicPartition]
    ) -> TopicPartition | None:
        """Returns the wanted partition of a stray or future directory; None: it has none."""
        topic_id, partition = self._topic_id_in(path), partition_dirs.marked_partition(path.name)
        return None if topic_id is None else names.get((topic_id, partition))

    def _open_found(self, row: _FoundLog, want: WantedLog) -> PartitionLog:
        state, path, name, is_marked = row
        try:
            epochs = files.read_leader_epochs(path)
            self._saved_epochs[path] = epochs
        except DamagedFile as error:
            log.warning("%s; reading the epochs from the log", error)
            epochs = []
        replicated = (
            {"high_watermark": state.high_watermarks.get(name, 0)} if want.is_replicated else {}
        )
        was_compacted = name in state.compacted or "compact" in want.config.names("cleanup.policy")
        handle = self._open_handle(
            path,
            want.config,
            recovery_point=state.recovery_points.get(name, 0),
            log_start_offset=state.log_starts.get(name, 0),
            end_offset_min=0 if want.is_replicated else state.end_offset_min(name),
            clean=state.directory.was_clean,
            unflushed_from=self._unflushed_from(state, name, want, was_compacted),
            leader_epochs=epochs,
            **replicated,
        )
        for line in handle.recovered.messages:
            log.warning("%s: %s", path, line)
        report_cuts(path, handle.recovered.cuts)
        missing = handle.recovered.missing
        if was_compacted:  # its gaps are right, but for one at the end, which is never compacted
            missing = missing[-1:] if handle.recovered.ends_early else []
        report_missing(path, missing, handle.end_offset)
        if want.is_replicated and handle.end_offset < state.end_offset_min(name):
            report_short(path, handle.end_offset, state.end_offset_min(name))
        if not is_marked:
            files.write_topic_id(path, want.topic_id)
        return PartitionLog(*name, want.topic_id, path, handle)

    def _unflushed_from(
        self, state: _DirState, name: TopicPartition, want: WantedLog, was_compacted: bool
    ) -> int:
        """Returns the offset from which on a gap in a log may come from a power cut. Compaction
        leaves gaps as well. With log.durability=fsync the high watermark of a log without other
        replicas is a flushed offset."""
        if was_compacted:
            return OFFSET_MAX
        if self._config.text("log.durability") == "fsync" and not want.is_replicated:
            return state.end_offset_min(name)
        return state.recovery_points.get(name, 0)

    def _keep(self, opened: PartitionLog) -> None:
        name = opened.topic, opened.partition
        with self._lock:
            if name in self._logs:
                raise OSError(
                    f"{opened.topic}-{opened.partition} is in two log directories:"
                    f" {self._logs[name].directory} and {opened.directory}. Move one away."
                )
            self._logs[name] = opened
            self._per_dir[opened.directory.parent] += 1

    # -- while the broker runs --------------------------------------------------------------------

    def logs(self) -> list[PartitionLog]:
        with self._lock:
            return list(self._logs.values())

    def directories(self) -> list[LogDir]:
        return [state.directory for state in self._dirs]

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        with self._lock:
            return self._logs.get((topic, partition))

    def high_watermark(self, topic: str, partition: int) -> int:
        """Returns the high watermark that a checkpoint had at start, as an offset; 0: none."""
        return max(state.high_watermarks.get((topic, partition), 0) for state in self._dirs)

    def get_or_create(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: TopicConfig,
        is_replicated: bool = False,
    ) -> PartitionLog:
        """A new one may be written to after the next save(). Raises OSError or LogError; OfflineLog
        when the reason was logged before."""
        found = self.get(topic, partition)
        if found is not None:
            return found
        unopened = self._unopened.get((topic, partition))
        if unopened is not None:
            return self._open_again(unopened, WantedLog(topic_id, config, is_replicated))
        lost = self._lost.get((topic, partition))
        if lost is not None and lost.topic_id != topic_id:
            lost = None
        path = self._half_made.get((topic, partition))
        if path is None:
            parent = (
                self._directory_for(topic, partition) if lost is None else lost.state.directory.path
            )
            path = parent / partition_dirs.plain_name(topic, partition)
            path.mkdir()
            self._half_made[topic, partition] = path
        unsaved = self._unsaved.setdefault(path, Replacements())
        unsaved.add_directory(path.parent)
        files.write_topic_id(path, topic_id, unsaved)
        handle = self._open_handle(
            path,
            config,
            end_offset_min=0 if lost is None else lost.end_offset_min,
            clean=True,
        )
        report_missing(path, handle.recovered.missing, handle.end_offset)
        opened = PartitionLog(topic, partition, topic_id, path, handle)
        del self._half_made[topic, partition]
        self._lost.pop((topic, partition), None)
        self._keep(opened)
        return opened

    def _open_handle(self, path: Path, config: TopicConfig, **given: Any) -> LogHandle:
        """Opens the log of a directory. `given`: what LogHandle.open knows of this log alone."""
        return LogHandle.open(
            str(path),
            system=self._system,
            epochs=self._epochs,
            cache=self._cache,
            settings=self._settings(config),
            seed=_seed(),
            **given,
        )

    def _open_again(self, unopened: _UnopenedLog, want: WantedLog) -> PartitionLog:
        if unopened.found is None:
            raise OfflineLog(unopened.reason)
        row = unopened.found
        try:
            opened = self._open_found(row, want)
        except (OSError, LogError) as error:
            if str(error) == unopened.reason:
                raise OfflineLog(unopened.reason) from error
            self._unopened[row.name] = _UnopenedLog(row, str(error))
            raise
        self._keep(opened)
        del self._unopened[row.name]
        return opened

    def kept_offsets(self, name: str, directory: Path) -> dict[TopicPartition, int]:
        """What a checkpoint of a log directory said at start of partitions that are offline: it is
        written again as it was."""
        for state in self._dirs:
            if state.directory.path == directory:
                known = {
                    files.RECOVERY_POINT: state.recovery_points,
                    files.HIGH_WATERMARK: state.high_watermarks,
                    files.LOG_START: state.log_starts,
                }[name]
                return {row: known[row] for row in self._unopened.keys() & known.keys()}
        return {}

    def offline_count(self) -> int:
        """Returns the number of open logs that cannot be used."""
        return sum(1 for _ in self.offline_logs())

    def offline_logs(self) -> Iterator[PartitionLog]:
        """Yields the open logs that cannot be used."""
        for row in self.logs():
            try:
                is_offline = row.handle.offline
            except LogError:
                continue  # its topic has been deleted
            if is_offline:
                yield row

    def cut_again(self) -> list[PartitionLog]:
        """Tries the logs that are offline because a failed write could not be cut off; returns
        those that can be used again."""
        usable = []
        for row in self.logs():
            try:
                if row.handle.offline and row.handle.cut_again():
                    usable.append(row)
            except LogError:
                continue  # its topic has been deleted
        return usable

    def _directory_for(self, topic: str, partition: int) -> Path:
        preferred = self._preferred.pop((topic, partition), None)
        if preferred is not None:
            return preferred
        with self._lock:
            counts = dict(self._per_dir)
        if self.choose_directory is not None and len(counts) > 1:
            by_text = {str(path): count for path, count in counts.items()}
            chosen = self.choose_directory(topic, partition, by_text)
            if chosen is not None:
                return Path(chosen)
        return min(counts, key=lambda path: counts[path])

    # -- future logs ------------------------------------------------------------------------------

    def futures(self) -> list[PartitionLog]:
        """Returns the future logs; each partition has one at most."""
        with self._lock:
            return list(self._futures.values())

    def future(self, topic: str, partition: int) -> PartitionLog | None:
        with self._lock:
            return self._futures.get((topic, partition))

    def prefer_directory(self, topic: str, partition: int, directory: Path) -> None:
        """Remembers, until the broker stops, the log directory for a log that is not made yet.
        Kafka: LogManager.maybeUpdatePreferredLogDir."""
        self._preferred.pop((topic, partition), None)
        if len(self._preferred) >= PREFERRED_MAX:
            del self._preferred[next(iter(self._preferred))]
        self._preferred[topic, partition] = directory

    def add_future(
        self, topic: str, partition: int, directory: Path, config: TopicConfig
    ) -> PartitionLog:
        """Makes an empty future log in the log directory `directory` for a partition with an open
        log. Raises OSError, LogError."""
        current = self.get(topic, partition)
        assert current is not None
        path = directory / partition_dirs.marked_name(topic, partition, "future")
        path.mkdir()
        try:
            files.write_topic_id(path, current.topic_id)
            sync_directory(directory)
            handle = self._open_handle(
                path,
                config,
                # The first batch may begin below the log's start, but not below its segment.
                log_start_offset=current.handle.segments()[0].base_offset,
                clean=True,
            )
        except (OSError, LogError):
            _rename_deleted(path, topic, partition)
            raise
        current.handle.take_truncation()  # earlier ones do not matter to the copy
        made = PartitionLog(topic, partition, current.topic_id, path, handle)
        with self._lock:
            self._futures[topic, partition] = made
        self.failed_moves.discard((topic, partition))
        return made

    def future_lag(self, future: PartitionLog) -> int:
        """Returns the number of records that a future log lacks. Raises LogError when the move has
        ended."""
        current, end = self.get(future.topic, future.partition), future.handle.end_offset
        return 0 if current is None else max(current.handle.end_offset - end, 0)

    def remove_future(self, topic: str, partition: int) -> None:
        """Removes the future log of a partition, if there is one. Raises OSError."""
        with self.moving:
            with self._lock:
                row = self._futures.pop((topic, partition), None)
            if row is not None:
                _put_away([row])
                current = self.get(topic, partition)
                if current is not None:
                    (current.directory / MOVED_TO).unlink(missing_ok=True)

    def give_up_future(self, topic: str, partition: int) -> None:
        """Removes a future log that cannot be copied, and counts the move as failed. Raises
        OSError."""
        with self.moving:
            self.failed_moves.add((topic, partition))
            self.remove_future(topic, partition)

    def replace_with_future(self, topic: str, partition: int, bytes_max: int) -> bool:
        """Replaces the log of a partition by its future log; returns False when the future log
        lacks more than about `bytes_max` bytes. Appends wait meanwhile. Raises OSError, LogError.
        Kafka: LogManager.replaceCurrentWithFutureLog."""
        from barnabas.cext.log.future_log import replace_with_future

        name = topic, partition
        with self.moving:
            current, future = self.get(topic, partition), self.future(topic, partition)
            assert current is not None and future is not None
            path = future.directory.with_name(partition_dirs.plain_name(topic, partition))
            if _moved_to(current.directory) != path.absolute():
                replace_file(current.directory / MOVED_TO, os.fsencode(path.absolute()))
            with self._epoch_files:
                files.write_leader_epochs(future.directory, current.handle.leader_epochs())
            from barnabas.storage.address_index import copy_addresses

            copy_addresses(current.directory, future.directory)
            if not replace_with_future(current.handle, future.handle, path, bytes_max):
                return False
            with self._lock:
                del self._futures[name]
                self._logs[name] = current._replace(directory=path)
                self._per_dir[current.directory.parent] -= 1
                self._per_dir[path.parent] += 1
            _put_away([future._replace(directory=current.directory)])
        return True

    def _open_futures(self, wanted: Mapping[TopicPartition, WantedLog]) -> None:
        """Opens the future logs that a stop interrupted. A copy that no open log needs is removed;
        a copy of a partition that the metadata does not know becomes a stray directory."""
        names = _by_topic_id(wanted)
        for state, path in self._found_futures:
            name = self._name_of_marked(path, names)
            current = None if name is None else self.get(*name)
            if name is None:
                _rename_aside(path, path.name.removesuffix("future") + "stray")
            elif current is None:
                log.warning("%s is the copy of a log that is not open; keeping it", path)
            elif name in self._futures or current.directory.parent == state.directory.path:
                _rename_deleted(path, *name)
            else:
                kept = current.handle.end_offset
                if wanted[name].is_replicated:  # a truncation may have removed the others
                    kept = min(kept, self.high_watermark(*name))
                found = _FoundLog(state, path, name, True)
                self._open_future(found, wanted[name], current.handle, kept)
        self._found_futures.clear()

    def _open_future(self, row: _FoundLog, want: WantedLog, current: LogHandle, kept: int) -> None:
        """Opens a future log, and cuts off the records from the offset `kept` on, and those that
        the current log does not have by its leader epochs. A release without moves may have
        truncated the current log, and written more, while the future log lay there."""
        try:
            # The current log has the rest of its records, as a leader has those of a follower.
            opened = self._open_found(row, want._replace(is_replicated=True))
            opened.handle.truncate_to(min(kept, _common_end(opened.handle, current)))
        except (OSError, LogError) as error:
            log.error(
                "%s cannot be opened: %s. The partition stays where it is; move it again after"
                " the cause is removed.",
                row.path,
                error,
            )
            _rename_deleted(row.path, *row.name)
            return
        with self._lock:
            self._futures[row.name] = opened

    # -- leadership, configuration, deletion ------------------------------------------------------

    def begin_epoch(self, topic: str, partition: int, epoch: int) -> None:
        """This node leads the partition under `epoch` from the next save() on: the epoch must be
        on disk before a record is written under it. Raises OSError."""
        found = self.get(topic, partition)
        if found is None:
            return
        with self._epoch_files:
            found.handle.assign_epoch(epoch)
            epochs = found.handle.leader_epochs()
            if self._saved_epochs.get(found.directory) == epochs:
                return
            if not _are_saved(found.directory, epochs):
                unsaved = self._unsaved.setdefault(found.directory, Replacements())
                files.write_leader_epochs(found.directory, epochs, unsaved)
                self._begun.add(found.directory)

    def save(self) -> dict[Path, OSError]:
        """Brings to disk the logs and leader epochs that were begun since the last call, those of
        each log directory together. Returns the directories of the partitions where that failed:
        this node may not lead these. The next call tries them again."""
        self._saved_epochs.clear()
        with self._epoch_files:
            unsaved, self._unsaved = self._unsaved, {}
            failed = commit_each(unsaved)
            self._unsaved = {path: unsaved[path] for path in failed}
            self._begun &= failed.keys()
        return failed

    def save_leader_epochs(self) -> set[Path]:
        """Writes the leader epochs that logs have and their files lack: those of records that were
        copied from a leader. Returns the log directories where that failed."""
        failed: set[Path] = set()
        written: dict[Path, list[tuple[int, int]]] = {}
        rows = sorted((*self.logs(), *self.futures()), key=lambda row: row.directory)
        with self._epoch_files:
            for parent, found in groupby(rows, lambda row: row.directory.parent):
                try:
                    written |= self._save_leader_epochs_in(found)
                except OSError as error:
                    failed.add(parent)
                    if not isinstance(error, FileNotFoundError):  # a log that was deleted just now
                        log.error("cannot write the leader epochs in %s: %s", parent, error)
            self._written_epochs = written
        return failed

    def _save_leader_epochs_in(
        self, rows: Iterable[PartitionLog]
    ) -> dict[Path, list[tuple[int, int]]]:
        """Does it for logs of one log directory. Returns the epochs that their files have now.
        Raises OSError."""
        unsaved = Replacements()
        written: dict[Path, list[tuple[int, int]]] = {}
        for row in rows:
            try:
                epochs = row.handle.leader_epochs()
            except LogError:
                continue  # its topic has been deleted
            if row.directory in self._begun:
                continue
            if self._written_epochs.get(row.directory) != epochs:
                if not _are_saved(row.directory, epochs):
                    files.write_leader_epochs(row.directory, epochs, unsaved)
            written[row.directory] = epochs
        unsaved.commit()
        return written

    def configure(self, topic: str, config: TopicConfig) -> None:
        """Applies a changed configuration of a topic."""
        for opened in (*self.logs(), *self.futures()):
            if opened.topic == topic:
                opened.handle.set_config(self._settings(config))

    def delete(self, topic: str, partitions: Collection[int] | None = None) -> None:
        """Takes the logs of a topic, or of some partitions of it, out of service and renames their
        directories to `-delete`. A directory that cannot be renamed keeps its name; the next start
        does it again."""

        def is_meant(name: TopicPartition) -> bool:
            return name[0] == topic and (partitions is None or name[1] in partitions)

        for known in [name for name in self._unopened if is_meant(name)]:
            del self._unopened[known]
        for known in [name for name in self._half_made if is_meant(name)]:
            _rename_deleted(self._half_made.pop(known), *known)
        with self.moving:
            with self._lock:
                copies = [row for name, row in self._futures.items() if is_meant(name)]
                for row in copies:
                    del self._futures[row.topic, row.partition]
                gone = [row for name, row in self._logs.items() if is_meant(name)]
                for row in gone:
                    del self._logs[row.topic, row.partition]
                    self._saved_epochs.pop(row.directory, None)
                    self._per_dir[row.directory.parent] -= 1
            self.failed_moves.difference_update([*filter(is_meant, self.failed_moves)])
            _put_away([*copies, *gone])

    def expire_producers(self) -> int:
        """Removes idempotent producers that were idle for producer.id.expiration.ms; returns how
        many."""
        return sum(row.handle.expire_producers() for row in self.logs())

    @property
    def corrupt_ranges(self) -> int:
        """Returns the number of damaged byte ranges found in segments since the start."""
        return corrupt_ranges(self._cache)

    @property
    def failures_total(self) -> int:
        """Returns the number of failed writes, flushes and other disk operations since the
        start."""
        return failures_total(self._cache)

    def take_failures(self) -> list[Failure]:
        """Returns the disk failures since the last call."""
        return take_failures(self._cache)

    def take_damage(self) -> list[Damage]:
        """Returns the damage found since the last call."""
        return take_damage(self._cache)

    def _settings(self, config: TopicConfig) -> LogSettings:
        """Returns the settings of a log from its topic's and the broker's configuration."""
        segment_ms = config.integer("segment.ms")
        if "compact" in config.names("cleanup.policy"):  # the active segment is not compacted
            segment_ms = min(segment_ms, config.integer("max.compaction.lag.ms"))
        return LogSettings(
            segment_bytes=config.integer("segment.bytes"),
            segment_ms=segment_ms,
            segment_jitter_ms=config.integer("segment.jitter.ms"),
            index_interval_bytes=config.integer("index.interval.bytes"),
            segment_index_bytes=config.integer("segment.index.bytes"),
            producer_id_expiration_ms=self._config.integer("producer.id.expiration.ms"),
            preallocate=config.boolean("preallocate"),
            flush_messages=config.integer("flush.messages"),
        )

    # -- stop -------------------------------------------------------------------------------------

    def close(self) -> bool:
        """Closes every log; returns whether all closed cleanly. A log that was not opened does not
        change."""
        clean = all(
            row.found is None or row.found.state.directory.was_clean
            for row in self._unopened.values()
        )
        with self.moving:
            with self._lock:
                rows = [*self._logs.values(), *self._futures.values()]
                self._logs.clear()
                self._futures.clear()
            for row in rows:
                try:
                    row.handle.close(clean=True)
                except LogError as error:
                    log.error("%s", error)
                    clean = False
        return clean


def _seed() -> int:
    """Returns the seed of a log's segment.jitter.ms; with one seed for all, all logs would roll at
    the same time."""
    return int.from_bytes(os.urandom(8), "big")


def _by_topic_id(
    wanted: Mapping[TopicPartition, WantedLog],
) -> dict[tuple[bytes, int], TopicPartition]:
    return {(want.topic_id, name[1]): name for name, want in wanted.items()}


def _moved_to(path: Path) -> Path | None:
    """Returns the directory that was to replace a partition directory; None: there is none."""
    try:
        return Path(os.fsdecode((path / MOVED_TO).read_bytes()))
    except FileNotFoundError:
        return None


def _without_replaced(found: list[_FoundLog]) -> list[_FoundLog]:
    """Leaves out the logs that a future log has replaced, and renames their directories to
    `-delete`, as the broker was about to do when it ended. Raises OSError."""
    if len({row.name for row in found}) == len(found):
        return found
    known = {row.path.absolute(): row.name for row in found}
    left = []
    for row in found:
        target = _moved_to(row.path)
        if target is None or target == row.path.absolute() or known.get(target) != row.name:
            left.append(row)
            continue
        log.info("%s had been moved to %s when the broker ended", row.path, target)
        _rename_deleted(row.path, *row.name)
        sync_directory(row.path.parent)
    return left


def _common_end(copy: LogHandle, log_: LogHandle) -> int:
    """Returns the offset up to which a copy has the records of a log, by their leader epochs."""
    end = copy.end_offset
    for epoch, start in reversed(copy.leader_epochs()):
        known, known_end = log_.epoch_end(epoch)
        if known == epoch:
            return min(end, known_end)
        end = min(end, start)
    return end


def _rename_aside(path: Path, name: str) -> None:
    """Renames a directory that the metadata does not know to a name of mark `stray`."""
    try:
        path.rename(path.with_name(name))
    except OSError as error:
        log.error("%s is not in the metadata and cannot be renamed: %s", path, error)
        return
    log.warning("%s is not in the metadata; renamed it to %s", path, name)


def _put_away(rows: Sequence[PartitionLog]) -> None:
    """Closes logs that are no longer in use, and renames their directories to `-delete`."""
    for row in rows:
        try:
            row.handle.close(clean=False)
        except LogError as error:
            log.warning("%s", error)
        _rename_deleted(row.directory, row.topic, row.partition)
    for parent in {row.directory.parent for row in rows}:
        try:
            sync_directory(parent)
        except OSError as error:
            log.error(
                "cannot flush the log directory %s: %s. After a power cut, deleted logs may have"
                " their names again; the next start puts them aside.",
                parent,
                error,
            )


def _rename_deleted(path: Path, topic: str, partition: int) -> None:
    try:
        path.rename(path.with_name(partition_dirs.marked_name(topic, partition, "delete")))
    except OSError as error:
        log.error("cannot rename the deleted log %s: %s", path, error)
