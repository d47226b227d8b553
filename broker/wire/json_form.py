"""Messages as JSON values, for tests and tools: field names as in the schema, bytes and records in
base64, uuids in base64url without padding. The JSON form leaves out tagged fields with their
default and unknown tagged fields.
"""

import base64
import binascii
from typing import Any

from barnabas.cext.codec.wire_struct import Struct
from barnabas.wire.messages import Message, below
from barnabas.wire.schema import Field, within


def to_json(message: Message, value: Struct, version: int) -> dict[str, Any]:
    """Returns the fields of `value` that this version has, as values for `json.dumps`."""
    return _struct_to_json(message, "", value, version)


def from_json(message: Message, fields: dict[str, Any], version: int) -> Struct:
    """Returns the object for which `to_json` returns `fields`. Raises ValueError for an unknown
    field, or bytes that are not base64."""
    return _struct_from_json(message, "", fields, version)


def _struct_to_json(message: Message, path: str, value: Struct, version: int) -> dict[str, Any]:
    found = {}
    for field in message.fields_at(path):
        here = below(path, field.name)
        inner = getattr(value, field.name)
        if not within(field.versions, version):
            continue
        if within(field.tagged, version) and _is_default(inner, message.default_of(field, here)):
            continue
        found[field.name] = _to_json(message, field, here, inner, version)
    return found


def _is_default(value: Any, default: Any) -> bool:
    return bool(value == (default() if isinstance(default, type) else default))


def _to_json(message: Message, field: Field, path: str, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return [_to_json(message, field, path, element, version) for element in value]
    if field.base == "{}":
        return _struct_to_json(message, path, value, version)
    if field.base in ("bytes", "records"):
        return base64.b64encode(value).decode()
    if field.base == "uuid":
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    return value


def _struct_from_json(message: Message, path: str, fields: dict[str, Any], version: int) -> Struct:
    known = {f.name: f for f in message.fields_at(path) if within(f.versions, version)}
    values = {}
    for name, value in fields.items():
        if name not in known:
            raise ValueError(f"{message.name} v{version} has no field {below(path, name)}")
        values[name] = _from_json(message, known[name], below(path, name), value, version)
    return message.struct(path)(**values)


def _from_json(message: Message, field: Field, path: str, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        return [_from_json(message, field, path, element, version) for element in value]
    if field.base == "{}":
        return _struct_from_json(message, path, value, version)
    try:
        if field.base in ("bytes", "records"):
            return base64.b64decode(value, validate=True)
        if field.base == "uuid":
            return base64.urlsafe_b64decode(value + "==")
    except binascii.Error as error:
        raise ValueError(f"{message.name}: {path} is not base64: {error}") from None
    return value
