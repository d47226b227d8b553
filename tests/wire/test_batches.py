"""Record sets of every magic and codec, compared with those that Kafka's own classes wrote and
read.

tests/vectors/batches.jsonl.gz: written and read back by Apache Kafka 4.4.0's Java classes (3.9.2
for magic 0 and 1). Hostile input gives CorruptRecords and nothing else.
"""

import base64
import gzip
import json
import random
from pathlib import Path

import pytest

from barnabas.cext.record.records import CorruptRecords, Record
from barnabas.wire import batches, compression

VECTORS = Path(__file__).resolve().parents[1] / "vectors" / "batches.jsonl.gz"
with gzip.open(VECTORS, "rt") as lines:
    LINES = [json.loads(line) for line in lines]
NAMES = [line["name"] for line in LINES]
SIZE_MAX = 4_000_000
TIMESTAMP_TYPES = {
    "NoTimestampType": None,
    "CreateTime": batches.CREATE_TIME,
    "LogAppendTime": batches.APPEND_TIME,
}
NOW = 1_700_000_000_000
FEW = [
    Record(b"value one", b"k1", timestamp=NOW),
    Record(b"no key", timestamp=NOW + 250),
    Record(None, b"k3", timestamp=NOW - 1000),
    Record(b"", b"", timestamp=NOW + 5),
]
ALL_CODECS = [
    (magic, codec) for magic in (0, 1, 2) for codec in range(5) if magic == 2 or codec < 4
]


def unpacked(text):
    return None if text is None else base64.b64decode(text)


def record_of(row):
    headers = tuple((name, unpacked(value)) for name, value in row.get("headers", ()))
    return Record(
        unpacked(row["value"]),
        unpacked(row["key"]),
        timestamp=row["timestamp"],
        headers=headers,
        offset=row["offset"],
    )


def as_kafka_tells(batch):
    told = {
        "magic": batch.magic,
        "codec": compression.CODEC_NAMES.get(batch.codec, "unknown"),
        "timestampType": batch.timestamp_type,
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "maxTimestamp": batch.max_timestamp,
        "sizeInBytes": batch.size_bytes,
        "crc": batch.crc,
        "records": batch.records,
    }
    if batch.magic == 2:
        told |= {
            "leaderEpoch": batch.leader_epoch,
            "producerId": batch.producer_id,
            "producerEpoch": batch.producer_epoch,
            "baseSequence": batch.base_sequence,
            "lastSequence": batch.last_sequence,
            "transactional": batch.transactional,
            "control": batch.control,
        }
    return told


def expected_of(told):
    return told | {
        "timestampType": TIMESTAMP_TYPES[told["timestampType"]],
        "records": [record_of(row) for row in told["records"]],
    }


def decoded(data, **options):
    return list(batches.decode_batches(data, size_max=SIZE_MAX, **options))


def read_whole(data, **options):
    """Decodes all of it, with records. Returns every batch in the form of Kafka's vectors."""
    return [as_kafka_tells(batch) for batch in decoded(data, **options)]


def written_again(batch):
    """The batch encoded from its own records and header fields."""
    return batches.encode_batch(
        batch.records,
        base_offset=batch.base_offset,
        codec=batch.codec,
        timestamp_type=batch.timestamp_type or batches.CREATE_TIME,
        append_time=batch.max_timestamp if batch.timestamp_type == batches.APPEND_TIME else None,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.transactional,
        control=batch.control,
        leader_epoch=batch.leader_epoch,
        magic=batch.magic,
        keep_offsets=True,
        base_timestamp=batch.base_timestamp if batch.magic == 2 else None,
        delete_horizon=batch.delete_horizon,
        last_offset_delta=batch.last_offset - batch.base_offset,
        max_timestamp=batch.max_timestamp if batch.timestamp_type == batches.CREATE_TIME else None,
    )


def test_all_vectors_are_here():
    assert len(LINES) == len(set(NAMES)) == 139


@pytest.mark.parametrize("line", LINES, ids=NAMES)
def test_vector_is_read_as_kafka_read_it(line):
    assert read_whole(bytes.fromhex(line["hex"])) == [expected_of(b) for b in line["batches"]]


@pytest.mark.parametrize("line", LINES, ids=NAMES)
def test_vector_is_written_again(line):
    """Byte for byte without a codec; with one, by decoding again, because libraries differ.

    The first timestamps of append-time batches are not among the records as read: those keep the
    stored base timestamp and lose the others, so their bodies differ in the deltas.
    """
    data = bytes.fromhex(line["hex"])
    for batch in decoded(data):
        again = written_again(batch)
        stored = data[batch.start : batch.start + batch.size_bytes]
        lossy = batch.magic == 2 and batch.timestamp_type == batches.APPEND_TIME
        if batch.codec == compression.NONE and not lossy:
            assert again == stored
        told = as_kafka_tells(batch)
        (retold,) = read_whole(again)
        for own in ("crc", "sizeInBytes"):
            del told[own], retold[own]
        assert retold == told


