"""Log directories and partitions that cannot be used: the others are served (KIP-112)."""

import errno
import logging
import shutil
import subprocess

import pytest
from api.admin_calls import admin_on
from confluent_kafka import Consumer, KafkaException, TopicPartition

from barnabas.node import CannotStart
from barnabas.storage import log_manager, replace_file

STORAGE_ERROR = 56
META = "meta.properties"


def dirs_of(tmp_path, count=3):
    return [tmp_path / f"d{number}" for number in range(count)]


def broker_on(tmp_path, dirs, **settings):
    return admin_on(tmp_path, log_dirs=",".join(map(str, dirs)), **settings)


def written(tmp_path, dirs, partitions=6):
    """Creates partitions of one topic with one record each. Returns the directory of each."""
    with broker_on(tmp_path, dirs) as a:
        a.create("t", partitions)
        for index in range(partitions):
            assert a.produce("t", partition=index) == 0
    return {int(path.name[2:]): path for row in dirs for path in row.glob("t-*")}


def broken(directory):
    """Replaces the directory by a file, so that each use of it is an I/O error."""
    directory.rename(directory.with_suffix(".away"))
    directory.write_bytes(b"")


def repaired(directory):
    directory.unlink()
    directory.with_suffix(".away").rename(directory)


def errors(caplog):
    return [row.getMessage() for row in caplog.records if row.levelno == logging.ERROR]


def test_failed_directory_is_left_out_and_the_others_are_served(tmp_path, caplog):
    dirs = dirs_of(tmp_path)
    places = written(tmp_path, dirs)
    lost = {index for index, path in places.items() if path.parent == dirs[1]}
    assert lost and len(lost) < len(places)
    broken(dirs[1])
    with caplog.at_level(logging.ERROR), broker_on(tmp_path, dirs) as a:
        for index in places:
            expected = STORAGE_ERROR if index in lost else 0
            assert a.produce("t", partition=index) == expected, index
        a.create("new", 4)
        assert a.produce("new", partition=3) == 0
        rows = a.call(35, 4, topics=None).results
        assert {row.logDir: row.errorCode for row in rows} == {
            str(path): STORAGE_ERROR if path == dirs[1] else 0 for path in dirs
        }
    said = "\n".join(errors(caplog))
    assert f"cannot make the log directory {dirs[1]}" in said and "Repair it" in said
    assert f"{len(lost)} partitions are in no log directory that works" in said
    repaired(dirs[1])
    with broker_on(tmp_path, dirs) as a:
        for index in places:
            assert a.offset("t", -1, index) == (1 if index in lost else 2)
            assert a.produce("t", partition=index) == 0


def delete_records(a, index, offset):
    """The error of the deletion of a partition's records below an offset."""
    row = {"partitionIndex": index, "offset": offset}
    answer = a.call(21, 2, topics=[{"name": "t", "partitions": [row]}], timeoutMs=1000)
    return answer.topics[0].partitions[0].errorCode


def test_records_are_deleted_beside_a_directory_that_fails(tmp_path):
    dirs = dirs_of(tmp_path, 2)
    places = written(tmp_path, dirs, partitions=2)
    with broker_on(tmp_path, dirs) as a:
        broken(dirs[1])
        errors = {path.parent: delete_records(a, index, 1) for index, path in places.items()}
        repaired(dirs[1])
    assert errors == {dirs[0]: 0, dirs[1]: STORAGE_ERROR}


def test_a_topic_is_created_beside_a_directory_that_fails(tmp_path):
    dirs = dirs_of(tmp_path, 2)
    written(tmp_path, dirs, partitions=2)
    with broker_on(tmp_path, dirs) as a:
        broken(dirs[1])
        a.create("new", 2)
        assert {a.produce("new", partition=index) for index in range(2)} == {0, STORAGE_ERROR}
        repaired(dirs[1])
        a.broker.clock.advance(seconds=10)
        assert [a.produce("new", partition=index) for index in range(2)] == [0, 0]


def half_made(monkeypatch):
    """Lets the next partition be made without its topic id. Returns its directory, in a list."""
    real, struck = log_manager.files.write_topic_id, []

    def write_topic_id(path, *given):
        if not struck:
            struck.append(path)
            raise OSError(errno.EIO, "Input/output error", str(path))
        real(path, *given)

    monkeypatch.setattr(log_manager.files, "write_topic_id", write_topic_id)
    return struck


