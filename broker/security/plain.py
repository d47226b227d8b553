"""SASL PLAIN (RFC 4616) as Kafka's PlainSaslServer answers it.

    token       [authorization id] NUL user NUL password, in UTF-8

The comparison takes the same time for a wrong password and for a user that does not exist: both
compare hashes of one length, under a key that the broker keeps to itself.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping

from barnabas.config.jaas import LoginModule
from barnabas.security.failures import LoginFailed
from barnabas.security.mechanism import Answer
from barnabas.security.principal import USER_CHARS_MAX

NAME = "PLAIN"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USER_PREFIX = "user_"
WRONG = "Authentication failed: Invalid username or password"
OTHER_ID = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


class PlainUsers:
    """The users of one listener: `user_NAME` options of its JAAS line."""

    def __init__(self, module: LoginModule) -> None:
        self._key = os.urandom(32)
        self._missing = os.urandom(32)  # the hash of no password, for users that do not exist
        self._hashes: Mapping[str, bytes] = {
            name.removeprefix(USER_PREFIX): self._hash(password)
            for name, password in module.options.items()
            if name.startswith(USER_PREFIX)
        }

    def step(self, exchange: bytes, token: bytes) -> Answer:
        """Raises LoginFailed."""
        return Answer(b"", user=self.authenticate(token))

    def authenticate(self, token: bytes) -> str:
        """Returns the user. Raises LoginFailed."""
        parts = token.decode("utf-8", "replace").split("\0", 3)
        if len(parts) != 3:
            raise LoginFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if len(authorization_id) > USER_CHARS_MAX or len(user) > USER_CHARS_MAX:
            raise LoginFailed(WRONG)
        if not user:
            raise LoginFailed("Authentication failed: username not specified")
        if not password:
            raise LoginFailed("Authentication failed: password not specified")
        known = self._hashes.get(user, self._missing)
        if not hmac.compare_digest(known, self._hash(password)):
            raise LoginFailed(WRONG)
        if authorization_id and authorization_id != user:
            raise LoginFailed(OTHER_ID)
        return user

    def _hash(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode("utf-8", "surrogatepass"), "sha256")
