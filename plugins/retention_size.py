"""Deletion by size: the oldest segments are deleted as long as the rest of the log has at least
retention.bytes (Kafka's `retention.bytes` and `log.retention.bytes`)."""

from barnabas.hooks import LogView, hookimpl


class RetentionSize:
    @hookimpl
    def deletable_segments(self, log: LogView) -> int:
        if log.retention_bytes < 0:
            return 0
        excess = log.size_bytes - log.retention_bytes
        count = 0
        for segment in log.segments:
            if segment.size_bytes > excess or segment.size_bytes == 0:
                break
            excess -= segment.size_bytes
            count += 1
        return count
