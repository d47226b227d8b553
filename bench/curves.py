#!/usr/bin/env python3
"""Measures how cost grows with size: each curve should be flat, or the docs say why it is not.

    python bench/curves.py [--quick] [--only NAME,...] [--out DIR] [--data DIR] [--draw curves.json]

| curve | x | y |
|---|---|---|
| commit | partitions that each get one record in one request | ms until all are flushed |
| log | MB in the log | CPU us a produce, and a fetch of 4 KiB from anywhere in it |
| segments | segments of the log | the same |
| partitions | partitions of the broker | CPU us a produce and a Metadata of one topic |
| connections | connections that are idle | CPU us a produce |

Each curve has one barnabas broker, which has its defaults except for what the curve names. CPU is
user and system time of the broker. Each point is the median of `repeats` loads. Where possible the
points of a curve are measured upwards and downwards in turns, so that a slow minute of the machine
does not look like a slope.
"""

import argparse
import json
import os
import resource
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from report import about, save_svg
from sides import Ours, SideError, ask, cpu_s, create_topic, end_offset, text

HERE = Path(__file__).resolve().parent
RECORDS = 595
TOPIC_PARTITIONS_MAX = 1000  # of one CreateTopics here, so that no request grows with the curve


@dataclass
class Size:
    repeats: int
    requests: int
    commit: tuple[int, ...]
    log_mb: tuple[int, ...]
    segments: tuple[int, ...]
    partitions: tuple[int, ...]
    connections: tuple[int, ...]


FULL = Size(
    repeats=5,
    requests=20_000,
    commit=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000),
    log_mb=(1, 10, 100, 500, 1000, 2000),
    segments=(1, 5, 20, 50, 100, 200),
    partitions=(1, 100, 1000, 5000, 10_000, 20_000),
    connections=(0, 100, 1000, 5000, 10_000),
)
QUICK = Size(2, 4000, (1, 10, 100), (1, 20, 100), (1, 10, 40), (1, 50, 300), (0, 50, 500))

Point = dict[str, float]
Curve = dict[int, list[Point]]


