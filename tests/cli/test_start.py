"""`barnabas start`: one line when the start fails, and a clean stop on request."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from cli.conftest import run_command
from durability.broker_process import BrokerProcess, free_port


def refused(*settings: str) -> str:
    """The one line that a failed start prints."""
    words = [word for setting in settings for word in ("--set", setting)]
    ended = subprocess.run(
        [sys.executable, "-m", "barnabas", "start", "--quiet", *words],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert ended.returncode != 0
    assert ended.stdout == ""
    lines = ended.stderr.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("barnabas: ")
    return lines[0]


def where(data, port: int) -> tuple[str, str]:
    return f"log.dirs={data}", f"listeners=PLAINTEXT://127.0.0.1:{port}"


def test_second_broker_on_a_directory_is_refused(tmp_path):
    with BrokerProcess(tmp_path, free_port()) as broker:
        line = refused(*where(tmp_path, free_port()))
        assert "another broker is using" in line and str(tmp_path) in line
        assert broker.process.poll() is None
        socket.create_connection(("127.0.0.1", broker.port), timeout=5).close()


def test_taken_port_is_refused(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = refused(*where(tmp_path, port))
    assert f"127.0.0.1:{port}" in line


def test_directory_of_another_cluster_is_refused(tmp_path):
    port = free_port()
    BrokerProcess(tmp_path, port).stop()
    meta = tmp_path / "meta.properties"
    meta.write_text(re.sub(r"cluster.id=.*", "cluster.id=AnchorAnchorAnchorAnAA", meta.read_text()))
    assert "AnchorAnchorAnchorAnAA" in refused(*where(tmp_path, port))


def test_changed_broker_id_is_refused(tmp_path):
    port = free_port()
    BrokerProcess(tmp_path, port, {"broker.id": 1}).stop()
    line = refused(*where(tmp_path, port), "broker.id=2")
    assert "node 1" in line and "node 2" in line


@pytest.mark.parametrize("setting", ["num.partitions=many", "log.durability=perhaps"])
def test_bad_setting_is_refused(tmp_path, setting):
    line = refused(*where(tmp_path, free_port()), setting)
    assert setting.partition("=")[0] in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("log.retention.houres=3", "Did you mean log.retention.hours?"),
        ("xyzzy=1", "docs/settings.md lists all"),
    ],
)
def test_an_unknown_set_name_is_a_usage_error_with_a_suggestion(tmp_path, setting, said):
    """F24: the start only warned, and went on with the default."""
    got = run_command("start", "--set", f"log.dirs={tmp_path}", "--set", setting)
    assert got.status == 2 and got.out == b""
    name = setting.partition("=")[0]
    assert got.err.startswith(f"barnabas: --set {name}: this setting is not known.")
    assert said in got.err and len(got.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stop_is_clean(tmp_path, how):
    broker = BrokerProcess(tmp_path, free_port())
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert broker.stop(how) == 0
    assert broker.lines[-1] == "stopped"
    assert json.loads((tmp_path / ".kafka_cleanshutdown").read_text())["version"] == 0
    again = BrokerProcess(tmp_path, broker.port)
    assert again.stop() == 0
    assert any("no recovery was needed" in line for line in again.lines), again.lines


def test_a_signal_that_another_thread_handles_stops_the_broker(tmp_path):
    """Linux gives a signal of the process to the thread that `kill` names. The broker waited on a
    lock then, and never stopped; with strace or a debugger it happened without that."""
    broker = BrokerProcess(tmp_path, free_port())
    tasks = Path(f"/proc/{broker.process.pid}/task").iterdir()
    [thread] = [row.name for row in tasks if (row / "comm").read_text() == "retention\n"]
    os.kill(int(thread), signal.SIGTERM)
    assert broker.process.wait(20) == 0
    assert broker.stop() == 0
    assert broker.lines[-1] == "stopped"


def test_start_after_kill_says_that_it_recovers(tmp_path):
    broker = BrokerProcess(tmp_path, free_port())
    broker.kill()
    again = BrokerProcess(tmp_path, broker.port)
    again.stop()
    assert any("not closed cleanly" in line for line in again.lines), again.lines
