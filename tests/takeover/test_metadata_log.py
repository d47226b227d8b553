"""KRaft's metadata log: Kafka's own schemas, and bytes that are not a metadata log."""

import json
import re
import zipfile

import pytest
from compat.support import rival
from oracle.old_produce import wrapper
from takeover.kafka_before import recorded

from barnabas.cext.codec.crc import crc32c
from barnabas.cext.codec.varint import encode_uvarint
from barnabas.cext.codec.wire import MalformedMessage
from barnabas.cext.record.records import Record, encode_batch
from barnabas.takeover.metadata_image import MetadataImage
from barnabas.takeover.metadata_log import read_metadata_log
from barnabas.takeover.metadata_records import NAMES, read_record
from barnabas.takeover.refusals import CannotImport
from barnabas.wire.messages import by_name

TOPIC_ID = bytes(range(16))


def kafkas_fields(text):
    """Returns the name of a record, its type and versions, and its fields, from Kafka's JSON."""
    lines = [re.sub(r"(^|\s)//.*", "", line) for line in text.splitlines()]
    found = json.loads("\n".join(lines))
    fields = [
        (row["name"][0].lower() + row["name"][1:], row["versions"], int(row.get("tag", -1)))
        for row in found["fields"]
    ]
    return found["name"], found["apiKey"], found["validVersions"], fields


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1", "4.4.0"])
def test_the_schemas_are_kafkas(version):
    if reason := rival.missing(version):
        pytest.skip(reason)
    (jar,) = rival.libs(version).glob("kafka-metadata-*.jar")
    with zipfile.ZipFile(jar) as archive:
        texts = [
            archive.read(name).decode()
            for name in archive.namelist()
            if name.startswith("common/metadata/") and name.endswith(".json")
        ]
    assert len(texts) > 20
    for text in texts:
        name, key, versions, fields = kafkas_fields(text)
        assert name in NAMES
        schema = by_name(name).schema
        assert schema.key == key
        assert schema.versions[1] >= int(versions.split("-")[-1])
        ours = {row.name: row for row in schema.fields}
        for field, since, tag in fields:
            assert ours[field].versions[0][0] == int(since.rstrip("+")), (name, field)
            assert ours[field].tag == tag, (name, field)


def value_of(kind, version, /, **fields):
    message = by_name(kind)
    head = [1, message.schema.key, version]
    return b"".join(map(encode_uvarint, head)) + message.encode(message.cls(**fields), version)


def image_of(*rows):
    image = MetadataImage()
    for name, version, fields in rows:
        image.apply(*read_record(value_of(name, version, **fields)))
    return image


TOPIC = ("TopicRecord", 0, {"name": "t", "topicId": TOPIC_ID})
PARTITION = (
    "PartitionRecord",
    2,
    {
        "partitionId": 0,
        "topicId": TOPIC_ID,
        "replicas": [1, 2],
        "isr": [1, 2],
        "leader": 1,
        "leaderEpoch": 4,
        "partitionEpoch": 0,
    },
)


def change(**fields):
    return ("PartitionChangeRecord", 2, {"partitionId": 0, "topicId": TOPIC_ID, **fields})


def partition(*rows):
    (topic,) = image_of(TOPIC, PARTITION, *rows).topics.values()
    return topic.partitions[0]


def test_a_leader_raises_the_epoch_and_an_isr_does_not():
    assert partition(change(isr=[1])).leader_epoch == 4
    changed = partition(change(leader=2, isr=[2]), change(leader=-1, eligibleLeaderReplicas=[2]))
    assert (changed.leader, changed.leader_epoch) == (-1, 6)
    assert (changed.isr, changed.complete) == ((2,), (2,))


def test_records_of_an_aborted_transaction_do_not_count():
    begin, end = ("BeginTransactionRecord", 0, {}), ("EndTransactionRecord", 0, {})
    abort = ("AbortTransactionRecord", 0, {})
    assert partition(begin, change(leader=2), abort).leader == 1
    assert partition(begin, change(leader=2)).leader == 1
    assert partition(begin, change(leader=2), end).leader == 2


def test_a_removed_topic_takes_its_settings_with_it():
    setting = {"resourceType": 2, "resourceName": "t", "name": "retention.ms", "value": "1"}
    removed = image_of(
        TOPIC, ("ConfigRecord", 0, setting), ("RemoveTopicRecord", 0, {"topicId": TOPIC_ID})
    )
    assert (removed.topics, removed.configs) == ({}, {})


