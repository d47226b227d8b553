"""Imports point one way. ROOMS is the table of ARCHITECTURE.md; a room absent from it fails."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODEC = (
    "cext.codec.varint",
    "cext.codec.crc",
    "cext.codec.wire",
    "cext.codec.inflate",
    "cext.record.key_hash",
    "cext.record.records",
    "cext.record.columns",
    "cext.record.column_stream",
    "cext.log.index",
    "cext.log.mapped_segment",
)

# Packages of cext, the lowest first: each may import itself and the ones before it.
CEXT = (
    "memory",
    "codec",
    "record",
    "log",
    "partition",
    "network",
    "coordinator",
    "fetch",
    "produce",
)

# room -> the rooms it may import. Each line adds to what the rooms above it on the page may see.
LOW = {"cext": set(), "errors": set(), "config": {"errors"}}
LOW |= {"zookeeper_client": set()}
MIDDLE = {"wire", "hooks", "telemetry"}
STATE = {"client", "metadata", "storage"}
SERVING = {"server", "security"}
COORDINATION = {"groups", "transactions", "controller"}
ROOMS: dict[str, set[str]] = dict(LOW)
BASE = {"cext", "errors", "config"}
ROOMS |= {room: BASE | {"wire"} for room in MIDDLE}
ROOMS |= {room: BASE | MIDDLE for room in STATE}
ROOMS |= {room: BASE | MIDDLE | STATE for room in SERVING}
ROOMS |= {room: BASE | MIDDLE | STATE | SERVING for room in COORDINATION}
ROOMS["share"] = BASE | MIDDLE | STATE | SERVING | {"groups"}
ROOMS["api"] = BASE | MIDDLE | STATE | SERVING | COORDINATION | {"share"}
ROOMS["coordinators"] = ROOMS["api"]
ROOMS["node"] = ROOMS["api"] | {"api", "coordinators", "plugins"}
ROOMS["cli"] = ROOMS["testing"] = ROOMS["node"] | {"node", "scan", "spark"}
# These see the client, the wire, the hooks, the codec and the public API only.
ROOMS |= {
    room: {"client", "wire", "hooks", "cext", "errors", "public"}
    for room in ("clients", "scan", "spark", "plugins")
}
ROOMS["spark"] |= {"scan"}
ROOMS["plugins"] |= {"spark"}  # checkpoints, for spark-loader
ROOMS["clients"] |= {"zookeeper_client"}
ROOMS["metadata"] |= {"zookeeper_client"}
ROOMS["cli"] |= {"clients"}
ROOMS["public"] = {"testing", "hooks"}  # `from barnabas import Broker, hookimpl`
ROOMS["__main__"] = {"cli"}


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "public"


def climbs(module: str, imported: str) -> bool:
    """Whether a module of cext imports one of a package above its own."""
    own, other = (name.split(".")[2:3] for name in (module, imported))
    return bool(own and other) and CEXT.index(own[0]) < CEXT.index(other[0])


def source_files() -> list[tuple[str, Path]]:
    found = []
    for folder, prefix in (
        ("broker", "barnabas"),
        ("cext", "barnabas.cext"),
        ("plugins", "barnabas.plugins"),
        ("clients", "barnabas.clients"),
    ):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".pyx", ".pxd"):
                inner = path.relative_to(ROOT / folder).with_suffix("").parts
                names = [part for part in inner if part != "__init__"]
                found.append((".".join([prefix, *names]), path))
    return found


def imports_of(path: Path) -> set[str]:
    text = path.read_text()
    if path.suffix != ".py":
        found = re.findall(r"^\s*(?:from|cimport|import)\s+(barnabas[\w.]*)", text, re.M)
        return set(found)
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "barnabas":
                names |= {_attribute_of_public(alias.name) for alias in node.names}
            else:
                names.add(node.module)
    return {name for name in names if name == "barnabas" or name.startswith("barnabas.")}


def _attribute_of_public(name: str) -> str:
    """`from barnabas import config` names a room; `from barnabas import __version__` does not."""
    return f"barnabas.{name}" if name in ROOMS else "barnabas"


def violations(files: list[tuple[str, set[str]]]) -> list[str]:
    wrong = []
    for module, imported in files:
        room = room_of(module)
        if room not in ROOMS:
            wrong.append(f"{module}: room {room!r} is not in the table")
            continue
        for name in sorted(imported):
            target = room_of(name)
            if target in (room, "public") and room not in LOW:
                continue
            if target != room and target not in ROOMS[room]:
                wrong.append(f"{module} imports {name}: {room} may not see {target}")
            outside_codec = room in ("clients", "scan", "spark", "plugins") and target == "cext"
            if target == room == "cext" and climbs(module, name):
                wrong.append(f"{module} imports {name}: a lower package of cext may not see it")
            if outside_codec and not name.removeprefix("barnabas.").startswith(CODEC):
                wrong.append(f"{module} imports {name}: only the codec of cext is for {room}")
    return wrong


def test_imports_point_one_way():
    files = [(module, imports_of(path)) for module, path in source_files()]
    assert len(files) > 5
    assert violations(files) == []


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("barnabas.storage.log", "barnabas.api.table"),
        ("barnabas.cext.log.log_handle", "barnabas.config"),
        ("barnabas.newroom.thing", "barnabas.config"),
        ("barnabas.plugins.retention_time", "barnabas.storage.retention"),
        ("barnabas.plugins.retention_time", "barnabas.cext.log.log_handle"),
    ],
)
def test_a_planted_violation_is_seen(module, imported):
    assert violations([(module, {imported})])


def test_no_import_by_directory_name():
    for module, path in source_files():
        names = re.findall(r"^\s*(?:from|import|cimport)\s+(\w+)", path.read_text(), re.M)
        assert not {"cext", "broker", "plugins", "clients"} & set(names), module
