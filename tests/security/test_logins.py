"""Logins on the wire. The expected answers were recorded from Apache Kafka 4.3.1 on 2026-11-24."""

import time

import pytest
from compat.support import Wire
from security.login_broker import (
    HASHES,
    MECHANISMS,
    PASSWORD,
    SAFE,
    frame,
    header,
    login_broker,
    scram_final,
    scram_login,
)

from barnabas.security.plain import PlainUsers
from barnabas.wire import request

FAILED, UNSUPPORTED, ILLEGAL = 58, 33, 34
GOOD = f"\0alice\0{PASSWORD}".encode()
INVALID = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism "
)
OTHER_ID = (
    "Authentication failed: Client requested an authorization id that is different from username"
)
WRONG = "Authentication failed: Invalid username or password"


def test_a_login_by_plain_is_served(login):
    with login.connect() as c:
        assert c.handshake("PLAIN") == 0
        assert c.token(GOOD) == (0, "", b"")
        assert c.is_served()
        too_late = "SaslAuthenticate request received after successful authentication"
        assert c.token(GOOD) == (ILLEGAL, too_late, b"")
        assert c.handshake("PLAIN") == ILLEGAL
        assert c.is_served()


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"\0alice\0bad", WRONG),
        (b"\0nobody\0bad", WRONG),
        (b"\0bob\0" + PASSWORD.encode(), WRONG),  # a user with SCRAM credentials only
        (b"\xff\0alice\0\xff", WRONG),
        (b"bob" + GOOD, OTHER_ID),
        (b"\0\0x", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0" + b"a" * 1025 + b"\0x", WRONG),
        (b"a" * 1025 + GOOD, WRONG),  # not OTHER_ID: the length is checked first
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"abc", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"a\0b\0c\0d\0e", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (GOOD + b"\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
    ],
)
def test_a_wrong_plain_token_gets_kafkas_text_and_the_connection_closes(login, token, text):
    with login.connect() as c:
        assert c.handshake("PLAIN") == 0
        assert c.token(token) == (FAILED, text, b"")
        assert c.is_closed()


def test_an_authorization_id_may_be_the_user(login):
    with login.connect() as c:
        assert c.handshake("PLAIN") == 0
        assert c.token(b"alice" + GOOD) == (0, "", b"")


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_login_by_scram_is_served_and_the_broker_proves_that_it_knows_the_password(
    login, mechanism
):
    with login.connect() as c:
        first, last, expected = scram_login(c, mechanism, "bob", PASSWORD)
        assert first[:2] == (0, "") and first[2].endswith(b",s=c2FsdHNhbHQ=,i=4096")
        assert last == (0, "", expected)
        assert c.is_served()


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize(("user", "password"), [("bob", "bad"), ("nobody", PASSWORD)])
def test_a_user_that_does_not_exist_fails_where_a_wrong_password_does(
    login, mechanism, user, password
):
    with login.connect() as c:
        first, last, _ = scram_login(c, mechanism, user, password)
        assert first[:2] == (0, "") and first[2].endswith(b",i=4096")
        assert last == (FAILED, INVALID + mechanism, b"")
        assert c.is_closed()


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"", None),
        (b"n,,n=bob", None),
        (b"y,,n=bob,r=abc", None),
        (b"p=tls-unique,,n=bob,r=abc", None),
        (b"n,a=other,n=bob,r=abc", OTHER_ID),
        (b"n,,n=bob,r=abc,tokenauth=true", None),
        (b"n,,n=b=ob,r=abc", None),
        (b"n,,n=,r=abc", None),
        (b"n,,n=bob,r=", None),
        (b"n,,n=bob,r=\xff", None),
        (b"n,,n=" + b"b" * 1025 + b",r=abc", None),
        (b"n,,n=bob,r=" + b"r" * 4096, None),
    ],
)
def test_a_wrong_first_scram_token_closes_the_connection(login, token, text):
    with login.connect() as c:
        assert c.handshake("SCRAM-SHA-256") == 0
        assert c.token(token) == (FAILED, text or INVALID + "SCRAM-SHA-256", b"")
        assert c.is_closed()


