"""The names of the files in a partition's directory, and what the opening of a log does with them.

    B.log .index .timeindex .txnindex   a segment; B is its base offset in 20 digits
    OFFSET.snapshot                     producer state
    *.deleted                           removed by retention, compaction, truncation: deleted
    *.cleaned                           a compaction's unfinished output: deleted
    *.own                               an unfinished copy of a linked file: deleted
    *.swap                              a compaction's finished output: replaces the segments that
                                        it covers if its .log, which is renamed last, is there

If a crash interrupts the opening, the next opening handles the remaining names in the same way.
Next on the data path: cext/log/log_handle.pyx.
"""

import os
import struct
from collections.abc import Callable, Iterable

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
# The possible endings of a name after the offset: the suffix, and whether it is a .swap.
_ENDINGS = {
    suffix + swap: (suffix, bool(swap))
    for suffix in (*SUFFIXES, ".snapshot")
    for swap in ("", ".swap")
}


def path_of(directory: str, base_offset: int, suffix: str) -> str:
    return os.path.join(directory, f"{base_offset:020d}{suffix}")


def snapshot_path(directory: str, offset: int) -> str:
    return path_of(directory, offset, ".snapshot")


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _names(directory: str) -> list[tuple[int, str, bool]]:
    """Returns (offset, suffix, whether it is a .swap) of each file of a log."""
    return _parsed(os.listdir(directory))


def _parsed(listed: list[str]) -> list[tuple[int, str, bool]]:
    found = []
    for name in listed:
        ending = _ENDINGS.get(name[20:])
        if ending is not None and name[:20].isascii() and name[:20].isdigit():
            found.append((int(name[:20]), *ending))
    return found


def _end_offset(path: str, base_offset: int) -> int:
    """Returns the end offset of a .log from its batch headers; a torn header at the end does not
    count."""
    end_offset, position = base_offset, 0
    with open(path, "rb") as file:
        while len(header := os.pread(file.fileno(), 27, position)) >= 17:
            offset, length = struct.unpack_from(">qi", header)
            if length < 14:
                break
            if header[16] == 2:
                if len(header) < 27:
                    break
                offset += struct.unpack_from(">i", header, 23)[0]
            end_offset = offset + 1
            position += 12 + length
    return end_offset


def finished_swaps(directory: str) -> tuple[list[int], list[tuple[int, str]]]:
    """Returns the base offsets of finished compaction output, and (base offset, suffix) of the
    files that it replaces. Its .log is there, because the .log is renamed last. While a .log of the
    output's own name exists, the files of that name are old; otherwise they belong to the output
    already. Raises OSError."""
    names = _names(directory)
    swapped = sorted(base for base, suffix, swap in names if swap and suffix == ".log")
    if not swapped:
        return [], []
    plain = {base for base, suffix, swap in names if not swap and suffix == ".log"}
    last = path_of(directory, swapped[-1], ".log.swap")
    end_offset = max(_end_offset(last, swapped[-1]), swapped[-1] + 1)
    replaced = [
        (base, suffix)
        for base, suffix, swap in names
        if not swap and suffix != ".snapshot" and swapped[0] <= base < end_offset
        if base in plain or base not in swapped
    ]
    return swapped, replaced


def _finish_swaps(directory: str) -> None:
    """Replaces segments by finished compaction output, and deletes other .swap files."""
    swapped, replaced = finished_swaps(directory)
    for base, suffix in replaced:
        _unlink(path_of(directory, base, suffix))
    for base, suffix, swap in _names(directory):
        if swap:
            final = path_of(directory, base, suffix)
            if base in swapped:
                os.rename(final + ".swap", final)
            else:
                _unlink(final + ".swap")


def deleted_names(directory: str) -> list[str]:
    """Returns the names of the .deleted files. Raises OSError."""
    return [name for name in os.listdir(directory) if name.endswith(".deleted")]


def unlink_deleted(directory: str, names: Iterable[str]) -> None:
    """Deletes these files. Raises OSError."""
    for name in names:
        _unlink(os.path.join(directory, name))


