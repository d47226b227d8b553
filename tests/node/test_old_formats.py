"""A running broker and requests of old clients: settings, memory and metrics."""

import socket
from contextlib import ExitStack

import pytest
from node.test_settings import broker_with, create, fetch, produce, wire_to
from oracle.exposition import value_of
from oracle.old_fetch import fetch_body, form
from oracle.old_produce import GZIP, inner, wrapper
from oracle.old_requests import fetch_old, produce_old
from telemetry.conftest import Watched
from waiting import soon

from barnabas.wire.headers import encode_request

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


def test_consumers_that_do_not_read_hold_no_more_memory_than_the_limit(tmp_path) -> None:
    """Each answer is larger than the buffers of its socket."""
    with broker_with(tmp_path, {"metrics.port": "0"}) as broker, ExitStack() as stack:
        wire = stack.enter_context(wire_to(broker))
        create(wire, "t")
        for _ in range(5):
            produce(wire, "t", bytes(900_000))
        conversions = broker.node.bound.native.fetch.conversions
        conversions.memory_bytes_max = limit = 20_000_000
        asked = encode_request(1, 2, 7, "old", fetch_body("t", 2, 0, 1 << 23))
        slow = [stack.enter_context(small_socket(broker)) for _ in range(30)]
        for connection in slow:
            connection.sendall(asked)
        soon(lambda: conversions.memory_waits > 10 and conversions.memory_bytes > limit / 2)
        page = Watched(broker).page()
        assert limit / 2 < value_of(page, "barnabas_conversion_memory_bytes") <= limit
        assert value_of(page, "barnabas_conversion_memory_waits_total") > 10
        assert len(fetch(wire, "t").responses[0].partitions[0].records) > 900_000  # newer clients
        for connection in slow[::2]:
            connection.close()
        for connection in slow[1::2]:
            assert len(answer_of(connection)) > 900_000
        soon(lambda: conversions.memory_bytes == 0)


def small_socket(broker) -> socket.socket:
    host, port = broker.bootstrap_servers.split(":")
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.settimeout(20)
    made.connect((host, int(port)))
    return made


def answer_of(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as file:
        return file.read(int.from_bytes(file.read(4), "big"))


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
