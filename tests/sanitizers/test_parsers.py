"""The parsers that `make fuzz` fuzzes, with their seeds: whole, cut, and with one changed byte."""

import contextlib
import random

import pytest
from long_form import pick
from sanitizers.parsers import NAMES, parser

EVERY = pick(short=7, long=1)  # of the seeds of a parser with hundreds of them


@pytest.mark.parametrize("name", NAMES)
def test_seeds_whole_and_damaged(name, tmp_path):
    found, rng = parser(name), random.Random(17)
    seeds = list(found.seeds())
    assert seeds
    with contextlib.ExitStack() as stack:
        parse = found.make(tmp_path, stack)
        for data in seeds[:: EVERY if len(seeds) > 100 else 1]:
            parse(data)
            if data:
                parse(data[: rng.randrange(len(data))])
                changed = bytearray(data)
                changed[rng.randrange(len(data))] = rng.randrange(256)
                parse(bytes(changed))
