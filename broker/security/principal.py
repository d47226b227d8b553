"""Principals: TYPE:NAME, as Kafka writes them. User: and the name that the client logged in with,
unless a plugin (principal.builder.class) makes another one."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.errors import SaslAuthenticationFailed
from barnabas.security.failures import LoginFailed

ANONYMOUS = "User:ANONYMOUS"  # on a connection that has not logged in
USER_CHARS_MAX = 1024  # of a user's name, as in Kafka's AlterUserScramCredentials

# Asks the plugin about a connection, with the fields of hooks.ConnectionView: TYPE:NAME, or None.
# Raises SaslAuthenticationFailed.
BuildPrincipal = Callable[..., str | None]


def principal_of(user: str) -> bytes:
    """The bytes that a connection keeps."""
    return f"User:{user}".encode()


def built_principal(build: BuildPrincipal | None, **connection: object) -> bytes | None:
    """What a plugin makes of a connection; None: the principal is that of the login. Raises
    LoginFailed when the plugin refuses the connection."""
    if build is None:
        return None
    try:
        found = build(**connection)
    except SaslAuthenticationFailed as refused:
        raise LoginFailed(f"Authentication failed: {refused}") from None
    return None if found is None else found.encode()


def principal_text(principal: bytes) -> str:
    """TYPE:NAME of the bytes that a connection keeps; without bytes it has not logged in."""
    return principal.decode() or ANONYMOUS
