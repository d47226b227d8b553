"""The built-in encoders and decoders, alone and with a producer and a consumer."""

import json

import pytest

from barnabas.clients import InvalidConfig, KeyedMessage, Producer
from barnabas.hooks.direct import ClientPlugins, caller

SCHEMA = {
    "type": "record",
    "name": "View",
    "fields": [{"name": "member", "type": "long"}, {"name": "page", "type": "string"}],
}
VIEWS = [{"member": 17, "page": "/jobs"}, {"member": -1, "page": "ü"}]


def pair(name, settings=None):
    plugin = ClientPlugins(settings or {}).plugin("serializer.class", name, "encode")
    return caller(plugin, "encode"), caller(plugin, "decode")


@pytest.mark.parametrize(
    ("name", "objects", "data"),
    [
        ("bytes", [b"a", b"", None], [b"a", b"", None]),
        ("kafka.serializer.DefaultEncoder", [bytearray(b"b")], [b"b"]),
        ("string", ["a", "ü", None], [b"a", "ü".encode(), None]),
        ("kafka.serializer.StringEncoder", ["x"], [b"x"]),
        (
            "json",
            [{"b": 1, "a": None}, [1.5], "ü"],
            [b'{"b":1,"a":null}', b"[1.5]", '"ü"'.encode()],
        ),
    ],
)
def test_there_and_back(name, objects, data):
    encode, decode = pair(name)
    assert list(encode("t", objects, False)) == data
    there = [item for item in data if item is not None]
    assert list(decode("t", there, False)) == [item for item in objects if item is not None]


def test_options_of_text_and_json():
    assert pair("string", {"plugin.string.encoding": "latin-1"})[0]("t", ["ü"], False) == [b"\xfc"]
    assert pair("json", {"plugin.json.sort.keys": "true"})[0]("t", [{"b": 1, "a": 2}], False) == [
        b'{"a":2,"b":1}'
    ]
    assert pair("string")[0]("t", [17, 1.5], True) == [b"17", b"1.5"]


@pytest.mark.parametrize(
    ("name", "wrong"), [("bytes", 5), ("string", b"x"), ("json", {1, 2}), ("json", float("nan"))]
)
def test_what_an_encoder_does_not_take(name, wrong):
    with pytest.raises((TypeError, ValueError)):
        pair(name)[0]("t", [wrong], False)


def avro_settings(tmp_path, **more):
    file = tmp_path / "view.avsc"
    file.write_text(json.dumps(SCHEMA))
    return {"plugin.avro.schema": str(file), **more}


def test_avro(session_broker, topic, tmp_path):
    fastavro = pytest.importorskip("fastavro")
    settings = avro_settings(tmp_path, **{"plugin.avro.schema.id": "42"})
    with Producer(
        {
            "metadata.broker.list": session_broker.bootstrap_servers,
            "serializer.class": "avro",
            "key.serializer.class": "string",
            **settings,
        }
    ) as producer:
        producer.send([KeyedMessage(topic, view, key="k") for view in VIEWS])
        with pytest.raises((TypeError, ValueError)):
            producer.send(KeyedMessage(topic, {"member": "no number"}))
    rows = [row.value for row in session_broker.records(topic)]
    assert [row[:5] for row in rows] == [b"\x00\x00\x00\x00\x2a"] * 2
    import io

    parsed = fastavro.parse_schema(SCHEMA)  # read by another library
    assert [fastavro.schemaless_reader(io.BytesIO(r[5:]), parsed, None) for r in rows] == VIEWS
    encode, decode = pair("avro", settings)
    assert decode("t", rows, False) == VIEWS
    assert encode("t", VIEWS, False) == rows
    for damaged in (rows[0] + b"x", rows[0][:-1], b"\x00\x00\x00\x00\x2b" + rows[0][5:], b""):
        with pytest.raises((ValueError, EOFError)):
            decode("t", [damaged], False)
    with pytest.raises(ValueError, match="key.schema"):
        encode("t", VIEWS, True)


def test_protobuf(session_broker, topic):
    pytest.importorskip("google.protobuf")
    from google.protobuf.timestamp_pb2 import Timestamp
    from google.protobuf.wrappers_pb2 import StringValue

    settings = {
        "plugin.protobuf.message": "google.protobuf.timestamp_pb2:Timestamp",
        "plugin.protobuf.key.message": "google.protobuf.wrappers_pb2:StringValue",
    }
    with Producer(
        {
            "metadata.broker.list": session_broker.bootstrap_servers,
            "serializer.class": "protobuf",
            "partitioner.class": "murmur2",
            **settings,
        }
    ) as producer:
        producer.send(KeyedMessage(topic, Timestamp(seconds=5), key=StringValue(value="k")))
        producer.send(KeyedMessage(topic, Timestamp(nanos=7)))
        with pytest.raises(TypeError, match="not a Timestamp"):
            producer.send(KeyedMessage(topic, StringValue(value="wrong")))
    rows = session_broker.records(topic)
    assert Timestamp.FromString(rows[0].value).seconds == 5
    assert StringValue.FromString(rows[0].key).value == "k"
    _, decode = pair("protobuf", settings)
    assert decode("t", [row.value for row in rows], False)[1].nanos == 7


def test_a_schema_that_is_not_there(tmp_path):
    pytest.importorskip("fastavro")
    place = {"metadata.broker.list": "127.0.0.1:1", "serializer.class": "avro"}
    with pytest.raises(InvalidConfig, match="plugin.avro.schema: must be set"):
        Producer(place)
    with pytest.raises(InvalidConfig, match="cannot create"):
        Producer(place | {"plugin.avro.schema": str(tmp_path / "none.avsc")})


def test_an_encoder_in_a_process_of_its_own(session_broker, topic):
    with Producer(
        {
            "metadata.broker.list": session_broker.bootstrap_servers,
            "serializer.class": "json",
            "plugin.json.isolation": "process",
        }
    ) as producer:
        producer.send(KeyedMessage(topic, {"a": 1}))
    session_broker.assert_records(topic, [b'{"a":1}'])
