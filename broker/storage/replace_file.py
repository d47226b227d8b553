"""Replacing a small file whole: after a crash the old content is there or the new, never a part.

The new content is written to NAME.tmp, brought to disk, renamed over NAME, and the directory is
brought to disk. A NAME.tmp left behind by a crash is overwritten by the next writer.
"""

import os
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Raises OSError; the old file is untouched then."""
    temporary = path.with_name(path.name + ".tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fdatasync(fd)
    finally:
        os.close(fd)
    os.replace(temporary, path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Brings names made, renamed or removed in a directory to disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
