"""Bytes that are not a Fetch request give MalformedMessage (the connection is closed), whatever is
wrong with them, and leave no session memory behind."""

import random
from collections.abc import Iterator

import pytest
from native.fetch_broker import FetchBroker
from oracle.fetch_scenarios import batch, part, step

from barnabas.cext.codec.wire import MalformedMessage
from barnabas.cext.fetch.fetch import ParkedFetch
from barnabas.wire import request
from barnabas.wire.headers import decode_request_header, encode_request

VERSIONS = [4, 5, 7, 9, 11, 12, 13, 15, 17, 18]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FetchBroker]:
    made = FetchBroker(tmp_path_factory.mktemp("logs"), {"t": 2, "u": 1})
    made.append("t", 0, batch(300))
    yield made
    made.close()


def frame_of(broker: FetchBroker, version: int) -> bytes:
    sessions = version >= 7
    wanted = step(
        "s",
        version,
        topics=[("t", [part(0, 0, 1000), part(1, 0)]), ("u", [part(0, 0)])],
        forget=[("u", [0, 3])] if sessions else [],
        epoch=0 if sessions else -1,
    )
    body = broker.runner.body(wanted)
    if version >= 12:
        body.clusterId = "some cluster"
        body.unknown = ((9, b"from the future"),)
        body.topics[0].unknown = ((0, b""),)
        body.topics[0].partitions[0].unknown = ((5, b"x" * 200),)
    if version >= 11:
        body.rackId = "rack"
    if version >= 17:
        body.topics[0].partitions[0].replicaDirectoryId = bytes(range(16))
    if version >= 18:
        body.topics[0].partitions[1].highWatermark = 7
    return encode_request(1, version, 7, "tests", body, framed=False)


def outcome(broker: FetchBroker, frame: bytes) -> str:
    try:
        answer = broker.native.handle_frame(frame)
    except MalformedMessage:
        return "closed"
    if isinstance(answer, ParkedFetch):
        answer.abandon()
        return "parked"
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4
    return "answered"


@pytest.mark.parametrize("version", VERSIONS)
def test_request_whole_is_answered_and_cut_at_every_byte_is_closed(
    broker: FetchBroker, version: int
) -> None:
    frame = frame_of(broker, version)
    assert outcome(broker, frame) == "answered"
    for size in range(len(frame)):
        assert outcome(broker, frame[:size]) == "closed", size
    assert outcome(broker, frame + b"\0") == "closed"


@pytest.mark.parametrize("version", VERSIONS)
def test_mutated_requests_are_read_as_the_codec_reads_them(
    broker: FetchBroker, version: int
) -> None:
    """The native handler answers requests that the codec reads, and closes on those that it
    refuses. A name that is not UTF-8 is the one exception: the native handler treats it as an
    unknown topic."""
    chance = random.Random(version)
    frame = frame_of(broker, version)
    header, body_at = decode_request_header(frame)
    seen = {"closed": 0, "answered": 0, "parked": 0}
    for _ in range(1500):
        damaged = bytearray(frame)
        for _ in range(chance.choice([1, 1, 2, 5])):
            at = chance.randrange(body_at, len(damaged))
            damaged[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        got = outcome(broker, bytes(damaged))
        seen[got] += 1
        try:
            request(1).decode(bytes(damaged), version, body_at)
            assert got != "closed", damaged.hex()
        except MalformedMessage as e:
            assert got == "closed" or "UTF-8" in str(e), (str(e), damaged.hex())
    assert seen["closed"] > 20 and seen["answered"] > 100, seen


@pytest.mark.parametrize(
    ("version", "count"),
    [
        (4, b"\x7f\xff\xff\xff"),
        (4, b"\xff\xff\xff\xff"),
        (13, b"\xff\xff\xff\xff\x0f"),
        (13, b"\0"),
    ],
)
def test_counts_beyond_the_bytes_are_closed(
    broker: FetchBroker, version: int, count: bytes
) -> None:
    empty = request(1).cls()
    head = encode_request(1, version, 7, "tests", empty, framed=False)
    _, body_at = decode_request_header(head)
    fixed = (4 if version < 15 else 0) + 13 + (8 if version >= 7 else 0)
    assert outcome(broker, head) in ("answered", "parked")
    assert outcome(broker, head[: body_at + fixed] + count + b"\0" * 64) == "closed"


def test_more_partitions_than_the_limit_are_closed(broker: FetchBroker) -> None:
    wanted = step("s", 4, topics=[("t", [part(0, 0)])])
    body = broker.runner.body(wanted)
    body.topics[0].partitions *= 262_144
    assert outcome(broker, encode_request(1, 4, 7, "t", body, framed=False)) == "answered"
    body.topics[0].partitions.append(body.topics[0].partitions[0])
    assert outcome(broker, encode_request(1, 4, 7, "t", body, framed=False)) == "closed"


def test_other_versions_and_keys_are_not_taken(broker: FetchBroker) -> None:
    frame = frame_of(broker, 12)
    for key, version in [(1, 3), (1, 19), (1, -1), (0, 12), (2, 12)]:
        head = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True)
        assert outcome(broker, head + frame[4:]) == "closed"


def test_sessions_of_damaged_requests_are_given_back(broker: FetchBroker) -> None:
    broker.sessions.slots_max = 0
    assert broker.sessions.counters["memory_bytes"] == 0
    broker.sessions.slots_max = 100
