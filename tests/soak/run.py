"""A soak of one node: workload H and four other loads for hours, restarts, and an upgrade.

    cd tests && python -m soak.run --minutes 480 --former PYTHON --out FOLDER

The run is a sequence of rounds, each with new topics of workload H and a history of its own. In
the first third of the time, the broker is killed once and stopped once in each round. Then, in one
round, the former version (the interpreter PYTHON has it) serves the same data, this one, the
former one and this one again. After that nothing disturbs the broker: its memory, descriptors,
threads, disk and the p99 of a probe must be flat. After each round the checker judges
the history of workload H, and each load reads back what it wrote.

FOLDER gets samples.tsv, soak.svg and soak.md. The exit status is 1 when a record is missing or
wrong, or something grows.
"""

from __future__ import annotations

import argparse
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from durability.broker_process import BrokerProcess, free_port
from history.test_workload_h import verdict_of
from history.workload import BROKER_SETTINGS, COMMON, COPY, INPUT, Workload, create_topics
from soak.loads import Churn, Compacted, Load, Probe, Retained
from soak.samples import LIMITS, MB, Growth, Sample, Sampler, growths

# Small segments, so that everything is deleted or compacted many times, internal topics too.
SETTINGS = BROKER_SETTINGS | {
    "offsets.topic.segment.bytes": str(1 << 20),
    "transaction.state.log.segment.bytes": str(1 << 20),
    "log.retention.check.interval.ms": "5000",
    "log.cleaner.backoff.ms": "2000",
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
    "log.segment.delete.delay.ms": "1000",
}
ROUND_S, ROUNDS_MIN = 60.0, 8  # a short run has shorter rounds
EVERY_S, SAMPLES_MIN = 5.0, 100  # seconds between two samples
RESTARTS_UNTIL = 0.35  # of the run
GONE_S = 30.0
COLUMNS = (
    ("memory_bytes", "memory of its own, MB", MB),
    ("descriptors", "descriptors", 1),
    ("threads", "threads", 1),
    ("disk_bytes", "data directory, MB", MB),
    ("p99_ms", "p99 of the probe, ms", 1),
)


class Served:
    """The broker of the moment: one data directory and port, one process after the other."""

    def __init__(self, data: Path) -> None:
        self._data, self._port = data, free_port()
        self.restarts = 0
        self.broker = self._started(sys.executable)

    def _started(self, python: str) -> BrokerProcess:
        return BrokerProcess(self._data, self._port, SETTINGS, python=python)

    @property
    def address(self) -> str:
        return self.broker.address

    def pid(self) -> int:
        return self.broker.process.pid

    def restart(self, how: signal.Signals, python: str = sys.executable) -> None:
        if how == signal.SIGKILL:
            self.broker.kill()
        else:
            self.broker.stop(how)
        self.restarts += 1
        self.broker = self._started(python)


