"""Native handlers on the network thread: responses, waits, wakes, file slices, requests for
Python."""

import random
import socket
import struct
import time

import pytest
from reactor.network import Served, is_closed, receive, request, response

from barnabas.cext.log.segment import SegmentCache

pytestmark = pytest.mark.alone(
    reason="measures waits of 0.05 s with bounds that a busy neighbour exceeds"
)


def parking(correlation_id, ms, filler=b"", key=101):
    return request(correlation_id, struct.pack(">i", ms) + filler, key=key)


def test_answers_of_native_handlers_and_python_keep_the_order(trial_handler):
    native = trial_handler()
    with Served(native=[native]) as served, served.connect() as c:
        keys = [random.Random(3).choice([18, 100, 103, 104]) for _ in range(1000)]
        c.sendall(b"".join(request(i, b"b" * (i % 300), key=k) for i, k in enumerate(keys)))
        for i, key in enumerate(keys):
            if key != 103:
                assert response(c) == (i, b"b" * (i % 300))
        counters = served.reactor.counters()
        assert counters["requests"] == 1000
        assert counters["python_requests"] == sum(k in (18, 104) for k in keys)


def test_a_native_handler_closes(trial_handler):
    with Served(native=[trial_handler()]) as served, served.connect() as c:
        c.sendall(request(1, key=100) + request(2, key=102) + request(3, key=100))
        assert response(c) == (1, b"")
        assert is_closed(c)
        served.closed("malformed-request")


@pytest.mark.parametrize("size_bytes", [0, 1000, 20_000, 200_000, 500_000])
def test_a_delayed_request_stays_put(trial_handler, size_bytes):
    native = trial_handler()
    filler = random.Random(1).randbytes(size_bytes)
    with Served(native=[native]) as served, served.connect() as c, served.connect() as other:
        c.sendall(parking(1, 60_000, filler) + request(2, b"behind", key=100))
        served.eventually(lambda k: k["parked"] == 1)
        other.sendall(request(9, bytes(200_000), key=100))
        assert response(other) == (9, bytes(200_000))
        assert served.reactor.counters()["held_bytes"] >= size_bytes
        native.wake_last()
        assert response(c) == (1, b"woken")
        assert response(c) == (2, b"behind")
        assert native.moved == 0
        served.eventually(lambda k: k["held_bytes"] == 0 and k["parked"] == 0)


def test_a_delayed_request_expires(trial_handler):
    with Served(native=[trial_handler()]) as served, served.connect() as c:
        for ms in (0, 50, 200):
            began = time.monotonic()
            c.sendall(parking(ms, ms))
            assert response(c) == (ms, b"expired")
            assert ms / 1000 <= time.monotonic() - began < ms / 1000 + 0.5


def test_a_woken_request_goes_on_to_python(trial_handler):
    native = trial_handler()
    for size_bytes in (10, 30_000):
        filler = b"f" * size_bytes
        with Served(native=[native]) as served, served.connect() as c:
            c.sendall(parking(1, 60_000, filler, key=106))
            served.eventually(lambda k: k["parked"] == 1)
            native.wake_last()
            assert response(c) == (1, struct.pack(">i", 60_000) + filler)


def test_wakes_for_no_connection_and_many_at_once(trial_handler):
    native = trial_handler()
    with Served(native=[native], threads=2) as served, served.connect() as c:
        for thread in (-1, 0, 1, 2, 99):
            native.wake(thread, 12345, times=10_000)
        c.sendall(parking(1, 60_000))
        served.eventually(lambda k: k["parked"] == 1)
        for _ in range(1000):
            native.wake_last()
        assert response(c) == (1, b"woken")
        c.sendall(request(2, key=100))
        assert response(c) == (2, b"")


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("size_bytes", [10, 100_000])
def test_a_peer_that_closes_while_its_request_is_delayed_is_noticed(
    trial_handler, reset, size_bytes
):
    native = trial_handler()
    with Served(native=[native]) as served:
        for _ in range(20):
            c = served.connect()
            c.sendall(parking(1, 60_000, bytes(size_bytes)))
            served.eventually(lambda k: k["parked"] == 1)
            if reset:
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            c.close()
            served.quiet()
        assert (native.parked, native.abandoned) == (0, 20)


