"""Each network limit, with proof that it was applied; bad frames; no leaks after abrupt closes."""

import os
import resource
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from reactor.network import Served, echo, is_closed, request, response

pytestmark = pytest.mark.alone(
    reason="measures waits of 0.4 s with bounds that a busy neighbour exceeds"
)


def resident_kib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (struct.pack(">i", -1), "negative-frame"),
        (struct.pack(">i", -(2**31)), "negative-frame"),
        (struct.pack(">i", 2**31 - 1), "large-frame"),
        (struct.pack(">i", 101 << 20) + b"x" * 64, "large-frame"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "http-client"),
        (b"OPTIONS * HTTP/1.1\r\n\r\n", "http-client"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "http-client"),
        (b"GETS / HTTP/1.1\r\n", "large-frame"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"r" * 32, "tls-client"),
        (b"\x16\x03\x05\x02\x00\x01\x00\x01\xfc\x03\x03" + b"r" * 32, "large-frame"),
        (struct.pack(">i", 0), "short-frame"),
        (struct.pack(">ihh", 4, 18, 0), "short-frame"),
        (struct.pack(">ihhi", 8, 18, 0, 1), "bad-header"),
        (struct.pack(">ihhih", 10, 18, 0, 1, 32767), "bad-header"),
        (struct.pack(">ihhihb", 11, 18, 3, 1, -1, 5), "bad-header"),
        (struct.pack(">ihhih", 15, 18, 3, 1, -1) + b"\xff\xff\xff\xff\x0f", "bad-header"),
        (struct.pack(">ihhih", 16, 18, 3, 1, -1) + b"\xff" * 6, "bad-header"),
        (struct.pack(">ihhih", 16, 18, 3, 1, -1) + b"\1\0\xff\xff\xff\x7f", "bad-header"),
    ],
)
def test_a_bad_frame_closes_without_a_word(sent, reason):
    with Served() as served, served.connect() as c:
        c.sendall(request(1) + sent)
        assert response(c) == (1, b"")
        assert is_closed(c)
        counters = served.closed(reason)
        assert counters["requests"] - (reason == "bad-header") <= 1
        served.quiet()
        (event,) = served.reactor.events()
        assert (event.reason, event.listener) == (reason, "PLAINTEXT")
        with served.connect() as again:
            again.sendall(request(2))
            assert response(again) == (2, b"")


def test_one_event_a_peer_and_second():
    with Served() as served:
        for _ in range(20):
            with served.connect() as c:
                c.sendall(struct.pack(">i", -1))
                assert is_closed(c)
        served.closed("negative-frame", 20)
        assert len(served.reactor.events()) == 1
        served.system.move_monotonic(1500)
        with served.connect() as c:
            c.sendall(struct.pack(">i", -1))
            assert is_closed(c)
        served.closed("negative-frame", 21)
        (event,) = served.reactor.events()
        assert event.suppressed == 19
        assert served.reactor.events() == []


def test_announced_bytes_cost_no_memory():
    with Served() as served:
        warm = served.connect()
        warm.sendall(request(1))
        response(warm)
        before = resident_kib()
        connections = [served.connect() for _ in range(20)]
        for c in connections:
            c.sendall(struct.pack(">i", 99 << 20) + b"x" * 64)
        counters = served.eventually(lambda c: c["bytes_in"] >= 20 * 68)
        assert counters["held_bytes"] < 20 * 1024
        assert resident_kib() - before < 1024
        for c in [*connections, warm]:
            c.close()
        served.quiet()


