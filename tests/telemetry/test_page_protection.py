"""The /metrics page for other hosts: over TLS, for users and tokens of a file, and no others."""

import base64
import http.client
import logging
import socket
import ssl
import threading
import time

import pytest
from tls.authority import Authority
from tls.tls_broker import replace_file

from barnabas import Broker
from barnabas.config import ConfigError
from barnabas.node import CannotStart
from barnabas.telemetry import http_server, page_protection
from barnabas.telemetry.endpoint import Endpoint
from barnabas.telemetry.page_protection import Credentials, PageTls

PASSWORD, TOKEN = "kept-for-prometheus", "kept-for-probes"
LINES = f"# who may read\n\nuser prometheus {PASSWORD}\ntoken {TOKEN}\n"
PATHS = (
    "/metrics",
    "/health/live",
    "/livez",
    "/health/ready",
    "/readyz",
    "/healthz",
    "/",
    "/status",
    "/x",
)
AUTHORITY = Authority()


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def private(path, text, mode=0o600):
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def credentials_file(folder, text=LINES, mode=0o600):
    return private(folder / "readers", text, mode)


def key_file(folder, name="CN=page", mode=0o600):
    issued = AUTHORITY.issue(name)
    return private(folder / "page.pem", issued.key_pem() + issued.certificate_pem, mode)


def page():
    return "text/plain", iter([b"one 1\n", b"two 2\n"])


def opened(**protection):
    made = Endpoint("127.0.0.1", 0, page, lambda: "", **protection)
    made.start()
    return made


@pytest.fixture
def locked(tmp_path):
    made = opened(credentials=Credentials(credentials_file(tmp_path)))
    yield made
    made.stop()


@pytest.fixture
def encrypted(tmp_path):
    made = opened(tls=PageTls(key_file(tmp_path)))
    yield made
    made.stop()


def get(served, path="/metrics", authorization=None, context=None):
    """The status, and the body."""
    if context is None:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
    else:
        connection = http.client.HTTPSConnection(
            "localhost", served.port, timeout=10, context=context
        )
    try:
        headers = {} if authorization is None else {"Authorization": authorization}
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("path", PATHS)
def test_a_reader_without_credentials_sees_nothing(locked, path):
    status, body = get(locked, path)
    assert status == 401 and b"one" not in body and b"live" not in body


@pytest.mark.parametrize(
    "authorization",
    [
        basic("prometheus", PASSWORD),
        basic("prometheus", PASSWORD).replace("Basic", "basic"),
        f"Bearer {TOKEN}",
        f"bearer  {TOKEN} ",
    ],
)
def test_a_user_and_a_token_of_the_file_may_read(locked, authorization):
    assert get(locked, authorization=authorization) == (200, b"one 1\ntwo 2\n")
    assert get(locked, "/health/ready", authorization)[0] == 200


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Basic",
        "Basic ====",
        basic("prometheus", PASSWORD + "x"),
        basic("prometheus", PASSWORD[:-1]),
        basic("prometheus", TOKEN),
        basic("", ""),
        basic("Prometheus", PASSWORD),
        f"Basic {TOKEN}",
        f"Bearer {PASSWORD}",
        f"Bearer {TOKEN[:-1]}",
        "Bearer",
        f"Digest {TOKEN}",
        "Bearer \xff\xfe",
    ],
)
def test_another_password_or_token_is_refused(locked, authorization):
    assert get(locked, authorization=authorization)[0] == 401


def test_the_answer_names_both_ways_and_no_user(locked):
    connection = http.client.HTTPConnection("127.0.0.1", locked.port, timeout=10)
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    assert answer.headers["WWW-Authenticate"].startswith("Basic ")
    assert b"prometheus" not in answer.read()
    connection.close()


