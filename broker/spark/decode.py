"""Decodes values in a schema registry's wire format to columns: Avro, Protobuf and JSON.

    from barnabas.spark.decode import decoded

    rows.select(decoded("value", "http://registry:8081", "name string, age int").alias("person"))

| bytes | |
|---|---|
| 0 | magic, 0 |
| 1-4 | the schema id, big-endian |
| 5- | only Protobuf: the indexes of a message in the file, as zigzag varints (see below) |
| rest | the value: Avro's binary form without a header, a Protobuf message, JSON |

The varints are a count and an index for each level; a count of 0 means the first message.

A null stays null. `returns` names the wanted columns as a Spark DDL string: the decoder ignores
other fields of the schema, and columns that the schema lacks are null. Avro needs fastavro,
Protobuf needs protobuf (barnabas[spark] has both).
"""

import io
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from barnabas.spark.schemas import AVRO, JSON, Schema, SchemaError, Schemas, schemas_of

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column

MAGIC = 0
HEADER_BYTES = 5
INDEXES_MAX, VARINT_BYTES_MAX = 100, 5
FAIL, NULL = "fail", "null"

Decode = Callable[[bytes], Any]


class UndecodableValue(ValueError):
    """A value is not in the wire format, or does not match its schema; `str` gives one plain
    line."""


class Decoder:
    """Decodes values one by one. It caches at most CACHE_MAX schemas (schemas.py). Spark pickles it
    without the cache."""

    def __init__(self, schemas: Schemas | Mapping[int, Schema | str] | str) -> None:
        self.schemas = schemas_of(schemas)
        self._known: dict[tuple[int, tuple[int, ...]], Decode] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Decoder, (self.schemas,)

    def decode(self, value: bytes) -> Any:
        """Returns a value as dicts, lists and plain values. Raises UndecodableValue,
        SchemaError."""
        if len(value) < HEADER_BYTES or value[0] != MAGIC:
            raise UndecodableValue(
                f"a value of {len(value)} bytes does not begin with {MAGIC} and a schema's id"
            )
        schema_id = int.from_bytes(value[1:HEADER_BYTES], "big")
        decode = self._known.get((schema_id, ()))
        if decode is not None:
            return _decoded(decode, value[HEADER_BYTES:], schema_id)
        schema = self.schemas.schema(schema_id)
        if schema.kind in (AVRO, JSON):
            decode = _avro(schema, schema_id) if schema.kind == AVRO else json.loads
            self._known[schema_id, ()] = decode
            return _decoded(decode, value[HEADER_BYTES:], schema_id)
        path, at = message_indexes(value, HEADER_BYTES)
        decode = self._known.get((schema_id, path))
        if decode is None:
            decode = self._known[schema_id, path] = _protobuf(schema, schema_id, path)
        return _decoded(decode, value[at:], schema_id)


def _decoded(decode: Decode, body: bytes, schema_id: int) -> Any:
    try:
        return decode(body)
    except SchemaError:
        raise
    except Exception as error:  # the three libraries raise many kinds for wrong bytes
        raise UndecodableValue(
            f"a value does not match its schema {schema_id}: {type(error).__name__} {error}"
        ) from None