def test_append_time_bodies_keep_the_producers_timestamps():
    """With the timestamps the producer gave, append-time vectors too come out byte for byte."""
    by_name = {line["name"]: line for line in LINES}
    compared = 0
    for name, line in by_name.items():
        if not name.startswith("v2/none/") or "/append-time/" not in name:
            continue
        told = line["batches"][0]
        created = by_name[name.replace("append-time", "create-time")]["batches"][0]
        data = batches.encode_batch(
            [record_of(row) for row in created["records"]],
            base_offset=told["baseOffset"],
            timestamp_type=batches.APPEND_TIME,
            append_time=told["maxTimestamp"],
            leader_epoch=told["leaderEpoch"],
        )
        assert data.hex() == line["hex"], name
        compared += 1
    assert compared == 5


@pytest.mark.parametrize(("magic", "codec"), ALL_CODECS)
@pytest.mark.parametrize("base", [0, 5_000_000_000])
def test_every_magic_and_codec_there_and_back(magic, codec, base):
    data = batches.encode_batch(FEW, magic=magic, codec=codec, base_offset=base)
    found = decoded(data)
    records = [record for batch in found for record in batch.records]
    assert len(found) == (4 if magic < 2 and codec == 0 else 1)
    assert [x.offset for x in records] == [base, base + 1, base + 2, base + 3]
    assert [(x.key, x.value) for x in records] == [(x.key, x.value) for x in FEW]
    assert [x.timestamp for x in records] == [x.timestamp if magic else -1 for x in FEW]
    assert found[0].base_offset == base and found[-1].last_offset == base + 3
    if magic:
        assert max(batch.max_timestamp for batch in found) == NOW + 250


@pytest.mark.parametrize(("magic", "codec"), [case for case in ALL_CODECS if case[0]])
def test_append_time_replaces_every_timestamp(magic, codec):
    data = batches.encode_batch(
        FEW, magic=magic, codec=codec, timestamp_type=batches.APPEND_TIME, append_time=NOW + 9999
    )
    for batch in decoded(data):
        assert batch.timestamp_type == batches.APPEND_TIME
        assert {record.timestamp for record in batch.records} == {NOW + 9999}


@pytest.mark.parametrize(("magic", "codec"), ALL_CODECS)
def test_gaps_of_compaction_are_kept(magic, codec):
    rows = [Record(b"v", b"k", timestamp=NOW, offset=offset) for offset in (10, 11, 15, 19)]
    data = batches.encode_batch(rows, magic=magic, codec=codec, base_offset=10, keep_offsets=True)
    found = [record.offset for batch in decoded(data) for record in batch.records]
    assert found == [10, 11, 15, 19]


def test_mixed_magics_in_one_set():
    parts = [
        batches.encode_batch(FEW, magic=magic, codec=codec, base_offset=10 * i)
        for i, (magic, codec) in enumerate(ALL_CODECS)
    ]
    found = decoded(b"".join(parts))
    assert {(batch.magic, batch.codec) for batch in found} == set(ALL_CODECS)
    assert [r.offset for b in found for r in b.records] == [
        10 * i + j for i in range(len(parts)) for j in range(4)
    ]


def test_values_alone_and_views():
    for magic, codec in ALL_CODECS:
        data = batches.encode_batch([b"a", b"b"], magic=magic, codec=codec)
        for form in (data, bytearray(data), memoryview(data)):
            found = [record.value for batch in decoded(form) for record in batch.records]
            assert found == [b"a", b"b"], (magic, codec)


