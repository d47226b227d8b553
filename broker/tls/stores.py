"""Reads a key and its chain, or certificates to trust, from PEM, PKCS#12 and JKS.

The first bytes distinguish JKS from PKCS12, as in Java: a file of either is read
whichever of the two names the setting has. PKCS#12 is read by the package `cryptography`, which is
imported when the first such store is. All results are DER.

A PEM file whose key is not encrypted must be readable by its owner alone. Java's stores are
encrypted by their password, and may have any mode, as for Kafka; so may an encrypted PEM key. A
file of certificates to trust must not be writable by every user. Next: listener_tls.py.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from barnabas.config import ConfigError
from barnabas.config.providers import check_private, check_unchanged
from barnabas.tls.jks import MAGIC, BadJks, private_key, read_jks

STORE_BYTES_MAX = 16 << 20
CERTIFICATE = re.compile(
    r"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----\s+([A-Za-z0-9+/=\s]+?)"
    r"-----END (?:TRUSTED |X509 )?CERTIFICATE-----"
)
KEY = re.compile(
    r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.+?-----END \1-----",
    re.S,
)
ENCRYPTED = re.compile(r"-----BEGIN ENCRYPTED PRIVATE KEY-----|^Proc-Type: 4,ENCRYPTED", re.M)

Found = TypeVar("Found")


class StoreSettings(Protocol):
    """Where stores are: the values of ssl.keystore.*, ssl.truststore.* and ssl.key.password."""

    def text(self, base: str) -> str | None: ...

    def name_of(self, base: str) -> str:
        """The name under which the value in force is set."""


class Identity(NamedTuple):
    """A private key and its chain, the certificate of the key first."""

    key: bytes
    chain: tuple[bytes, ...]


def read_store(path: str, setting: str) -> bytes:
    """Raises ConfigError."""
    try:
        with open(path, "rb") as file:
            data = file.read(STORE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"{setting}={path}: cannot be read ({error.strerror or os.strerror(error.errno or 0)})."
            " Check the path and its permissions."
        ) from None
    if len(data) > STORE_BYTES_MAX:
        raise ConfigError(
            f"{setting}={path}: the file is larger than {STORE_BYTES_MAX} bytes: it is neither a"
            " keystore nor a truststore. Correct the path."
        )
    return data


def pem_with_key(location: str, data: bytes) -> str:
    """The text of a PEM file. Raises ConfigError when others may read its key."""
    text = data.decode("latin-1")
    if not ENCRYPTED.search(text):
        check_private(location, "a key without a password")
    return text


def read_identity(settings: StoreSettings) -> Identity:
    """The key and chain of a listener, or of a client. Raises ConfigError."""
    location = settings.text("ssl.keystore.location")
    key_password = settings.text("ssl.key.password")
    kind = (settings.text("ssl.keystore.type") or "").upper()
    if location is None:
        where = settings.name_of("ssl.keystore.key")
        text = settings.text("ssl.keystore.key") or ""
        chain = settings.text("ssl.keystore.certificate.chain") or ""
        return Identity(
            _pem_key(text, key_password, where),
            pem_certificates(chain, settings.name_of("ssl.keystore.certificate.chain")),
        )
    where = f"{settings.name_of('ssl.keystore.location')}={location}"
    data = read_store(location, settings.name_of("ssl.keystore.location"))
    if kind == "PEM":
        text = pem_with_key(location, data)
        return Identity(_pem_key(text, key_password, where), pem_certificates(text, where))
    password = settings.text("ssl.keystore.password")
    reading: Callable[[bytes, str | None, str | None], Identity]
    reading = _jks_identity if data.startswith(MAGIC) else _pkcs12_identity
    return _read(where, lambda: reading(data, password, key_password))


def read_trusted(settings: StoreSettings) -> tuple[bytes, ...]:
    """The certificates that a listener, or a client, trusts. Raises ConfigError."""
    location = settings.text("ssl.truststore.location")
    kind = (settings.text("ssl.truststore.type") or "").upper()
    if location is None:
        inline = settings.text("ssl.truststore.certificates")
        where = settings.name_of("ssl.truststore.certificates")
        return pem_certificates(inline, where) if inline else ()
    where = f"{settings.name_of('ssl.truststore.location')}={location}"
    data = read_store(location, settings.name_of("ssl.truststore.location"))
    check_unchanged(location, "certificates to trust")
    if kind == "PEM":
        return pem_certificates(data.decode("latin-1"), where)
    password = settings.text("ssl.truststore.password")
    reading = _jks_trusted if data.startswith(MAGIC) else _pkcs12_trusted
    found: tuple[bytes, ...] = _read(where, lambda: reading(data, password))
    if not found:
        raise ConfigError(f"{where}: there is no trusted certificate in it.")
    return found


def _read(where: str, reading: Callable[[], Found]) -> Found:
    try:
        return reading()
    except (BadJks, ValueError) as error:
        raise ConfigError(f"{where}: {error}.") from None


def pem_certificates(text: str, where: str) -> tuple[bytes, ...]:
    """Raises ConfigError when there is none."""
    try:
        found = tuple(base64.b64decode(block) for block in CERTIFICATE.findall(text))
    except binascii.Error:
        found = ()
    if not found:
        raise ConfigError(f"{where}: there is no certificate in PEM format.")
    return found


def _pem_key(text: str, password: str | None, where: str) -> bytes:
    from barnabas.cext.network.tls import TlsError, key_of_pem

    block = KEY.search(text)
    if block is None:
        raise ConfigError(f"{where}: there is no private key in PEM format.")
    try:
        secret = password.encode() if password is not None else None
        return key_of_pem(block[0].encode() + b"\n", secret)
    except TlsError as error:
        raise ConfigError(f"{where}: {error} (ssl.key.password).") from None


# ------------------------------------------------------------------ JKS


def _jks_identity(data: bytes, password: str | None, key_password: str | None) -> Identity:
    for entry in read_jks(data, password):
        if entry.key:
            secret = key_password if key_password is not None else password
            if secret is None:
                raise BadJks("the key needs ssl.keystore.password or ssl.key.password")
            return Identity(private_key(entry.key, secret), entry.chain)
    raise BadJks("there is no private key in it")


def _jks_trusted(data: bytes, password: str | None) -> tuple[bytes, ...]:
    return tuple(e.chain[0] for e in read_jks(data, password) if not e.key and e.chain)


# ------------------------------------------------------------------ PKCS#12


def _pkcs12(data: bytes, password: str | None):  # type: ignore[no-untyped-def]
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise ValueError(
            "a PKCS#12 store needs the package cryptography: pip install 'barnabas[tls]'"
        ) from None
    return pkcs12.load_pkcs12(data, None if password is None else password.encode())


def _pkcs12_identity(data: bytes, password: str | None, _key_password: str | None) -> Identity:
    store = _pkcs12(data, password)
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    if store.key is None or store.cert is None:
        raise ValueError("there is no private key with a certificate in it")
    chain, others = [store.cert.certificate], [c.certificate for c in store.additional_certs]
    while above := [c for c in others if c.subject == chain[-1].issuer and c not in chain]:
        chain.append(above[0])
    key = store.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return Identity(key, tuple(c.public_bytes(Encoding.DER) for c in chain))


def _pkcs12_trusted(data: bytes, password: str | None) -> tuple[bytes, ...]:
    store = _pkcs12(data, password)
    from cryptography.hazmat.primitives.serialization import Encoding

    return tuple(c.certificate.public_bytes(Encoding.DER) for c in store.additional_certs)
