"""Keys and values of the internal topics' records: a type or version number, then Kafka's own
bytes."""

import pytest
from oracle.vectors import vectors

from barnabas.wire import MalformedMessage, by_name, internal
from barnabas.wire.internal import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TOPICS,
    TRANSACTION_STATE,
    UnknownRecord,
    read_key,
    record_type,
    record_types,
)
from barnabas.wire.json_form import to_json
from barnabas.wire.messages import names

# Type 1, group "g", topic "t", partition 3: assembled by hand.
COMMIT_KEY = bytes.fromhex("000100016700017400000003")


def coordinator_vectors(kind):
    found = [vector for vector in vectors("internal") if vector["kind"] == f"coordinator-{kind}"]
    assert len(found) > 40
    return found


def types_by_message(part):
    """(topic, type) by the name of the key's or the value's message."""
    return {
        getattr(found, part).name: (topic, found)
        for topic in TOPICS
        for found in record_types(topic).values()
    }


def test_every_key_and_value_of_the_schemas_belongs_to_a_type():
    keyed = {name for name in names() if by_name(name).schema.kind == "coordinator-key"}
    valued = {name for name in names() if by_name(name).schema.kind == "coordinator-value"}
    assert set(types_by_message("key")) == keyed
    assert set(types_by_message("value")) == valued


def test_numbers_are_those_of_the_schemas():
    for topic in TOPICS:
        for number, found in record_types(topic).items():
            assert found.type == number == found.key.schema.key == found.value.schema.key


def test_keys_both_ways():
    types = types_by_message("key")
    for vector in coordinator_vectors("key"):
        topic, expected = types[vector["api"]]
        data = vector["key"].to_bytes(2, "big") + vector["bytes"]
        found, key = read_key(topic, data)
        assert found is expected
        assert to_json(found.key, key, 0) == vector["fields"]
        assert found.encode_key(key) == data


def test_values_both_ways_in_every_version():
    types = types_by_message("value")
    seen = set()
    for vector in coordinator_vectors("value"):
        _, found = types[vector["api"]]
        data = vector["version"].to_bytes(2, "big") + vector["bytes"]
        version, value = found.read_value(data)
        assert version == vector["version"]
        assert to_json(found.value, value, version) == vector["fields"]
        assert found.encode_value(value, version) == data
        seen.add((found.name, version))
    assert seen == {
        (found.name, version)
        for _, found in types.values()
        for version in range(found.value.version_min, found.value.version_max + 1)
    }


def test_the_bytes_of_a_commits_key():
    commit = record_type(CONSUMER_OFFSETS, "OffsetCommit")
    key = commit.key.cls(group="g", topic="t", partition=3)
    assert commit.encode_key(key) == COMMIT_KEY
    assert read_key(CONSUMER_OFFSETS, COMMIT_KEY) == (commit, key)


def test_the_topics_number_their_types_apart():
    assert record_types(TRANSACTION_STATE)[0].name == "TransactionLog"
    assert record_types(SHARE_GROUP_STATE)[0].name == "ShareSnapshot"
    assert record_types(CONSUMER_OFFSETS)[0].name == "LegacyOffsetCommit"
    with pytest.raises(KeyError):
        record_types("news")
    with pytest.raises(KeyError):
        record_type(TRANSACTION_STATE, "OffsetCommit")


@pytest.mark.parametrize("number", [-1, 9, 18, 24, 32767])
def test_an_unknown_type(number):
    with pytest.raises(UnknownRecord, match=f"type {number}$"):
        read_key(CONSUMER_OFFSETS, number.to_bytes(2, "big", signed=True) + COMMIT_KEY[2:])


@pytest.mark.parametrize("version", [-1, 5, 32767])
def test_a_version_that_is_too_new(version):
    commit = record_type(CONSUMER_OFFSETS, "OffsetCommit")
    with pytest.raises(UnknownRecord, match=f"version {version}$"):
        commit.read_value(version.to_bytes(2, "big", signed=True) + bytes(30))


def test_cut_keys_and_values_are_malformed():
    for kind, part in (("key", "key"), ("value", "value")):
        types = types_by_message(part)
        for vector in coordinator_vectors(kind):
            topic, found = types[vector["api"]]
            number = vector["key"] if kind == "key" else vector["version"]
            data = number.to_bytes(2, "big") + vector["bytes"]
            read = found.read_value if kind == "value" else lambda cut, t=topic: read_key(t, cut)
            for size in range(0, len(data), 1 + len(data) // 200):
                with pytest.raises(MalformedMessage):
                    read(data[:size])
            with pytest.raises(MalformedMessage):
                read(data + b"\0")


def test_types_are_made_once():
    assert internal.record_type(CONSUMER_OFFSETS, "GroupMetadata") is record_type(
        CONSUMER_OFFSETS, "GroupMetadata"
    )
