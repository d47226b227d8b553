"""Disks of brokers, each a file system in a file, whose power can be cut and which can be full.

    with disks(tmp_path, [1, 2], megabytes=64) as mounted:    at the folders of brokers 1 and 2
        mounted[1].flush()              writes all files to the disk
        mounted[1].cut_power()          what was not flushed is lost, and every call gives EIO
        mounted[1].mount_again()        after every process that used it has ended
        mounted[1].fill()               until no byte is free
        mounted[1].free()               removes what `fill` has written
        mounted[1].copied(folder)       another disk with what a power cut now would leave

The cut is the shutdown of ext4 without a flush of its journal. A file that is written just before
it, and not flushed, proves it: the file is gone, or empty, afterwards.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN: _IOR('X', 125, __u32)
WITHOUT_JOURNAL = 2  # EXT4_GOING_FLAGS_NOLOGFLUSH
COMMANDS = ("mkfs.ext4", "mount", "umount")
# Nothing is flushed by itself while a test runs: the kernel's own commit is far away.
OPTIONS = "loop,commit=300,noatime"
FILL_BYTES = 1 << 16
COPIES_MAX = 20


def missing() -> str | None:
    """Why no disk can be made here; None when it can."""
    if os.geteuid() != 0:
        return "mounts need root"
    absent = [name for name in COMMANDS if shutil.which(name) is None]
    if absent:
        return f"{' '.join(absent)} not installed (apt install e2fsprogs mount)"
    return None if Path("/dev/loop-control").exists() else "this kernel has no loop devices"


class Disk:
    def __init__(self, folder: Path, megabytes: int | None) -> None:
        """`megabytes` None: the image is there."""
        self.folder, self._image = folder, folder.with_suffix(".ext4")
        self._filler = folder / "filler"
        folder.mkdir()
        if megabytes is None:
            self._mount()
            return
        with open(self._image, "wb") as image:
            image.truncate(megabytes << 20)
        _run("mkfs.ext4", "-q", "-m", "0", str(self._image))
        self._mount()
        (folder / "lost+found").rmdir()

    def _mount(self) -> None:
        _run("mount", "-o", OPTIONS, str(self._image), str(self.folder))

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.folder)], capture_output=True)

    def remove(self) -> None:
        self.unmount()
        self._image.unlink()
        self.folder.rmdir()

    def flush(self) -> None:
        _run("sync", "--file-system", str(self.folder))

    def cut_power(self) -> None:
        (self.folder / "probe").write_bytes(b"not flushed")
        fd = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", WITHOUT_JOURNAL))
        finally:
            os.close(fd)

    def mount_again(self) -> None:
        """Proves that the power was cut."""
        _run("umount", str(self.folder))
        self._mount()
        probe = self.folder / "probe"
        assert not probe.exists() or not probe.read_bytes(), "the power was not cut"
        probe.unlink(missing_ok=True)

    def copied(self, folder: Path) -> Disk:
        """Mounts a copy of what has reached the disk. No process may write meanwhile. A copy during
        which the file system itself wrote is made again. Proves that the copy lacks what was not
        flushed."""
        probe = self.folder / f"probe-{folder.name}"
        probe.write_bytes(b"not flushed")
        for _ in range(COPIES_MAX):
            writes = self._writes()
            _run("cp", "--sparse=always", str(self._image), str(folder.with_suffix(".ext4")))
            if self._writes() == writes:
                break
        else:
            raise AssertionError("the file system wrote during each copy")
        probe.unlink()
        copy = Disk(folder, None)
        assert not (folder / probe.name).exists(), "the copy has what was not flushed"
        return copy

    def _writes(self) -> tuple[int, int]:
        """Returns how many writes the device has got, and how many are under way."""
        listed = subprocess.run(
            ["losetup", "--noheadings", "--output", "NAME", "--associated", str(self._image)],
            capture_output=True,
            text=True,
            check=True,
        )
        stat = Path(f"/sys/block/{Path(listed.stdout.strip()).name}/stat").read_text().split()
        return int(stat[4]), int(stat[8])

    def fill(self) -> None:
        with contextlib.suppress(OSError), open(self._filler, "ab", buffering=0) as filler:
            while True:
                filler.write(bytes(FILL_BYTES))
        for size in (4096, 512, 1):
            with contextlib.suppress(OSError), open(self._filler, "ab", buffering=0) as filler:
                while filler.write(bytes(size)) == size:
                    pass
        assert shutil.disk_usage(self.folder).free == 0

    def free(self) -> None:
        self._filler.unlink()


@contextlib.contextmanager
def disks(folder: Path, node_ids: Sequence[int], megabytes: int) -> Iterator[dict[int, Disk]]:
    """A disk for the data of each of these brokers of a Cluster in `folder`."""
    made: dict[int, Disk] = {}
    try:
        for node_id in node_ids:
            made[node_id] = Disk(folder / f"data-{node_id}", megabytes)
        yield made
    finally:
        for disk in made.values():
            disk.unmount()


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
