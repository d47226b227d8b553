"""The file sink's log: its contents are the newest compacted batch and all batches after it."""

import os

import pytest

from barnabas.spark.failures import (
    ChecksumMismatch,
    ConcurrentWriter,
    IncompleteCheckpoint,
    TruncatedFile,
    UnknownVersion,
)
from barnabas.spark.files import LocalFiles
from barnabas.spark.sink_log import SinkFile, SinkLog

LINE = (
    b'{"path":"file:///out/part-0.parquet","size":1077,"isDir":false,'
    b'"modificationTime":1763768400000,"blockReplication":1,"blockSize":33554432,"action":"add"}'
)


def part(batch_id, number=0):
    return SinkFile(f"file:///out/part-{batch_id}-{number}.parquet", 100 + number, 1763768400000)


@pytest.fixture
def log(tmp_path):
    return SinkLog(LocalFiles(tmp_path))


def fill(log, count):
    for n in range(count):
        log.add(n, [part(n, i) for i in range(4)])


def test_a_line_is_sparks(log, tmp_path):
    log.add(0, [SinkFile("file:///out/part-0.parquet", 1077, 1763768400000)])
    assert (tmp_path / "_spark_metadata/0").read_bytes() == b"v1\n" + LINE


def test_every_tenth_batch_holds_all_before_it(log, tmp_path):
    fill(log, 12)
    names = sorted(n for n in os.listdir(tmp_path / "_spark_metadata") if n[0] != ".")
    assert names == sorted([str(n) for n in range(9)] + ["9.compact", "10", "11"])
    assert (tmp_path / "_spark_metadata/9.compact").read_bytes().count(b"\n") == 40
    assert log.current() == [part(n, i) for n in range(12) for i in range(4)]
    for n in range(9):
        log.files.delete(f"_spark_metadata/{n}")
    assert log.current() == [part(n, i) for n in range(12) for i in range(4)]
    fill_more = SinkLog(log.files)
    for n in range(12, 21):
        fill_more.add(n, [part(n)])
    assert len(fill_more.current()) == 48 + 9
    assert fill_more.batch_ids()[-2:] == [(19, True), (20, False)]


def test_what_is_compacted_goes_after_the_delay(log):
    fill(log, 12)
    now = log.files.modified_ms("_spark_metadata/9.compact")
    assert log.expire(now_ms=now + 599_000) == []
    assert len(log.expire(now_ms=now + 700_000)) == 9
    assert [n for n, _ in log.batch_ids()] == [9, 10, 11]
    assert len(log.current()) == 48


def test_damage_is_named(log, tmp_path):
    fill(log, 12)
    place = tmp_path / "_spark_metadata"
    good = (place / "10").read_bytes()
    (place / "10").write_bytes(good[:-1])
    with pytest.raises(ChecksumMismatch, match=f"^{place}/10: "):
        log.current()
    (place / ".10.crc").unlink()
    with pytest.raises(TruncatedFile, match=f"^{place}/10: "):
        log.current()
    (place / "10").write_bytes(b"v1\n" + b"[" * 2000)  # Python raises RecursionError for it
    with pytest.raises(TruncatedFile, match=f"^{place}/10: "):
        log.current()
    (place / "10").write_bytes(good.replace(b"v1", b"v3"))
    with pytest.raises(UnknownVersion, match=f"^{place}/10: version 'v3'"):
        log.current()
    (place / "10").unlink()
    with pytest.raises(IncompleteCheckpoint, match=f"^{place}/10: this batch is missing"):
        log.current()


def test_a_second_writer_is_reported(log, tmp_path):
    fill(log, 3)
    before = sorted(os.listdir(tmp_path / "_spark_metadata"))
    with pytest.raises(ConcurrentWriter, match=r"_spark_metadata/2: batch 2 is already in the log"):
        log.add(2, [])
    with pytest.raises(IncompleteCheckpoint, match=r"_spark_metadata/4: "):
        log.add(5, [])
    assert sorted(os.listdir(tmp_path / "_spark_metadata")) == before


def test_files_that_were_deleted_do_not_count(log):
    log.add(0, [part(0), part(0, 1)])
    log.add(1, [SinkFile(part(0).path, 100, 1763768400000, action="delete")])
    assert log.current() == [part(0, 1)]
