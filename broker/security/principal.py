"""Principals: User:NAME, as Kafka writes them. The name is what the client logged in with."""

from __future__ import annotations

ANONYMOUS = "User:ANONYMOUS"  # on a connection that has not logged in
USER_CHARS_MAX = 1024  # of a user's name, as in Kafka's AlterUserScramCredentials


def principal_of(user: str) -> bytes:
    """The bytes that a connection keeps."""
    return f"User:{user}".encode()


def principal_text(principal: bytes) -> str:
    """TYPE:NAME of the bytes that a connection keeps; without bytes it has not logged in."""
    return principal.decode() or ANONYMOUS
