"""The interface of the stores that hold checkpoints and loaded data.

A store takes paths below its root, with `/` between their parts. Each store must provide:

- put_if_absent: writes all bytes or no file, and raises FileExistsError when the name is taken.
  When two writers put the same name, one of them fails. A store that cannot promise this is
  refused, because a checkpoint has no other lock.
- replace: readers see the old bytes or the new ones.
- publish: moves files from below the root into a new directory, which is complete or absent; raises
  FileExistsError when it exists. A store without an atomic rename puts the file _SUCCESS last, and
  readers ignore a directory without it.

files.py is the store of local disks and chooses a store by its URL.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import BinaryIO, Protocol

FILE_BYTES_MAX = 1 << 30  # only a sink's compacted log may be large
SUCCESS = "_SUCCESS"  # Hadoop's name for it


class Files(Protocol):
    """A store of files. Paths are relative to its root."""

    def shown(self, path: str) -> str:
        """Returns the full name, for messages."""

    def names(self, directory: str) -> list[str]:
        """Returns the names in a directory, without hidden files; [] when the directory is absent.
        Raises OSError."""

    def read(self, path: str) -> bytes:
        """Returns the bytes of a file. Raises FileNotFoundError, ChecksumMismatch, CheckpointError
        (too large), OSError."""

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Writes a new file. Raises FileExistsError, OSError."""

    def replace(self, path: str, data: bytes) -> None:
        """Writes a file, new or not. Raises OSError."""

    def delete(self, path: str) -> None:
        """Deletes a file; a missing one is not an error. Raises OSError."""

    def modified_ms(self, path: str) -> int:
        """Returns the time of the last change in ms since 1970. Raises FileNotFoundError,
        OSError."""

    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Returns a new file to write, which exists and is durable when the context ends without an
        error. Raises OSError."""

    def publish(self, files: Mapping[str, str], directory: str, *, gathered: str) -> None:
        """Moves files into the new directory `directory`. `files`: for each name below the new
        directory the path of its file; _SUCCESS is one of the names. `gathered`: a directory of the
        caller, where a store may collect the files first. Raises FileExistsError, OSError."""

    def delete_tree(self, directory: str) -> None:
        """Deletes a directory with its content; a missing one is not an error. Raises OSError."""
