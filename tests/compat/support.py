"""The base of all compatibility tests: a broker under test, the raw protocol, and stored batches.

The broker is ours, started as a user starts it, or Apache Kafka itself (`--broker=kafka`, or
`kafka:3.9.2:zookeeper`): a test that fails with Kafka is wrong. Each broker runs in processes of
its own, in a temporary folder, on a free port of 127.0.0.1.
"""

import importlib.util
import itertools
import os
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import crc32c

from barnabas.cext.record.records import Record
from barnabas.wire import Struct, request, response
from barnabas.wire.batches import encode_batch
from barnabas.wire.headers import decode_response_header, encode_request

ROOT = Path(__file__).resolve().parents[2]
KAFKA = "4.3.1"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CREATE_TIME, APPEND_TIME = "CreateTime", "LogAppendTime"
VALUE_BYTES_MAX = 10 * 1024 * 1024
# Large enough for the largest value in its batch; and the tests' timestamps are years old, so
# that retention by time would delete them.
BROKER_SETTINGS = {
    "log.retention.ms": "-1",
    "log.segment.bytes": "1073741824",
    "message.max.bytes": "12582912",
    "replica.fetch.max.bytes": "12582912",
    "auto.create.topics.enable": "false",
}
# With this feature Kafka stores a cluster's min.insync.replicas in its metadata from the start, and
# reports it as altered. Barnabas does not have the feature.
FEATURES = {"eligible.leader.replicas.version": 0}
START_TIMEOUT_S = 20
CALL_TIMEOUT_S = 30


def _load_rival() -> ModuleType:
    path = ROOT / "bench" / "kafka" / "rival.py"
    spec = importlib.util.spec_from_file_location("rival", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


rival = _load_rival()
QUICK_HEAP = ("-Xmx512M", rival.QUICK)  # of a Kafka that lives for seconds


class Broker:
    """A running broker: its address and the folders of its partitions."""

    def __init__(self, kind: str, data_dir: Path, settings: dict[str, str] | None = None) -> None:
        self.kind = kind
        self.settings = BROKER_SETTINGS | (settings or {})
        self._rival = None
        self._process: subprocess.Popen[str] | None = None
        if kind == "barnabas":
            self._start_ours(data_dir)
        else:
            name, version, mode = (kind.split(":") + ["", ""])[:3]
            assert name == "kafka", f"no broker is called {kind}"
            version, mode = version or KAFKA, mode or "kraft"
            features = FEATURES if mode == "kraft" and version >= "4" else {}
            self._rival = rival.Rival(
                version,
                data_dir,
                mode,
                settings=self.settings,
                features=features,
                heap=QUICK_HEAP,
            )
            self._rival.start()
            self.address, self.log_dir = self._rival.address, self._rival.log_dir
            self.pid = self._rival.pid
            self._wait_until_known()

    @property
    def is_ours(self) -> bool:
        return self._process is not None

    def _start_ours(self, data_dir: Path) -> None:
        self.log_dir = data_dir / "data"
        data_dir.mkdir(parents=True, exist_ok=True)
        settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(self.log_dir),
            "broker.id": "1",  # this and the next four as in rival.py
            "group.initial.rebalance.delay.ms": "0",
            "num.partitions": "1",
            "log.retention.hours": "168",
            "log.segment.bytes": "1073741824",
            **self.settings,
        }
        command = [str(Path(sys.executable).parent / "barnabas"), "start"]
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        self._output = data_dir / "barnabas.out"
        with open(self._output, "w") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, text=True
            )
        self.pid = self._process.pid
        self.address = self._announced_address()

    def _wait_until_known(self) -> None:
        """Kafka accepts connections a little before it lists itself as a live broker."""
        ask = request(3).cls(topics=[])
        deadline = time.monotonic() + START_TIMEOUT_S
        with Wire(self.address) as wire:
            while not wire.call(3, 9, ask).brokers:
                if time.monotonic() > deadline:
                    self.stop()
                    raise RuntimeError(f"{self.kind} knows no live broker")
                time.sleep(0.02)

    def _announced_address(self) -> str:
        """Reads the port from the first line that names our listener."""
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            said = self._output.read_text(errors="replace")
            found = re.search(r"ready: \w+://(127\.0\.0\.1:[1-9]\d*)", said)
            if found:
                return found.group(1)
            if self._process.poll() is not None:
                break
            time.sleep(0.01)
        self.stop()
        raise RuntimeError(f"barnabas did not start: {self._output.read_text()[-4000:]}")

    def stop(self) -> None:
        """Ends the broker by the pid of the process that this object started."""
        if self._rival is not None:
            self._rival.stop()
        if self._process is not None:
            rival.end(self._process)


def cannot_run(kind: str) -> str | None:
    """Why a broker of this kind cannot run here, or None."""
    if kind == "barnabas":
        command = [str(Path(sys.executable).parent / "barnabas"), "--help"]
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        return None if "start" in said else "this barnabas has no start command"
    version = (kind.split(":") + [""])[1] or KAFKA
    return rival.missing(version)


