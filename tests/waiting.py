"""The one way in which tests wait for something that another thread or process does."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Found = TypeVar("Found")

PATIENCE_S = 90.0  # more than a busy machine needs; a test that passes waits for a part of it
PAUSE_MIN_S, PAUSE_MAX_S = 0.002, 0.05


def soon(
    condition: Callable[[], Found], why: str = "it never came", patience_s: float = PATIENCE_S
) -> Found:
    """Returns the first true value of condition(). Raises AssertionError, with `why`, when there is
    none within `patience_s` seconds."""
    deadline = time.monotonic() + patience_s
    pause_s = PAUSE_MIN_S
    while not (found := condition()):
        assert time.monotonic() < deadline, why
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_MAX_S)
    return found


def pause(pid: int) -> None:
    """Stops a process (SIGSTOP). Returns when none of its threads runs: on a busy machine they may
    write and answer for some time after the signal."""
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    soon(lambda: all(map(_is_stopped, tasks.iterdir())), "it does not stop")


def _is_stopped(task: Path) -> bool:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0] == "T"
    except FileNotFoundError:  # the thread has ended
        return True
