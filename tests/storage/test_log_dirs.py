"""A log directory belongs to one broker, one node and one cluster; otherwise the start fails with
one line."""

import subprocess
import sys

import pytest

from barnabas.storage.log_dirs import CLEAN_SHUTDOWN, LOCK, META, LogDir, UnusableDirectory

CLUSTER = "AnchorAnchorAnchorAnAA"


def opened(path, node_id=1, cluster_id=CLUSTER):
    directory = LogDir(path)
    directory.open()
    try:
        directory.claim(node_id, cluster_id)
    except UnusableDirectory:
        directory.close(clean=False)
        raise
    directory.begin()
    return directory


def test_new_directory_is_marked_and_clean_stop_leaves_kafkas_marker(tmp_path):
    directory = opened(tmp_path / "made" / "here")
    assert not directory.was_clean
    text = (tmp_path / "made" / "here" / META).read_text()
    assert f"broker.id=1\nversion=0\ncluster.id={CLUSTER}\n" in text
    directory.close(clean=True)
    marker = (tmp_path / "made" / "here" / CLEAN_SHUTDOWN).read_bytes()
    assert marker == b'{"version":0,"brokerEpoch":-1}'
    assert not (tmp_path / "made" / "here" / LOCK).exists()


def test_clean_marker_is_gone_while_the_broker_lives(tmp_path):
    opened(tmp_path).close(clean=True)
    again = opened(tmp_path)
    assert again.was_clean
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    again.close(clean=False)
    assert not opened(tmp_path).was_clean


def test_second_broker_of_the_same_process_is_refused(tmp_path):
    first = opened(tmp_path)
    with pytest.raises(UnusableDirectory, match="another broker is using"):
        LogDir(tmp_path).open()
    first.close(clean=True)
    opened(tmp_path).close(clean=True)


def test_directory_locked_by_another_program_is_refused(tmp_path):
    script = (
        "import fcntl, os, sys;"
        "fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT); fcntl.lockf(fd, fcntl.LOCK_EX);"
        "print('locked', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / LOCK)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(UnusableDirectory, match="another broker is using"):
            LogDir(tmp_path).open()
    finally:
        holder.communicate()


@pytest.mark.parametrize(
    "meta",
    [
        f"broker.id=1\nversion=0\ncluster.id={CLUSTER}\n",
        f"node.id=1\ndirectory.id=xxxxxxxxxxxxxxxxxxxxxA\nversion=1\ncluster.id={CLUSTER}\n",
    ],
)
def test_both_versions_of_meta_properties_are_read(tmp_path, meta):
    (tmp_path / META).write_text(meta)
    opened(tmp_path).close(clean=True)
    assert (tmp_path / META).read_text() == meta
    with pytest.raises(UnusableDirectory, match="belongs to node 1"):
        opened(tmp_path, node_id=2)
    with pytest.raises(UnusableDirectory, match=f"belongs to cluster {CLUSTER}"):
        opened(tmp_path, cluster_id="BnchorAnchorAnchorAnAA")


def test_kraft_metadata_and_unknown_versions_are_refused(tmp_path):
    (tmp_path / META).write_text("version=2\n")
    with pytest.raises(UnusableDirectory, match="version '2'"):
        opened(tmp_path)
    (tmp_path / "__cluster_metadata-0").mkdir()
    with pytest.raises(UnusableDirectory, match="KRaft"):
        LogDir(tmp_path).open()


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnusableDirectory, match="set log.dirs to") as caught:
        LogDir(tmp_path / "file" / "logs").open()
    assert "\n" not in str(caught.value)
