"""Each compiled module is hardened: what an overflow could write to is read-only or guarded."""

import os
import runpy
import shutil
from pathlib import Path

import pytest

import barnabas.cext

ROOT = Path(__file__).resolve().parents[2]
BUILT = Path(str(barnabas.cext.__file__)).parent
BINARIES = [
    binary
    for source in (ROOT / "cext").rglob("*.pyx")
    for binary in BUILT.glob(f"{source.relative_to(ROOT / 'cext').with_suffix('')}.*.so")
]


@pytest.mark.skipif(shutil.which("readelf") is None, reason="binutils is not installed")
def test_modules_are_linked_read_only_with_guarded_stacks_and_checked_copies():
    """release/wheels checks each wheel of a release in the same way. A build in place may be older
    than the flags of setup.py."""
    problems = runpy.run_path(str(ROOT / "release/hardening.py"))["problems"]
    found = problems(BINARIES, alone=False)
    if "BARNABAS_TEST_HOME" not in os.environ:
        found = [line for line in found if not line.endswith("no level 3")]
    assert found == [] and len(BINARIES) > 80
