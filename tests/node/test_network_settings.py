"""Settings of connections and network threads, at the start and changed while the broker runs."""

import contextlib
import os
import socket
import stat
import threading
import time
from contextlib import closing

import pytest
from api.admin_calls import BROKER, DELETE, SET, admin_on
from compat.support import Wire
from node.test_settings import (
    API_VERSIONS,
    broker_with,
    create,
    fetch,
    metadata,
    produce,
    wire_to,
)
from waiting import soon

from barnabas import Broker
from barnabas.config import ConfigError
from barnabas.node import CannotStart

INVALID_REQUEST = 42
OVERRIDES = "max.connections.per.ip.overrides"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A broker whose settings each test changes and restores."""
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SECOND://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT",
        "num.network.threads": "2",
    }
    with admin_on(tmp_path_factory.mktemp("network"), node_id="1", **settings) as a:
        yield a


@contextlib.contextmanager
def altered(admin, name, value, broker="1"):
    assert admin.alter(BROKER, broker, (name, SET, str(value))) == (0, None)
    yield
    assert admin.alter(BROKER, broker, (name, DELETE, None)) == (0, None)


def address(broker, index=0):
    listener = broker.node.listening[index]
    return listener.host, listener.port


def connect(broker, index=0, source="127.0.0.1"):
    return socket.create_connection(address(broker, index), 5, source_address=(source, 0))


def serves(connection, seconds=60.0):
    """Whether a request is answered within that time; False if it waits or is closed."""
    connection.settimeout(seconds)
    try:
        connection.sendall(API_VERSIONS)
        return len(connection.recv(8)) == 8
    except (TimeoutError, ConnectionError):
        return False


def network_threads():
    return sum(thread.name.startswith("network-") for thread in threading.enumerate())


def becomes(count, seconds=60.0):
    end = time.monotonic() + seconds
    while network_threads() != count and time.monotonic() < end:
        time.sleep(0.01)
    return network_threads() == count


def test_num_network_threads_live(shared):
    before = network_threads()
    name = "num.network.threads"
    for wrong in ("5", "0"):
        code, said = shared.alter(BROKER, "", (name, SET, wrong))
        assert code == INVALID_REQUEST and name in said
    assert network_threads() == before
    with altered(shared, name, 4, broker=""):
        assert network_threads() == before + 2
        connections = [connect(shared.broker) for _ in range(8)]
        assert all(serves(c) for c in connections)
        held = [row["connections"] for row in shared.broker.node.reactor.counters()["threads"]]
        assert len(held) == 4 and min(held) >= 2
        for c in connections:
            c.close()
    assert becomes(before), name


def test_num_network_threads_outlives_a_restart(tmp_path):
    before = network_threads()
    with admin_on(tmp_path, **{"num.network.threads": "3"}) as a:
        assert network_threads() == before + 3
        assert a.alter(BROKER, "", ("num.network.threads", SET, "6")) == (0, None)
    with admin_on(tmp_path, **{"num.network.threads": "3"}):
        assert network_threads() == before + 6


def test_max_connections_live(shared):
    held = shared.broker.node.reactor.counters()["connection_count"]
    name = "max.connections"
    with connect(shared.broker) as first:
        assert serves(first)
        with altered(shared, name, held + 2, broker=""):
            with connect(shared.broker) as second:
                assert serves(second)
                with connect(shared.broker) as waiting, connect(shared.broker, 1) as other:
                    assert not serves(waiting, 0.2) and not serves(other, 0.2)
        assert serves(first)
        with connect(shared.broker) as second:
            assert serves(second), name


def test_limits_of_a_listener(shared):
    name = "listener.name.second.max.connections"
    code, said = shared.alter(BROKER, "", (name, SET, "1"))
    assert code == INVALID_REQUEST and "one broker" in said
    assert shared.alter(BROKER, "1", (name, SET, "many"))[0] == INVALID_REQUEST
    with altered(shared, name, 1), connect(shared.broker, 1) as first:
        assert serves(first)
        with connect(shared.broker, 1) as waiting, connect(shared.broker, 0) as other:
            assert not serves(waiting, 0.2)
            assert serves(other)
    with connect(shared.broker, 1) as first, connect(shared.broker, 1) as second:
        assert serves(first) and serves(second)


def test_limits_of_a_listener_from_the_file(tmp_path):
    settings = {
        "listener.name.plaintext.max.connections": "1",
        "listener.name.plaintext.max.connection.creation.rate": "1000",
    }
    with broker_with(tmp_path, settings) as b, connect(b) as first:
        assert b.node.config.warnings == []
        assert serves(first)
        with connect(b) as waiting:
            assert not serves(waiting, 0.2)
    with pytest.raises(ConfigError, match="whole number"):
        broker_with(tmp_path, dict.fromkeys(settings, "x")).__enter__()


@pytest.mark.parametrize("index", [0, 1])
def test_max_connection_creation_rate_live(tmp_path, index):
    """One connection a second, and ten at once."""
    names = ["max.connection.creation.rate", "listener.name.plaintext.max.connection.creation.rate"]
    with admin_on(tmp_path, node_id="1") as a:
        assert a.alter(BROKER, "1", (names[index], SET, "1")) == (0, None)
        began = time.monotonic()
        connections = [connect(a.broker) for _ in range(13)]
        assert [serves(c) for c in connections[:11]] == [True] * 11
        assert serves(connections[11])
        assert 0.9 < time.monotonic() - began < 5
        is_served = serves(connections[12], 0.1)
        assert not is_served or time.monotonic() - began > 1.9
        assert a.alter(BROKER, "1", (names[index], DELETE, None)) == (0, None)
        assert serves(connections[12])
        for c in connections:
            c.close()


def test_max_connections_per_ip_overrides_live(shared):
    # The test's own connection, and two more.
    name = "max.connections.per.ip.overrides"
    with altered(shared, name, "127.0.0.9:1, localhost:50", broker=""):
        with connect(shared.broker, source="127.0.0.9") as first:
            assert serves(first)
            with connect(shared.broker, source="127.0.0.9") as refused:
                assert not serves(refused, 0.5)
            with connect(shared.broker, source="127.0.0.8") as other:
                assert serves(other)
        for wrong in ("127.0.0.9", "127.0.0.9:x", ":5"):
            assert shared.alter(BROKER, "", (name, SET, wrong))[0] == INVALID_REQUEST
    with connect(shared.broker, source="127.0.0.9") as first:
        with connect(shared.broker, source="127.0.0.9") as second:
            assert serves(first) and serves(second)


def test_only_overridden_addresses_may_connect(tmp_path):
    settings = {"max.connections.per.ip": "0", OVERRIDES: "127.0.0.1:5"}
    with broker_with(tmp_path, settings) as b:
        with connect(b) as ours, connect(b, source="127.0.0.2") as others:
            assert serves(ours) and not serves(others, 0.5)
    with pytest.raises(ConfigError, match="can be set to zero only if"):
        broker_with(tmp_path, {"max.connections.per.ip": "0"}).__enter__()
    with pytest.raises(CannotStart, match=r"max\.connections\.per\.ip\.overrides: unknown host"):
        broker_with(tmp_path, {OVERRIDES: "no-such-host.invalid:1"}).__enter__()


def servers_socket(connection):
    """A second descriptor of the broker's socket, which is in this process."""
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(int(number)).st_mode):
                continue
            copy = socket.socket(fileno=os.dup(int(number)))
            if copy.getpeername() == connection.getsockname():
                return copy
            copy.close()
    raise AssertionError("not found")


