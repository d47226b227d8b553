"""Replaces a small file atomically: after a crash it has the old content or the new, never a part.

The new content is written to NAME.tmp, brought to disk, renamed over NAME, and the directory is
brought to disk. A NAME.tmp left behind by a crash is overwritten by the next writer.

Many at once (the files of a topic's partitions) are a `Replacements`: the same steps, each for all
files before the next. From MANY files on a step is one sync of the whole file system instead of
one of each file: 2,000 fsyncs on a busy disk can take half a minute.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from pathlib import Path

from barnabas.cext.memory.sys import sync_filesystem

MANY = 16
WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW


def replace_file(path: Path, data: bytes) -> None:
    """Raises OSError; the old file is untouched then."""
    replacements = Replacements()
    replacements.add(path, data)
    replacements.commit()


class Replacements:
    """Files to be replaced together, and directories in which names were made. Before commit() no
    file has its new content."""

    def __init__(self) -> None:
        self._files: dict[Path, bytes] = {}
        self._directories: dict[Path, None] = {}
        self._has_failed = False

    def add(self, path: Path, data: bytes) -> None:
        """Raises OSError; the old file is untouched then."""
        _write(temporary(path), data)
        self._files[path] = data
        self._directories[path.parent] = None

    def add_directory(self, path: Path) -> None:
        """Adds a directory in which names were made, renamed or removed."""
        self._directories[path] = None

    def commit(self) -> None:
        """Replaces all files. Raises OSError; then each file has its old content or its new, and
        commit() may be called again."""
        if self._has_failed:
            self._write_again()
        self._has_failed = True
        _sync([temporary(path) for path in self._files], _sync_file)
        for path in list(self._files):
            os.replace(temporary(path), path)
            del self._files[path]
        _sync(self._directories, sync_directory)
        self._directories.clear()
        self._has_failed = False

    def add_all(self, other: "Replacements") -> None:
        """Adds what another one would replace. Both may be committed."""
        self._files |= other._files
        self._directories |= other._directories
        self._has_failed |= other._has_failed

    def may_be_behind(self) -> None:
        """Takes for failed what another one with the same files could not commit."""
        self._has_failed = True

    def _write_again(self) -> None:
        """Writes the files that were not replaced: the kernel takes for clean what a failed flush
        has lost, and the next flush would succeed without it. Leaves out what was removed since."""
        self._directories = {path: None for path in self._directories if path.is_dir()}
        self._files = {
            path: data for path, data in self._files.items() if path.parent in self._directories
        }
        for path, data in self._files.items():
            _write(temporary(path), data)


def commit_each(rows: Mapping[Path, Replacements]) -> dict[Path, OSError]:
    """Commits the replacements of each directory, those with the same parent together as long as
    that works. Returns the directories where it failed; they may be committed again."""
    failed: dict[Path, OSError] = {}
    for _, paths in groupby(sorted(rows), lambda path: path.parent):
        group, whole = list(paths), Replacements()
        for path in group:
            whole.add_all(rows[path])
        try:
            whole.commit()
        except OSError:
            for path in group:
                rows[path].may_be_behind()
                try:
                    rows[path].commit()
                except OSError as error:
                    failed[path] = error
    return failed


def _write(path: Path, data: bytes) -> None:
    fd = os.open(path, WRITE, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
    finally:
        os.close(fd)


def temporary(path: Path) -> Path:
    """Returns the name of the new content until it replaces the old one."""
    return path.with_name(path.name + ".tmp")


def _sync(paths: Iterable[Path], sync_one: Callable[[Path], None]) -> None:
    left = list(paths)
    if len(left) >= MANY:
        # The first path of each device stands for the others there.
        devices = {path.stat().st_dev: path for path in left}
        left = [] if all(sync_filesystem(_directory(p)) for p in devices.values()) else left
    for path in left:
        sync_one(path)


def _directory(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def _sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(fd)
    finally:
        os.close(fd)


def sync_directory(path: Path) -> None:
    """Brings names made, renamed or removed in a directory to disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
