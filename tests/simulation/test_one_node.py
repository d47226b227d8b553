"""A simulated broker loses nothing that was acknowledged when its power is cut or, with
log.durability=os, only the unflushed ends of logs, and serves its other log directories when one
fails; planted bugs are found.

    BARNABAS_HISTORY_SEED=7 pytest tests/simulation/test_one_node.py -s     runs a seed again
"""

import os
import random
import re
import subprocess
import sys

import pytest
from durability import recording
from long_form import pick
from simulation.planted import BUGS

pytestmark = [
    pytest.mark.takes(seconds=30),
    pytest.mark.timeout(pick(short=900, long=14_400)),
    pytest.mark.skipif(recording.missing() is not None, reason=recording.missing() or ""),
]

SECONDS = pick(short=5, long=1800)  # of a processor
EVERY_STEPS, EVERY_SEEDS = pick(short=8, long=150), pick(short=1, long=10)
FAILING_SEEDS = pick(short=2, long=100)
BUG_SEEDS = 20


def run(*words):
    """Runs seeds in a process with the recorder. Returns its exit status and what it printed."""
    command = [sys.executable, "-m", "simulation.run_one_node", *map(str, words)]
    environment = os.environ | {"PYTHONPATH": str(recording.TESTS)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def first_seed():
    seed = int(os.environ.get("BARNABAS_HISTORY_SEED", 0)) or random.getrandbits(32)
    print(f"BARNABAS_HISTORY_SEED={seed} runs these seeds again")
    return seed


def count_of(what, text):
    found = re.search(rf"([\d,]+) {what}", text)
    return int(found[1].replace(",", "")) if found else 0


def test_fresh_seeds():
    status, text = run("--first", first_seed(), "--seconds", SECONDS, "--trace")
    print(text[-3000:])
    assert status == 0, text
    assert count_of("power cuts", text) > 10
    assert count_of("acknowledged", text) > 0


def test_a_log_directory_that_fails():
    words = ["--first", first_seed(), "--seeds", FAILING_SEEDS, "--directories", 2, "--trace"]
    status, text = run(*words)
    print(text[-3000:])
    assert status == 0, text
    assert count_of("failed calls", text) > 0
    assert count_of("checks beside a failed directory", text) >= pick(short=0, long=1)
    assert count_of("flushes of logs that failed", text) >= pick(short=0, long=1)


def test_a_power_cut_after_every_call():
    words = ["--first", first_seed(), "--seeds", EVERY_SEEDS, "--every", EVERY_STEPS]
    status, text = run(*words)
    print(text[-3000:])
    assert status == 0, text
    assert count_of("power cuts", text) > EVERY_STEPS


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_a_seed_repeats_exactly(durability):
    words = ["--first", first_seed(), "--seeds", 1, "--lives", 4, "--trace-all"]
    words += ["--durability", durability, "--directories", 2]
    first, second = (run(*words)[1].splitlines() for _ in range(2))
    assert [row for row in first if "a minute" not in row] == [
        row for row in second if "a minute" not in row
    ]
    assert any("power cuts after" in row for row in first)


@pytest.fixture(scope="module")
def what_finds_bugs():
    _, text = run("--bugs", "--seeds", BUG_SEEDS)
    print(text)
    rows = [row.split(": ", 2) for row in text.splitlines() if row.startswith("bug: ")]
    return {name: found for _, name, found in rows}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(what_finds_bugs, bug):
    assert "seed" in what_finds_bugs[bug] and BUGS[bug].words in what_finds_bugs[bug]
