"""The undo record of an import in place: what it takes to give Kafka its log directory back.

    import-undo/record.json            name, size and time of the last change of each file
    import-undo/files/PARTITION/NAME   copies of small files: snapshots, epochs, transaction indexes
    import-undo/top/NAME               copies of the directory's own files
    import-undo/__cluster_metadata-0   moved here by the import
    import-undo/metadata.undone        moved here by the undo: the store of the broker

Segments and their indexes are not copied, because a broker only appends to the newest ones: the
undo cuts these to their former size. When an older segment has changed or gone (retention,
compaction), or records were deleted, nothing can give them back, and the undo is refused. It is
also refused when records were written since, unless the operator accepts their loss.

After a crash the same command continues. The store goes first, so that no broker starts, and the
records when all directories are as they were, the first directory's last. Then Kafka starts. It
removes import-undo-0.HEX32-delete, which is a record that is being removed, or that of an import
which was killed before its switch.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from barnabas.stages.opened import METADATA_DIRECTORY
from barnabas.storage import partition_dirs
from barnabas.storage.log_dirs import IMPORT_UNDO, KRAFT_METADATA, LOCK, FailedDirectory
from barnabas.storage.replace_file import replace_file, sync_directory
from barnabas.takeover.refusals import CannotImport

DIRECTORY = IMPORT_UNDO
UNDONE = "metadata.undone"
RECORD, FILES, TOP = "record.json", "files", "top"
NOT_COPIED = (".log", ".index", ".timeindex")
VERSION = 1
NUMBER_MAX = 2**63 - 1  # of sizes in bytes, and times in nanoseconds


def write_record(
    log_dir: Path, into: Path, partitions: Sequence[str], others: Sequence[str]
) -> None:
    """Writes the record of a log directory into a new directory. `partitions`: the names of their
    directories; `others`: of those that are not imported, and which an undo leaves alone. Raises
    FailedDirectory."""
    try:
        (into / FILES).mkdir(parents=True)
        (into / TOP).mkdir()
        found: dict[str, Any] = {}
        for name in partitions:
            found[name] = _recorded(log_dir / name, into / FILES / name)
        top = _recorded(log_dir, into / TOP)
        document = {
            "version": VERSION,
            "partitions": found,
            "others": list(others),
            "top": top,
        }
        replace_file(into / RECORD, json.dumps(document).encode())
    except OSError as error:
        raise FailedDirectory(f"cannot write {into}", error) from error


def _recorded(directory: Path, copies: Path) -> dict[str, list[int]]:
    """Copies the small files of a directory. Returns size and time of all of its files."""
    copies.mkdir(exist_ok=True)
    found = {}
    for entry in sorted(os.scandir(directory), key=lambda row: row.name):
        if not entry.is_file(follow_symlinks=False) or entry.name == LOCK:
            continue
        stat = entry.stat(follow_symlinks=False)
        found[entry.name] = [stat.st_size, stat.st_mtime_ns]
        if not entry.name.endswith(NOT_COPIED):
            shutil.copy2(entry.path, copies / entry.name)
    return found


def has_record(log_dir: Path) -> bool:
    return (log_dir / DIRECTORY / RECORD).exists()


def set_aside(log_dir: Path) -> list[Path]:
    """Returns records that Kafka takes for deleted partitions, and removes."""
    return sorted(log_dir.glob(f"{DIRECTORY}-0.*-delete"))


def is_undoing(log_dir: Path) -> bool:
    """Returns whether an undo was interrupted."""
    return (log_dir / DIRECTORY / UNDONE).exists()


def undo(log_dirs: list[Path], may_lose: bool) -> list[str]:
    """Gives the log directories back to Kafka. Returns what was lost, in plain lines. Raises
    CannotImport with all reasons, and changes nothing then; FailedDirectory."""
    # A former run may have removed the records of some of them, or all.
    records = [(path, _read(path)) for path in log_dirs if has_record(path)]
    if not records and not any(map(set_aside, log_dirs)):
        raise CannotImport([f"{log_dirs[0]} has no undo record of an import in place."])
    problems: list[str] = []
    losses: list[str] = []
    for path, record in records:
        for name, files in record["partitions"].items():
            problems += _problems(path / name, files)
            losses += _losses(path / name, files)
        losses += [
            f"{path / name}: a partition that Kafka did not have"
            for name in _new_partitions(path, record)
        ]
    if not may_lose:
        problems += [f"{line}. --allow-loss accepts that." for line in losses]
    if problems:
        raise CannotImport(problems)
    try:
        for path, record in records:
            _give_back(path, record)
        for path, _record in reversed(records):
            # Kafka does not start on a directory with an unknown name; with this one it removes it.
            name = partition_dirs.marked_name(DIRECTORY, 0, "delete")
            (path / DIRECTORY).rename(path / name)
            sync_directory(path)
        for path in log_dirs:
            for aside in set_aside(path):
                shutil.rmtree(aside)
    except OSError as error:
        raise FailedDirectory(f"cannot restore {path}", error) from error
    return losses


def _read(log_dir: Path) -> dict[str, Any]:
    path = log_dir / DIRECTORY / RECORD
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise FailedDirectory(f"cannot read {path}", error) from error
    except (ValueError, RecursionError) as error:
        raise CannotImport([f"{path} is not an undo record: {error}. Restore the file."]) from error
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise CannotImport([f"{path} is not an undo record of this version of barnabas."])
    problem = _problem_in(found)
    if problem:
        raise CannotImport([f"{path} is damaged: {problem}. Restore the file."])
    return found


def _problem_in(record: dict[str, Any]) -> str | None:
    """Returns what is wrong with the fields of a record; None when they are right."""
    partitions, others, top = (record.get(name) for name in ("partitions", "others", "top"))
    if not isinstance(partitions, dict) or not all(map(_is_partition, partitions)):
        return "`partitions` does not map names of partitions to files"
    if not isinstance(others, list) or not all(map(_is_partition, others)):
        return "`others` is not a list of partitions"
    for name, files in [*partitions.items(), ("top", top)]:
        if not isinstance(files, dict) or not all(map(_is_file, files, files.values())):
            return f"`{name}` does not map names of files to sizes and times"
    return None


def _is_partition(name: object) -> bool:
    named = partition_dirs.parse(name) if isinstance(name, str) else None
    return named is not None and named.mark is None


def _is_file(name: str, numbers: object) -> bool:
    return (
        name not in ("", ".", "..")
        and not {"/", "\0"} & {*name}
        and isinstance(numbers, list)
        and len(numbers) == 2
        and all(type(row) is int and 0 <= row <= NUMBER_MAX for row in numbers)
    )


def _newest(files: dict[str, list[int]]) -> str:
    """Returns the base offset of the newest segment, as in the names of its files."""
    return max((name[:-4] for name in files if name.endswith(".log")), default="")


def _problems(directory: Path, files: dict[str, list[int]]) -> Iterator[str]:
    newest = _newest(files)
    for name, (size_bytes, mtime_ns) in files.items():
        if not name.endswith(".log"):
            continue
        try:
            stat = os.stat(directory / name)
        except FileNotFoundError:
            yield f"{directory / name} has been deleted since the import. Restore it first."
            continue
        is_newest = name.startswith(newest)
        if stat.st_size < size_bytes or (not is_newest and stat.st_mtime_ns != mtime_ns):
            yield f"{directory / name} has been changed since the import. Restore it first."


def _losses(directory: Path, files: dict[str, list[int]]) -> Iterator[str]:
    for path in sorted(directory.glob("*.log")):
        known = files.get(path.name, [0, 0])[0]
        if path.stat().st_size > known:
            yield f"{path}: records that were written since the import"


def _new_partitions(log_dir: Path, record: dict[str, Any]) -> list[str]:
    found = ((path.name, partition_dirs.parse(path.name)) for path in log_dir.iterdir())
    return sorted(
        name
        for name, row in found
        if row is not None
        and row.mark is None
        and name not in (KRAFT_METADATA, *record["partitions"], *record["others"])
    )


def _give_back(log_dir: Path, record: dict[str, Any]) -> None:
    """Does all of an undo but the removal of the record."""
    kept = log_dir / DIRECTORY
    if (log_dir / METADATA_DIRECTORY).exists():  # no broker starts from here on
        shutil.rmtree(kept / UNDONE, ignore_errors=True)
        (log_dir / METADATA_DIRECTORY).rename(kept / UNDONE)
        sync_directory(kept)
        sync_directory(log_dir)
    for name in _new_partitions(log_dir, record):
        shutil.rmtree(log_dir / name)
    for name, files in record["partitions"].items():
        _restore(log_dir / name, kept / FILES / name, files)
    _restore(log_dir, kept / TOP, record["top"])
    if (kept / KRAFT_METADATA).exists():
        (kept / KRAFT_METADATA).rename(log_dir / KRAFT_METADATA)
    sync_directory(log_dir)


def _restore(directory: Path, copies: Path, files: dict[str, list[int]]) -> None:
    """Gives the files of one directory their former bytes and times, and removes others."""
    for entry in list(os.scandir(directory)):
        if entry.is_file(follow_symlinks=False) and entry.name not in files:
            os.unlink(entry.path)
    for name, (size_bytes, mtime_ns) in files.items():
        path = directory / name
        if (copies / name).exists():
            stat = os.stat(copies / name)
            replace_file(path, (copies / name).read_bytes())
            os.chmod(path, stat.st_mode & 0o7777)
        elif path.exists() and path.stat().st_size != size_bytes:
            with open(path, "r+b") as file:
                # An index may be missing or longer; a missing one Kafka makes again.
                file.truncate(size_bytes)
                os.fsync(file.fileno())
        if path.exists():
            os.utime(path, ns=(path.stat().st_atime_ns, mtime_ns))
    sync_directory(directory)
