"""Which values can be encoded, which are refused, and the defaults in versions without a field."""

import subprocess
import sys
import threading

import pytest

from barnabas.errors import UnsupportedVersion
from barnabas.wire import UnwritableMessage, by_name, request, response
from barnabas.wire.json_form import from_json

PRODUCE = request(0)
METADATA = response(3)


def refused(message, value, version, text):
    with pytest.raises(UnwritableMessage, match=text) as caught:
        message.encode(value, version)
    return str(caught.value)


def test_defaults_of_a_new_object():
    partition = response(0).struct("responses.partitionResponses")()
    assert partition.logStartOffset == -1
    assert partition.errorMessage is None
    assert partition.recordErrors == []
    assert partition.recordErrors is not type(partition)().recordErrors
    assert partition.currentLeader is None
    assert by_name("VotersRecord").struct("voters")().kRaftVersionFeature.minSupportedVersion == 0


def test_unknown_keyword_is_refused():
    with pytest.raises(TypeError, match="has no field topics"):
        PRODUCE.cls(topics=[])


def test_equality_and_repr():
    a, b = PRODUCE.cls(acks=1), PRODUCE.cls(acks=1)
    assert a == b
    assert a != PRODUCE.cls(acks=0)
    assert a != PRODUCE.cls(acks=1, unknown=[(7, b"")])
    assert "acks=1" in repr(a) and repr(a).startswith("ProduceRequest(")


def test_ignorable_field_is_dropped_in_versions_without_it():
    answer = METADATA.cls(throttleTimeMs=5, clusterId="c")
    assert METADATA.decode(METADATA.encode(answer, 0), 0).clusterId is None
    assert METADATA.decode(METADATA.encode(answer, 3), 3).throttleTimeMs == 5


def test_other_field_is_refused_in_versions_without_it():
    text = refused(PRODUCE, PRODUCE.cls(transactionalId="t"), 2, "no such field")
    assert text.startswith("ProduceRequest v2: transactionalId at byte ")
    assert PRODUCE.encode(PRODUCE.cls(transactionalId=None), 2)
    commit = request(8)
    topic = commit.struct("topics")(
        name="t", partitions=[commit.struct("topics.partitions")(committedMetadata="m")]
    )
    assert commit.encode(commit.cls(groupId="g", topics=[topic]), 2)


def test_fields_a_version_lacks_have_their_defaults():
    fetch = request(1)
    old = fetch.decode(fetch.encode(fetch.cls(), 0), 0)
    assert old.sessionEpoch == -1
    assert old.maxBytes == 0x7FFFFFFF


def test_tagged_fields_are_sent_only_when_they_say_something():
    produce = response(0)
    struct = produce.struct("responses.partitionResponses.currentLeader")

    def size(leader):
        partition = produce.struct("responses.partitionResponses")(currentLeader=leader)
        topic = produce.struct("responses")(partitionResponses=[partition])
        data = produce.encode(produce.cls(responses=[topic]), 10)
        return len(data), produce.decode(data, 10).responses[0].partitionResponses[0].currentLeader

    assert size(None) == size(struct())
    assert size(struct(leaderId=4))[1] == struct(leaderId=4, leaderEpoch=-1)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**70, "1", 1.0, None])
def test_int32_out_of_range(value):
    text = refused(PRODUCE, PRODUCE.cls(timeoutMs=value), 0, "timeoutMs at byte 2: ")
    assert text.startswith("ProduceRequest v0")


@pytest.mark.parametrize(
    ("name", "path", "field", "low", "high"),
    [
        ("ProduceRequest", "", "acks", -(2**15), 2**15 - 1),
        ("ProducerSnapshot", "", "crc", 0, 2**32 - 1),
        ("BrokerRegistrationRequest", "listeners", "port", 0, 2**16 - 1),
        ("ProduceRequest", "", "timeoutMs", -(2**31), 2**31 - 1),
        ("DescribeAclsRequest", "", "operation", -128, 127),
        ("AbortedTxn", "", "producerId", -(2**63), 2**63 - 1),
    ],
)
def test_integer_ranges(name, path, field, low, high):
    message = by_name(name)
    version = message.version_min

    def holding(value):
        made = message.struct(path)(**{field: value})
        return message.cls(**{path: [made]}) if path else made

    for value in (low, high):
        assert message.decode(message.encode(holding(value), version), version) == holding(value)
    for value in (low - 1, high + 1):
        refused(message, holding(value), version, field)


