"""Runs seeds of the simulated broker, whose power is cut, and prints the events of each.

    cd tests
    python -m simulation.run_one_node [--first SEED] [--seeds N | --seconds N] [--lives N]
                                      [--durability fsync | os] [--directories N] [--every STEPS]
                                      [--bug NAME | --bugs] [--log FILE]
                                      [--trace | --trace-all]

Each seed is a disk that the broker starts on --lives times; every third one has
log.durability=os. It has one to three log directories, one of which may fail. --every cuts the
power after every call and every step of so many steps, each time in a child process. --bug plants
a bug (simulation/planted.py), --bugs all of them, one after the other: each ends with the first
seed that finds it. The exit status is 1 when an invariant did not hold; --trace prints all events
of such a seed.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from durability import recording

MEMORY = Path("/dev/shm")  # the simulated disk needs no real one
LIVES = 15
FOLDER = "disk"


def simulated(seed: int, work: Path, given: argparse.Namespace):
    """Runs one seed. Returns its world, and the violation if there was one."""
    from simulation import planted
    from simulation.log_rows import Violation
    from simulation.one_node import OneNodeWorld

    folder = work / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with planted.bug(given.bug) as flushes:
        durability = given.durability or ("os" if seed % 3 == 0 else "fsync")
        if given.bug is not None:
            durability = planted.BUGS[given.bug].durability
        directories = given.directories or 1 + seed // 3 % 3
        if given.bug is not None:
            directories = planted.BUGS[given.bug].directories
        world = OneNodeWorld(seed, folder, flushes, durability, directories)
        try:
            if given.every:
                world.counts["power cuts"] = world.run_with_every_cut(given.every, given.processes)
            else:
                world.run(given.lives)
        except Violation as violation:
            return world, violation
        except Exception as error:
            return world, Violation(f"an exception: {error!r}\n{traceback.format_exc()}")
        return world, None


def main(words: list[str]) -> int:
    given = parsed(words)
    if "RECORDED_FOLDER" not in os.environ:
        return run_recorded(words)
    work = Path(os.environ["RECORDED_FOLDER"]).parent
    gc.set_threshold(100_000)  # most objects stay
    if given.bugs:
        return find_bugs(work, given)
    total: Counter[str] = Counter()
    failed, began, done = [], time.monotonic(), 0
    for seed in itertools.count(given.first):
        if used_s() > given.seconds if given.seconds else done >= given.seeds:
            break
        world, violation = simulated(seed, work, given)
        done += 1
        total += world.counts
        text = f" violation: {violation}" if violation else ""
        line = f"seed {seed}: {world.counts['power cuts']} power cuts{text}"
        print(line, flush=True)
        if given.log is not None:
            with given.log.open("a") as lines:
                print(line, file=lines)
        if violation is not None:
            failed.append(seed)
        if given.trace_all or (given.trace and violation is not None):
            print("\n".join(world.trace))
        if violation is not None and given.bug:
            break
    took, cuts = time.monotonic() - began, total["power cuts"]
    print(
        f"{done} seeds, {cuts:,} power cuts in {took:.1f} s: {60 * cuts / took:,.0f} a minute, and"
        f" {60 * cuts / used_s():,.0f} a minute of a processor"
    )
    print(", ".join(f"{count:,} {kind}" for kind, count in sorted(total.items())))
    print(f"failed: {', '.join(map(str, failed)) or 'none'}")
    return 1 if failed else 0


def used_s() -> float:
    """Returns the seconds of a processor that this process and its children have used."""
    return sum(os.times()[:4])


def find_bugs(work: Path, given: argparse.Namespace) -> int:
    """Plants each bug; prints which seed finds it. Returns whether one is not found."""
    from simulation.planted import BUGS

    missed = False
    for name, planted in BUGS.items():
        given.bug, found = name, None
        for seed in range(planted.first, planted.first + given.seeds):
            _, violation = simulated(seed, work, given)
            if violation is not None:
                found = f"seed {seed}: {violation}"
                break
        missed |= found is None or planted.words not in found
        print(f"bug: {name}: {found or 'not found'}", flush=True)
    return int(missed)


def parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--first", type=int, default=1, metavar="SEED")
    parser.add_argument("--seeds", type=int, default=10, metavar="N")
    parser.add_argument("--seconds", type=float, metavar="N", help="of a processor; not --seeds")
    parser.add_argument("--lives", type=int, default=LIVES, metavar="N")
    parser.add_argument("--durability", choices=("fsync", "os"), help="os: every third seed")
    parser.add_argument("--directories", type=int, choices=(1, 2, 3), help="log.dirs: by the seed")
    parser.add_argument("--every", type=int, metavar="STEPS", help="cut the power after every call")
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="for --every")
    parser.add_argument("--bug", metavar="NAME", help="plant a bug")
    parser.add_argument("--bugs", action="store_true", help="plant each bug")
    parser.add_argument("--log", type=Path, metavar="FILE", help="also append the lines here")
    parser.add_argument("--trace", action="store_true", help="all that happened in a failing seed")
    parser.add_argument("--trace-all", action="store_true", help="the same in every seed")
    return parser.parse_args(words)


def run_recorded(words: list[str]) -> int:
    """Runs this again in a process with the recorder, in which sets of strings have the same order
    in each run."""
    import subprocess

    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    work = Path(tempfile.mkdtemp(prefix="one-node-", dir=memory))
    try:
        environment = recording.environment(work, work / FOLDER) | {"PYTHONHASHSEED": "0"}
        command = [sys.executable, "-m", "simulation.run_one_node", *words]
        return subprocess.run(command, env=environment, check=False).returncode
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
