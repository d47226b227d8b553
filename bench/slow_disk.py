"""Who waits for a disk that cannot take the writes: barnabas beside Apache Kafka.

    python bench/slow_disk.py [--slow 4,16] [--seconds 6] [--rounds 3] [--kafka VERSION]
                              [--durability os|fsync] [--megabytes-per-s 2] [--folder DIR]

As root, with control groups of version 1. An ext4 on a loop device takes 2 MB/s, and the kernel
limits its dirty pages, so that a thread that writes to it sleeps in the kernel. Each broker has it
as one of two log directories. `--slow` producers of 64 KiB records (acks=1) write to it. Four
producers of 100 bytes write to the other directory, 400 requests a second by a fixed plan: a
request that waits for the one before it counts its wait. Each row gives their times alone, and
beside the slow producers in `--rounds` rounds once the disk is past its limit.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sides import Ours, Side, SideError, Theirs, create_topic

HERE = Path(__file__).resolve().parent
THROTTLE = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")
IMAGE_BYTES = 2 << 30
DIRTY_PERCENT = 1
SLOW_RECORD_BYTES = 64 << 10
FAST_CONNECTIONS, FAST_RATE = 4, 400
PAST_ITS_LIMIT_S = 6


def run(*words: object) -> str:
    command = [str(word) for word in words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SideError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()


@contextlib.contextmanager
def slow_disk(folder: Path, bytes_per_s: int) -> Iterator[Path]:
    """A mounted disk that takes so many bytes a second."""
    if not THROTTLE.exists():
        raise SideError(f"{THROTTLE} does not exist: this needs control groups of version 1")
    image, place = folder / "disk.img", folder / "slow"
    place.mkdir()
    with contextlib.ExitStack() as undo:
        run("fallocate", "-l", IMAGE_BYTES, image)
        device = run("losetup", "--find", "--show", image)
        undo.callback(run, "losetup", "--detach", device)
        run("mkfs.ext4", "-q", device)
        run("mount", device, place)
        undo.callback(run, "umount", place)
        number = os.stat(device).st_rdev
        name = f"{os.major(number)}:{os.minor(number)}"
        limits = Path(f"/sys/class/bdi/{name}")
        for file, value in (("strict_limit", 1), ("max_ratio", DIRTY_PERCENT)):
            undo.callback((limits / file).write_text, (limits / file).read_text())
            (limits / file).write_text(str(value))
        undo.callback(THROTTLE.write_text, f"{name} 0")
        THROTTLE.write_text(f"{name} {bytes_per_s}")
        yield place


class Topics(NamedTuple):
    """One on each disk."""

    fast: str
    slow: str


def start(name: str, folder: Path, slow: Path, options: argparse.Namespace) -> Side:
    data, dirs = folder / name, [folder / f"{name}-fast", slow / name]
    for path in dirs:
        path.mkdir()
    side: Side
    if name == "barnabas":
        side = Ours(data, options.durability)
        side.settings["log.dirs"] = ",".join(map(str, dirs))
    else:
        side = Theirs(options.kafka, data, settings={"log.dirs": ",".join(map(str, dirs))})
    return side


def make_topics(side: Side, slow: Path, durability: str) -> Topics:
    """A new partition goes to the directory with the fewest."""
    flushed = {"flush.messages": "1"} if isinstance(side, Theirs) and durability == "fsync" else {}
    found: dict[bool, str] = {}
    for number in range(4):
        create_topic(side.port, f"t{number}", 1, flushed)
        found[(slow / side.name / f"t{number}-0").exists()] = f"t{number}"
    if len(found) != 2:
        raise SideError(f"{side.name} put no partition on one of its disks")
    return Topics(fast=found[False], slow=found[True])


def load(generator: Path, side: Side, topic: str, **given: object) -> subprocess.Popen[str]:
    flags = [word for key, value in given.items() for word in (f"--{key.replace('_', '-')}", value)]
    words = [generator, "produce", "--port", side.port, "--topic", topic, "--acks", 1, *flags]
    return subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True)


def fast_times(generator: Path, side: Side, topic: str, seconds: float) -> dict[str, float]:
    """What the generator measured of the producers on the fast disk."""
    process = load(
        generator, side, topic, seconds=seconds, connections=FAST_CONNECTIONS, rate=FAST_RATE,
        record_bytes=100,
    )  # fmt: skip
    out, _ = process.communicate()
    if process.returncode:
        raise SideError(f"the producers of {side.name} on the fast disk failed: {out}")
    return dict(json.loads(out))


def measure(
    generator: Path, side: Side, topics: Topics, slow: int, options: argparse.Namespace
) -> str:
    alone = fast_times(generator, side, topics.fast, options.seconds)
    seconds = PAST_ITS_LIMIT_S + (options.rounds + 1) * (options.seconds + 1)
    slow_load = load(
        generator, side, topics.slow, seconds=seconds, connections=slow,
        record_bytes=SLOW_RECORD_BYTES,
    )  # fmt: skip
    time.sleep(PAST_ITS_LIMIT_S)
    rounds = [
        fast_times(generator, side, topics.fast, options.seconds) for _ in range(options.rounds)
    ]
    out, _ = slow_load.communicate()
    if slow_load.returncode:
        raise SideError(f"the slow producers of {side.name} failed: {out}")
    written_mb = json.loads(out)["requests"] * SLOW_RECORD_BYTES / 1e6
    cells = [
        ", ".join(f"{times[key] / 1000:.2f}" for times in rounds)
        for key in ("p50_us", "p99_us", "max_us")
    ]
    return (
        f"| {side.name}, {slow} | {alone['p50_us'] / 1000:.2f} | {alone['p99_us'] / 1000:.2f} | "
        + " | ".join(cells)
        + f" | {written_mb / seconds:.1f} |"
    )


def main() -> int:
    given = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    given.add_argument("--slow", default="4,16")
    given.add_argument("--seconds", type=float, default=6)
    given.add_argument("--rounds", type=int, default=3)
    given.add_argument("--kafka", default="4.3.1", help="none: without Kafka")
    given.add_argument("--durability", default="os", choices=("os", "fsync"))
    given.add_argument("--megabytes-per-s", type=float, default=2)
    given.add_argument("--folder", type=Path, help="on a disk of its own, with 3 GB free")
    options = given.parse_args()
    names = ["barnabas"] + ([] if options.kafka == "none" else ["kafka"])
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        folder, generator = Path(place), Path(place) / "loadgen"
        run(os.environ.get("CC", "cc"), "-O2", "-o", generator, HERE / "loadgen.c")
        print("| broker, slow producers | p50 alone, ms | p99 alone | p50 beside | p99 | longest"
              " | MB/s of the slow |\n|---|---|---|---|---|---|---|")  # fmt: skip
        for slow in map(int, options.slow.split(",")):
            for name in names:
                work = folder / f"{name}-{slow}"
                work.mkdir()
                with slow_disk(work, int(options.megabytes_per_s * 1e6)) as disk:
                    side = start(name, work, disk, options)
                    try:
                        side.start()
                        topics = make_topics(side, disk, options.durability)
                        print(measure(generator, side, topics, slow, options), flush=True)
                    finally:
                        side.stop()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SideError as error:
        sys.exit(f"slow_disk.py: {error}")
