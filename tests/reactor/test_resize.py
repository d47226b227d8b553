"""Network threads are added and removed while requests are answered."""

import random
import threading
import time

import pytest
from reactor.network import Served, echo, is_closed, request, response
from waiting import soon


def network_threads():
    return sum(thread.name.startswith("network-") for thread in threading.enumerate())


def test_more_threads_take_new_connections():
    with Served() as served:
        kept = [served.connect() for _ in range(2)]
        served.eventually(lambda c: c["connection_count"] == 2)
        served.reactor.resize(4)
        kept += [served.connect() for _ in range(6)]
        served.eventually(lambda c: [row["connections"] for row in c["threads"]] == [2, 2, 2, 2])
        for i, c in enumerate(kept):
            c.sendall(request(i))
            assert response(c)[0] == i
        for c in kept:
            c.close()
        served.quiet()


def test_fewer_threads_answer_what_is_in_work_and_close_the_rest():
    gate = threading.Event()

    def handle(pending):
        if pending.correlation_id == 1:
            gate.wait(10)
        echo(pending)

    before = network_threads()
    with Served(handle, threads=2, handlers=2) as served:
        connections = [served.connect() for _ in range(4)]
        served.eventually(lambda c: c["connection_count"] == 4)
        for c in connections[:2]:  # one of each thread
            c.sendall(request(1))
        served.eventually(lambda c: c["python_requests"] == 2)
        served.reactor.resize(1)
        served.eventually(lambda c: c["connection_count"] == 3)
        assert network_threads() - before == 2
        gate.set()
        assert [response(c)[0] for c in connections[:2]] == [1, 1]
        soon(lambda: network_threads() - before == 1)
        counters = served.eventually(lambda c: c["connection_count"] == 2)
        assert len(counters["threads"]) == 1
        assert counters["requests"] == 2, "what the ended thread did still counts"
        closed = [is_closed(c, 0.2) for c in _patient(connections)]
        assert sum(closed) == 2
        with served.connect() as again:
            again.sendall(request(5))
            assert response(again)[0] == 5
        for c in connections:
            c.close()
        served.quiet()
    assert network_threads() == before


def _patient(connections):
    """For an open connection is_closed reaches its timeout, which means False here."""
    for c in connections:
        yield _Quiet(c)


class _Quiet:
    def __init__(self, connection):
        self.connection = connection

    def settimeout(self, seconds):
        self.connection.settimeout(seconds)

    def recv(self, size_bytes):
        try:
            return self.connection.recv(size_bytes)
        except TimeoutError:
            return b"alive"


def test_a_thread_that_is_needed_again_goes_on():
    gate = threading.Event()

    def handle(pending):
        if pending.correlation_id == 1:
            gate.wait(10)
        echo(pending)

    with Served(handle, threads=2, handlers=2) as served:
        connections = [served.connect() for _ in range(2)]
        served.eventually(lambda c: c["connection_count"] == 2)
        for c in connections:
            c.sendall(request(1))
        served.eventually(lambda c: c["python_requests"] == 2)
        served.reactor.resize(1)
        time.sleep(0.05)
        served.reactor.resize(2)
        time.sleep(0.05)
        gate.set()
        for c in connections:
            assert response(c)[0] == 1
            c.sendall(request(2))
            assert response(c)[0] == 2
        for c in connections:
            c.close()
        served.quiet()


def test_an_unanswered_request_does_not_keep_a_thread_for_ever():
    kept = []
    with Served(kept.append, threads=2) as served:
        connections = [served.connect() for _ in range(2)]
        served.eventually(lambda c: c["connection_count"] == 2)
        for c in connections:
            c.sendall(request(1))
        served.eventually(lambda _: len(kept) == 2)
        served.reactor.resize(1)
        time.sleep(0.05)
        assert served.reactor.counters()["connection_count"] == 2
        served.system.move_monotonic(6000)
        with served.connect():  # so that a thread reads the clock
            served.reactor.set_limit("max.connections", 100)
            served.eventually(lambda c: c["closed"]["stop"] == 1)
        for pending in kept:
            pending.silent()
        kept.clear()


def test_threads_come_and_go_under_load():
    """Clients connect again when they are closed; none waits without end, and nothing leaks."""
    chance = random.Random(4)
    answered = [0] * 6
    stop = threading.Event()

    def client(number):
        while not stop.is_set():
            try:
                with served.connect() as c:
                    for i in range(20):
                        c.sendall(request(i))
                        assert response(c)[0] == i
                        answered[number] += 1
            except (EOFError, OSError):
                continue

    with Served(threads=2, handlers=2) as served:
        threads = [threading.Thread(target=client, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for _ in range(40):
            served.reactor.resize(chance.randint(1, 6))
            time.sleep(0.02)
        before = list(answered)
        soon(lambda: all(now > was for now, was in zip(answered, before, strict=True)))
        stop.set()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
        served.quiet()


def test_numbers_that_make_no_sense():
    with Served() as served:
        for count in (0, 1001):
            with pytest.raises(ValueError, match="network_threads"):
                served.reactor.resize(count)
    with pytest.raises(RuntimeError, match="not running"):
        served.reactor.resize(2)


def test_requests_of_added_threads_count():
    with Served() as served:
        served.reactor.resize(3)
        connections = [served.connect() for _ in range(6)]
        served.eventually(lambda c: [row["connections"] for row in c["threads"]] == [2, 2, 2])
        for i, c in enumerate(connections):
            c.sendall(request(i))
            assert response(c)[0] == i
            c.close()
        served.quiet()
        assert sum(served.reactor.request_metrics()[18]["versions"].values()) == 6
