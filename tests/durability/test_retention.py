"""Retention in a broker: by time, by size, the delay before files are deleted, and a failing
plugin."""

from node.test_settings import broker_with, create, files, produce, wire_to

from barnabas.hooks import hookimpl
from barnabas.storage.log_manager import PartitionLog

HOUR_MS = 3_600_000


def filled(wire, configs, count=10):
    """A topic with one batch in each segment."""
    create(wire, "t", {"segment.bytes": 1024, "file.delete.delay.ms": 60_000} | configs)
    for _ in range(count):
        assert produce(wire, "t", b"x" * 700).errorCode == 0


def start_offset(broker) -> int:
    return broker.node.loaded.logs.get("t", 0).handle.start_offset


def test_retention_ms(tmp_path):
    with broker_with(tmp_path) as b, wire_to(b) as wire:
        filled(wire, {"retention.ms": HOUR_MS})
        b.node.running.retention.run()
        assert len(files(b, "t")) == 10
        b.node.system.move_wall_clock(2 * HOUR_MS)
        b.node.running.retention.run()
        assert start_offset(b) == 10
        assert [path.name for path in files(b, "t")] == ["00000000000000000010.log"]
        assert len(files(b, "t", ".log.deleted")) == 10


def test_retention_bytes(tmp_path):
    with broker_with(tmp_path) as b, wire_to(b) as wire:
        filled(wire, {"retention.bytes": 3000})
        size = files(b, "t")[0].stat().st_size
        b.node.running.retention.run()
        assert len(files(b, "t")) == -(-3000 // size), "as much as retention.bytes still holds"
        assert start_offset(b) == 10 - len(files(b, "t"))


def test_deleted_files_go_after_file_delete_delay_ms(tmp_path):
    with broker_with(tmp_path) as b, wire_to(b) as wire:
        filled(wire, {"retention.bytes": 3000, "file.delete.delay.ms": 60_000})
        b.node.running.retention.run()
        marked = files(b, "t", ".deleted")
        assert marked
        b.node.system.move_wall_clock(59_000)
        b.node.running.retention.cleanup.unlink()
        assert files(b, "t", ".deleted") == marked
        b.node.system.move_wall_clock(61_000)
        b.node.running.retention.cleanup.unlink()
        assert files(b, "t", ".deleted") == []


def test_deleted_files_go_while_each_round_deletes_more(tmp_path):
    """Else a topic that loses a segment in every round keeps all of them on disk."""
    with broker_with(tmp_path) as b, wire_to(b) as wire:
        filled(wire, {"retention.bytes": 3000, "file.delete.delay.ms": 60_000})
        marked = []
        for _ in range(4):
            b.node.running.retention.run()
            marked.append(set(files(b, "t", ".log.deleted")))
            b.node.system.move_wall_clock(40_000)
            for _ in range(3):
                assert produce(wire, "t", b"x" * 700).errorCode == 0
        first, second, third, fourth = marked
        assert first and second > first, "a reader has 60 s"
        assert third.isdisjoint(first) and third > second - first
        assert fourth.isdisjoint(second) and fourth > third - second


def test_truncated_segments_go_after_file_delete_delay_ms(tmp_path):
    with broker_with(tmp_path) as b, wire_to(b) as wire:
        filled(wire, {"file.delete.delay.ms": 60_000})
        b.node.loaded.logs.get("t", 0).handle.truncate_to(3)
        marked = files(b, "t", ".deleted")
        assert marked
        b.node.running.retention.run()
        b.node.system.move_wall_clock(59_000)
        b.node.running.retention.run()
        assert files(b, "t", ".deleted") == marked
        b.node.system.move_wall_clock(2_000)
        b.node.running.retention.run()
        assert files(b, "t", ".deleted") == []


def test_a_round_reads_the_segments_of_a_log_once(tmp_path):
    class Row:
        """A log that counts how often its segments are read."""

        def __init__(self, row):
            self._row, self._handle, self.asked = row, row.handle, 0
            self.handle = self

        def __getattr__(self, name):
            return getattr(self._row if hasattr(self._row, name) else self._handle, name)

        def segments(self):
            self.asked += 1
            return self._handle.segments()

    with broker_with(tmp_path) as b, wire_to(b) as wire:
        filled(wire, {"retention.bytes": 3000})
        b.node.running.retention.run()
        row = Row(b.node.loaded.logs.get("t", 0))
        b.node.running.retention.cleanup._clean(
            row, b.node.running.retention.cleanup._topic_config("t")
        )
        assert row.asked == 1


def test_a_segment_that_compaction_replaces_meanwhile_is_looked_up_again(tmp_path, monkeypatch):
    with broker_with(tmp_path) as b, wire_to(b) as wire:
        filled(wire, {"retention.ms": HOUR_MS})
        b.node.system.move_wall_clock(2 * HOUR_MS)
        largest_ms, failures = PartitionLog.largest_ms, [FileNotFoundError()]

        def replaced_once(row, segment):
            if failures:
                raise failures.pop()
            return largest_ms(row, segment)

        monkeypatch.setattr(PartitionLog, "largest_ms", replaced_once)
        b.node.running.retention.run()
        assert start_offset(b) == 10 and not failures


def test_cleanup_policy_compact_deletes_nothing(tmp_path):
    with broker_with(tmp_path) as b, wire_to(b) as wire:
        create(wire, "t", {"segment.bytes": 1024, "cleanup.policy": "compact"})
        for _ in range(5):
            assert produce(wire, "t", b"x" * 700, key=b"k").errorCode == 0
        b.node.system.move_wall_clock(10_000 * HOUR_MS)
        b.node.running.retention.run()
        assert start_offset(b) == 0


def test_a_failing_plugin_deletes_nothing(tmp_path):
    class Failing:
        @hookimpl
        def deletable_segments(self, log):
            raise RuntimeError("no")

    with broker_with(tmp_path) as b, wire_to(b) as wire:
        b.node.plugins.registry.register(Failing(), "failing")
        names = {"retention.policy": "failing"}
        filled(wire, {"retention.ms": 1, "retention.bytes": 1} | names)
        b.node.system.move_wall_clock(HOUR_MS)
        b.node.running.retention.run()
        assert start_offset(b) == 0 and len(files(b, "t")) == 10
        assert b.node.plugins.registry.failures["failing"] == 1
