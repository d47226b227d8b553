"""Connections that hold up their network thread move to spare threads, and return."""

import contextlib
import socket
import struct
import threading
from pathlib import Path

import pytest
from reactor.network import Served, answer_to, is_closed, request, response
from waiting import soon

from barnabas.telemetry.network_metrics import NetworkCollector
from barnabas.telemetry.registry import Page
from barnabas.telemetry.request_errors import RequestErrors

LONG_MS = 60  # a request that holds up its thread, also where the limit is not met exactly
COUNT = 2  # of such requests: the first may only make the thread watched
SPARES_MAX = 16


def holding(correlation_id, ms, key=108):
    return request(correlation_id, struct.pack(">i", ms), key=key)


def place(connection, ms=0):
    """The name of the thread that answers the next request, which holds it for `ms`."""
    connection.sendall(holding(7, ms))
    correlation_id, name = response(connection)
    assert correlation_id == 7
    return name.decode()


def moved(connection):
    """Makes the connection hold up its thread, and returns the name of its new one."""
    for _ in range(COUNT):
        place(connection, LONG_MS)
    name = place(connection)
    assert name.startswith("net-spare-")
    return name


def spare_threads():
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    return sum(name.startswith("net-spare-") for name in names)


@pytest.fixture
def served(trial_handler):
    with Served(native=[trial_handler()]) as made:
        yield made


def test_others_of_its_thread_no_longer_wait_for_a_connection_that_has_held_it_up(served):
    with served.connect() as slow, served.connect() as other:
        assert place(slow) == place(other) == "network-0"
        spare = moved(slow)
        slow.sendall(holding(1, 500))
        for _ in range(20):
            assert place(other) == "network-0"
        with pytest.raises(TimeoutError):
            slow.settimeout(0.001)
            slow.recv(1)
        slow.settimeout(20)
        assert response(slow) == (1, spare.encode())


def test_requests_behind_the_long_one_are_answered_on_the_spare_thread_in_order(served):
    with served.connect() as slow, served.connect() as other:
        behind = [request(n, bytes(n % 700), key=(100, 18, 104)[n % 3]) for n in range(2, 900)]
        slow.sendall(holding(0, LONG_MS) + holding(1, LONG_MS) + b"".join(behind) + holding(900, 0))
        assert response(slow) == (0, b"network-0")
        assert response(slow) == (1, b"network-0")
        for n in range(2, 900):
            assert response(slow) == (n, bytes(n % 700))
        assert response(slow)[1].startswith(b"net-spare-")
        assert place(other) == "network-0"


def test_a_long_request_without_an_answer_moves_its_connection(served):
    with served.connect() as slow:
        slow.sendall(holding(1, LONG_MS, key=109) * COUNT)
        assert place(slow).startswith("net-spare-")


def test_a_request_that_holds_up_its_thread_after_a_wait_moves_its_connection(served):
    with served.connect() as slow:
        for n in range(COUNT):
            slow.sendall(request(n, struct.pack(">i", 1), key=110))
            assert response(slow) == (n, b"expired")
        assert place(slow).startswith("net-spare-")


def test_questions_of_a_connection_that_has_moved_are_its_own(trial_handler):
    asked = []

    def handle(pending):
        asked.append(pending.questions)
        pending.reply(answer_to(pending))

    with Served(handle, native=[trial_handler()]) as served, served.connect() as slow:
        moved(slow)
        for n in range(3):
            slow.sendall(request(n, key=111))
            assert response(slow) == (n, b"")
        assert asked == [[(3, 2, b"t")]] * 3


def test_a_frame_that_arrives_in_parts_around_the_move(served):
    with served.connect() as slow:
        whole = request(5, bytes(range(256)) * 100, key=100)
        slow.sendall(holding(1, LONG_MS) * COUNT + whole[:9000])
        for _ in range(COUNT):
            assert response(slow)[0] == 1
        soon(lambda: len(served.reactor.counters()["spare_threads"]) == 1)
        slow.sendall(whole[9000:])
        assert response(slow) == (5, bytes(range(256)) * 100)
    counters = served.quiet()
    assert [thread["connections"] for thread in counters["threads"]] == [0]
    assert [thread["connections"] for thread in counters["spare_threads"]] == [0]


def test_each_connection_has_a_spare_thread_of_its_own_while_there_are_no_more(served):
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(served.connect()) for _ in range(SPARES_MAX + 4)]
        names = [moved(connection) for connection in slow]
        assert len(set(names[:SPARES_MAX])) == SPARES_MAX
        assert len(set(names)) == SPARES_MAX == spare_threads()
        counters = served.reactor.counters()
        counts = [thread["connections"] for thread in counters["spare_threads"]]
        assert sorted(counts) == [1] * (SPARES_MAX - 4) + [2] * 4
        assert counters["threads"][0]["connections"] == 0
        assert sum(counters["connections"].values()) == len(slow)
    served.quiet()
    with served.connect() as again:
        assert moved(again) in names, "an idle spare thread is used again"
    assert spare_threads() == SPARES_MAX


def test_a_request_that_computes_for_long_moves_no_connection(served):
    """It would need the processor on another thread as well."""
    with served.connect() as busy:
        for n in range(2 * COUNT):
            busy.sendall(request(n, struct.pack(">i", LONG_MS), key=112))
            assert response(busy) == (n, b"")
        assert place(busy) == "network-0"
        place(busy, LONG_MS)
        assert place(busy).startswith("net-spare-"), "it was watched"


def test_a_wait_from_time_to_time_moves_no_connection(served):
    with served.connect() as slow:
        for _ in range(2 * COUNT):
            place(slow, LONG_MS)
            served.system.move_monotonic(31_000)
            assert place(slow) == "network-0"


