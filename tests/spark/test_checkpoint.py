"""Spark's checkpoint directories: the bytes that Spark writes, and damage named by its file."""

import os
import threading

import pytest

from barnabas.spark.checkpoint import Checkpoint
from barnabas.spark.failures import (
    CheckpointError,
    ChecksumMismatch,
    ConcurrentWriter,
    IncompleteCheckpoint,
    TruncatedFile,
    UnfinishedBatch,
    UnknownVersion,
)
from barnabas.spark.files import LocalFiles, checksums, files_at
from barnabas.spark.offsets import offsets_json, parse_offsets, topic_ids

# As Spark 4.2.0 wrote them on a local disk.
METADATA = b'{"id":"ebfbbeba-f42a-473f-9318-c23b1a969ff4"}'
CONF = '"spark.sql.shuffle.partitions":"200"'
OFFSETS = '{"t100":{"0":499556,"1":499790,"2":500876,"3":499777}}'
TIMES = '"batchWatermarkMs":0,"batchTimestampMs":1763768400000'
PLANNED = f'v1\n{{{TIMES},"conf":{{{CONF}}}}}\n{OFFSETS}'.encode()
COMMITTED = b'v1\n{"nextBatchWatermarkMs":0}'
INITIAL = b'\0v1\n{"t100":{"0":0,"1":0,"2":0,"3":0}}'


@pytest.fixture
def place(tmp_path):
    """Two batches, the second not committed."""
    files = LocalFiles(tmp_path / "cp")
    files.put_if_absent("metadata", METADATA)
    files.put_if_absent("sources/0/0", INITIAL)
    for n in (0, 1):
        files.put_if_absent(f"offsets/{n}", PLANNED)
    files.put_if_absent("commits/0", COMMITTED)
    return tmp_path / "cp"


def checkpoint_at(place):
    return Checkpoint(LocalFiles(place))


def content(place):
    return {
        os.path.relpath(os.path.join(folder, name), place): open(
            os.path.join(folder, name), "rb"
        ).read()
        for folder, _, names in os.walk(place)
        for name in names
    }


def test_what_spark_wrote_is_read(place):
    checkpoint = checkpoint_at(place)
    assert checkpoint.query_id() == "ebfbbeba-f42a-473f-9318-c23b1a969ff4"
    batch = checkpoint.batch(1)
    assert batch.kafka() == {"t100": {0: 499556, 1: 499790, 2: 500876, 3: 499777}}
    assert batch.metadata["conf"] == {"spark.sql.shuffle.partitions": "200"}
    assert batch.encoded() == PLANNED
    assert checkpoint.initial() == {"t100": {0: 0, 1: 0, 2: 0, 3: 0}}
    assert checkpoint.unfinished() == 1
    assert checkpoint.last_committed().batch_id == 0
    assert checkpoint.verify().problems == []


def test_what_is_written_are_sparks_bytes(tmp_path):
    checkpoint = checkpoint_at(tmp_path)
    checkpoint.create(query_id="ebfbbeba-f42a-473f-9318-c23b1a969ff4")
    offsets = {"t100": {3: 0, 0: 0, 2: 0, 1: 0}}
    checkpoint.begin_at(offsets, now_ms=1763768400000)
    line = OFFSETS
    checkpoint.plan(1, [line], now_ms=1763768400000, conf={"spark.sql.shuffle.partitions": "200"})
    assert (tmp_path / "metadata").read_bytes() == METADATA
    assert (tmp_path / "sources/0/0").read_bytes() == INITIAL
    assert (tmp_path / "offsets/1").read_bytes() == PLANNED
    assert (tmp_path / "commits/0").read_bytes() == COMMITTED
    assert {".metadata.crc", "metadata"} <= set(os.listdir(tmp_path))
    assert not [name for name in content(tmp_path) if name.endswith(".tmp")]


