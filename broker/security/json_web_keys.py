"""The keys that verify tokens: a JSON Web Key Set (RFC 7517) from an HTTPS address or a file.

The set is read at the start, and by the login that first needs it after jwks.endpoint.refresh.ms. A
token whose key is not in the set also causes a read, so a new key is accepted at once; but never
within jwks.endpoint.retry.backoff.max.ms of the last time. One login at a time reads; the others
continue with the known keys. A set that cannot be read leaves the former keys, and is read again
after a pause that grows from retry.backoff.ms. Kafka: RefreshingHttpsJwks, which reads on a thread
of its own and refuses the first token with a new key.

Limits: 1 MiB, 100 keys, and those of tls/https.py.
"""

from __future__ import annotations

import json
import logging
import ssl
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from barnabas.config import ConfigError
from barnabas.tls.https import file_of, read_file, read_https

log = logging.getLogger("barnabas.security")

SET_BYTES_MAX = 1 << 20
KEYS_MAX = 100
RSA_BITS_MIN = 2048  # RFC 7518, section 3.3
CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
OF_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")


class Key(NamedTuple):
    """A public key, and the algorithms that may use it: never one that needs a shared secret."""

    id: str | None
    algorithms: tuple[str, ...]
    public: Any  # of the package cryptography


class Pauses(NamedTuple):
    """In ms."""

    refresh: int
    retry: int
    retry_max: int


class JsonWebKeys:
    """Its methods run on any request handler."""

    def __init__(
        self, read: Callable[[], bytes], pauses: Pauses, now_ns: Callable[[], int]
    ) -> None:
        """`read` returns the set. Raises ConfigError when it cannot be read, or has no key."""
        self._read = read
        self._pauses = pauses
        self._now_ns = now_ns
        self._reading = threading.Lock()
        self._failures = 0
        try:
            self._keys = keys_of(read())
        except (OSError, ValueError) as error:
            raise ConfigError(f"its keys cannot be read: {error}.") from None
        self._read_well()

    def find(self, key_id: str | None, algorithm: str) -> Key | None:
        """The key of a token. A token without a key id needs a set with one key for its
        algorithm."""
        found = self._match(key_id, algorithm)
        if self._is_due(found is None) and self._reading.acquire(blocking=False):
            try:
                if self._is_due(found is None):
                    self._read_again()
            finally:
                self._reading.release()
            found = self._match(key_id, algorithm)
        return found

    def _match(self, key_id: str | None, algorithm: str) -> Key | None:
        fitting = [key for key in self._keys if algorithm in key.algorithms]
        if key_id is not None:
            return next((key for key in fitting if key.id == key_id), None)
        return fitting[0] if len(fitting) == 1 else None

    def _is_due(self, is_missing: bool) -> bool:
        now_ns = self._now_ns()
        return now_ns >= self._rests_until_ns and (is_missing or now_ns >= self._due_ns)

    def _read_again(self) -> None:
        try:
            self._keys = keys_of(self._read())
        except (OSError, ValueError) as error:
            pause_ms = min(self._pauses.retry << min(self._failures, 32), self._pauses.retry_max)
            self._failures += 1
            self._rests_until_ns = self._now_ns() + pause_ms * 1_000_000
            log.warning("the keys of OAUTHBEARER cannot be read, the former ones stay: %s", error)
        else:
            self._read_well()

    def _read_well(self) -> None:
        now_ns = self._now_ns()
        self._failures = 0
        self._due_ns = now_ns + self._pauses.refresh * 1_000_000
        self._rests_until_ns = now_ns + self._pauses.retry_max * 1_000_000


def keys_of(data: bytes) -> tuple[Key, ...]:
    """The keys that verify signatures. Keys of other kinds, for encryption, or too weak are left
    out. Raises ValueError when none is left."""
    try:
        rows = json.loads(data)["keys"][:KEYS_MAX]
        found = [key for row in rows if (key := _key_of(dict(row))) is not None]
    except (KeyError, TypeError, ValueError, RecursionError):
        raise ValueError("it is not a JSON Web Key Set (JWKS)") from None
    if not found:
        raise ValueError("it has no public key of RSA (2,048 bits or more), EC or Ed25519")
    return tuple(found)


def _key_of(row: Mapping[str, Any]) -> Key | None:
    from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
    from jwt.exceptions import InvalidKeyError

    kinds: dict[str, tuple[Any, tuple[str, ...]]] = {
        "RSA": (RSAAlgorithm, OF_RSA),
        "EC": (ECAlgorithm, tuple(filter(None, [CURVES.get(row.get("crv", ""))]))),
        "OKP": (OKPAlgorithm, ("EdDSA",)),
    }
    kind, algorithms = kinds.get(row["kty"], (None, ()))
    if "alg" in row:
        algorithms = tuple(name for name in algorithms if name == row["alg"])
    if kind is None or not algorithms or row.get("use", "sig") != "sig" or "d" in row:
        return None
    try:
        public = kind.from_jwk(dict(row))
    except InvalidKeyError:
        return None
    if row["kty"] == "RSA" and public.key_size < RSA_BITS_MIN:
        return None
    key_id = row.get("kid")
    return Key(key_id if isinstance(key_id, str) else None, algorithms, public)


def reader_of(url: str, trusted: ssl.SSLContext) -> Callable[[], bytes]:
    """Reads an https: or file: address. Raises ConfigError for another."""
    path = file_of(url)
    if path is None:
        return lambda: read_https(url, trusted, SET_BYTES_MAX)
    return lambda: read_file(path, SET_BYTES_MAX)
