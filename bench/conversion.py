#!/usr/bin/env python3
"""Compares what conversions between message formats cost barnabas and Apache Kafka 3.9.2, and an
import of Kafka's log directory with a copy of its files.

    python bench/conversion.py [--rounds N] [--mb N] [--codecs NAME,...] [--import-mb N] [--out DIR]
                               [--only conversions|imports]
    bench/kafka/fetch 3.9.2 brings Kafka

Down: one connection reads a topic of format 2 with Fetch 2, which gets format 1, 1 MiB at a time.
Up: one connection sends message sets of format 1 with Produce 2 and acks=1, which are stored in
format 2. Records have 100 bytes, 500 of them are in a batch. A row counts the CPU of the broker's
process for each GB of records (without compression), and MB/s for each core that it uses. Each row
has a turn that is not counted, so that Kafka's JIT is warm; then the brokers take turns. A row is
the median of the rounds. Both brokers run as shipped; neither flushes before it answers. The bar is
half of Kafka's CPU.

Import: `barnabas storage import` of a directory that Kafka 3.9.2 wrote, as a process, as a copy,
with links and in place, and `cp -r` with `sync -f` of the same directory, in turns. Its files are
in the page cache. An import reads every record and compares each copied file; all is on the disk at
its end.
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from sides import Ours, Side, Theirs, cpu_s, create_topic, machine_busy_s, text

from barnabas.cext.record.records import Record
from barnabas.client.load import payloads
from barnabas.wire import compression
from barnabas.wire.batches import encode_batch

KAFKA = "3.9.2"
RECORD_BYTES, BATCH_RECORDS = 100, 500
BATCH_BYTES = RECORD_BYTES * BATCH_RECORDS
FETCH_BYTES = 1 << 20
CODECS = {"none": 0, "lz4": compression.LZ4, "snappy": compression.SNAPPY, "gzip": compression.GZIP}
STAMP = int(time.time() * 1000)  # within the retention time
BAR = 0.5
IMPORT_PARTITIONS = 4
SEGMENT_BYTES = 64 << 20


class Connection:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self._file = self._socket.makefile("rb", buffering=1 << 20)

    def ask(self, key: int, version: int, body: bytes) -> bytes:
        """Returns the answer behind its correlation id."""
        head = struct.pack(">hhih", key, version, 1, 5) + b"bench"
        self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        return self._file.read(int.from_bytes(self._file.read(4), "big"))[4:]

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def records_of(magic: int, codec: int) -> bytes:
    values = payloads(RECORD_BYTES)
    rows = [Record(values[at % len(values)], timestamp=STAMP + at) for at in range(BATCH_RECORDS)]
    return encode_batch(rows, magic=magic, codec=codec)


def produce(connection: Connection, topic: str, records: bytes, version: int) -> None:
    body = b"" if version < 3 else struct.pack(">h", -1)
    body += struct.pack(">hii", 1, 30_000, 1) + text(topic)
    body += struct.pack(">iii", 1, 0, len(records)) + records
    answer = connection.ask(0, version, body)
    at = 4 + 2 + len(topic) + 4 + 4
    (code,) = struct.unpack_from(">h", answer, at)
    assert code == 0, f"Produce {version} of {topic}: error {code}"


def fetched(connection: Connection, topic: str, offset: int) -> int:
    """The offset behind the messages of one Fetch 2."""
    body = struct.pack(">iiii", -1, 500, 1, 1) + text(topic)
    body += struct.pack(">iiqi", 1, 0, offset, FETCH_BYTES)
    answer = connection.ask(1, 2, body)
    at = 4 + 4 + 2 + len(topic) + 4 + 4
    code, _, size = struct.unpack_from(">hqi", answer, at)
    assert code == 0, f"Fetch 2 of {topic} from {offset}: error {code}"
    at += 14
    end = at + size
    while end - at >= 12:
        last, length = struct.unpack_from(">qi", answer, at)
        if length > end - at - 12:
            break
        assert answer[at + 16] == 1
        at, offset = at + 12 + length, last + 1
    return offset


def up(port: int, topic: str, codec: int, batches: int) -> None:
    connection, records = Connection(port), records_of(1, codec)
    for _ in range(batches):
        produce(connection, topic, records, 2)
    connection.close()


def down(port: int, topic: str, codec: int, batches: int) -> None:
    connection, offset, end = Connection(port), 0, batches * BATCH_RECORDS
    while offset < end:
        following = fetched(connection, topic, offset)
        assert following > offset
        offset = following
    connection.close()


def fill(port: int, topic: str, codec: int, batches: int) -> None:
    connection, records = Connection(port), records_of(2, codec)
    for _ in range(batches):
        produce(connection, topic, records, 3)
    connection.close()


def measured(side: Side, work: Callable[[], None], size_bytes: int) -> dict[str, float]:
    before, busy = cpu_s(side.pid), machine_busy_s()
    own = sum(os.times()[:2])
    work()
    spent = cpu_s(side.pid) - before
    others = machine_busy_s() - busy - spent - (sum(os.times()[:2]) - own)
    return {"cpu_s_per_gb": spent / (size_bytes / 1e9), "other_cpu_s": others}


def compare(
    rounds: int, mb: int, codecs: Sequence[str]
) -> dict[str, dict[str, list[dict[str, float]]]]:
    batches = mb * 1_000_000 // BATCH_BYTES
    rows: dict[str, dict[str, list[dict[str, float]]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        sides: list[Side] = [
            Ours(Path(scratch, "ours"), "os"),
            Theirs(KAFKA, Path(scratch, "kafka")),
        ]
        try:
            for side in sides:
                side.start()
            for name in codecs:
                codec = CODECS[name]
                for kind, work in (("down", down), ("up", up)):
                    row = rows.setdefault(f"{kind}, {name}", {side.name: [] for side in sides})
                    topic = f"{kind}-{name}"
                    for side in sides:
                        create_topic(side.port, topic, 1)
                        if kind == "down":
                            fill(side.port, topic, codec, batches)
                        work(side.port, topic, codec, batches)  # warm
                    for _ in range(rounds):
                        for side in sides:
                            result = measured(
                                side,
                                lambda port=side.port, work=work, topic=topic, codec=codec: work(
                                    port, topic, codec, batches
                                ),
                                batches * BATCH_BYTES,
                            )
                            row[side.name].append(result)
                            print(kind, name, side.name, result, file=sys.stderr, flush=True)
        finally:
            for side in sides:
                side.stop()
    return rows


class Turn(NamedTuple):
    wall_s: float
    cpu_s: float


def timed(*commands: Sequence[str | Path]) -> Turn:
    """Runs commands one after the other."""
    began, spent = time.monotonic(), sum(os.times()[2:4])
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{command} failed: {done.stderr}")
    return Turn(time.monotonic() - began, sum(os.times()[2:4]) - spent)


def kafkas_directory(folder: Path, mb: int) -> Path:
    """Fills topics of a Kafka and stops it. Returns its log directory."""
    kafka = Theirs(KAFKA, folder, settings={"log.segment.bytes": str(SEGMENT_BYTES)})
    kafka.start()
    try:
        for number in range(IMPORT_PARTITIONS):
            create_topic(kafka.port, f"t{number}", 1)
            batches = mb * 1_000_000 // IMPORT_PARTITIONS // BATCH_BYTES
            fill(kafka.port, f"t{number}", compression.NONE, batches)
    finally:
        kafka.stop()
    return kafka.log_dir


def compare_imports(rounds: int, mb: int) -> tuple[dict[str, list[Turn]], int]:
    """Returns the turns of each kind, and the bytes of the segments."""
    rows: dict[str, list[Turn]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        source, target = kafkas_directory(Path(scratch, "kafka"), mb), Path(scratch, "target")
        command = [*Ours.installed(), "storage", "import", str(source)]
        copied = [*command, "--set", f"log.dirs={target}"]
        kinds = {
            "cp -r and sync -f": ([["cp", "-r", source, target], ["sync", "-f", target]], None),
            "import": ([copied], None),
            "import --link": ([[*copied, "--link"]], None),
            "import --in-place": ([[*command, "--in-place"]], [*command, "--undo"]),
        }
        size_bytes = sum(path.stat().st_size for path in source.rglob("*.log"))
        for _ in range(rounds):
            for name, (commands, undo) in kinds.items():
                turn = timed(*commands)
                rows.setdefault(name, []).append(turn)
                print(name, turn, file=sys.stderr, flush=True)
                shutil.rmtree(target, ignore_errors=True)
                if undo is not None:
                    timed(undo)
                os.sync()
    return rows, size_bytes


def imports_table(rows: dict[str, list[Turn]], size_bytes: int) -> str:
    lines = ["| | s a GB | CPU s a GB |", "|---|---|---|"]
    for name, turns in rows.items():
        wall, cpu = (
            statistics.median(getattr(turn, field) for turn in turns) / (size_bytes / 1e9)
            for field in Turn._fields
        )
        lines.append(f"| {name} | {wall:.2f} | {cpu:.2f} |")
    return "\n".join(lines) + "\n"


def table(rows: dict[str, dict[str, list[dict[str, float]]]]) -> tuple[str, bool]:
    """The rows as a table, and whether each keeps the bar."""
    lines = [
        "| conversion, codec | barnabas, MB/s a core | Kafka 3.9.2, MB/s a core | CPU of Kafka's |",
        "|---|---|---|---|",
    ]
    keeps = True
    for name, row in rows.items():
        ours, theirs = (
            statistics.median(one["cpu_s_per_gb"] for one in row[side])
            for side in ("barnabas", "kafka")
        )
        keeps &= ours <= BAR * theirs
        lines.append(
            f"| {name} | {1000 / ours:,.0f} | {1000 / theirs:,.0f} | {ours / theirs:.2f} |"
        )
    return "\n".join(lines) + "\n", keeps


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mb", type=int, default=250, help="of records, in each turn")
    parser.add_argument("--codecs", default=",".join(CODECS))
    parser.add_argument("--import-mb", type=int, default=2000, help="of Kafka's directory")
    parser.add_argument("--only", choices=("conversions", "imports"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    load, keeps, made = os.getloadavg(), True, {}
    if given.only != "imports":
        rows = compare(given.rounds, given.mb, given.codecs.split(","))
        made["conversion.md"], keeps = table(rows)
        made["conversion.json"] = json.dumps(rows, indent=1) + "\n"
    if given.only != "conversions":
        made["imports.md"] = imports_table(*compare_imports(given.rounds, given.import_mb))
    print(*(text for name, text in made.items() if name.endswith(".md")), sep="\n")
    print(f"load average {load[0]:.1f} before and {os.getloadavg()[0]:.1f} after the run")
    if "conversion.md" in made:
        print("bar kept" if keeps else "bar missed", f"(at most {BAR} of Kafka's CPU)")
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        for name, text in made.items():
            (given.out / name).write_text(text)
    return 0 if keeps else 1


if __name__ == "__main__":
    sys.exit(main())
