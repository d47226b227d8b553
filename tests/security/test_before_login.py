"""Before a login the broker answers only ApiVersions, SaslHandshake and SaslAuthenticate."""

import random

import pytest
from compat.support import Wire
from security.login_broker import PASSWORD, frame, header, scram_final

from barnabas.api.table import api_table
from barnabas.wire import request
from barnabas.wire.headers import encode_request

VERSIONS, HANDSHAKE, AUTHENTICATE = 18, 17, 36
GOOD = f"\0alice\0{PASSWORD}".encode()


def every_request():
    """Keys that are served, in each version, and all others that a header may have here."""
    for key, row in api_table().items():
        for version in range(row.version_min, row.version_max + 1):
            yield key, version
    yield from ((key, 0) for key in range(128) if key not in api_table())
    yield from ((key, 0) for key in (128, 32767, -1, -32768))


def whole(key, version):
    """A valid request, where the tests have one."""
    if key in api_table():
        return encode_request(key, version, 7, "c", request(key).cls(), framed=False)
    return header(key, version, bytes(64))


def allowed(state, key, version):
    if state == "first":
        return key in (VERSIONS, HANDSHAKE)
    return state == "tokens" and key == AUTHENTICATE and version >= 0


@pytest.mark.parametrize("state", ["first", "tokens", "scram"])
def test_every_key_in_every_version_closes_the_connection(login, state):
    reactor = login.broker.node.reactor
    for key, version in every_request():
        if allowed("tokens" if state == "scram" else state, key, version):
            continue
        before = reactor.counters()["python_requests"]
        with login.connect() as c:
            count = {"first": 0, "tokens": 1, "scram": 2}[state]
            if state == "tokens":
                assert c.handshake("PLAIN") == 0
            elif state == "scram":
                assert c.handshake("SCRAM-SHA-256") == 0
                assert c.token(b"n,,n=bob,r=abc")[0] == 0
            assert c.ask(whole(key, version)) is None, (key, version)
        # Neither Python nor a native handler has seen it.
        assert reactor.counters()["python_requests"] == before + count, (key, version)


def test_the_response_cache_is_not_asked(login):
    """The same Metadata request is cached for the plain listener, and refused on the other."""
    ask = header(3, 1, b"\0\0\0\0")
    with Wire(login.plain) as wire:
        assert wire.call_raw(frame(ask)) and wire.call_raw(frame(ask))
    with login.connect() as c:
        assert c.ask(ask) is None
    with login.connect() as c:
        c.handshake("PLAIN")
        assert c.token(GOOD)[0] == 0
        assert c.ask(ask) is not None and c.ask(ask) is not None


def test_requests_sent_ahead_of_the_handshake_are_not_answered(login):
    with login.connect() as c:
        c.socket.sendall(
            frame(header(18, 0)) + frame(header(3, 1, b"\0\0\0\0")) + frame(header(18, 0))
        )
        c.answer()
        assert c.answer() is None


def test_api_versions_is_answered_before_a_login_and_logs_no_client_in(login):
    for version in range(0, 3):
        with login.connect() as c:
            assert c.ask(header(18, version)) is not None
            assert c.ask(header(3, 1, b"\0\0\0\0")) is None


def test_a_login_is_of_its_own_connection(login):
    with login.connect() as c, login.connect() as other:
        c.handshake("PLAIN")
        assert c.token(GOOD)[0] == 0
        assert c.is_served()
        assert not other.is_served()


def test_a_token_cut_at_each_byte_or_with_one_byte_changed_logs_no_client_in(login):
    tokens = [GOOD[:at] for at in range(len(GOOD))]
    tokens += [GOOD[:at] + bytes([GOOD[at] ^ 1]) + GOOD[at + 1 :] for at in range(len(GOOD))]
    for token in tokens:
        with login.connect() as c:
            c.handshake("PLAIN")
            answer = c.token(token)
            assert answer is None or answer[0] == 58, token
            assert not c.is_served()


def test_a_scram_proof_cut_or_changed_at_each_byte_logs_no_client_in(login):
    bare = b"n=bob,r=abc"
    with login.connect() as c:
        c.handshake("SCRAM-SHA-256")
        size = len(scram_final("SCRAM-SHA-256", PASSWORD, bare, c.token(b"n,," + bare)[2])[0])
    for at in range(size):
        for cut in (True, False):
            with login.connect() as c:
                c.handshake("SCRAM-SHA-256")
                answer = c.token(b"n,," + bare)[2]
                final, _ = scram_final("SCRAM-SHA-256", PASSWORD, bare, answer)
                # The last digit of the proof has two bits that no byte takes.
                other = b"w" if final[at : at + 1] in (b"A", b"B", b"C", b"D") else b"A"
                spoilt = final[:at] if cut else final[:at] + other + final[at + 1 :]
                answer = c.token(spoilt)
                assert answer is None or answer[0] == 58, spoilt
                assert not c.is_served()


def test_frames_cut_at_each_byte_and_random_bytes_leave_the_broker_whole(login):
    rng = random.Random(36)
    both = frame(header(17, 1, b"\0\5PLAIN")) + frame(
        header(36, 1, len(GOOD).to_bytes(4, "big") + GOOD)
    )
    samples = [both[:at] for at in range(len(both))]
    samples += [rng.randbytes(rng.randrange(1, 200)) for _ in range(200)]
    samples += [frame(header(36, 1, rng.randbytes(40))) for _ in range(50)]
    for sample in samples:
        with login.connect() as c:
            c.socket.sendall(sample)
    with login.connect() as c:
        c.handshake("PLAIN")
        assert c.token(GOOD)[0] == 0 and c.is_served()
    counters = login.broker.node.reactor.counters()
    assert counters["held_bytes"] < 1 << 20
