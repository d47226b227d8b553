"""Protection of a connection: TLS by the standard library's ssl, and a login (SASL).

    Security(tls=Tls(trusted="/etc/kafka/ca.pem"), sasl=Sasl("SCRAM-SHA-512", "alice", "secret"))

Certificates and keys are PEM, as files or as text. SCRAM is RFC 5802 (SHA-256 and SHA-512, RFC
7677): the password does not leave the client, and the broker proves that it knows the password too.
PLAIN sends the password in clear text. Other logins: oauth.py, kerberos.py.
"""

import base64
import hashlib
import hmac
import os
import secrets
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from barnabas.client.failures import AuthenticationFailed, CannotConnect, NoTls

PEM = "-----BEGIN"
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN, ITERATIONS_MAX = (
    4096,
    1_000_000,
)  # limits the work of a client
NO_BINDING = b"n,,"


@dataclass(frozen=True, slots=True)
class Tls:
    """The TLS settings of a client. `trusted`: the certificates to trust, a file or PEM text; None:
    those of the system."""

    trusted: str | None = None
    own_chain: str | None = None  # of the client, for brokers that request one
    own_key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    check_host: bool = True

    def wrapped(self, plain: socket.socket, host: str) -> ssl.SSLSocket:
        """Returns the TLS connection over a connected socket, after the handshake; it closes
        `plain` when that fails. `host`: the name that the broker's certificate must have. Raises
        NoTls when no attempt can succeed (settings, certificate), otherwise CannotConnect."""
        try:
            return self.context().wrap_socket(plain, server_hostname=host)
        except (NoTls, OSError, ValueError) as error:  # SSLError is an OSError
            plain.close()
            is_permanent = isinstance(error, (NoTls, ssl.SSLCertVerificationError))
            kind = NoTls if is_permanent else CannotConnect
            raise kind(f"cannot open a TLS connection to {host}: {error}") from error

    def context(self) -> ssl.SSLContext:
        """Returns a new context for Python's ssl with these certificates. Raises NoTls when a file
        or text cannot be read."""
        try:
            if _is_pem(self.trusted):
                context = ssl.create_default_context(cadata=self.trusted)
            else:
                context = ssl.create_default_context(cafile=self.trusted)
        except (OSError, ValueError) as error:
            raise NoTls(f"cannot read the truststore {_shown(self.trusted)}: {error}") from error
        # From 3.13 on, Python refuses authorities that Java's clients and OpenSSL take: those whose
        # certificates lack extensions of RFC 5280.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = self.check_host
        if self.own_chain is not None:
            try:
                with _as_file(self.own_chain) as chain, _as_file(self.own_key) as key:
                    context.load_cert_chain(chain, key, self._password)  # type: ignore[arg-type]
            except (OSError, ValueError) as error:
                raise NoTls(
                    f"cannot read the keystore {_shown(self.own_chain)}: {error}"
                ) from error
        return context

    def _password(self) -> str:
        """Returns the password of an encrypted key. Without it OpenSSL would ask on the
        terminal."""
        return self.key_password or ""


def _is_pem(text: str | None) -> bool:
    return text is not None and text.lstrip().startswith(PEM)


def _shown(source: str | None) -> str:
    return "given as PEM" if _is_pem(source) else str(source or "the system's")


@contextmanager
def _as_file(pem: str | None) -> Iterator[str | None]:
    """Writes PEM text to a temporary file: ssl reads a client's certificate and key only from
    files."""
    if pem is None or not _is_pem(pem):
        yield pem
        return
    descriptor, path = tempfile.mkstemp(suffix=".pem")  # with mode 600
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(pem)
        yield path
    finally:
        os.unlink(path)


class Login(Protocol):
    """A login with one mechanism, in plain values that can be pickled."""

    @property
    def mechanism(self) -> str:
        """The name of the mechanism in SaslHandshake."""

    @property
    def who(self) -> str:
        """A description of the user for error messages, without secrets."""

    def authenticate(self, exchange: Callable[[bytes], bytes], host: str) -> None:
        """Logs in. `exchange` sends a token to the broker and returns the broker's token; `host`:
        the name to which the client is connected. Raises AuthenticationFailed, and what `exchange`
        raises."""


@dataclass(frozen=True, slots=True)
class Sasl:
    """A login with a password: PLAIN, or a mechanism of HASHES. `by_token`: the user is the id of a
    delegation token, and the password its HMAC (KIP-48); only SCRAM supports that."""

    mechanism: str
    user: str
    password: str = field(repr=False)
    by_token: bool = False

    @property
    def who(self) -> str:
        return f"{'delegation token' if self.by_token else 'user'} {self.user}"

    def authenticate(self, exchange: Callable[[bytes], bytes], _host: str) -> None:
        """Logs in with PLAIN (RFC 4616) or SCRAM (RFC 5802), and checks the broker's signature of
        SCRAM. Raises AuthenticationFailed."""
        if self.mechanism == "PLAIN":
            exchange(b"\0" + self.user.encode() + b"\0" + self.password.encode())
        else:
            self._scram(HASHES[self.mechanism], exchange)

    def _scram(self, kind: str, exchange: Callable[[bytes], bytes]) -> None:
        nonce = secrets.token_urlsafe(24)
        name = self.user.replace("=", "=3D").replace(",", "=2C")
        first = f"n={name},r={nonce}{',tokenauth=true' if self.by_token else ''}".encode()
        answer = exchange(NO_BINDING + first)
        fields = _fields(answer)
        try:
            their_nonce, salt = fields["r"], base64.b64decode(fields["s"])
            rounds = int(fields["i"])
        except (KeyError, ValueError):
            raise AuthenticationFailed(
                f"the broker's response is not SCRAM: {answer[:80]!r}"
            ) from None
        if not their_nonce.startswith(nonce) or not ITERATIONS_MIN <= rounds <= ITERATIONS_MAX:
            raise AuthenticationFailed(
                "the broker's SCRAM response has a wrong nonce or iteration count"
            )
        salted = hashlib.pbkdf2_hmac(kind, self.password.encode(), salt, rounds)
        final = f"c={base64.b64encode(NO_BINDING).decode()},r={their_nonce}".encode()
        said = b",".join((first, answer, final))
        key = hmac.digest(salted, b"Client Key", kind)
        signature = hmac.digest(hashlib.new(kind, key).digest(), said, kind)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        answer = exchange(final + b",p=" + base64.b64encode(proof))
        wanted = hmac.digest(hmac.digest(salted, b"Server Key", kind), said, kind)
        if not hmac.compare_digest(_fields(answer).get("v", ""), base64.b64encode(wanted).decode()):
            raise AuthenticationFailed("the broker's SCRAM signature does not match the password")


def _fields(answer: bytes) -> dict[str, str]:
    parts = answer.decode("utf-8", "replace").split(",")
    return {part[:1]: part[2:] for part in parts if part[1:2] == "="}


@dataclass(frozen=True, slots=True)
class Security:
    """The security of a connection, in plain values that can be pickled for another process."""

    tls: Tls | None = None
    sasl: Login | None = None


def protocol_of(security: Security | None) -> str:
    """Returns Kafka's name of the protocol that a listener for such a connection has: PLAINTEXT,
    SSL, SASL_PLAINTEXT or SASL_SSL. None: PLAINTEXT."""
    if security is None:
        return "PLAINTEXT"
    below = "PLAINTEXT" if security.tls is None else "SSL"
    return below if security.sasl is None else f"SASL_{below}"
