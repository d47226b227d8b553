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

FILE_BYTES_MAX = 1 << 30  # a sink's compacted log may be large; a checkpoint's other files are not
SUCCESS = "_SUCCESS"  # Hadoop's name for it


class Files(Protocol):
    """A store of files; its names are relative to the checkpoint."""

    def shown(self, path: str) -> str:
        """The full name, for messages."""

    def names(self, directory: str) -> list[str]:
        """The names in a directory, without hidden files; none when the directory is absent."""

    def read(self, path: str) -> bytes:
        """Raises FileNotFoundError, ChecksumMismatch, OSError."""

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Raises FileExistsError, OSError."""

    def replace(self, path: str, data: bytes) -> None:
        """Raises OSError."""

    def delete(self, path: str) -> None:
        """Deletes a file; a missing one is not an error. Raises OSError."""

    def modified_ms(self, path: str) -> int:
        """Raises FileNotFoundError, OSError."""

    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A new file to write, which exists and is durable when the context ends without an error.
        Raises OSError."""

    def publish(self, files: Mapping[str, str], directory: str, *, gathered: str) -> None:
        """`files`: for each name below the new directory the path of its file; _SUCCESS is one of
        them. `gathered`: a directory name of the caller's own, where a store may collect the files
        first. Raises FileExistsError, OSError."""

    def delete_tree(self, directory: str) -> None:
        """Deletes a directory with its content; a missing one is not an error. Raises OSError."""