def test_values_of_another_type():
    refused(METADATA, METADATA.cls(brokers=[PRODUCE.cls()]), 1, r"brokers\[0\] at byte 4: .*wanted")
    refused(METADATA, METADATA.cls(brokers=7), 1, "a list is wanted")
    refused(METADATA, METADATA.cls(clusterId=7), 2, "clusterId")
    refused(METADATA, METADATA.cls(clusterId="\ud800"), 2, "clusterId")
    refused(METADATA, METADATA.cls(brokers=None), 1, "null")
    topic = METADATA.struct("topics")
    refused(METADATA, METADATA.cls(topics=[topic(name="t", isInternal=1)]), 1, "a bool is wanted")
    bad = METADATA.cls(topics=[topic(name="t", topicId=b"short")])
    refused(METADATA, bad, 12, r"topics\[0\].topicId at byte .*a uuid is 16 bytes")
    refused(METADATA, PRODUCE.cls(), 1, "MetadataResponse is wanted, not ProduceRequest")


def test_deleted_field():
    value = PRODUCE.cls()
    del value.acks
    refused(PRODUCE, value, 0, "acks at byte 0: the field was deleted")


@pytest.mark.parametrize("version", [8, 9])
def test_strings_end_at_32767_bytes(version):
    whole = PRODUCE.cls(transactionalId="a" * 32767)
    assert PRODUCE.decode(PRODUCE.encode(whole, version), version) == whole
    refused(PRODUCE, PRODUCE.cls(transactionalId="ä" * 16384), version, "string of 32768 bytes")


def test_unknown_tagged_fields():
    value = PRODUCE.cls(unknown=[(3, b"x"), (2**32 - 1, b"")])
    assert PRODUCE.decode(PRODUCE.encode(value, 9), 9) == value
    refused(PRODUCE, value, 8, "no tagged fields")
    for wrong in ([(3, b""), (3, b"")], [(3, b""), (2, b"")], [(2**32, b"")], [(-1, b"")]):
        refused(PRODUCE, PRODUCE.cls(unknown=wrong), 9, "tags must ascend")
    refused(METADATA, METADATA.cls(unknown=[3]), 9, "tagged fields")
    fetch = request(1)
    refused(fetch, fetch.cls(unknown=[(0, b"")]), 12, "tag 0 is clusterId")


def test_records_are_views_and_bytes_are_copies():
    partition = PRODUCE.struct("topicData.partitionData")(records=b"records")
    topic = PRODUCE.struct("topicData")(name="t", partitionData=[partition])
    data = PRODUCE.encode(PRODUCE.cls(topicData=[topic]), 3)
    for source in (data, bytearray(data), memoryview(data)):
        records = PRODUCE.decode(source, 3).topicData[0].partitionData[0].records
        assert isinstance(records, memoryview)
        assert records == b"records"
        assert records.obj is (
            data if source is not data and type(source) is memoryview else source
        )
    partition.records = memoryview(b"xrecordsx")[1:-1]
    assert PRODUCE.encode(PRODUCE.cls(topicData=[topic]), 3) == data
    join = request(11)
    protocol = join.struct("protocols")(name="range", metadata=b"m")
    decoded = join.decode(join.encode(join.cls(protocols=[protocol]), 0), 0)
    assert type(decoded.protocols[0].metadata) is bytes


def test_unknown_versions():
    for asked in (lambda: PRODUCE.program(14), lambda: request(0, 14), lambda: response(0, -1)):
        with pytest.raises(UnsupportedVersion, match="has versions 0-13"):
            asked()
    with pytest.raises(UnsupportedVersion, match="no API key 95"):
        request(95)
    with pytest.raises(KeyError):
        by_name("Nothing")


def test_json_of_an_unknown_field():
    with pytest.raises(ValueError, match="no field topicData.nothing"):
        from_json(PRODUCE, {"topicData": [{"nothing": 1}]}, 3)
    with pytest.raises(ValueError, match="records is not base64"):
        from_json(PRODUCE, {"topicData": [{"partitionData": [{"records": "%"}]}]}, 3)


def test_threads_that_meet_at_first_use_share_classes():
    from barnabas.wire.messages import Message
    from barnabas.wire.schema import schema_of

    for _ in range(20):
        message = Message(schema_of("DescribeConfigsResponse"))
        barrier = threading.Barrier(4)
        found = []

        def use(message=message, barrier=barrier, found=found):
            barrier.wait()
            found.append((message.program(4), message.struct("results.configs.synonyms")))

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(found)) == 1


def test_import_reads_no_schema():
    code = (
        "import sys, barnabas.wire as w; from barnabas.wire import schema;"
        "assert schema.text_of.cache_info().currsize == 0;"
        "w.request(3); assert schema.text_of.cache_info().currsize == 5"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_null_tagged_struct_is_not_a_missing_one():
    member = by_name("ConsumerGroupMemberMetadataValue")
    assert member.cls().classicMemberMetadata == member.struct("classicMemberMetadata")()
    null = member.cls(classicMemberMetadata=None)
    # In a tag the mark is a varint: Kafka's formatter of offsets does not read an int8 of -1 there.
    assert member.encode(null, 0).endswith(b"\x01\0\x01\0")
    assert member.decode(member.encode(null, 0), 0) == null
