"""Deletion of consumed segments: a segment is deleted when every group of `groups` has committed an
offset after its last record. A group without a commit in the partition keeps all segments.

    plugins=consumed
    plugin.consumed.groups=billing,search
    retention.policy=consumed        (a setting of the topic; `consumed,size` also limits the size)
"""

from barnabas.hooks import LogView, Option, Options, SegmentView, hookimpl


class RetentionConsumed:
    """Lets the broker delete segments after the named consumer groups have committed offsets past
    them."""

    OPTIONS = {
        "groups": Option("list", "consumer groups that must have read a segment before it may go")
    }

    def __init__(self, options: Options) -> None:
        self.groups = options["groups"]
        if not self.groups:
            raise ValueError("the option groups must name at least one consumer group")

    @hookimpl
    def deletable_segments(self, log: LogView) -> int:
        read = min(log.committed_offsets.get(group, -1) for group in self.groups)
        return sum(1 for segment in log.segments if segment.next_offset <= read and _has(segment))


def _has(segment: SegmentView) -> bool:
    """Returns whether the segment has records: the broker need not roll an empty active segment."""
    return bool(segment.next_offset > segment.base_offset)
