"""Clients that do nothing, send half of a frame, or never read: no other client waits for them.

2,000 idle connections, 200 half-sent frames and clients that do not read are open beside a client
that works; its requests take at most twice as long as without them (beside_others.py). They stay
open meanwhile: the broker of that test closes none for its slowness.
"""

import contextlib
import select
import selectors
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat.support import Wire
from durability.broker_process import BrokerProcess, free_port
from hostile.beside_others import compare
from hostile.raw import Growth, connect, error_of, is_closed
from node.test_settings import create, metadata

from barnabas.cext.record.records import Record, encode_batch
from barnabas.wire import request
from barnabas.wire.headers import encode_request

HALF_S, SEND_S = 2.0, 2.0
MORE_SETTINGS = {
    "request.receive.timeout.ms": int(HALF_S * 1000),
    "response.send.timeout.ms": int(SEND_S * 1000),
}
GROWTH_MAX = 32 << 20
IDLE, HALF, DEAF = 2_000, 200, 3
ACCEPTED_AT_ONCE = 25  # below the listener's backlog: a refused connection is retried after 1 s
PATIENT = dict.fromkeys(MORE_SETTINGS, 120_000)
SETTLED_S = 0.1  # without work: the unread responses have filled their sockets
BATCH = encode_batch([Record(b"v" * 100, timestamp=1)])


def half_sent(broker) -> socket.socket:
    connection = connect(broker)
    connection.sendall(struct.pack(">i", 1000) + bytes(10))
    return connection


def deaf(broker) -> socket.socket:
    """Requests more than it reads, as often as it can."""
    connection = connect(broker)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.setblocking(False)
    ask = encode_request(3, 1, 1, "deaf", request(3).cls(topics=None)) * 500
    with contextlib.suppress(BlockingIOError, ConnectionError):
        for _ in range(1000):
            connection.send(ask)
    return connection


@contextlib.contextmanager
def crowd(broker) -> Iterator[None]:
    """All of them at once, every one accepted."""
    with contextlib.ExitStack() as stack:
        for number in range(IDLE):
            stack.enter_context(connect(broker))
            if number % ACCEPTED_AT_ONCE == 0:
                with Wire(broker.address) as last:
                    metadata(last, "t")
        for _ in range(DEAF):
            stack.enter_context(deaf(broker))
        for number in range(HALF):
            stack.enter_context(half_sent(broker))
            if number % ACCEPTED_AT_ONCE == 0:
                with Wire(broker.address) as last:
                    metadata(last, "t")
        settle(broker)
        yield


def settle(broker) -> None:
    """Waits until the broker has no work."""
    before, since, give_up = "", 0.0, time.monotonic() + 30
    while not since or time.monotonic() < since + SETTLED_S:
        assert time.monotonic() < give_up, "the broker works on without end"
        now = " ".join(Path(f"/proc/{broker.process.pid}/stat").read_text().split()[13:15])
        if now != before:
            before, since = now, time.monotonic()
        time.sleep(0.01)


def make_topics(broker) -> None:
    """What makes a Metadata answer of some size."""
    with Wire(broker.address) as wire:
        for number in range(30):
            create(wire, f"some-{number}", partitions=4)


@pytest.fixture(scope="module", autouse=True)
def topics(broker):
    make_topics(broker)


@pytest.fixture(scope="module")
def patient(tmp_path_factory):
    """A broker that closes no connection for its slowness, and a client that works."""
    with BrokerProcess(tmp_path_factory.mktemp("data"), free_port(), PATIENT) as broker:
        with Wire(broker.address) as wire:
            create(wire, "t")
            make_topics(broker)
            yield broker, wire


@pytest.mark.alone(reason="compares times of a fifth of a millisecond")
@pytest.mark.parametrize("native", ["metadata", "produce"])
def test_others_p99_stays_within_twice(patient, native):
    broker, wire = patient

    def call() -> None:
        if native == "metadata":
            assert metadata(wire, "t").topics[0].errorCode == 0
        else:
            assert error_of(wire, BATCH, acks=1) == 0

    compare(call, lambda: crowd(broker))


def test_half_sent_frames_end_after_their_time_and_idle_connections_do_not(broker):
    with connect(broker) as idle, contextlib.ExitStack() as stack:
        began = time.monotonic()
        open_ones = set()
        for number in range(HALF):
            open_ones.add(stack.enter_context(half_sent(broker)))
            if number % ACCEPTED_AT_ONCE == 0:
                with Wire(broker.address) as last:
                    metadata(last, "t")
        first_s = None
        ready = stack.enter_context(selectors.DefaultSelector())
        for connection in open_ones:
            ready.register(connection, selectors.EVENT_READ, connection)
        while open_ones and time.monotonic() - began < HALF_S * 4:
            for key, _ in ready.select(0.1):
                connection = key.data
                assert is_closed(connection)
                ready.unregister(connection)
                first_s = first_s or time.monotonic() - began
                open_ones.discard(connection)
        assert not open_ones
        assert first_s is not None and first_s >= HALF_S * 0.5
        assert not is_closed(idle, within_s=0.1)


def test_what_is_kept_for_clients_that_do_not_read_is_bounded(broker):
    """Each requests hundreds of MiB: the broker makes one response at a time, and drops it after a
    while."""
    growth = Growth(broker)
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(deaf(broker)) for _ in range(20)]
        assert growth.peak_bytes() <= 16 << 20
        give_up = time.monotonic() + SEND_S * 5
        for peer in peers:
            while not hung_up(peer):
                assert time.monotonic() < give_up, "a client that does not read is kept"
                time.sleep(0.05)


def hung_up(peer: socket.socket) -> bool:
    """Whether the broker closed the connection, without reading from it."""
    waiting = select.poll()
    waiting.register(peer, select.POLLRDHUP)
    return bool(waiting.poll(0))
