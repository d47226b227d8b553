"""Suggests the correct name for a misspelt one."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """Returns ` Did you mean NAME?` with the most similar of the known names; "" if none is."""
    import difflib  # imported only for an error

    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" Did you mean {found[0]}?" if found else ""