def test_a_partition_that_could_not_be_made_is_made_in_the_same_directory(tmp_path, monkeypatch):
    """A second directory of it in another log directory ended the next start."""
    dirs = dirs_of(tmp_path, 2)
    written(tmp_path, dirs, partitions=2)
    with broker_on(tmp_path, dirs) as a:
        struck = half_made(monkeypatch)
        a.create("new")
        a.create("other", 2)  # so that the next one would go to the other directory
        assert a.produce("new") == STORAGE_ERROR
        a.broker.clock.advance(seconds=10)
        assert a.produce("new") == 0
    assert [path for row in dirs for path in row.glob("new-0")] == struck
    with broker_on(tmp_path, dirs) as a:
        assert a.offset("new", -1) == 1


def test_a_partition_that_could_not_be_made_is_deleted_with_its_topic(tmp_path, monkeypatch):
    with broker_on(tmp_path, [tmp_path / "d"]) as a:
        struck = half_made(monkeypatch)
        a.create("new")
        assert struck and struck[0].exists()
        assert a.delete("new") == [0]
        (left,) = tmp_path.glob("d/new*")
        assert left.name.endswith("-delete")


def test_a_topic_is_deleted_beside_a_directory_that_fails(tmp_path, caplog):
    dirs = dirs_of(tmp_path, 2)
    written(tmp_path, dirs, partitions=2)
    with broker_on(tmp_path, dirs) as a:
        broken(dirs[1])
        assert a.delete("t") == [0]
        assert a.names() == []
        a.create("new")
        assert f"cannot flush the log directory {dirs[1]}" in caplog.text
        repaired(dirs[1])
    with broker_on(tmp_path, dirs) as a:
        assert a.names() == ["new"]


def test_a_new_partition_that_could_not_be_written_is_written_before_it_is_served(
    tmp_path, monkeypatch
):
    """Its name, too: without it a power cut takes the partition and its records."""
    dirs = dirs_of(tmp_path, 2)
    real, struck, synced = replace_file._sync_file, [], []

    def sync_file(path):
        if path.parent.name == "new-1" and len(struck) < 2:  # once with others, and alone
            struck.append(path)
            raise OSError(errno.EIO, "Input/output error", str(path))
        real(path)

    def sync_directory(path):
        synced.append(path)
        real_directory(path)

    real_directory = replace_file.sync_directory
    with broker_on(tmp_path, dirs) as a:
        monkeypatch.setattr(replace_file, "_sync_file", sync_file)
        monkeypatch.setattr(replace_file, "sync_directory", sync_directory)
        a.create("new", 2)
        assert len(struck) == 2
        assert [a.produce("new", partition=index) for index in range(2)] == [0, STORAGE_ERROR]
        a.broker.clock.advance(seconds=10)
        assert a.produce("new", partition=1) == 0
        directory = struck[0].parent
        assert directory in synced and directory.parent in synced
        assert (directory / "partition.metadata").exists()


def test_the_start_is_refused_when_the_first_directory_fails(tmp_path):
    dirs = dirs_of(tmp_path)
    written(tmp_path, dirs)
    broken(dirs[0])
    with pytest.raises(CannotStart, match="holds the metadata store"), broker_on(tmp_path, dirs):
        pass
    repaired(dirs[0])
    with broker_on(tmp_path, dirs) as a:
        assert a.offset("t", -1) == 1


def test_a_directory_of_another_cluster_still_stops_the_start(tmp_path):
    dirs = dirs_of(tmp_path)
    written(tmp_path, dirs)
    meta = dirs[2] / META
    meta.write_text(meta.read_text().replace("cluster.id=", "cluster.id=x"))
    with pytest.raises(CannotStart, match="belongs to cluster x"), broker_on(tmp_path, dirs):
        pass


def test_an_unreadable_meta_properties_fails_its_directory_only(tmp_path, caplog):
    dirs = dirs_of(tmp_path)
    written(tmp_path, dirs)
    (dirs[2] / META).rename(dirs[2] / "away")
    (dirs[2] / META).mkdir()  # EISDIR
    with caplog.at_level(logging.ERROR), broker_on(tmp_path, dirs) as a:
        assert a.produce("t") in (0, STORAGE_ERROR)
    assert f"cannot read {dirs[2] / META}" in caplog.text


def test_an_unreadable_checkpoint_fails_its_directory_only(tmp_path, caplog):
    dirs = dirs_of(tmp_path, 2)
    places = written(tmp_path, dirs, partitions=2)
    checkpoint = dirs[1] / "recovery-point-offset-checkpoint"
    checkpoint.rename(dirs[1] / "away")
    checkpoint.mkdir()  # EISDIR
    with caplog.at_level(logging.ERROR), broker_on(tmp_path, dirs) as a:
        found = {path.parent: a.produce("t", partition=index) for index, path in places.items()}
    assert found == {dirs[0]: 0, dirs[1]: STORAGE_ERROR}
    assert f"cannot read the checkpoints in {dirs[1]}" in caplog.text


