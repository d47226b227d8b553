"""Fuzz: handshakes whose second message of the client is cut, or changed, at each byte.

test_transport.py does the same with the first message. None of them becomes a request, and nothing
is left behind.
"""

import contextlib
import random
import socket
import ssl

import pytest
from reactor.network import Served, request, response
from testing.processes import growths
from tls.test_transport import AUTHORITY, CLIENTS, VERSIONS, client_hello, connect, context_of

from barnabas.cext.network.tls import REQUIRED

OWN = AUTHORITY.issue()  # a key of an elliptic curve: cheap signatures
GROWTH_MAX_BYTES = 4 << 20


@pytest.fixture(params=VERSIONS)
def version(request):
    return request.param


def context_of_client(version, own=None, folder=None):
    context = AUTHORITY.client_context(own, folder)
    context.minimum_version = context.maximum_version = VERSIONS[version]
    return context


def second_message(plain, context):
    """Sends the first message. Returns the client, what it takes, and its answer to the broker's
    message."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    plain.sendall(outgoing.read())
    while not outgoing.pending:
        incoming.write(plain.recv(65536))
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
    return client, incoming, outgoing


def until_closed(plain):
    data = b""
    with contextlib.suppress(OSError):  # the broker has closed
        plain.shutdown(socket.SHUT_WR)
        while more := plain.recv(65536):
            data += more
    return data


def spoil(served, context, at, cut):
    """One handshake, with a request behind it where the client may send one already."""
    with served.connect() as plain:
        client, incoming, outgoing = second_message(plain, context)
        message = bytearray(outgoing.read())
        at %= len(message)  # it is some bytes shorter at times, as its signature is
        if cut:
            del message[at:]
        else:
            message[at] ^= 1 << at % 8
            with contextlib.suppress(ssl.SSLWantReadError):
                client.write(request(1))
        plain.sendall(bytes(message) + outgoing.read())
        incoming.write(until_closed(plain))
        incoming.write_eof()
        with pytest.raises(ssl.SSLError):
            client.do_handshake()
            if client.version() == "TLSv1.3":  # the client has done its part before
                client.read(1)


def spoil_each_byte(served, context):
    """Returns how many bytes the message has."""
    with served.connect() as plain:
        size = len(second_message(plain, context)[2].read())
    for at in range(size):
        spoil(served, context, at, True)
        spoil(served, context, at, False)
    return size


def is_served_well(served, context):
    before = served.reactor.counters()["requests"]
    with connect(served, context) as client:
        client.sendall(request(1))
        assert response(client)[0] == 1
    return before == 0


def test_a_client_without_a_certificate(version):
    context = context_of_client(version)
    with Served(transport=context_of(OWN)) as served:
        assert spoil_each_byte(served, context) > 50
        assert served.quiet()["requests"] == 0
        grown = growths(lambda: spoil_each_byte(served, context), GROWTH_MAX_BYTES)
        assert served.quiet()["requests"] == 0
        assert grown[-1] < GROWTH_MAX_BYTES, grown
        assert is_served_well(served, context)


def test_a_client_with_a_certificate(version, tmp_path):
    context = context_of_client(version, CLIENTS.issue("CN=alice", ()), tmp_path)
    transport = context_of(OWN, trusted=(CLIENTS.der,), client_auth=REQUIRED)
    with Served(transport=transport) as served:
        assert spoil_each_byte(served, context) > 500
        assert served.quiet()["requests"] == 0
        assert is_served_well(served, context)


def test_huge_repeated_and_random_messages():
    """The first message many times over, records of the largest size, and bytes of any kind."""
    hello, rng = client_hello(), random.Random(36)
    largest = b"\x16\x03\x01\x40\x00" + bytes(0x4000)
    announced = b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + bytes(0x3FFC)  # of 16 MiB
    samples = [hello * 2, hello * 50, largest, largest * 40, announced, announced + largest * 40]
    samples += [hello[:9] + rng.randbytes(200) for _ in range(100)]
    samples += [b"\x16" + rng.randbytes(rng.randrange(1, 2000)) for _ in range(100)]
    samples += [rng.randbytes(rng.randrange(1, 2000)) for _ in range(100)]
    with Served(transport=context_of(OWN)) as served:

        def send_all():
            for sample in samples:
                with served.connect() as plain, contextlib.suppress(ConnectionError):
                    plain.sendall(sample)
                    until_closed(plain)
            assert served.quiet()["requests"] == 0

        send_all()  # allocates what is allocated once
        grown = growths(send_all, GROWTH_MAX_BYTES)
        assert grown[-1] < GROWTH_MAX_BYTES, grown
        assert is_served_well(served, context_of_client("TLSv1.3"))
