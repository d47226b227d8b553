"""Clients of today send the same versions to a broker that lists old ones too as to one that lists
those of Kafka 4.4: none takes a worse path because old versions are offered."""

from collections.abc import Iterator

import pytest
from compat.matrix import CLIENTS, FAMILIES, cannot_run_client, client_class
from compat.support import Sent, create_topic
from telemetry.conftest import Watched

from barnabas import Broker

OF_TODAY = [name for name in CLIENTS if name != "java_27"]
# The last versions that are converted.
CONVERTED = {"Produce": 2, "FetchConsumer": 3}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Watched]]:
    running = {}
    for release in ("all", "4.4"):
        running[release] = Broker(
            {
                "log.dirs": str(tmp_path_factory.mktemp("broker")),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "metrics.port": "0",
                "api.versions.of": release,
            }
        ).__enter__()
    yield {release: Watched(broker) for release, broker in running.items()}
    for broker in running.values():
        broker.__exit__(None, None, None)


def sent_versions(watched: Watched) -> dict[tuple[str, int], float]:
    """{(request, version): how many were answered}"""
    family = watched.page()["kafka_network_requestmetrics_requests_total"]
    found = [(dict(labels), count) for (_, labels), count in family.samples.items()]
    return {(row["request"], int(row["version"])): count for row, count in found}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.java] if FAMILIES[name] == "java" else [])
        for name in OF_TODAY
    ],
)
def test_old_versions_that_are_offered_are_not_sent(brokers: dict[str, Watched], name: str) -> None:
    if reason := cannot_run_client(name):
        pytest.skip(reason)
    versions = {}
    for release, watched in brokers.items():
        create_topic(watched.bootstrap, name, 1, {})
        before = sent_versions(watched)
        client = client_class(name)(watched.bootstrap)
        client.produce(name, 0, [Sent(b"v", b"k")], codec="lz4")
        assert [row.value for row in client.read(name, 0, 0, 1)] == [b"v"]
        client.offset_at(name, 0, 0)
        client.close()
        after = sent_versions(watched)
        versions[release] = {row for row in after if after[row] > before.get(row, 0)}
    assert versions["all"] == versions["4.4"]
    requests = {request for request, _ in versions["all"]}
    assert requests >= {"Produce", "FetchConsumer", "ListOffsets", "Metadata"}
    assert not [
        (request, version)
        for request, version in versions["all"]
        if version <= CONVERTED.get(request, -1)
    ]
