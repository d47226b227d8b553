"""References to values outside the settings file: `${env:NAME}` and `${file:PATH:KEY}`.

Only the file with which the broker was started may use them. The broker never resolves them in a
value that a client sends: a client could read the server's files and variables that way. Only its
owner may be able to read a file that contains a password, directly or through a reference.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping

from barnabas.config.properties import FILE_BYTES_MAX, parse_properties
from barnabas.config.settings import ConfigError

REFERENCE_COUNT_MAX = 64  # references in one value; more are a mistake or an attack


def refers(value: str) -> bool:
    """Returns whether the value contains a reference ${name:...}."""
    begin = value.find("${")
    return begin >= 0 and ":" in value[begin:] and "}" in value[begin:]


def check_private(path: str, why: str) -> None:
    """Raises ConfigError when other users may read the file `path`, which contains a secret. `why`:
    the name of the secret setting.

    The rule is PostgreSQL's for keys: mode 0600. If root owns the file, its group may read it
    (0640, as Kubernetes mounts a secret with fsGroup), because only root can have given it to the
    group."""
    status = os.stat(path)
    mode = stat.S_IMODE(status.st_mode)
    of_others = 0o037 if status.st_uid == 0 and os.geteuid() != 0 else 0o077
    if mode & of_others:
        raise ConfigError(
            f"{path}: holds {why} and other users may read it (mode {mode:04o})."
            f" Run: chmod 600 {path}"
        )


def check_unchanged(path: str, why: str) -> None:
    """Raises ConfigError when every user may write the file `path`, whose contents the broker
    trusts."""
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & 0o002:
        raise ConfigError(
            f"{path}: holds {why} and every user may change it (mode {mode:04o})."
            f" Run: chmod o-w {path}"
        )


def read_limited(path: str) -> bytes:
    """Returns the bytes of a settings file, at most FILE_BYTES_MAX + 1. Raises ConfigError when it
    cannot be read or contains a zero byte, which no text file has."""
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}). Check the path and its permissions."
        ) from None
    if b"\0" in data:
        raise ConfigError(f"{path}: a binary file. Give a settings file such as server.properties.")
    return data


class Providers:
    """Resolves the references of one settings file."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._files: dict[str, dict[str, str]] = {}
        self._known: dict[str, Callable[[str, str], str]] = {"env": self._env, "file": self._file}
        self.paths_read: set[str] = set()

    def resolve(self, key: str, value: str) -> tuple[str, set[str]]:
        """Returns the value of setting `key` with its references replaced once, and the files that
        were read. Raises ConfigError."""
        out: list[str] = []
        self.paths_read = set()
        for _ in range(REFERENCE_COUNT_MAX + 1):
            begin = value.find("${")
            end = value.find("}", begin)
            if begin < 0 or end < 0 or ":" not in value[begin:end]:
                return "".join([*out, value]), self.paths_read
            provider, _, rest = value[begin + 2 : end].partition(":")
            if provider not in self._known:
                raise ConfigError(
                    f"{key}: the provider {provider!r} is not known."
                    " Use ${env:NAME} or ${file:PATH:KEY}."
                )
            out += [value[:begin], self._known[provider](key, rest)]
            value = value[end + 1 :]
        raise ConfigError(f"{key}: more than {REFERENCE_COUNT_MAX} references in one value.")

    def _env(self, key: str, name: str) -> str:
        name = name.removeprefix(":")  # Kafka's form has an empty path: ${env::NAME} works too
        if name not in self._environ:
            raise ConfigError(
                f"{key}: the environment variable {name} is not set."
                " Set it, or write the value into the file."
            )
        return self._environ[name]

    def _file(self, key: str, rest: str) -> str:
        path, colon, name = rest.rpartition(":")
        if not colon or not path:
            raise ConfigError(f"{key}: ${{file:{rest}}} names no key. Use ${{file:PATH:KEY}}.")
        if path not in self._files:
            found = parse_properties(read_limited(path), path)
            self._files[path] = {entry.key: entry.value for entry in found}
        self.paths_read.add(path)
        if name not in self._files[path]:
            raise ConfigError(f"{key}: {path} has no key {name}. Add it, or correct the name.")
        return self._files[path][name]
