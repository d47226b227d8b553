"""Encodes and decodes Protocol Buffers with the package protobuf (pip install 'barnabas[plugins]').

    serializer.class=protobuf
    plugin.protobuf.message=shop.order_pb2:Order        (a class of the module that protoc made)
    plugin.protobuf.key.message=shop.order_pb2:OrderId

The encoder takes messages of that class, or dictionaries of their fields; the decoder returns
messages.
"""

import importlib
from collections.abc import Sequence
from typing import Any

from barnabas.hooks import Option, Options, hookimpl


class ProtobufEncoder:
    """Encodes and decodes messages of Protocol Buffers."""

    OPTIONS = {
        "message": Option("text", "module:Class of messages"),
        "key.message": Option("text", "module:Class of keys; without it keys are an error", ""),
    }

    def __init__(self, options: Options) -> None:
        self._classes = {
            False: _class(options["message"]),
            True: _class(options["key.message"]) if options["key.message"] else None,
        }

    @hookimpl
    def encode(self, data: Sequence[Any], is_key: bool) -> Sequence[bytes | None]:
        kind = self._class(is_key)
        return [None if item is None else _written(item, kind) for item in data]

    @hookimpl
    def decode(self, data: Sequence[bytes], is_key: bool) -> Sequence[Any]:
        kind = self._class(is_key)
        return [kind.FromString(item) for item in data]

    def _class(self, is_key: bool) -> Any:
        kind = self._classes[is_key]
        if kind is None:
            raise ValueError("keys need a class: set plugin.protobuf.key.message")
        return kind


def _class(path: str) -> Any:
    from google.protobuf.message import Message

    module, _, name = path.partition(":")
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not (isinstance(found, type) and issubclass(found, Message)):
        raise TypeError(f"{path} is not a class of messages")
    return found


def _written(item: Any, kind: Any) -> bytes:
    if isinstance(item, dict):
        from google.protobuf.json_format import ParseDict

        item = ParseDict(item, kind())
    if not isinstance(item, kind):
        raise TypeError(f"a {type(item).__name__} is not a {kind.__name__}")
    data: bytes = item.SerializeToString(deterministic=True)
    return data
