"""No deletion: `retention.policy=none` keeps every segment, whatever retention.ms says."""

from barnabas.hooks import hookimpl


class RetentionNone:
    """Keeps every segment."""

    @hookimpl
    def deletable_segments(self) -> int:
        return 0
