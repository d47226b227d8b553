"""Runs seeds of the simulated cluster, and prints the events of each.

    cd tests && python -m simulation.run [--first SEED] [--seeds N | --count N] [--trace]

A seed counts when it had acknowledged records, elections, truncations and expired sessions;
--count runs seeds until so many of them count. The exit status is 1 when an invariant did not hold;
--trace prints all events of such a seed.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from simulation.judge import Violation
from simulation.world import World

MEMORY = Path("/dev/shm")  # brokers wait for flushes of small files all the time
STEPS = 2000
BROKERS = (3, 3, 4, 5)  # of the seeds, in turn
COUNTED = ("acknowledged", "elections", "truncations", "expired")
FAULTS = (
    "killed", "power cut", "paused", "cut", "expired", "clock", "unreachable", "lost request",
    "lost answer", "late request",
)  # fmt: skip


def simulated(seed: int, steps: int = STEPS) -> tuple[World, Violation | None]:
    """Runs one seed. Returns its world, and the violation if there was one."""
    folder = Path(tempfile.mkdtemp(prefix="simulation-", dir=MEMORY if MEMORY.is_dir() else None))
    world = World(seed, folder, brokers=BROKERS[seed % len(BROKERS)])
    try:
        world.run(steps)
    except Violation as violation:
        return world, violation
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return world, None


def does_count(world: World) -> bool:
    """Returns whether a seed had each of the events without which it proves little."""
    return all(world.counts[kind] for kind in COUNTED)


def faults_of(world: World) -> int:
    return sum(world.counts[kind] for kind in FAULTS)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--first", type=int, default=1, metavar="SEED")
    parser.add_argument("--seeds", type=int, default=100, metavar="N")
    parser.add_argument("--count", type=int, metavar="N", help="in place of --seeds")
    parser.add_argument("--steps", type=int, default=STEPS, metavar="N")
    parser.add_argument("--trace", action="store_true", help="all that happened in a failing seed")
    given = parser.parse_args(words)
    total: Counter[str] = Counter()
    failed, done, counted, began = [], 0, 0, time.monotonic()
    for seed in itertools.count(given.first):
        if counted == given.count if given.count else done == given.seeds:
            break
        world, violation = simulated(seed, given.steps)
        total += world.counts
        done += 1
        counted += does_count(world)
        said = " ".join(f"{kind} {world.counts[kind]}" for kind in COUNTED)
        print(f"seed {seed}: {said} faults {faults_of(world)} {violation or ''}", flush=True)
        if violation is not None:
            failed.append(seed)
            if given.trace:
                print("\n".join(world.trace))
    print(f"{done} seeds in {time.monotonic() - began:.0f} s, {counted} count:")
    print(", ".join(f"{count:,} {kind}" for kind, count in sorted(total.items())))
    print(f"failed: {', '.join(map(str, failed)) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
