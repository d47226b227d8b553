"""Error responses that are made from the schemas: every API and version, compared with those of
handlers."""

import itertools
from types import SimpleNamespace

import pytest

from barnabas.api.call import Call
from barnabas.api.table import api_table
from barnabas.testing.error_answers import NoPlace, error_answer
from barnabas.wire import request, response
from barnabas.wire.api_keys import api_keys
from barnabas.wire.schema import within

UNKNOWN_TOPIC_OR_PARTITION = 3
NOT_COORDINATOR = 16

# Their responses have no error code, or name entries that the request does not: the schemas cannot
# pair them.
NO_PLACE = {
    "CreateAcls",
    "DeleteAcls",
    "AlterReplicaLogDirs",
    "AlterClientQuotas",
    "AlterUserScramCredentials",
}
KEYS = [row for row in api_keys().values() if "broker" in row.listeners]
VERSIONS = [
    (row.name, row.key, v) for row in KEYS for v in range(row.version_min, row.version_max + 1)
]


def sample(message, version, path="", numbers=None):
    """A request with two elements in every array, each field with a different value."""
    numbers = itertools.count(1) if numbers is None else numbers
    made = message.struct(path)()
    for field in message.fields_at(path):
        if not within(field.versions, version):
            continue
        here = f"{path}.{field.name}" if path else field.name
        if field.base == "{}":
            if field.array:
                rows = [sample(message, version, here, numbers) for _ in range(2)]
                setattr(made, field.name, rows)
            continue
        values = [value_of(field.base, next(numbers)) for _ in range(2)]
        if values[0] is not None:
            setattr(made, field.name, values if field.array else values[0])
    return made


def value_of(base, number):
    if base == "string":
        return f"s{number}"
    if base == "uuid":
        return number.to_bytes(16, "big")
    if base == "int8":
        return number % 100
    return number if base.startswith("int") else None


@pytest.mark.parametrize(("name", "key", "version"), VERSIONS)
def test_every_api_can_say_every_error_and_be_read_again(name, key, version):
    asked = sample(request(key), version)
    for code in (UNKNOWN_TOPIC_OR_PARTITION, NOT_COORDINATOR):
        try:
            made = error_answer(key, version, asked, code)
        except NoPlace:
            assert name in NO_PLACE or (name, version < 3) == ("DescribeLogDirs", True)
            return
        message = response(key)
        assert message.decode(message.encode(made, version=version), version=version) == made
        assert repr(made).count(f"rrorCode={code}") >= 1
    assert name not in NO_PLACE


def test_partitions_carry_the_code_under_the_names_of_each_message():
    asked = sample(request(0), 12)
    made = error_answer(0, 12, asked, UNKNOWN_TOPIC_OR_PARTITION)
    assert [row.name for row in made.responses] == [row.name for row in asked.topicData]
    for theirs, ours in zip(asked.topicData, made.responses, strict=True):
        assert [(row.index, row.errorCode, row.baseOffset) for row in ours.partitionResponses] == [
            (row.index, 3, -1) for row in theirs.partitionData
        ]
    asked = sample(request(1), 17)
    made = error_answer(1, 17, asked, UNKNOWN_TOPIC_OR_PARTITION)
    assert (made.errorCode, made.sessionId) == (0, 0)
    for theirs, ours in zip(asked.topics, made.responses, strict=True):
        assert ours.topicId == theirs.topicId
        assert [(row.partitionIndex, row.errorCode) for row in ours.partitions] == [
            (row.partition, 3) for row in theirs.partitions
        ]
        assert all(row.highWatermark == row.lastStableOffset == -1 for row in ours.partitions)
        assert all(row.logStartOffset == -1 for row in ours.partitions)  # not the request's


def test_what_is_wrong_with_the_whole_request_is_said_at_the_top_and_nothing_below():
    fetch = error_answer(1, 12, sample(request(1), 12), 70)
    assert (fetch.errorCode, fetch.responses) == (70, [])
    offsets = error_answer(9, 8, sample(request(9), 8), NOT_COORDINATOR)
    assert [(row.errorCode, row.topics) for row in offsets.groups] == [(16, []), (16, [])]
    partition_level = error_answer(9, 8, sample(request(9), 8), UNKNOWN_TOPIC_OR_PARTITION)
    assert [row.errorCode for row in partition_level.groups] == [0, 0]
    assert partition_level.groups[0].topics[0].partitions[0].errorCode == 3


def test_a_request_that_names_nothing_has_no_place():
    with pytest.raises(NoPlace):
        error_answer(0, 9, request(0).cls(), UNKNOWN_TOPIC_OR_PARTITION)


# Where a handler's response has more than the schema tells (its versions, the cluster, the
# client's principal), has it twice, or has zeros or null for unknown values.
SAYS_MORE = {
    "Metadata",
    "ApiVersions",
    "AddPartitionsToTxn",
    "CreateDelegationToken",
    "RenewDelegationToken",
    "ExpireDelegationToken",
    "DescribeClientQuotas",
    "DescribeTransactions",
    "ElectLeaders",
    "GetTelemetrySubscriptions",
    "StreamsGroupDescribe",
    "StreamsGroupHeartbeat",
}
# The handler refuses the whole request where the schema has the error at a topic.
OF_THE_WHOLE = {
    "OffsetFetch",
    "OffsetDelete",
    "LeaveGroup",
    "AlterPartitionReassignments",
    "DescribeQuorum",
}
TEXTS = ("errorMessage", "protocolName")


COMPARED = [
    api for api in api_table().values() if api.refuse is not None and api.name not in SAYS_MORE
]


@pytest.mark.parametrize("api", COMPARED, ids=lambda api: api.name)
def test_the_schema_says_what_the_handler_would(api):
    for version in range(api.version_min, api.version_max + 1):
        asked = sample(request(api.key), version)
        call = Call(SimpleNamespace(), api.key, version, SimpleNamespace())
        code = NOT_COORDINATOR if api.name in OF_THE_WHOLE else UNKNOWN_TOPIC_OR_PARTITION
        theirs = api.refuse(asked, code, call)
        try:
            ours = error_answer(api.key, version, asked, code)
        except NoPlace:
            assert api.name in NO_PLACE or (api.name, version < 3) == ("DescribeLogDirs", True)
            continue
        assert plain(ours, api.key, version) == plain(theirs, api.key, version)


def plain(made, key, version):
    """As read from the wire, without error messages."""
    message = response(key)
    read = message.decode(message.encode(made, version=version), version=version)
    strip(read, message, "")
    return read


def strip(struct, message, path):
    for field in message.fields_at(path):
        if field.name in TEXTS:
            setattr(struct, field.name, None)
        elif field.base == "{}" and field.array:
            for row in getattr(struct, field.name) or ():
                strip(row, message, f"{path}.{field.name}" if path else field.name)