def message_indexes(value: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Returns the indexes of a message in a Protobuf file, and the position of the message in
    `value`. Raises UndecodableValue."""
    count, at = _varint(value, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= INDEXES_MAX:
        raise UndecodableValue(f"a value names {count} message indexes")
    path = []
    for _ in range(count):
        index, at = _varint(value, at)
        path.append(index)
    return tuple(path), at


def _varint(value: bytes, at: int) -> tuple[int, int]:
    found = 0
    for place in range(VARINT_BYTES_MAX):
        if at >= len(value):
            break
        byte = value[at]
        at += 1
        found |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at
    raise UndecodableValue("a value ends inside its message indexes")


# ------------------------------------------------------------------------------ formats


def _avro(schema: Schema, schema_id: int) -> Decode:
    try:
        import fastavro
    except ImportError:
        raise SchemaError("values in Avro need fastavro: pip install 'barnabas[spark]'") from None
    named: dict[str, Any] = {}
    try:
        for text in schema.named:
            fastavro.parse_schema(json.loads(text), named_schemas=named)
        parsed = fastavro.parse_schema(json.loads(schema.text), named_schemas=named)
    except Exception as error:  # fastavro and JSON raise kinds of their own
        raise SchemaError(f"schema {schema_id} is not an Avro schema: {error}") from None

    def decode(body: bytes) -> Any:
        stream = io.BytesIO(body)
        found = fastavro.schemaless_reader(stream, parsed, None)
        if stream.tell() != len(body):
            raise ValueError(f"{len(body) - stream.tell()} bytes follow the value")
        return found

    return decode


def _protobuf(schema: Schema, schema_id: int, path: tuple[int, ...]) -> Decode:
    try:
        from google.protobuf import descriptor_pool, message_factory
    except ImportError:
        raise SchemaError(
            "values in Protobuf need protobuf: pip install 'barnabas[spark]'"
        ) from None
    pool = descriptor_pool.DescriptorPool()
    _add_well_known(pool)
    try:
        for content in schema.files:
            pool.AddSerializedFile(content)
        name = _message_name(schema.files[-1], path)
        found = None if name is None else pool.FindMessageTypeByName(name)
    except Exception as error:  # protobuf raises kinds of its own
        raise SchemaError(f"schema {schema_id} is not a Protobuf schema: {error}") from None
    if found is None:
        raise UndecodableValue(f"schema {schema_id} has no message with the indexes {list(path)}")
    message = message_factory.GetMessageClass(found)
    return lambda body: _message(message.FromString(body))


def _message_name(file: bytes, path: tuple[int, ...]) -> str | None:
    """Returns the full name of a message; None when the file has no such index. It reads the
    FileDescriptorProto, because descriptors lack the order of messages in the file."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    found = FileDescriptorProto.FromString(file)
    names = [found.package] if found.package else []
    rows: Any = found.message_type
    for index in path:
        if not 0 <= index < len(rows):
            return None
        names.append(rows[index].name)
        rows = rows[index].nested_type
    return ".".join(names)


def _add_well_known(pool: Any) -> None:
    """Adds the well-known types. Registries lack them, because they come with Protobuf itself."""
    from google.protobuf import any_pb2, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2

    for module in (any_pb2, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)


def _message(message: Any) -> Any:
    """Returns a message as a dict, times as datetime in UTC, enums as names."""
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        from datetime import UTC

        return message.ToDatetime(tzinfo=UTC)
    if name.startswith("google.protobuf.") and name.endswith("Value") and name.count(".") == 2:
        if "value" in message.DESCRIPTOR.fields_by_name:  # Int64Value and the like
            return message.value
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        inner = kind.fields_by_name["value"]
        return {key: _plain(inner, one) for key, one in value.items()}
    if _is_repeated(field):
        return [_plain(field, one) for one in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _plain(field, value)


def _is_repeated(field: Any) -> bool:
    try:
        return bool(field.is_repeated)  # protobuf 6.31 and later, which deprecates label
    except AttributeError:
        return bool(field.label == field.LABEL_REPEATED)


def _plain(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _message(value)
    if field.enum_type is not None:
        found = field.enum_type.values_by_number.get(value)
        return str(value) if found is None else found.name
    return value


# ------------------------------------------------------------------------------ columns


def decoded(
    column: "Column | str",
    schemas: Schemas | Mapping[int, Schema | str] | str,
    returns: str,
    *,
    on_error: str = FAIL,
) -> "Column":
    """Returns a column of the decoded values. `column`: binary values. `schemas`: a registry's URL,
    a directory, or a mapping by id (schemas.py). `on_error`: `fail` ends the query at the first
    value that it cannot decode, `null` replaces such a value by a null. Raises ValueError for
    another `on_error`."""
    from pyspark.sql.functions import arrow_udf

    if on_error not in (FAIL, NULL):
        raise ValueError(f"on_error must be {FAIL} or {NULL}, not {on_error!r}")
    decoder = Decoder(schemas)
    kind = _arrow_type(returns)

    def decode(values: "pyarrow.Array") -> "pyarrow.Array":
        return decode_array(decoder, values, kind, on_error=on_error)

    # With explicit annotations arrow_udf does not have to resolve the names of pyarrow's types.
    decode.__annotations__ = _annotations()
    make: Any = arrow_udf  # its overloads lack this call
    return make(decode, returnType=returns)(column)


def _annotations() -> dict[str, Any]:
    import pyarrow as pa

    return {"values": pa.Array, "return": pa.Array}


def _arrow_type(returns: str) -> "pyarrow.DataType":
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import DataType

    return to_arrow_type(DataType.fromDDL(returns), timezone="UTC")


def decode_array(
    decoder: Decoder, values: "pyarrow.Array", kind: "pyarrow.DataType", *, on_error: str = FAIL
) -> "pyarrow.Array":
    """Decodes an Arrow array of binary values to an array of type `kind`. Raises UndecodableValue,
    SchemaError."""
    import pyarrow as pa

    found = []
    for value in values.to_pylist():
        try:
            row = None if value is None else fitted(decoder.decode(value), kind)
        except UndecodableValue:
            if on_error == FAIL:
                raise
            row = None
        found.append(row)
    try:
        return pa.array(found, type=kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise UndecodableValue(f"the values do not fit the requested columns: {error}") from None


def fitted(value: Any, kind: "pyarrow.DataType") -> Any:
    """Converts a value for an Arrow type: matches field names in any case, makes maps pairs, and
    makes JSON of values for a string column. Raises UndecodableValue."""
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_struct(kind):
        if not isinstance(value, Mapping):
            raise UndecodableValue(f"{type(value).__name__} is not a struct")
        low = {str(name).lower(): one for name, one in value.items()}
        return {
            field.name: fitted(value.get(field.name, low.get(field.name.lower())), field.type)
            for field in kind
        }
    if pa.types.is_map(kind):
        if not isinstance(value, Mapping):
            raise UndecodableValue(f"{type(value).__name__} is not a map")
        return [(key, fitted(one, kind.item_type)) for key, one in value.items()]
    if pa.types.is_list(kind) and isinstance(value, list | tuple):
        return [fitted(one, kind.value_type) for one in value]
    if pa.types.is_string(kind) and not isinstance(value, str):
        return json.dumps(value, default=str)
    return value
