"""One ZooKeeper server on loopback, from the jars that pyspark ships: for development and tests.

`missing` says what to install when it cannot run. The server is its own process, in its own
session, so that Ctrl-C does not end it before the brokers. It ends with the process that started
it, also when that one is killed.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

# The server loads metrics-core and snappy-java by name when it starts.
JARS = ("zookeeper", "zookeeper-jute", "slf4j-api", "metrics-core", "snappy-java")
MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
FLAGS = (
    "-Xmx128M",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xshare:auto",
    "-Dzookeeper.preAllocSize=256",  # KiB of its log; 64 MiB by default
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dzookeeper.admin.enableServer=false",
)
TICK_MS = 500  # sessions are at least twice as long
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 20
POLL_S = 0.03
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def jars(names: Sequence[str] = JARS) -> list[Path]:
    """Returns the jars of the server; fewer than `names` if some are missing."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return []
    folder = Path(spec.origin).with_name("jars")
    found = (sorted(folder.glob(f"{name}-[0-9]*.jar"))[:1] for name in names)
    return [jar for each in found for jar in each]


def missing() -> str | None:
    """Returns why ZooKeeper cannot run here, and what to install; None when it can."""
    if shutil.which("java") is None:
        return "java is not installed. Install Java 11 or later (apt install default-jre-headless)"
    if importlib.util.find_spec("pyspark") is None:
        return (
            "pyspark, whose jars hold ZooKeeper, is not installed. Install it (pip install pyspark)"
        )
    if len(jars()) != len(JARS):
        return f"pyspark has no jars of {' '.join(JARS)}. Install a complete one"
    return None


def command(
    configuration: Path, flags: Sequence[str] = (), more_jars: Sequence[str] = ()
) -> list[str]:
    """Returns the command of a server. `more_jars`: names as in JARS."""
    classes = os.pathsep.join(str(jar) for jar in jars((*JARS, *more_jars)))
    return ["java", *FLAGS, *flags, "-cp", classes, MAIN, str(configuration)]


def free_port() -> int:
    """Returns a port of loopback that is free now; another process may take it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def end_with_parent() -> None:
    """Makes this process end when the process that started it ends. Call it in the child, before
    exec; it does nothing where the kernel is not Linux."""
    try:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    except AttributeError:
        pass


class CannotStartZooKeeper(Exception):
    """The text says why, in one line."""


class ZooKeeperProcess:
    """One standalone server; its data and its output are in `directory`."""

    def __init__(self, directory: Path, flags: Sequence[str] = ()) -> None:
        """`flags`: more of Java."""
        self._directory, self._flags = directory, tuple(flags)
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def start(self) -> None:
        """Starts the server and waits until it answers. Raises CannotStartZooKeeper, OSError."""
        reason = missing()
        if reason is not None:
            raise CannotStartZooKeeper(reason)
        self._directory.mkdir(parents=True, exist_ok=True)
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        file, output = self._directory / "zoo.cfg", self._directory / "zookeeper.out"
        file.write_text(
            f"dataDir={self._directory / 'data'}\n"
            f"clientPort={port}\nclientPortAddress=127.0.0.1\ntickTime={TICK_MS}\n"
            "maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=ruok\n"
        )
        with open(output, "wb") as out:
            self._process = subprocess.Popen(
                command(file, self._flags),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers(port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise CannotStartZooKeeper(f"ZooKeeper does not start. Its output is in {output}")
            time.sleep(POLL_S)

    def _answers(self, port: int) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=0.5) as connection:
                connection.sendall(b"ruok")
                return connection.recv(4) == b"imok"
        except OSError:
            return False

    def stop(self) -> None:
        """Sends SIGTERM, then SIGKILL if the server does not end in time."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
