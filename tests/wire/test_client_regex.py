"""Patterns from clients: RE2's syntax, whole matches, and bounded time and memory."""

import subprocess
import sys
import time

import pytest

from barnabas.wire.client_regex import InvalidPattern, Regex


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("a{2,3}", "aaaa", False),
        ("x{,3}", "x{,3}", True),
        ("[]a]", "]", True),
        ("[[:alpha:]_]+", "ab_", True),
        ("a(?i:b)c", "aBc", True),
        ("a(?i:b)c", "aBC", False),
        ("(?P<n>a)b", "ab", True),
        ("a.c", "a\nc", False),
        ("(?s)a.c", "a\nc", True),
        ("\\Qa.b\\E", "axb", False),
        ("\\x41\\x{1F600}", "A\U0001f600", True),
        ("", "", True),
        ("orders-.*", "my-orders-1", False),
        ("\\pL+", "abé", True),
        ("\\p{Greek}+", "αβ", True),
        ("\\101\\0", "A\0", True),
        ("(?:a|b$)*", "aab", True),
    ],
)
def test_patterns_are_matched_whole(pattern, text, matches):
    assert Regex(pattern).matches(text) is matches


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "[", "a{2,1}", "*a", "[b-a]", "\\y", "a**", "(?<", "x{1001}", "(?z)", "\\x{110000}"]
    + ["\\p{Klingon}", "\\pQ", "\\1", "\\p{L", "(?=a)", "a*+"]
    + ["(" * 500, "(a{1000}){1000}", "(\\pL{500}){2}"],
)
def test_what_is_no_pattern_is_refused_with_a_reason(pattern, capfd):
    with pytest.raises(InvalidPattern, match="."):
        Regex(pattern)
    assert capfd.readouterr() == ("", "")  # re2's own log goes to stderr


def test_no_pattern_takes_time_that_runs_away():
    begun = time.process_time()
    for pattern in ("(a*)*b", "(a|a)*(a|a)*x", "(a?){50}a{50}", "(.*)(.*)(.*)(.*)y"):
        assert not Regex(pattern).matches("a" * 2000)
    assert time.process_time() - begun < 5  # Python's re takes hours for the first


def test_a_program_larger_than_its_memory_is_refused():
    with pytest.raises(InvalidPattern, match="4096 letters"):
        Regex("a" * 4097)
    Regex("(?:" + "|".join(f"{n:04}" for n in range(800)) + ")")
    with pytest.raises(InvalidPattern, match="too large"):
        Regex("|".join(["\\pL{200}"] * 40))


def test_the_package_is_imported_with_the_first_expression():
    text = (
        "import sys, barnabas.wire.client_regex as c; assert 're2' not in sys.modules; c.Regex('a')"
    )
    subprocess.run([sys.executable, "-c", text], check=True)
