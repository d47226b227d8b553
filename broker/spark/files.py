"""Files of local disks, and the choice of a store by its URL.

store.py is the interface of all stores, webhdfs_files.py the store of HDFS, s3_files.py the store
of S3 and compatible stores.

Local disks have the format of Hadoop's ChecksumFileSystem: beside NAME there is `.NAME.crc`,

    "crc" 00, int32 512, then for each 512 bytes of NAME its CRC-32 (IEEE)      (big-endian)

and no check of a NAME without `.crc`. This store writes a file as `.NAME.UUID.tmp`, syncs it, and
hard-links it to its name, because a link fails where a rename would overwrite. The data gets its
name before its `.crc`, and loses the `.crc` before its bytes change: a crash between the two leaves
data without a `.crc`, never data with a wrong one.
"""

import errno
import os
import shutil
import struct
import uuid
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from barnabas.spark.failures import CheckpointError, ChecksumMismatch
from barnabas.spark.store import FILE_BYTES_MAX, Files

CRC_HEAD = b"crc\x00" + struct.pack(">i", 512)
CHUNK_BYTES = 512
SERVED = "paths and file:, hdfs:, webhdfs:, swebhdfs:, s3: and s3a: URLs"


def checksums(data: bytes) -> bytes:
    """Returns the content of the `.crc` file for `data`."""
    parts = [CRC_HEAD]
    for at in range(0, len(data), CHUNK_BYTES):
        parts.append(zlib.crc32(data[at : at + CHUNK_BYTES]).to_bytes(4, "big"))
    return b"".join(parts)


class LocalFiles:
    """A directory of this machine; the first file creates it."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)

    def shown(self, path: str) -> str:
        return os.fspath(self.root / path)

    def names(self, directory: str) -> list[str]:
        try:
            found = os.listdir(self.root / directory)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name for name in found if not name.startswith("."))

    def read(self, path: str) -> bytes:
        place = self.root / path
        with open(place, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise CheckpointError(self.shown(path), f"it is larger than {FILE_BYTES_MAX} bytes")
        try:
            sums = _crc_place(place).read_bytes()
        except FileNotFoundError:
            return data
        if sums[: len(CRC_HEAD)] != CRC_HEAD:
            raise ChecksumMismatch(os.fspath(_crc_place(place)), "this is not a checksum file")
        if (wanted := checksums(data)) != sums:
            raise ChecksumMismatch(self.shown(path), _difference(wanted, sums))
        return data

    def put_if_absent(self, path: str, data: bytes) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists():
            raise FileExistsError(f"{place} already exists")
        made = _written(place, data)
        try:
            os.link(made, place)
        finally:
            made.unlink(missing_ok=True)
        self._put_crc(place, data)

    def replace(self, path: str, data: bytes) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        made = _written(place, data)
        _crc_place(place).unlink(missing_ok=True)
        os.rename(made, place)
        self._put_crc(place, data)

    def _put_crc(self, place: Path, data: bytes) -> None:
        crc = _crc_place(place)
        made = _written(crc, checksums(data))
        os.rename(made, crc)
        _sync_directory(place.parent)

    def delete(self, path: str) -> None:
        place = self.root / path
        _crc_place(place).unlink(missing_ok=True)
        place.unlink(missing_ok=True)
        if place.parent.exists():
            _sync_directory(place.parent)

    def modified_ms(self, path: str) -> int:
        return os.stat(self.root / path).st_mtime_ns // 1_000_000

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(place, "xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            place.unlink(missing_ok=True)
            raise

    def publish(self, files: Mapping[str, str], directory: str, *, gathered: str) -> None:
        target, together = self.root / directory, self.root / gathered
        folders = {together}
        for name, path in files.items():
            place = together / name
            place.parent.mkdir(parents=True, exist_ok=True)
            os.rename(self.root / path, place)
            folders |= {folder for folder in place.parents if together in folder.parents}
        target.parent.mkdir(parents=True, exist_ok=True)
        for folder in folders:
            _sync_directory(folder)
        if target.exists():
            raise FileExistsError(errno.EEXIST, "it already exists", os.fspath(target))
        try:
            # This rename fails when the target is a directory with files; a published one has some.
            os.rename(together, target)
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
                raise FileExistsError(errno.EEXIST, "it already exists", str(target)) from None
            raise
        for folder in (target.parent, target.parent.parent):
            _sync_directory(folder)

    def delete_tree(self, directory: str) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(self.root / directory)


def _crc_place(place: Path) -> Path:
    return place.with_name(f".{place.name}.crc")


def _written(place: Path, data: bytes) -> Path:
    """Writes and syncs the bytes under a temporary name beside `place`; returns the temporary
    path."""
    made = place.with_name(f".{place.name.lstrip('.')}.{uuid.uuid4()}.tmp")
    with open(made, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return made


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _difference(wanted: bytes, sums: bytes) -> str:
    if len(wanted) != len(sums):
        chunks = (len(sums) - len(CRC_HEAD)) // 4
        return f"its size does not match its .crc ({chunks} pieces of 512 bytes)"
    at = next(i for i in range(len(CRC_HEAD), len(sums), 4) if wanted[i : i + 4] != sums[i : i + 4])
    chunk = (at - len(CRC_HEAD)) // 4
    return f"bytes {chunk * CHUNK_BYTES} to {(chunk + 1) * CHUNK_BYTES} do not match its .crc"


def files_at(url: str) -> Files:
    """Returns the store of a path or a URL: file:, hdfs:, webhdfs:, swebhdfs:, s3:, s3a:. Raises
    CheckpointError for another scheme, and when the store needs something that is missing."""
    scheme, colon, rest = url.partition(":")
    if colon and scheme == "file":
        return LocalFiles("/" + rest.lstrip("/"))
    if not colon or not rest.startswith("//"):
        return LocalFiles(url)
    if scheme in ("hdfs", "webhdfs", "swebhdfs"):
        from barnabas.spark.webhdfs_files import WebHdfsFiles

        return WebHdfsFiles(url)
    if scheme in ("s3", "s3a"):
        from barnabas.spark.s3_files import S3Files

        return S3Files(url)
    raise CheckpointError(url, f"{scheme}: is not supported; supported: {SERVED}")