def test_every_secret_is_compared_whole(locked, monkeypatch):
    """Whatever was given, and whichever matches first: digests of one length, in constant time."""
    seen = []
    whole = page_protection.hmac.compare_digest

    def compared(a, b):
        seen.append((len(a), len(b)))
        return whole(a, b)

    monkeypatch.setattr(page_protection.hmac, "compare_digest", compared)
    for authorization in (basic("prometheus", PASSWORD), f"Bearer {TOKEN}", "x", "", "y" * 5000):
        get(locked, authorization=authorization)
        assert seen == [(32, 32)] * 2
        seen.clear()


def test_no_password_and_no_token_is_logged(locked, caplog):
    caplog.set_level(logging.DEBUG)
    for authorization in (basic("prometheus", PASSWORD), f"Bearer {TOKEN}", f"Bearer {PASSWORD}x"):
        get(locked, authorization=authorization)
    assert PASSWORD not in caplog.text and TOKEN not in caplog.text
    assert "refused 127.0.0.1" in caplog.text


def test_refused_clients_cause_one_log_line_a_second(locked, caplog):
    began = time.monotonic()
    for _ in range(20):
        get(locked)
    lines = [row for row in caplog.records if "refused" in row.getMessage()]
    assert 1 <= len(lines) <= 1 + int(time.monotonic() - began)


def test_the_page_over_tls(encrypted, tmp_path):
    trusting = AUTHORITY.client_context()
    assert encrypted.address == f"https://127.0.0.1:{encrypted.port}"
    assert get(encrypted, context=trusting) == (200, b"one 1\ntwo 2\n")
    assert get(encrypted, "/health/ready", context=trusting)[0] == 200
    assert get(encrypted, "/nowhere", context=trusting)[0] == 404
    with pytest.raises(ssl.SSLCertVerificationError):
        get(encrypted, context=ssl.create_default_context())
    old = AUTHORITY.client_context()
    old.minimum_version = ssl.TLSVersion.TLSv1
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        get(encrypted, context=old)


def test_without_tls_a_client_of_a_tls_page_gets_nothing(encrypted):
    with socket.create_connection(("127.0.0.1", encrypted.port), timeout=10) as client:
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        got = b""
        try:
            while piece := client.recv(4096):
                got += piece
        except ConnectionResetError:
            pass
    assert b"one" not in got and b"HTTP" not in got


def test_an_old_client_sees_that_the_answer_is_whole(encrypted):
    """HTTP/1.0 ends an answer with the connection: without close_notify it might be cut."""
    context = AUTHORITY.client_context()
    raw = socket.create_connection(("127.0.0.1", encrypted.port), timeout=10)
    with context.wrap_socket(
        raw, server_hostname="localhost", suppress_ragged_eofs=False
    ) as client:
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        got = b""
        while piece := client.recv(4096):
            got += piece
    assert got.endswith(b"\r\n\r\none 1\ntwo 2\n")


def subject(served):
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as raw:
        with AUTHORITY.client_context().wrap_socket(raw, server_hostname="localhost") as client:
            client.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
            client.recv(100)
            return client.getpeercert()["subject"]


def test_a_new_certificate_is_served_and_a_bad_one_is_not(encrypted, tmp_path, caplog):
    first = subject(encrypted)
    issued = AUTHORITY.issue("CN=renewed")
    replace_file(tmp_path / "page.pem", issued.key_pem() + issued.certificate_pem)
    assert subject(encrypted) == ((("commonName", "renewed"),),) != first
    replace_file(tmp_path / "page.pem", "no key")
    for _ in range(3):
        assert subject(encrypted) == ((("commonName", "renewed"),),)
    (tmp_path / "page.pem").unlink()
    for _ in range(3):
        assert subject(encrypted) == ((("commonName", "renewed"),),)
    said = [row.getMessage() for row in caplog.records if "keeps its certificate" in row.message]
    assert len(said) == 2  # one for each way in which the file is wrong


