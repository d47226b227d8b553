"""The parsers that `run fuzz` fuzzes, with their seeds: whole, cut, and with one changed byte."""

import contextlib
import random

import pytest
from long_form import pick
from sanitizers.parsers import NAMES, Parsers, seeds

EVERY = pick(short=7, long=1)  # of the seeds of a parser with hundreds of them


@pytest.fixture(scope="module")
def parsers(tmp_path_factory):
    with contextlib.ExitStack() as stack:
        yield Parsers(tmp_path_factory.mktemp("parsers"), stack)


@pytest.mark.parametrize("name", NAMES)
def test_seeds_whole_and_damaged(parsers, name):
    parse, rng = getattr(parsers, name), random.Random(17)
    found = [data for kind, data in seeds() if kind == name]
    for data in found[:: EVERY if len(found) > 100 else 1]:
        parse(data)
        parse(data[: rng.randrange(len(data))])
        changed = bytearray(data)
        changed[rng.randrange(len(data))] = rng.randrange(256)
        parse(bytes(changed))
