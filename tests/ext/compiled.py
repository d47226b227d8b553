"""Compiles a Cython module of tests/ext against cext's declarations, once a test session."""

import importlib.util
import runpy
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def compiled(name: str, into: Path) -> ModuleType:
    """Returns the module; skips with the reason if this machine cannot compile."""
    pytest.importorskip("Cython.Build")
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

    if not (shutil.which("gcc") or shutil.which("cc")):
        pytest.skip("there is no C compiler")
    sys.argv, argv = ["setup.py", "--version"], sys.argv
    try:
        setup = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")
    finally:
        sys.argv = argv
    source = into / f"{name}.pyx"
    shutil.copy2(Path(__file__).with_name(f"{name}.pyx"), source)
    extension = Extension(
        name,
        [str(source)],
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
    (path,) = into.glob(f"{name}.*.so")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
