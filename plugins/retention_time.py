"""Deletion by time: a segment is deleted when its largest record timestamp is older than
retention.ms.

The oldest segments are deleted first; the first segment that is young enough keeps all later ones
(Kafka's `retention.ms` and `log.retention.*`).
"""

from barnabas.hooks import LogView, hookimpl


class RetentionTime:
    @hookimpl
    def deletable_segments(self, log: LogView, now_ms: int) -> int:
        if log.retention_ms < 0:
            return 0
        count = 0
        for segment in log.segments:
            if now_ms - segment.largest_timestamp_ms <= log.retention_ms:
                break
            if segment.is_active and segment.size_bytes == 0:
                break
            count += 1
        return count
