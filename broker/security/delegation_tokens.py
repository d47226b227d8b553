"""Delegation tokens (KIP-48) in the metadata tree, and the SCRAM logins that use one as password.

    /delegation_token/tokens/ID    {"version":3,"owner":"User%3Aalice","tokenRequester":...,
                                    "renewers":[...],"issueTimestamp":MS,"maxTimestamp":MS,
                                    "expiryTimestamp":MS,"tokenId":"ID"}, as Kafka writes it
    HMAC    HMAC-SHA-512 of the id under delegation.token.secret.key: it is in no node

The client logs in with the id as user and the HMAC in base64 as password (SCRAM's extension
tokenauth=true). Its credential is derived from the id alone, so that an id without a token takes
the same steps as one with a token, and fails at the end. Nodes are read at each use: every broker
of a cluster sees a change at once. Changes: controller/delegation_tokens.py.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from barnabas.metadata import znode_json, znodes
from barnabas.metadata.tree import MetadataTree, NoNode
from barnabas.metadata.znode_json import ZnodeDataError
from barnabas.security.scram import HASHES, ITERATIONS_MIN, Credential, credential_of, text_salt

log = logging.getLogger("barnabas.security")

TOKENS_PATH = "/delegation_token/tokens"
VERSION = 3
CREDENTIALS_MAX = 10_000  # derived ones that are kept: each costs 4,096 hashes
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class DelegationToken(NamedTuple):
    """Principals as texts, User:NAME. Times by the wall clock, in ms."""

    id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    max_ms: int
    expires_ms: int

    def may_renew(self, principal: str) -> bool:
        return principal == self.owner or principal in self.renewers

    def has_expired(self, now_ms: int) -> bool:
        return self.max_ms < now_ms or self.expires_ms < now_ms


class DelegationTokens:
    """The tokens of a cluster. Any thread may use it."""

    def __init__(
        self,
        tree: MetadataTree,
        key: bytes,
        secret: Callable[[], bytes],
        wall_ms: Callable[[], int],
    ) -> None:
        """`key`: delegation.token.secret.key. `secret` returns login_secret()."""
        self._tree = tree
        self._key = key
        self._secret = secret
        self.wall_ms = wall_ms
        self.credential = lru_cache(CREDENTIALS_MAX)(self._derived)

    def hmac(self, token_id: str) -> bytes:
        return hmac.digest(self._key, token_id.encode(), "sha512")

    def ids(self) -> list[str]:
        """Raises MetadataError."""
        try:
            return self._tree.children(TOKENS_PATH)
        except NoNode:
            return []

    def read(self, token_id: str) -> DelegationToken | None:
        """None for an id without a token, or with one that cannot be read. Raises MetadataError."""
        if _ID.fullmatch(token_id) is None:
            return None
        try:
            token = decode(self._tree.get(f"{TOKENS_PATH}/{token_id}")[0])
        except NoNode:
            return None
        except ZnodeDataError as error:
            log.warning("the delegation token %s cannot be read: %s", token_id, error)
            return None
        return token if token.id == token_id else None

    def with_hmac(self, shown: bytes) -> DelegationToken | None:
        """Compares with the HMAC of every token. Raises MetadataError."""
        found = None
        for token_id in self.ids():
            if hmac.compare_digest(self.hmac(token_id), shown):
                found = token_id
        return None if found is None else self.read(found)

    def valid(self, token_id: str) -> DelegationToken | None:
        """A token that has not expired. Raises MetadataError."""
        token = self.read(token_id)
        return None if token is None or token.has_expired(self.wall_ms()) else token

    def _derived(self, mechanism: str, token_id: str) -> Credential:
        """The SCRAM credential of an id, whether there is such a token or not."""
        kind, name = HASHES[mechanism], token_id.encode("utf-8", "surrogatepass")
        salt = text_salt(hmac.digest(self._secret(), b"t" + name, kind))
        password = base64.b64encode(hmac.digest(self._key, name, "sha512"))
        salted = hashlib.pbkdf2_hmac(kind, password, salt, ITERATIONS_MIN)
        return credential_of(mechanism, salt, salted, ITERATIONS_MIN)


def encode(token: DelegationToken) -> bytes:
    return znode_json.to_json(
        {
            "version": VERSION,
            "owner": znodes.sanitized(token.owner),
            "tokenRequester": znodes.sanitized(token.requester),
            "renewers": [znodes.sanitized(renewer) for renewer in token.renewers],
            "issueTimestamp": token.issued_ms,
            "maxTimestamp": token.max_ms,
            "expiryTimestamp": token.expires_ms,
            "tokenId": token.id,
        }
    )


def decode(data: bytes) -> DelegationToken:
    """Raises ZnodeDataError."""
    found = znode_json.read_object(data, range(1, VERSION + 1))
    renewers = found.get("renewers")
    if not isinstance(renewers, list):
        raise ZnodeDataError("renewers is not a list")
    owner = _principal(found.get("owner"))
    return DelegationToken(
        znode_json.text_of(found, "tokenId"),
        owner,
        _principal(found["tokenRequester"]) if "tokenRequester" in found else owner,
        tuple(_principal(renewer) for renewer in renewers),
        znode_json.time_of(found, "issueTimestamp"),
        znode_json.time_of(found, "maxTimestamp"),
        znode_json.time_of(found, "expiryTimestamp"),
    )


def _principal(value: Any) -> str:
    if not isinstance(value, str):
        raise ZnodeDataError("a principal is not a string")
    found = znodes.unsanitized(value)
    if ":" not in found:
        raise ZnodeDataError("a principal is not TYPE:NAME")
    return found
