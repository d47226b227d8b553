"""Every test that tests/slow.txt names exists: `make test` would run a renamed one."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def gone(names: list[str]) -> list[str]:
    """The names whose file is not there, or does not have the test."""
    found = []
    for name in names:
        file, _, test = name.partition("[")[0].partition("::")
        path = ROOT / file
        first = test.partition("::")[0]  # a class may inherit its tests
        if not path.exists() or not re.search(rf"\b{first}\b", path.read_text()):
            found.append(name)
    return found


def test_every_slow_test_exists() -> None:
    assert gone((ROOT / "tests" / "slow.txt").read_text().splitlines()) == []


def test_one_that_is_gone_is_named() -> None:
    here = "tests/layering/test_slow_list.py::test_every_slow_test_exists"
    assert gone([here, f"{here}_", f"no/{here}", f"{here}[a]"]) == [f"{here}_", f"no/{here}"]