def test_the_checksum_file_is_hadoops():
    # CRC-32 of "123456789" is cbf43926 wherever it is computed.
    assert checksums(b"123456789") == b"crc\0\0\0\x02\0" + bytes.fromhex("cbf43926")
    assert len(checksums(bytes(513))) == 8 + 8
    assert checksums(b"") == b"crc\0\0\0\x02\0"


FILES = ["metadata", "offsets/1", "offsets/0", "commits/0", "sources/0/0"]


def reads(checkpoint):
    checkpoint.query_id()
    checkpoint.initial()
    for n in checkpoint.batch_ids():
        checkpoint.batch(n)
    for n in checkpoint.batch_ids("commits"):
        checkpoint.commit(n)


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_at_any_byte_is_named(place, name):
    data = (place / name).read_bytes()
    crc = place / os.path.dirname(name) / f".{os.path.basename(name)}.crc"
    crc.unlink()
    for size in range(len(data)):
        (place / name).write_bytes(data[:size])
        before = content(place)
        with pytest.raises((TruncatedFile, UnknownVersion), match=f"^{place}/{name}: ") as raised:
            reads(checkpoint_at(place))
        found = checkpoint_at(place).verify().problems
        assert [p.path for p in found] == [str(place / name)], (size, raised.value)
        assert content(place) == before


@pytest.mark.parametrize("name", FILES)
def test_a_crc_that_does_not_match_is_named(place, name):
    data = bytearray((place / name).read_bytes())
    data[-1] ^= 1
    (place / name).write_bytes(data)
    with pytest.raises(ChecksumMismatch, match=f"^{place}/{name}: bytes 0 to 512 do not"):
        reads(checkpoint_at(place))
    assert [p.path for p in checkpoint_at(place).verify().problems] == [str(place / name)]


def test_a_crc_of_another_size_or_kind_is_named(place):
    crc = place / "offsets/.1.crc"
    good = crc.read_bytes()
    for damaged, words in [
        (good[:-4], "size does not match"),
        (good + b"\0\0\0\0", "size does not match"),
        (b"sum" + good[3:], "not a checksum file"),
        (b"", "not a checksum file"),
    ]:
        crc.write_bytes(damaged)
        with pytest.raises(ChecksumMismatch, match=words):
            checkpoint_at(place).batch(1)
    crc.unlink()
    checkpoint_at(place).batch(1)


@pytest.mark.parametrize("name", ["offsets/1", "commits/0", "sources/0/0"])
@pytest.mark.parametrize("version", [b"v9", b"w1", b"1", b"vx", b"v" + b"9" * 5000])
def test_an_unknown_version_is_named_and_nothing_is_written(place, name, version):
    data = (place / name).read_bytes()
    LocalFiles(place).replace(name, data.replace(b"v1", version))
    before = content(place)
    with pytest.raises(UnknownVersion, match=f"^{place}/{name}: "):
        reads(checkpoint_at(place))
    for act in (
        lambda c: c.commit_batch(1) if name == "offsets/1" else reads(c),
        lambda c: c.rewind(0, replay=True) if name == "offsets/0" else reads(c),
    ):
        with pytest.raises(UnknownVersion):
            act(checkpoint_at(place))
    assert content(place) == before


@pytest.mark.parametrize("name", ["metadata", "offsets/1", "commits/0", "sources/0/0"])
def test_json_that_is_nested_too_deeply_is_named(place, name):
    """Python raises RecursionError for it, which is no ValueError."""
    head, _, _ = (place / name).read_bytes().rpartition(b"{")
    LocalFiles(place).replace(name, head + b'{"a":' + b"[" * 2000)
    with pytest.raises(TruncatedFile, match=f"^{place}/{name}: "):
        reads(checkpoint_at(place))


def test_two_writers_of_a_batch(place):
    """Of several writers of the same name all but the first get FileExistsError."""
    won, lost = [], []
    start = threading.Barrier(8)

    def write(number):
        start.wait()
        try:
            checkpoint_at(place).files.put_if_absent("offsets/2", b"%d" % number * 700)
            won.append(number)
        except FileExistsError:
            lost.append(number)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1 and len(lost) == 7
    assert LocalFiles(place).read("offsets/2") == b"%d" % won[0] * 700
    assert not [name for name in content(place) if name.endswith(".tmp")]


