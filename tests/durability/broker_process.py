"""A broker in a process of its own, which tests kill, trace and start again with its directory."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

READY_S = 90.0
SERVING_S_MAX = 5.0


FIRST_PORT, PORT_COUNT = 10_000, 20_000


def free_port() -> int:
    """A port on which nothing listens, also while the broker of a test is down: Linux gives ports
    from 32768 on to connections, so one of those may be in use when the broker starts again."""
    while True:
        port = FIRST_PORT + int.from_bytes(os.urandom(4)) % PORT_COUNT
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class BrokerProcess:
    """`barnabas start` with a data directory. `lines` has its standard error. `python`: the
    interpreter, which may have another version of barnabas."""

    def __init__(
        self, data: Path, port: int, settings=(), before=(), python: str = sys.executable
    ) -> None:
        self.data = data
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self.lines: list[str] = []
        given = {"log.dirs": data, "listeners": f"PLAINTEXT://{self.address}"} | dict(settings)
        words = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
        began = time.monotonic()
        self.process = subprocess.Popen(
            [*before, python, "-m", "barnabas", "start", *words],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._ready.wait(READY_S)
        self.ready_s = time.monotonic() - began
        if not any(line.startswith("ready: ") for line in list(self.lines)):
            self.kill()
            raise AssertionError(self.lines)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            if re.match(r"ready: ", line):
                self._ready.set()
        self._ready.set()

    def kill(self) -> None:
        """kill -9: nothing is closed or logged."""
        self.process.kill()
        self._end()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self._end()

    def _end(self) -> int:
        status = self.process.wait(20)
        self._reader.join(10)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return status

    def __enter__(self) -> "BrokerProcess":
        return self

    def __exit__(self, *_raised: object) -> None:
        if self.process.poll() is None:
            self.kill()


def starts_in_time(took_s: list[float], folder: Path) -> bool:
    """Returns whether the shortest start took less than SERVING_S_MAX or, on a busy machine, less
    than twice as long as one with an empty directory takes now. `folder`: for that one."""
    if min(took_s) < SERVING_S_MAX:
        return True
    with BrokerProcess(folder, free_port()) as empty:
        print(f"an empty broker starts in {empty.ready_s:.2f} s")
        return min(took_s) < 2 * empty.ready_s
