"""Regular expressions of clients and settings: ConsumerGroupHeartbeat (KIP-848), ListTransactions
(66), ssl.principal.mapping.rules.

The syntax and its meaning are those of RE2, as in Kafka's brokers, which use RE2/J. The time of a
match is at most proportional to the size of the pattern times the size of the text. Python's `re`
backtracks, so that a pattern of a few letters could occupy a thread for hours. The `re2` package is
imported with the first expression (2 ms).

Known differences from RE2/J: `\\C` (one byte) and a group name that is used twice are accepted.
Limits: PATTERN_LETTERS_MAX; MEMORY_BYTES_MAX for the program and the cached states of one
expression. A larger program is refused; without memory for more states RE2 matches more slowly. re2
caches the last 128 expressions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

MEMORY_BYTES_MAX = 1 << 20
PATTERN_LETTERS_MAX = 4096


class InvalidPattern(ValueError):
    """The text is not a regular expression of RE2, or is too large. The message says why."""


class Match(Protocol):
    """A match of an expression in a text."""

    def group(self, index: int, /) -> str | None: ...


class Regex:
    """One compiled expression. Threads may share it."""

    def __init__(self, pattern: str) -> None:
        """Compiles the expression. Raises InvalidPattern."""
        if len(pattern) > PATTERN_LETTERS_MAX:
            raise InvalidPattern(f"it has more than {PATTERN_LETTERS_MAX} letters")
        import re2

        options = re2.Options()
        options.max_mem = MEMORY_BYTES_MAX
        options.log_errors = False
        try:
            self._compiled = re2.compile(pattern, options)
        except re2.error as error:
            raise InvalidPattern(_reason(error)) from error

    def matches(self, text: str) -> bool:
        """Returns whether the expression matches the whole text, as Java's Matcher.matches does."""
        return self._compiled.fullmatch(text) is not None

    @property
    def group_count(self) -> int:
        return int(self._compiled.groups)

    def replaced(self, text: str, replacement: Callable[[Match], str]) -> str:
        """Returns the text with each match replaced, as Java's String.replaceAll does; `$1` in the
        replacement is the first group."""
        return str(self._compiled.sub(replacement, text))


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    return text[:200] or "the program of the expression is too large"
