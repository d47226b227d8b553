"""Files that other programs and former runs leave, and what other processes answer."""

import contextlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path

from oracle.log_builder import batch as log_batch
from sanitizers.parsers import Parse, Parser, of
from spark.test_checkpoint import COMMITTED, INITIAL, METADATA, OFFSETS, PLANNED
from tls.authority import Authority

from barnabas.cext.record.records import Record
from barnabas.config import ConfigError
from barnabas.config.properties import parse_properties
from barnabas.hooks import views
from barnabas.hooks.child_values import decode, encode
from barnabas.metadata import znodes
from barnabas.metadata.znode_json import ZnodeDataError, plain_number
from barnabas.spark.checkpoint import Checkpoint
from barnabas.spark.failures import CheckpointError
from barnabas.spark.offsets import topic_ids
from barnabas.spark.sink_log import SinkFile, SinkLog
from barnabas.storage.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    DamagedFile,
    leader_epochs_text,
    offsets_text,
    read_leader_epochs,
    read_offsets,
    read_topic_id,
)
from barnabas.tls.jks import BadJks, private_key, read_jks
from barnabas.tls.subject import BadName, subject_name

INT64_MAX = 2**63 - 1
DEEP = b"[" * 2000
LONG = b"9" * 5000  # more digits than Python makes a number of


def checkpoint(folder: Path, _stack: contextlib.ExitStack) -> Parse:
    """The text files of a log directory and of a partition; what they say fits their types."""
    offsets, epochs, topic_id = (
        folder / name for name in ("offsets", LEADER_EPOCHS, PARTITION_METADATA)
    )

    def parse(data: bytes) -> None:
        for path in (offsets, epochs, topic_id):
            path.write_bytes(data)
        with contextlib.suppress(DamagedFile):
            for (topic, partition), offset in read_offsets(offsets).items():
                assert topic and 0 <= partition < 2**31 and 0 <= offset <= INT64_MAX
        with contextlib.suppress(DamagedFile):
            for epoch, start in read_leader_epochs(folder):
                assert 0 <= epoch < 2**31 and 0 <= start <= INT64_MAX
        with contextlib.suppress(DamagedFile):
            found = read_topic_id(folder)
            assert found is not None and len(found) == 16

    return parse


def checkpoints() -> Iterator[bytes]:
    yield offsets_text({("t", 0): 5, ("t", 1): INT64_MAX, ("orders", 12): 0})
    yield leader_epochs_text([(0, 0), (3, 10), (4, 10)])
    yield b"version: 0\ntopic_id: kxVd3sZ5TTy9Q7yS1fWb9A"
    yield b"0\n" + LONG + b"\n"
    yield b"0\n1\nt 0 " + LONG + b"\n"
    yield b"0\n1\n0 " + LONG[:40] + b"\n"


def properties(data: bytes) -> None:
    with contextlib.suppress(ConfigError):
        parse_properties(data)


def property_files() -> Iterator[bytes]:
    yield b"#\n#Fri Nov 27\nbroker.id=1\nversion=0\ncluster.id=kxVd3sZ5TTy9Q7yS1fWb9A\n"
    yield b"a = b\\\n  c\\u00e9\nd:e\n! f\ng\\=h i\\\\\n"
    yield b"\xef\xbb\xbfa=\\ud83d\\ude00\n\xff=\xfe"


def key_store(data: bytes) -> None:
    for password in (None, "storepass"):
        with contextlib.suppress(BadJks):
            for entry in read_jks(data, password):
                if entry.key:
                    private_key(entry.key, "keypass")
    with contextlib.suppress(BadJks):
        private_key(data, "keypass")


def key_stores() -> Iterator[bytes]:
    folder = Path(__file__).parents[2] / "tls" / "vectors"
    for name in ("keystore.jks", "truststore.jks"):
        yield (folder / name).read_bytes()
    for entry in read_jks((folder / "keystore.jks").read_bytes(), "storepass"):
        yield entry.key
    certificate = struct.pack(">ih1sqi", 2, 1, b"a", 0, 3) + b"abc"
    yield b"\xfe\xed\xfe\xed" + struct.pack(">ii", 1, 1) + certificate + bytes(20)


def certificate_name(data: bytes) -> None:
    with contextlib.suppress(BadName):
        subject_name(data)


def names_of_certificates() -> Iterator[bytes]:
    from cryptography import x509

    for name in ("CN=broker,O=Example", "CN=a+OU=b,C=DE,1.2.3.4=x", "DC=a\\,b,UID=\\ c"):
        yield x509.Name.from_rfc4514_string(name).public_bytes()
    issued = Authority().issue("CN=broker,O=Example")
    yield x509.load_der_x509_certificate(issued.certificate_der).subject.public_bytes()


METADATA_ROWS = (
    znodes.BrokerRegistration.decode, znodes.TopicAssignment.decode, znodes.PartitionState.decode,
    znodes.decode_cluster_id, znodes.decode_unfinished, znodes.decode_controller_epoch,
    znodes.ControllerRegistration.decode, znodes.decode_config, znodes.decode_features,
    znodes.ConfigChange.decode, znodes.decode_partitions, znodes.Reassignment.decode,
    znodes.LogDirEvent.decode, znodes.ProducerIdBlock.decode, znodes.ConsumerSubscription.decode,
    znodes.decode_consumer_offset, znodes.decode_consumer_owner,
)  # fmt: skip


def metadata_row(data: bytes) -> None:
    """The data of a node of the metadata; the first byte chooses the kind of node."""
    choice = data[0] % (len(METADATA_ROWS) + 1) if data else 0
    with contextlib.suppress(ZnodeDataError):
        if choice < len(METADATA_ROWS):
            METADATA_ROWS[choice](data[1:])
        else:
            assert 0 <= plain_number(data[1:], "a number") < 2**31


