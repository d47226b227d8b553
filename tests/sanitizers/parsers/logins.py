"""What a client says to log in, and what an administrator gives the broker for it."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from sanitizers.parsers import Parse, Parser, of
from security.json_tokens import (
    first_message,
    jwk,
    key_set,
    oauth_settings,
    part,
    signed,
    unsigned,
)
from security.login_broker import MECHANISMS, login_broker

from barnabas.cext.memory.sys import SystemCalls
from barnabas.security.failures import LoginFailed
from barnabas.security.json_web_keys import keys_of
from barnabas.security.oauthbearer import TokenRefused
from barnabas.security.session import Session
from barnabas.security.unsigned_tokens import UnsignedTokens

ALL_MECHANISMS = (*MECHANISMS.split(","), "OAUTHBEARER")
NEXT = b"\xff\xff"  # between two tokens of a login
NONCE = b"NONCE"  # in the second token: what the broker has answered
UNTRUE = b"\0alice\0a password that alice does not have"
DEEP = b"[" * 2000


def login(folder: Path, stack: contextlib.ExitStack) -> Parse:
    """The first byte chooses the mechanism. Nobody has a password here, so nobody logs in."""
    (folder / "login").mkdir()
    settings = oauth_settings(folder) | {"sasl.enabled.mechanisms": ",".join(ALL_MECHANISMS)}
    broker = stack.enter_context(login_broker(folder / "login", **settings)).broker
    logins = broker.node.bound.logins()

    def parse(data: bytes) -> None:
        session = Session(ALL_MECHANISMS[data[0] % len(ALL_MECHANISMS)] if data else "PLAIN")
        first, _, second = data[1:].partition(NEXT)
        with contextlib.suppress(LoginFailed):
            answer = logins.step("SAFE", session, first)
            assert not answer.user
            if answer.exchange:
                nonce = answer.token.partition(b",")[0].removeprefix(b"r=")
                session = session._replace(exchange=answer.exchange)
                answer = logins.step("SAFE", session, second.replace(NONCE, nonce))
                assert not answer.user

    return parse


def login_tokens() -> Iterator[bytes]:
    first = b"n,,n=bob,r=abc"
    final = b"c=biws,r=" + NONCE + b",p=" + b"A" * 43 + b"="
    for index, name in enumerate(ALL_MECHANISMS):
        start = bytes([index])
        if name.startswith("SCRAM"):
            yield start + first + NEXT + final
            yield start + b"n,a=b=2Cb,n=b=2Cb,r=abc,tokenauth=true" + NEXT + final
    yield b"\0" + UNTRUE
    oauth = bytes([ALL_MECHANISMS.index("OAUTHBEARER")])
    for token in (signed("other"), signed("r", exp=1), signed("e", iss="other"), unsigned()):
        yield oauth + first_message(token) + NEXT + b"\1"
    yield oauth + first_message("abc", identity="a=bob", extensions="traceId=1\1")


def token(folder: Path, stack: contextlib.ExitStack) -> Parse:
    """A JSON Web Token: for a listener that takes signed ones, and for one that takes others."""
    (folder / "login").mkdir()
    broker = stack.enter_context(login_broker(folder / "login", **oauth_settings(folder))).broker
    logins = broker.node.bound.logins()
    unverified = UnsignedTokens({}, SystemCalls())

    def parse(data: bytes) -> None:
        with contextlib.suppress(LoginFailed):
            text = data.replace(b"\1", b"").decode("latin-1")
            assert not logins.step("SAFE", Session("OAUTHBEARER"), first_message(text)).user
        with contextlib.suppress(TokenRefused):
            unverified.validate(data.decode("latin-1"))

    return parse


def tokens() -> Iterator[bytes]:
    for text in (signed("other"), signed("r", exp=1), signed("e", iss="other"), unsigned()):
        yield text.encode()
    yield unsigned(iat=2**70, exp=1e300, scope=[["a"]]).encode()
    yield f"{part({'alg': 'none'})}.{part(DEEP)}.".encode()
    yield f"{part(DEEP)}.{part({'exp': 1})}.x".encode()


def key_sets(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert keys_of(data)


def sets_of_keys() -> Iterator[bytes]:
    for name in ("r", "e", "f", "o", "weak"):
        yield key_set(name)
    yield json.dumps({"keys": [jwk("r", use="enc"), jwk("e", alg="ES384"), {}]}).encode()
    yield b'{"keys":' + DEEP


PARSERS = {
    "login": Parser(login, login_tokens),
    "token": Parser(token, tokens),
    "key_set": Parser(of(key_sets), sets_of_keys),
}
