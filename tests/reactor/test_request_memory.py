"""queued.max.request.bytes: clients that fill it with partial requests do not stop the others."""

import socket
import struct
import threading
import time

import pytest
from reactor.network import Served, is_closed, request, response

MIB = 1 << 20
pytestmark = pytest.mark.alone(reason="expects answers within a second")


def stalled(served, count, announced_bytes=7 * MIB, sent_bytes=7 * MIB - MIB // 8):
    """Connections that announce a frame, send most of it and go silent."""
    made = []
    for _ in range(count):
        c = served.connect()
        c.settimeout(0.2)
        try:
            c.sendall(struct.pack(">ihhih", announced_bytes, 18, 0, 1, -1) + b"x" * sent_bytes)
        except TimeoutError:
            pass  # the reactor reads no more of it
        c.settimeout(10)
        made.append(c)
    return made


def connect_from(served, host):
    return socket.create_connection(
        ("127.0.0.1", served.port), timeout=10, source_address=(host, 0)
    )


@pytest.mark.parametrize("threads", [1, 3])
def test_f44_stalled_large_frames_do_not_stop_small_requests(threads):
    """Three connections used up the memory and every client waited 29.7 s."""
    with Served(threads=threads, queued_max_request_bytes=16 * MIB) as served:
        known = served.connect()
        attackers = stalled(served, 3)
        began = time.monotonic()
        for c in [known, *(served.connect() for _ in range(3))]:
            c.sendall(request(5, b"y" * 2000))
            assert response(c)[0] == 5
            c.close()
        assert time.monotonic() - began < 0.5
        for c in attackers:
            c.close()
        served.quiet()


@pytest.mark.parametrize("threads", [1, 3])
def test_f44_one_peer_leaves_memory_for_a_large_request_of_another(threads):
    with Served(threads=threads, queued_max_request_bytes=16 * MIB) as served:
        attackers = stalled(served, 3)
        began = time.monotonic()
        with connect_from(served, "127.0.0.2") as c:
            body = b"z" * (4 * MIB)
            c.sendall(request(6, body))
            assert response(c) == (6, body)
        assert time.monotonic() - began < 0.8
        for c in attackers:
            c.close()
        served.quiet()


def test_f44_slow_senders_of_large_frames_are_dropped_first_and_logged():
    """They are closed when another request waits for memory, not earlier."""
    with Served(queued_max_request_bytes=16 * MIB) as served:
        (alone,) = stalled(served, 1)
        time.sleep(2.5)
        assert served.reactor.counters()["closed"]["slow-request"] == 0
        others = stalled(served, 2)
        served.closed("slow-request", 1)
        assert is_closed(alone)
        event = served.reactor.events()[0]
        assert (event.reason, event.host) == ("slow-request", "127.0.0.1")
        assert event.detail == 7 * MIB - MIB // 8 + 14
        for c in [alone, *others]:
            c.close()
        served.quiet()


def test_f44_a_trickle_does_not_save_a_slow_sender():
    with Served(queued_max_request_bytes=16 * MIB) as served:
        attackers = stalled(served, 3, sent_bytes=6 * MIB)
        end = time.monotonic() + 5
        while served.reactor.counters()["closed"]["slow-request"] < 2:
            assert time.monotonic() < end
            for c in attackers:
                try:
                    c.send(b"t")
                except OSError:
                    continue
            time.sleep(0.1)
        for c in attackers:
            c.close()
        served.quiet()


def answered_within(seconds, connection):
    began = time.monotonic()
    connection.sendall(request(5))
    assert response(connection)[0] == 5
    assert time.monotonic() - began < seconds


@pytest.mark.parametrize(("threads", "count"), [(1, 10), (1, 60), (3, 10)])
def test_f44_partial_small_requests_do_not_stop_another_address(threads, count):
    """Ten of them made another address wait 3.0 s, until the slow senders were closed."""
    with Served(threads=threads, queued_max_request_bytes=4 * MIB) as served:
        attackers = stalled(served, count, announced_bytes=MIB, sent_bytes=MIB - 5000)
        with connect_from(served, "127.0.0.2") as c:
            answered_within(1, c)
        for c in attackers:
            c.close()
        served.quiet()


def test_f44_the_share_of_an_address_is_as_before_when_its_requests_are_gone(trial_handler):
    """Requests that end in every way: half received in the first buffer, in a grown buffer, in one
    that became large, answered, and parked. A leak of one buffer in a round would stop the address;
    the opposite would let it stop another address."""
    native = trial_handler()
    with Served(native=[native], queued_max_request_bytes=4 * MIB) as served:
        known = served.connect()
        for _ in range(20):
            for announced, sent in ((MIB, 100_000), (900_000, 800_000), (2 * MIB, 1_500_000)):
                c = served.connect()
                c.sendall(struct.pack(">ihhih", announced, 18, 0, 1, -1) + bytes(sent))
                served.eventually(lambda k: k["held_bytes"] >= 100_000)
                c.close()
                served.eventually(lambda k: k["held_bytes"] == 0)
            with served.connect() as c:
                c.sendall(request(7, bytes(900_000)))
                assert response(c) == (7, bytes(900_000))
                c.sendall(request(8, struct.pack(">i", 60_000) + bytes(200_000), key=101))
                served.eventually(lambda k: k["parked"] == 1)
            served.eventually(lambda k: k["held_bytes"] == 0)
        answered_within(1, known)
        attackers = stalled(served, 60, announced_bytes=MIB, sent_bytes=MIB - 5000)
        with connect_from(served, "127.0.0.2") as c:
            answered_within(1, c)
        for c in [known, *attackers]:
            c.close()
        served.quiet()


def test_partial_requests_that_wait_for_memory_end_with_their_peers():
    """They kept all their memory after their connections were closed."""
    with Served(queued_max_request_bytes=4 * MIB) as served:
        attackers = stalled(served, 10, announced_bytes=MIB, sent_bytes=MIB - 5000)
        served.eventually(lambda c: c["held_bytes"] > MIB)
        for c in attackers:
            c.close()
        served.quiet()


def test_small_requests_of_one_peer_beyond_its_share_are_all_answered():
    with Served(threads=2, handlers=2, queued_max_request_bytes=4 * MIB) as served:
        ask_at_once(served, [bytes([65 + i]) * 900_000 for i in range(20)])


def test_large_requests_of_one_peer_beyond_its_share_are_all_answered():
    with Served(threads=2, handlers=2, queued_max_request_bytes=16 * MIB) as served:
        ask_at_once(served, [bytes([65 + i]) * (5 * MIB) for i in range(8)])


def ask_at_once(served, bodies):
    """One connection for each body; all are answered, none is closed as slow."""
    answers = {}

    def ask(i):
        with served.connect() as c:
            c.sendall(request(i, bodies[i]))
            answers[i] = response(c)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert answers == {i: (i, body) for i, body in enumerate(bodies)}
    assert served.reactor.counters()["closed"]["slow-request"] == 0
    served.quiet()