@pytest.mark.parametrize("first", [b"a=bob,n=bob,r=abc", b",n=bob,r=abc,foo=bar"])
def test_extensions_and_the_own_authorization_id_are_taken(login, first):
    gs2, bare = (b"n,a=bob,", first[6:]) if first[:1] == b"a" else (b"n,,", first[1:])
    with login.connect() as c:
        assert c.handshake("SCRAM-SHA-256") == 0
        answer = c.token(gs2 + bare)
        final, expected = scram_final("SCRAM-SHA-256", PASSWORD, bare, answer[2], gs2)
        assert c.token(final) == (0, "", expected)


@pytest.mark.parametrize("before, cut, after", [(b"abc", 0, b""), (b"", 0, b"x"), (b"", 3, b"")])
def test_the_nonce_must_be_that_of_the_broker_though_the_proof_is_right(login, before, cut, after):
    """Kafka 4.3.1 takes no other. librdkafka 2.0 (kcat of Debian 12) sends its own part twice, and
    can log in by SCRAM at neither."""
    with login.connect() as c:
        assert c.handshake("SCRAM-SHA-256") == 0
        answer = c.token(b"n,,n=bob,r=abc")[2]
        nonce = before + answer.partition(b",")[0].removeprefix(b"r=")[cut:] + after
        final, _ = scram_final("SCRAM-SHA-256", PASSWORD, b"n=bob,r=abc", answer, nonce=nonce)
        assert c.token(final) == (FAILED, INVALID + "SCRAM-SHA-256", b"")
        assert c.is_closed()


def test_the_final_token_must_fit_the_first(login):
    """Another nonce, another channel binding, another mechanism's proof: each by itself fails."""
    for spoil in (
        lambda final: final.replace(b"r=abc", b"r=abd"),
        lambda final: final.replace(b"c=biws", b"c=eSws"),
        lambda final: final[: final.index(b",p=")] + b",p=AAAA",
        lambda final: final[: final.index(b",p=")],
    ):
        with login.connect() as c:
            assert c.handshake("SCRAM-SHA-256") == 0
            answer = c.token(b"n,,n=bob,r=abc")
            final, _ = scram_final("SCRAM-SHA-256", PASSWORD, b"n=bob,r=abc", answer[2])
            assert c.token(spoil(final)) == (FAILED, INVALID + "SCRAM-SHA-256", b"")
            assert c.is_closed()


@pytest.mark.parametrize("name", ["FOO", "plain", "", "GSSAPI"])
def test_an_unknown_mechanism_gets_the_list_and_the_connection_closes(login, name):
    with login.connect() as c:
        answer = c.ask(header(17, 1, len(name).to_bytes(2, "big") + name.encode()))
        assert answer[4:6] == UNSUPPORTED.to_bytes(2, "big")
        for mechanism in MECHANISMS.split(","):
            assert mechanism.encode() in answer
        assert c.is_closed()


def test_tokens_have_no_header_after_handshake_version_0(login):
    with login.connect() as c:
        assert c.handshake("PLAIN", version=0) == 0
        assert c.ask(GOOD) == b""
        assert c.is_served()


@pytest.mark.parametrize("token", [b"", b"x", b"\0alice\0bad", header(3, 1, b"\0\0\0\0")])
def test_a_wrong_token_without_a_header_closes_the_connection_unanswered(login, token):
    with login.connect() as c:
        assert c.handshake("PLAIN", version=0) == 0
        assert c.ask(token) is None


def test_scram_without_headers(login):
    with login.connect() as c:
        assert c.handshake("SCRAM-SHA-512", version=0) == 0
        answer = c.ask(b"n,,n=bob,r=abc")
        final, expected = scram_final("SCRAM-SHA-512", PASSWORD, b"n=bob,r=abc", answer)
        assert c.ask(final) == expected
        assert c.is_served()


