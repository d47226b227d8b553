"""The planted bugs: read from the .toml files beside this one, and found in the sources.

A bug is a piece of text and what stands in its place. `file` says where the text was when the bug
was written; when the text has moved, the one file of the product that has it is taken. So a file
may be moved or renamed without a change here. When the text itself has changed, the bug is missing
until somebody writes it anew.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PRODUCT = ("broker", "cext", "clients", "plugins")
SUFFIXES = (".py", ".pyx", ".pxd")
PACKAGES = frozenset(path.stem for path in HERE.glob("*.toml"))


@dataclass(frozen=True)
class Mutant:
    """damage: what the bug does to a user. tests: folders and files under the root of the project
    that should notice it, before tests/compat."""

    package: str
    damage: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def mutants() -> list[Mutant]:
    found = []
    for path in sorted(HERE.glob("*.toml")):
        given = tomllib.loads(path.read_text())
        tests = tuple(given["tests"].split())
        found += [Mutant(package=path.stem, tests=tests, **row) for row in given["mutant"]]
    return found


def sources(root: Path) -> dict[Path, str]:
    """The product's files and what is in them."""
    paths = (p for top in PRODUCT for p in sorted((root / top).rglob("*")))
    return {p: p.read_text() for p in paths if p.suffix in SUFFIXES}


def place(mutant: Mutant, root: Path, texts: dict[Path, str]) -> Path | None:
    """The file that has the text exactly once, and is the only one or the named one."""
    named = root / mutant.file
    if texts.get(named, "").count(mutant.old) == 1:
        return named
    having = [path for path, text in texts.items() if mutant.old in text]
    one = len(having) == 1 and texts[having[0]].count(mutant.old) == 1
    return having[0] if one else None
