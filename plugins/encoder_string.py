"""Encodes and decodes text.

    serializer.class=kafka.serializer.StringEncoder        (or string)
    plugin.string.encoding=latin-1

Numbers are written in decimal, as text; the decoder always returns text.
"""

import codecs
from collections.abc import Sequence
from typing import Any

from barnabas.hooks import Option, Options, hookimpl


class StringEncoder:
    """Encodes and decodes text, in the encoding of the option `encoding`, UTF-8 by default."""

    OPTIONS = {"encoding": Option("text", "encoding of the text, by Python's name", "utf-8")}

    def __init__(self, options: Options) -> None:
        self.encoding = codecs.lookup(options["encoding"]).name

    @hookimpl
    def encode(self, data: Sequence[Any]) -> Sequence[bytes | None]:
        return [self._bytes(item) for item in data]

    @hookimpl
    def decode(self, data: Sequence[bytes]) -> Sequence[str]:
        return [item.decode(self.encoding) for item in data]

    def _bytes(self, item: Any) -> bytes | None:
        if type(item) is str:
            return item.encode(self.encoding)
        if item is None:
            return None
        if isinstance(item, str | int | float):
            return str(item).encode(self.encoding)
        raise TypeError(f"a {type(item).__name__} is not text")
