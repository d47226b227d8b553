"""What is said about transactions, beside what Apache Kafka 4.3.1 said to the same."""

import json

import pytest
from transactions.dialogue import CASES, RECORDED, SETTINGS, conversation

from barnabas import Broker

KAFKA = json.loads(RECORDED.read_text())

# What is said otherwise, on purpose: (case, what) -> why.
ON_PURPOSE: dict[tuple[str, str], str] = {
    # Kafka keeps the sequence of the repeated batch as the first of the new transaction, and then
    # finds the batch that follows out of order; a producer must not be punished for a repeat.
    ("sequences", "next"): "the next in line is taken after a repeat of the one before",
}


@pytest.fixture(scope="module", params=["fsync", "os"])
def broker(tmp_path_factory, request):
    """With os an append counts at once, with fsync the request waits for a flush."""
    settings = {
        "log.durability": request.param,
        "log.dirs": str(tmp_path_factory.mktemp("broker")),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        **SETTINGS,
    }
    with Broker(settings) as running:
        yield running


@pytest.mark.parametrize("name", CASES)
def test_transactions_are_answered_as_by_kafka(broker, name):
    ours = conversation(broker.bootstrap_servers, name)
    theirs = KAFKA[name]
    assert [row[0] for row in ours] == [row[0] for row in theirs]
    for mine, expected in zip(ours, theirs, strict=True):
        if (name, mine[0]) not in ON_PURPOSE:
            assert mine == expected, mine[0]


def test_every_recorded_case_is_said():
    assert set(KAFKA) == set(CASES)
