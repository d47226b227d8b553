"""Bytes that recovery cuts off a log are kept in a file, and the broker logs how many records they
hold. Apache Kafka 4.3.1 cuts them off and uses their offsets again; it ignores files named
*.cut."""

import logging
import time

import pytest
from api.admin_calls import admin_on

from barnabas.cli import main

COUNT, SIZE, DAMAGED = 300, 100, 1


def killed_after(tmp_path, **configs):
    """COUNT records, one in each batch, and the files as after an unclean stop."""
    with admin_on(tmp_path) as a:
        a.create("t", **configs)
        for _ in range(COUNT):
            assert a.produce("t", size=SIZE) == 0
        folder = a.data / "t-0"
    (folder.parent / ".kafka_cleanshutdown").unlink()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (folder.parent / name).unlink()
    return folder


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    return bytes(content)


def started(tmp_path, caplog):
    """The end offset of the log and the log lines of one start."""
    caplog.clear()
    with caplog.at_level(logging.INFO), admin_on(tmp_path) as a:
        ends = a.offset("t", -1)
        assert a.produce("t") == 0
    return ends, [row for row in caplog.records if row.name == "barnabas.logs"]


@pytest.mark.parametrize("at", [80, 10, 23], ids=["record", "length", "last offset delta"])
def test_flipped_bit_in_the_active_segment_keeps_the_records_behind_it(
    tmp_path, caplog, capsys, at
):
    folder = killed_after(tmp_path)
    (segment,) = folder.glob("*.log")
    size = segment.stat().st_size // COUNT
    content = flip(segment, DAMAGED * size + at)
    end, lines = started(tmp_path, caplog)
    assert end == COUNT  # no offset of a valid batch is used again
    (cut,) = folder.glob("*.cut")
    assert cut.read_bytes() == content[DAMAGED * size :]
    said = [row for row in lines if "are kept in" in row.getMessage()]
    assert [row.levelno for row in said] == [logging.ERROR]
    sound = COUNT - DAMAGED - 1
    assert str(cut) in said[0].getMessage()
    assert f"{sound} records in {sound} sound batches" in said[0].getMessage()
    if at == 80:  # the length of the damaged batch leads to the next one
        assert main(["log", "dump", str(cut)]) in (0, 1)
        assert str(COUNT - 1) in capsys.readouterr().out
    assert started(tmp_path, caplog)[0] == COUNT + 1
    assert list(folder.glob("*.cut")) == [cut]


def test_segments_behind_the_damage_are_set_aside(tmp_path, caplog):
    folder = killed_after(tmp_path, segment_bytes="8192")
    segments = sorted(folder.glob("*.log"))
    assert len(segments) > 3
    behind = {path.stem: path.read_bytes() for path in segments[2:] if path.stat().st_size}
    flip(segments[1], 80)
    end, lines = started(tmp_path, caplog)
    assert end == COUNT
    kept = {path.stem: path.read_bytes() for path in folder.glob("*.cut")}
    assert {name: kept[name] for name in behind} == behind
    said = "\n".join(row.getMessage() for row in lines)
    assert all(f"{name}.cut" in said for name in kept)


@pytest.mark.parametrize("tail", [bytes(60_000), None], ids=["zeros", "the beginning of one batch"])
def test_writes_that_were_never_acknowledged_are_not_set_aside(tmp_path, caplog, tail):
    folder = killed_after(tmp_path)
    (segment,) = folder.glob("*.log")
    content = segment.read_bytes()
    segment.write_bytes(content + tail if tail else content[:-10])
    end, lines = started(tmp_path, caplog)
    assert end == (COUNT if tail else COUNT - 1)
    assert not list(folder.glob("*.cut"))
    assert any("are not a batch" in row.getMessage() for row in lines)


def test_the_files_of_many_recoveries_are_limited(tmp_path, caplog):
    folder = killed_after(tmp_path)
    for number in range(12):
        (segment,) = folder.glob("*.log") if number == 0 else sorted(folder.glob("*.log"))[-1:]
        content = segment.read_bytes()
        segment.write_bytes(content + content[-168:-8] + bytes([number + 1] * 8))
        (folder.parent / ".kafka_cleanshutdown").unlink(missing_ok=True)
        started(tmp_path, caplog)
    assert len(list(folder.glob("*.cut"))) == 8
    assert "was deleted to limit" in caplog.text


def test_sound_records_that_cannot_be_set_aside_are_not_cut(tmp_path, caplog):
    folder = killed_after(tmp_path)
    (segment,) = folder.glob("*.log")
    size = segment.stat().st_size // COUNT
    content = flip(segment, DAMAGED * size + 80)
    in_the_way = folder / f"{DAMAGED:020d}.cut.tmp"
    in_the_way.mkdir()
    with caplog.at_level(logging.ERROR), admin_on(tmp_path) as a:
        assert a.produce("t") == 56
        assert segment.read_bytes() == content
        assert "t-0 cannot be opened" in caplog.text and "Is a directory" in caplog.text
        in_the_way.rmdir()
        give_up = time.monotonic() + 60
        while a.produce("t") != 0:
            assert time.monotonic() < give_up, "the partition did not come back"
            time.sleep(0.2)
    (cut,) = folder.glob("*.cut")
    assert cut.read_bytes() == content[DAMAGED * size :]
