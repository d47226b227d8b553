"""Values in a schema registry's wire format: Avro, Protobuf, JSON, whole and damaged; schemas from
a mapping, a directory and a registry that answers over HTTP."""

import base64
import io
import json
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("pyspark", reason="needs barnabas[spark]")

import fastavro
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from barnabas.spark.decode import Decoder, UndecodableValue, decode_array, decoded
from barnabas.spark.schemas import AVRO, JSON, PROTOBUF, Schema, SchemaError

PERSON = {
    "type": "record",
    "name": "Person",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "age", "type": ["null", "long"]},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "scores", "type": {"type": "array", "items": "double"}},
    ],
}
ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}
HOUSE = {
    "type": "record",
    "name": "House",
    "fields": [{"name": "at", "type": "Address"}, {"name": "floors", "type": "int"}],
}
ADA = {"name": "Ada", "age": 36, "tags": {"a": 1, "b": -2}, "scores": [0.5, 1.5]}
PERSON_TYPE = pa.struct(
    [
        ("name", pa.string()),
        ("AGE", pa.int64()),
        ("tags", pa.map_(pa.string(), pa.int32())),
        ("scores", pa.list_(pa.float64())),
        ("absent", pa.string()),
    ]
)


def framed(schema_id, body):
    return b"\0" + schema_id.to_bytes(4, "big") + body


def avro(schema, value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def proto_file():
    """message Other {} message Person { name, age, tags, seen, kind, repeated scores;
    message Inner { int64 n } }"""
    file = descriptor_pb2.FileDescriptorProto(
        name="person.proto",
        package="p",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
    )
    file.message_type.add(name="Other").field.add(name="x", number=1, type=5, label=1)
    person = file.message_type.add(name="Person")
    person.field.add(name="name", number=1, type=9, label=1)
    person.field.add(name="age", number=2, type=3, label=1, oneof_index=0, proto3_optional=True)
    person.oneof_decl.add(name="_age")
    person.field.add(name="scores", number=3, type=1, label=3)
    person.field.add(
        name="seen", number=4, type=11, label=1, type_name=".google.protobuf.Timestamp"
    )
    person.field.add(name="tags", number=5, type=11, label=3, type_name=".p.Person.TagsEntry")
    entry = person.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=5, label=1)
    inner = person.nested_type.add(name="Inner")
    inner.field.add(name="n", number=1, type=3, label=1)
    person.field.add(name="raw", number=6, type=12, label=1)
    return file


def proto_classes():
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(proto_file().SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"p.{name}"))
        for name in ("Other", "Person", "Person.Inner")
    }


def person_message():
    message = proto_classes()["Person"](name="Ada", age=36, scores=[0.5, 1.5], raw=b"\xff")
    message.tags["a"] = 1
    message.seen.FromDatetime(datetime(2024, 1, 2, 3, 4, 5))
    return message.SerializeToString()


class Answers(BaseHTTPRequestHandler):
    """The responses of a registry: 1 Avro, 2 Avro with a reference, 3 JSON, 4 Protobuf."""

    def do_GET(self):
        self.server.asked.append(self.path)
        self.server.users.append(self.headers.get("Authorization"))
        found = ANSWERS.get(self.path)
        body = json.dumps(found or {"error_code": 40403, "message": "Schema not found"}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


def serialized(file):
    return base64.b64encode(file.SerializeToString()).decode()


ANSWERS = {
    "/schemas/ids/1": {"schema": json.dumps(PERSON)},
    "/schemas/ids/2": {
        "schema": json.dumps(HOUSE),
        "references": [{"name": "Address", "subject": "the/address", "version": 3}],
    },
    "/subjects/the%2Faddress/versions/3": {"schema": json.dumps(ADDRESS), "id": 9},
    "/schemas/ids/3": {"schema": "{}", "schemaType": "JSON"},
    "/schemas/ids/4": {"schema": "syntax = ...", "schemaType": "PROTOBUF"},
    "/schemas/ids/4?format=serialized": {
        "schema": serialized(proto_file()),
        "schemaType": "PROTOBUF",
    },
    "/schemas/ids/5": {"schema": "x", "schemaType": "PROTOBUF"},
    "/schemas/ids/5?format=serialized": {"schema": "syntax = 3", "schemaType": "PROTOBUF"},
    "/schemas/ids/6": {"schema": "{", "schemaType": "AVRO"},
    "/schemas/ids/7": {"schema": "x", "schemaType": "XML"},
}


@contextmanager
def registry():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.asked, server.users = [], []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def url(server, user=""):
    return f"http://{user}127.0.0.1:{server.server_address[1]}"


def directory(tmp_path):
    (tmp_path / "1.avsc").write_text(json.dumps(PERSON))
    (tmp_path / "3.json").write_text("{}")
    files = descriptor_pb2.FileDescriptorSet()
    files.file.add().ParseFromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    files.file.append(proto_file())
    (tmp_path / "4.desc").write_bytes(files.SerializeToString())
    return str(tmp_path)


def known():
    return {
        1: json.dumps(PERSON),
        3: Schema(JSON),
        4: Schema(PROTOBUF, files=(proto_file().SerializeToString(),)),
    }


@pytest.fixture(params=["mapping", "directory", "registry"])
def schemas(request, tmp_path):
    if request.param == "registry":
        with registry() as server:
            yield url(server)
    else:
        yield known() if request.param == "mapping" else directory(tmp_path)


VALUES = [
    framed(1, avro(PERSON, ADA)),
    framed(3, json.dumps(ADA).encode()),
    framed(4, b"\x02\x02" + person_message()),  # one index: message 1
]


def test_each_kind_gives_the_same_columns(schemas):
    decoder = Decoder(schemas)
    values = pa.array([*VALUES, None, VALUES[0]], pa.binary())
    found = decode_array(decoder, values, PERSON_TYPE).to_pylist()
    wanted = {"name": "Ada", "AGE": 36, "scores": [0.5, 1.5], "absent": None}
    tags = [[("a", 1), ("b", -2)], [("a", 1), ("b", -2)], [("a", 1)], None, [("a", 1), ("b", -2)]]
    assert found[3] is None
    for row, pairs in zip(found, tags, strict=True):
        if row is not None:
            assert row == wanted | {"tags": pairs}


def test_protobufs_own_kinds():
    found = Decoder(known()).decode(VALUES[2])
    assert found["seen"] == datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC) and found["raw"] == b"\xff"
    empty = Decoder(known()).decode(framed(4, b"\x02\x02"))
    assert empty["age"] is None and empty["name"] == "" and empty["seen"] is None
    other = proto_classes()["Other"](x=7).SerializeToString()
    assert Decoder(known()).decode(framed(4, b"\x00" + other)) == {"x": 7}
    inner = proto_classes()["Person.Inner"](n=-1).SerializeToString()
    assert Decoder(known()).decode(framed(4, b"\x04\x02\x02" + inner)) == {"n": -1}


