"""A symbolic link below a log directory is not followed: the broker writes and serves its own files
alone. The log directory itself may be one."""

import pytest
from compat.support import Wire
from oracle.produce import batch
from security.test_native_rights import fetch, produce

from barnabas import Broker

TOPIC, SEGMENT = "t", "00000000000000000000.log"
KAFKA_STORAGE_ERROR = 56


def started(tmp_path):
    return Broker({"log.dirs": str(tmp_path / "data"), "node.id": "1"}, durable=False)


@pytest.fixture
def partition(tmp_path):
    """The directory of a partition with three records; the log directory is a link."""
    (tmp_path / "place").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "place")
    with started(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        broker.create_topic(TOPIC, 1)
        assert produce(wire, [(TOPIC, 0, batch(3))]) == {(TOPIC, 0): 0}
    return tmp_path / "place" / f"{TOPIC}-0"


def read_and_written(tmp_path):
    """The codes of a fetch and of a produce."""
    with started(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        read = fetch(wire, 12, [(TOPIC, 0)])[TOPIC]
        return read[0], produce(wire, [(TOPIC, 0, batch(1))])[TOPIC, 0]


def test_the_log_directory_itself_may_be_a_link(tmp_path, partition):
    assert read_and_written(tmp_path) == (0, 0)


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_a_link_in_place_of_a_file_is_not_written_through(tmp_path, partition, suffix):
    outside = tmp_path / "outside"
    (partition / SEGMENT).with_suffix(suffix).rename(outside)
    (partition / SEGMENT).with_suffix(suffix).symlink_to(outside)
    before = outside.read_bytes()
    read, written = read_and_written(tmp_path)
    assert written == KAFKA_STORAGE_ERROR
    assert suffix != ".log" or read == KAFKA_STORAGE_ERROR  # indexes are not needed to read
    assert outside.read_bytes() == before


def test_a_link_in_place_of_a_partition_is_not_its_log(tmp_path, partition):
    outside = tmp_path / "outside"
    partition.rename(outside)
    partition.symlink_to(outside)
    before = {path.name: path.read_bytes() for path in outside.iterdir()}
    read_and_written(tmp_path)
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == before


def test_a_link_in_place_of_a_file_that_is_written_anew_is_not_followed(
    tmp_path, partition, caplog
):
    outside = tmp_path / "outside"
    outside.write_text("of another program")
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (tmp_path / "place" / f"{name}.tmp").symlink_to(outside)
    with started(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        assert produce(wire, [(TOPIC, 0, batch(1))]) == {(TOPIC, 0): 0}
    assert "Too many levels of symbolic links" in caplog.text
    assert outside.read_text() == "of another program"
