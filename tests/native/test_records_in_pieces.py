"""Records that are checked in pieces get the same verdict as whole ones, however the body is
cut."""

import random

import lz4.frame
import pytest
import snappy
from oracle.produce import NOW_MS, TOPICS, partitions_of, produce_answer, produce_frame, record

from barnabas.cext.record.records import Record, encode_records, seal_batch
from barnabas.wire.compression import XERIAL_HEADER

DAY = 86_400_000


def sealed(body: bytes, count: int, base: int, payload: bytes = b"opened by the test") -> bytes:
    """A gzip batch with a header for `body`; its own body is never read."""
    return seal_batch(
        payload,
        count=count,
        last_offset_delta=count - 1,
        base_timestamp=base,
        max_timestamp=base,
        attributes=1,
    )


def verdict(broker, topic: str, batch: bytes, answer) -> tuple:
    """The partition's response after `answer` did the decode job."""
    parked = broker.native.handle_frame(produce_frame([(topic, 0, batch)]))
    job = broker.native.decodes.next(0)
    answer(job)
    told = partitions_of(produce_answer(parked.resume()))[0]
    named = [(row.batchIndex, row.batchIndexErrorMessage) for row in told.recordErrors]
    return told.errorCode, told.errorMessage, named


def in_pieces(body: bytes, cuts: list[int]):
    def answer(job) -> None:
        for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True):
            job.check(body[start:end])
        job.checked()

    return answer


def some_record(draw: random.Random) -> Record:
    size = draw.choice([0, 1, 5, 70, 300])
    headers = [("h" * draw.randrange(4), draw.choice([None, b"", b"x" * 70]))] * draw.randrange(3)
    return Record(
        draw.choice([None, bytes(size)]),
        draw.choice([None, b"", b"key", bytes(size)]),
        timestamp=NOW_MS + draw.choice([0, 0, 0, 1, -1, -2 * DAY, 2 * DAY]),
        headers=headers,
    )


def damaged(draw: random.Random, body: bytes) -> bytes:
    """One of: a byte changed, the end cut off, bytes added, unchanged."""
    way = draw.randrange(5)
    at = draw.randrange(len(body))
    if way == 0:
        return body[:at] + bytes([draw.choice([0, 1, 2, 0x7F, 0x80, 0xFF])]) + body[at + 1 :]
    if way == 1:
        return body[:at]
    if way == 2:
        return body + bytes(draw.randrange(1, 9))
    if way == 3:
        return body[:at] + bytes(draw.randrange(1, 4)) + body[at:]
    return body


@pytest.fixture
def topics(broker, now):
    for name in ("plain", "compacted", "bounded", "appendtime"):
        broker.topic(name, **TOPICS[name][1])
    return broker


@pytest.fixture
def now(broker):
    broker.system.move_wall_clock(NOW_MS - broker.system.wall_ms())


def test_every_cut_of_damaged_and_sound_bodies(topics):
    draw = random.Random(7)
    seen = set()
    for _ in range(3000):
        records = [some_record(draw) for _ in range(draw.randrange(1, 6))]
        body, count, _, base, _ = encode_records(records)
        body = damaged(draw, body)
        count += draw.choice([0] * 8 + [1, -1 if count > 1 else 0])
        topic = draw.choice(["plain", "compacted", "bounded", "appendtime"])
        batch = sealed(body, count, base)
        whole = verdict(topics, topic, batch, lambda job, body=body: job.done(body))
        seen.add(whole[0])
        few = sorted(draw.randrange(len(body) + 1) for _ in range(draw.randrange(4)))
        for cuts in (few, list(range(1, len(body)))):
            assert verdict(topics, topic, batch, in_pieces(body, cuts)) == whole, (body, cuts)
    assert seen == {0, 32, 87}


def test_rejected_records_are_named_up_to_the_limit(topics):
    for topic, one, code in (
        ("compacted", record(key=None), 87),
        ("bounded", record(timestamp=NOW_MS - DAY), 32),
    ):
        body, count, _, base, _ = encode_records([one] * 500)
        got = verdict(topics, topic, sealed(body, count, base), in_pieces(body, [1000]))
        assert got[0] == code and [index for index, _ in got[2]] == list(range(100))


