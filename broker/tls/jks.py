"""Reads Java's own keystore format, JKS.

    magic 0xFEEDFEED, version 1 or 2, entry count           int32 each
    entry of a private key    int32 1, alias, int64 time, key, int32 count, certificates
    entry of a certificate    int32 2, alias, int64 time, certificate
    alias                     uint16 size, modified UTF-8
    key                       int32 size, DER of EncryptedPrivateKeyInfo (RFC 5208)
    certificate               type as an alias (version 2 only), int32 size, DER
    end                       SHA-1 of password, "Mighty Aphrodite" and everything before

A key is salt (20 bytes), the key XOR a stream of SHA-1 digests, SHA-1 of password and key. Java's
protection is weak; keytool itself recommends PKCS12. The source is the class
sun.security.provider.JavaKeyStore of OpenJDK, whose format is public; pyjks, the one package that
reads it, has had no release since 2020.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import NamedTuple

MAGIC = b"\xfe\xed\xfe\xed"
WHITENER = b"Mighty Aphrodite"
DIGEST_BYTES = 20
ENTRY_COUNT_MAX = 10_000
# The object identifier 1.3.6.1.4.1.42.2.17.1.1, with its tag and size.
KEY_PROTECTOR = bytes.fromhex("060a2b060104012a02110101")


class BadJks(ValueError):
    """The bytes are not a JKS store, or the password is wrong."""


class JksEntry(NamedTuple):
    """`key`: DER as it is protected; empty for a trusted certificate. `chain`: DER."""

    alias: str
    key: bytes
    chain: tuple[bytes, ...]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> bytes:
        if size < 0 or size > len(self._data) - self._at:
            raise BadJks("the store is truncated")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, form: str) -> int:
        (found,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return int(found)

    def name(self) -> str:
        return self.take(self.number(">H")).decode("utf-8", "replace")

    def block(self) -> bytes:
        return self.take(self.number(">i"))


def read_jks(data: bytes, password: str | None) -> list[JksEntry]:
    """Without a password the integrity is not checked, as in Java. Raises BadJks."""
    if not data.startswith(MAGIC) or len(data) < len(MAGIC) + DIGEST_BYTES:
        raise BadJks("the file is not a JKS store")
    body, digest = data[:-DIGEST_BYTES], data[-DIGEST_BYTES:]
    if password is not None:
        made = hashlib.sha1(_wide(password) + WHITENER + body, usedforsecurity=False).digest()
        if not hmac.compare_digest(made, digest):
            raise BadJks("the password is wrong, or the store is damaged")
    reader = _Reader(body[len(MAGIC) :])
    version, count = reader.number(">i"), reader.number(">i")
    if version not in (1, 2) or not 0 <= count <= ENTRY_COUNT_MAX:
        raise BadJks(f"the store has version {version} and {count} entries, which is not valid")
    return [_entry(reader, version) for _ in range(count)]


def _entry(reader: _Reader, version: int) -> JksEntry:
    kind, alias = reader.number(">i"), reader.name()
    reader.number(">q")
    if kind == 2:
        return JksEntry(alias, b"", (_certificate(reader, version),))
    if kind != 1:
        raise BadJks(f"an entry has the unknown kind {kind}")
    key, count = reader.block(), reader.number(">i")
    if not 0 <= count <= ENTRY_COUNT_MAX:
        raise BadJks(f"an entry has {count} certificates, which is not valid")
    return JksEntry(alias, key, tuple(_certificate(reader, version) for _ in range(count)))


def _certificate(reader: _Reader, version: int) -> bytes:
    if version == 2:
        reader.name()
    return reader.block()


def _wide(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")


def private_key(protected: bytes, password: str) -> bytes:
    """The key as DER of PrivateKeyInfo (PKCS#8). Raises BadJks for a wrong password."""
    at = protected.find(KEY_PROTECTOR)
    if not 0 <= at <= 16:
        raise BadJks("the key has an unknown kind of protection; convert the store to PKCS12")
    at += len(KEY_PROTECTOR) + 2  # the parameters, NULL
    data = _octet_string(protected, at)
    if len(data) < 2 * DIGEST_BYTES:
        raise BadJks("the protected key is truncated")
    salt, sealed, check = data[:20], data[20:-20], data[-20:]
    secret, stream, last = _wide(password), bytearray(), salt
    while len(stream) < len(sealed):
        last = hashlib.sha1(secret + last, usedforsecurity=False).digest()
        stream += last
    key = bytes(a ^ b for a, b in zip(sealed, stream, strict=False))
    made = hashlib.sha1(secret + key, usedforsecurity=False).digest()
    if not hmac.compare_digest(made, check):
        raise BadJks("the password of the key is wrong")
    return key


def _octet_string(data: bytes, at: int) -> bytes:
    reader = _Reader(data[at:])
    if reader.take(1) != b"\x04":
        raise BadJks("the protected key is malformed")
    size = reader.number(">B")
    if size & 0x80:
        size = int.from_bytes(reader.take(size & 0x7F), "big")
    return reader.take(size)
