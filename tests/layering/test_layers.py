"""Imports point one way. LAYERS is the table of ARCHITECTURE.md; a layer absent from it fails."""

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
    "replica",
    "key_hash",  # the former place of record.key_hash
)

# Layer -> the layers it may import. A layer is a top-level module or package; the sub-packages of
# `coordinator` and the module that connects them are separate layers. Each line adds to what the
# layers above it on the page may see.
LOW: dict[str, set[str]] = {"cext": set(), "errors": set(), "zookeeper_client": set()}
LOW |= {"config": {"errors"}}
BASE = {"cext", "errors", "config"}
STATE = {"client", "metadata", "storage"}
JOURNAL = BASE | {"wire", "hooks"} | STATE | {"server"}
COORDINATORS = {
    "coordinator.groups",
    "coordinator.transactions",
    "coordinator.share",
    "coordinator.streams",
}
LAYERS: dict[str, set[str]] = dict(LOW)
LAYERS |= {"tls": BASE, "wire": BASE, "hooks": BASE | {"wire"}}
LAYERS |= {layer: BASE | {"wire", "hooks"} for layer in STATE}
LAYERS["client"] |= {"tls"}  # a client's PKCS12 and JKS stores are read as a broker's
LAYERS["security"] = BASE | {"tls", "wire", "metadata"}
LAYERS["quotas"] = BASE | {"metadata"}
LAYERS["server"] = BASE | {"wire", "hooks", "quotas"} | STATE
LAYERS["controller"] = JOURNAL | {"security", "quotas"}
LAYERS["coordinator"] = JOURNAL
LAYERS["coordinator.groups"] = LAYERS["coordinator.transactions"] = JOURNAL | {"coordinator"}
LAYERS["coordinator.share"] = JOURNAL | {"coordinator", "coordinator.groups"}
LAYERS["coordinator.streams"] = LAYERS["coordinator.share"]
LAYERS["coordinator.coordinators"] = JOURNAL | {"coordinator", "controller"} | COORDINATORS
LAYERS["telemetry"] = JOURNAL | {"security", "coordinator"} | COORDINATORS
LAYERS["api"] = LAYERS["telemetry"] | {"quotas", "controller", "telemetry"}
LAYERS["legacy07"] = LAYERS["api"] | {"api"}
LAYERS["stages"] = LAYERS["legacy07"] | {"legacy07", "tls", "coordinator.coordinators", "public"}
LAYERS["takeover"] = LAYERS["stages"] | {"stages"}
LAYERS["console"] = BASE | {"wire", "hooks", "client", "security", "telemetry", "public"}
LAYERS["node"] = LAYERS["stages"] | {"stages", "console"}
LAYERS["cli"] = LAYERS["testing"] = LAYERS["node"] | {"node", "scan", "spark"}
# These see the client, the wire, the hooks, the codec and the public API only.
LAYERS |= {
    layer: {"client", "wire", "hooks", "cext", "errors", "public"}
    for layer in ("clients", "scan", "spark", "plugins")
}
LAYERS["spark"] |= {"scan"}
LAYERS["plugins"] |= {"spark"}  # checkpoints, for spark-loader
LAYERS["clients"] |= {"zookeeper_client"}
LAYERS["metadata"] |= {"zookeeper_client"}
LAYERS["cli"] |= {"clients", "takeover"}
LAYERS["public"] = {"testing", "hooks"}  # `from barnabas import Broker, hookimpl`
LAYERS["__main__"] = {"cli"}


def layer_of(module: str) -> str:
    parts = module.split(".")
    if len(parts) == 1:
        return "public"
    inner = ".".join(parts[1:3])
    return inner if inner in LAYERS else parts[1]


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
    """`from barnabas import config` names a layer; `from barnabas import __version__` does not."""
    return f"barnabas.{name}" if name in LAYERS else "barnabas"


def violations(files: list[tuple[str, set[str]]]) -> list[str]:
    wrong = []
    for module, imported in files:
        layer = layer_of(module)
        if layer not in LAYERS:
            wrong.append(f"{module}: layer {layer!r} is not in the table")
            continue
        for name in sorted(imported):
            target = layer_of(name)
            if target in (layer, "public") and layer not in LOW:
                continue
            if target != layer and target not in LAYERS[layer]:
                wrong.append(f"{module} imports {name}: {layer} may not see {target}")
            outside_codec = layer in ("clients", "scan", "spark", "plugins") and target == "cext"
            if target == layer == "cext" and climbs(module, name):
                wrong.append(f"{module} imports {name}: a lower package of cext may not see it")
            if outside_codec and not name.removeprefix("barnabas.").startswith(CODEC):
                wrong.append(f"{module} imports {name}: only the codec of cext is for {layer}")
    return wrong


def test_imports_point_one_way():
    files = [(module, imports_of(path)) for module, path in source_files()]
    assert len(files) > 5
    assert violations(files) == []


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("barnabas.storage.log", "barnabas.api.table"),
        ("barnabas.coordinator.journal", "barnabas.coordinator.groups.offsets"),
        ("barnabas.coordinator.groups.offsets", "barnabas.coordinator.coordinators"),
        ("barnabas.server.clock", "barnabas.coordinator.timers"),
        ("barnabas.cext.log.log_handle", "barnabas.config"),
        ("barnabas.newlayer.thing", "barnabas.config"),
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
