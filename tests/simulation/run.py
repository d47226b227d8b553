"""Runs seeds of the simulated cluster, and prints the events of each.

    cd tests
    python -m simulation.run [--first SEED] [--seeds N | --count N] [--log FILE] [--share] [--trace]

A seed counts when it had acknowledged records, elections, truncations and expired sessions;
--count runs seeds until so many of them count. --log appends the line of each seed to a file, and
goes on behind the last seed of the file, whose seeds count too: a run of hours may be ended and
started again. The exit status is 1 when an invariant did not hold; --trace prints all events of
such a seed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from simulation.judge import Violation
from simulation.world import World

MEMORY = Path("/dev/shm")  # brokers wait for flushes of small files all the time
STEPS = 1500
BROKERS = (3, 3, 4, 5)  # of the seeds, in turn
DURABILITY = ("os", "os", "fsync")
SHARE_EACH = 5  # of so many seeds one has a share group
COUNTED = ("acknowledged", "elections", "truncations", "expired")
FAULTS = (
    "killed", "power cut", "paused", "cut", "isolated", "slow disk", "expired", "clock",
    "unreachable", "lost request", "lost answer", "late request",
)  # fmt: skip
LINE = re.compile(r"seed (?P<seed>\d+): (?P<counts>[\w ]+?)(?P<violation> violation: .*)?$")


def simulated(
    seed: int, steps: int = STEPS, shares: bool = False
) -> tuple[World, Violation | None]:
    """Runs one seed. Returns its world, and the violation if there was one. `shares`: there is a
    share group also in a seed that has none by itself."""
    folder = Path(tempfile.mkdtemp(prefix="simulation-", dir=MEMORY if MEMORY.is_dir() else None))
    world = World(
        seed,
        folder,
        brokers=BROKERS[seed % len(BROKERS)],
        durability=DURABILITY[seed % len(DURABILITY)],
        has_share_group=shares or seed % SHARE_EACH == 0,
    )
    try:
        world.run(steps)
    except Violation as violation:
        return world, violation
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return world, None


def does_count(counts: Counter[str]) -> bool:
    """Returns whether a seed had each of the events without which it proves little."""
    return all(counts[kind] for kind in COUNTED)


def faults_of(counts: Counter[str]) -> int:
    return sum(counts[kind] for kind in FAULTS)


class Total:
    """The sums over the seeds of a run."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.done, self.counted = 0, 0
        self.failed: list[int] = []

    def add(self, seed: int, counts: Counter[str], has_failed: bool) -> None:
        self.done += 1
        self.counted += does_count(counts)
        self.counts += counts
        if has_failed:
            self.failed.append(seed)

    def add_lines(self, lines: Iterable[str], first: int) -> int:
        """Adds the seeds of a former run. Returns the seed behind the last one, or `first`."""
        for line in lines:
            found = LINE.match(line)
            if found is None:
                continue
            words = found["counts"].split()
            counts = Counter(dict(zip(words[::2], map(int, words[1::2]), strict=True)))
            self.add(int(found["seed"]), counts, found["violation"] is not None)
            first = int(found["seed"]) + 1
        return first


def line_of(seed: int, world: World, violation: Violation | None) -> str:
    rows = [(kind, world.counts[kind]) for kind in COUNTED]
    rows.append(("faults", faults_of(world.counts)))
    said = " ".join(f"{kind} {count}" for kind, count in rows)
    return f"seed {seed}: {said}" + (f" violation: {violation}" if violation else "")


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--first", type=int, default=1, metavar="SEED")
    parser.add_argument("--seeds", type=int, default=100, metavar="N")
    parser.add_argument("--count", type=int, metavar="N", help="in place of --seeds")
    parser.add_argument("--steps", type=int, default=STEPS, metavar="N")
    parser.add_argument("--log", type=Path, metavar="FILE", help="also append the lines here")
    parser.add_argument("--share", action="store_true", help="a share group in every seed")
    parser.add_argument("--trace", action="store_true", help="all that happened in a failing seed")
    given = parser.parse_args(words)
    total, first, began = Total(), given.first, time.monotonic()
    if given.log is not None and given.log.exists():
        with given.log.open() as lines:
            first = total.add_lines(lines, first)
    for seed in itertools.count(first):
        if total.counted >= given.count if given.count else total.done >= given.seeds:
            break
        world, violation = simulated(seed, given.steps, given.share)
        total.add(seed, world.counts, violation is not None)
        line = line_of(seed, world, violation)
        print(line, flush=True)
        if given.log is not None:
            with given.log.open("a") as lines:
                print(line, file=lines)
        if violation is not None and given.trace:
            print("\n".join(world.trace))
    print(f"{total.done} seeds, {total.counted} count, this run {time.monotonic() - began:.0f} s:")
    print(", ".join(f"{count:,} {kind}" for kind, count in sorted(total.counts.items())))
    print(f"failed: {', '.join(map(str, total.failed)) or 'none'}")
    return 1 if total.failed else 0


def with_fixed_hashes() -> None:
    """Starts this process again, so that sets of strings have the same order in each run."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "simulation.run", *sys.argv[1:]])


if __name__ == "__main__":
    with_fixed_hashes()
    sys.exit(main(sys.argv[1:]))
