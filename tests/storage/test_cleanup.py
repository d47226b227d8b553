"""Directories of deleted topics are removed after their delay, by the node's clock."""

from pathlib import Path
from types import SimpleNamespace

from barnabas.storage.cleanup import Cleanup

DELAY_MS = 60_000


def test_a_deleted_directory_waits_for_its_delay_and_no_other_is_removed(tmp_path: Path) -> None:
    gone = tmp_path / f"t-0.{'a' * 32}-delete"
    kept = [tmp_path / "t-0", tmp_path / f"t-1.{'b' * 32}-stray", tmp_path / "t-delete"]
    for directory in (gone, *kept):
        directory.mkdir()
        (directory / "00000000000000000000.log").write_bytes(b"records")
    deleted_ms = int(gone.stat().st_ctime * 1000)
    clock = SimpleNamespace(now_ms=deleted_ms)
    cleanup = Cleanup(
        logs=SimpleNamespace(logs=list, directories=lambda: [SimpleNamespace(path=tmp_path)]),
        policies=lambda view, now_ms, names: 0,
        topic_config=lambda topic: None,
        high_watermark=lambda topic, partition: 0,
        wall_ms=lambda: clock.now_ms,
        delete_delay_ms=lambda: DELAY_MS,
    )
    for after_ms, left in ((0, True), (1000, True), (DELAY_MS - 1, True), (DELAY_MS + 1, False)):
        clock.now_ms = deleted_ms + after_ms
        cleanup.run()
        assert gone.exists() == left, after_ms
    assert all(path.exists() for path in kept)
