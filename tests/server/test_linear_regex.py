"""Patterns from clients: the same answers as Python's re, in time that cannot run away."""

import random
import re
import time

import pytest

from barnabas.server.linear_regex import STEPS_MAX, InvalidPattern, Regex


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("a*", "aaa", True),
        ("a{2,3}", "aa", True),
        ("a{2,3}", "aaaa", False),
        ("a{2,}", "aaaaa", True),
        ("x{,3}", "x{,3}", True),
        ("[^a-c]+", "xyz", True),
        ("[]a]", "]", True),
        ("[[:alpha:]_]+", "ab_", True),
        ("(?i)AbC", "aBc", True),
        ("a(?i:b)c", "aBc", True),
        ("a(?i:b)c", "aBC", False),
        ("(?P<n>a)b", "ab", True),
        ("\\d+-\\w+", "12-ab_", True),
        ("a.c", "a\nc", False),
        ("(?s)a.c", "a\nc", True),
        ("\\Qa.b\\E", "a.b", True),
        ("\\Qa.b\\E", "axb", False),
        ("\\x41\\x{1F600}", "A\U0001f600", True),
        ("^a\\b.b$", "a b", True),
        ("", "", True),
        ("orders-.*", "my-orders-1", False),
        ("\\pL+", "abC", True),
        ("\\pL+", "a1", False),
        ("[\\p{Lu}\\d]+", "A1", True),
        ("\\P{Nd}*", "ab", True),
        ("\\p{^Latin}", "1", True),
        ("\\p{Greek}", "a", False),
        ("\\101\\0", "A\0", True),
        ("(?m)a$\n^b", "a\nb", True),
        ("(?:a|b$)*", "aab", True),
    ],
)
def test_patterns_are_matched_whole(pattern, text, fits):
    assert Regex(pattern).matches(text) is fits


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "[", "a{2,1}", "*a", "[b-a]", "\\y", "a**", "(?<", "x{1001}", "(?z)", "\\x{110000}"]
    + ["\\p{Klingon}", "\\pQ", "\\1", "\\p{L"]
    + ["(" * 500, "(a{1000}){1000}"],
)
def test_what_is_no_pattern_is_refused(pattern):
    with pytest.raises(InvalidPattern):
        Regex(pattern)


def test_sets_that_are_kept_have_a_limit_and_do_not_change_answers(monkeypatch):
    monkeypatch.setattr("barnabas.server.linear_regex.SETS_MAX", 4)
    ours, theirs = Regex("(a|b)*a(a|b){6}"), re.compile("(a|b)*a(a|b){6}")
    chance = random.Random(2)
    for _ in range(300):
        text = "".join(chance.choice("ab") for _ in range(chance.randrange(16)))
        assert ours.matches(text) == (theirs.fullmatch(text) is not None), text
        assert len(ours._sets) <= 5


def test_no_pattern_takes_time_that_runs_away():
    begun = time.perf_counter()
    for pattern in ("(a*)*b", "(a|a)*(a|a)*x", "(a?){50}a{50}", "(.*)(.*)(.*)(.*)y"):
        assert not Regex(pattern).matches("a" * 2000)
    assert time.perf_counter() - begun < 5  # re takes hours for the first
    assert STEPS_MAX < 100_000


def generated(chance, depth):
    kind = chance.random()
    if depth == 0 or kind < 0.35:
        return chance.choice(["a", "b", "c", ".", "[ab]", "[^a]", "\\w", "\\d"])
    if kind < 0.5:
        return f"({generated(chance, depth - 1)}|{generated(chance, depth - 1)})"
    if kind < 0.7:
        count = chance.choice(["*", "+", "?", "{1,2}", "{2}", "{0,1}?", "*?"])
        return f"(?:{generated(chance, depth - 1)}){count}"
    return generated(chance, depth - 1) + generated(chance, depth - 1)


def test_it_agrees_with_re():
    chance = random.Random(1)
    for _ in range(1500):
        pattern = generated(chance, 4)
        ours, theirs = Regex(pattern), re.compile(pattern, re.ASCII)
        for _ in range(4):
            text = "".join(chance.choice("abc1") for _ in range(chance.randrange(7)))
            assert ours.matches(text) == (theirs.fullmatch(text) is not None), (pattern, text)
