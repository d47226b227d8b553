"""kcat as a member of a group: a process that prints what it reads, and commits when it ends."""

import re
import subprocess
import threading
import time

from compat.support import CALL_TIMEOUT_S

OPTIONS = {
    "auto.offset.reset": "earliest",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "300",
    "auto.commit.interval.ms": "100",
}


class KcatMember:
    """A member of a group, with the interface of test_groups.py. kcat does not expose its positions
    and commits them every 100 ms and at its end."""

    def __init__(self, address: str, group: str, topic: str) -> None:
        settings = [word for row in OPTIONS.items() for word in ("-X", "=".join(row))]
        self._values: list[bytes] = []
        self._partitions: set[int] = set()
        self._came_at = time.monotonic()
        self._process = subprocess.Popen(
            ["kcat", "-b", address, "-G", group, topic, "-u", "-f", "%s\n", *settings],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._readers = [
            threading.Thread(target=work, daemon=True) for work in (self._read, self._listen)
        ]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._came_at = time.monotonic()
            self._values.append(line.rstrip(b"\n"))

    def _listen(self) -> None:
        """Reads its assignment from standard error: "t [0], t [2]"."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if b"rebalanced" in line:
                found = re.findall(rb" \[(\d+)\]", line) if b"assigned:" in line else []
                self._partitions = set(map(int, found)) if b"revoked" not in line else set()

    def poll(self) -> list[bytes]:
        time.sleep(0.05)
        count = len(self._values)
        came, self._values[:count] = self._values[:count], []
        return came

    def owned(self) -> set[int]:
        return self._partitions

    def commit(self) -> None:
        """Waits until the auto-commit has committed the last record."""
        time.sleep(max(0.0, self._came_at + 0.5 - time.monotonic()))

    def close(self) -> None:
        self._process.terminate()
        assert self._process.wait(CALL_TIMEOUT_S) == 0
        for reader in self._readers:
            reader.join(10)
        assert self._process.stdout is not None and self._process.stderr is not None
        self._process.stdout.close()
        self._process.stderr.close()
