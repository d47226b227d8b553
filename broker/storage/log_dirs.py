"""One entry of `log.dirs`: checks its owner, and locks it against other brokers.

    .lock                  an fcntl write lock while a broker lives; removed on a clean stop
    meta.properties        broker.id and cluster.id; version 0 is written, 0 and 1 are read
    .kafka_cleanshutdown   the last thing written by a clean stop; removed before any log is opened,
                           written again when the start fails after that
    barnabas-import-unfinished   an import writes here (takeover/copied_import.py): only it may
    barnabas-import-complete     an import is complete, and nothing has opened the directory since
    import-undo/                 of an import in place (takeover/undo_record.py)

A directory of another broker or cluster, one in use, and one that holds KRaft's own metadata log
are refused with one plain line: UnusableDirectory stops the start, since serving another broker's
data is wrong. An I/O fault is a FailedDirectory: the other directories are served without it
(KIP-112). Source: the files that Kafka 3.9 and 4.3 write.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from barnabas.config import ConfigError
from barnabas.config.properties import parse_properties
from barnabas.storage.replace_file import replace_file, sync_directory

LOCK = ".lock"
META = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
KRAFT_METADATA = "__cluster_metadata-0"
IMPORT_UNFINISHED = "barnabas-import-unfinished"
IMPORT_COMPLETE = "barnabas-import-complete"
IMPORT_UNDO = "import-undo"
NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
NO_RIGHT = {errno.EACCES, errno.EPERM, errno.EROFS}

log = logging.getLogger("barnabas.logs")


class UnusableDirectory(Exception):
    """Why a log directory cannot be used, and what to do: one plain line."""


class FailedDirectory(UnusableDirectory):
    """A log directory cannot be read or written: broken, full, not mounted, without permission."""

    def __init__(self, what: str, error: OSError) -> None:
        """`what`: what the broker could not do, such as "cannot read /data"."""
        if error.errno in NO_SPACE:
            remedy = "Free space on its disk, or set log.dirs to a directory on another one."
        elif error.errno in NO_RIGHT:
            remedy = "Make it writable for this user, or set log.dirs to a place that is."
        else:
            remedy = "Check the disk and the path, or set log.dirs to another directory."
        super().__init__(f"{what}: {error.strerror}. {remedy}")


def open_directories(
    paths: Sequence[str], first_must_work: bool
) -> tuple[list[LogDir], list[Path]]:
    """Opens the entries of log.dirs: those that work, and those that failed. `first_must_work`: the
    first holds the metadata store. Raises UnusableDirectory when a directory belongs to another
    broker or cluster, when the first fails that must work, and FailedDirectory when all fail; what
    was opened is closed again then."""
    directories = [LogDir(Path(text)) for text in paths]
    try:
        return keep_usable(directories, _open_and_read, first_must_work)
    except UnusableDirectory:
        for row in directories:
            row.close(clean=False)
        raise


def keep_usable(
    directories: Iterable[LogDir], step: Callable[[LogDir], object], first_must_work: bool
) -> tuple[list[LogDir], list[Path]]:
    """Runs a step of the start for each directory; returns the working and the failed ones. Raises
    UnusableDirectory when none works, or the first one does not although it must."""
    usable: list[LogDir] = []
    failed: list[tuple[Path, FailedDirectory]] = []
    for row in directories:
        try:
            step(row)
            usable.append(row)
        except FailedDirectory as error:
            row.close(clean=False)
            if first_must_work and not usable and not failed:
                raise UnusableDirectory(
                    f"{error} It is the first of log.dirs and holds the metadata store, so the"
                    " broker cannot start without it."
                ) from error
            failed.append((row.path, error))
    if not usable:
        raise failed[0][1]
    for _path, reason in failed:
        log.error(
            "%s Its partitions are offline (KAFKA_STORAGE_ERROR); the other directories are served."
            " Repair it and start the broker again.",
            reason,
        )
    return usable, [path for path, _ in failed]


def _open_and_read(directory: LogDir) -> None:
    directory.open()
    directory.identity()


def _make(path: Path) -> None:
    """Makes a directory and its parents, and brings their names to disk: after a power cut all
    records would be gone with the name. Raises OSError."""
    made = [row for row in (path, *path.parents) if not row.exists()]
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    for row in made:
        with contextlib.suppress(PermissionError):  # a parent that this user may write, not read
            sync_directory(row.parent)


def unfinished_work(command: str, path: Path) -> UnusableDirectory:
    """Returns the error for a directory on which a command of the operator was interrupted."""
    return UnusableDirectory(
        f"`barnabas {command}` has not finished its work on {path}. Run it again with the same"
        " arguments, and start brokers after it."
    )


def disk_space(path: str | Path) -> tuple[int, int]:
    """Returns the size of a directory's disk and what this user may still write there, in bytes.
    Raises OSError."""
    volume = os.statvfs(path)
    return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize


def is_in_use(path: Path) -> bool:
    """Returns whether a broker, or Apache Kafka, has locked a log directory. It takes no lock, so
    that a broker may start meanwhile. Raises OSError."""
    lock = path / LOCK
    try:
        found = lock.lstat()
    except FileNotFoundError:
        return False
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    with open("/proc/locks") as locks:
        if any(place in line.split() for line in locks):
            return True
    # A lock of another container is not in that list. A broker of this process is: it would lose
    # its lock when the file is closed here.
    fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        asked = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        return bool(
            struct.unpack("hhqqi", fcntl.fcntl(fd, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK
        )
    finally:
        os.close(fd)


class LogDir:
    """A locked log directory. `was_clean`: the last stop was a clean one; `is_new`:
    no broker was here before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.was_clean = False
        self.is_new = False
        self._lock_fd = -1

    def open(self, by_import: bool = False) -> None:
        """Makes and locks the directory. `by_import`: of an import, which the marks of an import do
        not stop. Raises UnusableDirectory, FailedDirectory. A new directory is for this user alone,
        as PostgreSQL's are; the files in it have the modes of the umask, as Kafka's, so that a
        wider mode of the directory (chmod 750) lets a group read them."""
        try:
            _make(self.path)
        except OSError as error:
            raise FailedDirectory(f"cannot make the log directory {self.path}", error) from error
        if os.path.isdir(self.path / KRAFT_METADATA):
            if os.path.isdir(self.path / IMPORT_UNDO):
                raise unfinished_work("storage import --in-place` or `--undo", self.path)
            raise UnusableDirectory(
                f"{self.path} belongs to a KRaft cluster of Apache Kafka ({KRAFT_METADATA} is in"
                " it). Take it over with `barnabas storage import`, or set log.dirs to another"
                " directory."
            )
        self._lock()
        try:
            self.is_new = not (self.path / META).exists()
            self.was_clean = (self.path / CLEAN_SHUTDOWN).exists()
        except OSError as error:
            raise FailedDirectory(f"cannot read {self.path}", error) from error
        if not by_import:
            self._end_import()

    def _end_import(self) -> None:
        """Makes sure that no import writes here from now on. Raises UnusableDirectory when one has
        not finished, FailedDirectory."""
        if (self.path / IMPORT_UNFINISHED).exists():
            self.close(clean=False)
            raise unfinished_work("storage import", self.path)
        if (self.path / IMPORT_COMPLETE).exists():
            try:
                (self.path / IMPORT_COMPLETE).unlink()
                sync_directory(self.path)
            except OSError as error:
                self.close(clean=False)
                raise FailedDirectory(
                    f"cannot remove {self.path / IMPORT_COMPLETE}", error
                ) from error

    def _lock(self) -> None:
        path = self.path / LOCK
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            fd = os.open(path, flags, 0o644)
        except OSError as error:
            raise FailedDirectory(
                f"cannot write in the log directory {self.path}", error
            ) from error
        try:
            # flock keeps two brokers of one process apart, lockf those of other programs (Kafka).
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise UnusableDirectory(
                f"another broker is using {self.path}. Stop it, or give this one a log.dirs of"
                " its own."
            ) from error
        # A broker that has stopped since may have removed the open file: lock the new one.
        if not path.exists() or os.fstat(fd).st_ino != path.stat().st_ino:
            os.close(fd)
            return self._lock()
        self._lock_fd = fd
        return None

    def identity(self) -> dict[str, str]:
        """Returns the content of meta.properties; empty for a new directory. Raises
        UnusableDirectory, FailedDirectory."""
        path = self.path / META
        try:
            found = {row.key: row.value for row in parse_properties(path.read_bytes(), str(path))}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise FailedDirectory(f"cannot read {path}", error) from error
        except ConfigError as error:
            raise UnusableDirectory(f"cannot read {path}: {error}") from error
        if found.get("version", "0") not in ("0", "1"):
            raise UnusableDirectory(
                f"{path} has version {found['version']!r}; this broker supports versions 0 and 1."
            )
        return found

    def claim(self, node_id: int, cluster_id: str) -> None:
        """Checks that the directory is this node's, and marks a new one. Raises
        UnusableDirectory."""
        found = self.identity()
        theirs = found.get("node.id", found.get("broker.id"))
        if theirs is not None and theirs != str(node_id):
            raise UnusableDirectory(
                f"{self.path} belongs to node {theirs}, and this is node {node_id}. Start with"
                f" node.id={theirs}, or with another log.dirs."
            )
        if found.get("cluster.id") not in (None, cluster_id):
            raise UnusableDirectory(
                f"{self.path} belongs to cluster {found['cluster.id']}, and this is cluster"
                f" {cluster_id}. Use the metadata of that cluster, or another log.dirs."
            )
        if not found:
            now = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime())
            text = f"#\n#{now}\nbroker.id={node_id}\nversion=0\ncluster.id={cluster_id}\n"
            try:
                replace_file(self.path / META, text.encode())
            except OSError as error:
                raise FailedDirectory(f"cannot write {self.path / META}", error) from error

    def begin(self) -> None:
        """Removes .kafka_cleanshutdown, before any log is opened: a crash is an unclean stop from
        here on. Raises FailedDirectory."""
        try:
            (self.path / CLEAN_SHUTDOWN).unlink(missing_ok=True)
            sync_directory(self.path)
        except OSError as error:
            raise FailedDirectory(f"cannot remove {self.path / CLEAN_SHUTDOWN}", error) from error

    def mark_clean(self) -> None:
        """Writes .kafka_cleanshutdown: every log and checkpoint is on disk. Raises OSError."""
        marker = json.dumps({"version": 0, "brokerEpoch": -1}, separators=(",", ":"))
        replace_file(self.path / CLEAN_SHUTDOWN, marker.encode())

    def close(self, clean: bool) -> None:
        """Unlocks the directory. `clean`: every log and checkpoint is on disk."""
        if self._lock_fd < 0:
            return
        if clean:
            try:
                self.mark_clean()
            except OSError as error:
                log.error(
                    "cannot write %s: %s; the next start checks every log in it",
                    self.path / CLEAN_SHUTDOWN,
                    error.strerror,
                )
        try:
            (self.path / LOCK).unlink(missing_ok=True)
        except OSError as error:
            log.warning("cannot remove %s: %s", self.path / LOCK, error.strerror)
        os.close(self._lock_fd)
        self._lock_fd = -1
