"""The interface of a SASL mechanism: a token of the client, and the answer to it."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Answer(NamedTuple):
    """`token`: the broker's. `exchange`: what the mechanism needs at the next token. `user`: who
    has logged in; empty while the login goes on. `expires_ms`: when the credentials that the client
    showed expire, by the wall clock; None: they do not. `refused`: for the log, why the login will
    fail when the client has taken the token. `by_token`: the client showed a delegation token."""

    token: bytes
    exchange: bytes = b""
    user: str = ""
    expires_ms: int | None = None
    refused: str = ""
    by_token: bool = False


class Mechanism(Protocol):
    """One mechanism of one listener. Its methods run on any request handler."""

    def step(self, exchange: bytes, token: bytes) -> Answer:
        """Takes a token; `exchange` is that of the answer before, and empty at the first token.
        Raises LoginFailed."""
