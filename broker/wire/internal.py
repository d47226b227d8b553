"""The records of the internal topics: __consumer_offsets, __transaction_state, __share_group_state.

| part  | bytes                                                                                |
|-------|--------------------------------------------------------------------------------------|
| key   | int16 type, then version 0 of the key's message                                      |
| value | int16 version, then that version of the value's message; null is a tombstone         |

Each topic has its own numbers of types. An unknown type and a version that is too new raise
UnknownRecord: a newer broker wrote the record, and a broker that loads the log skips it. Bytes that
are not such a record raise MalformedMessage.

    commit = record_type(CONSUMER_OFFSETS, "OffsetCommit")
    key = commit.encode_key(commit.key.cls(group="g", topic="t", partition=0))
    value = commit.encode_value(commit.value.cls(offset=7, metadata=""), version=3)
    read_key(CONSUMER_OFFSETS, key)[0] is commit
    commit.read_value(value)

The fields are in schemas/messages-internal-topics.txt. A type is read on first use, as every
message is.
"""

import struct
from functools import cache
from typing import NamedTuple

from barnabas.cext.codec.wire import MalformedMessage
from barnabas.cext.codec.wire_struct import Struct
from barnabas.wire.messages import Buffer, Message, by_name

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"

KEY_VERSION = 0  # a new format of a key has a new type

_INT16 = struct.Struct(">h")

# Names by type, as in the schemas without Key and Value.
_NAMES: dict[str, dict[int, str]] = {
    CONSUMER_OFFSETS: {
        0: "LegacyOffsetCommit",
        1: "OffsetCommit",
        2: "GroupMetadata",
        3: "ConsumerGroupMetadata",
        4: "ConsumerGroupPartitionMetadata",
        5: "ConsumerGroupMemberMetadata",
        6: "ConsumerGroupTargetAssignmentMetadata",
        7: "ConsumerGroupTargetAssignmentMember",
        8: "ConsumerGroupCurrentMemberAssignment",
        10: "ShareGroupMemberMetadata",
        11: "ShareGroupMetadata",
        12: "ShareGroupTargetAssignmentMetadata",
        13: "ShareGroupTargetAssignmentMember",
        14: "ShareGroupCurrentMemberAssignment",
        15: "ShareGroupStatePartitionMetadata",
        16: "ConsumerGroupRegularExpression",
        17: "StreamsGroupMetadata",
        19: "StreamsGroupMemberMetadata",
        20: "StreamsGroupTargetAssignmentMetadata",
        21: "StreamsGroupTargetAssignmentMember",
        22: "StreamsGroupCurrentMemberAssignment",
        23: "StreamsGroupTopology",
    },
    TRANSACTION_STATE: {0: "TransactionLog"},
    SHARE_GROUP_STATE: {0: "ShareSnapshot", 1: "ShareUpdate"},
}
TOPICS = tuple(_NAMES)


class UnknownRecord(ValueError):
    """A type of record, or a version of one, that this broker does not know."""


class RecordType(NamedTuple):
    """One type of record: its number, and the messages of its key and its value."""

    type: int
    name: str
    key: Message
    value: Message

    def encode_key(self, key: Struct) -> bytes:
        """Returns the bytes of a record's key: the int16 of this type and the fields. Raises
        UnwritableMessage."""
        return _INT16.pack(self.type) + self.key.encode(key, KEY_VERSION)

    def encode_value(self, value: Struct, version: int) -> bytes:
        """Returns the bytes of a record's value: the int16 of the version and the fields. Raises
        UnwritableMessage, UnsupportedVersion."""
        return _INT16.pack(version) + self.value.encode(value, version)

    def read_value(self, data: Buffer) -> tuple[int, Struct]:
        """Returns the version of a value, and its fields. Raises UnknownRecord,
        MalformedMessage."""
        version = _number(data, f"the value of {self.name}")
        if not self.value.version_min <= version <= self.value.version_max:
            raise UnknownRecord(f"{self.value.name} has no version {version}")
        return version, self.value.decode(data, version, _INT16.size)


def type_name(topic: str, number: int) -> str | None:
    """Returns the name of a type of records of an internal topic; None for an unknown type."""
    return _NAMES[topic].get(number)


def record_types(topic: str) -> dict[int, RecordType]:
    """Returns the types of records of an internal topic, by number. Raises KeyError for another
    topic."""
    return {number: record_type(topic, name) for number, name in _NAMES[topic].items()}


@cache
def record_type(topic: str, name: str) -> RecordType:
    """Returns the type of the records of an internal topic with a name such as "OffsetCommit".
    Raises KeyError."""
    number = next((number for number, known in _NAMES[topic].items() if known == name), None)
    if number is None:
        raise KeyError(f"{topic} has no records {name}")
    return RecordType(number, name, by_name(f"{name}Key"), by_name(f"{name}Value"))


def read_key(topic: str, data: Buffer) -> tuple[RecordType, Struct]:
    """Returns the type of the record that has this key, and the key's fields. Raises UnknownRecord,
    MalformedMessage."""
    number = _number(data, "the key of a record")
    name = type_name(topic, number)
    if name is None:
        raise UnknownRecord(f"{topic} has no records of type {number}")
    found = record_type(topic, name)
    return found, found.key.decode(data, KEY_VERSION, _INT16.size)


def _number(data: Buffer, what: str) -> int:
    if len(data) < _INT16.size:
        raise MalformedMessage(f"{what}: {len(data)} bytes are no number")
    return int(_INT16.unpack_from(data)[0])
