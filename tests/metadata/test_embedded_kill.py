"""SIGKILL before the n-th write, fsync or truncation of the store: committed steps are there,
and no multi is half applied."""

import itertools
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from long_form import pick
from metadata import kill_script

from barnabas.metadata.embedded import EmbeddedTree

SCRIPT = Path(kill_script.__file__)
CALLS = ("pwrite64", "fdatasync", "ftruncate")


def strace_works():
    if shutil.which("strace") is None:
        return False
    return (
        subprocess.run(["strace", "-e", "trace=none", "true"], capture_output=True).returncode == 0
    )


pytestmark = pytest.mark.skipif(not strace_works(), reason="needs strace and leave to ptrace")


def run_child(directory, *strace):
    command = [*strace, sys.executable, str(SCRIPT), str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def killed_child(directory, call, number):
    """Returns whether the fault fired, and the number of committed steps."""
    inject = f"inject={call}:signal=KILL:when={number}"
    child = run_child(directory, "strace", "-qq", "-f", "-o", "/dev/null", "-e", inject)
    # strace ends itself with the signal that ended its child.
    fired = child.returncode in (-9, 137)
    assert fired or child.returncode == 0, child.stderr
    answered = [int(line) for line in child.stdout.splitlines()]
    assert answered == list(range(1, len(answered) + 1))
    assert fired or len(answered) == len(kill_script.steps())
    return fired, len(answered)


def check_reopened(directory, answered):
    tree = EmbeddedTree(directory, clock_ms=lambda: 2)
    found = {node.path: node.data for node in tree.subtree("/")}
    tree.create("/goes_on")
    tree.close()
    allowed = [kill_script.model_after(n) for n in (answered, answered + 1)]
    assert found in allowed, f"{answered} steps answered, found {sorted(found)}"


def calls_of_a_whole_run(tmp_path):
    trace = tmp_path / "trace"
    child = run_child(
        tmp_path / "whole",
        "strace",
        "-qq",
        "-f",
        "-o",
        str(trace),
        "-e",
        f"trace={','.join(CALLS)}",
    )
    assert child.returncode == 0, child.stderr
    lines = trace.read_text().splitlines()
    return {call: sum(f" {call}(" in line for line in lines) for call in CALLS}


def check_kills(tmp_path, every):
    counts = calls_of_a_whole_run(tmp_path)
    assert counts["pwrite64"] > 50 and counts["fdatasync"] > 10, counts

    def kill(call, number):
        directory = tmp_path / f"{call}-{number}"
        fired, answered = killed_child(directory, call, number)
        assert fired, f"{call} {number} of {counts[call]} was never reached"
        check_reopened(directory, answered)

    runs = [(call, n) for call, count in counts.items() for n in range(1, count + 1, every)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in [pool.submit(kill, *run) for run in runs]:
            done.result()
    fired, _answered = killed_child(tmp_path / "beyond", "fdatasync", counts["fdatasync"] + 1)
    assert not fired  # the whole run was covered


def test_killed_before_calls(tmp_path):
    """Before every thirteenth call; in the long form before each."""
    check_kills(tmp_path, every=pick(short=13, long=1))


def test_the_model_of_the_script_changes_with_each_step():
    models = [kill_script.model_after(n) for n in range(len(kill_script.steps()))]
    assert all(a != b for a, b in itertools.pairwise(models))


def test_half_a_multi_is_seen(tmp_path):
    tree = EmbeddedTree(tmp_path, clock_ms=lambda: 1)
    for operation in [kill_script.steps()[0][0], *kill_script.steps()[1][:2]]:
        tree.multi([operation])
    tree.close()
    with pytest.raises(AssertionError, match="steps answered"):
        check_reopened(tmp_path, 1)
