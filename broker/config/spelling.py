"""What a misspelt name was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """` Did you mean NAME?`, or nothing."""
    import difflib  # only when something is wrong

    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" Did you mean {found[0]}?" if found else ""
