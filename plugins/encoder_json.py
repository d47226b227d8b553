"""Encodes and decodes JSON, in UTF-8, without spaces.

    serializer.class=json
    plugin.json.sort.keys=true        (equal objects have equal bytes: for keys)

None as a message is a record without a value, not JSON's null.
"""

import json
from collections.abc import Sequence
from typing import Any

from barnabas.hooks import Option, Options, hookimpl


class JsonEncoder:
    """Encodes and decodes JSON."""

    OPTIONS = {"sort.keys": Option("boolean", "write the members of objects in order", False)}

    def __init__(self, options: Options) -> None:
        self._write = json.JSONEncoder(
            separators=(",", ":"),
            ensure_ascii=False,
            allow_nan=False,
            sort_keys=options["sort.keys"],
        ).encode

    @hookimpl
    def encode(self, data: Sequence[Any]) -> Sequence[bytes | None]:
        return [None if item is None else self._write(item).encode() for item in data]

    @hookimpl
    def decode(self, data: Sequence[bytes]) -> Sequence[Any]:
        return [json.loads(item) for item in data]
