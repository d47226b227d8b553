"""The parts of a request's time, as the network threads count them."""

import threading
import time

import pytest
from reactor.network import PING, Served, answer_to, request, response

from barnabas.cext.memory.histogram import bucket_bounds_ns

STEP_S = 0.08
STEP_NS = int(STEP_S * 1e9)


def figures(served, key=PING, requests=1):
    """The request metrics, once that many requests are answered and sent."""
    end = time.monotonic() + 5
    while True:
        found = served.reactor.request_metrics().get(key)
        if found and sum(found["times"]["total"][1].values()) == requests:
            return found
        assert time.monotonic() < end, found
        time.sleep(0.005)


def time_ns(found, part):
    return found["times"][part][0]


def test_a_slow_handler_is_local_time():
    def slow(pending):
        time.sleep(STEP_S)
        pending.reply(answer_to(pending))

    with Served(slow) as served, served.connect() as client:
        client.sendall(request(1))
        response(client)
        found = figures(served)
    assert found["versions"] == {0: 1}
    assert STEP_NS <= time_ns(found, "local") <= time_ns(found, "total") < 10 * STEP_NS
    assert time_ns(found, "remote") == 0
    (bucket,) = found["times"]["local"][1]
    low, high = bucket_bounds_ns(bucket)
    assert low <= time_ns(found, "local") < high


def test_an_answer_that_comes_later_is_remote_time():
    threads = []

    def later(pending):
        threads.append(threading.Timer(STEP_S, pending.reply, [answer_to(pending)]))
        threads[-1].start()
        pending.waits()

    with Served(later) as served, served.connect() as client:
        client.sendall(request(1))
        response(client)
        found = figures(served)
        threads[0].join()
    assert time_ns(found, "remote") >= STEP_NS * 0.9
    assert time_ns(found, "local") < STEP_NS


def test_a_request_that_finds_all_handlers_busy_is_queue_time():
    def slow(pending):
        time.sleep(STEP_S)
        pending.reply(answer_to(pending))

    with Served(slow) as served, served.connect() as one, served.connect() as two:
        one.sendall(request(1))
        time.sleep(STEP_S / 4)
        two.sendall(request(2))
        response(one)
        response(two)
        found = figures(served, requests=2)
        idle_ns = served.reactor.counters()["python_idle_ns"]
    assert time_ns(found, "request_queue") >= STEP_NS / 2
    assert 0 <= idle_ns < 100 * STEP_NS


def test_a_client_that_does_not_read_is_send_time():
    size_bytes = 32 << 20

    def large(pending):
        pending.reply([(size_bytes + 4).to_bytes(4, "big"), bytes(4), bytes(size_bytes)])

    with Served(large) as served, served.connect() as client:
        client.sendall(request(1))
        time.sleep(2 * STEP_S)
        response(client)
        found = figures(served)
    assert time_ns(found, "response_send") >= STEP_NS
    assert time_ns(found, "total") >= time_ns(found, "response_send")


def test_silent_and_dropped_requests():
    def handle(pending):
        if pending.correlation_id == 1:
            pending.silent()
        else:
            pending.close()

    with Served(handle) as served, served.connect() as client:
        client.sendall(request(1))
        found = figures(served)
        assert time_ns(found, "response_send") == 0
        client.sendall(request(2))
        served.closed("handler")
        assert figures(served, requests=2)["versions"] == {0: 2}  # as Kafka counts it


def test_a_request_whose_client_left_is_counted():
    """SocketServer.processDisconnected updates the metrics of requests in flight."""
    waiting = threading.Semaphore(0)
    left = threading.Event()

    def handle(pending):
        waiting.release()
        left.wait(10)
        pending.reply(answer_to(pending))

    with Served(handle) as served:
        with served.connect() as client:
            client.sendall(request(1))
            assert waiting.acquire(timeout=10)
        try:
            found = figures(served)
        finally:
            left.set()
        served.quiet()
        assert found["versions"] == {0: 1} == figures(served)["versions"]
    assert time_ns(found, "response_send") == 0


@pytest.mark.parametrize("key", [-1, 19, 20, 32767])
def test_keys_that_do_not_exist_are_not_counted(key):
    with Served() as served, served.connect() as client:
        client.sendall(request(1, key=key, version=3))
        response(client)
        client.sendall(request(2, version=99, tags=b"\0"))  # has no counter of its own
        response(client)
        assert figures(served)["versions"] == {31: 1}
        assert set(served.reactor.request_metrics()) == {PING}


def test_the_parts_never_add_up_to_more_than_the_whole():
    """Small and large responses share the thread, which gets some while it sends others."""
    large = [((1 << 20) + 4).to_bytes(4, "big"), bytes(4), bytes(1 << 20)]

    def handle(pending):
        pending.reply(large if pending.correlation_id % 2 else answer_to(pending))

    def asks(client, first):
        for turn in range(200):
            client.sendall(request(first + 2 * turn))
            response(client)

    with Served(handle, handlers=2) as served:
        clients = [served.connect() for _ in range(4)]
        threads = [
            threading.Thread(target=asks, args=(client, index % 2))
            for index, client in enumerate(clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = figures(served, requests=4 * 200)
        for client in clients:
            client.close()
    parts = sum(time_ns(found, part) for part in found["times"] if part != "total")
    total = time_ns(found, "total")
    assert 0.99 * total <= parts <= total
