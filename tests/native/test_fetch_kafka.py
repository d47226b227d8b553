"""The native handler answers the scenarios as Kafka 4.3.1 answered them (tests/vectors, recorded by
tests/oracle/fetch_scenarios.py from a broker with the same records)."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from native.fetch_broker import FetchBroker
from oracle.fetch_scenarios import (
    RECORDS,
    Step,
    epoch_steps,
    plain_steps,
    session_steps,
    waiting_steps,
)

KAFKA = json.loads((Path(__file__).parents[1] / "vectors/fetch-kafka-4.3.1.json").read_text())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FetchBroker]:
    made = FetchBroker(
        tmp_path_factory.mktemp("logs"), {name: len(parts) for name, parts in RECORDS.items()}
    )
    for name, parts in RECORDS.items():
        for index, (first, now, start) in parts.items():
            for batch in first:
                made.append(name, index, batch, epoch=0)
            for batch in now:
                made.append(name, index, batch)
            if start:
                made.logs[name, index].advance_log_start(start)
    yield made
    made.close()


@pytest.mark.parametrize(
    "wanted", [*plain_steps(), *waiting_steps(), *epoch_steps()], ids=lambda step: step["name"]
)
def test_the_native_handler_answers_as_kafka(broker: FetchBroker, wanted: Step) -> None:
    assert broker.ask(wanted) == KAFKA[wanted["name"]]


def test_the_native_handler_keeps_sessions_as_kafka(broker: FetchBroker) -> None:
    first = KAFKA["new v7"]["session"]  # Kafka had created some earlier, in other steps
    broker.runner.sessions.extend(range(-first, -1))
    for wanted in session_steps():
        assert broker.ask(wanted) == KAFKA[wanted["name"]], wanted["name"]
    assert broker.sessions.counters["sessions"] == 0