class Wire:
    """One connection that uses the protocol in its simplest form: one request, one response."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=CALL_TIMEOUT_S)
        self._correlation_ids = itertools.count(1)

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def call(self, key: int, version: int, body: Struct) -> Struct:
        """Raises ConnectionError when the broker closes the connection instead of answering."""
        correlation_id = next(self._correlation_ids)
        self._socket.sendall(encode_request(key, version, correlation_id, "compat", body))
        frame = self._frame()
        header, offset = decode_response_header(frame, key, version)
        assert header.correlationId == correlation_id
        return response(key).decode(frame, version, offset)

    def call_raw(self, frame: bytes) -> bytes:
        """Sends a frame unchanged. Returns the response."""
        self._socket.sendall(frame)
        return self._frame()

    def hangs_up(self, wait_s: float = 1.0) -> bool:
        """Whether the broker closed the connection."""
        readable, _, _ = select.select([self._socket], [], [], wait_s)
        return bool(readable) and self._socket.recv(1) == b""

    def _frame(self) -> bytes:
        size = int.from_bytes(self._exactly(4), "big")
        return self._exactly(size)

    def _exactly(self, size_bytes: int) -> bytes:
        pieces = []
        while size_bytes:
            piece = self._socket.recv(min(size_bytes, 1 << 20))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            pieces.append(piece)
            size_bytes -= len(piece)
        return b"".join(pieces)


def create_topic(
    address: str, name: str, partitions: int = 1, configs: dict[str, str] | None = None
) -> None:
    """Creates a topic and waits until the broker leads all of it."""
    create = request(19)
    topic = create.struct("topics")(name=name, numPartitions=partitions, replicationFactor=1)
    config = create.struct("topics.configs")
    topic.configs = [config(name=key, value=value) for key, value in (configs or {}).items()]
    with Wire(address) as wire:
        answer = wire.call(19, 5, create.cls(topics=[topic], timeoutMs=CALL_TIMEOUT_S * 1000))
        assert answer.topics[0].errorCode == 0, (name, answer.topics[0].errorMessage)
        deadline = time.monotonic() + CALL_TIMEOUT_S
        while time.monotonic() < deadline:
            if _is_ready(wire, name, partitions):
                return
            time.sleep(0.02)
    raise AssertionError(f"{name} has no leader after {CALL_TIMEOUT_S} s")


def _is_ready(wire: Wire, name: str, partitions: int) -> bool:
    """Whether Metadata lists all partitions and their leader serves them: Kafka announces a
    partition before its log exists."""
    metadata, offsets = request(3), request(2)
    told = wire.call(3, 9, metadata.cls(topics=[metadata.struct("topics")(name=name)])).topics[0]
    if told.errorCode or len(told.partitions) != partitions:
        return False
    partition = offsets.struct("topics.partitions")
    asked = [partition(partitionIndex=index, timestamp=-1) for index in range(partitions)]
    topics = [offsets.struct("topics")(name=name, partitions=asked)]
    found = wire.call(2, 5, offsets.cls(replicaId=-1, topics=topics)).topics[0].partitions
    return all(one.errorCode == 0 for one in found)


def produce_batch(
    address: str, topic: str, values: list[bytes], codec: str = "none", partition: int = 0
) -> None:
    """Sends the values as exactly one batch (a client's timing could split it); times rise."""
    produce = request(0)
    data = produce.struct("topicData")(name=topic)
    now = clock_ms()
    records = [Record(value, timestamp=now + index) for index, value in enumerate(values)]
    batch = encode_batch(records, codec=CODECS.index(codec))
    row = produce.struct("topicData.partitionData")
    data.partitionData = [row(index=partition, records=batch)]
    with Wire(address) as wire:
        answer = wire.call(0, 7, produce.cls(acks=-1, timeoutMs=30_000, topicData=[data]))
    assert answer.responses[0].partitionResponses[0].errorCode == 0, answer


@dataclass(frozen=True)
class Sent:
    """A record as a client is asked to send it. timestamp None: the client's own clock."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None


@dataclass(frozen=True)
class Read:
    """A record as a client returned it. timestamp_type None: the client does not expose it."""

    offset: int
    timestamp: int
    timestamp_type: str | None
    key: bytes | None
    value: bytes | None = field(repr=False)
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class StoredBatch:
    """The header of a batch in a segment file."""

    base_offset: int
    codec: str
    timestamp_type: str
    producer_id: int
    base_sequence: int
    count: int


def stored_batches(broker: Broker, topic: str, partition: int = 0) -> list[StoredBatch]:
    """The batches in the partition's segment files, with every checksum checked."""
    folder = broker.log_dir / f"{topic}-{partition}"
    return [b for path in sorted(folder.glob("*.log")) for b in _batches(path.read_bytes())]


def _batches(data: bytes) -> Iterator[StoredBatch]:
    def number(at: int, size: int) -> int:
        return int.from_bytes(data[start + at : start + at + size], "big", signed=True)

    start = 0
    while start < len(data):
        end = start + 12 + number(8, 4)
        assert start + 61 <= end <= len(data), f"a torn batch at byte {start}"
        assert number(16, 1) == 2, f"magic {number(16, 1)} at byte {start}"
        assert number(17, 4) & 0xFFFFFFFF == crc32c.crc32c(data[start + 21 : end])
        attributes = number(21, 2)
        yield StoredBatch(
            base_offset=number(0, 8),
            codec=CODECS[attributes & 7],
            timestamp_type=APPEND_TIME if attributes & 8 else CREATE_TIME,
            producer_id=number(43, 8),
            base_sequence=number(53, 4),
            count=number(57, 4),
        )
        start = end


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


def cache_dir() -> Path:
    """The folder that keeps compiled programs between runs."""
    home = os.environ.get("BARNABAS_TEST_HOME") or ROOT / "build" / "test"
    return Path(home) / "compat"
