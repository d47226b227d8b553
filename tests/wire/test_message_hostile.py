"""Hostile bytes cause only MalformedMessage (naming message, field and byte),
and take memory in proportion to the bytes sent, not to the numbers in them."""

import contextlib
import gc
import random
import tracemalloc

import pytest
from oracle.vectors import message_vectors

from barnabas.wire import MalformedMessage, by_name

METADATA = by_name("MetadataRequest")
INT32_MAX = (2**31 - 1).to_bytes(4, "big")
UVARINT_MAX = b"\xff\xff\xff\xff\x0f"


def refused(message, version, data, text):
    """Returns the error's text; checks the memory that the refusal took."""
    program = message.program(version)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage, match=text) as caught:
            program.decode_whole(data)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 200_000 + 200 * len(data)
    return str(caught.value)


def test_array_count_of_two_thousand_million():
    text = refused(METADATA, 0, INT32_MAX, "2147483647 elements announced")
    assert text.startswith("MetadataRequest v0: topics at byte 0: ")


def test_compact_array_count_of_two_thousand_million():
    refused(METADATA, 9, b"\xff\xff\xff\xff\x07" + bytes(50), "2147483646 elements announced")
    refused(METADATA, 9, UVARINT_MAX + bytes(50), "4294967294 elements announced")


def test_count_is_checked_at_the_least_size_of_an_element():
    # 100 strings need 200 bytes at least; 199 follow.
    refused(METADATA, 0, (100).to_bytes(4, "big") + bytes(199), "100 elements announced")


def test_many_tagged_fields_announced():
    refused(METADATA, 9, b"\x01\0\0\0" + b"\x80\x80\x80\x80\x01", "268435456 tagged fields")


def test_tags_must_ascend():
    body = b"\x01\0\0\0"
    refused(METADATA, 9, body + b"\x02\x07\0\x06\0", "tag 6 after tag 7")
    refused(METADATA, 9, body + b"\x02\x07\0\x07\0", "tag 7 after tag 7")


def test_tagged_field_larger_than_the_message():
    refused(METADATA, 9, b"\x01\0\0\0" + b"\x01\x07" + UVARINT_MAX, "announced for tag 7")


def fetch_with_cluster_id(tagged: bytes) -> bytes:
    fetch = by_name("FetchRequest")
    whole = fetch.encode(fetch.cls(), 12)
    assert whole.endswith(b"\0")
    return whole[:-1] + tagged


def test_known_tag_reads_no_further_than_its_size():
    fetch = by_name("FetchRequest")
    good = fetch_with_cluster_id(b"\x01\0\x04\x04abc")
    assert fetch.decode(good, 12).clusterId == "abc"
    text = refused(fetch, 12, fetch_with_cluster_id(b"\x01\0\x03\x04abc"), "more than are left")
    assert "clusterId" in text
    refused(fetch, 12, fetch_with_cluster_id(b"\x01\0\x05\x04abcd"), "1 bytes left over in tag 0")


def test_endless_varint():
    refused(METADATA, 9, b"\xff" * 1000, "varint is too long")
    refused(METADATA, 9, b"\x80" * 1000, "varint is too long")
    refused(METADATA, 9, b"\xff\xff\xff\xff\x1f", "varint is too long")


@pytest.mark.parametrize("count", [-2, -(2**31)])
def test_negative_count(count):
    refused(METADATA, 1, count.to_bytes(4, "big", signed=True), f"negative length {count}")


def test_negative_string_length():
    refused(METADATA, 0, b"\0\0\0\x01\xff\xfe", "topics.0..name at byte 4: negative length -2")


def test_null_where_none_is_allowed():
    text = refused(METADATA, 0, b"\xff\xff\xff\xff", "null")
    assert "topics" in text
    assert METADATA.decode(b"\xff\xff\xff\xff", 1).topics is None
    refused(METADATA, 0, b"\0\0\0\x01\xff\xff", "topics.0..name at byte 4: null")


@pytest.mark.parametrize(
    "bad", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"]
)
def test_bad_utf8(bad):
    data = b"\0\0\0\x02\0\x01a" + len(bad).to_bytes(2, "big") + bad
    text = refused(METADATA, 0, data, "not UTF-8")
    assert text.startswith("MetadataRequest v0: topics[1].name at byte 7: ")


def test_string_beyond_kafkas_limit():
    too_long = b"\x02\x81\x80\x02" + b"a" * 32768 + b"\0\0\0\0\0"
    refused(METADATA, 9, too_long, "string of 32768 bytes")


def test_deepest_field_is_named():
    metadata = by_name("MetadataResponse")
    partition = metadata.struct("topics.partitions")(replicaNodes=[1, 2, 3])
    topic = metadata.struct("topics")(name="t", partitions=[partition])
    data = metadata.encode(metadata.cls(topics=[topic, topic]), 1)
    cut = refused(metadata, 1, data[:-9], "ends early|announced")
    assert "topics[1].partitions[0].replicaNodes" in cut


def test_many_small_elements_cost_in_proportion():
    count = 50_000
    data = count.to_bytes(4, "big") + b"\0\0" * count
    program = METADATA.program(0)
    tracemalloc.start()
    try:
        program.decode(data)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 150 * len(data)


def test_nothing_stays_behind():
    """Both refused and accepted messages free their memory."""
    pairs = [(by_name(v["api"]).program(v["version"]), v["bytes"]) for v in message_vectors()[::20]]

    def work():
        for program, data in pairs:
            program.encode(program.decode(data)[0])
            for cut in range(0, len(data), 5):
                with contextlib.suppress(MalformedMessage):
                    program.decode(data[:cut])

    work()
    tracemalloc.start()
    try:
        work()
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(5):
            work()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 20_000


def mutated(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(len(out)) if out else 0
        choice = rng.randrange(5)
        if choice == 0 and out:
            out[at] ^= 1 << rng.randrange(8)
        elif choice == 1 and out:
            out[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
        elif choice == 2:
            out[at : at + rng.randrange(8)] = b""
        elif choice == 3:
            out[at:at] = rng.randbytes(rng.randrange(1, 6))
        else:
            out[at : at + 4] = rng.choice([INT32_MAX, b"\xff\xff\xff\xfe", UVARINT_MAX])
    return bytes(out)


@pytest.mark.parametrize("seed", [20260701, 20260702])
def test_random_damage_raises_nothing_else(seed):
    rng = random.Random(seed)
    found = message_vectors()
    refusals = 0
    for _ in range(10_000):
        vector = rng.choice(found)
        message, version = by_name(vector["api"]), vector["version"]
        damaged = mutated(vector["bytes"], rng)
        try:
            value, end = message.program(version).decode(damaged)
        except MalformedMessage:
            refusals += 1
        else:
            assert 0 <= end <= len(damaged)
            again = message.encode(value, version)
            assert message.encode(message.decode(again, version), version) == again
    assert 2_000 < refusals < 9_900
