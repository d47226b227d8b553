"""The time of a snapshot of a running broker, by files and by bytes, under appends.

    python bench/snapshots.py [--quick] [--folder DIR]

Each row is the median of ROUNDS snapshots of a broker of its own, which is in this process. One
producer appends meanwhile, one record at a time with acks=all, to a topic of its own. "pause" is
how long appends waited for the snapshot at most, as the broker measures it; "slowest append" is the
slowest one of the producer during a snapshot, "without" the slowest one in as long a time before.
"""

import argparse
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer

from barnabas import Broker
from barnabas.cli.storage_snapshot import take

ROUNDS = 5
RECORD_BYTES = 250_000
MB = 1_000_000


class Case(NamedTuple):
    partitions: int
    segments: int  # of each partition
    segment_bytes: int


BY_BYTES = [Case(20, 10, size) for size in (MB // 4, MB, 4 * MB, 8 * MB)]
BY_FILES = [
    Case(partitions, 10, 200 * MB // (partitions * 10)) for partitions in (10, 40, 160, 640)
]
QUICK = [Case(4, 4, MB // 4), Case(8, 8, MB // 4)]


class Appender:
    """Appends until `end`, and keeps when each append began and how long it took."""

    def __init__(self, address: str) -> None:
        self.taken: list[tuple[float, float]] = []
        self._ending = False
        self._address = address
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        settings = {"bootstrap.servers": self._address, "linger.ms": 0, "acks": "all"}
        producer = Producer(settings)
        while not self._ending:
            began = time.monotonic()
            producer.produce("appended", b"x" * 100)
            producer.flush(30)
            self.taken.append((began, time.monotonic() - began))

    def slowest_ms(self, since: float, until: float) -> float:
        """Of the appends that ran between two times."""
        found = [took for began, took in self.taken if began + took >= since and began <= until]
        return 1000 * max(found, default=0.0)

    def end(self) -> None:
        self._ending = True
        self._thread.join(30)


def fill(address: str, case: Case) -> None:
    producer = Producer({"bootstrap.servers": address, "queue.buffering.max.kbytes": 200_000})
    size = min(RECORD_BYTES, case.segment_bytes)
    records = case.segments * case.segment_bytes // size
    for number in range(records):
        for partition in range(case.partitions):
            producer.produce("filled", b"v" * (size - 100), partition=partition)
        if number % 8 == 0:
            producer.flush(60)
    producer.flush(60)


def measure(case: Case, folder: Path) -> str:
    data, copy = folder / "data", folder / "copy"
    settings = {"log.dirs": data, "log.durability": "os"}
    with Broker(settings) as broker:
        broker.create_topic("appended", 1)
        broker.create_topic(
            "filled", case.partitions, configs={"segment.bytes": max(case.segment_bytes, 1000)}
        )
        fill(broker.bootstrap_servers, case)
        appender = Appender(broker.bootstrap_servers)
        rows = []
        try:
            for _ in range(ROUNDS):
                time.sleep(1)
                began = time.monotonic()
                facts = take(data, copy, forks=False)
                ended = time.monotonic()
                rows.append(
                    (
                        facts["seconds"] * 1000,
                        facts["pauseMs"],
                        appender.slowest_ms(began, ended),
                        appender.slowest_ms(2 * began - ended, began),
                    )
                )
                shutil.rmtree(copy)
        finally:
            appender.end()
    shutil.rmtree(data)
    took, pause, slowest, without = map(statistics.median, zip(*rows, strict=True))
    size = case.partitions * case.segments * case.segment_bytes / MB
    linked, copied_kb = facts["linkedFiles"], facts["copiedBytes"] / 1e3
    return (
        f"| {case.partitions} | {linked} | {size:.0f} | {copied_kb:.0f}"
        f" | {took:.0f} | {1000 * pause:.0f} | {slowest:.1f} | {without:.1f} |"
    )


HEAD = """\
| partitions | files linked | MB | KB copied | ms | pause, µs | slowest append, ms | without |
|---|---|---|---|---|---|---|---|"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two small cases")
    parser.add_argument("--folder", type=Path, help="on the disk that is measured")
    asked = parser.parse_args()
    parts = {"small": QUICK} if asked.quick else {"by bytes": BY_BYTES, "by files": BY_FILES}
    for name, cases in parts.items():
        print(f"\n{name}\n\n{HEAD}", flush=True)
        for case in cases:
            with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
                print(measure(case, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
