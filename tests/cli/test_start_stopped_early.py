"""A signal that arrives just when `barnabas start` begins to wait for signals stops the broker,
too."""

import os
import signal
import subprocess
import sys

import pytest

# Sends the signal from inside whatever `serve` calls to wait: a read of a pipe, or a condition's
# wait, whose lock is held then.
STARTED = """
import os, sys
from barnabas.cli import main, start

sent = []

def waits(frame, event, function):
    if event == "c_call" and frame.f_code is start.serve.__code__ and function.__name__ == "read":
        return True
    back = frame.f_back and frame.f_back.f_back
    named = event == "call" and frame.f_code.co_name == "wait"
    return named and back is not None and back.f_code is start.serve.__code__

def profile(frame, event, function):
    if not sent and waits(frame, event, function):
        sent.append(True)
        os.kill(os.getpid(), int(sys.argv[1]))

sys.setprofile(profile)
status = main(["start", "--quiet", *sys.argv[2:]])
assert sent
raise SystemExit(status)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_at_the_first_moment_of_waiting_stops_the_broker(tmp_path, number):
    arguments = ["--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", f"log.dirs={tmp_path}"]
    ran = subprocess.run(
        [sys.executable, "-c", STARTED, str(int(number)), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"BARNABAS_DEBUG": "1"},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.rstrip().endswith("stopped")
