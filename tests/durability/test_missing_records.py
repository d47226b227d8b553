"""Partition directories and segments that were deleted or emptied while the broker was down: an
ERROR with the remedy, and no offset is used twice.

In the same case, Apache Kafka 4.3.1 logs nothing; it begins at 0 (directory) or where the last
remaining segment ends, and does not notice a gap.
"""

import logging
import os
import shutil

import pytest
from api.admin_calls import admin_on
from confluent_kafka import Consumer, KafkaError, TopicPartition
from node.test_failed_directories import half_made
from simulation.log_rows import batches_in

from barnabas.client import Cluster, Reader

COUNT, SIZE = 40, 1000
SEGMENT = {"segment_bytes": "10240"}  # 9 records


def written(tmp_path, **configs):
    """Forty batches in five segments, and a clean stop; the partition's directory."""
    with admin_on(tmp_path) as a:
        a.create("t", **SEGMENT, **configs)
        for _ in range(COUNT):
            assert a.produce("t", size=SIZE) == 0
        return a.data / "t-0"


def segments(folder):
    return sorted(folder.glob("*.log"))


def remove(path):
    for file in path.parent.glob(f"{path.stem}.*"):
        file.unlink()


def empty(path):
    path.write_bytes(b"")


def errors(caplog):
    return [row.getMessage() for row in caplog.records if row.levelno == logging.ERROR]


def lost_directory(folder):
    shutil.rmtree(folder)
    return 0


def emptied_directory(folder):
    for path in folder.iterdir():
        path.unlink()
    return 0


def emptied_only_segment(folder):
    for path in segments(folder)[1:]:
        remove(path)
    empty(segments(folder)[0])
    return 0


def lost_last_segment(folder):
    last = segments(folder)[-1]
    remove(last)
    return int(last.stem)


def emptied_last_segment(folder):
    last = segments(folder)[-1]
    empty(last)
    return int(last.stem)


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "unclean stop"])
@pytest.mark.parametrize(
    "loss",
    [
        lost_directory,
        emptied_directory,
        emptied_only_segment,
        lost_last_segment,
        emptied_last_segment,
    ],
)
def test_no_offset_is_given_again_when_the_end_of_a_log_is_lost(tmp_path, caplog, loss, clean):
    folder = written(tmp_path)
    left = loss(folder)
    if not clean:
        (folder.parent / ".kafka_cleanshutdown").unlink()
    for start in range(2):
        caplog.clear()
        with caplog.at_level(logging.ERROR), admin_on(tmp_path) as a:
            assert a.offset("t", -1) == COUNT + start
            assert a.produce("t") == 0
            assert a.offset("t", -1) == COUNT + start + 1
        if start == 0:
            (said,) = errors(caplog)
            assert f"offsets {left} to {COUNT - 1} are missing" in said
            assert f"go on at offset {COUNT}" in said and "back from a copy" in said
            assert str(folder) in said
        else:
            assert errors(caplog) == []


def test_no_offset_is_given_again_when_a_lost_log_cannot_be_made_at_once(tmp_path, monkeypatch):
    folder = written(tmp_path)
    shutil.rmtree(folder)
    refused = half_made(monkeypatch)
    with admin_on(tmp_path) as a:
        assert a.produce("t") == KafkaError.KAFKA_STORAGE_ERROR and refused == [folder]
        a.broker.clock.advance(seconds=10)
        assert a.produce("t") == 0
        assert a.offset("t", -1) == COUNT + 1


def test_readers_get_over_the_lost_end(tmp_path):
    """A reader that waits at the end of the log skips offsets without a record."""
    folder = written(tmp_path)
    left = lost_last_segment(folder)
    with admin_on(tmp_path) as a:
        with Cluster(a.broker.bootstrap_servers) as cluster:
            reader = Reader(cluster, "t", {0: left - 2}, to_end=True)
            assert [record.offset for _, record in reader] == [left - 2, left - 1]
        settings = {"bootstrap.servers": a.broker.bootstrap_servers, "group.id": "g"}
        consumer = Consumer(settings | {"enable.partition.eof": True})
        consumer.assign([TopicPartition("t", 0, left - 2)])
        seen = [consumer.poll(20) for _ in range(3)]
        assert [row.offset() for row in seen] == [left - 2, left - 1, COUNT]
        assert seen[2].error().code() == KafkaError._PARTITION_EOF
        consumer.close()


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "unclean stop"])
@pytest.mark.parametrize("damage", [remove, empty])
def test_a_lost_segment_in_the_middle_is_an_error_at_every_start(tmp_path, caplog, damage, clean):
    folder = written(tmp_path)
    bases = [int(path.stem) for path in segments(folder)]
    damage(segments(folder)[2])
    for _start in range(2):
        if not clean:
            (folder.parent / ".kafka_cleanshutdown").unlink()
            (folder.parent / "recovery-point-offset-checkpoint").unlink()
        caplog.clear()
        with caplog.at_level(logging.ERROR), admin_on(tmp_path) as a:
            assert (a.offset("t", -2), a.offset("t", -1)) == (0, COUNT)
        (said,) = errors(caplog)
        assert f"offsets {bases[2]} to {bases[3] - 1} are missing" in said


