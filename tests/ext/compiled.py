"""Compiles a Cython module of tests/ext against cext's declarations, once for the same sources."""

import functools
import hashlib
import importlib.util
import os
import runpy
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import pytest
from compat.support import cache_dir

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def compiled(name: str) -> ModuleType:
    """Returns the module; skips with the reason if this machine cannot compile."""
    pytest.importorskip("Cython.Build")
    if not (shutil.which("gcc") or shutil.which("cc")):
        pytest.skip("there is no C compiler")
    sys.argv, argv = ["setup.py", "--version"], sys.argv
    try:
        setup = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")
    finally:
        sys.argv = argv
    source = Path(__file__).with_name(f"{name}.pyx")
    made_from = [setup["COMPILE"], setup["LINK"], sys.version, _digest(source)]
    folder = cache_dir() / "ext" / hashlib.sha256(repr(made_from).encode()).hexdigest()[:12]
    made = folder / f"{name}.so"
    if not made.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as into:
            os.replace(_compile(source, Path(into), setup), made)  # another process may have one
    spec = importlib.util.spec_from_file_location(name, made)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _digest(source: Path) -> str:
    """Of the source and of the declarations that it may use."""
    declarations = sorted(path for kind in ("pxd", "h") for path in ROOT.glob(f"cext/**/*.{kind}"))
    found = hashlib.sha256()
    for path in (source, *declarations):
        found.update(path.read_bytes())
    return found.hexdigest()


def _compile(source: Path, into: Path, setup: dict[str, object]) -> Path:
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

    copy = shutil.copy2(source, into)
    extension = Extension(
        source.stem,
        [str(copy)],
        include_dirs=[str(folder) for folder in (ROOT / "cext").iterdir() if folder.is_dir()],
        extra_compile_args=["-O1", *setup["COMPILE"][1:]],
        extra_link_args=setup["LINK"],
    )
    made = cythonize(
        [extension],
        include_path=[setup["names_tree"](into / "names")],
        compiler_directives=setup["DIRECTIVES"],
        build_dir=str(into / "c"),
        quiet=True,
    )
    command = Distribution({"ext_modules": made}).get_command_obj("build_ext")
    command.build_lib = command.build_temp = str(into)
    command.ensure_finalized()
    command.run()
    (path,) = into.glob(f"{source.stem}.*.so")
    return path
