"""Dialogues about transactions, compared with the responses of Apache Kafka 4.3.1."""

import json

import pytest
from transactions.dialogue import CASES, RECORDED, SETTINGS, conversation

from barnabas import Broker

KAFKA = json.loads(RECORDED.read_text())

# Where responses differ on purpose: (case, what) -> why.
ON_PURPOSE: dict[tuple[str, str], str] = {
    # Kafka takes the sequence of the repeated batch as the first of the new transaction, and then
    # finds the next batch out of order; here a repeated batch has no such effect.
    ("sequences", "next"): "the next in line is taken after a repeat of the one before",
}


@pytest.fixture(scope="module", params=["fsync", "os"])
def broker(tmp_path_factory, request):
    """With os a step counts at once, with fsync the request waits for a flush."""
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


def test_every_recorded_case_is_tested():
    assert set(KAFKA) == set(CASES)
