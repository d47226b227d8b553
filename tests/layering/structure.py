"""Counts files, lines, packages and arrows of a checkout, for docs/decisions/structure.md.

python tests/layering/structure.py [CHECKOUT]
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

PREFIXES = {
    "broker": ("barnabas",),
    "cext": ("barnabas", "cext"),
    "plugins": ("barnabas", "plugins"),
    "clients": ("barnabas", "clients"),
}
CODE = (".py", ".pyx", ".pxd", ".pyi", ".h", ".c")
TESTED = ("cext", "groups", "transactions", "storage", "spark")


def lines(root: Path, files: list[str]) -> int:
    return sum((root / name).read_bytes().count(b"\n") for name in files)


def module_of(name: str) -> str:
    first, *inner = Path(name).with_suffix("").parts
    return ".".join((*PREFIXES[first], *(part for part in inner if part != "__init__")))


def unit_of(name: str) -> str:
    """The package of a file: its folder. A module at the top of broker or clients, and the one that
    makes the coordinators, is a unit of its own, as in tests/layering/test_layers.py."""
    path = Path(name)
    alone = str(path.parent) in ("broker", "clients") or path.name == "coordinators.py"
    return str(path.with_suffix("") if alone else path.parent)


def imported(root: Path, name: str, known: dict[str, str]) -> set[str]:
    text = (root / name).read_text()
    if not name.endswith(".py"):
        return set(re.findall(r"^\s*(?:from|cimport|import)\s+(barnabas[\w.]*)", text, re.M))
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {node.module} | (inner & known.keys())
    return {module for module in found if module.split(".")[0] == "barnabas"}


def arrows(root: Path, files: list[str]) -> set[tuple[str, str]]:
    """(package, a package that it imports), each pair once."""
    known = {module_of(name): name for name in files}
    found = set()
    for name in files:
        if name.endswith((".pyi", ".h")):
            continue
        for module in imported(root, name, known):
            if module in known and unit_of(known[module]) != unit_of(name):
                found.add((unit_of(name), unit_of(known[module])))
    return found


def main(root: Path) -> None:
    listed = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True)
    files = [name for name in listed.stdout.split() if (root / name).is_file()]
    product = [name for name in files if name.split("/")[0] in PREFIXES and name.endswith(CODE)]
    inside = [name for name in files if name.startswith("tests/")]
    tests = [name for name in inside if name.endswith((*CODE, ".java", ".toml"))]
    for title, rows in (
        *((top, [name for name in product if name.startswith(f"{top}/")]) for top in PREFIXES),
        ("product", product),
        ("tests", tests),
        ("data of tests", [name for name in inside if name not in tests]),
    ):
        print(f"{title:14} {len(rows):5} files {lines(root, rows):7,} lines")
    folders: dict[str, int] = {}
    for name in product:
        if name.endswith((".py", ".pyx")) and not name.endswith("__init__.py"):
            folders[str(Path(name).parent)] = folders.get(str(Path(name).parent), 0) + 1
    for folder, count in sorted(folders.items(), key=lambda row: -row[1]):
        print(f"{folder:32} {count:3} modules")
    pairs = arrows(root, product)
    both = sorted(pair for pair in pairs if pair[::-1] in pairs and pair[0] < pair[1])
    print(f"{len(folders)} packages, {len(pairs)} arrows, both ways: {both}")
    for folder in TESTED:
        texts = [(root / name).read_text() for name in tests if f"tests/{folder}/" in name]
        count = sum(len(re.findall(r"^\s*(?:async )?def test_", text, re.M)) for text in texts)
        print(f"tests/{folder:26} {count:3} tests")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2]))
