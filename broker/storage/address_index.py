"""The file `addresses07` of a partition: the byte addresses of records for clients of Kafka 0.7.

    header  10 bytes "barnabas07", int8 version 1, int8 magic of the messages, uint32 CRC-32 of both
    entry   int64 offset, int64 address of that record, int32 leader epoch of the record before it
            (-1: not known), uint32 CRC-32 of these 20 bytes

An address is the number of bytes of the 0.7 form of all visible records before it, counted from the
first record that the partition had when the file was made. The file is sparse: the address of a
record between two entries is found by reading the log from the entry before it. Entries may stand
in any order, because the address of a later start of the log is added when it is known.

The file is made once and then only appended to, or replaced as a whole. A crash can leave the
entries since the last sync() torn or empty; they are cut off, and found again in the log. Before
records are removed from the log, the caller calls sync(). A damaged file is an error
(DamagedIndex) and never made anew, because its addresses would then differ from those that clients
keep. Limits: 24 bytes for each entry, in memory too."""

from __future__ import annotations

import errno
import os
import shutil
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from barnabas.storage.partition_dirs import ADDRESSES, ORIGINAL_SEGMENT
from barnabas.storage.replace_file import replace_file

NAME = b"barnabas07"
VERSION = 1
HEADER = struct.Struct(">10sBBI")
ENTRY = struct.Struct(">qqiI")
CHECKED_BYTES = ENTRY.size - 4
REMEDY = (
    " Restore it from a backup of this log; or stop the broker and remove it: then addresses begin"
    " anew at 0, and clients of Kafka 0.7 have to begin at the earliest or the latest one."
)
DROPPED_MIN = 1024  # entries below the log's start are removed when there are so many


class DamagedIndex(ValueError):
    """The file is not an index, or does not fit the log."""


