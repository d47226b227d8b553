"""SCRAM-SHA-256 and SCRAM-SHA-512 of the server (RFC 5802, RFC 7677), as Kafka's ScramSaslServer.

    client first    n,[a=authorization id],[extension,]n=user,r=nonce[,extensions]
    server first    r=nonce and more,s=salt,i=iterations
    client final    c=channel binding,r=nonce and more[,extensions],p=proof
    server final    v=signature

Each step is a function of bytes: what it needs of the first step is in the Exchange, which the
connection keeps. Users that do not exist get a credential of unknown_users.py and fail at the proof
like a wrong password; Kafka refuses them at once, which says that they do not exist.
The extension tokenauth=true says that the user is the id of a delegation token, and the password
its HMAC (delegation_tokens.py).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from typing import NamedTuple

from barnabas.security.failures import InvalidCredentials, LoginFailed
from barnabas.security.plain import OTHER_ID
from barnabas.security.principal import USER_CHARS_MAX

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
TYPES = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}  # ScramMechanism of the protocol
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
TOKEN_BYTES_MAX = 4096  # of one message; nonces are far shorter
_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"

_SAFE = r"(?:[^\0=,]|=2C|=3D)+"
_PRINTABLE = r"[\x21-\x2B\x2D-\x7E]+"
_VALUE = r"[^\0,]+"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
_BASE64 = r"(?:[A-Za-z0-9/+]{4})*(?:[A-Za-z0-9/+]{3}=|[A-Za-z0-9/+]{2}==)?"
_FIRST = re.compile(
    rf"(?P<header>n,(a=(?P<id>{_SAFE}))?,)(?P<bare>(m={_VALUE},)?n=(?P<user>{_SAFE}),r=(?P<nonce>{_PRINTABLE})"
    rf"(?P<more>{_EXTENSIONS}))"
)
_FINAL = re.compile(
    rf"(?P<signed>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)


class Credential(NamedTuple):
    """What the broker keeps of a password: enough to check a password, not enough to log in."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"<Credential of {self.iterations} iterations>"


def credential_of(mechanism: str, salt: bytes, salted: bytes, iterations: int) -> Credential:
    """From the salted password, which is not kept."""
    kind = HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", kind)
    return Credential(
        salt,
        hashlib.new(kind, client_key).digest(),
        hmac.digest(salted, b"Server Key", kind),
        iterations,
    )


def text_salt(data: bytes) -> bytes:
    """A salt in the form of Kafka's tools: 130 bits of `data` in base 36, small letters."""
    number, digits = int.from_bytes(data[:17], "big") >> 6, ""
    while number:
        number, digit = divmod(number, 36)
        digits = _BASE36[digit] + digits
    return digits.encode()


class Exchange(NamedTuple):
    """What is between the two steps of a login."""

    mechanism: str
    user: str
    header: str  # what the client's first message begins with, and
    bare: str  # the rest of it
    answer: str
    nonce: str
    credential: Credential
    by_token: bool = False  # the user is a delegation token

    def __repr__(self) -> str:
        return f"<Exchange {self.mechanism}>"

    def encode(self) -> bytes:
        salt, stored, server, iterations = self.credential
        keys = (salt.hex(), stored.hex(), server.hex(), iterations)
        texts = (*self[:6], *keys, self.by_token)
        return json.dumps(texts, ensure_ascii=False).encode()

    @classmethod
    def decode(cls, data: bytes) -> Exchange:
        mechanism, user, header, bare, answer, nonce, *rest = json.loads(data)
        salt, stored, server = (bytes.fromhex(key) for key in rest[:3])
        credential = Credential(salt, stored, server, rest[3])
        return cls(mechanism, user, header, bare, answer, nonce, credential, rest[4])


class ClientFirst(NamedTuple):
    """The client's first message, checked."""

    user: str
    header: str
    bare: str
    nonce: str
    by_token: bool = False


def read_first(mechanism: str, token: bytes) -> ClientFirst:
    """Raises LoginFailed."""
    found = _FIRST.fullmatch(_text(mechanism, token))
    if found is None:
        raise InvalidCredentials(mechanism)
    user = found["user"].replace("=2C", ",").replace("=3D", "=")
    if len(user) > USER_CHARS_MAX:
        raise InvalidCredentials(mechanism)
    own_id = (found["id"] or "").replace("=2C", ",").replace("=3D", "=")
    if own_id and own_id != user:
        raise LoginFailed(OTHER_ID)
    by_token = "tokenauth=true" in (part.lower() for part in found["more"].split(","))
    return ClientFirst(user, found["header"], found["bare"], found["nonce"], by_token)


def begin(mechanism: str, first: ClientFirst, credential: Credential) -> Exchange:
    nonce = first.nonce + secrets.token_urlsafe(24)
    salt = base64.b64encode(credential.salt).decode()
    answer = f"r={nonce},s={salt},i={credential.iterations}"
    return Exchange(
        mechanism, *first[:3], answer=answer, nonce=nonce, credential=credential,
        by_token=first.by_token,
    )  # fmt: skip


def finish(exchange: Exchange, token: bytes) -> bytes:
    """Returns the server's final message. Raises LoginFailed."""
    mechanism, kind = exchange.mechanism, HASHES[exchange.mechanism]
    found = _FINAL.fullmatch(_text(mechanism, token))
    if (
        found is None
        or found["nonce"] != exchange.nonce
        or base64.b64decode(found["binding"]) != exchange.header.encode()
    ):
        raise InvalidCredentials(mechanism)
    said = f"{exchange.bare},{exchange.answer},{found['signed']}".encode()
    proof = base64.b64decode(found["proof"])
    signature = hmac.digest(exchange.credential.stored_key, said, kind)
    if len(proof) != len(signature):
        raise InvalidCredentials(mechanism)
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    stored = hashlib.new(kind, client_key).digest()
    if not hmac.compare_digest(stored, exchange.credential.stored_key):
        raise InvalidCredentials(mechanism)
    final = hmac.digest(exchange.credential.server_key, said, kind)
    return b"v=" + base64.b64encode(final)


def _text(mechanism: str, token: bytes) -> str:
    try:
        if len(token) > TOKEN_BYTES_MAX:
            raise InvalidCredentials(mechanism)
        return token.decode()
    except UnicodeDecodeError:
        raise InvalidCredentials(mechanism) from None
