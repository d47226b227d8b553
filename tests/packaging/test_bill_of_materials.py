"""The bill of materials of a release (release/sbom.py), for files and an environment of the one
file that the test makes. The script itself compares the bill with the schema of CycloneDX."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytest.importorskip("cyclonedx", reason="needs cyclonedx-python-lib[json-validation]")
ROOT = Path(__file__).resolve().parents[2]
RELEASE = ROOT / "release"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (RELEASE / "onefile.lock").read_text()
LOCKED = dict(re.findall(r"^([^\s=]+)==(\S+)", LOCK, re.M))
# What packages that the broker requires require themselves (pip list of docs/evidence/packages.md).
INDIRECT = {
    "rich": ["markdown-it-py", "pygments"],
    "markdown-it-py": ["mdurl"],
    "python-snappy": ["cramjam"],
    "jinja2": ["markupsafe"],
    "cryptography": ["cffi"],
}
WHEEL, SDIST = "barnabas-0.1.0-cp311-cp311-manylinux_2_26_x86_64.whl", "barnabas-0.1.0.tar.gz"
BILL = "barnabas-0.1.0.cdx.json"


def install(site: Path, name: str, version: str, requires: list[str]) -> None:
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {row}" for row in requires)]
    (folder / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", *lines]) + "\n\n")


def place(folder: Path, wheel: bytes = b"a wheel") -> tuple[Path, Path]:
    """The folders of a release and of the one file's build."""
    dist, onefile = folder / "dist", folder / "onefile"
    dist.mkdir(parents=True)
    files = {WHEEL: wheel, SDIST: b"sources", "barnabas": b"one file", "SHA256SUMS": b"sums"}
    for name, data in files.items():
        (dist / name).write_bytes(data)
    site = onefile / "venv" / "lib" / "python3.11" / "site-packages"
    for name, version in LOCKED.items():
        install(site, name, version, INDIRECT.get(name, []))
    wanted = [
        *PROJECT["dependencies"],
        *(
            f'{row}; extra == "{extra}"'
            for extra, rows in PROJECT["optional-dependencies"].items()
            for row in rows
        ),
    ]
    install(site, "barnabas", PROJECT["version"], wanted)
    (onefile / "venv" / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.7\n")
    inside = onefile / "dist" / "barnabas" / "_internal"
    (inside / "some.libs").mkdir(parents=True)
    (inside / "libpython3.11.so.1.0").write_bytes(b"the interpreter")
    (inside / "libz.so.1").write_bytes(b"of the system")
    (inside / "some.libs" / "libsome-1.so").write_bytes(b"of a wheel")
    return dist, onefile


def write(dist: Path, onefile: Path) -> bytes:
    subprocess.run(
        [sys.executable, RELEASE / "sbom.py", dist, onefile, dist / BILL],
        check=True,
        capture_output=True,
        env=os.environ | {"SOURCE_DATE_EPOCH": "1767225600"},
    )
    return (dist / BILL).read_bytes()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    if shutil.which("dpkg-query") is None:
        pytest.skip("needs dpkg-query: a release is made on Debian")
    return write(*place(tmp_path_factory.mktemp("bill")))


@pytest.fixture
def bill(made):
    return json.loads(made)


def depends(bill: dict, on: str) -> set[str]:
    """The names of what a file has in it, or needs."""
    named = {row["bom-ref"]: row["name"] for row in bill["components"]}
    [row] = [row for row in bill["dependencies"] if row["ref"] == on]
    return {named[ref] for ref in row.get("dependsOn", [])}


def closure(*extras: str) -> set[str]:
    """What pip brings for barnabas with the extras, of the lock."""
    rows = [*PROJECT["dependencies"]]
    rows += [row for extra in extras for row in PROJECT["optional-dependencies"][extra]]
    found, waiting = set(), [canonicalize_name(Requirement(row).name) for row in rows]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += INDIRECT.get(name, [])
    return found


def test_each_file_is_there_with_its_checksum_and_not_the_lists(bill):
    assert bill["bomFormat"] == "CycloneDX" and bill["specVersion"] == "1.6"
    files = {row["name"]: row for row in bill["components"] if row["type"] == "file"}
    assert set(files) == {WHEEL, SDIST, "barnabas"}
    assert files[WHEEL]["hashes"] == [
        {"alg": "SHA-256", "content": hashlib.sha256(b"a wheel").hexdigest()}
    ]
    whole = bill["metadata"]["component"]
    assert (whole["name"], whole["version"]) == ("barnabas", PROJECT["version"])
    assert depends(bill, whole["bom-ref"]) == set(files)


def test_a_wheel_has_openssl_and_needs_what_pip_brings(bill):
    assert depends(bill, WHEEL) == closure() | {"openssl"}
    assert depends(bill, SDIST) == closure()  # a build from source links the system's OpenSSL


def test_the_one_file_has_its_extras_python_and_libraries(bill):
    spec = (RELEASE / "onefile.spec").read_text()
    extras = re.findall(r'"(.*?)"', re.search(r"^EXTRAS = (.*)$", spec, re.M)[1])
    inside = closure(*extras) | {"openssl", "python", "zlib1g", "libsome-1.so"}
    assert depends(bill, "barnabas") == inside
    named = {row["name"]: row for row in bill["components"]}
    assert named["python"]["version"] == "3.11.7"
    assert named["zlib1g"]["purl"].startswith("pkg:deb/debian/zlib1g@")
    assert named["zlib1g"]["hashes"][0]["content"] == hashlib.sha256(b"of the system").hexdigest()


def test_packages_and_openssl_have_the_versions_and_checksums_of_the_locks(bill):
    named = {row["name"]: row for row in bill["components"] if row["type"] == "library"}
    for name in closure():
        row = named[name]
        assert row["version"] == LOCKED[name]
        entry = re.search(rf"^{re.escape(name)}==.*\\\n((?:    --hash.*\n)+)", LOCK, re.M)
        assert entry is not None
        assert {one["value"] for one in row["properties"]} == set(
            re.findall(r"sha256:(\w+)", entry[1])
        )
    rows = tomllib.loads((RELEASE / "openssl/Cargo.lock").read_text())["package"]
    [crate] = [row for row in rows if row["name"] == "openssl-src"]
    assert named["openssl"]["version"] == crate["version"].partition("+")[2]
    assert crate["checksum"] in {one["value"] for one in named["openssl"]["properties"]}
    tools = {row["name"]: row["version"] for row in bill["metadata"]["tools"]["components"]}
    assert {"cython", "ziglang", "auditwheel", "pyinstaller"} <= set(tools)


def test_the_same_files_make_the_same_bytes_and_others_do_not(made, tmp_path):
    assert write(*place(tmp_path / "again")) == made
    other = write(*place(tmp_path / "other", wheel=b"another wheel"))
    assert json.loads(other)["serialNumber"] != json.loads(made)["serialNumber"]


def test_the_packages_that_this_test_installs_require_what_it_says():
    """INDIRECT is of the real packages, where this environment has them."""
    for name, expected in INDIRECT.items():
        rows = map(Requirement, metadata.requires(name) or ())
        real = {canonicalize_name(r.name) for r in rows if not r.marker or r.marker.evaluate()}
        assert set(expected) <= real, name
