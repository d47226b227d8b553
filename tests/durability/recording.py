"""The calls by which a process changed the files of a folder, in their order, and the disk that a
power cut leaves after each of them.

    calls = record(tmp_path, folder, "durability.recorded_run")    runs python -m ... FOLDER
    disk = SimulatedDisk(folder)
    for call in calls:
        disk.apply(call)
        disk.write_image(target, choice)     what the disk may have, if the power is cut here

The calls are recorded by recorder.c, a library that the loader loads before libc. So they include
those of Python and SQLite.

What the disk keeps of what was not flushed: of the names in a directory, all changes up to one of
them (journaled file systems keep their order; fsync of a file does not keep its name); of a file,
all changes up to one of them, and of later writes some pages, or the first bytes. A file that was
made longer has zeros where a write is lost. `Choice` says how much of it.

A flush that fails loses what it should have flushed: the kernel takes it for clean, so that it
stays in memory, and a later flush does not write it. Only POSIX_FADV_DONTNEED takes it out of
memory.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("recorder.c")
TESTS = Path(__file__).resolve().parents[1]
HEADER = struct.Struct("<IIIIQq")
NAMES = (
    "create write truncate sync rename unlink mkdir rmdir sync_all send mark failed evict".split()
)
PAGE_BYTES = 4096


class Call(NamedTuple):
    """`position` of a write, or the size after a truncation. `target` of a rename. `data` of a
    write, and of a call that failed: its name."""

    name: str
    path: str
    target: str
    data: bytes
    inode: int
    position: int


def missing() -> str | None:
    """Returns why this machine cannot record; None when it can."""
    return None if shutil.which("gcc") else "gcc is not installed"


def record(work: Path, folder: Path, module: str, *arguments: str) -> list[Call]:
    """Runs `python -m MODULE FOLDER ARGUMENTS` to its end, and records what it does in `folder`.
    `work`: for the recorder and its records."""
    folder.mkdir()
    out = work / f"calls-of-{folder.name}"
    subprocess.run(
        [sys.executable, "-m", module, str(folder), *arguments],
        check=True,
        env=environment(work, folder) | {"RECORDED_CALLS": str(out)},
    )
    return list(_calls(out.read_bytes()))


def environment(work: Path, folder: Path) -> dict[str, str]:
    """Returns the environment of a process that records its calls in `folder`. `work`: for the
    recorder."""
    library = work / "recorder.so"
    if not library.exists():
        command = ["gcc", "-O2", "-shared", "-fPIC", str(SOURCE), "-o", str(library), "-ldl"]
        subprocess.run(command, check=True)
    given = {"LD_PRELOAD": str(library), "RECORDED_FOLDER": str(folder)}
    return dict(os.environ) | given | {"PYTHONPATH": str(TESTS)}


def _calls(content: bytes) -> Iterator[Call]:
    at = 0
    while at < len(content):
        kind, *sizes, inode, position = HEADER.unpack_from(content, at)
        at += HEADER.size
        parts = []
        for size in sizes:
            parts.append(content[at : at + size])
            at += size
        path, target, data = parts
        if NAMES[kind - 1] == "failed":
            data = NAMES[int.from_bytes(data, sys.byteorder) - 1].encode()
        yield Call(NAMES[kind - 1], os.fsdecode(path), os.fsdecode(target), data, inode, position)


def mark(text: str) -> None:
    """Adds a call `mark` to the recording of this process."""
    data = text.encode()
    ctypes.CDLL(None).recorder_mark(data, ctypes.c_size_t(len(data)))


class OwnCalls:
    """The calls of this process, which stay in memory until it takes them."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.recorder_kept.restype = ctypes.c_void_p
        self._library.recorder_left.restype = ctypes.c_long

    def limit(self, count: int) -> None:
        """Records `count` more calls, and then none; -1: all."""
        self._library.recorder_limit(ctypes.c_long(count))

    def fail(self, folder: Path, names: Collection[str], after: int, count: int) -> None:
        """Lets `count` calls with these names below a folder fail with EIO, after `after` that
        work; -1: all. They fail only while calls are recorded."""
        kinds = sum(2 << NAMES.index(name) for name in names)
        numbers = ctypes.c_long(after), ctypes.c_long(count)
        self._library.recorder_fail(os.fsencode(folder), ctypes.c_uint(kinds), *numbers)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Records nothing in its block."""
        self._library.recorder_pause(1)
        try:
            yield
        finally:
            self._library.recorder_pause(0)

    @property
    def is_over(self) -> bool:
        """Returns whether as many calls were made as `limit` has said."""
        return self._library.recorder_left() == 0

    def take(self) -> list[Call]:
        """Returns the calls since the last time."""
        size = ctypes.c_size_t()
        at = self._library.recorder_kept(ctypes.byref(size))
        content = ctypes.string_at(at, size.value) if size.value else b""
        self._library.recorder_forget()
        return list(_calls(content))


# ------------------------------------------------------------------------------------ the disk


@dataclass(frozen=True)
class Choice:
    """How much of what was not flushed is on the disk: `names` and `data` from 0 (nothing) to 1
    (all), or by `chance`, which also tears a write."""

    names: float = 0.0
    data: float = 0.0
    chance: random.Random | None = None

    def of_names(self, count: int) -> int:
        return round(self.names * count) if self.chance is None else self.chance.randint(0, count)

    def of_changes(self, count: int) -> int:
        return round(self.data * count) if self.chance is None else self.chance.randint(0, count)

    def tears(self) -> bool:
        """Returns whether the first bytes of a write are there, as `first_of` says."""
        return self.chance is not None and self.chance.random() < 0.25

    def first_of(self, count: int) -> int:
        assert self.chance is not None
        return self.chance.randint(0, count)

    def keeps_page(self) -> bool:
        return self.chance is not None and self.chance.random() < 0.5


@dataclass(eq=False)
class File:
    now: bytearray = field(default_factory=bytearray)
    flushed: bytes = b""
    changes: list[tuple[int, bytes | None]] = field(default_factory=list)  # None: truncated
    is_stale: bool = False  # `now` has bytes that a failed flush has lost
    is_evicted: bool = False  # the file in the folder has them, too, and `now` has not

    def change(self, position: int, data: bytes | None) -> None:
        self.changes.append((position, data))
        _apply(self.now, position, data)

    def flush(self) -> None:
        if self.is_stale:
            self.flushed = self.content(Choice(data=1))
        elif self.changes:
            self.flushed = bytes(self.now)
        self.changes = []

    def fail(self, choice: Choice) -> bool:
        """Loses what was not flushed, but for what `choice` says; returns whether there was any."""
        if not self.changes:
            return False
        self.flushed, self.changes, self.is_stale = self.content(choice), [], True
        return True

    def evict(self) -> None:
        """Takes out of memory what is not to be flushed: later, a process reads the disk."""
        if self.is_stale:
            self.now, self.is_stale = bytearray(self.content(Choice(data=1))), False
            self.is_evicted = True

    def content(self, choice: Choice) -> bytes:
        made = bytearray(self.flushed)
        whole = choice.of_changes(len(self.changes))
        for position, data in self.changes[:whole]:
            _apply(made, position, data)
        for position, data in self.changes[whole:]:
            if data and choice.tears():
                _apply(made, position, data[: choice.first_of(len(data))])
            for at in range(0, len(data or b""), PAGE_BYTES):
                if choice.keeps_page():
                    _apply(made, position + at, data[at : at + PAGE_BYTES])
        return bytes(made)


def _apply(content: bytearray, position: int, data: bytes | None) -> None:
    end = position + len(data or b"")
    if data is None:
        del content[position:]
    content.extend(bytes(max(end - len(content), 0)))
    if data is not None:
        content[position:end] = data


@dataclass(eq=False)
class Directory:
    now: dict[str, File | Directory] = field(default_factory=dict)
    flushed: dict[str, File | Directory] = field(default_factory=dict)
    # Names that one call made or, with None, removed.
    changes: list[dict[str, File | Directory | None]] = field(default_factory=list)

    def change(self, names: dict[str, File | Directory | None]) -> None:
        self.changes.append(names)
        _rename(self.now, names)

    def flush(self) -> None:
        self.flushed, self.changes = dict(self.now), []

    def names(self, choice: Choice) -> dict[str, File | Directory]:
        made = dict(self.flushed)
        for names in self.changes[: choice.of_names(len(self.changes))]:
            _rename(made, names)
        return made


def _rename(
    entries: dict[str, File | Directory], names: dict[str, File | Directory | None]
) -> None:
    for name, entry in names.items():
        if entry is None:
            entries.pop(name, None)
        else:
            entries[name] = entry


class SimulatedDisk:
    """`folder` is on the disk, and empty, when the recording begins."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = str(folder), Directory()
        self.lost_flushes = 0  # failed, and took something with them
        self.of_failed = Choice()  # what a flush that fails has brought to the disk
        self._files: dict[int, File] = {}  # by inode: the newest with this number

    @classmethod
    def of_files(cls, folder: Path) -> SimulatedDisk:
        """Returns a disk that has the files which are in `folder` now, all flushed."""
        disk = cls(folder)
        disk._read(folder, disk.root)
        return disk

    def _read(self, path: Path, directory: Directory) -> None:
        for entry in sorted(os.scandir(path), key=lambda row: row.name):
            if entry.is_dir(follow_symlinks=False):
                made: File | Directory = Directory()
                self._read(Path(entry.path), made)
            else:
                content = Path(entry.path).read_bytes()
                made = self._files[entry.inode()] = File(bytearray(content), content)
            directory.now[entry.name] = directory.flushed[entry.name] = made

    def at(self, path: str) -> File | Directory:
        """Returns what the running process sees at a path."""
        found: File | Directory = self.root
        for name in path.removeprefix(self.folder).strip("/").split("/"):
            if name:
                assert isinstance(found, Directory), path
                found = found.now[name]
        return found

    def entry(self, call: Call) -> File | Directory:
        """Returns the file or directory of a write, truncation or sync."""
        return self._files.get(call.inode) or self._directory(call.path)

    def _directory(self, path: str) -> Directory:
        found = self.at(path)
        assert isinstance(found, Directory), path
        return found

    def _parent(self, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name

    def apply(self, call: Call) -> None:
        if call.name in ("send", "mark"):
            return
        if call.name in ("write", "truncate"):
            self._files[call.inode].change(
                call.position, call.data if call.name == "write" else None
            )
        elif call.name == "sync":
            self.entry(call).flush()
        elif call.name == "failed":
            self._fail(call)
        elif call.name == "evict":
            self._files[call.inode].evict()
        elif call.name == "sync_all":
            self._flush_all(self.root)
        elif call.name == "rename":
            source, old = self._parent(call.path)
            target, new = self._parent(call.target)
            entry = source.now[old]
            if source is target:
                source.change({old: None, new: entry})
            else:
                target.change({new: entry})
                source.change({old: None})
        else:
            parent, name = self._parent(call.path)
            if call.name == "create":
                self._files[call.inode] = made = File()
                parent.change({name: made})
            elif call.name == "mkdir":
                self._files.pop(call.inode, None)
                parent.change({name: Directory()})
            else:
                parent.change({name: None})

    def _fail(self, call: Call) -> None:
        file = self._files.get(call.inode)
        if call.data == b"sync" and file is not None:
            self.lost_flushes += file.fail(self.of_failed)

    def _flush_all(self, directory: Directory) -> None:
        for entry in directory.now.values():
            if isinstance(entry, File):
                entry.flush()
            else:
                self._flush_all(entry)
        directory.flush()

    def write_now(self, target: Path) -> None:
        """Makes `target` and writes what processes see into it, which will be the folder: as after
        a kill, what was not flushed stays so."""
        self._files = {}
        self._write_now(self.root, target)

    def _write_now(self, directory: Directory, target: Path) -> None:
        target.mkdir()
        for name, entry in directory.now.items():
            if isinstance(entry, File):
                _write_sparse(target / name, entry.now)
                entry.is_evicted = False
                self._files[(target / name).stat().st_ino] = entry
            else:
                self._write_now(entry, target / name)

    def write_evicted(self) -> None:
        """Writes what processes see into the files of which something was taken out of memory."""
        self._write_evicted(self.root, Path(self.folder))

    def _write_evicted(self, directory: Directory, path: Path) -> None:
        for name, entry in directory.now.items():
            if isinstance(entry, Directory):
                self._write_evicted(entry, path / name)
            elif entry.is_evicted:
                _write_sparse(path / name, entry.now)
                entry.is_evicted = False

    def write_image(self, target: Path, choice: Choice) -> None:
        """Makes `target` and writes the content of the disk after a power cut into it."""
        target.mkdir()
        self._write(self.root, target, choice)

    def _write(self, directory: Directory, target: Path, choice: Choice) -> None:
        for name, entry in directory.names(choice).items():
            if isinstance(entry, File):
                _write_sparse(target / name, entry.content(choice))
            else:
                (target / name).mkdir()
                self._write(entry, target / name, choice)


def _write_sparse(path: Path, content: bytes | bytearray) -> None:
    with open(path, "wb") as file:
        file.write(content.rstrip(b"\0"))
        file.truncate(len(content))
