"""One request handler empties the queue while it makes progress; a blocked handler delays no other
request."""

import threading
import time
from contextlib import ExitStack

from reactor.network import Served, echo, request, response

HANDLERS = 4


def test_waiting_handlers_hold_up_no_request():
    """All handlers but one are blocked; the last answers all other requests."""
    release, waiting = threading.Event(), threading.Semaphore(0)

    def handle(pending):
        if pending.correlation_id < HANDLERS - 1:
            waiting.release()
            release.wait(20)
        echo(pending)

    with Served(handle, handlers=HANDLERS) as served, ExitStack() as stack:
        connections = [stack.enter_context(served.connect()) for _ in range(HANDLERS + 4)]
        try:
            for number, connection in enumerate(connections):
                connection.sendall(request(number))
            for _ in range(HANDLERS - 1):
                assert waiting.acquire(timeout=10)
            for number, connection in enumerate(connections):
                if number >= HANDLERS - 1:
                    assert response(connection) == (number, b"")
        finally:
            release.set()
        for number in range(HANDLERS - 1):
            assert response(connections[number]) == (number, b"")


def test_a_handler_that_gets_on_is_left_alone():
    """One thread answers nearly all of many requests that are queued at once."""
    by_thread, count = {}, 400

    def handle(pending):
        name = threading.get_ident()
        by_thread[name] = by_thread.get(name, 0) + 1
        time.sleep(0.0001)  # far below a millisecond: it makes progress
        echo(pending)
        pending.leave()

    with Served(handle, handlers=HANDLERS, start=False) as served, ExitStack() as stack:
        served.reactor.start()
        connections = [stack.enter_context(served.connect()) for _ in range(count)]
        for number, connection in enumerate(connections):
            connection.sendall(request(number))
        served.eventually(lambda c: c["python_queue"] == count)
        for handler in served.handlers:
            handler.start()
        for number, connection in enumerate(connections):
            assert response(connection) == (number, b"")
    assert sum(by_thread.values()) == count
    # The others help when the machine pauses the one for a millisecond. If they did not leave
    # the queue to it, they would answer while it sleeps, and each would answer a quarter.
    assert max(by_thread.values()) > count / 3, by_thread


def test_a_request_that_comes_while_all_sleep_is_taken_at_once():
    with Served(handlers=HANDLERS) as served, served.connect() as connection:
        took_s = []
        for number in range(200):
            began = time.perf_counter()
            connection.sendall(request(number))
            assert response(connection) == (number, b"")
            took_s.append(time.perf_counter() - began)
    # One in forty: beside other programs of the machine most may wait for a processor.
    assert sorted(took_s)[5] < 0.001, "a handler watched where nobody ran"


def test_a_taker_that_stays_busy_is_not_waited_for():
    """Its thread may have ended: each later request goes to the next handler that asks."""
    with Served(start=False) as served, ExitStack() as stack:
        served.reactor.start()
        held = []
        for number in range(5):
            connection = stack.enter_context(served.connect())
            connection.sendall(request(number))
            held.append(served.reactor.next_request(5000))
            assert held[-1] is not None
            assert held[-1].correlation_id == number
        held.clear()
