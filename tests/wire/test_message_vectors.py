"""Kafka's own bytes: each decodes to the fields it was made from, and encodes to the same bytes."""

import pytest
from oracle.vectors import message_vectors, vectors

from barnabas.takeover.metadata_records import NAMES as METADATA_RECORDS
from barnabas.wire import MalformedMessage, by_name
from barnabas.wire.json_form import from_json, to_json
from barnabas.wire.messages import names


@pytest.mark.parametrize(("name", "count"), [("rpc", 1886), ("internal", 142), ("data", 43)])
def test_every_vector_both_ways(name, count):
    found = vectors(name)
    assert len(found) == count
    for vector in found:
        message, version = by_name(vector["api"]), vector["version"]
        value = message.decode(vector["bytes"], version)
        assert to_json(message, value, version) == vector["fields"], vector["api"]
        assert message.encode(value, version) == vector["bytes"], vector["api"]
        unknown = [(1234, b"barnabas")] if vector["case"] == "unknown" else []
        assert list(value.unknown) == unknown
        made = from_json(message, vector["fields"], version)
        made.unknown = unknown
        assert made == value, vector["api"]
        assert message.encode(made, version) == vector["bytes"], vector["api"]


# Messages in files and in topics of tiered storage have no vectors. tests/takeover compares records
# of the metadata log with the schemas in Kafka's jars, and reads logs that Kafka wrote.
UNCOVERED = {
    *METADATA_RECORDS,
    "ProducerSnapshot",
    "QuorumStateData",
    "RemoteLogSegmentMetadataRecord",
    "RemoteLogSegmentMetadataSnapshotRecord",
    "RemoteLogSegmentMetadataUpdateRecord",
    "RemotePartitionDeleteMetadataRecord",
    "ShareGroupPartitionMetadataKey",
    "ShareGroupPartitionMetadataValue",
}


def test_every_message_in_every_version_has_a_vector():
    seen = {(vector["api"], vector["version"]) for vector in message_vectors()}
    have = set()
    for name in names():
        message = by_name(name)
        have |= {(name, v) for v in range(message.version_min, message.version_max + 1)}
    assert seen <= have
    assert {name for name, _ in have - seen} == UNCOVERED


def cuts(size: int) -> list[int]:
    """Every length below 600 bytes; beyond that each 7th as well as the last 50 bytes.

    Only a few dozen vectors are longer, and their middles repeat the contents of short ones."""
    return [n for n in range(size) if n < 600 or n % 7 == 0 or n >= size - 50]


def test_no_prefix_of_a_message_is_a_message():
    tried = 0
    for vector in message_vectors():
        message, data = by_name(vector["api"]), vector["bytes"]
        program = message.program(vector["version"])
        for size in cuts(len(data)):
            tried += 1
            try:
                _, end = program.decode(data[:size])
            except MalformedMessage as error:
                assert program.title in str(error)
            else:
                pytest.fail(f"{program.title} took {size} of {len(data)} bytes, ended at {end}")
    assert tried > 100_000


def test_a_byte_too_many_is_refused():
    for vector in message_vectors():
        program = by_name(vector["api"]).program(vector["version"])
        longer = vector["bytes"] + b"\0"
        _, end = program.decode(longer)
        assert end == len(vector["bytes"])
        with pytest.raises(MalformedMessage, match="1 more bytes follow"):
            program.decode_whole(longer)


def test_a_message_in_the_middle_of_a_buffer():
    for vector in message_vectors()[::10]:
        program = by_name(vector["api"]).program(vector["version"])
        value, end = program.decode(b"12345" + vector["bytes"] + b"678", 5)
        assert end == 5 + len(vector["bytes"])
        assert program.encode(value) == vector["bytes"]