class Curves:
    def __init__(self, size: Size, data: Path) -> None:
        self.size, self.data = size, data
        self.generator = data / "loadgen"
        compiler = os.environ.get("CC", "cc")
        subprocess.run(
            [compiler, "-O2", "-o", str(self.generator), str(HERE / "loadgen.c")], check=True
        )

    def broker(self, name: str, durability: str = "os", **settings: str) -> Ours:
        side = Ours(self.data / name, durability)
        side.settings = {key.replace("_", "."): value for key, value in settings.items()}
        side.start()
        return side

    def end(self, side: Ours) -> None:
        side.stop()
        shutil.rmtree(side.data_dir, ignore_errors=True)

    def load(self, side: Ours, mode: str, topic: str, **words: object) -> dict[str, float]:
        """Runs the generator once; `cpu_us` is the broker's CPU time for each request."""
        flags = [w for k, v in words.items() for w in (f"--{k.replace('_', '-')}", str(v))]
        command = [str(self.generator), mode, "--port", str(side.port), "--topic", topic, *flags]
        cpu = cpu_s(side.pid)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SideError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
        answer: dict[str, float] = json.loads(done.stdout)
        answer["cpu_us"] = (cpu_s(side.pid) - cpu) * 1e6 / answer["requests"]
        return answer

    def fill(self, side: Ours, topic: str, size_bytes: int) -> None:
        count = max(size_bytes // 65536, 1)
        self.load(side, "produce", topic, records=RECORDS, in_flight=5, requests=count)

    def produced_and_read(self, side: Ours, topic: str) -> Point:
        """Appends at the end of the log, and fetches from random places of the whole log."""
        requests = self.size.requests
        made = self.load(side, "produce", topic, connections=10, requests=requests)
        places = end_offset(side.port, topic)
        read = self.load(side, "fetch", topic, max_bytes=4096, requests=requests, seek=places)
        return {"produce CPU us": made["cpu_us"], "fetch CPU us": read["cpu_us"]}

    # ---- the curves ----
    def commit(self) -> Curve:
        """Sends one request with a record for each of N partitions, with acks=all; all are dirty at
        once."""
        found: Curve = {}
        side = self.broker("commit", "fsync")
        try:
            for count in self.size.commit:
                create_topic(side.port, f"dirty-{count}", count)
            for _ in range(self.size.repeats):
                for count in self.size.commit:
                    took_s = one_commit(side.port, f"dirty-{count}", count)
                    found.setdefault(count, []).append({"ms": took_s * 1e3})
        finally:
            self.end(side)
        return found

    def log(self) -> Curve:
        found: Curve = {}
        side = self.broker("log")
        try:
            create_topic(side.port, "long", 1)
            have = 0
            for megabytes in self.size.log_mb:
                self.fill(side, "long", (megabytes - have) * 1_000_000)
                have = megabytes
                points = [self.produced_and_read(side, "long") for _ in range(self.size.repeats)]
                found[megabytes] = points
        finally:
            self.end(side)
        return found

    def segments(self) -> Curve:
        """Measures the same as `log`, with segments of 1 MiB."""
        found: Curve = {}
        side = self.broker("segments")
        try:
            create_topic(side.port, "rolled", 1, {"segment.bytes": str(1 << 20)})
            have = 0
            for count in self.size.segments:
                self.fill(side, "rolled", (count - have) << 20)
                have = count
                points = [self.produced_and_read(side, "rolled") for _ in range(self.size.repeats)]
                found[count] = points
        finally:
            self.end(side)
        return found

    def partitions(self) -> Curve:
        found: Curve = {}
        side = self.broker("partitions")
        try:
            create_topic(side.port, "one", 1)
            have = 1
            request = self.data / "metadata.request"
            request.write_bytes(
                struct.pack(">hhih", 3, 1, 0, 5) + b"bench" + struct.pack(">i", 1) + text("one")
            )
            for count in self.size.partitions:
                began = time.monotonic()
                try:
                    while have < count:
                        more = min(count - have, TOPIC_PARTITIONS_MAX)
                        create_topic(side.port, f"more-{have}", more, timeout_ms=280_000)
                        have += more
                except (SideError, OSError) as error:
                    print(f"partitions: {count} cannot be made here: {error}", flush=True)
                    break
                made_s = time.monotonic() - began
                for _ in range(self.size.repeats):
                    requests = self.size.requests
                    made = self.load(side, "produce", "one", connections=10, requests=requests)
                    asked = self.load(side, "ask", "-", request=request, requests=requests // 10)
                    found.setdefault(count, []).append(
                        {
                            "produce CPU us": made["cpu_us"],
                            "Metadata CPU us": asked["cpu_us"],
                            "s to make these": made_s,
                        }
                    )
        finally:
            self.end(side)
        return found

    def connections(self) -> Curve:
        found: Curve = {}
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
        side = self.broker("connections")
        held: list[socket.socket] = []
        try:
            create_topic(side.port, "t", 10)
            hello = struct.pack(">hhih", 18, 0, 1, 5) + b"bench"
            hello = struct.pack(">i", len(hello)) + hello
            for count in self.size.connections:
                if count > limit[1] - 200:
                    print(f"connections: {count} are beyond the limit of {limit[1]} descriptors")
                    break
                while len(held) < count:
                    held.append(socket.create_connection(("127.0.0.1", side.port), timeout=30))
                    held[-1].sendall(hello)
                    if not held[-1].recv(65536):
                        raise SideError(f"connection {len(held)} was closed")
                for _ in range(self.size.repeats):
                    words = {"connections": 10, "partitions": 10, "requests": self.size.requests}
                    made = self.load(side, "produce", "t", **words)
                    found.setdefault(count, []).append({"produce CPU us": made["cpu_us"]})
        finally:
            for one in held:
                one.close()
            self.end(side)
        return found

    def all(self) -> dict[str, Callable[[], Curve]]:
        names = ("commit", "log", "segments", "partitions", "connections")
        return {name: getattr(self, name) for name in names}


LABELS = {
    "commit": "partitions with one new record each",
    "log": "MB in the log",
    "segments": "segments in the log",
    "partitions": "partitions of the broker",
    "connections": "idle connections",
}


def one_commit(port: int, topic: str, count: int) -> float:
    """Returns the seconds of one Produce 7 with acks=all and one record for each partition."""
    from barnabas.wire.batches import encode_batch

    batch = encode_batch([b"x" * 100], base_timestamp=int(time.time() * 1000))
    rows = b"".join(struct.pack(">ii", i, len(batch)) + batch for i in range(count))
    body = struct.pack(">hhii", -1, -1, 60_000, 1) + text(topic) + struct.pack(">i", count) + rows
    began = time.monotonic()
    answer = ask(port, 0, 7, body, timeout_s=60)
    took_s = time.monotonic() - began
    at = 4 + 2 + len(topic) + 4
    codes = {struct.unpack_from(">h", answer, at + 30 * i + 4)[0] for i in range(count)}
    if codes != {0}:
        raise SideError(f"the commit of {count} partitions answered {codes}")
    return took_s


def medians(curve: Curve) -> dict[str, dict[int, float]]:
    """Returns for each y its median at each x."""
    found: dict[str, dict[int, float]] = {}
    for x, points in curve.items():
        for name in points[0]:
            found.setdefault(name, {})[x] = statistics.median(p[name] for p in points)
    return found


def table(name: str, curve: Curve) -> str:
    lines = medians(curve)
    xs = list(curve)
    out = [f"| {LABELS[name]} | {' | '.join(f'{x:,}' for x in xs)} |", "|---" * (len(xs) + 1) + "|"]
    for y, values in lines.items():
        out.append(f"| {y} | {' | '.join(f'{values[x]:.3g}' for x in xs)} |")
    return "\n".join(out)


def draw(curves: dict[str, Curve], folder: Path) -> bool:
    """Draws one SVG for each curve. Returns False without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    for name, curve in curves.items():
        drawn, axes = pyplot.subplots(figsize=(6, 3.4))
        for y, values in medians(curve).items():
            if y == "s to make these":
                continue
            axes.plot([max(x, 1) for x in values], list(values.values()), marker="o", label=y)
        axes.set_xscale("log")
        axes.set_xlabel(LABELS[name])
        if name == "commit":
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
        drawn.tight_layout()
        save_svg(drawn, folder / f"{name}.svg")
        pyplot.close(drawn)
    return True


def write(folder: Path, curves: dict[str, Curve], header: dict[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "curves.json").write_text(
        json.dumps({"about": header, "curves": curves}, indent=1) + "\n"
    )
    body = "\n\n".join(f"{table(name, curve)}" for name, curve in curves.items())
    head = "\n".join(f"- {key}: {value}" for key, value in header.items())
    (folder / "curves.md").write_text(f"{head}\n\n{body}\n")
    draw(curves, folder)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few points, to see that it works")
    parser.add_argument("--only", help=f"of {', '.join(LABELS)}")
    parser.add_argument("--out", type=Path, help="a folder for curves.md, curves.json and plots")
    parser.add_argument("--data", type=Path, help="where the brokers keep their data")
    parser.add_argument("--draw", type=Path, help="no run: tables and plots of this curves.json")
    arguments = parser.parse_args(words)
    if arguments.draw:
        result = json.loads(arguments.draw.read_text())
        loaded = {n: {int(x): p for x, p in c.items()} for n, c in result["curves"].items()}
        write(arguments.out or arguments.draw.parent, loaded, result["about"])
        return 0
    wanted = arguments.only.split(",") if arguments.only else list(LABELS)
    if unknown := [name for name in wanted if name not in LABELS]:
        parser.error(f"no curve {', '.join(unknown)}; there are {', '.join(LABELS)}")
    size = QUICK if arguments.quick else FULL
    header = about(words, "-", size) | {"quick": arguments.quick}
    header["command"] = " ".join(["python", "bench/curves.py", *words])
    data = Path(tempfile.mkdtemp(prefix="barnabas-curves-", dir=arguments.data))
    curves: dict[str, Curve] = {}
    try:
        made = Curves(size, data)
        for name in wanted:
            curves[name] = made.all()[name]()
            print(f"{name}\n{table(name, curves[name])}\n", flush=True)
            if arguments.out:
                write(arguments.out, curves, header)
    finally:
        shutil.rmtree(data, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
