"""The real ZooKeeper, from the jars that pyspark ships: one standalone server on loopback.

    with ZooKeeperServer(tmp_path) as zookeeper:
        ... zookeeper.address, zookeeper.connect("/chroot")
        zookeeper.pause(); zookeeper.resume()      SIGSTOP and SIGCONT
        zookeeper.kill(); zookeeper.start()        kill -9, and again on the same port and data
        zookeeper.expire(session_id)               ends the session of another client at once

Session timeouts may be as short as `tick_ms`.
"""

import contextlib
import itertools
import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from waiting import pause

from barnabas.cli.zookeeper_process import command, free_port, missing

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 20
STARTS_MAX = 5  # a port that was free may be taken before the server binds it
SESSION_MAX_MS = 600_000
# Whoever authenticates with the digest scheme as super:secret may do everything.
SUPER_DIGEST = "super:lK75jTNcA+U9vtVEw5vB51mj/w4="
FLAGS = (
    "-Dzookeeper.forceSync=no",  # tests cut no power
    f"-Dzookeeper.DigestAuthenticationProvider.superDigest={SUPER_DIGEST}",
)


class ZooKeeperServer:
    """One server in a process of its own; its data, snapshots and output are in `data_dir`."""

    def __init__(
        self,
        data_dir: Path,
        tick_ms: int = 200,
        session_min_ms: int | None = None,
        *,
        lines: Sequence[str] = (),
        flags: Sequence[str] = (),
        more_jars: Sequence[str] = (),
        host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
    ):
        """`lines`: more of zoo.cfg; `flags`: more of Java; `more_jars`: as `command`; `prefix`:
        what the command of the server begins with, to run it on `host` (cluster/network.py)."""
        self._host, self._prefix = host, tuple(prefix)
        self._lines, self._flags = tuple(lines), tuple(flags)
        self._jars = tuple(more_jars)
        reason = missing()
        if reason:
            raise RuntimeError(reason)
        self.data_dir = data_dir
        self.tick_ms = tick_ms
        self.session_min_ms = tick_ms if session_min_ms is None else session_min_ms
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._chroots = itertools.count()

    @property
    def address(self) -> str:
        return f"{self._host}:{self.port}"

    def connect(self, chroot: str = "") -> str:
        """A value for zookeeper.connect."""
        return self.address + chroot

    def new_chroot(self) -> str:
        """An unused chroot, for tests that share the server; it is not created."""
        return f"/chroot-{next(self._chroots)}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "ZooKeeper is not running"
        return self._process.pid

    def __enter__(self) -> "ZooKeeperServer":
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when it answers. A second start uses the port and the data of the first."""
        assert self._process is None, "ZooKeeper is running already"
        self.data_dir.mkdir(parents=True, exist_ok=True)
        first = self.port == 0
        for _ in range(STARTS_MAX):
            if first:
                self.port = free_port()
            self._spawn()
            if self._answers():
                return
            self.kill()
        said = (self.data_dir / "zookeeper.out").read_text(errors="replace")[-4000:]
        raise RuntimeError(f"ZooKeeper did not start: {said}")

    def stop(self) -> None:
        """SIGTERM, then SIGKILL if it does not end in time."""
        if self._process is None:
            return
        self.resume()
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def pause(self) -> None:
        """Stops every thread of the server: its connections stay open, and nothing is answered."""
        pause(self.pid)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def four_letters(self, word: str, timeout_s: float = 10) -> str:
        """The answer to `ruok`, `stat`, `cons`, `dump`, `wchp`, ...: see ZooKeeper's manual."""
        with socket.create_connection((self._host, self.port), timeout=timeout_s) as connection:
            connection.sendall(word.encode())
            connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()

    def sessions(self) -> dict[int, list[str]]:
        """Session ids that own ephemerals -> the paths of these."""
        found: dict[int, list[str]] = {}
        listed: list[str] | None = None
        for line in self.four_letters("dump").partition("Sessions with Ephemerals")[2].splitlines():
            if line.startswith("0x"):
                listed = found.setdefault(int(line.rstrip(":"), 16), [])
            elif listed is not None and line.strip().startswith("/"):
                listed.append(line.strip())
        return found

    def expire(self, session_id: int) -> None:
        """Takes the session over from its owner and closes it: its ephemerals are deleted when this
        returns, and the owner learns at its next connect that the session has expired."""
        session_id &= 2**64 - 1
        password = session_password(session_id)
        hello = struct.pack(">iqiQi", 0, 0, 10_000, session_id, len(password)) + password + b"\0"
        close = struct.pack(">ii", 1, -11)
        with socket.create_connection((self._host, self.port), timeout=30) as connection:
            for frame in (hello, close):
                connection.sendall(struct.pack(">i", len(frame)) + frame)
            answered = b"".join(iter(lambda: connection.recv(65536), b""))
        # The first answer has the timeout of the session, 0 when there is none of this id.
        assert len(answered) > 12 and struct.unpack_from(">i", answered, 8)[0] > 0, (
            "no such session"
        )

    def _spawn(self) -> None:
        file = self.data_dir / "zoo.cfg"
        file.write_text(
            f"dataDir={self.data_dir / 'data'}\n"
            f"clientPort={self.port}\nclientPortAddress={self._host}\n"
            f"tickTime={self.tick_ms}\nminSessionTimeout={self.session_min_ms}\n"
            f"maxSessionTimeout={SESSION_MAX_MS}\n"
            "maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=*\n"
            + "".join(f"{line}\n" for line in self._lines)
        )
        started = [*self._prefix, *command(file, (*FLAGS, *self._flags), self._jars)]
        with open(self.data_dir / "zookeeper.out", "ab") as out:
            self._process = subprocess.Popen(
                started, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    def _answers(self) -> bool:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(OSError):
                # A connection during the start may be accepted and never answered.
                if self.four_letters("ruok", timeout_s=0.5) == "imok":
                    return self._process.poll() is None
            time.sleep(0.03)
        return False


def session_password(session_id: int) -> bytes:
    """The password of a session in a standalone server: 16 bytes of Java's Random, seeded
    with the id xor a constant of ZooKeeper's source (ZooKeeperServer.generatePasswd)."""
    state = (session_id ^ 0xB3415C00 ^ 0x5DEECE66D) & (2**48 - 1)
    password = b""
    for _ in range(4):
        state = (state * 0x5DEECE66D + 0xB) & (2**48 - 1)
        password += struct.pack("<I", state >> 16)
    return password


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One server for the session: tests that share it take a `new_chroot` each. Tests that stop,
    kill or pause it start their own."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server
