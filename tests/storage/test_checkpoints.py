"""Checkpoint files have Kafka's format, and damage raises an error."""

import pytest

from barnabas.storage import checkpoints as c


def test_offsets_have_kafkas_form(tmp_path):
    path = tmp_path / c.RECOVERY_POINT
    c.write_offsets(path, {("b", 1): 5, ("a-x", 0): 70})
    assert path.read_bytes() == b"0\n2\na-x 0 70\nb 1 5\n"
    assert c.read_offsets(path) == {("a-x", 0): 70, ("b", 1): 5}


def test_empty_set_is_two_lines_and_no_file_is_an_empty_set(tmp_path):
    path = tmp_path / c.HIGH_WATERMARK
    assert c.read_offsets(path) == {}
    c.write_offsets(path, {})
    assert path.read_bytes() == b"0\n0\n"
    path.write_bytes(b"")
    assert c.read_offsets(path) == {}


@pytest.mark.parametrize(
    "text",
    [
        "1\n0\n",
        "0\n2\na 0 1\n",
        "0\nx\n",
        "0\n1\na 0\n",
        "0\n1\na 0 -1\n",
        "0\n1\na b 1\n",
        "0\n1\n 0 1\n",
        "0\n" + "9" * 5000 + "\n",  # Python makes no number of more than 4300 digits
        "0\n1\na 0 " + "9" * 5000 + "\n",
        f"0\n1\na 0 {2**63}\n",
        f"0\n1\na {2**31} 0\n",
    ],
)
def test_damage_names_the_file(tmp_path, text):
    path = tmp_path / c.LOG_START
    path.write_text(text)
    with pytest.raises(c.DamagedFile, match=c.LOG_START):
        c.read_offsets(path)


def test_bytes_that_are_no_text_are_damage(tmp_path):
    path = tmp_path / c.CLEANER
    path.write_bytes(b"0\n1\n\xff\xfe\n")
    with pytest.raises(c.DamagedFile):
        c.read_offsets(path)


def test_leader_epochs_ascend(tmp_path):
    c.write_leader_epochs(tmp_path, [(0, 0), (3, 12)])
    assert (tmp_path / c.LEADER_EPOCHS).read_bytes() == b"0\n2\n0 0\n3 12\n"
    assert c.read_leader_epochs(tmp_path) == [(0, 0), (3, 12)]
    for lines in ("3 0\n3 5\n", "1 5\n2 4\n", "1\n2\n"):
        (tmp_path / c.LEADER_EPOCHS).write_text(f"0\n2\n{lines}")
        with pytest.raises(c.DamagedFile):
            c.read_leader_epochs(tmp_path)


def test_topic_id_is_43_bytes_without_a_last_newline(tmp_path):
    topic_id = bytes(range(16))
    c.write_topic_id(tmp_path, topic_id)
    data = (tmp_path / c.PARTITION_METADATA).read_bytes()
    assert data == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert c.read_topic_id(tmp_path) == topic_id
    (tmp_path / c.PARTITION_METADATA).write_text("version: 0\ntopic_id: short")
    with pytest.raises(c.DamagedFile):
        c.read_topic_id(tmp_path)
    (tmp_path / c.PARTITION_METADATA).unlink()
    assert c.read_topic_id(tmp_path) is None


def test_a_failed_replacement_leaves_the_old_file(tmp_path):
    path = tmp_path / c.RECOVERY_POINT
    c.write_offsets(path, {("a", 0): 1})
    (tmp_path / f"{c.RECOVERY_POINT}.tmp").mkdir()  # opening it for writing fails
    with pytest.raises(OSError):
        c.write_offsets(path, {("a", 0): 2})
    assert c.read_offsets(path) == {("a", 0): 1}
