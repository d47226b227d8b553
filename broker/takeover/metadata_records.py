"""One record of KRaft's metadata log (KIP-631), as its value has it.

    uvarint  version of this frame: 0 or 1
    uvarint  type of the record, the key of its schema (wire/schemas/messages-metadata.txt)
    uvarint  version of the record
    fields   in this version

A record of a type or version that this build does not know raises MalformedMessage: its change of
the metadata would be lost.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from barnabas.cext.codec.varint import decode_uvarint, encode_uvarint
from barnabas.cext.codec.wire import MalformedMessage
from barnabas.cext.codec.wire_struct import Struct
from barnabas.wire.messages import Message, by_name

FRAME_VERSIONS = (0, 1)
NAMES = (
    "RegisterBrokerRecord",
    "UnregisterBrokerRecord",
    "TopicRecord",
    "PartitionRecord",
    "ConfigRecord",
    "PartitionChangeRecord",
    "FenceBrokerRecord",
    "UnfenceBrokerRecord",
    "RemoveTopicRecord",
    "DelegationTokenRecord",
    "UserScramCredentialRecord",
    "FeatureLevelRecord",
    "ClientQuotaRecord",
    "ProducerIdsRecord",
    "BrokerRegistrationChangeRecord",
    "AccessControlEntryRecord",
    "RemoveAccessControlEntryRecord",
    "NoOpRecord",
    "ZkMigrationStateRecord",
    "RemoveUserScramCredentialRecord",
    "BeginTransactionRecord",
    "EndTransactionRecord",
    "AbortTransactionRecord",
    "RemoveDelegationTokenRecord",
    "RegisterControllerRecord",
    "ClearElrRecord",
    "UnregisterControllerRecord",
)


@cache
def _types() -> dict[int, Message]:
    found = {}
    for message in map(by_name, NAMES):
        assert message.schema.key is not None, f"{message.name} has no key"
        found[message.schema.key] = message
    return found


def written_record(kind: str, version: int, /, **fields: Any) -> bytes:
    """Returns the value of a record. Raises UnwritableMessage, UnsupportedVersion."""
    message = by_name(kind)
    assert message.schema.key is not None and kind in NAMES, kind
    head = (FRAME_VERSIONS[-1], message.schema.key, version)
    return b"".join(map(encode_uvarint, head)) + message.encode(message.cls(**fields), version)


def read_record(value: bytes) -> tuple[str, Struct]:
    """Returns the name of a record's message, and the message. Raises MalformedMessage."""
    try:
        frame, at = decode_uvarint(value)
        kind, at = decode_uvarint(value, at)
        version, at = decode_uvarint(value, at)
    except ValueError as error:
        raise MalformedMessage(f"not the head of a metadata record: {error}") from None
    if frame not in FRAME_VERSIONS:
        raise MalformedMessage(f"the frame of a metadata record has version {frame}, not 0 or 1")
    message = _types().get(kind)
    if message is None or not message.version_min <= version <= message.version_max:
        name = f"type {kind}" if message is None else message.name
        raise MalformedMessage(
            f"{name} version {version} is not known: a later Kafka wrote it. Use a later barnabas"
        )
    return message.name, message.decode(value, version, at)
