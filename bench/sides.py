"""The two brokers of a comparison, each in its own process, and measurements of a process.

Both sides have the same interface: `start`, `stop`, `port`, `pid`, `data_dir`. Durability has the
same names on both: `os` leaves flushing to the kernel (Kafka's default; `log.durability=os` here),
`fsync` flushes before a produce is answered (`log.durability=fsync` here, the topic setting
`flush.messages=1` at Kafka, which is `log.flush.interval.messages=1` for one topic).
"""

import contextlib
import mmap
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "kafka"))
from rival import Rival, end, free_ports, spawn
from rival import ZooKeeper as ZooKeeper  # of bench/cluster.py

CPU_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
START_TIMEOUT_S = 300  # Kafka with thousands of partitions starts slowly
POLL_S = 0.002


class SideError(RuntimeError):
    """A broker did not start, or refused what the benchmark asked of it."""


class Ours:
    """barnabas as installed beside this interpreter."""

    name = "barnabas"

    def __init__(self, data_dir: Path, durability: str) -> None:
        self.data_dir, self.durability = data_dir, durability
        self.port = free_ports(1)[0]
        self.command: list[str] | None = None  # another program that accepts our command line
        self.settings: dict[str, str] = {}  # in addition to those of every run
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def spawn(self) -> None:
        """Starts the process and does not wait for it."""
        command = self.command or self.installed()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.data_dir / "data"),
            "log.durability": self.durability,
            **self.settings,
        }
        words = [word for item in settings.items() for word in ("--set", "=".join(item))]
        with open(self.data_dir / "broker.out", "wb") as out:
            self._process = subprocess.Popen(
                [*command, "start", *words], stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    @staticmethod
    def installed() -> list[str]:
        command = Path(sys.executable).parent / "barnabas"
        found = str(command) if command.exists() else shutil.which("barnabas")
        if found is None:
            raise SideError("barnabas is not installed for this Python: pip install -e .")
        return [found]

    def start(self) -> None:
        self.spawn()
        wait_for_metadata(self.port, partitions=0)

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None:
            end(self._process)
        self._process = None

    def check_alive(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            said = (self.data_dir / "broker.out").read_text(errors="replace")[-2000:]
            raise SideError(f"barnabas ended with status {self._process.returncode}: {said}")


class Theirs(Rival):
    """Apache Kafka, with the settings and JVM flags of its distribution."""

    name = "kafka"

    def spawn(self) -> None:
        """Starts the process and does not wait. The storage must have been formatted by `start`."""
        self._broker = spawn(self._command(), self.data_dir / "broker.out")

    def check_alive(self) -> None:
        if self._broker is not None and self._broker.poll() is not None:
            raise SideError(f"Kafka ended with status {self._broker.returncode}")


Side = Ours | Theirs


# ---- asking a broker ----
def ask(port: int, key: int, version: int, body: bytes, timeout_s: float = 30) -> bytes:
    """Sends one request in a version with an inflexible header. Returns the answer after its
    correlation id."""
    frame = struct.pack(">hhih", key, version, 1, 5) + b"bench" + body
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as sock:
        sock.sendall(struct.pack(">i", len(frame)) + frame)
        answer = b""
        size = 4
        while len(answer) < size:
            piece = sock.recv(1 << 20)
            if not piece:
                raise ConnectionError("the broker closed the connection")
            answer += piece
            if size == 4 and len(answer) >= 4:
                size = 4 + struct.unpack_from(">i", answer)[0]
    return answer[8:]


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


class Reader:
    """Reads fields from the front of an answer."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(">" + form, self.data, self.at)
        self.at += struct.calcsize(form)
        return int(value)

    def skip(self, size: int) -> None:
        self.at += size

    def text(self) -> str:
        size = max(self.number("h"), 0)
        self.skip(size)
        return self.data[self.at - size : self.at].decode()


def led_partitions(port: int) -> int | None:
    """Returns the number of partitions with a leader, or None while Metadata 1 names no broker."""
    reader = Reader(ask(port, 3, 1, struct.pack(">i", -1)))
    brokers = reader.number("i")
    for _ in range(brokers):
        reader.number("i"), reader.text(), reader.number("i"), reader.text()
    reader.number("i")
    led = 0
    for _ in range(reader.number("i")):
        reader.number("h"), reader.text(), reader.number("b")
        for _ in range(reader.number("i")):
            code, _index, leader = reader.number("h"), reader.number("i"), reader.number("i")
            for _ in range(2):
                reader.skip(4 * reader.number("i"))
            led += code == 0 and leader >= 0
    return led if brokers else None


def wait_for_metadata(port: int, partitions: int) -> None:
    """Waits until Metadata names a broker and so many partitions with a leader."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            led = led_partitions(port)
            if led is not None and led >= partitions:
                return
        time.sleep(POLL_S)
    raise SideError(f"port {port} does not name {partitions} led partitions in time")


def create_topic(
    port: int,
    name: str,
    partitions: int,
    settings: dict[str, str] | None = None,
    timeout_ms: int = 30_000,
) -> None:
    """Creates a topic (CreateTopics 2). Returns when clients can use every partition."""
    rows = b"".join(text(key) + text(value) for key, value in (settings or {}).items())
    body = (
        struct.pack(">i", 1)
        + text(name)
        + struct.pack(">ihi", partitions, 1, 0)
        + struct.pack(">i", len(settings or {}))
        + rows
        + struct.pack(">ib", timeout_ms, 0)
    )
    reader = Reader(ask(port, 19, 2, body, timeout_s=timeout_ms / 1000 + 10))
    reader.number("i"), reader.number("i"), reader.text()
    code = reader.number("h")
    if code:
        raise SideError(f"topic {name} was refused with error {code}: {reader.text()}")
    wait_until_usable(port, name, partitions)


def end_offset(port: int, topic: str) -> int:
    """Returns the end offset of partition 0."""
    body = struct.pack(">ii", -1, 1) + text(topic) + struct.pack(">iiq", 1, 0, -1)
    reader = Reader(ask(port, 2, 1, body))
    reader.number("i"), reader.text(), reader.number("i"), reader.number("i")
    code, _time, offset = reader.number("h"), reader.number("q"), reader.number("q")
    if code:
        raise SideError(f"ListOffsets of {topic}: error {code}")
    return offset


def wait_until_usable(port: int, name: str, partitions: int) -> None:
    """Waits until ListOffsets 1 answers for each partition: Kafka names leaders before their logs
    exist."""
    asked = b"".join(struct.pack(">iq", index, -1) for index in range(partitions))
    body = struct.pack(">ii", -1, 1) + text(name) + struct.pack(">i", partitions) + asked
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        reader = Reader(ask(port, 2, 1, body))
        reader.number("i"), reader.text()
        codes = set()
        for _ in range(reader.number("i")):
            reader.number("i")
            codes.add(reader.number("h"))
            reader.number("q"), reader.number("q")
        if codes == {0}:
            return
        time.sleep(POLL_S * 10)
    raise SideError(f"topic {name} cannot be used in time: errors {codes}")


# ---- reading a process and the machine ----
def cpu_s(pid: int) -> float:
    """Returns the user and system seconds of all threads of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * CPU_TICK_S


@contextlib.contextmanager
def apart(pid: int) -> Iterator[None]:
    """Places this process and its children on the first core, a process's threads on the others.

    Where load and broker share cores the scheduler decides what a wake-up costs: 2 us on the same
    core, 20 us on another core of a virtual machine that is asleep. Here it is always another core.
    """
    cores = os.sched_getaffinity(0)
    first = {min(cores)}
    try:
        os.sched_setaffinity(0, first)
        place(pid, cores - first)
        yield
    finally:
        os.sched_setaffinity(0, cores)
        place(pid, cores)


def place(pid: int, cores: set[int]) -> None:
    """Sets the cores of every thread that a process has now. A later thread inherits them from the
    thread that starts it."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(ProcessLookupError):  # the thread has ended
            os.sched_setaffinity(int(thread), cores)


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise SideError(f"process {pid} has no memory any more")


def machine_busy_s() -> float:
    """Returns the seconds so far in which cores were not idle, summed over all cores."""
    fields = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) * CPU_TICK_S


def recycle_memory(size: int) -> None:
    """Touches and frees so many bytes, so that the page cache grows into memory that the machine
    has.

    A guest gives freed memory back to its host. The first touch of a page then costs more than the
    rest of a produce request, and would affect whichever broker runs next.
    """
    mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()


def drop_from_cache(data_dir: Path, topic: str) -> None:
    """Writes a topic's segments to disk and drops them from the page cache, so that later runs do
    not pay for them."""
    for path in data_dir.glob(f"data/{topic}-*/*.log"):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)
