"""The claims of a JSON Web Token that both validators of OAUTHBEARER look at (RFC 7519, section
4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.security.oauthbearer import TokenRefused

SECONDS_MAX = 1 << 40  # of a point in time: 34,000 years
Claims = Mapping[str, Any]


def seconds_of(claims: Claims, name: str) -> float | None:
    """A point in time, in seconds since 1970; None where the claim is missing. Raises
    TokenRefused."""
    value = claims.get(name)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= SECONDS_MAX:
        raise TokenRefused(f"its claim {name} is not a timestamp")
    return float(value)


def expiry_of(claims: Claims, now_s: float, skew_s: float) -> float:
    """When the token expires, in seconds since 1970. Raises TokenRefused, also for a token that has
    expired or is not valid yet."""
    expires_s, from_s = seconds_of(claims, "exp"), seconds_of(claims, "nbf")
    if expires_s is None:
        raise TokenRefused("it does not say when it expires (exp)")
    if expires_s + skew_s <= now_s:
        raise TokenRefused("it has expired")
    if from_s is not None and from_s - skew_s > now_s:
        raise TokenRefused("it is not valid yet (nbf)")
    return expires_s


def text_of(claims: Claims, name: str) -> str:
    """A text that is not blank, without the white space around it. Raises TokenRefused."""
    value = claims.get(name)
    if not isinstance(value, str) or not value.strip():
        raise TokenRefused(f"its claim {name} is not a string")
    return value.strip()


def scopes_of(claims: Claims, name: str) -> list[str]:
    """Raises TokenRefused for a scope that is no text, blank, or there twice, as Kafka does."""
    value = claims.get(name, [])
    scopes = [value] if isinstance(value, str) else value
    if not isinstance(scopes, list) or not all(isinstance(s, str) and s.strip() for s in scopes):
        raise TokenRefused(f"its claim {name} is not a list of scopes")
    stripped = [scope.strip() for scope in scopes]
    if len(set(stripped)) < len(stripped):
        raise TokenRefused(f"its claim {name} has a scope twice")
    return stripped
