"""`barnabas config check`: what a start makes of each line of a settings file, by its tables."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli.conftest import Ran, run_command

from barnabas.config import BrokerConfig, ConfigError
from barnabas.config.settings import BROKER_SETTINGS

EFFECTIVE, WITHOUT_EFFECT, REFUSED = "effective", "without effect", "refused"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "server.properties"


def check(file: Path, text: str, *words: str, **environment: str) -> Ran:
    file.write_text(text)
    return run_command("config", "check", str(file), *words, **environment)


def states(file: Path, text: str, *words: str, **environment: str) -> dict[str, tuple[str, str]]:
    """State and reason by setting."""
    got = check(file, text, *words, "--json", **environment)
    rows = json.loads(got.text)["lines"]
    return {row["setting"]: (row["state"], row["why"]) for row in rows}


def test_a_line_of_each_state(file: Path):
    text = (
        "# a comment\n"
        "log.dirs=/tmp/x\n"
        "background.threads=4\n"
        "num.partitions=zero\n"
        "log.retention.houres=3\n"
        "plugin.mine.size=5\n"
    )
    found = states(file, text)
    assert found["log.dirs"] == (EFFECTIVE, "")
    state, why = found["background.threads"]
    assert (state, why) == (
        WITHOUT_EFFECT,
        BROKER_SETTINGS["background.threads"].why_without_effect,
    )
    state, why = found["num.partitions"]
    assert state == REFUSED and why.startswith("num.partitions=zero") and f"{file} line 4" in why
    state, why = found["log.retention.houres"]
    assert state == WITHOUT_EFFECT and "Did you mean log.retention.hours?" in why
    assert found["plugin.mine.size"] == (EFFECTIVE, "")
    got = check(file, text)
    assert got.status == 1
    assert got.text.splitlines()[0].split() == ["line", "setting", "state", "why"]
    assert got.text.splitlines()[3].split()[:3] == ["4", "num.partitions", "refused"]
    assert got.err.splitlines()[-1] == (
        f"{file}: 5 settings: 2 effective, 2 without effect, 1 refused"
    )


def test_what_overrides_a_line(file: Path):
    text = "num.partitions=2\nnum.partitions=3\nlog.retention.hours=1\nlog.retention.ms=5\n"
    got = json.loads(check(file, text, "--json").text)["lines"]
    assert [(row["line"], row["state"], row["why"]) for row in got] == [
        (1, WITHOUT_EFFECT, f"overridden by {file} line 2"),
        (2, EFFECTIVE, ""),
        (3, WITHOUT_EFFECT, "overridden by log.retention.ms"),
        (4, EFFECTIVE, ""),
    ]
    found = states(file, text, "--set", "log.retention.ms=7", KAFKA_NUM_PARTITIONS="4")
    assert found["num.partitions"] == (
        WITHOUT_EFFECT,
        "overridden by environment KAFKA_NUM_PARTITIONS",
    )
    assert found["log.retention.ms"] == (WITHOUT_EFFECT, "overridden by --set")


def test_what_depends_on_the_kind_of_broker(file: Path):
    text = "zookeeper.connect=h:2181\nzookeeper.session.timeout.ms=9000\nmin.insync.replicas=2\n"
    found = states(file, text)
    assert {state for state, _ in found.values()} == {WITHOUT_EFFECT}
    assert "embedded store" in found["zookeeper.connect"][1]
    assert "only one" in found["min.insync.replicas"][1]
    found = states(file, text, "--set", "metadata.store=zookeeper")
    assert {state for state, _ in found.values()} == {EFFECTIVE}


def test_a_problem_of_two_lines_belongs_to_the_first_that_it_names(file: Path):
    found = states(file, "queued.max.request.bytes=5000\nsocket.request.max.bytes=10000\n")
    state, why = found["queued.max.request.bytes"]
    assert state == REFUSED and "less than socket.request.max.bytes=10000" in why
    assert found["socket.request.max.bytes"] == (EFFECTIVE, "")


def test_every_reference_that_is_not_found_is_named(file: Path):
    found = states(file, "log.dirs=${env:NOWHERE_1}\nnode.id=${env:NOWHERE_2}\nnum.partitions=1\n")
    assert found["log.dirs"][0] == found["node.id"][0] == REFUSED
    assert "NOWHERE_1 is not set" in found["log.dirs"][1]
    assert "NOWHERE_2 is not set" in found["node.id"][1]
    assert found["num.partitions"] == (EFFECTIVE, "")


def test_a_wrong_environment_is_no_fault_of_a_line(file: Path):
    got = check(file, "num.partitions=2\n", "--json", KAFKA_NUM_PARTITIONS="many")
    assert got.status == 1
    shown = json.loads(got.text)
    assert shown["lines"][0]["state"] == WITHOUT_EFFECT
    [problem] = shown["problems"]
    assert "environment KAFKA_NUM_PARTITIONS" in problem


def test_a_secret_is_not_shown(file: Path):
    text = "password.encoder.secret=swordfish\n"
    file.write_text("")
    file.chmod(0o600)
    for words in ((), ("--json",)):
        got = check(file, text, *words)
        assert got.status == 0, got.err
        assert "swordfish" not in got.text + got.err


@pytest.mark.parametrize(
    ("text", "said"), [("a=\\u00zz\n", "line 1: \\u00zz"), ("a\0b", "a binary file")]
)
def test_a_file_that_is_no_settings_file_is_one_line(file: Path, text: str, said: str):
    got = check(file, text)
    assert got.status == 1 and got.out == b"" and said in got.err
    assert len(got.err.splitlines()) == 1


def test_the_start_refuses_what_the_check_refuses(file: Path, tmp_path: Path):
    """Both print the same line, and every file of this table is treated alike."""
    for line in (
        "num.partitions=zero",
        "listeners=PLAINTEXT://0.0.0.0:0",
        "controller.quorum.voters=1@a:9093,2@b:9093",
        "metadata.store=zookeeper",
        "log.dirs=",
        "ssl.provider=SunJSSE",
        "num.partitions=1",
        "background.threads=4",
        "authorizer.class.name=org.example.Mine",
    ):
        got = check(file, f"{line}\n", "--json")
        shown = json.loads(got.text)
        said = [row["why"] for row in shown["lines"] if row["state"] == REFUSED]
        try:
            BrokerConfig.load(file, environ={})
        except ConfigError as error:
            assert got.status == 1 and [*said, *shown["problems"]] == error.problems, line
        else:
            assert got.status == 0 and not said, line
    check(file, f"log.dirs={tmp_path / 'data'}\nnum.partitions=zero\n")
    started = subprocess.run(
        [sys.executable, "-m", "barnabas", "start", "--config", str(file)],
        capture_output=True,
        text=True,
        timeout=30,
    )
    [row] = [
        row
        for row in json.loads(run_command("config", "check", str(file), "--json").text)["lines"]
        if row["state"] == REFUSED
    ]
    assert started.returncode == 1 and started.stderr == f"barnabas: {row['why']}\n"
