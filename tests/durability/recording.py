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
all changes up to one of them, and of later writes some pages. A file that was made longer has zeros
where a write is lost. `Choice` says how much of it.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("recorder.c")
TESTS = Path(__file__).resolve().parents[1]
HEADER = struct.Struct("<IIIIQq")
NAMES = "create write truncate sync rename unlink mkdir rmdir sync_all send mark".split()
PAGE_BYTES = 4096


class Call(NamedTuple):
    """`position` of a write, or the size after a truncation. `target` of a rename."""

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
    library, out = work / "recorder.so", work / f"calls-of-{folder.name}"
    if not library.exists():
        command = ["gcc", "-O2", "-shared", "-fPIC", str(SOURCE), "-o", str(library), "-ldl"]
        subprocess.run(command, check=True)
    given = {"LD_PRELOAD": str(library), "RECORDED_FOLDER": str(folder), "RECORDED_CALLS": str(out)}
    subprocess.run(
        [sys.executable, "-m", module, str(folder), *arguments],
        check=True,
        env=os.environ | given | {"PYTHONPATH": str(TESTS)},
    )
    return list(_calls(out.read_bytes()))


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
        yield Call(NAMES[kind - 1], os.fsdecode(path), os.fsdecode(target), data, inode, position)


def mark(text: str) -> None:
    """Adds a call `mark` to the recording of this process."""
    data = text.encode()
    ctypes.CDLL(None).recorder_mark(data, ctypes.c_size_t(len(data)))


# ------------------------------------------------------------------------------------ the disk


@dataclass(frozen=True)
class Choice:
    """How much of what was not flushed is on the disk: `names` and `data` from 0 (nothing) to 1
    (all), or by `chance`."""

    names: float = 0.0
    data: float = 0.0
    chance: random.Random | None = None

    def of_names(self, count: int) -> int:
        return round(self.names * count) if self.chance is None else self.chance.randint(0, count)

    def of_changes(self, count: int) -> int:
        return round(self.data * count) if self.chance is None else self.chance.randint(0, count)

    def keeps_page(self) -> bool:
        return self.chance is not None and self.chance.random() < 0.5


@dataclass(eq=False)
class File:
    now: bytearray = field(default_factory=bytearray)
    flushed: bytes = b""
    changes: list[tuple[int, bytes | None]] = field(default_factory=list)  # None: truncated

    def change(self, position: int, data: bytes | None) -> None:
        self.changes.append((position, data))
        _apply(self.now, position, data)

    def flush(self) -> None:
        if self.changes:
            self.flushed, self.changes = bytes(self.now), []

    def content(self, choice: Choice) -> bytes:
        made = bytearray(self.flushed)
        whole = choice.of_changes(len(self.changes))
        for position, data in self.changes[:whole]:
            _apply(made, position, data)
        for position, data in self.changes[whole:]:
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
        self._files: dict[int, File] = {}  # by inode: the newest with this number

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

    def _flush_all(self, directory: Directory) -> None:
        for entry in directory.now.values():
            if isinstance(entry, File):
                entry.flush()
            else:
                self._flush_all(entry)
        directory.flush()

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


def _write_sparse(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content.rstrip(b"\0"))
        file.truncate(len(content))