def test_stop_waits_for_no_client_of_tls(encrypted, monkeypatch):
    monkeypatch.setattr(http_server, "REQUEST_S_MAX", 120.0)
    silent = socket.create_connection(("127.0.0.1", encrypted.port), timeout=10)
    raw = socket.create_connection(("127.0.0.1", encrypted.port), timeout=10)
    slow = AUTHORITY.client_context().wrap_socket(raw, server_hostname="localhost")
    slow.sendall(b"GET /metr")
    end = time.monotonic() + 10
    while len(encrypted._server._clients) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    began = time.monotonic()
    encrypted.stop()
    assert time.monotonic() - began < 60
    assert not [t for t in threading.enumerate() if t.name.startswith("metrics")]
    silent.close()
    slow.close()


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        (LINES, 0o644, "chmod 600"),
        (LINES, 0o620, "chmod 600"),
        ("", 0o600, "it has 0 lines"),
        ("# nothing\n", 0o600, "it has 0 lines"),
        (LINES * 60, 0o600, "it has 120 lines"),
        (f"token {TOKEN}\nuser prometheus\n", 0o600, "line 2"),
        (f"token {TOKEN}\n\nuser a:b {PASSWORD}\n", 0o600, "line 3"),
        (f"admin {PASSWORD}\n", 0o600, "line 1"),
        (f"token {PASSWORD} {TOKEN}\n", 0o600, "line 1"),
    ],
)
def test_a_credentials_file_that_cannot_be_used(tmp_path, text, mode, said):
    with pytest.raises(ConfigError, match=said) as caught:
        Credentials(credentials_file(tmp_path, text, mode))
    assert PASSWORD not in str(caught.value) and TOKEN not in str(caught.value)


def test_a_key_file_that_cannot_be_used(tmp_path):
    with pytest.raises(ConfigError, match="chmod 600"):
        PageTls(key_file(tmp_path, mode=0o644))
    with pytest.raises(ConfigError, match="PEM format"):
        PageTls(private(tmp_path / "none.pem", AUTHORITY.pem))
    with pytest.raises(ConfigError, match="metrics.ssl.location"):
        PageTls(str(tmp_path / "missing.pem"))
    issued = AUTHORITY.issue()
    encrypted = issued.key_pem("secret") + issued.certificate_pem
    with pytest.raises(ConfigError, match="PEM format"):
        PageTls(private(tmp_path / "encrypted.pem", encrypted))


def test_other_hosts_need_tls_and_credentials(tmp_path):
    """Each of the two alone would leave open what it does not protect."""
    given = {
        "log.dirs": str(tmp_path / "data"),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "metrics.port": "0",
        "metrics.host": "0.0.0.0",
    }
    tls = {"metrics.ssl.location": key_file(tmp_path)}
    readers = {"metrics.credentials.file": credentials_file(tmp_path)}
    for partly in ({}, tls, readers):
        with pytest.raises(CannotStart) as caught:
            Broker(given | partly).start()
        assert "Set metrics.ssl.location and metrics.credentials.file" in str(caught.value)
        assert "\n" not in str(caught.value)
    with Broker(given | tls | readers) as broker:
        served = broker.node.metrics._endpoint
        trusting = AUTHORITY.client_context()
        assert get(served, context=trusting)[0] == 401
        status, body = get(served, authorization=f"Bearer {TOKEN}", context=trusting)
        assert status == 200 and b"kafka_server_kafkaserver_brokerstate" in body


def test_on_loopback_each_of_them_protects_by_itself(tmp_path):
    given = {
        "log.dirs": str(tmp_path / "data"),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "metrics.port": "0",
        "metrics.credentials.file": credentials_file(tmp_path),
    }
    with Broker(given) as broker:
        served = broker.node.metrics._endpoint
        assert get(served)[0] == 401
        assert get(served, authorization=basic("prometheus", PASSWORD))[0] == 200
    given["metrics.credentials.file"] = str(tmp_path / "missing")
    with pytest.raises(CannotStart, match="cannot be read"):
        Broker(given).start()
