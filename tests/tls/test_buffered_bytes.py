"""Bytes that OpenSSL has taken from the socket are read after each pause of their connection.

epoll does not report them. Each test sends everything at once, in sizes around those of records and
of OpenSSL's buffer, and nothing more: only the end of the pause can bring the rest.
"""

import socket
import struct
import threading

import pytest
from compat.support import Wire, create_topic
from ext.compiled import compiled
from quotas.asking import set_quota
from quotas.test_enforcement import CLIENT, produce_request
from reactor.network import Served, echo, request, response
from security.login_broker import PASSWORD, frame, header
from tls.test_sasl_ssl import SASL
from tls.test_transport import connect, context_of
from tls.tls_broker import client_context, pem_settings, tls_broker

from barnabas.wire import request as message_of
from barnabas.wire.headers import encode_request

SIZES = [0, 100, 16_000, 16_384, 40_000, 65_000, 65_536, 66_000, 131_072, 140_000]
PARKS = 101  # of the native handler of the tests


@pytest.fixture(scope="module")
def trial_handler():
    return compiled("trial_handler").TrialHandler


@pytest.mark.parametrize("size_bytes", SIZES)
def test_behind_a_request_that_waits_in_a_native_handler(trial_handler, size_bytes):
    native = trial_handler()
    with Served(native=[native], transport=context_of()) as served, connect(served) as client:
        waits = request(1, struct.pack(">i", 60_000), key=PARKS)
        client.sendall(waits + request(2, b"x" * size_bytes) + request(3, b"end"))
        served.eventually(lambda k: k["parked"] == 1)
        native.wake_last()
        assert response(client) == (1, b"woken")
        assert response(client) == (2, b"x" * size_bytes)
        assert response(client) == (3, b"end")


@pytest.mark.parametrize("size_bytes", SIZES)
def test_behind_a_request_that_waits_for_python(size_bytes):
    begun, may_end = threading.Event(), threading.Event()

    def slow(pending):
        begun.set()
        may_end.wait(10)
        echo(pending)

    with Served(slow, transport=context_of()) as served, connect(served) as client:
        client.sendall(request(1) + request(2, b"x" * size_bytes) + request(3, b"end"))
        assert begun.wait(10)
        may_end.set()
        found = [response(client) for _ in range(3)]
        assert found == [(1, b""), (2, b"x" * size_bytes), (3, b"end")]


@pytest.mark.parametrize("size_bytes", SIZES)
def test_while_the_bytes_of_requests_are_used_up(size_bytes):
    """Another connection has the whole of queued.max.request.bytes."""
    kept = []
    with Served(kept.append, transport=context_of(), queued_max_request_bytes=1000) as served:
        with connect(served) as holder, connect(served) as client:
            holder.sendall(request(9, b"h" * 2000))
            served.eventually(lambda _: len(kept) == 1)
            client.sendall(request(1, b"x" * size_bytes) + request(2, b"end"))
            kept.pop().silent()
            for expected in ((1, b"x" * size_bytes), (2, b"end")):
                served.eventually(lambda _: len(kept) == 1)
                echo(kept.pop())
                assert response(client) == expected


@pytest.mark.parametrize("size_bytes", SIZES)
def test_behind_a_request_over_its_quota(tmp_path, size_bytes):
    with tls_broker(tmp_path, pem_settings(tmp_path)) as served:
        create_topic(served.plain, "t")
        with Wire(served.plain) as admin:
            set_quota(admin, CLIENT, producer_byte_rate=1000)
        plain = socket.create_connection(("127.0.0.1", served.port), timeout=10)
        client = client_context().wrap_socket(plain, server_hostname="localhost")
        versions = encode_request(18, 0, 3, "compat", message_of(18).cls())
        big = encode_request(0, 9, 2, "compat", produce_request(size_bytes))
        client.sendall(encode_request(0, 9, 1, "compat", produce_request(30_000)) + big + versions)
        found = [response(client)[0]]
        for _ in range(2):
            served.broker.clock.advance(seconds=3600)
            found.append(response(client)[0])
        assert found == [1, 2, 3]
        client.close()


@pytest.mark.parametrize("size_bytes", SIZES)
def test_behind_a_login(tmp_path, size_bytes):
    """Nothing of it is read as a request before the login is over."""
    token = f"\0alice\0{PASSWORD}".encode()
    login = frame(header(17, 1, struct.pack(">h", 5) + b"PLAIN"))
    login += frame(header(36, 1, struct.pack(">i", len(token)) + token))
    with tls_broker(tmp_path, pem_settings(tmp_path) | SASL) as served:
        plain = socket.create_connection(("127.0.0.1", served.port), timeout=10)
        client = client_context().wrap_socket(plain, server_hostname="localhost")
        names = b"".join(struct.pack(">h", 200) + b"n" * 200 for _ in range(size_bytes // 202))
        topics = struct.pack(">i", size_bytes // 202) + names
        client.sendall(login + frame(header(3, 1, topics)) + frame(header(18, 0)))
        assert [response(client)[0] for _ in range(4)] == [7] * 4
        client.close()
