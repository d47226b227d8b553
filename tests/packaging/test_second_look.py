"""A failed test passes at the second look, or the run fails: tests/second_look.py."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

LOOK = Path(__file__).parents[1] / "second_look.py"
LOSES_ONCE = """
from pathlib import Path
def test_{name}():
    seen = Path("seen-{name}")
    first = not seen.exists()
    seen.touch()
    assert not first
"""
FAILS = "def test_{name}(): assert False\n"


@pytest.fixture
def look(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return partial(look_in, tmp_path)


def look_in(tmp_path: Path, tests: dict[str, str], *options: str) -> tuple[int, str, str]:
    """Runs the tests as a stage, then the second look. Returns (exit status, output, record)."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for path, text in tests.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.format(name=file.stem.removeprefix("test_")))
    stage = [sys.executable, "-m", "pytest", "-q", *options, "-o", "cache_dir=kept", "tests"]
    first = subprocess.run(stage, cwd=tmp_path, capture_output=True, text=True)
    assert first.returncode != 0, first.stdout
    command = [sys.executable, str(LOOK), "kept", "record", "-q"]
    second = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    record = tmp_path / "record"
    return second.returncode, second.stdout, record.read_text() if record.exists() else ""


@pytest.mark.parametrize("options", [(), ("-p", "xdist.plugin", "-n", "2")])
def test_a_lost_race_is_looked_at_again_and_recorded(look, options):
    tests = {"tests/api/test_a.py": LOSES_ONCE, "tests/api/test_b.py": "def test_b(): pass\n"}
    status, said, record = look(tests, *options)
    assert status == 0 and "1 passed" in said
    assert record == "tests/api/test_a.py::test_a\n"


def test_tests_of_one_file_may_fail_together(look):
    of_one_file = "".join(LOSES_ONCE.replace("{name}", f"{{name}}_{n}") for n in range(5))
    status, said, record = look({"tests/api/test_a.py": of_one_file})
    assert status == 0 and "5 passed" in said and record.count("test_a.py::") == 5


def test_a_test_that_fails_again_fails_the_run(look):
    tests = {"tests/api/test_a.py": LOSES_ONCE, "tests/api/test_b.py": FAILS}
    status, said, record = look(tests)
    assert status != 0 and "1 failed, 1 passed" in said and not record


@pytest.mark.parametrize(
    ("tests", "why"),
    [
        ({f"tests/api/test_{n}.py": LOSES_ONCE for n in "abcd"}, "4 files failed"),
        ({"tests/history/test_a.py": LOSES_ONCE}, "the first failure counts"),
        ({"tests/durability/test_a.py": LOSES_ONCE}, "the first failure counts"),
        ({"tests/simulation/test_a.py": LOSES_ONCE}, "the first failure counts"),
        ({"tests/conftest.py": "raise RuntimeError\n"}, "no test failed"),
    ],
)
def test_no_second_look(look, tests, why):
    status, said, record = look(tests)
    assert status != 0 and why in said and not record