def test_2000_idle_connections_cost_little():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 6000:
        pytest.skip(f"{hard} open files allowed, 6000 needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 6000), hard))
    with Served() as served:
        first = served.connect()
        before = resident_kib()
        connections = []
        for count in range(40, 2001, 40):  # beyond the backlog, a client waits for a second
            connections += [served.connect() for _ in range(40)]
            served.eventually(lambda c, count=count: c["connection_count"] == count + 1)
        used_kib = resident_kib() - before
        for c in connections[::100]:
            c.sendall(request(4))
            assert response(c) == (4, b"")
        for c in [*connections, first]:
            c.close()
        served.quiet()
    # This includes the clients' sockets, which are Python objects of this process.
    assert used_kib < 2000 * 2


def test_frame_size_limit_can_be_changed():
    with Served() as served, served.connect() as c:
        served.reactor.set_limit("socket.request.max.bytes", 100)
        c.sendall(request(1, b"x" * 20))
        assert response(c)[0] == 1
        c.sendall(request(1, b"x" * 200))
        assert is_closed(c)
        served.closed("large-frame")
        with pytest.raises(KeyError, match="no limit 'x'"):
            served.reactor.set_limit("x", 1)


def serves(connection, seconds=5.0):
    """Whether a request is answered within that time."""
    connection.settimeout(seconds)
    connection.sendall(request(7))
    try:
        return response(connection)[0] == 7
    except TimeoutError:
        return False


def test_beyond_max_connections_a_client_waits_until_another_goes():
    with Served(max_connections=2) as served, served.connect() as a, served.connect() as b:
        served.eventually(lambda c: c["connection_count"] == 2)
        with served.connect() as waiting:
            assert not serves(waiting, 0.3)
            assert served.reactor.counters()["accept_blocked_ns"]["PLAINTEXT"] > 200_000_000
            b.close()
            assert response(waiting)[0] == 7
            with served.connect() as another:
                assert not serves(another, 0.2)
                served.reactor.set_limit("max.connections", 3)
                assert response(another)[0] == 7
        assert serves(a)


def test_a_listeners_own_max_connections_leaves_the_others_alone():
    with Served() as served:
        other_port = served.reactor.listen("OTHER", "127.0.0.1", 0)
        served.reactor.set_listener_limit("PLAINTEXT", "max.connections", 1)
        with served.connect() as first, served.connect() as waiting:
            assert serves(first)
            assert not serves(waiting, 0.2)
            with socket.create_connection(("127.0.0.1", other_port), timeout=5) as other:
                assert serves(other)
                assert not serves(waiting, 0.1)
            first.close()
            assert response(waiting)[0] == 7
        with pytest.raises(KeyError, match="no limit 'x'"):
            served.reactor.set_listener_limit("PLAINTEXT", "x", 1)
        with pytest.raises(ValueError, match="NONE"):
            served.reactor.set_listener_limit("NONE", "max.connections", 1)


@pytest.mark.parametrize("of_listener", [False, True])
def test_max_connection_creation_rate(of_listener):
    """Two connections a second, and those of ten seconds at once, as a mean over ten seconds
    allows."""
    with Served() as served:
        if of_listener:
            served.reactor.set_listener_limit("PLAINTEXT", "max.connection.creation.rate", 2)
        else:
            served.reactor.set_limit("max.connection.creation.rate", 2)
        began = time.monotonic()
        connections = [served.connect() for _ in range(25)]
        served.eventually(lambda c: c["connections_total"]["PLAINTEXT"] == 21)
        assert time.monotonic() - began < 0.4
        time.sleep(0.3)
        assert served.reactor.counters()["connections_total"]["PLAINTEXT"] == 21
        served.eventually(lambda c: c["connections_total"]["PLAINTEXT"] == 22)
        assert 0.45 < time.monotonic() - began < 1
        count, ns = served.reactor.counters()["accept_throttles"]["PLAINTEXT"]
        assert count in (1, 2) and 0.3e9 < ns / count <= 0.5e9
        assert served.reactor.counters()["address_throttles"]["PLAINTEXT"] == (0, 0)
        if of_listener:
            served.reactor.set_listener_limit("PLAINTEXT", "max.connection.creation.rate", 1000)
        else:
            served.reactor.set_limit("max.connection.creation.rate", 1000)
        assert all(serves(c, 1) for c in connections)
        for c in connections:
            c.close()


def test_an_address_may_have_a_limit_of_its_own():
    with Served() as served:
        served.reactor.set_limit("max.connections.per.ip", 3)
        own = bytes(10) + b"\xff\xff" + bytes([127, 0, 0, 1])
        served.reactor.set_address_limits({own: 1})
        with served.connect() as first:
            assert serves(first)
            with served.connect() as refused:
                assert is_closed(refused)
            others = [
                socket.create_connection(
                    ("127.0.0.1", served.port), timeout=5, source_address=("127.0.0.2", 0)
                )
                for _ in range(3)
            ]
            assert all(serves(other) for other in others)
            served.reactor.set_address_limits({})
            with served.connect() as second:
                assert serves(second)
        for other in others:
            other.close()
        with pytest.raises(ValueError, match="16 bytes"):
            served.reactor.set_address_limits({b"1234": 1})


def test_max_connections_per_ip():
    with Served() as served:
        served.reactor.set_limit("max.connections.per.ip", 2)
        kept = [served.connect() for _ in range(2)]
        served.eventually(lambda c: c["connection_count"] == 2)
        with served.connect() as refused:
            assert is_closed(refused)
        served.closed("max-connections-per-ip")
        other = socket.create_connection(
            ("127.0.0.1", served.port), timeout=5, source_address=("127.0.0.2", 0)
        )
        other.sendall(request(1))
        assert response(other)[0] == 1
        kept.pop().close()
        served.eventually(lambda c: c["connection_count"] == 2)
        with served.connect() as c:
            c.sendall(request(1))
            assert response(c)[0] == 1
        for c in [*kept, other]:
            c.close()
        served.quiet()


def test_idle_connections_close_and_busy_ones_do_not():
    with Served() as served, served.connect() as idle, served.connect() as busy:
        served.eventually(lambda c: c["connection_count"] == 2)
        served.reactor.set_limit("connections.max.idle.ms", 300)
        end = time.monotonic() + 0.8
        while time.monotonic() < end:
            busy.sendall(request(1))
            response(busy)
            time.sleep(0.02)
        assert is_closed(idle, 0.5)
        assert served.closed("idle")["connection_count"] == 1


def test_a_request_in_work_is_not_idle():
    def slow(pending):
        time.sleep(0.5)
        echo(pending)

    with Served(slow, connections_max_idle_ms=100) as served, served.connect() as c:
        c.sendall(request(1))
        assert response(c)[0] == 1


def test_slow_loris():
    with Served(request_receive_timeout_ms=400) as served:
        slow = [served.connect() for _ in range(50)]
        frame = request(1, b"x" * 1000)
        began = time.monotonic()
        with served.connect() as other:
            sent = 0
            while served.reactor.counters()["closed"]["receive-timeout"] < 50:
                sent += 1
                for c in slow:
                    try:
                        c.sendall(frame[sent - 1 : sent])
                    except OSError:
                        continue
                other.sendall(request(2))
                assert response(other)[0] == 2
                assert time.monotonic() - began < 5
                time.sleep(0.02)
        assert all(is_closed(c) for c in slow)
        for c in slow:
            c.close()
        served.quiet()


def test_a_client_that_never_reads():
    body = bytes(1 << 20)

    def handle(pending):
        pending.reply([struct.pack(">ii", 4 + len(body), pending.correlation_id), body])

    with Served(handle, response_send_timeout_ms=300) as served, served.connect() as c:
        before = resident_kib()
        for i in range(200):
            c.sendall(request(i))
        served.closed("send-timeout")
        counters = served.quiet()
        # One response at a time: its later requests were not read.
        assert counters["requests"] < 20
        assert resident_kib() - before < 30 * 1024


@pytest.mark.parametrize("budget", [50_000, 1])
def test_the_budget_of_request_bytes_stops_reading_and_never_blocks_for_ever(budget):
    sizes = [40_000, 60_000, 300_000, 100_000]
    with Served(handlers=2, queued_max_request_bytes=budget) as served:
        connections = [served.connect() for _ in sizes]
        bodies = [bytes([65 + i]) * size for i, size in enumerate(sizes)]
        threads = []
        for c, body in zip(connections, bodies, strict=True):
            half = len(body) // 2
            frame = request(1, body)
            c.sendall(frame[:half])
            threads.append(threading.Thread(target=c.sendall, args=(frame[half:],)))
        time.sleep(0.05)
        held = served.reactor.counters()["held_bytes"]
        assert held <= budget + 300_100 + 262_144
        for thread in threads:
            thread.start()
        for c, body in zip(connections, bodies, strict=True):
            assert response(c) == (1, body)
        for thread in threads:
            thread.join()
        for c in connections:
            c.close()
        served.quiet()


def test_a_used_up_budget_stops_reading():
    kept = []
    with Served(kept.append, queued_max_request_bytes=1000) as served:
        first, second = served.connect(), served.connect()
        first.sendall(request(1, b"x" * 2000))
        served.eventually(lambda _: len(kept) == 1)
        second.sendall(request(2))
        time.sleep(0.1)
        assert len(kept) == 1
        kept.pop().silent()
        served.eventually(lambda _: len(kept) == 1)
        kept.pop().silent()
        for c in (first, second):
            c.close()
        served.quiet()


def wakeups(served):
    return sum(row["wakeups"] for row in served.reactor.counters()["threads"])


def test_callers_sleep_until_the_queue_has_capacity():
    kept = []
    with Served(kept.append, queued_max_request_bytes=1000) as served:
        first, second = served.connect(), served.connect()
        first.sendall(request(1, b"x" * 2000))
        served.eventually(lambda _: len(kept) == 1)
        second.sendall(request(2))
        time.sleep(0.05)
        before = wakeups(served)
        time.sleep(0.3)
        assert wakeups(served) == before
        began = time.monotonic()
        kept.pop().silent()
        served.eventually(lambda _: len(kept) == 1, seconds=1)
        assert time.monotonic() - began < 0.5
        kept.pop().silent()
        for c in (first, second):
            c.close()
        served.quiet()


def test_a_frame_that_does_not_fit_beside_another_does_not_spin():
    """One slow connection exceeds the budget; the request of another does not fit meanwhile."""
    with Served(queued_max_request_bytes=100_000) as served:
        slow, other = served.connect(), served.connect()
        frames = [request(1, b"x" * 150_000), request(2, b"y" * 120_000)]
        slow.sendall(frames[0][:90_000])
        time.sleep(0.1)
        other.sendall(frames[1][:40_000])
        time.sleep(0.1)
        before = wakeups(served)
        time.sleep(0.3)
        assert wakeups(served) - before <= 2
        slow.sendall(frames[0][90_000:])
        assert response(slow)[0] == 1
        other.sendall(frames[1][40_000:])
        assert response(other)[0] == 2
        for c in (slow, other):
            c.close()
        served.quiet()


def test_queued_max_requests_stops_reading():
    kept = []
    gate = threading.Event()

    def handle(pending):
        gate.wait(10)
        kept.append(pending.correlation_id)
        echo(pending)

    with Served(handle, queued_max_requests=3) as served:
        connections = [served.connect() for _ in range(10)]
        for i, c in enumerate(connections):
            c.sendall(request(i))
        served.eventually(lambda c: c["python_queue"] == 3)
        time.sleep(0.1)
        before = wakeups(served)
        time.sleep(0.2)
        counters = served.reactor.counters()
        assert (counters["python_queue"], wakeups(served)) == (3, before)
        assert counters["python_requests"] == 4  # the handler has one
        gate.set()
        for i, c in enumerate(connections):
            assert response(c)[0] == i
        assert sorted(kept) == list(range(10))
        for c in connections:
            c.close()
        served.quiet()


def test_abrupt_ends_leave_nothing():
    gate = threading.Event()

    def handle(pending):
        gate.wait(10)
        echo(pending)

    with Served(handle, threads=2, handlers=2) as served:
        frame = request(1, b"x" * 5000)
        for i in range(200):
            c = served.connect()
            c.sendall(frame[: 40 * i] if i % 2 else frame * 3)
            if i % 3 == 0:
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            c.close()
        gate.set()
        served.quiet()
        with served.connect() as c:
            c.sendall(request(8))
            assert response(c)[0] == 8


OUT_OF_FILES = """
import resource, socket, time
from reactor.network import Served, request, response
with Served() as served:
    held = [served.connect() for _ in range(3)]
    served.eventually(lambda c: c["connection_count"] == 3)
    waiting = [socket.socket() for _ in range(4)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    for c in waiting:
        c.connect(("127.0.0.1", served.port))
    before = time.process_time()
    time.sleep(0.6)
    assert time.process_time() - before < 0.2, "it spins"
    refused = served.reactor.counters()["closed"]["accept-failed"]
    assert 2 <= refused <= 10, refused
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    served.eventually(lambda c: c["connection_count"] == 7)
    for c in held + waiting:
        c.sendall(request(1))
        c.settimeout(5)
        assert response(c)[0] == 1
"""


def test_out_of_descriptors_accepting_rests():
    tests = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_FILES],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([tests, *sys.path])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def cpu_s(name):
    """The CPU time of this process's threads of a name."""
    ticks = 0
    for task in Path("/proc/self/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        if (task / "comm").read_text().strip() == name:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def test_a_closed_connection_with_another_holder_is_forgotten():
    """A forked child has copies of all descriptors; such a copy kept the connection in epoll, which
    reported events for it without end, for memory that another connection used by then."""
    with Served() as served:
        c = served.connect()
        c.sendall(request(1))
        assert response(c) == (1, b"")
        name = c.getpeername(), c.getsockname()
        copies = [
            os.dup(int(fd.name))
            for fd in Path("/proc/self/fd").iterdir()
            if is_server_side(int(fd.name), *name)
        ]
        assert len(copies) == 1
        c.close()
        served.quiet()
        began_s = cpu_s("network-0")
        time.sleep(0.5)
        assert cpu_s("network-0") - began_s < 0.2
        os.close(copies[0])


def is_server_side(fd, local, remote):
    try:
        with socket.socket(fileno=os.dup(fd)) as found:
            return (found.getsockname(), found.getpeername()) == (local, remote)
    except OSError:
        return False
