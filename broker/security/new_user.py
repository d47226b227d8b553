"""A SCRAM user from its password, and the form in which kafka-storage takes one:

    SCRAM-SHA-256=[name=alice,password=alice-secret]
    SCRAM-SHA-512=[name=alice,iterations=8192,salt=BASE64,saltedpassword=BASE64]

As in Kafka, values may stand in double quotes, and a salted password needs its salt.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from typing import NamedTuple

from barnabas.config import ConfigError
from barnabas.security.scram import (
    HASHES,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    Credential,
    credential_of,
    text_salt,
)

KEYS = ("name", "password", "salt", "saltedpassword", "iterations")
_OUTER = re.compile(r"([^=]+)=\[(.*)\]", re.DOTALL)
_PAIR = re.compile(r'\s*([A-Za-z]+)\s*=\s*(?:"([^"]*)"|([^",]*?))\s*(?:,|$)')


class NewUser(NamedTuple):
    name: str
    mechanism: str
    salt: bytes
    salted_password: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"<NewUser {self.name!r} {self.mechanism}>"

    def credential(self) -> Credential:
        return credential_of(self.mechanism, self.salt, self.salted_password, self.iterations)


def new_user(
    name: str,
    mechanism: str,
    password: str,
    *,
    iterations: int | None = None,
    salt: bytes | None = None,
) -> NewUser:
    """Raises ConfigError, whose text does not have the password."""
    count = ITERATIONS_MIN if iterations is None else iterations
    _check(name, mechanism, count)
    if not password:
        raise ConfigError(f"the password of user {name} is empty.")
    salt = salt or text_salt(secrets.token_bytes(17))
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, count)
    return NewUser(name, mechanism, salt, salted, count)


def parse_scram(text: str) -> NewUser:
    """Raises ConfigError, whose text does not have the password."""
    outer = _OUTER.fullmatch(text.strip())
    if outer is None:
        raise ConfigError("--add-scram: not MECHANISM=[name=NAME,password=PASSWORD].")
    mechanism, values = outer[1].strip(), _pairs(outer[2])
    name = values.get("name", "")
    try:
        iterations = int(values.get("iterations", ITERATIONS_MIN))
    except ValueError:
        raise ConfigError("--add-scram: iterations is not a number.") from None
    salt = _bytes(values, "salt")
    if ("password" in values) == ("saltedpassword" in values):
        raise ConfigError("--add-scram: give one of password and saltedpassword.")
    if "password" in values:
        return new_user(name, mechanism, values["password"], iterations=iterations, salt=salt)
    salted = _bytes(values, "saltedpassword")
    _check(name, mechanism, iterations)
    if not salt or not salted:
        raise ConfigError("--add-scram: a saltedpassword needs its salt, and neither is empty.")
    return NewUser(name, mechanism, salt, salted, iterations)


def _pairs(text: str) -> dict[str, str]:
    found, at = dict[str, str](), 0
    while at < len(text):
        pair = _PAIR.match(text, at)
        if pair is None or pair[1] not in KEYS or pair[1] in found:
            raise ConfigError(
                f"--add-scram: not pairs key=value of {', '.join(KEYS)}, each once. A value with a"
                " comma stands in double quotes."
            )
        found[pair[1]] = pair[3] if pair[2] is None else pair[2]
        at = pair.end()
    return found


def _bytes(values: dict[str, str], key: str) -> bytes | None:
    try:
        return base64.b64decode(values[key], validate=True) if key in values else None
    except ValueError:
        raise ConfigError(f"--add-scram: {key} is not base64.") from None


def _check(name: str, mechanism: str, iterations: int) -> None:
    if not name:
        raise ConfigError("the name of the user is missing.")
    if mechanism not in HASHES:
        raise ConfigError(f"{mechanism} is not a SCRAM mechanism: use {' or '.join(HASHES)}.")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ConfigError(
            f"{iterations} iterations: {mechanism} takes {ITERATIONS_MIN} to {ITERATIONS_MAX}."
        )