@pytest.mark.parametrize("damage", [b"\x80" * 5, b"\x80" * 11, b"\xff" * 10])
def test_numbers_without_an_end(topics, damage):
    """As the length of a record, and as each number inside one."""
    body, count, _, base, _ = encode_records([record(b"v" * 40)] * 2)
    for at in range(8):
        bad = body[:at] + damage + body[at:]
        batch = sealed(bad, count, base)
        for cuts in ([], list(range(1, len(bad)))):
            assert verdict(topics, "plain", batch, in_pieces(bad, cuts))[0] == 87


def test_more_than_the_limit_is_too_large(topics):
    body, count, _, base, _ = encode_records([record()])

    def answer(job) -> None:
        piece = bytes(job.size_max // 4 + 1)
        for _ in range(4):
            job.check(piece)
        job.checked()

    assert verdict(topics, "plain", sealed(body, count, base), answer)[0] == 10


def test_a_job_that_compresses_again_takes_no_pieces(broker, now):
    broker.topic("gzipped", codec=4)
    body, count, _, base, _ = encode_records([record()])

    def answer(job) -> None:
        with pytest.raises(RuntimeError):
            job.check(body)
        job.done(body, b"made anew")

    assert verdict(broker, "gzipped", sealed(body, count, base), answer)[0] == 0


def many_records(draw: random.Random) -> tuple[bytes, int, int]:
    """About 1 MiB of small records: a lost or repeated byte makes them invalid."""
    records = [
        Record(draw.randbytes(draw.randrange(40)) * draw.randrange(1, 4), b"k", timestamp=NOW_MS)
        for _ in range(20_000)
    ]
    body, count, _, base, _ = encode_records(records)
    assert len(body) > 1 << 19
    return body, count, base


def lz4_frame(body: bytes, **options) -> bytes:
    return lz4.frame.compress(body, **options)


def xerial(body: bytes, chunk_bytes: int) -> bytes:
    parts = [XERIAL_HEADER]
    for at in range(0, len(body), chunk_bytes):
        block = snappy.compress(body[at : at + chunk_bytes])
        parts += [len(block).to_bytes(4, "big"), block]
    return b"".join(parts)


WAYS = {
    "lz4 of 64 KiB": (3, lambda b: lz4_frame(b, block_size=4, block_linked=False)),
    "lz4 of 64 KiB, linked": (3, lambda b: lz4_frame(b, block_size=4, block_linked=True)),
    "lz4 of 256 KiB, linked": (3, lambda b: lz4_frame(b, block_size=5, block_linked=True)),
    "lz4 of 4 MiB": (3, lambda b: lz4_frame(b, block_size=7, block_linked=False)),
    "lz4 with sums": (
        3,
        lambda b: lz4_frame(b, block_size=4, content_checksum=True, block_checksum=True),
    ),
    "snappy as Java": (2, lambda b: xerial(b, 32 << 10)),
    "snappy of large chunks": (2, lambda b: xerial(b, 700_000)),
    "snappy in one block": (2, snappy.compress),
}


@pytest.mark.parametrize("name", WAYS)
def test_lz4_and_snappy_are_opened_in_pieces(broker, now, name):
    broker.topic("large", message_bytes_max=8 << 20)
    codec, compress = WAYS[name]
    body, count, base = many_records(random.Random(1))

    def code(content: bytes, records: int) -> int:
        batch = seal_batch(
            compress(content),
            count=records,
            last_offset_delta=records - 1,
            base_timestamp=base,
            max_timestamp=NOW_MS,
            attributes=codec,
        )
        return broker.one("large", 0, batch).errorCode

    assert code(body, count) == 0
    assert code(body[:-1], count) == 87
    assert code(body + b"\0", count) == 87
    assert code(body, count - 1) == 87
    middle = len(body) // 2
    assert code(body[:middle] + body[middle + 1 :], count) == 87
