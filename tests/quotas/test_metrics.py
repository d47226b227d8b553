"""The metrics of quotas, under the names of the JMX exporter, and their bound."""

import math
import re
import urllib.request

import pytest
from compat.support import Wire, create_topic
from quotas.asking import set_quota
from quotas.test_address_rates import BURST, connect_from
from quotas.test_enforcement import CLIENT, produce
from quotas.test_mutations import create
from reactor.network import is_closed

from barnabas import Broker
from barnabas.server import quota_enforcement


@pytest.fixture
def broker(tmp_path):
    with Broker({"log.dirs": str(tmp_path), "metrics.port": "0"}) as made:
        create_topic(made.bootstrap_servers, "t")
        yield made


def quota_lines(broker):
    return page_lines(broker, r"kafka_server_quota_\S+")


def page_lines(broker, names):
    """Of the page: name and labels -> value."""
    port = broker.node.metrics.address.rpartition(":")[2]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        text = page.read().decode()
    found = re.findall(rf"^({names}) (\S+)$", text, re.M)
    return {name: float(value) for name, value in found}


def test_connections_that_a_rate_holds(tmp_path):
    """Under Kafka's names, by listener: the mean time of what the broker's or the listener's rate
    holds, and of what the rate of an address closes later."""
    settings = {
        "log.dirs": str(tmp_path),
        "metrics.port": "0",
        "listener.name.slow.max.connection.creation.rate": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0,SLOW://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SLOW:PLAINTEXT",
    }
    prefix = "kafka_server_socket_server_metrics_"

    def value(name, listener):
        return lines[f'{prefix}{name}{{listener="{listener}"}}']

    with Broker(settings) as broker:
        ports = {row.name: row.port for row in broker.node.listeners}
        with Wire(broker.bootstrap_servers) as wire:
            set_quota(wire, {"ip": "127.0.0.3"}, connection_creation_rate=1)
        opened = [connect_from("127.0.0.3", ports["PLAINTEXT"]) for _ in range(BURST + 1)]
        opened += [connect_from("127.0.0.1", ports["SLOW"]) for _ in range(BURST + 1)]
        assert is_closed(opened[BURST], 5)
        lines = page_lines(broker, r"kafka_server_socket_server_metrics_\S+")
        assert 500 < value("ip_connection_accept_throttle_time", "PLAINTEXT") < 1000.1
        assert math.isnan(value("connection_accept_throttle_time", "PLAINTEXT"))
        assert 500 < value("connection_accept_throttle_time", "SLOW") < 1000.1
        assert math.isnan(value("ip_connection_accept_throttle_time", "SLOW"))
        accepted = value("connection_accept_rate", "PLAINTEXT")
        accepted += value("connection_accept_rate", "SLOW")
        assert accepted > 0
        assert lines[prefix + "broker_connection_accept_rate"] == pytest.approx(accepted)
        for connection in opened:
            connection.close()


def name_of(metric, resource, user, client_id):
    return (
        f'kafka_server_quota_{metric}{{resource="{resource}",user="{user}",clientId="{client_id}"}}'
    )


def test_rates_and_throttle_times(broker):
    assert quota_lines(broker) == {}
    with Wire(broker.bootstrap_servers) as wire:
        set_quota(wire, CLIENT, producer_byte_rate=1000, controller_mutation_rate=2)
        set_quota(wire, {"user": "ANONYMOUS"}, request_percentage=90)
        waits = produce(wire, 19_000)
        with Wire(broker.bootstrap_servers) as other:
            create(other, 7, ("more", 2))
        lines = quota_lines(broker)
    assert lines[name_of("byte_rate", "Produce", "", "compat")] > 1800
    assert lines[name_of("throttle_time", "Produce", "", "compat")] == waits
    assert 0 < lines[name_of("request_time", "Request", "ANONYMOUS", "")] < 90
    assert 19 < lines[name_of("tokens", "ControllerMutation", "", "compat")] <= 22
    broker.clock.advance(hours=2)
    lines = quota_lines(broker)
    assert {name for name in lines if "Produce" in name} == set()


def test_there_are_no_more_sensors_than_the_limit(broker, monkeypatch):
    monkeypatch.setattr(quota_enforcement, "SENSORS_MAX", 3)
    with Wire(broker.bootstrap_servers) as wire:
        set_quota(wire, {"client-id": None}, producer_byte_rate=1000)
        for number in range(10):
            produce_as(broker, f"client-{number}", 3000)
        lines = quota_lines(broker)
        assert len([name for name in lines if "byte_rate" in name]) <= 4
        assert name_of("byte_rate", "Produce", "*", "*") in lines
        broker.clock.advance(seconds=30)
        assert produce_as(broker, "one-more", 3000) == 0


def produce_as(broker, client_id, size_bytes):
    """The throttle time."""
    from quotas.test_enforcement import produce_request

    from barnabas.wire import response
    from barnabas.wire.headers import decode_response_header, encode_request

    with Wire(broker.bootstrap_servers) as wire:
        frame = wire.call_raw(encode_request(0, 9, 1, client_id, produce_request(size_bytes)))
        _, offset = decode_response_header(frame, 0, 9)
        return response(0).decode(frame, 9, offset).throttleTimeMs
