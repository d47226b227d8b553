"""Deletion by number of records: the oldest segments are deleted as long as at least `count`
offsets of the partition remain. Offsets that compaction removed count as records.

    plugins=last-records
    plugin.last-records.count=1000000
    retention.policy=last-records        (a setting of the topic)
"""

from barnabas.hooks import LogView, Option, Options, hookimpl


class RetentionRecords:
    """Keeps the last `count` records of each partition."""

    OPTIONS = {"count": Option("integer", "records of a partition to keep", least=1)}

    def __init__(self, options: Options) -> None:
        self.count = options["count"]

    @hookimpl
    def deletable_segments(self, log: LogView) -> int:
        last = log.end_offset - self.count
        return sum(1 for segment in log.segments if segment.next_offset <= last)
