"""The fuzzer reports a crash and a slow input of a parser, and counts the runs.

Its engine is atheris, which the tests do without: a module of that name reads each seed once.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sanitizers import fuzz
from sanitizers.fuzz_report import LINES, PAGE, page, table
from sanitizers.parsers import NAMES

ENGINE = """
import contextlib, os, pathlib, sys
def instrument_imports(include):
    return contextlib.nullcontext()
def Setup(arguments, parse):
    global corpus, one
    corpus, one = pathlib.Path(arguments[1]), parse
def Fuzz():
    runs = 0
    for runs, path in enumerate(sorted(corpus.iterdir()), 1):
        one(path.read_bytes())
    print("cov: 5 ft: 6", "stat::number_of_executed_units: %d" % runs, "stat::peak_rss_mb: 7",
          sep="\\n", flush=True)
    os._exit(0)
"""
PLANTED = """
import time
from sanitizers import parsers
from sanitizers.parsers import headers
def busy(seconds):
    ends = time.process_time() + seconds
    while time.process_time() < ends:
        pass
def broken(data):
    if data[:2] == b"\\0\\x12":  # ApiVersions
        {defect}
headers.PARSERS["request_header"] = parsers.Parser(parsers.of(broken), headers.request_headers)
"""
TESTS = Path(__file__).parents[1]


def fuzzed(folder: Path, defect: str = "") -> tuple[int, dict]:
    """Fuzzes the parser of request headers, with a defect or as it is. Returns the status, and what
    was counted."""
    (folder / "atheris.py").write_text(ENGINE)
    if defect:
        (folder / "sitecustomize.py").write_text(PLANTED.format(defect=defect))
    given = {"PYTHONPATH": f"{folder}:{TESTS}:{TESTS / 'native'}", "FUZZ_COMMIT": "abc"}
    done = subprocess.run(
        [sys.executable, TESTS / "sanitizers" / "fuzz.py", folder, "--parser", "request_header",
         "--runs", "1"],
        env=os.environ | given, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    [line] = (folder / fuzz.RUNS).read_text().splitlines()
    assert ("findings/request_header" in done.stdout) == (done.returncode != 0), done.stderr
    return done.returncode, json.loads(line)


def test_the_runs_of_a_sound_parser_are_counted(tmp_path):
    status, row = fuzzed(tmp_path)
    assert (status, row["findings"], row["native"], row["commit"]) == (0, 0, True, "abc")
    assert row["runs"] > 500 and row["edges"] == 5 and row["peak_rss_mb"] == 7
    assert fuzz.runs_left("request_header", tmp_path / fuzz.RUNS) == 10_000_000 - row["runs"]
    assert fuzz.runs_left("login", tmp_path / fuzz.RUNS) == 500_000


def test_a_planted_crash_is_a_finding(tmp_path):
    status, row = fuzzed(tmp_path, "raise IndexError(7)")
    assert (status, row["findings"]) == (1, 1)
    assert "IndexError: 7" in (tmp_path / "request_header.log").read_text()


def test_a_planted_slow_input_is_a_finding(tmp_path):
    defect = "busy(1.1)"
    status, row = fuzzed(tmp_path, defect)
    assert (status, row["findings"]) == (1, 1)
    assert 1.1 <= row["slowest_s"] < 10
    assert "SlowCase" in (tmp_path / "request_header.log").read_text()


def test_an_input_that_is_slow_only_once_is_none(capsys):
    now = iter([0.0, 3.0, 3.0, 3.2, 4.0, 4.1])
    seen: list[bytes] = []
    parse = fuzz.timed(seen.append, lambda: next(now))
    parse(b"a")
    parse(b"b")
    assert seen == [b"a", b"a", b"b"]
    assert capsys.readouterr().err == "slowest: 0.2000 s, 1 bytes\n"


def test_a_slow_input_ends_the_runs():
    now = iter([0.0, 3.0, 3.0, 4.5])
    with pytest.raises(fuzz.SlowCase, match="1.5 s"):
        fuzz.timed(lambda data: None, lambda: next(now))(b"a")


def test_the_page_has_the_lines_that_were_counted():
    lines = LINES.read_text().splitlines()
    assert PAGE.read_text() == page(PAGE.read_text(), lines)
    assert table(lines).count("\n") == len(NAMES) + 1
