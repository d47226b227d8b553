"""Temporary directories of brokers that end with their process, in memory if enough is free.

    /dev/shm/barnabas-XXXXXXXXXXXX      for a broker whose data need not survive
    $TMPDIR/barnabas-XXXXXXXXXXXX       for a broker whose writes must reach a disk

A killed process leaves its directories behind. The next process that makes a directory removes
those that no running broker has locked. It keeps young ones, which a broker may not have locked
yet.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from barnabas.storage.log_dirs import LOCK

MEMORY = Path("/dev/shm")
PREFIX = "barnabas-"
SPARED_S = 60


def make_scratch_dir(durable: bool) -> Path:
    """Makes an empty directory with mode 0700 and returns its path: in memory, or with `durable` on
    a disk ($TMPDIR). Removes directories that killed processes have left. Raises OSError."""
    if not durable and MEMORY.is_dir() and os.access(MEMORY, os.W_OK):
        parent = MEMORY
    else:
        parent = Path(os.environ.get("TMPDIR", "/tmp"))
    _sweep(parent)
    made = parent / f"{PREFIX}{os.urandom(6).hex()}"
    made.mkdir(mode=0o700)
    return made


def _sweep(parent: Path) -> None:
    now_s = time.time()
    with os.scandir(parent) as rows:
        for row in rows:
            if not row.name.startswith(PREFIX) or not row.is_dir(follow_symlinks=False):
                continue
            try:
                found = row.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # its own process has just removed it
            if found.st_uid == os.getuid() and now_s - found.st_mtime > SPARED_S:
                _remove_abandoned(row.path)


def _remove_abandoned(path: str) -> None:
    try:
        lock = os.open(os.path.join(path, LOCK), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return  # not a broker's directory, or its broker is stopping
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return  # its broker runs
    else:
        remove_tree(Path(path))
    finally:
        os.close(lock)


def remove_tree(top: Path) -> None:
    """Removes a tree as shutil.rmtree does, without importing shutil. Another process may remove
    files at the same time. Raises OSError."""
    for folder, folders, files in os.walk(top, topdown=False):
        for name in files:
            _quietly(os.unlink, os.path.join(folder, name))
        for name in folders:
            path = os.path.join(folder, name)
            _quietly(os.unlink if os.path.islink(path) else os.rmdir, path)
    _quietly(os.rmdir, str(top))


def _quietly(remove: Callable[[str], None], path: str) -> None:
    with suppress(FileNotFoundError):
        remove(path)
