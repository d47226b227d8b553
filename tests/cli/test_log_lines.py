"""The log of `barnabas start` as JSON: every line is an object, whatever is in it."""

import io
import json
import logging
import re
import socket
import subprocess
import sys
import threading

import pytest
from durability.broker_process import free_port

from barnabas.telemetry import json_lines

KEYS = {"time", "level", "logger", "thread", "message"}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def start(data, port: int, *settings: str) -> subprocess.Popen[str]:
    given = [f"log.dirs={data}", f"listeners=PLAINTEXT://127.0.0.1:{port}", *settings]
    words = [word for setting in given for word in ("--set", setting)]
    command = [sys.executable, "-m", "barnabas", "start", *words]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def logged(line: str) -> dict[str, str]:
    row = json.loads(line)
    assert row.keys() - {"exception"} == KEYS and TIME.fullmatch(row["time"]), line
    return row


def test_logging_format_json(tmp_path):
    """logging.format=json: the lines of the start, those of the log, and those of the stop."""
    given = ("logging.format=json", "background.threads=9", "default.replication.factor=3")
    with start(tmp_path, free_port(), *given) as broker:
        assert broker.stderr is not None
        rows = []
        for line in broker.stderr:
            rows.append(logged(line))
            if rows[-1]["message"].startswith("ready: "):
                broker.terminate()
    assert broker.returncode == 0
    said = [row["message"] for row in rows]
    assert any("background.threads has no effect" in text for text in said)
    assert any(text.startswith("ready: PLAINTEXT://127.0.0.1:") for text in said)
    assert said[-1] == "stopped"
    [factor] = [row for row in rows if "default.replication.factor=3" in row["message"]]
    assert (factor["level"], factor["logger"]) == ("WARNING", "barnabas.node")


def test_a_refused_start_is_one_object(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with start(tmp_path, port, "logging.format=json") as broker:
            assert broker.stderr is not None
            rows = [logged(line) for line in broker.stderr]
    assert broker.returncode == 1
    last = rows[-1]
    assert (last["level"], last["logger"]) == ("ERROR", json_lines.START)
    assert f"cannot listen on 127.0.0.1:{port}" in last["message"]


def test_another_form_is_refused(tmp_path):
    with start(tmp_path, free_port(), "logging.format=xml") as broker:
        assert broker.stderr is not None
        assert "logging.format" in broker.stderr.read()
    assert broker.returncode == 1


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch):
    """What the root logger prints as JSON, and the function for the start's own lines."""
    written = io.StringIO()
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [logging.StreamHandler(written)])
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    say = json_lines.begin()
    yield lambda: [logged(line) for line in written.getvalue().splitlines()], say
    logging.captureWarnings(False)


def test_an_exception_and_a_text_from_outside_stay_in_their_line(lines):
    read, _ = lines
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("barnabas.tests").exception('topic %s "x"\x1b[31m', "a\r\nb\u2028")
    [row] = read()
    assert row["message"] == 'topic a\r\nb\u2028 "x"\x1b[31m'
    assert row["level"] == "ERROR" and row["logger"] == "barnabas.tests"
    assert row["exception"].startswith("Traceback ")
    assert row["exception"].endswith("ValueError: two\nlines")


def test_half_a_character_is_printed_as_ascii():
    """Not logged, because a report of pytest-xdist cannot have such a text."""
    record = logging.LogRecord("barnabas.tests", logging.INFO, "", 0, "topic %s", ("\ud800",), None)
    line = json_lines.JsonFormatter().format(record)
    assert line.isascii() and logged(line)["message"] == "topic \ud800"


def test_the_exception_of_a_thread_is_logged(lines):
    read, _ = lines

    def fail() -> None:
        raise OSError("the disk is gone")

    thread = threading.Thread(target=fail, name="retention")
    thread.start()
    thread.join()
    [row] = read()
    assert (row["level"], row["thread"]) == ("CRITICAL", "retention")
    assert row["message"] == "thread retention failed"
    assert row["exception"].endswith("OSError: the disk is gone")


def test_lines_of_the_start_are_printed_at_every_level(lines, monkeypatch):
    """`--quiet` shows them too, as it does in text."""
    read, say = lines
    monkeypatch.setattr(logging.getLogger("barnabas"), "level", logging.ERROR)
    say("ready: PLAINTEXT://127.0.0.1:9092")
    logging.getLogger("barnabas.log_lines").info("not shown")
    assert [row["message"] for row in read()] == ["ready: PLAINTEXT://127.0.0.1:9092"]