def test_a_second_writer_is_named_and_nothing_is_overwritten(place):
    before = content(place)
    checkpoint = checkpoint_at(place)
    with pytest.raises(ConcurrentWriter, match=f"^{place}/offsets/1: batch 1 is already planned"):
        checkpoint.plan(1, [OFFSETS], now_ms=1)
    with pytest.raises(ConcurrentWriter, match=f"^{place}/commits/0: "):
        checkpoint.commit_batch(0)
    with pytest.raises(ConcurrentWriter, match=f"^{place}/metadata: "):
        checkpoint.create()
    assert content(place) == before


def test_a_batch_is_planned_when_the_one_before_it_is_committed(place):
    checkpoint = checkpoint_at(place)
    with pytest.raises(IncompleteCheckpoint, match=f"^{place}/commits/1: batch 2 cannot"):
        checkpoint.plan(2, [OFFSETS], now_ms=1)
    checkpoint.commit_batch(1)
    with pytest.raises(IncompleteCheckpoint):
        checkpoint.plan(3, [OFFSETS], now_ms=1)
    checkpoint.plan(2, [OFFSETS], now_ms=1)
    with pytest.raises(IncompleteCheckpoint, match=f"^{place}/offsets/3: "):
        checkpoint.commit_batch(3)


def test_old_batches_go_and_the_newest_stay(tmp_path):
    checkpoint = checkpoint_at(tmp_path)
    checkpoint.create()
    for n in range(12):
        checkpoint.plan(n, [OFFSETS], now_ms=n)
        checkpoint.commit_batch(n)
        checkpoint.retain(2)
    assert checkpoint.batch_ids() == checkpoint.batch_ids("commits") == [9, 10, 11]
    assert not (tmp_path / "offsets/.8.crc").exists()
    assert checkpoint.verify().problems == []


def test_a_rewind_at_every_crash_leaves_a_checkpoint(tmp_path):
    class Dying(LocalFiles):
        left = 10**9

        def delete(self, path):
            if Dying.left == 0:
                raise KeyboardInterrupt
            Dying.left -= 1
            super().delete(path)

    for crash in range(9):
        checkpoint = Checkpoint(Dying(tmp_path / str(crash)))
        checkpoint.create()
        for n in range(6):
            line = offsets_json({"t": {0: n * 10}})
            checkpoint.plan(n, [line], now_ms=n)
            checkpoint.commit_batch(n)
        Dying.left = crash
        try:
            assert checkpoint.rewind(1) == [5, 4, 3, 2]
            assert crash >= 8
        except KeyboardInterrupt:
            assert crash < 8
        Dying.left = 10**9
        assert checkpoint.verify().problems == []
        assert checkpoint.rewind(1, replay=True) is not None
        assert checkpoint.last_planned().batch_id == checkpoint.last_committed().batch_id == 1
        checkpoint.plan(2, [OFFSETS], now_ms=9)


def test_an_unfinished_batch_is_not_rewound_without_permission(place):
    checkpoint = checkpoint_at(place)
    before = content(place)
    with pytest.raises(UnfinishedBatch, match=f"^{place}/offsets/1: batch 1 was planned"):
        checkpoint.rewind(0)
    with pytest.raises(IncompleteCheckpoint, match="committed batches: 0 to 0"):
        checkpoint.rewind(7, replay=True)
    assert content(place) == before
    assert checkpoint.rewind(0, replay=True) == [1]