class AddressIndex:
    """The entries of one partition, in ascending order of their offsets."""

    def __init__(self, path: Path, magic: int) -> None:
        self.path, self.magic = path, magic
        self.offsets = array("q")
        self.addresses = array("q")
        self.epochs = array("i")

    @classmethod
    def create(cls, path: Path, magic: int, offset: int, epoch: int) -> AddressIndex:
        """Makes the file, with the address 0 at `offset`. Raises OSError."""
        made = cls(path, magic)
        made._insert(offset, 0, epoch)
        made.write()
        return made

    @classmethod
    def of(cls, path: Path, magic: int, rows: Iterable[tuple[int, int, int]]) -> AddressIndex:
        """Makes the file with these entries, each an offset, an address and an epoch. Raises
        OSError."""
        made = cls(path, magic)
        for row in rows:
            made._insert(*row)
        made.write()
        return made

    @classmethod
    def open(cls, path: Path) -> AddressIndex | None:
        """Returns the entries of the file; None when there is no file. Cuts off torn entries at its
        end. Raises DamagedIndex, OSError."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        found, whole = cls.parse(path, data)
        if whole != len(data):
            found.write()
        return found

    @classmethod
    def parse(cls, path: Path, data: bytes) -> tuple[AddressIndex, int]:
        """Returns the entries in the bytes of the file at `path`, and the number of bytes before
        torn entries at the end. Raises DamagedIndex."""
        if len(data) < HEADER.size or data[: HEADER.size] != _header(data[11]):
            raise DamagedIndex(f"{path} is damaged, or of a later version.{REMEDY}")
        found = cls(path, data[11])
        rows = []
        whole = HEADER.size
        for at in range(HEADER.size, len(data) - ENTRY.size + 1, ENTRY.size):
            offset, address, epoch, check = ENTRY.unpack_from(data, at)
            if crc32(data[at : at + CHECKED_BYTES]) == check:
                if at != whole:
                    raise DamagedIndex(f"{path} is damaged at byte {whole}.{REMEDY}")
                rows.append((offset, address, epoch))
                whole = at + ENTRY.size
        for offset, address, epoch in sorted(rows):
            found._insert(offset, address, epoch)
        if not rows or list(found.addresses) != sorted(found.addresses):
            raise DamagedIndex(f"{path}: its entries contradict one another.{REMEDY}")
        return found, whole

    def _insert(self, offset: int, address: int, epoch: int) -> bool:
        at = bisect_left(self.offsets, offset)
        if at < len(self.offsets) and self.offsets[at] == offset:
            return False
        self.offsets.insert(at, offset)
        self.addresses.insert(at, address)
        self.epochs.insert(at, epoch)
        return True

    def add(self, offset: int, address: int, epoch: int) -> None:
        """Adds an entry, unless the offset has one. Raises OSError."""
        if not self._insert(offset, address, epoch):
            return
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            found = os.fstat(fd)
            if found.st_nlink > 1:  # another directory has the same file, which is not changed
                self.write()
                return
            before = found.st_size
            try:
                if os.write(fd, _entry(offset, address, epoch)) != ENTRY.size:
                    raise OSError(f"{self.path}: an entry was written in part")
            except OSError:
                with suppress(OSError):
                    os.ftruncate(fd, before)
                raise
        finally:
            os.close(fd)

    def sync(self) -> None:
        """Brings the file to disk. Raises OSError."""
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def write(self) -> None:
        """Replaces the file by the entries in memory, and brings it to disk. Raises OSError."""
        replace_file(self.path, self.bytes_up_to(2**63 - 1))

    def bytes_up_to(self, offset: int) -> bytes:
        """Returns the content of a file with the entries up to `offset`."""
        rows = zip(self.offsets, self.addresses, self.epochs, strict=True)
        return _header(self.magic) + b"".join(_entry(*row) for row in rows if row[0] <= offset)

    def cut_above(self, count: int) -> None:
        """Keeps the first `count` entries: the log was truncated. Raises OSError."""
        if count < len(self.offsets):
            del self.offsets[count:], self.addresses[count:], self.epochs[count:]
            self.write()

    def begin_again(self, offset: int, address: int, epoch: int) -> None:
        """Replaces all entries by one. Raises OSError."""
        del self.offsets[:], self.addresses[:], self.epochs[:]
        self._insert(offset, address, epoch)
        self.write()

    def drop_below(self, offset: int) -> None:
        """Removes entries below the log's start when they are many. Raises OSError."""
        count = bisect_left(self.offsets, offset)
        if count >= DROPPED_MIN:
            del self.offsets[:count], self.addresses[:count], self.epochs[:count]
            self.write()

    def at_address(self, address: int) -> int:
        """Returns the position of the last entry at or below an address; -1: none."""
        return bisect_right(self.addresses, address) - 1

    def at_offset(self, offset: int) -> int:
        """Returns the position of the last entry at or below an offset; -1: none."""
        return bisect_right(self.offsets, offset) - 1


def copy_addresses(source: Path, target: Path) -> None:
    """Copies the file of a partition into another directory of it, if there is one, and segments
    of Kafka 0.7. Raises OSError."""
    for path in sorted(source.glob("*" + ORIGINAL_SEGMENT)):
        copy_original(path, target / path.name)
    with suppress(FileNotFoundError):
        replace_file(target / ADDRESSES, (source / ADDRESSES).read_bytes())


def copy_original(source: Path, target: Path) -> None:
    """Gives a segment of Kafka 0.7, which never changes, a second name, or copies it to another
    file system. Raises OSError."""
    with suppress(FileExistsError):
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
                raise
            made = target.with_name(target.name + ".tmp")
            shutil.copyfile(source, made)
            made.rename(target)


def _header(magic: int) -> bytes:
    packed = HEADER.pack(NAME, VERSION, magic, 0)
    return packed[:-4] + struct.pack(">I", crc32(packed[:-4]))


def _entry(offset: int, address: int, epoch: int) -> bytes:
    packed = ENTRY.pack(offset, address, epoch, 0)
    return packed[:CHECKED_BYTES] + struct.pack(">I", crc32(packed[:CHECKED_BYTES]))
