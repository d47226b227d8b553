"""Gives one parser random changes of its seeds for some seconds of CPU.

    cd tests && python -m sanitizers.fresh PARSER [--seed N] [--seconds N]

This is what CI does for each parser, on the build that it tests: without coverage or a sanitizer
(`make fuzz` has both), so it starts at once. It fails as fuzz.py does: with an error that is not
the parser's own, with more than SLOW_S of CPU, or with a crash; and with more than RSS_MB_MAX. The
same seed makes the same inputs.
"""

import argparse
import base64
import contextlib
import faulthandler
import json
import os
import random
import resource
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sanitizers.fuzz import INPUT_BYTES_MAX, MEMORY, RSS_MB_MAX, SEED_BYTES_MAX, timed
from sanitizers.parsers import NAMES, parser

CHANGES_OF_ONE_INPUT = (1, 1, 1, 2, 2, 3, 5, 8)
NUMBERS = [
    struct.pack(form, value)
    for form, bits in ((">b", 8), (">h", 16), (">i", 32), (">q", 64))
    for value in (-1, 0, 1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 2 ** (bits - 2))
]
TURN = 64  # inputs between two looks at the clock


def place(rng: random.Random, data: bytearray) -> tuple[int, int]:
    """A range of the bytes, most often a short one."""
    begin = rng.randrange(len(data) + 1)
    return begin, min(len(data), begin + rng.randrange(1, rng.choice((3, 9, 100)) + 1))


def flip(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def write_number(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    number = rng.choice(NUMBERS)
    at = rng.randrange(len(data) + 1)
    data[at : at + len(number)] = number


def write_random(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    begin, end = place(rng, data)
    data[begin:end] = rng.randbytes(end - begin)


def insert(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    begin, _end = place(rng, data)
    data[begin:begin] = rng.randbytes(rng.randrange(1, 10))


def repeat(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    begin, end = place(rng, data)
    data[begin:begin] = data[begin:end] * rng.choice((1, 1, 2, 20))


def remove(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    begin, end = place(rng, data)
    del data[begin:end]


def cut(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[rng.randrange(len(data) + 1) :]


def splice(rng: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    other = rng.choice(seeds)
    data[rng.randrange(len(data) + 1) :] = other[rng.randrange(len(other) + 1) :]


CHANGES = (
    flip,
    flip,
    write_number,
    write_number,
    write_random,
    insert,
    repeat,
    remove,
    cut,
    splice,
)


def inputs(seeds: Sequence[bytes], rng: random.Random) -> Callable[[], bytes]:
    def next_input() -> bytes:
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.choice(CHANGES_OF_ONE_INPUT)):
            rng.choice(CHANGES)(rng, data, seeds)
        return bytes(data[:SEED_BYTES_MAX])

    return next_input


def run(name: str, seed: int, seconds: float) -> int:
    """Returns the number of inputs."""
    found = parser(name)
    seeds = [data[:INPUT_BYTES_MAX] for data in found.seeds()]
    next_input = inputs(seeds, random.Random(seed))
    runs = 0
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=MEMORY))
        parse = timed(found.make(Path(folder), stack), time.process_time)
        ends = time.process_time() + seconds
        while time.process_time() < ends:
            for _ in range(TURN):
                data = next_input()
                try:
                    parse(data)
                except BaseException:
                    print(f"{name} failed at input {runs}: {base64.b64encode(data).decode()}")
                    raise
                runs += 1
    return runs


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("parser", choices=NAMES)
    options.add_argument("--seed", type=int, default=None)
    options.add_argument("--seconds", type=float, default=3)
    given = options.parse_args()
    seed = random.SystemRandom().getrandbits(31) if given.seed is None else given.seed
    faulthandler.enable()
    print(f"seed {seed}", flush=True)
    runs = run(given.parser, seed, given.seconds)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"parser": given.parser, "runs": runs, "peak_rss_mb": peak_mb}), flush=True)
    if peak_mb > RSS_MB_MAX:
        print(f"{given.parser} took {peak_mb} MB", file=sys.stderr)
    sys.stdout.flush()
    os._exit(peak_mb > RSS_MB_MAX)  # threads of the parser's broker need no end


if __name__ == "__main__":
    sys.exit(main())