def metadata_rows() -> Iterator[bytes]:
    for text in _texts_of_rows():
        for choice in range(len(METADATA_ROWS) + 1):
            yield bytes([choice]) + text


def _texts_of_rows() -> Iterator[bytes]:
    for row in (
        {
            "version": 5,
            "host": "h",
            "port": 9092,
            "jmx_port": -1,
            "timestamp": "1",
            "endpoints": ["PLAINTEXT://h:9092", "SSL://[::1]:9093"],
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT", "SSL": "SSL"},
            "features": {},
            "rack": "r",
        },
        {
            "version": 3,
            "partitions": {"0": [1, 2], "1": [2, 1]},
            "topic_id": "kxVd3sZ5TTy9Q7yS1fWb9A",
            "adding_replicas": {"0": [3]},
            "removing_replicas": {},
        },
        {"version": 1, "controller_epoch": 1, "leader": 1, "leader_epoch": 2, "isr": [1, 2]},
        {"version": "1", "id": "kxVd3sZ5TTy9Q7yS1fWb9A"},
        {"version": 2, "brokerid": 1, "timestamp": "1", "kraftMetadataVersion": -1},
        {"version": 1, "config": {"retention.ms": "1"}},
        {"version": 1, "status": 1, "features": {"a": {"max_version_level": 1}}},
        {"version": 2, "entity_path": "topics/t"},
        {"version": 1, "entity_type": "topics", "entity_name": "t"},
        {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]},
        {"version": 1, "broker": 1, "event": 1},
        {"version": 1, "broker": 1, "block_start": "0", "block_end": "999"},
        {"version": 1, "subscription": {"t": 1}, "pattern": "static", "timestamp": "1"},
    ):
        yield json.dumps(row, separators=(",", ":")).encode()
    yield b"17"
    yield b'{"version":1,"config":' + DEEP
    yield b'{"version":' + LONG + b"}"
    yield b"[" + DEEP


def plugin_answer(data: bytes) -> None:
    """A frame of a plugin's process. What is read can be written and read again."""
    with contextlib.suppress(ValueError):
        decode(data)


def plugin_answers() -> Iterator[bytes]:
    rows = [Record(b"value", b"key", timestamp=1, headers=(("a", b"b"), ("c", None)))]
    for value in (
        None, True, [1, 2.5, "text", b"bytes"], {"a": {1, 2}, b"b": (None,)}, rows,
        views.Replace(rows), views.RecordBatch("t", 0, log_batch(b"v"), 1000),
        views.Reject(*(["reason"] * len(views.Reject._fields))),
    ):  # fmt: skip
        yield encode(value)[4:]
    for text in (DEEP, b'{"d":[[{"d":[]},1]]}', b'{"c":"LogView","f":[]}', b'{"b":1e5}'):
        yield len(text).to_bytes(4, "big") + text


class Memory:
    """The files of a checkpoint, all with the same content."""

    def __init__(self) -> None:
        self.data = b""

    def shown(self, path: str) -> str:
        return path

    def names(self, directory: str) -> list[str]:
        return ["0", "1"]

    def read(self, path: str) -> bytes:
        return self.data


def spark_checkpoint(_folder: Path, _stack: contextlib.ExitStack) -> Parse:
    files = Memory()
    found = Checkpoint(files)  # type: ignore[arg-type]

    def parse(data: bytes) -> None:
        files.data = data
        for read in (
            found.query_id,
            found.initial,
            found.finished_batch,
            found.last_planned,
            lambda: found.commit(0),
            found.verify,
        ):
            with contextlib.suppress(CheckpointError):
                read()
        with contextlib.suppress(CheckpointError):
            batch = found.batch(0)
            batch.kafka()
            batch.topic_ids()
            assert isinstance(batch.timestamp_ms, int)
        with contextlib.suppress(ValueError):
            topic_ids(data.decode())

    return parse


def spark_checkpoints() -> Iterator[bytes]:
    yield from (METADATA, PLANNED, COMMITTED, INITIAL, OFFSETS.encode())
    for before in (b"v1\n", b"v1\n{}\n", b"\0v1\n", b""):
        yield before + b'{"a":' + DEEP
        yield before + b'{"batchTimestampMs":' + LONG + b"}"
    yield b"v" + LONG + b"\n{}"


def spark_sink_log(_folder: Path, _stack: contextlib.ExitStack) -> Parse:
    files = Memory()
    found = SinkLog(files)  # type: ignore[arg-type]

    def parse(data: bytes) -> None:
        files.data = data
        with contextlib.suppress(CheckpointError):
            found.current()

    return parse


def spark_sink_logs() -> Iterator[bytes]:
    row = SinkFile("/a/b", 10, 1).encoded().encode()
    yield b"v1\n" + row
    yield b"v1\n" + row + b"\n" + row.replace(b"add", b"delete")
    yield b"v1\n" + DEEP
    yield b'v1\n{"size":' + LONG + b"}"


PARSERS = {
    "checkpoint": Parser(checkpoint, checkpoints),
    "properties": Parser(of(properties), property_files),
    "key_store": Parser(of(key_store), key_stores),
    "certificate_name": Parser(of(certificate_name), names_of_certificates),
    "metadata_row": Parser(of(metadata_row), metadata_rows),
    "plugin_answer": Parser(of(plugin_answer), plugin_answers),
    "spark_checkpoint": Parser(spark_checkpoint, spark_checkpoints),
    "spark_sink_log": Parser(spark_sink_log, spark_sink_logs),
}
