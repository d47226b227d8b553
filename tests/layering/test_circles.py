"""No modules of one package import each other in a circle.

Every import statement counts: those of a function and those under TYPE_CHECKING too, because a
reader follows them, too. A .pyx and its .pxd are one module. The layers of test_layers
keep packages apart, so a circle through several packages would climb there.
"""

import ast
import re
from pathlib import Path

import pytest
from test_layers import source_files

Graph = dict[str, set[str]]

# Circles that remain: their modules, and why. A circle that is gone must leave this table.
REMAINING = {
    frozenset(("barnabas.cext.codec.cursor", "barnabas.cext.codec.varint")): "only by way of"
    " varint.pyx, Python's entrance to the cursor; cursor.pxd imports varint.pxd, which imports"
    " neither.",
}
CIMPORT = re.compile(
    r"^\s*from\s+(barnabas[\w.]*)\s+c?import\s+\(?([^\n#]*)|^\s*c?import\s+(.*)", re.M
)


def package_of(module: str) -> str:
    """`barnabas.hooks.loading` -> `barnabas.hooks`; modules of cext: `barnabas.cext`."""
    return ".".join(module.split(".")[:2])


def statements(path: Path) -> list[tuple[str, str]]:
    """(module, name imported from it or "") of each import in a source."""
    text = path.read_text()
    found = []
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                found += [(alias.name, "") for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                found += [(node.module, alias.name) for alias in node.names]
        return found
    for module, names, modules in CIMPORT.findall(text):
        found += [(module, name.split()[0]) for name in names.split(",") if name.split()]
        found += [(module, "")] if module else []
        found += [(name.split()[0], "") for name in modules.split(",") if name.split()]
    return found


def graph_of(sources: list[tuple[str, Path]]) -> Graph:
    """Module -> the modules of its package that it imports."""
    graph: Graph = {module: set() for module, _ in sources}
    for module, path in sources:
        for base, name in statements(path):
            inner = f"{base}.{name}"
            target = inner if inner in graph else base
            if target in graph and package_of(target) == package_of(module):
                graph[module] |= {target} - {module}
    return graph


def reachable(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def circles(graph: Graph) -> set[frozenset[str]]:
    """The largest sets of modules of which each imports, directly or not, all others."""
    reach = {module: reachable(graph, module) for module in graph}
    return {
        frozenset(other for other in reach[module] if module in reach[other])
        for module in graph
        if module in reach[module]
    }


def test_no_circle_inside_a_package() -> None:
    graph = graph_of(source_files())
    assert sum(len(targets) for targets in graph.values()) > 500
    found = circles(graph)
    new = [" <-> ".join(sorted(circle)) for circle in found - REMAINING.keys()]
    assert new == []
    gone = [" <-> ".join(sorted(circle)) for circle in REMAINING.keys() - found]
    assert gone == [], "these circles are gone: remove them from REMAINING"


@pytest.mark.parametrize(
    "line",
    [
        "from barnabas.hooks.process import Child",
        "from barnabas.hooks import process",
        "import barnabas.hooks.process",
        "if TYPE_CHECKING:\n    from barnabas.hooks.process import Child",
        "def start():\n    from barnabas.hooks.process import Child",
    ],
)
def test_a_planted_circle_is_seen(line: str, tmp_path: Path) -> None:
    names = ("plugin", "process")
    sources = [(f"barnabas.hooks.{name}", tmp_path / f"{name}.py") for name in names]
    sources[0][1].write_text(line + "\n")
    sources[1][1].write_text("from barnabas.hooks.plugin import Plugin\n")
    assert circles(graph_of(sources)) == {frozenset(module for module, _ in sources)}
    sources[1][1].write_text("from barnabas.wire.plugin import Plugin\n")
    assert circles(graph_of(sources)) == set()


@pytest.mark.parametrize(
    "line",
    [
        "from barnabas.cext.log.log cimport log_append, Log",
        "from barnabas.cext.log.log cimport (\n    Log,\n)",
        "from barnabas.cext.log cimport log",
        "cimport barnabas.cext.log.log",
    ],
)
def test_a_planted_circle_of_cext_is_seen(line: str, tmp_path: Path) -> None:
    log, segment, header = (tmp_path / name for name in ("log.pyx", "segment.pyx", "log.pxd"))
    log.write_text("cdef int x\n")
    header.write_text("from barnabas.cext.log.segment cimport Segment\n")
    segment.write_text(line + "\n")
    sources = [
        ("barnabas.cext.log.log", log),
        ("barnabas.cext.log.log", header),
        ("barnabas.cext.log.segment", segment),
    ]
    assert circles(graph_of(sources)) == {frozenset(("barnabas.cext.log.log", sources[2][0]))}