def test_records_behind_those_that_a_power_cut_has_taken_are_cut_off(tmp_path, caplog):
    """A new segment was on the disk, and not the last batch of the one before; no checkpoint was
    written since. The log must not have records without those before them: their producer sends
    the lost ones again, and then those behind them."""
    folder = written(tmp_path)
    before, last = segments(folder)[-2:]
    left = int(last.stem) - 1
    batches = list(batches_in(before.read_bytes()))
    os.truncate(before, batches[-1][0])
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint",
                 "replication-offset-checkpoint"):  # fmt: skip
        (folder.parent / name).unlink()
    kept = last.read_bytes()
    for start in range(2):
        caplog.clear()
        with caplog.at_level(logging.ERROR), admin_on(tmp_path) as a:
            assert a.offset("t", -1) == COUNT
            with Cluster(a.broker.bootstrap_servers) as cluster:
                reader = Reader(cluster, "t", {0: left - 2}, to_end=True)
                assert [record.offset for _, record in reader] == [left - 2, left - 1]
        if start == 0:
            cut, lost = errors(caplog)
            assert f"{COUNT - left - 1} records in" in cut and last.stem in cut
            assert f"offsets {left} to {COUNT - 1} are missing" in lost
        assert (folder / f"{last.stem}.cut").read_bytes() == kept


def test_a_gap_in_a_compacted_partition_is_no_loss(tmp_path, caplog):
    folder = written(tmp_path)
    remove(segments(folder)[2])
    (folder.parent / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 30\n")
    with caplog.at_level(logging.ERROR), admin_on(tmp_path) as a:
        assert a.offset("t", -1) == COUNT
    assert errors(caplog) == []


def test_a_sound_log_and_a_log_cut_by_deletion_say_nothing(tmp_path, caplog):
    folder = written(tmp_path)
    remove(segments(folder)[0])  # as retention does
    with caplog.at_level(logging.ERROR), admin_on(tmp_path) as a:
        assert a.offset("t", -1) == COUNT
    assert errors(caplog) == []


def test_files_that_are_put_back_are_served_again(tmp_path, caplog):
    folder = written(tmp_path)
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    shutil.rmtree(folder)
    with admin_on(tmp_path) as a:
        assert a.offset("t", -2) == COUNT
        assert a.produce("t") == 0
    for path in copy.iterdir():
        if not (folder / path.name).exists():
            shutil.copy(path, folder)
    caplog.clear()
    with caplog.at_level(logging.ERROR), admin_on(tmp_path) as a:
        assert (a.offset("t", -2), a.offset("t", -1)) == (0, COUNT + 1)
    assert "missing" not in caplog.text


def test_a_new_topic_of_the_name_begins_at_0(tmp_path, caplog):
    folder = written(tmp_path)
    shutil.rmtree(folder)
    with admin_on(tmp_path) as a:
        a.delete("t")
        a.create("t")
        assert a.offset("t", -1) == 0
    caplog.clear()
    with caplog.at_level(logging.ERROR), admin_on(tmp_path) as a:
        assert a.offset("t", -1) == 0
    assert "missing" not in caplog.text


def test_a_lost_end_of_a_compacted_partition_is_an_error(tmp_path, caplog):
    folder = written(tmp_path)
    (folder.parent / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 20\n")
    left = lost_last_segment(folder)
    with caplog.at_level(logging.ERROR), admin_on(tmp_path) as a:
        assert a.offset("t", -1) == COUNT
    (said,) = errors(caplog)
    assert f"offsets {left} to {COUNT - 1} are missing" in said
