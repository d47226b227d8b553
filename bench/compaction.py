"""Writes a log of a given size and number of keys, and measures the time and CPU of a cleaner pass.

The script creates the records once, in batches of just below 64 KiB. A round of batches has each
key once; the script sends rounds until the log has the given size. A compaction lag stops both
cleaners. The script then removes the lag; the pass ends when cleaner-offset-checkpoint names the
active segment.
"""

import random
import socket
import struct
import time
from pathlib import Path

from sides import Side, SideError, ask, cpu_s, create_topic, text

RECORDS, VALUE_BYTES = 595, 85
SEGMENT_BYTES = 100_000_000
CHECKPOINT = "cleaner-offset-checkpoint"
IN_FLIGHT = 16
POLL_S = 0.05
PATIENCE_S = 600.0
SETTINGS = {  # of the brokers; the second is the shortest wait that both allow
    "log.cleaner.threads": "1",
    "log.cleaner.backoff.ms": "200",
}
TOPIC = {
    "cleanup.policy": "compact",
    "segment.bytes": str(SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": str(10**12),
}


def batches(keys: int) -> list[bytes]:
    """Returns batches that contain each key once, in random order."""
    from barnabas.cext.record.records import Record
    from barnabas.wire.batches import encode_batch

    order = list(range(keys))
    random.Random(1).shuffle(order)
    now_ms = int(time.time() * 1000)
    value = bytes(random.Random(2).randrange(97, 123) for _ in range(VALUE_BYTES))
    return [
        encode_batch(
            [Record(value, b"k%09d" % key, timestamp=now_ms) for key in order[at : at + RECORDS]]
        )
        for at in range(0, keys, RECORDS)
    ]


def fill(port: int, topic: str, rows: list[bytes], size_bytes: int) -> int:
    """Sends rounds of the batches until so many bytes are written. Returns the number of rounds."""
    head = struct.pack(">hhi", -1, 1, 60_000) + struct.pack(">i", 1) + text(topic)
    head += struct.pack(">ii", 1, 0)
    front = struct.pack(">hhih", 0, 7, 1, 5) + b"bench"
    sent = answered = done = 0
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        answers = sock.makefile("rb")

        def take() -> None:
            (size,) = struct.unpack(">i", answers.read(4))
            answer = answers.read(size)
            code = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic) + 4 + 4)[0]
            if code:
                raise SideError(f"produce to {topic} was refused with {code}")

        while done < size_bytes:
            batch = rows[sent % len(rows)]
            data = front + head + struct.pack(">i", len(batch)) + batch
            sock.sendall(struct.pack(">i", len(data)) + data)
            sent += 1
            done += len(batch)
            if sent - answered >= IN_FLIGHT:
                take()
                answered += 1
        while answered < sent:
            take()
            answered += 1
    return done


def alter(port: int, topic: str, settings: dict[str, str]) -> None:
    """Sets exactly these settings of the topic (AlterConfigs 0); others return to their
    defaults."""
    rows = b"".join(text(name) + text(value) for name, value in settings.items())
    body = struct.pack(">ib", 1, 2) + text(topic) + struct.pack(">i", len(settings)) + rows + b"\0"
    code = struct.unpack_from(">h", ask(port, 33, 0, body), 8)[0]
    if code:
        raise SideError(f"AlterConfigs of {topic} was refused with {code}")


def cleaned_to(side: Side, topic: str) -> int:
    path = side.data_dir / "data" / CHECKPOINT
    if not path.exists():
        return -1
    for line in path.read_text().splitlines()[2:]:
        name, partition, offset = line.rsplit(" ", 2)
        if (name, partition) == (topic, "0"):
            return int(offset)
    return -1


def segments(side: Side, topic: str) -> list[Path]:
    return sorted((side.data_dir / "data" / f"{topic}-0").glob("*.log"))


def clean(side: Side, topic: str, rows: list[bytes], size_bytes: int) -> dict[str, float]:
    create_topic(side.port, topic, 1, TOPIC)
    written = fill(side.port, topic, rows, size_bytes)
    active = segments(side, topic)[-1]
    before = sum(path.stat().st_size for path in segments(side, topic)[:-1])
    cpu, began = cpu_s(side.pid), time.monotonic()
    alter(side.port, topic, TOPIC | {"min.compaction.lag.ms": "0"})
    while cleaned_to(side, topic) < int(active.stem):
        if time.monotonic() - began > PATIENCE_S:
            raise SideError(f"{topic} of {written} bytes is not clean after {PATIENCE_S} s")
        time.sleep(POLL_S)
    seconds, cpu = time.monotonic() - began, cpu_s(side.pid) - cpu
    after = sum(path.stat().st_size for path in segments(side, topic) if path.stem < active.stem)
    return {
        "cpu_s_per_gb": cpu * 1e9 / before,
        "mb_per_s": before / seconds / 1e6,
        "bytes_after": after,
        "cpu_s": cpu,
    }
