"""Encodes and decodes Avro with the package fastavro (pip install 'barnabas[plugins]').

    serializer.class=avro
    plugin.avro.schema=/etc/barnabas/order.avsc
    plugin.avro.key.schema=/etc/barnabas/order-key.avsc

A message is the binary encoding of one datum, without a header: a reader needs the same schema.
With `schema.id` each message begins with a zero byte and that number (int32), as Confluent's
serializers write it; then `decode` requires both."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from barnabas.hooks import Option, Options, hookimpl

NO_ID = -1


class AvroEncoder:
    """Encodes and decodes Avro's binary encoding, with fastavro."""

    OPTIONS = {
        "schema": Option("text", "a file with the schema of messages"),
        "key.schema": Option(
            "text", "a file with the schema of keys; without it keys are an error", ""
        ),
        "schema.id": Option(
            "integer", "the schema id before each message; -1: no id", NO_ID, least=NO_ID
        ),
        "key.schema.id": Option(
            "integer", "the schema id before each key; -1: no id", NO_ID, least=NO_ID
        ),
    }

    def __init__(self, options: Options) -> None:
        self._schemas = {
            False: _schema(options["schema"]),
            True: _schema(options["key.schema"]) if options["key.schema"] else None,
        }
        self._heads = {
            False: _head(options["schema.id"]),
            True: _head(options["key.schema.id"]),
        }

    @hookimpl
    def encode(self, data: Sequence[Any], is_key: bool) -> Sequence[bytes | None]:
        schema, head = self._schema(is_key), self._heads[is_key]
        return [None if item is None else _written(item, schema, head) for item in data]

    @hookimpl
    def decode(self, data: Sequence[bytes], is_key: bool) -> Sequence[Any]:
        schema, head = self._schema(is_key), self._heads[is_key]
        return [_read(item, schema, head) for item in data]

    def _schema(self, is_key: bool) -> Any:
        schema = self._schemas[is_key]
        if schema is None:
            raise ValueError("keys need a schema: set plugin.avro.key.schema")
        return schema


def _schema(path: str) -> Any:
    import json

    from fastavro import parse_schema

    return parse_schema(json.loads(Path(path).read_text(encoding="utf-8")))


def _head(number: int) -> bytes:
    return b"" if number == NO_ID else b"\x00" + number.to_bytes(4, "big")


def _written(item: Any, schema: Any, head: bytes) -> bytes:
    from fastavro import schemaless_writer

    out = io.BytesIO(head)
    out.seek(len(head))
    schemaless_writer(out, schema, item, strict=True)
    return out.getvalue()


def _read(data: bytes, schema: Any, head: bytes) -> Any:
    from fastavro import schemaless_reader

    if not data.startswith(head):
        raise ValueError(f"the message does not begin with the schema id: {data[:5]!r}")
    stream = io.BytesIO(data)
    stream.seek(len(head))
    found = schemaless_reader(stream, schema, None)
    if stream.tell() != len(data):
        raise ValueError(f"{len(data) - stream.tell()} bytes follow the datum")
    return found
