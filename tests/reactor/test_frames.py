"""Frames are answered in order, whatever the segments of the stream are."""

import gc
import socket
import struct
import threading

import pytest
from reactor.network import Served, answer_to, echo, is_closed, receive, request, response

from barnabas.cext.memory.sys import SystemCalls
from barnabas.cext.network.reactor import Reactor
from barnabas.cext.network.request_queue import PendingRequest

BACKLOG = 50  # of a listener
STOPS = 10


def test_pipelined_requests_are_answered_in_order():
    with Served(handlers=3) as served, served.connect() as c:
        c.sendall(b"".join(request(i, b"x" * i) for i in range(500)))
        assert [response(c) for _ in range(500)] == [(i, b"x" * i) for i in range(500)]


def test_requests_cut_into_single_bytes():
    stream = b"".join(request(i, b"abc" * i) for i in range(20))
    with Served() as served, served.connect() as c:
        for i in range(len(stream)):
            c.sendall(stream[i : i + 1])
        assert [response(c) for _ in range(20)] == [(i, b"abc" * i) for i in range(20)]


@pytest.mark.parametrize("size_bytes", [262143, 262144, 262145, 3_000_000])
def test_a_frame_larger_than_one_receive(size_bytes):
    body = bytes(range(256)) * (size_bytes // 256 + 1)
    with Served() as served, served.connect() as c:
        sender = threading.Thread(target=c.sendall, args=(request(1, body) + request(2, b"next"),))
        sender.start()
        assert response(c) == (1, body)
        assert response(c) == (2, b"next")
        sender.join()
        del sender
    assert served.quiet()["closed"]["memory"] == 0


def test_many_connections_on_two_threads():
    with Served(threads=2, handlers=2) as served:
        connections = [served.connect() for _ in range(50)]
        for turn in range(20):
            for i, c in enumerate(connections):
                c.sendall(request(turn * 100 + i))
            assert [response(c)[0] for c in connections] == [turn * 100 + i for i in range(50)]
        assert [t["connections"] for t in served.reactor.counters()["threads"]] == [25, 25]
        for c in connections:
            c.close()
        served.quiet()


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (request(5, b"B", client_id=b"me"), (18, 0, "me", b"B")),
        (request(5, b"B", client_id=None), (18, 0, None, b"B")),
        (request(5, b"B", client_id=b"\xff\xfe"), (18, 0, "\ufffd\ufffd", b"B")),
        (request(5, b"B", version=3, tags=b"\0"), (18, 3, "test", b"B")),
        (request(5, b"B", version=999, tags=b"\2\1\3abc\7\0"), (18, 999, "test", b"B")),
        (request(5, b"B", key=7), (7, 0, None, b"B")),
        (request(5, b"B", key=7, version=1), (7, 1, "test", b"B")),
        (request(5, b"B", key=1234, version=99), (1234, 99, "test", b"B")),
        (request(5, b"B", key=-3), (-3, 0, "test", b"B")),
    ],
)
def test_request_headers(frame, expected):
    seen = []

    def handle(pending):
        seen.append(pending)
        echo(pending)

    with Served(handle) as served, served.connect() as c:
        c.sendall(frame)
        response(c)
        (p,) = seen
        assert (p.api_key, p.api_version, p.client_id, p.data[p.body_at :]) == expected
        assert (p.correlation_id, p.listener, p.peer) == (5, "PLAINTEXT", c.getsockname())
        assert p.data == frame[4:]
        assert 0 < p.received_ns <= served.system.monotonic_ns()


def test_a_large_answer_given_in_parts():
    body = bytes(range(256)) * 40_000

    def handle(pending):
        head = struct.pack(">ii", 4 + len(body), pending.correlation_id)
        pending.reply([head, memoryview(body)[:1000], bytearray(body[1000:])])

    with Served(handle) as served, served.connect() as c:
        c.sendall(request(1) + request(2))
        assert response(c) == (1, body)
        assert response(c) == (2, body)


def test_a_silent_request_lets_the_next_go_on():
    def handle(pending):
        if pending.correlation_id % 2:
            pending.silent()
        else:
            echo(pending)

    with Served(handle) as served, served.connect() as c:
        c.sendall(b"".join(request(i) for i in range(10)))
        assert [response(c)[0] for _ in range(5)] == [0, 2, 4, 6, 8]


def test_a_handler_closes():
    with Served(PendingRequest.close) as served, served.connect() as c:
        c.sendall(request(1) + request(2))
        assert is_closed(c)
        served.closed("handler")
    served.quiet()


def test_a_request_let_fall_closes_its_connection():
    with Served(lambda pending: None) as served, served.connect() as c:
        c.sendall(request(1))
        assert is_closed(c)
        gc.collect()
        served.closed("handler")
    served.quiet()


def test_a_request_is_answered_once():
    errors = []

    def handle(pending):
        with pytest.raises(ValueError, match="size prefix"):
            pending.reply(b"\0\0\0\x09abcdefgh")
        with pytest.raises(TypeError):
            pending.reply([b"\0\0", "text"])
        echo(pending)
        for again in (pending.close, pending.silent, lambda: pending.reply(answer_to(pending))):
            with pytest.raises(RuntimeError, match="before"):
                again()
        errors.append("all")

    with Served(handle) as served, served.connect() as c:
        c.sendall(request(1))
        assert response(c) == (1, b"")
        served.eventually(lambda _: errors == ["all"])


