"""The bill of materials of a release in CycloneDX's format: sbom.py DIST ONEFILE INTO.

DIST has the files of the release: each is a component with its checksum, and depends on what is in
it or what pip brings for it. ONEFILE is the folder in which release/onefile worked: its environment
has the packages, whose checksums release/onefile.lock pins, and its program has the libraries that
came from the system, named by their Debian package. The same input gives the same bytes."""

import hashlib
import os
import re
import subprocess
import sys
import tomllib
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

RELEASE = Path(__file__).resolve().parent
LOCKED = re.compile(r"^([^\s=]+)==(\S+).*?\\\n((?: +--hash=\S+(?: \\)?\n)+)", re.M)
TOOLS = ("auditwheel", "cython", "pyinstaller", "setuptools", "ziglang")


def sha256(path: Path) -> HashType:
    return HashType(
        alg=HashAlgorithm.SHA_256, content=hashlib.sha256(path.read_bytes()).hexdigest()
    )


def library(url: PackageURL, **more: object) -> Component:
    return Component(
        type=ComponentType.LIBRARY,
        name=url.name,
        version=url.version,
        purl=url,
        bom_ref=str(url),
        **more,
    )


def locked(*lists: str) -> dict[str, Component]:
    """The packages of release/*.lock by name. Pip takes no file with another checksum."""
    found = {}
    for row in lists:
        for name, version, hashes in LOCKED.findall((RELEASE / row).read_text()):
            files = sorted(re.findall(r"sha256:([0-9a-f]{64})", hashes))
            found[name] = library(
                PackageURL("pypi", None, name, version),
                properties=[Property(name="barnabas:file:sha256", value=each) for each in files],
            )
    return found


def required(
    root: Distribution, extras: Iterable[str], installed: dict[str, Distribution]
) -> set[str]:
    """The names of the packages that the distribution requires, directly or not."""
    found: set[str] = set()
    waiting = [(root, tuple(extras))]
    while waiting:
        distribution, wanted = waiting.pop()
        for row in map(Requirement, distribution.requires or ()):
            name = canonicalize_name(row.name)
            here = row.marker is None or any(
                row.marker.evaluate({"extra": e}) for e in ("", *wanted)
            )
            if here and name not in found and name in installed and name != "barnabas":
                found.add(name)
                waiting.append((installed[name], tuple(row.extras)))
    return found


def openssl() -> Component:
    rows = tomllib.loads((RELEASE / "openssl/Cargo.lock").read_text())["package"]
    [crate] = [row for row in rows if row["name"] == "openssl-src"]
    made = library(
        PackageURL("generic", None, "openssl", crate["version"].partition("+")[2]),
        licenses=[LicenseExpression("Apache-2.0")],
        description="linked into barnabas/cext/network/tls of the wheels and of the one file",
    )
    made.properties.add(
        Property(name="barnabas:source", value=f"crate openssl-src {crate['version']}")
    )
    made.properties.add(Property(name="barnabas:source:sha256", value=crate["checksum"]))
    return made


def of_system(path: Path) -> Component:
    """A library that the one file has from the machine that built it."""
    listed = subprocess.run(["dpkg-query", "-S", f"*/{path.name}"], capture_output=True, text=True)
    if listed.returncode:
        return library(PackageURL("generic", None, path.name, "unknown"), hashes=[sha256(path)])
    package = listed.stdout.partition(": ")[0].partition(", ")[0]
    words = ["dpkg-query", "-W", "-f", "${Package} ${Version}", package]
    name, version = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    return library(
        PackageURL("deb", "debian", name, version, {"file": path.name}),
        hashes=[sha256(path)],
        description=f"{path.name} of the one file",
    )


def bundled(program: Path) -> list[Component]:
    """Shared libraries of the one file: of the system, and of wheels (folders PACKAGE.libs)."""
    inside = program / "_internal"
    found = [
        of_system(path) for path in sorted(inside.glob("lib*.so*")) if "python" not in path.name
    ]
    for path in sorted(inside.glob("*.libs/*.so*")):
        url = PackageURL("generic", path.parent.name, path.name, None)
        found.append(
            library(url, hashes=[sha256(path)], description=f"of the wheel {path.parent.stem}")
        )
    return found


def bill(dist: Path, onefile: Path, but: set[str]) -> Bom:
    project = tomllib.loads((RELEASE.parent / "pyproject.toml").read_text())["project"]
    [site] = onefile.glob("venv/lib/python3*/site-packages")
    installed = {canonicalize_name(row.name): row for row in distributions(path=[str(site)])}
    root = installed["barnabas"]
    spec = (RELEASE / "onefile.spec").read_text()
    extras = re.findall(r'"(.*?)"', re.search(r"^EXTRAS = (.*)$", spec, re.M)[1])
    packages = locked("onefile.lock")
    needed = [packages[name] for name in sorted(required(root, (), installed))]
    whole_file = [packages[name] for name in sorted(required(root, extras, installed))]
    python = library(
        PackageURL("generic", None, "python", python_of(onefile)),
        licenses=[LicenseExpression("PSF-2.0")],
    )
    tls, system = openssl(), bundled(onefile / "dist" / "barnabas")

    whole = Component(
        type=ComponentType.APPLICATION,
        name=project["name"],
        version=project["version"],
        licenses=[LicenseExpression(project["license"])],
        purl=PackageURL("pypi", None, project["name"], project["version"]),
        bom_ref="release",
    )
    bom = Bom(components=[*whole_file, python, tls, *system])
    bom.metadata.component = whole
    bom.metadata.timestamp = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC)
    tools = locked("wheels.lock", "pyinstaller.lock")
    for name in TOOLS:
        bom.metadata.tools.components.add(tools[name])
    files = []
    for path in sorted(dist.iterdir()):
        if path.name in but or not path.is_file():
            continue
        made = Component(
            type=ComponentType.FILE, name=path.name, bom_ref=path.name, hashes=[sha256(path)]
        )
        files.append(made)
        bom.components.add(made)
        if path.suffix == ".whl":
            bom.register_dependency(made, [*needed, tls])
        elif path.name == "barnabas":
            bom.register_dependency(made, [*whole_file, python, tls, *system])
        else:
            bom.register_dependency(made, needed)
    bom.register_dependency(whole, files)
    checksums = "".join(sorted(row.content for made in files for row in made.hashes))
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, checksums)
    return bom


def python_of(onefile: Path) -> str:
    """The version of the interpreter in the one file."""
    settings = (onefile / "venv" / "pyvenv.cfg").read_text()
    return re.search(r"^version(?:_info)? = ([\d.]+)", settings, re.M)[1]


if __name__ == "__main__":
    dist, onefile, into = map(Path, sys.argv[1:])
    made = bill(dist, onefile, but={into.name, "SHA256SUMS"})
    text = JsonV1Dot6(made).output_as_string(indent=2)
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if wrong:
        raise SystemExit(f"the bill of materials does not match its schema: {wrong}")
    into.write_text(text + "\n")
    print(f"{into}: {len(made.components)} components")