def test_a_plain_listener_answers_a_login_as_kafka_does(login):
    with Wire(login.plain) as wire:
        assert wire.call(17, 1, request(17).cls(mechanism="PLAIN")).errorCode == ILLEGAL
        assert wire.call(36, 2, request(36).cls(authBytes=GOOD)).errorCode == ILLEGAL


def test_requests_that_were_sent_ahead_are_answered_after_the_login(login):
    ask = header(17, 1, b"\0\5PLAIN"), header(36, 1, len(GOOD).to_bytes(4, "big") + GOOD)
    with login.connect() as c:
        c.socket.sendall(b"".join(map(frame, (*ask, header(3, 1, b"\0\0\0\0")))))
        assert [c.answer() is not None for _ in range(3)] == [True] * 3
        bad = GOOD[:-1]
    with login.connect() as c:
        ask = header(17, 1, b"\0\5PLAIN"), header(36, 1, len(bad).to_bytes(4, "big") + bad)
        c.socket.sendall(b"".join(map(frame, (*ask, header(3, 1, b"\0\0\0\0")))))
        answers = [c.answer() for _ in range(3)]
        # The refused request may reset the connection before the client has read the answer.
        assert answers[2] is None and (answers[1] is None or b"Invalid username" in answers[1])


def test_a_failed_login_is_answered_late(tmp_path):
    """connection.failed.authentication.delay.ms"""
    with login_broker(tmp_path, **{"connection.failed.authentication.delay.ms": "400"}) as login:

        def answer_s(version, token):
            with login.connect() as c:
                c.handshake("PLAIN", version=version)
                began = time.monotonic()
                if version:
                    c.token(token)
                else:
                    assert c.ask(token) is None
                return time.monotonic() - began

        assert answer_s(1, GOOD + b"x") >= 0.39
        assert answer_s(0, GOOD + b"x") >= 0.39
        assert min(answer_s(1, GOOD) for _ in range(5)) < 0.39


def test_a_fault_of_the_broker_logs_no_client_in(tmp_path, monkeypatch):
    def fails(*_):
        raise RuntimeError("planted")

    with login_broker(tmp_path) as login:
        monkeypatch.setattr(PlainUsers, "authenticate", fails)
        with login.connect() as c:
            assert c.handshake("PLAIN") == 0
            assert c.token(GOOD)[0] == -1
            assert c.is_closed()
        with login.connect() as c:
            assert c.handshake("PLAIN", version=0) == 0
            assert c.ask(GOOD) is None


@pytest.mark.parametrize(
    "settings",
    [
        {"sasl.server.max.receive.size": "1000"},
        {"sasl.server.max.receive.size": "100", SAFE + "sasl.server.max.receive.size": "1000"},
    ],
    ids=["all", "a listener"],
)
def test_frames_before_a_login_are_limited(tmp_path, settings):
    with login_broker(tmp_path, **settings) as login:
        with login.connect() as c:
            c.socket.sendall((1001).to_bytes(4, "big"))
            assert c.is_closed()
        with login.connect() as c:
            assert c.handshake("PLAIN", version=0) == 0
            c.socket.sendall((1001).to_bytes(4, "big"))
            assert c.is_closed()
        with login.connect() as c:
            c.handshake("PLAIN")
            assert c.token(GOOD)[0] == 0
            assert c.ask(header(3, 1, (0).to_bytes(4, "big") + bytes(2000))) is not None


def test_each_listener_has_its_own_mechanisms(tmp_path):
    settings = {"listener.name.safe.sasl.enabled.mechanisms": "PLAIN"}
    with login_broker(tmp_path, **settings) as login:
        with login.connect() as c:
            assert c.handshake("SCRAM-SHA-256") == UNSUPPORTED
        with login.connect() as c:
            assert c.handshake("PLAIN") == 0


def test_sasl_enabled_mechanisms(tmp_path):
    with login_broker(tmp_path, **{"sasl.enabled.mechanisms": "SCRAM-SHA-512"}) as login:
        for mechanism, code in (("PLAIN", UNSUPPORTED), ("SCRAM-SHA-512", 0)):
            with login.connect() as c:
                assert c.handshake(mechanism) == code
