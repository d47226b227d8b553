"""kcat as people use it in a shell."""

import json
from collections.abc import Callable

import pytest
from compat.client import Client
from compat.kcat.client import Kcat
from compat.support import Broker, Sent


@pytest.fixture
def kcat(client: Callable[[str], Client]) -> Kcat:
    found = client("kcat")
    assert isinstance(found, Kcat)
    return found


def test_metadata_lists_brokers_and_partitions(
    kcat: Kcat, broker: Broker, topic: Callable[..., str]
) -> None:
    at = topic(3)
    told = json.loads(kcat.run("-L", "-J"))
    assert [one["name"] for one in told["brokers"]] == [broker.address]
    (found,) = [one for one in told["topics"] if one["topic"] == at]
    assert sorted(one["partition"] for one in found["partitions"]) == [0, 1, 2]
    leader = told["brokers"][0]["id"]
    for partition in found["partitions"]:
        assert partition["leader"] == leader
        assert partition["replicas"] == partition["isrs"] == [{"id": leader}]


def test_metadata_of_one_topic(kcat: Kcat, topic: Callable[..., str]) -> None:
    at = topic(2)
    told = json.loads(kcat.run("-L", "-J", "-t", at))
    assert [(one["topic"], len(one["partitions"])) for one in told["topics"]] == [(at, 2)]


def test_lines_in_and_lines_out(kcat: Kcat, topic: Callable[..., str]) -> None:
    at = topic()
    lines = b"".join(b"line %d\n" % index for index in range(1000))
    kcat.run("-P", "-t", at, "-p", "0", given=lines)
    assert kcat.run("-C", "-t", at, "-p", "0", "-o", "beginning", "-e") == lines
    assert kcat.run("-C", "-t", at, "-p", "0", "-o", "-2", "-e") == b"line 998\nline 999\n"
    assert kcat.run("-C", "-t", at, "-p", "0", "-o", "5", "-c", "1") == b"line 5\n"


def test_query_of_offsets(
    kcat: Kcat, client: Callable[[str], Client], topic: Callable[..., str]
) -> None:
    """-Q: by time, and the two ends."""
    at = topic()
    start = 1_700_000_000_000
    records = [Sent(b"v", timestamp=start + 100 * index) for index in range(5)]
    client("confluent_kafka").produce(at, 0, records)
    asked = [f"{at}:0:{when}" for when in (-2, -1, start + 100, start + 250)]
    told = [kcat.run("-Q", "-t", one).decode().split() for one in asked]
    assert [line[-1] for line in told] == ["0", "5", "1", "3"]
    assert all(line[:2] == [at, "[0]"] for line in told)
