"""On a terminal: tables with lines, and a line that counts while work takes long."""

import os
import pty
import re
import subprocess
import time
from pathlib import Path

from cli.conftest import COMMAND, run_command


def on_terminal(*words: str, stdin: bytes = b"", wait_s: float = 0.0) -> str:
    """What a command prints when both its outputs are a terminal."""
    leader, follower = pty.openpty()
    started = subprocess.Popen(
        [COMMAND, *words],
        stdin=subprocess.PIPE,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(follower)
    assert started.stdin is not None
    if wait_s:
        started.stdin.write(stdin)
        started.stdin.flush()
        time.sleep(wait_s)
    started.stdin.write(stdin)
    started.stdin.close()
    shown = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # how Linux tells that the other side is closed
            break
        if not piece:
            break
        shown += piece
    os.close(leader)
    assert started.wait(timeout=30) == 0, shown
    return shown.decode()


def test_tables_have_lines_on_a_terminal_alone(our_address: str):
    assert run_command("topics", "create", "drawn-x", "-b", our_address).status == 0
    shown = on_terminal("topics", "list", "-b", our_address)
    assert "┃" in shown and "drawn-x" in shown and "\x1b[" in shown
    piped = run_command("topics", "list", "-b", our_address).text
    assert "┃" not in piped and "\x1b" not in piped and "drawn-x" in piped


def test_values_that_look_like_markup_stay_as_they_are(tmp_path: Path):
    path = tmp_path / "meta.properties"
    path.write_text("cluster.id=a[bold]b\n")
    assert "a[bold]b" in on_terminal("log", "dump", str(path))


def test_long_work_is_counted_on_a_terminal(our_address: str):
    shown = on_terminal("produce", "counted", "-b", our_address, stdin=b"x\n" * 3, wait_s=1.3)
    assert re.search(r"\rproduced \d+ records", shown)
    assert "produced 6 records" in shown


def test_short_work_is_not(our_address: str):
    shown = on_terminal("produce", "counted", "-b", our_address, stdin=b"x\n")
    assert shown.startswith("produced 1 records")
