"""What a producer of Kafka 0.7 sends, as a Produce request of version 3."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import kafka07
from oracle.kafka07 import GZIP, SNAPPY

from barnabas.legacy07 import frames
from barnabas.legacy07.frames import BadRequest, ProduceAsked
from barnabas.legacy07.produce import produce_request
from barnabas.wire import request
from barnabas.wire.batches import decode_batches

SIZE_MAX = 1 << 20


def rows_of(frame: bytes) -> dict[tuple[str, int], list[tuple[int, list[bytes]]]]:
    """Codec and values of each message set, by topic and partition."""
    asked, _ = request(0).program(3).decode(frame, 10)
    assert frame[:10] == bytes.fromhex("0000 0003 00000000 ffff") and asked.acks == 0
    assert asked.transactionalId is None
    found = {}
    for topic in asked.topicData:
        for part in topic.partitionData:
            sets = list(decode_batches(part.records, size_max=SIZE_MAX))
            assert {(r.key, r.timestamp) for b in sets for r in b.records} == {(None, -1)}
            values = [(b.codec, [r.value for r in b.records]) for b in sets]
            assert (topic.name, part.index) not in found
            found[topic.name, part.index] = values
    return found


def test_sets_of_one_partition_are_joined() -> None:
    parts = [
        ProduceAsked("a", 0, kafka07.messages([b"1", b"2"])),
        ProduceAsked("b", 3, kafka07.messages([b"3"])),
        ProduceAsked("a", 0, kafka07.messages([b"4"])),
        ProduceAsked("a", 1, b""),
    ]
    assert rows_of(produce_request(parts, SIZE_MAX)) == {
        ("a", 0): [(0, [b"1", b"2", b"4"])],
        ("b", 3): [(0, [b"3"])],
    }


@pytest.mark.parametrize("codec", [GZIP, SNAPPY])
def test_messages_beside_a_wrapper_become_one_wrapper(codec) -> None:
    data = kafka07.messages([b"1"]) + kafka07.wrapped([b"2", b"3"], codec) + kafka07.wrapped([b"4"])
    found = rows_of(produce_request([ProduceAsked("t", 0, data)], SIZE_MAX))
    assert found == {("t", 0): [(codec, [b"1", b"2", b"3", b"4"])]}


def test_nothing_to_produce() -> None:
    for data in (b"", kafka07.wrapped([])):
        assert produce_request([ProduceAsked("t", 0, data)], SIZE_MAX) is None
    assert produce_request([], SIZE_MAX) is None


@pytest.mark.parametrize("codec", [GZIP, SNAPPY])
def test_the_content_of_all_wrappers_is_limited_together(codec) -> None:
    data = kafka07.wrapped([bytes(990)], codec)
    two = [ProduceAsked("t", 0, data * 2), ProduceAsked("u", 0, data)]
    assert produce_request(two, 3000) is not None
    with pytest.raises(BadRequest, match="inflates to more"):
        produce_request(two, 2999)
    with pytest.raises(BadRequest, match="inflates to more"):
        produce_request([ProduceAsked("t", 0, data)], 999)


@pytest.mark.parametrize(
    "data",
    [
        kafka07.message(b"not gzip", codec=GZIP),
        kafka07.message(b"", codec=GZIP),
        kafka07.message(b"\xff\xff\xff\xff\x7f", codec=SNAPPY),
        kafka07.message(kafka07.wrapped([b"x"])[10:-3], codec=GZIP),
    ],
)
def test_damaged_wrappers_are_refused(data) -> None:
    with pytest.raises(BadRequest):
        produce_request([ProduceAsked("t", 0, data)], SIZE_MAX)


@given(st.integers(-1, 6), st.binary(max_size=60), st.data())
def test_hostile_requests_raise_bad_request_only(kind, noise, data) -> None:
    bodies = [
        kafka07.produce_body("t", 0, kafka07.wrapped([b"v" * 40]) + kafka07.message(b"w")),
        kafka07.fetch_body("t", 0, 5, 100),
        b"\0\2" + kafka07.fetch_body("t", 0, 5, 100) * 2,
        b"\0\2" + kafka07.produce_body("t", 0, kafka07.message(b"w")) * 2,
        kafka07.place("t", 0) + bytes(12),
    ]
    valid = bodies[kind % 5]
    at = data.draw(st.integers(0, len(valid)))
    for body in (valid[:at], noise, valid[:at] + noise, valid[:at] + noise + valid[at + 1 :]):
        try:
            asked = frames.parse_request(kind, b"xx" + body, 2)
            if kind in (0, 3):
                produce_request(asked, 1000)
        except BadRequest:
            pass


def test_every_cut_of_a_request_is_refused() -> None:
    bodies = {
        0: kafka07.produce_body("t", 0, kafka07.message(b"w")),
        1: kafka07.fetch_body("t", 0, 5, 100),
        2: b"\0\2" + kafka07.fetch_body("t", 0, 5, 100) * 2,
        3: b"\0\2" + kafka07.produce_body("t", 0, kafka07.message(b"w")) * 2,
        4: kafka07.place("t", 0) + bytes(12),
    }
    for kind, body in bodies.items():
        assert frames.parse_request(kind, body, 0)
        for size in range(len(body)):
            with pytest.raises(BadRequest):
                frames.parse_request(kind, body[:size], 0)