def test_a_muted_connection_with_more_to_read_does_not_spin(trial_handler):
    native = trial_handler()
    with Served(native=[native]) as served, served.connect() as c, served.connect() as half:
        c.sendall(parking(1, 60_000))
        served.eventually(lambda k: k["parked"] == 1)
        c.sendall(bytes(1 << 16))
        half.sendall(parking(1, 60_000))
        served.eventually(lambda k: k["parked"] == 2)
        half.sendall(request(2, key=100))
        half.shutdown(socket.SHUT_WR)
        time.sleep(0.05)
        before = time.process_time()
        time.sleep(0.5)
        assert time.process_time() - before < 0.1
        native.wake_last()
        assert response(half) == (1, b"woken")
        assert response(half) == (2, b"")
        assert is_closed(half)


def test_stop_abandons_what_does_not_end(trial_handler):
    native = trial_handler()
    with Served(native=[native]) as served, served.connect() as c:
        c.sendall(parking(1, 60_000))
        served.eventually(lambda k: k["parked"] == 1)
        began = time.monotonic()
        served.reactor.stop(200)
        assert 0.15 < time.monotonic() - began < 2
        assert is_closed(c)
        assert (native.parked, native.abandoned) == (0, 1)


@pytest.fixture
def sliced(trial_handler, tmp_path):
    data = random.Random(5).randbytes(3 << 20)
    (tmp_path / f"{0:020}.log").write_bytes(data)
    native = trial_handler(SegmentCache(open_segments_max=8), str(tmp_path).encode())
    with Served(native=[native]) as served:
        yield served, native, data, tmp_path / f"{0:020}.log"


def wanted(data, pieces):
    return b"".join(b"<" + data[at : at + size] for at, size in pieces) + b">"


def asking(correlation_id, pieces):
    return request(correlation_id, b"".join(struct.pack(">qq", *p) for p in pieces), key=105)


@pytest.mark.parametrize(
    "pieces",
    [
        [(0, 1)],
        [(5, 4095), (9, 4096), (11, 4097)],
        [(0, 0), (7, 0), (0, 3 << 20)],
        [(i * 100, i % 5000) for i in range(300)],
        [(1, 2 << 20), (2, 10), (3, 1 << 20), (4, 3000)],
    ],
)
def test_slices_of_every_size(sliced, pieces):
    served, native, data, _ = sliced
    with served.connect() as c:
        c.sendall(asking(1, pieces) + asking(2, pieces[::-1]) + request(3, key=100))
        assert response(c) == (1, wanted(data, pieces))
        assert response(c) == (2, wanted(data, pieces[::-1]))
        assert response(c) == (3, b"")
    served.quiet()
    assert native.segment_references == 1


def test_a_cut_file_closes_the_connection(sliced):
    served, native, data, path = sliced
    for pieces in ([(0, 3 << 20)], [((3 << 20) - 100, 100)]):
        path.write_bytes(data[: 2 << 20])
        with served.connect() as c:
            c.sendall(asking(1, pieces))
            with pytest.raises((EOFError, ConnectionResetError)):
                response(c)
        path.write_bytes(data)
    served.closed("file", 2)
    served.quiet()
    assert native.segment_references == 1


def test_an_unreadable_file_closes_the_connection(sliced):
    served, native, _, _ = sliced
    for call in ("sendfile", "pread"):
        served.system.fault(call, "error", errno=5)
        with served.connect() as c:
            c.sendall(asking(1, [(0, 100_000 if call == "sendfile" else 100)]))
            with pytest.raises((EOFError, ConnectionResetError)):
                response(c)
    served.quiet()
    assert native.segment_references == 1


def test_a_reader_that_goes_lets_the_slices_go(sliced):
    served, native, _, _ = sliced
    c = served.connect()
    c.sendall(asking(1, [(0, 3 << 20)] * 5))
    receive(c, 1000)
    assert native.segment_references == 6
    c.close()
    served.quiet()
    assert native.segment_references == 1


def test_one_reader_does_not_stall_the_others(sliced):
    served, _, data, _ = sliced
    with served.connect() as slow, served.connect() as other:
        slow.sendall(asking(1, [(0, 3 << 20)] * 3))
        for i in range(100):
            other.sendall(request(i, key=100))
            assert response(other) == (i, b"")
        assert response(slow) == (1, wanted(data, [(0, 3 << 20)] * 3))
