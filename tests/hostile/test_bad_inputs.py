"""Bad input to a running broker: the kind of its response, and no effect on other clients.

After each input the broker answers on a new connection and on an older one, and never used more
than 8 MiB more memory than before (conftest.py). The expected answers come from Apache Kafka 4.3.1
over raw sockets.
"""

import struct

import pytest
from hostile.raw import connect, error_of, framed, is_closed
from node.test_settings import metadata

from barnabas.cext.codec.crc import crc32c
from barnabas.cext.record.records import Record, encode_batch
from barnabas.wire import request

RECEIVE_S = 1.0


def head(key: int, version: int, flexible: bool = False) -> bytes:
    plain = struct.pack(">hhih", key, version, 7, 1) + b"x"
    return plain + b"\0" if flexible else plain


CLOSING = {
    "negative size": struct.pack(">i", -5),
    "size of 2 GiB": struct.pack(">i", 0x7FFFFFFF),
    "size of 101 MiB": struct.pack(">i", 101 << 20),
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls hello": bytes.fromhex("1603010200010001fc0303") + bytes(505),
    "unknown api": framed(head(9999, 0)),
    "metadata v999": framed(head(3, 999)),
    "empty frame": framed(b""),
    "short header": framed(b"\0\3\0"),
    "client id longer than the frame": framed(struct.pack(">hhih", 3, 1, 7, 32767)),
    "array of 2^31-1": framed(head(3, 1) + struct.pack(">i", 0x7FFFFFFF)),
    "array of -2": framed(head(3, 1) + struct.pack(">i", -2)),
    "compact array of 2^31-1": framed(head(3, 9, True) + b"\xff\xff\xff\xff\x07"),
    "2^28 tagged fields": framed(head(3, 9)[:-1] + b"x" + b"\x80\x80\x80\x80\x01"),
    "endless varint": framed(head(3, 9, True) + b"\xff" * 64),
    "produce: topics of 2^31-1": framed(
        head(0, 8) + struct.pack(">hhii", -1, -1, 1000, 0x7FFFFFFF)
    ),
    "fetch: topics of 2^31-1": framed(
        head(1, 11) + struct.pack(">iiiibiii", -1, 0, 1, 1 << 20, 0, 0, -1, 0x7FFFFFFF)
    ),
}


@pytest.mark.parametrize("sent", CLOSING.values(), ids=CLOSING.keys())
def test_closes_without_an_answer(broker, sent):
    with connect(broker) as connection:
        connection.sendall(sent)
        assert is_closed(connection)


def test_announced_frame_that_never_comes_costs_nothing_and_ends(broker):
    with connect(broker) as connection:
        connection.sendall(struct.pack(">i", 99 << 20) + bytes(64))
        assert not is_closed(connection, within_s=0.3)
        assert is_closed(connection, within_s=RECEIVE_S * 4)


def test_apiversions_of_the_future_gets_the_known_versions(broker):
    with connect(broker) as connection:
        connection.sendall(framed(head(18, 999, True) + b"\2x\2y\0"))
        (size,) = struct.unpack(">i", connection.recv(4))
        answer = connection.recv(size)
        assert struct.unpack_from(">ih", answer) == (7, 35)
        connection.sendall(framed(head(18, 0)))
        assert len(connection.recv(4)) == 4, "the connection is kept"


@pytest.mark.parametrize("name", ["../../etc/x", "a\0b", "a" * 250, ".", "..", "a b", ""])
def test_topic_names_that_are_none(broker, neighbour, name):
    assert metadata(neighbour, name).topics[0].errorCode == 17
    ask = request(19)
    topic = ask.struct("topics")(name=name, numPartitions=1, replicationFactor=1)
    body = ask.cls(topics=[topic], timeoutMs=1000)
    assert neighbour.call(19, 5, body).topics[0].errorCode == 17


def test_topic_name_that_is_not_utf8_closes(broker):
    """Kafka reads it with replacement characters and answers INVALID_TOPIC_EXCEPTION; here invalid
    UTF-8 makes the request malformed."""
    with connect(broker) as connection:
        connection.sendall(framed(head(3, 1) + struct.pack(">ih", 1, 2) + b"\xff\xfe"))
        assert is_closed(connection)


def seal(batch: bytearray) -> None:
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))


def changed(at: int, form: str, value: int, sealed: bool = True) -> bytes:
    """A batch of three records with one field of its header changed."""
    batch = bytearray(encode_batch([Record(b"v%d" % i, timestamp=1) for i in range(3)]))
    struct.pack_into(form, batch, at, value)
    if sealed:
        seal(batch)
    return bytes(batch)


def with_record_length(length: int) -> bytes:
    batch = bytearray(encode_batch([Record(b"value", timestamp=1)]))
    batch[61] = length << 1
    seal(batch)
    return bytes(batch)


def compressed(codec: int, body: bytes, count: int = 1) -> bytes:
    """A batch with a valid header and the body `body`."""
    plain = bytearray(encode_batch([Record(b"v", timestamp=1)])[:61] + body)
    struct.pack_into(">i", plain, 8, len(plain) - 12)
    struct.pack_into(">h", plain, 21, codec)
    struct.pack_into(">i", plain, 57, count)
    seal(plain)
    return bytes(plain)


CORRUPT, TRANSACTIONAL_ID, UNSUPPORTED_CODEC, INVALID = 2, 53, 76, 87
# The error codes of 4.3.1. For those of BETTER it has UNKNOWN_SERVER_ERROR, where we use a code
# that names the fault: such bytes were damaged on the way.
BAD_BATCHES = {
    "wrong crc": (changed(30, ">B", 0x55, sealed=False), CORRUPT),
    "length -5": (changed(8, ">i", -5, sealed=False), CORRUPT),
    "magic 99": (changed(16, ">B", 99, sealed=False), CORRUPT),
    "record count 2^31-1": (changed(57, ">i", 0x7FFFFFFF), INVALID),
    "record count -1": (changed(57, ">i", -1), INVALID),
    "last offset delta lies": (changed(23, ">i", 77), INVALID),
    "record length lies": (with_record_length(60), INVALID),
    "control batch": (changed(21, ">h", 0x20), INVALID),
    "transaction without an id": (changed(21, ">h", 0x10), TRANSACTIONAL_ID),
}
BETTER = {
    "length 2^31-1": (changed(8, ">i", 0x7FFFFFFF, sealed=False), CORRUPT),
    "codec 7": (changed(21, ">h", 7), UNSUPPORTED_CODEC),
    "gzip rubbish": (compressed(1, b"rubbish" * 9), CORRUPT),
    "snappy rubbish": (compressed(2, b"\xff" * 60), CORRUPT),
    "lz4 rubbish": (compressed(3, b"rubbish" * 9), CORRUPT),
    "zstd rubbish": (compressed(4, b"rubbish" * 9), CORRUPT),
}
BAD_BATCHES |= BETTER


@pytest.mark.parametrize(("batch", "code"), BAD_BATCHES.values(), ids=BAD_BATCHES.keys())
def test_bad_batch_is_refused(neighbour, batch, code):
    assert error_of(neighbour, batch) == code


def test_acks_7(neighbour):
    assert error_of(neighbour, changed(30, ">B", 0), acks=7) == 21