def test_socket_buffer_bytes(tmp_path):
    settings = {"socket.send.buffer.bytes": "30000", "socket.receive.buffer.bytes": "20000"}
    with broker_with(tmp_path, settings) as b, connect(b) as c:
        assert serves(c)
        with closing(servers_socket(c)) as ours:  # Linux doubles the requested size
            assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 60_000
            assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 40_000
    system = dict.fromkeys(settings, "-1")
    with broker_with(tmp_path, system) as b, connect(b) as c:
        assert serves(c)
        with closing(servers_socket(c)) as ours:
            assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > 60_000
            assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) > 60_000


def test_the_send_buffer_grows_for_readers_with_a_narrow_window(tmp_path):
    with broker_with(tmp_path) as b, wire_to(b) as wire:
        create(wire, "t")
        for _ in range(8):
            assert produce(wire, "t", bytes(900_000)).errorCode == 0
        with wire_to(b) as reader:
            reader._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768)
            metadata(reader, "t")  # the broker has accepted the connection
            with closing(servers_socket(reader._socket)) as ours:
                at_first = ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
                assert at_first == 2 * 102_400
                for _ in range(30):
                    assert fetch(reader, "t", size_max=8 << 20).errorCode == 0
                now = ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
                assert now > at_first, "net.core.wmem_max bounds how far"


