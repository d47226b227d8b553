"""Each parser reads random changes of its seeds, which are others in each run: two minutes of a
processor for all parsers together.

    cd tests && python -m sanitizers.fresh PARSER --seed N      repeats a run
"""

import base64
import json
import os
import re
import subprocess
import sys

import pytest
from long_form import pick
from sanitizers.parsers import NAMES

SECONDS = pick(short=120, long=3600) / len(NAMES)
TESTS = os.path.dirname(os.path.dirname(__file__))
BROKEN = """
import ctypes, sys, time
from sanitizers import fresh, parsers
def busy():
    ends = time.process_time() + 1.1
    while time.process_time() < ends:
        pass
kept = []
def parse(data):
    {body}
fresh.RSS_MB_MAX = 300
parsers.parser = fresh.parser = lambda _: parsers.Parser(lambda *_: parse, lambda: [b"a" * 30])
sys.exit(fresh.main())
"""

pytestmark = [pytest.mark.takes(seconds=150), pytest.mark.timeout(pick(short=300, long=2000))]


def run(*words, source=None):
    start = ["-m", "sanitizers.fresh"] if source is None else ["-c", source]
    command = [sys.executable, *start, *map(str, words)]
    return subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", NAMES)
def test_random_changes(name):
    done = run(name, "--seconds", SECONDS)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    print(done.stdout)
    assert json.loads(done.stdout.splitlines()[-1])["runs"] >= 64


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("assert b'b' not in data", "AssertionError"),
        ("busy()", "SlowCase"),
        ("len(data) > 33 and ctypes.string_at(1)", "Segmentation fault"),
        ("kept or kept.append(b'x' * 400_000_000)", "index took"),
    ],
)
def test_planted_defects_are_found(body, said):
    source = BROKEN.format(body=body)
    done = run("index", "--seed", 7, "--seconds", 1, source=source)
    assert done.returncode != 0
    assert said in done.stderr
    assert done.stdout.startswith("seed 7\n")


def test_a_seed_repeats_its_inputs():
    source = BROKEN.format(body="assert b'b' not in data")
    first, second = (run("index", "--seed", 7, source=source) for _ in range(2))
    assert first.stdout == second.stdout
    [data] = re.findall(r"failed at input \d+: (\S+)", first.stdout)
    assert b"b" in base64.b64decode(data)
    assert run("index", "--seed", 8, source=source).stdout != first.stdout
