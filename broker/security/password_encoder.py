"""Passwords encrypted as Kafka keeps them in dynamic settings (KIP-226), between commas:

    keyFactoryAlgorithm       PBKDF2WithHmacSHA512, by which the key follows from the secret
    cipherAlgorithm           AES/CBC/PKCS5Padding or AES/GCM/NoPadding
    keyLength                 of the key, in bits
    salt, iterations          of PBKDF2
    encryptedPassword         in base64, as salt and initializationVector are
    passwordLength            in UTF-16 units; another length after decryption: another secret
    initializationVector      of the cipher
    authenticationTagLength   of AES/GCM, in bits

A text is decrypted by what it names itself. Kafka: EncryptingPasswordEncoder; DES and the feedback
modes, which Java has too, are refused. AES comes from the package `cryptography`, which is imported
with this module. Next: barnabas.controller.stored_passwords.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.padding import PKCS7

CBC, GCM = "AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"
KEY_FACTORIES = {
    "PBKDF2WithHmacSHA1": "sha1",
    "PBKDF2WithHmacSHA224": "sha224",
    "PBKDF2WithHmacSHA256": "sha256",
    "PBKDF2WithHmacSHA384": "sha384",
    "PBKDF2WithHmacSHA512": "sha512",
}
KEY_BITS = (128, 192, 256)
ITERATIONS_MAX = 10_000_000  # a stored text must not hold the start for hours
SALT_BYTES = 256
CBC_IV_BYTES, GCM_IV_BYTES, TAG_BITS = 16, 12, 128


class BadPassword(ValueError):
    """The text is not an encrypted password, or it was encrypted with another secret."""


class EncoderSettings(NamedTuple):
    """How passwords are encrypted. Raises nothing; `problems` says what cannot be used."""

    key_factory: str = "PBKDF2WithHmacSHA512"
    cipher: str = CBC
    key_bits: int = 128
    iterations: int = 4096

    def problems(self) -> list[tuple[str, str]]:
        """The settings that cannot be used, and what to use in their place."""
        found = []
        if self.key_factory not in KEY_FACTORIES:
            found.append(("password.encoder.keyfactory.algorithm", ", ".join(KEY_FACTORIES)))
        if self.cipher not in (CBC, GCM):
            found.append(("password.encoder.cipher.algorithm", f"{CBC} or {GCM}"))
        if self.key_bits not in KEY_BITS:
            found.append(("password.encoder.key.length", ", ".join(map(str, KEY_BITS))))
        if self.iterations > ITERATIONS_MAX:
            found.append(("password.encoder.iterations", f"at most {ITERATIONS_MAX}"))
        return found


def encode(secret: str, password: str, settings: EncoderSettings) -> str:
    """Returns the encrypted password as Kafka's PasswordEncoder writes it. `settings` must have no
    problems."""
    salt = os.urandom(SALT_BYTES)
    key = _key(secret, salt, settings)
    fields = {
        "keyFactoryAlgorithm": settings.key_factory,
        "cipherAlgorithm": settings.cipher,
        "keyLength": str(settings.key_bits),
        "salt": _base64(salt),
        "iterations": str(settings.iterations),
        "passwordLength": str(_units(password)),
    }
    if settings.cipher == GCM:
        vector = os.urandom(GCM_IV_BYTES)
        sealed = AESGCM(key).encrypt(vector, password.encode(), None)
        fields["authenticationTagLength"] = str(TAG_BITS)
    else:
        vector, padder = os.urandom(CBC_IV_BYTES), PKCS7(128).padder()
        padded = padder.update(password.encode()) + padder.finalize()
        encryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).encryptor()
        sealed = encryptor.update(padded) + encryptor.finalize()
    fields |= {"encryptedPassword": _base64(sealed), "initializationVector": _base64(vector)}
    return ",".join(f"{name}:{value}" for name, value in fields.items())


def decode(secret: str, text: str) -> str:
    """Returns the password of a text that `encode` or Kafka wrote. Raises BadPassword."""
    try:
        fields = dict(part.strip().rsplit(":", 1) for part in text.split(","))
        settings = EncoderSettings(
            fields["keyFactoryAlgorithm"],
            fields["cipherAlgorithm"],
            int(fields["keyLength"]),
            int(fields["iterations"]),
        )
        salt, sealed, vector = (
            base64.b64decode(fields[name], validate=True)
            for name in ("salt", "encryptedPassword", "initializationVector")
        )
        length = int(fields["passwordLength"])
        if settings.problems() or settings.iterations < 1:
            raise BadPassword(
                "it is encrypted with an algorithm or format that this broker does not support"
            )
        if settings.cipher == GCM and int(fields["authenticationTagLength"]) != TAG_BITS:
            raise BadPassword(f"its tag has not {TAG_BITS} bits")
    except (ValueError, KeyError) as error:
        if isinstance(error, BadPassword):
            raise
        raise BadPassword("it is not an encrypted password") from None
    opened = _OPENERS[settings.cipher](_key(secret, salt, settings), vector, sealed)
    try:
        password = opened.decode()
    except UnicodeDecodeError:
        raise BadPassword("it was encrypted with another secret") from None
    if _units(password) != length:
        raise BadPassword("it was encrypted with another secret")
    return password


def _open_gcm(key: bytes, vector: bytes, sealed: bytes) -> bytes:
    try:
        return AESGCM(key).decrypt(vector, sealed, None)
    except (InvalidTag, ValueError):
        raise BadPassword("it was encrypted with another secret") from None


def _open_cbc(key: bytes, vector: bytes, sealed: bytes) -> bytes:
    unpadder = PKCS7(128).unpadder()
    try:
        decryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).decryptor()
        padded = decryptor.update(sealed) + decryptor.finalize()
        return unpadder.update(padded) + unpadder.finalize()
    except ValueError:
        raise BadPassword("it was encrypted with another secret") from None


_OPENERS: dict[str, Callable[[bytes, bytes, bytes], bytes]] = {CBC: _open_cbc, GCM: _open_gcm}


def _key(secret: str, salt: bytes, settings: EncoderSettings) -> bytes:
    digest = KEY_FACTORIES[settings.key_factory]
    return hashlib.pbkdf2_hmac(
        digest, secret.encode(), salt, settings.iterations, settings.key_bits // 8
    )


def _units(password: str) -> int:
    return len(password.encode("utf-16-le", "surrogatepass")) // 2


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