def test_socket_listen_backlog_size(tmp_path):
    """Linux queues one connection more than the backlog, and makes further ones wait."""
    name = "socket.listen.backlog.size"
    settings = {name: "3", "max.connections": "0"}
    with broker_with(tmp_path, settings) as b:
        waiting = []
        with pytest.raises(TimeoutError):
            for _ in range(10):
                waiting.append(socket.create_connection(address(b), timeout=0.3))
        assert len(waiting) == 4, name
        for c in waiting:
            c.close()


def test_response_send_timeout_ms(tmp_path):
    settings = {"response.send.timeout.ms": "300", "socket.send.buffer.bytes": "10000"}
    with broker_with(tmp_path, settings) as b, wire_to(b) as wire:
        create(wire, "t")
        for _ in range(8):
            assert produce(wire, "t", bytes(900_000)).errorCode == 0
        with wire_to(b) as lazy:
            lazy._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 10_000)
            began = time.monotonic()
            sender = threading.Thread(target=_reads_nothing, args=(lazy,))
            sender.start()
            closed = b.node.reactor.counters
            while not closed()["closed"]["send-timeout"]:
                assert time.monotonic() - began < 60
                time.sleep(0.02)
            assert time.monotonic() - began > 0.25, "response.send.timeout.ms"
            sender.join()


def _reads_nothing(wire):
    """Sends a fetch and does not read the response."""
    wire._frame = lambda: (_ for _ in ()).throw(ConnectionError)
    with contextlib.suppress(ConnectionError):
        fetch(wire, "t", size_max=8 << 20)


def test_queued_max_request_bytes(tmp_path):
    """One connection has announced and partly sent more than the budget: the broker reads from no
    other."""
    settings = {"queued.max.request.bytes": "100000", "socket.request.max.bytes": "100000"}
    with broker_with(tmp_path, settings) as b, connect(b) as large, connect(b) as small:
        assert serves(small)
        large.sendall((99_990).to_bytes(4, "big") + bytes(60_000))
        counters = b.node.reactor.counters
        soon(lambda: counters()["held_bytes"] >= 60_000)
        assert counters()["held_bytes"] <= 100_000
        large.sendall(bytes(39_000))
        time.sleep(0.2)
        assert counters()["held_bytes"] <= 100_000, "queued.max.request.bytes"
        large.close()
        assert serves(small)
    with pytest.raises(ConfigError, match="queued.max.request.bytes"):
        broker_with(tmp_path, {"queued.max.request.bytes": "1000"}).__enter__()


def test_queued_max_requests(tmp_path):
    """The only request handler waits: two requests are queued, and those of other clients are not
    read."""
    settings = {"queued.max.requests": "2", "num.io.threads": "1"}
    with broker_with(tmp_path, settings) as b:
        gate = threading.Event()
        handlers = b.node.handlers
        plain = handlers.answer
        handlers.answer = lambda pending: gate.wait(60) and plain(pending)
        connections = [connect(b) for _ in range(12)]
        for c in connections:
            c.sendall(API_VERSIONS)
        soon(lambda: b.node.reactor.counters()["python_queue"] >= 2)
        time.sleep(0.3)
        queued = b.node.reactor.counters()["python_queue"]
        # Network threads check the queue before they read, so that each may exceed the limit by
        # one.
        assert 2 <= queued <= 2 + b.node.config.integer("num.network.threads") - 1
        gate.set()
        for c in connections:
            c.settimeout(60)
            assert len(c.recv(8)) == 8, "queued.max.requests"
            c.close()


def test_too_many_threads_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"num\.network\.threads=2000 is more than 1000"):
        broker_with(tmp_path, {"num.network.threads": "2000"}).__enter__()


def test_a_wire_closed_by_a_retired_thread_connects_again(shared):
    """When num.network.threads is reduced, a client gets a response or a closed connection, and
    never waits."""
    with altered(shared, "num.network.threads", 4, broker=""):
        wires = [Wire(":".join(map(str, address(shared.broker)))) for _ in range(4)]
        assert all(metadata(wire).brokers for wire in wires)
    for wire in wires:
        with closing(wire), contextlib.suppress(ConnectionError, OSError):
            assert metadata(wire).brokers
    with closing(Wire(":".join(map(str, address(shared.broker))))) as again:
        assert metadata(again).brokers


def test_default_threads_are_no_more_than_cores(tmp_path, monkeypatch):
    for cores, given, wanted in (
        (1, {}, 1),
        (2, {}, 2),
        (64, {}, 3),
        (2, {"num.network.threads": "3"}, 3),
    ):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        settings = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0", **given}
        with Broker(settings) as broker:
            assert len(broker.node.reactor.counters()["threads"]) == wanted
