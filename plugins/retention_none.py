"""No deletion: `retention.policy=none` keeps every segment, whatever retention.ms says."""

from barnabas.hooks import hookimpl


class RetentionNone:
    """Nothing is deleted."""

    @hookimpl
    def deletable_segments(self) -> int:
        return 0