@pytest.mark.parametrize(
    ("gone", "named"),
    [
        ("offsets/0", None),  # retention may have taken it
        ("commits/1", "commits/1"),
        ("offsets/2", "offsets/2"),
        ("offsets/3", "offsets/3"),
        ("metadata", "metadata"),
    ],
)
def test_verify_names_what_is_missing(tmp_path, gone, named):
    checkpoint = checkpoint_at(tmp_path)
    checkpoint.create()
    for n in range(4):
        checkpoint.plan(n, [OFFSETS], now_ms=n)
        checkpoint.commit_batch(n)
    checkpoint.files.delete(gone)
    if gone == "offsets/0":
        checkpoint.files.delete("commits/0")
    found = [os.path.relpath(p.path, tmp_path) for p in checkpoint.verify().problems]
    assert found == ([named] if named else [])


def test_verify_names_the_missing_commit_of_a_batch_that_another_follows(tmp_path):
    checkpoint = checkpoint_at(tmp_path)
    checkpoint.create()
    for n in range(3):
        checkpoint.plan(n, [OFFSETS], now_ms=n)
        checkpoint.commit_batch(n)
    for n in (1, 2):
        checkpoint.files.delete(f"commits/{n}")
    (problem,) = checkpoint.verify().problems
    assert problem.path == f"{tmp_path}/commits/1"


def test_verify_names_offsets_that_go_back(tmp_path):
    checkpoint = checkpoint_at(tmp_path)
    checkpoint.create()
    for n, offset in enumerate([5, 9, 7]):
        checkpoint.plan(n, [offsets_json({"t": {0: offset}})], now_ms=n)
        checkpoint.commit_batch(n)
    (problem,) = checkpoint.verify().problems
    assert str(problem) == f"{tmp_path}/offsets/2: the offset of t-0 goes back from 9 to 7"


def test_topic_ids_follow_the_offsets(tmp_path):
    checkpoint = checkpoint_at(tmp_path)
    checkpoint.create()
    for n, (offset, letter) in enumerate([(5, b"\1"), (9, b"\1"), (7, b"\2")]):
        line = offsets_json({"t": {0: offset}, "u": {0: n}}, {"t": letter * 16})
        checkpoint.plan(n, [line], now_ms=n)
        checkpoint.commit_batch(n)
    assert line == '{"t":{"0":7},"u":{"0":2},"t#AgICAgICAgICAgICAgICAg":{}}'
    batch = checkpoint.last_committed()
    assert batch.kafka() == {"t": {0: 7}, "u": {0: 2}}
    assert batch.topic_ids() == {"t": b"\2" * 16}
    assert checkpoint.verify().problems == []  # the new topic begins at 0 again
    assert topic_ids('{"t":{"0":7},"t#no id":{}}') == {} == topic_ids("17")


def test_other_sources_and_no_offset_yet_are_kept(tmp_path):
    checkpoint = checkpoint_at(tmp_path)
    checkpoint.create()
    checkpoint.plan(0, [None, "17", OFFSETS], now_ms=1)
    assert (tmp_path / "offsets/0").read_bytes().endswith(b"}\n-\n17\n" + OFFSETS.encode())
    batch = checkpoint.batch(0)
    assert list(batch.sources) == [None, "17", OFFSETS]
    assert list(batch.kafka()) == ["t100"]


def test_offsets_with_spaces_are_read_too():
    assert parse_offsets('{"t": {"0": 5, "11": 7}}') == {"t": {0: 5, 11: 7}}
    assert offsets_json({"u": {}, "t": {11: 7, 2: 5}}) == '{"t":{"2":5,"11":7},"u":{}}'
    for bad in ("[]", '{"t":5}', '{"t":{"x":5}}', '{"t":{"0":"5"}}', '{"t":{"0":-3}}', "{"):
        with pytest.raises(ValueError):
            parse_offsets(bad)


def test_commits_of_version_2_are_read(place):
    text = b'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{"0":[["a"]]}}'
    LocalFiles(place).replace("commits/0", text)
    assert checkpoint_at(place).last_committed().batch_id == 0


def test_an_unsupported_store_is_an_error():
    with pytest.raises(CheckpointError, match="ftp: is not supported"):
        files_at("ftp://nn:8020/cp")
    assert files_at("file:///tmp/x").shown("offsets/0") == "/tmp/x/offsets/0"
