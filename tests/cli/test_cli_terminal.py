"""On a terminal: tables with lines, and a progress line for work that takes long."""

import os
import pty
import re
import select
import subprocess
import time
from pathlib import Path

from cli.conftest import COMMAND, run_command

TIMEOUT_S = 30


class OnTerminal:
    """A running command whose two outputs are a terminal; `shown` is what it has printed so far."""

    def __init__(self, *words: str) -> None:
        self.shown = b""
        self._leader, follower = pty.openpty()
        self.process = subprocess.Popen(
            [COMMAND, *words],
            stdin=subprocess.PIPE,
            stdout=follower,
            stderr=follower,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        )
        os.close(follower)

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def read(self, wait_s: float) -> bool:
        """Reads what arrives within that time. Returns False at the end of the output."""
        if not select.select([self._leader], [], [], wait_s)[0]:
            return True
        try:
            piece = os.read(self._leader, 65536)
        except OSError:  # Linux's error for a terminal whose other side is closed
            piece = b""
        self.shown += piece
        return bool(piece)

    def finish(self) -> str:
        assert self.process.stdin is not None
        self.process.stdin.close()
        while self.read(TIMEOUT_S):
            pass
        os.close(self._leader)
        assert self.process.wait(timeout=TIMEOUT_S) == 0, self.shown
        return self.shown.decode()


def test_tables_have_lines_on_a_terminal_alone(our_address: str):
    assert run_command("topics", "create", "drawn-x", "-b", our_address).status == 0
    shown = OnTerminal("topics", "list", "-b", our_address).finish()
    assert "┃" in shown and "drawn-x" in shown and "\x1b[" in shown
    piped = run_command("topics", "list", "-b", our_address).text
    assert "┃" not in piped and "\x1b" not in piped and "drawn-x" in piped


def test_values_that_look_like_markup_stay_as_they_are(tmp_path: Path):
    path = tmp_path / "meta.properties"
    path.write_text("cluster.id=a[bold]b\n")
    assert "a[bold]b" in OnTerminal("log", "dump", str(path)).finish()


def test_long_work_is_counted_on_a_terminal(our_address: str):
    command = OnTerminal("produce", "counted", "-b", our_address)
    deadline = time.monotonic() + TIMEOUT_S
    sent = 0
    while b"\rproduced" not in command.shown and time.monotonic() < deadline:
        command.write(b"x\n" * 5000)  # more than is collected before a line is read
        sent += 5000
        command.read(0.1)
    shown = command.finish()
    assert re.search(r"\rproduced \d+ records", shown)
    assert shown.rstrip().split("\x1b[K")[-1].startswith(f"produced {sent} records")


def test_short_work_is_not(our_address: str):
    command = OnTerminal("produce", "counted", "-b", our_address)
    command.write(b"x\n")
    assert "produced 1 record, " in command.finish()


def test_a_file_of_known_size_shows_how_much_is_done(our_address: str, tmp_path: Path):
    """F41: no percentage. Short work shows none; the machine decides how many lines are short."""
    path = tmp_path / "lines"
    percents: list[int] = []
    for lines in (600_000, 2_400_000, 9_600_000):
        path.write_bytes(b"x\n" * lines)
        shown = OnTerminal("produce", "percent", str(path), "-b", our_address).finish()
        found = re.findall(r"\rproduced \d+ records[^\r]*, (\d+) %", shown)
        if percents := [int(text) for text in found]:
            break
    assert percents and percents == sorted(percents) and percents[-1] <= 100