def test_a_connection_returns_when_it_has_held_up_no_thread_for_30_seconds(served):
    with served.connect() as slow:
        spare = moved(slow)
        served.system.move_monotonic(29_000)
        assert place(slow, LONG_MS) == spare
        served.system.move_monotonic(29_000)
        assert [place(slow), place(slow)] == [spare, spare]
        served.system.move_monotonic(2_000)
        assert [place(slow), place(slow)] == [spare, "network-0"]
        counters = served.reactor.counters()
        assert counters["threads"][0]["connections"] == 1
        assert [thread["connections"] for thread in counters["spare_threads"]] == [0]
        assert moved(slow) == spare


def test_a_connection_returns_to_a_thread_that_still_takes_connections(trial_handler):
    with Served(native=[trial_handler()], threads=2) as served, served.connect() as first:
        with served.connect() as slow:
            assert {place(first), place(slow)} == {"network-0", "network-1"}
            spare = moved(slow)
            served.reactor.resize(1)
            soon(lambda: served.reactor.counters()["threads"][0]["connections"] <= 1)
            served.system.move_monotonic(31_000)
            assert [place(slow), place(slow)] == [spare, "network-0"]
            served.reactor.resize(3)
            assert moved(slow) == spare
            assert place(slow) == spare


def test_waits_and_wakes_and_python_serve_a_connection_that_has_moved(trial_handler):
    native, ids = trial_handler(), []

    def handle(pending):
        pending.report_close()
        ids.append(pending.connection_id)
        pending.reply(answer_to(pending))

    with Served(handle, native=[native]) as served, served.connect() as slow:
        slow.sendall(request(1))  # its close is reported wherever it is then
        assert response(slow) == (1, b"")
        moved(slow)
        slow.sendall(request(2, struct.pack(">i", 60_000), key=101))
        served.eventually(lambda counters: counters["parked"] == 1)
        native.wake_last()
        assert response(slow) == (2, b"woken")
        slow.sendall(request(3, struct.pack(">i", 50), key=101))
        assert response(slow) == (3, b"expired")
        slow.sendall(request(4, b"python"))
        assert response(slow) == (4, b"python")
        slow.close()
        assert served.reactor.next_closed(10_000) == ids[0]
        assert len(set(ids)) == 1
        served.quiet()


def test_metrics_name_each_spare_thread_and_their_sums_stay_whole(served):
    collector = NetworkCollector(served.reactor, RequestErrors(), lambda: 1, lambda: 100, 0)

    def rows(part):
        page = Page("confluent", served.system.monotonic_ns())
        found = {family.name: dict(values) for family, values in collector(page)}
        return next(values for name, values in found.items() if name.endswith(part))

    with served.connect() as slow, served.connect() as other:
        place(other)
        before = sum(rows("incoming_byte_total").values())
        moved(slow)
        connections = rows("connection_count")
        assert sum(connections.values()) == 2
        [spare] = [labels for labels, count in connections.items() if "spare-0" in str(labels)]
        assert connections[spare] == 1
        received = rows("incoming_byte_total")
        frame = len(holding(7, 0))
        assert sum(received.values()) - before == (COUNT + 1) * frame
        assert sum(n for labels, n in received.items() if "spare-0" in str(labels)) >= frame


def test_limits_and_timers_reach_a_connection_that_has_moved(served):
    with served.connect() as slow:
        moved(slow)
        served.reactor.set_limit("connections.max.idle.ms", 50)
        assert is_closed(slow)
        served.closed("idle")


def test_a_listener_that_closes_closes_connections_on_spare_threads(served):
    with served.connect() as slow:
        moved(slow)
        served.reactor.unlisten("PLAINTEXT")
        assert is_closed(slow)
        served.quiet()


@pytest.mark.parametrize("reset", [False, True])
def test_a_peer_that_closes_while_its_request_holds_up_the_thread(served, reset):
    """After a reset the answer cannot be sent, and the connection closes before it has moved."""
    for n in range(5):
        slow = served.connect()
        if reset:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        slow.sendall(holding(1, LONG_MS) * COUNT)
        served.eventually(lambda counters, n=n: counters["requests"] == COUNT * (n + 1))
        slow.close()
        served.quiet()
    with served.connect() as other:
        assert place(other) == "network-0"


def test_a_stop_ends_the_spare_threads_and_closes_their_connections(trial_handler):
    before = spare_threads()
    with Served(native=[trial_handler()]) as served:
        kept = [served.connect() for _ in range(3)]
        for connection in kept:
            moved(connection)
        assert spare_threads() == before + 3
        kept[0].sendall(holding(9, 200))
        served.eventually(lambda counters: counters["requests"] == 3 * (COUNT + 1) + 1)
        served.reactor.stop(5000)
        assert spare_threads() == before
        assert response(kept[0])[0] == 9
        for connection in kept:
            assert is_closed(connection)


@pytest.mark.parametrize("resized", [False, True])
def test_connections_move_while_the_reactor_stops_or_loses_threads(trial_handler, resized):
    """Each connection either has its answer or is closed, and none is forgotten."""
    for turn in range(10):
        with Served(native=[trial_handler()], threads=2) as served:
            connections = [served.connect() for _ in range(8)]
            for connection in connections:
                connection.sendall(holding(1, 21) * COUNT + holding(2, 0))
            stop = threading.Timer(
                turn * 0.01, lambda: served.reactor.resize(1) if resized else served.reactor.stop()
            )
            stop.start()
            for connection in connections:
                with contextlib.suppress(EOFError, ConnectionResetError):
                    for n in (1,) * COUNT + (2,):
                        assert response(connection)[0] == n
                connection.close()
            stop.join()
            if resized:
                served.quiet()
        assert spare_threads() == 0