def tidy(directory: str) -> list[int]:
    """Removes the leftovers of a crash, and returns the base offsets of the segments, ascending.

    Usually there are no leftovers: then it lists the directory only once, because a broker may have
    thousands of them. Raises OSError."""
    listed = os.listdir(directory)
    left = [name for name in listed if name.endswith((".deleted", ".cleaned", ".own"))]
    for name in left:
        _unlink(os.path.join(directory, name))
    if any(name.endswith(".swap") for name in listed):
        _finish_swaps(directory)
        listed = os.listdir(directory)
    names = _parsed(listed)
    bases = {base for base, suffix, _ in names if suffix == ".log"}
    for base, suffix, _ in names:
        if suffix in SUFFIXES and base not in bases:
            _unlink(path_of(directory, base, suffix))
    return sorted(bases)


def recovered_segments(bases: list[int], recovery_point: int, clean: bool) -> list[int]:
    """Returns the base offsets of the segments that the opening of a log recovers: none after a
    clean stop, otherwise the last one and those with records from the recovery point on."""
    return [
        base
        for i, base in enumerate(bases)
        if not clean and (i + 1 == len(bases) or bases[i + 1] > recovery_point)
    ]


def indexes_are_whole(directory: str, base_offset: int) -> bool:
    """Whether both index files exist and consist of whole entries. An empty segment needs none."""
    try:
        if os.path.getsize(path_of(directory, base_offset, ".log")) == 0:
            return True
        offsets = os.path.getsize(path_of(directory, base_offset, ".index"))
        times = os.path.getsize(path_of(directory, base_offset, ".timeindex"))
    except FileNotFoundError:
        return False
    return offsets % 8 == 0 and times % 12 == 0


def snapshots(directory: str) -> list[int]:
    """Returns the offsets of the producer snapshots, newest first."""
    return sorted(
        (at for at, suffix, _ in _names(directory) if suffix == ".snapshot"), reverse=True
    )


def newest_snapshot(
    directory: str,
    offset: int,
    is_whole: Callable[[bytes], bool],
    keeps_above: bool = False,
    offset_max: int | None = None,
) -> tuple[int, bytes]:
    """Returns (offset, content) of the newest whole producer snapshot at or below `offset` and
    `offset_max`; (0, b"") without one.

    Deletes the damaged snapshots that it reads, and those above `offset` unless `keeps_above`.
    `is_whole(content)`: whether a snapshot is not damaged. Raises OSError."""
    for at in snapshots(directory):
        if (at > offset and keeps_above) or (offset_max is not None and offset_max < at <= offset):
            continue
        path = snapshot_path(directory, at)
        with open(path, "rb") as file:
            content = file.read()
        if at <= offset and is_whole(content):
            return at, content
        os.unlink(path)
    return 0, b""


def drop_snapshots(directory: str, below: int | None = None) -> None:
    found = snapshots(directory)
    unlink_snapshots(directory, [at for at in found if below is None or at < below])


def unlink_snapshots(directory: str, offsets: Iterable[int]) -> None:
    """Deletes the producer snapshots of these offsets. Raises OSError."""
    for at in offsets:
        _unlink(snapshot_path(directory, at))


def sync_snapshot(directory: str, offset: int) -> None:
    """Brings a producer snapshot to disk, if it exists. Raises OSError."""
    try:
        fd = os.open(snapshot_path(directory, offset), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fdatasync(fd)
    finally:
        os.close(fd)


def drop(directory: str, bases: list[int]) -> None:
    """Deletes the files and snapshots of segments, the last segment first."""
    for base in reversed(bases):
        for suffix in (*SUFFIXES, ".snapshot"):
            _unlink(path_of(directory, base, suffix))


def unlink_unfinished(directory: str) -> None:
    """Deletes the output of compactions that did not finish."""
    for name in os.listdir(directory):
        if name.endswith((".cleaned", ".swap")):
            _unlink(os.path.join(directory, name))
