"""Reads the keys and tokens of identity providers from https: and file: addresses.

An https: address may not redirect, and its certificate must be one that is trusted: over http: an
attacker could read or change the answer. Limits: `bytes_max`, and READ_S_MAX seconds.
"""

from __future__ import annotations

import ssl
import time
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from barnabas.config import ConfigError

READ_S_MAX = 10


def file_of(url: str) -> str | None:
    """The path of a file: address; None for an https: one. Raises ConfigError for another."""
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return None
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path:
        return unquote(parts.path)
    raise ConfigError(
        f"{url} is not an https: or file: address. Over http: an attacker could replace the keys."
    )


def read_file(path: str, bytes_max: int) -> bytes:
    """Raises OSError, and ValueError for a file that is too large."""
    with open(path, "rb") as file:
        return _limited(file.read(bytes_max + 1), bytes_max)


def read_https(
    url: str,
    trusted: ssl.SSLContext,
    bytes_max: int,
    *,
    form: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """The answer to a GET, or to a POST of a form. Raises OSError (urllib's HTTPError is one), and
    ValueError for an answer that is too large."""
    handler = urllib.request.HTTPSHandler(context=trusted)
    opener = urllib.request.build_opener(_NoRedirect, handler)
    asked = urllib.request.Request(url, form, dict(headers or {}))
    deadline, data = time.monotonic() + READ_S_MAX, b""
    with opener.open(asked, timeout=READ_S_MAX) as response:
        while some := response.read1(65536):
            data = _limited(data + some, bytes_max)
            if time.monotonic() > deadline:
                raise OSError(f"it takes longer than {READ_S_MAX} s")
    return data


def _limited(data: bytes, bytes_max: int) -> bytes:
    if len(data) > bytes_max:
        raise ValueError(f"it has more than {bytes_max} bytes")
    return data


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_request: Any) -> None:
        """None makes it an HTTPError, which is an OSError."""
