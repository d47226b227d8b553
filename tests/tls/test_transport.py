"""TLS below the frames, with the standard library's ssl as the client and a reactor that echoes."""

import contextlib
import errno
import os
import random
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import time

import pytest
from cryptography import x509
from long_form import pick
from reactor.network import Served, echo, is_closed, request, response
from testing.processes import growths
from tls.authority import Authority

from barnabas.api.call import Call
from barnabas.cext.network.request_queue import CERTIFICATE, OPEN
from barnabas.cext.network.tls import REQUESTED, REQUIRED, TlsContext, TlsError

needs_openssl = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")

AUTHORITY = Authority()
OWN = AUTHORITY.issue(kind="rsa")
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def context_of(issued=OWN, **named):
    return TlsContext(chain=(issued.certificate_der,), key=issued.key_der, **named)


def client_context(version="TLSv1.3"):
    context = AUTHORITY.client_context()
    context.minimum_version = context.maximum_version = VERSIONS[version]
    return context


@pytest.fixture
def served():
    with Served(transport=context_of()) as made:
        yield made


def connect(served, context=None):
    plain = served.connect()
    return (context or client_context()).wrap_socket(plain, server_hostname="localhost")


def read_to_end(plain, ends=False):
    """Reads until the server has closed; `ends`: says before that nothing more comes. OpenSSL 4.0
    refuses what does not begin with TLS after five bytes; as the rest is unread, the kernel then
    resets the connection."""
    plain.settimeout(10)
    try:
        if ends:
            plain.shutdown(socket.SHUT_WR)
        while plain.recv(4096):
            pass
    except OSError as error:
        assert error.errno in (errno.ECONNRESET, errno.ENOTCONN), error


@pytest.fixture(params=VERSIONS)
def version(request):
    return request.param


def test_a_request_is_answered(served, version):
    with connect(served, client_context(version)) as client:
        assert client.version() == version
        client.sendall(request(7, b"hello"))
        assert response(client) == (7, b"hello")


def test_a_large_request_and_its_answer(served, version):
    """More than a socket's buffer and than one receive, both ways."""
    body = random.Random(7).randbytes(3 << 20)
    with connect(served, client_context(version)) as client:
        client.sendall(request(1, body))  # in turns: one thread uses the SSLSocket
        assert response(client) == (1, body)


def test_requests_that_came_in_one_record_are_all_answered(served, version):
    """epoll does not report bytes that OpenSSL has read from the socket."""
    frames = b"".join(request(i, bytes([i % 251]) * (i % 37)) for i in range(300))
    with connect(served, client_context(version)) as client:
        client.sendall(frames)
        for i in range(300):
            assert response(client) == (i, bytes([i % 251]) * (i % 37))


def test_requests_ahead_of_a_slow_answer_are_answered():
    """Python handles the first request while OpenSSL's buffer holds the others."""

    def slow(pending):
        time.sleep(0.02)
        echo(pending)

    with Served(slow, transport=context_of()) as served, connect(served) as client:
        for i in range(20):
            client.sendall(request(i, b"x" * 2000))
        for i in range(20):
            assert response(client) == (i, b"x" * 2000)


def test_records_of_one_byte(served, version):
    with connect(served, client_context(version)) as client:
        for byte in request(5, b"abc"):
            client.send(bytes([byte]))
        assert response(client) == (5, b"abc")


def test_a_slow_reader_gets_the_whole_answer(served, version):
    body = random.Random(8).randbytes(2 << 20)
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.connect(("127.0.0.1", served.port))
    with client_context(version).wrap_socket(plain, server_hostname="localhost") as client:
        client.sendall(request(3, body))
        time.sleep(0.2)
        assert response(client) == (3, body)


def test_an_idle_connection_is_closed_with_close_notify():
    with Served(transport=context_of(), connections_max_idle_ms=200) as served:
        with connect(served) as client:
            client.settimeout(60)
            assert client.recv(10) == b""  # an end without close_notify raises SSLEOFError
        served.closed("idle")


def test_close_notify_ends_the_connection_at_both_sides(served):
    client = connect(served)
    client.sendall(request(1))
    response(client)
    client.unwrap().close()
    served.quiet()


def test_a_close_without_close_notify_is_an_end(served):
    client = connect(served)
    client.detach()
    with Served(transport=context_of()) as other:
        client = connect(other)
        socket.socket(fileno=client.detach()).close()
        other.quiet()