@pytest.fixture
def immutable():
    made = []

    def set_on(path):
        done = subprocess.run(["chattr", "-R", "+i", path], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no immutable directories here: {done.stderr}")
        made.append(path)
        with pytest.raises(PermissionError):
            (path / "probe").touch()

    def clear():
        while made:
            subprocess.run(["chattr", "-R", "-i", made.pop()], check=True)

    set_on.clear = clear
    yield set_on
    clear()


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "unclean stop"])
def test_one_immutable_partition_directory_is_offline_and_comes_back(
    tmp_path, caplog, immutable, clean
):
    dirs = dirs_of(tmp_path, 1)
    places = written(tmp_path, dirs, partitions=3)
    if not clean:
        (dirs[0] / ".kafka_cleanshutdown").unlink()
    immutable(places[1])
    with caplog.at_level(logging.WARNING), broker_on(tmp_path, dirs) as a:
        assert [a.produce("t", partition=index) for index in range(3)] == [0, STORAGE_ERROR, 0]
        said = [line for line in errors(caplog) if "t-1" in line]
        assert len(said) == 1 and "Operation not permitted" in said[0]
        immutable.clear()
        a.broker.clock.advance(seconds=10)
        assert a.produce("t", partition=1) == 0
        assert "t-1 is online again" in caplog.text
        assert len([line for line in errors(caplog) if "t-1" in line]) == 1
    with broker_on(tmp_path, dirs) as a:
        assert [a.offset("t", -1, index) for index in range(3)] == [2, 2, 2]


def test_checkpoints_keep_what_they_said_of_a_partition_that_is_offline(
    tmp_path, caplog, immutable
):
    dirs = dirs_of(tmp_path, 1)
    places = written(tmp_path, dirs, partitions=2)
    (dirs[0] / ".kafka_cleanshutdown").unlink()
    immutable(places[1])
    with broker_on(tmp_path, dirs) as a:
        assert a.produce("t", partition=1) == STORAGE_ERROR
    immutable.clear()
    assert "t 1 1\n" in (dirs[0] / "recovery-point-offset-checkpoint").read_text()
    assert not (dirs[0] / ".kafka_cleanshutdown").exists()  # t-1 was not checked
    shutil.rmtree(places[1])
    with caplog.at_level(logging.ERROR), broker_on(tmp_path, dirs) as a:
        assert a.offset("t", -1, 1) == 1
    assert "offsets 0 to 0 are missing" in caplog.text


def test_a_coordinators_partition_is_loaded_when_it_comes_back(tmp_path, caplog, immutable):
    dirs = dirs_of(tmp_path, 1)
    settings = {"offsets_topic_num_partitions": "1"}
    place = TopicPartition("t", 0)

    def group_on(a):
        return Consumer({"bootstrap.servers": a.broker.bootstrap_servers, "group.id": "g"})

    with broker_on(tmp_path, dirs, **settings) as a:
        a.create("t")
        assert a.produce("t", count=7) == 0
        consumer = group_on(a)
        consumer.commit(offsets=[TopicPartition("t", 0, 5)], asynchronous=False)
        consumer.close()
    (dirs[0] / ".kafka_cleanshutdown").unlink()
    immutable(dirs[0] / "__consumer_offsets-0")
    with caplog.at_level(logging.WARNING), broker_on(tmp_path, dirs, **settings) as a:
        assert a.broker.node.loaded.replicas.is_offline("__consumer_offsets", 0)
        consumer = group_on(a)
        with pytest.raises(KafkaException):
            consumer.committed([place], timeout=2)
        immutable.clear()
        a.broker.clock.advance(seconds=10)
        assert [row.offset for row in consumer.committed([place], timeout=20)] == [5]
        consumer.close()
    assert "__consumer_offsets-0 is online again" in caplog.text


def test_a_disk_that_became_read_only_is_left_out(tmp_path, caplog):
    dirs = dirs_of(tmp_path, 2)
    dirs[1].mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(dirs[1])]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no mounts here")
    try:
        places = written(tmp_path, dirs, partitions=4)
        subprocess.run(["mount", "-o", "remount,ro", str(dirs[1])], check=True)
        with pytest.raises(OSError, match="Read-only"):
            (dirs[1] / "probe").touch()
        with caplog.at_level(logging.ERROR), broker_on(tmp_path, dirs) as a:
            for index, path in places.items():
                expected = STORAGE_ERROR if path.parent == dirs[1] else 0
                assert a.produce("t", partition=index) == expected
        assert "Read-only file system" in caplog.text
    finally:
        subprocess.run(["umount", "-l", str(dirs[1])], check=True)
