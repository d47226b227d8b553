"""Log lines about connections that a broker closed: with the cause, one for each host and
second."""

import logging
import re
import socket
import ssl
from contextlib import suppress

import pytest
from reactor.network import Served, is_closed, request

from barnabas import Broker
from barnabas.telemetry.network_events import HOSTS_MAX, BadRequests, write_events

LOGGER = "barnabas.network"


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, LOGGER)
    return lambda: [row.getMessage() for row in caplog.records if row.name == LOGGER]


def test_f26_a_tls_client_on_a_plaintext_listener_is_called_so(lines):
    context = ssl.create_default_context()
    with Served() as served:
        with served.connect() as c, suppress(OSError):
            context.wrap_socket(c, server_hostname="localhost")
        served.closed("tls-client")
        assert write_events(served.reactor) == 1
    assert "closed: tls-client: a TLS client on a PLAINTEXT listener" in lines()[0]


def test_f26_an_http_client_on_a_plaintext_listener_is_called_so(lines):
    with Served() as served:
        with served.connect() as c:
            c.sendall(b"POST /topics/x HTTP/1.1\r\nHost: h\r\n\r\n")
            assert is_closed(c)
        served.closed("http-client")
        assert write_events(served.reactor) == 1
    assert "closed: http-client: an HTTP client on a PLAINTEXT listener" in lines()[0]


def test_f47_bad_requests_of_one_host_are_one_line_a_second(lines):
    bad = BadRequests()
    for port in range(1000):
        bad.add("10.0.0.1", port, "API key 99 version 0 is not served")
    bad.add("10.0.0.2", 7, "no such message")
    assert bad.write() == 2
    assert lines() == [
        "connection of 10.0.0.1:0 closed: API key 99 version 0 is not served, and 999 more of this"
        " host",
        "connection of 10.0.0.2:7 closed: no such message",
    ]
    assert bad.write() == 0


def test_f47_many_hosts_are_a_bounded_number_of_lines(lines):
    bad = BadRequests()
    for number in range(HOSTS_MAX + 5):
        bad.add(f"h{number}", 1, "no such message")
    assert bad.write() == HOSTS_MAX + 1
    assert lines()[-1] == "5 more connections of other hosts closed for bad requests"


def test_f47_a_broker_limits_its_lines_of_bad_requests(tmp_path, lines):
    with Broker({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}) as broker:
        host, port = broker.bootstrap_servers.split(":")
        for _ in range(100):
            with socket.create_connection((host, int(port)), timeout=10) as c:
                c.sendall(request(1, key=999))
                assert is_closed(c)
    found = [line for line in lines() if "API key 999 version 0 is not served" in line]
    assert 1 <= len(found) <= 10  # one line a second; 100 connections take less than ten seconds
    more = [int(m[1]) for line in found if (m := re.search(r"and (\d+) more", line))]
    assert len(found) + sum(more) == 100
