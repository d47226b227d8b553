"""Unsigned tokens, as Kafka's OAuthBearerUnsecuredValidatorCallbackHandler takes them: for trials.

Each client may write its own token, and so log in as any user. A broker takes them only when its
JAAS line says unsafeUnsignedTokens="true"; Kafka takes them unless a handler class is set. Further
options: unsecuredValidatorPrincipalClaimName, unsecuredValidatorScopeClaimName,
unsecuredValidatorRequiredScope, unsecuredValidatorAllowableClockSkewMs."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from barnabas.cext.memory.sys import SystemCalls
from barnabas.config import ConfigError
from barnabas.security.oauthbearer import TokenRefused, ValidToken
from barnabas.security.token_claims import Claims, expiry_of, scopes_of, seconds_of, text_of

UNSAFE = "unsafeUnsignedTokens"
_OPTION = "unsecuredValidator"


class UnsignedTokens:
    def __init__(self, jaas_options: Mapping[str, str], system: SystemCalls) -> None:
        """Raises ConfigError."""
        self._wall_ms = system.wall_ms
        self._user_claim = jaas_options.get(_OPTION + "PrincipalClaimName", "").strip() or "sub"
        self._scope_claim = jaas_options.get(_OPTION + "ScopeClaimName", "").strip() or "scope"
        self._scopes = frozenset(jaas_options.get(_OPTION + "RequiredScope", "").split())
        skew_ms = jaas_options.get(_OPTION + "AllowableClockSkewMs", "").strip() or "0"
        if not skew_ms.isascii() or not skew_ms.isdigit() or len(skew_ms) > 9:
            raise ConfigError(f"{_OPTION}AllowableClockSkewMs is not a number of milliseconds.")
        self._skew_s = int(skew_ms) / 1000

    def validate(self, token: str) -> ValidToken:
        """Raises TokenRefused."""
        claims, now_s = _claims_of(token), self._wall_ms() / 1000
        expires_s = expiry_of(claims, now_s, self._skew_s)
        issued_s = seconds_of(claims, "iat")
        if issued_s is not None and (issued_s - self._skew_s > now_s or issued_s >= expires_s):
            raise TokenRefused("it was issued in the future, or after its expiry")
        if missing := self._scopes - set(self._scopes_of(claims)):
            raise TokenRefused(f"{len(missing)} of the required scopes are missing")
        return ValidToken(text_of(claims, self._user_claim), int(expires_s * 1000))

    def _scopes_of(self, claims: Claims) -> list[str]:
        """A text has scopes with spaces between them."""
        value = claims.get(self._scope_claim)
        return value.split() if isinstance(value, str) else scopes_of(claims, self._scope_claim)


def _claims_of(token: str) -> Claims:
    try:
        header, body, signature = token.split(".")
        algorithm, claims = _decoded(header)["alg"], _decoded(body)
    except (ValueError, KeyError, RecursionError):
        raise TokenRefused("it is not a JSON Web Token") from None
    if algorithm != "none" or signature:
        raise TokenRefused("it is signed, and this listener takes unsigned tokens alone")
    return claims


def _decoded(part: str) -> dict[str, Any]:
    found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return found
