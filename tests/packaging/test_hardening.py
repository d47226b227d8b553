"""Each compiled module is hardened: what an overflow could write to is read-only or guarded."""

import shutil
import subprocess
from pathlib import Path

import pytest

import barnabas.cext

SOURCES = Path(__file__).resolve().parents[2] / "cext"
BUILT = Path(str(barnabas.cext.__file__)).parent
BINARIES = [
    binary
    for source in SOURCES.rglob("*.pyx")
    for binary in BUILT.glob(f"{source.relative_to(SOURCES).with_suffix('')}.*.so")
]


def read(option: str, path: Path) -> str:
    return subprocess.run(
        ["readelf", "--wide", option, path], capture_output=True, text=True
    ).stdout


@pytest.mark.skipif(shutil.which("readelf") is None, reason="binutils is not installed")
def test_modules_are_linked_read_only_with_guarded_stacks_and_checked_copies():
    guarded, checked = [], []
    for path in BINARIES:
        assert "GNU_RELRO" in read("--program-headers", path), path
        assert "NOW" in read("--dynamic", path), path
        assert "RWE" not in read("--program-headers", path), path  # no stack that can be run
        symbols = read("--dyn-syms", path)
        guarded += [path] * ("__stack_chk_fail" in symbols)
        checked += [path] * ("__snprintf_chk" in symbols)
    assert guarded == BINARIES and len(BINARIES) > 80
    assert {path.name.split(".")[0] for path in checked} > {"log", "segment"}
