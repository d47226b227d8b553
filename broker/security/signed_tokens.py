"""Signed JSON Web Tokens (RFC 7519), checked as Kafka's OAuthBearerValidatorCallbackHandler does.

A token must be signed by a key of the set (json_web_keys.py) with an algorithm of RSA, EC or
Ed25519: the algorithm none and those of a shared secret are refused, whatever the token says of
itself. It must name the expected issuer and one of the expected audiences, the time of its issue,
and a time of expiry that has not come; sasl.oauthbearer.clock.skew.seconds are allowed between the
clocks. The user is its claim sub (sasl.oauthbearer.sub.claim.name). The package PyJWT verifies the
signature; it is imported when a listener offers OAUTHBEARER."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from barnabas.cext.memory.sys import SystemCalls
from barnabas.config import ConfigError
from barnabas.config.listeners import Listener
from barnabas.config.logins import LoginSettings
from barnabas.config.tls import TlsSettings
from barnabas.security.json_web_keys import JsonWebKeys, Pauses, reader_of
from barnabas.security.oauthbearer import TokenRefused, ValidToken
from barnabas.security.token_claims import expiry_of, scopes_of, seconds_of, text_of

OPTION = "sasl.oauthbearer."
AUDIENCE, ISSUER = OPTION + "expected.audience", OPTION + "expected.issuer"
URL, JWKS = OPTION + "jwks.endpoint.url", OPTION + "jwks.endpoint."
WRONG_SIGNATURE = "its signature is wrong"


class SignedTokens:
    """The tokens that one listener takes."""

    def __init__(
        self,
        settings: LoginSettings,
        listener: Listener,
        jaas_options: Mapping[str, str],
        system: SystemCalls,
    ) -> None:
        """`jaas_options`: those with ssl.truststore. in front say whom the reader of an HTTPS
        address trusts, as in Kafka; without them, whom this machine trusts. Raises ConfigError."""
        try:
            import jwt
        except ImportError:
            raise ConfigError(
                "OAUTHBEARER needs the package PyJWT: pip install 'barnabas[oauth]'."
            ) from None
        self._jwt = jwt
        self._wall_ms = system.wall_ms
        self._audience = _expected(settings, AUDIENCE, settings.names(AUDIENCE))
        issuer = settings.text(ISSUER)
        self._issuer = _expected(settings, ISSUER, (issuer,) if issuer else ())
        self._skew_s = settings.integer(OPTION + "clock.skew.seconds")
        self._user_claim = settings.text(OPTION + "sub.claim.name") or "sub"
        self._scope_claim = settings.text(OPTION + "scope.claim.name") or "scope"
        url = settings.text(URL)
        if url is None:
            raise ConfigError(
                f"{settings.name_of(URL)} is not set: without keys no token could be verified."
                " Set it to the https: or file: address of your identity provider's keys (JWKS)."
            )
        refresh, retry, retry_max = (
            settings.integer(JWKS + name)
            for name in ("refresh.ms", "retry.backoff.ms", "retry.backoff.max.ms")
        )
        try:
            read = reader_of(url, _trusted(listener, jaas_options))
            self._keys = JsonWebKeys(read, Pauses(refresh, retry, retry_max), system.monotonic_ns)
        except ConfigError as error:
            raise ConfigError(f"{settings.name_of(URL)}: {error.problems[0]}") from None

    def validate(self, token: str) -> ValidToken:
        """Raises TokenRefused."""
        claims = self._verified(token)
        if seconds_of(claims, "iat") is None:
            raise TokenRefused("it does not say when it was issued (iat)")
        expires_s = expiry_of(claims, self._wall_ms() / 1000, self._skew_s)
        scopes_of(claims, self._scope_claim)
        return ValidToken(text_of(claims, self._user_claim), int(expires_s * 1000))

    def _verified(self, token: str) -> Mapping[str, Any]:
        """The claims of a token that one of our keys has signed, for us. Raises TokenRefused."""
        jwt = self._jwt
        try:
            header = jwt.get_unverified_header(token)
            algorithm, key_id = header.get("alg"), header.get("kid")
            if "crit" in header or not isinstance(algorithm, str):
                raise TokenRefused(
                    "its header has a critical extension (crit), or no algorithm (alg)"
                )
            key = self._keys.find(key_id, algorithm)
            if key is None:
                raise TokenRefused("no key of the set fits its key id and algorithm")
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key.public,
                algorithms=[algorithm],
                audience=self._audience or None,
                issuer=self._issuer or None,
                # The broker's clock judges the times (token_claims.py).
                options={
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_aud": bool(self._audience),
                    "verify_iss": bool(self._issuer),
                },
            )
            return claims
        except jwt.InvalidSignatureError:
            raise TokenRefused(WRONG_SIGNATURE) from None
        except jwt.InvalidIssuerError:
            raise TokenRefused(f"its issuer is not {ISSUER}") from None
        except jwt.InvalidAudienceError:
            raise TokenRefused(f"its audience is not in {AUDIENCE}") from None
        except jwt.MissingRequiredClaimError as error:
            raise TokenRefused(f"its claim {error.claim} is missing") from None
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise TokenRefused("it is not a JSON Web Token") from None


def _expected(settings: LoginSettings, name: str, found: tuple[str, ...]) -> list[str]:
    """What a token must say; empty: it is not looked at. Raises ConfigError."""
    unverified = name.replace("expected", "allow.unverified")
    if not found and not settings.boolean(unverified):
        raise ConfigError(
            f"{settings.name_of(name)} is not set: tokens that were issued"
            f" {'by others' if name == ISSUER else 'for other services'} would be taken. Set it, or"
            f" {unverified}=true."
        )
    return list(found)


def _trusted(listener: Listener, jaas_options: Mapping[str, str]) -> ssl.SSLContext:
    """Raises ConfigError."""
    own = {name: text for name, text in jaas_options.items() if name.startswith("ssl.truststore.")}
    if not own:
        return ssl.create_default_context()
    from barnabas.tls.stores import read_trusted

    certificates = read_trusted(TlsSettings(own, listener))
    context = ssl.create_default_context(
        cadata="".join(ssl.DER_cert_to_PEM_cert(found) for found in certificates)
    )
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as Java: see client/security.py
    return context
