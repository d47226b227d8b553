"""Checks the directory of one partition: what is damaged, and what the next start does about it.

The batches of all segments are read in order (check_segment.py). Their offsets, leader epochs and
producers are compared with the checkpoints, the leader-epoch checkpoint, the producer snapshots and
the address index. The rules are those of the opening: cext/log/log_handle.pyx says what it does.
Nothing is changed.

A log that a broker writes to may look damaged in the moment of a write: check_directory.py looks
again before it reports.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from barnabas.cext.log import cut_files
from barnabas.cext.log.batch_walk import BatchWalk, WalkedBatch
from barnabas.cext.log.log_files import SUFFIXES, finished_swaps, recovered_segments, snapshots
from barnabas.cli import log_files
from barnabas.cli.check_addresses import address_problems
from barnabas.cli.check_segment import (
    IndexCheck,
    OpenTransactions,
    Segment,
    aborted_in,
    batches_of,
    records_problem,
)
from barnabas.storage import checkpoints
from barnabas.storage.address_index import ADDRESSES, AddressIndex, DamagedIndex
from barnabas.storage.checkpoints import DamagedFile
from barnabas.storage.partition_dirs import ORIGINAL_SEGMENT

KEEPS = "a start keeps it"
UNREAD = "a start does not read it; a fetch of it gets CORRUPT_MESSAGE. Restore it from a backup"
REBUILDS = "a start rebuilds it from the .log"
MOVED_TO = "moved-to"


class Finding(NamedTuple):
    """`start`: what the next start does. `is_defect`: False for a leftover without consequences."""

    file: Path
    position: int | None
    what: str
    start: str
    is_defect: bool = True


class Known(NamedTuple):
    """What the log directory and the metadata say about a partition."""

    recovery_point: int = 0
    high_watermark: int = 0
    log_start: int = 0
    cleaned: int | None = None  # by the cleaner's checkpoint
    was_clean: bool = True
    is_running: bool = False
    is_compacted: bool = False
    is_replicated: bool = False


class Counts:
    """How much was checked."""

    def __init__(self) -> None:
        self.partitions = self.segments = self.batches = self.size_bytes = 0


class PartitionCheck:
    """One look at one partition."""

    def __init__(
        self,
        directory: Path,
        known: Known,
        counts: Counts,
        advance: Callable[[int, int], None],
        decodes_records: bool,
    ) -> None:
        """`advance`: called with numbers of records and bytes."""
        self._directory, self._known, self._counts = directory, known, counts
        self._advance, self._decodes_records = advance, decodes_records
        self._findings: list[Finding] = []
        self._cut = False  # whether a start cuts the log off at damage before this point
        self._is_damaged = False
        self._transactions = OpenTransactions()
        self._last_batches: dict[int, WalkedBatch] = {}  # of each producer
        self._epochs: list[tuple[int, int]] = []  # of the batches
        self._snapshots: list[int] = []
        self._recovered: set[int] = set()
        self._end_offset = known.log_start

    def findings(self) -> list[Finding]:
        """Raises OSError."""
        names = sorted(os.listdir(self._directory))
        segments = self._names(names)
        bases = [row.base_offset for row in segments]
        clean = self._known.was_clean and not self._known.is_running
        self._recovered = {*recovered_segments(bases, self._known.recovery_point, clean)}
        self._snapshots = sorted(snapshots(str(self._directory)))
        if bases:
            self._end_offset = bases[0]
        for number, segment in enumerate(segments):
            self._check_segment(segment, len(segments) - number - 1)
        self._check_snapshots(None)
        self._check_ends(bool(segments))
        self._check_epochs()
        self._check_addresses(segments)
        self._counts.partitions += 1
        return self._findings

    def _add(
        self, file: Path | str, position: int | None, what: str, start: str, is_defect: bool = True
    ) -> None:
        path = self._directory / file
        self._findings.append(Finding(path, position, what, start, is_defect))

    # -- names ------------------------------------------------------------------------------------

    def _names(self, names: list[str]) -> list[Segment]:
        """Returns the segments that a start opens, and reports files that are no part of them."""
        swapped, replaced = finished_swaps(str(self._directory))
        plain = {int(name[:20]) for name in names if self._is_segment(name, ".log")}
        gone = {base for base, suffix in replaced if suffix == ".log"}
        for name in names:
            path = self._directory / name
            if path.is_symlink() or path.is_dir():
                what = "a symbolic link" if path.is_symlink() else "a directory"
                self._add(name, None, f"is {what}", "the broker does not use it")
            elif not self._known.is_running or not name.endswith((".deleted", ".cleaned", ".swap")):
                self._leftover(name, plain | {*swapped}, {*swapped})
        kept = {base: f"{base:020d}.log" for base in plain - gone}
        kept |= {base: f"{base:020d}.log.swap" for base in swapped}
        return [
            Segment(self._directory, base, self._directory / name)
            for base, name in sorted(kept.items())
        ]

    @staticmethod
    def _is_segment(name: str, suffix: str) -> bool:
        return name[20:] == suffix and name[:20].isascii() and name[:20].isdigit()

    def _leftover(self, name: str, bases: set[int], swapped: set[int]) -> None:
        if name.endswith(".deleted"):
            self._add(name, None, "is deleted", "a start removes it", False)
        elif name.endswith(".cleaned"):
            self._add(name, None, "an unfinished compaction", "a start removes it", False)
        elif name.endswith(".own"):
            what = "an unfinished copy of a linked file"
            self._add(name, None, what, "a start removes it", False)
        elif name.endswith(".swap"):
            is_finished = name[:20].isdigit() and int(name[:20]) in swapped
            start = "a start puts it in place" if is_finished else "a start removes it"
            self._add(name, None, "a compaction that was interrupted", start, False)
        elif name.endswith(".tmp"):
            self._add(name, None, "an unfinished write", "the next write replaces it", False)
        elif name.endswith(cut_files.SUFFIX):
            self._report_cut(name)
        elif any(self._is_segment(name, suffix) for suffix in SUFFIXES):
            if int(name[:20]) not in bases:
                self._add(
                    name,
                    None,
                    "the .log of this segment is missing; its records are lost, unless they were"
                    " deleted on purpose",
                    "a start removes the file",
                )
        elif name == MOVED_TO:
            what = "another log directory takes over this partition"
            self._add(name, None, what, "a start uses the directory that is named in it", False)
        elif name not in (
            checkpoints.LEADER_EPOCHS,
            checkpoints.PARTITION_METADATA,
            ADDRESSES,
        ) and not any(self._is_segment(name, row) for row in (".snapshot", ORIGINAL_SEGMENT)):
            self._add(name, None, "is no file of a log", "the broker does not use it", False)

    def _report_cut(self, name: str) -> None:
        path = self._directory / name
        with open(path, "rb", buffering=0) as file:
            end = os.fstat(file.fileno()).st_size
            rows = cut_files.sound_batches(file.fileno(), 0, end, log_files.base_offset_of(path))
            records = sum(row[2] for row in rows)
        what = f"{end} bytes that a recovery cut off, with {records} records in sound batches"
        self._add(name, None, what, KEEPS, False)

    # -- batches ----------------------------------------------------------------------------------

    def _check_segment(self, segment: Segment, behind: int) -> None:
        """`behind`: the number of later segments."""
        base = segment.base_offset
        walk = BatchWalk(str(segment.log), base)
        indexes = IndexCheck(segment, walk.size_bytes)
        aborted = aborted_in(segment)
        self._counts.segments += 1
        self._check_place(segment, behind)
        self._end_offset = max(self._end_offset, base)
        damaged_before = self._is_damaged
        while True:
            before = walk.position
            for batch in batches_of(walk):
                self._note(segment, walk, batch, aborted)
                if not self._is_damaged:
                    indexes.note(batch)
            self._advance(0, walk.position - before)
            if walk.position >= walk.size_bytes:
                break
            if not self._report_damage(segment, walk, indexes.last_place, behind):
                break
        self._counts.size_bytes += walk.size_bytes
        if not self._is_damaged:
            indexes.end()
        if damaged_before == self._is_damaged:
            self._report_indexes(segment, indexes)

    def _check_place(self, segment: Segment, behind: int) -> None:
        base = segment.base_offset
        if base < self._end_offset:
            cut = base in self._recovered
            start = f"a start cuts off this segment and the {behind} behind it" if cut else KEEPS
            what = f"begins below {self._end_offset}, where the segment before it ends"
            self._add(segment.log, 0, what, start)
            self._cut = self._cut or cut
        known = self._known
        unflushed_from = max(known.recovery_point, known.high_watermark, known.log_start)
        if base in self._recovered and base > self._end_offset >= unflushed_from:
            self._report_gap(
                segment.log, 0, base,
                "none of them was flushed, as far as the checkpoints say: a start cuts off this"
                f" segment and the {behind} behind it, and keeps them in .cut files",
            )  # fmt: skip
            self._cut = self._cut or not known.is_compacted
        else:
            self._report_gap(segment.log, 0, base)

    def _report_gap(
        self,
        file: Path,
        position: int,
        offset: int,
        start: str = "a start goes on without them and logs an ERROR. Restore their files from a"
        " backup",
    ) -> None:
        first = max(self._end_offset, self._known.log_start)
        if first < offset and not self._known.is_compacted and not self._is_damaged:
            self._add(
                file,
                position,
                f"the records at offsets {first} to {offset - 1} are missing before it",
                start,
            )

    def _note(
        self, segment: Segment, walk: BatchWalk, batch: WalkedBatch, aborted: set[tuple[int, int]]
    ) -> None:
        self._counts.batches += 1
        self._advance(batch.record_count, 0)
        if batch.magic == 2:
            self._report_gap(segment.log, batch.position, batch.base_offset)
            if batch.leader_epoch >= 0 and (
                not self._epochs or self._epochs[-1][0] != batch.leader_epoch
            ):
                self._epochs.append((batch.leader_epoch, batch.base_offset))
        self._check_snapshots(batch.base_offset)
        first = self._transactions.note(batch)
        if first is not None and (batch.producer_id, batch.last_offset) not in aborted:
            is_rebuilt = segment.base_offset in self._recovered
            self._add(
                segment.file(".txnindex"),
                None,
                f"lacks the aborted transaction of producer {batch.producer_id} from offset"
                f" {first} to {batch.last_offset}: consumers with read_committed get its records",
                REBUILDS if is_rebuilt else f"{KEEPS}: after a clean stop it compares entries only",
            )
        if batch.producer_id >= 0 and batch.last_sequence >= 0:
            self._last_batches[batch.producer_id] = batch
        if self._decodes_records:
            problem = records_problem(walk, batch)
            if problem is not None:
                self._add(segment.log, batch.position, f"records: {problem}", UNREAD)
        self._end_offset = batch.last_offset + 1

    def _report_damage(
        self, segment: Segment, walk: BatchWalk, last_place: int, behind: int
    ) -> bool:
        """Reports what is wrong at the walk's position; returns whether it goes on behind that."""
        what, position = walk.damage()
        fd, at, end = walk.fileno(), walk.position, walk.size_bytes
        is_headless = position < 0
        if is_headless and behind == 0 and at >= last_place:
            self._recovered.add(segment.base_offset)  # the end is searched here after a clean stop
        is_cut = segment.base_offset in self._recovered
        is_torn = (
            is_headless
            and behind == 0
            and not self._cut
            and cut_files.is_unfinished_write(fd, at, end)
            and not next(cut_files.sound_batches(fd, at, end, self._end_offset), None)
        )
        if self._cut:
            start = "a start has cut the log off before it"
        elif is_torn:
            start = f"a start cuts off these {end - at} bytes, which were never acknowledged"
        elif is_cut:
            start = (
                f"a start cuts the log off at offset {self._end_offset}, and keeps these"
                f" {end - at} bytes and the {behind} segments behind them in .cut files"
            )
        else:
            start = UNREAD
        self._cut = self._cut or is_cut
        is_normal = is_torn and not self._known.was_clean
        self._add(segment.log, at, what, start, not is_normal)
        self._is_damaged = self._is_damaged or not is_normal
        if is_headless:
            following = next(cut_files.sound_batches(fd, at + 1, end, self._end_offset), None)
            position = -1 if following is None else following[0]
        if not at < position < end:
            return False
        walk.skip_to(position)
        return True

    def _report_indexes(self, segment: Segment, indexes: IndexCheck) -> None:
        is_rebuilt = segment.base_offset in self._recovered
        for suffix, position, what, is_last in indexes.problems:
            if is_rebuilt or is_last or suffix == ".txnindex":
                start = REBUILDS
            else:
                start = (
                    f"{KEEPS}: searches that it misleads begin at the segment's start. Stop the"
                    " broker and remove the file: a start rebuilds it"
                )
            self._add(segment.file(suffix), position, what, start)

    # -- the files beside the segments ------------------------------------------------------------

    def _check_snapshots(self, offset: int | None) -> None:
        """Checks the producer snapshots up to `offset`, before the batch with that offset; None:
        all that are left, behind the last batch."""
        while self._snapshots and (offset is None or self._snapshots[0] <= offset):
            self._check_snapshot(self._snapshots.pop(0), offset is None)

    def _check_snapshot(self, at: int, is_behind: bool) -> None:
        name = f"{at:020d}.snapshot"
        rows = list(log_files.producer_snapshot(log_files.mapped(self._directory / name)))
        problems = [str(row["problem"]) for row in rows if "problem" in row]
        older = "a start removes it, and reads the batches behind the next older one"
        for problem in problems:
            self._add(name, 0, problem, older)
        is_above = is_behind and at > self._end_offset
        if is_above and not self._known.is_running and not self._is_damaged:
            what = f"is above the end of the log, {self._end_offset}"
            self._add(name, None, what, "a start removes it")
        if problems or self._is_damaged:
            return
        found = {row["producerId"]: row for row in rows}
        for producer_id, row in found.items():
            difference = self._snapshot_problem(producer_id, row)
            if difference is not None:
                self._add(name, None, difference, "a start may use it: remove the file before")
        for producer_id, first in self._transactions.first_offsets.items():
            if producer_id not in found:
                what = (
                    f"lacks producer {producer_id}, whose transaction is open from offset {first}"
                )
                self._add(name, None, what, "a start may use it: remove the file before")

    def _snapshot_problem(self, producer_id: int, row: log_files.Row) -> str | None:
        batch = self._last_batches.get(producer_id)
        said = row["lastOffset"], row["lastSequence"]
        if batch is not None and (
            batch.last_offset > said[0]
            or (batch.last_offset == said[0] and batch.last_sequence != said[1])
        ):
            return (
                f"producer {producer_id} has sequence {row['lastSequence']} at offset"
                f" {row['lastOffset']}, and the log {batch.last_sequence} at {batch.last_offset}"
            )
        first = self._transactions.first_offsets.get(producer_id, -1)
        said = row["currentTransactionFirstOffset"]
        if first >= 0 > said:
            return (
                f"lacks the transaction of producer {producer_id} that is open from offset {first}"
            )
        return None

    def _check_ends(self, has_segments: bool) -> None:
        known, end = self._known, self._end_offset
        if not has_segments:
            end = known.log_start
        goes_on = (
            "a start goes on without them and fetches them from another replica"
            if known.is_replicated
            else "a start gives new records offsets after them, and logs an ERROR"
        )
        for name, offset in (
            (checkpoints.RECOVERY_POINT, known.recovery_point),
            (checkpoints.HIGH_WATERMARK, known.high_watermark),
            (checkpoints.LOG_START, known.log_start if has_segments else 0),
        ):
            if offset > end and not self._cut:
                what = (
                    f"has offset {offset} for {self._directory.name}, whose log ends at {end}: the"
                    f" records between are missing"
                )
                self._add(self._directory.parent / name, None, what, goes_on)
        if known.cleaned is not None and known.cleaned > end and not known.is_running:
            what = f"has offset {known.cleaned} for {self._directory.name}, whose log ends at {end}"
            start = "the cleaner begins at the start of the log"
            self._add(self._directory.parent / checkpoints.CLEANER, None, what, start)

    def _check_epochs(self) -> None:
        name = checkpoints.LEADER_EPOCHS
        reads = (
            "a start reads the leader epochs of the recovered segments only"
            if self._recovered
            else "a start goes on without the leader epochs of earlier records"
        )
        try:
            found = checkpoints.read_leader_epochs(self._directory)
        except DamagedFile as error:
            self._add(name, None, _without_path(error, self._directory / name), reads)
            return
        if found and found[-1][1] > self._end_offset and not self._known.is_running:
            what = f"epoch {found[-1][0]} begins at {found[-1][1]}, above the log's end"
            self._add(name, None, f"{what}, {self._end_offset}", "a start removes the line")
        for epoch, offset in self._epochs:
            if offset < self._known.log_start:
                continue  # DeleteRecords has raised the offset in the file
            if self._known.is_running and (not found or epoch > found[-1][0]):
                continue  # the file is written later
            said = max((row for row in found if row[1] <= offset), default=(-1, -1))[0]
            if said != epoch:
                what = (
                    f"gives offset {offset} the epoch {said}, and its batch has {epoch}"
                    if said >= 0
                    else f"has no epoch for offset {offset}, whose batch has {epoch}"
                )
                self._add(name, None, what, reads)

    def _check_addresses(self, segments: list[Segment]) -> None:
        path = self._directory / ADDRESSES
        if not path.exists():
            return
        data = path.read_bytes()
        try:
            index, whole = AddressIndex.parse(path, data)
        except DamagedIndex as error:
            start = "the broker answers requests of clients of Kafka 0.7 with an error"
            self._add(path, None, _without_path(error, path), start)
            return
        if whole != len(data) and not self._known.is_running:
            what = f"{len(data) - whole} bytes at the end are torn entries"
            start = "the next request of a client of Kafka 0.7 cuts them off and finds them again"
            self._add(path, whole, what, start, False)
        above = [offset for offset in index.offsets if offset > self._end_offset]
        if above and not self._cut and not self._known.is_running:
            what = f"has the address of offset {above[0]}, above the log's end, {self._end_offset}"
            self._add(path, None, what, "the next request of a client of Kafka 0.7 removes it")
            return
        if self._is_damaged:
            return
        logs = [row.log for row in segments]
        aborted = [pair for row in segments for pair in _aborted_in(row)]
        start_offset = max(self._known.log_start, segments[0].base_offset if segments else 0)
        for what in address_problems(index, self._directory, logs, start_offset, aborted):
            start = "the broker sends clients of Kafka 0.7 other messages, or an error"
            self._add(path, None, what, f"{start}. Restore it from a backup of this log")


def _aborted_in(segment: Segment) -> list[tuple[int, int]]:
    """Returns producer id and first offset of the aborted transactions of a segment."""
    path = segment.file(".txnindex")
    if not path.exists():
        return []
    rows = log_files.aborted_transactions(log_files.mapped(path))
    return [(row["producerId"], row["firstOffset"]) for row in rows if "problem" not in row]


def _without_path(error: Exception, path: Path) -> str:
    return str(error).removeprefix(str(path)).removeprefix(":").strip()
