"""Changes of delegation tokens (KIP-48), with the rules of Kafka's DelegationTokenControlManager.

A token lives until its expiry, which its owner and its renewers may move up to its greatest age
(delegation.token.max.lifetime.ms). Expired tokens are removed every
delegation.token.expiry.check.interval.ms; they log no client in before that either. A cluster has
at most TOKENS_MAX tokens.
"""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import Sequence

from barnabas.errors import (
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    PolicyViolation,
)
from barnabas.metadata.tree import MetadataTree, NoNode
from barnabas.security.delegation_tokens import (
    TOKENS_PATH,
    DelegationToken,
    DelegationTokens,
    encode,
)

log = logging.getLogger("barnabas.security")

TOKENS_MAX = 100_000
TIME_MS_MAX = 2**63 - 1


class DelegationTokenChanges:
    """Any thread may use it: a token is one node, and the last change of it counts."""

    def __init__(
        self, tree: MetadataTree, tokens: DelegationTokens, max_lifetime_ms: int, expiry_ms: int
    ) -> None:
        """`expiry_ms`: delegation.token.expiry.time.ms, from its issue or renewal."""
        self._tree = tree
        self.tokens = tokens
        self._max_lifetime_ms = max_lifetime_ms
        self._expiry_ms = expiry_ms

    def create(
        self, owner: str, requester: str, renewers: Sequence[str], max_lifetime_ms: int
    ) -> DelegationToken:
        """`max_lifetime_ms`: 0 or less for the broker's. Raises PolicyViolation, MetadataError."""
        if len(self.tokens.ids()) >= TOKENS_MAX:
            raise PolicyViolation(f"there are {TOKENS_MAX} delegation tokens already")
        now_ms = self.tokens.wall_ms()
        asked_ms = max_lifetime_ms if max_lifetime_ms > 0 else self._max_lifetime_ms
        max_ms = _sum(now_ms, min(asked_ms, self._max_lifetime_ms))
        token = DelegationToken(
            _new_id(),
            owner,
            requester,
            tuple(renewers),
            now_ms,
            max_ms,
            min(max_ms, _sum(now_ms, self._expiry_ms)),
        )
        self._tree.ensure_path(TOKENS_PATH)
        self._tree.create(f"{TOKENS_PATH}/{token.id}", encode(token))
        log.info("delegation token %s of %.200r made by %.200r", token.id, owner, requester)
        return token

    def renew(self, principal: str, hmac: bytes, period_ms: int) -> int:
        """`period_ms`: 0 or less for the broker's. Returns the new expiry. Raises KafkaError,
        MetadataError."""
        token, now_ms = self._found(hmac), self.tokens.wall_ms()
        if token.has_expired(now_ms):
            raise DelegationTokenExpired
        self._check_owner(token, principal)
        asked_ms = period_ms if period_ms > 0 else self._expiry_ms
        return self._set_expiry(token, _sum(now_ms, min(asked_ms, self._expiry_ms)))

    def expire(self, principal: str, hmac: bytes, period_ms: int) -> int:
        """`period_ms`: from now on; less than 0 to remove the token at once. Returns the expiry.
        Raises KafkaError, MetadataError."""
        token, now_ms = self._found(hmac), self.tokens.wall_ms()
        self._check_owner(token, principal)
        if period_ms < 0:
            self._remove(token, f"by {principal!r:.200}")
            return now_ms
        if token.has_expired(now_ms):
            raise DelegationTokenExpired
        return self._set_expiry(token, _sum(now_ms, period_ms))

    def remove_expired(self) -> None:
        """Raises MetadataError."""
        now_ms = self.tokens.wall_ms()
        for token_id in self.tokens.ids():
            token = self.tokens.read(token_id)
            if token is not None and token.has_expired(now_ms):
                self._remove(token, "as it has expired")

    def _found(self, hmac: bytes) -> DelegationToken:
        token = self.tokens.with_hmac(hmac)
        if token is None:
            raise DelegationTokenNotFound
        return token

    def _check_owner(self, token: DelegationToken, principal: str) -> None:
        if not token.may_renew(principal):
            raise DelegationTokenOwnerMismatch

    def _set_expiry(self, token: DelegationToken, expires_ms: int) -> int:
        changed = token._replace(expires_ms=min(token.max_ms, expires_ms))
        try:
            self._tree.set(f"{TOKENS_PATH}/{token.id}", encode(changed))
        except NoNode:
            raise DelegationTokenNotFound from None
        log.info("delegation token %s expires at %d", token.id, changed.expires_ms)
        return changed.expires_ms

    def _remove(self, token: DelegationToken, why: str) -> None:
        try:
            self._tree.delete(f"{TOKENS_PATH}/{token.id}")
        except NoNode:
            return  # another broker was faster
        log.info("delegation token %s of %.200r removed %s", token.id, token.owner, why)


def _new_id() -> str:
    """Random, and no option of a command line, as Kafka's Uuid.randomUuid."""
    while True:
        found = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        if not found.startswith("-"):
            return found


def _sum(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, TIME_MS_MAX)
