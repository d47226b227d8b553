"""With a gate, Python sees the requests of a native handler first and may answer them."""

import struct
import time

import pytest
from reactor.network import Served, answer_to, echo, is_closed, request, response

NATIVE_KEYS = [100, 101]


def test_gated_requests_are_answered_by_python_and_others_by_their_native_handler(trial_handler):
    seen = []

    def handle(pending):
        seen.append((pending.api_key, pending.gated))
        pending.reply(struct.pack(">ii", 8, pending.correlation_id) + b"mine")

    with Served(handle, native=[trial_handler()]) as served, served.connect() as c:
        c.sendall(request(1, b"native", key=100))
        assert response(c) == (1, b"native")
        served.reactor.set_gate([100, 18])
        c.sendall(request(2, b"native", key=100) + request(3, b"", key=18))
        assert [response(c), response(c)] == [(2, b"mine"), (3, b"mine")]
        served.reactor.set_gate([])
        c.sendall(request(4, b"native", key=100))
        assert response(c) == (4, b"native")
    assert seen == [(100, True), (18, True)]


def proceed(pending):
    if pending.gated:
        pending.proceed()
    else:
        echo(pending)


@pytest.mark.parametrize("size_bytes", [0, 1000, 50_000, 500_000])
def test_a_request_that_proceeds_is_answered_by_its_handler_in_order(trial_handler, size_bytes):
    body = b"b" * size_bytes
    with Served(proceed, native=[trial_handler()]) as served, served.connect() as c:
        served.reactor.set_gate(NATIVE_KEYS)
        c.sendall(request(1, body, key=100) + request(2, body, key=18) + request(3, body, key=100))
        assert [response(c) for _ in range(3)] == [(1, body), (2, body), (3, body)]
        assert served.reactor.counters()["python_requests"] == 3
    assert served.reactor.counters()["held_bytes"] == 0


@pytest.mark.parametrize("size_bytes", [0, 300_000])
def test_a_request_that_proceeds_may_park(trial_handler, size_bytes):
    native = trial_handler()
    with Served(proceed, native=[native]) as served, served.connect() as c:
        served.reactor.set_gate(NATIVE_KEYS)
        c.sendall(request(1, struct.pack(">i", 60_000) + bytes(size_bytes), key=101))
        served.eventually(lambda k: k["parked"] == 1)
        native.wake_last()
        assert response(c) == (1, b"woken")
        assert native.moved == 0
        c.sendall(request(2, struct.pack(">i", 60_000) + bytes(size_bytes), key=101))
        served.eventually(lambda k: k["parked"] == 1)
        c.close()
        served.quiet()
        assert native.abandoned == 1


def test_a_muffled_request_is_carried_out_and_its_connection_closes(trial_handler):
    native = trial_handler()

    def handle(pending):
        pending.muffle()
        if pending.gated:
            pending.proceed()
        else:
            pending.reply(answer_to(pending))

    with Served(handle, native=[native]) as served, served.connect() as c, served.connect() as e:
        served.reactor.set_gate([100, 101, 103])
        c.sendall(request(1, b"x", key=100) + request(2, b"x", key=18))
        assert is_closed(c)
        served.closed("handler")
        e.sendall(request(1, b"x", key=18) + request(2, b"x", key=18))
        assert is_closed(e)
        with served.connect() as d:  # a parked request closes at the end of its wait
            d.sendall(request(1, struct.pack(">i", 60_000), key=101))
            served.eventually(lambda k: k["parked"] == 1)
            native.wake_last()
            assert is_closed(d)
        served.quiet()


def test_only_a_gated_request_proceeds_and_only_once(trial_handler):
    said = []

    def handle(pending):
        try:
            pending.proceed()
            pending.proceed()
        except RuntimeError as error:
            said.append(str(error))
        if not pending.gated:
            pending.reply(answer_to(pending))

    with Served(handle, native=[trial_handler()]) as served, served.connect() as c:
        served.reactor.set_gate([100])
        c.sendall(request(1, b"", key=18) + request(2, b"", key=100))
        assert [response(c), response(c)] == [(1, b""), (2, b"")]
    assert said == ["no handler waits for this request", "this request was answered before"]


def test_a_key_that_does_not_fit_is_refused(trial_handler):
    with Served(native=[trial_handler()]) as served:
        for key in (-1, 128):
            with pytest.raises(ValueError, match="not within 0-127"):
                served.reactor.set_gate([key])


def test_a_moved_clock_is_seen_by_connections_that_wait(trial_handler):
    with Served(native=[trial_handler()], connections_max_idle_ms=600_000) as served:
        with served.connect() as c:
            c.sendall(request(1, key=100))
            assert response(c) == (1, b"")
            served.system.move_monotonic(599_000)
            served.reactor.look_at_timers()
            time.sleep(0.05)
            assert served.reactor.counters()["connection_count"] == 1
            served.system.move_monotonic(2_000)
            served.reactor.look_at_timers()
            assert is_closed(c)
            served.closed("idle")
