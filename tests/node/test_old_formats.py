"""A running broker and requests of old clients: settings and metrics."""

import pytest
from node.test_settings import broker_with, create, produce, wire_to
from oracle.exposition import value_of
from oracle.old_fetch import form
from oracle.old_produce import GZIP, inner, wrapper
from oracle.old_requests import fetch_old, produce_old
from telemetry.conftest import Watched

UNSUPPORTED_VERSION = 35


def test_message_downconversion_enable(tmp_path) -> None:
    with broker_with(tmp_path) as broker, wire_to(broker) as wire:
        create(wire, "with")
        create(wire, "without", {"message.downconversion.enable": "false"})
        for topic in ("with", "without"):
            produce(wire, topic, b"v")
        for version in range(4):
            assert len(form(fetch_old(wire, "with", version))["messages"]) == 1
            assert fetch_old(wire, "without", version).errorCode == UNSUPPORTED_VERSION
        assert produce_old(wire, "without", 2, inner(1, 1)).errorCode == 0


def test_log_message_downconversion_enable(tmp_path) -> None:
    settings = {"log.message.downconversion.enable": "false"}
    with broker_with(tmp_path, settings) as broker, wire_to(broker) as wire:
        create(wire, "t")
        produce(wire, "t", b"v")
        assert fetch_old(wire, "t", 3).errorCode == UNSUPPORTED_VERSION


@pytest.mark.parametrize("codec", [0, GZIP])
def test_conversions_are_on_the_page(tmp_path, codec: int) -> None:
    with broker_with(tmp_path, {"metrics.port": "0"}) as broker, wire_to(broker) as wire:
        create(wire, "t")
        create(wire, "none")
        records = wrapper(1, codec, inner(1, 3), offset=2) if codec else inner(1, 3)
        for version in (0, 1, 2):
            assert produce_old(wire, "t", version, records).errorCode == 0
        produce(wire, "t", b"v")
        assert len(fetch_old(wire, "t", 0).records) > 0
        fetch_old(wire, "none", 1)
        page = Watched(broker).page()
    topics, requests = "kafka_server_brokertopicmetrics_", "kafka_network_requestmetrics_"
    assert value_of(page, f"{topics}producemessageconversions_total", topic="t") == 9
    assert value_of(page, f"{topics}fetchmessageconversions_total", topic="t") == 9
    for version in ("0", "1", "2"):
        name = f"{requests}requests_total"
        assert value_of(page, name, request="Produce", version=version) == 1
    for what in ("messageconversionstimems", "temporarymemorybytes"):
        for request_name, count in (("Produce", 4), ("Fetch", 2)):
            assert value_of(page, f"{requests}{what}_count", request=request_name) == count
            assert value_of(page, f"{requests}{what}_sum", request=request_name) > 0
