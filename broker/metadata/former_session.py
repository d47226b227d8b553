"""The number of this node's last session in ZooKeeper, in its first log directory.

`zookeeper.session` contains `version=0` and `session=0x...`. This process has locked the directory,
so the process of that session has ended: this node may remove the registrations of that session,
long before ZooKeeper lets it expire. The file is replaced before a new session registers anything,
and is on disk before this node registers, so that a power failure does not lose it. Without the
file no former session is known, and a registration that still exists has to expire first.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

FILE_NAME = "zookeeper.session"
_TEXT = re.compile(rb"version=0\nsession=0x([0-9a-f]{1,16})\n")
_BYTES_MAX = 100

log = logging.getLogger(__name__)


class FormerSession:
    """The file; only one session of one node writes it."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME

    def read(self) -> int | None:
        """Returns the session id as ZooKeeper gives it, signed; None when it is unknown."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            match = _TEXT.fullmatch(os.read(fd, _BYTES_MAX))
        finally:
            os.close(fd)
        if match is None:
            return None
        number = int(match[1], 16)
        return number - 2**64 if number >= 2**63 else number

    def write(self, session_id: int) -> None:
        """Writes the number. A failure only delays the start after a crash, so it is logged and not
        raised."""
        temporary = self._path.with_name(FILE_NAME + ".tmp")
        try:
            temporary.write_bytes(b"version=0\nsession=0x%x\n" % (session_id & (2**64 - 1)))
            temporary.replace(self._path)
        except OSError as error:
            log.warning("cannot write %s: %s", self._path, error.strerror)

    def sync(self) -> None:
        """Brings the file to disk. A failure is logged, as for `write`."""
        try:
            for path, flags in ((self._path, os.O_NOFOLLOW), (self._path.parent, os.O_DIRECTORY)):
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
        except OSError as error:
            log.warning("cannot bring %s to disk: %s", self._path, error.strerror)
