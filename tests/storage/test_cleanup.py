"""Files of deleted segments and directories of deleted topics are removed after their delay, by the
node's clock."""

import errno
import logging
import os
from pathlib import Path
from types import SimpleNamespace

from oracle.log_builder import NOW, Disk, batch

from barnabas.config import BrokerConfig, TopicConfig
from barnabas.storage import cleanup as cleanup_module
from barnabas.storage.cleanup import Cleanup
from barnabas.storage.log_manager import PartitionLog

DELAY_MS = 60_000


def cleanup_of(logs, clock):
    return Cleanup(
        logs=logs,
        policies=lambda view, now_ms, names: 0,
        topic_config=lambda topic: TopicConfig({}, BrokerConfig({})),
        high_watermark=lambda topic, partition: 0,
        wall_ms=lambda: clock.now_ms,
        delete_delay_ms=lambda: DELAY_MS,
    )


def test_a_deleted_directory_waits_for_its_delay_and_no_other_is_removed(tmp_path: Path) -> None:
    gone = tmp_path / f"t-0.{'a' * 32}-delete"
    kept = [tmp_path / "t-0", tmp_path / f"t-1.{'b' * 32}-stray", tmp_path / "t-delete"]
    for directory in (gone, *kept):
        directory.mkdir()
        (directory / "00000000000000000000.log").write_bytes(b"records")
    deleted_ms = int(gone.stat().st_ctime * 1000)
    clock = SimpleNamespace(now_ms=deleted_ms)
    logs = SimpleNamespace(logs=list, directories=lambda: [SimpleNamespace(path=tmp_path)])
    cleanup = cleanup_of(logs, clock)
    for after_ms, left in ((0, True), (1000, True), (DELAY_MS - 1, True), (DELAY_MS + 1, False)):
        clock.now_ms = deleted_ms + after_ms
        cleanup.run()
        assert gone.exists() == left, after_ms
    assert all(path.exists() for path in kept)


def test_what_cannot_be_deleted_keeps_nothing_else(tmp_path, monkeypatch, caplog):
    """Of a log directory that fails. The disk of the others was never freed."""
    parents = [tmp_path / "failing", tmp_path / "working"]
    rows = []
    for parent in parents:
        directory = parent / "t-0"
        directory.mkdir(parents=True)
        for letter in "ab":
            (parent / f"gone-0.{letter * 32}-delete").mkdir()
        log = Disk(directory, segment_bytes=1_500).open()
        for at in range(60):
            log.append(batch(b"x" * 60, at=NOW + at))
        log.advance_log_start(log.segments()[2].base_offset)
        rows.append(PartitionLog("t", 0, bytes(16), directory, log))
    logs = SimpleNamespace(
        logs=lambda: rows,
        directories=lambda: [SimpleNamespace(path=parent) for parent in parents],
        get=lambda topic, partition: rows[0],
    )
    clock = SimpleNamespace(now_ms=int(parents[0].stat().st_ctime * 1000))
    cleanup = cleanup_of(logs, clock)
    assert cleanup.run() == 4
    real, refused = os.unlink, []

    def unlink(path, *given, **named):
        if str(path).startswith(str(parents[0])) and len(refused) < 2:
            refused.append(path)
            raise OSError(errno.EIO, "Input/output error", str(path))
        real(path, *given, **named)

    def rmtree(path):
        if path.parent == parents[0] and len(refused) < 2:
            refused.append(path)
            raise OSError(errno.EIO, "Input/output error", str(path))
        path.rmdir()

    monkeypatch.setattr(os, "unlink", unlink)
    monkeypatch.setattr(cleanup_module.shutil, "rmtree", rmtree)

    def left(parent):
        return [*parent.rglob("*.deleted"), *parent.glob("*-delete")]

    clock.now_ms += 2 * DELAY_MS + 1
    with caplog.at_level(logging.ERROR):
        cleanup.run()
    assert len(refused) == 2 and refused[1] in left(parents[0]) and not left(parents[1])
    assert len([*parents[0].glob("*-delete")]) == 1
    assert f"cannot delete files of {rows[0].directory}" in caplog.text
    assert rows[0].handle.holds_deleted and not rows[1].handle.holds_deleted
    cleanup.run()
    assert not left(parents[0])
