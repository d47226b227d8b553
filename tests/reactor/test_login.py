"""The login state and the session of a connection on the network thread."""

import contextlib
import struct
import threading
from functools import partial

import pytest
from ext.compiled import compiled
from reactor.network import Served, answer_to, is_closed, receive, request, response

from barnabas.api.call import Call
from barnabas.cext.network.request_queue import FAILED, NEEDED, OPEN, RAW_TOKENS, TOKENS

HANDSHAKE, VERSIONS, AUTHENTICATE, NATIVE, OTHER, PRINCIPAL = 17, 18, 36, 100, 3, 107
STATES = {b"open": OPEN, b"tokens": TOKENS, b"raw": RAW_TOKENS, b"failed": FAILED}


@pytest.fixture(scope="session")
def trial_handler():
    return compiled("trial_handler").TrialHandler


class Logins:
    """Changes to the state that a request's body names; `seen` has what Python got."""

    def __init__(self):
        self.seen = []

    def __call__(self, pending):
        row = (pending.api_key, pending.login, pending.session)
        self.seen.append((*row, Call(None, pending.api_key, 0, pending).principal))
        body = pending.data[pending.body_at :]
        if body in STATES:
            pending.set_principal(b"User:" + body if body == b"open" else b"")
            pending.set_login(STATES[body], body)
        if pending.login == RAW_TOKENS:
            pending.reply(struct.pack(">i", len(body)) + body)
        else:
            pending.reply(answer_to(pending))


@contextlib.contextmanager
def served(trial_handler, **listening):
    """The port of a listener that asks for a login."""
    logins = Logins()
    with Served(logins, native=[trial_handler()]) as made:
        made.logins = logins
        made.port = made.reactor.listen("SAFE", "127.0.0.1", 0, login=True, **listening)
        yield made


def test_a_session_is_shown_to_later_requests_of_its_connection_alone(trial_handler):
    with served(trial_handler) as made, made.connect() as c, made.connect() as other:
        for body in (b"tokens", b"", b"open"):
            c.sendall(request(1, body, key=AUTHENTICATE if made.logins.seen else HANDSHAKE))
            response(c)
        c.sendall(request(1, b"", key=OTHER))
        response(c)
        other.sendall(request(1, b"", key=HANDSHAKE))
        response(other)
        assert made.logins.seen == [
            (HANDSHAKE, NEEDED, b"", "User:ANONYMOUS"),
            (AUTHENTICATE, TOKENS, b"tokens", "User:ANONYMOUS"),
            (AUTHENTICATE, TOKENS, b"tokens", "User:ANONYMOUS"),
            (OTHER, OPEN, b"open", "User:open"),
            (HANDSHAKE, NEEDED, b"", "User:ANONYMOUS"),
        ]


@pytest.mark.parametrize("key", [NATIVE, OTHER, AUTHENTICATE, 0, 127, 128, -1])
def test_other_requests_close_the_connection_before_any_handler_sees_them(trial_handler, key):
    with served(trial_handler) as made, made.connect() as c:
        c.sendall(request(1, b"native", key=key))
        assert is_closed(c)
        made.closed("no-login")
        assert made.logins.seen == []


def test_a_gate_does_not_open_a_listener_that_asks_for_a_login(trial_handler):
    with served(trial_handler) as made:
        made.reactor.set_gate([NATIVE])
        with made.connect() as c:
            c.sendall(request(1, b"native", key=NATIVE))
            assert is_closed(c)
        assert made.logins.seen == []


def test_a_gated_token_that_spells_a_request_is_not_carried_out(trial_handler):
    """A gate passes requests to native handlers by their bytes."""

    def handle(pending):
        if pending.gated:
            pending.proceed()
            return
        pending.set_login(RAW_TOKENS, b"")
        pending.reply(answer_to(pending))

    with Served(handle, native=[trial_handler()]) as made:
        made.port = made.reactor.listen("SAFE", "127.0.0.1", 0, login=True)
        made.reactor.set_gate([AUTHENTICATE])
        with made.connect() as c:
            c.sendall(request(1, b"", key=HANDSHAKE))
            response(c)
            c.sendall(request(2, b"native", key=NATIVE))
            assert is_closed(c)