class Soak:
    """One run. `say` prints its progress."""

    def __init__(self, folder: Path, seconds: float, seed: int, former: str | None) -> None:
        self._folder, self._seed, self._former = folder, seed, former
        self._seconds, self._round_s = seconds, min(ROUND_S, seconds / ROUNDS_MIN)
        self.rounds: list[str] = []
        self.served = Served(folder / "data")
        address = self.served.address
        self.probe = Probe(address)
        self.loads: list[Load] = [self.probe, Compacted(address), Retained(address), Churn(address)]
        self.sampler = Sampler(
            self.served.pid,
            folder / "data",
            self.probe.take_p99_ms,
            every_s=min(EVERY_S, seconds / SAMPLES_MIN),
        )

    def run(self) -> None:
        began = time.monotonic()
        upgraded = self._former is None
        while (part := (time.monotonic() - began) / self._seconds) < 1:
            if part < RESTARTS_UNTIL:
                self._round("killed, stopped", self._restarts)
            elif not upgraded:
                upgraded = True
                self._round("upgraded, and back", self._upgrade)
            else:
                self._round("left alone", lambda: time.sleep(self._round_s))
            print(f"{min(part, 1):4.0%} {self.rounds[-1]}", flush=True)

    def _restarts(self) -> None:
        for how in (signal.SIGKILL, signal.SIGTERM):
            time.sleep(self._round_s / 3)
            self.served.restart(how)
        time.sleep(self._round_s / 3)

    def _upgrade(self) -> None:
        assert self._former is not None
        former, now = self._former, sys.executable
        ways = ((signal.SIGTERM, former), (signal.SIGTERM, now))
        for how, python in (*ways, (signal.SIGKILL, former), (signal.SIGKILL, now)):
            self.served.restart(how, python)
            time.sleep(self._round_s / 4)

    def _round(self, name: str, disturb: Callable[[], object]) -> None:
        address, number = self.served.address, len(self.rounds) + 1
        folder = self._folder / f"round-{number}"
        folder.mkdir()
        create_topics(address)
        workload = Workload(address, self._seed + number)
        try:
            disturb()
            workload.stop()
            verdict = verdict_of(workload, folder)
        finally:
            workload.stopping.set()
        assert verdict.valid is True, f"round {number}\n{verdict}"
        operations = workload.history.operations()
        records = sum(len(one.sends) for one in operations)
        for load in self.loads:
            load.checked()
        self.rounds.append(
            f"round {number}, {name}: {len(operations)} operations, {records} records, valid"
        )
        shutil.rmtree(folder)
        forget_topics(address)

    def close(self) -> None:
        """Ends the loads and the broker. Raises the exception of a load that died."""
        self.sampler.stop()
        try:
            for load in self.loads:
                load.stop()
        finally:
            if self.served.broker.process.poll() is None:
                self.served.broker.stop()

    def undisturbed(self) -> list[Sample]:
        """Returns the samples of the last process, without its first fifth."""
        found = self.sampler.of_process(self.sampler.samples[-1].pid)
        return found[len(found) // 5 :]


def forget_topics(address: str) -> None:
    """Deletes the topics and groups of workload H, so that the next round begins with new ones."""
    admin = AdminClient({"bootstrap.servers": address, **COMMON})
    for future in admin.delete_topics([INPUT, COPY], operation_timeout=10).values():
        future.result(20)
    deadline = time.monotonic() + GONE_S
    while {INPUT, COPY} & admin.list_topics(timeout=10).topics.keys():
        assert time.monotonic() < deadline, "the topics are still there"
        time.sleep(0.1)
    left = {"readers", "copiers"}
    while left:
        for group, future in admin.delete_consumer_groups(sorted(left)).items():
            try:
                future.result(20)
            except KafkaException as error:
                assert time.monotonic() < deadline, error
                if "NOT_FOUND" not in error.args[0].name():
                    continue
            left.discard(group)
        time.sleep(0.2)


# -- the report


def write_samples(samples: Sequence[Sample], file: Path) -> None:
    lines = ["\t".join(Sample._fields)]
    lines += ["\t".join(f"{value:.6g}" for value in row) for row in samples]
    file.write_text("\n".join(lines) + "\n")


def plot(samples: Sequence[Sample], file: Path) -> None:
    """One picture for each value over the time of the run; a line ends where a process ends."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, places = plt.subplots(len(COLUMNS), 1, figsize=(9, 11), sharex=True)
    pids = list(dict.fromkeys(row.pid for row in samples))
    for place, (name, title, unit) in zip(places, COLUMNS, strict=True):
        for pid in pids:
            rows = [row for row in samples if row.pid == pid]
            at = [row.at_s / 60 for row in rows]
            place.plot(at, [getattr(row, name) / unit for row in rows], color="tab:blue", lw=1)
        place.set_title(title, fontsize=9, loc="left")
        place.set_ylim(bottom=0)
    places[-1].set_xlabel("minutes")
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)


def report(soak: Soak, seconds: float, seed: int, former: str | None, grown: list[Growth]) -> str:
    flat = soak.undisturbed()
    third = len(flat) // 3
    loads = {type(load).__name__: load for load in soak.loads}
    churn = loads["Churn"]
    assert isinstance(churn, Churn)
    lines = [
        f"{seconds / 60:.0f} minutes, seed {seed}, commit {commit()}, Python"
        f" {platform.python_version()}, {len(soak.rounds)} rounds, {soak.served.restarts} restarts"
        f" ({'with' if former else 'without'} a former version). Every history is valid.",
        "",
        f"Beside workload H: {loads['Probe'].count:,} records of the probe,"
        f" {loads['Compacted'].count:,} to a compacted topic, {loads['Retained'].count:,} to one"
        f" with retention, and {churn.count:,} topics that were created, written, read and deleted"
        f" ({churn.interrupted} more were interrupted by a restart).",
        "",
        f"The last process, {flat[-1].at_s - flat[0].at_s:.0f} s without a disturbance: medians of"
        " the first and the last third of its samples.",
        "",
        "| value | first third | last third | at most | |",
        "|---|---|---|---|---|",
    ]
    names = {row.name for row in grown}
    for name, title, unit in COLUMNS:
        first = median(getattr(row, name) for row in flat[:third]) / unit
        last = median(getattr(row, name) for row in flat[-third:]) / unit
        limit = LIMITS[name]
        most = first * limit.factor + limit.more / unit
        verdict = "grows" if name in names else "flat"
        lines.append(f"| {title} | {first:.1f} | {last:.1f} | {most:.1f} | {verdict} |")
    return "\n".join([*lines, ""])


def commit() -> str:
    told = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=False
    )
    return told.stdout.strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m soak.run", description="one node under load for hours"
    )
    parser.add_argument("--minutes", type=float, default=480.0, help="of the run (480)")
    parser.add_argument("--former", metavar="PYTHON", help="an interpreter with a former version")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(31))
    parser.add_argument("--out", type=Path, default=Path("soak"), help="of the report (soak)")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    print(f"seed {arguments.seed}", flush=True)
    seconds = arguments.minutes * 60
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        soak = Soak(Path(folder), seconds, arguments.seed, arguments.former)
        try:
            soak.run()
        finally:
            soak.close()
            write_samples(soak.sampler.samples, arguments.out / "samples.tsv")
        plot(soak.sampler.samples, arguments.out / "soak.svg")
        grown = growths(soak.undisturbed())
        text = report(soak, seconds, arguments.seed, arguments.former, grown)
        (arguments.out / "soak.md").write_text(text)
    print(text)
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