def test_sequence_numbers_wrap():
    data = batches.encode_batch(FEW, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    (batch,) = decoded(data)
    assert batch.last_sequence == 1


def test_records_are_decoded_only_when_asked_for():
    data = bytearray(batches.encode_batch(FEW))
    broken = bytearray(data)
    broken[61] = 1  # the first record's length; with a CRC that fits
    broken[17:21] = _crc32c(broken[21:])
    first, second = decoded(bytes(broken) + bytes(data))
    assert len(second.records) == 4 and second.records is second.records
    with pytest.raises(CorruptRecords) as caught:
        _ = first.records
    assert caught.value.position == 61 and caught.value.kind == "invalid"


def _crc32c(data):
    import crc32c

    return crc32c.crc32c(bytes(data)).to_bytes(4, "big")


def test_an_emptied_compressed_batch_has_no_records():
    data = bytearray(batches.encode_batch([], last_offset_delta=4, base_offset=3))
    data[22] |= compression.GZIP
    data[17:21] = _crc32c(data[21:])
    (batch,) = decoded(data)
    assert (batch.records, batch.count, batch.last_offset) == ([], 0, 7)


@pytest.mark.parametrize(("magic", "codec"), [case for case in ALL_CODECS if case[1]])
def test_a_batch_that_inflates_too_far_is_refused(magic, codec):
    data = batches.encode_batch([b"x" * 100_000], magic=magic, codec=codec)
    assert len(data) < 10_000
    (batch,) = batches.decode_batches(data, size_max=50_000)
    with pytest.raises(CorruptRecords) as caught:
        _ = batch.records
    assert caught.value.kind == "too large"
    assert isinstance(caught.value.__cause__, compression.DecompressedTooLarge)


def test_unknown_codecs_are_refused():
    for codec in (5, 6, 7):
        data = bytearray(batches.encode_batch(FEW))
        data[22] |= codec
        data[17:21] = _crc32c(data[21:])
        (batch,) = decoded(data)
        with pytest.raises(CorruptRecords, match="codec"):
            _ = batch.records


def test_a_wrapper_inside_a_wrapper_is_refused():
    from barnabas.cext.record.messageset import encode_wrapper

    inner = batches.encode_batch(FEW, magic=1, codec=compression.GZIP)
    content = compression.compress(compression.GZIP, inner, magic=1)
    data = encode_wrapper(content, magic=1, codec=compression.GZIP, offset=3)
    (batch,) = decoded(data)
    with pytest.raises(CorruptRecords, match="wrapper"):
        _ = batch.records


def test_a_wrapper_without_a_value_is_refused():
    from oracle.records import encode_entry

    with pytest.raises(CorruptRecords, match="without a value"):
        decoded(encode_entry(0, 0, None, None, magic=1, attributes=1))


@pytest.mark.parametrize(
    "name", ["v0/none/one", "v1/none/few", "v2/none/headers", "v1/gzip/few", "v2/lz4/one", "mixed"]
)
def test_cut_at_every_byte(name):
    """A cut inside a batch is refused, or with partial_tail gives the whole batches before it."""
    data = bytes.fromhex(next(line["hex"] for line in LINES if line["name"].startswith(name)))
    ends = [batch.start + batch.size_bytes for batch in decoded(data)]
    for size in range(len(data)):
        whole = sum(end <= size for end in ends)
        assert len(read_whole(data[:size], partial_tail=True)) == whole
        if size == 0 or size in ends:
            assert len(read_whole(data[:size])) == whole
        else:
            with pytest.raises(CorruptRecords):
                read_whole(data[:size])


def test_every_small_vector_cut_short():
    """All kinds of batch of up to 160 bytes, cut at every byte."""
    refused = 0
    for line in LINES:
        data = bytes.fromhex(line["hex"])
        if len(line["batches"]) > 1 or len(data) > 160:
            continue
        for size in range(1, len(data)):
            with pytest.raises(CorruptRecords):
                read_whole(data[:size])
            refused += 1
    assert refused > 9000


def test_random_changes_with_true_checksums_raise_nothing_else():
    """Damage with a matching CRC."""
    import zlib

    rng = random.Random(99)
    pool = [bytes.fromhex(line["hex"]) for line in LINES if len(line["hex"]) < 400]
    refused = accepted = 0
    for _ in range(4000):
        data = bytearray(rng.choice(pool))
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(21, len(data))] = rng.choice(
                [0, 1, 127, 128, 255, rng.randrange(256)]
            )
        if data[16] == 2:
            data[17:21] = _crc32c(data[21:])
        else:
            size_bytes = int.from_bytes(data[8:12], "big")
            data[12:16] = zlib.crc32(data[16 : 12 + size_bytes]).to_bytes(4, "big")
        try:
            read_whole(data)
            accepted += 1
        except CorruptRecords:
            refused += 1
    assert refused > 500 and accepted > 500


def test_what_a_format_cannot_carry_is_refused():
    for options in (
        dict(magic=1, producer_id=5),
        dict(magic=0, transactional=True),
        dict(magic=1, control=True),
        dict(magic=0, timestamp_type=1, append_time=5),
        dict(magic=1, codec=compression.ZSTD),
        dict(codec=7),
        dict(timestamp_type=batches.APPEND_TIME),
        dict(append_time=5),
    ):
        with pytest.raises(ValueError):
            batches.encode_batch([b""], **options)
    with pytest.raises(ValueError, match="at least one"):
        batches.encode_batch([], magic=1, codec=compression.GZIP)