@pytest.mark.parametrize("key", [HANDSHAKE, VERSIONS, NATIVE, OTHER])
def test_after_the_handshake_only_tokens_are_taken(trial_handler, key):
    with served(trial_handler) as made, made.connect() as c:
        c.sendall(request(1, b"tokens", key=HANDSHAKE))
        response(c)
        c.sendall(request(2, b"", key=key))
        assert is_closed(c)


def test_a_version_below_zero_is_no_token(trial_handler):
    with served(trial_handler) as made, made.connect() as c:
        c.sendall(request(1, b"tokens", key=HANDSHAKE))
        response(c)
        c.sendall(request(2, b"open", key=AUTHENTICATE, version=-1))
        assert is_closed(c)


@pytest.mark.parametrize("size_bytes", [0, 1, 7, 8, 1000, 300_000])
def test_raw_tokens_of_any_size_come_whole_however_they_arrive(trial_handler, size_bytes):
    token = b"t" * size_bytes
    with served(trial_handler) as made, made.connect() as c:
        c.sendall(request(1, b"raw", key=HANDSHAKE))
        response(c)
        frame = struct.pack(">i", size_bytes) + token
        for piece in (frame[:2], frame[2:6], frame[6:]):
            c.sendall(piece)
        assert receive(c, 4 + size_bytes) == frame
        c.sendall(struct.pack(">i", 4) + b"open")
        assert receive(c, 8) == struct.pack(">i", 4) + b"open"
        c.sendall(request(2, b"native", key=NATIVE))
        assert response(c) == (2, b"native")


def test_a_failed_login_is_answered_and_closed(trial_handler):
    with served(trial_handler) as made, made.connect() as c:
        c.sendall(request(1, b"failed", key=HANDSHAKE))
        assert response(c) == (1, b"failed")
        assert is_closed(c)
        made.quiet()


@pytest.mark.parametrize("state", [NEEDED, RAW_TOKENS])
def test_frames_are_limited_before_a_login(trial_handler, state):
    with served(trial_handler, login_bytes_max=1000) as made, made.connect() as c:
        if state == RAW_TOKENS:
            c.sendall(request(1, b"raw", key=HANDSHAKE))
            response(c)
        c.sendall(struct.pack(">i", 1001))
        assert is_closed(c)
        made.closed("large-frame")


def test_connections_that_close_in_each_state_leave_nothing_behind(trial_handler):
    with served(trial_handler) as made:
        for body in (*STATES, b"x"):
            for _ in range(20):
                with made.connect() as c:
                    c.sendall(request(1, body, key=HANDSHAKE))
                    response(c)
        made.quiet()


def test_other_listeners_ask_for_no_login(trial_handler):
    with Served(native=[trial_handler()]) as made, made.connect() as c:
        c.sendall(request(1, b"native", key=NATIVE) + request(2, b"x", key=OTHER))
        assert [response(c), response(c)] == [(1, b"native"), (2, b"x")]


def test_a_place_that_is_used_again_does_not_inherit_the_login(trial_handler):
    with served(trial_handler) as made:
        made.reactor.unlisten("SAFE")
        made.quiet()
        made.port = made.reactor.listen("OPEN", "127.0.0.1", 0)
        with made.connect() as c:
            c.sendall(request(1, b"native", key=NATIVE))
            assert response(c) == (1, b"native")


