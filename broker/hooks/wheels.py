"""Plugins from a directory of wheels (the setting `plugins.path`), for a broker that pip cannot
install into, such as the one-file executable.

Each wheel is unpacked once, because the system loads compiled modules from files only:

    CACHE/plugins/SHA256/     the files of the wheel with this checksum, as pip lays them out
    CACHE/plugins/tmp*/       one that is being unpacked; it gets its name when it is complete

CACHE is that of config/data_directory.py. The directories go to the end of sys.path, so that no
wheel can hide a module of Python or of the broker. A crash leaves a tmp directory that no process
reads. Limits: WHEELS_MAX, UNPACKED_BYTES_MAX."""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import stat
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import Tag, sys_tags
from packaging.utils import InvalidWheelFilename, NormalizedName, parse_wheel_filename
from packaging.version import Version

from barnabas.config.data_directory import cache_directory
from barnabas.hooks.plugin import CannotLoad

WHEELS_MAX = 1000  # in one directory
UNPACKED_BYTES_MAX = 1 << 30  # of one wheel
IMPORTED = ("purelib", "platlib")  # the parts of a wheel's .data directory that are imported


def add_wheels(directory: str, before: Sequence[str] = ()) -> list[str]:
    """Makes the wheels of a directory importable and returns what it added to sys.path. `before`:
    what an earlier call returned, which is taken off again. Raises CannotLoad, and then changes
    nothing, when a wheel is damaged or for another Python, when the directory has two versions of a
    package, or lacks a package that a wheel requires."""
    try:
        store = _store()
        unpacked = [_unpacked(wheel, store) for wheel in _chosen(Path(directory))]
    except OSError as error:
        where = error.filename or directory
        raise CannotLoad([f"plugins.path: {where}: {error.strerror or error}."]) from error
    others = [row for row in sys.path if row not in before]
    if problems := _missing(unpacked, [*others, *unpacked], directory):
        raise CannotLoad(problems)
    sys.path[:] = others + [row for row in unpacked if row not in others]
    importlib.invalidate_caches()
    return unpacked


def added() -> list[str]:
    """Returns the directories of wheels on sys.path; a child process of a plugin gets them."""
    store = os.path.join(cache_directory(os.environ, os.geteuid()), "plugins", "")
    return [row for row in sys.path if row.startswith(store)]


def _chosen(directory: Path) -> list[Path]:
    """Returns one wheel of each package: the one that fits this Python best."""
    wheels = sorted(row for row in directory.iterdir() if row.suffix == ".whl")
    if len(wheels) > WHEELS_MAX:
        raise CannotLoad(
            [f"plugins.path: {directory} has {len(wheels)} wheels, more than {WHEELS_MAX}."]
        )
    rank = {tag: place for place, tag in enumerate(sys_tags())}
    packages: dict[NormalizedName, dict[Version, list[tuple[int, Path]]]] = {}
    for wheel in wheels:
        try:
            name, version, _, tags = parse_wheel_filename(wheel.name)
        except InvalidWheelFilename:
            raise CannotLoad(
                [f"plugins.path: {wheel} is not named as a wheel is: NAME-VERSION-TAGS.whl."]
            ) from None
        row = packages.setdefault(name, {}).setdefault(version, [])
        row.append((_best(tags, rank), wheel))
    problems = []
    for name, versions in packages.items():
        if len(versions) > 1:
            found = " and ".join(str(version) for version in sorted(versions))
            problems.append(
                f"plugins.path: {directory} has {name} {found}. Remove all but one version."
            )
    best = [min(row) for versions in packages.values() for row in versions.values()]
    problems += [
        f"plugins.path: {wheel} is for another Python or machine; this is Python"
        f" {sys.version_info[0]}.{sys.version_info[1]} on {os.uname().machine}."
        for place, wheel in best
        if place == len(rank)
    ]
    if problems:
        raise CannotLoad(problems)
    return [wheel for _, wheel in best]


def _best(tags: Iterable[Tag], rank: dict[Tag, int]) -> int:
    return min(rank.get(tag, len(rank)) for tag in tags)


def _store() -> Path:
    """Returns CACHE/plugins. Raises CannotLoad when another user may write there, because the
    broker runs the code that it finds in it."""
    store = Path(cache_directory(os.environ, os.geteuid()), "plugins")
    store.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = store.stat()
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CannotLoad(
            [
                f"plugins.path: {store}, where wheels are unpacked, belongs to another user or can"
                f" be written by others. Remove it, or run: chmod 700 {store}"
            ]
        )
    return store


def _unpacked(wheel: Path, store: Path) -> str:
    """Returns the directory with the files of a wheel, and unpacks it there the first time."""
    with open(wheel, "rb") as file:
        place = store / hashlib.file_digest(file, "sha256").hexdigest()
    if place.is_dir():
        return str(place)
    work = Path(tempfile.mkdtemp(prefix="tmp", dir=store))
    try:
        _extract(wheel, work)
        try:
            work.rename(place)
        except OSError:
            if not place.is_dir():  # else another process was faster
                raise
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        raise CannotLoad(
            [f"plugins.path: {wheel} is damaged: {error}. Copy or build it again."]
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return str(place)


def _extract(wheel: Path, into: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > UNPACKED_BYTES_MAX:
            raise CannotLoad(
                [f"plugins.path: {wheel} unpacks to more than {UNPACKED_BYTES_MAX >> 20} MiB."]
            )
        for member in members:
            top, *rest = member.filename.split("/")
            if top.endswith(".data"):
                if not rest or rest[0] not in IMPORTED or not any(rest[1:]):
                    continue
                member.filename = "/".join(rest[1:])
            archive.extract(member, into)  # drops "..", drives and leading slashes


def _missing(unpacked: Sequence[str], path: list[str], directory: str) -> list[str]:
    """Returns a problem for each package that a wheel requires and `path` lacks."""
    problems = []
    for one in metadata.distributions(path=list(unpacked)):
        for text in one.requires or ():
            try:
                wanted = Requirement(text)
            except InvalidRequirement as error:
                problems.append(f"plugins.path: {one.name} requires {text!r}: {error}.")
                continue
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
                continue
            found = next(iter(metadata.distributions(name=wanted.name, path=path)), None)
            if found is None or not wanted.specifier.contains(found.version, prereleases=True):
                here = "nothing" if found is None else f"version {found.version}"
                problems.append(
                    f"plugins.path: {one.name} {one.version} requires {text}; there is {here}."
                    f" Put its wheel into {directory}."
                )
    return problems
