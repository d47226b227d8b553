"""Kafka's nodes. Hostile data gives ZnodeDataError, whole or chopped at every byte."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.metadata import znodes
from barnabas.metadata.tree import InvalidPath
from barnabas.metadata.znode_json import ZnodeDataError
from barnabas.metadata.znodes import (
    BrokerRegistration,
    ConfigChange,
    ConsumerSubscription,
    ControllerRegistration,
    Endpoint,
    LogDirEvent,
    PartitionState,
    ProducerIdBlock,
    Reassignment,
    TopicAssignment,
)
from barnabas.wire.uuids import uuid_text

TOPIC_ID = "AAAAAAAAQACAAAAAAAAABw"
BROKER = BrokerRegistration(
    (
        Endpoint("CLIENT", "::1", 9092, "PLAINTEXT"),
        Endpoint("INTERNAL", "b.example", 9093, "SASL_SSL"),
    ),
    1_700_000_000_000,
    rack="r1",
    jmx_port=9999,
    features={"f": (1, 3)},
)
ASSIGNMENT = TopicAssignment({0: (1, 2, 3), 11: (2,)}, TOPIC_ID, {0: (3,)}, {0: (1,)})
VALUES = [
    (BROKER, BrokerRegistration),
    (ASSIGNMENT, TopicAssignment),
    (TopicAssignment({0: ()}), TopicAssignment),
    (PartitionState(1, 5, (1, 2), 3), PartitionState),
    (PartitionState(-1, 0, (), 3, recovering=True), PartitionState),
    (ControllerRegistration(2, 1_700_000_000_000), ControllerRegistration),
    (ConfigChange("users/a%20b/clients/c"), ConfigChange),
    (Reassignment({("t", 0): (1, 2), ("t", 1): (2, 3)}), Reassignment),
    (LogDirEvent(4), LogDirEvent),
    (ProducerIdBlock(1, 5000, 5999), ProducerIdBlock),
    (ConsumerSubscription({"t": 2}, "static", 1_700_000_000_000), ConsumerSubscription),
]
DECODERS = [
    *dict.fromkeys(kind.decode for _value, kind in VALUES),
    znodes.decode_cluster_id,
    znodes.decode_config,
    znodes.decode_partitions,
    znodes.decode_controller_epoch,
    znodes.decode_consumer_offset,
]


@pytest.mark.parametrize(("value", "kind"), VALUES)
def test_what_is_written_is_read(value, kind):
    assert kind.decode(value.encode()) == value


def test_written_as_kafka_writes():
    assert json.loads(BROKER.encode()) == {
        "listener_security_protocol_map": {"CLIENT": "PLAINTEXT", "INTERNAL": "SASL_SSL"},
        "endpoints": ["CLIENT://[::1]:9092", "INTERNAL://b.example:9093"],
        "jmx_port": 9999,
        "features": {"f": {"min_version": 1, "max_version": 3}},
        "host": "::1",
        "timestamp": "1700000000000",
        "port": 9092,
        "version": 5,
        "rack": "r1",
    }
    assert json.loads(ASSIGNMENT.encode()) == {
        "partitions": {"0": [1, 2, 3], "11": [2]},
        "topic_id": TOPIC_ID,
        "adding_replicas": {"0": [3]},
        "removing_replicas": {"0": [1]},
        "version": 3,
    }
    state = b'{"controller_epoch":3,"leader":1,"version":1,"leader_epoch":5,"isr":[1,2]}'
    assert PartitionState(1, 5, (1, 2), 3).encode() == state
    assert znodes.encode_cluster_id("x" * 22) == b'{"version":"1","id":"' + b"x" * 22 + b'"}'
    assert ProducerIdBlock(0, 0, 999).encode() == (
        b'{"version":1,"broker":0,"block_start":"0","block_end":"999"}'
    )
    assert ConfigChange("topics/t").encode() == b'{"version":2,"entity_path":"topics/t"}'
    assert znodes.encode_partitions([("t", 3)]) == (
        b'{"version":1,"partitions":[{"topic":"t","partition":3}]}'
    )
    assert znodes.encode_controller_epoch(7) == b"7"


OLD_BROKERS = [
    ('{"version":1,"host":"h","port":9092,"jmx_port":-1}', "h", "PLAINTEXT", None),
    (
        '{"version":2,"host":"h","port":9092,"jmx_port":-1,"timestamp":"5",'
        '"endpoints":["SSL://h:9093"]}',
        "h",
        "SSL",
        None,
    ),
    (
        '{"version":3,"timestamp":5,"endpoints":["PLAINTEXT://:9092"],"rack":"r","jmx_port":1}',
        "",
        "PLAINTEXT",
        "r",
    ),
    (
        '{"version":4,"timestamp":"5","endpoints":["X://h:9092"],"rack":null,'
        '"listener_security_protocol_map":{"X":"SSL"},"jmx_port":1}',
        "h",
        "SSL",
        None,
    ),
]


@pytest.mark.parametrize(("text", "host", "protocol", "rack"), OLD_BROKERS)
def test_registrations_of_older_brokers(text, host, protocol, rack):
    found = BrokerRegistration.decode(text.encode())
    assert [(e.host, e.security_protocol) for e in found.endpoints] == [(host, protocol)]
    assert found.rack == rack and found.features == {}


def test_older_forms():
    assert TopicAssignment.decode(b'{"version":1,"partitions":{"0":[1,2]}}') == TopicAssignment(
        {0: (1, 2)}
    )
    assert json.loads(TopicAssignment({0: (1,)}).encode())["version"] == 2
    old = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert ConfigChange.decode(old) == ConfigChange("topics/t")
    later = b'{"version":2,"brokerid":1,"timestamp":"5","kraftControllerEpoch":-1}'
    assert ControllerRegistration.decode(later).broker_id == 1
    assert znodes.decode_config(b"") == {}
    assert znodes.decode_consumer_offset(b"-1") == -1


@pytest.mark.parametrize("value", [value for value, _kind in VALUES])
def test_chopped_data_is_refused(value):
    data = value.encode()
    for length in range(len(data)):
        with pytest.raises(ZnodeDataError):
            type(value).decode(data[:length])


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe",
        b"null",
        b"[]",
        b'"text"',
        b"NaN",
        b"{}",
        b"[" * 100_000,
        b'{"version":' + b"9" * 5000 + b"}",
        b'{"version":99}',
        b'{"version":true}',
        b'{"version":1.0}',
        b'{"version":NaN}',
        b'{"version":"--1"}',
        '{"version":"\u0661"}'.encode(),
    ],
)
def test_hostile_data_is_refused(decode, data):
    with pytest.raises(ZnodeDataError):
        decode(data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(st.sampled_from(VALUES), st.data())
def test_any_field_of_any_type_is_read_or_refused(value_and_kind, data):
    value, kind = value_and_kind
    found = json.loads(value.encode())
    found[data.draw(st.sampled_from(sorted(found)))] = data.draw(json_values)
    try:
        kind.decode(json.dumps(found).encode())
    except ZnodeDataError:
        pass


@pytest.mark.parametrize(
    "text",
    [
        '{"version":1,"partitions":{"0":[1,1]}}',
        '{"version":1,"partitions":{"00":[1]}}',
        '{"version":1,"partitions":{"-1":[1]}}',
        '{"version":1,"partitions":{"4294967296":[1]}}',
        '{"version":1,"partitions":{"0":[-1]}}',
        '{"version":1,"partitions":{"0":[true]}}',
        '{"version":2,"partitions":{"0":[1]},"adding_replicas":{"0":[2]}}',
        '{"version":3,"partitions":{},"topic_id":"short"}',
        '{"version":3,"partitions":{},"topic_id":"AAAAAAAAQACAAAAAAAAABx"}',
    ],
)
def test_assignments_that_cannot_be(text):
    with pytest.raises(ZnodeDataError):
        TopicAssignment.decode(text.encode())


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "..", "a b", "a\0", "x" * 250, None, 5])
def test_topic_names_from_the_tree_are_checked(name):
    row = {"topic": name, "partition": 0, "replicas": [1]}
    with pytest.raises(ZnodeDataError):
        Reassignment.decode(json.dumps({"version": 1, "partitions": [row]}).encode())


def test_paths():
    assert znodes.partition_state_path("t", 3) == "/brokers/topics/t/partitions/3/state"
    assert znodes.config_path("users", "u/clients/c") == "/config/users/u/clients/c"
    assert znodes.consumer_offset_path("g", "t", 0) == "/consumers/g/offsets/t/0"
    assert znodes.consumer_owner_path("g", "t", 0) == "/consumers/g/owners/t/0"
    assert znodes.consumer_id_path("g", "c") == "/consumers/g/ids/c"
    for bad in ("a/b", "..", ""):
        with pytest.raises(InvalidPath):
            znodes.topic_path(bad)
        with pytest.raises(InvalidPath):
            znodes.consumer_offset_path(bad, "t", 0)


@given(st.text(min_size=1))
def test_names_of_users_survive(name):
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    assert znodes.unsanitized(znodes.sanitized(name)) == name
    assert not set(znodes.sanitized(name)) & set("/*+~ <>")


def test_new_ids_have_22_characters_and_no_leading_dash():
    draws = iter([b"\xf8" + bytes(15), b"\x01" + bytes(15)])
    made = znodes.new_uuid(lambda count: next(draws)[:count])
    assert made == "AQAAAAAAQACAAAAAAAAAAA" and len(made) == 22
    assert uuid_text(znodes.uuid_bytes(made)) == made
    assert next(draws, None) is None  # the first random id began with a dash and was dropped


@pytest.mark.parametrize("number", [1.0, True, None, "1.0", "", "x", 2**31, -3, [], {}])
@pytest.mark.parametrize("field", ["leader", "leader_epoch", "controller_epoch", "version"])
def test_numbers_are_whole_and_within_bounds(field, number):
    found = json.loads(PartitionState(1, 5, (1,), 3).encode()) | {field: number}
    with pytest.raises(ZnodeDataError, match=field):
        PartitionState.decode(json.dumps(found).encode())
