"""The setting api.versions.of, compared with what Apache Kafka 3.9.2 and 4.4.0 tell and refuse
(oracle/api_versions.py)."""

import json

import pytest
from node.test_settings import broker_with, create, fetch, produce, wire_to
from oracle.api_versions import API_VERSIONS, RECORDED, asked, ranges, refusals

RELEASES = {"3.9": "3.9.2", "4.4": "4.4.0"}
# UnregisterBroker, voters of KRaft, and 94: this broker has none of them.
NOT_SERVED = {64, 80, 81, 94}
PRODUCE = 0


def recorded(release: str) -> dict:
    return json.loads(RECORDED.read_text())[RELEASES[release]]


def told_by_kafka(release: str) -> dict[int, tuple[int, int]]:
    return {int(key): (low, high) for key, (low, high) in recorded(release)["told"].items()}


def told_by(broker) -> dict[int, tuple[int, int]]:
    return ranges(asked(port_of(broker), API_VERSIONS, 0))


def port_of(broker) -> int:
    return int(broker.bootstrap_servers.rpartition(":")[2])


@pytest.mark.parametrize("release", RELEASES)
def test_api_versions_of(tmp_path, release: str) -> None:
    with broker_with(tmp_path, {"api.versions.of": release}) as broker, wire_to(broker) as wire:
        theirs = told_by_kafka(release)
        ours = {key: versions for key, versions in theirs.items() if key not in NOT_SERVED}
        assert told_by(broker) == ours
        assert refusals(port_of(broker), theirs) == recorded(release)["refused"]
        create(wire, "t")
        assert produce(wire, "t", b"v").errorCode == 0
        assert len(fetch(wire, "t").responses[0].partitions[0].records) > 0


def test_kafka_4_lists_versions_of_produce_that_it_does_not_serve(tmp_path) -> None:
    """librdkafka does not compress unless version 0 is listed."""
    with broker_with(tmp_path, {"api.versions.of": "4.4"}) as broker:
        assert told_by(broker)[PRODUCE] == (0, 13)
        for version in range(3):
            assert asked(port_of(broker), PRODUCE, version, bytes(64)) is None


def test_the_default_is_from_the_lowest_of_3_9_to_the_highest_of_4_4(tmp_path) -> None:
    with broker_with(tmp_path) as broker:
        lowest, highest = told_by_kafka("3.9"), told_by_kafka("4.4")
        assert told_by(broker) == {
            key: (lowest.get(key, highest[key])[0], highest[key][1])
            for key in highest
            if key not in NOT_SERVED
        }
