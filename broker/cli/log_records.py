"""The records of a dumped batch as rows: keys and values in the requested form, and decoded records
of internal topics in the layout of kafka-dump-log's decoders.

A record that does not fit the schemas of its internal topic is shown like other records, with the
reason.
"""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

from barnabas.cext.record.records import Record
from barnabas.cli.log_files import Row, control_kind
from barnabas.wire import MalformedMessage, Message, Struct, by_name
from barnabas.wire.batches import Batch
from barnabas.wire.internal import TOPICS, UnknownRecord, read_key
from barnabas.wire.json_form import to_json

Form = Callable[[bytes], str]

CONSUMER = "consumer"  # the protocol type whose subscriptions and assignments can be decoded


def as_text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _as_integer(data: bytes) -> str:
    return str(int.from_bytes(data, "big", signed=True))


def _as_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


FORMS: dict[str, Form] = {
    "text": as_text,
    "hex": bytes.hex,
    "base64": _as_base64,
    "int": _as_integer,
}


def internal_topic_of(path: Path) -> str | None:
    """Returns the internal topic whose partition has the file; None for other files."""
    topic = path.absolute().parent.name.rpartition("-")[0]
    return topic if topic in TOPICS else None


def row_of(
    record: Record, batch: Batch, key_form: Form, value_form: Form, topic: str | None
) -> Row:
    """Returns the row of one record. `topic`: the internal topic whose records are decoded, or
    None."""
    row: Row = {"offset": record.offset, "timestamp": record.timestamp}
    if batch.control:
        row["control"] = control_kind(record.key)
    else:
        row["key"] = None if record.key is None else key_form(record.key)
        row["value"] = None if record.value is None else value_form(record.value)
        if topic is not None:
            row |= _decoded(topic, record)
    row["headers"] = [
        [name, None if value is None else as_text(value)] for name, value in record.headers
    ]
    return row


def _decoded(topic: str, record: Record) -> Row:
    """Returns `key` and `value` of an internal topic's record, or only `undecoded` with the
    reason."""
    if record.key is None:
        return {"undecoded": "there is no key"}
    try:
        kind, key = read_key(topic, record.key)
        found: Row = {"key": {"type": str(kind.type), "data": to_json(kind.key, key, 0)}}
        if record.value is not None:
            version, value = kind.read_value(record.value)
            fields = to_json(kind.value, value, version)
            if kind.name == "GroupMetadata" and value.protocolType == CONSUMER:
                _open_members(fields, value)
            found["value"] = {"version": str(version), "data": fields}
    except (MalformedMessage, UnknownRecord) as error:
        return {"undecoded": str(error)}
    return found


def _open_members(fields: dict[str, Any], value: Struct) -> None:
    """Decodes the members' subscriptions and assignments in place."""
    for row, member in zip(fields["members"], value.members, strict=True):
        row["subscription"] = _protocol_data("ConsumerProtocolSubscription", member.subscription)
        row["assignment"] = _protocol_data("ConsumerProtocolAssignment", member.assignment)


def _protocol_data(name: str, data: bytes) -> Any:
    """Returns the decoded fields of versioned bytes; bytes of another format in base64."""
    message: Message = by_name(name)
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version < 0:
        return _as_base64(data)
    version = min(version, message.version_max)  # a newer version begins like the newest known one
    try:
        value, _end = message.program(version).decode(data, 2)
    except MalformedMessage:
        return _as_base64(data)
    return to_json(message, value, version)
