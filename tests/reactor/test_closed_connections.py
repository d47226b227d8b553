"""Python gets an event when a connection that it marked closes, and none for others."""

import threading

from reactor.network import Served, answer_to, request


def marking(pending):
    """Marks the connection and answers; `x` in the body: does not mark it."""
    if pending.data[pending.body_at :] != b"x":
        pending.report_close()
        pending.report_close()  # the second mark has no effect
    pending.reply(answer_to(pending))


def asked(connection, body=b""):
    connection.sendall(request(1, body))
    assert connection.recv(100)


def test_a_marked_connection_is_reported_once():
    ids = []

    def handle(pending):
        ids.append(pending.connection_id)
        marking(pending)

    with Served(handle) as served:
        one, plain, two = served.connect(), served.connect(), served.connect()
        asked(one)
        asked(plain, b"x")
        asked(two)
        asked(two)
        plain.close()
        served.eventually(lambda counters: counters["connection_count"] == 2)
        assert served.reactor.next_closed(0) is None
        one.close()
        assert served.reactor.next_closed(10_000) == ids[0]
        two.close()
        assert served.reactor.next_closed(10_000) == ids[2]
        assert served.reactor.next_closed(50) is None


def test_a_connection_that_has_closed_before_it_is_marked():
    waits, found = threading.Event(), []

    def handle(pending):
        waits.wait(20)
        found.append(pending.connection_id)
        pending.report_close()
        pending.silent()

    with Served(handle) as served:
        gone = served.connect()
        gone.sendall(request(1))
        served.eventually(lambda counters: counters["python_requests"] == 1)
        gone.close()
        served.eventually(lambda counters: counters["connection_count"] == 0)
        waits.set()
        assert served.reactor.next_closed(10_000) == found[0]


def test_a_connection_that_the_broker_closes_is_reported_too():
    with Served(marking, connections_max_idle_ms=200) as served:
        idle = served.connect()
        asked(idle)
        assert served.reactor.next_closed(10_000) is not None
        idle.close()


def test_waiting_takers_return_at_the_stop():
    told = []
    with Served(marking) as served:
        left = served.connect()
        asked(left)
        waiting = threading.Thread(target=lambda: told.append(served.reactor.next_closed()))
        waiting.start()
    waiting.join(10)
    assert told == [None]
    left.close()
    assert served.reactor.next_closed() is None
