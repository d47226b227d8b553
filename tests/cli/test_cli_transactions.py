"""Commands for transactions, with our broker and with Apache Kafka."""

import json

import pytest
from cli.conftest import Run
from transactions.dialogue import Talk


@pytest.fixture
def talk(address: str, request: pytest.FixtureRequest):
    plain = "".join(c if c.isalnum() else "-" for c in request.node.name)
    made = Talk(address, plain)
    yield made
    made.wire.close()


def test_a_transaction_is_listed_and_described(barnabas: Run, talk: Talk):
    producer = talk.begun(0, 1)
    rows = json.loads(barnabas("transactions", "list", "--state", "Ongoing", "--json").text)
    mine = [row for row in rows if row["transactionalId"] == talk.txn]
    assert mine == [{"transactionalId": talk.txn, "producerId": producer[0], "state": "Ongoing"}]
    assert talk.txn in barnabas("transactions", "list", "--pattern", f"{talk.txn[:-1]}.").text
    assert talk.txn not in barnabas("transactions", "list", "--longer-than", "3600000").text
    told = barnabas("transactions", "describe", talk.txn)
    assert f"{talk.txn}: Ongoing, open for " in told.text
    assert f"  writes to {talk.topic}-1\n" in told.text
    row = json.loads(barnabas("transactions", "describe", talk.txn, "--json").text)[0]
    assert (row["producerId"], row["producerEpoch"], row["timeoutMs"]) == (*producer, 60_000)
    assert talk.end(producer, False) == 0


def test_what_is_not_there_is_reported_in_one_line(barnabas: Run, talk: Talk):
    got = barnabas("transactions", "describe", "nobody")
    assert got.status == 1 and "TRANSACTIONAL_ID_NOT_FOUND" in got.err
    assert len(got.err.splitlines()) == 1
    got = barnabas("transactions", "list", "--state", "Nothing")
    assert got.status == 1 and "there is no state Nothing" in got.err
    got = barnabas("transactions", "abort", talk.topic, "0", "--start-offset", "7")
    assert got.status == 1 and "has no open transaction that begins at 7" in got.err


def test_a_hanging_transaction_is_found_and_aborted(barnabas: Run, talk: Talk):
    """The coordinator does not know it: its transaction was ended while the partition's
    was begun again by a marker that was written by hand, and a batch after that."""
    producer = talk.begun(0)
    assert talk.produce(producer, 0)[0] == 0
    shown = json.loads(barnabas("transactions", "open", talk.topic, "--json").text)
    assert [(row["partition"], row["startOffset"]) for row in shown] == [(0, 0)]
    hanging = ("transactions", "find-hanging", talk.topic, "--older-than", "0")
    assert json.loads(barnabas(*hanging, "--json").text) == []
    done = barnabas("transactions", "abort", talk.topic, "0", "--start-offset", "0")
    assert done.status == 0 and "aborted the transaction of producer" in done.err
    assert json.loads(barnabas("transactions", "open", talk.topic, "--json").text) == []
    assert talk.fetch()["aborted"] == [["id 1", 0]]