def test_set_login_takes_a_state_once_answered_no_more(trial_handler):
    errors, done = [], threading.Event()

    def handle(pending):
        for state in (-1, FAILED + 1):
            with pytest.raises(ValueError):
                pending.set_login(state, b"")
        for setter in (pending.set_principal, partial(pending.set_login, NEEDED)):
            with pytest.raises(ValueError, match="more than 65536 bytes"):
                setter(bytes(65537))
        pending.reply(answer_to(pending))
        try:
            pending.set_login(OPEN, b"")
        except RuntimeError as error:
            errors.append(str(error))
        done.set()

    with Served(handle) as made:
        made.port = made.reactor.listen("SAFE", "127.0.0.1", 0, login=True)
        with made.connect() as c:
            c.sendall(request(1, b"", key=HANDSHAKE))
            response(c)
            assert done.wait(5) and errors == ["this request was answered before"]
            c.sendall(request(2, b"", key=OTHER))
            assert is_closed(c)


def test_the_bytes_of_a_login_count_as_request_bytes_until_the_connection_closes(trial_handler):
    def handle(pending):
        pending.set_principal(b"p" * 1000)
        pending.set_login(OPEN, b"s" * 20_000)
        pending.reply(answer_to(pending))

    with Served(handle, native=[trial_handler()]) as made:
        made.port = made.reactor.listen("SAFE", "127.0.0.1", 0, login=True)
        with made.connect() as c:
            for key in (HANDSHAKE, OTHER, OTHER):
                c.sendall(request(1, b"", key=key))
                response(c)
            made.eventually(lambda c: c["held_bytes"] == 21_000)
        made.quiet()


def test_the_copies_of_a_login_behind_waiting_requests_count_as_request_bytes(trial_handler):
    """Each request that waits for Python has a copy of the principal and the session."""
    arrived, go_on = threading.Semaphore(0), threading.Event()

    def handle(pending):
        if pending.api_key == HANDSHAKE:
            pending.set_login(OPEN, b"s" * 20_000)
        else:
            arrived.release()
            assert go_on.wait(10)
        pending.reply(answer_to(pending))

    with Served(handle, native=[trial_handler()]) as made:
        made.port = made.reactor.listen("SAFE", "127.0.0.1", 0, login=True)
        with made.connect() as c, made.connect() as other:
            for each in (c, other):
                each.sendall(request(1, b"", key=HANDSHAKE))
                response(each)
            frame = request(1, b"", key=OTHER)
            c.sendall(frame)
            assert arrived.acquire(timeout=10)
            made.eventually(lambda c: c["held_bytes"] == 60_000 + len(frame) - 4)
            go_on.set()
            response(c)
        made.quiet()


def test_native_handlers_see_the_principal_of_the_connection(trial_handler):
    with served(trial_handler) as made, made.connect() as c, made.connect() as other:
        for each in (c, other):
            each.sendall(request(1, b"open" if each is c else b"", key=HANDSHAKE))
            response(each)
        c.sendall(request(2, b"", key=PRINCIPAL) + request(3, b"", key=PRINCIPAL))
        assert [response(c), response(c)] == [(2, b"User:open"), (3, b"User:open")]
        other.sendall(request(1, b"", key=PRINCIPAL))
        assert is_closed(other)


def test_a_connection_without_a_login_has_no_principal(trial_handler):
    with Served(native=[trial_handler()]) as made, made.connect() as c:
        c.sendall(request(1, b"", key=PRINCIPAL))
        assert response(c) == (1, b"")


def test_a_client_that_leaves_while_its_login_is_judged_leaves_nothing_behind(trial_handler):
    """The delay of a failed login ends after its connection: nothing waits and no memory is
    kept."""
    left, answered = threading.Event(), threading.Event()

    def handle(pending):
        pending.set_login(FAILED, b"s" * 1000)
        assert left.wait(10)
        made.eventually(lambda counters: counters["held_bytes"] < 1000)
        pending.reply(answer_to(pending))
        answered.set()

    with Served(handle) as made:
        made.port = made.reactor.listen("SAFE", "127.0.0.1", 0, login=True)
        c = made.connect()
        c.sendall(request(1, b"", key=HANDSHAKE))
        made.eventually(lambda counters: counters["held_bytes"] >= 1000)
        c.close()
        made.eventually(lambda counters: counters["connection_count"] == 0)
        left.set()
        assert answered.wait(10)
        made.quiet()
