"""ssl.principal.mapping.rules: the user's name in the name of a certificate (KIP-371).

    RULE:pattern/replacement/   L or U may follow: the name in small or capital letters
    DEFAULT                     the whole name of the certificate
    rules                       with commas between them; the first one that matches counts

A pattern matches the whole name; then, as Java's String.replaceAll does it, each match in the name
is replaced. $1 is the first group of the pattern, and $2 without a second group is text. A slash in
a pattern or replacement is written \\/. Patterns are RE2's, so that no name in a certificate holds
a thread: Java's look-ahead and back-references are refused. Kafka: SslPrincipalMapper.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from barnabas.wire.client_regex import InvalidPattern, Match, Regex

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(?:.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)")
_PARSER = re.compile(_RULE)
CASES: dict[str, Callable[[str], str]] = {"": str, "L": str.lower, "U": str.upper}


class InvalidRule(ValueError):
    """A rule cannot be used; the text says which and why."""


class NoRule(Exception):
    """No rule matches the name of a certificate."""


class _Rule(NamedTuple):
    pattern: Regex
    replacement: tuple[str | int, ...]  # texts, and numbers of groups
    case: str

    def apply(self, name: str) -> str | None:
        if not self.pattern.matches(name):
            return None
        return CASES[self.case](self.pattern.replaced(name, self._expanded))

    def _expanded(self, match: Match) -> str:
        return "".join(
            (match.group(part) or "") if isinstance(part, int) else part
            for part in self.replacement
        )


class PrincipalRules:
    """The rules of one listener."""

    def __init__(self, text: str) -> None:
        """Raises InvalidRule."""
        split = [found[1] for found in _SPLITTER.finditer(text.strip())]
        self._rules = [rule for part in split if (rule := _parsed(part)) is not None]

    def name_of(self, name: str) -> str:
        """The user's name. Raises NoRule."""
        for rule in self._rules:
            found = rule.apply(name) if isinstance(rule, _Rule) else name
            if found is not None:
                return found
        raise NoRule("no rule of ssl.principal.mapping.rules matches the name of the certificate")


def _parsed(text: str) -> _Rule | str | None:
    """A rule, DEFAULT, or None for an empty one."""
    found = _PARSER.match(text)
    assert found is not None, "the last alternative matches every text"
    if found.end() != len(text):
        raise InvalidRule(f"Invalid rule: `{text}`, unmatched substring: `{text[found.end() :]}`")
    if found[1]:
        return found[1]
    if found[2] is None:
        return None
    try:
        pattern = Regex(found[2])
    except InvalidPattern as error:
        raise InvalidRule(f"Invalid rule: `{text}`: {error}") from None
    return _Rule(pattern, _replacement(text, found[3], pattern.group_count), found[4])


def _replacement(rule: str, text: str, group_count: int) -> tuple[str | int, ...]:
    """Splits a replacement by the syntax of Java's Matcher.appendReplacement."""
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        if text[at] == "\\":
            parts.append(text[at + 1])  # the rule's syntax leaves no \\ at the end
            at += 2
        elif text[at] == "$":
            end = _reference_end(text, at + 1, group_count)
            if end > at + 1:
                parts.append(int(text[at + 1 : end]))
            elif group_count and text[at + 1 : at + 2].isdecimal():
                parts.append("$")
                end = at + 1
            else:
                raise InvalidRule(
                    f"Invalid rule: `{rule}`: ${text[at + 1 : at + 2]} in the replacement names no"
                    " group of the pattern. Write \\$ for a dollar sign."
                )
            at = end
        else:
            parts.append(text[at])
            at += 1
    return tuple(parts)


def _reference_end(text: str, begin: int, group_count: int) -> int:
    """Where the number of a group ends that begins at `begin`; `begin` if there is none."""
    end = begin
    while text[end : end + 1] in tuple("0123456789") and int(text[begin : end + 1]) <= group_count:
        end += 1
    return end
