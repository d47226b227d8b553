"""What a release is built from: pinned packages and sources, the flags of each target, and archives
without the time and place of the build. `make release` builds everything; docs/release.md."""

import ast
import gzip
import io
import os
import re
import runpy
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
RELEASE = ROOT / "release"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
INSTALL = (ROOT / "docs/install.md").read_text()
PACKAGE = re.compile(
    r"^([\w.-]+)==(\S+)(.*) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.M
)


def locked(name):
    """The packages of a list and their versions. Each line of it belongs to a package with a
    checksum."""
    text = (RELEASE / name).read_text()
    assert PACKAGE.sub("", text) == ""
    return {canonicalize_name(found[1]): found[2] for found in PACKAGE.finditer(text)}


@pytest.mark.parametrize("name", ["wheels", "onefile", "pyinstaller"])
def test_every_package_of_a_release_is_pinned_with_its_checksums(name):
    lock = locked(f"{name}.lock")
    for line in (RELEASE / f"{name}.in").read_text().splitlines():
        if line and not line.startswith(("#", "-r")):
            wanted = Requirement(line)
            assert wanted.specifier.contains(lock[canonicalize_name(wanted.name)]), line


def test_the_one_file_has_the_packages_that_the_broker_requires():
    lock = locked("onefile.lock")
    for line in PROJECT["dependencies"]:
        wanted = Requirement(line)
        assert wanted.specifier.contains(lock[canonicalize_name(wanted.name)]), line


def test_the_source_of_openssl_is_pinned_with_its_checksum():
    rows = tomllib.loads((RELEASE / "openssl/Cargo.lock").read_text())["package"]
    wanted = tomllib.loads((RELEASE / "openssl/Cargo.toml").read_text())["dependencies"]
    [crate] = [row for row in rows if row["name"] == "openssl-src"]
    assert crate["version"].startswith(wanted["openssl-src"] + ".")
    assert all(len(row["checksum"]) == 64 for row in rows if "source" in row)


def imported(folders):
    found = set()
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            for line in re.findall(r"^\s*(?:import|from) ([a-z]\w*)", path.read_text(), re.M):
                found.add(line)
    return found


MODULES = {"google-re2": "re2", "python-snappy": "snappy"}  # where the name is not the package's


def test_pip_brings_what_the_broker_imports_and_nothing_else():
    """Each package has its reason in docs/install.md."""
    reasons = dict(re.findall(r"^\| `([\w-]+)` \| ([^|]+) \|$", INSTALL, re.M))
    names = {Requirement(line).name for line in PROJECT["dependencies"]}
    assert names == set(reasons)
    used = imported(["broker", "plugins", "clients"])
    assert {name for name in names if MODULES.get(name, name) not in used} == set()


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_each_target_is_compiled_and_linked_by_zig_for_its_architecture(arch):
    suffix = f".cpython-312-{arch}-linux-gnu.so"
    done = subprocess.run(
        [sys.executable, RELEASE / "target.py", suffix, arch, "-Iheaders", "-Wl,-s"],
        capture_output=True,
        text=True,
        check=True,
    )
    module = ast.parse(done.stdout).body[0]
    values = ast.literal_eval(module.value)
    assert module.targets[0].id == "build_time_vars"
    assert values["CC"] == f"barnabas-zig-{arch}" and values["EXT_SUFFIX"] == suffix
    assert values["LDSHARED"] == f"barnabas-zig-{arch} -shared -Wl,-s"
    assert values["CFLAGS"].endswith("-Iheaders")
    assert "-linux-gnu.2.28" in (RELEASE / "wheels").read_text()


def archive(path, when, user):
    with tarfile.open(path, "w:gz") as made:
        for name in ("b", "a"):
            row = tarfile.TarInfo(f"barnabas-1/{name}")
            row.size, row.mtime, row.uname, row.uid = 3, when, user, when % 1000
            made.addfile(row, io.BytesIO(b"one"))


def test_the_source_distribution_does_not_depend_on_when_and_by_whom_it_was_made(tmp_path):
    made = []
    for when, user in ((1_700_000_000, "ann"), (1_800_000_000, "bob")):
        folder = tmp_path / user
        (folder / "out").mkdir(parents=True)
        archive(folder / "barnabas-1.tar.gz", when, user)
        subprocess.run(
            [
                sys.executable,
                RELEASE / "pack.py",
                "sdist",
                folder / "barnabas-1.tar.gz",
                folder / "out",
            ],
            check=True,
            env=os.environ | {"SOURCE_DATE_EPOCH": "1767225600"},
        )
        made.append((folder / "out" / "barnabas-1.tar.gz").read_bytes())
    assert made[0] == made[1]
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(made[0]))) as back:
        assert [(row.name, row.mtime) for row in back] == [
            ("barnabas-1/a", 1767225600),
            ("barnabas-1/b", 1767225600),
        ]


def test_a_source_build_compiles_on_all_cores_and_says_how_far_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # setup.py goes to its own folder
    setup = runpy.run_path(str(ROOT / "setup.py"))
    monkeypatch.chdir(tmp_path)
    assert setup["CORES"] == len(os.sched_getaffinity(0))
    from setuptools import Extension
    from setuptools.dist import Distribution

    for name in ("one", "two"):
        Path(f"{name}.c").write_text(f"int {name}(void) {{ return 1; }}\n")
    extensions = [Extension(name, [f"{name}.c"]) for name in ("one", "two")]
    command = setup["BuildExt"](Distribution({"ext_modules": extensions}))
    command.parallel = setup["CORES"]
    command.ensure_finalized()
    command.run()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("[")]
    assert [line.split()[0] for line in lines] == ["[1/2]", "[2/2]"]
    assert {line.split()[1] for line in lines} == {"one", "two"}
