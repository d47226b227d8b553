"""Wall clocks of processes, each of which a test can move, also while the process runs.

The loader loads a library (wall_clock.c) before libc, which adds the milliseconds in a file to the
wall clock; the monotonic clock stays as it is."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("wall_clock.c")


def missing() -> str | None:
    """Returns why this machine cannot move clocks; None when it can."""
    return None if shutil.which("gcc") else "gcc is not installed"


class MovedClock:
    """The wall clock of processes that start with `environment`."""

    def __init__(self, folder: Path, name: str) -> None:
        library, self._file = folder / "wall_clock.so", folder / f"clock-{name}"
        if not library.exists():
            command = ["gcc", "-O2", "-shared", "-fPIC", str(SOURCE), "-o", str(library), "-ldl"]
            subprocess.run(command, check=True)
        self.move_to(0)
        self.environment = {"LD_PRELOAD": str(library), "WALL_CLOCK_MOVED_MS": str(self._file)}

    def move_to(self, ms: int) -> None:
        """Sets the clock to `ms` milliseconds after the clock of the machine; negative: before
        it."""
        with open(self._file, "r+b" if self._file.exists() else "w+b") as file:
            file.write(struct.pack("<q", ms))
