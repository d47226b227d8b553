"""Keeps the newest segments of each partition and deletes the others, however old or large.

plugin.keep-newest.segments=3
retention.policy=keep-newest        (of the topic)
"""

from barnabas import hookimpl
from barnabas.hooks import Option


class KeepNewest:
    """The newest `segments` segments of each partition are kept."""

    OPTIONS = {"segments": Option("integer", "segments to keep", default=2, least=1)}

    def __init__(self, options):
        self.segments = options["segments"]

    @hookimpl
    def deletable_segments(self, log):
        return max(0, len(log.segments) - self.segments)