def test_an_answer_from_another_thread_after_the_peer_went():
    kept = []
    with Served(kept.append) as served:
        c = served.connect()
        c.sendall(request(1))
        served.eventually(lambda _: kept)
        c.close()
        served.closed("peer")
        assert served.reactor.counters()["held_bytes"] > 0
        kept.pop().reply(struct.pack(">iii", 8, 1, 0))
        served.quiet()


def test_a_half_closed_peer_has_all_its_requests_looked_at():
    seen = []

    def handle(pending):
        seen.append(pending.correlation_id)
        pending.silent()

    with Served(handle) as served, served.connect() as c:
        c.sendall(b"".join(request(i, b"x" * 1000) for i in range(2000)))
        c.shutdown(socket.SHUT_WR)
        served.closed("peer")
        assert seen == list(range(2000))


def test_listeners():
    system = SystemCalls()
    reactor = Reactor(system, [], network_threads=1, flexible_from=[])
    port = reactor.listen("A", "127.0.0.1", 0)
    with pytest.raises(OSError) as raised:
        reactor.listen("B", "127.0.0.1", port)
    assert raised.value.errno == 98
    with pytest.raises(ValueError, match="'A' already"):
        reactor.listen("A", "127.0.0.1", 0)
    six = reactor.listen("SIX", "::1", 0)
    reactor.start()
    later = reactor.listen("LATER", "0.0.0.0", 0)
    for name, host, number, family in (
        ("A", "127.0.0.1", port, socket.AF_INET),
        ("SIX", "::1", six, socket.AF_INET6),
        ("LATER", "127.0.0.1", later, socket.AF_INET),
    ):
        with socket.socket(family) as c:
            c.connect((host, number))
            c.sendall(request(3))
            pending = reactor.next_request(5000)
            assert pending is not None
            assert (pending.listener, pending.peer[0]) == (name, host)
            pending.reply(answer_to(pending))
            c.settimeout(60)
            assert response(c) == (3, b"")
    reactor.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_two_reactors_side_by_side():
    with Served() as one, Served() as two, one.connect() as a, two.connect() as b:
        a.sendall(request(1))
        b.sendall(request(2))
        assert (response(a), response(b)) == ((1, b""), (2, b""))
        two.reactor.stop()
        a.sendall(request(3))
        assert response(a) == (3, b"")


def test_next_request_ends_at_its_timeout_and_at_the_stop():
    with Served(start=False) as served:
        assert served.reactor.next_request(20) is None
        assert not served.reactor.stopped
    assert served.reactor.next_request() is None
    assert served.reactor.stopped


def test_stop_lets_the_request_in_work_be_answered():
    begun, go = threading.Event(), threading.Event()

    def handle(pending):
        begun.set()
        go.wait(10)
        echo(pending)

    with Served(handle) as served, served.connect() as c, served.connect() as idle:
        c.sendall(request(9))
        begun.wait(10)
        stopper = threading.Thread(target=served.reactor.stop, args=(8000,))
        stopper.start()
        assert is_closed(idle)
        go.set()
        assert response(c) == (9, b"")
        assert is_closed(c)
        stopper.join()


def test_stop_under_load():
    stop, failures = threading.Event(), []
    served = Served(threads=2, handlers=2)

    def load():
        try:
            with served.connect() as c:
                while not stop.is_set():
                    c.sendall(b"".join(request(i, b"x" * 100) for i in range(20)))
                    for i in range(20):
                        assert response(c) == (i, b"x" * 100)
        except (EOFError, OSError):
            pass
        except AssertionError as e:
            failures.append(e)

    with served:
        clients = [threading.Thread(target=load) for _ in range(8)]
        for client in clients:
            client.start()
        served.eventually(lambda c: c["requests"] > 2000)
        served.reactor.stop(3000)
        served.quiet()
        stop.set()
        for client in clients:
            client.join(10)
    assert failures == []


def test_a_connection_that_is_accepted_while_the_reactor_stops_is_closed():
    """The acceptor gave it to a network thread that had ended: the client of a broker that was
    restarted waited for its answer until its timeout."""
    for _ in range(STOPS):
        with Served(start=False) as served:
            waiting = [served.connect() for _ in range(BACKLOG)]
            served.reactor.start()
            served.reactor.stop()
            assert served.reactor.counters()["connection_count"] == 0
            assert all(is_closed(connection) for connection in waiting)
            for connection in waiting:
                connection.close()


def test_counters_tell_bytes_and_requests():
    frame = request(1, b"x" * 50)
    with Served() as served, served.connect() as c:
        for _ in range(10):
            c.sendall(frame)
            receive(c, 4 + 4 + 50)
        counters = served.eventually(lambda c: c["bytes_out"] >= 10 * 58)
        assert counters["requests"] == counters["python_requests"] == 10
        assert counters["bytes_in"] == 10 * len(frame)
        assert counters["bytes_out"] == 10 * 58
        assert counters["connections"] == counters["connections_total"] == {"PLAINTEXT": 1}
        assert 0 <= counters["threads"][0]["idle_ratio"] <= 1
