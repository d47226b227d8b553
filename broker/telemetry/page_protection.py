"""Decides who may read the /metrics page, and serves the page over TLS.

    metrics.ssl.location        a PEM file: the key, and the chain of its certificate
    metrics.credentials.file    who may read the page, one line each; # begins a comment

        user NAME PASSWORD          Authorization: Basic, as in Prometheus' basic_auth
        token TOKEN                 Authorization: Bearer, as in Prometheus' authorization

The next client gets a changed certificate. When the file has become unusable, the page keeps the
old certificate and logs an error. Credentials are read at the start. The broker imports this module
only when one of the two settings is set.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import logging
import os
import socket
import ssl

from barnabas.config import ConfigError
from barnabas.config.providers import check_private, read_limited

log = logging.getLogger("barnabas.metrics")

CREDENTIALS_MAX = 100


class Credentials:
    """The users and tokens that may read the page. Memory holds only the SHA-256 of each, so that a
    comparison takes the same time for every length and content."""

    def __init__(self, path: str) -> None:
        """Reads the file. Raises ConfigError, also for a file without a line: no client could read
        the page."""
        data = read_limited(path)
        check_private(path, "passwords")
        self._known: list[bytes] = []
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if words[0] == "user" and len(words) == 3 and ":" not in words[1]:
                pair = f"{words[1]}:{words[2]}".encode()
                self._known.append(_digest(b"basic " + base64.b64encode(pair)))
            elif words[0] == "token" and len(words) == 2:
                self._known.append(_digest(b"bearer " + words[1].encode()))
            else:
                raise ConfigError(
                    f"metrics.credentials.file={path}: line {number} is neither"
                    " `user NAME PASSWORD` nor `token TOKEN`."
                )
        if not 0 < len(self._known) <= CREDENTIALS_MAX:
            raise ConfigError(
                f"metrics.credentials.file={path}: it has {len(self._known)} lines. Give 1 to"
                f" {CREDENTIALS_MAX}."
            )

    def allow(self, header: str) -> bool:
        """Returns whether `header`, the value of an Authorization header, is one of them."""
        scheme, _, rest = header.strip().partition(" ")
        given = _digest(f"{scheme.lower()} {rest.strip()}".encode("latin-1", "replace"))
        found = False
        for known in self._known:
            found |= hmac.compare_digest(given, known)
        return found


def _digest(header: bytes) -> bytes:
    return hashlib.sha256(header).digest()


class PageTls:
    """TLS of a page. The file with key and certificate may change while the broker runs."""

    def __init__(
        self, path: str, setting: str = "metrics.ssl.location", page: str = "/metrics"
    ) -> None:
        """Reads the file. `setting` names it, and `page` is what it protects. Raises
        ConfigError."""
        self._path, self._setting, self._page = path, setting, page
        self._problem = ""
        try:
            self._stamp = self._now()
            self._context = self._made()
        except (OSError, ValueError) as error:  # SSLError is an OSError
            raise ConfigError(self._said(error)) from None

    def wrapped(self, client: socket.socket) -> ssl.SSLSocket:
        """Returns the TLS socket; its handshake comes with the first bytes. Raises OSError."""
        self._read_again()
        return self._context.wrap_socket(client, server_side=True, do_handshake_on_connect=False)

    def end(self, client: socket.socket) -> None:
        """Tells the client that the response is complete (close_notify), and does not wait for a
        reply."""
        client.settimeout(0)
        with contextlib.suppress(OSError, ValueError):  # nothing was exchanged, or the client left
            client.unwrap()  # type: ignore[attr-defined]

    def _read_again(self) -> None:
        problem = ""
        try:
            stamp = self._now()
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._context = self._made()
        except (OSError, ValueError) as error:
            problem = self._said(error)
        if problem and problem != self._problem:
            log.error("%s keeps its certificate. %s", self._page, problem)
        self._problem = problem

    def _made(self) -> ssl.SSLContext:
        check_private(self._path, "the key of the page")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Without this password OpenSSL would ask for one on the terminal when the key is encrypted.
        context.load_cert_chain(self._path, password=lambda: "")
        return context

    def _now(self) -> tuple[int, int, int]:
        status = os.stat(self._path)
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _said(self, error: Exception) -> str:
        if isinstance(error, ConfigError):
            return str(error)
        return (
            f"{self._setting}={self._path}: no key and certificate in PEM format: {error}."
            " Name a file that begins with the key, and goes on with its certificate."
        )
