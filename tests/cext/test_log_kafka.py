"""Apache Kafka and our log write the same files, byte for byte, from the same batches.

What differs, and why: the entries of a producer snapshot are in another order (Kafka's is that of
a Java hash map), so snapshots are compared by content; leader-epoch-checkpoint and
partition.metadata are not files of the log. Kafka's own tool reads our files without errors.
"""

import random
import socket
import struct
import subprocess
import time
from pathlib import Path

import pytest
from compat.support import rival
from oracle.disk import parse_snapshot
from oracle.log_builder import Disk, batch

LIBS = rival.libs("4.3.1")
TOPIC = b"compared"

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(rival.missing("4.3.1") is not None, reason=str(rival.missing("4.3.1"))),
]


def java(main: str, *arguments: object) -> list[str]:
    return ["java", "-Xmx512M", rival.QUICK, "-cp", f"{LIBS}/*", main, *map(str, arguments)]


def text(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


class Kafka:
    """One KRaft broker on free ports."""

    def __init__(self, directory: Path):
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            second.bind(("127.0.0.1", 0))
            self.port, controller = first.getsockname()[1], second.getsockname()[1]
        properties = directory / "server.properties"
        properties.write_text(
            f"process.roles=broker,controller\nnode.id=1\nlog.dirs={directory}/data\n"
            f"controller.quorum.voters=1@127.0.0.1:{controller}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}\n"
            "controller.listener.names=CONTROLLER\n"
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
        )
        self.data = directory / "data" / f"{TOPIC.decode()}-0"
        made = java("kafka.tools.StorageTool", "format", "-t", "A" * 22, "-c", properties)
        with (directory / "out").open("wb") as out:
            subprocess.run(made, check=True, stdout=out, stderr=out)
            self.process = subprocess.Popen(java("kafka.Kafka", properties), stdout=out, stderr=out)
        self.socket = self._connected()

    def _connected(self) -> socket.socket:
        deadline = time.monotonic() + 60
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                assert self.process.poll() is None and time.monotonic() < deadline
                time.sleep(0.2)

    def call(self, key: int, version: int, body: bytes) -> bytes:
        frame = struct.pack(">hhi", key, version, 1) + text(b"test") + body
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        size = struct.unpack(">i", self.socket.recv(4, socket.MSG_WAITALL))[0]
        return self.socket.recv(size, socket.MSG_WAITALL)[4:]

    def create(self, **settings: int) -> None:
        pairs = b"".join(
            text(name.replace("_", ".").encode()) + text(str(value).encode())
            for name, value in settings.items()
        )
        body = struct.pack(">i", 1) + text(TOPIC) + struct.pack(">ihi", 1, 1, 0)
        body += struct.pack(">i", len(settings)) + pairs + struct.pack(">i?", 30_000, False)
        assert self.call(19, 2, body)[8 + 2 + len(TOPIC) :][:2] == b"\0\0"

    def produce(self, records: bytes) -> int:
        body = struct.pack(">hhii", -1, -1, 10_000, 1) + text(TOPIC)
        answer = self.call(0, 7, body + struct.pack(">iii", 1, 0, len(records)) + records)
        return struct.unpack_from(">h", answer, 4 + 2 + len(TOPIC) + 4 + 4)[0]

    def stop(self) -> None:
        self.socket.close()
        self.process.terminate()
        self.process.wait(60)


def random_batches(seed: int, count: int) -> list[bytes]:
    rng = random.Random(seed)
    begin_ms = int(time.time() * 1000) - 3_600_000
    sequences: dict[int, int] = {}
    made = []
    for i in range(count):
        size_max = rng.choice([100, 4000, 30_000])
        values = [rng.randbytes(rng.randrange(1, size_max)) for _ in range(rng.choice([1, 2, 5]))]
        producer = {}
        if (pid := rng.choice([-1, 5, 6, 4000])) >= 0:
            sequence = sequences.get(pid, 0)
            sequences[pid] = sequence + len(values)
            producer = {"producer_id": pid, "producer_epoch": 0, "base_sequence": sequence}
        made.append(batch(*values, at=begin_ms + i * 10 + rng.randrange(-3000, 3000), **producer))
    return made


def test_files_equal_kafkas(tmp_path):
    batches = random_batches(1, 600)
    kafka = Kafka(tmp_path)
    try:
        kafka.create(segment_bytes=1_048_576, segment_index_bytes=65_536)
        while (first := kafka.produce(batches[0])) in (3, 5, 6):  # the leader is not elected yet
            time.sleep(0.1)
        errors = {first} | {kafka.produce(records) for records in batches[1:]}
    finally:
        kafka.stop()
    assert errors == {0}
    ours = tmp_path / "ours"
    ours.mkdir()
    log = Disk(ours, segment_bytes=1_048_576, segment_index_bytes=65_536).open()
    for records in batches:
        log.append(records, leader_epoch=0)
    assert len(log.segments()) > 3
    log.close()
    theirs = {path.name for path in kafka.data.iterdir()}
    assert {path.name for path in ours.iterdir()} == theirs - {
        "leader-epoch-checkpoint",
        "partition.metadata",
    }
    for path in sorted(ours.iterdir()):
        other = (kafka.data / path.name).read_bytes()
        if path.suffix == ".snapshot":
            assert parse_snapshot(path.read_bytes()) == parse_snapshot(other)
        else:
            assert path.read_bytes() == other, path.name
    files = ",".join(str(path) for path in ours.iterdir())
    dumped = subprocess.run(
        java("org.apache.kafka.tools.DumpLogSegments", "--files", files),
        capture_output=True,
        text=True,
        check=True,
    )
    assert dumped.stdout.count("baseOffset:") == len(batches)
    for complaint in ("mismatch", "invalid", "corrupt", "Exception", "not found"):
        assert complaint not in dumped.stdout.lower() + dumped.stderr.replace("SLF4J", "")
