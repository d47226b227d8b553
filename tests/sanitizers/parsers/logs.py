"""Records of internal topics and of KRaft's metadata log, as a start or an import reads them."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from oracle.log_builder import batch as log_batch
from oracle.vectors import message_vectors, vectors
from sanitizers.parsers import Parse, Parser, of
from sanitizers.parsers.sealed import old_messages, sealed
from takeover.test_metadata_log import PARTITION, TOPIC, TOPIC_ID, value_of

from barnabas.cext.record.records import Record, encode_batch
from barnabas.coordinator.groups.consumer_protocol import (
    MalformedSubscription,
    assignment_of,
    subscription_of,
)
from barnabas.coordinator.groups.subscription import subscribed_topics
from barnabas.storage.log_dirs import KRAFT_METADATA
from barnabas.takeover.metadata_image import MetadataImage
from barnabas.takeover.metadata_log import read_metadata_log
from barnabas.takeover.metadata_records import read_record
from barnabas.takeover.older_records import older
from barnabas.takeover.partition_files import PartitionFile, content_of
from barnabas.takeover.refusals import CannotImport
from barnabas.wire import MalformedMessage
from barnabas.wire.internal import TOPICS, UnknownRecord, read_key

KRAFT_ROWS = (
    TOPIC,
    PARTITION,
    ("PartitionChangeRecord", 0, {"partitionId": 0, "topicId": TOPIC_ID, "leader": 2}),
    ("ConfigRecord", 0, {"resourceType": 2, "resourceName": "t", "name": "a", "value": "b"}),
    ("FeatureLevelRecord", 0, {"name": "metadata.version", "featureLevel": 20}),
    ("RemoveTopicRecord", 0, {"topicId": TOPIC_ID}),
    ("BeginTransactionRecord", 0, {}),
    ("EndTransactionRecord", 0, {}),
)


def internal_record(data: bytes) -> None:
    """The first byte chooses the topic, the second is the size of the key; the value follows."""
    topic = TOPICS[data[0] % len(TOPICS)] if data else TOPICS[0]
    size = data[1] if len(data) > 1 else 0
    with contextlib.suppress(UnknownRecord, MalformedMessage):
        kind, _ = read_key(topic, data[2 : 2 + size])
        kind.read_value(data[2 + size :])


def internal_records() -> Iterator[bytes]:
    found = {(v["api"], v["version"]): v for v in message_vectors()}
    for (name, version), vector in found.items():
        if not name.endswith("Value"):
            continue
        key = found.get((name.removesuffix("Value") + "Key", 0))
        if key is None or key.get("key") is None or len(key["bytes"]) > 250:
            continue
        head = key["key"].to_bytes(2, "big") + key["bytes"]
        for topic in range(len(TOPICS)):
            yield (bytes([topic, len(head)]) + head + version.to_bytes(2, "big") + vector["bytes"])


def consumer_protocol(data: bytes) -> None:
    """What a member of a classic group says about itself, and what its leader gives the others."""
    for read in (subscription_of, assignment_of):
        with contextlib.suppress(MalformedSubscription):
            read(data)
    subscribed_topics(data)


def member_texts() -> Iterator[bytes]:
    for vector in message_vectors():
        if vector["api"].startswith("ConsumerProtocol"):
            yield vector["version"].to_bytes(2, "big") + vector["bytes"]
    yield b"\0\0\0\0\0\1\0\1t\0\0\0\0"


def kraft_record(data: bytes) -> None:
    """Records of KRaft's metadata log, one after another: each has its size in a byte before it."""
    image, at = MetadataImage(), 0
    while at < len(data):
        end = at + 1 + data[at]
        with contextlib.suppress(MalformedMessage):
            image.apply(*read_record(data[at + 1 : end]))
        at = end


def kraft_records() -> Iterator[bytes]:
    values = [value_of(name, version, **fields) for name, version, fields in KRAFT_ROWS]
    yield b"".join(bytes([len(value)]) + value for value in values)
    for value in values:
        yield bytes([len(value)]) + value


def kraft_log(folder: Path, _stack: contextlib.ExitStack) -> Parse:
    """A directory of KRaft's metadata. The first byte says whether the bytes are a snapshot or the
    log, and whether the batch gets its length and its checksum."""
    directory = folder / KRAFT_METADATA
    directory.mkdir()
    snapshot = directory / f"{20:020d}-{1:010d}.checkpoint"
    log = directory / f"{0:020d}.log"

    def parse(data: bytes) -> None:
        choice, content = data[0] if data else 0, data[1:]
        if choice & 2:
            content = sealed(content)
        snapshot.write_bytes(content if choice & 1 else b"")
        log.write_bytes(b"" if choice & 1 else content)
        with contextlib.suppress(CannotImport):
            read_metadata_log(folder)

    return parse


def kraft_logs() -> Iterator[bytes]:
    values = [value_of(name, version, **fields) for name, version, fields in KRAFT_ROWS]
    stored = encode_batch([Record(value, timestamp=1) for value in values], leader_epoch=1)
    footer = encode_batch(
        [Record(b"\0\0", b"\0\0\0\4", timestamp=1)], base_offset=8, attributes=0x20
    )
    for choice in range(4):
        yield bytes([choice]) + stored
        yield bytes([choice]) + stored + footer


def partition_files(folder: Path, _stack: contextlib.ExitStack) -> Parse:
    """A segment of a partition that is imported, and of an internal topic for an older Kafka. The
    first byte chooses among them, and says whether the batch gets its length and its checksum."""
    path = folder / f"{0:020d}.log"

    def parse(data: bytes) -> None:
        choice = data[0] if data else 0
        content = sealed(data[1:]) if choice >= 3 else data[1:]
        path.write_bytes(content)
        if choice % 3 < 2:
            older(TOPICS[choice % 3], path)
        else:
            found = content_of([PartitionFile(path, len(content))], lambda _records, _bytes: None)
            assert found.size_bytes == len(content)

    return parse


def segments() -> Iterator[bytes]:
    for made in (*(v["bytes"] for v in vectors("batches")), *old_messages(), log_batch(b"a")):
        for choice in (0, 2, 3, 5):
            yield bytes([choice]) + made
    for row in internal_records():
        key, value = row[2 : 2 + row[1]], row[2 + row[1] :]
        if row[0] < 2:
            yield row[:1] + encode_batch([Record(value, key, timestamp=1)])


PARSERS = {
    "internal_record": Parser(of(internal_record), internal_records),
    "consumer_protocol": Parser(of(consumer_protocol), member_texts),
    "kraft_record": Parser(of(kraft_record), kraft_records),
    "kraft_log": Parser(kraft_log, kraft_logs),
    "partition_files": Parser(partition_files, segments),
}
