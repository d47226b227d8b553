"""`barnabas bench`: a table for people, one JSON document for programs, errors in one line."""

import json
import re

import pytest
from cli.conftest import Run


@pytest.mark.parametrize("verb", ["produce", "latency"])
def test_a_load_ends_with_a_table_and_a_histogram(barnabas: Run, topic: str, verb: str):
    ran = barnabas("bench", verb, topic, "--records", "500", "--rate", "5000")
    assert (ran.status, ran.err) == (0, "") or "ms late" in ran.err
    head, row = ran.text.splitlines()[:2]
    assert head.split()[:4] == ["records", "seconds", "records/s", "MB/s"]
    assert row.split()[0] == "500"
    shares = [float(share) for share in re.findall(r"([\d.]+) %", ran.text)]
    assert abs(sum(shares) - 100) < 1


def test_json_holds_all_metrics(barnabas: Run, topic: str):
    made = barnabas("bench", "produce", topic, "--records", "1200", "--json", "--codec", "lz4")
    found = json.loads(made.text)
    assert (found["records"], found["requests"]) == (1200, 2)
    assert found["load"]["codec"] == "lz4"
    latency = found["latency_us"]
    assert latency["min"] <= latency["p50"] <= latency["p99"] <= latency["max"]
    assert sum(row["count"] for row in found["histogram_us"]) == 2
    read = json.loads(barnabas("bench", "consume", topic, "--json").text)
    assert read["records"] == 1200


def test_a_topic_that_is_not_there_is_one_line(barnabas: Run):
    ran = barnabas("bench", "consume", "never-made")
    assert ran.status == 1
    assert ran.err.count("\n") == 1 and "there is no topic never-made" in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ("latency", "t", "--acks", "0"),
        ("latency", "t", "--record-bytes", "8"),
        ("produce", "t", "--rate", "0"),
        ("produce", "t", "--records", "-1"),
        ("produce", "t", "--codec", "rar"),
        (),
    ],
)
def test_what_cannot_be_is_refused(barnabas: Run, words: tuple[str, ...]):
    ran = barnabas("bench", *words)
    assert ran.status in (1, 2) and not ran.out
