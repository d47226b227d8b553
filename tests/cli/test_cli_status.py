"""`barnabas status`: one broker, as a health check sees it."""

import json
import socket
from types import SimpleNamespace

from cli.conftest import Run, run_command

from barnabas import Broker
from barnabas.cli import status


def test_a_broker_that_is_well(barnabas: Run, address: str):
    got = barnabas("status")
    assert got.status == 0, got.text + got.err
    lines = got.text.splitlines()
    assert lines[0].startswith("up: broker ") and f" at {address}, cluster " in lines[0]
    assert lines[1].startswith("listener: PLAINTEXT://")
    assert any(line.startswith("directory: /") and "GB free" in line for line in lines)
    assert lines[-1] == "problems: none"
    found = json.loads(barnabas("status", "--json").text)
    assert found["isUp"] is True and found["address"] == address and found["problems"] == []
    assert isinstance(found["broker"], int) and len(found["clusterId"]) == 22
    [directory] = found["directories"]
    assert 0 < directory["freeBytes"] <= directory["totalBytes"] and directory["error"] is None


def test_no_broker_answers():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    got = run_command("status", "-b", address, "--ignore-problems")
    assert got.status == 1 and got.out == b""
    assert got.err.startswith(f"barnabas: down: cannot connect to {address}")
    assert len(got.err.splitlines()) == 1
    got = run_command("status", "-b", address, "--json")
    assert got.status == 1
    shown = json.loads(got.text)
    assert shown["isUp"] is False and address in shown["problems"][0]


def test_a_failed_directory_is_a_problem(tmp_path):
    good, bad = tmp_path / "good", tmp_path / "bad"
    bad.write_bytes(b"")  # a file, so that each use of the directory is an error
    settings = {"log.dirs": f"{good},{bad}", "listeners": "PLAINTEXT://127.0.0.1:0"}
    with Broker(settings) as broker:
        at = ("-b", broker.bootstrap_servers)
        got = run_command("status", *at)
        assert got.status == 1
        [problem] = [line for line in got.text.splitlines() if line.startswith("problem: ")]
        assert problem.startswith(f"problem: {bad}: the directory failed (KAFKA_STORAGE_ERROR)")
        assert run_command("status", "--ignore-problems", *at).status == 0
        shown = json.loads(run_command("status", "--json", *at).text)
        errors = {row["directory"]: row["error"] for row in shown["directories"]}
        assert errors == {str(good): None, str(bad): "KAFKA_STORAGE_ERROR"}


def test_a_full_disk_is_a_problem():
    def problem(total: int, free: int) -> str:
        row = SimpleNamespace(logDir="/data", errorCode=0, totalBytes=total, usableBytes=free)
        return status._disk_problem(row)

    gigabyte = 10**9
    assert problem(100 * gigabyte, 4 * gigabyte).startswith("/data: 4.0 % of the disk is free.")
    assert problem(100 * gigabyte, 6 * gigabyte) == ""
    assert problem(1000 * gigabyte, 11 * gigabyte) == "", "10 GB are enough on a large disk"
    assert problem(-1, -1) == "", "Kafka before 3.3 does not say it"