def test_what_a_schema_refers_to_is_asked_once():
    with registry() as server:
        house = fastavro.parse_schema(HOUSE, named_schemas=_named(ADDRESS))
        out = io.BytesIO()
        fastavro.schemaless_writer(out, house, {"at": {"city": "Turin"}, "floors": 3})
        decoder = Decoder(url(server, user="us%40er:se%3Acret@"))
        for _ in range(3):
            assert decoder.decode(framed(2, out.getvalue())) == {
                "at": {"city": "Turin"},
                "floors": 3,
            }
        assert server.asked == ["/schemas/ids/2", "/subjects/the%2Faddress/versions/3"]
        told = base64.b64encode(b"us@er:se:cret").decode()
        assert server.users == [f"Basic {told}"] * 2


def _named(schema):
    named = {}
    fastavro.parse_schema(schema, named_schemas=named)
    return named


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\0\0\0",
        b"\x01" + VALUES[0][1:],
        framed(1, b""),
        framed(1, avro(PERSON, ADA) + b"x"),
        framed(3, b"{"),
        framed(4, b"\x02\x02\xff"),
        framed(4, b""),
        framed(4, b"\x80\x80\x80\x80\x80\x80"),
        framed(4, b"\x02\x20"),
        framed(4, b"\x01"),
        *(VALUES[0][:cut] for cut in range(6, len(VALUES[0]))),
    ],
)
def test_what_is_no_value_is_one_error_or_null(value):
    decoder = Decoder(known())
    with pytest.raises(UndecodableValue):
        decode_array(decoder, pa.array([value], pa.binary()), PERSON_TYPE)
    found = decode_array(decoder, pa.array([value], pa.binary()), PERSON_TYPE, on_error="null")
    assert found.to_pylist() == [None]


def test_a_schema_that_cannot_be_had_is_a_clear_error(tmp_path):
    with registry() as server:
        gone = url(server)
        for schema_id, words in [
            (5, "does not give Protobuf schemas in their serialized form"),
            (6, "schema 6 is not an Avro schema"),
            (7, "has the unknown type xml"),
            (8, "/schemas/ids/8 answers 404"),
        ]:
            with pytest.raises(SchemaError, match=words):
                Decoder(url(server, user="u:hidden@")).decode(framed(schema_id, b"x"))
    with pytest.raises(SchemaError, match="cannot be read") as caught:
        Decoder(gone.replace("http://", "http://u:hidden@")).decode(framed(10, b"x"))
    assert "hidden" not in str(caught.value)
    with pytest.raises(SchemaError, match=r"no file 8\.avsc, 8\.desc, 8\.json"):
        Decoder(str(tmp_path)).decode(framed(8, b"x"))
    (tmp_path / "8.desc").write_bytes(b"\xff")
    with pytest.raises(SchemaError, match="not a FileDescriptorSet"):
        Decoder(str(tmp_path)).decode(framed(8, b"x"))
    with pytest.raises(SchemaError, match="there is no schema 8"):
        Decoder({1: Schema(AVRO, "{}")}).decode(framed(8, b"x"))


@pytest.mark.java
def test_a_column_in_spark(spark):
    rows = spark.createDataFrame([(bytearray(value),) for value in VALUES] + [(None,)], "v binary")
    with registry() as server:
        person = decoded("v", url(server), "name string, age bigint, tags string")
        found = rows.select(person.alias("p")).select("p.name", "p.age", "p.tags").collect()
    assert sorted(map(tuple, found), key=str) == sorted(
        [
            ("Ada", 36, '{"a": 1, "b": -2}'),
            ("Ada", 36, '{"a": 1, "b": -2}'),
            ("Ada", 36, '{"a": 1}'),
            (None, None, None),
        ],
        key=str,
    )