@pytest.mark.parametrize(
    "rows", [[PARTITION], [TOPIC, change(leader=2)], [("RemoveTopicRecord", 0, {})]]
)
def test_records_that_contradict_those_before_are_refused(rows):
    with pytest.raises(MalformedMessage):
        image_of(*rows)


def test_every_cut_of_a_record_is_refused():
    value = value_of(*PARTITION[:2], **PARTITION[2])
    for size in range(len(value)):
        with pytest.raises(MalformedMessage):
            read_record(value[:size])


def test_a_log_cut_at_any_byte_ends_at_its_last_whole_batch(tmp_path):
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    batches = [
        encode_batch([Record(value_of(*row[:2], **row[2]))], base_offset=at, leader_epoch=1)
        for at, row in enumerate([TOPIC, PARTITION, change(leader=2)])
    ]
    data, ends = b"".join(batches), []
    for size in range(len(data) + 1):
        (folder / f"{0:020d}.log").write_bytes(data[:size])
        try:
            ends.append(read_metadata_log(tmp_path).end_offset)
        except CannotImport:
            ends.append(0)
    sizes = [sum(map(len, batches[:count])) for count in range(4)]
    assert ends == [sum(size >= end for end in sizes[1:]) for size in range(len(data) + 1)]


@pytest.mark.parametrize("version", [0, 1])
def test_the_voters_of_the_last_leader_are_the_controllers_where_none_registers(tmp_path, version):
    """Kafka 3.3 to 3.6 register no controllers."""
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    change = by_name("LeaderChangeMessage")
    batches = []
    for offset, ids in enumerate([[1], [1, 2, 3]]):
        voters = [change.struct("voters")(voterId=number) for number in ids]
        value = change.encode(change.cls(version=version, leaderId=1, voters=voters), version)
        row = Record(value, b"\0\0\0\2")
        batches.append(
            encode_batch([row], base_offset=offset, attributes=1 << 5, leader_epoch=offset)
        )
    topic = Record(value_of(*TOPIC[:2], **TOPIC[2]))
    batches.append(encode_batch([topic], base_offset=2, leader_epoch=1))
    (folder / f"{0:020d}.log").write_bytes(b"".join(batches))
    assert read_metadata_log(tmp_path).image.controllers == {1, 2, 3}


def test_changed_bytes_give_the_error_of_the_package(tmp_path):
    """Of a recorded log with a snapshot: each byte of the snapshot is changed in turn."""
    log_dir = recorded("4.3.1", tmp_path)
    (snapshot,) = (log_dir / "__cluster_metadata-0").glob("*.checkpoint")
    whole = read_metadata_log(log_dir)
    snapshot.chmod(0o600)
    data = snapshot.read_bytes()
    for at in range(0, len(data), 7):
        snapshot.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
        try:
            found = read_metadata_log(log_dir)
        except CannotImport:
            continue
        assert found.end_offset == whole.end_offset  # read from the log instead
        assert found.image.topics.keys() == whole.image.topics.keys()


@pytest.mark.parametrize("name", [f"{20:020d}-{1:010d}.checkpoint", f"{0:020d}.log"])
def test_a_batch_whose_records_cannot_be_read_is_refused(tmp_path, name):
    """Its size and its checksum are right: as the last batch of a snapshot, and in the log."""
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    damaged = bytearray(encode_batch([Record(value_of(*TOPIC[:2], **TOPIC[2]))]))
    if name.endswith(".checkpoint"):
        damaged[22] |= 0x20  # a control batch, as the footer is
    damaged[60] = 9  # the number of records
    damaged[17:21] = crc32c(bytes(damaged[21:])).to_bytes(4, "big")
    (directory / name).write_bytes(damaged)
    with pytest.raises(CannotImport):
        read_metadata_log(tmp_path)


def test_a_wrapper_of_an_old_format_is_refused(tmp_path):
    """Its records cannot be read, and with them its first offset."""
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(wrapper(1, 1, b"no messages", offset=2))
    with pytest.raises(CannotImport, match="batch up to offset 2: "):
        read_metadata_log(tmp_path)
