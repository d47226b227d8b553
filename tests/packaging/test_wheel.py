"""The wheel and the sdist: what is in them, and that the package works from anywhere."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import barnabas

ROOT = Path(__file__).resolve().parents[2]
HOME = os.environ.get("BARNABAS_TEST_HOME")
DIST = Path(HOME or ROOT) / "dist"

needs_dist = pytest.mark.skipif(not HOME, reason="no wheel here: tests/run builds it")


@needs_dist
def test_wheel_has_types_and_binaries_and_no_sources():
    [wheel] = DIST.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "barnabas/py.typed" in names
    compiled = {n for n in names if n.endswith(".so")}
    assert {n.split(".")[0] for n in compiled} == {
        f"barnabas/{p.relative_to(ROOT).with_suffix('')}" for p in (ROOT / "cext").rglob("*.pyx")
    }
    assert not [n for n in names if n.endswith((".c", ".pyx"))]
    assert not [n for n in names if n.split("/")[0] in ("broker", "cext", "tests", "clients")]


@needs_dist
def test_sdist_can_be_built_from():
    [sdist] = DIST.glob("*.tar.gz")
    names = {n.split("/", 1)[1] for n in tarfile.open(sdist).getnames() if "/" in n}
    wanted = {p.relative_to(ROOT).as_posix() for p in (ROOT / "cext").rglob("*.p[yx][xd]*")}
    assert wanted <= names
    assert {"setup.py", "LICENSE", "tests/run", "etc/server.properties"} <= names
    # The launcher of the one file is C that we write; Cython's output stays out.
    assert [n for n in names if n.endswith((".so", ".c"))] == ["release/launcher.c"]


@needs_dist
def test_tests_run_against_the_installed_wheel():
    assert not Path(barnabas.__file__).is_relative_to(ROOT / "broker")


def test_works_from_another_directory(tmp_path):
    script = "import barnabas.cext.codec.varint as v; print(v.encode_varint(-1).hex())"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.stdout.strip(), done.returncode) == ("01", 0), done.stderr


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_pip_refuses_another_system_in_one_line_that_names_the_container(system):
    """What pip asks first, for a source distribution or a checkout."""
    script = (
        f"import sys, setuptools.build_meta as backend; sys.platform = {system!r};"
        "backend.get_requires_for_build_wheel()"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode != 0
    assert done.stderr.splitlines() == [
        f"barnabas runs on Linux only (epoll, eventfd, sendfile), and this system is {system}:"
        " use the container image (docs/container.md)"
    ]


def test_every_compiled_module_has_a_stub():
    missing = [p.name for p in (ROOT / "cext").rglob("*.pyx") if not p.with_suffix(".pyi").exists()]
    assert missing == []
