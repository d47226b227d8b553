"""Whitelist and Blacklist: the topics that a connector reads, by a regular expression.

As in 0.8 a comma means "or", spaces and the quotes around an expression are ignored, and the
expression must match the whole name. Its syntax is Python's.
"""

from __future__ import annotations

import re

# Internal topics of brokers; exclude.internal.topics=false reads them too.
INTERNAL = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)


class TopicFilter:
    """Base class of both. Raises ValueError for an invalid expression."""

    pattern = ""  # the name of its kind in the registry

    def __init__(self, raw_regex: str) -> None:
        self.regex = raw_regex.strip().replace(",", "|").replace(" ", "").strip("\"'")
        try:
            self._compiled = re.compile(self.regex)
        except re.error as error:
            raise ValueError(f"{raw_regex!r} is not a regular expression: {error}") from error

    def is_topic_allowed(self, topic: str, exclude_internal_topics: bool = True) -> bool:
        """Returns whether the connector reads a topic."""
        if exclude_internal_topics and topic in INTERNAL:
            return False
        return self._allows(self._compiled.fullmatch(topic) is not None)

    def _allows(self, matches: bool) -> bool:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.regex!r})"


class Whitelist(TopicFilter):
    """Allows the topics whose names match."""

    pattern = "white_list"

    def _allows(self, matches: bool) -> bool:
        return matches


class Blacklist(TopicFilter):
    """Allows the topics whose names do not match."""

    pattern = "black_list"

    def _allows(self, matches: bool) -> bool:
        return not matches
