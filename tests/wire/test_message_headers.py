"""The header version of each message, and the table of API keys."""

import pytest
from oracle.vectors import vectors

from barnabas.errors import UnsupportedVersion
from barnabas.wire import MalformedMessage, by_name, request, response
from barnabas.wire.api_keys import api_key, api_keys
from barnabas.wire.headers import (
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
    request_header_version,
    response_header_version,
)


def test_every_key_has_both_messages_in_all_its_versions():
    assert sorted(api_keys()) == list(range(95))
    pairs = 0
    for key, row in api_keys().items():
        for version in range(row.version_min, row.version_max + 1):
            pairs += 1
            for message in (request(key, version), response(key, version)):
                assert message.schema.key == key
                program = message.program(version)
                assert program.decode_whole(program.encode(message.cls())) == message.cls()
    assert pairs == 367


def test_versions_marked_unstable_are_left_out():
    assert by_name("InitProducerIdRequest").version_max == 6
    with pytest.raises(UnsupportedVersion, match="has versions 0-5, not 6"):
        request(22, 6)


def test_header_versions_are_those_of_kafka():
    checked = 0
    for vector in vectors("rpc"):
        if vector["kind"] == "request":
            got = request_header_version(vector["key"], vector["version"])
        elif vector["kind"] == "response":
            got = response_header_version(vector["key"], vector["version"])
        else:
            continue
        assert got == vector["header_version"], (vector["api"], vector["version"])
        checked += 1
    assert checked == 1874


def test_the_two_exceptions():
    assert request_header_version(7, 0) == 0
    assert [response_header_version(18, version) for version in range(6)] == [0] * 6
    assert request_header_version(18, 3) == 2


@pytest.mark.parametrize(("key", "version"), [(7, 0), (3, 1), (3, 9), (18, 4), (47, 0)])
def test_request_and_answer_in_frames(key, version):
    body = request(key).cls()
    frame = encode_request(key, version, 77, "client", body)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, at = decode_request_header(frame, 4)
    assert (header.requestApiKey, header.requestApiVersion, header.correlationId) == (
        key,
        version,
        77,
    )
    assert header.clientId == ("client" if key != 7 else "")
    assert request(key).decode(frame, version, at) == body
    assert encode_request(key, version, 77, "client", body, framed=False) == frame[4:]

    answer = response(key).cls()
    frame = encode_response(key, version, 77, answer)
    header, at = decode_response_header(frame[4:], key, version)
    assert header.correlationId == 77
    assert response(key).decode(frame[4:], version, at) == answer


def test_client_id_keeps_its_long_length_in_flexible_versions():
    frame = encode_request(3, 9, 1, "ab", request(3).cls(), framed=False)
    assert frame[8:13] == b"\0\x02ab\0"


def test_api_versions_of_the_future_has_a_header():
    data = b"\0\x12\0\x63\0\0\0\x07\0\x01c\0"
    header, at = decode_request_header(data)
    assert (header.requestApiVersion, header.correlationId, at) == (99, 7, len(data))


def test_headers_that_are_none():
    with pytest.raises(UnsupportedVersion):
        decode_request_header(b"\x03\xe8\0\0\0\0\0\x07\0\0")
    with pytest.raises(MalformedMessage):
        decode_request_header(b"\0\x12\xff\xff\0\0\0\x07\0\0")
    whole = encode_request(3, 9, 1, "client", request(3).cls(), framed=False)
    size = len(whole) - len(request(3).encode(request(3).cls(), 9))
    for cut in range(size):
        with pytest.raises(MalformedMessage):
            decode_request_header(whole[:cut])


def test_rows_of_the_table():
    produce = api_key(0)
    assert (produce.name, produce.version_min, produce.version_max) == ("Produce", 0, 13)
    assert api_key(47).request_flexible_from is None
    assert "broker" in produce.listeners