def test_requests_before_a_half_close_are_answered(served, version):
    client = connect(served, client_context(version))
    client.sendall(b"".join(request(i) for i in range(5)))
    socket.socket.shutdown(client, socket.SHUT_WR)
    assert [response(client)[0] for _ in range(5)] == list(range(5))
    client.close()
    served.quiet()


def test_a_plain_client_is_closed_and_named(served):
    with served.connect() as plain:
        plain.sendall(request(1))
        read_to_end(plain)
    served.closed("plaintext-client")


def test_handshake_cut_at_every_byte(served):
    """The client's first messages are cut: no state remains."""
    hello = client_hello()
    for size in range(len(hello)):
        with served.connect() as plain:
            plain.sendall(hello[:size])
    served.closed("peer", len(hello))
    served.quiet()
    with connect(served) as client:
        client.sendall(request(1))
        assert response(client)[0] == 1


def client_hello(context=None):
    """The first bytes of a client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = (context or client_context()).wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def test_a_wrong_byte_at_every_place_of_the_first_flight(served):
    hello = client_hello()
    for at in range(len(hello)):
        wrong = bytearray(hello)
        wrong[at] ^= 0x55
        with served.connect() as plain:
            plain.sendall(bytes(wrong))
            read_to_end(plain, ends=True)
    served.quiet()


def test_a_wrong_byte_at_every_place_of_a_record(served):
    """After the handshake: a forged record never becomes a request."""
    for at in range(40):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
        with served.connect() as plain:
            while True:
                try:
                    client.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    plain.sendall(outgoing.read())
                    incoming.write(plain.recv(65536))
            plain.sendall(outgoing.read())
            client.write(request(9))
            record = bytearray(outgoing.read())
            record[at % len(record)] ^= 1
            plain.sendall(bytes(record))
            plain.shutdown(socket.SHUT_WR)
            plain.settimeout(10)
            while plain.recv(4096):
                pass
    assert served.quiet()["requests"] == 0


def test_a_slow_handshake_is_closed():
    with Served(transport=context_of(), request_receive_timeout_ms=300) as served:
        hello = client_hello()
        with served.connect() as silent, served.connect() as slow:
            began = time.monotonic()
            slow.settimeout(10)
            silent.settimeout(10)
            with pytest.raises(OSError):
                for byte in hello[:-1]:
                    slow.sendall(bytes([byte]))
                    time.sleep(0.02)
            assert is_closed(silent)
            assert time.monotonic() - began < 5
        served.closed("handshake-timeout", 2)


def test_the_oldest_handshake_goes_when_there_are_too_many():
    with Served(transport=context_of(), max_tls_handshakes=5) as served:
        hello = client_hello()
        slow = [served.connect() for _ in range(12)]
        for connection in slow:
            connection.sendall(hello[:50])
        served.closed("too-many-handshakes", 7)
        with connect(served) as client:  # a fast one is not delayed
            client.sendall(request(1))
            assert response(client)[0] == 1
        assert [is_closed(connection) for connection in slow[:7]] == [True] * 7
        for connection in slow:
            connection.close()
        served.quiet()


def test_a_handshake_has_a_limit_of_bytes(tmp_path):
    """A client certificate that is larger than the limit of a handshake."""
    trusted = Authority("CN=clients")
    large = trusted.issue("CN=alice", (), padding_bytes=1 << 20)
    with Served(transport=context_of(trusted=(trusted.der,), client_auth=REQUIRED)) as served:
        with pytest.raises(OSError):
            with connect(served, AUTHORITY.client_context(large, tmp_path)) as client:
                client.sendall(request(1))
                response(client)
        served.closed("tls")


def test_other_clients_go_on_during_many_handshakes(served):
    """At most one handshake in each turn of the thread: a request waits for at most one."""
    stop = threading.Event()

    def storm():
        while not stop.is_set():
            connect(served).close()

    storms = [threading.Thread(target=storm) for _ in range(3)]
    with connect(served) as client:
        for thread in storms:
            thread.start()
        waited = []
        for i in range(100):
            began = time.monotonic()
            client.sendall(request(i))
            assert response(client)[0] == i
            waited.append(time.monotonic() - began)
        stop.set()
        for thread in storms:
            thread.join(10)
    assert sorted(waited)[20] < 0.1
    served.quiet()


def test_a_stop_closes_handshakes_and_connections():
    with Served(transport=context_of()) as served:
        half = served.connect()
        half.sendall(client_hello()[:20])
        client = connect(served)
        client.sendall(request(1))
        response(client)
        began = time.monotonic()
        served.reactor.stop(60_000)
        assert time.monotonic() - began < 30
        assert client.recv(1) == b""
        half.close()
        client.close()


def test_clients_must_show_a_certificate(tmp_path, version):
    trusted = Authority("CN=clients")
    with Served(transport=context_of(trusted=(trusted.der,), client_auth=REQUIRED)) as served:
        context = AUTHORITY.client_context(trusted.issue("CN=alice", ()), tmp_path)
        context.minimum_version = context.maximum_version = VERSIONS[version]
        with connect(served, context) as client:
            client.sendall(request(1))
            assert response(client)[0] == 1
        expired = trusted.issue("CN=bob", (), days=(-9, -2))
        for refused in (None, AUTHORITY.issue("CN=mallory", ()), expired):
            context = AUTHORITY.client_context(refused, tmp_path)
            context.minimum_version = context.maximum_version = VERSIONS[version]
            with pytest.raises((ssl.SSLError, OSError, EOFError)):
                with connect(served, context) as client:
                    client.sendall(request(2))
                    response(client)
        served.closed("tls", 3)


def test_the_version_may_be_limited():
    with Served(transport=context_of(versions=("TLSv1.3",))) as served:
        with pytest.raises((ssl.SSLError, OSError)):
            connect(served, client_context("TLSv1.2"))
        with connect(served) as client:
            client.sendall(request(1))
            assert response(client)[0] == 1


@needs_openssl
def test_there_is_no_renegotiation(served):
    """TLS 1.2; OpenSSL's own client requests it, because Python's ssl cannot."""
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{served.port}", "-tls1_2"]
    done = subprocess.run(command, input=b"R\n", capture_output=True, timeout=30)
    text = (done.stdout + done.stderr).decode("latin-1")
    assert "RENEGOTIATING" in text
    assert "no renegotiation" in text, text


@needs_openssl
def test_key_updates_are_answered(served):
    """TLS 1.3; OpenSSL's own client requests it."""
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{served.port}", "-tls1_3"]
    client = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert client.stdin is not None and client.stdout is not None
    for _ in range(20):
        client.stdin.write(b"K\n")
        client.stdin.flush()
        time.sleep(0.05)
    client.stdin.write(request(3, b"y" * 8))
    client.stdin.flush()
    out = b""
    while b"\3yyyyyyyy" not in out:  # at the end of its input, the client does not wait for it
        out += (more := os.read(client.stdout.fileno(), 1 << 16))
        assert more, out
    client.communicate(timeout=30)
    assert out.count(b"KEYUPDATE") > 5
    served.quiet()


