"""Passes bytes on: the encoder and decoder for data that is already encoded.

serializer.class=kafka.serializer.DefaultEncoder        (or bytes)
"""

from collections.abc import Sequence
from typing import Any

from barnabas.hooks import hookimpl


class BytesEncoder:
    """Passes bytes on; None is a record without a value."""

    @hookimpl
    def encode(self, data: Sequence[Any], is_key: bool) -> Sequence[bytes | None]:
        kinds = set(map(type, data))
        if kinds <= {bytes}:
            return data
        return [_bytes(item, is_key) for item in data]

    @hookimpl
    def decode(self, data: Sequence[bytes]) -> Sequence[bytes]:
        return data


def _bytes(item: Any, is_key: bool) -> bytes | None:
    if item is None or type(item) is bytes:
        return item
    if isinstance(item, bytes | bytearray | memoryview):
        return bytes(item)
    what = "key" if is_key else "message"
    setting = "key.serializer.class" if is_key else "serializer.class"
    raise TypeError(
        f"the {what} is a {type(item).__name__}, and {setting} is bytes: send bytes, or set"
        " another encoder (string, json, ...)"
    )
