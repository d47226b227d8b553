"""A program with Kafka's Java client that copies a topic in transactions (Copier.java)."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

from compat.java.driver import compiled, quick_java

KAFKA = "3.9.2"


class JavaCopier:
    """One member of the group; `committed` counts the records of its committed transactions."""

    def __init__(
        self, folder: Path, servers: str, group: str, name: str, topics: tuple[str, str]
    ) -> None:
        """`name`: its transactional id; `topics`: the one that it reads, the one that it writes."""
        classes = compiled(KAFKA, Path(__file__).with_name("Copier.java"))
        start = quick_java(KAFKA, classes, folder / f"{name}.log", "-Xmx96m")
        command = [*start, "Copier", servers, group, name, *topics]
        with open(folder / f"{name}.err", "wb") as errors:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self.committed = 0
        self.lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip())
            if line.startswith("committed"):
                self.committed += int(line.split()[1])

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