def test_new_connections_get_the_new_certificate(served, version):
    live = context_of()
    with Served(transport=live) as served:
        before = connect(served, client_context(version))
        other = AUTHORITY.issue("CN=renewed", kind="rsa")
        live.replace(context_of(other))
        with connect(served, client_context(version)) as after:
            assert after.getpeercert(True) == other.certificate_der
        assert before.getpeercert(True) == OWN.certificate_der
        before.sendall(request(1))
        assert response(before)[0] == 1
        before.close()


def test_a_session_is_resumed(served, version):
    context = client_context(version)
    with connect(served, context) as first:
        first.sendall(request(1))
        response(first)
        session = first.session
    plain = served.connect()
    with context.wrap_socket(plain, server_hostname="localhost", session=session) as second:
        assert second.session_reused
        second.sendall(request(1))
        assert response(second)[0] == 1


def test_bad_keys_are_refused_in_words():
    other = AUTHORITY.issue()
    with pytest.raises(TlsError, match="key values mismatch|private key"):
        TlsContext(chain=(OWN.certificate_der,), key=AUTHORITY.issue(kind="rsa").key_der)
    with pytest.raises(TlsError, match="the private key"):
        TlsContext(chain=(other.certificate_der,), key=b"rubbish")
    with pytest.raises(TlsError, match="a certificate"):
        TlsContext(chain=(b"rubbish",), key=other.key_der)
    with pytest.raises(TlsError, match="none is trusted"):
        context_of(client_auth=REQUIRED)


