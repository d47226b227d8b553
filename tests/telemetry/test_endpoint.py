"""The HTTP endpoint of the metrics page: its responses and limits, and that it never delays a
stop."""

import socket
import threading
import time

import pytest

from barnabas.telemetry import http_server as door
from barnabas.telemetry.endpoint import Endpoint


@pytest.fixture
def served():
    state = {"problem": "", "pieces": [b"one 1\n", b"", b"two 2\n"]}
    made = Endpoint(
        "127.0.0.1", 0, lambda: ("text/plain", iter(state["pieces"])), lambda: state["problem"]
    )
    made.start()
    made.state = state
    yield made
    made.stop()


def connect(served):
    return socket.create_connection(("127.0.0.1", served.port), timeout=10)


def say(served, data, until_closed=True):
    with connect(served) as client:
        client.sendall(data)
        got = b""
        while until_closed and (piece := client.recv(65536)):
            got += piece
        return got


def get(served, path, method="GET", version="1.1"):
    head, _, body = say(
        served, f"{method} {path} HTTP/{version}\r\nHost: x\r\n\r\n".encode()
    ).partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode(), body


def test_the_page_comes_in_chunks(served):
    status, head, body = get(served, "/metrics?x=1")
    assert status == 200 and "Transfer-Encoding: chunked" in head
    assert body == b"6\r\none 1\n\r\n6\r\ntwo 2\n\r\n0\r\n\r\n"


def test_an_old_client_gets_it_plain(served):
    status, head, body = get(served, "/metrics", version="1.0")
    assert status == 200 and "chunked" not in head
    assert body == b"one 1\ntwo 2\n"


def test_head_has_no_body(served):
    assert get(served, "/metrics", method="HEAD")[::2] == (200, b"")


def test_probes(served):
    for path in ("/health/live", "/livez", "/health/ready", "/readyz", "/healthz"):
        assert get(served, path)[0] == 200
    served.state["problem"] = "recovering logs"
    for path in ("/health/ready", "/readyz", "/healthz"):
        status, _, body = get(served, path, version="1.0")
        assert (status, body) == (503, b"recovering logs\n")
    assert get(served, "/health/live")[0] == 200


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /secret HTTP/1.1\r\n\r\n", 404),
        (b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET /metrics HTTP/2\r\n\r\n", 400),
        (b"\x00\xff\x16\x03\x01 \r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\n" + b"X: " + b"y" * 9000, 431),
    ],
)
def test_what_is_no_request_is_refused(served, data, status):
    assert say(served, data).split()[1] == str(status).encode()
    assert get(served, "/metrics")[0] == 200


def test_a_request_may_come_byte_by_byte(served):
    with connect(served) as client:
        for byte in b"GET /metrics HTTP/1.0\r\n\r\n":
            client.sendall(bytes([byte]))
        assert client.recv(65536).startswith(b"HTTP/1.1 200")


def test_a_slow_request_is_given_up(served, monkeypatch):
    monkeypatch.setattr(door, "REQUEST_S_MAX", 0.3)
    began = time.monotonic()
    assert say(served, b"GET /metr").split()[1] == b"408"
    assert time.monotonic() - began < 5


def test_too_many_at_once_are_reported(served, monkeypatch):
    waiting = [connect(served) for _ in range(door.CLIENTS_MAX)]
    try:
        answers = [say(served, b"GET /metrics HTTP/1.0\r\n\r\n").split()[1] for _ in range(3)]
        assert answers == [b"503"] * 3
    finally:
        for client in waiting:
            client.close()
    end = time.monotonic() + 10
    while get(served, "/metrics")[0] != 200:
        assert time.monotonic() < end


def test_a_page_that_fails_half_way_is_not_taken_for_whole(served):
    def broken():
        yield b"one 1\n"
        raise ValueError("planted")

    served.state["pieces"] = broken()
    _, _, body = get(served, "/metrics")
    assert body == b"6\r\none 1\n\r\n"  # no last chunk


def test_stop_waits_for_no_client(served, monkeypatch):
    monkeypatch.setattr(door, "REQUEST_S_MAX", 120.0)
    served.state["pieces"] = (b"x" * 65536 for _ in range(100_000))
    silent, greedy = connect(served), connect(served)
    greedy.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    greedy.recv(10)
    began = time.monotonic()
    served.stop()
    assert time.monotonic() - began < 60
    assert not [t for t in threading.enumerate() if t.name.startswith("metrics")]
    silent.close()
    greedy.close()


def test_an_unread_page_is_given_up(served, monkeypatch):
    monkeypatch.setattr(door, "ANSWER_S_MAX", 0.5)
    served.state["pieces"] = (b"x" * 65536 for _ in range(100_000))
    with connect(served) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        end = time.monotonic() + 10
        while any(t.name == "metrics-client" for t in threading.enumerate()):
            assert time.monotonic() < end
            time.sleep(0.05)
