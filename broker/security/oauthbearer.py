"""SASL OAUTHBEARER (RFC 7628) as Kafka's OAuthBearerSaslServer answers it.

    client first    n,[a=authorization id],^A auth=Bearer TOKEN ^A [name=value ^A]... ^A
    broker          nothing, and the login is over; or {"status":"invalid_token"}, after which the
                    client sends ^A and the login fails

^A is the byte 1, and there are no spaces around it. Extensions (name=value) are taken and not used,
as Kafka's handler does. A token has at most 65,536 bytes. Who may log in is decided by
signed_tokens.py."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from barnabas.security.failures import InvalidCredentials, LoginFailed
from barnabas.security.mechanism import Answer
from barnabas.security.principal import USER_CHARS_MAX

NAME = "OAUTHBEARER"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
TOKEN_BYTES_MAX = 65536
INVALID = b'{"status":"invalid_token"}'
_FIRST = re.compile(
    r"n,(?:a=(?P<id>(?:[^\0=,]|=2C|=3D)+))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7E \t\r\n]+\x01)*)\x01"
)
_BEARER = re.compile(r"bearer +(?P<token>[-_~+/.A-Za-z0-9]+=*)", re.IGNORECASE)


class ValidToken(NamedTuple):
    user: str
    expires_ms: int  # by the wall clock


class TokenRefused(Exception):
    """The text says why, for the broker's log alone; it holds nothing of the token."""


class OAuthBearer:
    """`validate` takes a token. Raises TokenRefused."""

    def __init__(self, validate: Callable[[str], ValidToken]) -> None:
        self._validate = validate

    def step(self, exchange: bytes, token: bytes) -> Answer:
        """Raises LoginFailed."""
        if exchange:
            raise LoginFailed(exchange.decode())
        authorization_id, bearer = _read_first(token)
        try:
            found = self._validate(bearer)
            if not 0 < len(found.user) <= USER_CHARS_MAX:
                raise TokenRefused("its user has no name, or one that is too long")
        except TokenRefused as refusal:
            return Answer(INVALID, exchange=INVALID, refused=f"the token is refused: {refusal}")
        if authorization_id and authorization_id != found.user:
            raise LoginFailed(
                "Authentication failed: Client requested an authorization id"
                f" ({authorization_id[:USER_CHARS_MAX]}) that is different from the token's"
                f" principal name ({found.user})"
            )
        return Answer(b"", user=found.user, expires_ms=found.expires_ms)


def _read_first(data: bytes) -> tuple[str, str]:
    """(authorization id, token). Raises LoginFailed."""
    first = _FIRST.fullmatch(data.decode("latin-1")) if data.isascii() else None
    if first is None:
        raise InvalidCredentials(NAME)
    pairs = dict(pair.split("=", 1) for pair in first["pairs"].split("\x01") if pair)
    bearer = _BEARER.fullmatch(pairs.get("auth", ""))
    if bearer is None or len(bearer["token"]) > TOKEN_BYTES_MAX:
        raise InvalidCredentials(NAME)
    return first["id"] or "", bearer["token"]