def test_failed_handshakes_leave_no_memory(served):
    hello = client_hello()
    wrong = hello[:11] + b"\xff" + hello[12:]

    def fail(count):
        for i in range(count):
            with served.connect() as plain:
                plain.sendall((wrong, struct.pack(">i", 8), hello[:100], hello)[i % 4])
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        served.quiet()

    fail(500)
    files = len(os.listdir("/proc/self/fd"))

    # 3,000, in the long form 100,000: as many at once as before, so that only what is left behind
    # grows.
    def fail_often():
        for _ in range(pick(short=6, long=200)):
            fail(500)

    grown = growths(fail_often, 4 << 20)
    assert grown[-1] < 4 << 20, grown
    assert len(os.listdir("/proc/self/fd")) <= files


CLIENTS = Authority("CN=authority of clients,O=Example")


def client_of(folder, name="CN=alice"):
    return AUTHORITY.client_context(CLIENTS.issue(name, ()), folder)


class Namer:
    """Names the principals of certificates; `seen` has what it was asked, and what followed."""

    def __init__(self):
        self.seen = []
        self.begun = threading.Semaphore(0)
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def __call__(self, pending):
        self.seen.append((pending.api_key, pending.login, Call(None, 0, 0, pending).principal))
        self.begun.release()
        self.may_go_on.wait(10)
        if pending.login != CERTIFICATE:
            echo(pending)
        elif b"mallory" in pending.data:
            pending.close()
        else:
            subject = x509.load_der_x509_certificate(pending.data).subject
            [name] = subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
            pending.set_principal(f"User:{name.value}".encode())
            pending.set_login(OPEN, b"")
            pending.silent()


@pytest.fixture
def namer():
    return Namer()


@pytest.fixture
def mutual(namer):
    trusted = (CLIENTS.own.certificate_der,)
    transport = context_of(trusted=trusted, client_auth=REQUESTED)
    with Served(namer, transport=transport) as made:
        yield made
        made.quiet()


def test_the_principal_is_there_before_the_first_request(mutual, namer, tmp_path):
    """Also when the request came with the end of the handshake."""
    with connect(mutual, client_of(tmp_path)) as client, connect(mutual) as other:
        client.sendall(request(1) + request(2))
        assert [response(client)[0], response(client)[0]] == [1, 2]
        other.sendall(request(1))
        response(other)
    assert namer.seen == [
        (-1, CERTIFICATE, "User:ANONYMOUS"),
        (18, OPEN, "User:alice"),
        (18, OPEN, "User:alice"),
        (18, OPEN, "User:ANONYMOUS"),
    ]


def test_a_certificate_without_a_principal_closes_the_connection(mutual, namer, tmp_path):
    with connect(mutual, client_of(tmp_path, "CN=mallory")) as client:
        with contextlib.suppress(OSError):
            client.sendall(request(1))
        assert is_closed(client)
    assert namer.seen == [(-1, CERTIFICATE, "User:ANONYMOUS")]


def test_nothing_is_answered_while_the_principal_is_not_there(mutual, namer, tmp_path):
    namer.may_go_on.clear()
    with connect(mutual, client_of(tmp_path)) as client:
        client.sendall(request(1) * 3)
        assert namer.begun.acquire(timeout=10)
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(10)
        namer.may_go_on.set()
        assert [response(client)[0] for _ in range(3)] == [1, 1, 1]


def test_certificates_wait_while_the_queue_to_python_is_full(namer, tmp_path):
    trusted = (CLIENTS.own.certificate_der,)
    transport = context_of(trusted=trusted, client_auth=REQUIRED)
    namer.may_go_on.clear()
    with Served(namer, transport=transport, queued_max_requests=2) as served:
        context = client_of(tmp_path)
        context.maximum_version = VERSIONS["TLSv1.2"]  # its handshake ends here when it has there
        clients = [connect(served, context) for _ in range(6)]
        for client in clients:
            client.sendall(request(1))
        assert namer.begun.acquire(timeout=10)
        assert served.eventually(lambda c: c["python_queue"] >= 2)["python_queue"] == 2
        namer.may_go_on.set()
        for client in clients:
            assert response(client)[0] == 1
            client.close()
        served.quiet()
    assert len(namer.seen) == 12
